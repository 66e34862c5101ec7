//! Webhook endpoints, fan-out of events to notices, and the leases and outcomes of notices.

use mailonce_core::{
    control::{audit::act::Act, erasure::AddressEraser},
    events::{
        endpoint::{Endpoint, EndpointChangeResult, EndpointEdit, EndpointGauge, EndpointStart, EndpointState},
        event::{Event, NewEvent},
        notice::{
            FanOutCounts, LeasedNotice, Notice, NoticeOutcome, NoticeQuery, NoticeRecovery, NoticeRecoveryResult,
            NoticeState, ReplayFrom, schedule_in_order,
        },
        retention::EventRetention,
    },
    id::{EndpointId, NodeId, NoticeId, TeamId},
    limits,
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

use crate::memory::{Tables, events::EventTables};

/// The key of a notice: its endpoint and the sequence number of its event.
type NoticeKey = (EndpointId, u64);

/// The tables of endpoints and notices.
#[derive(Default)]
pub(crate) struct WebhookTables {
    endpoints: BTreeMap<EndpointId, Endpoint>,
    /// When events were last fanned out to each endpoint.
    fanned_out_at: BTreeMap<EndpointId, Time>,
    /// Removed endpoints that still have notices to sweep.
    removed_endpoints: BTreeSet<EndpointId>,
    notices: BTreeMap<NoticeKey, Notice>,
    notice_keys: BTreeMap<NoticeId, NoticeKey>,
}

impl WebhookTables {
    /// Deletes what the endpoints of a team answered to the notices of an event.
    pub(crate) fn forget_responses(&mut self, team: TeamId, seq: u64) {
        let about_event = self.notices.values_mut().filter(|notice| notice.team == team && notice.seq == seq);
        about_event.for_each(|notice| notice.attempt_log.clear());
    }

    /// The endpoint, if it belongs to this team.
    pub(crate) fn endpoint(&self, team: TeamId, id: EndpointId) -> Option<&Endpoint> {
        self.endpoints.get(&id).filter(|endpoint| endpoint.team == team)
    }

    /// Replaces the address in the descriptions of a team's endpoints. Returns in how many.
    pub(crate) fn redact_endpoints(&mut self, eraser: &AddressEraser) -> usize {
        let ours = self.endpoints.values_mut().filter(|endpoint| endpoint.team == eraser.team);
        let named = ours.filter_map(|endpoint| endpoint.config.redact(eraser).then(|| endpoint.rev += 1));
        named.count()
    }

    /// Endpoints older than `before`, newest first.
    pub(crate) fn endpoints(&self, team: TeamId, before: Option<EndpointId>, limit: usize) -> Vec<Endpoint> {
        let ours = self.endpoints.values().rev().filter(|endpoint| endpoint.team == team);
        ours.filter(|endpoint| before.is_none_or(|before| endpoint.id < before)).take(limit).cloned().collect()
    }

    /// The notice, if it belongs to this team.
    pub(crate) fn notice(&self, team: TeamId, id: NoticeId) -> Option<&Notice> {
        let notice = self.notices.get(self.notice_keys.get(&id)?)?;
        self.endpoint(team, notice.endpoint).map(|_| notice)
    }

    fn notices_of(&self, endpoint: EndpointId) -> impl DoubleEndedIterator<Item = &Notice> {
        self.notices.range((endpoint, 0)..=(endpoint, u64::MAX)).map(|(_, notice)| notice)
    }

    /// Notices of an endpoint, latest events first.
    pub(crate) fn notices(&self, team: TeamId, endpoint: EndpointId, query: &NoticeQuery) -> Vec<Notice> {
        let theirs = self.endpoint(team, endpoint).into_iter().flat_map(|endpoint| self.notices_of(endpoint.id).rev());
        let older = theirs.filter(|notice| query.before.is_none_or(|before| notice.seq < before));
        older.take(limits::SCAN_ROWS).filter(|notice| query.matches(notice)).take(query.limit).cloned().collect()
    }

    fn save(&mut self, notice: Notice) {
        let place = (notice.endpoint, notice.seq);
        self.notice_keys.insert(notice.id, place);
        self.notices.insert(place, notice);
    }

    /// Schedules the open notices about a subject, so that only the first one is due.
    fn schedule_subject(&mut self, endpoint: EndpointId, about: Uuid, now: Time) {
        let theirs = self.notices_of(endpoint).filter(|notice| notice.is_open() && notice.subject_id == about);
        let mut open: Vec<Notice> = theirs.cloned().collect();
        schedule_in_order(&mut open, now);
        open.into_iter().for_each(|notice| self.save(notice));
    }

    /// Saves a changed notice, and makes the next notice about the same subject due if it is first now.
    fn save_and_reschedule(&mut self, notice: &Notice, now: Time) {
        self.save(notice.clone());
        self.schedule_subject(notice.endpoint, notice.subject_id, now);
    }

    /// Enabled endpoints that have a due time, each with the earliest due time of its notices.
    fn due_endpoints(&self) -> impl Iterator<Item = (Time, &Endpoint)> {
        let enabled = self.endpoints.values().filter(|endpoint| endpoint.state == EndpointState::Enabled);
        enabled.filter_map(|endpoint| {
            Some((self.notices_of(endpoint.id).filter_map(|notice| notice.due_at).min()?, endpoint))
        })
    }

    pub(crate) fn next_due(&self) -> Option<Time> {
        self.due_endpoints().map(|(at, _)| at).min()
    }

    pub(crate) fn endpoints_with_due_notices(&self, max: usize, now: Time) -> Vec<Endpoint> {
        let mut due: Vec<_> = self.due_endpoints().filter(|(at, _)| *at <= now).collect();
        due.sort_by_key(|(at, endpoint)| (*at, endpoint.id));
        due.into_iter().take(max).map(|(_, endpoint)| endpoint.clone()).collect()
    }

    /// Creates the notice of an event for an endpoint. If the endpoint was rewound, replays a settled notice. Returns
    /// false when an existing notice stays as it is.
    fn create_notice(&mut self, endpoint: &Endpoint, event: &Event, now: Time) -> bool {
        let known = self.notices.get(&(endpoint.id, event.seq)).cloned();
        let owed = match known {
            None => Notice::new(endpoint.team, endpoint.id, event, true, now),
            Some(mut notice) if !notice.is_open() && endpoint.must_resend(event.seq) => {
                notice.replay(now);
                notice
            }
            Some(_) => return false,
        };
        self.save_and_reschedule(&owed, now);
        true
    }

    /// The first event of a team that an endpoint has a pending notice about.
    fn first_pending(&self, team: TeamId) -> Option<u64> {
        let ours = self.notices.values().filter(|notice| self.endpoint(team, notice.endpoint).is_some());
        ours.filter(|notice| notice.is_open()).map(|notice| notice.seq).min()
    }

    /// Deletes the settled notices about the events of a team up to a number.
    fn delete_settled(&mut self, team: TeamId, until: u64) {
        let is_gone = |notice: &Notice| notice.team == team && notice.seq <= until && !notice.is_open();
        let keys = &mut self.notice_keys;
        self.notices.retain(|_, notice| {
            let gone = is_gone(notice);
            if gone {
                keys.remove(&notice.id);
            }
            !gone
        });
    }

    /// Makes notices due again whose lease holder is no longer alive. Returns how many.
    pub(crate) fn reclaim_notices(&mut self, alive: impl Fn(NodeId) -> bool, max: usize, now: Time) -> usize {
        let left = |notice: &&Notice| notice.holder.is_some_and(|holder| !alive(holder));
        let left: Vec<Notice> = self.notices.values().filter(left).take(max).cloned().collect();
        for mut notice in left.iter().cloned() {
            notice.reclaim_lease(now);
            self.save_and_reschedule(&notice, now);
        }
        left.len()
    }

    /// Deletes old settled notices and the notices of removed endpoints. Returns how many.
    pub(crate) fn sweep_notices(&mut self, max: usize, now: Time) -> usize {
        let old = |notice: &&Notice| notice.sweep_at().is_some_and(|at| at <= now);
        let mut gone: Vec<&Notice> = self.notices.values().filter(old).collect();
        gone.sort_by_key(|notice| (notice.sweep_at(), notice.endpoint, notice.seq));
        gone.extend(
            self.removed_endpoints.iter().flat_map(|endpoint| self.notices_of(*endpoint)).filter(|notice| !old(notice)),
        );
        gone.truncate(max);
        let gone: Vec<(NoticeId, NoticeKey)> = gone.iter().map(|one| (one.id, (one.endpoint, one.seq))).collect();
        for (id, place) in &gone {
            self.notice_keys.remove(id);
            self.notices.remove(place);
        }
        let (removed, notices) = (&mut self.removed_endpoints, &self.notices);
        removed.retain(|id| notices.range((*id, 0)..=(*id, u64::MAX)).next().is_some());
        gone.len()
    }
}

impl Tables {
    pub(crate) fn create_endpoint(
        &mut self,
        mut endpoint: Endpoint,
        start: EndpointStart,
        operation: Option<&KeyedOperation>,
    ) -> IdempotentResult<Endpoint> {
        if let Some(answer) = operation.and_then(|operation| self.outbound.find_replay(operation, endpoint.created_at))
        {
            return answer;
        }
        if let Some(known) = self.events.webhooks.endpoint(endpoint.team, endpoint.id) {
            return IdempotentResult::Done(known.clone());
        }
        let newest = self.events.last_event_seq(endpoint.team);
        endpoint.cursor = match start {
            EndpointStart::NextEvent => newest,
            EndpointStart::After(seq) => seq.min(newest),
        };
        if let Some(operation) = operation {
            self.outbound.bind_operation(operation);
        }
        self.reserve_id(endpoint.id.0);
        self.events.webhooks.endpoints.insert(endpoint.id, endpoint.clone());
        self.record_act(Act::of_endpoint(None, Some(&endpoint)), endpoint.created_at);
        IdempotentResult::Done(endpoint)
    }

    pub(crate) fn change_endpoint(
        &mut self,
        edit: EndpointEdit,
        operation: Option<&KeyedOperation>,
        now: Time,
    ) -> IdempotentResult<EndpointChangeResult> {
        if let Some(answer) = operation.and_then(|operation| self.outbound.find_replay(operation, now)) {
            return answer;
        }
        let Some(mut endpoint) = self.events.webhooks.endpoint(edit.team, edit.id).cloned() else {
            return IdempotentResult::Done(EndpointChangeResult::Missing);
        };
        if endpoint.rev != edit.rev {
            return IdempotentResult::Done(EndpointChangeResult::Stale(endpoint));
        }
        let before = endpoint.clone();
        let told = endpoint.edit(edit.config, edit.state, now);
        self.events.save_endpoint(&endpoint, told);
        self.record_act(Act::of_endpoint(Some(&before), Some(&endpoint)), now);
        if let Some(operation) = operation {
            self.outbound.bind_operation(operation);
        }
        IdempotentResult::Done(EndpointChangeResult::Changed(endpoint))
    }

    pub(crate) fn remove_endpoint(&mut self, team: TeamId, id: EndpointId, now: Time) -> Option<Endpoint> {
        let removed = self.events.remove_endpoint(team, id)?;
        self.record_act(Act::of_endpoint(Some(&removed), None), now);
        Some(removed)
    }

    pub(crate) fn replay_notice(
        &mut self,
        (team, id): (TeamId, NoticeId),
        operation: Option<&KeyedOperation>,
        now: Time,
    ) -> IdempotentResult<Option<Notice>> {
        if let Some(answer) = operation.and_then(|operation| self.outbound.find_replay(operation, now)) {
            return answer;
        }
        let Some(mut notice) = self.events.webhooks.notice(team, id).cloned() else {
            return IdempotentResult::Done(None);
        };
        if notice.replay(now) {
            self.events.webhooks.save_and_reschedule(&notice, now);
        }
        if let Some(operation) = operation {
            self.outbound.bind_operation(operation);
        }
        IdempotentResult::Done(self.events.webhooks.notice(team, id).cloned())
    }

    pub(crate) fn recover_notices(
        &mut self,
        (team, id): (TeamId, EndpointId),
        recovery: NoticeRecovery,
        operation: Option<&KeyedOperation>,
        now: Time,
    ) -> IdempotentResult<Option<NoticeRecoveryResult>> {
        if let Some(answer) = operation.and_then(|operation| self.outbound.find_replay(operation, now)) {
            return answer;
        }
        let Some(mut endpoint) = self.events.webhooks.endpoint(team, id).cloned() else {
            return IdempotentResult::Done(None);
        };
        let after = self.events.seq_before(team, recovery.from);
        let mut due = 0;
        if recovery.include_delivered {
            endpoint.rewind_to(after);
            self.events.save_endpoint(&endpoint, None);
        } else {
            due = self.events.replay_failed(id, after, now);
        }
        if let Some(operation) = operation {
            self.outbound.bind_operation(operation);
        }
        IdempotentResult::Done(Some(NoticeRecoveryResult { after_seq: after, requeued: due }))
    }
}

impl EventTables {
    pub(crate) fn last_event_seq(&self, team: TeamId) -> u64 {
        self.log.get(&team).map_or(0, |events| events.len() as u64)
    }

    pub(crate) fn events_after(&self, team: TeamId, after: u64) -> impl Iterator<Item = Event> {
        let events = self.log.get(&team).map_or(&[][..], Vec::as_slice).iter().enumerate();
        let deleted = self.deleted.get(&team).copied().unwrap_or(0);
        events
            .skip(after.max(deleted) as usize)
            .map(|(place, event)| Event { seq: place as u64 + 1, event: event.clone() })
    }

    /// Deletes the oldest events of a team, with the settled notices about them. Returns whether there were any.
    pub(crate) fn drop_events(&mut self, team: TeamId, retention: EventRetention, indexed: u64) -> bool {
        let deleted = self.deleted.get(&team).copied().unwrap_or(0);
        let before_last = self.last_event_seq(team).saturating_sub(1);
        let oldest = self.events_after(team, 0).take(retention.max_rows);
        let old = oldest.take_while(|event| event.event.at <= retention.happened_by).last();
        let old = old.map_or(deleted, |event| event.seq).min(before_last);
        let cursors = self.webhooks.endpoints(team, None, usize::MAX).into_iter().map(|endpoint| endpoint.cursor);
        let last = retention.last_deleted(old, cursors, self.webhooks.first_pending(team), indexed);
        if last <= deleted {
            return false;
        }
        self.webhooks.delete_settled(team, last);
        self.deleted.insert(team, last);
        let log = self.log.entry(team).or_default();
        log.iter_mut().take(last as usize).for_each(|event| event.data = serde_json::Value::Null);
        true
    }

    pub(crate) fn save_endpoint(&mut self, endpoint: &Endpoint, told: Option<NewEvent>) {
        self.webhooks.endpoints.insert(endpoint.id, endpoint.clone());
        self.log.entry(endpoint.team).or_default().extend(told);
    }

    fn remove_endpoint(&mut self, team: TeamId, id: EndpointId) -> Option<Endpoint> {
        self.webhooks.endpoint(team, id)?;
        self.webhooks.removed_endpoints.insert(id);
        self.webhooks.endpoints.remove(&id)
    }

    /// Enabled endpoints with events after their cursor, those with the oldest fan-out first.
    pub(crate) fn lagging_endpoints(&self) -> Vec<Endpoint> {
        let behind = |endpoint: &&Endpoint| {
            endpoint.state == EndpointState::Enabled && endpoint.cursor < self.last_event_seq(endpoint.team)
        };
        let mut lagging: Vec<Endpoint> = self.webhooks.endpoints.values().filter(behind).cloned().collect();
        lagging.sort_by_key(|endpoint| (self.webhooks.fanned_out_at.get(&endpoint.id).copied(), endpoint.id));
        lagging
    }

    pub(crate) fn fan_out(&mut self, max: usize, now: Time) -> FanOutCounts {
        let mut lagging = self.lagging_endpoints();
        lagging.truncate(limits::FAN_OUT_ENDPOINTS);
        let share = (max / lagging.len().max(1)).max(1);
        let mut counts = FanOutCounts::default();
        for mut endpoint in lagging {
            let events: Vec<Event> = self.events_after(endpoint.team, endpoint.cursor).take(share).collect();
            for event in &events {
                endpoint.cursor = event.seq;
                counts.events_read += 1;
                counts.notices_created +=
                    usize::from(endpoint.wants(event) && self.webhooks.create_notice(&endpoint, event, now));
            }
            self.webhooks.fanned_out_at.insert(endpoint.id, now);
            self.save_endpoint(&endpoint, None);
        }
        counts.has_more = !self.lagging_endpoints().is_empty();
        counts
    }

    pub(crate) fn lease_notices(
        &mut self,
        (team, endpoint): (TeamId, EndpointId),
        node: NodeId,
        max: usize,
        now: Time,
    ) -> Vec<LeasedNotice> {
        let found = self.webhooks.endpoint(team, endpoint);
        if found.is_none_or(|endpoint| endpoint.state != EndpointState::Enabled) {
            return Vec::new();
        }
        let mut due: Vec<Notice> = self.webhooks.notices_of(endpoint).cloned().collect();
        due.retain(|notice| notice.due_at.is_some_and(|at| at <= now));
        due.sort_by_key(|notice| (notice.due_at, notice.seq));
        let mut leased = Vec::new();
        for mut notice in due.into_iter().take(max) {
            notice.lease(node, now);
            self.webhooks.save(notice.clone());
            let event = self.events_after(team, notice.seq - 1).next();
            leased.extend(event.map(|event| LeasedNotice { notice, event }));
        }
        leased
    }

    pub(crate) fn record_notice_outcome(&mut self, settle: NoticeOutcome, now: Time) -> Option<Notice> {
        let NoticeOutcome { team, id, attempt, verdict: answer, jitter_seed: chance } = settle;
        let mut notice = self.webhooks.notice(team, id)?.clone();
        if notice.record_outcome(attempt, answer, chance, now) {
            self.webhooks.save_and_reschedule(&notice, now);
            let mut endpoint = self.webhooks.endpoint(team, notice.endpoint)?.clone();
            let told = endpoint.record_response(answer, now);
            self.save_endpoint(&endpoint, told);
        }
        self.webhooks.notice(team, id).cloned()
    }

    /// The sequence number just before the first event to replay.
    pub(crate) fn seq_before(&self, team: TeamId, since: ReplayFrom) -> u64 {
        match since {
            ReplayFrom::Event(seq) => seq,
            ReplayFrom::Time(time) => {
                let first = self.events_after(team, 0).find(|event| event.event.at >= time);
                first.map_or(self.last_event_seq(team), |event| event.seq - 1)
            }
        }
    }

    pub(crate) fn replay_failed(&mut self, endpoint: EndpointId, after: u64, now: Time) -> usize {
        let failed = |notice: &&Notice| notice.seq > after && notice.has_failed(now);
        let failed = self.webhooks.notices_of(endpoint).filter(failed).take(limits::NOTICES_RECOVERED);
        let failed: Vec<NoticeKey> = failed.map(|notice| (notice.endpoint, notice.seq)).collect();
        for place in &failed {
            // Read it again: replaying the notices before it may have rescheduled it.
            let Some(mut notice) = self.webhooks.notices.get(place).cloned() else { continue };
            notice.replay(now);
            self.webhooks.save_and_reschedule(&notice, now);
        }
        failed.len()
    }

    pub(crate) fn endpoint_gauges(&self) -> Vec<EndpointGauge> {
        let gauge = |endpoint: &Endpoint| {
            let count =
                |state| self.webhooks.notices_of(endpoint.id).filter(|notice| notice.state == state).count() as u64;
            EndpointGauge {
                team: endpoint.team,
                id: endpoint.id,
                state: endpoint.state,
                lag: self.last_event_seq(endpoint.team) - endpoint.cursor,
                pending: count(NoticeState::Pending),
                dead: count(NoticeState::Dead),
            }
        };
        self.webhooks.endpoints.values().map(gauge).collect()
    }
}
