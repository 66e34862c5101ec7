//! What the listener says: one line each, with an RFC 3463 status.

use crate::byte_budget::Shortage;
use crate::intake::smtp::{
    mail_receiver::{NotAccepted, RecipientStatus},
    metrics::Reason,
};

/// One line, and what it counts as when it is a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SmtpReply {
    pub(super) line: &'static str,
    pub(super) reason: Option<Reason>,
}

const fn positive(line: &'static str) -> SmtpReply {
    SmtpReply { line, reason: None }
}

const fn refusal(line: &'static str, reason: Reason) -> SmtpReply {
    SmtpReply { line, reason: Some(reason) }
}

impl SmtpReply {
    /// Whether it was the other side's own mistake. A few are forgiven.
    pub(super) fn is_client_error(self) -> bool {
        matches!(
            self.reason,
            Some(Reason::Syntax | Reason::Sequence | Reason::NotOffered | Reason::Address | Reason::LineEnd)
        )
    }
}

pub(super) const SENDER_OK: SmtpReply = positive("250 2.1.0 sender noted");
pub(super) const RECIPIENT_OK: SmtpReply = positive("250 2.1.5 recipient noted");
pub(super) const ACCEPTED: SmtpReply = positive("250 2.0.0 taken");
pub(super) const RESET_OK: SmtpReply = positive("250 2.0.0 forgotten");
pub(super) const NOOP_OK: SmtpReply = positive("250 2.0.0 nothing done");
pub(super) const START_DATA: SmtpReply = positive("354 the mail, and a line with a dot alone");
pub(super) const CANNOT_VERIFY: SmtpReply = positive("252 2.5.0 only a mail would tell");
pub(super) const HELP: SmtpReply = positive("214 2.0.0 mail for the inboxes of this host, as in RFC 5321");
pub(super) const CLOSING: SmtpReply = positive("221 2.0.0 good bye");
pub(super) const READY_FOR_TLS: SmtpReply = positive("220 2.0.0 TLS from here");

pub(super) const UNKNOWN_COMMAND: SmtpReply = refusal("500 5.5.1 no such command", Reason::Syntax);
pub(super) const HTTP_REQUEST: SmtpReply = refusal("554 5.5.1 this is an SMTP server, not HTTP", Reason::Syntax);
pub(super) const LINE_TOO_LONG: SmtpReply = refusal("500 5.5.2 the line is too long", Reason::Syntax);
pub(super) const NOT_UTF8: SmtpReply =
    refusal("500 5.5.2 a command is UTF-8 without control characters", Reason::Syntax);
pub(super) const BAD_LINE_END: SmtpReply = refusal("500 5.5.2 a line ends in CR LF", Reason::LineEnd);
pub(super) const BAD_ARGUMENTS: SmtpReply = refusal("501 5.5.4 the command is not well-formed", Reason::Syntax);
pub(super) const UNEXPECTED_ARGUMENTS: SmtpReply = refusal("501 5.5.4 the command takes no arguments", Reason::Syntax);
pub(super) const BAD_SENDER: SmtpReply = refusal("501 5.1.7 the sender is not an address", Reason::Address);
pub(super) const BAD_RECIPIENT: SmtpReply = refusal("501 5.1.3 the recipient is not an address", Reason::Address);
pub(super) const SMTPUTF8_REQUIRED: SmtpReply = refusal("553 5.6.7 the address needs SMTPUTF8", Reason::Address);
pub(super) const NOT_OFFERED: SmtpReply = refusal("502 5.5.1 not offered here", Reason::NotOffered);
pub(super) const AUTH_NOT_OFFERED: SmtpReply = refusal("502 5.5.1 there is no log-in here", Reason::NotOffered);
pub(super) const UNKNOWN_PARAMETER: SmtpReply =
    refusal("555 5.5.4 a parameter is not offered here", Reason::NotOffered);
pub(super) const HELLO_FIRST: SmtpReply = refusal("503 5.5.1 EHLO first", Reason::Sequence);
pub(super) const MAIL_FIRST: SmtpReply = refusal("503 5.5.1 MAIL first", Reason::Sequence);
pub(super) const RCPT_FIRST: SmtpReply = refusal("503 5.5.1 there is no recipient yet", Reason::Sequence);
pub(super) const NESTED_MAIL: SmtpReply = refusal("503 5.5.1 one mail at a time", Reason::Sequence);
pub(super) const TLS_ALREADY_ACTIVE: SmtpReply = refusal("503 5.5.1 TLS runs already", Reason::Sequence);
pub(super) const INPUT_AFTER_STARTTLS: SmtpReply = refusal("554 5.5.1 nothing may follow STARTTLS", Reason::OutOfTurn);
pub(super) const INPUT_AFTER_DATA: SmtpReply =
    refusal("421 4.5.0 nothing may follow DATA before its answer", Reason::OutOfTurn);

pub(super) const TOO_LARGE: SmtpReply = refusal("552 5.3.4 the mail is too large", Reason::Size);
pub(super) const TOO_MANY_RECIPIENTS: SmtpReply =
    refusal("452 4.5.3 too many recipients, the rest in another mail", Reason::Recipients);
pub(super) const BARE_LINE_ENDING: SmtpReply =
    refusal("554 5.6.11 a CR or LF stands alone in the mail", Reason::LineEnd);
pub(super) const OUT_OF_MEMORY: SmtpReply = refusal("451 4.3.1 no room at the moment, try again", Reason::Memory);
pub(super) const MEMORY_SHARE_USED_UP: SmtpReply =
    refusal("451 4.7.0 your network uses its whole share of our memory, try again", Reason::Share);
pub(super) const DISK_FULL: SmtpReply = refusal("452 4.3.1 no room on disk at the moment, try again", Reason::Disk);
pub(super) const DISK_SHARE_USED_UP: SmtpReply =
    refusal("452 4.7.0 your network has too many large mails under way, try again", Reason::Share);
pub(super) const TEMPORARY_FAILURE: SmtpReply = refusal("451 4.3.0 trouble of our own, try again", Reason::Trouble);
pub(super) const MAIL_RATE_LIMITED: SmtpReply =
    refusal("450 4.7.1 too many mails from your network, try again", Reason::Rate);

pub(super) const NETWORK_CONNECTION_LIMIT: SmtpReply =
    refusal("421 4.7.0 too many connections from your network", Reason::Rate);
pub(super) const CONNECTION_LIMIT: SmtpReply = refusal("421 4.3.2 too many connections, try again", Reason::Busy);
pub(super) const TOO_MANY_ERRORS: SmtpReply = refusal("421 4.7.0 too many errors", Reason::Patience);
pub(super) const TOO_MANY_COMMANDS: SmtpReply = refusal("421 4.7.0 too many commands without a mail", Reason::Patience);
pub(super) const TIMED_OUT: SmtpReply = refusal("421 4.4.2 too slow, good bye", Reason::Timeout);
pub(super) const SHUTTING_DOWN: SmtpReply = refusal("421 4.3.2 going down, try again", Reason::Stopping);

/// The answer to RCPT.
pub(super) fn for_recipient(verdict: RecipientStatus) -> SmtpReply {
    match verdict {
        RecipientStatus::Accepted => RECIPIENT_OK,
        RecipientStatus::Unknown => refusal("550 5.1.1 no such inbox", Reason::Unknown),
        RecipientStatus::Expired => refusal("550 5.2.1 the inbox takes no more mail", Reason::Expired),
        RecipientStatus::Blocked => refusal("550 5.7.1 refused by a rule of the inbox", Reason::Blocked),
        RecipientStatus::NotLocal => refusal("550 5.7.1 relaying denied", Reason::Elsewhere),
        RecipientStatus::TemporaryError => TEMPORARY_FAILURE,
    }
}

/// The answer when there is no memory for a mail.
pub(super) fn for_memory_shortage(shortage: Shortage) -> SmtpReply {
    match shortage {
        Shortage::Share => MEMORY_SHARE_USED_UP,
        Shortage::Total => OUT_OF_MEMORY,
    }
}

/// The answer when there is no disk space for a mail.
pub(super) fn for_disk_shortage(shortage: Shortage) -> SmtpReply {
    match shortage {
        Shortage::Share => DISK_SHARE_USED_UP,
        Shortage::Total => DISK_FULL,
    }
}

/// The answer to a mail that is not acknowledged.
pub(super) fn for_not_accepted(why: NotAccepted) -> SmtpReply {
    match why {
        NotAccepted::TemporaryError => TEMPORARY_FAILURE,
        NotAccepted::AllRecipientsGone => {
            refusal("550 5.1.1 no recipient of this mail takes mail any more", Reason::Gone)
        }
        NotAccepted::SomeRecipientsGone => {
            refusal("451 4.2.1 a recipient takes no mail any more, try again for the others", Reason::Gone)
        }
    }
}
