//! The SMTP replies: one line each, with an enhanced status code (RFC 3463).

use crate::byte_budget::Shortage;
use crate::intake::smtp::{
    mail_receiver::{NotAccepted, RecipientStatus},
    metrics::Reason,
};

/// One reply line, and the metric label if it is a refusal.
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
    /// Whether the client made a mistake. A connection may make a few.
    pub(super) fn is_client_error(self) -> bool {
        matches!(
            self.reason,
            Some(Reason::Syntax | Reason::Sequence | Reason::NotOffered | Reason::Address | Reason::LineEnd)
        )
    }
}

pub(super) const SENDER_OK: SmtpReply = positive("250 2.1.0 sender ok");
pub(super) const RECIPIENT_OK: SmtpReply = positive("250 2.1.5 recipient ok");
pub(super) const ACCEPTED: SmtpReply = positive("250 2.0.0 accepted");
pub(super) const RESET_OK: SmtpReply = positive("250 2.0.0 reset");
pub(super) const NOOP_OK: SmtpReply = positive("250 2.0.0 ok");
pub(super) const START_DATA: SmtpReply = positive("354 end data with <CR><LF>.<CR><LF>");
pub(super) const CANNOT_VERIFY: SmtpReply = positive("252 2.5.0 cannot verify, send a mail to try");
pub(super) const HELP: SmtpReply = positive("214 2.0.0 accepts mail for the inboxes of this host, see RFC 5321");
pub(super) const CLOSING: SmtpReply = positive("221 2.0.0 good bye");
pub(super) const READY_FOR_TLS: SmtpReply = positive("220 2.0.0 ready to start TLS");

pub(super) const UNKNOWN_COMMAND: SmtpReply = refusal("500 5.5.1 unknown command", Reason::Syntax);
pub(super) const HTTP_REQUEST: SmtpReply = refusal("554 5.5.1 this is an SMTP server, not HTTP", Reason::Syntax);
pub(super) const TLS_HANDSHAKE: SmtpReply =
    refusal("554 5.5.1 this port starts in plain text, use STARTTLS if it is offered", Reason::Syntax);
pub(super) const LINE_TOO_LONG: SmtpReply = refusal("500 5.5.2 the line is too long", Reason::Syntax);
pub(super) const NOT_UTF8: SmtpReply =
    refusal("500 5.5.2 a command must be UTF-8 without control characters", Reason::Syntax);
pub(super) const BAD_LINE_END: SmtpReply = refusal("500 5.5.2 a line must end in CR LF", Reason::LineEnd);
pub(super) const BAD_ARGUMENTS: SmtpReply = refusal("501 5.5.4 the command is not well-formed", Reason::Syntax);
pub(super) const UNEXPECTED_ARGUMENTS: SmtpReply = refusal("501 5.5.4 the command takes no arguments", Reason::Syntax);
pub(super) const BAD_SENDER: SmtpReply = refusal("501 5.1.7 the sender is not an address", Reason::Address);
pub(super) const BAD_RECIPIENT: SmtpReply = refusal("501 5.1.3 the recipient is not an address", Reason::Address);
pub(super) const SMTPUTF8_REQUIRED: SmtpReply = refusal("553 5.6.7 the address needs SMTPUTF8", Reason::Address);
pub(super) const NOT_OFFERED: SmtpReply = refusal("502 5.5.1 not offered here", Reason::NotOffered);
pub(super) const AUTH_NOT_OFFERED: SmtpReply =
    refusal("502 5.5.1 authentication is not offered here", Reason::NotOffered);
pub(super) const UNKNOWN_PARAMETER: SmtpReply =
    refusal("555 5.5.4 a parameter is not offered here", Reason::NotOffered);
pub(super) const HELLO_FIRST: SmtpReply = refusal("503 5.5.1 send EHLO first", Reason::Sequence);
pub(super) const MAIL_FIRST: SmtpReply = refusal("503 5.5.1 send MAIL first", Reason::Sequence);
pub(super) const RCPT_FIRST: SmtpReply = refusal("503 5.5.1 no valid recipient, send RCPT first", Reason::Sequence);
pub(super) const NESTED_MAIL: SmtpReply = refusal("503 5.5.1 a mail transaction is already open", Reason::Sequence);
pub(super) const TLS_ALREADY_ACTIVE: SmtpReply = refusal("503 5.5.1 TLS is already active", Reason::Sequence);
pub(super) const INPUT_AFTER_STARTTLS: SmtpReply = refusal("554 5.5.1 nothing may follow STARTTLS", Reason::OutOfTurn);
pub(super) const INPUT_AFTER_DATA: SmtpReply =
    refusal("421 4.5.0 nothing may follow DATA before its answer", Reason::OutOfTurn);

pub(super) const TOO_LARGE: SmtpReply = refusal("552 5.3.4 the mail is too large", Reason::Size);
pub(super) const TOO_MANY_RECIPIENTS: SmtpReply =
    refusal("452 4.5.3 too many recipients, send the rest in another mail", Reason::Recipients);
pub(super) const BARE_LINE_ENDING: SmtpReply = refusal("554 5.6.11 the mail contains a bare CR or LF", Reason::LineEnd);
pub(super) const OUT_OF_MEMORY: SmtpReply = refusal("451 4.3.1 out of memory at the moment, try again", Reason::Memory);
pub(super) const MEMORY_SHARE_USED_UP: SmtpReply =
    refusal("451 4.7.0 your network has used up its share of memory, try again", Reason::Share);
pub(super) const DISK_FULL: SmtpReply = refusal("452 4.3.1 out of disk space at the moment, try again", Reason::Disk);
pub(super) const DISK_SHARE_USED_UP: SmtpReply =
    refusal("452 4.7.0 your network has used up its share of disk space, try again", Reason::Share);
pub(super) const TEMPORARY_FAILURE: SmtpReply = refusal("451 4.3.0 temporary server error, try again", Reason::Trouble);
pub(super) const MAIL_RATE_LIMITED: SmtpReply =
    refusal("450 4.7.1 too many mails from your network, try again", Reason::Rate);

pub(super) const NETWORK_CONNECTION_LIMIT: SmtpReply =
    refusal("421 4.7.0 too many connections from your network", Reason::Rate);
pub(super) const CONNECTION_LIMIT: SmtpReply = refusal("421 4.3.2 too many connections, try again", Reason::Busy);
pub(super) const TOO_MANY_ERRORS: SmtpReply = refusal("421 4.7.0 too many errors", Reason::Patience);
pub(super) const TOO_MANY_COMMANDS: SmtpReply = refusal("421 4.7.0 too many commands without a mail", Reason::Patience);
pub(super) const TIMED_OUT: SmtpReply = refusal("421 4.4.2 timeout, closing the connection", Reason::Timeout);
pub(super) const SHUTTING_DOWN: SmtpReply = refusal("421 4.3.2 shutting down, try again", Reason::Stopping);

/// The reply to RCPT.
pub(super) fn for_recipient(status: RecipientStatus) -> SmtpReply {
    match status {
        RecipientStatus::Accepted => RECIPIENT_OK,
        RecipientStatus::Unknown => refusal("550 5.1.1 no such inbox", Reason::Unknown),
        RecipientStatus::Expired => refusal("550 5.2.1 the inbox has expired", Reason::Expired),
        RecipientStatus::Blocked => refusal("550 5.7.1 refused by a rule of the inbox", Reason::Blocked),
        RecipientStatus::NotLocal => refusal("550 5.7.1 relaying denied", Reason::Elsewhere),
        RecipientStatus::TemporaryError => TEMPORARY_FAILURE,
    }
}

/// The reply if there is no memory for a mail.
pub(super) fn for_memory_shortage(shortage: Shortage) -> SmtpReply {
    match shortage {
        Shortage::Share => MEMORY_SHARE_USED_UP,
        Shortage::Total => OUT_OF_MEMORY,
    }
}

/// The reply if there is no disk space for a mail.
pub(super) fn for_disk_shortage(shortage: Shortage) -> SmtpReply {
    match shortage {
        Shortage::Share => DISK_SHARE_USED_UP,
        Shortage::Total => DISK_FULL,
    }
}

/// The reply to a mail that was not accepted.
pub(super) fn for_not_accepted(reason: NotAccepted) -> SmtpReply {
    match reason {
        NotAccepted::TemporaryError => TEMPORARY_FAILURE,
        NotAccepted::AllRecipientsGone => {
            refusal("550 5.1.1 no recipient of this mail accepts mail any more", Reason::Gone)
        }
        NotAccepted::SomeRecipientsGone => {
            refusal("451 4.2.1 a recipient accepts no mail any more, try again for the others", Reason::Gone)
        }
    }
}
