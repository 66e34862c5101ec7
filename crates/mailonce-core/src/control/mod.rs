//! Control: what a team limits.
//!
//! | module | what it holds |
//! |---|---|
//! | [`budget`] | how many emails and recipients a team, an inbox or an API key may send in a period |
//! | [`list`] | allow and block lists of addresses and domains |
//! | [`rule`] | rules that block, file, label or hold mail |
//! | [`stop`] | switches that keep email from leaving |

pub mod budget;
pub mod list;
pub mod rule;
pub mod stop;
