//! A worker that cannot reach the database while its mail is being sent. Its marker is durable, so no other node
//! resends the mail; its outcome is recorded when the network heals.

use mailonce_sim::{
    harness::{
        child_processes::sleep,
        postgres_cluster::PostgresCluster,
        proxy::{FaultyProxy, NetworkFault},
        rng::{env_number_or, seed_from_env},
        server::ServerProcess,
        server_fixture::{self, OutboundTarget, ServerFixture, sample_mail},
        summary_writer::print_line,
    },
    sink::smtp::{self, SmtpAction, SmtpSink, SmtpStep},
};
use std::{path::Path, time::Duration};
use tokio::runtime::Runtime;

use crate::fixtures::{binary, child_processes, summary_writer, temp_dir};
use crate::parallel_scenarios::run_scenario;

/// Mails in transit when the network fails.
const MAILS: usize = 3;
/// How long the sink takes to answer a dot: long enough to see that the mails are in transit.
const DOT_REPLY_DELAY: Duration = Duration::from_secs(6);
/// How long anything may take on a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_mins(1);
/// A process without a heartbeat for this long is considered dead.
const HEARTBEAT_LAPSE: Duration = Duration::from_secs(15);

struct PartitionFixture {
    cluster: PostgresCluster,
    proxy: FaultyProxy,
    sink: SmtpSink,
    _runtime: Runtime,
    root: tempfile::TempDir,
    binary: std::path::PathBuf,
    seed: u64,
}

impl PartitionFixture {
    fn new() -> Self {
        let (cluster, seed) = (PostgresCluster::start().unwrap(), seed_from_env());
        let proxy = FaultyProxy::start(cluster.port(), seed).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let sink = runtime.block_on(SmtpSink::start(smtp::SmtpSinkConfig::default())).unwrap();
        sink.always_at(SmtpStep::Dot, SmtpAction::Late(DOT_REPLY_DELAY));
        Self { cluster, proxy, sink, _runtime: runtime, root: temp_dir(), binary: binary(), seed }
    }

    fn node(&self, name: &str, store: &str) -> ServerProcess {
        let (root, binary): (&Path, &Path) = (self.root.path(), &self.binary);
        let config = OutboundTarget::Relay(self.sink.at.port()).toml();
        let servers = ServerFixture { children: child_processes(), binary, root, store: Some(store), config };
        servers.start(name, None, false).unwrap()
    }

    /// Sends mails by a worker behind the proxy, and waits until all of them are in transit.
    fn send_until_on_wire(&self) -> (ServerProcess, Vec<String>) {
        let worker = self.node("worker", &self.cluster.url_at(self.proxy.at.port()));
        let mails: Vec<_> = (0..MAILS).map(sample_mail).collect();
        let ids = server_fixture::send_batch(worker.at, "batch", &mails).unwrap();
        // Not before the dot: until then the worker may still wait for the reply to its marker.
        server_fixture::wait_until("the dots", STEP_TIMEOUT, || self.sink.final_dots() == MAILS).unwrap();
        assert_eq!(self.sink.mail_count(), 0, "the sink answered before the network went");
        (worker, ids)
    }

    fn report_and_assert(self, name: &str, found: Vec<String>) {
        print_line(&format!(
            "{name}: {} mails at the sink; {} violations (seed {})",
            self.sink.mail_count(),
            found.len(),
            self.seed
        ));
        let counts = [(name, 1), ("partition_mails", self.sink.mail_count() as u64)];
        summary_writer().add(self.seed, &counts, &found).unwrap();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    /// Each mail arrived once.
    fn check_arrived_once(&self) -> Vec<String> {
        let mut counts = [0; MAILS];
        for n in self.sink.mails().iter().filter_map(|mail| server_fixture::mail_number(&mail.recipients[0].0)) {
            counts[n] += 1;
        }
        let wrong = counts.iter().enumerate().filter(|(_, count)| **count != 1);
        wrong.map(|(n, count)| format!("mail {n} arrived {count} times")).collect()
    }
}

/// Waits until every email is sent; the error lists those that are not.
fn wait_until_sent(at: std::net::SocketAddr, ids: &[String]) -> Vec<String> {
    let wanted = |_, state: &str| state == "sent";
    server_fixture::wait_for_states(at, ids, STEP_TIMEOUT, wanted)
        .err()
        .map(|why| format!("{why:#}"))
        .into_iter()
        .collect()
}

#[test]
fn an_outcome_learned_during_a_partition_is_recorded_when_the_network_heals() {
    run_scenario("partition::an_outcome_learned_during_a_partition_is_recorded_when_the_network_heals");
}

pub(crate) fn run_heal() {
    let rounds = env_number_or("MAILONCE_STORMS", 1) as usize;
    // In parallel, since both mostly wait.
    std::thread::scope(|scope| {
        for fault in [NetworkFault::Stalled, NetworkFault::Down] {
            scope.spawn(move || (0..rounds).for_each(|_| run_heal_with(fault)));
        }
    });
}

/// The network fails while mails are in transit, and heals.
fn run_heal_with(fault: NetworkFault) {
    let fixture = PartitionFixture::new();
    let (worker, ids) = fixture.send_until_on_wire();
    fixture.proxy.set_fault(fault);
    server_fixture::wait_until("the sink's answers", STEP_TIMEOUT, || fixture.sink.mail_count() == MAILS).unwrap();
    // The worker has the replies by now and cannot record them.
    sleep(Duration::from_secs(1));
    fixture.proxy.set_fault(NetworkFault::None);
    let mut found = wait_until_sent(worker.at, &ids);
    found.extend(fixture.check_arrived_once());
    fixture.report_and_assert("partitions_healed", found);
}

#[test]
fn mail_of_an_unreachable_worker_is_not_resent() {
    run_scenario("partition::mail_of_an_unreachable_worker_is_not_resent");
}

pub(crate) fn run_take_over() {
    for _ in 0..env_number_or("MAILONCE_STORMS", 1) {
        run_take_over_once();
    }
}

/// One node is cut off with its mails in transit, another considers it dead, and the network heals.
fn run_take_over_once() {
    let fixture = PartitionFixture::new();
    let (worker, ids) = fixture.send_until_on_wire();
    fixture.proxy.set_fault(NetworkFault::Stalled);
    // It starts now, so that only the worker has had the mails.
    let other = fixture.node("other", &fixture.cluster.url());
    // The other node considers the worker dead: the outcomes are unknown, and nothing is resent.
    let taken_over =
        server_fixture::wait_for_states(other.at, &ids, HEARTBEAT_LAPSE + STEP_TIMEOUT, |_, state| state == "unknown");
    let mut found: Vec<String> = taken_over.err().map(|why| format!("{why:#}")).into_iter().collect();
    sleep(Duration::from_secs(2));
    found.extend(fixture.check_arrived_once());
    fixture.proxy.set_fault(NetworkFault::None);
    // Its late replies are recorded.
    found.extend(wait_until_sent(other.at, &ids));
    for id in &ids {
        let email = server_fixture::get_email(other.at, id).unwrap();
        if !email.to_string().contains("late_reply") {
            found.push(format!("{id} does not say that the answer came late: {email}"));
        }
    }
    found.extend(fixture.check_arrived_once());
    drop(worker);
    fixture.report_and_assert("partitions_taken_over", found);
}
