//! Errors, in one form for every command: a code, what happened, the next step, and an exit code.

use mailonce_core::{ports::store::StoreError, problem::Problem};
use serde_json::{Value, json};

use super::{
    UsageError,
    client::{MissingSetting, ServerProblem},
    exit,
    http_client::NoAnswer,
    printer,
};
use crate::secrets::{UNLOCK_HINT, is_locked};

/// Next step for an API key that the server rejects.
const UNAUTHORIZED_HINT: &str = "set MAILONCE_API_KEY (or --api-key) to a valid API key of this server; \
    unset it to use the running `mailonce dev`; `mailonce api-keys create` on the server creates one";
/// Next step for wrong usage.
const USAGE_HINT: &str = "run the command with --help to see its arguments";
/// Next steps when a server does not answer.
const UNTRUSTED_HINT: &str = "pass the certificate authority of the server with --ca-file, and use the host name of the \
    certificate; a self-signed certificate needs its own authority";
const UNREACHABLE_HINT: &str =
    "check that the server runs (`mailonce doctor`), then try again; a retry with the same key is safe";

/// Why a command failed.
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

    /// Nothing arrived in time.
    pub(crate) fn timeout(detail: impl Into<String>, next: &str) -> Self {
        Self { exit: exit::TIMEOUT, ..Self::new("timeout", detail, next) }
    }

    /// The server does not answer, for commands that wait for it.
    pub(crate) fn no_server(detail: impl Into<String>) -> Self {
        Self { exit: exit::TIMEOUT, ..Self::new("unreachable", detail, UNREACHABLE_HINT) }
    }

    /// The output could not be written.
    pub(crate) fn output(error: &std::io::Error) -> Self {
        let detail = format!("the output could not be written: {error}");
        let next = "free some space, then try again; the command itself may have succeeded";
        Self { exit: exit::OUTPUT, ..Self::new("output", detail, next) }
    }

    /// Wrong usage: splits the message of the parser into the error and the next step.
    pub(crate) fn usage(message: &str) -> Self {
        let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (wrong, usage) = message.split_once("\n\nUsage: ").unwrap_or((message, ""));
        let usage = plain(usage.split("\n\n").next().unwrap_or_default());
        let next = if usage.is_empty() { USAGE_HINT.to_owned() } else { format!("usage: `{usage}`; {USAGE_HINT}") };
        let wrong = wrong.split("\n\nFor more information").next().unwrap_or_default();
        Self { exit: exit::USAGE, ..Self::new("usage", plain(wrong.trim_start_matches("error: ")), next) }
    }

    /// No command, or only the first part of one.
    pub(crate) fn missing_command() -> Self {
        let next = "run it with --help, or `mailonce commands` for the list of all commands";
        Self { exit: exit::USAGE, ..Self::new("usage", "the command is missing", next) }
    }

    /// A problem of the engine, for commands that open the ledger.
    pub(crate) fn from_problem(problem: &Problem) -> Self {
        Self::new(problem.code.as_str(), problem.detail.clone(), problem.next_step())
    }

    /// Converts any error.
    pub(crate) fn from_error(error: &anyhow::Error) -> Self {
        if let Some(Self { code, detail, next, exit }) = error.downcast_ref::<Self>() {
            return Self { code: code.clone(), detail: detail.clone(), next: next.clone(), exit: *exit };
        }
        let message = format!("{error:#}");
        if let Some(ServerProblem(problem)) = error.downcast_ref::<ServerProblem>() {
            let part = |name: &str| problem[name].as_str().unwrap_or_default();
            let exit = error.downcast_ref::<ServerProblem>().map_or(exit::FAILED, ServerProblem::exit_code);
            let next = if problem["code"] == "unauthorized" { UNAUTHORIZED_HINT } else { part("next") };
            return Self { exit, ..Self::new(part("code"), part("detail"), next) };
        }
        if error.is::<UsageError>() {
            return Self { exit: exit::USAGE, ..Self::new("usage", message, USAGE_HINT) };
        }
        if is_locked(error) {
            return Self::new("kek", message, UNLOCK_HINT);
        }
        if error.chain().any(<dyn std::error::Error>::is::<StoreError>) {
            if message.contains("another process") {
                return Self::new(
                    "ledger_in_use",
                    message,
                    "stop the server that runs on it, or choose another --data",
                );
            }
            return Self::new("ledger", message, "run `mailonce doctor` with the same --data or --store");
        }
        if let Some(missing) = error.downcast_ref::<MissingSetting>() {
            let [code, what, next] = missing.texts();
            return Self::new(code, what, next);
        }
        if error.is::<NoAnswer>() {
            // The SDK gives the cause as text.
            let hint = if message.contains("certificate") { UNTRUSTED_HINT } else { UNREACHABLE_HINT };
            return Self::new("unreachable", message, hint);
        }
        Self::new("failed", message, "fix the cause above; `mailonce doctor` checks the installation")
    }

    /// Prints it to stderr, and returns the exit code.
    pub(crate) fn report(&self, error: Option<&anyhow::Error>, json: bool) -> u8 {
        if json {
            // Programs get the problem of the server unchanged.
            let problem =
                error.and_then(|error| error.downcast_ref::<ServerProblem>()).map(|problem| problem.0.clone());
            printer::print_stderr(&problem.unwrap_or_else(|| self.json()).to_string());
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
