//! Access: teams and their API keys.

pub mod team;
