//! Stops, and the handoffs that they parked.

use async_trait::async_trait;
use mailonce_core::{
    control::{
        audit::act::Act,
        contact::ContactHash,
        stop::{CreateStopResult, Stop, StopChange, StopKind, Stops},
    },
    events::event::EventKind,
    handoff::Handoff,
    id::{EmailId, StopId, TeamId},
    operation::{IdempotentResult, KeyedOperation},
    outbound::email::Email,
    ports::{control_store::ControlStore, store::Result},
    time::Time,
};
use std::collections::BTreeMap;

use crate::memory::{Memory, Tables};

impl Tables {
    /// All stops.
    pub(crate) fn stops(&self) -> Stops {
        Stops(self.control.stops.values().cloned().collect())
    }

    fn stops_of(&self, team: Option<TeamId>) -> Vec<Stop> {
        self.control.stops.values().filter(|stop| stop.scope.team() == team).cloned().collect()
    }

    fn create_stop(
        &mut self,
        new: Stop,
        operation: Option<&KeyedOperation>,
        now: Time,
    ) -> IdempotentResult<CreateStopResult> {
        if let Some(answer) = operation.and_then(|operation| self.outbound.find_replay(operation, now)) {
            return answer;
        }
        let result = CreateStopResult::decide(new.clone(), &self.stops_of(new.scope.team()));
        if let CreateStopResult::Created(stop) = &result {
            self.control.stops.insert(stop.id, stop.clone());
            self.emit_stop_event(stop, EventKind::StopCreated, now);
            self.record_act(Some(Act::of_stop("created", stop, None)), now);
        }
        if let Some(operation) = operation.filter(|_| result != CreateStopResult::TooMany) {
            self.outbound.bind_operation(operation);
        }
        IdempotentResult::Done(result)
    }

    fn end_stop(&mut self, team: Option<TeamId>, id: StopId, rate_per_s: Option<u32>, now: Time) -> Option<Stop> {
        let mut stop = self.control.stops.get(&id).filter(|stop| stop.scope.team() == team)?.clone();
        let change = stop.end(rate_per_s, now);
        if change == StopChange::Ended {
            self.emit_stop_event(&stop, EventKind::StopEnded, now);
        }
        self.record_act(change.audit_verb().map(|verb| Act::of_stop(verb, &stop, rate_per_s)), now);
        self.control.stops.insert(id, stop.clone());
        Some(stop)
    }

    fn emit_stop_event(&mut self, stop: &Stop, kind: EventKind, now: Time) {
        let all_teams = || self.access.teams.keys().copied().collect();
        let teams: Vec<TeamId> = stop.scope.team().map_or_else(all_teams, |team| vec![team]);
        for team in teams {
            self.events.log.entry(team).or_default().push(stop.event(kind, now));
        }
    }

    /// Returns parked handoffs of ended stops to the queue, and removes ended stops that have none left.
    fn release_stopped(&mut self, max: usize, now: Time) -> Vec<Email> {
        let mut released = Vec::new();
        for mut stop in self.stops().0 {
            let Some(mut release) = stop.release else { continue };
            let parked = self.parked_by(stop.id);
            let is_empty = parked.is_empty();
            let before = released.len();
            let room = release.allowance(now).min(max - released.len());
            for (_, id, number) in parked.into_iter().take(room) {
                let Some(mut email) = self.outbound.emails.get(&id).cloned() else { continue };
                if email.release_parked(number, stop.id, &release, now) {
                    self.outbound.emails.insert(id, email.clone());
                    released.push(email);
                }
            }
            release.use_rate(released.len() - before, now);
            if is_empty && release.is_over(now) {
                self.control.stops.remove(&stop.id);
            } else {
                stop.release = Some(release);
                self.control.stops.insert(stop.id, stop);
            }
        }
        released
    }

    /// How many handoffs wait for a stop: those that it parked, and those that are due in the queues that it closes.
    fn waiting_for(&self, stop: &Stop, team: Option<TeamId>, now: Time) -> usize {
        let is_due = |handoff: &Handoff| handoff.is_waiting() && handoff.due_at.is_some_and(|due| due <= now);
        let waits = |handoff: &&Handoff| {
            let due_in_closed_queue = || is_due(handoff) && stop.closes_queue_of(&handoff.transport);
            handoff.parked_by.map_or_else(due_in_closed_queue, |by| by == stop.id)
        };
        let emails = self.outbound.emails.values().filter(|email| team.is_none_or(|team| email.team == team));
        emails.flat_map(|email| &email.handoffs).filter(waits).count()
    }

    /// The handoffs that a stop parked, in the order of their due times.
    fn parked_by(&self, stop: StopId) -> Vec<(Option<Time>, EmailId, u16)> {
        let all = self.outbound.emails.values().flat_map(|email| email.handoffs.iter().map(move |h| (email.id, h)));
        let parked = all.filter(|(_, handoff)| handoff.parked_by == Some(stop));
        let mut parked: Vec<_> = parked.map(|(id, handoff)| (handoff.due_at, id, handoff.number)).collect();
        parked.sort_unstable();
        parked
    }
}

#[async_trait]
impl ControlStore for Memory {
    async fn create_stop(
        &self,
        stop: Stop,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<CreateStopResult>> {
        Ok(self.lock_tables().create_stop(stop, operation.as_ref(), now))
    }

    async fn stops(&self, team: Option<TeamId>) -> Result<Vec<Stop>> {
        Ok(self.lock_tables().stops_of(team))
    }

    async fn stop_counts(&self) -> Result<BTreeMap<StopKind, u64>> {
        let mut counts = BTreeMap::new();
        for stop in self.lock_tables().stops().0.iter().filter(|stop| stop.is_in_force()) {
            *counts.entry(stop.scope.kind()).or_default() += 1;
        }
        Ok(counts)
    }

    async fn waiting_counts(&self, stops: Vec<Stop>, team: Option<TeamId>, max: usize, now: Time) -> Result<Vec<u64>> {
        let tables = self.lock_tables();
        Ok(stops.iter().map(|stop| tables.waiting_for(stop, team, now).min(max) as u64).collect())
    }

    async fn end_stop(
        &self,
        team: Option<TeamId>,
        id: StopId,
        rate_per_s: Option<u32>,
        now: Time,
    ) -> Result<Option<Stop>> {
        Ok(self.lock_tables().end_stop(team, id, rate_per_s, self.time.commit_time(now)))
    }

    async fn release_stopped(&self, max: usize, now: Time) -> Result<usize> {
        let mut tables = self.lock_tables();
        let released = tables.release_stopped(max, now);
        released.iter().for_each(|email| self.notify_email_changed(email));
        Ok(released.len())
    }

    async fn emails_held_by_budget(&self, after: Option<(TeamId, EmailId)>, limit: usize) -> Result<Vec<Email>> {
        Ok(self.lock_tables().outbound.emails_held_by_budget(after, limit))
    }

    async fn known_contacts(&self, team: TeamId, contacts: Vec<ContactHash>) -> Result<Vec<bool>> {
        let tables = self.lock_tables();
        Ok(contacts.iter().map(|contact| tables.control.is_known_contact(team, *contact)).collect())
    }
}
