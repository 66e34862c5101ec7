//! What a seed expands into: the size of the world, its next hops, and the faults that may happen in it.

use crate::rig::chance::Chance;
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
            pub fn word(self) -> &'static str {
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
pub enum Class {
    /// It takes a key and remembers it for so many milliseconds.
    Keyed(i64),
    /// It can be asked, after so many milliseconds.
    Asked(i64),
    /// A provider that can do nothing.
    Plain,
    /// An SMTP relay.
    Relay,
}

/// Names of the points at which a node may end.
pub(super) const POINTS: [&str; 8] = [
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
const MAIL_POINTS: [&str; 8] = [
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
fn point(chance: &mut Chance, post: &mut Chance, mails: usize) -> (&'static str, u64) {
    let (out, time) = (POINTS[chance.below(POINTS.len() as u64) as usize], chance.between(1, 4));
    if mails == 0 || post.below(2) == 0 {
        return (out, time);
    }
    (MAIL_POINTS[post.below(MAIL_POINTS.len() as u64) as usize], post.between(1, 3))
}

/// What a seed expands into.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Nodes over one ledger.
    pub nodes: usize,
    /// Teams that send.
    pub teams: usize,
    /// Next hops, in the order of fail-over.
    pub hops: Vec<Class>,
    /// Wishes of callers.
    pub wishes: usize,
    /// Mails that come in. In half of the worlds none does.
    pub mails: usize,
    /// Letters that want an answer. In most worlds none comes.
    pub letters: usize,
    /// Steps before everything is healed.
    pub steps: usize,
    /// Faults that may happen.
    pub faults: BTreeSet<FaultKind>,
    /// How likely one is where it can happen, of 100.
    pub rate: u64,
    /// The point at which a node ends, and the time that it is reached.
    pub point: (&'static str, u64),
    /// Whether long stretches pass between the steps.
    pub slow: bool,
}

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut chance = Chance::at(seed, &[0]);
        let hops = if chance.below(4) == 0 { 2 } else { 1 };
        let class = |chance: &mut Chance| match chance.below(8) {
            0 | 1 => Class::Keyed(15 * MINUTE),
            2 => Class::Keyed(24 * HOUR),
            3 | 4 => Class::Asked(5_000),
            5 => Class::Plain,
            _ => Class::Relay,
        };
        let wanted = chance.below(FaultKind::ALL.len() as u64 / 2);
        let mut post = Chance::at(seed, &[3]);
        let mails = if post.below(2) == 0 { 0 } else { post.between(1, 4) as usize };
        let mut talk = Chance::at(seed, &[6]);
        let letters = if talk.below(3) == 0 { talk.between(2, 7) as usize } else { 0 };
        let pick = |chance: &mut Chance| FaultKind::ALL[chance.below(FaultKind::ALL.len() as u64) as usize];
        Self {
            seed,
            nodes: if chance.below(3) == 0 { 2 } else { 1 },
            teams: if chance.below(4) == 0 { 2 } else { 1 },
            hops: (0..hops).map(|_| class(&mut chance)).collect(),
            wishes: chance.between(1, 3) as usize,
            mails,
            letters,
            steps: chance.between(3, 8) as usize,
            faults: (0..wanted).map(|_| pick(&mut chance)).collect(),
            rate: [15, 35, 60][chance.below(3) as usize],
            point: point(&mut chance, &mut post, mails),
            slow: chance.below(3) == 0,
        }
    }

    /// With mail that comes in.
    #[must_use]
    pub fn with_mail(mut self) -> Self {
        let mut post = Chance::at(self.seed, &[4]);
        if self.mails < 2 {
            self.mails = 4;
            self.point = point(&mut Chance::at(self.seed, &[5]), &mut post, self.mails);
        }
        self
    }

    /// With letters that want an answer, and time to answer them.
    #[must_use]
    pub fn with_talk(mut self) -> Self {
        self.letters = self.letters.max(6);
        self.steps = self.steps.max(6);
        self
    }

    /// Whether anything comes in.
    pub fn has_post(&self) -> bool {
        self.mails + self.letters > 0
    }

    /// Whether a kind of fault may happen.
    pub fn has(&self, kind: FaultKind) -> bool {
        self.faults.contains(&kind)
    }
}
