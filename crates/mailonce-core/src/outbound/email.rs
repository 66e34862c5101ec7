//! An accepted email: its immutable head, its current state, and the changes that are allowed.
//!
//! Stores load an [`Email`], call one of the methods below, and save the result together with the returned events. So
//! every store makes the same decisions.

use serde::{Deserialize, Serialize};
use std::{borrow::Cow, sync::Arc};

use crate::{
    address::Address,
    call_trace::CallTrace,
    control::{
        erasure::{AddressEraser, ErasedEmail},
        rule::RuleRef,
    },
    events::event::{EventKind, NewEvent},
    handoff::{Attempt, AttemptDetails, Handoff, HandoffState, Outcome, Transition},
    id::{ApiKeyId, EmailId, InboxId, MessageId, TeamId, ThreadId},
    intent::Intent,
    key::{EmailKey, Key, KeyHash},
    limits, mutant,
    outbound::{digest::Digest, holds::Holds, policy_trace::PolicyTrace, template::TemplateRef},
    string_enum::string_enum,
    time::Time,
    ttl::Ttl,
};

string_enum! {
    /// The state of an email, as the API shows it.
    EmailState {
        /// Due later.
        Scheduled = "scheduled",
        /// Waiting for a worker.
        Queued = "queued",
        /// Leased by a worker, or being sent.
        Sending = "sending",
        /// The next hop accepted all of it.
        Sent = "sent",
        /// The recipients' servers accepted it.
        Delivered = "delivered",
        /// A recipient's copy bounced.
        Bounced = "bounced",
        /// A recipient reported it as spam.
        Complained = "complained",
        /// Refused permanently.
        Failed = "failed",
        /// The outcome of at least one handoff is unknown.
        Unknown = "unknown",
        /// A person abandoned it while its outcome was unknown.
        Abandoned = "abandoned",
        /// A guard holds it until a person decides.
        Held = "held",
        /// Cancelled before anything was sent.
        Cancelled = "cancelled",
    }
}

impl EmailState {
    /// Whether the state changes no more without outside evidence or a command.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Scheduled | Self::Queued | Self::Sending | Self::Unknown | Self::Held)
    }

    /// The state of an email, computed from its handoffs: the first row that applies.
    pub fn fold(states: &[HandoffState]) -> Self {
        let any = |wanted: &[HandoffState]| states.iter().any(|state| wanted.contains(state));
        let order: [(&[HandoffState], Self); 11] = [
            (&[HandoffState::Unknown], Self::Unknown),
            (&[HandoffState::Held], Self::Held),
            (&[HandoffState::Sending, HandoffState::Leased], Self::Sending),
            (&[HandoffState::Queued], Self::Queued),
            (&[HandoffState::Scheduled], Self::Scheduled),
            (&[HandoffState::Complained], Self::Complained),
            (&[HandoffState::Bounced], Self::Bounced),
            // An email is delivered only when every sent copy is; one copy that is merely sent keeps it at `sent`.
            (&[HandoffState::Sent], Self::Sent),
            (&[HandoffState::Delivered], Self::Delivered),
            (&[HandoffState::Abandoned], Self::Abandoned),
            (&[HandoffState::Failed], Self::Failed),
        ];
        order.into_iter().find(|(wanted, _)| any(wanted)).map_or(Self::Cancelled, |(_, state)| state)
    }
}

string_enum! {
    /// A check inside the accept transaction that held, flagged or refused an email.
    Guard {
        /// The message was sent by mailonce itself.
        Itself = "self",
        /// The message was sent automatically.
        Automatic = "automatic",
        /// The message has a reply already.
        AlreadyAnswered = "already_answered",
        /// Another agent holds the lease of the thread, or took it in the meantime.
        Leased = "leased",
        /// A newer message arrived in the thread.
        NewerMessage = "newer_message",
        /// A cap on replies is reached.
        Cap = "cap",
        /// Another email to the same people has nearly the same content.
        LooksDuplicate = "looks_duplicate",
        /// The same intent was already sent, or is being sent, to some of these recipients.
        Overlaps = "overlaps",
        /// A rule requires approval by a person.
        Approval = "approval",
        /// A budget has no room for it.
        Budget = "budget",
        /// The Reply-To of the message is at another organization than its sender, or the message failed
        /// authentication.
        ReplyTo = "reply_to",
    }
}

string_enum! {
    /// What to do when an outcome stays unknown.
    OnUnknown {
        /// Hold it and ask a person.
        Hold = "hold",
        /// Send the same bytes again, once, flagged as a possible duplicate.
        Resend = "resend",
    }
}

string_enum! {
    /// How a call came in.
    Channel {
        /// The HTTP API.
        Http = "http",
        /// The batch endpoint.
        Batch = "batch",
        /// The command line.
        Cli = "cli",
        /// The Resend dialect.
        Resend = "resend",
        /// The useSend dialect.
        UseSend = "usesend",
        /// MCP tools.
        Mcp = "mcp",
        /// The AgentMail dialect.
        Agentmail = "agentmail",
        /// A row of an SQL outbox.
        Outbox = "outbox",
    }
}

impl Channel {
    /// Whether the channel is the API of another service.
    pub fn is_dialect(self) -> bool {
        matches!(self, Self::Resend | Self::UseSend | Self::Agentmail)
    }
}

/// The immutable part of an email, without its content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmailHead {
    /// The sender, as a bare address.
    pub from: String,
    /// The recipients, as bare addresses.
    pub to: Vec<String>,
    /// Cc recipients, as bare addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cc: Vec<String>,
    /// Bcc recipients, as bare addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bcc: Vec<String>,
    /// Subject.
    pub subject: String,
    /// The idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<EmailKey>,
    /// The intent from which keys are derived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// When it was accepted.
    pub created_at: Time,
    /// What to do when the outcome stays unknown.
    pub on_unknown: OnUnknown,
    /// The API key of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<ApiKeyId>,
    /// The channel of the call.
    pub channel: Channel,
    /// The version, from 1. Each resend increases it.
    pub version: u32,
    /// The transport that the caller named. Such an email never fails over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// The previous version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resend_of: Option<EmailId>,
    /// The reason of the resend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The message that it replies to or forwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<MessageId>,
    /// The thread it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadId>,
    /// The caller's own ids for the call that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallTrace>,
    /// The rule that required approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<RuleRef>,
    /// The inbox whose address the sender had at acceptance. The address of an inbox may change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox: Option<InboxId>,
    /// What was decided about it when it was accepted. `None` for an email that went through no checks, such as a copy
    /// that mailonce sends by itself, and for one of an older release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyTrace>,
    /// The template that it was written with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateRef>,
    /// The place among the identical items of its batch, when it has no key and is not the first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identical_place: Option<u32>,
    /// What is left of an email that was erased. The rest of its head has no personal data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erased: Option<ErasedEmail>,
}

impl EmailHead {
    /// The head without subject, texts and names of callers, and with the alias in the place of an address. Its keys
    /// have the same hashes.
    fn erase(&self, eraser: &AddressEraser) -> Self {
        let team = eraser.team;
        let redact = |address: &String| eraser.redact(address).unwrap_or_else(|| address.clone());
        let all = |addresses: &[String]| addresses.iter().map(redact).collect();
        // Further erasures of the same email keep what the first one left.
        let erased =
            self.erased.clone().unwrap_or_else(|| ErasedEmail { shadow_keys: self.all_shadow_keys(team).collect() });
        Self {
            from: redact(&self.from),
            to: all(&self.to),
            cc: all(&self.cc),
            bcc: all(&self.bcc),
            subject: String::new(),
            key: self.key.as_ref().map(|key| key.erased(team)),
            intent: None,
            reason: None,
            call: None,
            erased: Some(erased),
            // Names of rules may mention people.
            policy: None,
            held_by: self.held_by.as_ref().map(|rule| RuleRef { name: redact(&rule.name), ..*rule }),
            // So may names of templates.
            template: None,
            ..self.clone()
        }
    }

    /// The key that its caller gave, or that its intent has.
    pub fn given_key(&self) -> Option<&str> {
        match &self.key {
            Some(EmailKey::Given(key)) => Some(key.as_str()),
            _ => None,
        }
    }

    /// Whether its key is the one derived from its intent.
    pub fn has_intent_key(&self) -> bool {
        let (Some(intent), Some(EmailKey::Given(key))) = (&self.intent, &self.key) else { return false };
        let to: Vec<Address> = self.to.iter().filter_map(|to| Address::parse(to).ok()).collect();
        intent.derive_key(&to) == key.as_str()
    }

    /// The keys of its recipients, sorted: an intent binds them beside its own key. An intent to one recipient under
    /// its own derived key needs none.
    pub fn shadow_keys(&self, team: TeamId) -> Vec<KeyHash> {
        let Some(intent) = &self.intent else { return Vec::new() };
        let names = self.per_recipient_keys(intent);
        if names.as_slice() == self.key.as_slice() {
            return Vec::new();
        }
        let mut slots: Vec<KeyHash> = names.iter().map(|name| name.hash(team)).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// The recipients' keys under the earlier versions of this email. It binds those that are free: a recipient who got
    /// nothing under an earlier version gets this one, and must not get another. Empty unless this is a resend.
    pub fn earlier_shadow_keys(&self, team: TeamId) -> Vec<KeyHash> {
        let Some(intent) = &self.intent else { return Vec::new() };
        let back = self.version.saturating_sub(1).min(limits::EARLIER_VERSIONS);
        let earlier = (intent.version.saturating_sub(back).max(1)..intent.version)
            .flat_map(|version| self.per_recipient_keys(&Intent { version, ..intent.clone() }));
        let mut slots: Vec<KeyHash> = earlier.map(|name| name.hash(team)).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Whether accepting it may bind keys of earlier versions. Such an email is not decided by its own key alone.
    pub fn may_take_earlier_shadow_keys(&self) -> bool {
        self.intent.is_some() && self.version > 1
    }

    /// All recipient keys that it may have bound.
    pub fn all_shadow_keys(&self, team: TeamId) -> impl Iterator<Item = KeyHash> {
        let erased = self.erased.iter().flat_map(|erased| erased.shadow_keys.iter().copied());
        let derived = self.shadow_keys(team).into_iter().chain(self.earlier_shadow_keys(team));
        derived.chain(erased.collect::<Vec<_>>())
    }

    /// The key that each recipient would have alone.
    fn per_recipient_keys(&self, intent: &Intent) -> Vec<EmailKey> {
        let own_key = |address: &String| {
            let address = Address::parse(address).ok()?;
            Some(EmailKey::Given(Key::parse(&intent.derive_key(&[address])).ok()?))
        };
        self.to.iter().filter_map(own_key).collect()
    }
}

/// An accepted outbound email.
#[derive(Clone, Debug, PartialEq)]
pub struct Email {
    /// Its id.
    pub id: EmailId,
    /// Its team.
    pub team: TeamId,
    /// The revision. Each change increases it.
    pub rev: u32,
    /// The immutable part. Shared, because every copy of the email needs it.
    pub head: Arc<EmailHead>,
    /// The digest of its meaning.
    pub digest: Digest,
    /// How often its key was bound, this binding included. 0 without a key.
    pub bind_number: u32,
    /// How long its key is remembered.
    pub ttl: Ttl,
    /// When it first became terminal.
    pub settled_at: Option<Time>,
    /// The most important guard that holds it, the last that held it, or the one that flagged it.
    pub guard: Option<Guard>,
    /// The guards that hold it. They stay when it is cancelled, because it never passed them.
    pub holds: Holds,
    /// The next version, if it was resent.
    pub resent_as: Option<EmailId>,
    /// Its envelopes, by number.
    pub handoffs: Vec<Handoff>,
    /// The number of calls that were answered with this email.
    pub suppressed: u64,
}

/// The data of an event about an email.
#[derive(Debug, Serialize)]
pub struct EmailEventData<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<&'a CallTrace>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guard: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holds: Option<Holds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    state: &'static str,
}

impl<'a> EmailEventData<'a> {
    /// The data of an event about the current state of an email.
    fn of(email: &'a Email) -> Self {
        Self {
            call: None,
            guard: email.guard.map(Guard::as_str),
            holds: Some(email.holds).filter(|holds| !holds.is_empty()),
            key: email.head.key.as_ref().map(EmailKey::display_name_cow),
            state: email.state().as_str(),
        }
    }
}

/// Why a change of an email was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmailChangeRefusal {
    /// It was sent, or may have been.
    TooLate,
    /// It is not scheduled.
    NotScheduled,
    /// It is not terminal yet.
    NotTerminal,
    /// Its outcome is unknown: resolve it first.
    UseResolve,
    /// The previous resend was too recent.
    ResendBudgetSpent,
    /// It changed since the caller read it.
    StaleRev,
    /// Its outcome is not unknown.
    NotUnknown,
    /// Another email has replied to its message in the meantime.
    AnsweredByAnother,
}

/// The minimum time between two resends, in milliseconds (one day).
pub const MIN_RESEND_INTERVAL_MS: i64 = 86_400_000;

/// When the parts of an email are deleted. `None` while it is not settled.
#[derive(Clone, Copy, Debug)]
pub struct EmailExpiry {
    /// When its key is forgotten.
    pub key: Option<Time>,
    /// When its body is deleted.
    pub body: Option<Time>,
    /// When its last trace, the tombstone of its key, is deleted.
    pub tombstone: Option<Time>,
}

impl EmailExpiry {
    /// The next of these times after `now`.
    pub fn next_after(&self, now: Time) -> Option<Time> {
        [self.key, self.body, self.tombstone].into_iter().flatten().filter(|at| *at > now).min()
    }
}

impl Email {
    /// Whether the person is among its recipients.
    pub fn is_to(&self, eraser: &AddressEraser) -> bool {
        let envelopes = self.handoffs.iter().flat_map(|handoff| &handoff.recipients);
        let head = self.head.to.iter().chain(&self.head.cc).chain(&self.head.bcc);
        head.chain(envelopes).any(|address| eraser.is_person(address))
    }

    /// Erases an email that has settled: its addresses, subject, texts and key text. The caller deletes its body and
    /// frozen bytes. What decides about retries stays: the hash of its key, and its digest as a keyed hash. Returns
    /// false when it has not settled, because its frozen bytes may still be needed.
    pub fn erase(&mut self, eraser: &AddressEraser) -> bool {
        if !self.state().is_terminal() {
            return false;
        }
        self.head = Arc::new(self.head.erase(eraser));
        self.digest = self.digest.keyed(&eraser.secret);
        for handoff in &mut self.handoffs {
            for address in &mut handoff.recipients {
                *address = eraser.redact(address).unwrap_or_else(|| std::mem::take(address));
            }
            handoff.progress.reason = None;
        }
        self.rev += 1;
        true
    }

    /// Its state.
    pub fn state(&self) -> EmailState {
        // A fast path without allocation: most emails have one envelope, and every accept calls this.
        if let [one] = self.handoffs.as_slice() {
            return EmailState::fold(&[one.state]);
        }
        let states: Vec<HandoffState> = self.handoffs.iter().map(|handoff| handoff.state).collect();
        EmailState::fold(&states)
    }

    /// When its key is forgotten. `None` while it is not settled.
    pub fn expires_at(&self) -> Option<Time> {
        let from = if mutant!("memory-from-acceptance") { Some(self.head.created_at) } else { self.settled_at };
        self.ttl.expires_at(from)
    }

    /// Whether its key is forgotten at `now`.
    pub fn is_forgotten(&self, now: Time) -> bool {
        self.expires_at().is_some_and(|at| at <= now)
    }

    /// When its parts are deleted.
    pub fn expiry(&self) -> EmailExpiry {
        let (key, body) = (self.expires_at(), self.settled_at.map(|at| at.plus(limits::BODY_RETENTION_MS)));
        EmailExpiry { key, body, tombstone: body.max(key).map(|at| at.plus(limits::TOMBSTONE_MS)) }
    }

    /// Whether it still occupies the keys of its recipients: it is remembered, and it was sent or may be.
    pub fn holds_shadow_keys(&self, now: Time) -> bool {
        !self.is_forgotten(now) && !self.is_surely_unsent()
    }

    /// Whether surely nothing of it was sent.
    pub fn is_surely_unsent(&self) -> bool {
        matches!(self.state(), EmailState::Failed | EmailState::Cancelled)
    }

    /// Whether its sender may confirm that it is no duplicate. A resend needs a person: it is held because a person
    /// rejected an earlier version.
    pub fn may_sender_confirm(&self) -> bool {
        self.head.resend_of.is_none()
    }

    /// Whether only the content guard holds it, so that its sender can release it alone.
    pub fn is_held_as_look_alike_only(&self) -> bool {
        self.holds == Holds::from(Guard::LooksDuplicate)
    }

    /// Holds it at acceptance. A scheduled time is kept.
    pub fn hold(&mut self, holds: Holds, now: Time) {
        (self.holds, self.guard) = (holds, holds.first());
        for handoff in &mut self.handoffs {
            handoff.state = HandoffState::Held;
            handoff.due_at = handoff.due_at.filter(|due| *due > now);
        }
    }

    /// The event of its acceptance.
    pub fn accepted_event(&self) -> NewEvent {
        self.event_with(self.accepted_kind(), self.head.created_at, &self.accepted_data())
    }

    /// The data of that event. Only this event carries the caller's ids.
    pub fn accepted_data(&self) -> EmailEventData<'_> {
        EmailEventData { call: self.head.call.as_ref(), ..EmailEventData::of(self) }
    }

    /// The kind of its acceptance event: held or accepted.
    pub fn accepted_kind(&self) -> EventKind {
        if !self.holds.is_empty() && self.state() == EmailState::Held {
            EventKind::EmailHeld
        } else {
            EventKind::EmailAccepted
        }
    }

    /// An event about its current state.
    pub fn event(&self, kind: EventKind, at: Time) -> NewEvent {
        self.event_with(kind, at, &EmailEventData::of(self))
    }

    fn event_with(&self, kind: EventKind, at: Time, data: &EmailEventData<'_>) -> NewEvent {
        // This struct always serializes.
        let data = serde_json::to_value(data).unwrap_or_default();
        NewEvent { kind, at, subject_id: self.id.0, rev: self.rev, data }
    }

    /// Cancels it, if nothing was sent and nothing is in doubt. Handoffs that ended unsent keep their state, so an
    /// email with one refused recipient ends as `failed`. `Ok(None)` when no handoff is waiting.
    pub fn cancel(&mut self, now: Time) -> Result<Option<NewEvent>, EmailChangeRefusal> {
        #[cfg(feature = "failpoints")]
        super::mutants::alter_cancelled_email(self)?;
        if self.is_in_doubt() {
            return Err(EmailChangeRefusal::TooLate);
        }
        let mut handoffs = self.handoffs.clone();
        let mut waiting: Vec<&mut Handoff> =
            handoffs.iter_mut().filter(|handoff| !handoff.state.is_surely_unsent()).collect();
        if waiting.is_empty() || self.state() == EmailState::Cancelled {
            return Ok(None);
        }
        for handoff in &mut waiting {
            handoff.apply_transition(Transition::Cancel, now).map_err(|_illegal| EmailChangeRefusal::TooLate)?;
        }
        self.handoffs = handoffs;
        // The next version of a cancelled email is charged to its budgets anew.
        self.holds.remove(Guard::Budget);
        Ok(Some(self.record_change(EventKind::EmailCancelled, now)))
    }

    /// Changes the due time of a scheduled email.
    pub fn reschedule(&mut self, due: Time, now: Time) -> Result<NewEvent, EmailChangeRefusal> {
        if self.state() != EmailState::Scheduled {
            return Err(EmailChangeRefusal::NotScheduled);
        }
        for handoff in &mut self.handoffs {
            if handoff.state == HandoffState::Scheduled {
                handoff.due_at = Some(due);
                handoff.parked_by = None;
            }
        }
        Ok(self.record_change(EventKind::EmailRescheduled, now))
    }

    /// Whether it may be resent.
    pub fn may_resend(&self, now: Time) -> Result<(), EmailChangeRefusal> {
        let state = self.state();
        if mutant!("resend-anything") {
            return Ok(());
        }
        if state == EmailState::Unknown {
            return Err(EmailChangeRefusal::UseResolve);
        }
        if !state.is_terminal() {
            return Err(EmailChangeRefusal::NotTerminal);
        }
        let recent = now.since(self.head.created_at) < MIN_RESEND_INTERVAL_MS;
        if self.head.resend_of.is_some() && recent { Err(EmailChangeRefusal::ResendBudgetSpent) } else { Ok(()) }
    }

    /// Prepares it for its next version. A version with other content (`takes_back`) cancels the held email. That
    /// spends no resend budget, because nothing was sent. An email that its sender cancelled in the meantime is
    /// refused.
    pub fn prepare_for_resend(&mut self, takes_back: bool, now: Time) -> Result<Option<NewEvent>, EmailChangeRefusal> {
        match (takes_back, self.state()) {
            (false, _) => self.may_resend(now).map(|()| None),
            (true, EmailState::Held) => self.cancel(now),
            (true, _) => Err(EmailChangeRefusal::TooLate),
        }
    }

    /// The scheduled time in the future, while it is held.
    pub fn requested_due_at(&self, now: Time) -> Option<Time> {
        let held = self.handoffs.iter().filter(|handoff| handoff.state == HandoffState::Held);
        held.filter_map(|handoff| handoff.due_at).filter(|due| *due > now).min()
    }

    /// Records its next version.
    pub fn mark_resent(&mut self, as_email: EmailId, now: Time) -> NewEvent {
        self.resent_as = Some(as_email);
        self.record_change(EventKind::EmailResent, now)
    }

    /// Changes how long its key is remembered.
    pub fn extend_key(&mut self, ttl: Ttl, now: Time) -> NewEvent {
        self.ttl = ttl;
        self.record_change(EventKind::KeyExtended, now)
    }

    /// Forgets its key now. Only for a settled email.
    pub fn forget_key(&mut self, now: Time) -> NewEvent {
        self.ttl = Ttl(self.settled_at.map_or(0, |at| now.since(at)));
        self.record_change(EventKind::KeyForgotten, now)
    }

    /// Hands the envelope to the sandbox, which is part of the same commit: lease, marker and reply in one step.
    pub fn capture(&mut self, number: u16, now: Time) -> Option<(Attempt, NewEvent)> {
        let handoff = self.handoffs.get_mut(usize::from(number))?;
        if handoff.state == HandoffState::Scheduled {
            handoff.apply_transition(Transition::Due, now).ok()?;
        }
        for step in [Transition::Lease, Transition::Mark, Transition::Accept] {
            handoff.apply_transition(step, now).ok()?;
        }
        handoff.fence += 1;
        handoff.attempts += 1;
        let attempt = Attempt {
            handoff: number,
            number: handoff.attempts,
            at: now,
            ended_at: Some(now),
            outcome: Some(Outcome::Accepted),
            reply: "captured by the sandbox".into(),
            details: AttemptDetails::default(),
        };
        Some((attempt, self.record_change(EventKind::EmailSent, now)))
    }

    /// Increases the revision, records when the email first became terminal, and returns the event.
    pub(crate) fn record_change(&mut self, kind: EventKind, now: Time) -> NewEvent {
        self.rev += u32::from(!mutant!("rev-stands"));
        if self.settled_at.is_none() && self.state().is_terminal() {
            self.settled_at = Some(now);
        }
        let mut event = self.event(kind, now);
        // Consumers that want one event per email take the one without this field.
        let is_announced = |handoff: &&Handoff| handoff.state.has_left() && !handoff.progress.left_without_sent_event;
        let sent_before = self.handoffs.iter().filter(is_announced).count().saturating_sub(1);
        if kind == EventKind::EmailSent && sent_before > 0 {
            event.data["sent_before"] = sent_before.into();
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_email_is_as_far_as_its_most_open_handoff() {
        use HandoffState as S;
        for (states, folded) in [
            (vec![S::Sent, S::Unknown, S::Held], "unknown"),
            (vec![S::Sent, S::Held, S::Queued], "held"),
            (vec![S::Leased, S::Queued], "sending"),
            (vec![S::Queued, S::Sent], "queued"),
            (vec![S::Scheduled, S::Failed], "scheduled"),
            (vec![S::Sent, S::Failed], "sent"),
            (vec![S::Delivered, S::Sent], "sent"),
            (vec![S::Delivered, S::Delivered], "delivered"),
            (vec![S::Delivered, S::Bounced], "bounced"),
            (vec![S::Bounced, S::Complained], "complained"),
            (vec![S::Abandoned, S::Failed], "abandoned"),
            (vec![S::Failed, S::Cancelled], "failed"),
            (vec![S::Cancelled], "cancelled"),
        ] {
            assert_eq!(EmailState::fold(&states).as_str(), folded, "{states:?}");
        }
    }
}
