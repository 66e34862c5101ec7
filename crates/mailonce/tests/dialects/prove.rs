//! `mailonce prove`, told to expect what each dialect promises, asks mailonce itself.

use crate::binary::CliFixture;

async fn check_prove_passes(dialect: &str, base: &str) {
    let desk = CliFixture::new();
    let server = desk.start_dev(&[]).await;
    let target = format!("{}{base}", server.url);
    let words = ["prove", "--target", &target, "--dialect", dialect, "--key", &server.api_key];
    let more = ["--from", "agent@mailonce.test", "--to", "ada@example.com", "--json"];
    let report = desk.run(&[&words[..], &more[..]].concat()).await.expect_exit(0).json();
    assert_eq!(report["held"], true, "{report:#}");
    let cases = report["cases"].as_array().unwrap();
    // What is not promised holds all the same.
    let broken: Vec<_> =
        cases.iter().filter(|case| case["verdict"] != "held" && case["verdict"] != "not promised").collect();
    assert!(cases.len() >= 14 && broken.is_empty(), "{report:#}");
}

#[tokio::test]
async fn everything_that_resend_promises_holds() {
    check_prove_passes("resend", "/compat/resend").await;
}

#[tokio::test]
async fn everything_that_usesend_promises_holds() {
    check_prove_passes("usesend", "/compat/usesend").await;
}
