//! The part of CSS that decides whether text is visible.
//!
//! | file | contents |
//! |---|---|
//! | `selector` | selectors and their parser |
//! | `element_ref` | how selectors match elements |
//! | `work_budget` | the budget for matching and the cascade |
//! | `reader` | the readers that a page is evaluated for |
//! | `attribute` | searches in attribute values |
//! | `media` | conditions of `@media` |
//! | `sheet` | style sheets parsed into rules |
//! | `declaration` | declarations of rules and of `style` attributes |
//! | `property` | the relevant properties and their shorthands |
//! | `value` | computed values |
//! | `longhand`, `shorthand` | parsers of the values of properties |
//! | `token` | reads tokens for the other parsers |
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
mod element_ref;
mod longhand;
pub(super) mod matcher;
pub(super) mod media;
pub(super) mod number;
mod paint;
pub(super) mod property;
pub(super) mod reader;
pub(super) mod scan;
pub(super) mod selector;
pub(super) mod sheet;
mod shorthand;
pub(super) mod style;
mod token;
pub(super) mod transform;
pub(super) mod value;
mod variable;
pub(super) mod work_budget;

#[cfg(test)]
mod tests;
