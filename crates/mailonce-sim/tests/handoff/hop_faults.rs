//! Faults of a next hop, and the expected outcome of the mail.

use mailonce_core::outbound::email::OnUnknown;
use mailonce_sim::sink::{
    http::{ScriptedResponse, Vendor, VendorError},
    smtp,
};
use std::time::Duration;

use crate::next_hop::{HopKind, HopSink, TestHop, UnknownRecovery};

/// The delay that a busy next hop asks for, in seconds.
pub(crate) const RETRY_AFTER_S: u32 = 120;

/// The fault of the first attempt. Later attempts have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HopFault {
    /// Nothing.
    None,
    AcceptThenDrop,
    AcceptThenServerError,
    AcceptThenStall,
    AcceptThenEmpty,
    AcceptThenHuge,
    AcceptLate,
    Drop,
    CaptivePortal,
    Redirect,
    Concurrent,
    Mismatch,
    RateLimited,
    Revoked,
    Refuse,
}

/// What the fault means for the mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ActualOutcome {
    /// It was accepted without a reply.
    AcceptedSilently,
    /// It is accepted after the timeout.
    AcceptedLate,
    /// It was not accepted, and there was no reply.
    LostSilently,
    /// It was certainly not accepted, and may be retried.
    Deferred,
    /// It was certainly not accepted, and must not be retried.
    Refused,
    /// The next hop contradicts itself.
    Contradictory,
    /// No fault.
    AcceptedNormally,
}

/// The expected outcome of a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpectedResult {
    pub(crate) mails: usize,
    pub(crate) state: &'static str,
    pub(crate) may_duplicate: bool,
}

impl HopFault {
    pub(crate) const ALL: [Self; 15] = [
        Self::None,
        Self::AcceptThenDrop,
        Self::AcceptThenServerError,
        Self::AcceptThenStall,
        Self::AcceptThenEmpty,
        Self::AcceptThenHuge,
        Self::AcceptLate,
        Self::Drop,
        Self::CaptivePortal,
        Self::Redirect,
        Self::Concurrent,
        Self::Mismatch,
        Self::RateLimited,
        Self::Revoked,
        Self::Refuse,
    ];

    /// Whether a next hop can have this fault.
    pub(crate) fn applies_to(self, next: HopKind) -> bool {
        let conflict = matches!(self, Self::Concurrent | Self::Mismatch);
        match next {
            HopKind::Relay => !conflict && self != Self::AcceptThenServerError,
            // There 409 is configured to mean that the first arrived.
            HopKind::Provider(Vendor::Other) => !conflict,
            HopKind::Provider(_) => true,
        }
    }

    /// Injects the fault once.
    pub(crate) fn inject(self, hop: &TestHop) {
        match &hop.sink {
            HopSink::Http(sink) => sink.queue_responses(&self.http_response().into_iter().collect::<Vec<_>>()),
            HopSink::Smtp(sink) => {
                if let Some((step, act)) = self.smtp_action() {
                    sink.once_at(step, act);
                }
            }
        }
    }

    fn http_response(self) -> Option<ScriptedResponse> {
        Some(match self {
            Self::None => return None,
            Self::AcceptThenDrop => ScriptedResponse::AcceptThenDrop,
            Self::AcceptThenServerError => ScriptedResponse::AcceptThenServerError,
            Self::AcceptThenStall => ScriptedResponse::AcceptThenStall,
            Self::AcceptThenEmpty => ScriptedResponse::AcceptThenEmpty,
            Self::AcceptThenHuge => ScriptedResponse::AcceptThenHuge,
            Self::AcceptLate => ScriptedResponse::AcceptOnRelease,
            Self::Drop => ScriptedResponse::Drop,
            Self::CaptivePortal => ScriptedResponse::CaptivePortal,
            Self::Redirect => ScriptedResponse::Redirect,
            Self::Concurrent => ScriptedResponse::Error(VendorError::Concurrent),
            Self::Mismatch => ScriptedResponse::Error(VendorError::Mismatch),
            Self::RateLimited => ScriptedResponse::Error(VendorError::RateLimited(RETRY_AFTER_S)),
            Self::Revoked => ScriptedResponse::Error(VendorError::Revoked),
            Self::Refuse => ScriptedResponse::Error(VendorError::Refused),
        })
    }

    fn smtp_action(self) -> Option<(smtp::SmtpStep, smtp::SmtpAction)> {
        use smtp::{SmtpAction, SmtpStep};
        let reply_line = |text: &str| SmtpAction::reply_line(text);
        Some(match self {
            Self::None | Self::AcceptThenServerError | Self::Concurrent | Self::Mismatch => return None,
            Self::AcceptThenDrop => (SmtpStep::Dot, SmtpAction::accept_then(SmtpAction::Close)),
            Self::AcceptThenStall => (SmtpStep::Dot, SmtpAction::accept_then(SmtpAction::Stall)),
            Self::AcceptThenEmpty => (SmtpStep::Dot, SmtpAction::accept_then(reply_line(""))),
            Self::AcceptThenHuge => {
                (SmtpStep::Dot, SmtpAction::accept_then(SmtpAction::Reply(vec![b'2'; 1024 * 1024])))
            }
            // Longer than the timeout.
            Self::AcceptLate => (SmtpStep::Dot, SmtpAction::Late(Duration::from_millis(2_500))),
            Self::Drop => (SmtpStep::Dot, SmtpAction::Close),
            Self::CaptivePortal => {
                (SmtpStep::Dot, reply_line("<html><body>Please log in to this network</body></html>"))
            }
            Self::Redirect => (SmtpStep::Dot, reply_line("300 somewhere else")),
            Self::RateLimited => (SmtpStep::Dot, reply_line("451 4.3.2 busy")),
            Self::Revoked => (SmtpStep::Mail, reply_line("530 5.7.0 log in first")),
            Self::Refuse => (SmtpStep::Dot, reply_line("554 5.7.1 no")),
        })
    }

    fn actual_outcome(self, next: HopKind) -> ActualOutcome {
        match self {
            Self::None => ActualOutcome::AcceptedNormally,
            Self::AcceptThenDrop
            | Self::AcceptThenServerError
            | Self::AcceptThenStall
            | Self::AcceptThenEmpty
            | Self::AcceptThenHuge => ActualOutcome::AcceptedSilently,
            Self::AcceptLate => ActualOutcome::AcceptedLate,
            Self::Drop | Self::CaptivePortal | Self::Redirect | Self::Concurrent => ActualOutcome::LostSilently,
            // Only these two report it.
            Self::Mismatch if matches!(next, HopKind::Provider(Vendor::Resend | Vendor::UseSend)) => {
                ActualOutcome::Contradictory
            }
            Self::Mismatch => ActualOutcome::LostSilently,
            Self::RateLimited | Self::Revoked => ActualOutcome::Deferred,
            Self::Refuse => ActualOutcome::Refused,
        }
    }

    /// The expected outcome once time has passed.
    pub(crate) fn expected(self, next: HopKind, policy: OnUnknown) -> ExpectedResult {
        let is = |mails, state, may_duplicate| ExpectedResult { mails, state, may_duplicate };
        let resend = policy == OnUnknown::Resend;
        match (self.actual_outcome(next), next.recovery()) {
            (ActualOutcome::AcceptedNormally | ActualOutcome::Deferred, _) => is(1, "sent", false),
            (ActualOutcome::Refused, _) => is(0, "failed", false),
            (ActualOutcome::Contradictory, _) => is(0, "unknown", false),
            (
                ActualOutcome::AcceptedSilently | ActualOutcome::AcceptedLate | ActualOutcome::LostSilently,
                UnknownRecovery::Key,
            ) => is(1, "sent", false),
            (ActualOutcome::AcceptedSilently, UnknownRecovery::LookUp) => is(1, "sent", false),
            (ActualOutcome::AcceptedLate, UnknownRecovery::LookUp) if !resend => is(1, "sent", false),
            // It keeps the key, though mailonce does not rely on it.
            (ActualOutcome::AcceptedLate, _) if next == HopKind::Provider(Vendor::UseSend) => is(1, "sent", true),
            // The email's policy asked for this.
            (ActualOutcome::AcceptedSilently | ActualOutcome::AcceptedLate, _) if resend => is(2, "sent", true),
            (ActualOutcome::LostSilently, _) if resend => is(1, "sent", true),
            (ActualOutcome::AcceptedSilently | ActualOutcome::AcceptedLate, _) => is(1, "unknown", false),
            (ActualOutcome::LostSilently, _) => is(0, "unknown", false),
        }
    }
}
