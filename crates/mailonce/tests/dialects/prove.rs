//! `mailonce prove` against mailonce itself, with the promises of each dialect.

use crate::binary::CliFixture;

async fn check_prove_passes(dialect: &str, base: &str) {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let target = format!("{}{base}", server.url);
    let args = ["prove", "--target", &target, "--dialect", dialect, "--key", &server.api_key];
    let more = ["--from", "agent@mailonce.test", "--to", "ada@example.com", "--json"];
    let report = cli.run(&[&args[..], &more[..]].concat()).await.expect_exit(0).json();
    assert_eq!(report["passed"], true, "{report:#}");
    let cases = report["cases"].as_array().unwrap();
    // Every case passes or is not promised by the dialect.
    let broken: Vec<_> =
        cases.iter().filter(|case| case["verdict"] != "passed" && case["verdict"] != "not promised").collect();
    assert!(cases.len() >= 14 && broken.is_empty(), "{report:#}");
}

#[tokio::test]
async fn prove_passes_for_the_resend_dialect() {
    check_prove_passes("resend", "/compat/resend").await;
}

#[tokio::test]
async fn prove_passes_for_the_usesend_dialect() {
    check_prove_passes("usesend", "/compat/usesend").await;
}
