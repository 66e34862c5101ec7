//! `mailonce prove`: it holds where a contract is kept, and convicts where it is broken.

use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::atomic::{AtomicU16, Ordering},
};

use crate::{
    binary::{Desk, Ran},
    prove_fake::{FAKE_KEY, Fake, Flaw, Speaks},
};

/// An address where nobody listens yet, for a sink that two processes must know beforehand. Below the ports of clients,
/// one of which could have it by then; every test is given another.
fn free_address() -> SocketAddr {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let next = || 10_000 + (std::process::id() as u16).wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % 5_000;
    let free = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, next())).ok()?.local_addr().ok();
    (0..5_000).find_map(free).expect("a port where nobody listens")
}

/// The verdicts by case.
fn verdicts(report: &Value) -> BTreeMap<String, String> {
    let cases = report["cases"].as_array().unwrap();
    let word = |case: &Value, name: &str| case[name].as_str().unwrap().to_owned();
    cases.iter().map(|case| (word(case, "case"), word(case, "verdict"))).collect()
}

/// The cases with this verdict.
fn with(report: &Value, verdict: &str) -> BTreeSet<String> {
    verdicts(report).into_iter().filter(|(_, found)| found == verdict).map(|(case, _)| case).collect()
}

fn names(cases: &[&str]) -> BTreeSet<String> {
    cases.iter().map(ToString::to_string).collect()
}

/// Proves a server that speaks and errs like this, with a sink.
async fn proven(speaks: Speaks, flaw: Flaw) -> Ran {
    let (desk, sink) = (Desk::new(), free_address());
    let fake = Fake::start(speaks, flaw, Some(sink)).await;
    let (url, sink) = (fake.url(), sink.to_string());
    let words = ["prove", "--target", &url, "--dialect", speaks.word(), "--key", FAKE_KEY, "--from", "a@x.test"];
    let more = ["--sink", &sink, "--callers", "20", "--quiet", "1", "--patience", "3"];
    desk.run(&[&words[..], &more[..]].concat()).await
}

/// Proves a broken server and looks which cases say so.
#[track_caller]
fn convicts(ran: Ran, broken: &[&str]) {
    let report = ran.exits(5).json();
    assert_eq!(report["held"], false);
    assert_eq!(with(&report, "broken"), names(broken), "{report:#}");
}

#[tokio::test]
async fn a_server_that_keeps_its_contract_holds_in_every_dialect() {
    for speaks in Speaks::ALL {
        let report = proven(speaks, Flaw::None).await.exits(0).json();
        assert_eq!(with(&report, "broken"), names(&[]), "{report:#}");
        let not_promised: &[&str] = match speaks {
            Speaks::Mailonce => &[],
            Speaks::Resend => &["after_refusal", "across", "quoted_key"],
            Speaks::Usesend => &["empty_key", "quoted_key"],
            Speaks::Agentmail => {
                &["after_refusal", "across", "batch_twice", "batch_other", "long_key", "empty_key", "quoted_key"]
            }
        };
        assert_eq!(with(&report, "not promised"), names(not_promised), "{report:#}");
        assert_eq!(verdicts(&report).len(), 14);
    }
}

#[tokio::test]
async fn being_turned_away_for_a_while_is_no_breach() {
    proven(Speaks::Resend, Flaw::Limits).await.exits(0);
}

#[tokio::test]
async fn a_server_that_forgets_keys_is_convicted_in_every_dialect() {
    let always = ["twice", "race", "other_body", "cut_answer", "cut_body", "cut_head"];
    for speaks in Speaks::ALL {
        let more: &[&str] = match speaks {
            Speaks::Mailonce => &["after_refusal", "batch_twice", "batch_other", "across", "long_key", "quoted_key"],
            Speaks::Resend => &["batch_twice", "batch_other", "long_key"],
            Speaks::Usesend => &["after_refusal", "batch_twice", "batch_other", "across", "long_key"],
            Speaks::Agentmail => &[],
        };
        convicts(proven(speaks, Flaw::Forgets).await, &[&always, more].concat());
    }
}

#[tokio::test]
async fn a_key_that_a_refusal_binds_is_a_breach_where_it_is_promised_not_to() {
    convicts(proven(Speaks::Mailonce, Flaw::BindsRefusals).await, &["after_refusal"]);
    convicts(proven(Speaks::Usesend, Flaw::BindsRefusals).await, &["after_refusal"]);
    let report = proven(Speaks::Resend, Flaw::BindsRefusals).await.exits(0).json();
    assert_eq!(verdicts(&report)["after_refusal"], "not promised");
}

#[tokio::test]
async fn two_mails_in_a_race_are_counted_even_when_all_answers_agree() {
    convicts(proven(Speaks::Resend, Flaw::SendsTwiceInARace).await, &["race", "cut_answer"]);
}

#[tokio::test]
async fn two_ids_in_a_race_are_seen() {
    convicts(proven(Speaks::Usesend, Flaw::TwoIdsInARace).await, &["race", "cut_answer"]);
}

#[tokio::test]
async fn another_body_that_is_answered_like_the_first_is_a_breach() {
    for speaks in Speaks::ALL {
        let more: &[&str] = match speaks {
            Speaks::Mailonce | Speaks::Usesend => &["batch_other", "across"],
            Speaks::Resend => &["batch_other"],
            Speaks::Agentmail => &[],
        };
        convicts(proven(speaks, Flaw::AnswersTheSecondBody).await, &[&["other_body"], more].concat());
    }
}

#[tokio::test]
async fn what_is_done_wrong_when_a_caller_hangs_up_is_seen() {
    convicts(proven(Speaks::Mailonce, Flaw::RemembersAfterTheAnswer).await, &["cut_answer"]);
    // Callers of a race meet between head and body as well.
    let report = proven(Speaks::Mailonce, Flaw::BindsTheHead).await.exits(5).json();
    assert!(with(&report, "broken").is_superset(&names(&["cut_head", "cut_body"])), "{report:#}");
    assert!(with(&report, "held").is_superset(&names(&["twice", "other_body", "batch_twice"])), "{report:#}");
}

#[tokio::test]
async fn batches_have_their_own_ways_to_break() {
    convicts(proven(Speaks::Mailonce, Flaw::ForgetsBatches).await, &["batch_twice", "batch_other", "across"]);
    convicts(proven(Speaks::Resend, Flaw::TurnsBatches).await, &["batch_twice"]);
    convicts(proven(Speaks::Usesend, Flaw::KeysByRoute).await, &["across"]);
}

#[tokio::test]
async fn keys_have_their_own_ways_to_break() {
    convicts(proven(Speaks::Mailonce, Flaw::AnyKey).await, &["long_key", "empty_key"]);
    convicts(proven(Speaks::Resend, Flaw::AnyKey).await, &["long_key", "empty_key"]);
    convicts(proven(Speaks::Mailonce, Flaw::KeepsQuotes).await, &["quoted_key"]);
}

#[tokio::test]
async fn a_server_that_always_answers_the_same_is_no_good_server() {
    let ran = proven(Speaks::Resend, Flaw::OneForAll).await;
    convicts(ran, &["two_keys", "batch_twice"]);
}

#[tokio::test]
async fn a_server_that_answers_well_and_sends_nothing_is_convicted() {
    let ran = proven(Speaks::Agentmail, Flaw::SendsNothing).await;
    assert!(ran.err.contains("no mail arrived"), "{}", ran.err);
    convicts(ran, &["twice", "two_keys", "race", "other_body", "cut_head", "cut_body", "cut_answer"]);
}

#[tokio::test]
async fn without_a_sink_the_answers_alone_are_judged() {
    let (desk, fake) = (Desk::new(), Fake::start(Speaks::Resend, Flaw::None, None).await);
    let words = ["prove", "--target", &fake.url(), "--dialect", "resend", "--key", FAKE_KEY, "--from", "a@x.test"];
    let report = desk.run(&words).await.exits(0).json();
    assert_eq!((&report["mails_counted"], &report["cases"][0]["mails"]), (&Value::Bool(false), &Value::Null));
}

#[tokio::test]
async fn a_real_mailonce_holds_everything_to_the_last_mail() {
    let (desk, sink) = (Desk::new(), free_address());
    let relay =
        format!("[[transports]]\nname = \"r\"\nkind = \"smtp\"\nhost = \"127.0.0.1\"\nport = {}\n", sink.port());
    std::fs::write(desk.path().join("mailonce.toml"), relay + "tls = \"none\"\n").unwrap();
    let _server = desk.dev(&[]).await;
    let ran = desk.run(&["prove", "--sink", &sink.to_string(), "--quiet", "2"]).await.exits(0);
    let report = ran.json();
    assert_eq!(with(&report, "held").len(), 14, "{report:#}");
    assert!(ran.err.contains("race:"), "{}", ran.err);
    for case in report["cases"].as_array().unwrap() {
        assert_eq!(case["mails"]["expected"], case["mails"]["arrived"], "{case}");
    }
}

#[tokio::test]
async fn a_server_that_takes_a_call_and_does_not_answer_is_given_up() {
    let (desk, mute) = (Desk::new(), tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap());
    let target = format!("http://{}", mute.local_addr().unwrap());
    let ran = desk.run(&["prove", "--target", &target, "--dialect", "resend", "--key", "k"]).await.exits(2);
    assert!(ran.err.contains("no answer within"), "{}", ran.err);
}

#[tokio::test]
async fn who_cannot_be_reached_or_asked_is_told_by_the_exit_code() {
    let (desk, nobody) = (Desk::new(), free_address());
    let target = format!("http://{nobody}");
    let ran = desk.run(&["prove", "--target", &target, "--key", "k"]).await.exits(2);
    assert!(ran.err.contains("cannot be reached"), "{}", ran.err);
    desk.run(&["prove", "--dialect", "resend"]).await.exits(64);
    desk.run(&["prove"]).await.exits(64);
    desk.run(&["prove", "--dialect", "pigeon"]).await.exits(64);
    desk.run(&["prove", "--target", "ftp://x.test", "--key", "k"]).await.exits(64);
    let url = Fake::start(Speaks::Resend, Flaw::None, None).await.url();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sink = taken.local_addr().unwrap().to_string();
    let ran =
        desk.run(&["prove", "--target", &url, "--dialect", "resend", "--key", "k", "--sink", &sink]).await.exits(64);
    assert!(ran.err.contains("the sink cannot listen"), "{}", ran.err);
    let ran = desk.run(&["prove", "--target", &url, "--dialect", "resend", "--key", "wrong"]).await.exits(64);
    assert!(ran.err.contains("refuses the API key"), "{}", ran.err);
    let ran = desk.run(&["prove", "--target", &url, "--dialect", "usesend", "--key", FAKE_KEY]).await.exits(64);
    assert!(ran.err.contains("are --dialect and --from right?"), "{}", ran.err);
}
