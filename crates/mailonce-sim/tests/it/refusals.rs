//! Starts that must be refused: a data directory that is taken, and a ledger from the future.

use crate::setting::{Place, binary, children};
use mailonce_sim::rig::drive::{Shared, ask_again};
use mailonce_sim::rig::history::End;
use mailonce_sim::rig::postgres::output;
use mailonce_sim::rig::server::{Setup, free_address};
use mailonce_sim::rig::wish::{Kind, Wish};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// How long a refusal may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// A schema that no binary knows.
const FUTURE: i64 = 999;

/// Runs a start that must be refused: how it ended, and what it said.
fn refused(setup: &Setup<'_>, verb: &str, place: &Place) -> (ExitStatus, String) {
    let log = place.root().join(format!("refused-{verb}.log"));
    let command = setup.command(verb, free_address().unwrap());
    let mut running = children().spawn(command, &log).unwrap();
    let status = running.ended(PATIENCE).unwrap();
    let said = running.log();
    (status.unwrap_or_else(|| panic!("{verb} was not refused: {said}")), said)
}

fn setup<'a>(binary: &'a Path, data: &'a Path) -> Setup<'a> {
    Setup { binary, data, store: None, paused: false, env: &[] }
}

#[test]
fn a_second_process_on_one_data_directory_is_refused_and_the_first_goes_on() {
    let (place, binary) = (Place::new(), binary());
    let data = place.data();
    let setup = setup(&binary, &data);
    let first = setup.start(children()).unwrap();
    let history = Shared::default();
    let wish = |n| Wish { cycle: 0, n, kind: Kind::Single };
    ask_again(first.at, &history, &[wish(0)]).unwrap();
    for verb in ["dev", "serve"] {
        let (status, said) = refused(&setup, verb, &place);
        assert!(status.code().is_some_and(|code| code != 0), "{verb} ended with {status}");
        assert!(said.contains(&*data.to_string_lossy()), "{verb} does not name the directory: {said}");
    }
    ask_again(first.at, &history, &[wish(0), wish(1)]).unwrap();
    let ends: Vec<_> = history.lock().calls.iter().map(|call| call.end.clone()).collect();
    let [End::Ok { first: true, ids: made }, End::Ok { first: false, ids: again }, End::Ok { first: true, .. }] =
        &ends[..]
    else {
        panic!("the first does not go on: {ends:?}");
    };
    assert_eq!(made, again);
    assert!(first.stop().unwrap().success());
}

#[test]
fn a_newer_schema_is_refused_with_both_numbers() {
    let (place, binary) = (Place::new(), binary());
    let data = place.data();
    let setup = setup(&binary, &data);
    let ended = setup.start(children()).unwrap().stop().unwrap();
    assert!(ended.success(), "told to stop as soon as it was ready, it ended with {ended}");
    let file = data.join("ledger.db");
    let known: i64 = sql(&file, "PRAGMA user_version").trim().parse().unwrap();
    assert!((1..FUTURE).contains(&known));
    sql(&file, &format!("PRAGMA user_version={FUTURE}"));
    for verb in ["dev", "serve"] {
        let (status, said) = refused(&setup, verb, &place);
        assert!(status.code().is_some_and(|code| code != 0), "{verb} ended with {status}");
        let numbers: Vec<&str> = said.split(|letter: char| !letter.is_ascii_digit()).collect();
        for number in [FUTURE, known] {
            assert!(numbers.contains(&number.to_string().as_str()), "{verb} does not say {number}: {said}");
        }
    }
    assert_eq!(sql(&file, "PRAGMA user_version").trim(), FUTURE.to_string());
    // Nothing was touched: as soon as the number is right again, so is the ledger.
    sql(&file, &format!("PRAGMA user_version={known}"));
    assert!(setup.start(children()).unwrap().stop().unwrap().success());
}

/// Runs a statement on a file that nobody has open, and gives what it printed.
fn sql(file: &Path, statement: &str) -> String {
    let mut command = Command::new("sqlite3");
    command.arg(file).arg(statement);
    output(command).unwrap_or_else(|_no_such_program| {
        let mut command = Command::new("python3");
        let script = "import sqlite3, sys\nconn = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
            print(*[row[0] for row in conn.execute(sys.argv[2])])";
        command.args(["-c", script]).arg(file).arg(statement);
        output(command).unwrap_or_else(|why| panic!("neither sqlite3 nor python3 can be used: {why:#}"))
    })
}
