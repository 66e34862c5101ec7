//! Received mail that follows from a seed. One number always gives the same bytes, so that a redelivery is exact.

use crate::crash::operations::{OperationGenerator, PERSON_SUBJECT};
use crate::harness::rng::{SeededRng, fnv1a};

/// The inboxes of every round, each with the index of its team.
pub const INBOXES: [(usize, &str); 3] =
    [(0, "one@mailonce.test"), (0, "two@mailonce.test"), (1, "three@mailonce.test")];
/// Size of a mail that is too large to be passed to the parser in memory.
const LARGE_MAIL_OCTETS: usize = 300 * 1024;
/// Mails of one cycle that share a sender and a code, by number.
const MAILS_PER_CODE: u64 = 5;

/// A generated mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectedMail {
    /// The provider's id for it.
    pub name: String,
    /// Its Message-ID.
    pub message_id: String,
    /// Its sender.
    pub sender: String,
    /// Its recipients.
    pub inboxes: Vec<String>,
    /// The code in it.
    pub code: String,
    /// Its bytes, without the final dot.
    pub raw: String,
    /// Whether it arrives by webhook, in place of by SMTP.
    pub by_hook: bool,
}

/// What is special about a received mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedMailKind {
    /// It arrives by SMTP or webhook.
    Any,
    /// It arrives by SMTP.
    Smtp,
    /// It arrives by webhook.
    Hook,
    /// It arrives by SMTP and is large.
    Large,
    /// A person wrote it and expects a reply.
    Person,
}

impl OperationGenerator {
    /// The n-th mail of a cycle, for the first `teams` teams.
    pub fn draw_mail(&self, n: u64, what: InjectedMailKind, teams: usize) -> InjectedMail {
        let mut rng = SeededRng::derive(self.seed, &[self.cycle, n, 9]);
        let name = format!("in{}c{}n{n}", self.seed, self.cycle);
        // Mails of one block share sender and code, which makes one artifact.
        let writer = format!("w{}c{}t{}", self.seed, self.cycle, n / MAILS_PER_CODE);
        let sender = format!("no-reply@{writer}.example");
        let code = format!("{:06}", 100_000 + fnv1a(&writer) % 900_000);
        let there: Vec<&str> = INBOXES.iter().filter(|(team, _)| *team < teams).map(|(_, inbox)| *inbox).collect();
        let hook = match what {
            InjectedMailKind::Any | InjectedMailKind::Person => rng.below(2) == 0,
            InjectedMailKind::Hook => true,
            InjectedMailKind::Smtp | InjectedMailKind::Large => false,
        };
        // A source belongs to the first team.
        let own = if hook { INBOXES.iter().filter(|(team, _)| *team == 0).count() } else { there.len() };
        let first = rng.below(own.min(there.len()) as u64) as usize;
        let mut inboxes = vec![there[first].to_owned()];
        if first == 0 && rng.below(3) == 0 {
            inboxes.push(there[1].to_owned());
        }
        let message_id = format!("<{name}@{writer}.example>");
        if what == InjectedMailKind::Person {
            inboxes.truncate(1);
            return mail_from_person(name, message_id, inboxes, hook);
        }
        let rest = if what == InjectedMailKind::Large {
            "All of it, line after line, as promised.\r\n".repeat(LARGE_MAIL_OCTETS / 42)
        } else {
            String::new()
        };
        let raw = format!(
            "From: Shop <{sender}>\r\nTo: <{}>\r\nSubject: Your verification code\r\nMessage-ID: {message_id}\r\n\
             Date: Sun, 15 Nov 2026 04:00:00 +0000\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n\
             Your verification code is {code}.\r\nIt expires in 10 minutes.\r\n\r\nReference {name}.\r\n{rest}",
            inboxes[0]
        );
        InjectedMail { name, message_id, sender, inboxes, code, raw, by_hook: hook }
    }
}

/// Each mail has its own sender address, so that a duplicate reply is visible.
fn mail_from_person(name: String, message_id: String, inboxes: Vec<String>, hook: bool) -> InjectedMail {
    let sender = format!("ann.{name}@people.example");
    let raw = format!(
        "From: <{sender}>\r\nTo: <{}>\r\nSubject: {PERSON_SUBJECT}\r\nMessage-ID: {message_id}\r\n\
         Date: Sun, 15 Nov 2026 04:00:00 +0000\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n\
         It should have been here on Friday.\r\n\r\nAnn\r\n",
        inboxes[0]
    );
    InjectedMail { name, message_id, sender, inboxes, code: String::new(), raw, by_hook: hook }
}
