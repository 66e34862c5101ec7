//! What went wrong, in one form for every verb: a `code`, what happened, the next step, and an exit code.

use mailonce_core::{ports::store::StoreError, problem::Problem};
use serde_json::{Value, json};

use super::{UsageError, client::ServerProblem, exit};
use crate::cli::printer;
use crate::secrets::{UNLOCK_HINT, is_locked};

/// What to do about a key that the server does not know.
const UNAUTHORIZED_HINT: &str = "set MAILONCE_API_KEY (or --api-key) to a key of this server that is neither revoked nor expired; \
    unset it to use the running `dev`; `mailonce keys create` on the server makes one";
/// How a call is made.
const USAGE_HINT: &str = "`--help` behind the verb shows how it is called";
/// What to do when a server does not answer.
const UNTRUSTED_HINT: &str = "name the certificate authority that signed the server's certificate with --ca-file, and \
    the host as the certificate has it; a self-signed certificate needs an authority of its own";
const UNREACHABLE_HINT: &str =
    "see that mailonce runs there (`mailonce doctor`), then call again: the same key is safe";

/// Why a verb did not do what it was asked for.
#[derive(Debug)]
pub(crate) struct CliError {
    code: String,
    detail: String,
    next: String,
    exit: u8,
}

impl CliError {
    pub(crate) fn new(code: &str, detail: impl Into<String>, next: impl Into<String>) -> Self {
        Self { code: code.to_owned(), detail: detail.into(), next: next.into(), exit: exit::FAILED }
    }

    /// Nothing came in time.
    pub(crate) fn timeout(detail: impl Into<String>, next: &str) -> Self {
        Self { exit: exit::TIMEOUT, ..Self::new("timeout", detail, next) }
    }

    /// Nobody is there, for verbs that wait for somebody.
    pub(crate) fn no_server(detail: impl Into<String>) -> Self {
        Self { exit: exit::TIMEOUT, ..Self::new("unreachable", detail, UNREACHABLE_HINT) }
    }

    /// The output cannot be written.
    pub(crate) fn output(error: &std::io::Error) -> Self {
        let detail = format!("the output cannot be written: {error}");
        let next = "make room where it goes, then call again; what was asked for may be done already";
        Self { exit: exit::OUTPUT, ..Self::new("output", detail, next) }
    }

    /// A call that could not be understood: what is wrong with it, and how it is made, out of what the parser says.
    pub(crate) fn usage(said: &str) -> Self {
        let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (wrong, usage) = said.split_once("\n\nUsage: ").unwrap_or((said, ""));
        let usage = plain(usage.split("\n\n").next().unwrap_or_default());
        let next =
            if usage.is_empty() { USAGE_HINT.to_owned() } else { format!("call it like `{usage}`; {USAGE_HINT}") };
        let wrong = wrong.split("\n\nFor more information").next().unwrap_or_default();
        Self { exit: exit::USAGE, ..Self::new("usage", plain(wrong.trim_start_matches("error: ")), next) }
    }

    /// A call without a verb, or with half of one.
    pub(crate) fn missing_verb() -> Self {
        let next = "`--help` lists the verbs, `mailonce commands` all of them";
        Self { exit: exit::USAGE, ..Self::new("usage", "a verb is missing", next) }
    }

    /// What the engine refuses, for verbs that have the ledger itself.
    pub(crate) fn from_problem(problem: &Problem) -> Self {
        Self::new(problem.code.as_str(), problem.detail.clone(), problem.next_step())
    }

    /// Puts any error into this form.
    pub(crate) fn from_error(error: &anyhow::Error) -> Self {
        if let Some(Self { code, detail, next, exit }) = error.downcast_ref::<Self>() {
            return Self { code: code.clone(), detail: detail.clone(), next: next.clone(), exit: *exit };
        }
        let whole = format!("{error:#}");
        if let Some(ServerProblem(problem)) = error.downcast_ref::<ServerProblem>() {
            let part = |name: &str| problem[name].as_str().unwrap_or_default();
            let exit = error.downcast_ref::<ServerProblem>().map_or(exit::FAILED, ServerProblem::exit_code);
            let next = if problem["code"] == "unauthorized" { UNAUTHORIZED_HINT } else { part("next") };
            return Self { exit, ..Self::new(part("code"), part("detail"), next) };
        }
        if error.is::<UsageError>() {
            return Self { exit: exit::USAGE, ..Self::new("usage", whole, USAGE_HINT) };
        }
        if is_locked(error) {
            return Self::new("kek", whole, UNLOCK_HINT);
        }
        if error.chain().any(<dyn std::error::Error>::is::<StoreError>) {
            if whole.contains("another process") {
                return Self::new(
                    "ledger_in_use",
                    whole,
                    "stop the mailonce that runs on it, or choose another --data",
                );
            }
            return Self::new("ledger", whole, "`mailonce doctor` with the same --data or --store says more");
        }
        // The first words of an error say what it is about, whoever reached for the server.
        let outer = error.to_string();
        match outer.split_once(": ") {
            Some((what @ ("no server" | "no API key"), next)) => {
                Self::new(&what.replace(' ', "_").to_lowercase(), what, next)
            }
            _ if outer.starts_with("no answer") && whole.contains("certificate") => {
                Self::new("unreachable", whole, UNTRUSTED_HINT)
            }
            _ if outer.starts_with("no answer") => Self::new("unreachable", whole, UNREACHABLE_HINT),
            _ => Self::new("failed", whole, "mend what the sentence names; `mailonce doctor` looks at the rest"),
        }
    }

    /// Says it on stderr, and gives the exit code.
    pub(crate) fn report(&self, error: Option<&anyhow::Error>, json: bool) -> u8 {
        if json {
            // A program gets what the server said, as it said it.
            let told = error.and_then(|error| error.downcast_ref::<ServerProblem>()).map(|told| told.0.clone());
            let told = told.unwrap_or_else(|| self.json());
            printer::print_stderr(&told.to_string());
        } else {
            printer::print_stderr_error(&self.to_string());
        }
        self.exit
    }

    fn json(&self) -> Value {
        json!({ "code": self.code, "detail": self.detail, "next": self.next })
    }
}

impl std::fmt::Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)?;
        if self.next.is_empty() { Ok(()) } else { write!(f, "\n  next: {}", self.next) }
    }
}

impl std::error::Error for CliError {}
