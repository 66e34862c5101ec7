//! Promises about lists of emails.

use mailonce_core::{
    handoff::{
        EvidenceFinding, HandoffState,
        action::{HandoffAction, Resolution},
        reply::ReplyMeaning,
    },
    id::EmailId,
    outbound::{
        accept::NewEmail,
        email::{Email, EmailState, Guard},
        email_query::{EmailQuery, EmailStats},
        suppressed_call::SuppressedCalls,
    },
    time::Time,
};

use crate::conformance::{
    DAY, HOUR, OTHER_TEAM, SECOND, T0, TEAM, TestStore, accept_and_send, accept_batch_items, accept_first,
    cancel_email, capture_due,
    fixtures::handoffs::{
        accept_and_mark, accept_with_unknown_outcome, apply_action, job_of, lease_handoffs, new_evidence,
        record_attempt, resolve_action, write_marker,
    },
    given_key_hash, keyed_email, keyless_batch, keyless_email, list_all, list_all_pages, load_email,
};

/// Ids of all emails that a query finds, over all pages.
async fn matching_ids(store: &TestStore, query: EmailQuery) -> Vec<EmailId> {
    list_all_pages(store, TEAM, query).await.iter().map(|email| email.id).collect()
}

fn paged_query() -> EmailQuery {
    EmailQuery { limit: 2, ..EmailQuery::default() }
}

async fn accept_several(store: &TestStore, count: i64) -> Vec<Email> {
    let mut emails = Vec::new();
    for i in 0..count {
        emails.push(accept_first(store, &keyed_email(&format!("k{i}")), T0.plus(i * HOUR)).await);
    }
    emails
}

pub(super) async fn emails_are_listed_newest_first(store: TestStore) {
    let mut emails = accept_several(&store, 5).await;
    emails.reverse();

    assert_eq!(list_all(&store, TEAM).await, emails);
    assert_eq!(list_all(&store, OTHER_TEAM).await, []);
}

pub(super) async fn pages_cover_everything_once(store: TestStore) {
    let mut wanted: Vec<_> = accept_several(&store, 11).await.iter().map(|email| email.id).collect();
    wanted.reverse();
    for limit in [1, 2, 3, 10, 11, 12] {
        assert_eq!(matching_ids(&store, EmailQuery { limit, ..paged_query() }).await, wanted, "limit {limit}");
    }
}

pub(super) async fn emails_are_counted_by_id_range(store: TestStore) {
    let emails = accept_several(&store, 5).await;
    let (first, last) = (EmailId(uuid::Uuid::nil()), EmailId(uuid::Uuid::max()));
    let count = async |team, from, to| store.count_emails(team, from, to).await.unwrap();

    assert_eq!(count(TEAM, first, last).await, 5);
    assert_eq!(count(TEAM, emails[1].id, last).await, 4);
    assert_eq!(count(TEAM, emails[1].id, emails[3].id).await, 2);
    assert_eq!(count(TEAM, emails[3].id, emails[1].id).await, 0);
    assert_eq!(count(OTHER_TEAM, first, last).await, 0);
}

pub(super) async fn statistics_count_emails_duplicates_and_states(store: TestStore) {
    let sent = accept_and_send(&store, &keyed_email("sent"), T0).await;
    let two = keyless_email().to(&["a@example.com", "b@example.com"]).separate_envelopes();
    let two = accept_first(&store, &two, T0.plus(HOUR)).await;
    let repeats = SuppressedCalls { team: TEAM, email: two.id, count: 3, latest: vec![] };
    store.record_suppressed_calls(vec![repeats], T0.plus(HOUR)).await.unwrap();
    let (first, last) = (EmailId(uuid::Uuid::nil()), EmailId(uuid::Uuid::max()));
    let stats = async |team, from, to| store.email_stats(team, from, to).await.unwrap();

    let of_sent = EmailStats { accepted: 1, duplicates: 0, handoffs: [(HandoffState::Sent, 1)].into() };
    let of_two = EmailStats { accepted: 1, duplicates: 3, handoffs: [(HandoffState::Queued, 2)].into() };
    assert_eq!(stats(TEAM, first, two.id).await, of_sent);
    assert_eq!(stats(TEAM, two.id, last).await, of_two);
    let mut all = of_sent;
    all.add(&of_two);
    assert_eq!(stats(TEAM, sent.id, last).await, all);
    assert_eq!(stats(OTHER_TEAM, first, last).await, EmailStats::default());
}

pub(super) async fn emails_are_found_by_the_beginning_of_their_key_and_by_duplicates(store: TestStore) {
    let one = accept_first(&store, &keyed_email("order-1"), T0).await.id;
    let ten = accept_first(&store, &keyed_email("order-10"), T0).await.id;
    let _none = accept_first(&store, &keyless_email(), T0).await;
    let repeats = SuppressedCalls { team: TEAM, email: one, count: 1, latest: vec![] };
    store.record_suppressed_calls(vec![repeats], T0).await.unwrap();
    let find = async |prefix: &str, has_duplicates| {
        let query = EmailQuery { key_prefix: Some(prefix.to_owned()), has_duplicates, ..paged_query() };
        matching_ids(&store, query).await
    };

    assert_eq!(find("order-1", false).await, [ten, one]);
    assert_eq!(find("order-10", false).await, [ten]);
    assert_eq!(find("", false).await, [ten, one]);
    assert_eq!(find("rder", false).await, []);
    assert_eq!(find("", true).await, [one]);
}

pub(super) async fn a_page_holds_at_most_its_limit(store: TestStore) {
    let emails = accept_several(&store, 5).await;

    let page = store.emails(TEAM, EmailQuery { limit: 3, ..paged_query() }).await.unwrap();
    let all = store.emails(TEAM, EmailQuery { limit: 5, ..paged_query() }).await.unwrap();

    assert_eq!((page.rows.len(), page.next), (3, Some(emails[2].id)));
    assert_eq!((all.rows.len(), all.next), (5, None));
}

pub(super) async fn pages_are_stable_while_new_emails_arrive(store: TestStore) {
    let emails = accept_several(&store, 4).await;
    let first = store.emails(TEAM, paged_query()).await.unwrap();
    let _new = accept_first(&store, &keyless_email(), T0.plus(DAY)).await;

    let second = store.emails(TEAM, EmailQuery { before: first.next, ..paged_query() }).await.unwrap();

    let ids: Vec<_> = first.rows.iter().chain(&second.rows).map(|email| email.id).collect();
    assert_eq!(ids, [emails[3].id, emails[2].id, emails[1].id, emails[0].id]);
}

pub(super) async fn emails_are_found_by_state(store: TestStore) {
    let sent_one = accept_and_send(&store, &keyed_email("sent"), T0).await;
    let queued = accept_first(&store, &keyed_email("queued"), T0).await;
    let scheduled = accept_first(&store, &keyed_email("scheduled").due(T0.plus(DAY)), T0).await;
    let gone = accept_first(&store, &keyed_email("cancelled"), T0).await;
    let _cancelled = cancel_email(&store, gone.id, T0).await;

    for (state, wanted) in [
        (EmailState::Sent, vec![sent_one.id]),
        (EmailState::Queued, vec![queued.id]),
        (EmailState::Scheduled, vec![scheduled.id]),
        (EmailState::Cancelled, vec![gone.id]),
        (EmailState::Failed, vec![]),
    ] {
        assert_eq!(matching_ids(&store, EmailQuery { state: Some(state), ..paged_query() }).await, wanted, "{state:?}");
    }
}

pub(super) async fn an_email_is_listed_in_the_state_of_its_least_finished_envelope(store: TestStore) {
    let fixture = keyless_email().to(&["a@example.com", "b@example.com"]).separate_envelopes();
    let id = accept_first(&store, &fixture, T0).await.id;
    capture_due(&store, 1, T0).await;

    assert_eq!(matching_ids(&store, EmailQuery { state: Some(EmailState::Queued), ..paged_query() }).await, [id]);
    assert_eq!(matching_ids(&store, EmailQuery { state: Some(EmailState::Sent), ..paged_query() }).await, []);
}

/// Accepts an email with two envelopes. The next hop accepts the first and refuses the second.
async fn accept_and_send_half(store: &TestStore, key: &str) -> EmailId {
    let fixture = keyed_email(key).to(&["a@example.com", "b@example.com"]).separate_envelopes();
    let id = accept_first(store, &fixture, T0).await.id;
    for leased in lease_handoffs(store, 10, T0).await {
        let job = write_marker(store, job_of(&leased), T0).await;
        let meaning = if leased.handoff == 0 { ReplyMeaning::Accepted } else { ReplyMeaning::Refused };
        record_attempt(store, &job, meaning, T0).await;
    }
    id
}

/// Accepts emails that end in every state that few emails are in, and some whose handoffs are in different states.
async fn accept_in_rare_states(store: &TestStore, round: u8) {
    let key = |name: &str| keyed_email(&format!("{name}-{round}"));
    let _held = accept_first(store, &key("held").held(Guard::Approval), T0).await;
    let gone = accept_first(store, &key("cancelled"), T0).await;
    let _cancelled = cancel_email(store, gone.id, T0).await;
    let _unknown = accept_with_unknown_outcome(store, &key("unknown")).await;
    let given_up = accept_with_unknown_outcome(store, &key("abandoned")).await.id;
    let abandon = resolve_action(Resolution::Abandon, load_email(store, given_up).await.rev, None);
    apply_action(store, given_up, abandon, T0).await;
    let refused = accept_and_mark(store, &key("failed")).await;
    record_attempt(store, &refused, ReplyMeaning::Refused, T0).await;
    for finding in [EvidenceFinding::Bounced, EvidenceFinding::Complained] {
        let id = accept_and_mark(store, &key(finding.as_str())).await.id;
        apply_action(store, id, HandoffAction::AddEvidence(new_evidence(finding, None, T0)), T0).await;
        let half = accept_and_send_half(store, &format!("half-{}-{round}", finding.as_str())).await;
        apply_action(store, half, HandoffAction::AddEvidence(new_evidence(finding, None, T0)), T0).await;
    }
    accept_and_send_half(store, &format!("half-{round}")).await;
}

pub(super) async fn a_filter_by_state_agrees_with_the_whole_list(store: TestStore) {
    for round in 0..2 {
        accept_in_rare_states(&store, round).await;
    }
    let _queued = accept_first(&store, &keyed_email("queued"), T0).await;
    let _scheduled = accept_first(&store, &keyed_email("scheduled").due(T0.plus(DAY)), T0).await;
    let all = list_all(&store, TEAM).await;

    for state in EmailState::ALL {
        let wanted: Vec<EmailId> = all.iter().filter(|email| email.state() == *state).map(|email| email.id).collect();
        let query = EmailQuery { state: Some(*state), ..paged_query() };
        assert!(query.rare_state().is_none() || wanted.len() > 1, "no email is {state:?}");
        for limit in [1, 2, 100] {
            let found = matching_ids(&store, EmailQuery { limit, ..query.clone() }).await;
            assert_eq!(found, wanted, "{state:?}, limit {limit}");
        }
    }
}

pub(super) async fn emails_are_found_by_recipient(store: TestStore) {
    let to = accept_first(&store, &keyless_email().to(&["a@example.com", "b@example.com"]), T0).await;
    let copied = accept_first(&store, &keyless_email().to(&["c@example.com"]).cc(&["a@example.com"]), T0).await;
    let _other = accept_first(&store, &keyless_email().to(&["aa@example.com"]), T0).await;

    for (address, wanted) in
        [("a@example.com", vec![copied.id, to.id]), ("b@example.com", vec![to.id]), ("nobody@example.com", vec![])]
    {
        assert_eq!(
            matching_ids(&store, EmailQuery { to: Some(address.into()), ..paged_query() }).await,
            wanted,
            "{address}"
        );
    }
}

pub(super) async fn a_recipient_is_found_among_thousands_of_emails(store: TestStore) {
    let mut wanted = Vec::new();
    for hours in 0..3 {
        let now = T0.plus(hours * HOUR);
        let to = |n: usize| match n % 300 {
            7 => "a@example.com",
            8 => "aa@example.com",
            _ => "b@example.com",
        };
        let items: Vec<NewEmail> = (0..900)
            .map(|n| keyless_email().to(&[to(n)]).text(&format!("email {n} of {hours}")).to_new_email(now))
            .collect();
        let ids = items.iter().enumerate().filter(|(n, _)| n % 300 == 7).map(|(_, item)| item.id);
        wanted.splice(0..0, ids.rev());
        accept_batch_items(&store, keyless_batch(&items), now).await;
    }
    let find = async |since, limit| {
        let to = Some("a@example.com".to_owned());
        matching_ids(&store, EmailQuery { to, since, limit, ..EmailQuery::default() }).await
    };

    for limit in [1, 2, 100] {
        assert_eq!(find(None, limit).await, wanted, "limit {limit}");
        assert_eq!(find(Some(T0.plus(HOUR)), limit).await, wanted[..6], "limit {limit}");
    }
}

pub(super) async fn a_key_finds_its_latest_email(store: TestStore) {
    let by_key = |key: &str| EmailQuery { key: Some(given_key_hash(TEAM, key)), ..paged_query() };
    let old = accept_and_send(&store, &keyed_email("k").ttl(SECOND), T0).await;
    let _other = accept_first(&store, &keyed_email("other"), T0).await;
    assert_eq!(matching_ids(&store, by_key("k")).await, [old.id]);

    let new = accept_first(&store, &keyed_email("k"), T0.plus(SECOND)).await;

    assert_eq!(matching_ids(&store, by_key("k")).await, [new.id]);
    assert_eq!(matching_ids(&store, EmailQuery { state: Some(EmailState::Sent), ..by_key("k") }).await, []);
    assert_eq!(matching_ids(&store, EmailQuery { before: Some(new.id), ..by_key("k") }).await, []);
    assert_eq!(matching_ids(&store, by_key("never")).await, []);
}

pub(super) async fn emails_are_found_by_time(store: TestStore) {
    let ids: Vec<_> = accept_several(&store, 4).await.iter().map(|email| email.id).collect();
    let at = |hours: i64| Some(Time(T0.0 + hours * HOUR));

    for (since, until, wanted) in [
        (at(1), None, vec![ids[3], ids[2], ids[1]]),
        (None, at(1), vec![ids[0]]),
        (at(1), at(3), vec![ids[2], ids[1]]),
        (at(9), None, vec![]),
    ] {
        assert_eq!(
            matching_ids(&store, EmailQuery { since, until, ..paged_query() }).await,
            wanted,
            "{since:?} {until:?}"
        );
    }
}

pub(super) async fn filters_are_combined(store: TestStore) {
    let wanted = accept_first(&store, &keyed_email("k").to(&["a@example.com"]), T0.plus(HOUR)).await;
    let _too_early = accept_first(&store, &keyless_email().to(&["a@example.com"]), T0).await;
    let _too_late = accept_first(&store, &keyless_email().to(&["a@example.com"]), T0.plus(DAY)).await;
    let _other_person = accept_first(&store, &keyless_email().to(&["b@example.com"]), T0.plus(HOUR)).await;
    let gone = accept_first(&store, &keyless_email().to(&["a@example.com"]), T0.plus(HOUR)).await;
    let _cancelled = cancel_email(&store, gone.id, T0.plus(HOUR)).await;
    let all = EmailQuery {
        state: Some(EmailState::Queued),
        to: Some("a@example.com".into()),
        since: Some(T0.plus(1)),
        until: Some(T0.plus(DAY)),
        ..paged_query()
    };

    assert_eq!(matching_ids(&store, all).await, [wanted.id]);
}
