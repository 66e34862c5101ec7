//! Starts, calls and stops the real binary.

use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStderr, Command},
};

const TIMEOUT: Duration = Duration::from_mins(1);

/// A temporary directory in which one test runs the binary.
pub(crate) struct CliFixture {
    temp_dir: TempDir,
}

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

impl CliFixture {
    pub(crate) fn new() -> Self {
        Self { temp_dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.temp_dir.path()
    }

    /// The default data directory of commands that run in this fixture.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.path().join("mailonce-data")
    }

    /// The binary, in this directory, with an empty environment.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mailonce"));
        command.args(args).current_dir(self.path()).env_clear().kill_on_drop(true);
        command.env("MAILONCE_SMTP_LISTEN", "127.0.0.1:0");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) async fn run(&self, args: &[&str]) -> CommandOutput {
        self.run_with_env(args, &[]).await
    }

    pub(crate) async fn run_with_env(&self, args: &[&str], env: &[(&str, &str)]) -> CommandOutput {
        let running = self.command(args).envs(env.iter().copied()).output();
        let output = tokio::time::timeout(TIMEOUT, running).await.expect("the command does not exit").unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        CommandOutput {
            exit_code: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Starts `dev` on a free port and waits for its startup banner.
    pub(crate) async fn start_dev(&self, env: &[(&str, &str)]) -> SpawnedServer {
        let mut server =
            SpawnedServer::spawn(self.command(&["dev", "--http", "127.0.0.1:0"]).envs(env.iter().copied()));
        let banner = server.read_stderr_until("Ctrl-C stops it.").await;
        let value = |name: &str| {
            let line = banner.lines().find_map(|line| line.trim().strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name} in {banner}")).trim().to_owned()
        };
        (server.url, server.api_key) = (value("API "), value("API key "));
        server.startup_banner = banner;
        server
    }
}

/// A server that runs until it is stopped or dropped.
pub(crate) struct SpawnedServer {
    child: Child,
    stderr_lines: Lines<BufReader<ChildStderr>>,
    pub(crate) startup_banner: String,
    pub(crate) url: String,
    pub(crate) api_key: String,
}

impl SpawnedServer {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stderr_lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, stderr_lines, startup_banner: String::new(), url: String::new(), api_key: String::new() }
    }

    /// Reads stderr up to a line that contains `text`, and returns what was read.
    pub(crate) async fn read_stderr_until(&mut self, wanted: &str) -> String {
        let mut text = String::new();
        let reading = async {
            while let Some(line) = self.stderr_lines.next_line().await.unwrap() {
                text.push_str(&line);
                text.push('\n');
                if line.contains(wanted) {
                    return;
                }
            }
            panic!("the server exited without printing `{wanted}`: {text}");
        };
        tokio::time::timeout(TIMEOUT, reading).await.expect("the expected line was not printed in time");
        text
    }

    /// Sends a signal to the server process.
    pub(crate) fn send_signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_raw(self.child.id().unwrap().cast_signed()).unwrap();
        rustix::process::kill_process(id, signal).unwrap();
    }

    /// Sends SIGTERM and waits for the process to exit.
    pub(crate) async fn terminate(mut self) -> ExitStatus {
        self.send_signal(rustix::process::Signal::TERM);
        tokio::time::timeout(TIMEOUT, self.child.wait()).await.expect("the server does not stop").unwrap()
    }

    /// Kills the process with SIGKILL, as a power failure would.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// The `/proc` directory of the process.
    pub(crate) fn proc_dir(&self) -> PathBuf {
        format!("/proc/{}", self.child.id().unwrap()).into()
    }

    /// Resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> usize {
        let statm = std::fs::read_to_string(self.proc_dir().join("statm")).unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
    }

    /// Makes one call over a plain socket. Returns the status and the JSON of the response.
    pub(crate) async fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
        let (status, text) = self.call_text(method, path, headers, body).await;
        (status, serde_json::from_str(&text).unwrap_or_default())
    }

    /// Makes one call over a plain socket. Returns the status and the text of the response.
    pub(crate) async fn call_text(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, String) {
        let address = self.url.strip_prefix("http://").unwrap();
        let headers: String = headers.iter().flat_map(|(name, value)| [*name, ": ", *value, "\r\n"]).collect();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        );
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        tokio::time::timeout(TIMEOUT, stream.read_to_string(&mut response)).await.expect("no answer").unwrap();
        let status = response.split(' ').nth(1).unwrap().parse().unwrap();
        (status, response.split_once("\r\n\r\n").unwrap().1.to_owned())
    }
}

/// The arguments of a `send` with an idempotency key.
pub(crate) fn send_args<'a>(key: &'a str, text: &'a str) -> Vec<&'a str> {
    vec![
        "send",
        "--from",
        "agent@mailonce.test",
        "--to",
        "ada@example.com",
        "--subject",
        "Hi",
        "--text",
        text,
        "--key",
        key,
    ]
}
