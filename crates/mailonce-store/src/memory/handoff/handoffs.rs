//! Handoffs: leases, actions, and recovery of handoffs that dead nodes held.

use mailonce_core::{
    control::audit::act::Act,
    handoff::{
        Attempt, Evidence, HandoffState,
        action::{ActionLimits, HandoffAction, HandoffActionStatus},
        lease::{Backlog, HandoffActionResult, LeaseRequest, LeasedHandoff, OrphanBacklog, TransportAccount},
    },
    id::{EmailId, NodeId, TeamId},
    installation::RecoveryCounts,
    limits, mutant,
    operation::{IdempotentResult, KeyedOperation},
    outbound::email::Email,
    time::Time,
};
use std::collections::BTreeMap;

use crate::{
    memory::{Tables, outbound::tables::OutboundTables},
    transport_registry::TransportRegistry,
};

/// The tables of handoffs, and the nodes that work on them.
#[derive(Default)]
pub(crate) struct HandoffTables {
    pub(crate) attempts: BTreeMap<EmailId, Vec<Attempt>>,
    pub(crate) evidence: BTreeMap<EmailId, Vec<Evidence>>,
    /// Frozen bytes by email and transport.
    pub(crate) wires: BTreeMap<(EmailId, String), Vec<u8>>,
    /// The last heartbeat of each node.
    pub(crate) nodes: BTreeMap<NodeId, Time>,
    pub(crate) transport_registry: TransportRegistry,
}

impl Tables {
    pub(crate) fn lease_handoffs(&mut self, request: &LeaseRequest, now: Time) -> Vec<LeasedHandoff> {
        let busy = |recipients: &[String]| {
            recipients.iter().any(|to| {
                to.rsplit_once('@').is_some_and(|(_, at)| request.excluded_domains.iter().any(|but| but == at))
            })
        };
        let (stops, mut leased) = (self.stops(), Vec::new());
        for (_, id, number) in self.outbound.due_handoffs(&request.transport, usize::MAX, request.schedule_cutoff, now)
        {
            let Some(mut email) = self.outbound.emails.get(&id).cloned() else { continue };
            let Some(handoff) = email.handoffs.get(usize::from(number)) else { continue };
            if leased.len() == request.max || busy(&handoff.recipients) {
                continue;
            }
            if email.park_if_stopped(number, &stops) {
                self.outbound.emails.insert(id, email);
                continue;
            }
            if !email.lease_handoff(number, request.node, now) {
                continue;
            }
            if !mutant!("lease-unsaved") {
                self.outbound.emails.insert(id, email.clone());
            }
            leased.push(self.with_bytes(email, number));
        }
        leased
    }

    /// Adds to a handoff what a worker needs to send it: the body, and the frozen bytes if there are any.
    pub(crate) fn with_bytes(&self, email: Email, number: u16) -> LeasedHandoff {
        let transport = email.handoffs.get(usize::from(number)).map(|handoff| handoff.transport.clone());
        let wire = transport.and_then(|transport| self.handoffs.wires.get(&(email.id, transport)).cloned());
        LeasedHandoff { body: self.outbound.bodies.get(&email.id).cloned(), frozen_bytes: wire, email, handoff: number }
    }

    pub(crate) fn apply_action(
        &mut self,
        team: TeamId,
        id: EmailId,
        act: &HandoffAction,
        operation: Option<&KeyedOperation>,
        now: Time,
    ) -> IdempotentResult<HandoffActionResult> {
        if let Some(answer) = operation.and_then(|operation| self.outbound.find_replay(operation, now)) {
            return answer;
        }
        let acted = self.apply_unless_duplicate(team, id, act, now);
        if let (Some(operation), HandoffActionResult::Applied(HandoffActionStatus::Done, _)) = (operation, &acted) {
            self.outbound.bind_operation(operation);
        }
        if let HandoffActionResult::Applied(HandoffActionStatus::Done, _) = &acted {
            self.record_act(Act::of_email_action(team, id, act), now);
        }
        IdempotentResult::Done(acted)
    }

    /// Applies an action, unless it adds evidence that is already recorded.
    fn apply_unless_duplicate(
        &mut self,
        team: TeamId,
        id: EmailId,
        act: &HandoffAction,
        now: Time,
    ) -> HandoffActionResult {
        let anybody = self.outbound.emails.get(&id).filter(|_| mutant!("act-of-any-team")).cloned();
        let Some(mut email) = anybody.or_else(|| self.outbound.email_of_team(team, id)) else {
            return HandoffActionResult::Missing;
        };
        let known = self.handoffs.evidence.get(&id).into_iter().flatten().filter_map(|fact| fact.dedup_key.as_deref());
        if !mutant!("facts-count-twice")
            && act.dedup_key().is_some_and(|once| known.into_iter().any(|known| known == once))
        {
            return HandoffActionResult::Applied(HandoffActionStatus::Unchanged, email);
        }
        let before = email.clone();
        let usage = self.control.usage_of(team, act.charges());
        let limits = ActionLimits { stops: &self.stops(), usage: &usage };
        let mut effects = email.apply_limited_action(act, &limits, now);
        if mutant!("event-lost") {
            effects.events.clear();
        }
        if mutant!("event-twice") {
            effects.events.extend(effects.events.clone());
        }
        if let (HandoffAction::Mark { lease: hold, frozen_bytes, contacts }, HandoffActionStatus::Done) =
            (act, effects.status)
        {
            if let Some(wire) = frozen_bytes {
                self.handoffs.wires.entry((id, hold.transport.clone())).or_insert_with(|| wire.to_vec());
            }
            self.control.remember_contacts(team, contacts);
        }
        for attempt in effects.attempts {
            self.handoffs.save_attempt(id, attempt);
        }
        self.handoffs.evidence.entry(id).or_default().extend(effects.evidence);
        self.events.log.entry(team).or_default().extend(effects.events);
        if effects.changed {
            self.outbound.schedule_sweep(&email, Time(i64::MIN));
            self.outbound.emails.insert(id, email.clone());
            self.control.charge(team, id, &effects.charges);
            self.control.refund_if_unsent(&before, &email);
            self.update_message_progress(&before, &email, now);
        }
        HandoffActionResult::Applied(effects.status, email)
    }

    pub(crate) fn due_unknown_handoffs(&self, mine: &[TransportAccount], max: usize, now: Time) -> Vec<(Email, u16)> {
        let mut due: Vec<(Time, EmailId, u16)> = self
            .outbound
            .emails
            .values()
            .flat_map(|email| email.handoffs.iter().map(move |handoff| (email.id, handoff)))
            .filter(|(_, handoff)| handoff.state == HandoffState::Unknown)
            .filter(|(_, handoff)| self.handoffs.transport_registry.may_resolve_handoff(mine, handoff, now))
            .filter_map(|(id, handoff)| Some((handoff.due_at.filter(|at| *at <= now)?, id, handoff.number)))
            .collect();
        due.sort_unstable();
        due.truncate(max);
        due.into_iter().filter_map(|(_, id, number)| Some((self.outbound.emails.get(&id)?.clone(), number))).collect()
    }

    pub(crate) fn orphan_backlogs(&self, known: &[String], now: Time) -> Vec<OrphanBacklog> {
        let mut found: BTreeMap<(TeamId, &str), (u64, u64)> = BTreeMap::new();
        for (email, handoff) in
            self.outbound.emails.values().flat_map(|email| email.handoffs.iter().map(move |h| (email, h)))
        {
            let name = handoff.transport.as_str();
            let counted = handoff.is_waiting() || handoff.state == HandoffState::Unknown;
            if !counted
                || known.iter().any(|known| known == name)
                || self.handoffs.transport_registry.is_live(name, now)
            {
                continue;
            }
            let (waiting, unknown) = found.entry((email.team, name)).or_default();
            *waiting += u64::from(handoff.is_waiting());
            *unknown += u64::from(!handoff.is_waiting());
        }
        let orphans = |((team, name), (waiting, unknown)): ((TeamId, &str), (u64, u64))| OrphanBacklog {
            team,
            transport: name.to_owned(),
            waiting,
            unknown,
        };
        found.into_iter().map(orphans).collect()
    }

    pub(crate) fn recover_dead_nodes(&mut self, node: NodeId, max: usize, now: Time) -> (RecoveryCounts, Vec<Email>) {
        let nodes = self.handoffs.nodes.clone();
        let alive = |holder: NodeId| {
            let heard = |seen: &Time| now.since(*seen) < limits::HEARTBEAT_TIMEOUT_MS && !mutant!("heartbeat-ignored");
            holder == node || nodes.get(&holder).is_some_and(heard)
        };
        let left = |email: &Email| {
            let held = email.handoffs.iter().filter_map(|handoff| Some((handoff.number, handoff.holder?)));
            held.filter(|(_, holder)| !alive(*holder)).map(|(n, h)| (email.team, email.id, n, h)).collect::<Vec<_>>()
        };
        let left: Vec<(TeamId, EmailId, u16, NodeId)> =
            self.outbound.emails.values().flat_map(left).take(max).collect();
        let left = if mutant!("nothing-recovered") { Vec::new() } else { left };
        let (mut recovered, mut changed) = (RecoveryCounts::default(), Vec::new());
        recovered.deliveries = self.inbound.reclaim_deliveries(alive, max, now);
        recovered.notices = self.events.webhooks.reclaim_notices(alive, max, now);
        for (team, id, number, holder) in left {
            if let HandoffActionResult::Applied(HandoffActionStatus::Done, email) =
                self.apply_unless_duplicate(team, id, &HandoffAction::Crash { number, holder }, now)
            {
                recovered.count_handoff(&email, number);
                changed.push(email);
            }
        }
        (recovered, changed)
    }

    pub(crate) fn handoff_by_remote_id(&self, team: TeamId, remote_id: &str) -> Option<(EmailId, u16)> {
        let named = |attempt: &&Attempt| attempt.details.remote_id.as_deref() == Some(remote_id);
        let ours = self.handoffs.attempts.iter().filter(|(id, _)| self.outbound.email_of_team(team, **id).is_some());
        ours.into_iter().find_map(|(id, all)| Some((*id, all.iter().find(named)?.handoff)))
    }
}

impl HandoffTables {
    /// Inserts or updates an attempt.
    pub(crate) fn save_attempt(&mut self, id: EmailId, attempt: Attempt) {
        let all = self.attempts.entry(id).or_default();
        if mutant!("attempts-not-updated") {
            all.push(attempt.clone());
        }
        match all.iter_mut().find(|known| (known.handoff, known.number) == (attempt.handoff, attempt.number)) {
            Some(known) => *known = attempt,
            None => all.push(attempt),
        }
        all.sort_by_key(|attempt| (attempt.handoff, attempt.number));
    }
}

impl OutboundTables {
    pub(crate) fn emails_open_at_transport(
        &self,
        transport: &str,
        after: Option<(TeamId, EmailId)>,
        limit: usize,
    ) -> Vec<(TeamId, EmailId)> {
        let open = |email: &&Email| email.handoffs.iter().any(|handoff| handoff.is_open_at(transport));
        let mut places: Vec<_> = self.emails.values().filter(open).map(|email| (email.team, email.id)).collect();
        places.sort_unstable();
        places.into_iter().filter(|place| after.is_none_or(|after| *place > after)).take(limit).collect()
    }

    pub(crate) fn backlog(&self) -> Backlog {
        let mut waiting: BTreeMap<String, u64> = BTreeMap::new();
        let mut backlog = Backlog::default();
        for handoff in self.emails.values().flat_map(|email| &email.handoffs) {
            match handoff.state {
                HandoffState::Queued | HandoffState::Scheduled => {
                    *waiting.entry(handoff.transport.clone()).or_default() += 1;
                    backlog.oldest_due_at = [backlog.oldest_due_at, handoff.due_at].into_iter().flatten().min();
                }
                HandoffState::Unknown => backlog.unknown += 1,
                _ => {}
            }
        }
        backlog.waiting = waiting.into_iter().collect();
        backlog
    }
}
