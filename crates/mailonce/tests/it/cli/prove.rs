//! `mailonce prove`: it passes servers that keep their contract and fails servers that break it.

use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::atomic::{AtomicU16, Ordering},
};

use crate::fixtures::{
    binary::{CliFixture, CommandOutput},
    fake_dialect_servers::{ContractFlaw, FAKE_API_KEY, FakeDialect, FakeDialectServer},
};

/// An unused address for a sink that two processes must know beforehand. Its port is below the ephemeral range, so no
/// client can take it meanwhile. Every test gets another port.
fn unused_address() -> SocketAddr {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let next = || 10_000 + (std::process::id() as u16).wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % 5_000;
    let free = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, next())).ok()?.local_addr().ok();
    (0..5_000).find_map(free).expect("an unused port")
}

/// The verdicts by case.
fn verdicts_by_case(report: &Value) -> BTreeMap<String, String> {
    let cases = report["cases"].as_array().unwrap();
    let text_field = |case: &Value, name: &str| case[name].as_str().unwrap().to_owned();
    cases.iter().map(|case| (text_field(case, "case"), text_field(case, "verdict"))).collect()
}

/// The cases with this verdict.
fn cases_with_verdict(report: &Value, verdict: &str) -> BTreeSet<String> {
    verdicts_by_case(report).into_iter().filter(|(_, found)| found == verdict).map(|(case, _)| case).collect()
}

fn case_names(cases: &[&str]) -> BTreeSet<String> {
    cases.iter().map(ToString::to_string).collect()
}

/// Runs `prove` with a sink against a fake server of this dialect with this flaw.
async fn prove_fake_server(dialect: FakeDialect, flaw: ContractFlaw) -> CommandOutput {
    let (cli, sink) = (CliFixture::new(), unused_address());
    let fake = FakeDialectServer::start(dialect, flaw, Some(sink)).await;
    let (url, sink) = (fake.url(), sink.to_string());
    let args = ["prove", "--target", &url, "--dialect", dialect.as_str(), "--key", FAKE_API_KEY, "--from", "a@x.test"];
    let more = ["--sink", &sink, "--callers", "20", "--settle", "1", "--timeout", "3"];
    cli.run(&[&args[..], &more[..]].concat()).await
}

/// Checks that exactly these cases failed.
#[track_caller]
fn expect_broken(output: CommandOutput, broken: &[&str]) {
    let report = output.expect_exit(5).json();
    assert_eq!(report["passed"], false);
    assert_eq!(cases_with_verdict(&report, "failed"), case_names(broken), "{report:#}");
}

#[tokio::test]
async fn a_server_that_keeps_its_contract_passes_in_every_dialect() {
    for dialect in FakeDialect::ALL {
        let report = prove_fake_server(dialect, ContractFlaw::None).await.expect_exit(0).json();
        assert_eq!(cases_with_verdict(&report, "failed"), case_names(&[]), "{report:#}");
        let not_promised: &[&str] = match dialect {
            FakeDialect::Mailonce => &[],
            FakeDialect::Resend => &["after_refusal", "across", "quoted_key"],
            FakeDialect::UseSend => &["empty_key", "quoted_key"],
            FakeDialect::Agentmail => {
                &["after_refusal", "across", "batch_twice", "batch_other", "long_key", "empty_key", "quoted_key"]
            }
        };
        assert_eq!(cases_with_verdict(&report, "not promised"), case_names(not_promised), "{report:#}");
        assert_eq!(verdicts_by_case(&report).len(), 14);
    }
}

#[tokio::test]
async fn rate_limited_requests_do_not_fail() {
    prove_fake_server(FakeDialect::Resend, ContractFlaw::RateLimitsFirstRequests).await.expect_exit(0);
}

#[tokio::test]
async fn a_server_that_forgets_keys_fails_in_every_dialect() {
    let always = ["twice", "race", "other_body", "cut_answer", "cut_body", "cut_head"];
    for dialect in FakeDialect::ALL {
        let more: &[&str] = match dialect {
            FakeDialect::Mailonce => {
                &["after_refusal", "batch_twice", "batch_other", "across", "long_key", "quoted_key"]
            }
            FakeDialect::Resend => &["batch_twice", "batch_other", "long_key"],
            FakeDialect::UseSend => &["after_refusal", "batch_twice", "batch_other", "across", "long_key"],
            FakeDialect::Agentmail => &[],
        };
        expect_broken(prove_fake_server(dialect, ContractFlaw::ForgetsKeys).await, &[&always, more].concat());
    }
}

#[tokio::test]
async fn a_key_bound_by_a_refusal_fails_only_where_the_dialect_promises_otherwise() {
    expect_broken(prove_fake_server(FakeDialect::Mailonce, ContractFlaw::RefusalKeepsKey).await, &["after_refusal"]);
    expect_broken(prove_fake_server(FakeDialect::UseSend, ContractFlaw::RefusalKeepsKey).await, &["after_refusal"]);
    let report = prove_fake_server(FakeDialect::Resend, ContractFlaw::RefusalKeepsKey).await.expect_exit(0).json();
    assert_eq!(verdicts_by_case(&report)["after_refusal"], "not promised");
}

#[tokio::test]
async fn two_mails_in_a_race_fail_even_when_all_responses_agree() {
    expect_broken(
        prove_fake_server(FakeDialect::Resend, ContractFlaw::SendsTwiceInARace).await,
        &["race", "cut_answer"],
    );
}

#[tokio::test]
async fn two_ids_in_a_race_fail() {
    expect_broken(prove_fake_server(FakeDialect::UseSend, ContractFlaw::TwoIdsInARace).await, &["race", "cut_answer"]);
}

#[tokio::test]
async fn accepting_a_different_body_under_a_key_fails() {
    for dialect in FakeDialect::ALL {
        let more: &[&str] = match dialect {
            FakeDialect::Mailonce | FakeDialect::UseSend => &["batch_other", "across"],
            FakeDialect::Resend => &["batch_other"],
            FakeDialect::Agentmail => &[],
        };
        expect_broken(
            prove_fake_server(dialect, ContractFlaw::AcceptsDifferentBody).await,
            &[&["other_body"], more].concat(),
        );
    }
}

#[tokio::test]
async fn mistakes_after_a_client_disconnects_fail() {
    expect_broken(prove_fake_server(FakeDialect::Mailonce, ContractFlaw::RecordsAfterResponse).await, &["cut_answer"]);
    // Concurrent callers of the race case also meet between headers and body, so that case may fail too.
    let report =
        prove_fake_server(FakeDialect::Mailonce, ContractFlaw::ReservesKeyOnHeaders).await.expect_exit(5).json();
    assert!(cases_with_verdict(&report, "failed").is_superset(&case_names(&["cut_head", "cut_body"])), "{report:#}");
    assert!(
        cases_with_verdict(&report, "passed").is_superset(&case_names(&["twice", "other_body", "batch_twice"])),
        "{report:#}"
    );
}

#[tokio::test]
async fn mistakes_in_batches_fail() {
    expect_broken(
        prove_fake_server(FakeDialect::Mailonce, ContractFlaw::ForgetsBatchKeys).await,
        &["batch_twice", "batch_other", "across"],
    );
    expect_broken(prove_fake_server(FakeDialect::Resend, ContractFlaw::ReversesBatchIds).await, &["batch_twice"]);
    expect_broken(prove_fake_server(FakeDialect::UseSend, ContractFlaw::KeysPerRoute).await, &["across"]);
}

#[tokio::test]
async fn mistakes_in_key_validation_fail() {
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
async fn a_server_that_always_returns_the_same_id_fails() {
    let output = prove_fake_server(FakeDialect::Resend, ContractFlaw::SameIdForEverything).await;
    expect_broken(output, &["two_keys", "batch_twice"]);
}

#[tokio::test]
async fn a_server_that_responds_well_and_sends_nothing_fails() {
    let output = prove_fake_server(FakeDialect::Agentmail, ContractFlaw::SendsNothing).await;
    assert!(output.stderr.contains("no email reached the sink"), "{}", output.stderr);
    expect_broken(output, &["twice", "two_keys", "race", "other_body", "cut_head", "cut_body", "cut_answer"]);
}

#[tokio::test]
async fn without_a_sink_only_the_responses_are_judged() {
    let (cli, fake) =
        (CliFixture::new(), FakeDialectServer::start(FakeDialect::Resend, ContractFlaw::None, None).await);
    let args = ["prove", "--target", &fake.url(), "--dialect", "resend", "--key", FAKE_API_KEY, "--from", "a@x.test"];
    let report = cli.run(&args).await.expect_exit(0).json();
    assert_eq!((&report["mails_counted"], &report["cases"][0]["mails"]), (&Value::Bool(false), &Value::Null));
}

#[tokio::test]
async fn a_real_mailonce_passes_every_case_with_exact_mail_counts() {
    let (cli, sink) = (CliFixture::new(), unused_address());
    let relay =
        format!("[[transports]]\nname = \"r\"\nkind = \"smtp\"\nhost = \"127.0.0.1\"\nport = {}\n", sink.port());
    std::fs::write(cli.path().join("mailonce.toml"), relay + "tls = \"none\"\n").unwrap();
    let _server = cli.start_dev(&[]).await;
    let output = cli.run(&["prove", "--sink", &sink.to_string(), "--settle", "2"]).await.expect_exit(0);
    let report = output.json();
    assert_eq!(cases_with_verdict(&report, "passed").len(), 14, "{report:#}");
    assert!(output.stderr.contains("race:"), "{}", output.stderr);
    for case in report["cases"].as_array().unwrap() {
        assert_eq!(case["mails"]["expected"], case["mails"]["arrived"], "{case}");
    }
}

#[tokio::test]
async fn a_server_that_never_responds_times_out() {
    let (cli, silent_listener) = (CliFixture::new(), tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap());
    let target = format!("http://{}", silent_listener.local_addr().unwrap());
    let output = cli.run(&["prove", "--target", &target, "--dialect", "resend", "--key", "k"]).await.expect_exit(2);
    assert!(output.stderr.contains("timeout after"), "{}", output.stderr);
}

#[tokio::test]
async fn an_unreachable_or_unusable_target_sets_the_exit_code() {
    let (cli, unused) = (CliFixture::new(), unused_address());
    let target = format!("http://{unused}");
    let output = cli.run(&["prove", "--target", &target, "--key", "k"]).await.expect_exit(2);
    assert!(output.stderr.contains("cannot be reached"), "{}", output.stderr);
    cli.run(&["prove", "--dialect", "resend"]).await.expect_exit(64);
    cli.run(&["prove"]).await.expect_exit(64);
    cli.run(&["prove", "--dialect", "pigeon"]).await.expect_exit(64);
    cli.run(&["prove", "--target", "ftp://x.test", "--key", "k"]).await.expect_exit(64);
    let url = FakeDialectServer::start(FakeDialect::Resend, ContractFlaw::None, None).await.url();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sink = taken.local_addr().unwrap().to_string();
    let output = cli
        .run(&["prove", "--target", &url, "--dialect", "resend", "--key", "k", "--sink", &sink])
        .await
        .expect_exit(64);
    assert!(output.stderr.contains("the sink cannot listen"), "{}", output.stderr);
    let output = cli.run(&["prove", "--target", &url, "--dialect", "resend", "--key", "wrong"]).await.expect_exit(64);
    assert!(output.stderr.contains("rejects the API key"), "{}", output.stderr);
    let output =
        cli.run(&["prove", "--target", &url, "--dialect", "usesend", "--key", FAKE_API_KEY]).await.expect_exit(64);
    assert!(output.stderr.contains("check --dialect and --from"), "{}", output.stderr);
}
