//! Sends drafts, at once or scheduled. Each is sent once, because its idempotency key is derived from the draft.

use mailonce_core::{
    id::EmailId,
    inbox::Inbox,
    limits,
    outbound::{
        content::{EmailContent, RawContent},
        email::{Email, EmailState},
        schedule::Schedule,
    },
    problem::{Code, Problem},
    time::Time,
    ttl::Ttl,
};
use mailonce_engine::{
    conversation::reply::{ForwardRequest, ReplyOverrides, ReplyRequest},
    outbound::{
        draft_send_cycles::{MAX_CONFLICT_RETRIES, draft_changes_too_fast},
        drafts::{Draft, DraftDetails},
        send_receipt::SendReceipt,
    },
};
use serde::Deserialize;

use super::{
    AgentMailResult,
    draft_view::{email_state, find_any, missing_draft},
    labels::check_labels,
    send,
};
use crate::{
    dialects::{
        agentmail::{message_view, request::AgentMailRequest},
        draft_lock::{lock_for_sending, reopen},
    },
    http::{extract, json::OneOrMany},
};

/// Finishes the pending work of a draft and returns the draft with its inbox. This cancels an email that must no longer
/// be sent, and accepts the scheduled email of a draft with `send_at`.
pub(super) async fn apply_pending_schedule(
    call: &AgentMailRequest,
    inbox: Option<&Inbox>,
    id: &str,
) -> Result<(Draft, Inbox), Problem> {
    for _ in 0..MAX_CONFLICT_RETRIES {
        let (draft, draft_inbox) = find_any(call, inbox, id).await?;
        let draft = call.engine.drafts.finish_pending_cancel(&call.caller, draft.id).await?;
        let Some(at) = draft.details.send_at.filter(|_| draft.details.is_schedule_pending()) else {
            return Ok((draft, draft_inbox));
        };
        match Box::pin(send_as_email(call, &draft_inbox, &draft, Some(at))).await {
            Ok(sent) => {
                if !draft.details.labels.is_empty() {
                    call.engine.inboxes.change_labels(&call.caller, sent.id.0, &draft.details.labels, &[]).await?;
                }
                if let Some(draft) = call.engine.drafts.record_draft_email(&call.caller, &draft, sent.id).await? {
                    return Ok((draft, draft_inbox));
                }
            }
            Err(problem) => reopen(&call.engine, &call.caller, &draft, problem).await?,
        }
    }
    Err(draft_changes_too_fast())
}

/// Refuses a draft that could not be scheduled, before anything is stored.
pub(super) fn check_schedule(call: &AgentMailRequest, inbox: &Inbox, details: &DraftDetails) -> Result<(), Problem> {
    let Some(at) = details.send_at else { return Ok(()) };
    if !Schedule::At(at).is_within_limit(call.engine.ctx.now()) {
        return Err(Problem::invalid_field("send_at", "is too far ahead"));
    }
    if let Some(problem) = send::paused_problem(call, inbox) {
        return Err(problem);
    }
    if details.in_reply_to.is_none() && details.forward_of.is_none() {
        EmailContent::validate(RawContent { from: inbox.address.clone(), ..standalone_content(details, None) })?;
    }
    Ok(())
}

/// The content of a draft that is neither a reply nor a forward.
fn standalone_content(details: &DraftDetails, due: Option<Time>) -> RawContent {
    RawContent {
        to: details.to.clone(),
        cc: details.cc.clone(),
        bcc: details.bcc.clone(),
        reply_to: details.reply_to.clone(),
        subject: details.subject.clone().unwrap_or_default(),
        text: details.text.clone(),
        html: details.html.clone(),
        attachments: details.attachments(),
        scheduled_at: due.map(|at| at.to_string()),
        ..RawContent::default()
    }
}

/// Accepts the email of a draft, under the idempotency key that is derived from the draft.
async fn send_as_email(
    call: &AgentMailRequest,
    inbox: &Inbox,
    draft: &Draft,
    due: Option<Time>,
) -> Result<SendReceipt, Problem> {
    let details = &draft.details;
    let key = Some(call.engine.drafts.send_cycle_key(&call.caller, draft)?);
    if details.in_reply_to.is_none() && details.forward_of.is_none() {
        return call
            .engine
            .outbound
            .send(&call.caller, send::send_request(call, inbox, standalone_content(details, due), key)?)
            .await;
    }
    let overrides = ReplyOverrides {
        to: details.to.clone(),
        cc: details.cc.clone(),
        bcc: details.bcc.clone(),
        reply_to: details.reply_to.clone(),
        subject: details.subject.clone(),
        html: None,
        headers: Vec::new(),
        attachments: details.attachments(),
        scheduled_at: due.map(|at| at.to_string()),
        ttl: Some(Ttl(limits::OPERATION_RETENTION_MS)),
        refusal: send::paused_problem(call, inbox),
    };
    if let Some(name) = &details.forward_of {
        let request = ForwardRequest { text: details.text.clone(), key, ..ForwardRequest::default() };
        let overrides = ReplyOverrides { html: details.html.clone(), ..overrides };
        return send::forward_message(call, &message_view::find(call, inbox, name).await?, request, overrides).await;
    }
    let reply = ReplyRequest {
        text: details.text.clone(),
        html: details.html.clone(),
        reply_all: details.reply_all,
        key,
        ..ReplyRequest::default()
    };
    let replied_to = message_view::find(call, inbox, details.in_reply_to.as_deref().unwrap_or_default()).await?;
    send::reply_to(call, inbox, &replied_to, reply, overrides).await
}

/// The body of a send request: a change of labels.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DraftSendBody {
    add_labels: OneOrMany,
    remove_labels: OneOrMany,
}

impl DraftSendBody {
    /// The labels of the sent message.
    fn apply_to(&self, draft: &Draft) -> Vec<String> {
        let mut labels = draft.details.labels.clone();
        labels.retain(|label| !self.remove_labels.0.contains(label));
        labels.extend(self.add_labels.0.iter().cloned());
        labels
    }
}

/// Sends a draft once. A repeated request returns the same message.
pub(super) async fn send_draft(call: &AgentMailRequest, inbox: &Inbox, id: &str) -> AgentMailResult {
    let body: DraftSendBody = call.parse()?;
    check_labels(&body.add_labels.0, "add_labels")?;
    check_labels(&body.remove_labels.0, "remove_labels")?;
    for _ in 0..MAX_CONFLICT_RETRIES {
        let (draft, _) = apply_pending_schedule(call, Some(inbox), id).await?;
        if draft.details.removed {
            return Err(missing_draft(id).into());
        }
        if let Some(email) = find_failed_or_cancelled_email(call, &draft).await? {
            return Ok(send::draft_sent_response(call, &email));
        }
        let keyed_call = extract::keyed_call(call.key.as_ref(), "agentmail draft send", id, b"");
        let Some(draft) = lock_for_sending(&call.engine, &call.caller, &draft, keyed_call).await? else { continue };
        if let Some(email) = draft.details.email {
            return send_scheduled_now(call, &draft, email, &body).await;
        }
        match Box::pin(send_as_email(call, inbox, &draft, None)).await {
            Ok(sent) => {
                call.engine.drafts.record_draft_email(&call.caller, &draft, sent.id).await?;
                return send::respond(call, &sent, &body.apply_to(&draft)).await;
            }
            Err(problem) => reopen(&call.engine, &call.caller, &draft, problem).await?,
        }
    }
    Err(draft_changes_too_fast().into())
}

/// The email of a draft if it failed or was cancelled, and the draft did not change since. Such a draft stays a draft,
/// so that it can be changed and sent after all.
async fn find_failed_or_cancelled_email(call: &AgentMailRequest, draft: &Draft) -> Result<Option<Email>, Problem> {
    if !matches!(email_state(call, draft).await?, Some(EmailState::Failed | EmailState::Cancelled)) {
        return Ok(None);
    }
    let (current, email) = (call.engine.drafts.draft(&call.caller, draft.id).await?, draft.details.email);
    match email.filter(|_| current.rev == draft.rev) {
        Some(email) => call.engine.outbound.email(&call.caller, email).await.map(Some),
        None => Ok(None),
    }
}

/// Sends the scheduled email of a draft now, and responds with that email.
async fn send_scheduled_now(
    call: &AgentMailRequest,
    draft: &Draft,
    email: EmailId,
    body: &DraftSendBody,
) -> AgentMailResult {
    match call.engine.outbound.reschedule(&call.caller, email, &Schedule::At(call.engine.ctx.now())).await {
        Err(problem) if problem.code == Code::QuotaExceeded => {
            return Err(reopen_scheduled(call, draft, problem).await.into());
        }
        Err(problem) if problem.code != Code::NotScheduled => return Err(problem.into()),
        _ => {}
    }
    let (add, remove) = (&body.add_labels.0, &body.remove_labels.0);
    if !add.is_empty() || !remove.is_empty() {
        call.engine.inboxes.change_labels(&call.caller, email.0, add, remove).await?;
    }
    Ok(send::draft_sent_response(call, &call.engine.outbound.email(&call.caller, email).await?))
}

/// Unlocks a draft whose email stays scheduled, and returns why it could not be sent now.
async fn reopen_scheduled(call: &AgentMailRequest, draft: &Draft, cause: Problem) -> Problem {
    let details = DraftDetails { sent: false, ..draft.details.clone() };
    match call.engine.drafts.change_draft(&call.caller, draft, &details, None).await {
        // Another request unlocked it, or was refused like this one.
        Ok(_) => cause,
        Err(problem) if problem.code == Code::StaleRev => cause,
        Err(problem) => problem,
    }
}
