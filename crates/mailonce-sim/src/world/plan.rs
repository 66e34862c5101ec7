//! What a seed expands into: the size of the world, its next hops, and its possible faults.

use crate::{crash::failpoints::claim_failpoints, harness::rng::SeededRng};
use std::collections::BTreeSet;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident = $word:literal, $ambiguous:literal;)+) => {
        /// A kind of fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum FaultKind {
            $($(#[doc = $doc])+ $kind,)+
        }

        impl FaultKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind,)+];

            /// Its name.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $word,)+
                }
            }

            /// Whether it may cause an unknown outcome.
            pub fn is_ambiguous(self) -> bool {
                match self {
                    $(Self::$kind => $ambiguous,)+
                }
            }
        }
    };
}

kinds! {
    /// The next hop accepts the mail, and its reply is lost.
    LoseReply = "lose-reply", true;
    /// The request is lost.
    LoseRequest = "lose-request", true;
    /// An error page, whether the mail was accepted or not.
    ServerError = "server-error", true;
    /// No reply, whether the mail was accepted or not.
    Stall = "stall", true;
    /// The connection is cut, and the mail is accepted later.
    LateAccept = "late-accept", true;
    /// The next hop defers.
    Defer = "defer", false;
    /// The next hop refuses.
    Refuse = "refuse", false;
    /// The login fails.
    Unauthorized = "unauthorized", false;
    /// The connection fails.
    Unreachable = "unreachable", false;
    /// The next hop reports that it is busy with this key.
    Concurrent = "concurrent", true;
    /// The next hop reports that the key was used for other bytes.
    Mismatch = "mismatch", true;
    /// Look-ups fail, or find mails late.
    LookUp = "look-up", false;
    /// Provider events are repeated, reordered, and sent to the wrong team.
    Reports = "reports", false;
    /// A node is killed at any moment.
    Crash = "crash", true;
    /// A node is killed at a failpoint.
    CrashAtPoint = "crash-at-point", true;
    /// A node is paused for longer than its lease.
    Pause = "pause", true;
    /// A wall clock is set.
    ClockJump = "clock-jump", true;
    /// The ledger cannot be reached.
    StoreDown = "store-down", false;
    /// The ledger commits, and its reply is lost.
    LostCommit = "lost-commit", false;
    /// A node restarts with another account at the provider.
    OtherAccount = "other-account", false;
    /// A long time is skipped.
    Leap = "leap", true;
}

/// What a next hop can do against duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HopProfile {
    /// It remembers keys for this many milliseconds.
    Keyed(i64),
    /// It can be searched, after this many milliseconds.
    LookUp(i64),
    /// A provider with neither.
    Keyless,
    /// An SMTP relay.
    Relay,
}

/// The failpoints at which a node may be killed.
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

/// The failpoints of received mail.
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

/// Draws a failpoint. In worlds with received mail, half of them belong to it.
fn draw_failpoint(rng: &mut SeededRng, post: &mut SeededRng, mails: usize) -> (&'static str, u64) {
    let (out, time) = (HANDOFF_FAILPOINTS[rng.below(HANDOFF_FAILPOINTS.len() as u64) as usize], rng.between(1, 4));
    if mails == 0 || post.below(2) == 0 {
        return (out, time);
    }
    (INBOUND_FAILPOINTS[post.below(INBOUND_FAILPOINTS.len() as u64) as usize], post.between(1, 3))
}

/// The plan of a world.
#[derive(Debug, Clone)]
pub struct WorldPlan {
    /// The seed.
    pub seed: u64,
    /// Nodes over one ledger.
    pub nodes: usize,
    /// Teams that send.
    pub teams: usize,
    /// Next hops in failover order.
    pub hops: Vec<HopProfile>,
    /// Number of planned sends.
    pub sends: usize,
    /// Number of received mails with codes. Half of the worlds have none.
    pub code_mails: usize,
    /// Number of received mails that need a reply. Most worlds have none.
    pub conversation_mails: usize,
    /// Number of side effects that workers claim. Most worlds have none.
    pub claims: usize,
    /// Steps until all faults end.
    pub steps: usize,
    /// Possible faults.
    pub faults: BTreeSet<FaultKind>,
    /// The probability of a possible fault, in percent.
    pub fault_percent: u64,
    /// The failpoint at which a node is killed, and the number of the hit.
    pub failpoint: (&'static str, u64),
    /// Whether much time passes between the steps.
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
        let mut conversation_rng = SeededRng::derive(seed, &[6]);
        let letters = if conversation_rng.below(3) == 0 { conversation_rng.between(2, 7) as usize } else { 0 };
        let mut claim_rng = SeededRng::derive(seed, &[8]);
        let claims = if claim_rng.below(4) == 0 { claim_rng.between(1, 3) as usize } else { 0 };
        let at_claims = (claims > 0 && claim_rng.below(2) == 0).then(|| {
            let points = claim_failpoints();
            (points[claim_rng.below(points.len() as u64) as usize], claim_rng.between(1, 3))
        });
        let pick = |rng: &mut SeededRng| FaultKind::ALL[rng.below(FaultKind::ALL.len() as u64) as usize];
        Self {
            seed,
            nodes: if rng.below(3) == 0 { 2 } else { 1 },
            teams: if rng.below(4) == 0 { 2 } else { 1 },
            hops: (0..hops).map(|_| class(&mut rng)).collect(),
            sends: rng.between(1, 3) as usize,
            code_mails: mails,
            conversation_mails: letters,
            claims,
            steps: rng.between(3, 8) as usize,
            faults: (0..wanted).map(|_| pick(&mut rng)).collect(),
            fault_percent: [15, 35, 60][rng.below(3) as usize],
            failpoint: {
                let drawn = draw_failpoint(&mut rng, &mut post, mails);
                at_claims.unwrap_or(drawn)
            },
            has_long_pauses: rng.below(3) == 0,
        }
    }

    /// Adds received mail with codes.
    #[must_use]
    pub fn with_mail(mut self) -> Self {
        let mut post = SeededRng::derive(self.seed, &[4]);
        if self.code_mails < 2 {
            self.code_mails = 4;
            self.failpoint = draw_failpoint(&mut SeededRng::derive(self.seed, &[5]), &mut post, self.code_mails);
        }
        self
    }

    /// Adds received mail that needs a reply, and time to reply.
    #[must_use]
    pub fn with_conversations(mut self) -> Self {
        self.conversation_mails = self.conversation_mails.max(6);
        self.steps = self.steps.max(6);
        self
    }

    /// Adds claims, and time to work on them.
    #[must_use]
    pub fn with_claims(mut self) -> Self {
        self.claims = self.claims.max(2);
        self.steps = self.steps.max(8);
        self
    }

    /// Whether any mail is received.
    pub fn has_inbound_mail(&self) -> bool {
        self.code_mails + self.conversation_mails > 0
    }

    /// Whether a kind of fault is possible.
    pub fn has_fault(&self, kind: FaultKind) -> bool {
        self.faults.contains(&kind)
    }
}
