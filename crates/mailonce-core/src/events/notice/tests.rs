//! The life of a notice.

use super::*;
use serde_json::Value;

use crate::events::event::NewEvent;

const NODE: NodeId = NodeId(Uuid::from_u128(5));
const DAY: i64 = 86_400_000;

fn event(seq: u64) -> Event {
    let (kind, at, about) = (EventKind::EmailSent, Time(1_731_628_800_123), Uuid::from_u128(9));
    Event { seq, event: NewEvent { kind, at, subject_id: about, rev: 1, data: Value::Null } }
}

fn notice(seq: u64, in_line: bool) -> Notice {
    Notice::new(TeamId(Uuid::from_u128(1)), EndpointId(Uuid::from_u128(2)), &event(seq), in_line, Time(0))
}

fn attempt(number: u32) -> NoticeAttempt {
    NoticeAttempt { number, at: Time(0), status: Some(500), latency_ms: 3, response: "no".into(), error: None }
}

#[test]
fn ids_of_notices_follow_from_endpoint_and_event() {
    let one = |endpoint, seq| notice_id(EndpointId(Uuid::from_u128(endpoint)), event(seq).id());
    assert_eq!(one(1, 1), one(1, 1));
    assert_ne!(one(1, 1), one(2, 1));
    assert_ne!(one(1, 1), one(1, 2));
    assert_eq!(one(1, 1).0.get_version_num(), 7);
    // Receivers store these ids, so they must never change.
    assert_eq!(one(1, 1).to_string(), "01932d1e-987b-7612-9f28-263a6e29a1a0");
}

#[test]
fn a_notice_is_leased_when_it_is_due_and_held_for_a_while() {
    let mut one = notice(1, false);
    assert!(one.lease(NODE, Time(0)));
    assert!(!one.clone().lease(NODE, Time(limits::NOTICE_LEASE_MS - 1)));
    assert!(one.clone().lease(NODE, Time(limits::NOTICE_LEASE_MS)));
    assert!(one.reclaim_lease(Time(7)));
    assert!(one.lease(NODE, Time(7)));
    assert_eq!(one.attempts, 2);
    assert!(!notice(1, true).lease(NODE, Time(100)), "one in line has no time");
}

#[test]
fn an_attempt_counts_once_and_only_the_latest_puts_off() {
    let mut one = notice(1, false);
    assert!(one.lease(NODE, Time(0)));
    assert!(!one.record_outcome(attempt(2), WebhookVerdict::Delivered, 0, Time(1)), "never begun");
    assert!(one.record_outcome(attempt(1), WebhookVerdict::Retry(None), 0, Time(1)));
    assert_eq!((one.due_at, one.failures), (Some(Time(5_001)), 1));
    let before = one.clone();
    assert!(!one.record_outcome(attempt(1), WebhookVerdict::Retry(None), 0, Time(2)));
    assert_eq!(one, before);
    assert!(one.lease(NODE, Time(6_000)));
    assert!(one.lease(NODE, Time(100_000)), "the first of two processes was too slow");
    let next_at = one.due_at;
    assert!(one.record_outcome(attempt(2), WebhookVerdict::Retry(None), 0, Time(100_001)));
    assert_eq!((one.due_at, one.failures), (next_at, 1), "a late failure puts nothing off");
    assert!(one.record_outcome(attempt(3), WebhookVerdict::Delivered, 0, Time(100_002)));
    assert_eq!((one.state, one.due_at, one.settled_at), (NoticeState::Delivered, None, Some(Time(100_002))));
}

#[test]
fn a_late_success_counts_for_what_was_given_up() {
    let mut one = notice(1, false);
    let mut now = Time(0);
    while one.is_open() {
        assert!(one.lease(NODE, now));
        let number = one.attempts;
        // The first attempt has no recorded outcome yet.
        assert!(number == 1 || one.record_outcome(attempt(number), WebhookVerdict::Retry(None), 0, now));
        now = one.due_at.unwrap_or(now);
    }
    assert_eq!(one.state, NoticeState::Dead);
    assert!((6 * DAY..7 * DAY + limits::NOTICE_LEASE_MS).contains(&now.0), "{now:?}");
    assert!(one.record_outcome(attempt(1), WebhookVerdict::Delivered, 0, now));
    assert_eq!(one.state, NoticeState::Delivered);
    assert_eq!(one.sweep_at(), Some(now.plus(30 * DAY)));
}

#[test]
fn the_latest_20_attempts_and_the_first_bytes_of_answers_are_kept() {
    let mut one = notice(1, false);
    for number in 1..=25 {
        one.due_at = Some(Time(0));
        (one.failures, one.total_pause_ms) = (0, 0);
        assert!(one.lease(NODE, Time(0)));
        let response = "ä".repeat(600);
        assert!(one.record_outcome(
            NoticeAttempt { response, ..attempt(number) },
            WebhookVerdict::Retry(None),
            0,
            Time(0)
        ));
    }
    assert_eq!((one.attempt_log.len(), one.attempt_log[0].number, one.attempt_log[19].number), (20, 6, 25));
    assert_eq!(one.attempt_log[0].response.len(), limits::WEBHOOK_RESPONSE_BYTES);
    assert!(!one.record_outcome(attempt(3), WebhookVerdict::Delivered, 0, Time(0)), "too old to be told from a repeat");
}

#[test]
fn a_replay_gives_every_try_again_but_not_while_a_process_is_at_it() {
    let mut one = notice(1, false);
    assert!(one.lease(NODE, Time(0)));
    assert!(!one.replay(Time(1)));
    assert!(one.record_outcome(attempt(1), WebhookVerdict::Dropped, 0, Time(1)));
    assert_eq!(one.state, NoticeState::Dropped);
    assert!(one.replay(Time(2)));
    assert_eq!((one.state, one.due_at, one.failures, one.total_pause_ms), (NoticeState::Pending, Some(Time(2)), 0, 0));
    assert_eq!(one.sweep_at(), None);
}

#[test]
fn only_the_first_in_line_is_due() {
    let mut line = vec![notice(1, true), notice(2, false), notice(3, false), notice(4, true)];
    assert!(line[2].lease(NODE, Time(0)));
    assert_eq!(schedule_in_order(&mut line, Time(9)), [0, 1]);
    let times: Vec<_> = line.iter().map(|notice| notice.due_at).collect();
    assert_eq!(times, [Some(Time(9)), None, Some(Time(limits::NOTICE_LEASE_MS)), None]);
    assert_eq!(schedule_in_order(&mut line, Time(10)), [0; 0]);
}

#[test]
fn a_failed_notice_differs_from_a_waiting_one() {
    let mut one = notice(1, false);
    assert!(!one.has_failed(Time(0)));
    assert!(one.lease(NODE, Time(0)));
    assert!(!one.has_failed(Time(0)));
    assert!(one.record_outcome(attempt(1), WebhookVerdict::Retry(None), 0, Time(0)));
    assert!(one.has_failed(Time(0)) && !one.has_failed(Time(5_000)));
}
