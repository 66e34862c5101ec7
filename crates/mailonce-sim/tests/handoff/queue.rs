//! A long queue survives a kill: served again at once, drained in order, and one slow domain delays nobody else.
//!
//! `MAILONCE_QUEUE=N` asks for a longer queue than the usual one; `scripts/test --full` plays 20,000 mails.

use mailonce_sim::{
    rig::post::{self, Post, mail},
    sink::smtp,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use crate::rig::{Hop, Outside, binary, folder, one_by_one};

const MAILS: usize = 5_000;
const BATCH: usize = 1_000;
/// Mails for the slow domain, at the very front of the queue.
const SLOW: usize = 100;
/// Hand-overs to one domain at a time.
const PER_DOMAIN: usize = 4;
/// Domains of the other mails.
const DOMAINS: usize = 101;
/// Connections to the relay, and so hand-overs at a time.
const CONNECTIONS: usize = 16;
const SERVING: Duration = Duration::from_secs(3);
/// How long one mail may take on the way, at the very worst.
const EACH: Duration = Duration::from_millis(8);

fn queue() -> usize {
    std::env::var("MAILONCE_QUEUE").ok().and_then(|text| text.trim().parse().ok()).unwrap_or(MAILS)
}

/// The n-th mail: the first ones to the slow domain, the others to many.
fn wish(n: usize) -> Value {
    let mut mail = mail(n);
    let domain = if n < SLOW { "slow.test".to_owned() } else { format!("d{}.test", n % DOMAINS) };
    mail["to"] = json!(format!("m{n}@{domain}"));
    mail
}

#[test]
fn a_long_queue_is_served_at_once_drained_in_order_and_held_up_by_nobody() {
    let (binary, outside, root) = (binary(), Outside::new(Hop::Relay), folder());
    // Each of them takes its connection for longer than the test lasts.
    outside.relay().on_line(smtp::Step::Rcpt, "slow.test", smtp::Act::Late(Duration::from_mins(10)));
    let config =
        format!("{}connections = {CONNECTIONS}\n\n[defaults]\nper_domain = {PER_DOMAIN}\n", outside.way().toml());
    let place = Post { config, ..one_by_one(&outside, &binary, root.path(), None) };
    let mails = fill(&place);
    let began = Instant::now();
    let server = place.start("data", None, false).unwrap();
    let ready = began.elapsed();
    let fast = mails - SLOW;
    let patience = Duration::from_secs(20) + EACH * u32::try_from(fast).unwrap();
    let came = post::until("the last mail", patience, || outside.relay().count() >= fast);
    let (drained, taken) = (began.elapsed(), outside.taken());
    println!("{mails} queued: serving after {ready:?}, drained after {drained:?} ({} mails)", taken.len());
    came.unwrap();
    assert!(ready <= SERVING, "serving only after {ready:?}");
    assert_eq!(taken.iter().copied().collect::<BTreeSet<_>>(), (SLOW..mails).collect(), "each of them, and only those");
    assert_eq!(taken.len(), fast, "something came twice");
    in_order(&taken);
    drop(server);
}

/// Fills the queue of a server that does not hand over, and kills it.
fn fill(place: &Post<'_>) -> usize {
    let server = place.start("data", None, true).unwrap();
    let mails = queue();
    for batch in 0..mails.div_ceil(BATCH) {
        let numbers = batch * BATCH..((batch + 1) * BATCH).min(mails);
        post::send_batch(server.at, &format!("batch-{batch}"), &numbers.map(wish).collect::<Vec<_>>()).unwrap();
    }
    server.kill().unwrap();
    mails
}

/// No mail overtakes one that was due before it, save those that are under way together.
fn in_order(taken: &[usize]) {
    let mut latest = 0;
    for (place, n) in taken.iter().enumerate() {
        latest = latest.max(*n);
        let ahead = taken[place..].iter().filter(|other| **other < latest).count();
        assert!(ahead <= 2 * CONNECTIONS, "mail {latest} left before {ahead} that were due before it");
        if place > 4_000 {
            // The comparison is quadratic; the beginning and the whole order below tell enough.
            break;
        }
    }
    let strays = taken.iter().enumerate().filter(|(place, n)| n.abs_diff(place + SLOW) > 2 * CONNECTIONS).count();
    assert_eq!(strays, 0, "{strays} mails are far from their turn");
}
