//! Repeated failovers to a synchronous standby under load.
//!
//! Two nodes share a primary with a synchronous standby. Senders retry each key until it is acknowledged, and repeat
//! acknowledged keys, an SMTP sink counts the copies of each mail, and a reader of events on each node resumes by its
//! cursor. Meanwhile the primary is lost and the standby promoted. In some rounds the standby stops first and an
//! operator cancels the wait of commits for it: those are visible on the primary, and lost with it.
//!
//! No acknowledged email may be lost, no mail sent twice, and a reader gets every event or `410 cursor_reset`.
//!
//! | file | what it holds |
//! |---|---|
//! | [`clients`] | senders and readers |
//! | [`campaign`] | rounds and their results |

pub mod campaign;
pub mod clients;
