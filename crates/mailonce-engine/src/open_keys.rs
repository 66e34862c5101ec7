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
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// The API keys under which something is open.
#[derive(Default)]
pub(crate) struct OpenKeys(Mutex<HashMap<ApiKeyId, Weak<OpenKey>>>);

struct OpenKey {
    hash: [u8; 32],
    over: watch::Sender<bool>,
}

/// Tells whoever holds it when the API key no longer counts.
pub struct KeyWatch {
    _key: Arc<OpenKey>,
    over: watch::Receiver<bool>,
}

impl OpenKeys {
    fn open(&self, id: ApiKeyId, hash: [u8; 32]) -> KeyWatch {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(&id).and_then(Weak::upgrade);
        let key = known.unwrap_or_else(|| {
            all.retain(|_, key| key.strong_count() > 0);
            let key = Arc::new(OpenKey { hash, over: watch::Sender::new(false) });
            all.insert(id, Arc::downgrade(&key));
            key
        });
        let over = key.over.subscribe();
        KeyWatch { _key: key, over }
    }

    fn all(&self) -> Vec<Arc<OpenKey>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().filter_map(Weak::upgrade).collect()
    }
}

impl KeyWatch {
    /// Returns once the key no longer counts.
    pub async fn over(&mut self) {
        // The sender lives as long as this watch, so that only a change ends the wait.
        self.over.wait_for(|over| *over).await.ok();
    }

    /// Refuses once the key no longer counts.
    pub fn check(&self) -> Result<(), Problem> {
        if *self.over.borrow() { Err(key_refused()) } else { Ok(()) }
    }
}

/// What the holder of a key that no longer counts is told.
pub(crate) fn key_refused() -> Problem {
    Problem::new(Code::Unauthorized, "the API key is not known, or no longer valid")
}

impl Engine {
    /// Watches the caller's API key while something is open under it.
    pub fn watch_key(&self, caller: &Caller) -> KeyWatch {
        self.open_keys.open(caller.key.id, caller.key.hash)
    }

    /// Ends what is open under keys that no longer count.
    pub(crate) async fn check_open_keys(&self) {
        for key in self.open_keys.all() {
            match self.store.api_key_by_hash(key.hash).await {
                Ok(found) if found.as_ref().is_some_and(|(found, _)| found.is_live(self.now())) => {}
                Ok(_) => {
                    key.over.send_replace(true);
                }
                // What is open reads from the same store and ends when that cannot answer.
                Err(error) => tracing::debug!(%error, "checking an API key that something is open under"),
            }
        }
    }

    /// Ends what is open under API keys soon after they were revoked or expired, until the server stops.
    pub async fn end_what_revoked_keys_opened(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(CHECK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !*stop.borrow() {
            tokio::select! {
                biased;
                _ = ticks.tick() => self.check_open_keys().await,
                _ = stop.changed() => {}
            }
        }
    }
}
