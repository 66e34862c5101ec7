//! `mailonce once`: the real binary against a real server, with many shells, kills and signals.

use serde_json::{Value, json};
use std::{path::Path, time::Duration};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    process::Child,
    task::JoinHandle,
};

use crate::fixtures::{
    binary::{CliFixture, CommandOutput, SpawnedServer},
    database::TempDatabase,
};

/// How long a condition may take before the test has failed.
const DEADLINE: Duration = Duration::from_secs(30);

fn args<'a>(key: &'a str, flags: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [&["once", "--key", key], flags, &["--", "/bin/sh", "-c", script]].concat()
}

async fn once(cli: &CliFixture, key: &str, flags: &[&str], script: &str) -> CommandOutput {
    cli.run(&args(key, flags, script)).await
}

fn spawn(cli: &CliFixture, key: &str, flags: &[&str], script: &str) -> Child {
    cli.command(&args(key, flags, script)).spawn().unwrap()
}

async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Whether a process runs. A zombie does not.
fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

#[tokio::test]
async fn of_many_shells_one_runs_the_command_and_all_get_its_output() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let script = "echo ran >> runs; sleep 0.3; echo hello; echo oops >&2; exit 3";
    let running: Vec<Child> = (0..24).map(|_| spawn(&cli, "nightly", &["--wait"], script)).collect();
    for child in running {
        let output = child.wait_with_output().await.unwrap();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (b"hello\n".as_slice(), b"oops\n".as_slice()));
    }
    assert_eq!(lines(&cli.path().join("runs")), ["ran"], "the command ran more than once");
    let later = once(&cli, "nightly", &[], script).await.expect_exit(3);
    assert_eq!((later.stdout.as_str(), later.stderr.as_str()), ("hello\n", "oops\n"));
    assert_eq!(lines(&cli.path().join("runs")).len(), 1);
    drop(server);
}

/// Finds what the command did under the key that it passed on.
const LOOK_UP: &str = "grep -qxF \"$MAILONCE_DOWNSTREAM_KEY\" effects";

#[tokio::test]
async fn a_run_that_is_killed_half_way_is_unknown_until_a_look_up_settles_it() {
    let cli = CliFixture::new();
    let _server = cli.start_dev(&[]).await;
    // The shell, a child in the background and one that the shell waits for.
    let script = "echo $$ >> pids; sleep 600 & echo $! >> pids; echo ran >> runs; echo $MAILONCE_DOWNSTREAM_KEY >> effects; sh -c 'echo $$ >> pids; exec sleep 600'; echo late >> runs";
    let lease = ["--lease", "1"];
    let mut first = spawn(&cli, "k", &lease, script);
    let pid_file = cli.path().join("pids");
    wait_until("the command starts", || lines(&pid_file).len() == 3).await;
    // Longer than the lease: it is renewed.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    once(&cli, "k", &lease, script).await.expect_exit(121);

    signal(&first, rustix::process::Signal::KILL);
    first.wait().await.unwrap();
    let is_any_running = || lines(&pid_file).iter().any(|pid| is_running(pid));
    wait_until("the command and its children end with their parent", || !is_any_running()).await;
    let mut code = 121;
    for _ in 0..200 {
        code = once(&cli, "k", &lease, script).await.exit_code;
        if code != 121 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(code, 120, "it is unknown, and nobody runs it again");
    once(&cli, "k", &["--lease", "1", "--verify", "exit 1"], script).await.expect_exit(120);
    once(&cli, "k", &["--lease", "1", "--verify", LOOK_UP], script).await.expect_exit(0);
    once(&cli, "k", &lease, script).await.expect_exit(0);
    assert_eq!(lines(&cli.path().join("runs")), ["ran"]);
}

#[tokio::test]
async fn a_caller_that_ignores_its_children_still_gets_the_exit_code() {
    let cli = CliFixture::new();
    let _server = cli.start_dev(&[]).await;
    let shell = |key: &str| {
        let script = format!("trap '' CHLD; exec \"$0\" once --key {key} -- /bin/sh -c 'echo ran >> runs; exit 3'");
        let once = cli.command(&[]);
        let mut shell = tokio::process::Command::new("/bin/bash");
        shell.current_dir(cli.path()).arg("-c").arg(script).arg(once.as_std().get_program());
        shell
    };
    for _ in 0..2 {
        assert_eq!(shell("k").status().await.unwrap().code(), Some(3));
    }
    assert_eq!(lines(&cli.path().join("runs")), ["ran"]);
}

#[tokio::test]
async fn a_command_that_cannot_be_started_leaves_the_claim_free() {
    use std::os::unix::fs::PermissionsExt as _;
    let cli = CliFixture::new();
    let _server = cli.start_dev(&[]).await;
    let script = cli.path().join("report.sh");
    let write = |text: &str| {
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let run = ["once", "--key", "k", "--", script.to_str().unwrap()];
    write("#!/no/such/interpreter\n");
    cli.run(&run).await.expect_exit(127);
    // Without a folder for temporary files, as in a container with a read-only root.
    cli.run_with_env(&run, &[("TMPDIR", "/no/such/folder")]).await.expect_exit(127);
    write("#!/bin/sh\necho done\n");
    assert_eq!(cli.run(&run).await.expect_exit(0).stdout, "done\n");
}

#[tokio::test]
async fn a_slow_reader_gets_all_of_the_output() {
    let cli = CliFixture::new();
    let _server = cli.start_dev(&[]).await;
    let command = cli.command(&args("k", &[], "head -c 300000 /dev/zero"));
    let mut shell = tokio::process::Command::new("/bin/sh");
    let (program, args) = (command.as_std().get_program(), command.as_std().get_args());
    shell.current_dir(cli.path()).args(["-c", "\"$@\" | (sleep 5; wc -c)", "sh"]).arg(program).args(args);
    let output = shell.output().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "300000");
}

#[tokio::test]
async fn exit_codes_say_what_happened() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let runs = cli.path().join("runs");
    // 75 asks for another try, everything else is final.
    let script = "echo ran >> runs; exit 75";
    for count in 1..=2 {
        once(&cli, "retry", &["--retry-exit", "1,75"], script).await.expect_exit(75);
        assert_eq!(lines(&runs).len(), count);
    }
    once(&cli, "retry", &[], script).await.expect_exit(75);
    once(&cli, "retry", &[], script).await.expect_exit(75);
    assert_eq!(lines(&runs).len(), 3, "completed with 75");
    once(&cli, "retry", &[], "another command").await.expect_exit(122);
    once(&cli, "retry", &["--fingerprint", "another"], script).await.expect_exit(122);

    cli.run(&["once", "--key", "k"]).await.expect_exit(124);
    cli.run(&["once", "--type", "t", "--", "/bin/true"]).await.expect_exit(124);
    once(&cli, "k", &["--period", "day"], "true").await.expect_exit(124);
    once(&cli, "k", &["--ttl", "forever"], "true").await.expect_exit(124);
    cli.run(&["once", "--key", "k", "--", "/no/such/command"]).await.expect_exit(127);
    cli.run(&["once", "--key", "k", "--", "no-such-command"]).await.expect_exit(127);
    once(&cli, "k", &[], "exit 0").await.expect_exit(0);

    let stop = cli.run(&["stop", "--team"]).await.expect_exit(0).json()["id"].as_str().unwrap().to_owned();
    once(&cli, "stopped", &[], "echo ran >> runs").await.expect_exit(123);
    cli.run(&["resume", &stop]).await.expect_exit(0);
    assert_eq!(lines(&runs).len(), 3);
    server.kill().await;
    once(&cli, "k2", &[], "echo ran >> runs").await.expect_exit(125);
    assert_eq!(lines(&runs).len(), 3, "nothing runs without an answer");
}

#[tokio::test]
async fn the_command_gets_the_signals_that_ask_it_to_end() {
    use rustix::process::Signal;
    let cli = CliFixture::new();
    let _server = cli.start_dev(&[]).await;
    let signals = [
        ("TERM", Signal::TERM),
        ("INT", Signal::INT),
        ("HUP", Signal::HUP),
        ("QUIT", Signal::QUIT),
        ("USR1", Signal::USR1),
    ];
    let running = signals.map(|(name, number)| {
        let script = format!("trap 'echo {name}; exit 42' {name}; echo > {name}; while :; do sleep 0.05; done");
        // A shell cannot trap a signal that its parent ignores, and the runner of this test may be in the background.
        let command = ["/usr/bin/env", "--default-signal", "/bin/sh", "-c", &script];
        (name, number, cli.command(&[&["once", "--key", name, "--"], &command[..]].concat()).spawn().unwrap())
    });
    for (name, number, child) in running {
        wait_until("the command starts", || cli.path().join(name).exists()).await;
        signal(&child, number);
        let output = child.wait_with_output().await.unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!((output.status.code(), printed), (Some(42), format!("{name}\n")));
    }
}

#[tokio::test]
async fn the_command_gets_its_downstream_key_and_periods_are_the_servers() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let seen = once(&cli, "env", &[], "echo $MAILONCE_DOWNSTREAM_KEY $MAILONCE_MAY_REPEAT").await.expect_exit(0);
    assert!(seen.stdout.starts_with("cl_") && seen.stdout.ends_with(" 0\n"), "{}", seen.stdout);
    let killed = once(&cli, "killed", &[], "kill -9 $$").await;
    assert_eq!((killed.exit_code, once(&cli, "killed", &[], "kill -9 $$").await.exit_code), (137, 137));

    let daily =
        ["once", "--type", "report", "--entity", "c17", "--period", "day", "--tz", "UTC", "--", "/bin/sh", "-c"];
    let run = [&daily[..], &["echo ran >> runs; printf '\\377'"]].concat();
    for _ in 0..2 {
        let output = cli.command(&run).output().await.unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"\xff".as_slice()));
    }
    assert_eq!(lines(&cli.path().join("runs")).len(), 1);
    let listed = cli.run(&["claims", "list", "--limit", "1"]).await.expect_exit(0).json();
    let period = listed["data"][0]["intent"]["period"].as_str().unwrap().to_owned();
    assert!(period.len() == 10 && period.starts_with("20"), "{period}");

    let long = once(&cli, "long", &[], "head -c 1500000 /dev/zero | tr '\\0' 'x'").await.expect_exit(0);
    let replay = once(&cli, "long", &[], "head -c 1500000 /dev/zero | tr '\\0' 'x'").await.expect_exit(0);
    assert_eq!((long.stdout.len(), replay.stdout.len()), (1_500_000, 1_000_000));
    assert!(replay.stderr.contains("the rest was not kept"), "{}", replay.stderr);
    assert_eq!(server.terminate().await.code(), Some(0));
}

/// A server with these answers, one connection each. Returns its URL, and the bodies of the calls once all are answered.
async fn scripted_server(answers: Vec<(&'static str, Value)>) -> (String, JoinHandle<Vec<Value>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let mut bodies = Vec::new();
        for (status, answer) in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            bodies.push(read_call(&mut stream).await.1);
            answer_call(&mut stream, status, &answer).await;
        }
        bodies
    });
    (url, serving)
}

/// The last part of the path, and the body, of the call on this connection.
async fn read_call(stream: &mut TcpStream) -> (String, Value) {
    let mut request = Vec::new();
    loop {
        assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0, "the call is cut off");
        let text = String::from_utf8_lossy(&request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let path = head.split(' ').nth(1).unwrap();
        if let Ok(body) = serde_json::from_str(body) {
            return (path.rsplit('/').next().unwrap().to_owned(), body);
        }
    }
}

async fn answer_call(stream: &mut TcpStream, status: &str, answer: &Value) {
    let (answer, head) = (answer.to_string(), "content-type: application/json\r\nconnection: close");
    let answer = format!("HTTP/1.1 {status}\r\n{head}\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
    stream.write_all(answer.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn a_signal_between_the_claim_and_the_command_gives_the_claim_back() {
    let cli = CliFixture::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let env = [("MAILONCE_URL", url.as_str()), ("MAILONCE_API_KEY", SHARED_KEY)];
    let mut shell = cli.command(&args("k", &[], "echo ran >> runs")).envs(env).spawn().unwrap();
    let (mut acquiring, _) = listener.accept().await.unwrap();
    assert_eq!(read_call(&mut acquiring).await.0, "claims");
    signal(&shell, rustix::process::Signal::TERM);
    let mut printed = BufReader::new(shell.stderr.take().unwrap()).lines();
    let line = printed.next_line().await.unwrap().unwrap();
    assert!(line.contains("signal 15; waiting for the server"), "{line}");

    answer_call(&mut acquiring, "201 Created", &claimed()).await;
    let (mut reporting, _) = listener.accept().await.unwrap();
    let (verb, report) = read_call(&mut reporting).await;
    answer_call(&mut reporting, "200 OK", &json!({})).await;
    assert_eq!((verb.as_str(), &report["token"], &report["retryable"]), ("fail", &json!("ct_1"), &json!(true)));
    assert_eq!(shell.wait().await.unwrap().code(), Some(128 + 15));
    assert_eq!(lines(&cli.path().join("runs")).len(), 0, "it ran");
}

/// The answer to a caller that has the claim, before it has begun.
fn claimed() -> Value {
    json!({ "id": "c1", "state": "claimed", "token": "ct_1", "downstream_key": "cl_1", "fence": 1, "may_repeat": false })
}

#[tokio::test]
async fn the_command_starts_once_the_claim_has_begun() {
    let cli = CliFixture::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let env = [("MAILONCE_URL", url.as_str()), ("MAILONCE_API_KEY", SHARED_KEY)];
    let mut shell = cli.command(&args("k", &[], "echo ran >> runs")).envs(env).spawn().unwrap();
    let (mut acquiring, _) = listener.accept().await.unwrap();
    assert_eq!(read_call(&mut acquiring).await.1["begin"], "later");
    answer_call(&mut acquiring, "201 Created", &claimed()).await;
    // The first answer is lost.
    let (mut cut_off, _) = listener.accept().await.unwrap();
    let first = read_call(&mut cut_off).await;
    drop(cut_off);
    let (mut beginning, _) = listener.accept().await.unwrap();
    let second = read_call(&mut beginning).await;
    assert_eq!(first, ("begin".to_owned(), json!({ "token": "ct_1" })));
    assert_eq!(first, second, "repeated under the same token");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!cli.path().join("runs").exists(), "it ran before the claim had begun");

    answer_call(&mut beginning, "200 OK", &json!({ "id": "c1", "state": "begun" })).await;
    let (mut reporting, _) = listener.accept().await.unwrap();
    assert_eq!(read_call(&mut reporting).await.0, "complete");
    answer_call(&mut reporting, "200 OK", &json!({})).await;
    assert_eq!(shell.wait().await.unwrap().code(), Some(0));
    assert_eq!(lines(&cli.path().join("runs")), ["ran"]);
}

#[tokio::test]
async fn a_claim_that_cannot_begin_runs_nothing() {
    let cli = CliFixture::new();
    for (code, exit, is_given_back) in
        [("stale_token", 121, false), ("claim_ended", 121, false), ("stopped", 123, true)]
    {
        let refusal = json!({ "code": code, "status": 409, "detail": "refused" });
        let given_back = is_given_back.then(|| ("200 OK", json!({})));
        let answers = [("201 Created", claimed()), ("409 Conflict", refusal)].into_iter().chain(given_back);
        let (url, serving) = scripted_server(answers.collect()).await;
        let env = [("MAILONCE_URL", url.as_str()), ("MAILONCE_API_KEY", SHARED_KEY)];
        cli.run_with_env(&args("k", &[], "echo ran >> runs"), &env).await.expect_exit(exit);
        let bodies = serving.await.unwrap();
        assert_eq!(bodies.last().unwrap()["retryable"] == true, is_given_back, "{code}");
    }
    assert!(!cli.path().join("runs").exists(), "it ran");
}

#[tokio::test]
async fn a_run_that_is_killed_before_its_claim_begins_is_run_by_the_next_caller() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", proxy.local_addr().unwrap());
    let env = [("MAILONCE_URL", url.as_str()), ("MAILONCE_API_KEY", server.api_key.as_str())];
    let mut lost = cli.command(&args("k", &["--lease", "3"], "echo ran >> runs")).envs(env).spawn().unwrap();
    let (mut acquiring, _) = proxy.accept().await.unwrap();
    let mut to_server = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).await.unwrap();
    let relaying = tokio::spawn(async move { tokio::io::copy_bidirectional(&mut acquiring, &mut to_server).await });
    let (mut beginning, _) = proxy.accept().await.unwrap();
    assert_eq!(read_call(&mut beginning).await.0, "begin");
    signal(&lost, rustix::process::Signal::KILL);
    lost.wait().await.unwrap();
    relaying.abort();
    once(&cli, "k", &["--lease", "3", "--wait"], "echo ran >> runs").await.expect_exit(0);
    assert_eq!(lines(&cli.path().join("runs")), ["ran"]);
}

#[tokio::test]
async fn a_signal_ends_a_caller_that_waits() {
    let cli = CliFixture::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let env = [("MAILONCE_URL", url.as_str()), ("MAILONCE_API_KEY", SHARED_KEY)];
    let mut shell = cli.command(&args("k", &["--wait"], "echo ran >> runs")).envs(env).spawn().unwrap();
    let busy = json!({ "code": "busy", "status": 409, "id": "c1", "retry_after": 1 });
    let (mut acquiring, _) = listener.accept().await.unwrap();
    read_call(&mut acquiring).await;
    answer_call(&mut acquiring, "409 Conflict", &busy).await;
    signal(&shell, rustix::process::Signal::TERM);
    assert_eq!(shell.wait().await.unwrap().code(), Some(128 + 15));
    assert_eq!(lines(&cli.path().join("runs")).len(), 0, "it ran");
}

#[tokio::test]
async fn a_claim_that_was_given_up_has_an_exit_code_of_its_own() {
    let cli = CliFixture::new();
    for (state, reason) in [("failed", json!("card declined")), ("abandoned", Value::Null)] {
        let ended = json!({ "id": "c1", "state": state, "reason": reason });
        let (url, serving) = scripted_server(vec![("200 OK", ended)]).await;
        let env = [("MAILONCE_URL", url.as_str()), ("MAILONCE_API_KEY", SHARED_KEY)];
        let output = cli.run_with_env(&args("k", &[], "echo ran >> runs"), &env).await.expect_exit(120);
        assert!(output.stderr.contains(&format!("claim c1 is {state}")), "{}", output.stderr);
        serving.await.unwrap();
    }
    assert_eq!(lines(&cli.path().join("runs")).len(), 0, "it ran");
}

#[tokio::test]
async fn a_caller_that_waits_across_a_boundary_keeps_its_period() {
    let cli = CliFixture::new();
    let busy = json!({ "code": "busy", "status": 409, "id": "c1", "retry_after": 1, "period": "2026-11-18" });
    let result = json!({ "exit_code": 3, "stdout": "hello\n", "stderr": "", "encoding": "utf-8", "truncated": false });
    let ended = json!({ "id": "c1", "state": "completed", "result": result });
    let (url, serving) = scripted_server(vec![("409 Conflict", busy), ("200 OK", ended)]).await;
    let run = ["once", "--type", "t", "--entity", "e", "--period", "day", "--grace", "90", "--wait", "--", "/bin/true"];
    let env = [("MAILONCE_URL", url.as_str()), ("MAILONCE_API_KEY", SHARED_KEY)];
    let output = cli.run_with_env(&run, &env).await.expect_exit(3);
    assert_eq!(output.stdout, "hello\n");
    let periods: Vec<Value> = serving.await.unwrap().iter().map(|body| body["intent"]["period"].clone()).collect();
    let computed = json!({ "every": "day", "time_zone": "UTC", "grace_s": 90 });
    assert_eq!(periods, [computed, json!("2026-11-18")], "UTC unless --tz, and never the next day");
}

#[tokio::test]
async fn a_run_that_may_be_a_repeat_is_looked_up_first() {
    let cli = CliFixture::new();
    let _server = cli.start_dev(&[]).await;
    let options =
        |verify: &'static str| ["--lease", "1", "--fingerprint", "f", "--on-unknown", "retry", "--verify", verify];
    let first = "echo $MAILONCE_DOWNSTREAM_KEY >> effects; echo ran >> runs; exec sleep 600";
    let second = "echo $MAILONCE_MAY_REPEAT";
    for key in ["missing", "found"] {
        let mut lost = spawn(&cli, key, &options("exit 3"), first);
        wait_until("the command starts", || !lines(&cli.path().join("runs")).is_empty()).await;
        signal(&lost, rustix::process::Signal::KILL);
        lost.wait().await.unwrap();
        std::fs::remove_file(cli.path().join("runs")).unwrap();
    }
    for key in ["missing", "found"] {
        let list = ["claims", "list", "--key", key];
        let claim = loop {
            let claim = cli.run(&list).await.expect_exit(0).json()["data"][0].clone();
            if claim["state"] == "unknown" {
                break claim;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert!(claim["on_unknown"] == "retry" && claim["retry_at"].is_string(), "{claim}");
        cli.run(&["claims", "resolve", claim["id"].as_str().unwrap(), "--as", "retry"]).await.expect_exit(0);
    }
    // A look-up that says nothing must not leave the run to chance, and gives the claim back.
    once(&cli, "missing", &options("exit 3"), second).await.expect_exit(120);
    assert_eq!(once(&cli, "missing", &options("exit 1"), second).await.expect_exit(0).stdout, "1\n");
    assert_eq!(once(&cli, "found", &options(LOOK_UP), second).await.expect_exit(0).stdout, "");
    assert_eq!(once(&cli, "found", &options("exit 1"), second).await.expect_exit(0).stdout, "", "it is completed");
}

/// Starts `dev` on this address and waits until it serves.
async fn start_at(cli: &CliFixture, address: &str) -> SpawnedServer {
    let mut server = SpawnedServer::spawn(&mut cli.command(&["dev", "--http", address]));
    server.read_stderr_until("Ctrl-C stops it.").await;
    server
}

#[tokio::test]
async fn kills_of_the_server_never_make_a_command_run_twice() {
    let cli = CliFixture::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let mut server = start_at(&cli, &address).await;
    let keys: Vec<String> = (0..10).map(|n| format!("job-{n}")).collect();
    let scripts: Vec<String> =
        keys.iter().map(|key| format!("echo {key} >> runs; sleep 0.2; echo {key} done")).collect();
    let mut running = Vec::new();
    for round in 0..4 {
        for (key, script) in keys.iter().zip(&scripts) {
            running.push((key, spawn(&cli, key, &["--wait"], script)));
        }
        tokio::time::sleep(Duration::from_millis(100 + 70 * round)).await;
        server.kill().await;
        server = start_at(&cli, &address).await;
    }
    for (key, child) in running {
        let output = child.wait_with_output().await.unwrap();
        assert_eq!(output.status.code(), Some(0), "{key}: {output:?}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{key} done\n"));
    }
    let mut ran = lines(&cli.path().join("runs"));
    ran.sort_unstable();
    assert_eq!(ran, keys, "each command ran once");
    let claims = cli.run(&["claims", "list", "--state", "completed"]).await.expect_exit(0).json();
    assert_eq!(claims["data"].as_array().unwrap().len(), keys.len());
}

/// An address that nothing listens on.
fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// A node of two over one database, which keeps its address when it is killed and started again.
struct Node {
    address: String,
    server: Option<SpawnedServer>,
}

impl Node {
    async fn start(cli: &CliFixture, address: String, database: &str) -> Self {
        let data = cli.path().join(&address);
        let args = ["dev", "--http", &address, "--store", database, "--data", data.to_str().unwrap()];
        let mut server = SpawnedServer::spawn(cli.command(&args).env("MAILONCE_API_KEY", SHARED_KEY));
        server.read_stderr_until("Ctrl-C stops it.").await;
        Self { address, server: Some(server) }
    }

    async fn kill_and_restart(self, cli: &CliFixture, database: &str) -> Self {
        if let Some(server) = self.server {
            server.kill().await;
        }
        Self::start(cli, self.address, database).await
    }
}

/// The label of the shell that runs the command.
async fn runner_label(cli: &CliFixture, node: &Node, key: &str) -> String {
    let url = format!("http://{}", node.address);
    let env = [("MAILONCE_URL", url.as_str()), ("MAILONCE_API_KEY", SHARED_KEY)];
    let claims = cli.run_with_env(&["claims", "list", "--key", key], &env).await.expect_exit(0).json();
    claims["data"][0]["label"].as_str().unwrap_or_default().to_owned()
}

/// Whether a shell has this label, which ends with the number of its process.
fn is_labelled(shell: &Child, label: &str) -> bool {
    shell.id().is_some_and(|id| label.ends_with(&format!(" {id}")))
}

const SHARED_KEY: &str = "a-key-that-both-nodes-know-0123456789";
/// Shells in the short form; `MAILONCE_ONCE_SHELLS` sets another number.
const SHELLS: usize = 30;

#[tokio::test]
async fn shells_on_two_nodes_run_the_command_once_while_the_nodes_are_killed() {
    let (cli, database) = (CliFixture::new(), TempDatabase::create().await);
    let shells = std::env::var("MAILONCE_ONCE_SHELLS").ok().and_then(|text| text.parse().ok()).unwrap_or(SHELLS);
    let mut nodes = [
        Node::start(&cli, free_address(), &database.url).await,
        Node::start(&cli, free_address(), &database.url).await,
    ];
    let script = "echo ran >> runs; sleep 2; echo hello";
    let mut running: Vec<Child> = (0..shells)
        .map(|number| {
            let url = format!("http://{}", nodes[number % 2].address);
            let env = [("MAILONCE_URL", url.as_str()), ("MAILONCE_API_KEY", SHARED_KEY)];
            cli.command(&args("nightly", &["--wait"], script)).envs(env).spawn().unwrap()
        })
        .collect();
    wait_until("one shell runs the command", || !lines(&cli.path().join("runs")).is_empty()).await;
    let runner = runner_label(&cli, &nodes[0], "nightly").await;
    for round in 0..2 {
        // A caller that is killed while it waits changes nothing.
        let waits = |child: &Child| !is_labelled(child, &runner);
        let waiting = running.iter().position(waits).unwrap();
        running.swap_remove(waiting).kill().await.unwrap();
        let [first, second] = nodes;
        nodes = if round == 0 {
            [first.kill_and_restart(&cli, &database.url).await, second]
        } else {
            [first, second.kill_and_restart(&cli, &database.url).await]
        };
    }
    for child in running {
        let output = child.wait_with_output().await.unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"hello\n".as_slice()), "{output:?}");
    }
    assert_eq!(lines(&cli.path().join("runs")), ["ran"], "the command ran more than once");
}

#[tokio::test]
async fn the_shell_that_runs_the_command_is_killed_and_another_node_settles_what_it_did() {
    let (cli, database) = (CliFixture::new(), TempDatabase::create().await);
    let nodes = [
        Node::start(&cli, free_address(), &database.url).await,
        Node::start(&cli, free_address(), &database.url).await,
    ];
    let script = "echo $MAILONCE_DOWNSTREAM_KEY >> effects; exec sleep 600";
    let shell = |node: usize, flags: &[&str]| {
        let mut shell = cli.command(&args("nightly", flags, script));
        shell.env("MAILONCE_URL", format!("http://{}", nodes[node].address)).env("MAILONCE_API_KEY", SHARED_KEY);
        shell
    };
    let mut running: Vec<Child> =
        (0..6).map(|number| shell(number % 2, &["--lease", "1", "--wait"]).spawn().unwrap()).collect();
    wait_until("one shell runs the command", || !lines(&cli.path().join("effects")).is_empty()).await;
    let label = runner_label(&cli, &nodes[0], "nightly").await;
    let runner = running.iter().position(|shell| is_labelled(shell, &label)).unwrap();
    running.remove(runner).kill().await.unwrap();
    for waiting in running {
        let output = waiting.wait_with_output().await.unwrap();
        assert_eq!(output.status.code(), Some(120), "nobody knows whether it was done: {output:?}");
    }
    let other = 1 - runner % 2;
    let settled = shell(other, &["--lease", "1", "--verify", LOOK_UP]).status().await.unwrap();
    assert_eq!(settled.code(), Some(0));
    assert_eq!(shell(runner % 2, &["--lease", "1"]).status().await.unwrap().code(), Some(0));
    assert_eq!(lines(&cli.path().join("effects")).len(), 1, "the command ran more than once");
}
