//! Promises about transports that a node does not have, or that no node has any more.

use mailonce_core::{
    events::event::EventKind,
    handoff::{
        HandoffState,
        action::{HandoffAction, HandoffActionStatus},
        envelope::Envelope,
        lease::{OrphanBacklog, TransportAccount},
        reply::ReplyMeaning,
    },
    id::{EmailId, TeamId},
    outbound::email::{Email, EmailState},
    time::Time,
};

use crate::conformance::{
    HOUR, MINUTE, OTHER_TEAM, SANDBOX, SECOND, T0, TEAM, TestStore, accept_first, all_events, event_kinds,
    fixtures::handoffs::{
        SECOND_NODE, accept_and_lease, accept_with_unknown_outcome, apply_action, job_of, lease_handoffs,
        lease_only_handoff, record_attempt, write_marker,
    },
    keyed_email, load_email,
};

fn transport_account(name: &str, account: &str) -> TransportAccount {
    TransportAccount { name: name.into(), account: account.into() }
}

fn orphans_of(transport: &str, waiting: u64, unknown: u64) -> OrphanBacklog {
    OrphanBacklog { team: TEAM, transport: transport.into(), waiting, unknown }
}

pub(super) async fn only_a_node_with_the_transport_resolves_its_unknown_handoffs(store: TestStore) {
    let job = accept_with_unknown_outcome(&store, &keyed_email("k")).await;
    let due = T0.plus(SECOND);
    let before = load_email(&store, job.id).await;

    assert_eq!(store.due_unknown_handoffs(&[], 10, due).await.unwrap(), []);
    assert_eq!(store.due_unknown_handoffs(&[transport_account("relay", "A")], 10, due).await.unwrap(), []);
    let found = store
        .due_unknown_handoffs(&[transport_account("relay", "A"), transport_account(SANDBOX, "A")], 10, due)
        .await
        .unwrap();
    assert_eq!(found, [(before, 0)]);
}

pub(super) async fn an_unknown_attempt_is_left_to_the_node_with_its_account(store: TestStore) {
    let _job = accept_with_unknown_outcome(&store, &keyed_email("k")).await;
    let due = T0.plus(SECOND);
    // No node has the account any more, so any node with the transport may resolve it.
    assert_eq!(store.due_unknown_handoffs(&[transport_account(SANDBOX, "B")], 10, due).await.unwrap().len(), 1);

    store.publish_transports(SECOND_NODE, &[transport_account(SANDBOX, "A")], due).await.unwrap();
    assert_eq!(store.due_unknown_handoffs(&[transport_account(SANDBOX, "B")], 10, due).await.unwrap(), []);
    assert_eq!(store.due_unknown_handoffs(&[transport_account(SANDBOX, "A")], 10, due).await.unwrap().len(), 1);
}

pub(super) async fn handoffs_of_a_transport_no_node_has_are_found(store: TestStore) {
    let _unknown = accept_with_unknown_outcome(&store, &keyed_email("unknown")).await;
    for key in ["one", "two"] {
        accept_first(&store, &keyed_email(key).via_transport("relay"), T0).await;
    }
    accept_first(&store, &keyed_email("later").via_transport("relay").due(T0.plus(HOUR)), T0).await;
    accept_first(&store, &keyed_email("theirs").team(OTHER_TEAM).via_transport("relay"), T0).await;

    let mut all = vec![orphans_of("relay", 3, 0), orphans_of(SANDBOX, 0, 1)];
    all.push(OrphanBacklog { team: OTHER_TEAM, ..orphans_of("relay", 1, 0) });
    all.sort_by(|a, b| (a.team, &a.transport).cmp(&(b.team, &b.transport)));
    assert_eq!(store.orphan_backlogs(&[], T0).await.unwrap(), all);
    assert_eq!(store.orphan_backlogs(&["relay".into()], T0).await.unwrap(), [orphans_of(SANDBOX, 0, 1)]);
    store
        .publish_transports(SECOND_NODE, &[transport_account(SANDBOX, "A"), transport_account("other", "A")], T0)
        .await
        .unwrap();
    assert_eq!(store.orphan_backlogs(&["relay".into()], T0).await.unwrap(), []);
}

pub(super) async fn emails_with_open_handoffs_at_a_transport_are_paged(store: TestStore) {
    let sent = accept_and_lease(&store, &keyed_email("sent")).await;
    let _sent = record_attempt(&store, &write_marker(&store, sent, T0).await, ReplyMeaning::Accepted, T0).await;
    let unknown = accept_with_unknown_outcome(&store, &keyed_email("unknown")).await.id;
    let held = accept_and_lease(&store, &keyed_email("leased")).await.id;
    let both = keyed_email("both").to(&["a@example.com", "b@example.com"]).separate_envelopes();
    let queued = accept_first(&store, &both, T0).await.id;
    let theirs = accept_first(&store, &keyed_email("theirs").team(OTHER_TEAM), T0).await.id;
    accept_first(&store, &keyed_email("elsewhere").via_transport("relay"), T0).await;
    let mut all = vec![(TEAM, unknown), (TEAM, held), (TEAM, queued), (OTHER_TEAM, theirs)];
    all.sort_unstable();

    let (mut after, mut found) = (None, Vec::<(TeamId, EmailId)>::new());
    loop {
        let page = store.emails_open_at_transport(SANDBOX, after, 3).await.unwrap();
        found.extend(page.iter().copied());
        after = page.last().copied();
        if page.len() < 3 {
            break;
        }
    }
    assert_eq!(found, all);
    assert_eq!(store.emails_open_at_transport("nowhere", None, 3).await.unwrap(), []);
}

fn orphan_action(since: Time) -> HandoffAction {
    HandoffAction::ReportOrphan { number: 0, transport: "relay".into(), since }
}

pub(super) async fn an_orphan_is_reported_once_per_outage(store: TestStore) {
    let id = accept_first(&store, &keyed_email("k").via_transport("relay"), T0).await.id;
    for (since, expected) in [
        (1, HandoffActionStatus::Done),
        (1, HandoffActionStatus::Unchanged),
        (2, HandoffActionStatus::Done),
        (2, HandoffActionStatus::Unchanged),
    ] {
        let (status, email) = apply_action(&store, id, orphan_action(T0.plus(since)), T0.plus(9)).await;
        assert_eq!((status, &email), (expected, &load_email(&store, id).await), "{since}");
        assert_eq!(email.handoffs[0].progress.transport_missing_since, Some(T0.plus(since)));
    }
    assert_eq!(event_kinds(&store).await, ["email.accepted", "handoff.orphaned", "handoff.orphaned"]);
    let event = all_events(&store, TEAM).await.pop().unwrap().event;
    assert_eq!((&event.data["transport"], &event.data["handoff_state"]), (&"relay".into(), &"queued".into()));

    let elsewhere = HandoffAction::ReportOrphan { number: 0, transport: SANDBOX.into(), since: T0 };
    assert_eq!(apply_action(&store, id, elsewhere, T0).await.0, HandoffActionStatus::Stale);
}

pub(super) async fn an_orphan_fails_after_its_maximum_age(store: TestStore) {
    let id = accept_first(&store, &keyed_email("k").via_transport("relay"), T0).await.id;
    let give_up = || HandoffAction::GiveUpOrphan { number: 0, transport: "relay".into(), max_age_ms: HOUR };
    assert_eq!(
        apply_action(&store, id, give_up(), T0.plus(2 * HOUR)).await.0,
        HandoffActionStatus::Stale,
        "it was not reported yet"
    );
    let _reported = apply_action(&store, id, orphan_action(T0.plus(MINUTE)), T0.plus(MINUTE)).await;
    assert_eq!(apply_action(&store, id, give_up(), T0.plus(HOUR)).await.0, HandoffActionStatus::Stale);

    let (status, email) = apply_action(&store, id, give_up(), T0.plus(HOUR + MINUTE)).await;

    assert_eq!((status, email.state()), (HandoffActionStatus::Done, EmailState::Failed));
    assert_eq!((email.settled_at, &email), (Some(T0.plus(HOUR + MINUTE)), &load_email(&store, id).await));
    assert!(email.handoffs[0].progress.reason.as_deref().unwrap().contains("`relay`"));
    assert_eq!(event_kinds(&store).await.last(), Some(&EventKind::EmailFailed.as_str()));
    assert_eq!(store.orphan_backlogs(&[], T0).await.unwrap(), []);
}

fn reroute_action(transport: &str, people: &[&[&str]]) -> HandoffAction {
    let envelope = |people: &&[&str]| Envelope {
        transport: transport.into(),
        recipients: people.iter().map(ToString::to_string).collect(),
    };
    HandoffAction::RerouteByOperator { from: SANDBOX.into(), envelopes: people.iter().map(envelope).collect() }
}

fn transports_and_states(email: &Email) -> Vec<(&str, HandoffState)> {
    email.handoffs.iter().map(|handoff| (handoff.transport.as_str(), handoff.state)).collect()
}

pub(super) async fn an_operator_can_move_waiting_handoffs_but_not_unknown_ones(store: TestStore) {
    let fixture = keyed_email("k").to(&["a@example.com", "b@example.com"]).separate_envelopes();
    let id = accept_first(&store, &fixture, T0).await.id;
    let first = job_of(&lease_handoffs(&store, 1, T0).await[0]);
    let reroute = || reroute_action("relay", &[&["a@example.com"], &["b@example.com"]]);

    // One handoff is leased, so only the other moves.
    let (status, email) = apply_action(&store, id, reroute(), T0).await;
    assert_eq!((status, &email), (HandoffActionStatus::Done, &load_email(&store, id).await));
    assert_eq!(transports_and_states(&email), [(SANDBOX, HandoffState::Leased), ("relay", HandoffState::Queued)]);
    assert_eq!(event_kinds(&store).await.last(), Some(&"handoff.rerouted"));

    // A handoff that is sending, unknown, or queued again after an unknown attempt does not move.
    let first = write_marker(&store, first, T0).await;
    assert_eq!(apply_action(&store, id, reroute(), T0).await.0, HandoffActionStatus::Stale);
    let _unknown = record_attempt(&store, &first, ReplyMeaning::Unknown, T0).await;
    assert_eq!(apply_action(&store, id, reroute(), T0).await.0, HandoffActionStatus::Stale);
    let (_, email) = apply_action(&store, id, HandoffAction::ResendByPolicy { number: 0 }, T0).await;
    assert_eq!(email.handoffs[0].state, HandoffState::Queued);
    let (status, email) = apply_action(&store, id, reroute(), T0).await;
    assert_eq!(
        (status, transports_and_states(&email)),
        (HandoffActionStatus::Stale, vec![(SANDBOX, HandoffState::Queued), ("relay", HandoffState::Queued)])
    );
}

pub(super) async fn a_moved_email_is_split_into_the_new_transports_envelopes(store: TestStore) {
    let people = ["a@example.com", "b@example.com"];
    let id =
        accept_first(&store, &keyed_email("apart").to(&people).separate_envelopes().due(T0.plus(HOUR)), T0).await.id;

    let (status, email) = apply_action(&store, id, reroute_action("api", &[&people]), T0).await;

    assert_eq!((status, &email), (HandoffActionStatus::Done, &load_email(&store, id).await));
    let off = (SANDBOX, HandoffState::Cancelled);
    assert_eq!(transports_and_states(&email), [off, off, ("api", HandoffState::Scheduled)]);
    assert_eq!(email.handoffs[2].due_at, Some(T0.plus(HOUR)));

    // The rest of a partly sent email cannot move to a transport with one envelope for all recipients.
    let id = accept_first(&store, &keyed_email("part").to(&people).separate_envelopes(), T0).await.id;
    let job = job_of(&lease_handoffs(&store, 1, T0).await[0]);
    let _sent = record_attempt(&store, &write_marker(&store, job, T0).await, ReplyMeaning::Accepted, T0).await;
    let before = load_email(&store, id).await;
    assert_eq!(
        apply_action(&store, id, reroute_action("api", &[&people]), T0).await,
        (HandoffActionStatus::Stale, before)
    );
    assert_eq!(lease_only_handoff(&store, T0).await.lease.number, 1);
}
