//! Starts that must be refused: a data directory in use, and a ledger with a newer schema.

use crate::fixtures::{TestDirectory, binary, child_processes};
use mailonce_sim::harness::generated_send::{GeneratedSend, SendKind};
use mailonce_sim::harness::postgres::run_for_output;
use mailonce_sim::harness::recorded_load::{SharedHistory, send_again};
use mailonce_sim::harness::send_history::CallOutcome;
use mailonce_sim::harness::server::{ServerSetup, free_address};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// How long a refusal may take.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(10);
/// A schema version newer than any binary.
const FUTURE_SCHEMA: i64 = 999;

/// Runs a start that must be refused. Returns its exit status and log.
fn start_refused(setup: &ServerSetup<'_>, verb: &str, dir: &TestDirectory) -> (ExitStatus, String) {
    let log = dir.root().join(format!("refused-{verb}.log"));
    let command = setup.command(verb, free_address().unwrap());
    let mut running = child_processes().spawn(command, &log).unwrap();
    let status = running.wait_for_exit(REFUSAL_TIMEOUT).unwrap();
    let output = running.read_log();
    (status.unwrap_or_else(|| panic!("{verb} was not refused: {output}")), output)
}

fn setup<'a>(binary: &'a Path, data: &'a Path) -> ServerSetup<'a> {
    ServerSetup { binary, data, store: None, paused: false, env: &[] }
}

#[test]
fn a_second_process_on_one_data_directory_is_refused_and_the_first_continues() {
    let (dir, binary) = (TestDirectory::new(), binary());
    let data = dir.data();
    let setup = setup(&binary, &data);
    let first = setup.start(child_processes()).unwrap();
    let history = SharedHistory::default();
    let send = |n| GeneratedSend { cycle: 0, n, kind: SendKind::Single };
    send_again(first.at, &history, &[send(0)]).unwrap();
    for verb in ["dev", "serve"] {
        let (status, output) = start_refused(&setup, verb, &dir);
        assert!(status.code().is_some_and(|code| code != 0), "{verb} ended with {status}");
        assert!(output.contains(&*data.to_string_lossy()), "{verb} does not name the directory: {output}");
    }
    send_again(first.at, &history, &[send(0), send(1)]).unwrap();
    let ends: Vec<_> = history.lock().calls.iter().map(|call| call.outcome.clone()).collect();
    let [
        CallOutcome::Ok { first: true, ids: made },
        CallOutcome::Ok { first: false, ids: again },
        CallOutcome::Ok { first: true, .. },
    ] = &ends[..]
    else {
        panic!("the first server does not continue: {ends:?}");
    };
    assert_eq!(made, again);
    assert!(first.terminate().unwrap().success());
}

#[test]
fn a_newer_schema_is_refused_with_both_numbers() {
    let (dir, binary) = (TestDirectory::new(), binary());
    let data = dir.data();
    let setup = setup(&binary, &data);
    let ended = setup.start(child_processes()).unwrap().terminate().unwrap();
    assert!(ended.success(), "after SIGTERM right after the start, the server exited with {ended}");
    let file = data.join("ledger.db");
    let known: i64 = run_sql(&file, "PRAGMA user_version").trim().parse().unwrap();
    assert!((1..FUTURE_SCHEMA).contains(&known));
    run_sql(&file, &format!("PRAGMA user_version={FUTURE_SCHEMA}"));
    for verb in ["dev", "serve"] {
        let (status, output) = start_refused(&setup, verb, &dir);
        assert!(status.code().is_some_and(|code| code != 0), "{verb} ended with {status}");
        let numbers: Vec<&str> = output.split(|letter: char| !letter.is_ascii_digit()).collect();
        for number in [FUTURE_SCHEMA, known] {
            assert!(numbers.contains(&number.to_string().as_str()), "{verb} does not say {number}: {output}");
        }
    }
    assert_eq!(run_sql(&file, "PRAGMA user_version").trim(), FUTURE_SCHEMA.to_string());
    // The refused start changed nothing: with the right version the ledger works again.
    run_sql(&file, &format!("PRAGMA user_version={known}"));
    assert!(setup.start(child_processes()).unwrap().terminate().unwrap().success());
}

/// Runs a statement on a closed database file and returns its output.
fn run_sql(file: &Path, statement: &str) -> String {
    let mut command = Command::new("sqlite3");
    command.arg(file).arg(statement);
    run_for_output(command).unwrap_or_else(|_no_such_program| {
        let mut command = Command::new("python3");
        let script = "import sqlite3, sys\nconn = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
            print(*[row[0] for row in conn.execute(sys.argv[2])])";
        command.args(["-c", script]).arg(file).arg(statement);
        run_for_output(command).unwrap_or_else(|why| panic!("neither sqlite3 nor python3 can be used: {why:#}"))
    })
}
