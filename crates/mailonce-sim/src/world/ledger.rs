//! The store as one life of a node sees it: the model behind errors, lost answers and the node's own end.

use super::body::Body;
use super::plan::FaultKind;
use async_trait::async_trait;
use mailonce_core::{
    control::budget::Counter,
    dispatch::Act,
    email::Email,
    event::Event,
    id::{ApiKeyId, EmailId, NodeId, TeamId},
    key::KeyHash,
    mutant,
    port::store::{
        Accept, AcceptBatch, Acted, Backlog, BatchWish, Bound, Change, DatabaseClock, EmailDetail, EmailQuery, Founded,
        Gauges, Health, Heartbeat, Install, Keeper, KeyChange, KeyView, LeaseWish, Leased, NewDue, Once, Operation,
        Orphans, Page, Recovered, Resend, Result, Store, StoreError, Suppressed, Swept, TransportAccount, Watcher,
        Wish,
    },
    record::{Created, Record, RecordChange, RecordEdit, RecordKind, RecordPage},
    team::{ApiKey, Team},
    time::Time,
    ttl::Ttl,
};
use mailonce_store::memory::Memory;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use uuid::Uuid;

/// Of 100 calls so many take a moment, so that others come between.
const SLOW: u64 = 25;

/// The store of one life.
pub(super) struct Ledger {
    pub(super) inner: Arc<Memory>,
    pub(super) body: Arc<Body>,
    /// Whether no other node works on the same ledger.
    pub(super) alone: bool,
    /// Who tells this life the time of its commits.
    pub(super) keeper: OnceLock<Keeper>,
}

impl Ledger {
    /// Carries a verb out, with whatever can go wrong on the way there and back.
    pub(super) async fn verb<T>(
        &self,
        name: &'static str,
        writes: bool,
        verb: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let shared = &self.body.shared;
        self.body.pass().await;
        if shared.below(100) < SLOW {
            tokio::time::sleep(Duration::from_millis(shared.between(1, 4))).await;
            self.body.pass().await;
        }
        shared.note(|| format!("{} {name}", self.body.name));
        if shared.strikes(FaultKind::StoreDown) {
            shared.fault(FaultKind::StoreDown, vec!["nobody".into()]);
            return Err(StoreError::Unreachable("nobody answers".into()));
        }
        if let Some(keeper) = self.keeper.get() {
            // The model serves every life; it is told whose clock counts.
            self.inner.keep_time(Arc::clone(keeper));
        }
        let answer = verb.await;
        if shared.below(100) < SLOW {
            tokio::time::sleep(Duration::from_millis(shared.between(1, 4))).await;
        }
        self.body.pass().await;
        if writes && shared.strikes(FaultKind::LostCommit) {
            shared.fault(FaultKind::LostCommit, vec!["nobody".into()]);
            return Err(StoreError::Unknown("the answer to the commit was lost".into()));
        }
        answer
    }
}

impl Ledger {
    /// A ledger that several nodes share is a database on another host, whose clock is right.
    fn database_clock(&self) -> Option<DatabaseClock> {
        let clock = DatabaseClock { now: Time(self.body.shared.now()), other_host: true };
        (!self.alone).then_some(clock)
    }
}

/// Wrong turns that a store could take.
impl Ledger {
    /// Answers that an email is accepted, and commits a little later.
    async fn promise(&self, wish: Wish, now: Time) -> Result<Accept> {
        self.body.pass().await;
        if let Some(bound) = self.bound(wish.team, wish.key.unwrap_or(KeyHash([0; 16])), now).await? {
            return Ok(Accept::Bound(bound));
        }
        let (inner, body, later) = (Arc::clone(&self.inner), Arc::clone(&self.body), wish.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            body.pass().await;
            inner.accept(later, now).await.map(drop)
        });
        let bind = u32::from(wish.key.is_some());
        Ok(Accept::First(wish.become_email(bind, None, now).0))
    }

    /// Answers that an act is written down, and writes nothing.
    async fn pretend(&self, team: TeamId, id: EmailId, act: &Act, now: Time) -> Result<Once<Acted>> {
        let Some(mut email) = self.email(team, id).await? else { return Ok(Once::Done(Acted::Missing)) };
        let verdict = email.act(act, now).verdict;
        Ok(Once::Done(Acted::Email(verdict, email)))
    }
}

/// Writes the port out: each verb passes through [`Ledger::verb`].
macro_rules! ledger {
    (
        writes { $(fn $write:ident($($warg:ident: $wtype:ty),*) -> $wout:ty;)* }
        reads { $(fn $read:ident($($rarg:ident: $rtype:ty),*) -> $rout:ty;)* }
        wrong { $($wrong:item)* }
    ) => {
        #[async_trait]
        impl Store for Ledger {
            $(async fn $write(&self, $($warg: $wtype),*) -> Result<$wout> {
                self.verb(stringify!($write), true, self.inner.$write($($warg),*)).await
            })*
            $(async fn $read(&self, $($rarg: $rtype),*) -> Result<$rout> {
                self.verb(stringify!($read), false, self.inner.$read($($rarg),*)).await
            })*
            $($wrong)*

            async fn install(&self) -> Result<Install> {
                Ok(Install { database: self.database_clock(), ..self.inner.install().await? })
            }

            fn epoch(&self) -> Option<u32> {
                self.inner.epoch()
            }

            fn stopped(&self) -> Option<StoreError> {
                None
            }

            fn gauges(&self) -> Gauges {
                self.inner.gauges()
            }

            fn watch(&self, watcher: Watcher) -> bool {
                self.alone && self.inner.watch(watcher)
            }

            fn keep_time(&self, keeper: Keeper) {
                self.keeper.set(keeper).ok();
            }

            async fn close(&self) {}
        }
    };
}

ledger! {
    writes {
        fn accept_batch(batch: BatchWish, now: Time) -> AcceptBatch;
        fn bind_operation(operation: Operation, now: Time) -> Once<()>;
        fn cancel(team: TeamId, id: EmailId, operation: Option<Operation>, now: Time) -> Once<Change>;
        fn reschedule(team: TeamId, id: EmailId, new: NewDue, now: Time) -> Change;
        fn resend(wish: Wish, operation: Option<Operation>, now: Time) -> Once<Resend>;
        fn capture(transport: &str, max: usize, scheduled_by: Option<Time>, now: Time) -> usize;
        fn note_suppressed(calls: Vec<Suppressed>, now: Time) -> ();
        fn recover(node: NodeId, max: usize, now: Time) -> Recovered;
        fn publish_transports(node: NodeId, mine: &[TransportAccount], now: Time) -> ();
        fn extend_key(team: TeamId, key: KeyHash, ttl: Ttl, now: Time) -> KeyChange;
        fn forget_key(team: TeamId, key: KeyHash, now: Time) -> KeyChange;
        fn create_team(team: Team, key: ApiKey, operation: Option<Operation>) -> Once<Founded>;
        fn set_require_keys(team: TeamId, require: bool) -> Option<Team>;
        fn create_api_key(key: ApiKey, operation: Option<Operation>) -> Once<()>;
        fn revoke_api_key(team: TeamId, id: ApiKeyId, now: Time) -> Option<ApiKey>;
        fn touch_api_keys(used: Vec<(ApiKeyId, Time)>) -> ();
        fn create_record(record: Record, operation: Option<Operation>) -> Once<Created>;
        fn change_record(edit: RecordEdit, operation: Option<Operation>, now: Time) -> Once<RecordChange>;
        fn remove_record(team: TeamId, kind: RecordKind, id: Uuid) -> Option<Record>;
        fn sweep(max: usize, now: Time) -> Swept;
    }
    reads {
        fn bound(team: TeamId, key: KeyHash, now: Time) -> Option<Bound>;
        fn next_due(transport: &str) -> Option<Time>;
        fn leased(team: TeamId, id: EmailId, number: u16) -> Option<Leased>;
        fn doubts(mine: &[TransportAccount], max: usize, now: Time) -> Vec<(Email, u16)>;
        fn orphans(known: &[String], now: Time) -> Vec<Orphans>;
        fn open_at(transport: &str, after: Option<(TeamId, EmailId)>, limit: usize) -> Vec<(TeamId, EmailId)>;
        fn by_remote_id(team: TeamId, remote_id: &str) -> Option<(EmailId, u16)>;
        fn backlog() -> Backlog;
        fn email(team: TeamId, id: EmailId) -> Option<Email>;
        fn email_detail(team: TeamId, id: EmailId) -> Option<EmailDetail>;
        fn emails(team: TeamId, query: EmailQuery) -> Page<Email>;
        fn count_emails(team: TeamId, from: EmailId, to: EmailId) -> u64;
        fn stuck(after: Option<(TeamId, EmailId)>, limit: usize) -> Vec<Email>;
        fn events(team: TeamId, after: u64, limit: usize) -> Vec<Event>;
        fn key(team: TeamId, key: KeyHash, now: Time) -> Option<KeyView>;
        fn teams() -> Vec<Team>;
        fn api_keys(team: TeamId) -> Vec<ApiKey>;
        fn api_key_by_hash(hash: [u8; 32]) -> Option<(ApiKey, Team)>;
        fn record(team: TeamId, kind: RecordKind, id: Uuid) -> Option<Record>;
        fn budget_usage(team: TeamId, counters: Vec<Counter>) -> Vec<u64>;
        fn record_named(team: TeamId, kind: RecordKind, name: &str) -> Option<Record>;
        fn record_anywhere(kind: RecordKind, id: Uuid) -> Option<Record>;
        fn records(team: TeamId, kind: RecordKind, before: Option<Uuid>, limit: usize) -> RecordPage;
        fn health() -> Health;
    }
    wrong {
        async fn accept(&self, wish: Wish, now: Time) -> Result<Accept> {
            self.body.shared.tell_time(now);
            if mutant::is_on("answered-before-commit") {
                return self.promise(wish, now).await;
            }
            let noted = async {
                let accept = self.inner.accept(wish, now).await?;
                self.body.shared.accepted(&accept, now);
                Ok(accept)
            };
            self.verb("accept", true, noted).await
        }

        async fn lease(&self, wish: LeaseWish, now: Time) -> Result<Vec<Leased>> {
            self.body.leases_as(wish.node);
            self.verb("lease", true, self.inner.lease(wish, now)).await
        }

        async fn act(
            &self,
            team: TeamId,
            id: EmailId,
            act: Act,
            operation: Option<Operation>,
            now: Time,
        ) -> Result<Once<Acted>> {
            if mutant::is_on("marker-forgotten") && matches!(act, Act::Mark { .. }) {
                return self.pretend(team, id, &act, now).await;
            }
            self.verb(name_of(&act), true, self.inner.act(team, id, act, operation, now)).await
        }

        async fn heartbeat(&self, node: NodeId, now: Time) -> Result<Heartbeat> {
            self.body.leases_as(node);
            self.body.shared.tell_time(now);
            let heard = async {
                let heard = self.inner.heartbeat(node, now).await?;
                Ok(Heartbeat { database: self.database_clock(), ..heard })
            };
            self.verb("heartbeat", true, heard).await
        }
    }
}

fn name_of(act: &Act) -> &'static str {
    match act {
        Act::Mark { .. } => "mark",
        Act::Park { .. } => "park",
        Act::Settle { .. } => "settle",
        Act::Crash { .. } => "give back",
        Act::Repeat { .. } => "repeat",
        Act::Wait { .. } => "wait",
        Act::ResendByPolicy { .. } => "resend by policy",
        Act::Fact(_) => "fact",
        Act::Resolve { .. } => "resolve",
        Act::Reroute { .. } => "reroute",
        Act::Redirect { .. } => "redirect",
        Act::Orphan { .. } => "orphan",
        Act::GiveUpOrphan { .. } => "give up orphan",
        Act::Relocate { .. } => "relocate",
        Act::Release => "release",
    }
}
