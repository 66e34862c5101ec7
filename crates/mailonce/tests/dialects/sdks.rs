//! The scripts: one for each official package.

use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    binary::{Desk, Server},
    packages, table,
};

const NPM: [&str; 2] = ["resend@6.37.0", "usesend-js@1.6.3"];
const PYPI: [&str; 3] = ["resend==2.50.0", "usesend==0.2.10", "httpx==0.28.1"];

/// What a script tells of its SDK.
pub(crate) struct Walked {
    /// Every method that the package has.
    pub(crate) methods: BTreeSet<String>,
    /// Those that gave back what was asked for.
    pub(crate) worked: BTreeSet<String>,
    /// The others, with the error that they gave.
    pub(crate) refused: BTreeMap<String, String>,
}

impl Walked {
    pub(crate) fn read(said: &Value) -> Self {
        let words = |value: &Value| {
            value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
        };
        let pair = |(name, answer): (&String, &Value)| (name.clone(), answer.as_str().unwrap().to_owned());
        Self {
            methods: words(&said["methods"]),
            worked: words(&said["worked"]),
            refused: said["refused"].as_object().unwrap().iter().map(pair).collect(),
        }
    }
}

/// A script of ours.
pub(crate) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dialects/scripts").join(name)
}

pub(crate) fn node(name: &str) -> Command {
    let mut command = Command::new("node");
    let home = packages::npm("dialects-npm", &NPM);
    command.arg(script(name)).env("NODE_PATH", home.join("node_modules")).env("WALK", script("walk.cjs"));
    command
}

pub(crate) fn python(name: &str) -> Command {
    let mut command = Command::new(packages::python("dialects-pypi", &PYPI));
    command.arg(script(name)).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Runs a script against a server. What it says in the end.
pub(crate) async fn run(mut command: Command, server: &Server, base: &str) -> Value {
    let (url, key) = (format!("{}{base}", server.url), server.api_key.clone());
    let running = move || command.env("URL", url).env("KEY", key).stdin(Stdio::null()).output();
    let output = tokio::task::spawn_blocking(running).await.unwrap().expect("node or python is needed for this test");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(said.lines().last().unwrap()).unwrap()
}

/// A mail arrives by SMTP at the inbox of `dev`.
async fn arrives(server: &Server, raw: &str) {
    let at = server.greeting.split("by SMTP at ").nth(1).unwrap().lines().next().unwrap().trim();
    let mut stream = TcpStream::connect(at).await.unwrap();
    let letter = format!("{}\r\n.\r\nQUIT\r\n", raw.replace('\n', "\r\n"));
    for line in [
        "HELO out.example.org\r\n",
        "MAIL FROM:<bob@example.org>\r\n",
        "RCPT TO:<agent@mailonce.test>\r\n",
        "DATA\r\n",
        &letter,
    ] {
        let mut some = [0; 1_024];
        let count = stream.read(&mut some).await.unwrap();
        let said = String::from_utf8_lossy(&some[..count]).into_owned();
        assert!(said.starts_with('2') || said.starts_with('3'), "{said}");
        stream.write_all(line.as_bytes()).await.unwrap();
    }
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("250") || rest.contains("354"), "{rest}");
}

fn letter(id: &str, subject: &str, rest: &str) -> String {
    format!(
        "From: Bob <bob@example.org>\nTo: agent@mailonce.test\nSubject: {subject}\nMessage-ID: <{id}@example.org>\nDate: Sun, 15 Nov 2026 10:00:00 +0000\n{rest}"
    )
}

/// A server with some mail in its inbox.
pub(crate) async fn with_mail(desk: &Desk, who: &str) -> Server {
    let server = desk.dev(&[("MAILONCE_API_KEY", "dialects-test-key-0001")]).await;
    let file = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain\n\nSee the file.\n--b\nContent-Type: text/plain; name=a.txt\nContent-Disposition: attachment; filename=a.txt\nContent-Transfer-Encoding: base64\n\naGVsbG8K\n--b--";
    arrives(&server, &letter("1", "With a file", file)).await;
    arrives(&server, &letter("2", &format!("A question for {who}"), "\nWhat is the answer?")).await;
    arrives(&server, &letter("3", "Another", "\nOne more.")).await;
    server
}

async fn walks(command: Command, who: &str, base: &str, title: &str) {
    let desk = Desk::new();
    let server = with_mail(&desk, who).await;
    let said = run(command, &server, base).await;
    table::agrees(title, &Walked::read(&said));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resend_for_node_calls_every_method() {
    walks(node("resend.cjs"), "node", "/compat/resend", "resend 6.37.0 (npm)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resend_for_python_calls_every_method() {
    walks(python("resend_sdk.py"), "python", "/compat/resend", "resend 2.50.0 (PyPI)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usesend_for_node_calls_every_method() {
    walks(node("usesend.cjs"), "node", "/compat/usesend", "usesend-js 1.6.3 (npm)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usesend_for_python_calls_every_method() {
    walks(python("usesend_sdk.py"), "python", "/compat/usesend", "usesend 0.2.10 (PyPI)").await;
}
