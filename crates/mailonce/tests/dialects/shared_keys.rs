//! One key space: the same key through any API or dialect is one email.

use crate::{
    binary::CliFixture,
    sdks::{node_script, run_script},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_through_both_sdks_and_the_api_is_one_email() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let report = run_script(node_script("shared_keys.cjs"), &server, "").await;
    let auth = format!("Bearer {}", server.api_key);
    let (status, page) = server.call("GET", "/v1/emails?limit=100", &[("authorization", &auth)], "").await;
    assert_eq!(status, 200);
    assert_eq!(page["data"].as_array().unwrap().len() as u64, report["emails"].as_u64().unwrap());
}
