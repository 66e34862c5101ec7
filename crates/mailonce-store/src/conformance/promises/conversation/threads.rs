//! Promises about threads as people see them: listed by latest activity, labelled, handled, removed with their inbox.

use mailonce_core::{
    conversation::{
        reply_guards::NewReply,
        thread::{Thread, ThreadEdit, ThreadLeaseResult, ThreadLeaseSpec, ThreadQuery},
    },
    id::{EmailId, TeamId, ThreadId},
    inbox::{
        Inbox,
        message::{MessageState, NewMessage},
        progress::ReplySlot,
    },
    operation::IdempotentResult,
};

use crate::conformance::{
    HOUR, OTHER_TEAM, SECOND, T0, TEAM, TestStore, accept_first, all_events,
    fixtures::{
        conversations::{
            accept_reply, expect_accepted, expect_leased_thread, file_message, inbox_with_message, inbox_with_messages,
            load_thread, message_in_thread_1, plain_reply, thread_lease_spec,
        },
        inbound::{automatic_message, created_inbox, new_inbox, new_message, open_inbox},
    },
    keyed_email, next_id,
};

async fn list(store: &TestStore, team: TeamId, query: ThreadQuery) -> Vec<Thread> {
    store.threads(team, query).await.unwrap()
}

fn ids(threads: &[Thread]) -> Vec<ThreadId> {
    threads.iter().map(|thread| thread.id).collect()
}

fn all() -> ThreadQuery {
    ThreadQuery { limit: 100, ..ThreadQuery::default() }
}

pub(super) async fn a_thread_counts_its_messages_and_people(store: TestStore) {
    let (inbox, first) = inbox_with_message(&store).await;
    let thread = load_thread(&store, first.thread).await;
    assert_eq!((thread.team, thread.inbox, thread.rev), (TEAM, inbox.id, 1));
    assert_eq!((thread.last_activity_at, thread.details.created_at), (T0, T0));
    assert_eq!((thread.details.subject.as_str(), thread.details.messages), ("Your Täg 1", 1));
    assert_eq!(thread.details.people, [(1, first.id)]);
    let later = T0.plus(SECOND);
    let second = file_message(&store, &inbox, message_in_thread_1(2), later).await;
    let _robot = file_message(&store, &inbox, automatic_message(message_in_thread_1(3), false), later.plus(1)).await;
    let thread = load_thread(&store, first.thread).await;
    assert_eq!((thread.rev, thread.last_activity_at, thread.details.created_at), (3, later.plus(1), T0));
    assert_eq!((thread.details.subject.as_str(), thread.details.messages), ("Your Täg 1", 3));
    assert_eq!(thread.details.people, [(1, first.id), (2, second.id)]);
}

pub(super) async fn threads_are_listed_by_latest_activity(store: TestStore) {
    let (inbox, messages) = inbox_with_messages(&store, 4).await;
    let [one, two, three, four] = [0, 1, 2, 3].map(|n: usize| messages[n].thread);
    assert_eq!(ids(&list(&store, TEAM, all()).await), [four, three, two, one], "at the same time, the latest first");
    let _new = file_message(&store, &inbox, message_in_thread_1(9), T0.plus(2)).await;
    let _email = expect_accepted(accept_reply(&store, plain_reply(&messages[2]), T0.plus(1)).await);
    let listed = list(&store, TEAM, all()).await;
    assert_eq!(ids(&listed), [one, three, four, two]);
    assert_eq!(listed[0], load_thread(&store, one).await);

    let mut paged = Vec::new();
    let mut before = None;
    loop {
        let page = list(&store, TEAM, ThreadQuery { before, limit: 3, ..all() }).await;
        let Some(last) = page.last() else { break };
        before = Some((last.last_activity_at, last.id));
        paged.extend(page);
    }
    assert_eq!(paged, listed);
}

pub(super) async fn threads_can_be_filtered_by_inbox_label_and_handled(store: TestStore) {
    let (inbox, messages) = inbox_with_messages(&store, 3).await;
    let other = open_inbox(&store, "b@d.test").await;
    let elsewhere = file_message(&store, &other, new_message(Some(1), 1), T0).await;
    let edit = async |n: usize, labels: &[&str], handled| {
        let labels = Some(labels.iter().map(ToString::to_string).collect());
        let edit = ThreadEdit { labels, handled: Some(handled), ..ThreadEdit::default() };
        store.change_thread(TEAM, messages[n].thread, edit, T0).await.unwrap().unwrap()
    };
    let _zero = edit(0, &["hot", "new"], true).await;
    let _one = edit(1, &["hot"], false).await;
    let find = async |query: ThreadQuery| ids(&list(&store, TEAM, query).await);
    let [zero, one, two] = [0, 1, 2].map(|n: usize| messages[n].thread);
    assert_eq!(find(ThreadQuery { inbox: Some(inbox.id), ..all() }).await, [two, one, zero]);
    assert_eq!(find(ThreadQuery { inbox: Some(other.id), ..all() }).await, [elsewhere.thread]);
    assert_eq!(find(ThreadQuery { label: Some("hot".into()), ..all() }).await, [one, zero]);
    assert_eq!(find(ThreadQuery { label: Some("ho".into()), ..all() }).await, []);
    assert_eq!(find(ThreadQuery { handled: Some(true), ..all() }).await, [zero]);
    assert_eq!(find(ThreadQuery { handled: Some(false), ..all() }).await, [elsewhere.thread, two, one]);
    let hot_open = ThreadQuery { label: Some("hot".into()), handled: Some(false), limit: 1, ..all() };
    assert_eq!(find(hot_open).await, [one]);
}

pub(super) async fn labels_and_handled_can_be_changed(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let before = load_thread(&store, message.thread).await;
    let change = async |edit| store.change_thread(TEAM, message.thread, edit, T0.plus(HOUR)).await.unwrap().unwrap();
    let doubled = Some(vec!["b".into(), "a".into(), "b".into()]);
    assert_eq!(
        change(ThreadEdit { labels: doubled, handled: None, ..ThreadEdit::default() }).await.details.labels,
        ["b", "a"]
    );
    let labelled =
        change(ThreadEdit { labels: Some(vec!["Ünï".into()]), handled: None, ..ThreadEdit::default() }).await;
    assert_eq!((&labelled.details.labels[..], labelled.details.handled_at), (&["Ünï".to_owned()][..], None));
    assert_eq!((labelled.rev, labelled.last_activity_at), (before.rev + 2, before.last_activity_at));
    let handled = change(ThreadEdit { labels: None, handled: Some(true), ..ThreadEdit::default() }).await;
    assert_eq!((handled.details.labels.len(), handled.details.handled_at), (1, Some(T0.plus(HOUR))));
    assert_eq!(load_thread(&store, message.thread).await, handled);
    assert_eq!(
        change(ThreadEdit { labels: None, handled: Some(false), ..ThreadEdit::default() }).await.details.handled_at,
        None
    );
    let missing = ThreadId(next_id(T0));
    assert_eq!(store.change_thread(TEAM, missing, ThreadEdit::default(), T0).await.unwrap(), None);
}

pub(super) async fn a_person_can_end_the_lease_of_any_holder(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let spec = |token: &str| ThreadLeaseSpec { renew: None, token: token.into(), holder: "one".into(), ttl_ms: HOUR };
    let lease = async |token: &str| store.lease_thread(TEAM, message.thread, spec(token), None, T0).await.unwrap();
    let _leased = lease("first").await;
    let before = load_thread(&store, message.thread).await;
    let edit = ThreadEdit { ends_lease: true, ..ThreadEdit::default() };

    let ended = store.change_thread(TEAM, message.thread, edit.clone(), T0).await.unwrap().unwrap();
    assert_eq!((&ended.details.lease, ended.details.fence), (&None, before.details.fence + 1));
    let renewal = ThreadLeaseSpec { renew: Some("first".into()), ..spec("first") };
    let renewed = store.lease_thread(TEAM, message.thread, renewal, None, T0).await.unwrap();
    assert!(matches!(renewed, IdempotentResult::Done(ThreadLeaseResult::Stale(_))), "{renewed:?}");
    assert!(matches!(lease("second").await, IdempotentResult::Done(ThreadLeaseResult::Leased(_))));

    let _ended = store.change_thread(TEAM, message.thread, edit.clone(), T0).await.unwrap();
    let again = store.change_thread(TEAM, message.thread, edit, T0).await.unwrap().unwrap();
    assert_eq!(again.details.fence, before.details.fence + 3, "ending no lease is no new fence");
}

pub(super) async fn a_new_unanswered_message_clears_handled(store: TestStore) {
    let (inbox, message) = inbox_with_message(&store).await;
    let handled = ThreadEdit { labels: Some(vec!["hot".into()]), handled: Some(true), ..ThreadEdit::default() };
    let _handled = store.change_thread(TEAM, message.thread, handled, T0).await.unwrap();
    let skipped = NewMessage { state: MessageState::Skipped, ..message_in_thread_1(2) };
    let _skipped = file_message(&store, &inbox, skipped, T0).await;
    assert_eq!(load_thread(&store, message.thread).await.details.handled_at, Some(T0));
    let _new = file_message(&store, &inbox, message_in_thread_1(3), T0).await;
    let thread = load_thread(&store, message.thread).await;
    assert_eq!((thread.details.handled_at, thread.details.labels.len()), (None, 1));
}

pub(super) async fn emails_of_a_thread_are_listed_oldest_first(store: TestStore) {
    let (inbox, message) = inbox_with_message(&store).await;
    let ours = accept_first(&store, &keyed_email("k"), T0).await;
    let mut email_ids: Vec<EmailId> = vec![ours.id];
    for n in 0..3 {
        let reply = NewReply { slot: ReplySlot::Reply(n), ..plain_reply(&message) };
        email_ids.push(expect_accepted(accept_reply(&store, reply, T0).await).id);
    }
    // A message that replies to an email of ours adds that email to the thread, once.
    for n in 2..=3 {
        let _new =
            file_message(&store, &inbox, NewMessage { answers_email: Some(ours.id), ..message_in_thread_1(n) }, T0)
                .await;
    }
    let emails = async |after, limit| store.thread_emails(TEAM, message.thread, after, limit).await.unwrap();
    assert_eq!(emails(None, 10).await, email_ids);
    assert_eq!(emails(None, 2).await, email_ids[..2]);
    assert_eq!(emails(Some(email_ids[1]), 10).await, email_ids[2..]);
    assert_eq!(emails(Some(email_ids[3]), 10).await, []);
    assert_eq!(store.thread_emails(OTHER_TEAM, message.thread, None, 10).await.unwrap(), []);
}

pub(super) async fn removing_an_inbox_removes_its_threads(store: TestStore) {
    let (inbox, messages) = inbox_with_messages(&store, 3).await;
    let _email = expect_accepted(accept_reply(&store, plain_reply(&messages[0]), T0).await);
    let kept = open_inbox(&store, "b@d.test").await;
    let stays = file_message(&store, &kept, new_message(Some(1), 1), T0).await;
    let _email = expect_accepted(accept_reply(&store, plain_reply(&stays), T0).await);
    store.remove_inbox(TEAM, inbox.id, T0).await.unwrap().unwrap();
    for sweeps in 0..4 {
        if sweeps > 0 {
            let _swept = store.sweep(2, T0).await.unwrap();
        }
        for message in &messages {
            assert_eq!(store.thread(TEAM, message.thread).await.unwrap(), None);
            assert_eq!(store.thread_emails(TEAM, message.thread, None, 10).await.unwrap(), []);
            let edit = ThreadEdit { handled: Some(true), ..ThreadEdit::default() };
            assert_eq!(store.change_thread(TEAM, message.thread, edit, T0).await.unwrap(), None);
            let result = store.lease_thread(TEAM, message.thread, thread_lease_spec("t"), None, T0).await.unwrap();
            assert_eq!(result, IdempotentResult::Done(ThreadLeaseResult::Missing));
        }
        let gone = ThreadQuery { inbox: Some(inbox.id), ..all() };
        assert_eq!(list(&store, TEAM, gone).await, []);
        assert_eq!(ids(&list(&store, TEAM, all()).await), [stays.thread]);
        assert_eq!(store.thread_emails(TEAM, stays.thread, None, 10).await.unwrap().len(), 1);
    }
}

pub(super) async fn threads_of_another_team_are_not_found(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let theirs = created_inbox(&store, &Inbox { team: OTHER_TEAM, ..new_inbox("b@d.test") }).await;
    let other = file_message(&store, &theirs, new_message(Some(1), 1), T0).await;
    let before = load_thread(&store, message.thread).await;
    assert_eq!(store.thread(OTHER_TEAM, message.thread).await.unwrap(), None);
    assert_eq!(ids(&list(&store, OTHER_TEAM, all()).await), [other.thread]);
    assert_eq!(list(&store, OTHER_TEAM, ThreadQuery { inbox: Some(before.inbox), ..all() }).await, []);
    assert_eq!(store.change_thread(OTHER_TEAM, message.thread, ThreadEdit::default(), T0).await.unwrap(), None);
    let result = store.lease_thread(OTHER_TEAM, message.thread, thread_lease_spec("t"), None, T0).await.unwrap();
    assert_eq!(result, IdempotentResult::Done(ThreadLeaseResult::Missing));
    let _leased = expect_leased_thread(&store, message.thread, "t", T0).await;
    assert_eq!(store.release_thread(OTHER_TEAM, message.thread, "t", T0).await.unwrap(), None);
    assert_eq!(load_thread(&store, message.thread).await.details.fence, before.details.fence + 1);
    assert_eq!(all_events(&store, OTHER_TEAM).await.len(), 1);
}
