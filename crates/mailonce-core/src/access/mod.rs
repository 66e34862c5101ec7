//! Access: teams, their API keys and their people.

pub mod call_origin;
pub mod connection;
pub mod display_name;
pub mod install_secret;
pub mod oauth_client;
pub mod person;
pub mod team;
