//! Mutants of the ports: each alters what a node sends to the store or to a next hop, or what it gets back.

use mailonce_core::{
    conversation::{message_progress::Acknowledgement, reply_guards::NewReply},
    handoff::{
        action::{HandoffAction, HandoffActionStatus},
        capabilities::{RecoveryMethod, TransportCapabilities},
        lease::HandoffActionResult,
        transport_request::{FrozenEnvelope, LookUpResult},
    },
    inbound::delivery::InboundMail,
    inbox::message::NewMessage,
    key::EmailKey,
    mutant::is_on,
    operation::IdempotentResult,
    outbound::{
        accept::NewEmail,
        email::{Email, OnUnknown},
    },
    ports::store::{Result, StoreError},
};
use std::sync::Arc;
use uuid::Uuid;

/// A duration that no world reaches, in milliseconds: a hundred years.
const NEVER_MS: i64 = 100 * 365 * 86_400_000;

/// Alters an email to be accepted.
pub(in crate::world) fn alter_new_email(email: &mut NewEmail) {
    if is_on("slots-unbound") {
        email.shadow_keys.clear();
    }
    if is_on("likeness-ignored") {
        email.guard_input.fingerprint = None;
    }
    if is_on("batch-items-keyless") && matches!(email.head.key, Some(EmailKey::Item { .. })) {
        (email.key, email.head.key) = (None, None);
    }
}

/// Alters the result of an action. `email` is the email as it is stored.
pub(in crate::world) fn alter_action_result(
    action: &HandoffAction,
    result: Result<IdempotentResult<HandoffActionResult>>,
    email: Option<Email>,
) -> Result<IdempotentResult<HandoffActionResult>> {
    let applied = |status, email| Ok(IdempotentResult::Done(HandoffActionResult::Applied(status, email)));
    match (action, result, email) {
        (
            HandoffAction::Mark { .. },
            Ok(IdempotentResult::Done(HandoffActionResult::Applied(HandoffActionStatus::Stale, email))),
            _,
        ) if is_on("stale-worker-goes-on") => applied(HandoffActionStatus::Done, email),
        (HandoffAction::Mark { .. }, Err(_), Some(email)) if is_on("unconfirmed-marker-goes-on") => {
            applied(HandoffActionStatus::Done, email)
        }
        (HandoffAction::RecordOutcome { .. }, Err(_), _) if is_on("written-down-once") => {
            Ok(IdempotentResult::Done(HandoffActionResult::Missing))
        }
        (_, result, _) => result,
    }
}

/// Alters the unknown handoffs to be checked.
pub(in crate::world) fn alter_due_unknowns(due: &mut Vec<(Email, u16)>) {
    if is_on("never-looked-at-again") {
        due.clear();
    }
    for (email, _) in due {
        if is_on("hold-is-resend") {
            Arc::make_mut(&mut email.head).on_unknown = OnUnknown::Resend;
        }
        if is_on("policy-twice") {
            email.handoffs.iter_mut().for_each(|handoff| handoff.progress.resent = false);
        }
    }
}

/// The error of a commit whose answer was lost.
pub(in crate::world) fn lost_commit_error(why: String) -> StoreError {
    if is_on("lost-lease-kept") { StoreError::Unreachable(why) } else { StoreError::CommitUnknown(why) }
}

/// Alters a mail that is received.
pub(in crate::world) fn alter_inbound_mail(mail: &mut InboundMail) {
    if is_on("delivery-key-dropped") {
        for delivery in &mut mail.deliveries {
            delivery.dedup_key[..16].copy_from_slice(delivery.id.0.as_bytes());
        }
    }
}

/// Alters a message to be filed.
pub(in crate::world) fn alter_new_message(message: &mut NewMessage) {
    if is_on("artifact-window-ignored") {
        for artifact in &mut message.artifacts {
            artifact.hash[..16].copy_from_slice(artifact.id.0.as_bytes());
        }
    }
}

/// Alters a reply to be accepted.
pub(in crate::world) fn alter_reply(reply: &mut NewReply) {
    let (caps, is_uncapped) = (&mut reply.caps, is_on("cap-ignored"));
    if is_uncapped {
        caps.per_window = u32::MAX;
    }
    if is_uncapped || is_on("day-ignored") {
        caps.per_day = u32::MAX;
    }
    if is_uncapped || is_on("person-ignored") {
        caps.per_person = u32::MAX;
    }
    if is_uncapped || is_on("total-ignored") {
        caps.per_thread = None;
    }
}

/// Alters how an agent returns a message.
pub(in crate::world) fn alter_acknowledgement(how: Acknowledgement) -> Acknowledgement {
    match how {
        Acknowledgement::Nack { .. } if is_on("put-off-ignored") => Acknowledgement::Nack { delay_ms: 0 },
        how => how,
    }
}

/// Alters what a transport says it can do.
pub(in crate::world) fn alter_capabilities(mut capabilities: TransportCapabilities) -> TransportCapabilities {
    if is_on("waits-for-ever") {
        capabilities.timeout_ms = NEVER_MS;
    }
    if is_on("window-never-closes") && matches!(capabilities.recovery, RecoveryMethod::IdempotencyKey { .. }) {
        capabilities.recovery = RecoveryMethod::IdempotencyKey { window_ms: NEVER_MS };
    }
    capabilities
}

/// Alters a request to a next hop.
pub(in crate::world) fn alter_request(request: &mut FrozenEnvelope) {
    if is_on("bytes-made-anew") {
        request.bytes = [&request.bytes[..], &request.attempt.to_be_bytes()].concat().into();
    }
    if is_on("downstream-key-anew") {
        request.key = Uuid::from_u128(request.key.as_u128() ^ u128::from(request.attempt));
    }
}

/// Alters the answer to a look-up.
pub(in crate::world) fn alter_look_up(found: LookUpResult) -> LookUpResult {
    match found {
        LookUpResult::Unavailable(text) if is_on("silence-is-proof") => LookUpResult::Found { remote_id: None, text },
        found => found,
    }
}
