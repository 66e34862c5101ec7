//! CSS as far as it decides whether text is seen.
//!
//! | file | what it holds |
//! |---|---|
//! | `selector` | selectors, and what matching them may cost |
//! | `media` | conditions of `@media` |
//! | `sheet` | style sheets as rules |
//! | `declaration` | declarations of rules and of `style` attributes |
//! | `property` | the properties that matter, and their shorthands |
//! | `value` | values of properties |
//! | `number`, `colour`, `transform`, `paint` | values by their kind |
//! | `variable` | `var()` |
//! | `matcher` | which rules hold for an element |
//! | `style` | the cascade and computed values |
//! | `scan` | what CSS shows that the text of a page does not say |
//! | `defaults` | what browsers and old attributes set |

pub(super) mod colour;
pub(super) mod declaration;
pub(super) mod defaults;
pub(super) mod matcher;
pub(super) mod media;
pub(super) mod number;
mod paint;
pub(super) mod property;
pub(super) mod scan;
pub(super) mod selector;
pub(super) mod sheet;
pub(super) mod style;
pub(super) mod transform;
pub(super) mod value;
mod variable;

#[cfg(test)]
mod tests;
