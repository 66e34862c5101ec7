//! One round: a ledger, and the deaths it has to survive, one after the other on the same data.

use super::board::Board;
use super::callers::{CALLERS, Callers, Shift};
use super::client::Client;
use super::deed::{self, Source};
use super::judge::{Judgement, Mishap};
use super::steps::{Step, leaves, steps};
use super::table::{Bait, Class, Store};
use super::world::{Tools, World};
use crate::rig::children::pause;
use crate::rig::http;
use crate::rig::server::{API_KEY, Server, Started};
use crate::sink::oracle::callback::Where;
use crate::sink::oracle::journal::now_us;
use crate::sink::oracle::receiver;
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

/// How long a node sleeps: on PostgreSQL longer than its leases, on a file it only loses time.
const ASLEEP: [(Store, Duration); 2] =
    [(Store::Sqlite, Duration::from_millis(700)), (Store::Postgres, Duration::from_millis(16_500))];
/// How long a node that woke up may go on before it is killed.
const AWAKE: Duration = Duration::from_secs(1);
/// How long a server that may fall asleep any moment is waited for.
const SOON: Duration = Duration::from_millis(1_500);
/// How often a point is tried that was not reached.
const TRIES: usize = 3;
/// Cycles between two deaths of the other node.
const OTHER_DIES: usize = 9;
/// The team that has an endpoint: the first one.
pub(super) const TOLD: &str = "a";
const HOOK_SECRET: &str = "whsec_bWFpbG9uY2UtY3Jhc2gtcmlnLXNlY3JldC0x";

/// A round.
#[derive(Debug, Clone)]
pub struct Round {
    /// What keeps the ledger.
    pub store: Store,
    /// Where mail goes.
    pub class: Class,
    /// Everything that is by chance.
    pub seed: u64,
    /// Whether only the short form's points are played.
    pub short: bool,
    /// No more cycles than this.
    pub cycles: usize,
}

/// A node that sleeps, or has just woken up.
struct Sleeper {
    server: Server,
    stopped_us: u64,
    wakes: Instant,
    awake: bool,
}

/// A round in progress.
pub(super) struct Live<'a> {
    pub(super) round: &'a Round,
    pub(super) board: &'a Board,
    pub(super) world: World<'a>,
    pub(super) callers: Callers,
    pub(super) mishaps: Vec<Mishap>,
    sleepers: Vec<Sleeper>,
    pub(super) other: Option<Server>,
    pub(super) story: Vec<String>,
}

impl Round {
    /// The command that plays it again.
    pub fn replay(&self) -> String {
        let short = if self.short { " --short" } else { "" };
        format!(
            "mailonce-crash --store {} --class {} --seed {} --cycles {}{short}",
            self.store.word(),
            self.class,
            self.seed,
            self.cycles
        )
    }

    /// Whether two nodes share the ledger.
    fn is_pair(&self) -> bool {
        self.store == Store::Postgres && self.seed % 2 == 1
    }

    /// Plays it in a directory, and judges it.
    pub fn play(&self, tools: &Tools, board: &Board, root: &Path) -> Result<Judgement> {
        let world = World::new(tools, root, (self.store, self.class), self.seed)?;
        let callers = Callers {
            client: Client::new(root)?,
            teams: Mutex::new(vec![deed::team(0, API_KEY)]),
            hook: Mutex::default(),
            wishes: Mutex::default(),
            inbound: Mutex::default(),
            doors: world.doors(),
            mails: Mutex::default(),
            trouble: Mutex::default(),
            journal: world.journal(),
        };
        let (mishaps, sleepers, story) = (Vec::new(), Vec::new(), Vec::new());
        let mut live = Live { round: self, board, world, callers, mishaps, sleepers, other: None, story };
        let played = live.play();
        let story = std::mem::take(&mut live.story).join("\n");
        let judgement = played.with_context(|| format!("the round so far:\n{story}"))?;
        live.world.close()?;
        Ok(Judgement { story: [story, judgement.story].join("\n"), ..judgement })
    }
}

impl Live<'_> {
    fn play(&mut self) -> Result<Judgement> {
        let Round { seed, store, class, short, cycles } = *self.round;
        let mut steps: VecDeque<(Step, usize)> =
            steps(seed, store, class, short).into_iter().map(|step| (step, 1)).collect();
        steps.truncate(cycles);
        let mut n = 0;
        while let Some((step, tries)) = steps.pop_front() {
            // Whoever wakes up in between would take over what the next one is to find.
            self.wake_sleepers(steps.front().is_some_and(|(next, _)| next.row.bait == Bait::Leftover))?;
            self.mind_the_other(n, &step)?;
            let reached = self.cycle(n, &step).with_context(|| format!("in cycle {n}, {}", step.armed()))?;
            if !reached && tries < TRIES {
                // Whether another node or a hook was faster is by chance.
                steps.extend(leaves(&step).map(|before| (before, TRIES)));
                steps.push_back((Step { time: 1, ..step }, tries + 1));
            }
            n += 1;
        }
        self.finish()
    }

    /// One life of a server. Whether it came to its point.
    fn cycle(&mut self, n: usize, step: &Step) -> Result<bool> {
        let began = Instant::now();
        let mut server = match self.world.start(Some(&step.armed()))? {
            Started::Ready(server) => server,
            Started::Ended(status, log) => {
                self.died(step, status, &log)?;
                self.tell(n, step, began, "died at the start");
                return Ok(true);
            }
        };
        if !server.is_frozen() {
            // It may die of it; the next one is asked again.
            let _maybe = self.introduce(server.at, SOON);
        }
        let reached = self.load(&mut server, n, step)?;
        let word = match reached {
            Some(Some(status)) => {
                self.died(step, status, &server.log())?;
                "died"
            }
            Some(None) => {
                self.sleeps(server, step)?;
                "fell asleep"
            }
            None => {
                self.kill(server, "a kill, as the point was not reached")?;
                self.board.count(|counts| counts.misses += 1);
                "was killed, as the point was not reached"
            }
        };
        self.tell(n, step, began, word);
        Ok(reached.is_some())
    }

    fn tell(&mut self, n: usize, step: &Step, began: Instant, word: &str) {
        self.story.push(format!("  cycle {n}: {} {word} after {} ms", step.armed(), began.elapsed().as_millis()));
    }

    /// Loads a server until it dies (with its status), falls asleep, or neither in time.
    fn load(&self, server: &mut Server, n: usize, step: &Step) -> Result<Option<Option<ExitStatus>>> {
        let Round { seed, class, store, .. } = *self.round;
        let (over, next) = (AtomicBool::new(false), AtomicU64::new(0));
        let at: Vec<SocketAddr> = [server.at].into_iter().chain(self.other.as_ref().map(|other| other.at)).collect();
        let source = Source { seed, cycle: n as u64, class };
        let shift = Shift { source, bait: step.row.bait, at: &at, over: &over, next: &next };
        let deadline = Instant::now() + step.patience(store);
        self.callers.client.pick_up();
        std::thread::scope(|scope| {
            for _ in 0..CALLERS {
                scope.spawn(|| self.callers.work(&shift));
            }
            let reached = loop {
                match server.ended(Duration::ZERO) {
                    Ok(Some(status)) => break Ok(Some(Some(status))),
                    Ok(None) if server.is_frozen() => break Ok(Some(None)),
                    Ok(None) if Instant::now() < deadline => pause(Duration::from_millis(5)),
                    Ok(None) => break Ok(None),
                    Err(why) => break Err(why),
                }
            };
            over.store(true, Ordering::SeqCst);
            // Those who wait for somebody asleep would wait for long.
            self.callers.client.hang_up();
            reached
        })
    }

    /// A server ended by itself: by its point, or it should not have.
    fn died(&mut self, step: &Step, status: ExitStatus, log: &str) -> Result<()> {
        let point = step.row.point;
        if status.signal() != Some(9) || !log.contains(&format!("failpoint {point} kill")) {
            let last = log.lines().rev().take(20).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n");
            bail!("the server ended with {status}, not at {point}:\n{last}");
        }
        self.mishaps.push(Mishap::now(format!("killed at {point}")));
        self.board.hit((point, self.round.store, self.round.class), false);
        Ok(())
    }

    pub(super) fn kill(&mut self, server: Server, why: &str) -> Result<()> {
        self.mishaps.push(Mishap::now(why.to_owned()));
        self.board.count(|counts| counts.others += 1);
        server.kill()
    }

    /// A server was stopped at its point. On a file nobody else can go on meanwhile.
    fn sleeps(&mut self, server: Server, step: &Step) -> Result<()> {
        self.board.hit((step.row.point, self.round.store, self.round.class), true);
        let time = ASLEEP.iter().find(|(store, _)| *store == self.round.store).map_or(AWAKE, |(_, time)| *time);
        let wakes = Instant::now() + time;
        self.sleepers.push(Sleeper { server, stopped_us: now_us(), wakes, awake: false });
        if self.round.store == Store::Sqlite { self.wake_sleepers(true) } else { Ok(()) }
    }

    /// Wakes those up whose time has come, and kills those that were awake for long enough; all of them, when it says so.
    pub(super) fn wake_sleepers(&mut self, all: bool) -> Result<()> {
        let (mut rest, mut dying) = (Vec::new(), Vec::new());
        for mut sleeper in std::mem::take(&mut self.sleepers) {
            loop {
                let left = sleeper.wakes.saturating_duration_since(Instant::now());
                if !left.is_zero() && !all {
                    rest.push(sleeper);
                    break;
                }
                pause(left);
                if sleeper.awake {
                    dying.push(sleeper.server);
                    break;
                }
                sleeper.server.thaw()?;
                let (at_us, until_us) = (sleeper.stopped_us, now_us());
                self.mishaps.push(Mishap { at_us, until_us, what: "asleep".to_owned() });
                (sleeper.awake, sleeper.wakes) = (true, Instant::now() + AWAKE);
            }
        }
        self.sleepers = rest;
        dying.into_iter().try_for_each(|server| self.kill(server, "a kill after it slept"))
    }

    /// Keeps the other node of a pair, and lets it die now and then. It must not take over what the first is to find.
    fn mind_the_other(&mut self, n: usize, step: &Step) -> Result<()> {
        if !self.round.is_pair() || step.row.bait == Bait::Fresh {
            return Ok(());
        }
        let alone = step.row.bait == Bait::Leftover;
        if let Some(other) = self.other.take_if(|_| alone || n.is_multiple_of(OTHER_DIES)) {
            self.kill(other, "a kill of the other node")?;
        }
        if self.other.is_none() && !alone {
            self.other = Some(self.start_unhurt()?);
        }
        Ok(())
    }

    pub(super) fn start_unhurt(&mut self) -> Result<Server> {
        match self.world.start(None)? {
            Started::Ready(server) => Ok(server),
            Started::Ended(status, log) => bail!("the server did not start ({status}): {log}"),
        }
    }

    /// Makes the second team and the source of events, once, and tells the sink where hooks go now.
    pub(super) fn introduce(&self, at: SocketAddr, patience: Duration) -> Result<()> {
        if self.callers.teams.lock().is_ok_and(|teams| teams.len() < 2) {
            let made = http::post_within(patience, at, "/v1/teams", Some("team-b"), &json!({"name": "b"}))?;
            let credential = made.body["api_key"].as_str().with_context(|| format!("no team: {}", made.body))?;
            self.callers.teams.lock().map(|mut teams| teams.push(deed::team(1, credential))).ok();
        }
        let body = json!({"name": "oracle", "kind": "resend", "transport": self.round.class.transport(), "secret": HOOK_SECRET});
        let made = http::post_within(patience, at, "/v1/sources", Some("source"), &body)?;
        let path = made.body["path"].as_str().with_context(|| format!("no source: {}", made.body))?.to_owned();
        let hook = Where { at, path, secret: HOOK_SECRET.to_owned() };
        self.world.tell_sink("hooks", Some(&hook))?;
        self.callers.hook.lock().map(|mut known| *known = Some(hook)).ok();
        let endpoint = json!({"url": self.world.receiver(TOLD), "after": "0", "secret": receiver::SECRET});
        let made = http::post_within(patience, at, "/v1/endpoints", Some("endpoint"), &endpoint)?;
        ensure!(matches!(made.status, 200 | 201), "no endpoint: {}", made.body);
        if self.round.class == Class::Inbound { self.callers.open_inboxes(at, patience) } else { Ok(()) }
    }
}
