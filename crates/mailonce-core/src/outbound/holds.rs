//! The guards that hold an email. Each is removed by its own cause, and the email leaves when none is left.

use serde::{Serialize, Serializer};

use crate::outbound::email::Guard;

/// Every guard that can hold an email. The first that holds it is shown as its `guard`.
const HOLDING_GUARDS: [Guard; 5] = [Guard::Approval, Guard::Budget, Guard::Cap, Guard::Overlaps, Guard::LooksDuplicate];

/// The mark of an email that a person let leave although a budget had no room. It holds nothing.
const BUDGET_WAIVED: u8 = 1 << 7;
/// How the mark is stored.
const WAIVED_WORD: &str = "budget_waived";

/// A set of guards that hold an email.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holds(u8);

impl Holds {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Adds a guard. A guard that never holds an email is ignored.
    pub fn insert(&mut self, guard: Guard) {
        self.0 |= bit(guard);
    }

    /// Removes a guard. Returns whether it was in the set.
    pub fn remove(&mut self, guard: Guard) -> bool {
        let held = self.contains(guard);
        self.0 &= !bit(guard);
        held
    }

    /// The set without one guard.
    #[must_use]
    pub fn without(mut self, guard: Guard) -> Self {
        self.remove(guard);
        self
    }

    /// The guards of both sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether this guard is in the set.
    pub fn contains(self, guard: Guard) -> bool {
        self.0 & bit(guard) != 0
    }

    /// Whether nothing holds the email.
    pub fn is_empty(self) -> bool {
        self.0 & !BUDGET_WAIVED == 0
    }

    /// Removes a hold of a budget for good: the email leaves although there is no room.
    pub fn waive_budget(&mut self) {
        self.remove(Guard::Budget);
        self.0 |= BUDGET_WAIVED;
    }

    /// Whether a person let the email leave although a budget had no room.
    pub fn is_budget_waived(self) -> bool {
        self.0 & BUDGET_WAIVED != 0
    }

    /// The guards, most important first.
    pub fn iter(self) -> impl Iterator<Item = Guard> {
        HOLDING_GUARDS.into_iter().filter(move |guard| self.contains(*guard))
    }

    /// The most important guard.
    pub fn first(self) -> Option<Guard> {
        self.iter().next()
    }

    /// The guards as words with commas between them, as stores keep them. `None` for the empty set.
    pub fn to_column(self) -> Option<String> {
        let waived = self.is_budget_waived().then_some(WAIVED_WORD);
        let words: Vec<&str> = self.iter().map(Guard::as_str).chain(waived).collect();
        (!words.is_empty()).then(|| words.join(","))
    }

    /// Reads what [`Holds::to_column`] wrote. `None` for a word that names no guard.
    pub fn from_column(words: Option<&str>) -> Option<Self> {
        let mut holds = Self::NONE;
        for word in words.into_iter().flat_map(|words| words.split(',')) {
            match word {
                WAIVED_WORD => holds.waive_budget(),
                word => holds.insert(Guard::parse(word)?),
            }
        }
        Some(holds)
    }
}

/// The guard's place in the set. 0 for a guard that never holds an email.
fn bit(guard: Guard) -> u8 {
    HOLDING_GUARDS.iter().position(|held| *held == guard).map_or(0, |place| 1 << place)
}

impl FromIterator<Guard> for Holds {
    fn from_iter<I: IntoIterator<Item = Guard>>(guards: I) -> Self {
        let mut holds = Self::NONE;
        guards.into_iter().for_each(|guard| holds.insert(guard));
        holds
    }
}

impl From<Guard> for Holds {
    fn from(guard: Guard) -> Self {
        Self(bit(guard))
    }
}

impl From<Option<Guard>> for Holds {
    fn from(guard: Option<Guard>) -> Self {
        guard.map_or(Self::NONE, Self::from)
    }
}

impl Serialize for Holds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(Guard::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_important_guard_comes_first() {
        let holds: Holds = [Guard::LooksDuplicate, Guard::Cap, Guard::Approval].into_iter().collect();
        assert_eq!(holds.first(), Some(Guard::Approval));
        assert_eq!(holds.without(Guard::Approval).first(), Some(Guard::Cap));
        assert_eq!(serde_json::to_string(&holds).unwrap(), r#"["approval","cap","looks_duplicate"]"#);
    }

    #[test]
    fn each_guard_is_removed_once_and_alone() {
        let mut holds: Holds = HOLDING_GUARDS.into_iter().collect();
        for guard in HOLDING_GUARDS {
            assert!(holds.remove(guard) && !holds.remove(guard), "{guard:?}");
        }
        assert!(holds.is_empty() && holds.first().is_none());
    }

    #[test]
    fn a_set_is_stored_as_words() {
        let holds: Holds = [Guard::Overlaps, Guard::Budget].into_iter().collect();
        assert_eq!(holds.to_column().as_deref(), Some("budget,overlaps"));
        assert_eq!(Holds::from_column(Some("budget,overlaps")), Some(holds));
        assert_eq!((Holds::NONE.to_column(), Holds::from_column(None)), (None, Some(Holds::NONE)));
        assert_eq!(Holds::from_column(Some("budget,else")), None);
        let mut waived: Holds = [Guard::Approval, Guard::Budget].into_iter().collect();
        waived.waive_budget();
        assert_eq!(waived.to_column().as_deref(), Some("approval,budget_waived"));
        assert_eq!(Holds::from_column(waived.to_column().as_deref()), Some(waived));
        assert!(waived.remove(Guard::Approval) && waived.is_empty() && waived.is_budget_waived());
    }
}
