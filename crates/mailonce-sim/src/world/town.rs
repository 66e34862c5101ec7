//! The nodes of a world over one ledger, and what happens to them.

use super::body::{Body, Hands, Luck, Skew};
use super::client::team_name;
use super::desk;
use super::hop::Hop;
use super::ledger::Ledger;
use super::mail::{self, Place};
use super::plan::FaultKind;
use super::shared::Shared;
use super::wire::Way;
use mailonce_core::email::{Channel, Email};
use mailonce_core::id::{ApiKeyId, TeamId};
use mailonce_core::port::store::{Store as _, StoreError};
use mailonce_core::port::transport::Transport;
use mailonce_core::team::{AboutApiKey, ApiKey, Scope, Team};
use mailonce_core::time::Time;
use mailonce_engine::ways::{Outside, Routing};
use mailonce_engine::{Caller, Engine};
use mailonce_store::memory::Memory;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// How long a start that failed waits for the next.
const START_AGAIN: Duration = Duration::from_millis(100);

/// One node, in one of its lives.
pub(super) struct Node {
    pub(super) engine: Arc<Engine>,
    pub(super) body: Arc<Body>,
    skew: Arc<Skew>,
    life: u64,
    loops: Vec<JoinHandle<()>>,
    /// Held for as long as the loops are to run.
    _stop: watch::Sender<bool>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.loops.iter().for_each(JoinHandle::abort);
    }
}

/// All nodes, their ledger and their next hops.
pub(super) struct Town {
    pub(super) shared: Arc<Shared>,
    pub(super) store: Arc<Memory>,
    pub(super) hops: Vec<Arc<Hop>>,
    pub(super) nodes: Vec<Node>,
    pub(super) callers: Vec<Caller>,
    /// Inboxes, where mail comes in.
    pub(super) places: Vec<Place>,
}

impl Town {
    /// A town at the beginning of a world.
    pub(super) async fn found(shared: &Arc<Shared>) -> Result<Self, StoreError> {
        let store = Arc::new(Memory::new([7; 32]));
        let watcher = Arc::clone(shared);
        store.watch(Arc::new(move |email: &Email| watcher.watch(email)));
        let hops = shared.plan.hops.iter().enumerate().map(|(n, class)| Hop::new(shared, n, *class)).collect();
        let (nodes, callers, places) = (Vec::new(), Vec::new(), Vec::new());
        let mut town = Self { shared: Arc::clone(shared), store, hops, nodes, callers, places };
        for team in 0..shared.plan.teams {
            let caller = caller(team);
            let _made = town.store.create_team(Team::clone(&caller.team), ApiKey::clone(&caller.key), None).await?;
            town.callers.push(caller);
        }
        let teams: Vec<TeamId> = town.callers.iter().map(|caller| caller.team.id).collect();
        if shared.plan.mails > 0 {
            town.places = mail::open(&town.store, &teams, None).await?;
        }
        if shared.plan.letters > 0 {
            let desk = desk::limits(&shared.plan);
            town.places.extend(mail::open(&town.store, &teams, Some(&desk)).await?);
            let desks = town.places.iter().filter(|place| place.desk);
            desks.for_each(|place| shared.opens(&place.address, desk.clone()));
        }
        for node in 0..shared.plan.nodes {
            let node = town.start(node, 0, Arc::default()).await?;
            town.nodes.push(node);
        }
        Ok(town)
    }

    /// Starts one life of a node.
    async fn start(&self, node: usize, life: u64, skew: Arc<Skew>) -> Result<Node, StoreError> {
        let shared = &self.shared;
        let body = Body::new(shared, node, life, Arc::clone(&skew));
        let moved = life > 0 && shared.strikes(FaultKind::OtherAccount);
        if moved {
            shared.fault(FaultKind::OtherAccount, vec!["nobody".into()]);
        }
        let account = if moved { format!("account-{}", body.name) } else { "account".to_owned() };
        let way = |hop: &Arc<Hop>| {
            let (hop, body, account) = (Arc::clone(hop), Arc::clone(&body), account.clone());
            Arc::new(Way { hop, body, account }) as Arc<dyn Transport>
        };
        let routing = Routing { rules: Vec::new(), default: self.hops.iter().map(|hop| hop.name.clone()).collect() };
        let outside = Outside { transports: self.hops.iter().map(way).collect(), routing, ..Outside::default() };
        let alone = shared.plan.nodes == 1;
        let ledger = Arc::new(Ledger {
            inner: Arc::clone(&self.store),
            body: Arc::clone(&body),
            alone,
            keeper: OnceLock::new(),
        });
        let (clock, luck) = (Arc::new(Hands(Arc::clone(&body))), Arc::new(Luck(Arc::clone(&body))));
        let engine = Engine::new(ledger, clock, luck, outside).await?;
        if engine.time_is_sure() && !shared.plan.has(FaultKind::ClockJump) {
            engine.confirm_time();
        }
        let (stop, stopped) = watch::channel(false);
        let mut loops = vec![
            tokio::spawn(hand_off(Arc::clone(&engine), stopped.clone())),
            tokio::spawn(Arc::clone(&engine).keep_up(stopped.clone())),
        ];
        if shared.plan.has_post() {
            loops.push(tokio::spawn(Arc::clone(&engine).read_mail(stopped)));
        }
        shared.note(|| format!("{} starts", body.name));
        Ok(Node { engine, body, skew, life, loops, _stop: stop })
    }

    /// Starts a node again, if it is dead.
    pub(super) async fn revive(&mut self, node: usize) -> Result<(), StoreError> {
        if self.nodes[node].body.is_dead() {
            let (life, skew) = (self.nodes[node].life + 1, Arc::clone(&self.nodes[node].skew));
            self.nodes[node] = self.start(node, life, skew).await?;
        }
        Ok(())
    }

    /// A node that can be asked, if there is one.
    pub(super) fn any_engine(&self) -> Option<Arc<Engine>> {
        let living: Vec<usize> = (0..self.nodes.len()).filter(|node| !self.nodes[*node].body.is_dead()).collect();
        if living.is_empty() {
            return None;
        }
        Some(Arc::clone(&self.nodes[self.shared.pick(&living)].engine))
    }

    /// What may happen to nodes between two steps.
    pub(super) async fn trouble(&mut self) -> Result<(), StoreError> {
        for node in 0..self.nodes.len() {
            if self.nodes[node].body.is_dead() {
                if self.shared.below(10) < 6 {
                    self.revive(node).await?;
                }
                continue;
            }
            self.read_clock(node);
            let body = &self.nodes[node].body;
            if body.is_paused() && self.shared.below(10) < 6 {
                body.pause(false);
            } else if !body.is_paused() && self.shared.strikes(FaultKind::Pause) {
                body.pause(true);
            }
            if self.shared.strikes(FaultKind::Crash) {
                self.nodes[node].body.die(FaultKind::Crash);
            }
            if self.shared.strikes(FaultKind::ClockJump) {
                let hours = [-30.0, -2.0, -0.025, 0.025, 1.0, 30.0_f64];
                let jump = (self.shared.pick(&hours) * 3_600_000.0) as i64;
                self.shared.fault(FaultKind::ClockJump, Vec::new());
                self.shared.note(|| format!("the clock of node {node} jumps by {jump} ms"));
                self.nodes[node].skew.jump(jump);
            }
            if self.shared.plan.has(FaultKind::ClockJump) && self.shared.below(8) == 0 {
                // An operator sets the clock right and says so.
                self.nodes[node].skew.mend();
                self.nodes[node].engine.confirm_time();
            }
        }
        Ok(())
    }

    /// Asks a node what time it is.
    pub(super) fn read_clock(&self, node: usize) {
        let node = &self.nodes[node];
        self.shared.read_clock(node.body.name.clone(), node.engine.now().0);
        if node.engine.time_is_sure() {
            node.skew.note();
        }
    }

    /// No more faults: everybody lives, and every clock is right.
    pub(super) async fn heal(&mut self) -> Result<(), StoreError> {
        self.shared.calm();
        for node in 0..self.nodes.len() {
            self.nodes[node].skew.mend();
            if self.nodes[node].body.is_paused() {
                self.nodes[node].body.pause(false);
            }
            self.revive(node).await?;
            self.nodes[node].engine.confirm_time();
            self.read_clock(node);
        }
        self.hops.iter().for_each(|hop| hop.catch_up(true));
        Ok(())
    }
}

/// Hands over, as a server does: after it said that it lives and took over from those that do not.
async fn hand_off(engine: Arc<Engine>, stopped: watch::Receiver<bool>) {
    while engine.recover().await.is_err() {
        tokio::time::sleep(START_AGAIN).await;
    }
    engine.hand_off(stopped).await;
}

fn caller(team: usize) -> Caller {
    let id = |kind: u128| Uuid::from_u128((0x7000_8000_0000_0000 << 64) | (kind << 32) | (team as u128 + 1));
    let team_id = TeamId(id(1));
    let about = AboutApiKey {
        name: "world".into(),
        hint: String::new(),
        scopes: Scope::ALL.to_vec(),
        senders: Vec::new(),
        inboxes: Vec::new(),
        rate_per_s: None,
        expires_at: None,
        allow_ips: Vec::new(),
    };
    let key = ApiKey {
        id: ApiKeyId(id(2)),
        team: team_id,
        hash: [team as u8; 32],
        about,
        created_at: Time(0),
        revoked_at: None,
        last_used_at: None,
    };
    let team = Team { id: team_id, name: team_name(team), require_keys: false, created_at: Time(0) };
    Caller { key: Arc::new(key), team: Arc::new(team), channel: Channel::Http, call: None, ties: None }
}
