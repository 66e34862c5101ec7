//! Plays sdks/contract: the same scenarios as every other SDK.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed, and says why")]
#![expect(clippy::panic, reason = "a helper that finds what it must not find fails its test")]

mod behaviour;
mod kit;
mod play;
mod tls;

use bytes::Bytes;
use hyper::Method;
use mailonce_sdk::{
    Client, Error, Intent, Mail, Once, Verifier, derive_key,
    http::{Request, ServerUrl},
    step_key,
};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime},
};

use play::{error_shown, lacks, make};

/// A file of the contract.
fn read(name: &str) -> Value {
    let path = format!("{}/../contract/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The scripted server. It ends with its input.
struct Server {
    child: Child,
    server_url: ServerUrl,
}

impl Server {
    fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../contract/server.py");
        let mut child = Command::new("python3")
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 plays the server of the contract");
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let server_url = ServerUrl::new(url.trim(), &[], "contract").unwrap();
        Self { child, server_url }
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = Request { method, path: path.to_owned(), headers: Vec::new(), body };
        serde_json::from_slice(&self.server_url.call(&request).await.unwrap().body).unwrap()
    }

    /// Begins a scenario: a client for it, and where to see what came.
    async fn play(&self, server: &Value, answers: &Value, client: &Value) -> (Client, String) {
        let play = self.ask(Method::POST, "/play", &json!({ "server": server, "answers": answers })).await;
        let seen = play["seen"].as_str().unwrap().trim_start_matches(self.server_url.url()).to_owned();
        let mo = Client::builder()
            .base_url(play["base"].as_str().unwrap())
            .api_key("contract-key")
            .backoff(Duration::from_millis(1))
            .max_retries(client["max_retries"].as_u64().unwrap_or(4) as u32)
            .timeout(Duration::from_millis(client["timeout_ms"].as_u64().unwrap_or(5000)));
        (mo.build().unwrap(), seen)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

/// Plays one scenario; what is wrong with it, if something is.
async fn fault(server: &Server, answers: &Value, scenario: &Value) -> Option<String> {
    let (mo, path) = server.play(&scenario["server"], answers, &scenario["client"]).await;
    let made = make(&mo, scenario["call"].as_str().unwrap(), &scenario["args"]).await;
    let seen = server.ask(Method::GET, &path, &Value::Null).await;
    match (&made, scenario.get("error")) {
        (Err(error), None) => return Some(format!("{error:?}")),
        (Ok(result), Some(_)) => return Some(format!("it went well: {result}")),
        _ => {}
    }
    if seen != json!({ "faults": [], "left": 0 }) {
        return Some(seen.to_string());
    }
    match made {
        Ok(result) => lacks(&scenario["result"], &result, "result"),
        Err(error) => lacks(&scenario["error"], &error_shown(&error), "error"),
    }
}

async fn play_all(file: &str) {
    let (server, contract) = (Server::start(), read(file));
    let mut faults = Vec::new();
    for scenario in contract["scenarios"].as_array().unwrap() {
        if let Some(fault) = fault(&server, &contract["answers"], scenario).await {
            faults.push(format!("{}: {fault}", scenario["name"]));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn every_method_sends_and_reads_what_the_contract_says() {
    play_all("calls").await;
}

#[tokio::test]
async fn what_is_repeated_is_the_same_and_what_must_not_be_is_not() {
    play_all("retries").await;
}

#[tokio::test]
async fn a_stream_goes_on_where_it_was_cut() {
    play_all("streams").await;
}

#[test]
fn keys_are_derived_to_the_byte() {
    for vector in read("keys").as_array().unwrap() {
        let name = &vector["name"];
        let to: Vec<String> = serde_json::from_value(vector["to"].clone()).unwrap();
        // What no intent of this SDK can say is refused where it is read: other types, and members that are missing.
        let Ok(intent) = serde_json::from_value::<Intent>(vector["intent"].clone()) else {
            assert!(vector["invalid"].as_str().unwrap().starts_with("intent."), "{name}");
            continue;
        };
        match (derive_key(&intent, to), &vector["key"]) {
            (Ok(key), wanted) => assert_eq!(key, *wanted, "{name}"),
            (Err(error), Value::Null) => {
                assert_eq!(
                    (error.code.as_str(), error.field.as_deref()),
                    ("invalid_field", vector["invalid"].as_str()),
                    "{name}"
                );
            }
            (Err(error), _) => panic!("{name}: {error}"),
        }
    }
}

#[test]
fn steps_have_the_same_keys_in_every_sdk() {
    for vector in read("steps").as_array().unwrap() {
        let text = |name: &str| vector[name].as_str().unwrap();
        assert_eq!(step_key(text("parent"), text("step")), text("key"), "{}", text("name"));
    }
}

#[test]
fn webhooks_are_believed_only_when_they_are_signed() {
    for vector in read("webhooks").as_array().unwrap() {
        let name = &vector["name"];
        let secrets: Vec<String> = serde_json::from_value(vector["secret"].clone()).unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(vector["now"].as_u64().unwrap());
        let headers =
            vector["headers"].as_object().unwrap().iter().map(|(name, value)| (name, value.as_str().unwrap()));
        let body = vector["body"].as_str().unwrap().as_bytes();
        match Verifier::new(secrets).and_then(|verifier| verifier.verify_at(body, headers, now)) {
            Ok(event) => {
                assert_eq!(lacks(&vector["event"], &serde_json::to_value(event).unwrap(), "event"), None, "{name}")
            }
            Err(error) => assert_eq!(error.code, vector["error"].as_str().unwrap_or("none"), "{name}: {error}"),
        }
    }
}

#[tokio::test]
async fn a_call_can_be_ended_from_outside() {
    let server = Server::start();
    let (mo, _) = server.play(&json!([{ "fault": "hang" }]), &Value::Null, &Value::Null).await;
    let call = mo.emails.send(Mail::new("a@x", "b@x").text("t"), Once::key("k")).into_future();
    let ended = tokio::time::timeout(Duration::from_millis(50), call).await;
    assert!(ended.is_err(), "the call went on");
}

#[tokio::test]
async fn a_call_made_by_hand_is_named_like_the_others() {
    let server = Server::start();
    let steps = json!([
        { "request": { "method": "POST", "path": "/v1/rules", "headers": { "idempotency-key": { "like": "sdk_.+" } }, "body": { "name": "r" } }, "fault": "close" },
        { "again": true, "answer": { "status": 201, "body": { "id": "r-1" } } },
        { "request": { "method": "POST", "path": "/v1/emails", "headers": { "idempotency-key": null }, "body": { "to": "b@x" } }, "fault": "close" },
    ]);
    let (mo, seen) = server.play(&steps, &Value::Null, &Value::Null).await;
    let made = mo.request(Method::POST, "/v1/rules", Some(&json!({ "name": "r" }))).await.unwrap();
    assert_eq!(made["id"], "r-1");
    let missing_key: Result<Value, Error> = mo.request(Method::POST, "/v1/emails", Some(&json!({ "to": "b@x" }))).await;
    let unanswered = missing_key.unwrap_err();
    assert_eq!(unanswered.code, "no_answer");
    let url = unanswered.url.as_deref().unwrap_or_default();
    assert!(url.ends_with("/v1/emails") && unanswered.to_string().contains(url), "{unanswered}");
    assert_eq!(server.ask(Method::GET, &seen, &Value::Null).await, json!({ "faults": [], "left": 0 }));
}

#[tokio::test]
async fn a_connection_is_used_again_and_a_closed_one_costs_no_try() {
    let server = Server::start();
    let answer = json!({ "answer": { "status": 200, "body": { "data": [] } } });
    let closing = json!({ "answer": { "status": 200, "headers": { "Connection": "close" }, "body": { "data": [] } } });
    let (mo, seen) =
        server.play(&json!([answer, closing, answer, answer]), &Value::Null, &json!({ "max_retries": 0 })).await;
    for _ in 0..4 {
        mo.emails.list(&mailonce_sdk::EmailQuery::default()).await.unwrap();
    }
    assert_eq!(server.ask(Method::GET, &seen, &Value::Null).await, json!({ "faults": [], "left": 0 }));
}

#[test]
fn a_client_says_what_it_lacks() {
    let error = Client::new("ftp://mail.example.com", "key").unwrap_err();
    assert_eq!((error.code.as_str(), error.field.as_deref()), ("invalid_field", Some("base_url")));
    let error = Client::builder()
        .base_url("https://mail.example.com")
        .authorities("-----BEGIN CERTIFICATE-----\n?")
        .api_key("k");
    assert_eq!(error.build().unwrap_err().field.as_deref(), Some("authorities"));
}
