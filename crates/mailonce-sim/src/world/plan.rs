//! What a seed expands into: the size of the world, its next hops, and the faults that may happen in it.

use crate::harness::rng::SeededRng;
use std::collections::BTreeSet;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident = $word:literal, $ambiguous:literal;)+) => {
        /// A kind of fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum FaultKind {
            $($(#[doc = $doc])+ $kind,)+
        }

        impl FaultKind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$kind,)+];

            /// Its name.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $word,)+
                }
            }

            /// Whether it may leave an outcome that nobody can tell.
            pub fn is_ambiguous(self) -> bool {
                match self {
                    $(Self::$kind => $ambiguous,)+
                }
            }
        }
    };
}

kinds! {
    /// The next hop takes the mail and its answer is lost.
    LoseReply = "lose-reply", true;
    /// The mail is lost on its way.
    LoseRequest = "lose-request", true;
    /// An error page, after the mail was taken or not.
    ServerError = "server-error", true;
    /// No answer ever, after the mail was taken or not.
    Stall = "stall", true;
    /// The connection is cut, and the mail is taken later.
    LateAccept = "late-accept", true;
    /// The next hop asks to come again.
    Defer = "defer", false;
    /// The next hop refuses.
    Refuse = "refuse", false;
    /// The log-in is refused.
    Unauthorized = "unauthorized", false;
    /// Nobody can be reached.
    Unreachable = "unreachable", false;
    /// The next hop says that it is busy with this key.
    Concurrent = "concurrent", true;
    /// The next hop says that it knows this key for other bytes.
    Mismatch = "mismatch", true;
    /// The next hop cannot be asked, or learns of mails late.
    LookUp = "look-up", false;
    /// Provider events come often, in any order, and to the wrong team.
    Reports = "reports", false;
    /// A node ends at any moment.
    Crash = "crash", true;
    /// A node ends at a named point.
    CrashAtPoint = "crash-at-point", true;
    /// A node stands still for longer than its lease.
    Pause = "pause", true;
    /// A wall clock is set.
    ClockJump = "clock-jump", true;
    /// The ledger cannot be reached.
    StoreDown = "store-down", false;
    /// The ledger commits, and its answer is lost.
    LostCommit = "lost-commit", false;
    /// A node comes back with another account at the provider.
    OtherAccount = "other-account", false;
    /// Much time passes at once.
    Leap = "leap", true;
}

/// What a next hop can do against a second mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HopProfile {
    /// It takes a key and remembers it for so many milliseconds.
    Keyed(i64),
    /// It can be asked, after so many milliseconds.
    LookUp(i64),
    /// A provider that can do nothing.
    Keyless,
    /// An SMTP relay.
    Relay,
}

/// Names of the points at which a node may end.
pub(super) const HANDOFF_FAILPOINTS: [&str; 8] = [
    "before-lease",
    "after-lease",
    "approach",
    "before-marker",
    "after-marker",
    "after-answer",
    "after-settle",
    "repeat",
];

/// Those of mail that comes in.
const INBOUND_FAILPOINTS: [&str; 8] = [
    "mail-before-commit",
    "mail-after-commit",
    "mail-leased",
    "mail-parsed",
    "before-filing",
    "after-filing",
    "before-consume",
    "after-consume",
];

/// The point at which a node ends. Where mail comes in, it is one of its points as often as another.
fn draw_failpoint(rng: &mut SeededRng, post: &mut SeededRng, mails: usize) -> (&'static str, u64) {
    let (out, time) = (HANDOFF_FAILPOINTS[rng.below(HANDOFF_FAILPOINTS.len() as u64) as usize], rng.between(1, 4));
    if mails == 0 || post.below(2) == 0 {
        return (out, time);
    }
    (INBOUND_FAILPOINTS[post.below(INBOUND_FAILPOINTS.len() as u64) as usize], post.between(1, 3))
}

/// What a seed expands into.
#[derive(Debug, Clone)]
pub struct WorldPlan {
    /// The seed.
    pub seed: u64,
    /// Nodes over one ledger.
    pub nodes: usize,
    /// Teams that send.
    pub teams: usize,
    /// Next hops, in the order of fail-over.
    pub hops: Vec<HopProfile>,
    /// Wishes of callers.
    pub sends: usize,
    /// Mails that come in. In half of the worlds none does.
    pub code_mails: usize,
    /// Letters that want an answer. In most worlds none comes.
    pub conversation_mails: usize,
    /// Steps before everything is healed.
    pub steps: usize,
    /// Faults that may happen.
    pub faults: BTreeSet<FaultKind>,
    /// How likely one is where it can happen, of 100.
    pub fault_percent: u64,
    /// The point at which a node ends, and the time that it is reached.
    pub failpoint: (&'static str, u64),
    /// Whether long stretches pass between the steps.
    pub has_long_pauses: bool,
}

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

impl WorldPlan {
    /// The plan of a seed.
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = SeededRng::derive(seed, &[0]);
        let hops = if rng.below(4) == 0 { 2 } else { 1 };
        let class = |rng: &mut SeededRng| match rng.below(8) {
            0 | 1 => HopProfile::Keyed(15 * MINUTE),
            2 => HopProfile::Keyed(24 * HOUR),
            3 | 4 => HopProfile::LookUp(5_000),
            5 => HopProfile::Keyless,
            _ => HopProfile::Relay,
        };
        let wanted = rng.below(FaultKind::ALL.len() as u64 / 2);
        let mut post = SeededRng::derive(seed, &[3]);
        let mails = if post.below(2) == 0 { 0 } else { post.between(1, 4) as usize };
        let mut talk = SeededRng::derive(seed, &[6]);
        let letters = if talk.below(3) == 0 { talk.between(2, 7) as usize } else { 0 };
        let pick = |rng: &mut SeededRng| FaultKind::ALL[rng.below(FaultKind::ALL.len() as u64) as usize];
        Self {
            seed,
            nodes: if rng.below(3) == 0 { 2 } else { 1 },
            teams: if rng.below(4) == 0 { 2 } else { 1 },
            hops: (0..hops).map(|_| class(&mut rng)).collect(),
            sends: rng.between(1, 3) as usize,
            code_mails: mails,
            conversation_mails: letters,
            steps: rng.between(3, 8) as usize,
            faults: (0..wanted).map(|_| pick(&mut rng)).collect(),
            fault_percent: [15, 35, 60][rng.below(3) as usize],
            failpoint: draw_failpoint(&mut rng, &mut post, mails),
            has_long_pauses: rng.below(3) == 0,
        }
    }

    /// With mail that comes in.
    #[must_use]
    pub fn with_mail(mut self) -> Self {
        let mut post = SeededRng::derive(self.seed, &[4]);
        if self.code_mails < 2 {
            self.code_mails = 4;
            self.failpoint = draw_failpoint(&mut SeededRng::derive(self.seed, &[5]), &mut post, self.code_mails);
        }
        self
    }

    /// With letters that want an answer, and time to answer them.
    #[must_use]
    pub fn with_conversations(mut self) -> Self {
        self.conversation_mails = self.conversation_mails.max(6);
        self.steps = self.steps.max(6);
        self
    }

    /// Whether anything comes in.
    pub fn has_inbound_mail(&self) -> bool {
        self.code_mails + self.conversation_mails > 0
    }

    /// Whether a kind of fault may happen.
    pub fn has_fault(&self, kind: FaultKind) -> bool {
        self.faults.contains(&kind)
    }
}
