//! Drafts: wishes in few words, and ids that are the same in every run.

use mailonce_core::{
    call::CallMark,
    content::{Content, RawContent},
    control::budget::Charge,
    conversation::likeness::Likeness,
    digest::Digest,
    email::{Channel, Email, EmailHead, Guard, OnUnknown},
    id::{EmailId, IdMaker, TeamId},
    intent::Intent,
    key::{Key, KeyHash, KeyName},
    port::store::{Care, Envelope, Wish},
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
    pub(super) static IDS: RefCell<IdMaker>;
}

/// The next id of this promise.
pub(super) fn next_id(now: Time) -> Uuid {
    IDS.with(|maker| {
        let mut maker = maker.borrow_mut();
        let ordered = maker.next(now, 0).as_u128();
        // Unordered bits that differ from id to id, so that an engine that loses them is noticed.
        let chance = (ordered >> 64) as u64;
        Uuid::from_u128(ordered | u128::from(chance.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2))
    })
}

/// The hash of a key that a caller gives.
pub(super) fn given(team: TeamId, key: &str) -> KeyHash {
    KeyName::Given(Key::parse(key).unwrap()).hash(team)
}

/// A wish before it has an id and a time.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    team: TeamId,
    name: Option<KeyName>,
    intent: Option<Intent>,
    to: Vec<String>,
    cc: Vec<String>,
    text: String,
    due: Option<Time>,
    ttl: Ttl,
    transport: String,
    apart: bool,
    version: u32,
    resend_of: Option<EmailId>,
    compared: bool,
    hold: Option<Guard>,
    flag: Option<Guard>,
    call: Option<CallMark>,
    charges: Vec<Charge>,
}

/// A draft without a key.
pub(super) fn keyless() -> Draft {
    Draft {
        team: TEAM,
        name: None,
        intent: None,
        to: vec!["user@example.com".into()],
        cc: Vec::new(),
        text: "hello".into(),
        due: None,
        ttl: ttl::DEFAULT,
        transport: SANDBOX.into(),
        apart: false,
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
pub(super) fn keyed(key: &str) -> Draft {
    Draft { name: Some(KeyName::Given(Key::parse(key).unwrap())), ..keyless() }
}

/// A draft under the key of an intent for these recipients.
pub(super) fn about(entity: &str, to: &[&str]) -> Draft {
    let intent = Intent { kind: "order.confirmation".into(), entity: entity.into(), version: 1, period: None };
    Draft { intent: Some(intent), ..keyless() }.to(to)
}

/// The draft of the next version of an email.
pub(super) fn next_version(of: &Email) -> Draft {
    let intent = of.head.intent.clone().map(|intent| Intent { version: intent.version + 1, ..intent });
    let name = if intent.is_none() { Some(KeyName::Version { of: of.id }) } else { None };
    Draft {
        team: of.team,
        name,
        intent,
        to: of.head.to.clone(),
        cc: of.head.cc.clone(),
        version: of.head.version + 1,
        resend_of: Some(of.id),
        ..keyless()
    }
}

impl Draft {
    /// Of another team.
    pub(super) fn team(self, team: TeamId) -> Self {
        Self { team, ..self }
    }

    /// Under the key of a batch's item.
    pub(super) fn item(self, batch: &str, index: u32) -> Self {
        Self { name: Some(KeyName::Item { batch: Key::parse(batch).unwrap(), index }), ..self }
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
    pub(super) fn by(self, transport: &str) -> Self {
        Self { transport: transport.into(), ..self }
    }

    /// With one envelope for each recipient.
    pub(super) fn apart(self) -> Self {
        Self { apart: true, ..self }
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
    pub(super) fn called(self, id: &str) -> Self {
        Self { call: CallMark::of(Some(id.into()), None), ..self }
    }

    /// Counted in a budget.
    pub(super) fn charged(mut self, charge: Charge) -> Self {
        self.charges.push(charge);
        self
    }

    /// The hash of its key. Only for a draft that has one.
    pub(super) fn hash(&self) -> KeyHash {
        self.name(&self.content()).unwrap().hash(self.team)
    }

    /// A wish with the next id.
    pub(super) fn wish(&self, now: Time) -> Wish {
        let content = self.content();
        let head = self.head(&content, now);
        Wish {
            id: EmailId(next_id(now)),
            team: self.team,
            digest: Digest::of(&content),
            key: head.key.as_ref().map(|name| name.hash(self.team)),
            slots: head.slots(self.team),
            head,
            first_wins: self.intent.is_some(),
            ttl: self.ttl,
            envelopes: self.envelopes(&content),
            due: self.due,
            body: serde_json::to_vec(&content).unwrap().into(),
            care: self.care(&content),
        }
    }

    fn care(&self, content: &Content) -> Care {
        let likeness = || Likeness::of(self.team, &content.from.address, &self.to, &content.subject, &self.text);
        let charges = self.charges.clone();
        Care { hold: self.hold, flag: self.flag, likeness: self.compared.then(likeness), takes_back: false, charges }
    }

    fn content(&self) -> Content {
        Content::check(RawContent {
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

    fn name(&self, content: &Content) -> Option<KeyName> {
        let derived = || self.intent.as_ref().map(|intent| Key::parse(&intent.key(&content.bare_to())).unwrap());
        self.name.clone().or_else(|| derived().map(KeyName::Given))
    }

    fn head(&self, content: &Content, now: Time) -> EmailHead {
        EmailHead {
            from: content.from.address.clone(),
            to: content.bare_to().iter().map(|address| address.as_str().to_owned()).collect(),
            cc: self.cc.clone(),
            bcc: Vec::new(),
            subject: content.subject.clone(),
            key: self.name(content),
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

    fn envelopes(&self, content: &Content) -> Vec<Envelope> {
        let all: Vec<String> = content.recipients().into_iter().map(str::to_owned).collect();
        let envelope = |recipients: Vec<String>| Envelope { transport: self.transport.clone(), recipients };
        if self.apart { all.into_iter().map(|one| envelope(vec![one])).collect() } else { vec![envelope(all)] }
    }
}
