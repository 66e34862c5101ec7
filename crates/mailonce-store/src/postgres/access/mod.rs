//! Teams, API keys and OAuth clients.

pub(crate) mod oauth_clients;
pub(crate) mod teams;
