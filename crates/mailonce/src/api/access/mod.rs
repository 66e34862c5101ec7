//! Teams, API keys, people and what a team owns.

pub(crate) mod api_keys;
pub(crate) mod connections;
pub(crate) mod domains;
mod oauth_authorize;
pub(crate) mod oauth_clients;
mod oauth_consent_page;
mod oauth_error;
pub(crate) mod oauth_metadata;
pub(crate) mod oauth_tokens;
pub(crate) mod oidc_sign_in;
pub(crate) mod people;
pub(crate) mod sessions;
pub(crate) mod settings;
pub(crate) mod sources;
