//! Notices are webhook deliveries: one event for one endpoint. A team can list, inspect, replay and recover them.

use crate::{
    access::caller::Caller,
    events::{Events, endpoints::endpoint_not_found},
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    events::{
        endpoint::Endpoint,
        notice::{Notice, NoticeQuery, NoticeRecovery, NoticeRecoveryResult, NoticeState, ReplayFrom},
    },
    id::{EndpointId, NoticeId},
    limits,
    operation::IdempotentResult,
    problem::{Code, Problem},
};

fn notice_not_found(id: NoticeId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no notice {id}"))
}

/// Whether a caller may see a notice. An endpoint with a dialect gets notices for events of the whole team. Events of
/// other inboxes are dropped when they are formatted. So a restricted API key sees only notices that got past that.
fn may_see_notice(caller: &Caller, endpoint: &Endpoint, notice: &Notice) -> bool {
    let sees_whole_team = endpoint.config.dialect.is_some() && endpoint.config.inboxes.is_empty();
    caller.inbox_restriction.is_none()
        || !sees_whole_team
        || matches!(notice.state, NoticeState::Delivered | NoticeState::Dead)
}

impl Events {
    /// Notices of an endpoint, those of the latest events first, and the sequence number to continue from.
    pub async fn notices(
        &self,
        caller: &Caller,
        endpoint: EndpointId,
        query: NoticeQuery,
    ) -> Result<(Vec<Notice>, Option<u64>), Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        let endpoint = self.endpoint(caller, endpoint).await?;
        let limit = query.limit.min(limits::PAGE_ROWS);
        let query = NoticeQuery { limit, ..query };
        let rows = self.ctx.store.notices(caller.team.id, endpoint.id, query).await.map_err(unavailable)?;
        let next = rows.last().filter(|_| rows.len() == limit).map(|notice| notice.seq);
        Ok((rows.into_iter().filter(|notice| may_see_notice(caller, &endpoint, notice)).collect(), next))
    }

    /// One notice, with its latest attempts.
    pub async fn notice(&self, caller: &Caller, id: NoticeId) -> Result<Notice, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        self.visible_notice(caller, id).await
    }

    async fn visible_notice(&self, caller: &Caller, id: NoticeId) -> Result<Notice, Problem> {
        let found = self.ctx.store.notice(caller.team.id, id).await.map_err(unavailable)?;
        let notice = found.ok_or_else(|| notice_not_found(id))?;
        match self.endpoint(caller, notice.endpoint).await {
            Ok(endpoint) if may_see_notice(caller, &endpoint, &notice) => Ok(notice),
            Ok(_) => Err(notice_not_found(id)),
            Err(problem) if problem.code == Code::NotFound => Err(notice_not_found(id)),
            Err(problem) => Err(problem),
        }
    }

    /// The body of a notice in the format of its endpoint's dialect. `None` when the dialect has no such event, or the
    /// event is no longer stored.
    pub async fn notice_body(&self, caller: &Caller, notice: &Notice) -> Result<Option<String>, Problem> {
        let endpoint = self.endpoint(caller, notice.endpoint).await?;
        let events =
            self.ctx.store.events(caller.team.id, notice.seq.saturating_sub(1), 1).await.map_err(unavailable)?;
        let Some(event) = events.first().filter(|event| event.seq == notice.seq) else { return Ok(None) };
        let formatted = self.format_event(&endpoint, (event, notice), self.ctx.now()).await.map_err(unavailable)?;
        Ok(formatted.map(|formatted| formatted.body))
    }

    /// Sends a notice again, at once and with the same id.
    pub async fn replay_notice(
        &self,
        caller: &Caller,
        id: NoticeId,
        keyed_call: Option<KeyedCall>,
    ) -> Result<Notice, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        let now = self.ctx.now();
        self.visible_notice(caller, id).await?;
        let operation = operation(caller, keyed_call.as_ref(), Vec::new(), now);
        let replayed = self.ctx.store.replay_notice(caller.team.id, id, operation, now).await.map_err(unavailable)?;
        self.notice_wakeup.notify_one();
        match replayed {
            IdempotentResult::Done(notice) => notice.ok_or_else(|| notice_not_found(id)),
            IdempotentResult::Replayed(_) => self.visible_notice(caller, id).await,
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// Sends failed notices, or all, to an endpoint again from some point on. `None` when the call is a replay.
    pub async fn recover_notices(
        &self,
        caller: &Caller,
        id: EndpointId,
        recovery: NoticeRecovery,
        keyed_call: Option<KeyedCall>,
    ) -> Result<Option<NoticeRecoveryResult>, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        self.endpoint(caller, id).await?;
        let (team, now) = (caller.team.id, self.ctx.now());
        if let ReplayFrom::Event(seq @ 1..) = recovery.from
            && !self.ctx.is_repeated_call(caller, keyed_call.as_ref()).await?
        {
            self.check_kept_after(team, seq).await?;
        }
        let operation = operation(caller, keyed_call.as_ref(), Vec::new(), now);
        let result = self.ctx.store.recover_notices(team, id, recovery, operation, now).await.map_err(unavailable)?;
        self.notice_wakeup.notify_one();
        match result {
            IdempotentResult::Done(result) => Ok(Some(result.ok_or_else(|| endpoint_not_found(id))?)),
            IdempotentResult::Replayed(_) => Ok(None),
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }
}
