//! What is asked: wishes that follow from a seed, and deeds on what came of earlier ones.

use crate::crash::failpoints::HopClass;
use crate::crash::recording_client::{ApiCall, TeamCredential};
use crate::harness::rng::{SeededRng, fnv1a};
use crate::proof::history::{CallKind, ExpectedEmail};
use serde_json::{Value, json};

/// Items of a batch.
const BATCH_SIZE: u64 = 3;
/// What people write about.
pub const PERSON_SUBJECT: &str = "Where is my order?";
/// What answers to them are called.
const REPLY_SUBJECT: &str = "Re: Where is my order?";

/// A wish that can be asked for again: the same key and the same words.
#[derive(Debug, Clone, PartialEq)]
pub struct RepeatableCall {
    /// Whose it is, by the place of the team.
    pub team: usize,
    /// The call.
    pub call: ApiCall,
}

impl RepeatableCall {
    /// Whether its key is soon forgotten.
    pub fn has_short_ttl(&self) -> bool {
        self.call.body.as_ref().is_some_and(|body| body["ttl"].is_string())
    }
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientOperation {
    /// A new wish.
    Send(RepeatableCall),
    /// An earlier wish again, told by a number.
    Retry(u64),
    /// Other words under the key of an earlier wish.
    SendMismatch(u64),
    /// Cancel an earlier email.
    Cancel(u64),
    /// Send an earlier email again.
    Resend(u64),
    /// Decide about an unknown one.
    Resolve(u64),
    /// A team asks for an email of the other.
    CrossTenantRead(u64),
    /// A hook about an earlier email.
    ProviderEvent(u64),
}

/// Where wishes come from: one cycle of one round.
#[derive(Debug, Clone, Copy)]
pub struct OperationGenerator {
    /// The seed of the round.
    pub seed: u64,
    /// The cycle.
    pub cycle: u64,
    /// Where mail goes.
    pub class: HopClass,
}

/// What is special about a mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailVariant {
    /// Nothing.
    Plain,
    /// It has two recipients.
    TwoRecipients,
    /// It is due a second later.
    Scheduled,
    /// Its key is forgotten a second after its end.
    ShortTtl,
    /// Its outcome is lost at the first try.
    LostReply,
    /// It goes through workers wherever mail goes.
    ThroughWorker,
}

impl OperationGenerator {
    /// The n-th deed of the cycle.
    pub fn operation(&self, n: u64) -> ClientOperation {
        let mut chance = SeededRng::derive(self.seed, &[self.cycle, n]);
        let (roll, which) = (chance.below(100), chance.next());
        match roll {
            0..30 => ClientOperation::Send(self.mail(n, MailVariant::Plain)),
            30..45 => ClientOperation::Send(self.mail(n, MailVariant::ThroughWorker)),
            45..52 => ClientOperation::Send(self.mail(n, MailVariant::TwoRecipients)),
            52..57 => ClientOperation::Send(self.mail(n, MailVariant::Scheduled)),
            57..60 => ClientOperation::Send(self.mail(n, MailVariant::ShortTtl)),
            60..63 => ClientOperation::Send(self.mail(n, MailVariant::LostReply)),
            63..71 => ClientOperation::Send(self.batch(n)),
            71..82 => ClientOperation::Retry(which),
            82..85 => ClientOperation::SendMismatch(which),
            85..89 => ClientOperation::Cancel(which),
            89..93 => ClientOperation::Resend(which),
            93..96 => ClientOperation::Resolve(which),
            96..98 => ClientOperation::CrossTenantRead(which),
            _ => ClientOperation::ProviderEvent(which),
        }
    }

    /// One mail under a key of its own.
    pub fn mail(&self, n: u64, special: MailVariant) -> RepeatableCall {
        let name = format!("m{}c{}n{n}", self.seed, self.cycle);
        let (email, wanted) = self.email(&name, special);
        let ask = ApiCall {
            verb: CallKind::Send,
            path: "/v1/emails".into(),
            key: Some(name),
            key_is_implied: false,
            about: None,
            body: Some(email),
            expected_emails: vec![wanted],
            allowed_errors: &[],
        };
        RepeatableCall { team: self.pick_team(n), call: ask }
    }

    /// Some mails under one key.
    pub fn batch(&self, n: u64) -> RepeatableCall {
        let name = format!("b{}c{}n{n}", self.seed, self.cycle);
        let items = (0..BATCH_SIZE).map(|item| self.email(&format!("{name}i{item}"), MailVariant::Plain));
        let (emails, wanted): (Vec<Value>, Vec<ExpectedEmail>) = items.unzip();
        let ask = ApiCall {
            verb: CallKind::Batch,
            path: "/v1/emails/batch".into(),
            key: Some(name),
            key_is_implied: false,
            about: None,
            body: Some(Value::from(emails)),
            expected_emails: wanted,
            allowed_errors: &[],
        };
        RepeatableCall { team: self.pick_team(n), call: ask }
    }

    /// Most wishes are of the first team.
    fn pick_team(&self, n: u64) -> usize {
        usize::from(SeededRng::derive(self.seed, &[self.cycle, n, 5]).below(5) == 0)
    }

    fn email(&self, name: &str, special: MailVariant) -> (Value, ExpectedEmail) {
        let sandbox = self.class.transport_name() == HopClass::Sandbox.as_str();
        let to: Vec<String> = match special {
            MailVariant::LostReply if sandbox => vec!["unknown@sandbox.mailonce.test".into()],
            MailVariant::LostReply => vec![format!("{name}.quiet.drop@example.org")],
            MailVariant::ThroughWorker if sandbox => {
                let which = ["defer", "bounce", "refuse", "unknown"][(fnv1a(name) % 4) as usize];
                vec![format!("{which}@sandbox.mailonce.test")]
            }
            MailVariant::TwoRecipients => vec![format!("{name}.a@example.org"), format!("{name}.b@example.org")],
            _ => vec![format!("{name}@example.org")],
        };
        let (subject, text) = (format!("About {name}"), format!("This is about {name}.\nIt is said once."));
        let body = content_hash(&subject, &text);
        let mut email = json!({"from": "agent@example.com", "to": to, "subject": subject, "text": text});
        match special {
            MailVariant::Scheduled => email["scheduled_at"] = "in 1 second".into(),
            MailVariant::ShortTtl => email["ttl"] = "1s".into(),
            _ => {}
        }
        if fnv1a(name).is_multiple_of(5) {
            email["on_unknown"] = "resend".into();
        }
        (email, ExpectedEmail { to, body })
    }
}

/// The hash of what a mail says.
pub fn content_hash(subject: &str, text: &str) -> u64 {
    // Half of the bits: some readers of JSON keep no more than 53.
    fnv1a(&format!("{subject}\n{text}")) >> 32
}

/// The same key with other words. It must never become a mail.
pub fn mismatching_call(wish: &RepeatableCall) -> Option<ApiCall> {
    let mut ask = wish.call.clone();
    let email = ask.body.as_mut().filter(|body| body.is_object())?;
    let text = "Something else altogether.";
    email["text"] = text.into();
    let subject = email["subject"].as_str().unwrap_or(REPLY_SUBJECT).to_owned();
    ask.expected_emails =
        vec![ExpectedEmail { to: ask.expected_emails.first()?.to.clone(), body: content_hash(&subject, text) }];
    ask.allowed_errors = if ask.key_is_implied { &[] } else { &["key_mismatch"] };
    Some(ask)
}

/// An answer to the message of a person. All who answer it ask for the same, whatever their words.
pub fn reply_call(team: usize, message: &str, person: &str, agent: u64) -> RepeatableCall {
    let text = format!("Agent {agent} says: it is on its way.");
    let wanted = ExpectedEmail { to: vec![person.to_owned()], body: content_hash(REPLY_SUBJECT, &text) };
    let ask = ApiCall {
        verb: CallKind::Send,
        path: format!("/v1/messages/{message}/reply"),
        key: Some(format!("answer-{message}")),
        key_is_implied: true,
        about: None,
        body: Some(json!({ "text": text })),
        expected_emails: vec![wanted],
        allowed_errors: &[],
    };
    RepeatableCall { team, call: ask }
}

fn email_call(verb: CallKind, word: &str, id: &str, body: Value, may_fail: &'static [&'static str]) -> ApiCall {
    // An operation under a key answers the same again, so that a lost answer can be asked for.
    let key = Some(format!("{word}-{id}-{}", fnv1a(&body.to_string()) >> 40));
    ApiCall {
        verb,
        path: format!("/v1/emails/{id}/{word}"),
        key,
        key_is_implied: false,
        about: Some(id.to_owned()),
        body: Some(body),
        expected_emails: Vec::new(),
        allowed_errors: may_fail,
    }
}

/// Takes an email back.
pub fn cancel_call(id: &str) -> ApiCall {
    email_call(CallKind::Cancel, "cancel", id, json!({}), &["too_late"])
}

/// Sends an email again on purpose.
pub fn resend_call(id: &str) -> ApiCall {
    let may_fail = &["not_terminal", "use_resolve", "recipient_suppressed", "budget_spent"];
    email_call(CallKind::Resend, "resend", id, json!({"reason": "a person asked for it"}), may_fail)
}

/// Decides what became of an email.
pub fn resolve_call(id: &str, r#as: &str, rev: u64) -> ApiCall {
    let body = json!({"as": r#as, "rev": rev, "reason": "the sink was looked at"});
    email_call(CallKind::Resolve, "resolve", id, body, &["stale_rev", "not_unknown"])
}

/// Looks at an email, as somebody who must not see it.
pub fn cross_tenant_call(id: &str) -> ApiCall {
    ApiCall {
        verb: CallKind::Look,
        path: format!("/v1/emails/{id}"),
        key: None,
        key_is_implied: false,
        about: Some(id.to_owned()),
        body: None,
        expected_emails: Vec::new(),
        allowed_errors: &["not_found"],
    }
}

/// The name of the n-th team.
pub fn team_credential(n: usize, credential: &str) -> TeamCredential {
    TeamCredential { name: ["a", "b"].get(n).copied().unwrap_or("c").to_owned(), credential: credential.to_owned() }
}
