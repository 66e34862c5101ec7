//! The official clients sign in with OAuth against the real binary.

use serde_json::{Value, json};
use std::{path::Path, process::Command};

use crate::{
    clients::{install_npm_clients, node_command, python_command, run_with_json},
    fixtures::McpFixture,
};

/// A sign-in link of a new person.
async fn create_sign_in_link(fixture: &McpFixture, name: &str) -> String {
    let (status, person) = fixture.api_call("POST", "/v1/people", &json!({ "name": name, "role": "admin" })).await;
    assert_eq!(status, 201, "{person}");
    let path = format!("/v1/people/{}/sign-in-links", person["id"].as_str().unwrap());
    let (status, link) = fixture.api_call("POST", &path, &json!({})).await;
    assert_eq!(status, 201, "{link}");
    link["url"].as_str().unwrap().to_owned()
}

/// Runs a program that connects clients, and checks that each recipient got one mail.
async fn check_clients(command: Command, tags: &[&str], recipients: &[&str]) {
    let fixture = McpFixture::start().await;
    let sign_in = create_sign_in_link(&fixture, "Ada").await;
    let input = json!({ "url": format!("{}/mcp", fixture.server.url), "signIn": sign_in });
    assert_eq!(run_with_json(command, input).await, tags);
    for recipient in recipients {
        assert_eq!(fixture.wait_for_mail_count(recipient, 1).await, 1, "{recipient}");
    }
    let (_, connections) = fixture.api_call("GET", "/v1/connections", &Value::Null).await;
    let rows = connections["data"].as_array().unwrap();
    assert!(!rows.is_empty() && rows.iter().all(|row| row["client"]["name"] == "Test client"), "{connections}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_npm_clients_connect_with_oauth() {
    let command = node_command(Path::new("node"), include_str!("clients/oauth.mjs"), &install_npm_clients());
    check_clients(command, &["v1", "v2"], &["ann-v1@people.test", "ann-v2@people.test"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_pypi_client_connects_with_oauth() {
    let command = python_command(include_str!("clients/oauth.py"));
    let recipients = ["ann-py-2026-07-28@people.test", "ann-py-legacy@people.test"];
    check_clients(command, &["2026-07-28", "legacy"], &recipients).await;
}
