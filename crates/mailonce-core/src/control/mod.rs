//! Control: what a team limits.
//!
//! | file | what it holds |
//! |---|---|
//! | [`budget`] | how many mails and recipients a team, an inbox or an API key may send in a period |

pub mod budget;
pub mod list;
pub mod rule;
