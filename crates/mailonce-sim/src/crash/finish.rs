//! The end of a round: faults stop, unanswered calls are retried, and the final state is checked.

use super::round::{ENDPOINT_TEAM, RunningRound};
use crate::crash::api_snapshot::{deliveries_in_state, emails_in_state, events, fetch_everything};
use crate::crash::failpoints::HopClass;
use crate::crash::recording_client::TeamCredential;
use crate::crash::verdict::{RoundRecord, RoundVerdict, SecondVerdict};
use crate::harness::recorded_load::poll_until;
use crate::sink::oracle::sink_log::SinkLog;
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long the round may take to settle: a dead node is noticed after 15 s, and retry delays doubled with each crash.
const SETTLE_TIMEOUT: Duration = Duration::from_mins(6);

/// How long settling usually takes; emails that are unsettled after that are logged.
const USUAL_SETTLE_TIME: Duration = Duration::from_secs(45);

impl RunningRound<'_> {
    /// Stops all faults, retries unanswered calls, waits until no email is in progress, and checks the result.
    pub(super) fn finish(&mut self) -> Result<RoundVerdict> {
        self.environment.control_sink("calm", None)?;
        self.resume_paused(true)?;
        if let Some(other) = self.peer.take() {
            self.kill(other, "killed the other node")?;
        }
        let server = self.start_without_failpoint()?;
        self.set_up_resources(server.at, SETTLE_TIMEOUT)?;
        self.workload.client.accept_calls();
        self.workload.retry_unanswered(server.at)?;
        self.workload.redeliver_unacknowledged(server.at)?;
        let (began, mut late) = (Instant::now(), Vec::new());
        let settled = poll_until(SETTLE_TIMEOUT, || {
            let moving = self.unsettled(server.at)?;
            if began.elapsed() < USUAL_SETTLE_TIME || late.is_empty() {
                late.clone_from(&moving);
            }
            Ok(moving.is_empty())
        })?;
        let took = began.elapsed().as_secs();
        self.log.push(format!(
            "  settled after {took} s: {settled}; after {} s: {late:?}",
            took.min(USUAL_SETTLE_TIME.as_secs())
        ));
        let verdict = self.read_and_check(server.at)?;
        self.board.update_counts(|counts| {
            counts.rounds += 1;
            counts.emails += verdict.emails;
            counts.taken += verdict.mails_accepted;
        });
        let status = server.terminate()?;
        ensure!(status.success(), "the server exited with {status} after SIGTERM");
        Ok(verdict)
    }

    /// The emails and deliveries in progress, with their states. A keyed provider's unknown outcomes will be repeated.
    fn unsettled(&self, at: SocketAddr) -> Result<Vec<(String, &'static str)>> {
        let states: &[&'static str] = match self.round.class {
            HopClass::Keyed => &["queued", "sending", "scheduled", "unknown"],
            _ => &["queued", "sending", "scheduled"],
        };
        let teams = self.workload.teams.lock().map(|teams| teams.clone()).unwrap_or_default();
        let mut moving = Vec::new();
        for team in &teams {
            // A delivery whose parser crashed too often is dead; an operator replays it.
            deliveries_in_state(at, team, "dead")?.iter().for_each(|id| self.workload.replay_delivery(at, team, id));
            moving.extend(deliveries_in_state(at, team, "waiting")?.into_iter().map(|id| (id, "waiting")));
            // Each state is read twice, for emails that returned to a state after it was read.
            for state in states.iter().chain(states) {
                moving.extend(emails_in_state(at, team, state)?.into_iter().map(|(id, _)| (id, *state)));
            }
        }
        Ok(moving)
    }

    /// The last event number that the endpoint should have received by now. Waits until it has, or until the timeout.
    /// Later provider events may add events beyond it, which are not checked.
    fn last_notified_seq(&self, at: SocketAddr, teams: &[TeamCredential]) -> Result<u64> {
        let team = teams.iter().find(|team| team.name == ENDPOINT_TEAM).context("a round without its first team")?;
        let events = events(at, team)?;
        poll_until(SETTLE_TIMEOUT, || {
            let notified: BTreeSet<String> = self.environment.notices()?.into_iter().map(|line| line.event).collect();
            Ok(events.iter().all(|event| notified.contains(&event.id)))
        })?;
        Ok(events.last().map_or(0, |event| event.seq))
    }

    /// Reads the final state and checks it, with the second checker too if there is one. Both must agree.
    fn read_and_check(&self, at: SocketAddr) -> Result<RoundVerdict> {
        let teams = self.workload.teams.lock().map(|teams| teams.clone()).unwrap_or_default();
        // The history is locked until the end of a statement, so it is read in statements of its own.
        let mail = self.workload.client.inbound_records();
        let owed = self.last_notified_seq(at, &teams)?;
        let mut api = fetch_everything(at, &teams)?;
        api[ENDPOINT_TEAM]["owed"] = owed.into();
        let record = RoundRecord {
            calls: self.workload.client.history().calls.clone(),
            mail,
            sink_lines: SinkLog::read(&self.environment.sink_log_path())?,
            notices: self.environment.notices()?,
            injected_faults: self.injected_faults.clone(),
            api,
        };
        record.write(self.environment.root())?;
        let mut verdict = record.check(self.round.class);
        if let Some(program) = self.environment.second_checker() {
            let credentials = teams.iter().map(|team| format!("--team={}={}", team.name, team.credential));
            let api = [format!("--url=http://{at}"), format!("--owed={ENDPOINT_TEAM}={owed}")];
            let api: Vec<String> = credentials.chain(api).collect();
            let SecondVerdict { holds, broken, output } = SecondVerdict::run(program, self.environment.root(), &api)?;
            self.board.update_counts(|counts| {
                counts.judged_twice += 1;
                holds.iter().for_each(|promise| counts.opinions.entry(promise.clone()).or_default().0 += 1);
                broken.iter().for_each(|promise| counts.opinions.entry(promise.clone()).or_default().1 += 1);
            });
            let own = verdict.broken_invariants();
            // Our own violations are reported in any case; a different second verdict is added to the log.
            ensure!(broken == own || !own.is_empty(), "only the second checker found a violation: {output}");
            if broken != own {
                verdict.log = format!("  the checkers disagree: {own:?} here, second checker: {output}");
            }
        }
        Ok(verdict)
    }
}
