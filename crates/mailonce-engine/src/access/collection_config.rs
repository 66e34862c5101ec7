//! The credentials and settings with which a source's mail is fetched.

use crate::{
    access::Access,
    runtime::{problems::invalid_field, vault::SecretLocation},
};
use mailonce_core::{
    id::TeamId,
    inbound::provider_mail::ProviderAccount,
    problem::{Code, Problem},
};
use mailonce_mail::hooks::Kind;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
/// How often a source may be asked which mails came, in milliseconds.
const POLL_INTERVAL_MS: std::ops::RangeInclusive<i64> = 10_000..=86_400_000;

/// How mail is collected from a source's provider, as a call says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionConfig {
    /// The credential.
    pub api_key: Option<String>,
    /// Where the provider's API begins, when it is not the usual place.
    pub base_url: Option<String>,
    /// How often it is asked which mails came, in milliseconds. Never without.
    pub poll_ms: Option<i64>,
}

/// The same as the ledger keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredCollectionConfig {
    /// The credential, sealed.
    pub(crate) sealed: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) poll_ms: Option<i64>,
}

fn secret_location(team: TeamId, record: Uuid) -> SecretLocation {
    SecretLocation { team, record, purpose: "collect" }
}

impl Access {
    /// What is kept of how mail is collected, checked and sealed. `None` when nothing is said of it.
    pub(crate) fn seal_collection_config(
        &self,
        (team, id): (TeamId, Uuid),
        kind: Kind,
        asked: &CollectionConfig,
    ) -> Result<Option<StoredCollectionConfig>, Problem> {
        let CollectionConfig { api_key, base_url, poll_ms } = asked.clone();
        let Some(api_key) = api_key else {
            return match (base_url, poll_ms) {
                (None, None) => Ok(None),
                (Some(_), _) => Err(invalid_field("base_url", "is where mail is fetched, which needs an api_key")),
                (None, Some(_)) => Err(invalid_field("poll_interval", "needs an api_key to ask with")),
            };
        };
        if !kind.can_fetch_mail() {
            return Err(invalid_field("api_key", format!("is for mail that is fetched, and none is from {kind}")));
        }
        if api_key.trim().is_empty() || !api_key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(invalid_field("api_key", "is printable ASCII without spaces"));
        }
        if poll_ms.is_some() && !kind.can_list_mail() {
            return Err(invalid_field("poll_interval", format!("is not for {kind}, which is not asked for a list")));
        }
        if poll_ms.is_some_and(|ms| !POLL_INTERVAL_MS.contains(&ms)) {
            return Err(invalid_field("poll_interval", "is a span between 10s and 1d"));
        }
        let account = ProviderAccount { provider: kind.as_str(), api_key, base_url };
        self.ctx.deps.mail_collector.check_account(&account).map_err(|why| invalid_field("base_url", why))?;
        let sealed = self.ctx.seal_secret(secret_location(team, id), account.api_key.as_bytes());
        let sealed = sealed.ok_or_else(|| Problem::new(Code::Internal, "the credential could not be sealed"))?;
        Ok(Some(StoredCollectionConfig { sealed, base_url: account.base_url, poll_ms }))
    }
}
