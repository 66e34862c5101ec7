//! Cancelling, rescheduling and resending an email: requests and results.

use crate::{
    control::budget::{Charge, ExceededBudget},
    outbound::email::{Email, EmailChangeRefusal},
    time::Time,
};

/// The result of changing an email.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum EmailChangeResult {
    /// The email after the change. It may have been in that state already.
    Changed(Email),
    /// Why the change was refused, and the unchanged email.
    Refused(EmailChangeRefusal, Email),
    /// The new time would exceed a budget. Nothing was written.
    OverBudget(ExceededBudget),
    /// No such email in this team.
    Missing,
}

/// A new time for a scheduled email.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RescheduleRequest {
    /// When the email is due.
    pub due_at: Time,
    /// What the email adds to the budgets of the period in which it will be sent.
    pub charges: Vec<Charge>,
}

impl RescheduleRequest {
    /// A new time for an email that no budget counts.
    pub fn without_charges(due: Time) -> Self {
        Self { due_at: due, charges: Vec::new() }
    }
}

/// The result of a resend.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum EmailResendResult {
    /// The new version.
    First(Email),
    /// The version that an earlier call created.
    Replayed(Email),
    /// Why the resend was refused, and the previous version.
    Refused(EmailChangeRefusal, Email),
    /// The new version would exceed a budget. Nothing was written.
    OverBudget(ExceededBudget),
    /// No such email in this team.
    Missing,
}

impl EmailResendResult {
    /// Whether there is a new version. Only then is the key of the operation bound, because a refused resend may
    /// succeed later.
    pub fn has_new_version(&self) -> bool {
        matches!(self, Self::First(_) | Self::Replayed(_))
    }
}
