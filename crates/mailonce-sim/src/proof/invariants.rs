//! The invariants, and the rules that each consists of.

use std::fmt;

/// An invariant that clients, next hops and operators can rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Invariant {
    /// One email per team and key.
    P1,
    /// Every acknowledged email exists after all crashes.
    P2,
    /// At most one mail per email and recipient, unless more were requested.
    P3,
    /// Under `resend` at most one more for each recorded resend, and `may_duplicate` is set.
    P4,
    /// No email is lost silently.
    P5,
    /// An email in `sent` was accepted.
    P6,
    /// An email in `failed` or `cancelled` was not accepted.
    P7,
    /// No outcome is unknown without a fault.
    P8,
    /// All copies are identical.
    P9,
    /// Every transition is legal, and fences never decrease.
    P10,
    /// Each change has one event, in one order without gaps.
    P11,
    /// Inbound: acknowledged mail is there, with one message per inbox and mail, one artifact, one consumer.
    P12,
    /// After all faults ended, everything is settled or waits for an operator.
    P13,
    /// Each message is answered once, by one agent at a time, within the limits, and never in a loop.
    P14,
    /// Other content under a bound key never becomes a mail.
    P15,
    /// Teams are isolated.
    P16,
    /// A claimed side effect begins once, unless somebody allowed another, and its result is kept.
    P17,
}

impl Invariant {
    /// The invariants that are checked.
    pub const CHECKED: [Self; 17] = [
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
        Self::P17,
    ];
}

macro_rules! rules {
    ($($promise:ident { $($(#[doc = $doc:literal])+ $rule:ident),+ $(,)? })+) => {
        /// A rule of an invariant.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum Rule {
            $($($(#[doc = $doc])+ $rule,)+)+
        }

        impl Rule {
            /// All rules.
            pub const ALL: &[Self] = &[$($(Self::$rule,)+)+];

            /// Whether it is about webhooks.
            pub fn is_about_notices(self) -> bool {
                matches!(self, Self::NoticeLost | Self::NoticeRenamed | Self::NoticeOrder | Self::NoticeForged)
            }

            /// Its invariant.
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
        /// More than one call claims to have created the email.
        TwoFirsts,
        /// More than one email exists for one send, or for one item of it.
        Duplicated,
        /// Two emails hold the same key at the same time.
        SharedKey,
        /// A call was answered with an email to other recipients.
        OutOfOrder,
        /// Some items of a batch exist and some do not.
        Torn,
        /// An email that no call requested.
        Unasked,
        /// A call was refused without a reason.
        Refusal,
    }
    P2 {
        /// An acknowledged email does not exist.
        Lost,
    }
    P3 {
        /// A recipient got a mail twice without permission.
        TakenTwice,
        /// A mail was accepted whose email is not in the ledger.
        Stray,
        /// Two emails of one intent went to one recipient.
        Overlapped,
    }
    P4 {
        /// A recipient got more copies than recorded resends allow.
        TakenTooOften,
        /// A recipient may have two copies, and `may_duplicate` is not set.
        Unflagged,
        /// The policy resent it too soon, or although its arrival was recorded.
        Hasty,
    }
    P5 {
        /// It was not sent, or its outcome is unknown, and there is no event.
        Silent,
        /// A recipient without a handoff.
        Vanished,
        /// The state contradicts a recorded provider event.
        Ignored,
    }
    P6 {
        /// It is `sent` and arrived nowhere.
        FalseSuccess,
    }
    P7 {
        /// It is `failed` or `cancelled`, and a recipient has it.
        FalseFailure,
    }
    P8 {
        /// It became unknown without a fault.
        NeedlessDoubt,
    }
    P9 {
        /// Two requests for one handoff have different bytes.
        OtherBytes,
        /// Two copies of one email have different Message-IDs, or another one than the ledger.
        OtherMessageId,
        /// Two requests of one handoff have different keys, or two handoffs the same key.
        OtherKey,
    }
    P10 {
        /// An illegal transition.
        IllegalMove,
        /// A fence decreased.
        FenceBack,
        /// The numbers or fences of attempts do not grow.
        AttemptOrder,
        /// A call succeeded that had to be refused.
        Unearned,
        /// A scheduled mail was sent early.
        Early,
        /// Ledger time went backwards.
        TimeBack,
    }
    P11 {
        /// The numbers of a team's events are not 1, 2, 3 …
        Gap,
        /// An email does not have exactly one `email.accepted` or `email.held`.
        AcceptanceEvent,
        /// An email has an event before its acceptance, or two for one change.
        MisplacedEvent,
        /// A change without an event, or an event without a change.
        UnmatchedEvent,
        /// An event about an email that does not exist.
        Ghost,
        /// Evidence with an id is recorded twice.
        CountedTwice,
        /// An event changed or disappeared after it was read.
        Rewritten,
        /// An event was not delivered to an endpoint.
        NoticeLost,
        /// An event arrived at an endpoint under two ids, or two events under one.
        NoticeRenamed,
        /// Events of one subject arrived at an endpoint out of order.
        NoticeOrder,
        /// A webhook without a valid signature, or of an event that does not exist.
        NoticeForged,
    }
    P12 {
        /// An acknowledged mail is in no inbox.
        MailLost,
        /// One mail is two messages in one inbox.
        MailTwice,
        /// A message that no sender delivered.
        MailUnasked,
        /// The same delivery was stored and parsed twice.
        StoredTwice,
        /// A mail was acknowledged more often than it has deliveries.
        Unrecorded,
        /// The numbers of an inbox are not 1, 2, 3 …
        InboxGap,
        /// A delivery was not parsed although all faults ended.
        Unread,
        /// A message lacks the code of its mail.
        CodeLost,
        /// One code of a sender has two artifacts.
        CodeTwice,
        /// An artifact was given to two consumers.
        TwoConsumers,
        /// A consumed value that the sender never sent.
        WrongCode,
        /// A consumer got an artifact that the ledger assigns to another, or was refused without a reason.
        ConsumptionLost,
        /// A message, an artifact, a consumer or a repeat does not have exactly one event.
        InboundEvents,
    }
    P13 {
        /// It is neither settled nor waiting for an operator although all faults ended.
        Stuck,
        /// A send was retried until the end and never answered.
        Unanswered,
    }
    P14 {
        /// One slot of a message was answered twice, or one key created two replies.
        AnsweredTwice,
        /// Our own mail was answered.
        OwnAnswered,
        /// A machine was answered.
        MachineAnswered,
        /// A reply was accepted while another agent held the thread, or under a lost lease.
        LeaseIgnored,
        /// A reply was accepted that did not know a newer message.
        NewerIgnored,
        /// More replies were sent than the limits allow.
        CapExceeded,
        /// A guard refused without a reason.
        NeedlessGuard,
        /// Two agents held one thread at the same time.
        TwoHolders,
        /// A lease of a thread did not raise its fence.
        LeaseFence,
        /// A message was offered that was answered or skipped.
        OfferedSettled,
        /// A message was offered before its postponed time.
        OfferedEarly,
        /// A message was offered too often.
        OfferedTooOften,
        /// A reply, a refusal, a lease or a cap does not have exactly one event.
        ConversationEvents,
        /// A message of a person was not handled although all faults ended.
        Unattended,
        /// A held reply, or a message that was offered in vain, has no escalation.
        Unescalated,
        /// Two equal mails without a key were sent to the same people.
        LookAlike,
    }
    P15 {
        /// A call with other content than its key is bound to was answered as a repeat.
        Swallowed,
        /// A call with the content that its key is bound to was refused as a mismatch.
        FalseMismatch,
        /// The email of a key has content that no call under that key had.
        OtherWords,
    }
    P16 {
        /// A team saw or changed something of another.
        Crossed,
    }
    P17 {
        /// A side effect began although an earlier holder of the claim had begun, and nobody allowed another.
        EffectTwice,
        /// Two holders have one lease of a claim.
        ClaimShared,
        /// The policy freed a claim before its pause was over.
        FreedTooSoon,
        /// A holder was not told that an earlier one may have performed the side effect.
        RepeatUnflagged,
        /// A command under an old fence, or about a completed claim, was obeyed.
        StaleClaimObeyed,
        /// A claim was given out after a final failure.
        FailureIgnored,
        /// A completion was refused.
        FactRefused,
        /// A claim that was completed is not completed, or does not exist.
        CompletionLost,
        /// Two callers got different results of a claim, or one that nobody reported.
        OtherResult,
        /// Another fingerprint got the claim, or the right one did not.
        WrongFingerprint,
        /// A lease that ended was not noticed, or nobody is asked about a lost holder.
        ClaimStuck,
        /// The events of a claim do not fit its changes.
        ClaimEvents,
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {self:?}", self.promise())
    }
}
