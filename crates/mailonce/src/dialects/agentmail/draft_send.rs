//! The sending of drafts: at once, or scheduled. Either happens once, because its key follows from the draft.

use mailonce_core::{
    content::{RawAttachment, RawContent},
    email::EmailState,
    inbox::Inbox,
    limits,
    problem::{Code, Problem},
    schedule::Schedule,
    time::Time,
    ttl::Ttl,
};
use mailonce_engine::{
    drafts::{AboutDraft, Draft, DraftFile},
    reply::{AnswerMore, ForwardRequest, ReplyRequest},
    view::Sent,
};
use serde::Deserialize;

use super::{
    Answer,
    door::Call,
    drafts::{any, state},
    labels::check_labels,
    mail, send,
};
use crate::api::wire::OneOrMany;

/// How often a send that raced with another is tried anew: each time another one came through.
const SENDS: usize = 100;

/// Lets a draft with a time wait in the ledger as the email that it is to become.
pub(super) async fn scheduled(call: &Call, inbox: &Inbox, draft: Draft) -> Result<Draft, Problem> {
    let Some(at) = draft.about.send_at.filter(|_| draft.about.email.is_none() && !draft.about.sent) else {
        return Ok(draft);
    };
    let sent = become_email(call, inbox, &draft, Some(at)).await?;
    let about = AboutDraft { email: Some(sent.id), ..draft.about.clone() };
    match call.engine.change_draft(&call.caller, &draft, &about, None).await {
        Ok((draft, _)) => Ok(draft),
        // Whoever came first made the same email.
        Err(problem) if problem.code == Code::StaleRev => call.engine.draft(&call.caller, draft.id).await,
        Err(problem) => Err(problem),
    }
}

/// The email that a draft becomes, under the key that follows from the draft.
async fn become_email(call: &Call, inbox: &Inbox, draft: &Draft, due: Option<Time>) -> Result<Sent, Problem> {
    send::awake(call, inbox)?;
    let about = &draft.about;
    let key = Some(call.engine.own_key(&call.caller, "draft", draft.id, about.turn)?);
    let file = |file: &DraftFile| RawAttachment {
        filename: file.filename.clone(),
        content: file.content.clone(),
        content_type: file.content_type.clone(),
        content_id: file.content_id.clone(),
    };
    let attachments: Vec<RawAttachment> = about.files.iter().map(file).collect();
    let scheduled_at = due.map(|at| at.to_string());
    if about.in_reply_to.is_none() && about.forward_of.is_none() {
        let raw = RawContent {
            from: send::sender(inbox),
            to: about.to.clone(),
            cc: about.cc.clone(),
            bcc: about.bcc.clone(),
            reply_to: about.reply_to.clone(),
            subject: about.subject.clone().unwrap_or_default(),
            text: about.text.clone(),
            html: about.html.clone(),
            attachments,
            scheduled_at,
            ..RawContent::default()
        };
        return call.engine.send(&call.caller, send::request(raw, key)?).await;
    }
    let more = AnswerMore {
        to: about.to.clone(),
        cc: about.cc.clone(),
        bcc: about.bcc.clone(),
        reply_to: about.reply_to.clone(),
        subject: about.subject.clone(),
        html: None,
        headers: Vec::new(),
        attachments,
        scheduled_at,
        ttl: Some(Ttl(limits::OPERATION_MS)),
    };
    if let Some(name) = &about.forward_of {
        let request = ForwardRequest { text: about.text.clone(), key, ..ForwardRequest::default() };
        let more = AnswerMore { html: about.html.clone(), ..more };
        return send::pass_on(call, &mail::find(call, inbox, name).await?, request, more).await;
    }
    let answer = ReplyRequest {
        text: about.text.clone(),
        html: about.html.clone(),
        reply_all: about.reply_all,
        key,
        ..ReplyRequest::default()
    };
    let answered = mail::find(call, inbox, about.in_reply_to.as_deref().unwrap_or_default()).await?;
    send::reply_to(call, inbox, &answered, answer, more).await
}

/// Sends a draft, once: whoever sends it again gets the same message.
pub(super) async fn send_draft(call: &Call, inbox: &Inbox, id: &str) -> Answer {
    #[derive(Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct LabelsBody {
        add_labels: OneOrMany,
        remove_labels: OneOrMany,
    }
    let LabelsBody { add_labels, remove_labels } = call.parse()?;
    check_labels(&add_labels.0, "add_labels")?;
    let draft = marked(call, inbox, id).await?;
    if let Some(email) = draft.about.email {
        if state(call, &draft).await? == Some(EmailState::Scheduled) {
            call.engine.reschedule(&call.caller, email, &Schedule::At(call.engine.now())).await?;
        }
        return Ok(send::became(call, &call.engine.email(&call.caller, email).await?));
    }
    let sent = match become_email(call, inbox, &draft, None).await {
        Ok(sent) => sent,
        Err(problem) => {
            unmark(call, &draft, &problem).await?;
            return Err(problem.into());
        }
    };
    let mut labels = draft.about.labels.clone();
    labels.retain(|label| !remove_labels.0.contains(label));
    labels.extend(add_labels.0);
    send::answered(call, &sent, &labels).await
}

/// The draft, closed to changes from now on. The key of the call is bound with it.
async fn marked(call: &Call, inbox: &Inbox, id: &str) -> Result<Draft, Problem> {
    let asked = call.asked("agentmail draft send", id);
    for _ in 0..SENDS {
        let (draft, _) = any(call, Some(inbox.clone()), id).await?;
        if draft.about.sent && asked.is_none() {
            return Ok(draft);
        }
        let about = AboutDraft { sent: true, ..draft.about.clone() };
        match call.engine.change_draft(&call.caller, &draft, &about, asked.clone()).await {
            Ok((draft, _)) => return Ok(draft),
            Err(problem) if problem.code == Code::StaleRev => {}
            Err(problem) => return Err(problem),
        }
    }
    Err(Problem::new(Code::StaleRev, "the draft changes all the time; try again"))
}

/// Opens a draft again that could not be sent. Not when nobody can tell: then the repeat finds out.
async fn unmark(call: &Call, draft: &Draft, why: &Problem) -> Result<(), Problem> {
    if matches!(why.code, Code::Unavailable | Code::Internal | Code::Timeout) {
        return Ok(());
    }
    let about = AboutDraft { sent: false, ..draft.about.clone() };
    match call.engine.change_draft(&call.caller, draft, &about, None).await {
        Ok(_) => Ok(()),
        Err(problem) if problem.code == Code::StaleRev => Ok(()),
        Err(problem) => Err(problem),
    }
}
