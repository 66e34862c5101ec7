//! The readers that a page is evaluated for: their devices, mail clients and actions.

use std::rc::Rc;

/// The reader that a page is evaluated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::html) enum Reader<'a> {
    /// Reads on a screen with light colours, and does not touch anything.
    Usual,
    /// Has a screen, or a printer, for which this condition holds.
    Condition(&'a str),
    /// Points at elements and clicks on them.
    Interacting,
    /// Reads in Outlook with dark colours, which marks elements with attributes.
    OutlookDark,
    /// Reads in Gmail, which turns the body into a `div` behind an empty `u`, and adds elements with its own classes.
    Gmail,
    /// Sees the elements during their animations.
    Animated(AnimationStep),
    /// All of them at once.
    All,
}

/// A part of an animation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::html) enum AnimationStep {
    Start,
    Middle,
    End,
}

impl Reader<'_> {
    /// Whether rules apply that have these conditions.
    pub(in crate::html) fn conditions_apply(self, conditions: &[Rc<str>]) -> bool {
        match self {
            _ if conditions.is_empty() => true,
            Self::All => true,
            Self::Condition(met) => conditions.iter().any(|condition| **condition == *met),
            _ => false,
        }
    }
}
