//! What is asked: wishes that follow from a seed, and deeds on what came of earlier ones.

use super::client::{Ask, Team};
use super::table::Class;
use crate::proof::history::{Verb, Wanted};
use crate::rig::chance::{Chance, number_of};
use serde_json::{Value, json};

/// Items of a batch.
const BATCH: u64 = 3;
/// What people write about.
pub const SUBJECT: &str = "Where is my order?";
/// What answers to them are called.
const ANSWER_SUBJECT: &str = "Re: Where is my order?";

/// A wish that can be asked for again: the same key and the same words.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish {
    /// Whose it is, by the place of the team.
    pub team: usize,
    /// The call.
    pub ask: Ask,
}

impl Wish {
    /// Whether its key is soon forgotten.
    pub fn is_brief(&self) -> bool {
        self.ask.body.as_ref().is_some_and(|body| body["ttl"].is_string())
    }
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq)]
pub enum Deed {
    /// A new wish.
    Ask(Wish),
    /// An earlier wish again, told by a number.
    Again(u64),
    /// Other words under the key of an earlier wish.
    Otherwise(u64),
    /// Cancel an earlier email.
    Cancel(u64),
    /// Send an earlier email again.
    Resend(u64),
    /// Decide about an unknown one.
    Resolve(u64),
    /// A team asks for an email of the other.
    Trespass(u64),
    /// A hook about an earlier email.
    Tell(u64),
}

/// Where wishes come from: one cycle of one round.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// The seed of the round.
    pub seed: u64,
    /// The cycle.
    pub cycle: u64,
    /// Where mail goes.
    pub class: Class,
}

/// What is special about a mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// Nothing.
    No,
    /// It has two recipients.
    Two,
    /// It is due a second later.
    Later,
    /// Its key is forgotten a second after its end.
    Brief,
    /// Its outcome is lost at the first try.
    Lost,
    /// It goes through workers wherever mail goes.
    Worked,
}

impl Source {
    /// The n-th deed of the cycle.
    pub fn deed(&self, n: u64) -> Deed {
        let mut chance = Chance::at(self.seed, &[self.cycle, n]);
        let (roll, which) = (chance.below(100), chance.next());
        match roll {
            0..30 => Deed::Ask(self.mail(n, Special::No)),
            30..45 => Deed::Ask(self.mail(n, Special::Worked)),
            45..52 => Deed::Ask(self.mail(n, Special::Two)),
            52..57 => Deed::Ask(self.mail(n, Special::Later)),
            57..60 => Deed::Ask(self.mail(n, Special::Brief)),
            60..63 => Deed::Ask(self.mail(n, Special::Lost)),
            63..71 => Deed::Ask(self.batch(n)),
            71..82 => Deed::Again(which),
            82..85 => Deed::Otherwise(which),
            85..89 => Deed::Cancel(which),
            89..93 => Deed::Resend(which),
            93..96 => Deed::Resolve(which),
            96..98 => Deed::Trespass(which),
            _ => Deed::Tell(which),
        }
    }

    /// One mail under a key of its own.
    pub fn mail(&self, n: u64, special: Special) -> Wish {
        let name = format!("m{}c{}n{n}", self.seed, self.cycle);
        let (email, wanted) = self.email(&name, special);
        let ask = Ask {
            verb: Verb::Send,
            path: "/v1/emails".into(),
            key: Some(name),
            implied: false,
            about: None,
            body: Some(email),
            wanted: vec![wanted],
            may_fail: &[],
        };
        Wish { team: self.team(n), ask }
    }

    /// Some mails under one key.
    pub fn batch(&self, n: u64) -> Wish {
        let name = format!("b{}c{}n{n}", self.seed, self.cycle);
        let items = (0..BATCH).map(|item| self.email(&format!("{name}i{item}"), Special::No));
        let (emails, wanted): (Vec<Value>, Vec<Wanted>) = items.unzip();
        let ask = Ask {
            verb: Verb::Batch,
            path: "/v1/emails/batch".into(),
            key: Some(name),
            implied: false,
            about: None,
            body: Some(Value::from(emails)),
            wanted,
            may_fail: &[],
        };
        Wish { team: self.team(n), ask }
    }

    /// Most wishes are of the first team.
    fn team(&self, n: u64) -> usize {
        usize::from(Chance::at(self.seed, &[self.cycle, n, 5]).below(5) == 0)
    }

    fn email(&self, name: &str, special: Special) -> (Value, Wanted) {
        let sandbox = self.class.transport() == Class::Sandbox.word();
        let to: Vec<String> = match special {
            Special::Lost if sandbox => vec!["unknown@sandbox.mailonce.test".into()],
            Special::Lost => vec![format!("{name}.quiet.drop@example.org")],
            Special::Worked if sandbox => {
                let which = ["defer", "bounce", "refuse", "unknown"][(number_of(name) % 4) as usize];
                vec![format!("{which}@sandbox.mailonce.test")]
            }
            Special::Two => vec![format!("{name}.a@example.org"), format!("{name}.b@example.org")],
            _ => vec![format!("{name}@example.org")],
        };
        let (subject, text) = (format!("About {name}"), format!("This is about {name}.\nIt is said once."));
        let body = meaning(&subject, &text);
        let mut email = json!({"from": "agent@example.com", "to": to, "subject": subject, "text": text});
        match special {
            Special::Later => email["scheduled_at"] = "in 1 second".into(),
            Special::Brief => email["ttl"] = "1s".into(),
            _ => {}
        }
        if number_of(name).is_multiple_of(5) {
            email["on_unknown"] = "resend".into();
        }
        (email, Wanted { to, body })
    }
}

/// The hash of what a mail says.
pub fn meaning(subject: &str, text: &str) -> u64 {
    // Half of the bits: some readers of JSON keep no more than 53.
    number_of(&format!("{subject}\n{text}")) >> 32
}

/// The same key with other words. It must never become a mail.
pub fn otherwise(wish: &Wish) -> Option<Ask> {
    let mut ask = wish.ask.clone();
    let email = ask.body.as_mut().filter(|body| body.is_object())?;
    let text = "Something else altogether.";
    email["text"] = text.into();
    let subject = email["subject"].as_str().unwrap_or(ANSWER_SUBJECT).to_owned();
    ask.wanted = vec![Wanted { to: ask.wanted.first()?.to.clone(), body: meaning(&subject, text) }];
    ask.may_fail = if ask.implied { &[] } else { &["key_mismatch"] };
    Some(ask)
}

/// An answer to the message of a person. All who answer it ask for the same, whatever their words.
pub fn answer(team: usize, message: &str, person: &str, agent: u64) -> Wish {
    let text = format!("Agent {agent} says: it is on its way.");
    let wanted = Wanted { to: vec![person.to_owned()], body: meaning(ANSWER_SUBJECT, &text) };
    let ask = Ask {
        verb: Verb::Send,
        path: format!("/v1/messages/{message}/reply"),
        key: Some(format!("answer-{message}")),
        implied: true,
        about: None,
        body: Some(json!({ "text": text })),
        wanted: vec![wanted],
        may_fail: &[],
    };
    Wish { team, ask }
}

fn about(verb: Verb, word: &str, id: &str, body: Value, may_fail: &'static [&'static str]) -> Ask {
    // An operation under a key answers the same again, so that a lost answer can be asked for.
    let key = Some(format!("{word}-{id}-{}", number_of(&body.to_string()) >> 40));
    Ask {
        verb,
        path: format!("/v1/emails/{id}/{word}"),
        key,
        implied: false,
        about: Some(id.to_owned()),
        body: Some(body),
        wanted: Vec::new(),
        may_fail,
    }
}

/// Takes an email back.
pub fn cancel(id: &str) -> Ask {
    about(Verb::Cancel, "cancel", id, json!({}), &["too_late"])
}

/// Sends an email again on purpose.
pub fn resend(id: &str) -> Ask {
    let may_fail = &["not_terminal", "use_resolve", "recipient_suppressed", "budget_spent"];
    about(Verb::Resend, "resend", id, json!({"reason": "a person asked for it"}), may_fail)
}

/// Decides what became of an email.
pub fn resolve(id: &str, r#as: &str, rev: u64) -> Ask {
    let body = json!({"as": r#as, "rev": rev, "reason": "the sink was looked at"});
    about(Verb::Resolve, "resolve", id, body, &["stale_rev", "not_unknown"])
}

/// Looks at an email, as somebody who must not see it.
pub fn trespass(id: &str) -> Ask {
    Ask {
        verb: Verb::Look,
        path: format!("/v1/emails/{id}"),
        key: None,
        implied: false,
        about: Some(id.to_owned()),
        body: None,
        wanted: Vec::new(),
        may_fail: &["not_found"],
    }
}

/// The name of the n-th team.
pub fn team(n: usize, credential: &str) -> Team {
    Team { name: ["a", "b"].get(n).copied().unwrap_or("c").to_owned(), credential: credential.to_owned() }
}
