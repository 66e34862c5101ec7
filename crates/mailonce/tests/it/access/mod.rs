//! API keys, people, OAuth clients, domains and sources: who may call, and what belongs to whom.

mod api_keys;
mod domains;
mod kek;
pub(super) mod oauth;
mod oidc;
mod people;
mod revoked_api_keys;
mod sources;
pub(super) mod tenant_isolation;
mod tied_keys;
