//! P11: forged, lost, repeated and rewritten events.

use crate::honest::{PLAIN, Scribe, convicted, honest};
use mailonce_sim::proof::history::Evidence;
use mailonce_sim::proof::{Rule, check_reread};

/// The rules that are forged here.
pub(crate) const FORGED: &[Rule] =
    &[Rule::Gap, Rule::Births, Rule::Told, Rule::Untold, Rule::Ghost, Rule::CountedTwice, Rule::Rewritten];

#[test]
fn gaps_and_repeats_in_the_numbers_are_convicted() {
    let from_two = |scribe: &mut Scribe| scribe.history.events.iter_mut().for_each(|event| event.seq += 1);
    assert_eq!(convicted(from_two), [Rule::Gap]);
    let hole = |scribe: &mut Scribe| scribe.history.events.iter_mut().skip(5).for_each(|event| event.seq += 1);
    assert_eq!(convicted(hole), [Rule::Gap]);
    let twice = |scribe: &mut Scribe| scribe.history.events[4].seq = 4;
    assert_eq!(convicted(twice), [Rule::Gap]);
    let missing = |scribe: &mut Scribe| drop(scribe.history.events.remove(1));
    assert!(convicted(missing).contains(&Rule::Gap));
}

#[test]
fn an_acceptance_told_never_or_twice_is_convicted() {
    let never = convicted(|scribe| scribe.history.events[0].kind = "email.duplicate".into());
    assert_eq!(never, [Rule::Births, Rule::Told]);
    let twice = convicted(|scribe| scribe.event("ours", "e0", "email.held", 99));
    assert_eq!(twice, [Rule::Births]);
}

#[test]
fn a_change_told_twice_or_too_early_is_convicted() {
    assert_eq!(convicted(|scribe| scribe.event("ours", "e0", "email.sent", 99)), [Rule::Told, Rule::Untold]);
    let early = convicted(|scribe| {
        scribe.history.events[0].kind = "email.sent".into();
        scribe.history.events[1].kind = "email.accepted".into();
    });
    assert_eq!(early, [Rule::Told]);
    let same_rev = convicted(|scribe| scribe.history.events[1].rev = 1);
    assert_eq!(same_rev, [Rule::Told]);
    let same_id = convicted(|scribe| scribe.history.events[1].id = scribe.history.events[0].id.clone());
    assert_eq!(same_id, [Rule::Told]);
}

#[test]
fn a_change_that_is_not_told_is_convicted() {
    for kind in ["email.sent", "email.delivered"] {
        let forged = convicted(|scribe| {
            let event = scribe.history.events.iter_mut().find(|event| event.kind == kind).unwrap();
            (event.kind, event.rev) = ("email.duplicate".into(), 0);
        });
        assert_eq!(forged, [Rule::Untold], "{kind}");
    }
    let from_nothing = convicted(|scribe| scribe.event("ours", "e0", "email.bounced", 99));
    assert_eq!(from_nothing, [Rule::Untold]);
}

#[test]
fn events_of_an_email_that_is_not_there_are_convicted() {
    assert_eq!(convicted(|scribe| scribe.event("ours", "nobody", "email.sent", 1)), [Rule::Ghost]);
}

#[test]
fn events_that_changed_or_went_are_convicted() {
    let before = honest().history.events;
    assert_eq!(check_reread(&before, &before), []);
    let mut changed = before.clone();
    changed[4].about = "another".into();
    let mut gone = before.clone();
    gone.pop();
    for now in [changed, gone] {
        let found = check_reread(&before, &now);
        assert_eq!(found.iter().map(|found| found.rule).collect::<Vec<_>>(), [Rule::Rewritten]);
    }
}

#[test]
fn a_named_fact_on_record_twice_is_convicted() {
    let named = |names: [&str; 2]| {
        convicted(|scribe| {
            for once in names {
                let (source, says, once) = ("provider_event".into(), "delivered".into(), once.to_owned());
                scribe.history.emails[PLAIN].handoffs[0].evidence.push(Evidence { source, says, once, at_ms: None });
            }
        })
    };
    assert_eq!(named(["n1", "n1"]), [Rule::CountedTwice]);
    assert_eq!(named(["n1", "n2"]), []);
    assert_eq!(named(["", ""]), []);
}
