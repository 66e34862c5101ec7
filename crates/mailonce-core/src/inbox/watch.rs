//! Watches: one run of an agent that waits for mail in an inbox, with a resend budget and a deadline.

use crate::{
    id::{InboxId, TeamId, WatchId},
    time::Time,
};

/// One run of an agent that waits for mail in an inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Its id.
    pub id: WatchId,
    /// Its team.
    pub team: TeamId,
    /// The inbox.
    pub inbox: InboxId,
    /// The revision. Each change increases it.
    pub rev: u32,
    /// When it began.
    pub started_at: Time,
    /// The number of the inbox's latest message at that time. Only later messages count.
    pub after_seq: u64,
    /// When it ends.
    pub deadline: Time,
    /// How often its agent may request that the mail is sent again.
    pub resend_budget: u32,
    /// How often it has done so.
    pub resends_used: u32,
    /// Whether only mail from authenticated senders counts.
    pub require_auth: bool,
}

/// How long before its first call an implicit watch starts, in milliseconds: a code may arrive before its agent asks.
pub const IMPLICIT_WATCH_HEAD_START_MS: i64 = 120_000;
/// How long after its last call an implicit watch ends, in milliseconds.
pub const IMPLICIT_WATCH_MS: i64 = 900_000;

/// The watch of a consumer that started none: each consumer has one at each inbox from its first call on, so that it
/// gets a new code and not one that is left from an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImplicitWatch {
    /// Its team.
    pub team: TeamId,
    /// The inbox.
    pub inbox: InboxId,
    /// A keyed hash of the consumer's name.
    pub consumer: [u8; 16],
    /// Only messages with a higher number count.
    pub after_seq: u64,
    /// When it ends, unless its consumer calls again.
    pub ends_at: Time,
}

impl ImplicitWatch {
    /// The watch after another call: the one that is there and goes on, or this one, if that one has ended.
    #[must_use]
    pub fn continuing(self, before: Option<Self>, now: Time) -> Self {
        match before.filter(|before| before.ends_at > now) {
            Some(before) => Self { after_seq: before.after_seq, ..self },
            None => self,
        }
    }
}

/// The result of using a resend.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum SpendResendResult {
    /// Allowed and counted.
    Spent(Watch),
    /// The budget is used up.
    BudgetSpent(Watch),
    /// The watch has ended.
    WatchEnded(Watch),
    /// No such watch in this team.
    Missing,
}

impl Watch {
    /// The result of using a resend, with the watch after it.
    pub fn spend_resend(mut self, now: Time) -> SpendResendResult {
        if now >= self.deadline {
            return SpendResendResult::WatchEnded(self);
        }
        if self.resends_used >= self.resend_budget {
            return SpendResendResult::BudgetSpent(self);
        }
        self.resends_used += 1;
        self.rev += 1;
        SpendResendResult::Spent(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_budget_is_spent_once_and_never_after_the_deadline() {
        let watch = Watch {
            id: WatchId(Uuid::from_u128(1)),
            team: TeamId(Uuid::from_u128(2)),
            inbox: InboxId(Uuid::from_u128(3)),
            rev: 1,
            started_at: Time(0),
            after_seq: 0,
            deadline: Time(100),
            resend_budget: 1,
            resends_used: 0,
            require_auth: false,
        };
        let SpendResendResult::Spent(spent) = watch.clone().spend_resend(Time(99)) else { panic!("not done") };
        assert!(matches!(spent.spend_resend(Time(99)), SpendResendResult::BudgetSpent(_)));
        assert!(matches!(watch.spend_resend(Time(100)), SpendResendResult::WatchEnded(_)));
    }
}
