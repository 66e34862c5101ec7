//! Control: what a team limits.
//!
//! | module | what it holds |
//! |---|---|
//! | [`audit`] | who changed what, from where and when, in a hash chain |
//! | [`budget`] | how many emails and recipients may be sent in a period |
//! | [`budget_period`] | minutes, hours, days and months in a team's time zone |
//! | [`contact`] | whom a team mailed before |
//! | [`erasure`] | removing a person's address, names and mail |
//! | [`list`] | allow and block lists of addresses and domains |
//! | [`rule`] | rules that block, file, label or hold mail |
//! | [`stop`] | switches that keep email from leaving |
//! | [`typed_text`] | texts that people typed, in which an erasure replaces an address |

pub mod audit;
pub mod budget;
pub mod budget_period;
pub mod contact;
pub mod erasure;
pub mod list;
pub mod rule;
pub mod stop;
pub mod typed_text;
