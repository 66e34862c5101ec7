//! Promises about threads as people see them: listed by their latest news, labelled, handled, gone with their inbox.

use mailonce_core::{
    conversation::{
        answer::AnswerWish,
        thread::{Leasing, Thread, ThreadEdit, ThreadQuery},
        turn::Slot,
    },
    id::{EmailId, TeamId, ThreadId},
    inbox::Inbox,
    message::{MessageState, NewMessage},
    port::store::Once,
};

use super::{
    HOUR, Ledger, OTHER, SECOND, T0, TEAM, accepted, events, keyed,
    post::{automatic, inbox, letter, made, open},
    talk::{answer, asks, came, letter_in, letters_in, next_letter, reply, the_thread, went},
};

async fn list(store: &Ledger, team: TeamId, query: ThreadQuery) -> Vec<Thread> {
    store.threads(team, query).await.unwrap()
}

fn ids(threads: &[Thread]) -> Vec<ThreadId> {
    threads.iter().map(|thread| thread.id).collect()
}

fn all() -> ThreadQuery {
    ThreadQuery { limit: 100, ..ThreadQuery::default() }
}

pub(super) async fn a_thread_knows_its_messages(store: Ledger) {
    let (inbox, first) = letter_in(&store).await;
    let thread = the_thread(&store, first.thread).await;
    assert_eq!((thread.team, thread.inbox, thread.rev), (TEAM, inbox.id, 1));
    assert_eq!((thread.latest_at, thread.about.created_at), (T0, T0));
    assert_eq!((thread.about.subject.as_str(), thread.about.messages), ("Your Täg 1", 1));
    assert_eq!(thread.about.people, [(1, first.id)]);
    let later = T0.plus(SECOND);
    let second = came(&store, &inbox, next_letter(2), later).await;
    let _robot = came(&store, &inbox, automatic(next_letter(3), false), later.plus(1)).await;
    let thread = the_thread(&store, first.thread).await;
    assert_eq!((thread.rev, thread.latest_at, thread.about.created_at), (3, later.plus(1), T0));
    assert_eq!((thread.about.subject.as_str(), thread.about.messages), ("Your Täg 1", 3));
    assert_eq!(thread.about.people, [(1, first.id), (2, second.id)]);
}

pub(super) async fn threads_are_listed_by_their_latest_news(store: Ledger) {
    let (inbox, messages) = letters_in(&store, 4).await;
    let [one, two, three, four] = [0, 1, 2, 3].map(|n: usize| messages[n].thread);
    assert_eq!(ids(&list(&store, TEAM, all()).await), [four, three, two, one], "of the same moment the latest first");
    let _news = came(&store, &inbox, next_letter(9), T0.plus(2)).await;
    let _email = went(answer(&store, reply(&messages[2]), T0.plus(1)).await);
    let listed = list(&store, TEAM, all()).await;
    assert_eq!(ids(&listed), [one, three, four, two]);
    assert_eq!(listed[0], the_thread(&store, one).await);

    let mut paged = Vec::new();
    let mut before = None;
    loop {
        let page = list(&store, TEAM, ThreadQuery { before, limit: 3, ..all() }).await;
        let Some(last) = page.last() else { break };
        before = Some((last.latest_at, last.id));
        paged.extend(page);
    }
    assert_eq!(paged, listed);
}

pub(super) async fn threads_are_found_by_inbox_label_and_handled(store: Ledger) {
    let (inbox, messages) = letters_in(&store, 3).await;
    let other = open(&store, "b@d.test").await;
    let elsewhere = came(&store, &other, letter(Some(1), 1), T0).await;
    let edit = async |n: usize, labels: &[&str], handled| {
        let labels = Some(labels.iter().map(ToString::to_string).collect());
        let edit = ThreadEdit { labels, handled: Some(handled) };
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

pub(super) async fn labels_and_handled_are_changed(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let before = the_thread(&store, message.thread).await;
    let change = async |edit| store.change_thread(TEAM, message.thread, edit, T0.plus(HOUR)).await.unwrap().unwrap();
    let doubled = Some(vec!["b".into(), "a".into(), "b".into()]);
    assert_eq!(change(ThreadEdit { labels: doubled, handled: None }).await.about.labels, ["b", "a"]);
    let labelled = change(ThreadEdit { labels: Some(vec!["Ünï".into()]), handled: None }).await;
    assert_eq!((&labelled.about.labels[..], labelled.about.handled_at), (&["Ünï".to_owned()][..], None));
    assert_eq!((labelled.rev, labelled.latest_at), (before.rev + 2, before.latest_at));
    let handled = change(ThreadEdit { labels: None, handled: Some(true) }).await;
    assert_eq!((handled.about.labels.len(), handled.about.handled_at), (1, Some(T0.plus(HOUR))));
    assert_eq!(the_thread(&store, message.thread).await, handled);
    assert_eq!(change(ThreadEdit { labels: None, handled: Some(false) }).await.about.handled_at, None);
    let nobody = ThreadId(super::next_id(T0));
    assert_eq!(store.change_thread(TEAM, nobody, ThreadEdit::default(), T0).await.unwrap(), None);
}

pub(super) async fn a_message_that_wants_an_answer_takes_handled_back(store: Ledger) {
    let (inbox, message) = letter_in(&store).await;
    let handled = ThreadEdit { labels: Some(vec!["hot".into()]), handled: Some(true) };
    let _handled = store.change_thread(TEAM, message.thread, handled, T0).await.unwrap();
    let skipped = NewMessage { state: MessageState::Skipped, ..next_letter(2) };
    let _skipped = came(&store, &inbox, skipped, T0).await;
    assert_eq!(the_thread(&store, message.thread).await.about.handled_at, Some(T0));
    let _news = came(&store, &inbox, next_letter(3), T0).await;
    let thread = the_thread(&store, message.thread).await;
    assert_eq!((thread.about.handled_at, thread.about.labels.len()), (None, 1));
}

pub(super) async fn emails_of_a_thread_are_listed_oldest_first(store: Ledger) {
    let (inbox, message) = letter_in(&store).await;
    let ours = accepted(&store, &keyed("k"), T0).await;
    let mut made: Vec<EmailId> = vec![ours.id];
    for n in 0..3 {
        let wish = AnswerWish { slot: Slot::Reply(n), ..reply(&message) };
        made.push(went(answer(&store, wish, T0).await).id);
    }
    // A message that answers an email of ours brings it along, once.
    for n in 2..=3 {
        let _news = came(&store, &inbox, NewMessage { email: Some(ours.id), ..next_letter(n) }, T0).await;
    }
    let emails = async |after, limit| store.thread_emails(TEAM, message.thread, after, limit).await.unwrap();
    assert_eq!(emails(None, 10).await, made);
    assert_eq!(emails(None, 2).await, made[..2]);
    assert_eq!(emails(Some(made[1]), 10).await, made[2..]);
    assert_eq!(emails(Some(made[3]), 10).await, []);
    assert_eq!(store.thread_emails(OTHER, message.thread, None, 10).await.unwrap(), []);
}

pub(super) async fn a_removed_inbox_takes_its_threads_along(store: Ledger) {
    let (inbox, messages) = letters_in(&store, 3).await;
    let _email = went(answer(&store, reply(&messages[0]), T0).await);
    let kept = open(&store, "b@d.test").await;
    let stays = came(&store, &kept, letter(Some(1), 1), T0).await;
    let _email = went(answer(&store, reply(&stays), T0).await);
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
            let asked = store.lease_thread(TEAM, message.thread, asks("t"), None, T0).await.unwrap();
            assert_eq!(asked, Once::Done(Leasing::Missing));
        }
        let gone = ThreadQuery { inbox: Some(inbox.id), ..all() };
        assert_eq!(list(&store, TEAM, gone).await, []);
        assert_eq!(ids(&list(&store, TEAM, all()).await), [stays.thread]);
        assert_eq!(store.thread_emails(TEAM, stays.thread, None, 10).await.unwrap().len(), 1);
    }
}

pub(super) async fn threads_of_another_team_are_not_there(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let theirs = made(&store, &Inbox { team: OTHER, ..inbox("b@d.test") }).await;
    let other = came(&store, &theirs, letter(Some(1), 1), T0).await;
    let before = the_thread(&store, message.thread).await;
    assert_eq!(store.thread(OTHER, message.thread).await.unwrap(), None);
    assert_eq!(ids(&list(&store, OTHER, all()).await), [other.thread]);
    assert_eq!(list(&store, OTHER, ThreadQuery { inbox: Some(before.inbox), ..all() }).await, []);
    assert_eq!(store.change_thread(OTHER, message.thread, ThreadEdit::default(), T0).await.unwrap(), None);
    let asked = store.lease_thread(OTHER, message.thread, asks("t"), None, T0).await.unwrap();
    assert_eq!(asked, Once::Done(Leasing::Missing));
    let _leased = super::talk::leased(&store, message.thread, "t", T0).await;
    assert_eq!(store.release_thread(OTHER, message.thread, "t", T0).await.unwrap(), None);
    assert_eq!(the_thread(&store, message.thread).await.about.fence, before.about.fence + 1);
    assert_eq!(events(&store, OTHER).await.len(), 1);
}
