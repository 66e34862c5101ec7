//! Two nodes on one PostgreSQL whose clocks are hours apart from their first moment on: no key is forgotten, no
//! scheduled mail is early, and a node that is off says so.
//!
//! The short form takes some seconds. `MAILONCE_SKEW_MINUTES=60` makes it a campaign of an hour.

use mailonce_core::time::Time;
use mailonce_sim::rig::{
    chance::{Chance, asked, seed},
    children::pause,
    http,
    post::{self, Post, mail},
    postgres::{Database, Postgres},
    proof::Proof,
    server::Server,
};
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::rig::{Hop, Outside, UNSTUCK, binary, children, folder};

const HOUR: i64 = 3_600_000;
/// Two heartbeats, and some for the answer.
const SAYS_SO: Duration = Duration::from_secs(7);
/// How long a step of the campaign takes.
const STEP: Duration = Duration::from_millis(150);

fn database(name: &str) -> Database {
    let postgres = Postgres::from_env().unwrap_or_else(|why| panic!("{why:#}"));
    postgres.create(&format!("mailonce_skew_{name}_{}", std::process::id())).unwrap()
}

fn clock_set_by(offset_ms: i64) -> [(&'static str, OsString); 2] {
    [
        ("MAILONCE_CLOCK_OFFSET_MS", offset_ms.to_string().into()),
        // The time service of this machine knows nothing of the offset.
        ("MAILONCE_CLOCK_SYNCHRONIZED", "false".into()),
    ]
}

/// The right time.
fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

fn remembered(n: usize) -> Value {
    let mut mail = mail(n);
    mail["ttl"] = json!("12h");
    mail
}

fn send(node: &Server, n: usize, mail: &Value) -> anyhow::Result<(u16, String)> {
    let reply = http::post(node.at, "/v1/emails", Some(&format!("skew-{n}")), mail)?;
    Ok((reply.status, reply.body["id"].as_str().unwrap_or_default().to_owned()))
}

/// What a node says of its clock: whether it is sure, and how far it is ahead of the database.
fn clock(node: &Server) -> Option<(bool, i64)> {
    let ready = http::get(node.at, "/readyz").ok()?.body;
    Some((ready["clock"]["sure"].as_bool()?, ready["clock"]["ahead_of_database_ms"].as_i64()?))
}

#[test]
fn a_node_whose_clock_is_hours_off_forgets_nothing_and_sends_nothing_early() {
    let (binary, outside, root) = (binary(), Outside::new(Hop::Relay), folder());
    let database = database("pair");
    let config = outside.way().toml();
    let place = Post { children: children(), binary: &binary, root: root.path(), store: Some(&database.url), config };
    let right = place.start("right", None, false).unwrap();
    let (_, first) = send(&right, 0, &remembered(0)).unwrap();
    post::until_all(right.at, std::slice::from_ref(&first), UNSTUCK, |_, state| state == "sent").unwrap();
    let mut later = remembered(1);
    later["scheduled_at"] = json!(Time(now_ms() + 2 * HOUR).to_string());
    let (_, scheduled) = send(&right, 1, &later).unwrap();

    for (turn, offset) in [23 * HOUR, -23 * HOUR, 48 * HOUR].into_iter().enumerate() {
        let wrong = place.start_with("wrong", false, &clock_set_by(offset)).unwrap();
        let off = |(sure, ahead): (bool, i64)| !sure && (ahead - offset).abs() < 60_000;
        post::until("a word about its clock", SAYS_SO, || clock(&wrong).is_some_and(off)).unwrap();
        // Its first sweep and its first lease come with its start; this mail comes after them.
        let n = 2 + turn;
        let (status, by_wrong) = send(&wrong, n, &remembered(n)).unwrap();
        assert_eq!(status, 202);
        post::until_all(wrong.at, std::slice::from_ref(&by_wrong), UNSTUCK, |_, state| state == "sent").unwrap();
        for node in [&right, &wrong] {
            assert_eq!(send(node, 0, &remembered(0)).unwrap(), (200, first.clone()), "offset {offset}");
            assert_eq!(send(node, n, &remembered(n)).unwrap(), (200, by_wrong.clone()), "offset {offset}");
        }
        assert_eq!(post::states(right.at, std::slice::from_ref(&scheduled)).unwrap(), ["scheduled"], "{offset}");
        wrong.kill().unwrap();
    }
    assert_eq!(outside.counts(5), [1, 0, 1, 1, 1]);
    assert_eq!(clock(&right).map(|(sure, _)| sure), Some(true), "the others change nothing for it");
}

/// A node of the campaign.
struct Node {
    server: Server,
    offset: i64,
    started: Instant,
}

/// A mail of the campaign: the id of its first answer, and when it may leave.
#[derive(Default)]
struct Sent {
    id: Option<String>,
    due: Option<i64>,
}

struct Campaign<'a> {
    place: Post<'a>,
    outside: &'a Outside,
    chance: Chance,
    nodes: Vec<Node>,
    mails: Vec<Sent>,
    kills: usize,
    replays: usize,
}

impl Campaign<'_> {
    fn draw_offset(&mut self) -> i64 {
        let spread = [0, 20_000, HOUR, 23 * HOUR, 48 * HOUR];
        let most = spread[self.chance.below(spread.len() as u64) as usize];
        if most == 0 { 0 } else { self.chance.below(2 * most as u64) as i64 - most }
    }

    fn start(&mut self, n: usize, offset: i64) -> Node {
        let server = self.place.start_with(&format!("node-{n}"), false, &clock_set_by(offset)).unwrap();
        Node { server, offset, started: Instant::now() }
    }

    fn kill_and_restart(&mut self, n: usize) {
        let offset = self.draw_offset();
        self.nodes.remove(n).server.kill().unwrap();
        let node = self.start(n, offset);
        self.nodes.insert(n, node);
        self.kills += 1;
    }

    /// Sends mail `n` to any node, new or again. Only the first answer may be a first one.
    fn send(&mut self, n: usize) {
        let node = self.chance.below(self.nodes.len() as u64) as usize;
        let mut mail = remembered(n);
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

    fn look(&self) {
        let counts = self.outside.counts(self.mails.len());
        for (n, count) in counts.iter().enumerate() {
            assert!(*count <= 1, "mail {n} left {count} times");
            let early = self.mails[n].due.is_some_and(|due| now_ms() < due);
            assert!(!early || *count == 0, "mail {n} left before its time");
        }
        for node in self.nodes.iter().filter(|node| node.offset.abs() > 31_000 && node.started.elapsed() > SAYS_SO) {
            let (sure, ahead) = clock(&node.server).expect("a node that answers");
            assert!(!sure && (ahead - node.offset).abs() < 60_000, "{} says {sure}, {ahead}", node.offset);
        }
    }

    fn step(&mut self) {
        match self.chance.below(20) {
            0 => {
                let n = self.chance.below(self.nodes.len() as u64) as usize;
                self.kill_and_restart(n);
            }
            1..=6 => {
                let due = (self.chance.below(4) == 0).then(|| now_ms() + 3_000 + self.chance.below(30_000) as i64);
                self.mails.push(Sent { id: None, due });
                self.send(self.mails.len() - 1);
            }
            _ if self.mails.is_empty() => {}
            _ => {
                let n = self.chance.below(self.mails.len() as u64) as usize;
                self.send(n);
            }
        }
        self.look();
        pause(STEP);
    }

    /// Every clock is right: everything that was accepted leaves, or is visibly unknown.
    fn settle(&mut self) {
        for n in 0..self.nodes.len() {
            self.nodes.remove(n).server.kill().unwrap();
            let node = self.start(n, 0);
            self.nodes.insert(n, node);
        }
        (0..self.mails.len()).for_each(|n| self.send(n));
        let ids: Vec<String> = self.mails.iter().filter_map(|mail| mail.id.clone()).collect();
        let settled = |_: usize, state: &str| matches!(state, "sent" | "unknown");
        post::until_all(self.nodes[0].server.at, &ids, Duration::from_mins(2), settled).unwrap();
        self.look();
        let counts = self.outside.counts(self.mails.len());
        for (n, state) in post::states(self.nodes[0].server.at, &ids).unwrap().iter().enumerate() {
            assert!(state == "unknown" || counts[n] == 1, "mail {n} is {state} and left {} times", counts[n]);
        }
    }
}

#[test]
fn nodes_whose_clocks_are_days_apart_send_each_mail_once_and_on_time() {
    let minutes = asked("MAILONCE_SKEW_MINUTES", 0);
    let time = if minutes == 0 { Duration::from_secs(12) } else { Duration::from_mins(minutes) };
    let (binary, outside, root) = (binary(), Outside::new(Hop::Relay), folder());
    let database = database("campaign");
    let config = outside.way().toml();
    let place = Post { children: children(), binary: &binary, root: root.path(), store: Some(&database.url), config };
    let seed = seed();
    let chance = Chance::at(seed, &[17]);
    let mut campaign =
        Campaign { place, outside: &outside, chance, nodes: Vec::new(), mails: Vec::new(), kills: 0, replays: 0 };
    for n in 0..2 {
        let offset = campaign.draw_offset();
        let node = campaign.start(n, offset);
        campaign.nodes.push(node);
    }
    let began = Instant::now();
    while began.elapsed() < time {
        campaign.step();
    }
    campaign.settle();
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
        Proof::new(target, "clocks", &command).add(seed, &counts, &[]).unwrap();
    }
}
