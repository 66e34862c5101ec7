//! A walk through every verb, with a picture of each.

use serde_json::{Value, json};
use std::time::Duration;

use crate::{
    album::{Album, How, file_name, folder},
    binary::{Desk, Ran, Server},
};

const AGENT: &str = "agent@mailonce.test";

/// The verbs that there are, as the binary itself names them.
async fn every_verb() -> Vec<String> {
    let told = Desk::new().run(&["commands"]).await.exits(0).json();
    told["data"].as_array().unwrap().iter().map(|verb| verb["verb"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn no_verb_is_without_a_picture() {
    let verbs = every_verb().await;
    assert!(verbs.len() > 50, "{verbs:?}");
    let missing: Vec<&String> = verbs.iter().filter(|verb| !folder().join(file_name(verb)).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn every_verb_prints_what_it_printed_before() {
    let mut album = Album::new();
    without_a_server(&mut album).await;
    on_the_ledger(&mut album).await;
    locking(&mut album).await;
    let desk = Desk::new();
    let other = desk.run(&["team", "create", "others"]).await.exits(0).json()["api_key"].as_str().unwrap().to_owned();
    let server = desk.dev(&[]).await;
    album.add(&desk, "dev", "dev --http 127.0.0.1:0", &greeting(&server), How::default());
    sending(&mut album, &desk).await;
    receiving(&mut album, &desk).await;
    talking(&mut album, &desk, &other).await;
    telling(&mut album, &desk, &server).await;
    operating(&mut album, &desk).await;
    server.terminate().await;
    album.close();
}

/// What `dev` says, as a picture.
fn greeting(server: &Server) -> Ran {
    Ran { code: 0, out: String::new(), err: server.greeting.clone() }
}

/// Waits until an email is in a state.
async fn until(desk: &Desk, id: &str, state: &str) {
    for _ in 0..400 {
        if desk.run(&["emails", "show", id]).await.exits(0).json()["state"] == state {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{id} does not become {state}");
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

async fn without_a_server(album: &mut Album) {
    let desk = Desk::new();
    let usual = How::default();
    let raw = How { raw: true, lines: Some(8), ..usual };
    let derive =
        ["key", "derive", "--type", "order.confirmation", "--entity", "order_4821", "--to", "User@Example.com"];
    album.take(&desk, "key derive", &derive, usual).await;
    album.take(&desk, "openapi", &["openapi"], raw).await;
    album.take(&desk, "completions", &["completions", "bash"], raw).await;
    album.take(&desk, "man", &["man", "send"], raw).await;
    album.take(&desk, "commands", &["commands"], usual).await;
    album.take(&desk, "commands", &["commands"], How { env: &[("COLUMNS", "50")], ..usual }).await;
    album.take(&desk, "serve", &["serve", "--http", "127.0.0.1:0"], usual).await;
    album
        .take(&desk, "send", &["send", "--from", "a@x.test", "--to", "b@x.test", "--text", "x", "--key", "k"], usual)
        .await;
    album.take(&desk, "mcp", &["mcp"], How { raw: true, ..usual }).await;
    let home = desk.path().to_str().unwrap().to_owned();
    album.take(&desk, "mcp install", &["mcp", "install"], How { env: &[("HOME", &home)], raw: true, ..usual }).await;
    album
        .take(&desk, "demo storm", &["demo", "storm", "--callers", "8"], How { numbers: true, ..usual })
        .await
        .exits(0);
}

async fn on_the_ledger(album: &mut Album) {
    let desk = Desk::new();
    let usual = How::default();
    album.take(&desk, "doctor", &["doctor", "--offline"], usual).await;
    album.take(&desk, "migrate", &["migrate"], usual).await;
    album.take(&desk, "keys create", &["keys", "create", "--name", "ci {n}", "--scope", "send"], usual).await;
    let keys = album.take(&desk, "keys list", &["keys", "list"], usual).await.json();
    album.take(&desk, "keys revoke", &["keys", "revoke", &text(&keys["data"][0]["id"])], usual).await;
    album.take(&desk, "team create", &["team", "create", "sales"], usual).await;
    album.take(&desk, "team list", &["team", "list"], usual).await;
    album.take(&desk, "doctor", &["doctor", "--offline"], How { env: &[("COLUMNS", "60")], ..usual }).await;
}

/// A ledger that a key encryption key wraps.
async fn locking(album: &mut Album) {
    let desk = Desk::new();
    let (usual, old, new) = (How::default(), "01".repeat(32), "02".repeat(32));
    let env = [("MAILONCE_SECRETS_KEK_ENV", "KEK"), ("KEK", old.as_str()), ("NEW_KEK", new.as_str())];
    let keyed = How { env: &env, ..usual };
    let (status, rotate) = (["secrets", "status"], ["secrets", "rotate-kek", "--new-kek-env", "NEW_KEK"]);
    album.take(&desk, "secrets status", &status, usual).await.exits(0);
    album.take(&desk, "secrets rotate-kek", &rotate, usual).await.exits(5);
    desk.run_with(&["migrate"], &env).await.exits(0);
    album.take(&desk, "secrets status", &status, keyed).await.exits(0);
    album.take(&desk, "secrets rotate-kek", &rotate, keyed).await.exits(0);
    album.take(&desk, "secrets status", &status, keyed).await.exits(5);
}

async fn sending(album: &mut Album, desk: &Desk) {
    let usual = How::default();
    album.take(desk, "pause", &["pause"], usual).await;
    let send =
        ["send", "--from", AGENT, "--to", "ada@example.com", "--subject", "Invoice", "--text", "17", "--key", "i-17"];
    let first = text(&album.take(desk, "send", &send, usual).await.json()["id"]);
    let other =
        ["send", "--from", AGENT, "--to", "ada@example.com", "--subject", "Invoice", "--text", "18", "--key", "i-17"];
    album.take(desk, "send", &other, usual).await;
    let later =
        ["send", "--from", AGENT, "--to", "bob@example.com", "--text", "x", "--key", "later", "--at", "in 2 hours"];
    let later = text(&desk.run(&later).await.exits(4).json()["id"]);
    album.take(desk, "emails move", &["emails", "move", &later, "--at", "in 3 hours"], usual).await;
    album.take(desk, "emails cancel", &["emails", "cancel", &later], usual).await;
    // Counts are written up to a second behind.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    for columns in ["160", "80", "50"] {
        album
            .take(desk, "emails list", &["emails", "list"], How { env: &[("COLUMNS", columns)], ..usual })
            .await
            .exits(0);
    }
    album.take(desk, "emails show", &["emails", "show", &first], usual).await;
    album.take(desk, "key inspect", &["key", "inspect", "i-17"], usual).await;
    album.take(desk, "key extend", &["key", "extend", "i-17", "--ttl", "90d"], usual).await;
    album.take(desk, "key forget", &["key", "forget", "i-17"], usual).await;
    album.take(desk, "resume", &["resume"], usual).await;
    until(desk, &first, "sent").await;
    album.take(desk, "key forget", &["key", "forget", "i-17"], usual).await;
    desk.run(&["pause"]).await.exits(0);
    album.take(desk, "emails resend", &["emails", "resend", &first, "--reason", "lost"], usual).await;
    desk.run(&["resume"]).await.exits(0);
    let doubt = ["send", "--from", AGENT, "--to", "unknown@sandbox.mailonce.test", "--text", "x", "--key", "doubt"];
    let doubt = text(&desk.run(&doubt).await.exits(4).json()["id"]);
    until(desk, &doubt, "unknown").await;
    album.take(desk, "emails resolve", &["emails", "resolve", &doubt, "--as", "sent"], usual).await;
}

/// The newest message, once an inbox has so many.
async fn last_of(desk: &Desk, inbox: &str, count: usize) -> String {
    for _ in 0..400 {
        let page = desk.run(&["inbox", "messages", inbox]).await.exits(0).json();
        if page["data"].as_array().unwrap().len() == count {
            return text(&page["data"][0]["id"]);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{inbox} does not have {count} messages");
}

async fn receiving(album: &mut Album, desk: &Desk) {
    let usual = How::default();
    let door: Value = serde_json::from_slice(&std::fs::read(desk.data().join("dev.json")).unwrap()).unwrap();
    let smtp = text(&door["smtp"]);
    let by_smtp = How { env: &[("MAILONCE_SMTP_LISTEN", &smtp)], ..usual };
    let create = ["inbox", "create", "--username", "signup", "--client-id", "signup", "--agent", "Signer"];
    album.take(desk, "inbox create", &create, usual).await;
    let inbox = "signup@mailonce.test";
    let mail = ["simulate", "inbound", "--to", inbox, "--from", "Bob <bob@example.com>", "--code", "48192{n}"];
    album.take(desk, "simulate inbound", &mail, by_smtp).await;
    album
        .take(desk, "simulate inbound", &["simulate", "inbound", "--to", "nobody@mailonce.test"], usual)
        .await
        .exits(5);
    let wait = ["wait", inbox, "--after", "0", "--subject", "code", "--timeout", "20"];
    album.take(desk, "wait", &wait, usual).await;
    album.take(desk, "wait", &["wait", inbox, "--subject", "never", "--timeout", "1"], usual).await;
    let message = last_of(desk, inbox, 2).await;
    album.take(desk, "inbox list", &["inbox", "list"], usual).await;
    album.take(desk, "inbox show", &["inbox", "show", inbox], usual).await;
    for columns in ["160", "50"] {
        let how = How { env: &[("COLUMNS", columns)], ..usual };
        album.take(desk, "inbox messages", &["inbox", "messages", inbox], how).await;
    }
    let how = How { numbers: true, ..usual };
    album.take(desk, "inbox read", &["inbox", "read", &message], how).await;
    let seen = album.take(desk, "inbox read", &["inbox", "read", &message, "--model"], how).await.exits(0);
    assert!(!seen.out.contains("48192") && seen.out.contains("<<<untrusted mail"), "a model sees a code: {seen:?}");
    album.take(desk, "inbox read", &["inbox", "read", "nothing", "--model"], how).await.exits(5);
    album.take(desk, "inbox deliveries", &["inbox", "deliveries", inbox], usual).await;
    album.take(desk, "take", &["take", inbox, "--for", "signup-1"], usual).await;
    album.take(desk, "take", &["take", inbox, "--for", "signup-2"], usual).await;
    album.take(desk, "inbox expire", &["inbox", "expire", inbox], usual).await;
    desk.run(&["inbox", "create", "--username", "spare"]).await.exits(0);
    let spare = "spare@mailonce.test";
    album.take(desk, "inbox delete", &["inbox", "delete", spare], usual).await;
    let rotate = ["inbox", "rotate", inbox];
    album.take(desk, "inbox rotate", &rotate, How { numbers: true, ..usual }).await;
}

async fn talking(album: &mut Album, desk: &Desk, other: &str) {
    let usual = How::default();
    let hello = [
        "send",
        "--from",
        "ann@example.com",
        "--to",
        AGENT,
        "--key",
        "hello",
        "--subject",
        "Hello",
        "--text",
        "How are you?",
        "--api-key",
        other,
    ];
    desk.run(&hello).await;
    let waited = desk.run(&["wait", AGENT, "--after", "0", "--timeout", "20"]).await.exits(0).json();
    let message = text(&waited["message"]["id"]);
    desk.run(&["pause"]).await.exits(0);
    album.take(desk, "reply", &["reply", &message, "--text", "Fine {n}"], usual).await;
    for columns in ["160", "80"] {
        let how = How { env: &[("COLUMNS", columns)], ..usual };
        album.take(desk, "thread list", &["thread", "list", "--inbox", AGENT], how).await;
    }
    let threads = desk.run(&["thread", "list", "--inbox", AGENT]).await.exits(0).json();
    let thread = text(&threads["data"][0]["id"]);
    // Counts are written up to a second behind.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    album.take(desk, "thread show", &["thread", "show", &thread], usual).await;
    let lease = ["thread", "lease", &thread, "--holder", "shell", "--ttl", "600"];
    let secret = |album: &mut Album, verb: &str, words: &str, mut ran: Ran, token: &str| {
        ran.out = ran.out.replace(token, "TOKEN");
        album.add(desk, verb, &words.replace(token, "TOKEN"), &ran, How::default());
    };
    let taken = desk.run(&[&lease[..], &["--json"]].concat()).await.exits(0);
    let token = text(&taken.json()["token"]);
    secret(album, "thread lease", &[&lease[..], &["--json"]].concat().join(" "), taken, &token);
    let renew = [&lease[..], &["--token", &token, "--plain"]].concat();
    let renewed = desk.run(&renew).await.exits(0);
    secret(album, "thread lease", &renew.join(" "), renewed, &token);
    album.take(desk, "thread lease", &["thread", "lease", &thread, "--holder", "other"], usual).await;
    for form in ["--plain", "--json"] {
        let words = ["thread", "release", &thread, "--token", &token, form];
        let ran = desk.run(&words).await;
        secret(album, "thread release", &words.join(" "), ran, &token);
    }
    album.take(desk, "thread done", &["thread", "done", &thread], usual).await;
    for number in ["1", "2", "3"] {
        desk.run(&["reply", &message, "--text", "x", "--follow-up", number]).await;
    }
    let asked = album.take(desk, "escalations list", &["escalations", "list"], usual).await.json();
    let id = asked["data"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["reason"] == "cap")
        .map(|one| text(&one["id"]))
        .unwrap();
    album.take(desk, "escalations show", &["escalations", "show", &id], usual).await;
    let reject = ["escalations", "resolve", &id, "--as", "reject", "--reason", "enough"];
    album.take(desk, "escalations resolve", &reject, usual).await;
    desk.run(&["resume"]).await.exits(0);
    refused(album, desk).await;
}

/// What a guard refuses, and the question about it.
async fn refused(album: &mut Album, desk: &Desk) {
    let usual = How::default();
    let own = ["send", "--from", AGENT, "--to", AGENT, "--key", "round", "--subject", "Round", "--text", "And round"];
    desk.run(&own).await;
    let waited =
        desk.run(&["wait", AGENT, "--after", "0", "--subject", "Round", "--timeout", "20"]).await.exits(0).json();
    let message = text(&waited["message"]["id"]);
    album.take(desk, "reply", &["reply", &message, "--text", "Me again"], usual).await.exits(5);
    let asked = album.take(desk, "escalations list", &["escalations", "list"], usual).await.json();
    let question = asked["data"].as_array().unwrap().iter().find(|one| one["reason"] == "loop").unwrap();
    album.take(desk, "escalations show", &["escalations", "show", &text(&question["id"])], usual).await;
}

async fn telling(album: &mut Album, desk: &Desk, server: &Server) {
    let usual = How::default();
    album.take(desk, "tail", &["tail", "--after", "0", "--limit", "2"], usual).await;
    let nobody = "http://127.0.0.1:1/hook";
    let secret = [("MAILONCE_WEBHOOK_SECRET", "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")];
    let listen = ["webhooks", "listen", "--forward-to", nobody, "--after", "0", "--limit", "1"];
    album.take(desk, "webhooks listen", &listen, How { env: &secret, numbers: true, ..usual }).await;
    let (bearer, body) = (
        format!("Bearer {}", server.api_key),
        json!({ "url": nobody, "after": "0", "events": ["email.cancelled"] }).to_string(),
    );
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let (status, made) = server.call("POST", "/v1/endpoints", &headers, &body).await;
    assert_eq!(status, 201, "{made}");
    let path = format!("/v1/endpoints/{}", text(&made["id"]));
    let mut notice = None;
    for _ in 0..400 {
        let (_, page) = server.call("GET", &format!("{path}/notices"), &headers, "").await;
        let (_, endpoint) = server.call("GET", &path, &headers, "").await;
        notice = page["data"].as_array().and_then(|all| all.last()).map(|notice| text(&notice["id"]));
        if notice.is_some() && endpoint["failing_since"].is_string() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let notice = notice.expect("the endpoint is owed nothing");
    let (status, _) = server.call("POST", &format!("/v1/endpoints/{}/pause", text(&made["id"])), &headers, "").await;
    assert_eq!(status, 200);
    album.take(desk, "webhooks list", &["webhooks", "list"], How { numbers: true, ..usual }).await;
    album
        .take(desk, "webhooks replay", &["webhooks", "replay", &notice], How { numbers: true, ..usual })
        .await
        .exits(0);
}

async fn operating(album: &mut Album, desk: &Desk) {
    let usual = How::default();
    let numbers = How { numbers: true, ..usual };
    album.take(desk, "backup", &["backup", "copy{n}.db"], numbers).await;
    album.take(desk, "backup", &["backup", "copy1.db"], usual).await;
    album.take(desk, "restore", &["restore", "copy1.db", "--data", "back{n}", "--hold"], numbers).await;
    album.take(desk, "restore", &["restore", "copy1.db", "--data", "back1", "--hold"], usual).await;
    album.take(desk, "doctor", &["doctor", "--offline"], usual).await;
    album.take(desk, "dev", &["dev", "--http", "127.0.0.1:0"], usual).await;
    let home = desk.path().to_str().unwrap().to_owned();
    let at_home = How { env: &[("HOME", &home)], raw: true, ..usual };
    album.take(desk, "mcp install", &["mcp", "install"], at_home).await;
    album.take(desk, "keys create", &["keys", "create"], usual).await;
    album.take(desk, "bench", &["bench", "--count", "20", "--connections", "2"], numbers).await;
    album.take(desk, "prove", &["prove", "--target", "http://127.0.0.1:1", "--key", "k"], usual).await;
}
