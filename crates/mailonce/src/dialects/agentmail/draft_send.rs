//! The sending of drafts: at once, or scheduled. Either happens once, because its key follows from the draft.

use mailonce_core::{
    content::{Content, RawAttachment, RawContent},
    email::{Email, EmailState},
    id::EmailId,
    inbox::Inbox,
    limits,
    problem::{Code, FieldError, Problem},
    schedule::Schedule,
    time::Time,
    ttl::Ttl,
};
use mailonce_engine::{
    draft_turns::{STEPS, TurnEnd, restless},
    drafts::{AboutDraft, Draft, DraftFile},
    reply::{AnswerMore, ForwardRequest, ReplyRequest},
    view::Sent,
};
use serde::Deserialize;

use super::{
    Answer,
    door::Call,
    drafts::{any, missing, state},
    labels::check_labels,
    mail, send,
};
use crate::api::{door, wire::OneOrMany};

/// The draft when nothing is left to do about it: what must not go was taken back, and with a time it waits in the
/// ledger as the email that it is to become.
pub(super) async fn at_rest(call: &Call, inbox: Option<&Inbox>, id: &str) -> Result<(Draft, Inbox), Problem> {
    for _ in 0..STEPS {
        let (draft, own) = any(call, inbox, id).await?;
        let draft = call.engine.settled_draft(&call.caller, draft.id).await?;
        let Some(at) = draft.about.send_at.filter(|_| draft.about.is_pending()) else { return Ok((draft, own)) };
        match Box::pin(become_email(call, &own, &draft, Some(at))).await {
            Ok(sent) => {
                if !draft.about.labels.is_empty() {
                    call.engine.relabel(&call.caller, sent.id.0, &draft.about.labels, &[]).await?;
                }
                if let Some(draft) = call.engine.note_email_of_draft(&call.caller, &draft, sent.id).await? {
                    return Ok((draft, own));
                }
            }
            Err(problem) => reopened(call, &draft, problem).await?,
        }
    }
    Err(restless())
}

/// Refuses what could not be scheduled, before anything changes.
pub(super) fn check_schedule(call: &Call, inbox: &Inbox, about: &AboutDraft) -> Result<(), Problem> {
    let Some(at) = about.send_at else { return Ok(()) };
    if !Schedule::At(at).fits(call.engine.now()) {
        return Err(Problem::from(vec![FieldError::new("send_at", "is too far ahead")]));
    }
    if let Some(problem) = send::stopped(call, inbox) {
        return Err(problem);
    }
    if about.in_reply_to.is_none() && about.forward_of.is_none() {
        Content::check(RawContent { from: inbox.address.clone(), ..plain(about, None) })?;
    }
    Ok(())
}

/// The mail that a draft is which answers nothing and passes nothing on.
fn plain(about: &AboutDraft, due: Option<Time>) -> RawContent {
    RawContent {
        to: about.to.clone(),
        cc: about.cc.clone(),
        bcc: about.bcc.clone(),
        reply_to: about.reply_to.clone(),
        subject: about.subject.clone().unwrap_or_default(),
        text: about.text.clone(),
        html: about.html.clone(),
        attachments: attachments(about),
        scheduled_at: due.map(|at| at.to_string()),
        ..RawContent::default()
    }
}

fn attachments(about: &AboutDraft) -> Vec<RawAttachment> {
    let file = |file: &DraftFile| RawAttachment {
        filename: file.filename.clone(),
        content: file.content.clone(),
        content_type: file.content_type.clone(),
        content_id: file.content_id.clone(),
    };
    about.files.iter().map(file).collect()
}

/// The email that a draft becomes, under the key that follows from the draft.
async fn become_email(call: &Call, inbox: &Inbox, draft: &Draft, due: Option<Time>) -> Result<Sent, Problem> {
    let about = &draft.about;
    let key = Some(call.engine.key_of_turn(&call.caller, draft)?);
    if about.in_reply_to.is_none() && about.forward_of.is_none() {
        return call.engine.send(&call.caller, send::request(call, inbox, plain(about, due), key)?).await;
    }
    let more = AnswerMore {
        to: about.to.clone(),
        cc: about.cc.clone(),
        bcc: about.bcc.clone(),
        reply_to: about.reply_to.clone(),
        subject: about.subject.clone(),
        html: None,
        headers: Vec::new(),
        attachments: attachments(about),
        scheduled_at: due.map(|at| at.to_string()),
        ttl: Some(Ttl(limits::OPERATION_MS)),
        stopped: send::stopped(call, inbox),
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

/// A change of labels that comes with a send.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LabelsBody {
    add_labels: OneOrMany,
    remove_labels: OneOrMany,
}

impl LabelsBody {
    /// The labels that the message of a draft has.
    fn on(&self, draft: &Draft) -> Vec<String> {
        let mut labels = draft.about.labels.clone();
        labels.retain(|label| !self.remove_labels.0.contains(label));
        labels.extend(self.add_labels.0.iter().cloned());
        labels
    }
}

/// Sends a draft, once: whoever sends it again gets the same message.
pub(super) async fn send_draft(call: &Call, inbox: &Inbox, id: &str) -> Answer {
    let body: LabelsBody = call.parse()?;
    check_labels(&body.add_labels.0, "add_labels")?;
    check_labels(&body.remove_labels.0, "remove_labels")?;
    for _ in 0..STEPS {
        let (draft, _) = at_rest(call, Some(inbox), id).await?;
        if draft.about.removed {
            return Err(missing(id).into());
        }
        if let Some(email) = given_up(call, &draft).await? {
            return Ok(send::became(call, &email));
        }
        let Some(draft) = marked(call, &draft, id).await? else { continue };
        if let Some(email) = draft.about.email {
            return sent_now(call, &draft, email, &body).await;
        }
        match Box::pin(become_email(call, inbox, &draft, None)).await {
            Ok(sent) => {
                call.engine.note_email_of_draft(&call.caller, &draft, sent.id).await?;
                return send::answered(call, &sent, &body.on(&draft)).await;
            }
            Err(problem) => reopened(call, &draft, problem).await?,
        }
    }
    Err(restless().into())
}

/// The email of a draft that surely does not go, and not because the draft is in its next turn by now. Such a draft
/// stays one, so that it can be changed and sent after all.
async fn given_up(call: &Call, draft: &Draft) -> Result<Option<Email>, Problem> {
    if !matches!(state(call, draft).await?, Some(EmailState::Failed | EmailState::Cancelled)) {
        return Ok(None);
    }
    let (now, email) = (call.engine.draft(&call.caller, draft.id).await?, draft.about.email);
    match email.filter(|_| now.rev == draft.rev) {
        Some(email) => call.engine.email(&call.caller, email).await.map(Some),
        None => Ok(None),
    }
}

/// Makes the email that waits due, and tells what it is.
async fn sent_now(call: &Call, draft: &Draft, email: EmailId, body: &LabelsBody) -> Answer {
    match call.engine.reschedule(&call.caller, email, &Schedule::At(call.engine.now())).await {
        Err(problem) if problem.code == Code::QuotaExceeded => {
            return Err(stays_scheduled(call, draft, problem).await.into());
        }
        Err(problem) if problem.code != Code::NotScheduled => return Err(problem.into()),
        _ => {}
    }
    let (add, remove) = (&body.add_labels.0, &body.remove_labels.0);
    if !add.is_empty() || !remove.is_empty() {
        call.engine.relabel(&call.caller, email.0, add, remove).await?;
    }
    Ok(send::became(call, &call.engine.email(&call.caller, email).await?))
}

/// Opens a draft to changes again whose email keeps its time, and returns why it could not go now.
async fn stays_scheduled(call: &Call, draft: &Draft, why: Problem) -> Problem {
    let about = AboutDraft { sent: false, ..draft.about.clone() };
    match call.engine.change_draft(&call.caller, draft, &about, None).await {
        // Another call opened it, or was refused like this one.
        Ok(_) => why,
        Err(problem) if problem.code == Code::StaleRev => why,
        Err(problem) => problem,
    }
}

/// The draft, closed to changes from now on; `None` when it changed meanwhile. The key of the call is bound with it.
async fn marked(call: &Call, draft: &Draft, id: &str) -> Result<Option<Draft>, Problem> {
    let mut asked = door::asked(call.key.as_ref(), "agentmail draft send", id, b"");
    if draft.about.sent && asked.is_none() {
        return Ok(Some(draft.clone()));
    }
    let about = AboutDraft { sent: true, ..draft.about.clone() };
    loop {
        match call.engine.change_draft(&call.caller, draft, &about, asked.take()).await {
            Ok((draft, false)) => return Ok(Some(draft)),
            // Asked before under this key. If that could not be done then, it is to be done now.
            Ok((now, true)) if now.about.sent => return Ok(Some(now)),
            Ok((now, true)) if now.rev != draft.rev => return Ok(None),
            Ok((_, true)) => {}
            Err(problem) if problem.code == Code::StaleRev => return Ok(None),
            Err(problem) => return Err(problem),
        }
    }
}

/// Makes a draft of it again that could not be sent or scheduled, and tells why; nothing when there is more to see.
/// Not when nobody can tell: then the repeat finds out.
async fn reopened(call: &Call, draft: &Draft, why: Problem) -> Result<(), Problem> {
    if matches!(why.code, Code::Unavailable | Code::Internal | Code::Timeout) {
        return Err(why);
    }
    let turn = draft.about.turn + 1;
    let about = AboutDraft { sent: false, send_at: None, turn, ..draft.about.clone() };
    match call.engine.end_turn(&call.caller, draft, &about).await? {
        TurnEnd::Ended(_) => Err(why),
        // Somebody else came through with it.
        TurnEnd::Became(email) => call.engine.note_email_of_draft(&call.caller, draft, email).await.map(drop),
        // The key is taken when somebody else ended the turn.
        TurnEnd::Changed if why.code == Code::KeyMismatch => Ok(()),
        TurnEnd::Changed => Err(why),
    }
}
