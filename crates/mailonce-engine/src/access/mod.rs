//! Teams, API keys and what a team owns: domains, sources, settings and secrets.

pub mod active_keys;
pub mod api_keys;
pub mod domains;
pub mod inbox_restriction;
pub mod kek;
pub mod settings;
pub(crate) mod source_credentials;
pub mod sources;
pub(crate) mod vault;
