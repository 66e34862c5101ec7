//! One round: a ledger and the crashes that it has to survive, one after another.

use crate::crash::coverage::CoverageBoard;
use crate::crash::environment::{CrashEnvironment, CrashTools};
use crate::crash::failpoints::{HopClass, StoreKind, Trigger};
use crate::crash::operations::{self, OperationGenerator};
use crate::crash::recording_client::RecordingClient;
use crate::crash::schedule::{FaultStep, plan_steps, preparing_step};
use crate::crash::verdict::{InjectedFault, RoundVerdict};
use crate::crash::workload::{CONCURRENT_CLIENTS, CycleWorkload, Workload};
use crate::harness::child_processes::sleep;
use crate::harness::http;
use crate::harness::server::{API_KEY, ServerProcess, StartOutcome};
use crate::sink::oracle::provider_webhooks::HookTarget;
use crate::sink::oracle::sink_log::now_us;
use crate::sink::oracle::webhook_receiver;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a node stays paused: longer than its leases on PostgreSQL, briefly on SQLite.
const PAUSE_TIME: [(StoreKind, Duration); 2] =
    [(StoreKind::Sqlite, Duration::from_millis(700)), (StoreKind::Postgres, Duration::from_millis(16_500))];
/// How long a resumed node runs before it is killed.
const TIME_AFTER_PAUSE: Duration = Duration::from_secs(1);
/// How long set-up calls wait for a server that may pause at any moment.
const SETUP_TIMEOUT: Duration = Duration::from_millis(1_500);
/// How often a failpoint is tried until it is reached.
const TRIES_PER_POINT: usize = 3;
/// Cycles between two kills of the second node.
const PEER_KILL_INTERVAL: usize = 9;
/// The team that has a webhook endpoint.
pub(super) const ENDPOINT_TEAM: &str = "a";
const HOOK_SECRET: &str = "whsec_bWFpbG9uY2UtY3Jhc2gtcmlnLXNlY3JldC0x";

/// A round of crashes at failpoints.
#[derive(Debug, Clone)]
pub struct CrashRound {
    /// The store of the ledger.
    pub store: StoreKind,
    /// The class of next hop.
    pub class: HopClass,
    /// The seed of all randomness.
    pub seed: u64,
    /// Whether only the failpoints of the short form are used.
    pub short: bool,
    /// The maximum number of cycles.
    pub cycles: usize,
}

/// A node that is paused, or was just resumed.
struct PausedServer {
    server: ServerProcess,
    stopped_us: u64,
    due_at: Instant,
    is_resumed: bool,
}

/// A round in progress.
pub(super) struct RunningRound<'a> {
    pub(super) round: &'a CrashRound,
    pub(super) board: &'a CoverageBoard,
    pub(super) environment: CrashEnvironment<'a>,
    pub(super) workload: Workload,
    pub(super) injected_faults: Vec<InjectedFault>,
    paused: Vec<PausedServer>,
    pub(super) peer: Option<ServerProcess>,
    pub(super) log: Vec<String>,
}

impl CrashRound {
    /// The command that replays the round.
    pub fn replay_command(&self) -> String {
        let short = if self.short { " --short" } else { "" };
        format!(
            "mailonce-crash --store {} --class {} --seed {} --cycles {}{short}",
            self.store.as_str(),
            self.class,
            self.seed,
            self.cycles
        )
    }

    /// Whether two nodes share the ledger.
    fn has_two_nodes(&self) -> bool {
        self.store == StoreKind::Postgres && self.seed % 2 == 1
    }

    /// Runs the round in a directory and checks the result.
    pub fn run(&self, tools: &CrashTools, board: &CoverageBoard, root: &Path) -> Result<RoundVerdict> {
        let world = CrashEnvironment::new(tools, root, (self.store, self.class), self.seed)?;
        let callers = Workload {
            client: RecordingClient::new(root)?,
            teams: Mutex::new(vec![operations::team_credential(0, API_KEY)]),
            hook_target: Mutex::default(),
            requests: Mutex::default(),
            inbound_hook_path: Mutex::default(),
            smtp_addresses: world.smtp_addresses(),
            sent_mail: Mutex::default(),
            unexpected_refusals: Mutex::default(),
            sink_log: world.sink_log_path(),
        };
        let (faults, paused_servers, log) = (Vec::new(), Vec::new(), Vec::new());
        let mut live = RunningRound {
            round: self,
            board,
            environment: world,
            workload: callers,
            injected_faults: faults,
            paused: paused_servers,
            peer: None,
            log,
        };
        let run_result = live.run();
        let log = std::mem::take(&mut live.log).join("\n");
        let verdict = run_result.with_context(|| format!("the round so far:\n{log}"))?;
        live.environment.drop_database()?;
        Ok(RoundVerdict { log: [log, verdict.log].join("\n"), ..verdict })
    }
}

impl RunningRound<'_> {
    fn run(&mut self) -> Result<RoundVerdict> {
        let CrashRound { seed, store, class, short, cycles } = *self.round;
        let mut steps: VecDeque<(FaultStep, usize)> =
            plan_steps(seed, store, class, short).into_iter().map(|step| (step, 1)).collect();
        steps.truncate(cycles);
        let mut n = 0;
        while let Some((step, tries)) = steps.pop_front() {
            // A node that resumes now would recover the work that the next step needs.
            self.resume_paused(steps.front().is_some_and(|(next, _)| next.row.trigger == Trigger::Leftover))?;
            self.manage_peer(n, &step)?;
            let reached =
                self.run_cycle(n, &step).with_context(|| format!("in cycle {n}, {}", step.failpoint_spec()))?;
            if !reached && tries < TRIES_PER_POINT {
                // Another node or a provider event may have been faster, so the step is tried again.
                steps.extend(preparing_step(&step).map(|before| (before, TRIES_PER_POINT)));
                steps.push_back((FaultStep { nth_hit: 1, ..step }, tries + 1));
            }
            n += 1;
        }
        self.finish()
    }

    /// Starts a server and loads it until its failpoint. Returns whether that was reached.
    fn run_cycle(&mut self, n: usize, step: &FaultStep) -> Result<bool> {
        let began = Instant::now();
        let mut server = match self.environment.start(Some(&step.failpoint_spec()))? {
            StartOutcome::Ready(server) => server,
            StartOutcome::Ended(status, log) => {
                self.record_death(step, status, &log)?;
                self.log_cycle(n, step, began, "crashed at the start");
                return Ok(true);
            }
        };
        if !server.is_paused() {
            // The server may crash meanwhile; the next one is set up again.
            let _maybe = self.set_up_resources(server.at, SETUP_TIMEOUT);
        }
        let reached = self.load_until_point(&mut server, n, step)?;
        let outcome = match reached {
            Some(Some(status)) => {
                self.record_death(step, status, &server.read_log())?;
                "crashed"
            }
            Some(None) => {
                self.record_pause(server, step)?;
                "paused"
            }
            None => {
                self.kill(server, "killed, failpoint not reached")?;
                self.board.update_counts(|counts| counts.misses += 1);
                "was killed, since the failpoint was not reached"
            }
        };
        self.log_cycle(n, step, began, outcome);
        Ok(reached.is_some())
    }

    fn log_cycle(&mut self, n: usize, step: &FaultStep, began: Instant, outcome: &str) {
        self.log.push(format!(
            "  cycle {n}: {} {outcome} after {} ms",
            step.failpoint_spec(),
            began.elapsed().as_millis()
        ));
    }

    /// Loads a server until it exits (with its status), pauses, or the timeout passes.
    fn load_until_point(
        &self,
        server: &mut ServerProcess,
        n: usize,
        step: &FaultStep,
    ) -> Result<Option<Option<ExitStatus>>> {
        let CrashRound { seed, class, store, .. } = *self.round;
        let (over, next) = (AtomicBool::new(false), AtomicU64::new(0));
        let at: Vec<SocketAddr> = [server.at].into_iter().chain(self.peer.as_ref().map(|other| other.at)).collect();
        let source = OperationGenerator { seed, cycle: n as u64, class };
        let workload = CycleWorkload {
            generator: source,
            trigger: step.row.trigger,
            servers: &at,
            stop: &over,
            next_number: &next,
        };
        let deadline = Instant::now() + step.timeout(store);
        self.workload.client.accept_calls();
        std::thread::scope(|scope| {
            for _ in 0..CONCURRENT_CLIENTS {
                scope.spawn(|| self.workload.run_until_stopped(&workload));
            }
            let reached = loop {
                match server.wait_for_exit(Duration::ZERO) {
                    Ok(Some(status)) => break Ok(Some(Some(status))),
                    Ok(None) if server.is_paused() => break Ok(Some(None)),
                    Ok(None) if Instant::now() < deadline => sleep(Duration::from_millis(5)),
                    Ok(None) => break Ok(None),
                    Err(why) => break Err(why),
                }
            };
            over.store(true, Ordering::SeqCst);
            // Calls to a paused server would wait for too long.
            self.workload.client.drop_connections();
            reached
        })
    }

    /// Records that a server exited. Any reason but its failpoint is an error.
    fn record_death(&mut self, step: &FaultStep, status: ExitStatus, log: &str) -> Result<()> {
        let point = step.row.point;
        if status.signal() != Some(9) || !log.contains(&format!("failpoint {point} kill")) {
            let last = log.lines().rev().take(20).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n");
            bail!("the server exited with {status}, not at {point}:\n{last}");
        }
        self.injected_faults.push(InjectedFault::now(format!("killed at {point}")));
        self.board.record_hit((point, self.round.store, self.round.class), false);
        Ok(())
    }

    pub(super) fn kill(&mut self, server: ServerProcess, why: &str) -> Result<()> {
        self.injected_faults.push(InjectedFault::now(why.to_owned()));
        self.board.update_counts(|counts| counts.others += 1);
        server.kill()
    }

    /// Records that a server paused. A SQLite ledger has no other node, so it is resumed at once.
    fn record_pause(&mut self, server: ServerProcess, step: &FaultStep) -> Result<()> {
        self.board.record_hit((step.row.point, self.round.store, self.round.class), true);
        let time =
            PAUSE_TIME.iter().find(|(store, _)| *store == self.round.store).map_or(TIME_AFTER_PAUSE, |(_, time)| *time);
        let wakes = Instant::now() + time;
        self.paused.push(PausedServer { server, stopped_us: now_us(), due_at: wakes, is_resumed: false });
        if self.round.store == StoreKind::Sqlite { self.resume_paused(true) } else { Ok(()) }
    }

    /// Resumes paused nodes when they are due and kills resumed ones when they are due; with `all`, waits for each.
    pub(super) fn resume_paused(&mut self, all: bool) -> Result<()> {
        let (mut rest, mut dying) = (Vec::new(), Vec::new());
        for mut server in std::mem::take(&mut self.paused) {
            loop {
                let left = server.due_at.saturating_duration_since(Instant::now());
                if !left.is_zero() && !all {
                    rest.push(server);
                    break;
                }
                sleep(left);
                if server.is_resumed {
                    dying.push(server.server);
                    break;
                }
                server.server.resume()?;
                let (at_us, until_us) = (server.stopped_us, now_us());
                self.injected_faults.push(InjectedFault { at_us, until_us, what: "paused".to_owned() });
                (server.is_resumed, server.due_at) = (true, Instant::now() + TIME_AFTER_PAUSE);
            }
        }
        self.paused = rest;
        dying.into_iter().try_for_each(|server| self.kill(server, "killed after a pause"))
    }

    /// Starts the second node of a pair and kills it now and then. It must not recover work that the step needs.
    fn manage_peer(&mut self, n: usize, step: &FaultStep) -> Result<()> {
        if !self.round.has_two_nodes() || step.row.trigger == Trigger::EmptyLedger {
            return Ok(());
        }
        let alone = step.row.trigger == Trigger::Leftover;
        if let Some(other) = self.peer.take_if(|_| alone || n.is_multiple_of(PEER_KILL_INTERVAL)) {
            self.kill(other, "killed the other node")?;
        }
        if self.peer.is_none() && !alone {
            self.peer = Some(self.start_without_failpoint()?);
        }
        Ok(())
    }

    pub(super) fn start_without_failpoint(&mut self) -> Result<ServerProcess> {
        match self.environment.start(None)? {
            StartOutcome::Ready(server) => Ok(server),
            StartOutcome::Ended(status, log) => bail!("the server did not start ({status}): {log}"),
        }
    }

    /// Creates the second team, the event source and the endpoint once, and tells the sink where to send events.
    pub(super) fn set_up_resources(&self, at: SocketAddr, timeout: Duration) -> Result<()> {
        if self.workload.teams.lock().is_ok_and(|teams| teams.len() < 2) {
            let made = http::post_within(timeout, at, "/v1/teams", Some("team-b"), &json!({"name": "b"}))?;
            let credential = made.body["api_key"].as_str().with_context(|| format!("no team: {}", made.body))?;
            self.workload.teams.lock().map(|mut teams| teams.push(operations::team_credential(1, credential))).ok();
        }
        let body = json!({"name": "oracle", "kind": "resend", "transport": self.round.class.transport_name(), "secret": HOOK_SECRET});
        let made = http::post_within(timeout, at, "/v1/sources", Some("source"), &body)?;
        let path = made.body["hook_path"].as_str().with_context(|| format!("no source: {}", made.body))?.to_owned();
        let hook = HookTarget { at, path, secret: HOOK_SECRET.to_owned() };
        self.environment.control_sink("hooks", Some(&hook))?;
        self.workload.hook_target.lock().map(|mut known| *known = Some(hook)).ok();
        let endpoint = json!({"url": self.environment.receiver_url(ENDPOINT_TEAM), "after": "0", "secret": webhook_receiver::ENDPOINT_SECRET});
        let made = http::post_within(timeout, at, "/v1/endpoints", Some("endpoint"), &endpoint)?;
        ensure!(matches!(made.status, 200 | 201), "no endpoint: {}", made.body);
        if self.round.class == HopClass::Inbound { self.workload.open_inboxes(at, timeout) } else { Ok(()) }
    }
}
