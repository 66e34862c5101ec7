//! Promises about stops: what they cover, that they are a barrier, and how their email is released.

use mailonce_core::{
    control::stop::{
        CONFIGURATION_AUTHOR, CreateStopResult, ERASURE_JOURNAL_AUTHOR, MAX_STOPS, Stop, StopAuthor, StopKind,
        StopMode, StopScope,
    },
    handoff::{
        HandoffState,
        action::{HandoffAction, HandoffActionStatus},
        reply::ReplyMeaning,
    },
    id::{ApiKeyId, EmailId, InboxId, StopId, TeamId},
    operation::IdempotentResult,
    outbound::{email::EmailState, email_commands::RescheduleRequest},
    time::Time,
};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

use crate::conformance::{
    HOUR, MINUTE, OTHER_TEAM, SANDBOX, SECOND, T0, TEAM, TestStore, accept_first, all_at_once, all_events,
    cancel_email, capture_due, event_kinds, expect_first,
    fixtures::emails::next_id,
    fixtures::handoffs::{
        LeasedJob, NODE, WIRE_BYTES, accept_and_lease, accept_and_mark, accept_with_unknown_outcome, apply_action,
        job_of, lease_handoffs, marker_action, record_attempt,
    },
    keyed_email, keyless_email, load_email, new_operation,
};

const INBOX: InboxId = InboxId(Uuid::from_u128(0x1b));
const API_KEY: ApiKeyId = ApiKeyId(Uuid::from_u128(0xa9));

fn new_stop(scope: StopScope) -> Stop {
    Stop {
        id: StopId(next_id(T0)),
        scope,
        mode: StopMode::Wait,
        reason: Some("a test".into()),
        by: StopAuthor { api_key: None, name: "tests".into() },
        created_at: T0,
        release: None,
    }
}

/// A stop of the installation that the server itself creates under this name.
fn stop_by(name: &str) -> Stop {
    Stop { by: StopAuthor { api_key: None, name: name.into() }, ..new_stop(StopScope::Installation) }
}

async fn create(store: &TestStore, stop: Stop) -> CreateStopResult {
    match store.create_stop(stop, None, T0).await.unwrap() {
        IdempotentResult::Done(result) => result,
        other => panic!("{other:?}"),
    }
}

async fn stop(store: &TestStore, scope: StopScope) -> Stop {
    match create(store, new_stop(scope)).await {
        CreateStopResult::Created(stop) => stop,
        other => panic!("{other:?}"),
    }
}

async fn resume(store: &TestStore, stop: &Stop, rate: Option<u32>, now: Time) {
    let ended = store.end_stop(stop.scope.team(), stop.id, rate, now).await.unwrap().unwrap();
    assert!(!ended.is_in_force());
}

async fn release_all(store: &TestStore, now: Time) -> usize {
    let mut total = 0;
    loop {
        match store.release_stopped(3, now).await.unwrap() {
            0 => return total,
            some => total += some,
        }
    }
}

async fn lease_ids(store: &TestStore, now: Time) -> Vec<EmailId> {
    lease_handoffs(store, 100, now).await.iter().map(|leased| leased.email.id).collect()
}

pub(super) async fn a_stop_is_read_back_unchanged(store: TestStore) {
    let team = stop(&store, StopScope::Team(TEAM)).await;
    let inbox = stop(&store, StopScope::Inbox { team: TEAM, id: INBOX, addresses: vec!["a@b.test".into()] }).await;
    let theirs = stop(&store, StopScope::Team(OTHER_TEAM)).await;
    let all = stop(&store, StopScope::Installation).await;
    let transport = stop(&store, StopScope::Transport("relay".into())).await;

    assert_eq!(store.stops(Some(TEAM)).await.unwrap(), [team, inbox]);
    assert_eq!(store.stops(Some(OTHER_TEAM)).await.unwrap(), [theirs]);
    assert_eq!(store.stops(None).await.unwrap(), [all, transport]);
    assert_eq!(event_kinds(&store).await, ["stop.created"; 4]);
}

pub(super) async fn every_team_gets_the_events_of_a_stop_that_belongs_to_none(store: TestStore) {
    for scope in [StopScope::Installation, StopScope::Transport("relay".into())] {
        let created = stop(&store, scope).await;
        resume(&store, &created, None, T0).await;
        resume(&store, &created, Some(1), T0).await;
    }

    let expected = ["installation", "transport/relay"].map(|scope| [("stop.created", scope), ("stop.ended", scope)]);
    for team in [TEAM, OTHER_TEAM] {
        let events = all_events(&store, team).await;
        let found: Vec<(&str, &str)> = events
            .iter()
            .map(|event| (event.event.kind.as_str(), event.event.data["scope"].as_str().unwrap_or_default()))
            .collect();
        assert_eq!(found, expected.concat());
    }
}

pub(super) async fn the_same_scope_is_stopped_once(store: TestStore) {
    let first = stop(&store, StopScope::Team(TEAM)).await;
    let again = create(&store, new_stop(StopScope::Team(TEAM))).await;
    assert_eq!(again, CreateStopResult::AlreadyStopped(first.clone()));
    let answers = all_at_once((0..16).map(|_| {
        let (store, new) = (store.clone(), new_stop(StopScope::Installation));
        async move { create(&store, new).await }
    }))
    .await;
    assert_eq!(answers.iter().filter(|answer| matches!(answer, CreateStopResult::Created(_))).count(), 1);
    assert_eq!(store.stops(Some(TEAM)).await.unwrap(), [first]);
    assert_eq!(event_kinds(&store).await, ["stop.created"; 2], "of the team and of the installation");
}

pub(super) async fn a_stop_replaces_that_of_the_configuration_and_one_with_another_mode(store: TestStore) {
    let CreateStopResult::Created(configured) = create(&store, stop_by(CONFIGURATION_AUTHOR)).await else { panic!() };
    let CreateStopResult::Created(taken_over) = create(&store, stop_by("restore")).await else { panic!() };
    assert_eq!((taken_over.id, taken_over.by.name.as_str()), (configured.id, "restore"));
    let kept = create(&store, Stop { mode: StopMode::Refuse, ..stop_by(CONFIGURATION_AUTHOR) }).await;
    assert_eq!(kept, CreateStopResult::AlreadyStopped(taken_over.clone()));
    let stricter = create(&store, Stop { mode: StopMode::Refuse, ..stop_by("tests") }).await;
    assert!(matches!(stricter, CreateStopResult::Created(stop) if stop.id == configured.id));
    let all = store.stops(None).await.unwrap();
    assert_eq!(all.iter().map(|stop| stop.mode).collect::<Vec<_>>(), [StopMode::Refuse]);
}

pub(super) async fn the_stop_of_the_journal_of_erasures_stands_beside_others(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await.id;
    let mut beside = Vec::new();
    for other in [
        stop_by(CONFIGURATION_AUTHOR),
        stop_by("restore"),
        Stop { mode: StopMode::Refuse, ..new_stop(StopScope::Installation) },
    ] {
        let CreateStopResult::Created(other) = create(&store, other).await else { panic!() };
        let journal = create(&store, stop_by(ERASURE_JOURNAL_AUTHOR)).await;
        let CreateStopResult::Created(journal) = journal else { panic!("{journal:?}") };
        assert_eq!(store.stops(None).await.unwrap(), [other.clone(), journal.clone()]);

        resume(&store, &journal, None, T0).await;
        release_all(&store, T0).await;

        assert_eq!(store.stops(None).await.unwrap(), std::slice::from_ref(&other));
        assert_eq!(lease_ids(&store, T0).await, []);
        beside.push(other);
    }
    let journal = create(&store, stop_by(ERASURE_JOURNAL_AUTHOR)).await;
    let CreateStopResult::Created(journal) = journal else { panic!("{journal:?}") };
    assert_eq!(
        create(&store, stop_by(ERASURE_JOURNAL_AUTHOR)).await,
        CreateStopResult::AlreadyStopped(journal.clone())
    );
    resume(&store, &beside[2], None, T0).await;
    release_all(&store, T0).await;
    let later = create(&store, new_stop(StopScope::Installation)).await;
    let CreateStopResult::Created(later) = later else { panic!("{later:?}") };
    assert_ne!(later.id, journal.id);
    for ended in [&later, &journal] {
        assert_eq!(lease_ids(&store, T0).await, []);
        resume(&store, ended, None, T0).await;
        release_all(&store, T0).await;
    }
    assert_eq!(lease_ids(&store, T0).await, [email]);
}

pub(super) async fn a_replayed_creation_stops_nothing_again(store: TestStore) {
    let operation = || Some(new_operation("stop", 1, T0));
    let created = store.create_stop(new_stop(StopScope::Team(TEAM)), operation(), T0).await.unwrap();
    let IdempotentResult::Done(CreateStopResult::Created(stop)) = created else { panic!("{created:?}") };
    resume(&store, &stop, None, T0).await;
    release_all(&store, T0).await;

    let replayed = store.create_stop(new_stop(StopScope::Team(TEAM)), operation(), T0).await.unwrap();

    assert!(matches!(replayed, IdempotentResult::Replayed(_)), "{replayed:?}");
    assert_eq!(store.stops(Some(TEAM)).await.unwrap(), []);
}

pub(super) async fn a_team_has_at_most_a_thousand_stops(store: TestStore) {
    let scope = |n: usize| StopScope::ApiKey { team: TEAM, id: ApiKeyId(Uuid::from_u128(n as u128 + 1)) };
    for n in 0..MAX_STOPS {
        let _stop = stop(&store, scope(n)).await;
    }
    assert_eq!(create(&store, new_stop(scope(MAX_STOPS))).await, CreateStopResult::TooMany);
    let _theirs = stop(&store, StopScope::Team(OTHER_TEAM)).await;
}

/// Stops a scope and returns the keys of the emails that can still be leased.
async fn leased_under_stop(store: &TestStore, scope: StopScope) -> Vec<String> {
    let _stop = stop(store, scope).await;
    let leased = lease_handoffs(store, 100, T0).await;
    let relay = mailonce_core::handoff::lease::LeaseRequest {
        transport: "relay".into(),
        ..crate::conformance::fixtures::handoffs::lease_request(100)
    };
    let relayed = store.lease_handoffs(relay, T0).await.unwrap();
    let name = |leased: &mailonce_core::handoff::lease::LeasedHandoff| {
        leased.email.head.key.as_ref().map(mailonce_core::key::EmailKey::display_name).unwrap_or_default()
    };
    let mut names: Vec<String> = leased.iter().chain(&relayed).map(name).collect();
    names.sort();
    names
}

async fn accept_one_of_each(store: &TestStore) {
    let by_key = |key: &str, from: Option<&str>, caller: Option<ApiKeyId>| {
        let mut new_email = keyed_email(key).to_new_email(T0);
        new_email.head.caller = caller;
        if let Some(from) = from {
            new_email.head.from = from.into();
        }
        new_email
    };
    for new_email in [
        by_key("plain", None, None),
        by_key("by-key", None, Some(API_KEY)),
        by_key("by-inbox", Some("Agent+tag@in.test"), None),
    ] {
        let _email = expect_first(store.accept(new_email, T0).await.unwrap());
    }
    let _theirs = accept_first(store, &keyed_email("theirs").team(OTHER_TEAM), T0).await;
    let _relayed = accept_first(store, &keyed_email("relayed").via_transport("relay"), T0).await;
}

pub(super) async fn a_stop_of_the_installation_covers_everything(store: TestStore) {
    accept_one_of_each(&store).await;
    assert_eq!(leased_under_stop(&store, StopScope::Installation).await, [""; 0]);
}

pub(super) async fn a_stop_of_a_transport_covers_its_handoffs(store: TestStore) {
    accept_one_of_each(&store).await;
    let leased = leased_under_stop(&store, StopScope::Transport(SANDBOX.into())).await;
    assert_eq!(leased, ["relayed"]);
}

pub(super) async fn a_stop_of_a_team_covers_its_email(store: TestStore) {
    accept_one_of_each(&store).await;
    assert_eq!(leased_under_stop(&store, StopScope::Team(TEAM)).await, ["theirs"]);
}

pub(super) async fn a_stop_of_an_inbox_covers_its_address(store: TestStore) {
    accept_one_of_each(&store).await;
    let scope = StopScope::Inbox { team: TEAM, id: INBOX, addresses: vec!["agent@in.test".into()] };
    assert_eq!(leased_under_stop(&store, scope).await, ["by-key", "plain", "relayed", "theirs"]);
}

pub(super) async fn a_stop_of_an_api_key_covers_its_email(store: TestStore) {
    accept_one_of_each(&store).await;
    let scope = StopScope::ApiKey { team: TEAM, id: API_KEY };
    assert_eq!(leased_under_stop(&store, scope).await, ["by-inbox", "plain", "relayed", "theirs"]);
}

pub(super) async fn stops_in_force_are_counted_by_kind(store: TestStore) {
    let ended = stop(&store, StopScope::Team(TEAM)).await;
    let _theirs = stop(&store, StopScope::Team(OTHER_TEAM)).await;
    let _relay = stop(&store, StopScope::Transport("relay".into())).await;
    let _sandbox = stop(&store, StopScope::Transport(SANDBOX.into())).await;
    resume(&store, &ended, Some(1), T0).await;

    let counts = store.stop_counts().await.unwrap();

    assert_eq!(counts, BTreeMap::from([(StopKind::Transport, 2), (StopKind::Team, 1)]));
}

pub(super) async fn email_that_waits_for_a_stop_is_counted(store: TestStore) {
    accept_one_of_each(&store).await;
    let _later = accept_first(&store, &keyed_email("later").due(T0.plus(HOUR)), T0).await;
    let all = stop(&store, StopScope::Installation).await;
    let sandbox = stop(&store, StopScope::Transport(SANDBOX.into())).await;
    let theirs = stop(&store, StopScope::Team(OTHER_TEAM)).await;
    let stops = vec![all, sandbox, theirs];
    let count = |team, max| store.waiting_counts(stops.clone(), team, max, T0);

    assert_eq!(count(None, 10).await.unwrap(), [5, 4, 0], "what is due waits without being parked");
    assert_eq!(count(Some(TEAM), 10).await.unwrap(), [4, 3, 0]);
    assert_eq!(count(Some(OTHER_TEAM), 10).await.unwrap(), [1, 1, 0]);
    assert_eq!(count(Some(TeamId(Uuid::from_u128(77))), 10).await.unwrap(), [0, 0, 0]);
    assert_eq!(count(None, 3).await.unwrap(), [3, 3, 0]);
}

pub(super) async fn email_that_a_stop_parked_is_counted(store: TestStore) {
    accept_one_of_each(&store).await;
    let all = stop(&store, StopScope::Installation).await;
    // A worker that does not know of the stop yet parks what it would lease. What the relay has stays in its queue.
    assert_eq!(lease_ids(&store, T0).await, []);
    let count = async |team| store.waiting_counts(store.stops(None).await.unwrap(), team, 10, T0).await.unwrap();

    assert_eq!((count(None).await, count(Some(OTHER_TEAM)).await), (vec![5], vec![1]));
    resume(&store, &all, Some(1), T0).await;
    assert_eq!(count(None).await, [4], "an ended stop closes no queue, and releases what it parked");
    assert_eq!(count(Some(OTHER_TEAM)).await, [1]);
}

pub(super) async fn a_stop_changes_no_state(store: TestStore) {
    let queued = accept_first(&store, &keyed_email("queued"), T0).await;
    let scheduled = accept_first(&store, &keyed_email("scheduled").due(T0.plus(MINUTE)), T0).await;
    let stop = stop(&store, StopScope::Team(TEAM)).await;

    assert_eq!(lease_ids(&store, T0.plus(HOUR)).await, []);
    assert_eq!(capture_due(&store, 10, T0.plus(HOUR)).await, 0);

    for (id, state, due) in
        [(queued.id, EmailState::Queued, T0), (scheduled.id, EmailState::Scheduled, T0.plus(MINUTE))]
    {
        let email = load_email(&store, id).await;
        assert_eq!((email.state(), email.handoffs[0].due_at), (state, Some(due)));
        assert_eq!(email.handoffs[0].parked_by, Some(stop.id));
    }
    let backlog = store.backlog().await.unwrap();
    assert_eq!(backlog.waiting, [(SANDBOX.to_owned(), 2)], "parked handoffs still wait");
    assert_eq!(store.next_handoff_due(SANDBOX).await.unwrap(), None, "and none of them is due");
}

pub(super) async fn stopped_email_does_not_delay_other_email(store: TestStore) {
    for n in 0..30 {
        let _mine = accept_first(&store, &keyed_email(&format!("k{n}")), T0).await;
    }
    let theirs = accept_first(&store, &keyed_email("theirs").team(OTHER_TEAM), T0.plus(SECOND)).await;
    let _stop = stop(&store, StopScope::Team(TEAM)).await;

    let leased = lease_handoffs(&store, 4, T0.plus(MINUTE)).await;

    assert_eq!(leased.iter().map(|leased| leased.email.id).collect::<Vec<_>>(), [theirs.id]);
}

pub(super) async fn a_stopped_marker_sends_nothing(store: TestStore) {
    let job = accept_and_lease(&store, &keyed_email("k")).await;
    let stop = stop(&store, StopScope::Team(TEAM)).await;

    let (status, email) = apply_action(&store, job.id, marker_action(&job, WIRE_BYTES), T0).await;

    assert_eq!(status, HandoffActionStatus::Stopped(stop.id));
    let handoff = &email.handoffs[0];
    assert_eq!((handoff.state, handoff.attempts, handoff.holder), (HandoffState::Queued, 0, None));
    assert_eq!(handoff.parked_by, Some(stop.id));
    assert_eq!(load_email(&store, job.id).await, email);
    assert_eq!(lease_ids(&store, T0.plus(HOUR)).await, []);
}

pub(super) async fn an_attempt_past_its_marker_is_recorded(store: TestStore) {
    let job = accept_and_mark(&store, &keyed_email("k")).await;
    let _stop = stop(&store, StopScope::Installation).await;

    let (status, email) = record_attempt(&store, &job, ReplyMeaning::Accepted, T0).await;

    assert_eq!((status, email.state()), (HandoffActionStatus::Done, EmailState::Sent));
}

pub(super) async fn repeats_and_policy_resends_wait(store: TestStore) {
    let job = accept_with_unknown_outcome(&store, &keyed_email("k")).await;
    let stop = stop(&store, StopScope::Team(TEAM)).await;
    let retry = HandoffAction::RetryInWindow { number: 0, holder: NODE, account: "A".into() };

    for action in [retry.clone(), HandoffAction::ResendByPolicy { number: 0 }] {
        let (status, email) = apply_action(&store, job.id, action, T0).await;
        assert_eq!((status, email.state()), (HandoffActionStatus::Stopped(stop.id), EmailState::Unknown));
        assert!(email.handoffs[0].due_at > Some(T0.plus(SECOND)), "it is not tried again at once");
    }
    resume(&store, &stop, None, T0).await;
    release_all(&store, T0).await;
    assert_eq!(apply_action(&store, job.id, retry, T0).await.0, HandoffActionStatus::Done);
}

pub(super) async fn a_stopped_transport_does_not_fail_over(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let stop = stop(&store, StopScope::Transport(SANDBOX.into())).await;
    let action = HandoffAction::FailOverHandoff { number: 0, from: SANDBOX.into(), to: "relay".into() };

    let (status, after) = apply_action(&store, email.id, action, T0).await;

    assert_eq!((status, after), (HandoffActionStatus::Stopped(stop.id), email));
}

pub(super) async fn stopped_email_can_be_cancelled_and_rescheduled(store: TestStore) {
    let queued = accept_first(&store, &keyed_email("queued"), T0).await;
    let scheduled = accept_first(&store, &keyed_email("scheduled").due(T0.plus(SECOND)), T0).await;
    let stop = stop(&store, StopScope::Team(TEAM)).await;
    assert_eq!(lease_ids(&store, T0.plus(MINUTE)).await, []);

    assert_eq!(cancel_email(&store, queued.id, T0).await.state(), EmailState::Cancelled);
    let request = RescheduleRequest { due_at: T0.plus(HOUR), charges: Vec::new() };
    let _moved = store.reschedule(TEAM, scheduled.id, request, T0).await.unwrap();

    resume(&store, &stop, None, T0.plus(MINUTE)).await;
    release_all(&store, T0.plus(MINUTE)).await;
    assert_eq!(lease_ids(&store, T0.plus(MINUTE)).await, []);
    assert_eq!(lease_ids(&store, T0.plus(HOUR)).await, [scheduled.id]);
}

pub(super) async fn resume_releases_in_order(store: TestStore) {
    let mut ids = Vec::new();
    for (key, due) in [("c", 30), ("a", 10), ("b", 20), ("e", 50), ("d", 40)] {
        ids.push((due, accept_first(&store, &keyed_email(key).due(T0.plus(due)), T0).await.id));
    }
    let stop = stop(&store, StopScope::Team(TEAM)).await;
    assert_eq!(lease_ids(&store, T0.plus(MINUTE)).await, []);
    resume(&store, &stop, None, T0.plus(MINUTE)).await;

    assert_eq!(store.release_stopped(2, T0.plus(MINUTE)).await.unwrap(), 2);
    ids.sort_unstable();
    let first: Vec<EmailId> = ids.iter().take(2).map(|(_, id)| *id).collect();
    assert_eq!(lease_ids(&store, T0.plus(MINUTE)).await, first);
    assert_eq!(release_all(&store, T0.plus(MINUTE)).await, 3);
    assert_eq!(lease_ids(&store, T0.plus(MINUTE)).await.len(), 3);
    assert_eq!(store.stops(Some(TEAM)).await.unwrap(), [], "nothing is left of the stop");
    assert_eq!(event_kinds(&store).await.last().copied(), Some("stop.ended"));
}

pub(super) async fn resume_releases_at_a_rate(store: TestStore) {
    for n in 0..6 {
        let _email = accept_first(&store, &keyed_email(&format!("k{n}")), T0.plus(n)).await;
    }
    let stop = stop(&store, StopScope::Team(TEAM)).await;
    // Some are parked when the stop ends, and some wait without being parked yet.
    assert_eq!(
        store.lease_handoffs(crate::conformance::fixtures::handoffs::lease_request(2), T0.plus(2)).await.unwrap(),
        []
    );
    let end = T0.plus(MINUTE);
    resume(&store, &stop, Some(2), end).await;

    let mut counts = Vec::new();
    for half_seconds in 0..8 {
        let now = end.plus(half_seconds * 500);
        assert!(release_all(&store, now).await <= 6);
        counts.push(lease_ids(&store, now).await.len());
        release_all(&store, now).await;
    }
    assert_eq!(counts[0], 0, "nothing leaves before its turn: {counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), 6, "{counts:?}");
    assert!(counts.iter().all(|count| *count <= 1), "at most two in a second: {counts:?}");
    release_all(&store, end.plus(HOUR)).await;
    assert_eq!(store.stops(Some(TEAM)).await.unwrap(), []);
}

pub(super) async fn a_stop_that_returns_keeps_what_it_parked(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let first = stop(&store, StopScope::Team(TEAM)).await;
    assert_eq!(lease_ids(&store, T0).await, []);
    resume(&store, &first, None, T0).await;

    let second = stop(&store, StopScope::Team(TEAM)).await;

    assert_eq!(second.id, first.id);
    assert_eq!(release_all(&store, T0).await, 0);
    assert_eq!(lease_ids(&store, T0.plus(HOUR)).await, []);
    resume(&store, &second, None, T0).await;
    release_all(&store, T0).await;
    assert_eq!(lease_ids(&store, T0.plus(HOUR)).await, [email.id]);
}

pub(super) async fn two_stops_must_both_end(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let team = stop(&store, StopScope::Team(TEAM)).await;
    let all = stop(&store, StopScope::Installation).await;
    assert_eq!(lease_ids(&store, T0).await, []);
    for stop in [&team, &all] {
        assert_eq!(lease_ids(&store, T0).await, []);
        resume(&store, stop, None, T0).await;
        release_all(&store, T0).await;
    }
    assert_eq!(lease_ids(&store, T0).await, [email.id]);
}

pub(super) async fn held_email_stays_held_on_resume(store: TestStore) {
    let fixture = keyed_email("k").held(mailonce_core::outbound::email::Guard::Approval);
    let email = accept_first(&store, &fixture, T0).await;
    let stop = stop(&store, StopScope::Team(TEAM)).await;
    resume(&store, &stop, None, T0).await;
    release_all(&store, T0).await;
    assert_eq!(lease_ids(&store, T0.plus(HOUR)).await, []);
    assert_eq!(load_email(&store, email.id).await, email);
}

/// Marks jobs until the store refuses, and returns the emails whose markers committed.
async fn mark_all(store: TestStore, jobs: Vec<LeasedJob>) -> Vec<EmailId> {
    let mut marked = Vec::new();
    for job in jobs {
        if apply_action(&store, job.id, marker_action(&job, WIRE_BYTES), T0).await.0 == HandoffActionStatus::Done {
            marked.push(job.id);
        }
    }
    marked
}

pub(super) async fn no_marker_commits_after_the_answer_to_a_stop(store: TestStore) {
    const WORKERS: usize = 8;
    const JOBS: usize = 12;
    for _ in 0..WORKERS * JOBS {
        let _email = accept_first(&store, &keyless_email(), T0).await;
    }
    let jobs: Vec<LeasedJob> = lease_handoffs(&store, WORKERS * JOBS, T0).await.iter().map(job_of).collect();
    let workers: Vec<_> = jobs.chunks(JOBS).map(|jobs| tokio::spawn(mark_all(store.clone(), jobs.to_vec()))).collect();

    let _stop = stop(&store, StopScope::Team(TEAM)).await;
    // What the ledger holds at the moment of the answer is all that it will ever hold.
    let mut at_answer = BTreeSet::new();
    for job in &jobs {
        if load_email(&store, job.id).await.handoffs[0].state == HandoffState::Sending {
            at_answer.insert(job.id);
        }
    }

    let mut marked = BTreeSet::new();
    for worker in workers {
        marked.extend(worker.await.unwrap());
    }
    assert_eq!(marked, at_answer);
    assert_eq!(lease_ids(&store, T0.plus(HOUR)).await, []);
}

pub(super) async fn ending_a_stop_while_workers_lease_leaves_nothing_parked(store: TestStore) {
    const EMAILS: usize = 40;
    for _ in 0..EMAILS {
        let _email = accept_first(&store, &keyless_email(), T0).await;
    }
    let first = stop(&store, StopScope::Team(TEAM)).await;
    let workers = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut leased = 0;
            for _ in 0..10 {
                leased += lease_handoffs(&store, 3, T0).await.len();
            }
            leased
        })
    });
    let workers: Vec<_> = workers.collect();
    resume(&store, &first, None, T0).await;
    release_all(&store, T0).await;
    let mut leased = 0;
    for worker in workers {
        leased += worker.await.unwrap();
    }
    release_all(&store, T0).await;
    leased += lease_ids(&store, T0).await.len();
    assert_eq!(leased, EMAILS, "each is leased once, and none is parked by a stop that is gone");
}

pub(super) async fn stops_of_another_team_are_not_found(store: TestStore) {
    let theirs = stop(&store, StopScope::Team(OTHER_TEAM)).await;
    for team in [Some(TEAM), None, Some(TeamId(Uuid::from_u128(77)))] {
        assert_eq!(store.end_stop(team, theirs.id, None, T0).await.unwrap(), None);
    }
    assert_eq!(store.stops(Some(OTHER_TEAM)).await.unwrap(), [theirs]);
}
