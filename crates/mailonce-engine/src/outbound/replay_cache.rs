//! The replay cache: the emails of recently used keys, so that a storm of retries is answered without the store.
//!
//! It answers only when the store reports every change to this process. An email leaves the cache before a commit
//! changes it, and returns after the commit. A replay therefore never shows an older state than another reader has
//! seen. Each shard has two generations; when the young one is full, the old one is dropped.

use mailonce_core::{
    id::{EmailId, MessageId, ThreadId},
    key::{EmailKey, KeyHash},
    outbound::{
        digest::Digest,
        email::{Email, EmailState, Guard},
        holds::Holds,
    },
    ports::store::EmailSubscriber,
    time::Time,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

const SHARDS: usize = 16;
const PER_GENERATION: usize = 2_048;

/// The fields of an email that a receipt needs. Kept small because thousands are cached, and freeing an evicted one
/// touches cold memory.
#[derive(Clone, Debug)]
pub(crate) struct CachedEmail {
    pub(crate) id: EmailId,
    pub(crate) rev: u32,
    pub(crate) state: EmailState,
    pub(crate) expires_at: Option<Time>,
    pub(crate) guard: Option<Guard>,
    pub(crate) holds: Holds,
    pub(crate) bind_number: u32,
    pub(crate) from: Box<str>,
    pub(crate) key: Option<EmailKey>,
    pub(crate) created_at: Time,
    pub(crate) in_reply_to: Option<MessageId>,
    pub(crate) thread: Option<ThreadId>,
    pub(crate) is_confirmable: bool,
    pub(crate) resent_as: Option<EmailId>,
    pub(crate) digest: Digest,
    pub(crate) ttl_ms: i64,
    pub(crate) suppressed: u64,
}

impl From<&Email> for CachedEmail {
    fn from(email: &Email) -> Self {
        Self {
            id: email.id,
            rev: email.rev,
            state: email.state(),
            expires_at: email.expires_at(),
            guard: email.guard,
            holds: email.holds,
            bind_number: email.bind_number,
            from: email.head.from.as_str().into(),
            key: email.head.key.clone(),
            created_at: email.head.created_at,
            in_reply_to: email.head.answers,
            thread: email.head.thread,
            is_confirmable: email.may_sender_confirm(),
            resent_as: email.resent_as,
            digest: email.digest.clone(),
            ttl_ms: email.ttl.0,
            suppressed: email.suppressed,
        }
    }
}

impl CachedEmail {
    /// Whether it is a held look-alike that its sender may confirm.
    pub(crate) fn is_held_look_alike(&self) -> bool {
        self.state == EmailState::Held && self.holds.contains(Guard::LooksDuplicate) && self.is_confirmable
    }

    /// Whether its key has not expired.
    pub(crate) fn is_remembered(&self, now: Time) -> bool {
        self.expires_at.is_none_or(|at| now < at)
    }
}

#[derive(Default)]
struct ReplayCacheShard {
    young: HashMap<KeyHash, Arc<CachedEmail>>,
    old: HashMap<KeyHash, Arc<CachedEmail>>,
}

/// Recently used keys and their emails.
#[derive(Default)]
pub(crate) struct ReplayCache {
    shards: [Mutex<ReplayCacheShard>; SHARDS],
}

impl ReplayCache {
    fn shard(&self, key: KeyHash) -> MutexGuard<'_, ReplayCacheShard> {
        let at = usize::from(key.0[0]) % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, key: KeyHash, cached: Arc<CachedEmail>) {
        let mut shard = self.shard(key);
        // An older binding of the key may still change, and an older state may arrive late. Neither replaces a newer
        // entry.
        let newer = |known: &Arc<CachedEmail>| (known.bind_number, known.rev) > (cached.bind_number, cached.rev);
        if shard.young.get(&key).is_some_and(newer) || shard.old.get(&key).is_some_and(newer) {
            return;
        }
        if shard.young.len() >= PER_GENERATION && !shard.young.contains_key(&key) {
            // The maps swap places, so that both keep their capacity.
            let ReplayCacheShard { young, old } = &mut *shard;
            std::mem::swap(young, old);
            young.clear();
        }
        shard.young.insert(key, cached);
    }

    /// Drops an email that is about to change. An entry for another binding of the key stays.
    fn evict(&self, key: KeyHash, id: EmailId) {
        let ReplayCacheShard { young, old } = &mut *self.shard(key);
        for generation in [young, old] {
            if generation.get(&key).is_some_and(|known| known.id == id) {
                generation.remove(&key);
            }
        }
    }

    /// The email of a key, if it is cached and the key has not expired.
    pub(crate) fn get(&self, key: KeyHash, now: Time) -> Option<Arc<CachedEmail>> {
        let mut shard = self.shard(key);
        if let Some(found) = shard.young.get(&key) {
            return Some(Arc::clone(found)).filter(|cached| cached.is_remembered(now));
        }
        let found = shard.old.remove(&key)?;
        if shard.young.len() < PER_GENERATION {
            shard.young.insert(key, Arc::clone(&found));
        }
        Some(found).filter(|cached| cached.is_remembered(now))
    }
}

impl EmailSubscriber for ReplayCache {
    fn before_commit(&self, email: &Email) {
        if let Some(name) = &email.head.key {
            self.evict(name.hash(email.team), email.id);
        }
    }

    fn after_commit(&self, email: &Email) {
        if let Some(name) = &email.head.key {
            self.put(name.hash(email.team), Arc::new(CachedEmail::from(email)));
        }
    }
}
