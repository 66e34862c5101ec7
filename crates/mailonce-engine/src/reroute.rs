//! An operator moves what waits for one transport to another. What is in doubt stays: a second attempt elsewhere could be
//! a second mail.

use mailonce_core::{
    dispatch::{Act, Verdict},
    email::Email,
    handoff::Handoff,
    id::{EmailId, TeamId},
    port::store::{Acted, Once},
    problem::{Code, Problem},
    record::{Created, Record, RecordChange, RecordKind, WayState},
    team::Scope,
};
use serde::{Deserialize, Serialize};

use crate::{Asked, Caller, Engine, breaker::as_json, change::taken, fault, operation, unavailable};

/// Handoffs that one call moves, about.
const MOVED_AT_ONCE: u64 = 5_000;
/// Emails that are read in one page.
const PAGE: usize = 500;
/// How often a record that raced with another change is tried anew.
const TRIES: usize = 5;

/// What a call moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rerouted {
    /// The transport that was left.
    pub from: String,
    /// The transport that has it now.
    pub to: String,
    /// Handoffs that were moved.
    pub moved: u64,
    /// Handoffs that stay: under way, unknown, in doubt, or with recipients the other transport cannot take alone.
    pub left: u64,
    /// Whether there may be more to move than one call does.
    pub more: bool,
}

impl Engine {
    /// Moves what waits for a transport to another one, whosever it is. A repeat under the same key gets the first answer.
    pub async fn reroute(
        &self,
        caller: &Caller,
        from: &str,
        to: &str,
        asked: Option<Asked>,
    ) -> Result<Rerouted, Problem> {
        caller.need(Scope::Operator)?;
        let mut answer = Rerouted { from: from.to_owned(), to: to.to_owned(), ..Rerouted::default() };
        if !self.was_asked(caller, asked.as_ref()).await? {
            let names = self.ways.names();
            if !names.contains(&to) {
                return Err(fault("to", format!("names no transport; there is {}", names.join(", "))));
            }
            if from == to {
                return Err(fault("to", "must be another transport than the one it is moved from"));
            }
            self.move_all(&mut answer).await?;
            self.ways.wake();
        }
        self.note_reroute(caller, answer, asked.as_ref()).await
    }

    async fn move_all(&self, answer: &mut Rerouted) -> Result<(), Problem> {
        let mut after = None;
        while answer.moved < MOVED_AT_ONCE {
            let page = self.store.open_at(&answer.from, after, PAGE).await.map_err(unavailable)?;
            for (team, id) in &page {
                let (moved, left) = self.move_one(*team, *id, &answer.from, &answer.to).await?;
                (answer.moved, answer.left) = (answer.moved + moved, answer.left + left);
            }
            after = page.last().copied();
            answer.more = page.len() == PAGE;
            if !answer.more {
                break;
            }
        }
        tracing::info!(from = answer.from, to = answer.to, answer.moved, answer.left, "rerouted by an operator");
        Ok(())
    }

    /// Moves what it can of one email. How many handoffs were moved, and how many stay.
    async fn move_one(&self, team: TeamId, id: EmailId, from: &str, to: &str) -> Result<(u64, u64), Problem> {
        let Some(found) = self.store.leased(team, id, 0).await.map_err(unavailable)? else { return Ok((0, 0)) };
        let waiting = |email: &Email| count(email, |h| h.is_waiting() && h.transport == from);
        let open = |email: &Email| count(email, |h| h.is_open_at(from));
        let Some(content) = found.body.as_deref().and_then(|body| self.bodies.unpack(body)) else {
            return Ok((0, open(&found.email)));
        };
        let act = Act::Relocate { from: from.to_owned(), envelopes: self.ways.envelopes(to, &content) };
        match self.store.act(team, id, act, None, self.now()).await.map_err(unavailable)? {
            Once::Done(Acted::Email(Verdict::Done, email)) => {
                Ok((waiting(&found.email).saturating_sub(waiting(&email)), open(&email)))
            }
            Once::Done(Acted::Email(_, email)) => Ok((0, open(&email))),
            _ => Ok((0, 0)),
        }
    }

    /// Remembers the call and its answer with the record of the transport. The first answer, when it was asked before.
    async fn note_reroute(
        &self,
        caller: &Caller,
        answer: Rerouted,
        asked: Option<&Asked>,
    ) -> Result<Rerouted, Problem> {
        let (team, kind) = (caller.team.id, RecordKind::Transport);
        for _ in 0..TRIES {
            let now = self.now();
            let operation = operation(caller, asked, self.sealed(asked, &answer), now);
            let known = self.store.record_named(team, kind, &answer.from).await.map_err(unavailable)?;
            let was: WayState =
                known.as_ref().and_then(|record| serde_json::from_str(&record.about).ok()).unwrap_or_default();
            let about = as_json(&WayState { rerouted_at: Some(now), ..was }).map_err(unavailable)?;
            let written = if let Some(record) = known {
                let changed = self.store.change_record(record.edit(about), operation, now).await;
                changed.map_err(unavailable)?.map(|changed| matches!(changed, RecordChange::Changed(_)))
            } else {
                let (id, name) = (self.new_id(now), answer.from.clone());
                let record = Record { team, kind, id, name, rev: 1, created_at: now, about };
                let made = self.store.create_record(record, operation).await;
                made.map_err(unavailable)?.map(|made| matches!(made, Created::Made(_)))
            };
            match written {
                Once::Done(true) => return Ok(answer),
                Once::Done(false) => {}
                Once::Repeated(sealed) => return self.unsealed(asked, &sealed),
                Once::Mismatch(bound) => return Err(taken(&bound)),
            }
        }
        Err(Problem::new(Code::Unavailable, "the record of this transport changes too fast; call again"))
    }
}

fn count(email: &Email, which: impl Fn(&Handoff) -> bool) -> u64 {
    email.handoffs.iter().filter(|handoff| which(handoff)).count() as u64
}
