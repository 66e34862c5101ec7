//! Teams, API keys, people and what a team owns: domains, sources, settings and secrets.

pub mod active_keys;
pub mod api_key_names;
pub mod api_keys;
pub(crate) mod approval_sender;
pub mod caller;
pub mod collection_config;
pub mod compat_settings;
pub mod connections;
pub mod domains;
pub mod external_sign_in;
pub mod inbox_restriction;
pub mod kek;
pub mod oauth_clients;
pub mod oauth_tokens;
pub mod people;
pub(crate) mod poll_cursor;
pub(crate) mod sending_domains;
pub mod sessions;
pub mod settings;
pub(crate) mod source_credentials;
pub mod sources;

use std::sync::Arc;

use crate::runtime::context::Context;

/// Authenticates callers, and manages API keys and settings of teams.
pub struct Access {
    ctx: Arc<Context>,
    credentials: api_keys::CredentialCache,
    /// API keys with open streams or waits.
    active_keys: active_keys::ActiveKeys,
    settings_cache: settings::SettingsCache,
    /// Sending domains.
    pub domains: Domains,
}

impl Access {
    pub(crate) fn new(ctx: Arc<Context>) -> Self {
        Self {
            credentials: api_keys::CredentialCache::new(ctx.is_single_node),
            active_keys: active_keys::ActiveKeys::default(),
            settings_cache: settings::SettingsCache::default(),
            domains: Domains::new(Arc::clone(&ctx)),
            ctx,
        }
    }

    /// A keyed hash of a call's content. A plain hash in the ledger would allow offline guesses of a secret in the
    /// call.
    pub fn call_digest(&self, content: &[u8]) -> [u8; 32] {
        self.ctx.secret.mac("meaning", &[content])
    }
}

/// Sending domains of teams: adds and verifies them, and signs mail with their keys.
pub struct Domains {
    ctx: Arc<Context>,
    signing_cache: sending_domains::SigningDomainCache,
    /// Held while a DKIM key is generated.
    key_generation: tokio::sync::Mutex<()>,
}

impl Domains {
    fn new(ctx: Arc<Context>) -> Self {
        Self {
            ctx,
            signing_cache: sending_domains::SigningDomainCache::default(),
            key_generation: tokio::sync::Mutex::default(),
        }
    }
}

/// People of a team: who they are, how they sign in, and their sessions.
pub struct People {
    ctx: Arc<Context>,
    access: Arc<Access>,
}

impl People {
    pub(crate) fn new(ctx: Arc<Context>, access: Arc<Access>) -> Self {
        Self { ctx, access }
    }
}

/// Clients that people connected over OAuth, and their tokens.
pub struct Connections {
    ctx: Arc<Context>,
    access: Arc<Access>,
}

impl Connections {
    pub(crate) fn new(ctx: Arc<Context>, access: Arc<Access>) -> Self {
        Self { ctx, access }
    }
}

/// Providers that send events and mail to a team.
pub struct Sources {
    ctx: Arc<Context>,
}

impl Sources {
    pub(crate) fn new(ctx: Arc<Context>) -> Self {
        Self { ctx }
    }
}
