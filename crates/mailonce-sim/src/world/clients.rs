//! Clients, operators and providers: they call a node and record the result.

use crate::{
    proof::history::{CallKind, CallOutcome, CallRecord},
    world::{
        next_hop::{ProviderReport, SimulatedHop},
        planned_sends::{PlannedSend, SendIdentity},
        world_state::WorldState,
    },
};
use mailonce_core::{
    handoff::{Evidence, EvidenceSource, Handoff, action::Resolution},
    id::{EmailId, TeamId},
    key::Key,
    outbound::{
        email::{Email, EmailState},
        email_query::EmailQuery,
    },
    ports::store::Store as _,
    problem::{Code, Problem},
};
use mailonce_engine::{Caller, Engine, handoff::unknown::ResolveRequest, outbound::email_commands::ResendRequest};
use mailonce_store::memory::Memory;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

/// How much time may pass during a call, in milliseconds.
const CALL_LEEWAY_MS: i64 = 120_000;

/// An email that a client got an id for.
#[derive(Clone)]
pub(super) struct KnownEmail {
    pub(super) id: EmailId,
    pub(super) team: usize,
    pub(super) key: Option<String>,
}

/// All clients.
#[derive(Clone)]
pub(super) struct SimulatedClients {
    pub(super) shared: Arc<WorldState>,
    /// Reads emails before and after a call.
    pub(super) store: Arc<Memory>,
    /// One caller per team.
    pub(super) callers: Vec<Caller>,
    pub(super) known_emails: Arc<Mutex<Vec<KnownEmail>>>,
}

/// Operations on an email.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EmailOperation {
    Cancel,
    Resend,
    Resolve(Resolution),
    /// With an outdated revision.
    ResolveStale(Resolution),
    Forget,
    Read,
}

/// The name of a team in the history.
pub(super) fn team_name(team: usize) -> String {
    format!("team{team}")
}

/// A problem as an outcome of the history. `unavailable` counts as no answer.
pub(super) fn failure_outcome(problem: &Problem) -> CallOutcome {
    if problem.code == Code::Unavailable {
        return CallOutcome::Info;
    }
    CallOutcome::Fail { status: problem.code.status(), code: problem.code.as_str().to_owned() }
}

/// Whether an attempt may have arrived.
fn is_in_doubt(email: &Email) -> bool {
    email.handoffs.iter().any(Handoff::is_in_doubt)
}

impl SimulatedClients {
    pub(super) fn known_emails(&self) -> Vec<KnownEmail> {
        self.known_emails.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn remember_email(&self, target: KnownEmail) {
        let mut all = self.known_emails.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.iter().any(|known| known.id == target.id) {
            all.push(target);
        }
    }

    /// Makes a planned send.
    pub(super) async fn send_planned(self, engine: Arc<Engine>, send: PlannedSend, variant: u64, turn: bool) {
        let (key, team) = (send.idempotency_key(), team_name(send.team));
        self.record_key_expiry(&send).await;
        let mut call = CallRecord::new(0, &team, send.call_kind());
        (call.key, call.wanted, call.forgives) =
            (key.clone(), send.expected_emails(variant), send.forgives_other_content());
        call.may_fail = vec!["key_mismatch".into()];
        let began = self.shared.first_called_at(&(team, key.clone()));
        let call = self.shared.begin_call(call);
        let answer = self.call_engine(&engine, &send, variant, turn).await;
        let end = answer.map_or_else(
            |problem| failure_outcome(&problem),
            |(first, ids)| {
                self.remember_accepted(&send, key.as_deref(), &ids, began);
                CallOutcome::Ok { first, ids: ids.iter().map(ToString::to_string).collect() }
            },
        );
        self.shared.end_call(call, end, false);
    }

    /// Whether a call created its emails, and their ids.
    async fn call_engine(
        &self,
        engine: &Engine,
        send: &PlannedSend,
        variant: u64,
        turn: bool,
    ) -> Result<(bool, Vec<EmailId>), Problem> {
        let (caller, mut requests) = (&self.callers[send.team], send.to_requests(variant, turn));
        if let SendIdentity::Batch(key) = &send.identity {
            let items = requests.into_iter().map(Ok).collect();
            let answer = engine.outbound.send_batch(caller, Key::parse(key).ok(), items, true).await?;
            return Ok((!answer.replayed, answer.items.iter().flatten().map(|sent| sent.id).collect()));
        }
        let request = requests.pop().ok_or_else(|| Problem::new(Code::InvalidField, "the wish cannot be worded"))?;
        let sent = engine.outbound.send(caller, request).await?;
        Ok((sent.first, vec![sent.id]))
    }

    fn remember_accepted(&self, send: &PlannedSend, key: Option<&str>, ids: &[EmailId], began: i64) {
        for id in ids {
            self.remember_email(KnownEmail { id: *id, team: send.team, key: key.map(str::to_owned) });
            if let Some(minutes) = send.delay_minutes {
                self.shared.record_due_time(*id, began + minutes as i64 * 60_000);
            }
        }
    }

    /// Records that a key may have expired, for the checker.
    async fn record_key_expiry(&self, send: &PlannedSend) {
        let (Some(key), team) = (send.idempotency_key(), self.callers[send.team].team.id) else { return };
        let query = EmailQuery { limit: usize::MAX, ..EmailQuery::default() };
        let Ok(page) = self.store.emails(team, query).await else { return };
        let people = |to: &[String]| to.iter().cloned().collect::<BTreeSet<String>>();
        let is_match = |email: &&Email| send.to.iter().any(|to| people(to) == people(&email.head.to));
        for email in page.rows.iter().filter(is_match) {
            // Only finished emails expire, by the clock that is furthest ahead.
            let over =
                email.settled_at.is_some_and(|at| at.0 + email.ttl.0 <= self.shared.latest_time() + CALL_LEEWAY_MS);
            if over && self.shared.record_key_expiry(email.id) {
                let mut call = CallRecord::new(0, &team_name(send.team), CallKind::Forget);
                (call.key, call.about) = (Some(key.clone()), Some(email.id.to_string()));
                let call = self.shared.begin_call(call);
                self.shared.end_call(call, CallOutcome::Ok { first: true, ids: Vec::new() }, false);
            }
        }
    }

    /// Runs an operation on an email, as this team.
    pub(super) async fn run_operation(
        self,
        engine: Arc<Engine>,
        target: KnownEmail,
        operation: EmailOperation,
        team: usize,
    ) {
        let owner = self.callers[target.team].team.id;
        let Ok(Some(before)) = self.store.email(owner, target.id).await else { return };
        if operation == EmailOperation::Forget && target.key.is_none() {
            return;
        }
        let caller = self.callers[team].clone();
        let call = self.shared.begin_call(self.call_for(&target, operation, team));
        let done = match operation {
            EmailOperation::Cancel => {
                engine.outbound.cancel(&caller, target.id, None).await.map(|email| vec![email.value.id])
            }
            EmailOperation::Resend => {
                engine.outbound.resend(&caller, target.id, ResendRequest::default(), None).await.map(|sent| {
                    self.remember_email(KnownEmail { id: sent.id, team, key: None });
                    vec![sent.id]
                })
            }
            EmailOperation::Resolve(choice) | EmailOperation::ResolveStale(choice) => {
                let stale = u32::from(matches!(operation, EmailOperation::ResolveStale(_)));
                let send = ResolveRequest { choice, rev: before.rev - stale, handoff: None, reason: None };
                engine.handoffs.resolve(&caller, target.id, send, None).await.map(|email| vec![email.id])
            }
            EmailOperation::Forget => match target.key.as_deref().and_then(|key| Key::parse(key).ok()) {
                Some(key) => engine.outbound.forget_key(&caller, &key).await.map(|_| Vec::new()),
                None => return,
            },
            EmailOperation::Read => engine.outbound.email(&caller, target.id).await.map(|email| vec![email.id]),
        };
        let end = match done {
            Ok(ids) => CallOutcome::Ok { first: false, ids: ids.iter().map(ToString::to_string).collect() },
            Err(problem) => failure_outcome(&problem),
        };
        let after = self.store.email(owner, target.id).await.ok().flatten();
        let must_fail = team == target.team && after.is_some_and(|after| must_fail(operation, &before, &after));
        self.shared.end_call(call, end, must_fail);
    }

    fn call_for(&self, target: &KnownEmail, operation: EmailOperation, team: usize) -> CallRecord {
        let verb = match operation {
            EmailOperation::Cancel => CallKind::Cancel,
            EmailOperation::Resend => CallKind::Resend,
            EmailOperation::Resolve(_) | EmailOperation::ResolveStale(_) => CallKind::Resolve,
            EmailOperation::Forget => CallKind::Forget,
            EmailOperation::Read => CallKind::Look,
        };
        let may_fail: &[&str] = match operation {
            EmailOperation::Cancel => &["too_late"],
            EmailOperation::Resend => {
                &["not_terminal", "use_resolve", "budget_spent", "key_mismatch", "already_answered"]
            }
            EmailOperation::Resolve(_) | EmailOperation::ResolveStale(_) => &["stale_rev", "not_unknown"],
            EmailOperation::Forget => &["not_terminal", "not_found"],
            EmailOperation::Read => &[],
        };
        let mut call = CallRecord::new(0, &team_name(team), verb);
        call.may_fail = may_fail.iter().map(|code| (*code).to_owned()).collect();
        if team != target.team {
            call.may_fail.push("not_found".into());
        }
        if operation == EmailOperation::Forget {
            call.key.clone_from(&target.key);
        } else {
            call.about = Some(target.id.to_string());
        }
        call
    }

    /// A provider reports an event, to its own team or another. It retries later unless it was acknowledged.
    pub(super) async fn send_report(
        self,
        engine: Arc<Engine>,
        hop: Arc<SimulatedHop>,
        report: ProviderReport,
        team: TeamId,
        name: String,
    ) {
        let mut call = CallRecord::new(0, &name, CallKind::Report);
        (call.about, call.may_fail) = (Some(report.email.to_string()), vec!["not_found".into()]);
        let call = self.shared.begin_call(call);
        let fact = Evidence {
            handoff: report.handoff,
            attempt: None,
            at: engine.ctx.now(),
            source: EvidenceSource::ProviderEvent,
            finding: report.fact,
            detail: "the provider says so".into(),
            dedup_key: Some(report.event_id.clone()),
        };
        let end = match engine.handoffs.record_evidence(team, report.email, fact).await {
            Ok(true) => CallOutcome::Ok { first: false, ids: Vec::new() },
            Ok(false) => CallOutcome::Fail { status: 404, code: "not_found".into() },
            Err(problem) => {
                hop.requeue_report(report);
                failure_outcome(&problem)
            }
        };
        self.shared.end_call(call, end, false);
    }
}

/// Whether an operation was forbidden at every moment between two reads.
fn must_fail(operation: EmailOperation, before: &Email, after: &Email) -> bool {
    let still = before.handoffs == after.handoffs;
    match operation {
        EmailOperation::Cancel => {
            let out =
                |email: &Email| email.handoffs.iter().any(|h| h.state.is_terminal() && !h.state.is_surely_unsent());
            out(before) || (is_in_doubt(before) && is_in_doubt(after))
        }
        EmailOperation::Resend => still && before.resent_as.is_none() && !before.state().is_terminal(),
        EmailOperation::ResolveStale(_) => true,
        EmailOperation::Forget => still && !before.state().is_terminal(),
        EmailOperation::Resolve(_) => still && before.rev == after.rev && before.state() != EmailState::Unknown,
        EmailOperation::Read => false,
    }
}
