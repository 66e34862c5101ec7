//! The key encryption key (KEK): what a ledger stores with one, when opening is refused, and key rotation.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use mailonce_core::access::install_secret::StoredSecret;
use mailonce_store::{postgres::Postgres, sqlite::Sqlite};
use serde_json::{Value, json};
use sha2::Sha256;
use std::{
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::fixtures::{
    binary::{CliFixture, CommandOutput, SpawnedServer},
    database::{TempDatabase, connect_client},
    webhook_receivers::WebhookServer,
};

const API_KEY: &str = "a-key-that-every-node-knows";
const KEK_FILE_ENV: &str = "MAILONCE_SECRETS_KEK_FILE";
/// Bytes that every private Ed25519 key in PKCS#8 contains, raw and in base64.
const ED25519_PKCS8_MARKER: &[u8] = b"\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
const ED25519_PKCS8_MARKER_BASE64: &[u8] = b"wBQYDK2VwBCIEI";

/// A ledger with its KEK files, a webhook server and a webhook secret.
struct KekFixture {
    cli: CliFixture,
    database: Option<TempDatabase>,
    webhook_server: WebhookServer,
    webhook_secret: [u8; 32],
}

impl KekFixture {
    async fn sqlite() -> Self {
        Self {
            cli: CliFixture::new(),
            database: None,
            webhook_server: WebhookServer::start().await,
            webhook_secret: [42; 32],
        }
    }

    async fn postgres() -> Self {
        Self { database: Some(TempDatabase::create().await), ..Self::sqlite().await }
    }

    /// Writes a KEK file whose 32 bytes all have this value.
    fn write_kek_file(&self, byte: u8) -> String {
        let path = self.cli.path().join(format!("kek{byte}"));
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

    async fn start_dev(&self, env: &[(&str, &str)]) -> SpawnedServer {
        self.cli.start_dev(&self.env(env)).await
    }

    async fn run(&self, args: &[&str], env: &[(&str, &str)]) -> CommandOutput {
        self.cli.run_with_env(args, &self.env(env)).await
    }

    async fn stored_secret(&self) -> StoredSecret {
        let stored = match &self.database {
            None => Sqlite::stored_secret(&self.cli.data_dir()),
            Some(database) => Postgres::stored_secret(&database.url).await,
        };
        stored.unwrap().unwrap()
    }

    /// Searches everything that the ledger stores: the files of SQLite, or every row of PostgreSQL.
    async fn store_contains(&self, part: &[u8]) -> bool {
        let Some(database) = &self.database else { return files_contain(&self.cli.data_dir(), part) };
        let client = connect_client(&database.url).await;
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

    /// Checks that every verb that opens the ledger is refused with this text.
    async fn expect_refused(&self, env: &[(&str, &str)], text: &str) {
        let verbs: [&[&str]; 4] =
            [&["dev", "--http", "127.0.0.1:0"], &["api-keys", "list"], &["migrate"], &["secrets", "status"]];
        for verb in verbs {
            let output = self.run(&[&["--plain"][..], verb].concat(), env).await.expect_exit(5);
            assert!(output.stderr.contains("kek: ") && output.stderr.contains(text), "{verb:?}: {}", output.stderr);
            assert!(output.stderr.contains("next: set [secrets] kek_file"), "{}", output.stderr);
        }
        let output = self.run(&["doctor", "--offline", "--plain"], env).await.expect_exit(5);
        assert!(output.stdout.contains(text), "{}", output.stdout);
    }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn files_contain(folder: &Path, part: &[u8]) -> bool {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.is_file()).any(|path| contains(&std::fs::read(path).unwrap(), part))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(bytes, part).is_some()
}

fn plain_secret(stored: &StoredSecret) -> [u8; 32] {
    match stored {
        StoredSecret::Plain(secret) => secret.0,
        StoredSecret::Wrapped(text) => panic!("wrapped: {text}"),
    }
}

async fn api_call(server: &SpawnedServer, method: &str, path: &str, body: &Value) -> Value {
    let key = format!("Bearer {API_KEY}");
    let headers = [("Authorization", key.as_str()), ("Content-Type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (status, answer) = server.call(method, path, &headers, &body).await;
    assert!(status < 300, "{method} {path}: {status} {answer}");
    answer
}

/// Creates a signing domain, an endpoint with a known secret, and an inbox, whose id it returns.
async fn create_domain_endpoint_and_inbox(ledger: &KekFixture, server: &SpawnedServer) -> String {
    api_call(server, "POST", "/v1/domains", &json!({ "name": "example.com" })).await;
    let secret = format!("whsec_{}", STANDARD.encode(ledger.webhook_secret));
    let url = format!("http://{}/hook", ledger.webhook_server.address);
    api_call(server, "POST", "/v1/endpoints", &json!({ "url": url, "secret": secret, "events": ["message.received"] }))
        .await;
    api_call(server, "POST", "/v1/inboxes", &json!({ "username": "ada" })).await["id"].as_str().unwrap().to_owned()
}

/// Sends a mail to the inbox. It arrives with a DKIM signature, and the endpoint gets a notice signed by its secret.
async fn send_and_check_signatures(ledger: &KekFixture, server: &SpawnedServer, inbox: &str, text: &str) -> String {
    let before = ledger.webhook_server.requests().len();
    let mail = json!({ "from": "agent@example.com", "to": "ada@mailonce.test", "subject": "Hello",
        "text": format!("Your code is 482913. {text}") });
    let sent = api_call(server, "POST", "/v1/emails", &mail).await;
    ledger.webhook_server.wait_for_requests(before + 1).await;
    let notice = ledger.webhook_server.requests().pop().unwrap();
    assert!(has_valid_webhook_signature(&notice, &ledger.webhook_secret), "{notice}");
    let page = api_call(server, "GET", &format!("/v1/inboxes/{inbox}/messages?limit=1"), &Value::Null).await;
    let newest = page["data"][0]["id"].as_str().unwrap().to_owned();
    let key = format!("Bearer {API_KEY}");
    let raw = server.call_text("GET", &format!("/v1/messages/{newest}/raw"), &[("Authorization", &key)], "").await.1;
    assert!(raw.contains("DKIM-Signature:") && raw.contains("d=example.com") && raw.contains(text), "{raw}");
    sent["id"].as_str().unwrap().to_owned()
}

/// Whether a request carries a valid Standard Webhooks signature.
fn has_valid_webhook_signature(request: &str, secret: &[u8]) -> bool {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let signed = format!("{}.{}.{body}", field("webhook-id: "), field("webhook-timestamp: "));
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    mac.update(signed.as_bytes());
    field("webhook-signature: ").contains(&STANDARD.encode(mac.finalize().into_bytes()))
}

async fn email_json(server: &SpawnedServer, email: &str) -> String {
    let email = api_call(server, "GET", &format!("/v1/emails/{email}"), &Value::Null).await;
    email.to_string()
}

/// The lifecycle of a ledger: plain, wrapped, rotated while a server runs, and refused without its KEK at each step.
async fn run_kek_lifecycle(ledger: KekFixture) {
    let (one, two) = (ledger.write_kek_file(1), ledger.write_kek_file(2));
    let server = ledger.start_dev(&[]).await;
    let inbox = create_domain_endpoint_and_inbox(&ledger, &server).await;
    let old = send_and_check_signatures(&ledger, &server, &inbox, "words of the plain days").await;
    server.kill().await;
    let secret = plain_secret(&ledger.stored_secret().await);
    assert!(ledger.store_contains(&secret).await, "the search must find data that is stored in the clear");
    assert!(ledger.store_contains(b"words of the plain days").await);

    let sealed = [(KEK_FILE_ENV, one.as_str()), ("MAILONCE_SECRETS_SEAL_BODIES", "true")];
    let server = ledger.start_dev(&sealed).await;
    let email = send_and_check_signatures(&ledger, &server, &inbox, "words behind a seal").await;
    assert!(
        email_json(&server, &old).await.contains("words of the plain days"),
        "rows written before wrapping stay readable"
    );
    assert!(email_json(&server, &email).await.contains("words behind a seal"));
    server.kill().await;
    assert!(!ledger.store_contains(&secret).await, "the plain install secret is still stored");
    for part in
        [b"words behind a seal".as_slice(), ED25519_PKCS8_MARKER, ED25519_PKCS8_MARKER_BASE64, &ledger.webhook_secret]
    {
        assert!(!ledger.store_contains(part).await, "{:?}", String::from_utf8_lossy(part));
    }
    ledger.expect_refused(&[], "no KEK is configured").await;
    ledger.expect_refused(&[(KEK_FILE_ENV, &two)], "the configured KEK has the fingerprint").await;

    let server = ledger.start_dev(&[(KEK_FILE_ENV, &one)]).await;
    let rotate = ["secrets", "rotate-kek", "--new-kek-file", &two, "--plain"];
    let output = ledger.run(&rotate, &[(KEK_FILE_ENV, &one)]).await.expect_exit(0);
    assert!(output.stderr.contains("Configure the new KEK"), "{}", output.stderr);
    send_and_check_signatures(&ledger, &server, &inbox, "a server that runs goes on").await;
    server.terminate().await;
    ledger.expect_refused(&[(KEK_FILE_ENV, &one)], "the configured KEK has the fingerprint").await;
    ledger.run(&rotate, &[(KEK_FILE_ENV, &one)]).await.expect_exit(0);

    let server = ledger.start_dev(&[(KEK_FILE_ENV, &two)]).await;
    send_and_check_signatures(&ledger, &server, &inbox, "after the rotation").await;
    assert!(
        email_json(&server, &email).await.contains("words behind a seal"),
        "sealed rows stay readable after a rotation"
    );
    server.terminate().await;
    assert!(!ledger.store_contains(&secret).await);
    let status = ledger.run(&["secrets", "status", "--json"], &[(KEK_FILE_ENV, &two)]).await.expect_exit(0).json();
    assert_eq!((&status["ledger"], &status["open_error"]), (&json!("wrapped"), &Value::Null));
    assert_eq!(status["ledger_kek"], status["configured_kek"]);
    let doctor = ledger.run(&["doctor", "--offline", "--plain"], &[(KEK_FILE_ENV, &two)]).await;
    assert!(doctor.stdout.contains(&format!("from file {two}")), "{}", doctor.stdout);
}

#[tokio::test]
async fn a_sqlite_ledger_works_with_its_kek_through_rotation() {
    Box::pin(run_kek_lifecycle(KekFixture::sqlite().await)).await;
}

#[tokio::test]
async fn a_postgres_ledger_works_with_its_kek_through_rotation() {
    Box::pin(run_kek_lifecycle(KekFixture::postgres().await)).await;
}

#[tokio::test]
async fn a_new_ledger_never_stores_its_secret_in_the_clear_and_doctor_names_the_kek_source() {
    let ledger = KekFixture::sqlite().await;
    let doctor = ledger.run(&["doctor", "--offline", "--plain"], &[]).await;
    assert!(doctor.stdout.contains("the ledger contains the key to its secrets"), "{}", doctor.stdout);
    let env = [("MAILONCE_SECRETS_KEK_ENV", "OUR_KEK"), ("OUR_KEK", &*"0b".repeat(32))];
    ledger.start_dev(&env).await.kill().await;
    assert!(matches!(ledger.stored_secret().await, StoredSecret::Wrapped(_)));
    let doctor = ledger.run(&["doctor", "--offline", "--plain"], &env).await;
    assert!(doctor.stdout.contains("from environment variable OUR_KEK"), "{}", doctor.stdout);
    std::fs::rename(ledger.write_kek_file(11), ledger.cli.data_dir().join("kek")).unwrap();
    let doctor = ledger.run(&["doctor", "--offline", "--plain"], &[(KEK_FILE_ENV, "mailonce-data/kek")]).await;
    assert!(doctor.stdout.contains("is in the data directory"), "{}", doctor.stdout);
    let output =
        ledger.run(&["dev", "--http", "127.0.0.1:0"], &[("MAILONCE_SECRETS_SEAL_BODIES", "true")]).await.expect_exit(5);
    assert!(output.stderr.contains("openssl rand -base64 32"), "{}", output.stderr);
}

#[tokio::test]
async fn a_backup_contains_neither_the_kek_nor_the_data_it_protects() {
    let ledger = KekFixture::sqlite().await;
    let one = ledger.write_kek_file(1);
    let env = [(KEK_FILE_ENV, one.as_str()), ("MAILONCE_SECRETS_SEAL_BODIES", "true")];
    let server = ledger.start_dev(&env).await;
    let inbox = create_domain_endpoint_and_inbox(&ledger, &server).await;
    send_and_check_signatures(&ledger, &server, &inbox, "words in a backup").await;
    ledger.run(&["backup", "copy.db"], &env).await.expect_exit(0);
    server.terminate().await;
    let copy = std::fs::read(ledger.cli.path().join("copy.db")).unwrap();
    assert!(contains(&copy, b"agent@example.com"), "the search must find data that is stored in the clear");
    let base64 = STANDARD.encode([1; 32]);
    let secrets: [&[u8]; 7] = [
        &[1; 32],
        base64.as_bytes(),
        &ledger.webhook_secret,
        ED25519_PKCS8_MARKER,
        ED25519_PKCS8_MARKER_BASE64,
        b"words in a backup",
        b"482913",
    ];
    for part in secrets {
        assert!(!contains(&copy, part), "{:?}", String::from_utf8_lossy(part));
    }
    ledger.run(&["restore", "copy.db", "--data", "restored", "--run"], &env).await.expect_exit(0);
    let output = ledger.run(&["api-keys", "list", "--data", "restored"], &[]).await.expect_exit(5);
    assert!(output.stderr.contains("no KEK is configured"), "{}", output.stderr);
    ledger.run(&["api-keys", "list", "--data", "restored"], &[(KEK_FILE_ENV, &one)]).await.expect_exit(0);
}

#[tokio::test]
async fn nodes_that_start_together_wrap_a_ledger_once_and_one_without_the_kek_is_refused() {
    let ledger = KekFixture::postgres().await;
    ledger.start_dev(&[]).await.terminate().await;
    let one = ledger.write_kek_file(1);
    let (left, right): (PathBuf, PathBuf) = (ledger.cli.path().join("left"), ledger.cli.path().join("right"));
    let (left, right) = (left.to_str().unwrap(), right.to_str().unwrap());
    let (left_env, right_env) =
        ([(KEK_FILE_ENV, &*one), ("MAILONCE_DATA", left)], [(KEK_FILE_ENV, &*one), ("MAILONCE_DATA", right)]);
    let (left, right) = tokio::join!(ledger.start_dev(&left_env), ledger.start_dev(&right_env));
    let inbox = create_domain_endpoint_and_inbox(&ledger, &left).await;
    send_and_check_signatures(&ledger, &right, &inbox, "from the other node").await;
    ledger.expect_refused(&[], "no KEK is configured").await;
    for server in [left, right] {
        server.terminate().await;
    }
}

#[tokio::test]
async fn a_killed_rotation_leaves_exactly_one_working_kek() {
    let ledger = KekFixture::sqlite().await;
    let keks = [ledger.write_kek_file(1), ledger.write_kek_file(2)];
    let server = ledger.start_dev(&[(KEK_FILE_ENV, &keks[0])]).await;
    let (mut now, mut rotated) = (0, 0);
    for round in 0..24 {
        let args = ["secrets", "rotate-kek", "--new-kek-file", &keks[1 - now]];
        let mut command = ledger.cli.command(&args);
        let mut child = command.envs(ledger.env(&[(KEK_FILE_ENV, &keks[now])])).spawn().unwrap();
        tokio::time::sleep(Duration::from_millis(round * 4)).await;
        child.kill().await.unwrap();
        let mut opens = Vec::new();
        for kek in &keks {
            opens.push(ledger.run(&["secrets", "status", "--json"], &[(KEK_FILE_ENV, kek)]).await.exit_code == 0);
        }
        assert_eq!(opens.iter().filter(|opens| **opens).count(), 1, "round {round}: {opens:?}");
        rotated += usize::from(!opens[now]);
        now = usize::from(opens[1]);
    }
    println!("{rotated} of 24 rotations completed");
    let args = ["secrets", "rotate-kek", "--new-kek-file", &keks[1 - now]];
    ledger.run(&args, &[(KEK_FILE_ENV, &keks[now])]).await.expect_exit(0);
    now = 1 - now;
    ledger.run(&["secrets", "status"], &[(KEK_FILE_ENV, &keks[now])]).await.expect_exit(0);
    let inbox = create_domain_endpoint_and_inbox(&ledger, &server).await;
    send_and_check_signatures(&ledger, &server, &inbox, "after all of them").await;
    server.terminate().await;
    ledger.start_dev(&[(KEK_FILE_ENV, &keks[now])]).await.terminate().await;
}
