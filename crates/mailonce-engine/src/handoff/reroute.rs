//! Rerouting: an operator moves the waiting handoffs of one transport to another. Handoffs in doubt stay, because a
//! second attempt elsewhere could deliver a second copy.

use crate::{
    access::caller::Caller,
    handoff::{Handoffs, breaker::transport_state_json},
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    handoff::{
        Handoff,
        action::{HandoffAction, HandoffActionStatus},
        lease::HandoffActionResult,
    },
    id::{EmailId, TeamId},
    operation::IdempotentResult,
    outbound::email::Email,
    problem::{Code, Problem},
    record::{CreateRecordResult, Record, RecordChangeResult, RecordKind, TransportState},
};
use serde::{Deserialize, Serialize};

/// About how many handoffs one call moves.
const MAX_MOVED_PER_CALL: u64 = 5_000;
/// Emails read per page.
const PAGE_SIZE: usize = 500;
/// How often a change to a record is retried after a conflict.
const MAX_CONFLICT_RETRIES: usize = 5;

/// What a call moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RerouteSummary {
    /// The old transport.
    pub from: String,
    /// The new transport.
    pub to: String,
    /// Handoffs that were moved.
    pub moved: u64,
    /// Handoffs that stay: running, unknown, in doubt, or with recipients that the new transport can't take
    /// separately.
    pub left: u64,
    /// Whether another call may find more to move.
    pub more: bool,
}

impl Handoffs {
    /// Moves the waiting handoffs of all teams from one transport to another. The same key again gets the first
    /// answer.
    pub async fn reroute(
        &self,
        caller: &Caller,
        from: &str,
        to: &str,
        keyed_call: Option<KeyedCall>,
    ) -> Result<RerouteSummary, Problem> {
        caller.require_scope(ApiKeyScope::Operator)?;
        let mut summary = RerouteSummary { from: from.to_owned(), to: to.to_owned(), ..RerouteSummary::default() };
        if !self.ctx.is_repeated_call(caller, keyed_call.as_ref()).await? {
            let names = self.ctx.transports.selectable_names();
            if !names.contains(&to) {
                return Err(Problem::invalid_field(
                    "to",
                    format!("must be a configured transport: {}", names.join(", ")),
                ));
            }
            if from == to {
                return Err(Problem::invalid_field(
                    "to",
                    "must differ from the transport that the handoffs are moved from",
                ));
            }
            self.move_waiting_handoffs(&mut summary).await?;
            self.ctx.transports.wake_all();
        }
        self.record_reroute(caller, summary, keyed_call.as_ref()).await
    }

    async fn move_waiting_handoffs(&self, summary: &mut RerouteSummary) -> Result<(), Problem> {
        let mut after = None;
        while summary.moved < MAX_MOVED_PER_CALL {
            let page =
                self.ctx.store.emails_open_at_transport(&summary.from, after, PAGE_SIZE).await.map_err(unavailable)?;
            for (team, id) in &page {
                let (moved, left) = self.move_email(*team, *id, &summary.from, &summary.to).await?;
                (summary.moved, summary.left) = (summary.moved + moved, summary.left + left);
            }
            after = page.last().copied();
            summary.more = page.len() == PAGE_SIZE;
            if !summary.more {
                break;
            }
        }
        let RerouteSummary { from, to, moved, left, .. } = &*summary;
        tracing::info!(from, to, moved, left, "rerouted by an operator");
        Ok(())
    }

    /// Moves the waiting handoffs of one email. Returns how many were moved and how many stay.
    async fn move_email(&self, team: TeamId, id: EmailId, from: &str, to: &str) -> Result<(u64, u64), Problem> {
        let Some(found) = self.ctx.store.leased_handoff(team, id, 0).await.map_err(unavailable)? else {
            return Ok((0, 0));
        };
        let waiting = |email: &Email| count_handoffs(email, |h| h.is_waiting() && h.transport == from);
        let open = |email: &Email| count_handoffs(email, |h| h.is_open_at(from));
        let Some(content) = found.body.as_deref().and_then(|body| self.ctx.packer.unpack(body)) else {
            return Ok((0, open(&found.email)));
        };
        let action = HandoffAction::RerouteByOperator {
            from: from.to_owned(),
            envelopes: self.ctx.transports.envelopes(to, &content),
        };
        match self.ctx.store.apply_action(team, id, action, None, self.ctx.now()).await.map_err(unavailable)? {
            IdempotentResult::Done(HandoffActionResult::Applied(HandoffActionStatus::Done, email)) => {
                Ok((waiting(&found.email).saturating_sub(waiting(&email)), open(&email)))
            }
            IdempotentResult::Done(HandoffActionResult::Applied(_, email)) => Ok((0, open(&email))),
            _ => Ok((0, 0)),
        }
    }

    /// Records the call and its answer in the transport's record. Returns the first answer when the key was used
    /// before.
    async fn record_reroute(
        &self,
        caller: &Caller,
        summary: RerouteSummary,
        keyed_call: Option<&KeyedCall>,
    ) -> Result<RerouteSummary, Problem> {
        let (team, kind) = (caller.team.id, RecordKind::Transport);
        for _ in 0..MAX_CONFLICT_RETRIES {
            let now = self.ctx.now();
            let operation = operation(caller, keyed_call, self.ctx.seal_answer(keyed_call, &summary), now);
            let known = self.ctx.store.record_by_name(team, kind, &summary.from).await.map_err(unavailable)?;
            let old_state: TransportState =
                known.as_ref().and_then(|record| serde_json::from_str(&record.json).ok()).unwrap_or_default();
            let rerouted_to = Some(summary.to.clone());
            let state = TransportState { rerouted_at: Some(now), rerouted_to, ..old_state };
            let json = transport_state_json(&state).map_err(unavailable)?;
            let written = if let Some(record) = known {
                let changed = self.ctx.store.change_record(record.edit(json), operation, now).await;
                changed.map_err(unavailable)?.map(|changed| matches!(changed, RecordChangeResult::Changed(_)))
            } else {
                let (id, name) = (self.ctx.new_id(now), summary.from.clone());
                let record = Record { team, kind, id, name, rev: 1, created_at: now, json };
                let created = self.ctx.store.create_record(record, operation).await;
                created.map_err(unavailable)?.map(|created| matches!(created, CreateRecordResult::Created(_)))
            };
            match written {
                IdempotentResult::Done(true) => return Ok(summary),
                IdempotentResult::Done(false) => {}
                IdempotentResult::Replayed(sealed) => return self.ctx.open_answer(keyed_call, &sealed),
                IdempotentResult::KeyMismatch(bound) => return Err(key_mismatch(&bound)),
            }
        }
        Err(Problem::new(Code::Unavailable, "the record of this transport keeps changing; try again"))
    }
}

fn count_handoffs(email: &Email, which: impl Fn(&Handoff) -> bool) -> u64 {
    email.handoffs.iter().filter(|handoff| which(handoff)).count() as u64
}
