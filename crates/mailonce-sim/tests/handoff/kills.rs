//! Kill -9 at moments that have no named point: in the middle of a body, and while the answer to the dot is awaited.
//! Deaths at named points are the crash rig's (`tests/crash`).

use mailonce_sim::{
    rig::post::{self, mail},
    sink::smtp,
};
use serde_json::json;
use std::time::Duration;

use crate::rig::{Hop, Outside, REACH, UNSTUCK, binary, folder, one_by_one};

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
