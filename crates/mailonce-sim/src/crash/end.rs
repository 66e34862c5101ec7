//! The end of a round: everything is healed, what was never answered is asked for again, and all of it is judged.

use super::client::Team;
use super::judge::{Judgement, Opinion, Record};
use super::read::{deliveries, events, fetch, in_state};
use super::round::{Live, TOLD};
use super::table::Class;
use crate::rig::drive::until;
use crate::sink::oracle::journal::Journal;
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long everything may take to settle in the end: 15 s until a death is noticed, and repeats whose pauses doubled
/// with each death.
const SETTLES: Duration = Duration::from_mins(6);

/// How long it usually takes at most; whatever still moves then is told.
const USUAL: Duration = Duration::from_secs(45);

impl Live<'_> {
    /// Heals everything, asks for what was never answered, waits until nothing moves any more, and judges.
    pub(super) fn finish(&mut self) -> Result<Judgement> {
        self.world.tell_sink("calm", None)?;
        self.wake_sleepers(true)?;
        if let Some(other) = self.other.take() {
            self.kill(other, "a kill of the other node")?;
        }
        let server = self.start_unhurt()?;
        self.introduce(server.at, SETTLES)?;
        self.callers.client.pick_up();
        self.callers.ask_the_rest(server.at)?;
        self.callers.bring_the_rest(server.at)?;
        let (began, mut late) = (Instant::now(), Vec::new());
        let settled = until(SETTLES, || {
            let moving = self.moving(server.at)?;
            if began.elapsed() < USUAL || late.is_empty() {
                late.clone_from(&moving);
            }
            Ok(moving.is_empty())
        })?;
        let took = began.elapsed().as_secs();
        self.story
            .push(format!("  settled after {took} s: {settled}; after {} s: {late:?}", took.min(USUAL.as_secs())));
        let judgement = self.judge(server.at)?;
        self.board.count(|counts| {
            counts.rounds += 1;
            counts.emails += judgement.emails;
            counts.taken += judgement.taken;
        });
        let status = server.stop()?;
        ensure!(status.success(), "the server ended with {status} when it was asked to");
        Ok(judgement)
    }

    /// What is under way, with its state. What is unknown at a keyed provider will be repeated.
    fn moving(&self, at: SocketAddr) -> Result<Vec<(String, &'static str)>> {
        let states: &[&'static str] = match self.round.class {
            Class::Keyed => &["queued", "sending", "scheduled", "unknown"],
            _ => &["queued", "sending", "scheduled"],
        };
        let teams = self.callers.teams.lock().map(|teams| teams.clone()).unwrap_or_default();
        let mut moving = Vec::new();
        for team in &teams {
            // A reader that dies again and again gives a delivery up; a person lets it be read once more.
            deliveries(at, team, "dead")?.iter().for_each(|id| self.callers.replay(at, team, id));
            moving.extend(deliveries(at, team, "waiting")?.into_iter().map(|id| (id, "waiting")));
            // Twice, for what went back to a state after that was looked at.
            for state in states.iter().chain(states) {
                moving.extend(in_state(at, team, state)?.into_iter().map(|(id, _)| (id, *state)));
            }
        }
        Ok(moving)
    }

    /// The number up to which every event is owed to the endpoint by now. Waits until it has them, or for too long. Late
    /// hooks make events beyond it, which nobody judges.
    fn owed(&self, at: SocketAddr, teams: &[Team]) -> Result<u64> {
        let team = teams.iter().find(|team| team.name == TOLD).context("a round without its first team")?;
        let events = events(at, team)?;
        until(SETTLES, || {
            let told: BTreeSet<String> = self.world.notices()?.into_iter().map(|line| line.event).collect();
            Ok(events.iter().all(|event| told.contains(&event.id)))
        })?;
        Ok(events.last().map_or(0, |event| event.seq))
    }

    /// Reads everything and has it judged, twice where there is a second judge. The two must agree.
    fn judge(&self, at: SocketAddr) -> Result<Judgement> {
        let teams = self.callers.teams.lock().map(|teams| teams.clone()).unwrap_or_default();
        // One look at the history after the other: whoever looks holds it until the statement ends.
        let mail = self.callers.client.mail();
        let owed = self.owed(at, &teams)?;
        let mut api = fetch(at, &teams)?;
        api[TOLD]["owed"] = owed.into();
        let record = Record {
            calls: self.callers.client.history().calls.clone(),
            mail,
            lines: Journal::read(&self.world.journal())?,
            notices: self.world.notices()?,
            mishaps: self.mishaps.clone(),
            api,
        };
        record.write(self.world.root())?;
        let mut judgement = record.judge(self.round.class);
        if let Some(program) = self.world.judge() {
            let credentials = teams.iter().map(|team| format!("--team={}={}", team.name, team.credential));
            let api = [format!("--url=http://{at}"), format!("--owed={TOLD}={owed}")];
            let api: Vec<String> = credentials.chain(api).collect();
            let Opinion { holds, broken, words } = Opinion::ask(program, self.world.root(), &api)?;
            self.board.count(|counts| {
                counts.judged_twice += 1;
                holds.iter().for_each(|promise| counts.opinions.entry(promise.clone()).or_default().0 += 1);
                broken.iter().for_each(|promise| counts.opinions.entry(promise.clone()).or_default().1 += 1);
            });
            let own = judgement.broken();
            // What is broken is told in any case, and that the other judge sees it otherwise along with it.
            ensure!(broken == own || !own.is_empty(), "only the second judge found something: {words}");
            if broken != own {
                judgement.story = format!("  the judges differ: {own:?} here, and there {words}");
            }
        }
        Ok(judgement)
    }
}
