//! Two nodes on one PostgreSQL: one falls asleep after its marker, the other takes over, the provider forgets, and the
//! first wakes up again. Shorter sleeps and deaths at every point are the crash rig's (`tests/crash`).

use mailonce_sim::{
    rig::{
        children::pause,
        post::{self, mail},
        postgres::Postgres,
    },
    sink::http::Act,
};
use std::time::{Duration, Instant};

use crate::rig::{Hop, Outside, REACH, UNSTUCK, binary, folder, one_by_one};

const MAILS: usize = 6;
/// How long a node is silent before another takes over, and some for the start of that.
const TAKE_OVER: Duration = Duration::from_secs(15 + 5);
/// Longer than a connection may be old when the request is written.
const LONG_SLEEP: Duration = Duration::from_secs(63);

#[test]
fn a_node_that_slept_past_the_providers_window_sends_nothing() {
    let (binary, outside, root) = (binary(), Outside::new(Hop::Keyed), folder());
    let postgres = Postgres::from_env().unwrap_or_else(|why| panic!("{why:#}"));
    let database = postgres.create(&format!("mailonce_nodes_{}", std::process::id())).unwrap();
    outside.keyed().script(&[Act::Honest, Act::TakeThenDrop, Act::Drop]);
    let place = one_by_one(&outside, &binary, root.path(), Some(&database.url));
    let mails: Vec<_> = (0..MAILS).map(mail).collect();
    let first = place.start("first", Some("after-marker:stop:2"), false).unwrap();
    let _maybe = post::send_batch(first.at, "batch", &mails);
    post::until("the point", REACH, || first.is_frozen()).unwrap();
    let slept = Instant::now();
    let second = place.start("second", None, false).unwrap();
    let ids = post::send_batch(second.at, "batch", &mails).unwrap();
    post::until_all(second.at, &ids, TAKE_OVER + UNSTUCK, |_, state| state == "sent").unwrap();
    pause(LONG_SLEEP.saturating_sub(slept.elapsed()));
    outside.keyed().forget_keys();
    first.thaw().unwrap();
    // Whatever it wanted to do, it has done before it is idle again.
    let probe = post::send_batch(first.at, "probe", &[mail(MAILS)]).unwrap();
    post::until_all(first.at, &probe, UNSTUCK, |_, state| state == "sent").unwrap();
    post::until("the end of its work", UNSTUCK, || post::in_flight(first.at) == Some(0)).unwrap();
    assert_eq!(outside.counts(MAILS + 1), [1; MAILS + 1]);
    assert_eq!(post::states(second.at, &ids).unwrap(), ["sent"; MAILS]);
}
