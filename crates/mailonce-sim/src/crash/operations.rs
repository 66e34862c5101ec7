//! The operations of clients: sends that follow from a seed, and operations on earlier emails.

use crate::crash::failpoints::HopClass;
use crate::crash::recording_client::{ApiCall, TeamCredential};
use crate::harness::rng::{SeededRng, fnv1a};
use crate::proof::history::{CallKind, ExpectedEmail};
use serde_json::{Value, json};

/// Items of a batch.
const BATCH_SIZE: u64 = 3;
/// The subject of mail from people.
pub const PERSON_SUBJECT: &str = "Where is my order?";
/// The subject of replies to it.
const REPLY_SUBJECT: &str = "Re: Where is my order?";

/// A call that can be repeated with the same key and content.
#[derive(Debug, Clone, PartialEq)]
pub struct RepeatableCall {
    /// The index of its team.
    pub team: usize,
    /// The call.
    pub call: ApiCall,
}

impl RepeatableCall {
    /// Whether its key expires soon.
    pub fn has_short_ttl(&self) -> bool {
        self.call.body.as_ref().is_some_and(|body| body["ttl"].is_string())
    }
}

/// The next operation of a client.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientOperation {
    /// A new send.
    Send(RepeatableCall),
    /// A retry of an earlier send, selected by number.
    Retry(u64),
    /// Other content under the key of an earlier send.
    SendMismatch(u64),
    /// Cancel an earlier email.
    Cancel(u64),
    /// Resend an earlier email.
    Resend(u64),
    /// Resolve an unknown outcome.
    Resolve(u64),
    /// Read or cancel an email of the other team.
    CrossTenantRead(u64),
    /// A provider event about an earlier email.
    ProviderEvent(u64),
}

/// Generates the operations of one cycle of a round.
#[derive(Debug, Clone, Copy)]
pub struct OperationGenerator {
    /// The seed of the round.
    pub seed: u64,
    /// The cycle.
    pub cycle: u64,
    /// The class of next hop.
    pub class: HopClass,
}

/// What is special about a generated mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailVariant {
    /// Nothing.
    Plain,
    /// It has two recipients.
    TwoRecipients,
    /// It is scheduled one second ahead.
    Scheduled,
    /// Its key expires one second after its end.
    ShortTtl,
    /// The reply to its first attempt is lost.
    LostReply,
    /// A worker sends it, with every class of next hop.
    ThroughWorker,
}

impl OperationGenerator {
    /// The n-th operation of the cycle.
    pub fn operation(&self, n: u64) -> ClientOperation {
        let mut rng = SeededRng::derive(self.seed, &[self.cycle, n]);
        let (roll, which) = (rng.below(100), rng.next());
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

    /// One mail under its own key.
    pub fn mail(&self, n: u64, special: MailVariant) -> RepeatableCall {
        let name = format!("m{}c{}n{n}", self.seed, self.cycle);
        let (email, wanted) = self.email(&name, special);
        let call = ApiCall {
            verb: CallKind::Send,
            path: "/v1/emails".into(),
            key: Some(name),
            key_is_implied: false,
            about: None,
            body: Some(email),
            expected_emails: vec![wanted],
            allowed_errors: &[],
        };
        RepeatableCall { team: self.pick_team(n), call }
    }

    /// A batch under one key.
    pub fn batch(&self, n: u64) -> RepeatableCall {
        let name = format!("b{}c{}n{n}", self.seed, self.cycle);
        let items = (0..BATCH_SIZE).map(|item| self.email(&format!("{name}i{item}"), MailVariant::Plain));
        let (emails, wanted): (Vec<Value>, Vec<ExpectedEmail>) = items.unzip();
        let call = ApiCall {
            verb: CallKind::Batch,
            path: "/v1/emails/batch".into(),
            key: Some(name),
            key_is_implied: false,
            about: None,
            body: Some(Value::from(emails)),
            expected_emails: wanted,
            allowed_errors: &[],
        };
        RepeatableCall { team: self.pick_team(n), call }
    }

    /// Four of five requests belong to the first team.
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

/// The hash of a mail's subject and text.
pub fn content_hash(subject: &str, text: &str) -> u64 {
    // The upper half of the bits: some JSON parsers keep no more than 53.
    fnv1a(&format!("{subject}\n{text}")) >> 32
}

/// The same key with other content, which must never become an email.
pub fn mismatching_call(request: &RepeatableCall) -> Option<ApiCall> {
    let mut call = request.call.clone();
    let email = call.body.as_mut().filter(|body| body.is_object())?;
    let text = "Something else altogether.";
    email["text"] = text.into();
    let subject = email["subject"].as_str().unwrap_or(REPLY_SUBJECT).to_owned();
    call.expected_emails =
        vec![ExpectedEmail { to: call.expected_emails.first()?.to.clone(), body: content_hash(&subject, text) }];
    call.allowed_errors = if call.key_is_implied { &[] } else { &["key_mismatch"] };
    Some(call)
}

/// A reply to a person's message. Replies to one message share its key, whatever their text.
pub fn reply_call(team: usize, message: &str, person: &str, agent: u64) -> RepeatableCall {
    let text = format!("Agent {agent} says: it is on its way.");
    let wanted = ExpectedEmail { to: vec![person.to_owned()], body: content_hash(REPLY_SUBJECT, &text) };
    let call = ApiCall {
        verb: CallKind::Send,
        path: format!("/v1/messages/{message}/reply"),
        key: Some(format!("answer-{message}")),
        key_is_implied: true,
        about: None,
        body: Some(json!({ "text": text })),
        expected_emails: vec![wanted],
        allowed_errors: &[],
    };
    RepeatableCall { team, call }
}

fn email_call(verb: CallKind, action: &str, id: &str, body: Value, may_fail: &'static [&'static str]) -> ApiCall {
    // A keyed operation can be retried when its reply is lost.
    let key = Some(format!("{action}-{id}-{}", fnv1a(&body.to_string()) >> 40));
    ApiCall {
        verb,
        path: format!("/v1/emails/{id}/{action}"),
        key,
        key_is_implied: false,
        about: Some(id.to_owned()),
        body: Some(body),
        expected_emails: Vec::new(),
        allowed_errors: may_fail,
    }
}

/// Cancels an email.
pub fn cancel_call(id: &str) -> ApiCall {
    email_call(CallKind::Cancel, "cancel", id, json!({}), &["too_late"])
}

/// Resends an email on purpose.
pub fn resend_call(id: &str) -> ApiCall {
    let may_fail = &["not_terminal", "use_resolve", "recipient_suppressed", "budget_spent"];
    email_call(CallKind::Resend, "resend", id, json!({"reason": "a person asked for it"}), may_fail)
}

/// Resolves an unknown outcome.
pub fn resolve_call(id: &str, r#as: &str, rev: u64) -> ApiCall {
    let body = json!({"as": r#as, "rev": rev, "reason": "the sink was looked at"});
    email_call(CallKind::Resolve, "resolve", id, body, &["stale_rev", "not_unknown"])
}

/// Reads an email of another team, which must not be visible.
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

/// The n-th team with its credential.
pub fn team_credential(n: usize, credential: &str) -> TeamCredential {
    TeamCredential { name: ["a", "b"].get(n).copied().unwrap_or("c").to_owned(), credential: credential.to_owned() }
}
