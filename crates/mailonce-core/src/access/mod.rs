//! Access: teams, their API keys and their people.

pub mod call_origin;
pub mod install_secret;
pub mod person;
pub mod team;
