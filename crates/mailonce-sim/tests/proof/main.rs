//! Tests of the checker: a correct history has no violations, and every forged one has the expected violation.
//!
//! Each rule has a forgery; `every_rule_detects_a_forged_history` counts them.

#[cfg(test)]
mod accepts;
#[cfg(test)]
mod claims;
#[cfg(test)]
mod conversations;
#[cfg(test)]
mod copies;
#[cfg(test)]
mod events;
#[cfg(test)]
mod inbound;
#[cfg(test)]
mod unfinished_work;
#[cfg(test)]
mod valid_history;
