//! Teams, API keys and what a team owns.

pub(crate) mod api_keys;
pub(crate) mod domains;
pub(crate) mod settings;
pub(crate) mod sources;
