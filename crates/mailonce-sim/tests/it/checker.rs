//! The checker itself: an honest history is acquitted, and every forged one is convicted of what was forged.

use mailonce_sim::rig::check::{Rule, check, check_reread, check_settled};
use mailonce_sim::rig::history::{End, History, end_of};
use mailonce_sim::rig::ledger::{Ledger, Row, Told};
use mailonce_sim::rig::wish::{Kind, Wish};

/// Three wishes, one of each kind.
fn wishes() -> [Wish; 3] {
    let wish = |n, kind| Wish { cycle: 0, n, kind };
    [wish(0, Kind::Single), wish(1, Kind::Intent), wish(2, Kind::Batch)]
}

fn ids(wish: &Wish) -> Vec<String> {
    wish.slots().iter().map(|slot| format!("id-of-{slot}")).collect()
}

fn ok(wish: &Wish, first: bool) -> End {
    End::Ok { first, ids: ids(wish) }
}

fn call(history: &mut History, wish: Wish, end: End) {
    let call = history.invoke(wish, 0);
    history.end(call, end);
}

/// Every wish is lost once, answered once and repeated once; every email is there and was told of.
fn honest() -> (History, Ledger) {
    let (mut history, mut ledger) = (History::default(), Ledger::default());
    for wish in wishes() {
        for end in [End::Unknown, ok(&wish, true), ok(&wish, false)] {
            call(&mut history, wish, end);
        }
        for (slot, id) in wish.slots().into_iter().zip(ids(&wish)) {
            ledger.emails.push(Row { id: id.clone(), key: format!("key-of-{slot}"), to: slot });
            for kind in ["email.accepted", "email.sent", "email.duplicate"] {
                tell(&mut ledger, kind, &id);
            }
        }
    }
    (history, ledger)
}

fn tell(ledger: &mut Ledger, kind: &str, about: &str) {
    let seq = ledger.events.len() as u64 + 1;
    ledger.events.push(Told { seq, id: format!("event-{seq}"), kind: kind.to_owned(), about: about.to_owned() });
}

/// Forges an honest history and gives the rules that the checker says were broken.
fn convicted(forge: impl FnOnce(&mut History, &mut Ledger)) -> Vec<Rule> {
    let (mut history, mut ledger) = honest();
    forge(&mut history, &mut ledger);
    let mut rules: Vec<_> = check_settled(&history, &ledger).iter().map(|found| found.rule).collect();
    rules.dedup();
    rules
}

/// Takes an email and all that was told of it away.
fn erase(ledger: &mut Ledger, at: usize) {
    let row = ledger.emails.remove(at);
    ledger.events.retain(|event| event.about != row.id);
    for (seq, event) in (1..).zip(&mut ledger.events) {
        event.seq = seq;
    }
}

/// Adds a twin of an email, told of as if it were right.
fn double(ledger: &mut Ledger, at: usize, key: &str) {
    let twin = Row { id: "the-twin".to_owned(), key: key.to_owned(), ..ledger.emails[at].clone() };
    ledger.emails.push(twin);
    tell(ledger, "email.accepted", "the-twin");
}

#[test]
fn an_honest_history_is_acquitted() {
    assert_eq!(convicted(|_, _| {}), []);
    let (_, ledger) = honest();
    assert_eq!(check_reread(&ledger, &ledger), []);
}

#[test]
fn a_lost_email_is_convicted() {
    assert_eq!(convicted(|_, ledger| erase(ledger, 0)), [Rule::Lost]);
}

#[test]
fn an_email_lost_before_anything_was_asked_again_is_convicted() {
    let (mut history, mut ledger) = honest();
    history.calls.truncate(2);
    ledger.emails.clear();
    let found = check(&history, &ledger);
    assert_eq!(found.iter().map(|found| found.rule).collect::<Vec<_>>(), [Rule::Lost]);
}

#[test]
fn two_ids_for_one_key_are_convicted() {
    let forged = convicted(|history, ledger| {
        let ids = vec!["the-twin".to_owned()];
        call(history, wishes()[0], End::Ok { first: false, ids });
        double(ledger, 0, "another-key");
    });
    assert_eq!(forged, [Rule::TwoIds, Rule::Duplicated]);
}

#[test]
fn two_first_answers_are_convicted() {
    let forged = convicted(|history, _| call(history, wishes()[0], ok(&wishes()[0], true)));
    assert_eq!(forged, [Rule::TwoFirsts]);
}

#[test]
fn a_second_email_that_nobody_was_told_of_is_convicted() {
    assert_eq!(convicted(|_, ledger| double(ledger, 0, "another-key")), [Rule::Duplicated]);
    let same_key = convicted(|_, ledger| {
        let key = ledger.emails[1].key.clone();
        double(ledger, 1, &key);
    });
    assert_eq!(same_key, [Rule::Duplicated, Rule::SharedKey]);
}

#[test]
fn a_duplicated_item_of_a_batch_is_convicted() {
    assert_eq!(convicted(|_, ledger| double(ledger, 7, "another-key")), [Rule::Duplicated]);
}

#[test]
fn a_batch_out_of_order_is_convicted() {
    let forged = convicted(|history, _| {
        for call in &mut history.calls {
            if let End::Ok { ids, .. } = &mut call.end
                && ids.len() > 1
            {
                ids.swap(3, 4);
            }
        }
    });
    assert_eq!(forged, [Rule::OutOfOrder]);
}

#[test]
fn a_torn_batch_is_convicted_even_when_it_was_never_answered() {
    let forged = convicted(|history, ledger| {
        for call in &mut history.calls {
            if call.wish.kind == Kind::Batch {
                call.end = End::Unknown;
            }
        }
        erase(ledger, 9);
    });
    assert_eq!(forged, [Rule::Torn, Rule::Unanswered]);
}

#[test]
fn a_batch_answered_without_an_item_is_no_answer() {
    let batch = wishes()[2];
    let email = r#"{"id":"a","dedupe":{"outcome":"first"}}"#;
    let body = |items: usize| format!(r#"{{"data":[{}]}}"#, vec![email; items].join(","));
    assert!(matches!(end_of(&batch, 202, body(20).as_bytes()), End::Ok { first: true, .. }));
    assert!(matches!(end_of(&batch, 202, body(19).as_bytes()), End::Refused { .. }));
    assert!(matches!(end_of(&batch, 200, body(20).as_bytes()), End::Refused { .. }));
}

#[test]
fn an_email_that_nobody_asked_for_is_convicted() {
    let forged = convicted(|_, ledger| {
        let row = |n: &str| Row { id: n.to_owned(), to: n.to_owned(), key: n.to_owned() };
        for row in [row("single-9-9-0@example.org"), row("eve@example.com")] {
            tell(ledger, "email.accepted", &row.id);
            ledger.emails.push(row);
        }
    });
    assert_eq!(forged, [Rule::Unasked]);
}

#[test]
fn a_refusal_is_convicted_unless_it_says_that_it_cannot_tell() {
    let refused = |status| {
        convicted(|history, _| {
            let code = "a_code".to_owned();
            call(history, wishes()[0], End::Refused { status, code });
        })
    };
    assert_eq!(refused(422), [Rule::Refusal]);
    assert_eq!(refused(500), [Rule::Refusal]);
    assert_eq!(refused(503), []);
}

#[test]
fn gaps_and_repeats_in_the_numbers_of_events_are_convicted() {
    let from_two = |_: &mut History, ledger: &mut Ledger| {
        ledger.events.iter_mut().for_each(|event| event.seq += 1);
    };
    assert_eq!(convicted(from_two), [Rule::Gap]);
    let hole = |_: &mut History, ledger: &mut Ledger| {
        ledger.events.iter_mut().skip(10).for_each(|event| event.seq += 1);
    };
    assert_eq!(convicted(hole), [Rule::Gap]);
    let twice = |_: &mut History, ledger: &mut Ledger| ledger.events[10].seq = 10;
    assert_eq!(convicted(twice), [Rule::Gap]);
    let missing = |_: &mut History, ledger: &mut Ledger| drop(ledger.events.remove(2));
    assert_eq!(convicted(missing), [Rule::Gap]);
}

#[test]
fn an_acceptance_told_never_or_twice_is_convicted() {
    let never = convicted(|_, ledger| ledger.events[0].kind = "email.duplicate".to_owned());
    assert_eq!(never, [Rule::Births, Rule::Told]);
    let twice = convicted(|_, ledger| {
        let id = ledger.emails[5].id.clone();
        tell(ledger, "email.held", &id);
    });
    assert_eq!(twice, [Rule::Births]);
}

#[test]
fn a_hand_over_told_twice_or_too_early_is_convicted() {
    let twice = convicted(|_, ledger| {
        let id = ledger.emails[5].id.clone();
        tell(ledger, "email.sent", &id);
    });
    assert_eq!(twice, [Rule::Told]);
    let early = convicted(|_, ledger| {
        ledger.events[0].kind = "email.sent".to_owned();
        ledger.events[1].kind = "email.accepted".to_owned();
    });
    assert_eq!(early, [Rule::Told]);
}

#[test]
fn events_of_an_email_that_is_not_there_are_convicted() {
    assert_eq!(convicted(|_, ledger| tell(ledger, "email.sent", "nobody")), [Rule::Ghost]);
}

#[test]
fn a_wish_without_an_answer_is_convicted() {
    let forged = convicted(|history, _| {
        let wish = Wish { cycle: 1, ..wishes()[0] };
        call(history, wish, End::Unknown);
    });
    assert_eq!(forged, [Rule::Unanswered]);
}

#[test]
fn events_that_changed_or_went_are_convicted() {
    let (_, before) = honest();
    let mut changed = before.clone();
    changed.events[4].about = "another".to_owned();
    let mut gone = before.clone();
    gone.events.pop();
    for now in [changed, gone] {
        let found = check_reread(&before, &now);
        assert_eq!(found.iter().map(|found| found.rule).collect::<Vec<_>>(), [Rule::Rewritten]);
    }
}
