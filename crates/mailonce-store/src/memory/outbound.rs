//! Telling others: endpoints, what is owed to them, and what came of it.

use mailonce_core::{
    endpoint::{Endpoint, EndpointChange, EndpointEdit, EndpointGauge, EndpointState, Start},
    event::{Event, NewEvent},
    id::{EndpointId, NodeId, NoticeId, TeamId},
    limits,
    notice::{Notice, NoticeQuery, NoticeSettle, NoticeState, Owed, Recovering, Recovery, Since, Spread, line_up},
    port::store::{Once, Operation},
    time::Time,
};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

use super::World;

/// A notice by its endpoint and the number of its event.
type Place = (EndpointId, u64);

/// Everything about telling others.
#[derive(Default)]
pub(super) struct Outbound {
    endpoints: BTreeMap<EndpointId, Endpoint>,
    /// When events were last looked at for an endpoint.
    spread_at: BTreeMap<EndpointId, Time>,
    /// Endpoints that are no more, while something is left of them.
    removed: BTreeSet<EndpointId>,
    notices: BTreeMap<Place, Notice>,
    places: BTreeMap<NoticeId, Place>,
}

impl Outbound {
    /// The endpoint, if it is this team's.
    pub(super) fn endpoint(&self, team: TeamId, id: EndpointId) -> Option<&Endpoint> {
        self.endpoints.get(&id).filter(|endpoint| endpoint.team == team)
    }

    /// Endpoints older than `before`, newest first.
    pub(super) fn endpoints(&self, team: TeamId, before: Option<EndpointId>, limit: usize) -> Vec<Endpoint> {
        let ours = self.endpoints.values().rev().filter(|endpoint| endpoint.team == team);
        ours.filter(|endpoint| before.is_none_or(|before| endpoint.id < before)).take(limit).cloned().collect()
    }

    /// The notice, if it is this team's.
    pub(super) fn notice(&self, team: TeamId, id: NoticeId) -> Option<&Notice> {
        let notice = self.notices.get(self.places.get(&id)?)?;
        self.endpoint(team, notice.endpoint).map(|_| notice)
    }

    fn of(&self, endpoint: EndpointId) -> impl DoubleEndedIterator<Item = &Notice> {
        self.notices.range((endpoint, 0)..=(endpoint, u64::MAX)).map(|(_, notice)| notice)
    }

    /// Notices of an endpoint, those of the latest events first.
    pub(super) fn notices(&self, team: TeamId, endpoint: EndpointId, query: &NoticeQuery) -> Vec<Notice> {
        let theirs = self.endpoint(team, endpoint).into_iter().flat_map(|endpoint| self.of(endpoint.id).rev());
        let older = theirs.filter(|notice| query.before.is_none_or(|before| notice.seq < before));
        older.take(limits::SCAN_ROWS).filter(|notice| query.matches(notice)).take(query.limit).cloned().collect()
    }

    fn save(&mut self, notice: Notice) {
        let place = (notice.endpoint, notice.seq);
        self.places.insert(notice.id, place);
        self.notices.insert(place, notice);
    }

    /// Puts what is open about a subject in line.
    fn line_up(&mut self, endpoint: EndpointId, about: Uuid, now: Time) {
        let theirs = self.of(endpoint).filter(|notice| notice.is_open() && notice.about == about);
        let mut open: Vec<Notice> = theirs.cloned().collect();
        line_up(&mut open, now);
        open.into_iter().for_each(|notice| self.save(notice));
    }

    /// Writes what became of a notice, and who is next in line.
    fn change(&mut self, notice: &Notice, now: Time) {
        self.save(notice.clone());
        self.line_up(notice.endpoint, notice.about, now);
    }

    /// Enabled endpoints with the earliest time at which a notice of theirs is due.
    fn due(&self) -> impl Iterator<Item = (Time, &Endpoint)> {
        let enabled = self.endpoints.values().filter(|endpoint| endpoint.state == EndpointState::Enabled);
        enabled.filter_map(|endpoint| Some((self.of(endpoint.id).filter_map(|notice| notice.next_at).min()?, endpoint)))
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.due().map(|(at, _)| at).min()
    }

    pub(super) fn endpoints_due(&self, max: usize, now: Time) -> Vec<Endpoint> {
        let mut due: Vec<_> = self.due().filter(|(at, _)| *at <= now).collect();
        due.sort_by_key(|(at, endpoint)| (*at, endpoint.id));
        due.into_iter().take(max).map(|(_, endpoint)| endpoint.clone()).collect()
    }

    /// Owes an event to an endpoint, unless it is past that. True when it was not owed before.
    fn owe(&mut self, endpoint: &Endpoint, event: &Event, now: Time) -> bool {
        let known = self.notices.get(&(endpoint.id, event.seq)).cloned();
        let owed = match known {
            None => Notice::new(endpoint.team, endpoint.id, event, true, now),
            Some(mut notice) if !notice.is_open() && endpoint.owes_again(event.seq) => {
                notice.replay(now);
                notice
            }
            Some(_) => return false,
        };
        self.change(&owed, now);
        true
    }

    /// Makes notices due that a process which ended was telling. How many.
    pub(super) fn give_back(&mut self, alive: impl Fn(NodeId) -> bool, max: usize, now: Time) -> usize {
        let left = |notice: &&Notice| notice.holder.is_some_and(|holder| !alive(holder));
        let left: Vec<Notice> = self.notices.values().filter(left).take(max).cloned().collect();
        for mut notice in left.iter().cloned() {
            notice.give_back(now);
            self.change(&notice, now);
        }
        left.len()
    }

    /// Removes settled notices that are old, and what removed endpoints left. How many.
    pub(super) fn sweep(&mut self, max: usize, now: Time) -> usize {
        let old = |notice: &&Notice| notice.sweep_at().is_some_and(|at| at <= now);
        let mut gone: Vec<&Notice> = self.notices.values().filter(old).collect();
        gone.sort_by_key(|notice| (notice.sweep_at(), notice.endpoint, notice.seq));
        gone.extend(self.removed.iter().flat_map(|endpoint| self.of(*endpoint)).filter(|notice| !old(notice)));
        gone.truncate(max);
        let gone: Vec<(NoticeId, Place)> = gone.iter().map(|one| (one.id, (one.endpoint, one.seq))).collect();
        for (id, place) in &gone {
            self.places.remove(id);
            self.notices.remove(place);
        }
        let (removed, notices) = (&mut self.removed, &self.notices);
        removed.retain(|id| notices.range((*id, 0)..=(*id, u64::MAX)).next().is_some());
        gone.len()
    }
}

impl World {
    fn newest(&self, team: TeamId) -> u64 {
        self.events.get(&team).map_or(0, |events| events.len() as u64)
    }

    fn events_after(&self, team: TeamId, after: u64) -> impl Iterator<Item = Event> {
        let events = self.events.get(&team).into_iter().flatten().cloned().enumerate();
        events.skip(after as usize).map(|(place, event)| Event { seq: place as u64 + 1, event })
    }

    pub(super) fn create_endpoint(
        &mut self,
        mut endpoint: Endpoint,
        start: Start,
        operation: Option<&Operation>,
    ) -> Once<Endpoint> {
        if let Some(answer) = operation.and_then(|operation| self.repeat_of(operation, endpoint.created_at)) {
            return answer;
        }
        if let Some(known) = self.outbound.endpoint(endpoint.team, endpoint.id) {
            return Once::Done(known.clone());
        }
        let newest = self.newest(endpoint.team);
        endpoint.cursor = match start {
            Start::End => newest,
            Start::After(seq) => seq.min(newest),
        };
        if let Some(operation) = operation {
            self.bind_operation(operation);
        }
        self.note_id(endpoint.id.0);
        self.outbound.endpoints.insert(endpoint.id, endpoint.clone());
        Once::Done(endpoint)
    }

    pub(super) fn change_endpoint(
        &mut self,
        edit: EndpointEdit,
        operation: Option<&Operation>,
        now: Time,
    ) -> Once<EndpointChange> {
        if let Some(answer) = operation.and_then(|operation| self.repeat_of(operation, now)) {
            return answer;
        }
        let Some(mut endpoint) = self.outbound.endpoint(edit.team, edit.id).cloned() else {
            return Once::Done(EndpointChange::Missing);
        };
        if endpoint.rev != edit.rev {
            return Once::Done(EndpointChange::Stale(endpoint));
        }
        let told = endpoint.edit(edit.about, edit.state, now);
        self.save_endpoint(&endpoint, told);
        if let Some(operation) = operation {
            self.bind_operation(operation);
        }
        Once::Done(EndpointChange::Changed(endpoint))
    }

    fn save_endpoint(&mut self, endpoint: &Endpoint, told: Option<NewEvent>) {
        self.outbound.endpoints.insert(endpoint.id, endpoint.clone());
        self.events.entry(endpoint.team).or_default().extend(told);
    }

    pub(super) fn remove_endpoint(&mut self, team: TeamId, id: EndpointId) -> Option<Endpoint> {
        self.outbound.endpoint(team, id)?;
        self.outbound.removed.insert(id);
        self.outbound.endpoints.remove(&id)
    }

    /// Enabled endpoints that events lie before, those that waited longest first.
    fn lagging(&self) -> Vec<Endpoint> {
        let behind = |endpoint: &&Endpoint| {
            endpoint.state == EndpointState::Enabled && endpoint.cursor < self.newest(endpoint.team)
        };
        let mut lagging: Vec<Endpoint> = self.outbound.endpoints.values().filter(behind).cloned().collect();
        lagging.sort_by_key(|endpoint| (self.outbound.spread_at.get(&endpoint.id).copied(), endpoint.id));
        lagging
    }

    pub(super) fn spread(&mut self, max: usize, now: Time) -> Spread {
        let mut lagging = self.lagging();
        lagging.truncate(limits::SPREAD_ENDPOINTS);
        let share = (max / lagging.len().max(1)).max(1);
        let mut spread = Spread::default();
        for mut endpoint in lagging {
            let events: Vec<Event> = self.events_after(endpoint.team, endpoint.cursor).take(share).collect();
            for event in &events {
                endpoint.cursor = event.seq;
                spread.read += 1;
                spread.owed += usize::from(endpoint.wants(event) && self.outbound.owe(&endpoint, event, now));
            }
            self.outbound.spread_at.insert(endpoint.id, now);
            self.save_endpoint(&endpoint, None);
        }
        spread.more = !self.lagging().is_empty();
        spread
    }

    pub(super) fn lease_notices(
        &mut self,
        (team, endpoint): (TeamId, EndpointId),
        node: NodeId,
        max: usize,
        now: Time,
    ) -> Vec<Owed> {
        let found = self.outbound.endpoint(team, endpoint);
        if found.is_none_or(|endpoint| endpoint.state != EndpointState::Enabled) {
            return Vec::new();
        }
        let mut due: Vec<Notice> = self.outbound.of(endpoint).cloned().collect();
        due.retain(|notice| notice.next_at.is_some_and(|at| at <= now));
        due.sort_by_key(|notice| (notice.next_at, notice.seq));
        let mut leased = Vec::new();
        for mut notice in due.into_iter().take(max) {
            notice.lease(node, now);
            self.outbound.save(notice.clone());
            let event = self.events_after(team, notice.seq - 1).next();
            leased.extend(event.map(|event| Owed { notice, event }));
        }
        leased
    }

    pub(super) fn settle_notice(&mut self, settle: NoticeSettle, now: Time) -> Option<Notice> {
        let NoticeSettle { team, id, attempt, answer, chance } = settle;
        let mut notice = self.outbound.notice(team, id)?.clone();
        if notice.settle(attempt, answer, chance, now) {
            self.outbound.change(&notice, now);
            let mut endpoint = self.outbound.endpoint(team, notice.endpoint)?.clone();
            let told = endpoint.heard(answer, now);
            self.save_endpoint(&endpoint, told);
        }
        self.outbound.notice(team, id).cloned()
    }

    pub(super) fn replay_notice(
        &mut self,
        (team, id): (TeamId, NoticeId),
        operation: Option<&Operation>,
        now: Time,
    ) -> Once<Option<Notice>> {
        if let Some(answer) = operation.and_then(|operation| self.repeat_of(operation, now)) {
            return answer;
        }
        let Some(mut notice) = self.outbound.notice(team, id).cloned() else { return Once::Done(None) };
        if notice.replay(now) {
            self.outbound.change(&notice, now);
        }
        if let Some(operation) = operation {
            self.bind_operation(operation);
        }
        Once::Done(self.outbound.notice(team, id).cloned())
    }

    pub(super) fn recover_notices(
        &mut self,
        (team, id): (TeamId, EndpointId),
        recovery: Recovery,
        operation: Option<&Operation>,
        now: Time,
    ) -> Once<Option<Recovering>> {
        if let Some(answer) = operation.and_then(|operation| self.repeat_of(operation, now)) {
            return answer;
        }
        let Some(mut endpoint) = self.outbound.endpoint(team, id).cloned() else { return Once::Done(None) };
        let after = self.before(team, recovery.since);
        let mut due = 0;
        if recovery.everything {
            endpoint.look_again(after);
            self.save_endpoint(&endpoint, None);
        } else {
            due = self.replay_failed(id, after, now);
        }
        if let Some(operation) = operation {
            self.bind_operation(operation);
        }
        Once::Done(Some(Recovering { after, due }))
    }

    /// The number of the last event before those that are meant.
    fn before(&self, team: TeamId, since: Since) -> u64 {
        match since {
            Since::Event(seq) => seq,
            Since::Time(time) => {
                let first = self.events_after(team, 0).find(|event| event.event.at >= time);
                first.map_or(self.newest(team), |event| event.seq - 1)
            }
        }
    }

    fn replay_failed(&mut self, endpoint: EndpointId, after: u64, now: Time) -> usize {
        let failed = |notice: &&Notice| notice.seq > after && notice.has_failed(now);
        let failed = self.outbound.of(endpoint).filter(failed).take(limits::NOTICES_RECOVERED);
        let failed: Vec<Place> = failed.map(|notice| (notice.endpoint, notice.seq)).collect();
        for place in &failed {
            // Those before it may have put it in line since.
            let Some(mut notice) = self.outbound.notices.get(place).cloned() else { continue };
            notice.replay(now);
            self.outbound.change(&notice, now);
        }
        failed.len()
    }

    pub(super) fn endpoint_gauges(&self) -> Vec<EndpointGauge> {
        let gauge = |endpoint: &Endpoint| {
            let count = |state| self.outbound.of(endpoint.id).filter(|notice| notice.state == state).count() as u64;
            EndpointGauge {
                team: endpoint.team,
                id: endpoint.id,
                state: endpoint.state,
                lag: self.newest(endpoint.team) - endpoint.cursor,
                pending: count(NoticeState::Pending),
                dead: count(NoticeState::Dead),
            }
        };
        self.outbound.endpoints.values().map(gauge).collect()
    }
}
