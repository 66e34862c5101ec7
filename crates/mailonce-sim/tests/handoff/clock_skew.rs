//! Two nodes on one PostgreSQL whose clocks are hours apart from their start: no key expires early, no scheduled mail
//! is early, and a node with a wrong clock reports it.
//!
//! The short form takes some seconds. `MAILONCE_SKEW_MINUTES=60` runs it for an hour.

use mailonce_core::time::Time;
use mailonce_sim::harness::{
    child_processes::sleep,
    http,
    postgres::{PostgresServer, TemporaryDatabase},
    rng::{SeededRng, env_number_or, seed_from_env},
    server::ServerProcess,
    server_fixture::{self, ServerFixture, sample_mail},
    summary_writer::SummaryWriter,
};
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::binary_fixtures::{RECOVERY_TIMEOUT, SinkFixture, SinkKind, binary, child_processes, temp_dir};

const HOUR: i64 = 3_600_000;
/// Two heartbeats, and some time for the reply.
const READYZ_TIMEOUT: Duration = Duration::from_secs(7);
/// How long a step of the campaign takes.
const STEP_TIME: Duration = Duration::from_millis(150);

fn database(name: &str) -> TemporaryDatabase {
    let postgres = PostgresServer::from_env().unwrap_or_else(|why| panic!("{why:#}"));
    postgres.create_database(&format!("mailonce_skew_{name}_{}", std::process::id())).unwrap()
}

fn clock_env(offset_ms: i64) -> [(&'static str, OsString); 2] {
    [
        ("MAILONCE_CLOCK_OFFSET_MS", offset_ms.to_string().into()),
        // The time service of this machine does not know the offset.
        ("MAILONCE_CLOCK_SYNCHRONIZED", "false".into()),
    ]
}

/// The true time.
fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

fn mail_with_ttl(n: usize) -> Value {
    let mut mail = sample_mail(n);
    mail["ttl"] = json!("12h");
    mail
}

fn send(node: &ServerProcess, n: usize, mail: &Value) -> anyhow::Result<(u16, String)> {
    let reply = http::post(node.at, "/v1/emails", Some(&format!("skew-{n}")), mail)?;
    Ok((reply.status, reply.body["id"].as_str().unwrap_or_default().to_owned()))
}

/// What a node reports about its clock: whether it is sure, and its offset from the database.
fn clock_status(node: &ServerProcess) -> Option<(bool, i64)> {
    let ready = http::get(node.at, "/readyz").ok()?.body;
    Some((ready["clock"]["trusted"].as_bool()?, ready["clock"]["ahead_of_database_ms"].as_i64()?))
}

#[test]
fn a_node_whose_clock_is_hours_off_forgets_nothing_and_sends_nothing_early() {
    let (binary, outside, root) = (binary(), SinkFixture::new(SinkKind::Relay), temp_dir());
    let database = database("pair");
    let config = outside.outbound_target().toml();
    let servers = ServerFixture {
        children: child_processes(),
        binary: &binary,
        root: root.path(),
        store: Some(&database.url),
        config,
    };
    let right = servers.start("right", None, false).unwrap();
    let (_, first) = send(&right, 0, &mail_with_ttl(0)).unwrap();
    server_fixture::wait_for_states(right.at, std::slice::from_ref(&first), RECOVERY_TIMEOUT, |_, state| {
        state == "sent"
    })
    .unwrap();
    let mut later = mail_with_ttl(1);
    later["scheduled_at"] = json!(Time(now_ms() + 2 * HOUR).to_string());
    let (_, scheduled) = send(&right, 1, &later).unwrap();

    for (turn, offset) in [23 * HOUR, -23 * HOUR, 48 * HOUR].into_iter().enumerate() {
        let wrong = servers.start_with("wrong", false, &clock_env(offset)).unwrap();
        let off = |(sure, ahead): (bool, i64)| !sure && (ahead - offset).abs() < 60_000;
        server_fixture::wait_until("a word about its clock", READYZ_TIMEOUT, || clock_status(&wrong).is_some_and(off))
            .unwrap();
        // The first sweep and the first lease happen at the start; this mail comes after them.
        let n = 2 + turn;
        let (status, by_wrong) = send(&wrong, n, &mail_with_ttl(n)).unwrap();
        assert_eq!(status, 202);
        server_fixture::wait_for_states(wrong.at, std::slice::from_ref(&by_wrong), RECOVERY_TIMEOUT, |_, state| {
            state == "sent"
        })
        .unwrap();
        for node in [&right, &wrong] {
            assert_eq!(send(node, 0, &mail_with_ttl(0)).unwrap(), (200, first.clone()), "offset {offset}");
            assert_eq!(send(node, n, &mail_with_ttl(n)).unwrap(), (200, by_wrong.clone()), "offset {offset}");
        }
        assert_eq!(
            server_fixture::email_states(right.at, std::slice::from_ref(&scheduled)).unwrap(),
            ["scheduled"],
            "{offset}"
        );
        wrong.kill().unwrap();
    }
    assert_eq!(outside.copies_per_mail(5), [1, 0, 1, 1, 1]);
    assert_eq!(clock_status(&right).map(|(sure, _)| sure), Some(true), "the others change nothing for it");
}

/// A node of the campaign.
struct SkewedNode {
    server: ServerProcess,
    offset: i64,
    started: Instant,
}

/// A mail of the campaign: the id of its first reply, and its scheduled time.
#[derive(Default)]
struct SkewMail {
    id: Option<String>,
    due: Option<i64>,
}

struct SkewCampaign<'a> {
    fixture: ServerFixture<'a>,
    sink: &'a SinkFixture,
    rng: SeededRng,
    nodes: Vec<SkewedNode>,
    mails: Vec<SkewMail>,
    kills: usize,
    replays: usize,
}

impl SkewCampaign<'_> {
    fn draw_offset(&mut self) -> i64 {
        let spread = [0, 20_000, HOUR, 23 * HOUR, 48 * HOUR];
        let most = spread[self.rng.below(spread.len() as u64) as usize];
        if most == 0 { 0 } else { self.rng.below(2 * most as u64) as i64 - most }
    }

    fn start(&mut self, n: usize, offset: i64) -> SkewedNode {
        let server = self.fixture.start_with(&format!("node-{n}"), false, &clock_env(offset)).unwrap();
        SkewedNode { server, offset, started: Instant::now() }
    }

    fn kill_and_restart(&mut self, n: usize) {
        let offset = self.draw_offset();
        self.nodes.remove(n).server.kill().unwrap();
        let node = self.start(n, offset);
        self.nodes.insert(n, node);
        self.kills += 1;
    }

    /// Sends mail `n` to any node, new or repeated. Only the first reply may say `first`.
    fn send(&mut self, n: usize) {
        let node = self.rng.below(self.nodes.len() as u64) as usize;
        let mut mail = mail_with_ttl(n);
        if let Some(due) = self.mails[n].due {
            mail["scheduled_at"] = json!(Time(due).to_string());
        }
        let Ok((status, id)) = send(&self.nodes[node].server, n, &mail) else { return };
        assert!(matches!(status, 200 | 202 | 503), "mail {n} was answered {status}");
        match &self.mails[n].id {
            _ if status == 503 => {}
            Some(first) => {
                assert_eq!((status, &id), (200, first), "mail {n} was accepted twice");
                self.replays += 1;
            }
            None => self.mails[n].id = Some(id),
        }
    }

    fn check_clocks(&self) {
        let counts = self.sink.copies_per_mail(self.mails.len());
        for (n, count) in counts.iter().enumerate() {
            assert!(*count <= 1, "mail {n} left {count} times");
            let early = self.mails[n].due.is_some_and(|due| now_ms() < due);
            assert!(!early || *count == 0, "mail {n} left before its time");
        }
        for node in
            self.nodes.iter().filter(|node| node.offset.abs() > 31_000 && node.started.elapsed() > READYZ_TIMEOUT)
        {
            let (sure, ahead) = clock_status(&node.server).expect("a node that answers");
            assert!(!sure && (ahead - node.offset).abs() < 60_000, "{} says {sure}, {ahead}", node.offset);
        }
    }

    fn run_step(&mut self) {
        match self.rng.below(20) {
            0 => {
                let n = self.rng.below(self.nodes.len() as u64) as usize;
                self.kill_and_restart(n);
            }
            1..=6 => {
                let due = (self.rng.below(4) == 0).then(|| now_ms() + 3_000 + self.rng.below(30_000) as i64);
                self.mails.push(SkewMail { id: None, due });
                self.send(self.mails.len() - 1);
            }
            _ if self.mails.is_empty() => {}
            _ => {
                let n = self.rng.below(self.mails.len() as u64) as usize;
                self.send(n);
            }
        }
        self.check_clocks();
        sleep(STEP_TIME);
    }

    /// Every clock is right: everything that was accepted is sent, or is visibly unknown.
    fn wait_until_settled(&mut self) {
        for n in 0..self.nodes.len() {
            self.nodes.remove(n).server.kill().unwrap();
            let node = self.start(n, 0);
            self.nodes.insert(n, node);
        }
        (0..self.mails.len()).for_each(|n| self.send(n));
        let ids: Vec<String> = self.mails.iter().filter_map(|mail| mail.id.clone()).collect();
        let settled = |_: usize, state: &str| matches!(state, "sent" | "unknown");
        server_fixture::wait_for_states(self.nodes[0].server.at, &ids, Duration::from_mins(2), settled).unwrap();
        self.check_clocks();
        let counts = self.sink.copies_per_mail(self.mails.len());
        for (n, state) in server_fixture::email_states(self.nodes[0].server.at, &ids).unwrap().iter().enumerate() {
            assert!(state == "unknown" || counts[n] == 1, "mail {n} is {state} and left {} times", counts[n]);
        }
    }
}

#[test]
fn nodes_whose_clocks_are_days_apart_send_each_mail_once_and_on_time() {
    let minutes = env_number_or("MAILONCE_SKEW_MINUTES", 0);
    let time = if minutes == 0 { Duration::from_secs(12) } else { Duration::from_mins(minutes) };
    let (binary, outside, root) = (binary(), SinkFixture::new(SinkKind::Relay), temp_dir());
    let database = database("campaign");
    let config = outside.outbound_target().toml();
    let servers = ServerFixture {
        children: child_processes(),
        binary: &binary,
        root: root.path(),
        store: Some(&database.url),
        config,
    };
    let seed = seed_from_env();
    let rng = SeededRng::derive(seed, &[17]);
    let mut campaign = SkewCampaign {
        fixture: servers,
        sink: &outside,
        rng,
        nodes: Vec::new(),
        mails: Vec::new(),
        kills: 0,
        replays: 0,
    };
    for n in 0..2 {
        let offset = campaign.draw_offset();
        let node = campaign.start(n, offset);
        campaign.nodes.push(node);
    }
    let began = Instant::now();
    while began.elapsed() < time {
        campaign.run_step();
    }
    campaign.wait_until_settled();
    let counts = [
        ("mails", campaign.mails.len() as u64),
        ("replays", campaign.replays as u64),
        ("kills", campaign.kills as u64),
        ("minutes", began.elapsed().as_secs() / 60),
    ];
    println!("{counts:?}, 0 violations");
    if minutes > 0 {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let command = format!("MAILONCE_SKEW_MINUTES={minutes} cargo test -p mailonce-sim --test handoff skew");
        SummaryWriter::new(target, "clocks", &command).add(seed, &counts, &[]).unwrap();
    }
}
