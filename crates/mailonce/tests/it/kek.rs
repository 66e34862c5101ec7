//! The key encryption key: what a ledger holds with one, who is refused, and that everything works after a rotation.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use mailonce_core::port::install_secret::StoredSecret;
use mailonce_store::{postgres::Postgres, sqlite::Sqlite};
use serde_json::{Value, json};
use sha2::Sha256;
use std::{
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    binary::{Desk, Ran, Server},
    database::{FreshDatabase, connect},
    receiver::Hall,
};

const API_KEY: &str = "a-key-that-every-node-knows";
const FILE: &str = "MAILONCE_SECRETS_KEK_FILE";
/// What every private Ed25519 key in PKCS#8 holds, as it is and in base64.
const PRIVATE_KEY: &[u8] = b"\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
const PRIVATE_KEY_BASE64: &[u8] = b"wBQYDK2VwBCIEI";

/// A ledger and the keys around it.
struct Ledger {
    desk: Desk,
    database: Option<FreshDatabase>,
    hall: Hall,
    webhook_secret: [u8; 32],
}

impl Ledger {
    async fn sqlite() -> Self {
        Self { desk: Desk::new(), database: None, hall: Hall::open().await, webhook_secret: [42; 32] }
    }

    async fn postgres() -> Self {
        Self { database: Some(FreshDatabase::make().await), ..Self::sqlite().await }
    }

    /// A file with a KEK of these bytes.
    fn kek(&self, byte: u8) -> String {
        let path = self.desk.path().join(format!("kek{byte}"));
        let file = std::fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&path);
        std::io::Write::write_all(&mut file.unwrap(), STANDARD.encode([byte; 32]).as_bytes()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn env<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let mut env = vec![("MAILONCE_API_KEY", API_KEY)];
        env.extend(self.database.as_ref().map(|database| ("MAILONCE_STORE", database.url.as_str())));
        env.extend(more);
        env
    }

    async fn dev(&self, env: &[(&str, &str)]) -> Server {
        self.desk.dev(&self.env(env)).await
    }

    async fn run(&self, words: &[&str], env: &[(&str, &str)]) -> Ran {
        self.desk.run_with(words, &self.env(env)).await
    }

    async fn stored(&self) -> StoredSecret {
        let stored = match &self.database {
            None => Sqlite::stored_secret(&self.desk.data()),
            Some(database) => Postgres::stored_secret(&database.url).await,
        };
        stored.unwrap().unwrap()
    }

    /// Everything that the ledger holds: the files of SQLite, every row of PostgreSQL.
    async fn holds(&self, part: &[u8]) -> bool {
        let Some(database) = &self.database else { return files_hold(&self.desk.data(), part) };
        let client = connect(&database.url).await;
        let tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'mailonce'";
        let hex = hex(part);
        let text = String::from_utf8_lossy(part).into_owned();
        for table in client.query(tables, &[]).await.unwrap() {
            let sql = format!("SELECT t::text FROM mailonce.{} t", table.get::<_, &str>(0));
            for row in client.query(&sql, &[]).await.unwrap() {
                let row: &str = row.get(0);
                if row.contains(&hex) || row.contains(&text) {
                    return true;
                }
            }
        }
        false
    }

    /// Every verb that opens the ledger is refused with these words.
    async fn refuses(&self, env: &[(&str, &str)], words: &str) {
        let verbs: [&[&str]; 4] =
            [&["dev", "--http", "127.0.0.1:0"], &["keys", "list"], &["migrate"], &["secrets", "status"]];
        for verb in verbs {
            let ran = self.run(&[&["--plain"][..], verb].concat(), env).await.exits(5);
            assert!(ran.err.contains("kek: ") && ran.err.contains(words), "{verb:?}: {}", ran.err);
            assert!(ran.err.contains("next: set [secrets] kek_file"), "{}", ran.err);
        }
        let ran = self.run(&["doctor", "--offline", "--plain"], env).await.exits(5);
        assert!(ran.out.contains(words), "{}", ran.out);
    }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn files_hold(folder: &Path, part: &[u8]) -> bool {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.is_file()).any(|path| contains(&std::fs::read(path).unwrap(), part))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(bytes, part).is_some()
}

fn plain(stored: &StoredSecret) -> [u8; 32] {
    match stored {
        StoredSecret::Plain(secret) => secret.0,
        StoredSecret::Wrapped(text) => panic!("wrapped: {text}"),
    }
}

async fn call(server: &Server, method: &str, path: &str, body: &Value) -> Value {
    let key = format!("Bearer {API_KEY}");
    let headers = [("Authorization", key.as_str()), ("Content-Type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (status, answer) = server.call(method, path, &headers, &body).await;
    assert!(status < 300, "{method} {path}: {status} {answer}");
    answer
}

/// A domain that signs, an inbox to write to, and an endpoint with a known secret.
async fn furnish(ledger: &Ledger, server: &Server) -> String {
    call(server, "POST", "/v1/domains", &json!({ "name": "example.com" })).await;
    let secret = format!("whsec_{}", STANDARD.encode(ledger.webhook_secret));
    let url = format!("http://{}/hook", ledger.hall.at);
    call(server, "POST", "/v1/endpoints", &json!({ "url": url, "secret": secret, "events": ["message.received"] }))
        .await;
    call(server, "POST", "/v1/inboxes", &json!({ "username": "ada" })).await["id"].as_str().unwrap().to_owned()
}

/// Sends a mail to the inbox. It arrives with a DKIM signature, and the endpoint gets a notice signed by its secret.
async fn deliver(ledger: &Ledger, server: &Server, inbox: &str, words: &str) -> String {
    let before = ledger.hall.requests().len();
    let mail = json!({ "from": "agent@example.com", "to": "ada@mailonce.test", "subject": "Hello",
        "text": format!("Your code is 482913. {words}") });
    let sent = call(server, "POST", "/v1/emails", &mail).await;
    ledger.hall.until(before + 1).await;
    let notice = ledger.hall.requests().pop().unwrap();
    assert!(is_signed(&notice, &ledger.webhook_secret), "{notice}");
    let page = call(server, "GET", &format!("/v1/inboxes/{inbox}/messages?limit=1"), &Value::Null).await;
    let newest = page["data"][0]["id"].as_str().unwrap().to_owned();
    let key = format!("Bearer {API_KEY}");
    let raw = server.fetch("GET", &format!("/v1/messages/{newest}/raw"), &[("Authorization", &key)], "").await.1;
    assert!(raw.contains("DKIM-Signature:") && raw.contains("d=example.com") && raw.contains(words), "{raw}");
    sent["id"].as_str().unwrap().to_owned()
}

/// Whether a request carries the signature that Standard Webhooks describes.
fn is_signed(request: &str, secret: &[u8]) -> bool {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let signed = format!("{}.{}.{body}", field("webhook-id: "), field("webhook-timestamp: "));
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    mac.update(signed.as_bytes());
    field("webhook-signature: ").contains(&STANDARD.encode(mac.finalize().into_bytes()))
}

async fn text_of(server: &Server, email: &str) -> String {
    let email = call(server, "GET", &format!("/v1/emails/{email}"), &Value::Null).await;
    email.to_string()
}

/// The whole life of a ledger: plain, wrapped, rotated while a server runs, and refused without its KEK at each step.
async fn live(ledger: Ledger) {
    let (one, two) = (ledger.kek(1), ledger.kek(2));
    let server = ledger.dev(&[]).await;
    let inbox = furnish(&ledger, &server).await;
    let old = deliver(&ledger, &server, &inbox, "words of the plain days").await;
    server.kill().await;
    let secret = plain(&ledger.stored().await);
    assert!(ledger.holds(&secret).await, "the search finds what is there");
    assert!(ledger.holds(b"words of the plain days").await);

    let sealed = [(FILE, one.as_str()), ("MAILONCE_SECRETS_SEAL_BODIES", "true")];
    let server = ledger.dev(&sealed).await;
    let email = deliver(&ledger, &server, &inbox, "words behind a seal").await;
    assert!(text_of(&server, &old).await.contains("words of the plain days"), "rows from before stay readable");
    assert!(text_of(&server, &email).await.contains("words behind a seal"));
    server.kill().await;
    assert!(!ledger.holds(&secret).await, "the plain secret is still there");
    for part in [b"words behind a seal".as_slice(), PRIVATE_KEY, PRIVATE_KEY_BASE64, &ledger.webhook_secret] {
        assert!(!ledger.holds(part).await, "{:?}", String::from_utf8_lossy(part));
    }
    ledger.refuses(&[], "no KEK is configured").await;
    ledger.refuses(&[(FILE, &two)], "the configured KEK has the fingerprint").await;

    let server = ledger.dev(&[(FILE, &one)]).await;
    let rotate = ["secrets", "rotate-kek", "--new-kek-file", &two, "--plain"];
    let ran = ledger.run(&rotate, &[(FILE, &one)]).await.exits(0);
    assert!(ran.err.contains("Set [secrets] to the new KEK"), "{}", ran.err);
    deliver(&ledger, &server, &inbox, "a server that runs goes on").await;
    server.terminate().await;
    ledger.refuses(&[(FILE, &one)], "the configured KEK has the fingerprint").await;
    ledger.run(&rotate, &[(FILE, &one)]).await.exits(0);

    let server = ledger.dev(&[(FILE, &two)]).await;
    deliver(&ledger, &server, &inbox, "after the rotation").await;
    assert!(text_of(&server, &email).await.contains("words behind a seal"), "sealed rows open after a rotation");
    server.terminate().await;
    assert!(!ledger.holds(&secret).await);
    let status = ledger.run(&["secrets", "status", "--json"], &[(FILE, &two)]).await.exits(0).json();
    assert_eq!((&status["ledger"], &status["refusal"]), (&json!("wrapped"), &Value::Null));
    assert_eq!(status["ledger_kek"], status["configured_kek"]);
    let doctor = ledger.run(&["doctor", "--offline", "--plain"], &[(FILE, &two)]).await;
    assert!(doctor.out.contains(&format!("from file {two}")), "{}", doctor.out);
}

#[tokio::test]
async fn a_ledger_in_a_file_lives_with_its_kek() {
    Box::pin(live(Ledger::sqlite().await)).await;
}

#[tokio::test]
async fn a_ledger_in_a_database_lives_with_its_kek() {
    Box::pin(live(Ledger::postgres().await)).await;
}

#[tokio::test]
async fn a_new_ledger_never_holds_its_secret_and_doctor_says_where_the_kek_lives() {
    let ledger = Ledger::sqlite().await;
    let doctor = ledger.run(&["doctor", "--offline", "--plain"], &[]).await;
    assert!(doctor.out.contains("the install secret lies in the ledger"), "{}", doctor.out);
    let env = [("MAILONCE_SECRETS_KEK_ENV", "OUR_KEK"), ("OUR_KEK", &*"0b".repeat(32))];
    ledger.dev(&env).await.kill().await;
    assert!(matches!(ledger.stored().await, StoredSecret::Wrapped(_)));
    let doctor = ledger.run(&["doctor", "--offline", "--plain"], &env).await;
    assert!(doctor.out.contains("from environment variable OUR_KEK"), "{}", doctor.out);
    std::fs::rename(ledger.kek(11), ledger.desk.data().join("kek")).unwrap();
    let doctor = ledger.run(&["doctor", "--offline", "--plain"], &[(FILE, "mailonce-data/kek")]).await;
    assert!(doctor.out.contains("lies beside the ledger"), "{}", doctor.out);
    let ran = ledger.run(&["dev", "--http", "127.0.0.1:0"], &[("MAILONCE_SECRETS_SEAL_BODIES", "true")]).await.exits(5);
    assert!(ran.err.contains("openssl rand -base64 32"), "{}", ran.err);
}

#[tokio::test]
async fn a_backup_holds_neither_the_kek_nor_what_it_protects() {
    let ledger = Ledger::sqlite().await;
    let one = ledger.kek(1);
    let env = [(FILE, one.as_str()), ("MAILONCE_SECRETS_SEAL_BODIES", "true")];
    let server = ledger.dev(&env).await;
    let inbox = furnish(&ledger, &server).await;
    deliver(&ledger, &server, &inbox, "words in a backup").await;
    ledger.run(&["backup", "copy.db"], &env).await.exits(0);
    server.terminate().await;
    let copy = std::fs::read(ledger.desk.path().join("copy.db")).unwrap();
    assert!(contains(&copy, b"agent@example.com"), "the search finds what is there");
    let base64 = STANDARD.encode([1; 32]);
    let secrets: [&[u8]; 7] = [
        &[1; 32],
        base64.as_bytes(),
        &ledger.webhook_secret,
        PRIVATE_KEY,
        PRIVATE_KEY_BASE64,
        b"words in a backup",
        b"482913",
    ];
    for part in secrets {
        assert!(!contains(&copy, part), "{:?}", String::from_utf8_lossy(part));
    }
    ledger.run(&["restore", "copy.db", "--data", "restored", "--run"], &env).await.exits(0);
    let ran = ledger.run(&["keys", "list", "--data", "restored"], &[]).await.exits(5);
    assert!(ran.err.contains("no KEK is configured"), "{}", ran.err);
    ledger.run(&["keys", "list", "--data", "restored"], &[(FILE, &one)]).await.exits(0);
}

#[tokio::test]
async fn nodes_that_start_together_wrap_a_ledger_once_and_one_without_the_kek_is_refused() {
    let ledger = Ledger::postgres().await;
    ledger.dev(&[]).await.terminate().await;
    let one = ledger.kek(1);
    let (left, right): (PathBuf, PathBuf) = (ledger.desk.path().join("left"), ledger.desk.path().join("right"));
    let (left, right) = (left.to_str().unwrap(), right.to_str().unwrap());
    let (left_env, right_env) = ([(FILE, &*one), ("MAILONCE_DATA", left)], [(FILE, &*one), ("MAILONCE_DATA", right)]);
    let (left, right) = tokio::join!(ledger.dev(&left_env), ledger.dev(&right_env));
    let inbox = furnish(&ledger, &left).await;
    deliver(&ledger, &right, &inbox, "from the other node").await;
    ledger.refuses(&[], "no KEK is configured").await;
    for server in [left, right] {
        server.terminate().await;
    }
}

#[tokio::test]
async fn a_rotation_that_is_killed_leaves_the_old_kek_or_the_new_one() {
    let ledger = Ledger::sqlite().await;
    let keks = [ledger.kek(1), ledger.kek(2)];
    let server = ledger.dev(&[(FILE, &keks[0])]).await;
    let (mut now, mut rotated) = (0, 0);
    for round in 0..24 {
        let words = ["secrets", "rotate-kek", "--new-kek-file", &keks[1 - now]];
        let mut command = ledger.desk.command(&words);
        let mut child = command.envs(ledger.env(&[(FILE, &keks[now])])).spawn().unwrap();
        tokio::time::sleep(Duration::from_millis(round * 4)).await;
        child.kill().await.unwrap();
        let mut opens = Vec::new();
        for kek in &keks {
            opens.push(ledger.run(&["secrets", "status", "--json"], &[(FILE, kek)]).await.code == 0);
        }
        assert_eq!(opens.iter().filter(|opens| **opens).count(), 1, "round {round}: {opens:?}");
        rotated += usize::from(!opens[now]);
        now = usize::from(opens[1]);
    }
    println!("{rotated} of 24 rotations came through");
    let words = ["secrets", "rotate-kek", "--new-kek-file", &keks[1 - now]];
    ledger.run(&words, &[(FILE, &keks[now])]).await.exits(0);
    now = 1 - now;
    ledger.run(&["secrets", "status"], &[(FILE, &keks[now])]).await.exits(0);
    let inbox = furnish(&ledger, &server).await;
    deliver(&ledger, &server, &inbox, "after all of them").await;
    server.terminate().await;
    ledger.dev(&[(FILE, &keks[now])]).await.terminate().await;
}
