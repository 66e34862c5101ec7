//! `mailonce prove`: it holds where a contract is kept, and convicts where it is broken.

use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::atomic::{AtomicU16, Ordering},
};

use crate::{
    binary::{CliFixture, CommandOutput},
    prove_fake::{ContractFlaw, FAKE_API_KEY, FakeDialect, FakeDialectServer},
};

/// An address where nobody listens yet, for a sink that two processes must know beforehand. Below the ports of clients,
/// one of which could have it by then; every test is given another.
fn unused_address() -> SocketAddr {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let next = || 10_000 + (std::process::id() as u16).wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % 5_000;
    let free = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, next())).ok()?.local_addr().ok();
    (0..5_000).find_map(free).expect("a port where nobody listens")
}

/// The verdicts by case.
fn verdicts_by_case(report: &Value) -> BTreeMap<String, String> {
    let cases = report["cases"].as_array().unwrap();
    let word = |case: &Value, name: &str| case[name].as_str().unwrap().to_owned();
    cases.iter().map(|case| (word(case, "case"), word(case, "verdict"))).collect()
}

/// The cases with this verdict.
fn cases_with_verdict(report: &Value, verdict: &str) -> BTreeSet<String> {
    verdicts_by_case(report).into_iter().filter(|(_, found)| found == verdict).map(|(case, _)| case).collect()
}

fn case_names(cases: &[&str]) -> BTreeSet<String> {
    cases.iter().map(ToString::to_string).collect()
}

/// Proves a server that speaks and errs like this, with a sink.
async fn prove_fake_server(speaks: FakeDialect, flaw: ContractFlaw) -> CommandOutput {
    let (desk, sink) = (CliFixture::new(), unused_address());
    let fake = FakeDialectServer::start(speaks, flaw, Some(sink)).await;
    let (url, sink) = (fake.url(), sink.to_string());
    let words = ["prove", "--target", &url, "--dialect", speaks.as_str(), "--key", FAKE_API_KEY, "--from", "a@x.test"];
    let more = ["--sink", &sink, "--callers", "20", "--quiet", "1", "--patience", "3"];
    desk.run(&[&words[..], &more[..]].concat()).await
}

/// Proves a broken server and looks which cases say so.
#[track_caller]
fn expect_broken(ran: CommandOutput, broken: &[&str]) {
    let report = ran.expect_exit(5).json();
    assert_eq!(report["held"], false);
    assert_eq!(cases_with_verdict(&report, "broken"), case_names(broken), "{report:#}");
}

#[tokio::test]
async fn a_server_that_keeps_its_contract_holds_in_every_dialect() {
    for speaks in FakeDialect::ALL {
        let report = prove_fake_server(speaks, ContractFlaw::None).await.expect_exit(0).json();
        assert_eq!(cases_with_verdict(&report, "broken"), case_names(&[]), "{report:#}");
        let not_promised: &[&str] = match speaks {
            FakeDialect::Mailonce => &[],
            FakeDialect::Resend => &["after_refusal", "across", "quoted_key"],
            FakeDialect::Usesend => &["empty_key", "quoted_key"],
            FakeDialect::Agentmail => {
                &["after_refusal", "across", "batch_twice", "batch_other", "long_key", "empty_key", "quoted_key"]
            }
        };
        assert_eq!(cases_with_verdict(&report, "not promised"), case_names(not_promised), "{report:#}");
        assert_eq!(verdicts_by_case(&report).len(), 14);
    }
}

#[tokio::test]
async fn rate_limited_requests_are_no_breach() {
    prove_fake_server(FakeDialect::Resend, ContractFlaw::RateLimitsFirstRequests).await.expect_exit(0);
}

#[tokio::test]
async fn a_server_that_forgets_keys_is_convicted_in_every_dialect() {
    let always = ["twice", "race", "other_body", "cut_answer", "cut_body", "cut_head"];
    for speaks in FakeDialect::ALL {
        let more: &[&str] = match speaks {
            FakeDialect::Mailonce => {
                &["after_refusal", "batch_twice", "batch_other", "across", "long_key", "quoted_key"]
            }
            FakeDialect::Resend => &["batch_twice", "batch_other", "long_key"],
            FakeDialect::Usesend => &["after_refusal", "batch_twice", "batch_other", "across", "long_key"],
            FakeDialect::Agentmail => &[],
        };
        expect_broken(prove_fake_server(speaks, ContractFlaw::ForgetsKeys).await, &[&always, more].concat());
    }
}

#[tokio::test]
async fn a_key_that_a_refusal_binds_is_a_breach_where_it_is_promised_not_to() {
    expect_broken(prove_fake_server(FakeDialect::Mailonce, ContractFlaw::RefusalKeepsKey).await, &["after_refusal"]);
    expect_broken(prove_fake_server(FakeDialect::Usesend, ContractFlaw::RefusalKeepsKey).await, &["after_refusal"]);
    let report = prove_fake_server(FakeDialect::Resend, ContractFlaw::RefusalKeepsKey).await.expect_exit(0).json();
    assert_eq!(verdicts_by_case(&report)["after_refusal"], "not promised");
}

#[tokio::test]
async fn two_mails_in_a_race_are_counted_even_when_all_answers_agree() {
    expect_broken(
        prove_fake_server(FakeDialect::Resend, ContractFlaw::SendsTwiceInARace).await,
        &["race", "cut_answer"],
    );
}

#[tokio::test]
async fn two_ids_in_a_race_are_seen() {
    expect_broken(prove_fake_server(FakeDialect::Usesend, ContractFlaw::TwoIdsInARace).await, &["race", "cut_answer"]);
}

#[tokio::test]
async fn another_body_that_is_answered_like_the_first_is_a_breach() {
    for speaks in FakeDialect::ALL {
        let more: &[&str] = match speaks {
            FakeDialect::Mailonce | FakeDialect::Usesend => &["batch_other", "across"],
            FakeDialect::Resend => &["batch_other"],
            FakeDialect::Agentmail => &[],
        };
        expect_broken(
            prove_fake_server(speaks, ContractFlaw::AcceptsDifferentBody).await,
            &[&["other_body"], more].concat(),
        );
    }
}

#[tokio::test]
async fn what_is_done_wrong_when_a_caller_hangs_up_is_seen() {
    expect_broken(prove_fake_server(FakeDialect::Mailonce, ContractFlaw::RecordsAfterResponse).await, &["cut_answer"]);
    // Callers of a race meet between head and body as well.
    let report =
        prove_fake_server(FakeDialect::Mailonce, ContractFlaw::ReservesKeyOnHeaders).await.expect_exit(5).json();
    assert!(cases_with_verdict(&report, "broken").is_superset(&case_names(&["cut_head", "cut_body"])), "{report:#}");
    assert!(
        cases_with_verdict(&report, "held").is_superset(&case_names(&["twice", "other_body", "batch_twice"])),
        "{report:#}"
    );
}

#[tokio::test]
async fn batches_have_their_own_ways_to_break() {
    expect_broken(
        prove_fake_server(FakeDialect::Mailonce, ContractFlaw::ForgetsBatchKeys).await,
        &["batch_twice", "batch_other", "across"],
    );
    expect_broken(prove_fake_server(FakeDialect::Resend, ContractFlaw::ReversesBatchIds).await, &["batch_twice"]);
    expect_broken(prove_fake_server(FakeDialect::Usesend, ContractFlaw::KeysPerRoute).await, &["across"]);
}

#[tokio::test]
async fn keys_have_their_own_ways_to_break() {
    expect_broken(
        prove_fake_server(FakeDialect::Mailonce, ContractFlaw::AcceptsAnyKeyLength).await,
        &["long_key", "empty_key"],
    );
    expect_broken(
        prove_fake_server(FakeDialect::Resend, ContractFlaw::AcceptsAnyKeyLength).await,
        &["long_key", "empty_key"],
    );
    expect_broken(prove_fake_server(FakeDialect::Mailonce, ContractFlaw::KeepsKeyQuotes).await, &["quoted_key"]);
}

#[tokio::test]
async fn a_server_that_always_answers_the_same_is_no_good_server() {
    let ran = prove_fake_server(FakeDialect::Resend, ContractFlaw::SameIdForEverything).await;
    expect_broken(ran, &["two_keys", "batch_twice"]);
}

#[tokio::test]
async fn a_server_that_answers_well_and_sends_nothing_is_convicted() {
    let ran = prove_fake_server(FakeDialect::Agentmail, ContractFlaw::SendsNothing).await;
    assert!(ran.stderr.contains("no mail arrived"), "{}", ran.stderr);
    expect_broken(ran, &["twice", "two_keys", "race", "other_body", "cut_head", "cut_body", "cut_answer"]);
}

#[tokio::test]
async fn without_a_sink_the_answers_alone_are_judged() {
    let (desk, fake) =
        (CliFixture::new(), FakeDialectServer::start(FakeDialect::Resend, ContractFlaw::None, None).await);
    let words = ["prove", "--target", &fake.url(), "--dialect", "resend", "--key", FAKE_API_KEY, "--from", "a@x.test"];
    let report = desk.run(&words).await.expect_exit(0).json();
    assert_eq!((&report["mails_counted"], &report["cases"][0]["mails"]), (&Value::Bool(false), &Value::Null));
}

#[tokio::test]
async fn a_real_mailonce_holds_everything_to_the_last_mail() {
    let (desk, sink) = (CliFixture::new(), unused_address());
    let relay =
        format!("[[transports]]\nname = \"r\"\nkind = \"smtp\"\nhost = \"127.0.0.1\"\nport = {}\n", sink.port());
    std::fs::write(desk.path().join("mailonce.toml"), relay + "tls = \"none\"\n").unwrap();
    let _server = desk.start_dev(&[]).await;
    let ran = desk.run(&["prove", "--sink", &sink.to_string(), "--quiet", "2"]).await.expect_exit(0);
    let report = ran.json();
    assert_eq!(cases_with_verdict(&report, "held").len(), 14, "{report:#}");
    assert!(ran.stderr.contains("race:"), "{}", ran.stderr);
    for case in report["cases"].as_array().unwrap() {
        assert_eq!(case["mails"]["expected"], case["mails"]["arrived"], "{case}");
    }
}

#[tokio::test]
async fn a_server_that_takes_a_call_and_does_not_answer_is_given_up() {
    let (desk, mute) = (CliFixture::new(), tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap());
    let target = format!("http://{}", mute.local_addr().unwrap());
    let ran = desk.run(&["prove", "--target", &target, "--dialect", "resend", "--key", "k"]).await.expect_exit(2);
    assert!(ran.stderr.contains("no answer within"), "{}", ran.stderr);
}

#[tokio::test]
async fn who_cannot_be_reached_or_asked_is_told_by_the_exit_code() {
    let (desk, nobody) = (CliFixture::new(), unused_address());
    let target = format!("http://{nobody}");
    let ran = desk.run(&["prove", "--target", &target, "--key", "k"]).await.expect_exit(2);
    assert!(ran.stderr.contains("cannot be reached"), "{}", ran.stderr);
    desk.run(&["prove", "--dialect", "resend"]).await.expect_exit(64);
    desk.run(&["prove"]).await.expect_exit(64);
    desk.run(&["prove", "--dialect", "pigeon"]).await.expect_exit(64);
    desk.run(&["prove", "--target", "ftp://x.test", "--key", "k"]).await.expect_exit(64);
    let url = FakeDialectServer::start(FakeDialect::Resend, ContractFlaw::None, None).await.url();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sink = taken.local_addr().unwrap().to_string();
    let ran = desk
        .run(&["prove", "--target", &url, "--dialect", "resend", "--key", "k", "--sink", &sink])
        .await
        .expect_exit(64);
    assert!(ran.stderr.contains("the sink cannot listen"), "{}", ran.stderr);
    let ran = desk.run(&["prove", "--target", &url, "--dialect", "resend", "--key", "wrong"]).await.expect_exit(64);
    assert!(ran.stderr.contains("refuses the API key"), "{}", ran.stderr);
    let ran =
        desk.run(&["prove", "--target", &url, "--dialect", "usesend", "--key", FAKE_API_KEY]).await.expect_exit(64);
    assert!(ran.stderr.contains("are --dialect and --from right?"), "{}", ran.stderr);
}
