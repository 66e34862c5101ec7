//! The key vectors that every SDK plays, through the core, the command line and the server.

use mailonce_core::{address::NamedAddress, intent::Intent, outbound::content::sorted_addresses};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    binary::CliFixture,
    world::{World, mail_with},
};

/// One vector: a key, or the field for which it is refused.
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
        assert!(vector.key.is_some() != vector.invalid.is_some(), "{}: a key or a fault", vector.name);
    }
    let names: std::collections::BTreeSet<&str> = vectors.iter().map(|vector| vector.name.as_str()).collect();
    assert_eq!(names.len(), vectors.len(), "names are unique");
    vectors
}

/// What the core says to a vector.
fn derive_key(vector: &KeyVector) -> Option<String> {
    let intent: Intent = serde_json::from_value(vector.intent.clone()).ok()?;
    intent.validate().ok()?;
    let to: Vec<NamedAddress> = vector.to.iter().map(|text| NamedAddress::parse(text).ok()).collect::<Option<_>>()?;
    if to.is_empty() { None } else { Some(intent.derive_key(&sorted_addresses(&to))) }
}

#[test]
fn the_core_derives_the_contracts_keys() {
    let vectors = load_vectors();
    assert!(vectors.iter().filter(|vector| vector.key.is_some()).count() >= 12);
    for vector in vectors {
        assert_eq!(derive_key(&vector), vector.key, "{}", vector.name);
    }
}

#[tokio::test]
async fn the_command_line_derives_the_contracts_keys() {
    let desk = CliFixture::new();
    for vector in load_vectors() {
        // The command line takes no NUL, and its numbers are whole.
        let words = cli_args(&vector);
        if words.iter().any(|word| word.contains('\0')) {
            continue;
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ran = desk.run(&words).await;
        match &vector.key {
            Some(key) => assert_eq!(ran.expect_exit(0).json(), json!({ "key": key }), "{}", vector.name),
            None => assert_ne!(ran.exit_code, 0, "{}: {ran:?}", vector.name),
        }
    }
}

/// A vector as words of the command line.
fn cli_args(vector: &KeyVector) -> Vec<String> {
    let mut words = vec!["key".to_owned(), "derive".into()];
    for (member, flag) in [("type", "--type"), ("entity", "--entity"), ("version", "--version"), ("period", "--period")]
    {
        match &vector.intent[member] {
            Value::Null => {}
            Value::String(text) => words.push(format!("{flag}={text}")),
            other => words.push(format!("{flag}={other}")),
        }
    }
    words.extend(vector.to.iter().map(|to| format!("--to={to}")));
    words
}

#[tokio::test]
async fn the_server_derives_the_contracts_keys() {
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
fn the_example_of_the_contract_is_among_the_vectors() {
    let intent = json!({ "type": "order.confirmation", "entity": "order_4821" });
    let found = load_vectors().into_iter().find(|vector| vector.intent == intent && vector.to == ["user@example.com"]);
    // SHA-256 of {"entity":"order_4821","to":["user@example.com"],"type":"order.confirmation","v":1}
    let key = "i1_dbf0bb6e12a4cbd002012912c5f2e25b34fe56270a35ae2163355cd1ecc68a27";
    assert_eq!(found.unwrap().key.as_deref(), Some(key));
}
