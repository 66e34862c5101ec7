//! Errors of calls.

use serde_json::{Map, Value};
use std::{fmt, ops::Deref};

/// Whether the same call may be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Do not retry it unchanged.
    Never,
    /// Retry it unchanged, with the same key.
    Same,
    /// Retry it after something else has changed.
    Later,
}

/// The error of a call. Branch on `code`; `next` is one sentence that a person or a model can act on. The codes of the
/// server are documented under `/docs/errors`; the SDK adds `no_answer` (the call may or may not have arrived) and
/// `no_problem` (the response does not come from mailonce, but from a proxy for example).
#[derive(Debug)]
pub struct Error(Box<Fault>);

/// The fields of an [`Error`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Fault {
    /// The error code; branch on it.
    pub code: String,
    /// What is wrong, with the values of this call.
    pub detail: String,
    /// The HTTP status; 0 if there was no response.
    pub status: u16,
    /// Whether the same call may be retried.
    pub retry: Retry,
    /// What to do about it, in one sentence.
    pub next: String,
    /// The URL of the call, if there was one.
    pub url: Option<String>,
    /// The URL of the page about this code, if the server answered.
    pub docs_url: Option<String>,
    /// The invalid field, if the error is about one.
    pub field: Option<String>,
    /// All members of the problem; depending on the code also `differing_fields`, `original_email`, `holder` …
    pub details: Map<String, Value>,
    /// The underlying error.
    pub cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of the client, without a response.
    pub(crate) fn local(code: &str, detail: impl Into<String>, next: impl Into<String>) -> Self {
        Self(Box::new(Fault {
            code: code.to_owned(),
            detail: detail.into(),
            status: 0,
            retry: Retry::Never,
            next: next.into(),
            url: None,
            docs_url: None,
            field: None,
            details: Map::new(),
            cause: None,
        }))
    }

    /// Adds the URL of the call.
    pub(crate) fn for_call(mut self, base_url: &str, path: &str) -> Self {
        self.0.url = Some(format!("{base_url}{path}"));
        self
    }

    /// Adds the invalid field.
    pub(crate) fn at(mut self, field: impl Into<String>) -> Self {
        self.0.field = Some(field.into());
        self
    }

    /// Adds the HTTP status that the error corresponds to.
    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.0.status = status;
        self
    }

    /// Adds members of a problem.
    pub(crate) fn with_details(mut self, details: Map<String, Value>) -> Self {
        self.0.details = details;
        self
    }

    /// Sets whether the same call may be retried.
    pub(crate) fn with_retry(mut self, retry: Retry) -> Self {
        self.0.retry = retry;
        self
    }

    /// Adds the underlying error.
    pub(crate) fn caused_by(mut self, cause: Self) -> Self {
        self.0.cause = Some(Box::new(cause));
        self
    }

    /// An invalid field.
    pub(crate) fn invalid(field: impl Into<String>, detail: &str) -> Self {
        let field = field.into();
        Self::local("invalid_field", format!("{field} {detail}"), format!("Mend {field}.")).at(field)
    }

    /// No response: the call may or may not have arrived.
    pub(crate) fn no_answer(
        detail: impl Into<String>,
        cause: Option<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        let next = "Make the same call again with the same key; whatever was accepted before will be found.";
        let mut error = Self::local("no_answer", detail, next);
        (error.0.retry, error.0.cause) = (Retry::Same, cause);
        error
    }

    /// The error of an unsuccessful response. A proxy in between may not send an RFC 9457 problem.
    pub(crate) fn refusal(status: u16, body: &[u8], base_url: &str) -> Self {
        let details: Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
        let said = |name: &str| details.get(name).and_then(Value::as_str).map(str::to_owned);
        let again = matches!(status, 408 | 425 | 429) || status >= 500;
        let advice = if again {
            "Make the same call again with the same key."
        } else {
            "Look at the address and the key of the server."
        };
        let retry = match details.get("retry").and_then(Value::as_str) {
            Some("never") => Retry::Never,
            Some("same") => Retry::Same,
            Some("later") => Retry::Later,
            _ if again => Retry::Same,
            _ => Retry::Never,
        };
        Self(Box::new(Fault {
            code: said("code").unwrap_or_else(|| "no_problem".to_owned()),
            detail: said("detail").unwrap_or_else(|| format!("the server answered {status}")),
            status,
            retry,
            next: said("next").unwrap_or_else(|| advice.to_owned()),
            url: None,
            docs_url: said("type").map(|page| if page.starts_with('/') { format!("{base_url}{page}") } else { page }),
            field: said("field"),
            details,
            cause: None,
        }))
    }

    /// Whether to retry automatically: the server says `same`, or it is a rate limit.
    pub(crate) fn is_passing(&self) -> bool {
        self.retry == Retry::Same || self.status == 429
    }
}

impl Deref for Error {
    type Target = Fault;

    fn deref(&self) -> &Fault {
        &self.0
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)?;
        match (&self.url, &self.docs_url) {
            (Some(url), Some(page)) => write!(f, " ({url}, see {page})")?,
            (Some(url), None) => write!(f, " ({url})")?,
            (None, Some(page)) => write!(f, " (see {page})")?,
            (None, None) => {}
        }
        write!(f, "; next: {}", self.next)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}
