//! Teams, API keys, people and what a team owns.

pub(crate) mod api_keys;
pub(crate) mod domains;
pub(crate) mod oidc_sign_in;
pub(crate) mod people;
pub(crate) mod sessions;
pub(crate) mod settings;
pub(crate) mod sources;
