//! Access: teams and their API keys.

pub mod call_origin;
pub mod install_secret;
pub mod team;
