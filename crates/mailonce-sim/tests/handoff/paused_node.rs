//! Two nodes on one PostgreSQL: one pauses after its marker, the other takes over, the provider forgets the key, and
//! the first resumes. Shorter pauses and crashes at failpoints are in `tests/crash`.

use mailonce_sim::{
    harness::{
        child_processes::sleep,
        postgres::PostgresServer,
        server_fixture::{self, sample_mail},
    },
    sink::http::ScriptedResponse,
};
use std::time::{Duration, Instant};

use crate::binary_fixtures::{
    FAILPOINT_TIMEOUT, RECOVERY_TIMEOUT, SinkFixture, SinkKind, binary, sequential_server, temp_dir,
};

const MAILS: usize = 6;
/// How long a node is silent before another takes over, and some time for that.
const TAKE_OVER_TIME: Duration = Duration::from_secs(15 + 5);
/// Longer than a connection's maximum age when the request is written.
const PAUSE_PAST_CONNECTION_AGE: Duration = Duration::from_secs(63);

#[test]
fn a_node_that_slept_past_the_providers_window_sends_nothing() {
    let (binary, outside, root) = (binary(), SinkFixture::new(SinkKind::Keyed), temp_dir());
    let postgres = PostgresServer::from_env().unwrap_or_else(|why| panic!("{why:#}"));
    let database = postgres.create_database(&format!("mailonce_nodes_{}", std::process::id())).unwrap();
    outside.keyed().queue_responses(&[
        ScriptedResponse::Normal,
        ScriptedResponse::AcceptThenDrop,
        ScriptedResponse::Drop,
    ]);
    let servers = sequential_server(&outside, &binary, root.path(), Some(&database.url));
    let mails: Vec<_> = (0..MAILS).map(sample_mail).collect();
    let first = servers.start("first", Some("after-marker:stop:2"), false).unwrap();
    let _maybe = server_fixture::send_batch(first.at, "batch", &mails);
    server_fixture::wait_until("the point", FAILPOINT_TIMEOUT, || first.is_paused()).unwrap();
    let slept = Instant::now();
    let second = servers.start("second", None, false).unwrap();
    let ids = server_fixture::send_batch(second.at, "batch", &mails).unwrap();
    server_fixture::wait_for_states(second.at, &ids, TAKE_OVER_TIME + RECOVERY_TIMEOUT, |_, state| state == "sent")
        .unwrap();
    sleep(PAUSE_PAST_CONNECTION_AGE.saturating_sub(slept.elapsed()));
    outside.keyed().forget_keys();
    first.resume().unwrap();
    // By the time it is idle, it has done whatever it was going to do.
    let probe = server_fixture::send_batch(first.at, "probe", &[sample_mail(MAILS)]).unwrap();
    server_fixture::wait_for_states(first.at, &probe, RECOVERY_TIMEOUT, |_, state| state == "sent").unwrap();
    server_fixture::wait_until("the end of its work", RECOVERY_TIMEOUT, || {
        server_fixture::handoffs_in_flight(first.at) == Some(0)
    })
    .unwrap();
    assert_eq!(outside.copies_per_mail(MAILS + 1), [1; MAILS + 1]);
    assert_eq!(server_fixture::email_states(second.at, &ids).unwrap(), ["sent"; MAILS]);
}
