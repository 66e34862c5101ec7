//! Drafts: wishes in few words, and ids that are the same in every run.

use mailonce_core::{
    call_trace::CallTrace,
    control::budget::Charge,
    id::{EmailId, IdGenerator, TeamId},
    intent::Intent,
    key::{EmailKey, Key, KeyHash},
    outbound::{
        accept::{Envelope, GuardInput, NewEmail},
        content::{EmailContent, RawContent},
        content_guard::ContentFingerprint,
        digest::Digest,
        email::{Channel, Email, EmailHead, Guard, OnUnknown},
    },
    time::Time,
    ttl::{self, Ttl},
};
use std::cell::RefCell;
use uuid::Uuid;

use super::TEAM;

/// The transport of a draft that names none.
pub(super) const SANDBOX: &str = "sandbox";

tokio::task_local! {
    /// One maker per promise. A spawned task has none: wishes are made before tasks start, in a fixed order.
    pub(super) static IDS: RefCell<IdGenerator>;
}

/// The next id of this promise.
pub(super) fn next_id(now: Time) -> Uuid {
    IDS.with(|maker| {
        let mut maker = maker.borrow_mut();
        let ordered = maker.next_id(now, 0).as_u128();
        // Unordered bits that differ from id to id, so that an engine that loses them is noticed.
        let chance = (ordered >> 64) as u64;
        Uuid::from_u128(ordered | u128::from(chance.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2))
    })
}

/// The hash of a key that a caller gives.
pub(super) fn given_key_hash(team: TeamId, key: &str) -> KeyHash {
    EmailKey::Given(Key::parse(key).unwrap()).hash(team)
}

/// A wish before it has an id and a time.
#[derive(Clone, Debug)]
pub(super) struct EmailFixture {
    team: TeamId,
    name: Option<EmailKey>,
    intent: Option<Intent>,
    to: Vec<String>,
    cc: Vec<String>,
    text: String,
    due: Option<Time>,
    ttl: Ttl,
    transport: String,
    separate_envelopes: bool,
    version: u32,
    resend_of: Option<EmailId>,
    compared: bool,
    hold: Option<Guard>,
    flag: Option<Guard>,
    call: Option<CallTrace>,
    charges: Vec<Charge>,
}

/// A draft without a key.
pub(super) fn keyless_email() -> EmailFixture {
    EmailFixture {
        team: TEAM,
        name: None,
        intent: None,
        to: vec!["user@example.com".into()],
        cc: Vec::new(),
        text: "hello".into(),
        due: None,
        ttl: ttl::DEFAULT,
        transport: SANDBOX.into(),
        separate_envelopes: false,
        version: 1,
        resend_of: None,
        compared: false,
        hold: None,
        flag: None,
        call: None,
        charges: Vec::new(),
    }
}

/// A draft under a key that a caller gives.
pub(super) fn keyed_email(key: &str) -> EmailFixture {
    EmailFixture { name: Some(EmailKey::Given(Key::parse(key).unwrap())), ..keyless_email() }
}

/// A draft under the key of an intent for these recipients.
pub(super) fn intent_email(entity: &str, to: &[&str]) -> EmailFixture {
    let intent = Intent { kind: "order.confirmation".into(), entity: entity.into(), version: 1, period: None };
    EmailFixture { intent: Some(intent), ..keyless_email() }.to(to)
}

/// The draft of the next version of an email.
pub(super) fn next_version(of: &Email) -> EmailFixture {
    let intent = of.head.intent.clone().map(|intent| Intent { version: intent.version + 1, ..intent });
    let name = if intent.is_none() { Some(EmailKey::Version { of: of.id }) } else { None };
    EmailFixture {
        team: of.team,
        name,
        intent,
        to: of.head.to.clone(),
        cc: of.head.cc.clone(),
        version: of.head.version + 1,
        resend_of: Some(of.id),
        ..keyless_email()
    }
}

impl EmailFixture {
    /// Of another team.
    pub(super) fn team(self, team: TeamId) -> Self {
        Self { team, ..self }
    }

    /// Under the key of a batch's item.
    pub(super) fn batch_item(self, batch: &str, index: u32) -> Self {
        Self { name: Some(EmailKey::Item { batch: Key::parse(batch).unwrap(), index }), ..self }
    }

    /// To these recipients.
    pub(super) fn to(self, to: &[&str]) -> Self {
        Self { to: to.iter().map(ToString::to_string).collect(), ..self }
    }

    /// With copies to these.
    pub(super) fn cc(self, cc: &[&str]) -> Self {
        Self { cc: cc.iter().map(ToString::to_string).collect(), ..self }
    }

    /// Saying this.
    pub(super) fn text(self, text: &str) -> Self {
        Self { text: text.into(), ..self }
    }

    /// As this version of its intent.
    pub(super) fn version(self, version: u32) -> Self {
        let intent = self.intent.map(|intent| Intent { version, ..intent });
        Self { intent, version, ..self }
    }

    /// Due at this time.
    pub(super) fn due(self, due: Time) -> Self {
        Self { due: Some(due), ..self }
    }

    /// With a key that is remembered for so many milliseconds.
    pub(super) fn ttl(self, ms: i64) -> Self {
        Self { ttl: Ttl(ms), ..self }
    }

    /// By another way out.
    pub(super) fn via_transport(self, transport: &str) -> Self {
        Self { transport: transport.into(), ..self }
    }

    /// With one envelope for each recipient.
    pub(super) fn separate_envelopes(self) -> Self {
        Self { separate_envelopes: true, ..self }
    }

    /// Compared with what was said of late between the same people.
    pub(super) fn compared(self) -> Self {
        Self { compared: true, ..self }
    }

    /// Held, as this guard said before.
    pub(super) fn held(self, guard: Guard) -> Self {
        Self { hold: Some(guard), ..self }
    }

    /// Let go, although this guard spoke.
    pub(super) fn flagged(self, guard: Guard) -> Self {
        Self { flag: Some(guard), ..self }
    }

    /// Asked for by a call that its caller calls this.
    pub(super) fn with_call_id(self, id: &str) -> Self {
        Self { call: CallTrace::from_parts(Some(id.into()), None), ..self }
    }

    /// Counted in a budget.
    pub(super) fn with_charge(mut self, charge: Charge) -> Self {
        self.charges.push(charge);
        self
    }

    /// The hash of its key. Only for a draft that has one.
    pub(super) fn hash(&self) -> KeyHash {
        self.key_name(&self.content()).unwrap().hash(self.team)
    }

    /// A wish with the next id.
    pub(super) fn to_new_email(&self, now: Time) -> NewEmail {
        let content = self.content();
        let head = self.head(&content, now);
        NewEmail {
            id: EmailId(next_id(now)),
            team: self.team,
            digest: Digest::of_content(&content),
            key: head.key.as_ref().map(|name| name.hash(self.team)),
            shadow_keys: head.shadow_keys(self.team),
            head,
            first_wins: self.intent.is_some(),
            ttl: self.ttl,
            envelopes: self.envelopes(&content),
            due_at: self.due,
            body: serde_json::to_vec(&content).unwrap().into(),
            guard_input: self.guard_input(&content),
        }
    }

    fn guard_input(&self, content: &EmailContent) -> GuardInput {
        let likeness =
            || ContentFingerprint::from_email(self.team, &content.from.address, &self.to, &content.subject, &self.text);
        let charges = self.charges.clone();
        GuardInput {
            held_by: self.hold,
            flagged_by: self.flag,
            fingerprint: self.compared.then(likeness),
            cancels_previous: false,
            charges,
        }
    }

    fn content(&self) -> EmailContent {
        EmailContent::validate(RawContent {
            from: "agent@example.com".into(),
            to: self.to.clone(),
            cc: self.cc.clone(),
            subject: "Hello".into(),
            text: Some(self.text.clone()),
            scheduled_at: self.due.map(|due| due.to_string()),
            ..RawContent::default()
        })
        .unwrap()
    }

    fn key_name(&self, content: &EmailContent) -> Option<EmailKey> {
        let derived =
            || self.intent.as_ref().map(|intent| Key::parse(&intent.derive_key(&content.to_addresses())).unwrap());
        self.name.clone().or_else(|| derived().map(EmailKey::Given))
    }

    fn head(&self, content: &EmailContent, now: Time) -> EmailHead {
        EmailHead {
            from: content.from.address.clone(),
            to: content.to_addresses().iter().map(|address| address.as_str().to_owned()).collect(),
            cc: self.cc.clone(),
            bcc: Vec::new(),
            subject: content.subject.clone(),
            key: self.key_name(content),
            intent: self.intent.clone(),
            created_at: now,
            on_unknown: OnUnknown::Hold,
            caller: None,
            channel: Channel::Http,
            version: self.version,
            transport: None,
            resend_of: self.resend_of,
            reason: self.resend_of.map(|_| "asked for".into()),
            answers: None,
            thread: None,
            call: self.call.clone(),
            held_by: None,
        }
    }

    fn envelopes(&self, content: &EmailContent) -> Vec<Envelope> {
        let all: Vec<String> = content.recipients().into_iter().map(str::to_owned).collect();
        let envelope = |recipients: Vec<String>| Envelope { transport: self.transport.clone(), recipients };
        if self.separate_envelopes {
            all.into_iter().map(|one| envelope(vec![one])).collect()
        } else {
            vec![envelope(all)]
        }
    }
}
