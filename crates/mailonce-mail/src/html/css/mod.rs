//! The part of CSS that decides whether text is visible.
//!
//! | file | contents |
//! |---|---|
//! | `selector` | selectors, and the budget for matching them |
//! | `attribute` | searches in attribute values |
//! | `media` | conditions of `@media` |
//! | `sheet` | style sheets parsed into rules |
//! | `declaration` | declarations of rules and of `style` attributes |
//! | `property` | the relevant properties and their shorthands |
//! | `value` | values of properties |
//! | `number`, `colour`, `transform`, `paint` | values by type |
//! | `variable` | substitution of `var()` and `env()` |
//! | `matcher` | which rules match an element |
//! | `style` | the cascade and computed values |
//! | `scan` | CSS that shows content missing from the page's text |
//! | `defaults` | browser defaults and presentational attributes |

mod attribute;
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
