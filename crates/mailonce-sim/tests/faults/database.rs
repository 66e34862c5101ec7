//! PostgreSQL crashes, is unreachable, or loses replies, under load. Clients get at worst a 503, acknowledged emails
//! are kept, a retry under the same key is one email, and every mail reaches the sink once.

use anyhow::Result;
use mailonce_sim::{
    harness::{
        api_reader::ApiReader,
        child_processes::sleep,
        generated_send::{GeneratedSend, SendKind},
        http,
        ledger_snapshot::LedgerSnapshot,
        postgres_cluster::PostgresCluster,
        proxy::{FaultyProxy, NetworkFault},
        recorded_load::{RecordedLoad, SharedHistory, poll_until, send_again},
        rng::{SeededRng, env_number_or, seed_from_env},
        send_history::{CallOutcome, classify_send_reply},
        server::{API_KEY, ServerProcess},
        server_fixture::{OutboundTarget, ServerFixture},
        summary_writer::print_line,
    },
    proof,
    sink::smtp::{self, SmtpSink},
};
use std::{collections::BTreeMap, net::SocketAddr, time::Duration};
use tokio::runtime::Runtime;

use crate::fixtures::{self, binary, child_processes, temp_dir};
use crate::parallel_scenarios::run_scenario;

/// How long a fault lasts.
const FAULT_TIME: Duration = Duration::from_millis(500);
/// Load before the fault.
const LOAD_BEFORE_FAULT: Duration = Duration::from_millis(200);
/// How long a server may take until it accepts again.
const RECOVERY_TIMEOUT: Duration = Duration::from_mins(3);
/// How long sending all mails may take on a busy machine.
const DRAIN_TIMEOUT: Duration = Duration::from_mins(5);

/// A database, a network to it, a server, and a sink.
struct DatabaseFaultFixture {
    cluster: PostgresCluster,
    proxy: FaultyProxy,
    server: ServerProcess,
    sink: SmtpSink,
    /// The sink's runtime.
    _runtime: Runtime,
    _root: tempfile::TempDir,
    history: SharedHistory,
    seed: u64,
}

impl DatabaseFaultFixture {
    fn new(seed: u64) -> Self {
        let (cluster, root, binary) = (PostgresCluster::start().unwrap(), temp_dir(), binary());
        let proxy = FaultyProxy::start(cluster.port(), seed).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let sink = runtime.block_on(SmtpSink::start(smtp::SmtpSinkConfig::default())).unwrap();
        let store = cluster.url_at(proxy.at.port());
        let config = OutboundTarget::Relay(sink.at.port()).toml();
        let servers = ServerFixture {
            children: child_processes(),
            binary: &binary,
            root: root.path(),
            store: Some(&store),
            config,
        };
        let server = servers.start("node", None, false).unwrap();
        Self { cluster, proxy, server, sink, _runtime: runtime, _root: root, history: SharedHistory::default(), seed }
    }

    /// Loads the server, injects a fault into its database meanwhile, and waits until the server accepts again.
    fn load_during_fault(
        &mut self,
        cycle: u32,
        window: Duration,
        inject: impl FnOnce(&mut PostgresCluster, &FaultyProxy) -> Result<()>,
    ) {
        let Self { cluster, proxy, .. } = self;
        let load = RecordedLoad { at: self.server.at, seed: self.seed, cycle, window };
        let done = load.run(&self.history, || {
            sleep(LOAD_BEFORE_FAULT);
            let done = inject(cluster, proxy);
            proxy.set_fault(NetworkFault::None);
            done
        });
        done.unwrap_or_else(|why| panic!("seed {}: {why:#}\n{}", self.seed, self.server.read_log()));
        self.wait_for_recovery(cycle);
    }

    fn wait_for_recovery(&self, cycle: u32) {
        let mail = serde_json::json!({"from": "a@example.com", "to": "probe@example.org", "subject": "?", "text": "?"});
        let key = format!("probe-{cycle}");
        let accepts = poll_until(RECOVERY_TIMEOUT, || {
            Ok(http::post(self.server.at, "/v1/emails", Some(&key), &mail).is_ok_and(|reply| reply.status < 300))
        });
        assert!(
            accepts.unwrap(),
            "no accept {} s after the storm: {}",
            RECOVERY_TIMEOUT.as_secs(),
            self.server.read_log()
        );
    }

    /// Retries everything, checks the ledger, and counts arrivals.
    fn check(&self) -> Vec<String> {
        let at = self.server.at;
        for _ in 0..2 {
            let all: Vec<_> = self.history.lock().sends_since(0).into_iter().collect();
            send_again(at, &self.history, &all).unwrap();
        }
        let mut ledger = LedgerSnapshot::default();
        poll_until(RECOVERY_TIMEOUT, || {
            ledger = LedgerSnapshot::read(at)?;
            Ok(ledger.emails_with_accept_event() == ledger.emails.len())
        })
        .unwrap();
        // Probes are not in the history.
        let probes: Vec<_> = ledger
            .emails
            .iter()
            .filter(|row| row.to.iter().any(|to| to.starts_with("probe")))
            .map(|row| row.id.clone())
            .collect();
        ledger.emails.retain(|row| !probes.contains(&row.id));
        for event in ledger.events.iter_mut().filter(|event| probes.contains(&event.about)) {
            event.kind = "probe".to_owned();
        }
        let mut found: Vec<String> = proof::check(&self.history.lock().to_checker_history(&ledger, true))
            .iter()
            .map(ToString::to_string)
            .collect();
        found.extend(
            self.check_arrivals(&ledger).unwrap_or_else(|why| vec![format!("{why:#}: {}", self.server.read_log())]),
        );
        found
    }

    /// Every sent email arrived once, and every unknown one at most once.
    fn check_arrivals(&self, ledger: &LedgerSnapshot) -> Result<Vec<String>> {
        let at = self.server.at;
        let rest =
            poll_until(
                DRAIN_TIMEOUT,
                || Ok(count_in_state(at, "queued")? == 0 && count_in_state(at, "sending")? == 0),
            )?;
        anyhow::ensure!(rest, "mails did not leave within {} s", DRAIN_TIMEOUT.as_secs());
        let unknown = emails_in_state(at, "unknown")?;
        let mut arrived: BTreeMap<String, u32> = BTreeMap::new();
        for mail in self.sink.mails() {
            *arrived.entry(mail.recipients[0].0.clone()).or_default() += 1;
        }
        let mut found = Vec::new();
        for row in &ledger.emails {
            let to = row.to.join(" ");
            let count = arrived.get(&to).copied().unwrap_or(0);
            let right = count == 1 || (count == 0 && unknown.contains(&row.id));
            if !right {
                let state = if unknown.contains(&row.id) { "unknown" } else { "not unknown" };
                found.push(format!("{to} arrived {count} times and is {state}"));
            }
        }
        Ok(found)
    }

    /// Calls by outcome: answered, 503, no reply.
    fn count_outcomes(&self) -> (u64, u64, u64) {
        let counts = self.history.lock().counts();
        let history = self.history.lock();
        let busy =
            history.calls.iter().filter(|call| matches!(call.outcome, CallOutcome::Fail { status: 503, .. })).count();
        (counts.answered, busy as u64, counts.unknown)
    }

    /// Checks, saves the results, and fails if an invariant was broken.
    fn report_and_assert(self, name: &str, storms: u64) {
        let found = self.check();
        let (answered, unavailable, open) = self.count_outcomes();
        let (cuts, lost) = (self.proxy.cuts(), self.proxy.lost_replies());
        print_line(&format!(
            "{name}: {answered} answered, {unavailable} times 503, {open} open; {cuts} cuts, {lost} answers lost; \
             {} mails; {} violations (seed {})",
            self.sink.mail_count(),
            found.len(),
            self.seed
        ));
        let (storms_name, mails_name) = (format!("{name}_storms"), format!("{name}_mails"));
        let counts = [
            (storms_name.as_str(), storms),
            (mails_name.as_str(), self.sink.mail_count() as u64),
            ("database_answered", answered),
            ("database_unavailable", unavailable),
            ("connections_cut", cuts),
            ("answers_lost", lost),
        ];
        fixtures::summary_writer().add(self.seed, &counts, &found).unwrap();
        let shown: Vec<_> = found.iter().take(10).cloned().collect();
        assert!(
            found.is_empty(),
            "{} violations:\n{}\nreplay: MAILONCE_SEED={} cargo test -p mailonce-sim --test faults database::{name}",
            found.len(),
            shown.join("\n"),
            self.seed
        );
        assert!(answered > 0, "nothing was answered");
    }
}

/// The ids of all emails in a state.
fn emails_in_state(at: SocketAddr, state: &str) -> Result<Vec<String>> {
    let rows = ApiReader::new(at, API_KEY)?.get_all_pages(&format!("/v1/emails?limit=100&state={state}"), "cursor")?;
    Ok(rows.iter().filter_map(|row| row["id"].as_str()).map(str::to_owned).collect())
}

/// How many emails of a page are in a state.
fn count_in_state(at: SocketAddr, state: &str) -> Result<usize> {
    let reply = http::get(at, &format!("/v1/emails?limit=1&state={state}"))?;
    anyhow::ensure!(reply.status == 200, "emails were answered {}: {}", reply.status, reply.body);
    Ok(reply.body["data"].as_array().map_or(0, Vec::len))
}

fn fault_rounds() -> u64 {
    env_number_or("MAILONCE_STORMS", 1)
}

#[test]
fn crash() {
    run_scenario("database::crash");
}

pub(crate) fn run_crash() {
    let (mut fixture, rounds) = (DatabaseFaultFixture::new(seed_from_env()), 2 * fault_rounds());
    for round in 0..rounds {
        // The load continues while the database is down and after it returns.
        fixture.load_during_fault(round as u32, Duration::from_secs(2), |cluster, _| {
            cluster.crash()?;
            sleep(FAULT_TIME);
            cluster.start_again()
        });
    }
    assert!(fixture.count_outcomes().1 > 0, "no call got a 503 while the database was down");
    fixture.report_and_assert("crash", rounds);
}

#[test]
fn network() {
    run_scenario("database::network");
}

pub(crate) fn run_network() {
    let (mut fixture, rounds) = (DatabaseFaultFixture::new(seed_from_env()), fault_rounds());
    let mut cycle = 0;
    for round in 0..rounds {
        let mut rng = SeededRng::derive(fixture.seed, &[round, 77]);
        let faults = [
            // The request is processed and its reply lost: that of a commit, or any.
            NetworkFault::LoseReplies(rng.between(2, 8), b"COMMIT\0"),
            NetworkFault::LoseReplies(rng.between(5, 40), b""),
            NetworkFault::TruncateRequests(rng.between(5, 40)),
            NetworkFault::CutAfter(rng.between(20_000, 200_000)),
            NetworkFault::Down,
            NetworkFault::Stalled,
        ];
        for fault in faults {
            print_line(&format!("network: {fault:?}"));
            fixture.load_during_fault(cycle, LOAD_BEFORE_FAULT + FAULT_TIME + LOAD_BEFORE_FAULT, |_, proxy| {
                proxy.set_fault(fault);
                sleep(FAULT_TIME);
                Ok(())
            });
            cycle += 1;
        }
    }
    assert!(fixture.proxy.lost_replies() > 0, "no answer was lost");
    assert!(fixture.proxy.cuts() > 0, "no connection was cut");
    fixture.report_and_assert("network", u64::from(cycle));
}

/// Concurrent calls while the database does not reply, more than its connections.
const CALLERS: u32 = 24;
/// How long each of them may take.
const REPLY_TIMEOUT: Duration = Duration::from_mins(3);

#[test]
fn silence() {
    run_scenario("database::silence");
}

pub(crate) fn run_silence() {
    let fixture = DatabaseFaultFixture::new(seed_from_env());
    fixture.wait_for_recovery(0);
    fixture.proxy.set_fault(NetworkFault::Stalled);
    let at = fixture.server.at;
    let call = |n| {
        let (send, mut request) = (GeneratedSend { cycle: 0, n, kind: SendKind::Single }, Vec::new());
        send.write_request(0, &mut request);
        let call = fixture.history.lock().begin_call(send);
        let reply = http::exchange_within(at, &request, REPLY_TIMEOUT);
        let status = reply.as_ref().map_or(0, |reply| reply.status);
        if let Ok(reply) = reply {
            fixture.history.lock().end_call(call, classify_send_reply(&send, reply.status, &reply.body));
        }
        status
    };
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..CALLERS)
            .map(|n| {
                let call = &call;
                scope.spawn(move || call(n))
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert!(statuses.iter().all(|status| *status == 503), "{statuses:?}: {}", fixture.server.read_log());
    fixture.proxy.set_fault(NetworkFault::None);
    fixture.wait_for_recovery(1);
    fixture.report_and_assert("silence", 1);
}
