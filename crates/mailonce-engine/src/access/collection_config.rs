//! The credentials and settings with which a source's mail is fetched.

use crate::{access::Sources, runtime::vault::SecretLocation};
use mailonce_core::{
    id::TeamId,
    inbound::provider_mail::ProviderAccount,
    problem::{Code, Problem},
};
use mailonce_mail::hooks::Kind;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The allowed polling intervals, in milliseconds.
const POLL_INTERVAL_MS: std::ops::RangeInclusive<i64> = 10_000..=86_400_000;

/// How mail is fetched from a source's provider, as a caller configures it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionConfig {
    /// The credential for the provider's API.
    pub api_key: Option<String>,
    /// The base URL of the provider's API, when it is not the default.
    pub base_url: Option<String>,
    /// The polling interval, in milliseconds. Without one, the provider is not polled.
    pub poll_ms: Option<i64>,
}

/// The stored form of a [`CollectionConfig`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredCollectionConfig {
    /// The credential, sealed.
    pub(crate) sealed: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) poll_ms: Option<i64>,
}

/// Where the API key of a source is stored. It has its own purpose, so that no other secret opens in its place.
pub(crate) fn api_key_location(team: TeamId, record: Uuid) -> SecretLocation {
    SecretLocation { team, record, purpose: "collect" }
}

impl Sources {
    /// Checks a configuration and seals its credential. `None` when the configuration is empty.
    pub(crate) fn seal_collection_config(
        &self,
        team: TeamId,
        id: Uuid,
        kind: Kind,
        config: &CollectionConfig,
    ) -> Result<Option<StoredCollectionConfig>, Problem> {
        let CollectionConfig { api_key, base_url, poll_ms } = config.clone();
        let Some(api_key) = api_key else {
            return match (base_url, poll_ms) {
                (None, None) => Ok(None),
                (Some(_), _) => Err(Problem::invalid_field("base_url", "is only allowed with `api_key`")),
                (None, Some(_)) => Err(Problem::invalid_field("poll_interval", "is only allowed with `api_key`")),
            };
        };
        if !kind.can_fetch_mail() {
            return Err(Problem::invalid_field(
                "api_key",
                format!("is not allowed: mail cannot be fetched from {kind}"),
            ));
        }
        if api_key.trim().is_empty() || !api_key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Problem::invalid_field("api_key", "must be printable ASCII without spaces"));
        }
        if poll_ms.is_some() && !kind.can_list_mail() {
            return Err(Problem::invalid_field(
                "poll_interval",
                format!("is not allowed: {kind} cannot list received mail"),
            ));
        }
        if poll_ms.is_some_and(|ms| !POLL_INTERVAL_MS.contains(&ms)) {
            return Err(Problem::invalid_field("poll_interval", "must be between 10s and 1d"));
        }
        let account = ProviderAccount { provider: kind.as_str(), api_key, base_url };
        self.ctx.deps.mail_collector.check_account(&account).map_err(|why| Problem::invalid_field("base_url", why))?;
        let sealed = self.ctx.seal_secret(api_key_location(team, id), account.api_key.as_bytes());
        let sealed = sealed.ok_or_else(|| Problem::new(Code::Internal, "the credential could not be encrypted"))?;
        Ok(Some(StoredCollectionConfig { sealed, base_url: account.base_url, poll_ms }))
    }
}
