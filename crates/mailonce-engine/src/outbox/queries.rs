//! The state of the outboxes of a team, dead letters and their replay.

use mailonce_core::{
    control::audit::act::Act,
    failpoint,
    operation::IdempotentResult,
    outbox::{OutboxError, OutboxStatus, ParkedRow},
    problem::{Code, Problem},
};
use std::sync::{Arc, PoisonError};
use uuid::Uuid;

use super::{OutboxDrainer, Outboxes};
use crate::{
    access::caller::Caller,
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable as store_unavailable},
    },
};

/// An outbox as its team sees it.
#[derive(Debug)]
pub struct OutboxView {
    /// Its name.
    pub name: String,
    /// What it contains; `None` when its database does not answer.
    pub status: Option<OutboxStatus>,
    /// Why it is not drained.
    pub error: Option<String>,
}

/// A page of dead letters.
#[derive(Debug)]
pub struct ParkedPage {
    /// The dead letters, newest first.
    pub rows: Vec<ParkedRow>,
    /// Where the next page begins.
    pub next: Option<i64>,
}

/// What a caller learns about an error. The text of a database may name hosts and roles, which are the operator's.
fn public_text(error: &OutboxError) -> String {
    match error {
        OutboxError::Unreachable(_) => "the database cannot be used; the log of the server says why".to_owned(),
        OutboxError::IdentityChanged(_) => {
            "the database was restored, cloned or failed over; an operator checks it and runs `mailonce outbox confirm`"
                .to_owned()
        }
        OutboxError::UnreadableTable(_) => {
            format!("{error}; copy the rows with a trigger, or let them stay and run `mailonce outbox confirm`")
        }
        OutboxError::NotInstalled(_) => {
            format!("{error}; an operator runs `mailonce outbox install`")
        }
        OutboxError::WrongVersion { found, expected } if found < expected => {
            format!("{error}; an operator runs `mailonce outbox upgrade`")
        }
        OutboxError::WrongVersion { .. } => format!("{error}; an operator starts a newer mailonce"),
    }
}

fn unavailable(name: &str, error: &OutboxError) -> Problem {
    tracing::warn!(outbox = name, %error, "the outbox could not answer");
    Problem::new(Code::Unavailable, format!("outbox {name}: {}", public_text(error)))
}

impl Outboxes {
    /// The outboxes of the caller's team.
    async fn own_outboxes(&self, caller: &Caller) -> Result<Vec<&Arc<OutboxDrainer>>, Problem> {
        caller.require_unrestricted_key()?;
        let mut own = Vec::new();
        for drainer in &self.drainers {
            // An outbox without an existing team belongs to nobody.
            match drainer.team().await {
                Ok(team) if team.id == caller.team.id => own.push(drainer),
                Ok(_) => {}
                Err(problem) if problem.code == Code::NotFound => {}
                Err(problem) => return Err(problem),
            }
        }
        Ok(own)
    }

    /// The outboxes of the caller's team, and what each contains.
    pub async fn outboxes(&self, caller: &Caller) -> Result<Vec<OutboxView>, Problem> {
        let mut views = Vec::new();
        for drainer in self.own_outboxes(caller).await? {
            let name = drainer.config.name.clone();
            views.push(match drainer.config.database.status().await {
                Ok(status) => {
                    let changed = OutboxError::IdentityChanged(String::new());
                    let stopped = (!status.is_confirmed()).then(|| public_text(&changed));
                    let problem = status.source.as_ref().and_then(|source| source.problem.clone());
                    let unreadable = problem.map(|problem| public_text(&OutboxError::UnreadableTable(problem)));
                    let failing = drainer.last_error.lock().unwrap_or_else(PoisonError::into_inner).is_some();
                    let failing = failing.then(|| "the last round failed; the log of the server says why".to_owned());
                    OutboxView { name, status: Some(status), error: stopped.or(unreadable).or(failing) }
                }
                Err(error) => OutboxView { name, status: None, error: Some(public_text(&error)) },
            });
        }
        Ok(views)
    }

    /// Dead letters of one outbox, newest first, before this position.
    pub async fn parked(
        &self,
        caller: &Caller,
        name: &str,
        before: Option<i64>,
        limit: usize,
    ) -> Result<ParkedPage, Problem> {
        let own = self.own_outboxes(caller).await?;
        let found = own.into_iter().find(|drainer| drainer.config.name == name);
        let drainer = found.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no outbox {name}")))?;
        let rows = drainer.config.database.parked(before, limit).await.map_err(|error| unavailable(name, &error))?;
        let next = rows.last().filter(|_| rows.len() == limit).map(|row| row.seq);
        Ok(ParkedPage { rows, next })
    }

    /// Offers a dead letter of the caller's team again. A row that is no longer parked stays as it is.
    ///
    /// The audit entry and the key come first, in the ledger. A retry after a crash continues under the same request,
    /// which the row remembers, so each request replays it at most once.
    pub async fn replay(&self, caller: &Caller, id: Uuid, keyed_call: Option<KeyedCall>) -> Result<(), Problem> {
        let (drainer, is_parked) = self.find_row(caller, id).await?;
        let name = drainer.config.name.as_str();
        let now = self.ctx.now();
        let mut request = self.ctx.new_id(now);
        let act = Act::of_replayed_row(caller.team.id, name, id);
        let answer = match operation(caller, keyed_call.as_ref(), request.as_bytes().to_vec(), now) {
            Some(operation) if is_parked => self.ctx.store.record_keyed_act(act, operation, now).await,
            Some(operation) => self.ctx.store.bind_operation(operation, now).await,
            None if is_parked => self.ctx.store.record_act(act, now).await.map(IdempotentResult::Done),
            None => return Ok(()),
        };
        match answer.map_err(store_unavailable)? {
            IdempotentResult::Done(()) => {}
            IdempotentResult::Replayed(first) => request = Uuid::from_slice(&first).unwrap_or(request),
            IdempotentResult::KeyMismatch(bound) => return Err(key_mismatch(&bound)),
        }
        failpoint!("outbox-replay-recorded");
        drainer.config.database.replay(id, request).await.map_err(|error| unavailable(name, &error))
    }

    /// The outbox of the caller's team that has a row, and whether the row is parked. One that does not answer counts only
    /// when no other has the row.
    async fn find_row(&self, caller: &Caller, id: Uuid) -> Result<(&Arc<OutboxDrainer>, bool), Problem> {
        let mut silent = None;
        for drainer in self.own_outboxes(caller).await? {
            match drainer.config.database.is_parked(id).await {
                Ok(Some(is_parked)) => return Ok((drainer, is_parked)),
                Ok(None) => {}
                Err(error) => silent = Some(unavailable(&drainer.config.name, &error)),
            }
        }
        Err(silent.unwrap_or_else(|| Problem::new(Code::NotFound, format!("there is no parked row {id}"))))
    }
}
