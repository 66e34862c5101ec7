//! The sending of drafts: at once, or scheduled. Either happens once, because its key follows from the draft.

use mailonce_core::{
    id::EmailId,
    inbox::Inbox,
    limits,
    outbound::{
        content::{EmailContent, RawAttachment, RawContent},
        email::{Email, EmailState},
        schedule::Schedule,
    },
    problem::{Code, FieldError, Problem},
    time::Time,
    ttl::Ttl,
};
use mailonce_engine::{
    conversation::reply::{ForwardRequest, ReplyOverrides, ReplyRequest},
    outbound::{
        draft_send_cycles::{MAX_CONFLICT_RETRIES, SendCycleEnd, draft_changes_too_fast},
        drafts::{Draft, DraftDetails, DraftFile},
        send_receipt::SendReceipt,
    },
};
use serde::Deserialize;

use super::{
    AgentMailResult,
    drafts::{email_state, find_any, missing_draft},
    labels::check_labels,
    send,
};
use crate::api::{door, wire::OneOrMany};
use crate::dialects::agentmail::{message_view, request::AgentMailRequest};

/// The draft when nothing is left to do about it: what must not go was taken back, and with a time it waits in the
/// ledger as the email that it is to become.
pub(super) async fn settle_schedule(
    call: &AgentMailRequest,
    inbox: Option<&Inbox>,
    id: &str,
) -> Result<(Draft, Inbox), Problem> {
    for _ in 0..MAX_CONFLICT_RETRIES {
        let (draft, own) = find_any(call, inbox, id).await?;
        let draft = call.engine.finish_pending_cancel(&call.caller, draft.id).await?;
        let Some(at) = draft.details.send_at.filter(|_| draft.details.is_schedule_pending()) else {
            return Ok((draft, own));
        };
        match Box::pin(send_as_email(call, &own, &draft, Some(at))).await {
            Ok(sent) => {
                if !draft.details.labels.is_empty() {
                    call.engine.change_labels(&call.caller, sent.id.0, &draft.details.labels, &[]).await?;
                }
                if let Some(draft) = call.engine.record_draft_email(&call.caller, &draft, sent.id).await? {
                    return Ok((draft, own));
                }
            }
            Err(problem) => reopen(call, &draft, problem).await?,
        }
    }
    Err(draft_changes_too_fast())
}

/// Refuses what could not be scheduled, before anything changes.
pub(super) fn check_schedule(call: &AgentMailRequest, inbox: &Inbox, about: &DraftDetails) -> Result<(), Problem> {
    let Some(at) = about.send_at else { return Ok(()) };
    if !Schedule::At(at).is_within_limit(call.engine.now()) {
        return Err(Problem::from(vec![FieldError::new("send_at", "is too far ahead")]));
    }
    if let Some(problem) = send::paused_problem(call, inbox) {
        return Err(problem);
    }
    if about.in_reply_to.is_none() && about.forward_of.is_none() {
        EmailContent::validate(RawContent { from: inbox.address.clone(), ..standalone_content(about, None) })?;
    }
    Ok(())
}

/// The mail that a draft is which answers nothing and passes nothing on.
fn standalone_content(about: &DraftDetails, due: Option<Time>) -> RawContent {
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

fn attachments(about: &DraftDetails) -> Vec<RawAttachment> {
    let file = |file: &DraftFile| RawAttachment {
        filename: file.filename.clone(),
        content: file.content.clone(),
        content_type: file.content_type.clone(),
        content_id: file.content_id.clone(),
    };
    about.files.iter().map(file).collect()
}

/// The email that a draft becomes, under the key that follows from the draft.
async fn send_as_email(
    call: &AgentMailRequest,
    inbox: &Inbox,
    draft: &Draft,
    due: Option<Time>,
) -> Result<SendReceipt, Problem> {
    let about = &draft.details;
    let key = Some(call.engine.send_cycle_key(&call.caller, draft)?);
    if about.in_reply_to.is_none() && about.forward_of.is_none() {
        return call
            .engine
            .send(&call.caller, send::send_request(call, inbox, standalone_content(about, due), key)?)
            .await;
    }
    let more = ReplyOverrides {
        to: about.to.clone(),
        cc: about.cc.clone(),
        bcc: about.bcc.clone(),
        reply_to: about.reply_to.clone(),
        subject: about.subject.clone(),
        html: None,
        headers: Vec::new(),
        attachments: attachments(about),
        scheduled_at: due.map(|at| at.to_string()),
        ttl: Some(Ttl(limits::OPERATION_RETENTION_MS)),
        refusal: send::paused_problem(call, inbox),
    };
    if let Some(name) = &about.forward_of {
        let request = ForwardRequest { text: about.text.clone(), key, ..ForwardRequest::default() };
        let more = ReplyOverrides { html: about.html.clone(), ..more };
        return send::forward_message(call, &message_view::find(call, inbox, name).await?, request, more).await;
    }
    let answer = ReplyRequest {
        text: about.text.clone(),
        html: about.html.clone(),
        reply_all: about.reply_all,
        key,
        ..ReplyRequest::default()
    };
    let answered = message_view::find(call, inbox, about.in_reply_to.as_deref().unwrap_or_default()).await?;
    send::reply_to(call, inbox, &answered, answer, more).await
}

/// A change of labels that comes with a send.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DraftSendBody {
    add_labels: OneOrMany,
    remove_labels: OneOrMany,
}

impl DraftSendBody {
    /// The labels that the message of a draft has.
    fn apply_to(&self, draft: &Draft) -> Vec<String> {
        let mut labels = draft.details.labels.clone();
        labels.retain(|label| !self.remove_labels.0.contains(label));
        labels.extend(self.add_labels.0.iter().cloned());
        labels
    }
}

/// Sends a draft, once: whoever sends it again gets the same message.
pub(super) async fn send_draft(call: &AgentMailRequest, inbox: &Inbox, id: &str) -> AgentMailResult {
    let body: DraftSendBody = call.parse()?;
    check_labels(&body.add_labels.0, "add_labels")?;
    check_labels(&body.remove_labels.0, "remove_labels")?;
    for _ in 0..MAX_CONFLICT_RETRIES {
        let (draft, _) = settle_schedule(call, Some(inbox), id).await?;
        if draft.details.removed {
            return Err(missing_draft(id).into());
        }
        if let Some(email) = find_unsent_email(call, &draft).await? {
            return Ok(send::draft_sent_response(call, &email));
        }
        let Some(draft) = lock_for_sending(call, &draft, id).await? else { continue };
        if let Some(email) = draft.details.email {
            return send_scheduled_now(call, &draft, email, &body).await;
        }
        match Box::pin(send_as_email(call, inbox, &draft, None)).await {
            Ok(sent) => {
                call.engine.record_draft_email(&call.caller, &draft, sent.id).await?;
                return send::respond(call, &sent, &body.apply_to(&draft)).await;
            }
            Err(problem) => reopen(call, &draft, problem).await?,
        }
    }
    Err(draft_changes_too_fast().into())
}

/// The email of a draft that surely does not go, and not because the draft is in its next turn by now. Such a draft
/// stays one, so that it can be changed and sent after all.
async fn find_unsent_email(call: &AgentMailRequest, draft: &Draft) -> Result<Option<Email>, Problem> {
    if !matches!(email_state(call, draft).await?, Some(EmailState::Failed | EmailState::Cancelled)) {
        return Ok(None);
    }
    let (now, email) = (call.engine.draft(&call.caller, draft.id).await?, draft.details.email);
    match email.filter(|_| now.rev == draft.rev) {
        Some(email) => call.engine.email(&call.caller, email).await.map(Some),
        None => Ok(None),
    }
}

/// Makes the email that waits due, and tells what it is.
async fn send_scheduled_now(
    call: &AgentMailRequest,
    draft: &Draft,
    email: EmailId,
    body: &DraftSendBody,
) -> AgentMailResult {
    match call.engine.reschedule(&call.caller, email, &Schedule::At(call.engine.now())).await {
        Err(problem) if problem.code == Code::QuotaExceeded => {
            return Err(reopen_scheduled(call, draft, problem).await.into());
        }
        Err(problem) if problem.code != Code::NotScheduled => return Err(problem.into()),
        _ => {}
    }
    let (add, remove) = (&body.add_labels.0, &body.remove_labels.0);
    if !add.is_empty() || !remove.is_empty() {
        call.engine.change_labels(&call.caller, email.0, add, remove).await?;
    }
    Ok(send::draft_sent_response(call, &call.engine.email(&call.caller, email).await?))
}

/// Opens a draft to changes again whose email keeps its time, and returns why it could not go now.
async fn reopen_scheduled(call: &AgentMailRequest, draft: &Draft, why: Problem) -> Problem {
    let about = DraftDetails { sent: false, ..draft.details.clone() };
    match call.engine.change_draft(&call.caller, draft, &about, None).await {
        // Another call opened it, or was refused like this one.
        Ok(_) => why,
        Err(problem) if problem.code == Code::StaleRev => why,
        Err(problem) => problem,
    }
}

/// The draft, closed to changes from now on; `None` when it changed meanwhile. The key of the call is bound with it.
async fn lock_for_sending(call: &AgentMailRequest, draft: &Draft, id: &str) -> Result<Option<Draft>, Problem> {
    let mut asked = door::keyed_call(call.key.as_ref(), "agentmail draft send", id, b"");
    if draft.details.sent && asked.is_none() {
        return Ok(Some(draft.clone()));
    }
    let about = DraftDetails { sent: true, ..draft.details.clone() };
    loop {
        match call.engine.change_draft(&call.caller, draft, &about, asked.take()).await {
            Ok((draft, false)) => return Ok(Some(draft)),
            // Asked before under this key. If that could not be done then, it is to be done now.
            Ok((now, true)) if now.details.sent => return Ok(Some(now)),
            Ok((now, true)) if now.rev != draft.rev => return Ok(None),
            Ok((_, true)) => {}
            Err(problem) if problem.code == Code::StaleRev => return Ok(None),
            Err(problem) => return Err(problem),
        }
    }
}

/// Makes a draft of it again that could not be sent or scheduled, and tells why; nothing when there is more to see.
/// Not when nobody can tell: then the repeat finds out.
async fn reopen(call: &AgentMailRequest, draft: &Draft, why: Problem) -> Result<(), Problem> {
    if matches!(why.code, Code::Unavailable | Code::Internal | Code::Timeout) {
        return Err(why);
    }
    let turn = draft.details.turn + 1;
    let about = DraftDetails { sent: false, send_at: None, turn, ..draft.details.clone() };
    match call.engine.end_send_cycle(&call.caller, draft, &about).await? {
        SendCycleEnd::Ended(_) => Err(why),
        // Somebody else came through with it.
        SendCycleEnd::AlreadySent(email) => call.engine.record_draft_email(&call.caller, draft, email).await.map(drop),
        // The key is taken when somebody else ended the turn.
        SendCycleEnd::Changed if why.code == Code::KeyMismatch => Ok(()),
        SendCycleEnd::Changed => Err(why),
    }
}
