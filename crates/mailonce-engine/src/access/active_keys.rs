//! Streams, sockets and waits end as soon as their API key is revoked or expires.
//!
//! Twice a second the engine reads each API key with open streams or waits from the store, because another node may
//! have revoked it. One read serves everything that is open under a key.

use crate::access::{Access, caller::Caller};
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

/// How often keys with open streams or waits are checked. Half of the second within which a revocation must end them.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The API keys with open streams or waits.
#[derive(Default)]
pub(crate) struct ActiveKeys(Mutex<HashMap<ApiKeyId, Weak<ActiveKey>>>);

struct ActiveKey {
    hash: [u8; 32],
    revoked: watch::Sender<bool>,
}

/// Notifies its holder when the API key is no longer valid.
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
        let revoked = key.revoked.subscribe();
        KeyRevocation { _key: key, revoked }
    }

    fn upgrade_all(&self) -> Vec<Arc<ActiveKey>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().filter_map(Weak::upgrade).collect()
    }
}

impl KeyRevocation {
    /// Returns once the key is no longer valid.
    pub async fn wait_until_revoked(&mut self) {
        // The sender lives as long as this value, so that only a revocation ends the wait.
        self.revoked.wait_for(|over| *over).await.ok();
    }

    /// Returns a problem once the key is no longer valid.
    pub fn check_valid(&self) -> Result<(), Problem> {
        if *self.revoked.borrow() { Err(invalid_api_key()) } else { Ok(()) }
    }
}

/// The problem for an API key that is unknown or no longer valid.
pub(crate) fn invalid_api_key() -> Problem {
    Problem::new(Code::Unauthorized, "the API key is unknown or no longer valid")
}

impl Access {
    /// Watches the caller's API key while a stream or wait is open under it.
    pub fn subscribe_key_revocation(&self, caller: &Caller) -> KeyRevocation {
        self.active_keys.subscribe(caller.key.id, caller.key.hash)
    }

    /// Ends the streams and waits of keys that are no longer valid.
    pub(crate) async fn check_active_keys(&self) {
        for key in self.active_keys.upgrade_all() {
            match self.is_credential_valid(key.hash).await {
                Ok(true) => {}
                Ok(false) => {
                    key.revoked.send_replace(true);
                }
                // Open streams read from the same store and end when it fails, so nothing more is done here.
                Err(problem) => {
                    tracing::debug!(problem = problem.detail, "cannot check an API key with open streams or waits")
                }
            }
        }
    }

    /// Checks open API keys periodically until the server stops.
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
