//! Control: what a team limits.
//!
//! | module | what it holds |
//! |---|---|
//! | [`audit`] | who changed what, from where and when, in a hash chain |
//! | [`budget`] | how many emails and recipients a team, an inbox or an API key may send in a period |
//! | [`list`] | allow and block lists of addresses and domains |
//! | [`rule`] | rules that block, file, label or hold mail |
//! | [`stop`] | switches that keep email from leaving |

pub mod audit;
pub mod budget;
pub mod list;
pub mod rule;
pub mod stop;
