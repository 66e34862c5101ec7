//! Promises about lists of emails.

use mailonce_core::{
    email::{Email, EmailState},
    id::EmailId,
    port::store::EmailQuery,
    time::Time,
};

use super::{
    DAY, HOUR, Ledger, OTHER, SECOND, T0, TEAM, accepted, cancelled, given, keyed, keyless, listed, pages, sent,
};

/// Ids of what a query finds, over all its pages.
async fn found(store: &Ledger, query: EmailQuery) -> Vec<EmailId> {
    pages(store, TEAM, query).await.iter().map(|email| email.id).collect()
}

fn query() -> EmailQuery {
    EmailQuery { limit: 2, ..EmailQuery::default() }
}

async fn several(store: &Ledger, count: i64) -> Vec<Email> {
    let mut emails = Vec::new();
    for i in 0..count {
        emails.push(accepted(store, &keyed(&format!("k{i}")), T0.plus(i * HOUR)).await);
    }
    emails
}

pub(super) async fn emails_are_listed_newest_first(store: Ledger) {
    let mut emails = several(&store, 5).await;
    emails.reverse();

    assert_eq!(listed(&store, TEAM).await, emails);
    assert_eq!(listed(&store, OTHER).await, []);
}

pub(super) async fn pages_cover_everything_once(store: Ledger) {
    let mut wanted: Vec<_> = several(&store, 11).await.iter().map(|email| email.id).collect();
    wanted.reverse();
    for limit in [1, 2, 3, 10, 11, 12] {
        assert_eq!(found(&store, EmailQuery { limit, ..query() }).await, wanted, "limit {limit}");
    }
}

pub(super) async fn emails_are_counted_by_their_ids(store: Ledger) {
    let emails = several(&store, 5).await;
    let (first, last) = (EmailId(uuid::Uuid::nil()), EmailId(uuid::Uuid::max()));
    let count = async |team, from, to| store.count_emails(team, from, to).await.unwrap();

    assert_eq!(count(TEAM, first, last).await, 5);
    assert_eq!(count(TEAM, emails[1].id, last).await, 4);
    assert_eq!(count(TEAM, emails[1].id, emails[3].id).await, 2);
    assert_eq!(count(TEAM, emails[3].id, emails[1].id).await, 0);
    assert_eq!(count(OTHER, first, last).await, 0);
}

pub(super) async fn a_page_holds_at_most_its_limit(store: Ledger) {
    let emails = several(&store, 5).await;

    let page = store.emails(TEAM, EmailQuery { limit: 3, ..query() }).await.unwrap();
    let all = store.emails(TEAM, EmailQuery { limit: 5, ..query() }).await.unwrap();

    assert_eq!((page.rows.len(), page.next), (3, Some(emails[2].id)));
    assert_eq!((all.rows.len(), all.next), (5, None));
}

pub(super) async fn pages_stand_still_while_emails_come(store: Ledger) {
    let emails = several(&store, 4).await;
    let first = store.emails(TEAM, query()).await.unwrap();
    let _new = accepted(&store, &keyless(), T0.plus(DAY)).await;

    let second = store.emails(TEAM, EmailQuery { before: first.next, ..query() }).await.unwrap();

    let ids: Vec<_> = first.rows.iter().chain(&second.rows).map(|email| email.id).collect();
    assert_eq!(ids, [emails[3].id, emails[2].id, emails[1].id, emails[0].id]);
}

pub(super) async fn emails_are_found_by_state(store: Ledger) {
    let sent_one = sent(&store, &keyed("sent"), T0).await;
    let queued = accepted(&store, &keyed("queued"), T0).await;
    let scheduled = accepted(&store, &keyed("scheduled").due(T0.plus(DAY)), T0).await;
    let gone = accepted(&store, &keyed("cancelled"), T0).await;
    let _cancelled = cancelled(&store, gone.id, T0).await;

    for (state, wanted) in [
        (EmailState::Sent, vec![sent_one.id]),
        (EmailState::Queued, vec![queued.id]),
        (EmailState::Scheduled, vec![scheduled.id]),
        (EmailState::Cancelled, vec![gone.id]),
        (EmailState::Failed, vec![]),
    ] {
        assert_eq!(found(&store, EmailQuery { state: Some(state), ..query() }).await, wanted, "{state:?}");
    }
}

pub(super) async fn an_email_is_listed_in_the_state_of_its_most_open_envelope(store: Ledger) {
    let draft = keyless().to(&["a@example.com", "b@example.com"]).apart();
    let id = accepted(&store, &draft, T0).await.id;
    super::capture(&store, 1, T0).await;

    assert_eq!(found(&store, EmailQuery { state: Some(EmailState::Queued), ..query() }).await, [id]);
    assert_eq!(found(&store, EmailQuery { state: Some(EmailState::Sent), ..query() }).await, []);
}

pub(super) async fn emails_are_found_by_recipient(store: Ledger) {
    let to = accepted(&store, &keyless().to(&["a@example.com", "b@example.com"]), T0).await;
    let copied = accepted(&store, &keyless().to(&["c@example.com"]).cc(&["a@example.com"]), T0).await;
    let _other = accepted(&store, &keyless().to(&["aa@example.com"]), T0).await;

    for (address, wanted) in
        [("a@example.com", vec![copied.id, to.id]), ("b@example.com", vec![to.id]), ("nobody@example.com", vec![])]
    {
        assert_eq!(found(&store, EmailQuery { to: Some(address.into()), ..query() }).await, wanted, "{address}");
    }
}

pub(super) async fn the_latest_email_of_a_key_is_found_by_it(store: Ledger) {
    let by_key = |key: &str| EmailQuery { key: Some(given(TEAM, key)), ..query() };
    let old = sent(&store, &keyed("k").ttl(SECOND), T0).await;
    let _other = accepted(&store, &keyed("other"), T0).await;
    assert_eq!(found(&store, by_key("k")).await, [old.id]);

    let new = accepted(&store, &keyed("k"), T0.plus(SECOND)).await;

    assert_eq!(found(&store, by_key("k")).await, [new.id]);
    assert_eq!(found(&store, EmailQuery { state: Some(EmailState::Sent), ..by_key("k") }).await, []);
    assert_eq!(found(&store, EmailQuery { before: Some(new.id), ..by_key("k") }).await, []);
    assert_eq!(found(&store, by_key("never")).await, []);
}

pub(super) async fn emails_are_found_by_time(store: Ledger) {
    let ids: Vec<_> = several(&store, 4).await.iter().map(|email| email.id).collect();
    let at = |hours: i64| Some(Time(T0.0 + hours * HOUR));

    for (since, until, wanted) in [
        (at(1), None, vec![ids[3], ids[2], ids[1]]),
        (None, at(1), vec![ids[0]]),
        (at(1), at(3), vec![ids[2], ids[1]]),
        (at(9), None, vec![]),
    ] {
        assert_eq!(found(&store, EmailQuery { since, until, ..query() }).await, wanted, "{since:?} {until:?}");
    }
}

pub(super) async fn filters_hold_together(store: Ledger) {
    let wanted = accepted(&store, &keyed("k").to(&["a@example.com"]), T0.plus(HOUR)).await;
    let _too_early = accepted(&store, &keyless().to(&["a@example.com"]), T0).await;
    let _too_late = accepted(&store, &keyless().to(&["a@example.com"]), T0.plus(DAY)).await;
    let _other_person = accepted(&store, &keyless().to(&["b@example.com"]), T0.plus(HOUR)).await;
    let gone = accepted(&store, &keyless().to(&["a@example.com"]), T0.plus(HOUR)).await;
    let _cancelled = cancelled(&store, gone.id, T0.plus(HOUR)).await;
    let all = EmailQuery {
        state: Some(EmailState::Queued),
        to: Some("a@example.com".into()),
        since: Some(T0.plus(1)),
        until: Some(T0.plus(DAY)),
        ..query()
    };

    assert_eq!(found(&store, all).await, [wanted.id]);
}
