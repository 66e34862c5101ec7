//! What went wrong, in one form for every verb: a `code`, what happened, the next step, and an exit code.

use mailonce_core::{port::store::StoreError, problem::Problem};
use serde_json::{Value, json};

use super::{Usage, client::Told, exit, out};

/// Why a verb did not do what it was asked for.
#[derive(Debug)]
pub(crate) struct Trouble {
    code: String,
    detail: String,
    next: String,
    exit: u8,
}

impl Trouble {
    pub(crate) fn new(code: &str, detail: impl Into<String>, next: impl Into<String>) -> Self {
        Self { code: code.to_owned(), detail: detail.into(), next: next.into(), exit: exit::FAILED }
    }

    /// Nothing came in time.
    pub(crate) fn timeout(detail: impl Into<String>, next: &str) -> Self {
        Self { exit: exit::TIMEOUT, ..Self::new("timeout", detail, next) }
    }

    /// What the engine refuses, for verbs that have the ledger itself.
    pub(crate) fn of(problem: &Problem) -> Self {
        Self::new(problem.code.word(), problem.detail.clone(), problem.code.next())
    }

    /// Puts any error into this form.
    pub(crate) fn read(error: &anyhow::Error) -> Self {
        if let Some(Self { code, detail, next, exit }) = error.downcast_ref::<Self>() {
            return Self { code: code.clone(), detail: detail.clone(), next: next.clone(), exit: *exit };
        }
        let whole = format!("{error:#}");
        if let Some(Told(problem)) = error.downcast_ref::<Told>() {
            let part = |name: &str| problem[name].as_str().unwrap_or_default();
            let exit = error.downcast_ref::<Told>().map_or(exit::FAILED, Told::exit_code);
            return Self { exit, ..Self::new(part("code"), part("detail"), part("next")) };
        }
        if error.is::<Usage>() {
            return Self {
                exit: exit::USAGE,
                ..Self::new("usage", whole, "`--help` behind the verb shows how it is called")
            };
        }
        if error.chain().any(<dyn std::error::Error>::is::<StoreError>) {
            let next = if whole.contains("another process") {
                "stop the mailonce that runs on it, or choose another --data"
            } else {
                "`mailonce doctor` with the same --data or --store says more"
            };
            return Self::new("ledger", whole, next);
        }
        // The first words of an error say what it is about, whoever reached for the server.
        let outer = error.to_string();
        match outer.split_once(": ") {
            Some((what @ ("no server" | "no API key"), next)) => {
                Self::new(&what.replace(' ', "_").to_lowercase(), what, next)
            }
            _ if outer.starts_with("no answer") => Self::new(
                "unreachable",
                whole,
                "see that mailonce runs there (`mailonce doctor`), then call again: the same key is safe",
            ),
            _ => Self::new("failed", whole, "mend what the sentence names; `mailonce doctor` looks at the rest"),
        }
    }

    /// Says it on stderr, and gives the exit code.
    pub(crate) fn tell(&self, error: Option<&anyhow::Error>, json: bool) -> u8 {
        if json {
            let told = error.and_then(|error| error.downcast_ref::<Told>()).map(|told| told.0.clone());
            out::say(&told.unwrap_or_else(|| self.json()).to_string());
        } else {
            out::complain(&self.to_string());
        }
        self.exit
    }

    fn json(&self) -> Value {
        json!({ "code": self.code, "detail": self.detail, "next": self.next })
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)?;
        if self.next.is_empty() { Ok(()) } else { write!(f, "\n  next: {}", self.next) }
    }
}

impl std::error::Error for Trouble {}
