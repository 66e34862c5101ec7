//! What a tool answers: a status to branch on, a sentence to act on, and members that belong to it.

use mailonce_core::{
    outbound::email::{EmailState, Guard},
    problem::{Code, Problem},
};
use serde::Serialize;
use serde_json::{Map, Value};

/// An answer in the making.
pub(super) struct ToolReply {
    is_error: bool,
    body: Map<String, Value>,
    approval_page: Option<String>,
}

impl ToolReply {
    pub(super) fn new(status: &str, next: &str) -> Self {
        let mut said = Self { is_error: false, body: Map::new(), approval_page: None };
        said.set_member("status", status);
        said.set_member("next", next);
        said
    }

    /// With a further member. What is not there is left out, because schemas know no null.
    pub(super) fn with(mut self, name: &str, value: impl Serialize) -> Self {
        self.set_member(name, value);
        self
    }

    /// As something that the model has to know and cannot mend.
    pub(super) fn into_success(mut self) -> Self {
        self.is_error = false;
        self
    }

    /// With the page on which a person decides. `new` when this very call made the question: then the person is led
    /// there; whoever asks again is only told where it is.
    pub(super) fn with_approval_page(mut self, page: Option<String>, new: bool) -> Self {
        self.set_member("approval_url", &page);
        self.approval_page = page.filter(|_| new);
        self
    }

    /// The page to which a person is to be led now.
    pub(super) fn approval_page(&self) -> Option<&str> {
        self.approval_page.as_deref()
    }

    fn set_member(&mut self, name: &str, value: impl Serialize) {
        match serde_json::to_value(value) {
            Ok(Value::Null) => {}
            Ok(value) => {
                self.body.insert(name.to_owned(), value);
            }
            Err(error) => tracing::error!(%error, name, "a member of an answer cannot be written"),
        }
    }

    /// A member that is a text.
    pub(super) fn text_member(&self, name: &str) -> Option<&str> {
        self.body.get(name).and_then(Value::as_str)
    }

    /// Whether it is an error, and the members.
    pub(super) fn into_parts(self) -> (bool, Map<String, Value>) {
        (self.is_error, self.body)
    }
}

impl From<Problem> for ToolReply {
    fn from(problem: Problem) -> Self {
        let mut said = Self::new(problem.code.as_str(), problem_next_step(problem.code));
        said.is_error = is_error(problem.code);
        said.set_member("detail", problem.detail);
        said.set_member("field", problem.field);
        said.body.extend(problem.extensions.into_iter().filter(|(_, value)| !value.is_null()));
        said
    }
}

/// Whether the model can do something about it by calling again.
fn is_error(code: Code) -> bool {
    matches!(
        code,
        Code::InvalidKey
            | Code::InvalidJson
            | Code::InvalidType
            | Code::UnknownField
            | Code::InvalidQuery
            | Code::InvalidField
            | Code::NotFound
            | Code::TooLarge
            | Code::CursorReset
            | Code::Timeout
            | Code::Internal
            | Code::Unavailable
    )
}

/// The sentence for a problem, with the names of tools in the place of paths.
fn problem_next_step(code: Code) -> &'static str {
    match code {
        Code::InvalidKey | Code::InvalidJson | Code::InvalidType | Code::UnknownField | Code::InvalidQuery => {
            "Correct what `detail` names and call again; nothing was stored."
        }
        Code::InvalidField | Code::TooLarge => "Correct what `detail` names and call again; nothing was stored.",
        Code::NotFound => "Check the id or address and call again; find_messages lists messages.",
        Code::CursorReset => "Call again without a cursor.",
        Code::Timeout | Code::Internal | Code::Unavailable => "Call again with the same arguments; it is safe.",
        Code::WrongScope | Code::SenderNotAllowed | Code::SenderNotVerified | Code::KeyRequired => {
            "Your credential does not allow this; do not try another way, tell the person you work for."
        }
        Code::KeyMismatch => {
            "Nothing was sent: this type and entity, or the distinct_token, belong to the email in `original`. If it is \
             the same matter there is nothing to do; for another matter use its own entity."
        }
        Code::Leased => {
            "If `holder` names somebody, leave this thread to them until `expires_at`. Then, or without one, take it \
             with claim_thread and read its newest message first."
        }
        Code::NewerMessage => {
            "Nothing was sent: read the message in `message` with read_message, word your answer anew, and reply \
             again with its id in `seen`."
        }
        Code::AlreadyAnswered => "Do not answer again; to add something, reply with the next follow_up number.",
        Code::AlreadyConsumed => {
            "Do not use it: it was taken for what `consumed_for` names. If you need one, ask the sender for a fresh one."
        }
        Code::NotTerminal => {
            "Nothing was sent: the first is not finished, so it may still go out. get_outcome says where it stands."
        }
        Code::UseResolve => "Nothing was sent: the recipient may have it already. Use ask_human.",
        Code::BudgetSpent => "Nothing was sent: it was already sent again today. Use ask_human if it matters.",
        other => other.next(),
    }
}

/// How a mail of ours stands, in one word.
pub(super) fn send_status(first: bool, state: EmailState, guard: Option<Guard>) -> &'static str {
    match (state, guard) {
        // Nobody was answered as long as it is held.
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

/// What a look-alike means for whoever did not make the call that it was held in.
pub(super) const LOOKS_DUPLICATE_NEXT_STEP: &str = "Held: it looks like a mail you just sent to the same person. If that was this mail, do \
     nothing. If both are meant, make the call that sent it again with the same arguments: its answer has the \
     distinct_token to let it go.";

/// What it means that a mail which was held is cancelled.
pub(super) const REJECTED_NEXT_STEP: &str =
    "It was held, and then rejected by a person or taken back. Do not send it again unless a person says so.";

/// What that means for whoever asked. `asked` when there is a page on which a person decides.
pub(super) fn status_next_step(status: &str, asked: bool) -> &'static str {
    match status {
        "accepted" => "Done: it will be sent once. Do not send it again.",
        "sent" => "Done: it was sent. Do not send it again.",
        "already_accepted" => "You asked for this before and it is on its way. Do not send it again.",
        "already_sent" => {
            "It was sent before. Do not send it again; if the person needs another copy, use resend_email."
        }
        "already_answered" => "This message was answered before, by this email. Do not answer it again.",
        "looks_duplicate" => {
            "Held: it looks like a mail you just sent to the same person. If that was this mail, do nothing. If both \
             are meant, call again with the same arguments and the distinct_token."
        }
        "unknown" if !asked => {
            "Nobody can tell whether it arrived. Do not send again; a person is asked within seconds, look again with \
             get_outcome."
        }
        "cap" | "approval" | "overlaps" | "held" if !asked => {
            "Held until a person decides. Do not send again; look again later with get_outcome."
        }
        "cap" => {
            "Held: this conversation was answered too often, so a person decides at approval_url. Do not send again."
        }
        "approval" => "Held: a person must approve it at approval_url. Do not send again.",
        "overlaps" | "held" => "Held: a person decides at approval_url. Do not send again.",
        "unknown" => "Nobody can tell whether it arrived. Do not send again; a person decides at approval_url.",
        "bounced" => "It was sent and bounced: check the address with the person you work for.",
        "complained" => "It was sent and the recipient complained. Do not write to them again.",
        "failed" => "The next hop refused it; get_outcome says why. If that is mended, use resend_email.",
        "abandoned" => "A person gave it up. Ask before you send it again.",
        "cancelled" => "It was cancelled before it was sent. If it should go after all, use resend_email.",
        _ => "Look at it with get_outcome.",
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
