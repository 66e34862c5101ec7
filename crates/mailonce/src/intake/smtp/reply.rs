//! What the listener says: one line each, with an RFC 3463 status.

use super::{
    reception::{NotTaken, Verdict},
    tally::Reason,
};
use crate::byte_budget::Shortage;

/// One line, and what it counts as when it is a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) line: &'static str,
    pub(super) reason: Option<Reason>,
}

const fn yes(line: &'static str) -> Reply {
    Reply { line, reason: None }
}

const fn no(line: &'static str, reason: Reason) -> Reply {
    Reply { line, reason: Some(reason) }
}

impl Reply {
    /// Whether it was the other side's own mistake. A few are forgiven.
    pub(super) fn is_mistake(self) -> bool {
        matches!(
            self.reason,
            Some(Reason::Syntax | Reason::Sequence | Reason::NotOffered | Reason::Address | Reason::LineEnd)
        )
    }
}

pub(super) const SENDER_OK: Reply = yes("250 2.1.0 sender noted");
pub(super) const RECIPIENT_OK: Reply = yes("250 2.1.5 recipient noted");
pub(super) const TAKEN: Reply = yes("250 2.0.0 taken");
pub(super) const FORGOTTEN: Reply = yes("250 2.0.0 forgotten");
pub(super) const NOTHING: Reply = yes("250 2.0.0 nothing done");
pub(super) const GO_AHEAD: Reply = yes("354 the mail, and a line with a dot alone");
pub(super) const MAYBE: Reply = yes("252 2.5.0 only a mail would tell");
pub(super) const HELP: Reply = yes("214 2.0.0 mail for the inboxes of this host, as in RFC 5321");
pub(super) const BYE: Reply = yes("221 2.0.0 good bye");
pub(super) const TLS_NOW: Reply = yes("220 2.0.0 TLS from here");

pub(super) const NO_COMMAND: Reply = no("500 5.5.1 no such command", Reason::Syntax);
pub(super) const LONG_LINE: Reply = no("500 5.5.2 the line is too long", Reason::Syntax);
pub(super) const NOT_TEXT: Reply = no("500 5.5.2 a command is UTF-8 without control characters", Reason::Syntax);
pub(super) const LINE_END: Reply = no("500 5.5.2 a line ends in CR LF", Reason::LineEnd);
pub(super) const BAD_ARGUMENTS: Reply = no("501 5.5.4 the command is not well-formed", Reason::Syntax);
pub(super) const NO_ARGUMENTS: Reply = no("501 5.5.4 the command takes no arguments", Reason::Syntax);
pub(super) const BAD_SENDER: Reply = no("501 5.1.7 the sender is not an address", Reason::Address);
pub(super) const BAD_RECIPIENT: Reply = no("501 5.1.3 the recipient is not an address", Reason::Address);
pub(super) const NOT_ASCII: Reply = no("553 5.6.7 the address needs SMTPUTF8", Reason::Address);
pub(super) const NOT_OFFERED: Reply = no("502 5.5.1 not offered here", Reason::NotOffered);
pub(super) const NO_LOG_IN: Reply = no("502 5.5.1 there is no log-in here", Reason::NotOffered);
pub(super) const NO_PARAMETER: Reply = no("555 5.5.4 a parameter is not offered here", Reason::NotOffered);
pub(super) const HELLO_FIRST: Reply = no("503 5.5.1 EHLO first", Reason::Sequence);
pub(super) const MAIL_FIRST: Reply = no("503 5.5.1 MAIL first", Reason::Sequence);
pub(super) const RCPT_FIRST: Reply = no("503 5.5.1 there is no recipient yet", Reason::Sequence);
pub(super) const ONE_MAIL: Reply = no("503 5.5.1 one mail at a time", Reason::Sequence);
pub(super) const TLS_ALREADY: Reply = no("503 5.5.1 TLS runs already", Reason::Sequence);
pub(super) const TLS_CROWDED: Reply = no("554 5.5.1 nothing may follow STARTTLS", Reason::OutOfTurn);
pub(super) const DATA_CROWDED: Reply = no("421 4.5.0 nothing may follow DATA before its answer", Reason::OutOfTurn);

pub(super) const TOO_LARGE: Reply = no("552 5.3.4 the mail is too large", Reason::Size);
pub(super) const TOO_MANY: Reply = no("452 4.5.3 too many recipients, the rest in another mail", Reason::Recipients);
pub(super) const BARE: Reply = no("554 5.6.11 a CR or LF stands alone in the mail", Reason::LineEnd);
pub(super) const NO_ROOM: Reply = no("451 4.3.1 no room at the moment, try again", Reason::Memory);
pub(super) const NO_SHARE: Reply =
    no("451 4.7.0 your network uses its whole share of our memory, try again", Reason::Share);
pub(super) const NO_DISK: Reply = no("452 4.3.1 no room on disk at the moment, try again", Reason::Disk);
pub(super) const NO_DISK_SHARE: Reply =
    no("452 4.7.0 your network has too many large mails under way, try again", Reason::Share);
pub(super) const TROUBLE: Reply = no("451 4.3.0 trouble of our own, try again", Reason::Trouble);
pub(super) const TOO_OFTEN: Reply = no("450 4.7.1 too many mails from your network, try again", Reason::Rate);

pub(super) const TOO_CLOSE: Reply = no("421 4.7.0 too many connections from your network", Reason::Rate);
pub(super) const FULL: Reply = no("421 4.3.2 too many connections, try again", Reason::Busy);
pub(super) const ENOUGH: Reply = no("421 4.7.0 too many errors", Reason::Patience);
pub(super) const IDLER: Reply = no("421 4.7.0 too many commands without a mail", Reason::Patience);
pub(super) const LATE: Reply = no("421 4.4.2 too slow, good bye", Reason::Timeout);
pub(super) const STOPPING: Reply = no("421 4.3.2 going down, try again", Reason::Stopping);

/// The answer to RCPT.
pub(super) fn recipient(verdict: Verdict) -> Reply {
    match verdict {
        Verdict::Here => RECIPIENT_OK,
        Verdict::Unknown => no("550 5.1.1 no such inbox", Reason::Unknown),
        Verdict::Expired => no("550 5.2.1 the inbox takes no more mail", Reason::Expired),
        Verdict::Blocked => no("550 5.7.1 refused by a rule of the inbox", Reason::Blocked),
        Verdict::Elsewhere => no("550 5.7.1 relaying denied", Reason::Elsewhere),
        Verdict::Trouble => TROUBLE,
    }
}

/// The answer when there is no memory for a mail.
pub(super) fn no_memory(shortage: Shortage) -> Reply {
    match shortage {
        Shortage::Share => NO_SHARE,
        Shortage::Total => NO_ROOM,
    }
}

/// The answer when there is no disk space for a mail.
pub(super) fn no_disk(shortage: Shortage) -> Reply {
    match shortage {
        Shortage::Share => NO_DISK_SHARE,
        Shortage::Total => NO_DISK,
    }
}

/// The answer to a mail that is not acknowledged.
pub(super) fn not_taken(why: NotTaken) -> Reply {
    match why {
        NotTaken::Trouble => TROUBLE,
        NotTaken::AllGone => no("550 5.1.1 no recipient of this mail takes mail any more", Reason::Gone),
        NotTaken::SomeGone => {
            no("451 4.2.1 a recipient takes no mail any more, try again for the others", Reason::Gone)
        }
    }
}
