//! A user's database with an outbox, and servers that drain it.

use serde_json::Value;
use std::{
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::{Child, Command},
};
use tokio_postgres::Client;

use crate::database::{TempDatabase, connect_client};

/// How long a test waits for a condition. A row that was leased by a process that ended waits for ten seconds.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The API key of all servers of a test.
const API_KEY: &str = "outbox-key-0123456789abcdef";

/// The output and exit code of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) exit_code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CommandOutput {
    #[track_caller]
    pub(crate) fn expect_exit(self, code: i32) -> Self {
        assert_eq!(self.exit_code, code, "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// The user's database, with a table of orders, and a directory for servers.
pub(crate) struct Rig {
    pub(crate) database: TempDatabase,
    pub(crate) sql: Client,
    temp_dir: TempDir,
}

impl Rig {
    /// A database without an outbox.
    pub(crate) async fn empty() -> Self {
        Self::on(TempDatabase::create().await).await
    }

    /// A database of another server, without an outbox.
    pub(crate) async fn on(database: TempDatabase) -> Self {
        let sql = connect_client(&database.url).await;
        sql.batch_execute("CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY, name text)").await.unwrap();
        Self { database, sql, temp_dir: tempfile::tempdir().unwrap() }
    }

    /// A database with an outbox.
    pub(crate) async fn installed() -> Self {
        let rig = Self::empty().await;
        rig.outbox(&["install"]).await.expect_exit(0);
        rig
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mailonce"));
        command.args(args).current_dir(self.temp_dir.path()).env_clear().kill_on_drop(true);
        command.env("MAILONCE_API_KEY", API_KEY).stdin(Stdio::null());
        command
    }

    pub(crate) async fn run(&self, args: &[&str]) -> CommandOutput {
        let running = self.command(args).output();
        let output = tokio::time::timeout(TIMEOUT, running).await.expect("the command does not exit").unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        CommandOutput {
            exit_code: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Runs a verb of `mailonce outbox` on the user's database.
    pub(crate) async fn outbox(&self, args: &[&str]) -> CommandOutput {
        self.run(&[&["outbox"], args, &["--database", &self.database.url]].concat()).await
    }

    /// Starts a server that drains the outbox with one drainer, on a ledger in SQLite.
    pub(crate) async fn start_server(&self) -> Server {
        self.start(&ServerOptions::default()).await
    }

    pub(crate) async fn start(&self, options: &ServerOptions<'_>) -> Server {
        let data = self.temp_dir.path().join(options.name);
        let url = options.drain_url.unwrap_or(&self.database.url);
        let entry = |n| format!("[[outboxes]]\nname = \"shop{n}\"\ndatabase = \"{url}\"\nteam = \"default\"\n");
        let silent = "[[outboxes]]\nname = \"silent\"\ndatabase = \"postgres://shop@127.0.0.1:1/shop\"\n";
        let silent = options.has_silent_outbox.then(|| silent.to_owned());
        let sink = options.sink_port.map(|port| {
            let at = format!("host = \"127.0.0.1\"\nport = {port}\ntls = \"none\"\n");
            format!("[[transports]]\nname = \"sink\"\nkind = \"smtp\"\n{at}")
        });
        let config =
            silent.into_iter().chain((1..=options.drainers).map(entry)).chain(sink).collect::<Vec<_>>().concat();
        let file = data.with_extension("toml");
        std::fs::write(&file, config).unwrap();
        std::fs::remove_file(data.join("dev.json")).ok();
        let mut command = self.command(&["dev", "--http", "127.0.0.1:0", "--smtp", "off", "--store", options.store]);
        command.arg("--data").arg(&data).arg("--config").arg(&file);
        if let Some(failpoint) = options.failpoint {
            command.env("MAILONCE_FAILPOINT", failpoint);
        }
        let log = std::fs::File::create(data.with_extension("log")).unwrap();
        command.stdout(Stdio::null()).stderr(log);
        let child = command.spawn().unwrap();
        let mut server = Server { child, data, url: String::new() };
        server.wait_until_ready().await;
        server
    }

    /// Inserts an order and its email in one transaction.
    pub(crate) async fn order(&self, name: &str, key: Option<&str>) {
        let payload = payload(name).to_string();
        self.sql
            .execute(
                "WITH placed AS (INSERT INTO orders (name) VALUES ($1)) SELECT mailonce_outbox.send($2::text::jsonb, $3)",
                &[&name, &payload, &key],
            )
            .await
            .unwrap();
    }

    /// How many rows of the outbox are in this state.
    pub(crate) async fn count(&self, state: &str) -> i64 {
        let sql = "SELECT count(*) FROM mailonce_outbox.rows WHERE state = $1";
        self.sql.query_one(sql, &[&state]).await.unwrap().get(0)
    }

    /// Waits until this many rows are in this state.
    pub(crate) async fn wait_for_count(&self, state: &str, count: i64) {
        wait_until(&format!("{count} rows are {state}"), async || self.count(state).await == count).await;
    }
}

/// How a server is started.
#[derive(Clone, Copy)]
pub(crate) struct ServerOptions<'a> {
    /// The name of its data directory.
    pub(crate) name: &'a str,
    /// How many drainers it has.
    pub(crate) drainers: usize,
    /// Its ledger: `sqlite` or a URL.
    pub(crate) store: &'a str,
    /// The URL of the user's database for the drainer.
    pub(crate) drain_url: Option<&'a str>,
    pub(crate) failpoint: Option<&'a str>,
    /// Whether it has another outbox, before the others, whose database does not answer.
    pub(crate) has_silent_outbox: bool,
    /// The port of the SMTP server to which it hands its emails; they stay in its sandbox without one.
    pub(crate) sink_port: Option<u16>,
}

impl Default for ServerOptions<'_> {
    fn default() -> Self {
        Self {
            name: "node",
            drainers: 1,
            store: "sqlite",
            drain_url: None,
            failpoint: None,
            has_silent_outbox: false,
            sink_port: None,
        }
    }
}

/// A server that runs until it is stopped or dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    data: PathBuf,
    url: String,
}

impl Server {
    async fn wait_until_ready(&mut self) {
        let start = Instant::now();
        let file = self.data.join("dev.json");
        loop {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            if let Ok(found) = serde_json::from_str::<Value>(&text)
                && let Some(url) = found["url"].as_str()
            {
                url.clone_into(&mut self.url);
                return;
            }
            // A server with a failpoint may have ended already.
            if self.child.try_wait().unwrap().is_some() || self.is_suspended() {
                return;
            }
            assert!(start.elapsed() < TIMEOUT, "the server is not ready: {}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.data.with_extension("log")).unwrap()
    }

    /// Whether the process is suspended.
    pub(crate) fn is_suspended(&self) -> bool {
        let Some(id) = self.child.id() else { return false };
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    }

    pub(crate) fn send_signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_raw(self.child.id().unwrap().cast_signed()).unwrap();
        rustix::process::kill_process(id, signal).unwrap();
    }

    /// Sends SIGTERM and waits for the process to exit.
    pub(crate) async fn terminate(mut self) {
        self.send_signal(rustix::process::Signal::TERM);
        tokio::time::timeout(TIMEOUT, self.child.wait()).await.expect("the server does not stop").unwrap();
    }

    /// Kills the process.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Waits until the process has ended at its failpoint.
    #[cfg(feature = "failpoints")]
    pub(crate) async fn wait_for_exit(&mut self) {
        tokio::time::timeout(TIMEOUT, self.child.wait()).await.expect("the failpoint is not reached").unwrap();
    }

    pub(crate) async fn call(&self, method: &str, path: &str) -> (u16, Value) {
        self.call_with(method, path, API_KEY).await
    }

    /// Makes one call over a plain socket. Returns the status and the JSON of the response.
    pub(crate) async fn call_with(&self, method: &str, path: &str, key: &str) -> (u16, Value) {
        self.send_request(method, path, key, ("", "")).await
    }

    /// Makes a call with a body and the API key of the test.
    pub(crate) async fn post(&self, path: &str, body: &str) -> (u16, Value) {
        self.send_request("POST", path, API_KEY, ("", body)).await
    }

    /// Makes a call without a body and with an idempotency key.
    pub(crate) async fn post_with_key(&self, path: &str, key: &str) -> (u16, Value) {
        self.send_request("POST", path, API_KEY, (&format!("Idempotency-Key: {key}\r\n"), "")).await
    }

    /// Makes a call during which the server ends at its failpoint.
    #[cfg(feature = "failpoints")]
    pub(crate) async fn post_until_exit(&mut self, path: &str, key: &str) {
        let request = self.request("POST", path, API_KEY, (&format!("Idempotency-Key: {key}\r\n"), ""));
        let mut stream = TcpStream::connect(self.address()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        self.wait_for_exit().await;
    }

    fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    /// The text of a request, with more headers and a body.
    fn request(&self, method: &str, path: &str, key: &str, (headers, body): (&str, &str)) -> String {
        let (address, length) = (self.address(), body.len());
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n{headers}\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    }

    async fn send_request(&self, method: &str, path: &str, key: &str, content: (&str, &str)) -> (u16, Value) {
        let (status, text) = self.send_for_text(method, path, key, content).await;
        (status, serde_json::from_str(&text).unwrap_or_default())
    }

    /// The status and the text of the answer to a call with the API key of the test.
    pub(crate) async fn text(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.send_for_text(method, path, API_KEY, ("", body)).await
    }

    async fn send_for_text(&self, method: &str, path: &str, key: &str, content: (&str, &str)) -> (u16, String) {
        let request = self.request(method, path, key, content);
        let mut stream = TcpStream::connect(self.address()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        tokio::time::timeout(TIMEOUT, stream.read_to_string(&mut response)).await.expect("no answer").unwrap();
        let status = response.split(' ').nth(1).unwrap().parse().unwrap();
        (status, response.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    /// Makes a call with the API key of the test, and expects `200`.
    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call("GET", path).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// The events of these types: the object and the data of each.
    pub(crate) async fn events(&self, types: &str) -> Vec<(String, Value)> {
        let page = self.get(&format!("/v1/events?type={types}&limit=100")).await;
        let event = |event: &Value| (event["about"]["id"].as_str().unwrap().to_owned(), event["data"].clone());
        page["data"].as_array().unwrap().iter().map(event).collect()
    }

    /// The emails in the ledger, in the order in which they were accepted.
    pub(crate) async fn emails(&self) -> Vec<Value> {
        let (mut emails, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!("/v1/emails?limit=100{cursor}")).await;
            emails.extend(page["data"].as_array().unwrap().iter().cloned());
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        emails.reverse();
        emails
    }

    /// The subjects of the emails in the ledger, in the order in which they were accepted.
    pub(crate) async fn subjects(&self) -> Vec<String> {
        self.emails().await.iter().map(|email| email["subject"].as_str().unwrap().to_owned()).collect()
    }
}

/// The body of an email with this subject.
pub(crate) fn payload(subject: &str) -> Value {
    serde_json::json!({
        "from": "shop@mailonce.test", "to": "ada@example.com", "subject": subject, "text": format!("Order {subject}"),
    })
}

/// Waits until a condition holds.
pub(crate) async fn wait_until(what: &str, condition: impl AsyncFn() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < TIMEOUT, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}
