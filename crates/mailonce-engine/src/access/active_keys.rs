//! Streams, sockets and waits end as soon as their API key is revoked or expires.
//!
//! The engine checks each API key that something is open under, twice a second, in the store: another node may have
//! revoked it. A key costs one look however much is open under it.

use mailonce_core::{
    id::ApiKeyId,
    problem::{Code, Problem},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};
use tokio::sync::watch;

use crate::{Caller, Engine};

/// How often keys with something open are checked. Half of the second within which a revocation must end it.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The API keys under which something is open.
#[derive(Default)]
pub(crate) struct ActiveKeys(Mutex<HashMap<ApiKeyId, Weak<ActiveKey>>>);

struct ActiveKey {
    hash: [u8; 32],
    revoked: watch::Sender<bool>,
}

/// Tells whoever holds it when the API key no longer counts.
pub struct KeyRevocation {
    _key: Arc<ActiveKey>,
    revoked: watch::Receiver<bool>,
}

impl ActiveKeys {
    fn subscribe(&self, id: ApiKeyId, hash: [u8; 32]) -> KeyRevocation {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(&id).and_then(Weak::upgrade);
        let key = known.unwrap_or_else(|| {
            all.retain(|_, key| key.strong_count() > 0);
            let key = Arc::new(ActiveKey { hash, revoked: watch::Sender::new(false) });
            all.insert(id, Arc::downgrade(&key));
            key
        });
        let over = key.revoked.subscribe();
        KeyRevocation { _key: key, revoked: over }
    }

    fn upgrade_all(&self) -> Vec<Arc<ActiveKey>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().filter_map(Weak::upgrade).collect()
    }
}

impl KeyRevocation {
    /// Returns once the key no longer counts.
    pub async fn wait_until_revoked(&mut self) {
        // The sender lives as long as this watch, so that only a change ends the wait.
        self.revoked.wait_for(|over| *over).await.ok();
    }

    /// Refuses once the key no longer counts.
    pub fn check_valid(&self) -> Result<(), Problem> {
        if *self.revoked.borrow() { Err(invalid_api_key()) } else { Ok(()) }
    }
}

/// What the holder of a key that no longer counts is told.
pub(crate) fn invalid_api_key() -> Problem {
    Problem::new(Code::Unauthorized, "the API key is not known, or no longer valid")
}

impl Engine {
    /// Watches the caller's API key while something is open under it.
    pub fn subscribe_key_revocation(&self, caller: &Caller) -> KeyRevocation {
        self.active_keys.subscribe(caller.key.id, caller.key.hash)
    }

    /// Ends what is open under keys that no longer count.
    pub(crate) async fn check_active_keys(&self) {
        for key in self.active_keys.upgrade_all() {
            match self.store.api_key_by_hash(key.hash).await {
                Ok(found) if found.as_ref().is_some_and(|(found, _)| found.is_active(self.now())) => {}
                Ok(_) => {
                    key.revoked.send_replace(true);
                }
                // What is open reads from the same store and ends when that cannot answer.
                Err(error) => tracing::debug!(%error, "checking an API key that something is open under"),
            }
        }
    }

    /// Ends what is open under API keys soon after they were revoked or expired, until the server stops.
    pub async fn run_revocation_checks(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !*stop.borrow() {
            tokio::select! {
                biased;
                _ = ticks.tick() => self.check_active_keys().await,
                _ = stop.changed() => {}
            }
        }
    }
}
