//! Stops in a storm of sends, with kills. The ledger is judge: triggers record in which order markers and the stop were
//! written, and after the stop there is no further marker, of any node. After the stop has ended, each mail arrives once.
//! In one of the two scenarios the node that is asked for the stop is killed before it may have answered; the call is
//! repeated under its idempotency key.

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use mailonce_sim::{
    harness::{
        child_processes::sleep,
        http,
        postgres_cluster::PostgresCluster,
        rng::{SeededRng, env_number_or, seed_from_env},
        server::ServerProcess,
        server_fixture::{self, OutboundTarget, ServerFixture, sample_mail},
        summary_writer::print_line,
    },
    sink::smtp::{self, SmtpSink},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    process::Command,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{
    fixtures::{binary, child_processes, summary_writer, temp_dir},
    parallel_scenarios::run_scenario,
};

/// Mails in a storm. The long form sends 10,000.
const USUAL_MAILS: u64 = 1_500;
const BATCH_SIZE: usize = 50;
const SENDERS: usize = 4;
/// Records the order of markers and stops in SQLite, where all writes share one thread.
const RECORD_ORDER_SQLITE: &str = "
    CREATE TABLE written (place INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT NOT NULL);
    CREATE TRIGGER written_marker AFTER INSERT ON attempts BEGIN INSERT INTO written (what) VALUES ('marker'); END;
    CREATE TRIGGER written_stop AFTER INSERT ON stops BEGIN INSERT INTO written (what) VALUES ('stop'); END;";
/// The same in PostgreSQL. Deferred triggers run when their transaction commits, while it still holds the lock that makes
/// the stop a barrier. So the places are in the order of the commits.
const RECORD_ORDER_POSTGRES: &str = "
    CREATE TABLE written (place bigint GENERATED ALWAYS AS IDENTITY, what text NOT NULL);
    CREATE FUNCTION record_order() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO mailonce.written (what) VALUES (TG_ARGV[0]); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER written_marker AFTER INSERT ON attempts DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION record_order('marker');
    CREATE CONSTRAINT TRIGGER written_stop AFTER INSERT ON stops DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION record_order('stop');";
/// The latest moment after the call for a stop began at which its node is killed, in milliseconds.
const LATEST_KILL_MS: u64 = 20;
/// How long anything may take on a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_mins(3);

#[test]
fn no_marker_follows_a_stop_on_sqlite() {
    run_scenario("stop::no_marker_follows_a_stop_on_sqlite");
}

#[test]
fn no_marker_follows_a_stop_on_two_nodes() {
    run_scenario("stop::no_marker_follows_a_stop_on_two_nodes");
}

pub(crate) fn run_on_sqlite() {
    run_storm("stops_on_sqlite", None);
}

pub(crate) fn run_on_two_nodes() {
    run_storm("stops_on_two_nodes", Some(PostgresCluster::start().unwrap()));
}

fn run_storm(name: &str, cluster: Option<PostgresCluster>) {
    let seed = seed_from_env();
    let plan = StopPlan::new(seed, if cluster.is_some() { 2 } else { 1 });
    print_line(&format!("{name}: {plan:?}"));
    let storm = StopStorm::new(cluster, plan);
    let found = storm.run().unwrap_or_else(|why| vec![format!("{why:#}")]);
    let mails = storm.sink.mail_count();
    print_line(&format!("{name}: {mails} mails at the sink; {} violations (seed {seed})", found.len()));
    summary_writer().add(seed, &[(name, 1), ("stopped_mails", mails as u64)], &found).unwrap();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// How a storm is stopped. With any seed the two scenarios have different scopes, and one of them kills during the call.
#[derive(Debug)]
struct StopPlan {
    /// The scope, as the API calls it.
    scope: &'static str,
    /// When the asked node is killed, in milliseconds after the call began. `None`: nodes are killed after the answer.
    kill_after_ms: Option<u64>,
}

impl StopPlan {
    fn new(seed: u64, nodes: u64) -> Self {
        let turn = seed % 4;
        let kills_during_call = !(turn + nodes).is_multiple_of(2);
        let delay = || SeededRng::derive(seed, &[nodes]).below(LATEST_KILL_MS + 1);
        Self {
            scope: if (turn / 2 + nodes).is_multiple_of(2) { "team" } else { "installation" },
            kill_after_ms: kills_during_call.then(delay),
        }
    }
}

struct StopStorm {
    /// `None` for SQLite.
    cluster: Option<PostgresCluster>,
    plan: StopPlan,
    sink: SmtpSink,
    _runtime: Runtime,
    root: TempDir,
    binary: PathBuf,
    nodes: Mutex<Vec<Option<ServerProcess>>>,
    mail_count: usize,
    /// Mails that were accepted.
    accepted: AtomicUsize,
}

impl StopStorm {
    fn new(cluster: Option<PostgresCluster>, plan: StopPlan) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let sink = runtime.block_on(SmtpSink::start(smtp::SmtpSinkConfig::default())).unwrap();
        let storm = Self {
            cluster,
            plan,
            sink,
            _runtime: runtime,
            root: temp_dir(),
            binary: binary(),
            nodes: Mutex::default(),
            mail_count: env_number_or("MAILONCE_STOP_MAILS", USUAL_MAILS) as usize,
            accepted: AtomicUsize::new(0),
        };
        let count = if storm.cluster.is_some() { 2 } else { 1 };
        for n in 0..count {
            let node = storm.start_node(n);
            storm.nodes.lock().unwrap_or_else(PoisonError::into_inner).push(Some(node));
        }
        storm
    }

    fn start_node(&self, n: usize) -> ServerProcess {
        let store = self.cluster.as_ref().map(PostgresCluster::url);
        let servers = ServerFixture {
            children: child_processes(),
            binary: &self.binary,
            root: self.root.path(),
            store: store.as_deref(),
            config: OutboundTarget::Relay(self.sink.at.port()).toml(),
        };
        servers.start(&format!("node{n}"), None, false).unwrap()
    }

    /// The address of a node that runs.
    fn address(&self, n: usize) -> Option<SocketAddr> {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes[n % nodes.len()].as_ref().map(|node| node.at)
    }

    /// Kills a node and starts it again.
    fn kill_and_restart(&self, n: usize) -> Result<()> {
        self.kill(n)?;
        self.restart(n);
        Ok(())
    }

    fn kill(&self, n: usize) -> Result<()> {
        let node = self.nodes.lock().unwrap_or_else(PoisonError::into_inner)[n].take();
        node.context("the node does not run")?.kill()
    }

    fn restart(&self, n: usize) {
        let node = self.start_node(n);
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)[n] = Some(node);
    }

    fn run(&self) -> Result<Vec<String>> {
        self.record_order()?;
        std::thread::scope(|scope| {
            let senders: Vec<_> = (0..SENDERS).map(|sender| scope.spawn(move || self.send_share(sender))).collect();
            let found = self.stop_kill_resume();
            for sender in senders {
                sender.join().unwrap_or_else(|_panic| bail!("a sender panicked"))?;
            }
            found
        })
    }

    /// Sends every batch of one sender, each until a node accepts it.
    fn send_share(&self, sender: usize) -> Result<()> {
        let batches = self.mail_count / BATCH_SIZE;
        for batch in (0..batches).filter(|batch| batch % SENDERS == sender) {
            let mails: Vec<Value> = (batch * BATCH_SIZE..(batch + 1) * BATCH_SIZE).map(sample_mail).collect();
            let key = format!("batch-{batch}");
            let mut tries = 0;
            while self.address(batch + tries).is_none_or(|at| server_fixture::send_batch(at, &key, &mails).is_err()) {
                tries += 1;
                ensure!(tries < 600, "no node accepted batch {batch}");
                sleep(Duration::from_millis(100));
            }
            self.accepted.fetch_add(BATCH_SIZE, Ordering::Relaxed);
        }
        Ok(())
    }

    fn stop_kill_resume(&self) -> Result<Vec<String>> {
        let total = self.mail_count / BATCH_SIZE * BATCH_SIZE;
        let held = self.send_held_email()?;
        server_fixture::wait_until("a third of the mails", STEP_TIMEOUT, || {
            self.accepted.load(Ordering::Relaxed) >= total / 3 && self.sink.mail_count() > 0
        })?;
        let id = self.stop()?;
        let last = usize::from(self.cluster.is_some());
        if self.plan.kill_after_ms.is_none() {
            self.kill_and_restart(last)?;
        }
        server_fixture::wait_until("all sends", STEP_TIMEOUT, || self.accepted.load(Ordering::Relaxed) == total)?;
        sleep(Duration::from_secs(2));
        self.kill_and_restart(last)?;
        sleep(Duration::from_secs(2));
        let mut found = Vec::new();
        let late = self.markers_after_the_stop()?;
        if late > 0 {
            found.push(format!("{late} markers were written after the stop"));
        }
        let before_resume = self.query("SELECT count(*) FROM attempts")?;
        if before_resume == 0 || before_resume as usize >= total {
            found.push(format!("the stop came beside {before_resume} of {total} markers and shows nothing"));
        }
        self.resume(&id)?;
        // What was past its marker at a kill may be unknown; it is never sent again.
        let settled = || self.waiting_markers().is_ok_and(|waiting| waiting == 0);
        server_fixture::wait_until("the release", STEP_TIMEOUT, settled)?;
        sleep(Duration::from_secs(1));
        found.extend(self.check_arrivals(total, &held)?);
        Ok(found)
    }

    /// Stops the storm, with a kill of the asked node if the plan says so. Returns the id of the stop once it is answered.
    fn stop(&self) -> Result<String> {
        let at = self.address(0).context("the first node does not run")?;
        let Some(delay) = self.plan.kill_after_ms else { return self.post_stop(at) };
        let first = std::thread::scope(|scope| {
            let call = scope.spawn(|| self.post_stop(at));
            sleep(Duration::from_millis(delay));
            self.kill(0)?;
            call.join().map_err(|_panic| anyhow!("the call for the stop panicked"))
        })?;
        // The other node answers the repeat while the first one is down. With SQLite there is no other.
        let id = if self.cluster.is_some() {
            let id = self.repeat_stop(1)?;
            self.restart(0);
            id
        } else {
            self.restart(0);
            self.repeat_stop(0)?
        };
        if let Ok(first) = first {
            ensure!(first == id, "the stop {first} was answered, and its repeat with {id}");
        }
        Ok(id)
    }

    /// Asks for the stop. A repeat gets the same stop.
    fn post_stop(&self, at: SocketAddr) -> Result<String> {
        let new = json!({ "scope": { (self.plan.scope): true }, "reason": "a storm" });
        let stop = http::post(at, "/v1/stops", Some("the-stop"), &new)?;
        ensure!(matches!(stop.status, 200 | 201), "the stop was answered {}: {}", stop.status, stop.body);
        Ok(stop.body["id"].as_str().context("a stop without an id")?.to_owned())
    }

    /// Asks a node for the stop until it answers.
    fn repeat_stop(&self, n: usize) -> Result<String> {
        let mut last = Err(anyhow!("the stop was not repeated"));
        let answered = server_fixture::wait_until("the answer to the stop", STEP_TIMEOUT, || {
            last = self.address(n).context("the node does not run").and_then(|at| self.post_stop(at));
            last.is_ok()
        });
        answered.and(last)
    }

    /// An email that waits for the approval of a person, because a rule asks for it.
    fn send_held_email(&self) -> Result<String> {
        let at = self.address(0).context("the first node does not run")?;
        let about_invoices = json!({ "field": "subject", "operator": "contains", "value": "Invoice" });
        let rule = json!({ "name": "invoices", "direction": "outbound", "match": { "conditions": [about_invoices] },
                           "actions": [{ "type": "approve" }] });
        let created = http::post(at, "/v1/rules", None, &rule)?;
        ensure!(created.status == 201, "the rule was answered {}: {}", created.status, created.body);
        let mail = json!({ "from": "agent@example.com", "to": "held@example.org", "subject": "Invoice 4821",
                           "text": "Please find the invoice for your order of last week attached." });
        let held = http::post(at, "/v1/emails", Some("invoice"), &mail)?;
        ensure!(held.body["guard"] == "approval", "no approval holds the mail: {}", held.body);
        Ok(held.body["id"].as_str().context("an email without an id")?.to_owned())
    }

    fn resume(&self, id: &str) -> Result<()> {
        let at = self.address(0).context("the first node does not run")?;
        let ended = http::delete(at, &format!("/v1/stops/{id}"))?;
        ensure!(ended.status == 200, "ending the stop was answered {}: {}", ended.status, ended.body);
        Ok(())
    }

    /// Lets the ledger record the order of markers and stops. A marker is the row of an attempt.
    fn record_order(&self) -> Result<()> {
        match &self.cluster {
            Some(cluster) => cluster.psql(&format!("SET search_path = mailonce; {RECORD_ORDER_POSTGRES}")).map(drop),
            None => self.run_sqlite("rw", "db.executescript(sys.argv[2])", RECORD_ORDER_SQLITE).map(drop),
        }
    }

    /// Counts from the commit of the stop, which is not later than its answer.
    fn markers_after_the_stop(&self) -> Result<u64> {
        let stops = self.query("SELECT count(*) FROM written WHERE what = 'stop'")?;
        ensure!(stops == 1, "{stops} stops were recorded");
        self.query(
            "SELECT count(*) FROM written WHERE what = 'marker' AND place > \
             (SELECT place FROM written WHERE what = 'stop')",
        )
    }

    /// The number of handoffs that wait or are being sent.
    fn waiting_markers(&self) -> Result<u64> {
        self.query("SELECT count(*) FROM handoffs WHERE state IN ('queued', 'scheduled', 'leased', 'sending')")
    }

    /// Asks the database itself, not the server.
    fn query(&self, sql: &str) -> Result<u64> {
        let text = match &self.cluster {
            Some(cluster) => cluster.psql(&format!("SET search_path = mailonce; {sql}"))?,
            None => self.run_sqlite("ro", "print(db.execute(sys.argv[2]).fetchone()[0])", sql)?,
        };
        text.trim().parse().with_context(|| format!("{sql}: {text}"))
    }

    /// Runs a line of Python with the ledger as `db` and the SQL as `sys.argv[2]`.
    fn run_sqlite(&self, mode: &str, line: &str, sql: &str) -> Result<String> {
        let script = format!(
            "import sqlite3, sys\n\
             db = sqlite3.connect(f'file:{{sys.argv[1]}}?mode={mode}', uri=True, timeout=60)\n{line}"
        );
        let file = self.root.path().join("node0/ledger.db");
        let output = Command::new("python3").args(["-c", &script]).arg(file).arg(sql).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Each mail arrived once, or not at all while its outcome is unknown. The held one did not arrive.
    fn check_arrivals(&self, total: usize, held: &str) -> Result<Vec<String>> {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        let mut others = 0;
        for mail in self.sink.mails() {
            match server_fixture::mail_number(&mail.recipients[0].0) {
                Some(n) => *counts.entry(n).or_default() += 1,
                None => others += 1,
            }
        }
        let unknown = self.query("SELECT count(*) FROM handoffs WHERE state = 'unknown'")? as usize;
        let missing = (0..total).filter(|n| !counts.contains_key(n)).count();
        let mut found: Vec<String> = counts
            .iter()
            .filter(|(_, count)| **count != 1)
            .map(|(n, c)| format!("mail {n} arrived {c} times"))
            .collect();
        if missing > unknown {
            found.push(format!("{missing} mails did not arrive, and {unknown} are unknown"));
        }
        if others > 0 {
            found.push("the held mail was sent".into());
        }
        let at = self.address(0).context("the first node does not run")?;
        let email = server_fixture::get_email(at, held)?;
        if email["state"] != "held" {
            found.push(format!("the held mail is {}", email["state"]));
        }
        Ok(found)
    }
}
