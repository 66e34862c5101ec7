//! The conformance suite: what every store must do. One function is one promise, and every store must keep all of them.
//!
//! | folder | what it holds |
//! |---|---|
//! | `promises` | the promises by domain, each listed with a one-sentence statement |
//! | `fixtures` | values, steps and opened stores that the promises share |
//! | `random` | random histories that are compared with the memory store |
//! | `search_erasure` | that deleted text leaves the file of SQLite |
//! | `search_speed` | how fast a search is |
//!
//! `docs/promises.md` is generated from the lists ([`page`]). The compiler reports a promise that is missing from its
//! list as dead code. A store that cannot be opened fails its tests; none is skipped.

mod fixtures;
mod page;
mod promises;
mod random;
mod search_erasure;
mod search_speed;

use fixtures::{
    emails::{
        EmailFixture, IDS, SANDBOX, given_key_hash, intent_email, keyed_email, keyless_email, next_id, next_version,
    },
    open_store::OpenStore,
    steps::{
        accept_and_send, accept_batch_items, accept_email, accept_first, accept_replay, all_at_once, all_events,
        cancel_email, capture_due, event_kinds, expect_bound_email, expect_first, keyless_batch, list_all,
        list_all_pages, load_detail, load_email, new_operation,
    },
};
use mailonce_core::{
    access::team::{ApiKey, ApiKeyDetails, CreateTeamResult, Team},
    id::{ApiKeyId, IdGenerator, TeamId},
    operation::IdempotentResult,
    ports::store::Store,
    time::Time,
};
use std::{cell::RefCell, sync::Arc};
use uuid::Uuid;

/// The store under test.
type TestStore = Arc<dyn Store>;

const T0: Time = Time(1_731_628_800_000);
const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

const TEAM: TeamId = TeamId(Uuid::from_u128(0x0193_2cfd_6c00_7000_8000_0000_0000_0001));
const OTHER_TEAM: TeamId = TeamId(Uuid::from_u128(0x0193_2cfd_6c00_7000_8000_0000_0000_0002));

/// Runs a promise on an empty store that has two teams.
async fn check_promise<P: Future<Output = ()>>(open: OpenStore, promise: impl FnOnce(TestStore) -> P) {
    create_teams(&open.store).await;
    Box::pin(IDS.scope(RefCell::new(IdGenerator::default()), promise(open.store.clone()))).await;
    open.store.close().await;
}

/// Creates the two teams that the promises use.
async fn create_teams(store: &TestStore) {
    for (id, name) in [(TEAM, "team"), (OTHER_TEAM, "other")] {
        let team = Team { id, name: name.into(), created_at: T0, require_keys: false };
        let details = ApiKeyDetails {
            name: name.into(),
            hint: "mo_".into(),
            scopes: Vec::new(),
            senders: Vec::new(),
            inboxes: Vec::new(),
            rate_per_s: None,
            expires_at: None,
            allow_ips: Vec::new(),
            on_behalf_of: None,
        };
        let (key, mut hash) = (ApiKeyId(id.0), [0; 32]);
        hash[..16].copy_from_slice(id.0.as_bytes());
        let key = ApiKey { id: key, team: id, hash, details, created_at: T0, revoked_at: None, last_used_at: None };
        assert_eq!(
            store.create_team(team, key, None).await.unwrap(),
            IdempotentResult::Done(CreateTeamResult::Created)
        );
    }
}
