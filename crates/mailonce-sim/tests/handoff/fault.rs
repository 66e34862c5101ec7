//! What a next hop does wrong, and what must become of the mail.

use mailonce_core::email::OnUnknown;
use mailonce_sim::sink::{
    http::{Act, Trouble, Vendor},
    smtp,
};
use std::time::Duration;

use crate::hop::{Cure, Hop, Next, Oracle};

/// The pause that a busy next hop asks for, in seconds.
pub(crate) const PAUSE_S: u32 = 120;

/// What goes wrong at the first attempt. Afterwards the next hop is honest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    AcceptThenDrop,
    AcceptThenBreak,
    AcceptThenStall,
    AcceptThenEmpty,
    AcceptThenHuge,
    AcceptLate,
    Drop,
    Html,
    Redirect,
    Concurrent,
    Mismatch,
    Busy,
    Revoked,
    Refuse,
}

/// What that means for the mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Truth {
    /// It was taken and nobody said so.
    Taken,
    /// It is taken after everybody gave up waiting.
    Late,
    /// It was not taken, and nobody said so.
    Lost,
    /// It was surely not taken, and may come again.
    Later,
    /// It was surely not taken, and must not come again.
    Never,
    /// The next hop contradicts itself.
    Puzzle,
    /// All is well.
    Well,
}

/// What must have become of a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) mails: usize,
    pub(crate) state: &'static str,
    pub(crate) may_duplicate: bool,
}

impl Fault {
    pub(crate) const ALL: [Self; 15] = [
        Self::None,
        Self::AcceptThenDrop,
        Self::AcceptThenBreak,
        Self::AcceptThenStall,
        Self::AcceptThenEmpty,
        Self::AcceptThenHuge,
        Self::AcceptLate,
        Self::Drop,
        Self::Html,
        Self::Redirect,
        Self::Concurrent,
        Self::Mismatch,
        Self::Busy,
        Self::Revoked,
        Self::Refuse,
    ];

    /// Whether a next hop can do this.
    pub(crate) fn fits(self, next: Next) -> bool {
        let conflict = matches!(self, Self::Concurrent | Self::Mismatch);
        match next {
            Next::Relay => !conflict && self != Self::AcceptThenBreak,
            // There 409 was said to mean that the first arrived.
            Next::Provider(Vendor::Other) => !conflict,
            Next::Provider(_) => true,
        }
    }

    /// Makes the next hop do it once.
    pub(crate) fn plant(self, hop: &Hop) {
        match &hop.sink {
            Oracle::Http(sink) => sink.script(&self.act().into_iter().collect::<Vec<_>>()),
            Oracle::Smtp(sink) => {
                if let Some((step, act)) = self.smtp() {
                    sink.once(step, act);
                }
            }
        }
    }

    fn act(self) -> Option<Act> {
        Some(match self {
            Self::None => return None,
            Self::AcceptThenDrop => Act::TakeThenDrop,
            Self::AcceptThenBreak => Act::TakeThenBreak,
            Self::AcceptThenStall => Act::TakeThenStall,
            Self::AcceptThenEmpty => Act::TakeThenEmpty,
            Self::AcceptThenHuge => Act::TakeThenHuge,
            Self::AcceptLate => Act::TakeLate,
            Self::Drop => Act::Drop,
            Self::Html => Act::Portal,
            Self::Redirect => Act::Redirect,
            Self::Concurrent => Act::Trouble(Trouble::Concurrent),
            Self::Mismatch => Act::Trouble(Trouble::Mismatch),
            Self::Busy => Act::Trouble(Trouble::Busy(PAUSE_S)),
            Self::Revoked => Act::Trouble(Trouble::Revoked),
            Self::Refuse => Act::Trouble(Trouble::Refused),
        })
    }

    fn smtp(self) -> Option<(smtp::Step, smtp::Act)> {
        use smtp::{Act, Step};
        let said = |text: &str| Act::say(text);
        Some(match self {
            Self::None | Self::AcceptThenBreak | Self::Concurrent | Self::Mismatch => return None,
            Self::AcceptThenDrop => (Step::Dot, Act::taken(Act::Cut)),
            Self::AcceptThenStall => (Step::Dot, Act::taken(Act::Stall)),
            Self::AcceptThenEmpty => (Step::Dot, Act::taken(said(""))),
            Self::AcceptThenHuge => (Step::Dot, Act::taken(Act::Say(vec![b'2'; 1024 * 1024]))),
            // Longer than it is waited for.
            Self::AcceptLate => (Step::Dot, Act::Late(Duration::from_millis(2_500))),
            Self::Drop => (Step::Dot, Act::Cut),
            Self::Html => (Step::Dot, said("<html><body>Please log in to this network</body></html>")),
            Self::Redirect => (Step::Dot, said("300 somewhere else")),
            Self::Busy => (Step::Dot, said("451 4.3.2 busy")),
            Self::Revoked => (Step::Mail, said("530 5.7.0 log in first")),
            Self::Refuse => (Step::Dot, said("554 5.7.1 no")),
        })
    }

    fn truth(self, next: Next) -> Truth {
        match self {
            Self::None => Truth::Well,
            Self::AcceptThenDrop
            | Self::AcceptThenBreak
            | Self::AcceptThenStall
            | Self::AcceptThenEmpty
            | Self::AcceptThenHuge => Truth::Taken,
            Self::AcceptLate => Truth::Late,
            Self::Drop | Self::Html | Self::Redirect | Self::Concurrent => Truth::Lost,
            // Only these two word it.
            Self::Mismatch if matches!(next, Next::Provider(Vendor::Resend | Vendor::UseSend)) => Truth::Puzzle,
            Self::Mismatch => Truth::Lost,
            Self::Busy | Self::Revoked => Truth::Later,
            Self::Refuse => Truth::Never,
        }
    }

    /// What must become of the mail once time has passed.
    pub(crate) fn expected(self, next: Next, policy: OnUnknown) -> Expected {
        let is = |mails, state, may_duplicate| Expected { mails, state, may_duplicate };
        let resend = policy == OnUnknown::Resend;
        match (self.truth(next), next.cure()) {
            (Truth::Well | Truth::Later, _) => is(1, "sent", false),
            (Truth::Never, _) => is(0, "failed", false),
            (Truth::Puzzle, _) => is(0, "unknown", false),
            (Truth::Taken | Truth::Late | Truth::Lost, Cure::Key) => is(1, "sent", false),
            (Truth::Taken, Cure::LookUp) => is(1, "sent", false),
            (Truth::Late, Cure::LookUp) if !resend => is(1, "sent", false),
            // It keeps the key, though nobody relies on it.
            (Truth::Late, _) if next == Next::Provider(Vendor::UseSend) => is(1, "sent", true),
            // The email itself asked for this.
            (Truth::Taken | Truth::Late, _) if resend => is(2, "sent", true),
            (Truth::Lost, _) if resend => is(1, "sent", true),
            (Truth::Taken | Truth::Late, _) => is(1, "unknown", false),
            (Truth::Lost, _) => is(0, "unknown", false),
        }
    }
}
