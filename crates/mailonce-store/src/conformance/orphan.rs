//! Promises about transports that a process does not have, or that nobody has any more.

use mailonce_core::{
    dispatch::{Act, Verdict},
    email::{Email, EmailState},
    event::Kind,
    handoff::State,
    id::{EmailId, TeamId},
    port::{
        store::{Envelope, Orphans, TransportAccount},
        transport::Meaning,
    },
    time::Time,
};

use super::{
    HOUR, Ledger, MINUTE, OTHER, SANDBOX, SECOND, T0, TEAM, accepted, events, keyed, kinds, the,
    work::{SECOND_NODE, act, answer, leased, lost, mark, take},
};

fn has(name: &str, account: &str) -> TransportAccount {
    TransportAccount { name: name.into(), account: account.into() }
}

fn orphans(transport: &str, waiting: u64, unknown: u64) -> Orphans {
    Orphans { team: TEAM, transport: transport.into(), waiting, unknown }
}

pub(super) async fn only_who_has_a_transport_looks_at_its_unknown_handoffs(store: Ledger) {
    let job = lost(&store, &keyed("k")).await;
    let due = T0.plus(SECOND);
    let before = the(&store, job.id).await;

    assert_eq!(store.doubts(&[], 10, due).await.unwrap(), []);
    assert_eq!(store.doubts(&[has("relay", "A")], 10, due).await.unwrap(), []);
    let found = store.doubts(&[has("relay", "A"), has(SANDBOX, "A")], 10, due).await.unwrap();
    assert_eq!(found, [(before, 0)]);
}

pub(super) async fn an_attempt_in_doubt_at_another_account_is_left_to_who_has_it(store: Ledger) {
    let _job = lost(&store, &keyed("k")).await;
    let due = T0.plus(SECOND);
    // Nobody has the account any more, so whoever has the transport says what becomes of it.
    assert_eq!(store.doubts(&[has(SANDBOX, "B")], 10, due).await.unwrap().len(), 1);

    store.publish_transports(SECOND_NODE, &[has(SANDBOX, "A")], due).await.unwrap();
    assert_eq!(store.doubts(&[has(SANDBOX, "B")], 10, due).await.unwrap(), []);
    assert_eq!(store.doubts(&[has(SANDBOX, "A")], 10, due).await.unwrap().len(), 1);
}

pub(super) async fn what_waits_for_a_transport_that_nobody_has_is_found(store: Ledger) {
    let _unknown = lost(&store, &keyed("unknown")).await;
    for key in ["one", "two"] {
        accepted(&store, &keyed(key).by("relay"), T0).await;
    }
    accepted(&store, &keyed("later").by("relay").due(T0.plus(HOUR)), T0).await;
    accepted(&store, &keyed("theirs").team(OTHER).by("relay"), T0).await;

    let mut all = vec![orphans("relay", 3, 0), orphans(SANDBOX, 0, 1)];
    all.push(Orphans { team: OTHER, ..orphans("relay", 1, 0) });
    all.sort_by(|a, b| (a.team, &a.transport).cmp(&(b.team, &b.transport)));
    assert_eq!(store.orphans(&[], T0).await.unwrap(), all);
    assert_eq!(store.orphans(&["relay".into()], T0).await.unwrap(), [orphans(SANDBOX, 0, 1)]);
    store.publish_transports(SECOND_NODE, &[has(SANDBOX, "A"), has("other", "A")], T0).await.unwrap();
    assert_eq!(store.orphans(&["relay".into()], T0).await.unwrap(), []);
}

pub(super) async fn emails_that_are_open_at_a_transport_are_paged(store: Ledger) {
    let sent = leased(&store, &keyed("sent")).await;
    let _sent = answer(&store, &mark(&store, sent, T0).await, Meaning::Accepted, T0).await;
    let unknown = lost(&store, &keyed("unknown")).await.id;
    let held = leased(&store, &keyed("leased")).await.id;
    let both = keyed("both").to(&["a@example.com", "b@example.com"]).apart();
    let queued = accepted(&store, &both, T0).await.id;
    let theirs = accepted(&store, &keyed("theirs").team(OTHER), T0).await.id;
    accepted(&store, &keyed("elsewhere").by("relay"), T0).await;
    let mut all = vec![(TEAM, unknown), (TEAM, held), (TEAM, queued), (OTHER, theirs)];
    all.sort_unstable();

    let (mut after, mut found) = (None, Vec::<(TeamId, EmailId)>::new());
    loop {
        let page = store.open_at(SANDBOX, after, 3).await.unwrap();
        found.extend(page.iter().copied());
        after = page.last().copied();
        if page.len() < 3 {
            break;
        }
    }
    assert_eq!(found, all);
    assert_eq!(store.open_at("nowhere", None, 3).await.unwrap(), []);
}

fn orphan(since: Time) -> Act {
    Act::Orphan { number: 0, transport: "relay".into(), since }
}

pub(super) async fn an_orphan_is_reported_once_for_each_time_its_transport_is_missing(store: Ledger) {
    let id = accepted(&store, &keyed("k").by("relay"), T0).await.id;
    for (since, verdict) in [(1, Verdict::Done), (1, Verdict::Unchanged), (2, Verdict::Done), (2, Verdict::Unchanged)] {
        let (said, email) = act(&store, id, orphan(T0.plus(since)), T0.plus(9)).await;
        assert_eq!((said, &email), (verdict, &the(&store, id).await), "{since}");
        assert_eq!(email.handoffs[0].work.orphaned, Some(T0.plus(since)));
    }
    assert_eq!(kinds(&store).await, ["email.accepted", "handoff.orphaned", "handoff.orphaned"]);
    let told = events(&store, TEAM).await.pop().unwrap().event;
    assert_eq!((&told.data["transport"], &told.data["handoff_state"]), (&"relay".into(), &"queued".into()));

    let elsewhere = Act::Orphan { number: 0, transport: SANDBOX.into(), since: T0 };
    assert_eq!(act(&store, id, elsewhere, T0).await.0, Verdict::Stale);
}

pub(super) async fn an_orphan_is_given_up_in_the_end(store: Ledger) {
    let id = accepted(&store, &keyed("k").by("relay"), T0).await.id;
    let give_up = || Act::GiveUpOrphan { number: 0, transport: "relay".into(), max_age_ms: HOUR };
    assert_eq!(act(&store, id, give_up(), T0.plus(2 * HOUR)).await.0, Verdict::Stale, "nobody was told yet");
    let _told = act(&store, id, orphan(T0.plus(MINUTE)), T0.plus(MINUTE)).await;
    assert_eq!(act(&store, id, give_up(), T0.plus(HOUR)).await.0, Verdict::Stale);

    let (verdict, email) = act(&store, id, give_up(), T0.plus(HOUR + MINUTE)).await;

    assert_eq!((verdict, email.state()), (Verdict::Done, EmailState::Failed));
    assert_eq!((email.settled_at, &email), (Some(T0.plus(HOUR + MINUTE)), &the(&store, id).await));
    assert!(email.handoffs[0].work.reason.as_deref().unwrap().contains("`relay`"));
    assert_eq!(kinds(&store).await.last(), Some(&Kind::EmailFailed.word()));
    assert_eq!(store.orphans(&[], T0).await.unwrap(), []);
}

fn to(transport: &str, people: &[&[&str]]) -> Act {
    let envelope = |people: &&[&str]| Envelope {
        transport: transport.into(),
        recipients: people.iter().map(ToString::to_string).collect(),
    };
    Act::Relocate { from: SANDBOX.into(), envelopes: people.iter().map(envelope).collect() }
}

fn places(email: &Email) -> Vec<(&str, State)> {
    email.handoffs.iter().map(|handoff| (handoff.transport.as_str(), handoff.state)).collect()
}

pub(super) async fn an_operator_moves_what_waits_and_never_what_is_in_doubt(store: Ledger) {
    let draft = keyed("k").to(&["a@example.com", "b@example.com"]).apart();
    let id = accepted(&store, &draft, T0).await.id;
    let first = super::work::job(&super::work::lease(&store, 1, T0).await[0]);
    let away = || to("relay", &[&["a@example.com"], &["b@example.com"]]);

    // One is leased: only the other moves.
    let (verdict, email) = act(&store, id, away(), T0).await;
    assert_eq!((verdict, &email), (Verdict::Done, &the(&store, id).await));
    assert_eq!(places(&email), [(SANDBOX, State::Leased), ("relay", State::Queued)]);
    assert_eq!(kinds(&store).await.last(), Some(&"handoff.rerouted"));

    // On the wire, unknown, or queued again although it may have arrived: it stays.
    let first = mark(&store, first, T0).await;
    assert_eq!(act(&store, id, away(), T0).await.0, Verdict::Stale);
    let _unknown = answer(&store, &first, Meaning::Unknown, T0).await;
    assert_eq!(act(&store, id, away(), T0).await.0, Verdict::Stale);
    let (_, email) = act(&store, id, Act::ResendByPolicy { number: 0 }, T0).await;
    assert_eq!(email.handoffs[0].state, State::Queued);
    let (verdict, email) = act(&store, id, away(), T0).await;
    assert_eq!((verdict, places(&email)), (Verdict::Stale, vec![(SANDBOX, State::Queued), ("relay", State::Queued)]));
}

pub(super) async fn an_email_that_is_moved_is_divided_as_its_new_transport_asks(store: Ledger) {
    let people = ["a@example.com", "b@example.com"];
    let id = accepted(&store, &keyed("apart").to(&people).apart().due(T0.plus(HOUR)), T0).await.id;

    let (verdict, email) = act(&store, id, to("api", &[&people]), T0).await;

    assert_eq!((verdict, &email), (Verdict::Done, &the(&store, id).await));
    let off = (SANDBOX, State::Cancelled);
    assert_eq!(places(&email), [off, off, ("api", State::Scheduled)]);
    assert_eq!(email.handoffs[2].due_at, Some(T0.plus(HOUR)));

    // Of an email that left in part the rest cannot go where all recipients are one envelope.
    let id = accepted(&store, &keyed("part").to(&people).apart(), T0).await.id;
    let job = super::work::job(&super::work::lease(&store, 1, T0).await[0]);
    let _sent = answer(&store, &mark(&store, job, T0).await, Meaning::Accepted, T0).await;
    let before = the(&store, id).await;
    assert_eq!(act(&store, id, to("api", &[&people]), T0).await, (Verdict::Stale, before));
    assert_eq!(take(&store, T0).await.hold.number, 1);
}
