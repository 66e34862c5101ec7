//! Access: teams and their API keys.

pub mod install_secret;
pub mod team;
