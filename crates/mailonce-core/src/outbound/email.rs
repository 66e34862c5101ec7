//! An accepted email: what never changes, what does, and the changes it may go through.
//!
//! Engines load an [`Email`], call one of the changes below and save what it became together with the events it
//! returns. So every engine decides alike.

use serde::{Deserialize, Serialize};
use std::{borrow::Cow, sync::Arc};

use crate::{
    address::Address,
    call_trace::CallTrace,
    control::rule::RuleRef,
    events::event::{EventKind, NewEvent},
    handoff::{Attempt, AttemptDetails, Handoff, HandoffState, Outcome, Transition},
    id::{ApiKeyId, EmailId, MessageId, TeamId, ThreadId},
    intent::Intent,
    key::{EmailKey, Key, KeyHash},
    limits, mutant,
    outbound::digest::Digest,
    string_enum::string_enum,
    time::Time,
    ttl::Ttl,
};

string_enum! {
    /// Where an email stands, as callers see it.
    EmailState {
        /// Due later.
        Scheduled = "scheduled",
        /// Waiting for a worker.
        Queued = "queued",
        /// A worker holds it, or it is on the wire.
        Sending = "sending",
        /// The next hop has all of it.
        Sent = "sent",
        /// The recipients' servers have it.
        Delivered = "delivered",
        /// Some of it came back.
        Bounced = "bounced",
        /// A recipient called it spam.
        Complained = "complained",
        /// Refused for good.
        Failed = "failed",
        /// Some of it may or may not have left.
        Unknown = "unknown",
        /// A person gave it up while it was unknown.
        Abandoned = "abandoned",
        /// A guard keeps it until a person decides.
        Held = "held",
        /// Taken back before anything left.
        Cancelled = "cancelled",
    }
}

impl EmailState {
    /// Whether nothing more will happen by itself.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Scheduled | Self::Queued | Self::Sending | Self::Unknown | Self::Held)
    }

    /// The fold over an email's handoffs: the first that applies.
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
            // Delivered only when every copy that left was; one that is merely sent keeps the email at sent.
            (&[HandoffState::Sent], Self::Sent),
            (&[HandoffState::Delivered], Self::Delivered),
            (&[HandoffState::Abandoned], Self::Abandoned),
            (&[HandoffState::Failed], Self::Failed),
        ];
        order.into_iter().find(|(wanted, _)| any(wanted)).map_or(Self::Cancelled, |(_, state)| state)
    }
}

string_enum! {
    /// A check inside the accept transaction that spoke.
    Guard {
        /// The message is our own.
        Itself = "self",
        /// A machine wrote the message.
        Automatic = "automatic",
        /// The message was answered.
        AlreadyAnswered = "already_answered",
        /// Another agent holds the thread, or took it since.
        Leased = "leased",
        /// A person wrote again meanwhile.
        NewerMessage = "newer_message",
        /// Too many answers.
        Cap = "cap",
        /// Another mail to the same people says the same.
        LooksDuplicate = "looks_duplicate",
        /// The same intent already went, or is going, to some of these recipients.
        Overlaps = "overlaps",
        /// A rule wants a person to look first.
        Approval = "approval",
        /// The message asks for its answer at another organization than its sender's, or failed authentication.
        ReplyTo = "reply_to",
    }
}

string_enum! {
    /// What to do when an outcome stays unknown.
    OnUnknown {
        /// Keep it and ask a person.
        Hold = "hold",
        /// Send the same bytes again, once, flagged as a possible duplicate.
        Resend = "resend",
    }
}

string_enum! {
    /// The door a call came through.
    Channel {
        /// The HTTP API.
        Http = "http",
        /// A batch.
        Batch = "batch",
        /// The command line.
        Cli = "cli",
        /// Resend's dialect.
        Resend = "resend",
        /// useSend's dialect.
        Usesend = "usesend",
        /// A model's tools.
        Mcp = "mcp",
        /// AgentMail's dialect.
        Agentmail = "agentmail",
    }
}

impl Channel {
    /// Whether a call came in the words of another service.
    pub fn is_dialect(self) -> bool {
        matches!(self, Self::Resend | Self::Usesend | Self::Agentmail)
    }
}

/// What never changes about an email, apart from its content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmailHead {
    /// Sender, bare.
    pub from: String,
    /// Recipients, bare.
    pub to: Vec<String>,
    /// Copies, bare.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cc: Vec<String>,
    /// Hidden copies, bare.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bcc: Vec<String>,
    /// Subject.
    pub subject: String,
    /// The name of the wish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<EmailKey>,
    /// What the wish is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// When it was accepted.
    pub created_at: Time,
    /// What to do when the outcome stays unknown.
    pub on_unknown: OnUnknown,
    /// The credential it came with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<ApiKeyId>,
    /// The door it came through.
    pub channel: Channel,
    /// From 1; rises when it is sent again on purpose.
    pub version: u32,
    /// The way out the caller named. It takes no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// The version before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resend_of: Option<EmailId>,
    /// Why it was sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The message it answers or passes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<MessageId>,
    /// The thread it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadId>,
    /// What its caller calls the call that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallTrace>,
    /// The rule that wanted a person to look first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<RuleRef>,
}

impl EmailHead {
    /// Whether its key is the one that its intent derives.
    pub fn has_intent_key(&self) -> bool {
        let (Some(intent), Some(EmailKey::Given(key))) = (&self.intent, &self.key) else { return false };
        let to: Vec<Address> = self.to.iter().filter_map(|to| Address::parse(to).ok()).collect();
        intent.derive_key(&to) == key.as_str()
    }

    /// The recipients' own keys, sorted: what an intent stands for beside its own key. An intent to one recipient
    /// that goes under its own derived key needs no slot.
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

    /// The recipients' own keys under the versions that this one was made of. It takes those of them that are free: what
    /// never left under an earlier version leaves with this one, and nobody is to get it a second time. Empty for what was
    /// not sent again.
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

    /// Whether accepting it may take slots of earlier versions. Such an email is not decided by its own key alone.
    pub fn may_take_earlier_shadow_keys(&self) -> bool {
        self.intent.is_some() && self.version > 1
    }

    /// Every slot that it may have taken.
    pub fn all_shadow_keys(&self, team: TeamId) -> impl Iterator<Item = KeyHash> {
        self.shadow_keys(team).into_iter().chain(self.earlier_shadow_keys(team))
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

/// An accepted outbound mail.
#[derive(Clone, Debug, PartialEq)]
pub struct Email {
    /// Its id.
    pub id: EmailId,
    /// Whose it is.
    pub team: TeamId,
    /// Rises with each change.
    pub rev: u32,
    /// What never changes. Shared, because every copy of the email needs it and none changes it.
    pub head: Arc<EmailHead>,
    /// What it means.
    pub digest: Digest,
    /// How often its key was bound, this time included. 0 without a key.
    pub bind_number: u32,
    /// How long its key is remembered.
    pub ttl: Ttl,
    /// When it first became terminal.
    pub settled_at: Option<Time>,
    /// The guard that holds or held it, or that only spoke.
    pub guard: Option<Guard>,
    /// The next version, when one was made.
    pub resent_as: Option<EmailId>,
    /// Its envelopes, by number.
    pub handoffs: Vec<Handoff>,
    /// Calls that were answered with this email instead of making another.
    pub suppressed: u64,
}

/// What an event tells of its email.
#[derive(Debug, Serialize)]
pub struct EmailEventData<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<&'a CallTrace>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guard: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    state: &'static str,
}

/// Why a change was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmailChangeRefusal {
    /// It left, or may have left.
    TooLate,
    /// It is not scheduled.
    NotScheduled,
    /// It is not terminal yet.
    NotTerminal,
    /// Its outcome is unknown: resolve it first.
    UseResolve,
    /// It was sent again too recently.
    ResendBudgetSpent,
    /// It changed since it was looked at.
    StaleRev,
    /// Its outcome is not unknown.
    NotUnknown,
    /// Another email answered its message since.
    AnsweredByAnother,
}

/// How long after one resend the next version may be made, in milliseconds (1 a day).
pub const MIN_RESEND_INTERVAL_MS: i64 = 86_400_000;

impl Email {
    /// Where it stands.
    pub fn state(&self) -> EmailState {
        // Most emails have one envelope, and this is asked on every accept.
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

    /// Whether its key is forgotten by now.
    pub fn is_forgotten(&self, now: Time) -> bool {
        self.expires_at().is_some_and(|at| at <= now)
    }

    /// The next moment after `now` at which something about it is to be forgotten: its key, its body, or all of it.
    pub fn next_sweep_at(&self, now: Time) -> Option<Time> {
        self.sweep_times().into_iter().flatten().filter(|at| *at > now).min()
    }

    /// When its body is dropped.
    pub fn body_expires_at(&self) -> Option<Time> {
        self.settled_at.map(|at| at.plus(limits::BODY_RETENTION_MS))
    }

    /// When the last trace of it goes: the tombstone of its key.
    pub fn tombstone_expires_at(&self) -> Option<Time> {
        self.body_expires_at().max(self.expires_at()).map(|at| at.plus(limits::TOMBSTONE_MS))
    }

    fn sweep_times(&self) -> [Option<Time>; 3] {
        [self.expires_at(), self.body_expires_at(), self.tombstone_expires_at()]
    }

    /// Whether it still stands for its recipients: remembered, and not surely unsent.
    pub fn holds_shadow_keys(&self, now: Time) -> bool {
        !self.is_forgotten(now) && !matches!(self.state(), EmailState::Failed | EmailState::Cancelled)
    }

    /// Whether it is a look-alike of which its sender may say that it is meant. Not so a later version: that is held
    /// because an earlier one was taken back, and what a person rejected a person lets go.
    pub fn may_sender_confirm(&self) -> bool {
        self.guard == Some(Guard::LooksDuplicate) && self.head.resend_of.is_none()
    }

    /// Keeps it back at its acceptance. The time it was wished for stays with it.
    pub fn hold(&mut self, guard: Guard, now: Time) {
        self.guard = Some(guard);
        for handoff in &mut self.handoffs {
            handoff.state = if mutant!("guard-without-hold") { HandoffState::Queued } else { HandoffState::Held };
            handoff.due_at = handoff.due_at.filter(|due| *due > now || mutant!("guard-without-hold"));
        }
    }

    /// The event that tells of its acceptance.
    pub fn accepted_event(&self) -> NewEvent {
        self.event_with(self.accepted_kind(), self.head.created_at, &self.accepted_data())
    }

    /// The facts of that event, as JSON: it alone says which call it was.
    pub fn accepted_data(&self) -> EmailEventData<'_> {
        EmailEventData { call: self.head.call.as_ref(), ..self.event_data() }
    }

    /// Whether its acceptance is told as one that is held.
    pub fn accepted_kind(&self) -> EventKind {
        if self.guard.is_some() && self.state() == EmailState::Held {
            EventKind::EmailHeld
        } else {
            EventKind::EmailAccepted
        }
    }

    /// An event about this email as it stands.
    pub fn event(&self, kind: EventKind, at: Time) -> NewEvent {
        self.event_with(kind, at, &self.event_data())
    }

    fn event_with(&self, kind: EventKind, at: Time, data: &EmailEventData<'_>) -> NewEvent {
        // Words in a struct are always JSON.
        let data = serde_json::to_value(data).unwrap_or_default();
        NewEvent { kind, at, subject_id: self.id.0, rev: self.rev, data }
    }

    /// The facts of an event about this email as it stands, as JSON.
    fn event_data(&self) -> EmailEventData<'_> {
        EmailEventData {
            call: None,
            guard: self.guard.map(Guard::as_str),
            key: self.head.key.as_ref().map(EmailKey::display_name_cow),
            state: self.state().as_str(),
        }
    }

    /// Takes it back, if nothing of it left or is in doubt. Handoffs that ended unsent stay as they are, so that an email
    /// of which one recipient was refused ends as `failed`. `Ok(None)` when no handoff waits any more.
    pub fn cancel(&mut self, now: Time) -> Result<Option<NewEvent>, EmailChangeRefusal> {
        if self.is_in_doubt() && !mutant!("cancel-in-doubt") {
            return Err(EmailChangeRefusal::TooLate);
        }
        let mut handoffs = self.handoffs.clone();
        let stays = |handoff: &Handoff| handoff.state.is_surely_unsent() && !mutant!("cancel-needs-all");
        let mut waiting: Vec<&mut Handoff> = handoffs.iter_mut().filter(|handoff| !stays(handoff)).collect();
        if waiting.is_empty() || self.state() == EmailState::Cancelled {
            return Ok(None);
        }
        for handoff in &mut waiting {
            if mutant!("cancel-in-doubt") && handoff.state == HandoffState::Unknown {
                handoff.state = HandoffState::Queued;
            }
            handoff.apply_transition(Transition::Cancel, now).map_err(|_illegal| EmailChangeRefusal::TooLate)?;
        }
        self.handoffs = handoffs;
        Ok(Some(self.record_change(EventKind::EmailCancelled, now)))
    }

    /// Moves it to another time, while it is scheduled.
    pub fn reschedule(&mut self, due: Time, now: Time) -> Result<NewEvent, EmailChangeRefusal> {
        if self.state() != EmailState::Scheduled {
            return Err(EmailChangeRefusal::NotScheduled);
        }
        for handoff in &mut self.handoffs {
            if handoff.state == HandoffState::Scheduled {
                handoff.due_at = Some(due);
            }
        }
        Ok(self.record_change(EventKind::EmailRescheduled, now))
    }

    /// Whether the next version may be made.
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

    /// Makes way for its next version. One with other words `takes_back` what is held: nothing of it left, so that no
    /// budget is spent, and what its sender took back meanwhile stays taken back.
    pub fn prepare_for_resend(&mut self, takes_back: bool, now: Time) -> Result<Option<NewEvent>, EmailChangeRefusal> {
        match (takes_back, self.state()) {
            (false, _) => self.may_resend(now).map(|()| None),
            (true, EmailState::Held) => self.cancel(now),
            (true, _) => Err(EmailChangeRefusal::TooLate),
        }
    }

    /// The time ahead that it was wished for, while it is held.
    pub fn requested_due_at(&self, now: Time) -> Option<Time> {
        let held = self.handoffs.iter().filter(|handoff| handoff.state == HandoffState::Held);
        held.filter_map(|handoff| handoff.due_at).filter(|due| *due > now).min()
    }

    /// Names the version that follows it.
    pub fn mark_resent(&mut self, as_email: EmailId, now: Time) -> NewEvent {
        self.resent_as = Some(as_email);
        self.record_change(EventKind::EmailResent, now)
    }

    /// Gives its key another memory.
    pub fn extend_key(&mut self, ttl: Ttl, now: Time) -> NewEvent {
        self.ttl = ttl;
        self.record_change(EventKind::KeyExtended, now)
    }

    /// Ends the memory of its key now. Only for a settled email.
    pub fn forget_key(&mut self, now: Time) -> NewEvent {
        self.ttl = Ttl(self.settled_at.map_or(0, |at| now.since(at)));
        self.record_change(EventKind::KeyForgotten, now)
    }

    /// Hands the envelope to a next hop that lives inside our own commit: lease, marker and answer at once.
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

    /// Counts the change, notes when the email first became terminal, and tells of it.
    pub(crate) fn record_change(&mut self, kind: EventKind, now: Time) -> NewEvent {
        self.rev += u32::from(!mutant!("rev-stands"));
        if self.settled_at.is_none() && self.state().is_terminal() {
            self.settled_at = Some(now);
        }
        self.event(kind, now)
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
