//! The guards that hold an email. Each is removed by its own cause, and the email leaves when none is left.

use serde::{Serialize, Serializer};

use crate::outbound::email::Guard;

/// Every guard that can hold an email. The first that holds it is shown as its `guard`.
const HOLDING_GUARDS: [Guard; 5] = [Guard::Approval, Guard::Budget, Guard::Cap, Guard::Overlaps, Guard::LooksDuplicate];

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
        self.0 == 0
    }

    /// [`Holds::is_empty`] by reference, for serde.
    pub fn is_empty_ref(&self) -> bool {
        self.is_empty()
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
        let words: Vec<&str> = self.iter().map(Guard::as_str).collect();
        (!words.is_empty()).then(|| words.join(","))
    }

    /// Reads what [`Holds::to_column`] wrote. `None` for a word that names no guard.
    pub fn from_column(words: Option<&str>) -> Option<Self> {
        words.map_or(Some(Self::NONE), |words| words.split(',').map(Guard::parse).collect())
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
    }
}
