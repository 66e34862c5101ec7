//! The way of a handoff, in worlds small enough to be seen whole. `mailonce-model` plays larger ones.

use mailonce_core::email::OnUnknown;
use mailonce_sim::model::{
    laws::{FALSE_END, TWICE},
    run::{Bounds, Summary, Violation, run},
    size::{Class, Flaw, Size},
};

const BOUNDS: Bounds = Bounds { threads: 1, patience: None };

/// One email with one handoff that two workers may lease twice.
const SMALL: Size = Size {
    class: Class::Keyless,
    on_unknown: OnUnknown::Hold,
    workers: 2,
    handoffs: 1,
    leases: 2,
    news: false,
    flaw: None,
};

fn play(size: Size) -> Summary {
    let summary = run(size, BOUNDS).expect("a world");
    println!("{}", serde_json::to_string_pretty(&summary).expect("JSON"));
    summary
}

#[track_caller]
fn holds(size: Size) {
    let summary = play(size);
    assert_eq!(summary.missed, [""; 0], "not everything happened");
    assert!(summary.holds(), "{:#?}", summary.violations);
}

#[test]
fn a_keyed_next_hop_takes_nothing_twice_inside_its_window() {
    holds(Size { class: Class::Keyed, ..SMALL });
}

#[test]
fn a_next_hop_that_can_be_asked_takes_nothing_twice_under_hold() {
    holds(Size { class: Class::LookUp, news: true, ..SMALL });
}

#[test]
fn a_next_hop_that_knows_nothing_takes_nothing_twice_under_hold() {
    holds(Size { workers: 3, ..SMALL });
}

#[test]
fn an_email_that_asks_for_it_is_resent_once_and_flagged() {
    holds(Size { on_unknown: OnUnknown::Resend, news: true, ..SMALL });
}

#[test]
fn two_handoffs_of_one_email_do_not_disturb_each_other() {
    holds(Size { handoffs: 2, leases: 1, ..SMALL });
}

#[test]
fn a_handoff_that_ends_its_workers_is_put_aside_and_nothing_of_it_left() {
    holds(Size { workers: 1, leases: 5, ..SMALL });
}

/// A law that no mistake can break says nothing: each mistake must be found out, by a law about mails.
#[test]
fn every_mistake_is_found_out() {
    for flaw in [
        Flaw::OldConnection,
        Flaw::SendingIsRetried,
        Flaw::LostMarker,
        Flaw::WireFirst,
        Flaw::NegativeIsProof,
        Flaw::RefusalSettlesAll,
        Flaw::FenceOfNow,
    ] {
        let summary = play(Size { class: flaw.class(), flaw: Some(flaw), ..SMALL });
        let about_mails = |found: &Violation| [TWICE, FALSE_END].contains(&found.law);
        assert!(summary.violations.iter().any(about_mails), "{flaw:?} was not found out");
    }
}
