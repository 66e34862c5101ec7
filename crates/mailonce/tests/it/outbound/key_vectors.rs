//! The shared key derivation vectors of the SDKs, checked in the core, the command line and the server.

use mailonce_core::{address::NamedAddress, intent::Intent, outbound::content::sorted_addresses};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::fixtures::{
    api_fixture::{World, mail_with},
    binary::CliFixture,
};

/// One vector: the expected key, or the field for which it is refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyVector {
    name: String,
    intent: Value,
    to: Vec<String>,
    key: Option<String>,
    invalid: Option<String>,
}

fn load_vectors() -> Vec<KeyVector> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdks/contract/keys.json");
    let vectors: Vec<KeyVector> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for vector in &vectors {
        assert!(
            vector.key.is_some() != vector.invalid.is_some(),
            "{}: either `key` or `invalid` must be set",
            vector.name
        );
    }
    let names: std::collections::BTreeSet<&str> = vectors.iter().map(|vector| vector.name.as_str()).collect();
    assert_eq!(names.len(), vectors.len(), "names are unique");
    vectors
}

/// The key that the core derives, or nothing when it refuses the vector.
fn derive_key(vector: &KeyVector) -> Option<String> {
    let intent: Intent = serde_json::from_value(vector.intent.clone()).ok()?;
    intent.validate().ok()?;
    let to: Vec<NamedAddress> = vector.to.iter().map(|text| NamedAddress::parse(text).ok()).collect::<Option<_>>()?;
    if to.is_empty() { None } else { Some(intent.derive_key(&sorted_addresses(&to))) }
}

#[test]
fn the_core_derives_the_expected_keys() {
    let vectors = load_vectors();
    assert!(vectors.iter().filter(|vector| vector.key.is_some()).count() >= 12);
    for vector in vectors {
        assert_eq!(derive_key(&vector), vector.key, "{}", vector.name);
    }
}

#[tokio::test]
async fn the_command_line_derives_the_expected_keys() {
    let cli = CliFixture::new();
    for vector in load_vectors() {
        // Command-line arguments cannot contain NUL.
        let args = cli_args(&vector);
        if args.iter().any(|arg| arg.contains('\0')) {
            continue;
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = cli.run(&args).await;
        match &vector.key {
            Some(key) => assert_eq!(output.expect_exit(0).json(), json!({ "key": key }), "{}", vector.name),
            None => assert_ne!(output.exit_code, 0, "{}: {output:?}", vector.name),
        }
    }
}

/// A vector as command-line arguments.
fn cli_args(vector: &KeyVector) -> Vec<String> {
    let mut args = vec!["key".to_owned(), "derive".into()];
    for (member, flag) in [("type", "--type"), ("entity", "--entity"), ("version", "--version"), ("period", "--period")]
    {
        match &vector.intent[member] {
            Value::Null => {}
            Value::String(text) => args.push(format!("{flag}={text}")),
            other => args.push(format!("{flag}={other}")),
        }
    }
    args.extend(vector.to.iter().map(|to| format!("--to={to}")));
    args
}

#[tokio::test]
async fn the_server_derives_the_expected_keys() {
    let world = World::memory().await;
    for vector in load_vectors() {
        let body = mail_with(json!({ "to": vector.to, "intent": vector.intent }));
        let answer = world.send_without_key(&body).await;
        match (&vector.key, &vector.invalid) {
            (Some(key), _) => {
                assert!([200, 202].contains(&answer.status), "{}: {}", vector.name, answer.text);
                assert_eq!(answer["dedupe"]["key"], json!(key), "{}", vector.name);
            }
            (None, fault) => {
                assert!([400, 422].contains(&answer.status), "{}: {}", vector.name, answer.text);
                assert_eq!(answer["field"], json!(fault), "{}: {}", vector.name, answer.text);
            }
        }
    }
}

#[test]
fn the_documented_example_is_among_the_vectors() {
    let intent = json!({ "type": "order.confirmation", "entity": "order_4821" });
    let found = load_vectors().into_iter().find(|vector| vector.intent == intent && vector.to == ["user@example.com"]);
    // SHA-256 of {"entity":"order_4821","to":["user@example.com"],"type":"order.confirmation","v":1}
    let key = "i1_dbf0bb6e12a4cbd002012912c5f2e25b34fe56270a35ae2163355cd1ecc68a27";
    assert_eq!(found.unwrap().key.as_deref(), Some(key));
}
