//! Kills at moments without a failpoint: in the middle of a body, and while waiting for the reply to the dot. Crashes
//! at failpoints are in `tests/crash`.

use mailonce_sim::{
    harness::server_fixture::{self, sample_mail},
    sink::smtp,
};
use serde_json::json;
use std::time::Duration;

use crate::binary_fixtures::{
    FAILPOINT_TIMEOUT, RECOVERY_TIMEOUT, SinkFixture, SinkKind, binary, sequential_server, temp_dir,
};

#[test]
fn a_crash_in_the_middle_of_a_body_sends_nothing() {
    let (binary, outside, root) = (binary(), SinkFixture::new(SinkKind::Relay), temp_dir());
    let servers = sequential_server(&outside, &binary, root.path(), None);
    outside.relay().once_at(smtp::SmtpStep::Body, smtp::SmtpAction::Freeze);
    let server = servers.start("data", None, false).unwrap();
    // More than the socket buffers hold, so that the server is stuck in the body.
    let long = json!({"from": "agent@example.com", "to": server_fixture::recipient(0), "subject": "Long",
        "text": "All work and no play makes this a very long mail indeed.\n".repeat(240_000)});
    let ids = server_fixture::send_batch(server.at, "long", std::slice::from_ref(&long)).unwrap();
    let saw_data = |sink: &smtp::SmtpSink| sink.commands().iter().any(|(_, line)| line == "DATA");
    outside.runtime.block_on(outside.relay().wait_until(saw_data)).unwrap();
    let state = server_fixture::get_email(server.at, &ids[0]).unwrap()["handoffs"][0]["state"].clone();
    assert_eq!(state, "leased", "the marker came before the body was over");
    server.kill().unwrap();
    let server = servers.start("data", None, false).unwrap();
    server_fixture::wait_for_states(server.at, &ids, RECOVERY_TIMEOUT, |_, state| state == "sent").unwrap();
    assert_eq!(outside.copies_per_mail(1), [1]);
}

#[test]
fn a_crash_after_the_final_dot_leaves_the_outcome_unknown() {
    let binary = binary();
    for taken in [true, false] {
        let (outside, root) = (SinkFixture::new(SinkKind::Relay), temp_dir());
        let servers = sequential_server(&outside, &binary, root.path(), None);
        let stall =
            if taken { smtp::SmtpAction::accept_then(smtp::SmtpAction::Stall) } else { smtp::SmtpAction::Stall };
        outside.relay().once_at(smtp::SmtpStep::Dot, stall);
        let server = servers.start("data", None, false).unwrap();
        let ids = server_fixture::send_batch(server.at, "batch", &[sample_mail(0)]).unwrap();
        let marked = || {
            let email = server_fixture::get_email(server.at, &ids[0]).unwrap();
            email["handoffs"][0]["state"] == "sending" && (!taken || outside.copies_per_mail(1) == [1])
        };
        server_fixture::wait_until("the dot", FAILPOINT_TIMEOUT, marked).unwrap();
        server.kill().unwrap();
        let server = servers.start("data", None, false).unwrap();
        server_fixture::wait_for_states(server.at, &ids, RECOVERY_TIMEOUT, |_, state| state == "unknown").unwrap();
        // Only an operator or a policy changes it from here.
        let other = server_fixture::send_batch(server.at, "other", &[sample_mail(1)]).unwrap();
        server_fixture::wait_for_states(server.at, &other, Duration::from_secs(10), |_, state| state == "sent")
            .unwrap();
        assert_eq!(outside.copies_per_mail(2), [usize::from(taken), 1]);
        assert_eq!(server_fixture::email_states(server.at, &ids).unwrap(), ["unknown"]);
    }
}
