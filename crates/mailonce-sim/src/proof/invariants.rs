//! The promises, and the ways in which each can be broken.

use std::fmt;

/// A promise about what callers, next hops and operators may rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Invariant {
    /// One email per team and key.
    P1,
    /// Every acknowledged email exists after all crashes.
    P2,
    /// At most one mail per email and recipient, where nobody asked for more.
    P3,
    /// Under `resend` at most one more for each resend on record, and it is said that there may be more than one.
    P4,
    /// Nothing is lost without a word.
    P5,
    /// What is called sent was taken.
    P6,
    /// What is called failed or cancelled was not taken.
    P7,
    /// Nothing is unknown without a fault that made it so.
    P8,
    /// All copies are byte for byte the same.
    P9,
    /// Every change is legal, and fences never go back.
    P10,
    /// Each change is told once, in one order without gaps.
    P11,
    /// Inbound: what was acknowledged is there, one message per inbox and mail, one artifact, one consumer.
    P12,
    /// After healing everything is settled or waits for a person.
    P13,
    /// Each message is answered once, by one agent at a time, never too often, and never in a circle.
    P14,
    /// Another meaning under a bound key never becomes a mail.
    P15,
    /// Teams never meet.
    P16,
}

impl Invariant {
    /// Those that are judged.
    pub const CHECKED: [Self; 16] = [
        Self::P1,
        Self::P2,
        Self::P3,
        Self::P4,
        Self::P5,
        Self::P6,
        Self::P7,
        Self::P8,
        Self::P9,
        Self::P10,
        Self::P11,
        Self::P12,
        Self::P13,
        Self::P14,
        Self::P15,
        Self::P16,
    ];
}

macro_rules! rules {
    ($($promise:ident { $($(#[doc = $doc:literal])+ $rule:ident),+ $(,)? })+) => {
        /// One way to break a promise.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum Rule {
            $($($(#[doc = $doc])+ $rule,)+)+
        }

        impl Rule {
            /// All of them.
            pub const ALL: &[Self] = &[$($(Self::$rule,)+)+];

            /// Whether it is about what endpoints are told.
            pub fn is_about_notices(self) -> bool {
                matches!(self, Self::NoticeLost | Self::NoticeRenamed | Self::NoticeOrder | Self::NoticeForged)
            }

            /// The promise that it breaks.
            pub fn promise(self) -> Invariant {
                match self {
                    $($(Self::$rule)|+ => Invariant::$promise,)+
                }
            }
        }
    };
}

rules! {
    P1 {
        /// One key was answered with different emails.
        TwoIds,
        /// More than one call was told that it made the email.
        TwoFirsts,
        /// More than one email exists for one wish, or for one item of it.
        Duplicated,
        /// Two emails hold the same key at the same time.
        SharedKey,
        /// A call was answered with an email to somebody else.
        OutOfOrder,
        /// Some items of a batch exist and some do not.
        Torn,
        /// An email that nobody asked for.
        Unasked,
        /// A refusal that the call did not deserve.
        Refusal,
    }
    P2 {
        /// An acknowledged email is not there any more.
        Lost,
    }
    P3 {
        /// A recipient got a mail twice, and nobody allowed it.
        TakenTwice,
        /// A mail was taken of an email that is not in the ledger.
        Stray,
        /// Two emails of one intent went to one recipient.
        Overlapped,
    }
    P4 {
        /// A recipient got more copies than resends on record allow.
        TakenTooOften,
        /// A recipient may have two copies, and nothing says so.
        Unflagged,
        /// The policy sent it again too soon, or although its arrival was on record.
        Hasty,
    }
    P5 {
        /// It ended unsent, or nobody knows, and no event tells.
        Silent,
        /// A recipient that no handoff is for.
        Vanished,
        /// What a next hop reported is on record, and the state says otherwise.
        Ignored,
    }
    P6 {
        /// It is called sent and is nowhere.
        FalseSuccess,
    }
    P7 {
        /// It is called failed or cancelled, and a recipient has it.
        FalseFailure,
    }
    P8 {
        /// It was called unknown although nothing had made it so.
        NeedlessDoubt,
    }
    P9 {
        /// Two requests for one handoff have different bytes.
        OtherBytes,
        /// Two copies of one email have different Message-IDs, or another than the email shows.
        OtherMessageId,
        /// Two requests for one handoff have different keys, or two handoffs the same.
        OtherKey,
    }
    P10 {
        /// A state that cannot follow the one before.
        IllegalMove,
        /// A fence that went back.
        FenceBack,
        /// Attempts whose numbers or fences do not rise.
        AttemptOrder,
        /// A call did what it had to be refused.
        Unearned,
        /// A scheduled mail left before its time.
        Early,
        /// Ledger time went back.
        TimeBack,
    }
    P11 {
        /// The numbers of a team's events do not go 1, 2, 3 …
        Gap,
        /// An email does not have exactly one `email.accepted` or `email.held`.
        Births,
        /// An email was told of before it was accepted, or one change of it twice.
        Told,
        /// A change that no event tells, or an event that no change explains.
        Untold,
        /// Events about an email that is not there.
        Ghost,
        /// A fact that counts once is on record twice.
        CountedTwice,
        /// An event that was read before reads differently now, or is gone.
        Rewritten,
        /// An event that is owed to an endpoint never arrived there.
        NoticeLost,
        /// An event arrived at an endpoint under two ids, or two under one.
        NoticeRenamed,
        /// Events about one subject arrived at an endpoint out of order.
        NoticeOrder,
        /// A webhook that nobody signed, or of an event that did not happen.
        NoticeForged,
    }
    P12 {
        /// A mail that was acknowledged to its sender is in no inbox.
        MailLost,
        /// One mail is two messages in one inbox.
        MailTwice,
        /// A message that nobody brought.
        MailUnasked,
        /// The same delivery was kept and read twice.
        KeptTwice,
        /// A mail was acknowledged more often than rows say.
        Unrecorded,
        /// The numbers of an inbox do not go 1, 2, 3 …
        InboxGap,
        /// A delivery was kept and not read, although every fault was healed.
        Unread,
        /// A message is there without the code in it.
        CodeLost,
        /// One code of one sender is two artifacts.
        CodeTwice,
        /// An artifact was given to two consumers.
        TwoConsumers,
        /// Something was given out that the sender never wrote.
        WrongCode,
        /// Somebody was given an artifact that does not stand as his, or was refused without a reason.
        TakeForgotten,
        /// A message, an artifact, a consumer or a repeat was not told exactly once.
        MailTold,
    }
    P13 {
        /// It is neither settled nor waits for a person, although every fault was healed.
        Stuck,
        /// A wish that was asked for until the end, and never answered.
        Unanswered,
    }
    P14 {
        /// One slot of a message was answered twice, or one key made two answers.
        AnsweredTwice,
        /// Mail of our own was answered.
        OwnAnswered,
        /// A machine was answered.
        MachineAnswered,
        /// An answer was accepted while another held the thread, or under a lease that was lost.
        LeaseIgnored,
        /// An answer was accepted that did not know of a newer message.
        NewerIgnored,
        /// More answers were let go than the limits allow.
        CapExceeded,
        /// A guard spoke without a reason.
        NeedlessGuard,
        /// Two agents held one thread at one time.
        TwoHolders,
        /// A lease of a thread did not raise its fence.
        LeaseFence,
        /// A message was offered that was answered or skipped.
        OfferedSettled,
        /// A message was offered before the time until which it was put off.
        OfferedEarly,
        /// A message was offered again and again.
        OfferedTooOften,
        /// An answer, a refusal, a lease or a cap was not told exactly once.
        AnswerTold,
        /// A message of a person was left lying, although every fault was healed.
        Unattended,
        /// Nobody was asked about an answer that is held or a message that was offered in vain.
        Unescalated,
        /// Two mails without a key said the same to the same people, and the second was let go.
        LookAlike,
    }
    P15 {
        /// A call that means something else than its key is bound to was answered as if it were the same.
        Swallowed,
        /// A call that means the same as its key is bound to was refused as something else.
        FalseMismatch,
        /// The email of a key says something that no call under that key asked for.
        OtherWords,
    }
    P16 {
        /// A team was shown or changed something of another.
        Crossed,
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {self:?}", self.promise())
    }
}
