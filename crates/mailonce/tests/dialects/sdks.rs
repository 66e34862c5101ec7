//! Runs the scripts, one for each official package.

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
    binary::{CliFixture, SpawnedServer},
    packages, table,
};

const NPM_PACKAGES: [&str; 2] = ["resend@6.37.0", "usesend-js@1.6.3"];
const PYPI_PACKAGES: [&str; 3] = ["resend==2.50.0", "usesend==0.2.10", "httpx==0.28.1"];

/// What a script reports about its SDK.
pub(crate) struct SdkCoverage {
    /// Every method that the package has.
    pub(crate) methods: BTreeSet<String>,
    /// Methods that returned the expected result.
    pub(crate) worked: BTreeSet<String>,
    /// The other methods, with the error that they returned.
    pub(crate) refused: BTreeMap<String, String>,
}

impl SdkCoverage {
    pub(crate) fn parse(report: &Value) -> Self {
        let string_set = |value: &Value| {
            value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
        };
        let pair = |(name, answer): (&String, &Value)| (name.clone(), answer.as_str().unwrap().to_owned());
        Self {
            methods: string_set(&report["methods"]),
            worked: string_set(&report["worked"]),
            refused: report["refused"].as_object().unwrap().iter().map(pair).collect(),
        }
    }
}

/// The path of a test script.
pub(crate) fn script_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dialects/scripts").join(name)
}

pub(crate) fn node_script(name: &str) -> Command {
    let mut command = Command::new("node");
    let home = packages::install_npm("dialects-npm", &NPM_PACKAGES);
    command.arg(script_path(name)).env("NODE_PATH", home.join("node_modules")).env("WALK", script_path("walk.cjs"));
    command
}

pub(crate) fn python_script(name: &str) -> Command {
    let mut command = Command::new(packages::install_python("dialects-pypi", &PYPI_PACKAGES));
    command.arg(script_path(name)).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Runs a script against a server and returns the JSON of its last output line.
pub(crate) async fn run_script(mut command: Command, server: &SpawnedServer, base: &str) -> Value {
    let (url, key) = (format!("{}{base}", server.url), server.api_key.clone());
    let running = move || command.env("URL", url).env("KEY", key).stdin(Stdio::null()).output();
    let output = tokio::task::spawn_blocking(running).await.unwrap().expect("node or python is needed for this test");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(stdout.lines().last().unwrap()).unwrap()
}

/// Delivers a mail by SMTP to the inbox of `dev`.
async fn receive_mail(server: &SpawnedServer, raw: &str) {
    let at = server.startup_banner.split("by SMTP at ").nth(1).unwrap().lines().next().unwrap().trim();
    let mut stream = TcpStream::connect(at).await.unwrap();
    let data = format!("{}\r\n.\r\nQUIT\r\n", raw.replace('\n', "\r\n"));
    for line in [
        "HELO out.example.org\r\n",
        "MAIL FROM:<bob@example.org>\r\n",
        "RCPT TO:<agent@mailonce.test>\r\n",
        "DATA\r\n",
        &data,
    ] {
        let mut buffer = [0; 1_024];
        let count = stream.read(&mut buffer).await.unwrap();
        let reply = String::from_utf8_lossy(&buffer[..count]).into_owned();
        assert!(reply.starts_with('2') || reply.starts_with('3'), "{reply}");
        stream.write_all(line.as_bytes()).await.unwrap();
    }
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("250") || rest.contains("354"), "{rest}");
}

fn raw_mail(id: &str, subject: &str, rest: &str) -> String {
    format!(
        "From: Bob <bob@example.org>\nTo: agent@mailonce.test\nSubject: {subject}\nMessage-ID: <{id}@example.org>\nDate: Sun, 15 Nov 2026 10:00:00 +0000\n{rest}"
    )
}

/// Starts a server with some mail in its inbox.
pub(crate) async fn start_server_with_mail(cli: &CliFixture, who: &str) -> SpawnedServer {
    let server = cli.start_dev(&[("MAILONCE_API_KEY", "dialects-test-key-0001")]).await;
    let file = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain\n\nSee the file.\n--b\nContent-Type: text/plain; name=a.txt\nContent-Disposition: attachment; filename=a.txt\nContent-Transfer-Encoding: base64\n\naGVsbG8K\n--b--";
    receive_mail(&server, &raw_mail("1", "With a file", file)).await;
    receive_mail(&server, &raw_mail("2", &format!("A question for {who}"), "\nWhat is the answer?")).await;
    receive_mail(&server, &raw_mail("3", "Another", "\nOne more.")).await;
    server
}

async fn sdk_coverage(command: Command, who: &str, base: &str) -> SdkCoverage {
    let cli = CliFixture::new();
    let server = start_server_with_mail(&cli, who).await;
    SdkCoverage::parse(&run_script(command, &server, base).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resend_for_node_calls_every_method() {
    let coverage = sdk_coverage(node_script("resend.cjs"), "node", "/compat/resend").await;
    table::check_methods_page("resend 6.37.0", &coverage);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resend_for_python_calls_every_method() {
    let coverage = sdk_coverage(python_script("resend_sdk.py"), "python", "/compat/resend").await;
    table::check_table("resend 2.50.0 (PyPI)", &coverage);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usesend_for_node_calls_every_method() {
    let coverage = sdk_coverage(node_script("usesend.cjs"), "node", "/compat/usesend").await;
    table::check_methods_page("usesend-js 1.6.3", &coverage);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usesend_for_python_calls_every_method() {
    let coverage = sdk_coverage(python_script("usesend_sdk.py"), "python", "/compat/usesend").await;
    table::check_table("usesend 0.2.10 (PyPI)", &coverage);
}
