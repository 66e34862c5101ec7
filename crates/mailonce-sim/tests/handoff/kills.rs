//! Kill -9 at every point of a hand-over, over SQLite: after the restart nothing is twice, nothing is lost without a
//! word, and what is known is said.

use mailonce_sim::{
    rig::post::{self, Post, mail},
    sink::{http::Act, smtp},
};
use serde_json::json;
use std::time::Duration;

use crate::rig::{Hop, Outside, REACH, UNSTUCK, binary, folder, one_by_one};

const MAILS: usize = 6;
/// The hand-over that is hit.
const HIT: usize = 3;

/// The look for work that is hit: an idle server looks some times a second too, from its start on.
const LOOK: usize = 30;

/// The failpoint that kills at a point.
fn killing(point: &str) -> String {
    let time = match point {
        "before-lease" => LOOK,
        "repeat" => 2,
        _ => HIT,
    };
    format!("{point}:kill:{time}")
}

/// A point, and what it leaves with a next hop that cannot be asked: how many mails are unknown, and how many of
/// those were taken.
const POINTS: [(&str, usize, usize); 7] = [
    ("before-lease", 0, 0),
    ("after-lease", 0, 0),
    ("approach", 0, 0),
    ("before-marker", 0, 0),
    ("after-marker", 1, 0),
    ("after-answer", 1, 1),
    ("after-settle", 0, 0),
];

/// Sends, and waits until the server died of it.
fn die(place: &Post<'_>, failpoint: &str) {
    let mut server = place.start("data", Some(failpoint), false).unwrap();
    let mails: Vec<_> = (0..MAILS).map(mail).collect();
    // It may die before it answers. What it accepted is asked for again afterwards, under the same key.
    let _maybe = post::send_batch(server.at, "batch", &mails);
    let ended = server.ended(REACH).unwrap();
    assert!(ended.is_some(), "{failpoint} was never reached; was the binary built with `--features failpoints`?");
}

/// What became of the mails after the restart: how many are unknown, how many of those were taken.
fn rise(place: &Post<'_>, outside: &Outside, hop: Hop, failpoint: &str) -> (usize, usize) {
    let server = place.start("data", None, false).unwrap();
    let mails: Vec<_> = (0..MAILS).map(mail).collect();
    let ids = post::send_batch(server.at, "batch", &mails).unwrap();
    let ends = |_, state: &str| state == "sent" || (state == "unknown" && hop == Hop::Relay);
    post::until_all(server.at, &ids, UNSTUCK, ends).unwrap_or_else(|why| panic!("{failpoint}: {why:#}"));
    let (states, counts) = (post::states(server.at, &ids).unwrap(), outside.counts(MAILS));
    let unknown = |n: &usize| states[*n] == "unknown";
    for n in 0..MAILS {
        let right = if unknown(&n) { counts[n] <= 1 } else { counts[n] == 1 };
        assert!(right, "{failpoint}: mail {n} is {} and was taken {} times", states[n], counts[n]);
    }
    server.stop().unwrap();
    let lost: Vec<usize> = (0..MAILS).filter(unknown).collect();
    (lost.len(), lost.iter().map(|n| counts[*n]).sum())
}

#[test]
fn a_relay_gets_nothing_twice_wherever_the_server_dies() {
    let binary = binary();
    for (point, unknown, taken) in POINTS {
        let (outside, root) = (Outside::new(Hop::Relay), folder());
        let place = one_by_one(&outside, &binary, root.path(), None);
        let failpoint = killing(point);
        die(&place, &failpoint);
        let left = rise(&place, &outside, Hop::Relay, &failpoint);
        assert_eq!(left, (unknown, taken), "{failpoint}");
        println!("relay, {point}: {unknown} unknown, {taken} of them taken");
    }
}

#[test]
fn a_keyed_provider_gets_everything_once_wherever_the_server_dies() {
    let binary = binary();
    for point in POINTS.map(|(point, _, _)| point).into_iter().chain(["repeat"]) {
        let (outside, root) = (Outside::new(Hop::Keyed), folder());
        let place = one_by_one(&outside, &binary, root.path(), None);
        // Some have to be repeated, or else that point is never reached.
        outside.keyed().script(&[Act::TakeThenDrop, Act::Drop, Act::TakeThenBreak]);
        let failpoint = killing(point);
        die(&place, &failpoint);
        assert_eq!(rise(&place, &outside, Hop::Keyed, &failpoint), (0, 0));
        println!("keyed, {point}: all once");
    }
}

#[test]
fn many_hand_overs_at_once_leave_nothing_twice() {
    let binary = binary();
    for hop in [Hop::Relay, Hop::Keyed] {
        for point in ["after-marker", "after-answer"] {
            let (outside, root) = (Outside::new(hop), folder());
            let config = format!("{}\n[defaults]\nin_flight = 4\n", outside.way().toml());
            let place = Post { config, ..one_by_one(&outside, &binary, root.path(), None) };
            let failpoint = killing(point);
            die(&place, &failpoint);
            let (unknown, _) = rise(&place, &outside, hop, &failpoint);
            assert!(unknown <= 4, "{unknown} of 4 hand-overs are unknown");
        }
    }
}

#[test]
fn a_server_that_dies_in_the_middle_of_a_body_has_sent_nothing() {
    let (binary, outside, root) = (binary(), Outside::new(Hop::Relay), folder());
    let place = one_by_one(&outside, &binary, root.path(), None);
    outside.relay().once(smtp::Step::Body, smtp::Act::Freeze);
    let server = place.start("data", None, false).unwrap();
    // More than the sockets between hold, so that it is really stuck in the body.
    let long = json!({"from": "agent@example.com", "to": post::recipient(0), "subject": "Long",
        "text": "All work and no play makes this a very long mail indeed.\n".repeat(240_000)});
    let ids = post::send_batch(server.at, "long", std::slice::from_ref(&long)).unwrap();
    let said = |sink: &smtp::SmtpSink| sink.commands().iter().any(|(_, line)| line == "DATA");
    outside.runtime.block_on(outside.relay().until(said)).unwrap();
    let state = post::email(server.at, &ids[0]).unwrap()["handoffs"][0]["state"].clone();
    assert_eq!(state, "leased", "the marker came before the body was over");
    server.kill().unwrap();
    let server = place.start("data", None, false).unwrap();
    post::until_all(server.at, &ids, UNSTUCK, |_, state| state == "sent").unwrap();
    assert_eq!(outside.counts(1), [1]);
}

#[test]
fn a_server_that_dies_after_the_final_dot_does_not_know_and_says_so() {
    let binary = binary();
    for taken in [true, false] {
        let (outside, root) = (Outside::new(Hop::Relay), folder());
        let place = one_by_one(&outside, &binary, root.path(), None);
        let stall = if taken { smtp::Act::taken(smtp::Act::Stall) } else { smtp::Act::Stall };
        outside.relay().once(smtp::Step::Dot, stall);
        let server = place.start("data", None, false).unwrap();
        let ids = post::send_batch(server.at, "batch", &[mail(0)]).unwrap();
        let marked = || {
            let email = post::email(server.at, &ids[0]).unwrap();
            email["handoffs"][0]["state"] == "sending" && (!taken || outside.counts(1) == [1])
        };
        post::until("the dot", REACH, marked).unwrap();
        server.kill().unwrap();
        let server = place.start("data", None, false).unwrap();
        post::until_all(server.at, &ids, UNSTUCK, |_, state| state == "unknown").unwrap();
        // Nothing but a person or a policy moves it from here.
        let other = post::send_batch(server.at, "other", &[mail(1)]).unwrap();
        post::until_all(server.at, &other, Duration::from_secs(10), |_, state| state == "sent").unwrap();
        assert_eq!(outside.counts(2), [usize::from(taken), 1]);
        assert_eq!(post::states(server.at, &ids).unwrap(), ["unknown"]);
    }
}
