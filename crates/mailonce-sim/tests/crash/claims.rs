//! Claims while servers are killed: workers claim side effects over HTTP, and the server dies between the steps of a
//! call. On PostgreSQL a second node goes on, and every third server is first suspended there for longer than a lease.
//!
//! `MAILONCE_CLAIM_KILLS=N` sets the kills per store, `MAILONCE_SEED=S` the seed.

use crate::fixtures::{crash_tools, second_checker_of_claims};
use mailonce_sim::{
    crash::{environment::CrashTools, failpoints::claim_failpoints, verdict::SecondVerdict},
    harness::{
        child_processes::sleep,
        http,
        postgres::PostgresServer,
        rng::{SeededRng, env_number_or, seed_from_env},
        server::ServerProcess,
        server_fixture::ServerFixture,
        summary_writer::print_line,
    },
    proof::{
        self, Rule, Violation,
        history::{ClaimCall, ClaimCallKind, ClaimEffect, ClaimReply, ClaimRow, History},
    },
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Kills per store in the short form.
const KILLS: u64 = 10;
/// Rounds in which a server that breaks the promise must be found.
const MAX_MUTANT_ROUNDS: usize = 3;
const WORKERS: u64 = 3;
const ASKS_PER_KEY: u64 = 6;
/// How long a server may take to reach its failpoint before it is killed anyway.
const FAILPOINT_TIMEOUT: Duration = Duration::from_secs(6);
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
const LEASE_S: u64 = 1;
/// How long a server is suspended: longer than a lease.
const SUSPENSION: Duration = Duration::from_secs(2);
/// How long it then goes on with what it was doing.
const LATE_WORK: Duration = Duration::from_millis(500);
/// How often a call without a reply is repeated; a restart takes about a second.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(150);
/// Until the last lease has ended and somebody was asked about it.
const SETTLE_TIME: Duration = Duration::from_secs(4);

/// How often a server was to die or to be suspended at a failpoint, and how often it was.
#[derive(Default)]
struct PointCount {
    kills: u64,
    reached: u64,
}

/// The result of a round: its history, and how often each failpoint was reached.
struct RoundResult {
    history: History,
    points: BTreeMap<&'static str, PointCount>,
}

impl RoundResult {
    /// A line per failpoint, and those that no server reached.
    fn summarize(&self) -> (Vec<String>, Vec<&'static str>) {
        let line = |(point, count): (&&str, &PointCount)| format!("{point}: {} of {}", count.reached, count.kills);
        let missed = self.points.iter().filter(|(_, count)| count.reached == 0).map(|(point, _)| *point);
        (self.points.iter().map(line).collect(), missed.collect())
    }
}

/// Everything that workers share, and what they observed.
struct Round {
    seed: u64,
    history: Mutex<History>,
    position: AtomicU64,
    servers: Mutex<Vec<SocketAddr>>,
    /// Side effects that workers asked for so far. Several ask for the same key.
    asked: AtomicU64,
    stop: AtomicBool,
}

/// Ends the workers also when a check fails, or the test would wait for them forever.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

impl Round {
    fn position(&self) -> u64 {
        self.position.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn use_servers(&self, killed: &ServerProcess, stable: Option<&ServerProcess>) {
        let servers = [Some(killed), stable].into_iter().flatten().map(|server| server.at).collect();
        *self.servers.lock().unwrap_or_else(PoisonError::into_inner) = servers;
    }

    /// A server, another one for each attempt.
    fn server(&self, attempt: u32) -> SocketAddr {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers[attempt as usize % servers.len()]
    }

    /// Makes a call until it is answered, and records each attempt.
    fn call(&self, (caller, key): (&str, &str), kind: &ClaimCallKind, path: &str, body: &Value) -> Option<Value> {
        for attempt in 0..TRIES {
            let (at, started_ms) = (self.position(), now_ms());
            let index = {
                let calls = &mut self.history().claims.calls;
                calls.push(ClaimCall {
                    at,
                    started_ms,
                    ended: None,
                    ended_ms: 0,
                    team: "ours".into(),
                    key: key.into(),
                    caller: caller.into(),
                    kind: kind.clone(),
                    reply: ClaimReply::None,
                });
                calls.len() - 1
            };
            let answer = http::post_within(REPLY_TIMEOUT, self.server(attempt), path, None, body);
            let reply = answer.as_ref().map_or(ClaimReply::None, |answer| reply_of(kind, answer.status, &answer.body));
            let has_reply = reply != ClaimReply::None;
            let (ended, ended_ms) = (self.position(), now_ms());
            let call = &mut self.history().claims.calls[index];
            (call.ended, call.ended_ms, call.reply) = (Some(ended), ended_ms, reply);
            if let Some(answer) = answer.ok().filter(|_| has_reply) {
                return (answer.status < 300).then_some(answer.body);
            }
            sleep(PAUSE);
        }
        None
    }

    /// Claims side effects and performs them until the round ends.
    fn work(&self, worker: u64) {
        let mut rng = SeededRng::derive(self.seed, &[worker]);
        for number in 0.. {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let newest = self.asked.fetch_add(1, Ordering::SeqCst) / ASKS_PER_KEY;
            let key = format!("invoice-{}", newest.saturating_sub(rng.below(4)));
            self.perform(&format!("worker-{worker}-{number}"), &key, &mut rng);
            if rng.below(20) == 0 {
                self.decide(&format!("person-{worker}-{number}"), &mut rng);
            }
            sleep(Duration::from_millis(rng.between(5, 60)));
        }
    }

    fn perform(&self, name: &str, key: &str, rng: &mut SeededRng) {
        let begin = if rng.below(3) == 0 { "later" } else { "now" };
        let lease_ms = 1_000 * LEASE_S as i64;
        let kind = ClaimCallKind::Acquire { on_unknown: "hold".into(), fingerprint: "paper".into(), lease_ms };
        let body = json!({"key": key, "lease_s": LEASE_S, "holder": name, "begin": begin, "fingerprint": "paper"});
        let Some(won) = self.call((name, key), &kind, "/v1/claims", &body) else { return };
        let (Some(token), Some(fence)) = (won["token"].as_str(), won["fence"].as_u64()) else { return };
        let path = |verb: &str| format!("/v1/claims/{}/{verb}", won["id"].as_str().unwrap_or_default());
        let by = (name, key);
        let begins = || self.call(by, &ClaimCallKind::Begin(fence), &path("begin"), &json!({ "token": token }));
        if begin == "later" && begins().is_none() {
            return;
        }
        let choice = rng.below(16);
        if choice == 0 {
            return;
        }
        if choice < 4 {
            let retryable = choice < 3;
            let body = json!({"token": token, "retryable": retryable, "reason": "no paper"});
            self.call(by, &ClaimCallKind::Fail { fence, retryable }, &path("fail"), &body);
            return;
        }
        if rng.below(4) == 0 {
            let body = json!({"token": token, "lease_s": LEASE_S});
            self.call(by, &ClaimCallKind::Renew { fence, lease_ms }, &path("renew"), &body);
        }
        let (at, worker) = (self.position(), name.to_owned());
        self.history().claims.effects.push(ClaimEffect { at, team: "ours".into(), key: key.into(), worker, fence });
        sleep(Duration::from_millis(if rng.below(6) == 0 { 1_500 } else { rng.between(1, 40) }));
        if rng.below(8) > 0 {
            let body = json!({"token": token, "result": name});
            self.call(by, &ClaimCallKind::Complete(fence, name.to_owned()), &path("complete"), &body);
        }
    }

    /// Decides about a claim whose worker was lost: by looking the side effect up, or without knowing.
    fn decide(&self, name: &str, rng: &mut SeededRng) {
        let Ok(page) = http::get(self.server(0), "/v1/claims?state=unknown&limit=100") else { return };
        let Some(rows) = page.body["data"].as_array().filter(|rows| !rows.is_empty()) else { return };
        let row = &rows[rng.below(rows.len() as u64) as usize];
        let (Some(id), Some(key)) = (row["id"].as_str(), row["key"].as_str()) else { return };
        let path = |verb: &str| format!("/v1/claims/{id}/{verb}");
        if rng.below(2) == 0 {
            let resolution = ["done", "retry", "retry", "abandon"][rng.below(4) as usize];
            let body = json!({"as": resolution, "rev": row["rev"]});
            self.call((name, key), &ClaimCallKind::Resolve(resolution.into()), &path("resolve"), &body);
            return;
        }
        let worker = self.history().claims.effects.iter().find(|one| one.key == key).map(|one| one.worker.clone());
        if let Some(worker) = worker {
            let body = json!({"says": "done", "result": worker});
            self.call((name, key), &ClaimCallKind::Found(worker), &path("evidence"), &body);
        } else {
            // It may come too early, and changes nothing. Whether it is answered does not matter.
            let _told = http::post(self.server(0), &path("evidence"), None, &json!({"says": "not_found"}));
        }
    }

    /// Reads the claims and the questions about them.
    fn read_end(&self, at: SocketAddr) {
        let asked = read_pages(at, "/v1/escalations?state=open&limit=100");
        let asked: BTreeSet<&str> = asked.iter().filter_map(|row| row["about"]["claim"].as_str()).collect();
        let rows = read_pages(at, "/v1/claims?limit=100").into_iter().map(|row| {
            let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
            let shown = http::get(at, &format!("/v1/claims/{}", text("id"))).unwrap().body;
            ClaimRow {
                id: text("id"),
                team: "ours".into(),
                key: text("key"),
                state: text("state"),
                leased: row["lease_expires_at"].is_string(),
                fingerprint: text("fingerprint"),
                result: shown["result"].as_str().map(str::to_owned),
                escalated: asked.contains(text("id").as_str()),
            }
        });
        let rows = rows.collect();
        let mut history = self.history();
        history.claims.claims = rows;
        history.healed = true;
    }
}

/// All rows of a list.
fn read_pages(at: SocketAddr, path: &str) -> Vec<Value> {
    let (mut rows, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = http::get(at, &format!("{path}{cursor}")).unwrap();
        assert_eq!(page.status, 200, "{}", page.body);
        rows.extend(page.body["data"].as_array().unwrap().iter().cloned());
        let Some(next) = page.body["next_cursor"].as_str() else { return rows };
        cursor = format!("&cursor={next}");
    }
}

fn reply_of(kind: &ClaimCallKind, status: u16, body: &Value) -> ClaimReply {
    let text = |name: &str| body[name].as_str().map(str::to_owned);
    match status {
        201 => ClaimReply::Won {
            fence: body["fence"].as_u64().unwrap_or_default(),
            may_repeat: body["may_repeat"].as_bool().unwrap_or_default(),
        },
        200 if matches!(kind, ClaimCallKind::Acquire { .. }) => {
            ClaimReply::Ended { state: text("state").unwrap_or_default(), result: text("result") }
        }
        200 => ClaimReply::Recorded,
        503 => ClaimReply::None,
        _ => ClaimReply::Refused(text("code").unwrap_or_default()),
    }
}

/// Waits until a server has died at its failpoint, and kills it otherwise. Returns whether it reached the failpoint.
fn die_at_failpoint(mut server: ServerProcess) -> bool {
    let has_died = server.wait_for_exit(FAILPOINT_TIMEOUT).unwrap().is_some();
    if !has_died {
        server.kill().unwrap();
    }
    has_died
}

/// Waits until a server is suspended at its failpoint, lets it go on when its leases have ended, and kills it. Returns
/// whether it reached the failpoint.
fn be_late_at_failpoint(server: ServerProcess) -> bool {
    let deadline = Instant::now() + FAILPOINT_TIMEOUT;
    while !server.is_paused() && Instant::now() < deadline {
        sleep(Duration::from_millis(10));
    }
    let was_paused = server.is_paused();
    if was_paused {
        sleep(SUSPENSION);
        server.resume().unwrap();
        sleep(LATE_WORK);
    }
    server.kill().unwrap();
    was_paused
}

/// Kills or suspends a server at one failpoint after the other while workers run.
fn run_round(tools: &CrashTools, store: Option<&str>, kills: u64, mutant: Option<&str>) -> RoundResult {
    let root = tempfile::tempdir().unwrap();
    let (children, binary) = (&tools.children, tools.server.as_path());
    let fixture = ServerFixture { children, binary, root: root.path(), store, config: String::new() };
    let env = |point: Option<String>| {
        let mutant = mutant.map(|name| ("MAILONCE_MUTANT", name.into()));
        point.map(|point| ("MAILONCE_FAILPOINT", point.into())).into_iter().chain(mutant).collect::<Vec<_>>()
    };
    // A SQLite ledger has one process at a time.
    let stable = store.map(|_| fixture.start_with("stable", false, &env(None)).unwrap());
    let seed = seed_from_env();
    print_line(&format!("claims: seed {seed}"));
    let round = Round {
        seed,
        history: Mutex::default(),
        position: AtomicU64::new(0),
        servers: Mutex::default(),
        asked: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    let (all_points, mut points) = (claim_failpoints(), BTreeMap::<&'static str, PointCount>::new());
    std::thread::scope(|scope| {
        let stop = StopOnDrop(&round.stop);
        let mut workers = Vec::new();
        let mut rng = SeededRng::derive(seed, &[u64::MAX]);
        for cycle in 0..kills {
            let point = all_points[cycle as usize % all_points.len()];
            let count = points.entry(point).or_default();
            count.kills += 1;
            // Leases end seldom, and may end before the server is ready, which a suspended one would never be.
            let lapses = point == "claim-lapsed";
            let is_suspended = store.is_some() && cycle % 3 == 2 && !lapses;
            let signal = if is_suspended { "stop" } else { "kill" };
            let point = format!("{point}:{signal}:{}", rng.between(1, if lapses { 2 } else { 25 }));
            // A lease of the cycle before may end, and the server with it, before it is ready.
            let Ok(server) = fixture.start_with("data", false, &env(Some(point))) else {
                count.reached += 1;
                continue;
            };
            round.use_servers(&server, stable.as_ref());
            if workers.is_empty() {
                let round = &round;
                workers.extend((0..WORKERS).map(|worker| scope.spawn(move || round.work(worker))));
            }
            let has_reached = if is_suspended { be_late_at_failpoint(server) } else { die_at_failpoint(server) };
            count.reached += u64::from(has_reached);
        }
        let last = fixture.start_with("data", false, &env(None)).unwrap();
        round.use_servers(&last, stable.as_ref());
        drop(stop);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        sleep(SETTLE_TIME);
        round.read_end(last.at);
    });
    RoundResult { history: round.history.into_inner().unwrap(), points }
}

fn check_store(store: Option<&str>, tools: &CrashTools) {
    let round_result = run_round(tools, store, env_number_or("MAILONCE_CLAIM_KILLS", KILLS), None);
    let (summary, missed) = round_result.summarize();
    let (history, claims) = (&round_result.history, &round_result.history.claims);
    print_line(&format!("{} calls, {:?}", claims.calls.len(), claims.count_by_kind()));
    print_line(&format!("died or were suspended at {}", summary.join(", ")));
    assert!(missed.is_empty(), "no server reached {missed:?}");
    let violations: Vec<String> = proof::check(history).iter().map(Violation::to_string).collect();
    assert!(violations.is_empty(), "{}", violations.join("\n\n"));
    let second = SecondVerdict::of_claims(&second_checker_of_claims(), claims).unwrap();
    assert!(second.holds.contains("P17"), "only the second checker found a violation: {}", second.output);
    let states: BTreeSet<&str> = claims.claims.iter().map(|claim| claim.state.as_str()).collect();
    assert!(states.contains("completed") && states.contains("unknown"), "{states:?}");
}

#[test]
fn a_claimed_side_effect_begins_once_however_often_servers_are_killed_over_sqlite() {
    check_store(None, &crash_tools(None));
}

#[test]
fn a_claimed_side_effect_begins_once_however_often_servers_are_killed_over_postgresql() {
    let postgres = PostgresServer::from_env().unwrap_or_else(|why| panic!("{why:#}"));
    let database = postgres.create_database(&format!("mailonce_claim_kills_{}", std::process::id())).unwrap();
    check_store(Some(&database.url), &crash_tools(None));
    database.drop_database().unwrap();
}

/// The rounds must notice a server that breaks the promise.
#[test]
fn a_server_that_frees_begun_claims_is_convicted() {
    // A claim that is freed is not always taken by somebody else before the round ends.
    for _ in 0..MAX_MUTANT_ROUNDS {
        let RoundResult { history, .. } = run_round(&crash_tools(None), None, 8, Some("claim-freed-after-beginning"));
        let rules: BTreeSet<Rule> = proof::check(&history).into_iter().map(|violation| violation.rule).collect();
        assert!(rules.contains(&Rule::FreedTooSoon) || rules.contains(&Rule::EffectTwice), "{rules:?}");
        if rules.contains(&Rule::EffectTwice) {
            let second = SecondVerdict::of_claims(&second_checker_of_claims(), &history.claims).unwrap();
            assert!(second.broken.contains("P17"), "the second checker missed it: {}", second.output);
            return;
        }
    }
    panic!("no side effect began twice in {MAX_MUTANT_ROUNDS} rounds");
}
