//! Problems: the error responses of the API, each with a code and the caller's next step.
//!
//! Each [`Code`] has a page in `docs/errors/` of the same name.

use serde_json::{Map, Value};
use std::borrow::Cow;

use crate::{limits, retry::RetryAdvice};

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $word:literal, $status:literal, $retry:ident, $title:literal, $next:literal;)*) => {
        /// An error code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$doc])* $variant),* }

        impl Code {
            /// All codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// The code on the wire, on which callers branch.
            pub fn as_str(self) -> &'static str { match self { $(Self::$variant => $word),* } }
            /// Its HTTP status.
            pub fn status(self) -> u16 { match self { $(Self::$variant => $status),* } }
            /// Whether the same call may be retried.
            pub fn retry(self) -> RetryAdvice { match self { $(Self::$variant => RetryAdvice::$retry),* } }
            /// A short title for people.
            pub fn title(self) -> &'static str { match self { $(Self::$variant => $title),* } }
            /// One sentence that a model can act on.
            pub fn next(self) -> &'static str { match self { $(Self::$variant => $next),* } }
        }
    };
}

codes! {
    /// The idempotency key is not valid.
    InvalidKey = "invalid_key", 400, Never, "The idempotency key is not valid",
        "Send a key of 1 to 256 printable ASCII characters, or none.";
    /// The team requires an idempotency key on every send.
    KeyRequired = "key_required", 400, Never, "This team requires an idempotency key",
        "Add an Idempotency-Key header or an intent, the same for every retry of this email.";
    /// The body is not JSON, or repeats a member.
    InvalidJson = "invalid_json", 400, Never, "The body is not valid JSON",
        "Fix what `detail` reports: the body must be one JSON value in UTF-8, not compressed, without repeated members or lone surrogates.";
    /// A field has the wrong type or is missing.
    InvalidType = "invalid_type", 400, Never, "A field is missing or has the wrong type",
        "Correct the field named in `field`; nothing was stored.";
    /// The body has an unknown field.
    UnknownField = "unknown_field", 400, Never, "The body has an unknown field",
        "Remove or rename the field named in `field`; nothing was stored.";
    /// A query parameter is not valid.
    InvalidQuery = "invalid_query", 400, Never, "A query parameter is not valid",
        "Correct the parameter named in `field`.";
    /// This server does not support the requested version of the API.
    UnknownVersion = "unknown_version", 400, Never, "This server does not support that API version",
        "Send the `Mailonce-Version` named in `detail`, or omit the header to use the latest; nothing was stored.";
    /// The API key is missing or unknown.
    Unauthorized = "unauthorized", 401, Never, "The API key is missing or not valid",
        "Send `Authorization: Bearer mo_…` with a key that is neither revoked nor expired.";
    /// The API key has expired.
    KeyExpired = "key_expired", 401, Never, "The API key has expired",
        "Use a new API key; `expires_at` is when this one expired.";
    /// The session of a person is over.
    SessionEnded = "session_ended", 401, Never, "The session is over",
        "Sign in again.";
    /// A request of a session came without the token that proves which page sent it.
    CsrfFailed = "csrf_failed", 403, Never, "The request did not prove that it comes from a page of this server",
        "Read `csrf_token` from GET /v1/session, and send it in the header Mailonce-Csrf.";
    /// A link was used before, or has expired.
    LinkGone = "link_gone", 410, Never, "The link was used before or has expired",
        "Ask for a new link.";
    /// The signature of a provider's request is not valid.
    BadSignature = "bad_signature", 401, Never, "The signature or secret of the provider's request is not valid",
        "Configure the same secret at the provider and at this source; POST /v1/sources/{id}/rotate changes it.";
    /// The API key lacks a scope.
    WrongScope = "wrong_scope", 403, Never, "The API key lacks a scope",
        "Ask the operator for a key with the scope named in `detail`.";
    /// The API key may not be used from this IP address.
    IpNotAllowed = "ip_not_allowed", 403, Never, "The API key may not be used from this address",
        "Call from an address in the key's `allow_ips`, or ask for a key that allows this one.";
    /// The API key may not send from this address.
    SenderNotAllowed = "sender_not_allowed", 403, Never, "The API key may not send from this address",
        "Use one of the senders this key is restricted to.";
    /// The sender's domain is not verified for the team.
    SenderNotVerified = "sender_not_verified", 403, Never, "The sender's domain is not verified",
        "Add the domain with POST /v1/domains, publish its DNS records and verify it, or send from a verified domain.";
    /// A page of another site made the request.
    ForeignOrigin = "foreign_origin", 403, Never, "A page of another website made this request",
        "Call the API from your own server, or from a page under `http.public_url`; requests from pages of other websites are refused.";
    /// The object does not exist, or belongs to another team.
    NotFound = "not_found", 404, Never, "There is no such object or path",
        "Check the id, the path and the API key: objects of other teams are not found.";
    /// The path exists, but not with this method.
    MethodNotAllowed = "method_not_allowed", 405, Never, "This path does not support this method",
        "See /openapi.json for the methods of this path.";
    /// The body did not arrive in time.
    Timeout = "timeout", 408, Same, "The request did not arrive in time",
        "Send the same call again with the same key; nothing was stored.";
    /// The email was sent, or may have been.
    TooLate = "too_late", 409, Never, "The email can no longer be cancelled",
        "The email was sent, or may have been; read it to see its state.";
    /// The email is not scheduled.
    NotScheduled = "not_scheduled", 409, Never, "The email is not scheduled",
        "Only an email in the state `scheduled` can be rescheduled; read the email to see its state.";
    /// The email is not terminal yet.
    NotTerminal = "not_terminal", 409, Later, "The email has not reached a final state",
        "Wait until its state is terminal, then try again.";
    /// The outcome is unknown.
    UseResolve = "use_resolve", 409, Never, "The outcome of this email is unknown",
        "Do not resend: resolve it first, because the recipient may have it.";
    /// A budget is used up: one resend a day, the resends of a watch, or the number of endpoints.
    BudgetSpent = "budget_spent", 409, Later, "The resend budget is used up",
        "Ask a person, or wait if `detail` is about an email: it can be resent a day later. Other budgets do not refill.";
    /// A stop refuses new sends.
    Stopped = "stopped", 409, Later, "Email is stopped",
        "Do not retry in a loop: a person stopped email here. `stop` names the stop; ask whether it has ended, then send the same call again. Nothing was stored.";
    /// Another caller has the claim.
    Busy = "busy", 409, Later, "Another caller has this claim",
        "Do not perform the side effect: another caller is doing it. Ask again after the seconds in `retry_after`; the answer will have its result.";
    /// The holder of the claim was lost after it began.
    ClaimUnknown = "unknown", 409, Later, "It is unknown whether the side effect happened",
        "Do not perform the side effect: it may have happened. Report what you find with POST /v1/claims/{id}/evidence, or ask a person to resolve the claim.";
    /// The claim has ended.
    ClaimEnded = "claim_ended", 409, Never, "This claim has ended",
        "Do not perform the side effect: read the claim to see its state and result.";
    /// The token is not that of the latest lease.
    StaleToken = "stale_token", 409, Never, "You no longer hold this claim",
        "Do not begin. If the side effect has happened already, report it with POST /v1/claims/{id}/complete: that is always recorded.";
    /// The claim never issued this token.
    WrongToken = "wrong_token", 403, Never, "This claim never issued this token",
        "Send the `token` from the answer that gave you this claim, unchanged.";
    /// Search is turned off on this server.
    SearchDisabled = "search_disabled", 403, Never, "Search is turned off",
        "Do not retry. Use `GET /v1/emails` and the messages of an inbox, or ask the operator to set `[search] enabled = true`.";
    /// A search took too long.
    SearchTimeout = "search_timeout", 422, Never, "The search took too long",
        "Narrow the query with a rarer word, `from:`, `inbox:` or `after:`, then search again.";
    /// The object changed since the caller read it.
    StaleRev = "stale_rev", 409, Never, "The object changed since you read it",
        "Read it again, then decide with its current `rev`.";
    /// The outcome is not unknown.
    NotUnknown = "not_unknown", 409, Never, "There is nothing to resolve",
        "Only handoffs in the state `unknown` can be resolved; read the email to see its state.";
    /// Another object has the name.
    NameTaken = "name_taken", 409, Never, "This name is already taken",
        "Choose another name, or change the existing object.";
    /// The Reply-To of the message is not covered by its sender's authentication.
    ReplyTo = "reply_to", 409, Never, "The reply address cannot be trusted",
        "Ask a person whether to reply to the addresses in `to`; the team's `reply_to` setting refuses it. Nothing was stored.";
    /// The address is reserved for the domain itself, such as `postmaster`.
    AddressReserved = "address_reserved", 409, Never, "This address is reserved",
        "Choose another address, or ask an operator to create the inbox; `smtp.reserved` lists the names.";
    /// Another team has the name.
    TeamExists = "team_exists", 409, Never, "A team with this name already exists",
        "Choose another name, or create another API key for that team with `mailonce api-keys create --team NAME`.";
    /// The code or link was consumed for another purpose.
    AlreadyConsumed = "already_consumed", 409, Never, "This code or link was already consumed",
        "Do not use it: it was consumed for the purpose in `consumed_for`. Request a new one, or consume it with the same `for`.";
    /// The code or link was not consumed yet.
    NotConsumed = "not_consumed", 409, Never, "This code or link was not consumed yet",
        "Consume it with POST /v1/artifacts/{id}/consume first, then report that it was used.";
    /// The watch has ended.
    WatchOver = "watch_over", 409, Never, "This watch has ended",
        "Start a new watch with POST /v1/inboxes/{id}/watches, or ask a person.";
    /// The delivery is not dead.
    NotDead = "not_dead", 409, Never, "This delivery is not dead",
        "Only deliveries in the state `dead` can be replayed; read the delivery to see its state.";
    /// The message has a reply, in an email that is no longer stored.
    AlreadyAnswered = "already_answered", 409, Never, "This message was already answered",
        "Do not reply again; to add something on purpose, reply with the next `follow_up` number.";
    /// Another agent holds the lease of the thread, or took it in the meantime.
    Leased = "leased", 409, Later, "You do not hold the lease of this thread",
        "If `holder` names an agent, leave the thread to it until `expires_at`. If `holder` is null, the lease is free: \
         take it and read the thread before you reply.";
    /// A newer message is in the thread.
    NewerMessage = "newer_message", 409, Never, "The thread has a newer message",
        "Read the message named in `message`, update your reply, and list the message in `seen`.";
    /// The question was answered, expired or became moot.
    NotOpen = "not_open", 409, Never, "This escalation is no longer open",
        "There is nothing left to decide; read the escalation to see the decision.";
    /// The cursor belongs to another epoch, or is too old.
    CursorReset = "cursor_reset", 410, Never, "The cursor is no longer valid",
        "Read again from `after=0`, and skip every id that you have already handled.";
    /// The request exceeds a size limit.
    TooLarge = "too_large", 413, Never, "The request is too large",
        "Send a smaller body or fewer, smaller attachments; nothing was stored.";
    /// The body is not JSON.
    UnsupportedMediaType = "unsupported_media_type", 415, Never, "The body is not declared as JSON",
        "Send `Content-Type: application/json`.";
    /// The server does not serve the host that the request names.
    MisdirectedHost = "misdirected_host", 421, Never, "This server does not serve that host",
        "Call the server by its public URL, or ask the operator to list the host in `http.hosts`.";
    /// The value of a field is not valid.
    InvalidField = "invalid_field", 422, Never, "The value of a field is not valid",
        "Correct the field named in `field`; this call stored nothing and bound no key.";
    /// The key is bound to another request.
    KeyMismatch = "key_mismatch", 422, Never, "This idempotency key was used for a different request",
        "Do not retry with this body: read the original email, or use a new key if this really is another email.";
    /// A template does not compile, or cannot be rendered.
    TemplateError = "template_error", 422, Never, "The template cannot be compiled or rendered",
        "Correct what `detail` reports: `part` and `line` name the place in the template, and `variable` the variable. Nothing was stored, and the key is still free.";
    /// A recipient is on the team's suppression list.
    RecipientSuppressed = "recipient_suppressed", 422, Never, "A recipient is suppressed",
        "Leave out the recipient named in `field`; do not write to it again unless a person removes the suppression.";
    /// A rule of the team blocks it.
    BlockedByRule = "blocked_by_rule", 422, Never, "A rule or list blocks this email",
        "Do not send it by other means: read the rule named in `rule`, or the list in `detail`, and ask a person if it should be sent anyway.";
    /// The message was sent by mailonce itself.
    Itself = "self", 422, Never, "This message comes from one of your own agents",
        "Do not reply: your agents would answer each other without end. A person was asked.";
    /// The message was sent automatically.
    Automatic = "automatic", 422, Never, "This message was sent automatically",
        "Do not reply: automatic replies can cause a mail loop. A person was asked.";
    /// Too many calls.
    RateLimited = "rate_limited", 429, Later, "This API key exceeded its rate limit",
        "Wait for the seconds in Retry-After, then send the same call again.";
    /// The email would exceed a budget.
    QuotaExceeded = "quota_exceeded", 429, Later, "A budget of the team is used up",
        "Wait for the seconds in Retry-After, then send the same call again. `budget` names the budget; a person with the scope `admin` can raise its limit.";
    /// Too many invalid API keys from one address.
    TooManyFailures = "too_many_failures", 429, Later, "Too many invalid API keys came from this address",
        "Wait for the seconds in Retry-After, then call with a valid API key.";
    /// An internal error.
    Internal = "internal", 500, Same, "mailonce had an internal error",
        "Send the same call again with the same key; an idempotency key makes the retry safe.";
    /// The ledger could not answer.
    Unavailable = "unavailable", 503, Same, "The ledger is not available right now",
        "Send the same call again with the same key; anything that was accepted before is returned, not repeated.";
}

/// A cause that a dialect words differently although the code is the same. Responses do not contain it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The body lacks a required field.
    MissingField,
    /// The email has no `to` address.
    NoRecipient,
}

/// An error in one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Usually [`Code::InvalidField`].
    pub code: Code,
    /// More than the code says, where a dialect needs it.
    pub cause: Option<Cause>,
    /// The path of the field: `to[2]`, `attachments[0].content`.
    pub path: String,
    /// What is wrong. It is shown after the path, so it reads "must be …".
    pub message: String,
}

impl FieldError {
    /// An invalid value.
    pub fn new(path: &str, message: impl Into<String>) -> Self {
        Self { code: Code::InvalidField, cause: None, path: path.to_owned(), message: message.into() }
    }
}

/// The error that a caller gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The code to branch on.
    pub code: Code,
    /// More than the code says, where a dialect needs it.
    pub cause: Option<Cause>,
    /// What happened in this call.
    pub detail: String,
    /// The path of the invalid field.
    pub field: Option<String>,
    /// Further members of the response.
    pub extensions: Map<String, Value>,
}

impl Problem {
    /// A problem without a field.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, cause: None, detail: detail.into(), field: None, extensions: Map::new() }
    }

    /// A problem with the path of the invalid field or parameter.
    pub fn for_field(code: Code, path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: Some(path.into()), ..Self::new(code, detail) }
    }

    /// An invalid value in one field. The message follows the path: `to` and `must be an address`.
    pub fn invalid_field(path: impl AsRef<str>, message: impl Into<String>) -> Self {
        vec![FieldError::new(path.as_ref(), message)].into()
    }

    /// An invalid query parameter.
    pub fn invalid_query(parameter: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::for_field(Code::InvalidQuery, parameter, detail)
    }

    /// One sentence that a model can act on. Without a field, `detail` says what to correct.
    pub fn next_step(&self) -> &'static str {
        match self.code {
            Code::InvalidType | Code::InvalidField if self.field.is_none() => {
                "Correct the body as `detail` says; this call stored nothing and bound no key."
            }
            Code::InvalidQuery if self.field.is_none() => "Correct the parameter that `detail` names.",
            code => code.next(),
        }
    }

    /// Adds a further member to the response.
    #[must_use]
    pub fn with_extension(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.extensions.insert(name.to_owned(), value.into());
        self
    }
}

impl From<Vec<FieldError>> for Problem {
    /// The first error sets the code, `field` and `detail`; the extension `errors` lists all of them.
    fn from(errors: Vec<FieldError>) -> Self {
        let Some(first) = errors.first() else { return Self::new(Code::Internal, "a refusal without a reason") };
        let list: Vec<Value> =
            errors.iter().map(|error| serde_json::json!({ "field": error.path, "message": error.message })).collect();
        let problem = Self::for_field(first.code, first.path.clone(), format!("{} {}", first.path, first.message));
        Self { cause: first.cause, ..problem }.with_extension("errors", list)
    }
}

/// Truncates a value from a request, so that error messages stay short.
pub fn shorten(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(limits::ERROR_VALUE_CHARS) {
        None => text.into(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).into(),
    }
}

/// The known name most similar to an unknown one. Long names get no suggestion, because the comparison is quadratic.
pub fn nearest_name<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if unknown.chars().nth(limits::SUGGESTION_CHARS).is_some() {
        return None;
    }
    let score = |name: &str| strsim::damerau_levenshtein(unknown, name);
    known.into_iter().min_by_key(|name| score(name)).filter(|name| score(name) <= unknown.len().max(3) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_a_field_that_is_not_named() {
        for code in [Code::InvalidType, Code::InvalidField, Code::InvalidQuery] {
            assert!(Problem::for_field(code, "to", "x").next_step().contains("`field`"), "{code:?}");
            assert!(!Problem::new(code, "x").next_step().contains("`field`"), "{code:?}");
        }
    }

    #[test]
    fn the_nearest_name_is_near() {
        assert_eq!(nearest_name("subjct", ["from", "subject", "to"]), Some("subject"));
        assert_eq!(nearest_name("zzzzzzzz", ["from", "subject", "to"]), None);
    }

    #[test]
    fn a_long_name_is_compared_with_nothing_and_shown_in_part() {
        let (most, more) = ("n".repeat(limits::SUGGESTION_CHARS), "n".repeat(limits::SUGGESTION_CHARS + 1));
        assert_eq!(nearest_name(&most, [most.as_str()]), Some(most.as_str()));
        assert_eq!(nearest_name(&more, [more.as_str()]), None);
        let long = "é".repeat(limits::ERROR_VALUE_CHARS + 1);
        assert_eq!(shorten(&long).chars().count(), limits::ERROR_VALUE_CHARS + 1);
        assert_eq!(shorten("short"), "short");
    }
}
