//! A long queue survives a kill: it starts again at once, drains in order, and one slow domain delays no other.
//!
//! `MAILONCE_QUEUE=N` sets the length of the queue; `scripts/test --full` uses 20,000 mails.

use mailonce_sim::{
    harness::server_fixture::{self, ServerFixture, sample_mail},
    sink::smtp,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use crate::binary_fixtures::{SinkFixture, SinkKind, binary, sequential_server, temp_dir};

const MAILS: usize = 5_000;
const BATCH: usize = 1_000;
/// Mails for the slow domain, at the very front of the queue.
const SLOW_DOMAIN_MAILS: usize = 100;
/// Concurrent attempts per domain.
const PER_DOMAIN: usize = 4;
/// Domains of the other mails.
const DOMAINS: usize = 101;
/// Connections to the relay, and so concurrent attempts.
const CONNECTIONS: usize = 16;
const START_TIMEOUT: Duration = Duration::from_secs(15);
/// How long one mail may take at most.
const MAX_TIME_PER_MAIL: Duration = Duration::from_millis(30);

fn queue_length() -> usize {
    std::env::var("MAILONCE_QUEUE").ok().and_then(|text| text.trim().parse().ok()).unwrap_or(MAILS)
}

/// The n-th mail: the first ones to the slow domain, the others to many.
fn queued_mail(n: usize) -> Value {
    let mut mail = sample_mail(n);
    let domain = if n < SLOW_DOMAIN_MAILS { "slow.test".to_owned() } else { format!("d{}.test", n % DOMAINS) };
    mail["to"] = json!(format!("m{n}@{domain}"));
    mail
}

#[test]
fn a_long_queue_starts_at_once_drains_in_order_and_is_not_blocked_by_one_domain() {
    let (binary, outside, root) = (binary(), SinkFixture::new(SinkKind::Relay), temp_dir());
    // Each of them blocks its connection for longer than the test runs.
    outside.relay().always_at_line(smtp::SmtpStep::Rcpt, "slow.test", smtp::SmtpAction::Late(Duration::from_mins(10)));
    let config = format!(
        "{}max_connections = {CONNECTIONS}\n\n[defaults]\nmax_in_flight_per_domain = {PER_DOMAIN}\n",
        outside.outbound_target().toml()
    );
    let servers = ServerFixture { config, ..sequential_server(&outside, &binary, root.path(), None) };
    let mails = fill_and_kill(&servers);
    let began = Instant::now();
    let server = servers.start("data", None, false).unwrap();
    let ready = began.elapsed();
    let fast = mails - SLOW_DOMAIN_MAILS;
    let timeout = Duration::from_secs(20) + MAX_TIME_PER_MAIL * u32::try_from(fast).unwrap();
    let came = server_fixture::wait_until("the last mail", timeout, || outside.relay().mail_count() >= fast);
    let (drained, taken) = (began.elapsed(), outside.accepted_numbers());
    println!("{mails} queued: serving after {ready:?}, drained after {drained:?} ({} mails)", taken.len());
    came.unwrap();
    assert!(ready <= START_TIMEOUT, "serving only after {ready:?}");
    assert_eq!(
        taken.iter().copied().collect::<BTreeSet<_>>(),
        (SLOW_DOMAIN_MAILS..mails).collect(),
        "each of them, and only those"
    );
    assert_eq!(taken.len(), fast, "something came twice");
    assert_in_order(&taken);
    drop(server);
}

/// Fills the queue of a server with paused hand-off, and kills it.
fn fill_and_kill(servers: &ServerFixture<'_>) -> usize {
    let server = servers.start("data", None, true).unwrap();
    let mails = queue_length();
    for batch in 0..mails.div_ceil(BATCH) {
        let numbers = batch * BATCH..((batch + 1) * BATCH).min(mails);
        server_fixture::send_batch(server.at, &format!("batch-{batch}"), &numbers.map(queued_mail).collect::<Vec<_>>())
            .unwrap();
    }
    server.kill().unwrap();
    mails
}

/// No mail overtakes one that was due earlier, except among concurrent attempts.
fn assert_in_order(taken: &[usize]) {
    let mut latest = 0;
    for (index, n) in taken.iter().enumerate() {
        latest = latest.max(*n);
        let ahead = taken[index..].iter().filter(|other| **other < latest).count();
        assert!(ahead <= 2 * CONNECTIONS, "mail {latest} left before {ahead} that were due before it");
        if index > 4_000 {
            // The comparison is quadratic; the start and the whole order below are enough.
            break;
        }
    }
    let strays =
        taken.iter().enumerate().filter(|(index, n)| n.abs_diff(index + SLOW_DOMAIN_MAILS) > 2 * CONNECTIONS).count();
    assert_eq!(strays, 0, "{strays} mails are far from their turn");
}
