//! Problems that several domains return.

use mailonce_core::{
    id::EmailId,
    outbound::{
        email::{Email, EmailChangeRefusal},
        key_binding::KeyBinding,
    },
    ports::store::StoreError,
    problem::{Code, Problem},
};

/// The problem that a caller gets when the store fails.
pub fn unavailable(error: StoreError) -> Problem {
    match error {
        StoreError::Unreachable(why) | StoreError::CommitUnknown(why) | StoreError::Locked(why) => {
            tracing::warn!(why, "the ledger could not answer");
            Problem::new(Code::Unavailable, "the ledger could not answer; nothing is lost")
        }
        StoreError::Corrupt(why) => {
            tracing::error!(why, "the ledger cannot be trusted");
            Problem::new(
                Code::Unavailable,
                "the ledger has stopped because it cannot be trusted; ask an operator to check the server's log",
            )
        }
    }
}

/// The problem for an unknown email id.
pub(crate) fn email_not_found(id: EmailId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no email {id}"))
}

pub(crate) fn refusal_problem(refusal: EmailChangeRefusal, email: &Email) -> Problem {
    let (code, why) = match refusal {
        EmailChangeRefusal::TooLate => (Code::TooLate, "it can no longer be cancelled"),
        EmailChangeRefusal::NotScheduled => (Code::NotScheduled, "it is not scheduled"),
        EmailChangeRefusal::NotTerminal => (Code::NotTerminal, "it is not finished"),
        EmailChangeRefusal::UseResolve => (Code::UseResolve, "it may or may not have been sent"),
        EmailChangeRefusal::ResendBudgetSpent => (Code::BudgetSpent, "it was already resent today"),
        EmailChangeRefusal::StaleRev => (Code::StaleRev, "it has changed since `rev` was read"),
        EmailChangeRefusal::NotUnknown => (Code::NotUnknown, "its outcome is not unknown"),
        EmailChangeRefusal::AnsweredByAnother => {
            (Code::AlreadyAnswered, "another email has answered the message since")
        }
    };
    let state = email.state().as_str();
    Problem::new(code, format!("email {} is {state}: {why}", email.id))
        .with_extension("state", state)
        .with_extension("rev", email.rev)
}

/// The problem for a key that is bound to something else.
pub(crate) fn key_mismatch(bound: &KeyBinding) -> Problem {
    match bound {
        KeyBinding::Email(email) => Problem::new(Code::KeyMismatch, format!("this key belongs to email {}", email.id))
            .with_extension("differing_fields", vec!["operation"])
            .with_extension("original_email", email.id.to_string()),
        KeyBinding::Operation { .. } => Problem::new(Code::KeyMismatch, "this key was used for another call")
            .with_extension("differing_fields", vec!["operation, path or body"]),
    }
}
