//! Races cancels against dispatch a thousand times with the real binary: after a confirmed cancel, the next hop saw
//! nothing.

use mailonce_sim::harness::{
    http,
    rng::{SeededRng, seed_from_env},
    server_fixture::{self, ServerFixture, sample_mail},
};
use std::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use crate::binary_fixtures::{RECOVERY_TIMEOUT, SinkFixture, SinkKind, binary, sequential_server, temp_dir};

const RACES: usize = 1_000;
const CALLERS: usize = 8;
/// The longest head start of dispatch, in microseconds.
const MAX_HEAD_START_MICROS: u64 = 30_000;

#[test]
fn a_cancelled_email_was_never_sent() {
    let (binary, outside, root, seed) = (binary(), SinkFixture::new(SinkKind::Relay), temp_dir(), seed_from_env());
    let servers = ServerFixture {
        config: outside.outbound_target().toml(),
        ..sequential_server(&outside, &binary, root.path(), None)
    };
    let server = servers.start("data", None, false).unwrap();
    let next = AtomicUsize::new(0);
    let mut cancelled: Vec<(usize, String, bool)> = thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(|| race_cancels(server.at, &next, seed))).collect();
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
    });
    cancelled.sort_unstable();
    let ids: Vec<String> = cancelled.iter().map(|(_, id, _)| id.clone()).collect();
    let ends = |n: usize, state: &str| state == if cancelled[n].2 { "cancelled" } else { "sent" };
    server_fixture::wait_for_states(server.at, &ids, RECOVERY_TIMEOUT, ends).unwrap();
    let counts = outside.copies_per_mail(RACES);
    for (n, id, was) in &cancelled {
        let wanted = usize::from(!was);
        assert_eq!(counts[*n], wanted, "{id} was cancelled: {was}; MAILONCE_SEED={seed}");
    }
    let won = cancelled.iter().filter(|(_, _, was)| *was).count();
    println!("{won} of {RACES} cancels came in time");
    assert!(won > RACES / 50 && won < RACES - RACES / 50, "{won} of {RACES} cancels came in time: that was no race");
}

/// Sends and cancels. Returns the mail's number, its id, and whether the cancel was confirmed.
fn race_cancels(at: SocketAddr, next: &AtomicUsize, seed: u64) -> Vec<(usize, String, bool)> {
    let mut raced = Vec::new();
    loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        if n >= RACES {
            return raced;
        }
        let reply = http::post(at, "/v1/emails", Some(&format!("race-{n}")), &sample_mail(n)).unwrap();
        let id = reply.body["id"].as_str().unwrap().to_owned();
        mailonce_sim::harness::child_processes::sleep(Duration::from_micros(
            SeededRng::derive(seed, &[n as u64]).below(MAX_HEAD_START_MICROS),
        ));
        let reply = http::post(at, &format!("/v1/emails/{id}/cancel"), None, &serde_json::json!({})).unwrap();
        let was = match (reply.status, reply.body["state"].as_str()) {
            (200, Some("cancelled")) => true,
            (409, _) => false,
            other => panic!("a cancel was answered {other:?}: {}", reply.body),
        };
        raced.push((n, id, was));
    }
}
