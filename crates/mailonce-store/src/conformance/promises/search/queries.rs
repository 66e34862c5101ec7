//! Promises about what a search finds, and in which order.

use mailonce_core::{
    inbox::artifact::ArtifactKind,
    search::{
        SearchRef,
        document::scope_token,
        query::{MailboxFilter, ScopeTerm, SearchQuery},
    },
};

use crate::conformance::{
    OTHER_TEAM, SECOND, T0, TEAM, TestStore, accept_first, cancel_email,
    fixtures::{
        inbound::{file_new, from_sender, new_message, open_inbox, with_artifacts},
        search::{email_ref, found, index_all, message_id_of, message_ref, query, run_query, search_page},
    },
    keyed_email, keyless_email,
};

pub(super) async fn mail_is_found_by_words_and_fields(store: TestStore) {
    let to = ["Carol@Clients.test"];
    let email = accept_first(&store, &keyless_email().to(&to).text("Your invoice 4821 is over due."), T0).await;
    let inbox = open_inbox(&store, "a@d.test").await;
    let (message, _) =
        file_new(&store, &inbox, from_sender(new_message(None, 7), "dave@sender.test"), T0.plus(9)).await;
    index_all(&store).await;

    let (email, message) = (email_ref(&email), message_ref(&message));
    for (text, expected) in [
        ("invoice", &[email][..]),
        ("INVOICE overdue", &[]),
        ("\"over due\" invoice", &[email]),
        ("\"due over\"", &[]),
        ("invoic", &[]),
        ("from:agent@example.com", &[email]),
        ("from:sender.test", &[message]),
        ("to:carol@clients.test", &[email]),
        ("to:invoice", &[]),
        ("subject:hello", &[email]),
        ("subject:täg", &[message]),
        ("TÄG 7", &[message]),
        ("test", &[message, email]),
        ("carol dave", &[]),
    ] {
        assert_eq!(found(&store, text).await, expected, "{text}");
    }
    let hits = search_page(&store, TEAM, query("invoice")).await.hits;
    assert_eq!((hits[0].at, hits[0].snippet.as_str()), (T0, "Your invoice 4821 is over due."));
}

pub(super) async fn excluded_words_exclude_mail(store: TestStore) {
    let red = accept_first(&store, &keyless_email().text("red apple"), T0).await;
    let green = accept_first(&store, &keyless_email().text("green apple pie"), T0.plus(1)).await;
    index_all(&store).await;

    let (red, green) = (email_ref(&red), email_ref(&green));
    assert_eq!(found(&store, "apple").await, [green, red]);
    assert_eq!(found(&store, "apple -red").await, [green]);
    assert_eq!(found(&store, "-\"apple pie\"").await, [red]);
    assert_eq!(found(&store, "-red -green").await, []);
    assert_eq!(found(&store, "apple -has:attachment").await, [green, red]);
}

pub(super) async fn a_phrase_stays_within_a_field(store: TestStore) {
    let email = accept_first(&store, &keyless_email().text("world peace"), T0).await;
    index_all(&store).await;

    // The subject is "Hello".
    assert_eq!(found(&store, "hello world").await, [email_ref(&email)]);
    assert_eq!(found(&store, "\"hello world\"").await, []);
    assert_eq!(found(&store, "subject:world").await, []);
}

pub(super) async fn operators_of_query_languages_are_ordinary_words(store: TestStore) {
    let plain = accept_first(&store, &keyless_email().text("alpha beta"), T0).await;
    let odd = accept_first(&store, &keyless_email().text("alpha or near and not 50% it's C:\\x"), T0.plus(1)).await;
    index_all(&store).await;

    let (plain, odd) = (email_ref(&plain), email_ref(&odd));
    for (text, expected) in [
        ("alpha", &[odd, plain][..]),
        ("alpha OR zebra", &[]),
        ("alpha OR", &[odd]),
        ("NEAR AND NOT", &[odd]),
        ("alph*", &[]),
        ("^alpha", &[odd, plain]),
        ("(alpha)", &[odd, plain]),
        ("alpha+beta", &[plain]),
        ("it's", &[odd]),
        ("\"c:\\x\"", &[odd]),
        ("alpha&beta|zebra!", &[]),
        ("{text}", &[]),
    ] {
        assert_eq!(found(&store, text).await, expected, "{text}");
    }
}

pub(super) async fn ideographs_are_found_without_spaces(store: TestStore) {
    let email = accept_first(&store, &keyless_email().text("ご請求書をお送りします"), T0).await;
    index_all(&store).await;

    assert_eq!(found(&store, "請求書").await, [email_ref(&email)]);
    assert_eq!(found(&store, "書請").await, []);
    let snippet = search_page(&store, TEAM, query("請求書")).await.hits.remove(0).snippet;
    assert_eq!(snippet, "ご請求書をお送りします");
}

pub(super) async fn mail_is_found_by_exact_names(store: TestStore) {
    let email = accept_first(&store, &keyless_email().with_call_id("toolu_01"), T0).await;
    let inbox = open_inbox(&store, "a@d.test").await;
    let code = with_artifacts(new_message(Some(3), 3), &[(ArtifactKind::Code, 1)]);
    let (message, _) = file_new(&store, &inbox, code, T0.plus(1)).await;
    index_all(&store).await;

    let (id, email, message) = (message_id_of(email.id), email_ref(&email), message_ref(&message));
    for (text, expected) in [
        (id.as_str(), &[email][..]),
        ("message_id:3@sender.test", &[message]),
        ("message_id:3@sender", &[]),
        ("call:toolu_01", &[email]),
        ("call:toolu", &[]),
        ("has:code", &[message]),
        ("has:attachment", &[message]),
        ("has:link", &[]),
        // The names are no words.
        ("kemail", &[]),
    ] {
        assert_eq!(found(&store, text).await, expected, "{text}");
    }
}

pub(super) async fn mail_is_found_by_its_time(store: TestStore) {
    let mut all: Vec<SearchRef> = Vec::new();
    for ms in 0..3 {
        all.push(email_ref(&accept_first(&store, &keyless_email(), T0.plus(ms)).await));
    }
    index_all(&store).await;

    let between = |after, before| SearchQuery { after, before, limit: 10, ..SearchQuery::default() };
    let second = T0.plus(1);
    assert_eq!(run_query(&store, between(Some(second), None)).await, [all[2], all[1]]);
    assert_eq!(run_query(&store, between(None, Some(second))).await, [all[0]]);
    assert_eq!(run_query(&store, between(Some(second), Some(T0.plus(2)))).await, [all[1]]);
    assert_eq!(run_query(&store, between(Some(second), Some(T0))).await, []);
}

pub(super) async fn a_search_can_be_limited_to_inboxes(store: TestStore) {
    let (one, two) = (open_inbox(&store, "one@d.test").await, open_inbox(&store, "two@d.test").await);
    let (first, _) = file_new(&store, &one, new_message(Some(1), 1), T0).await;
    let (second, _) = file_new(&store, &two, new_message(Some(2), 2), T0.plus(1)).await;
    let email = accept_first(&store, &keyless_email(), T0.plus(2)).await;
    index_all(&store).await;

    let (first, second, email) = (message_ref(&first), message_ref(&second), email_ref(&email));
    let limited = |filters: Vec<MailboxFilter>| SearchQuery { mailboxes: filters, limit: 10, ..SearchQuery::default() };
    let of_one = MailboxFilter { inboxes: vec![one.id], addresses: vec!["AGENT@example.com".into()] };
    let of_both = MailboxFilter { inboxes: vec![one.id, two.id], addresses: vec![one.address.clone()] };
    assert_eq!(run_query(&store, limited(vec![of_one.clone()])).await, [email, first]);
    assert_eq!(run_query(&store, limited(vec![of_both.clone()])).await, [second, first]);
    assert_eq!(run_query(&store, limited(vec![of_one, of_both])).await, [first]);
    assert_eq!(run_query(&store, limited(vec![MailboxFilter::default()])).await, []);
}

pub(super) async fn a_search_for_a_state_follows_the_mail(store: TestStore) {
    let first = accept_first(&store, &keyless_email(), T0).await;
    let second = accept_first(&store, &keyless_email(), T0.plus(1)).await;
    let inbox = open_inbox(&store, "a@d.test").await;
    let (message, _) = file_new(&store, &inbox, new_message(None, 1), T0.plus(2)).await;
    index_all(&store).await;

    let (first, second) = (email_ref(&first), email_ref(&second));
    assert_eq!(found(&store, "state:queued").await, [second, first]);
    cancel_email(&store, mailonce_core::id::EmailId(second.id), T0.plus(SECOND)).await;
    assert_eq!(found(&store, "state:queued").await, [first]);
    assert_eq!(found(&store, "state:cancelled hello").await, [second]);
    assert_eq!(found(&store, "state:unanswered").await, [message_ref(&message)]);
    assert_eq!(found(&store, "state:answered").await, []);
}

pub(super) async fn a_search_can_be_limited_to_named_mails(store: TestStore) {
    let first = accept_first(&store, &keyless_email().text("apple"), T0).await;
    let second = accept_first(&store, &keyless_email().text("pear"), T0.plus(1)).await;
    accept_first(&store, &keyless_email().text("apple"), T0.plus(2)).await;
    index_all(&store).await;

    let (first, second) = (email_ref(&first), email_ref(&second));
    let only = |text: &str, only: &[SearchRef]| SearchQuery { only: Some(only.to_vec()), ..query(text) };
    assert_eq!(run_query(&store, only("hello", &[first, second])).await, [second, first]);
    assert_eq!(run_query(&store, only("apple", &[first, second])).await, [first]);
    assert_eq!(run_query(&store, only("apple", &[])).await, []);
    assert_eq!(run_query(&store, SearchQuery { before: Some(T0), ..only("apple", &[first]) }).await, []);
}

pub(super) async fn pages_are_newest_first_and_stable(store: TestStore) {
    let mut expected: Vec<SearchRef> = Vec::new();
    for n in 0..7 {
        // Several in one millisecond.
        expected.push(email_ref(&accept_first(&store, &keyless_email(), T0.plus(n / 3)).await));
    }
    index_all(&store).await;

    let (mut pages, mut position) = (Vec::new(), None);
    loop {
        let page = search_page(&store, TEAM, SearchQuery { position, limit: 2, ..query("hello") }).await;
        assert!(page.hits.len() <= 2);
        assert!(page.hits.is_sorted_by(|a, b| a.at >= b.at));
        pages.extend(page.hits.iter().map(|hit| hit.mail));
        accept_first(&store, &keyless_email(), T0.plus(SECOND)).await;
        index_all(&store).await;
        let Some(next) = page.next else { break };
        position = Some(next);
    }
    let times = |mails: &[SearchRef]| mails.iter().map(|mail| mail.id.as_u128() >> 80).collect::<Vec<_>>();
    assert!(times(&pages).is_sorted_by(|a, b| a >= b));
    pages.sort_unstable();
    expected.sort_unstable();
    assert_eq!(pages, expected);
}

pub(super) async fn mail_of_another_team_is_not_found(store: TestStore) {
    let ours = accept_first(&store, &keyed_email("a").with_call_id("same"), T0).await;
    let theirs = accept_first(&store, &keyed_email("a").team(OTHER_TEAM).with_call_id("same"), T0).await;
    index_all(&store).await;

    for text in ["hello", "call:same", "from:agent@example.com", "-nothing", "state:queued"] {
        assert_eq!(found(&store, text).await, [email_ref(&ours)], "{text}");
    }
    assert_eq!(found(&store, &message_id_of(theirs.id)).await, []);
    let named = SearchQuery { only: Some(vec![email_ref(&theirs)]), ..query("hello") };
    assert_eq!(run_query(&store, named).await, []);
    let scope = vec![ScopeTerm { token: scope_token::message_id(&message_id_of(theirs.id)), is_negated: false }];
    assert_eq!(search_page(&store, OTHER_TEAM, SearchQuery { scope, limit: 9, ..query("hello") }).await.hits.len(), 1);
}
