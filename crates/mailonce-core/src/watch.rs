//! Watches: one run of an agent waiting on an inbox, with a resend budget and a deadline.

use crate::{
    id::{InboxId, TeamId, WatchId},
    time::Time,
};

/// One run of an agent waiting on an inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Its id.
    pub id: WatchId,
    /// Whose it is.
    pub team: TeamId,
    /// Where it waits.
    pub inbox: InboxId,
    /// Grows with each change.
    pub rev: u32,
    /// When it began.
    pub started_at: Time,
    /// The number of the inbox's latest message then: only later ones count.
    pub after: u64,
    /// When it ends.
    pub deadline: Time,
    /// How often its agent may ask for the mail to be sent again.
    pub budget: u32,
    /// How often it did.
    pub spent: u32,
    /// Whether only mail whose sender proved who it is counts.
    pub require_auth: bool,
}

/// The answer to a wish to ask for the mail again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Spent {
    /// It may.
    Done(Watch),
    /// The budget is spent.
    Nothing(Watch),
    /// The watch is over.
    Over(Watch),
    /// No such watch in this team.
    Missing,
}

impl Watch {
    /// The whole answer to a wish to ask again; the watch inside is as it is afterwards.
    pub fn spend(mut self, now: Time) -> Spent {
        if now >= self.deadline {
            return Spent::Over(self);
        }
        if self.spent >= self.budget {
            return Spent::Nothing(self);
        }
        self.spent += 1;
        self.rev += 1;
        Spent::Done(self)
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
            after: 0,
            deadline: Time(100),
            budget: 1,
            spent: 0,
            require_auth: false,
        };
        let Spent::Done(spent) = watch.clone().spend(Time(99)) else { panic!("not done") };
        assert!(matches!(spent.spend(Time(99)), Spent::Nothing(_)));
        assert!(matches!(watch.spend(Time(100)), Spent::Over(_)));
    }
}
