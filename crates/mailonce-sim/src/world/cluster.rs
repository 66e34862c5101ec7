//! The nodes of a world over one ledger, and the faults that affect them.

use super::plan::FaultKind;
use crate::world::clients::team_name;
use crate::world::code_mail::{self, SimulatedInbox};
use crate::world::conversation_mail;
use crate::world::next_hop::SimulatedHop;
use crate::world::node_process::{ClockSkew, NodeProcess, SimulatedClock, SimulatedEntropy};
use crate::world::store::FaultyStore;
use crate::world::transport::SimulatedTransport;
use crate::world::world_state::WorldState;
use mailonce_core::access::team::{ApiKey, ApiKeyDetails, ApiKeyScope, Team};
use mailonce_core::id::{ApiKeyId, TeamId};
use mailonce_core::outbound::email::{Channel, Email};
use mailonce_core::ports::store::{Store as _, StoreError, StoreHooks};
use mailonce_core::ports::transport::Transport;
use mailonce_core::time::Time;
use mailonce_engine::{Caller, Engine};
use mailonce_engine::{EngineDeps, handoff::transport_selector::Routing};
use mailonce_store::memory::Memory;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// How long a failed start waits for the next one.
const RESTART_DELAY: Duration = Duration::from_millis(100);

/// One process of a node.
pub(super) struct SimulatedNode {
    pub(super) engine: Arc<Engine>,
    pub(super) process: Arc<NodeProcess>,
    skew: Arc<ClockSkew>,
    restarts: u64,
    loops: Vec<JoinHandle<()>>,
    /// Held as long as the loops should run.
    _stop: watch::Sender<bool>,
}

impl Drop for SimulatedNode {
    fn drop(&mut self) {
        self.loops.iter().for_each(JoinHandle::abort);
    }
}

/// All nodes, their ledger and their next hops.
pub(super) struct SimulatedCluster {
    pub(super) shared: Arc<WorldState>,
    pub(super) store: Arc<Memory>,
    pub(super) hops: Vec<Arc<SimulatedHop>>,
    pub(super) nodes: Vec<SimulatedNode>,
    pub(super) callers: Vec<Caller>,
    /// The inboxes.
    pub(super) inboxes: Vec<SimulatedInbox>,
}

impl SimulatedCluster {
    /// A cluster at the start of a world.
    pub(super) async fn create(shared: &Arc<WorldState>) -> Result<Self, StoreError> {
        let store = Arc::new(Memory::new([7; 32]));
        let watcher = Arc::clone(shared);
        let emails = Arc::new(move |email: &Email| watcher.record_handoff_states(email));
        store.attach(StoreHooks { emails: Some(emails), ..StoreHooks::default() });
        let hops = shared.plan.hops.iter().enumerate().map(|(n, class)| SimulatedHop::new(shared, n, *class)).collect();
        let (nodes, callers, inboxes) = (Vec::new(), Vec::new(), Vec::new());
        let mut cluster = Self { shared: Arc::clone(shared), store, hops, nodes, callers, inboxes };
        for team in 0..shared.plan.teams {
            let caller = test_caller(team);
            let _made = cluster.store.create_team(Team::clone(&caller.team), ApiKey::clone(&caller.key), None).await?;
            cluster.callers.push(caller);
        }
        let teams: Vec<TeamId> = cluster.callers.iter().map(|caller| caller.team.id).collect();
        if shared.plan.code_mails > 0 {
            cluster.inboxes = code_mail::create_inboxes(&cluster.store, &teams, None).await?;
        }
        if shared.plan.conversation_mails > 0 {
            let limits = conversation_mail::draw_reply_limits(&shared.plan);
            cluster.inboxes.extend(code_mail::create_inboxes(&cluster.store, &teams, Some(&limits)).await?);
            let agent_inboxes = cluster.inboxes.iter().filter(|inbox| inbox.has_agents);
            agent_inboxes.for_each(|inbox| shared.record_reply_limits(&inbox.address, limits.clone()));
        }
        for node in 0..shared.plan.nodes {
            let node = cluster.start_node(node, 0, Arc::default()).await?;
            cluster.nodes.push(node);
        }
        Ok(cluster)
    }

    /// Starts a process of a node.
    async fn start_node(&self, node: usize, life: u64, skew: Arc<ClockSkew>) -> Result<SimulatedNode, StoreError> {
        let shared = &self.shared;
        let body = NodeProcess::new(shared, node, life, Arc::clone(&skew));
        let moved = life > 0 && shared.draw_fault(FaultKind::OtherAccount);
        if moved {
            shared.record_fault(FaultKind::OtherAccount, vec!["nobody".into()]);
        }
        let account = if moved { format!("account-{}", body.name) } else { "account".to_owned() };
        let transport = |hop: &Arc<SimulatedHop>| {
            let (hop, body, account) = (Arc::clone(hop), Arc::clone(&body), account.clone());
            Arc::new(SimulatedTransport { hop, process: body, account }) as Arc<dyn Transport>
        };
        let routing = Routing { rules: Vec::new(), default: self.hops.iter().map(|hop| hop.name.clone()).collect() };
        let outside =
            EngineDeps { transports: self.hops.iter().map(transport).collect(), routing, ..EngineDeps::default() };
        let alone = shared.plan.nodes == 1;
        let ledger = Arc::new(FaultyStore {
            inner: Arc::clone(&self.store),
            process: Arc::clone(&body),
            is_single_node: alone,
            clock: OnceLock::new(),
        });
        let (clock, luck) =
            (Arc::new(SimulatedClock(Arc::clone(&body))), Arc::new(SimulatedEntropy(Arc::clone(&body))));
        let engine = Engine::new(ledger, clock, luck, outside).await?;
        if engine.ctx.is_time_trusted() && !shared.plan.has_fault(FaultKind::ClockJump) {
            engine.ctx.confirm_time();
        }
        let (stop, stopped) = watch::channel(false);
        let mut loops = vec![
            tokio::spawn(run_handoff_worker(Arc::clone(&engine), stopped.clone())),
            tokio::spawn(Arc::clone(&engine).run_maintenance(stopped.clone())),
        ];
        if shared.plan.has_inbound_mail() {
            loops.push(tokio::spawn(Arc::clone(&engine.inbound).run_inbound_worker(stopped.clone())));
        }
        if shared.plan.claims > 0 {
            loops.push(tokio::spawn(Arc::clone(&engine.claims).run_claims_loop(stopped)));
        }
        shared.trace(|| format!("{} starts", body.name));
        Ok(SimulatedNode { engine, process: body, skew, restarts: life, loops, _stop: stop })
    }

    /// Restarts a node if it is dead.
    pub(super) async fn restart_if_dead(&mut self, node: usize) -> Result<(), StoreError> {
        if self.nodes[node].process.is_dead() {
            let (life, skew) = (self.nodes[node].restarts + 1, Arc::clone(&self.nodes[node].skew));
            self.nodes[node] = self.start_node(node, life, skew).await?;
        }
        Ok(())
    }

    /// A node that accepts calls, if there is one.
    pub(super) fn any_engine(&self) -> Option<Arc<Engine>> {
        let living: Vec<usize> = (0..self.nodes.len()).filter(|node| !self.nodes[*node].process.is_dead()).collect();
        if living.is_empty() {
            return None;
        }
        Some(Arc::clone(&self.nodes[self.shared.pick(&living)].engine))
    }

    /// Faults of nodes between two steps.
    pub(super) async fn inject_node_faults(&mut self) -> Result<(), StoreError> {
        for node in 0..self.nodes.len() {
            if self.nodes[node].process.is_dead() {
                if self.shared.below(10) < 6 {
                    self.restart_if_dead(node).await?;
                }
                continue;
            }
            self.record_node_clock(node);
            let body = &self.nodes[node].process;
            if body.is_paused() && self.shared.below(10) < 6 {
                body.set_paused(false);
            } else if !body.is_paused() && self.shared.draw_fault(FaultKind::Pause) {
                body.set_paused(true);
            }
            if self.shared.draw_fault(FaultKind::Crash) {
                self.nodes[node].process.crash(FaultKind::Crash);
            }
            if self.shared.draw_fault(FaultKind::ClockJump) {
                let hours = [-30.0, -2.0, -0.025, 0.025, 1.0, 30.0_f64];
                let jump = (self.shared.pick(&hours) * 3_600_000.0) as i64;
                self.shared.record_fault(FaultKind::ClockJump, Vec::new());
                self.shared.trace(|| format!("the clock of node {node} jumps by {jump} ms"));
                self.nodes[node].skew.shift(jump);
            }
            if self.shared.plan.has_fault(FaultKind::ClockJump) && self.shared.below(8) == 0 {
                // An operator corrects the clock and confirms it.
                self.nodes[node].skew.reset();
                self.nodes[node].engine.ctx.confirm_time();
            }
        }
        Ok(())
    }

    /// Records a node's time.
    pub(super) fn record_node_clock(&self, node: usize) {
        let node = &self.nodes[node];
        self.shared.record_clock(node.process.name.clone(), node.engine.ctx.now().0);
        if node.engine.ctx.is_time_trusted() {
            node.skew.confirm();
        }
    }

    /// Ends all faults: every node runs, and every clock is right.
    pub(super) async fn end_all_faults(&mut self) -> Result<(), StoreError> {
        self.shared.stop_faults();
        for node in 0..self.nodes.len() {
            self.nodes[node].skew.reset();
            if self.nodes[node].process.is_paused() {
                self.nodes[node].process.set_paused(false);
            }
            self.restart_if_dead(node).await?;
            self.nodes[node].engine.ctx.confirm_time();
            self.record_node_clock(node);
        }
        self.hops.iter().for_each(|hop| hop.run_due(true));
        Ok(())
    }
}

/// Runs the hand-off loop as a server does: after its heartbeat and the recovery of dead nodes' work.
async fn run_handoff_worker(engine: Arc<Engine>, stopped: watch::Receiver<bool>) {
    while engine.handoffs.heartbeat_and_recover().await.is_err() {
        tokio::time::sleep(RESTART_DELAY).await;
    }
    Arc::clone(&engine.handoffs).run_handoff(stopped).await;
}

fn test_caller(team: usize) -> Caller {
    let id = |kind: u128| Uuid::from_u128((0x7000_8000_0000_0000 << 64) | (kind << 32) | (team as u128 + 1));
    let team_id = TeamId(id(1));
    let about = ApiKeyDetails {
        name: "world".into(),
        hint: String::new(),
        scopes: ApiKeyScope::ALL.to_vec(),
        senders: Vec::new(),
        inboxes: Vec::new(),
        rate_per_s: None,
        expires_at: None,
        allow_ips: Vec::new(),
        on_behalf_of: None,
    };
    let key = ApiKey {
        id: ApiKeyId(id(2)),
        team: team_id,
        hash: [team as u8; 32],
        details: about,
        created_at: Time(0),
        revoked_at: None,
        last_used_at: None,
    };
    let team = Team { id: team_id, name: team_name(team), require_keys: false, created_at: Time(0) };
    Caller { key: Arc::new(key), team: Arc::new(team), channel: Channel::Http, call: None, inbox_restriction: None }
}
