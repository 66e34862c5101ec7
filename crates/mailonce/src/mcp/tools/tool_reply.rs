//! The result of a tool: `status` for branching, `next` with the recommended next step, and further members.

use mailonce_core::{
    outbound::email::{EmailState, Guard},
    problem::{Code, Problem},
};
use serde::Serialize;
use serde_json::{Map, Value};

/// A tool result under construction.
pub(super) struct ToolReply {
    is_error: bool,
    body: Map<String, Value>,
    approval_page: Option<String>,
}

impl ToolReply {
    pub(super) fn new(status: &str, next: &str) -> Self {
        let mut reply = Self { is_error: false, body: Map::new(), approval_page: None };
        reply.set_member("status", status);
        reply.set_member("next", next);
        reply
    }

    /// Sets a member. Null values are omitted, because the output schemas do not allow null.
    pub(super) fn with(mut self, name: &str, value: impl Serialize) -> Self {
        self.set_member(name, value);
        self
    }

    /// Clears the error flag, for a problem that calling again cannot fix.
    pub(super) fn into_success(mut self) -> Self {
        self.is_error = false;
        self
    }

    /// Sets the approval page. If `new`, this call created the question, and a capable client opens the page. A later
    /// call only returns the URL.
    pub(super) fn with_approval_page(mut self, page: Option<String>, new: bool) -> Self {
        self.set_member("approval_url", &page);
        self.approval_page = page.filter(|_| new);
        self
    }

    /// The approval page that a client should open now.
    pub(super) fn approval_page(&self) -> Option<&str> {
        self.approval_page.as_deref()
    }

    fn set_member(&mut self, name: &str, value: impl Serialize) {
        match serde_json::to_value(value) {
            Ok(Value::Null) => {}
            Ok(value) => {
                self.body.insert(name.to_owned(), value);
            }
            Err(error) => tracing::error!(%error, name, "cannot serialize a member of a tool result"),
        }
    }

    /// The value of a string member.
    pub(super) fn text_member(&self, name: &str) -> Option<&str> {
        self.body.get(name).and_then(Value::as_str)
    }

    /// The error flag and the members.
    pub(super) fn into_parts(self) -> (bool, Map<String, Value>) {
        (self.is_error, self.body)
    }
}

impl From<Problem> for ToolReply {
    fn from(problem: Problem) -> Self {
        let mut reply = Self::new(problem.code.as_str(), problem_next_step(problem.code));
        reply.is_error = is_error(problem.code);
        reply.set_member("detail", problem.detail);
        reply.set_member("field", problem.field);
        reply.body.extend(problem.extensions.into_iter().filter(|(_, value)| !value.is_null()));
        reply
    }
}

/// Whether calling again can help: with corrected arguments, or later.
fn is_error(code: Code) -> bool {
    matches!(
        code,
        Code::InvalidKey
            | Code::InvalidJson
            | Code::InvalidType
            | Code::UnknownField
            | Code::InvalidQuery
            | Code::InvalidField
            | Code::TemplateError
            | Code::NotFound
            | Code::TooLarge
            | Code::CursorReset
            | Code::Timeout
            | Code::Internal
            | Code::Unavailable
    )
}

/// The `next` text for a problem. It names tools where the HTTP API names paths.
fn problem_next_step(code: Code) -> &'static str {
    match code {
        Code::InvalidKey | Code::InvalidJson | Code::InvalidType | Code::UnknownField | Code::InvalidQuery => {
            "Correct what `detail` names and call again; nothing was stored."
        }
        Code::InvalidField | Code::TooLarge | Code::TemplateError => {
            "Correct what `detail` names and call again; nothing was stored."
        }
        Code::NotFound => "Check the id or address and call again; find_messages lists messages.",
        Code::CursorReset => "Call again without a cursor.",
        Code::Timeout | Code::Internal | Code::Unavailable => "Call again with the same arguments; it is safe.",
        Code::WrongScope | Code::SenderNotAllowed | Code::SenderNotVerified | Code::KeyRequired => {
            "Your API key does not allow this. Do not look for a workaround; tell the person you work for."
        }
        Code::KeyMismatch => {
            "Nothing was sent: this type and entity, or the distinct_token, belong to the email in `original`. If you \
             meant that email, there is nothing to do; for a different email use a different entity."
        }
        Code::Leased => {
            "If `holder` is set, leave this thread to that agent until `expires_at`. After that, or if it is not set, \
             call claim_thread and read the newest message before you reply."
        }
        Code::NewerMessage => {
            "Nothing was sent: read the message in `message` with read_message, revise your reply, and call \
             reply_email again with its id in `seen`."
        }
        Code::AlreadyAnswered => "Do not reply again; to add something, reply with the next follow_up number.",
        Code::AlreadyConsumed => {
            "Do not use it: it was taken for `consumed_for`. If you need one, ask the sender for a new one."
        }
        Code::NotTerminal => {
            "Nothing was sent: the original email is not finished and may still be sent. Check it with get_outcome."
        }
        Code::UseResolve => "Nothing was sent: the recipient may already have it. Use ask_human.",
        Code::BudgetSpent => "Nothing was sent: it was already resent today. Use ask_human if it matters.",
        other => other.next(),
    }
}

/// The `status` of an outbound email.
pub(super) fn send_status(first: bool, state: EmailState, guard: Option<Guard>) -> &'static str {
    match (state, guard) {
        // A held reply has not answered the message yet.
        (EmailState::Held, Some(Guard::AlreadyAnswered)) => "held",
        (_, Some(Guard::AlreadyAnswered)) => "already_answered",
        (EmailState::Held, Some(guard)) => guard.as_str(),
        (EmailState::Sent | EmailState::Delivered, _) if first => "sent",
        (EmailState::Sent | EmailState::Delivered, _) => "already_sent",
        (EmailState::Scheduled | EmailState::Queued | EmailState::Sending, _) if first => "accepted",
        (EmailState::Scheduled | EmailState::Queued | EmailState::Sending, _) => "already_accepted",
        (state, _) => state.as_str(),
    }
}

/// `next` for an email held as `looks_duplicate`, in calls other than the one that sent it.
pub(super) const LOOKS_DUPLICATE_NEXT_STEP: &str = "Held: it looks like an email you just sent to the same person. \
     If it is the same email, do nothing. If you want both sent, repeat the call that sent it with the same arguments: \
     its result has the distinct_token that releases it.";

/// `next` for a held email that was cancelled.
pub(super) const REJECTED_NEXT_STEP: &str =
    "It was held and then rejected by a person or cancelled. Do not send it again unless a person says so.";

/// `next` for a status. `has_approval_page` is true if there is a page on which a person decides.
pub(super) fn status_next_step(status: &str, has_approval_page: bool) -> &'static str {
    match status {
        "accepted" => "Accepted: it will be sent once. Do not send it again.",
        "sent" => "Done: it was sent. Do not send it again.",
        "already_accepted" => "It was accepted before and is being sent. Do not send it again.",
        "already_sent" => {
            "It was sent before. Do not send it again; if the person needs another copy, use resend_email."
        }
        "already_answered" => "This message was already answered, by this email. Do not answer it again.",
        "looks_duplicate" => {
            "Held: it looks like an email you just sent to the same person. If it is the same email, do nothing. If \
             you want both sent, call again with the same arguments and the distinct_token."
        }
        "unknown" if !has_approval_page => {
            "It is unknown whether it was sent. Do not send again; a person is asked within seconds. Check later with \
             get_outcome."
        }
        "budget" => "Held: a budget is used up. It leaves by itself when there is room. Do not send again.",
        "cap" | "approval" | "overlaps" | "held" if !has_approval_page => {
            "Held until a person decides. Do not send again; check later with get_outcome."
        }
        "cap" => "Held: too many replies in this conversation, so a person decides at approval_url. Do not send again.",
        "approval" => "Held: a person must approve it at approval_url. Do not send again.",
        "overlaps" | "held" => "Held: a person decides at approval_url. Do not send again.",
        "unknown" => "It is unknown whether it was sent. Do not send again; a person decides at approval_url.",
        "bounced" => "It was sent and bounced: check the address with the person you work for.",
        "complained" => "It was sent and the recipient complained. Do not write to them again.",
        "failed" => "The next hop refused it; get_outcome says why. Once the cause is fixed, use resend_email.",
        "abandoned" => "A person abandoned it. Ask before you send it again.",
        "cancelled" => "It was cancelled before it was sent. If it should be sent after all, use resend_email.",
        _ => "Check it with get_outcome.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_held_has_answered_nobody() {
        assert_eq!(send_status(false, EmailState::Held, Some(Guard::AlreadyAnswered)), "held");
        assert_eq!(send_status(false, EmailState::Sent, Some(Guard::AlreadyAnswered)), "already_answered");
    }

    #[test]
    fn nobody_is_led_to_a_page_that_is_not_there() {
        for status in ["unknown", "cap", "approval", "overlaps", "held"] {
            assert!(status_next_step(status, true).contains("approval_url"), "{status}");
            assert!(!status_next_step(status, false).contains("approval_url"), "{status}");
            assert!(status_next_step(status, false).contains("Do not send again"), "{status}");
        }
    }
}
