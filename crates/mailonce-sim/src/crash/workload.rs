//! Clients that run operations on a server until it crashes, pauses, or the cycle ends.

use crate::crash::api_snapshot::emails_in_state;
use crate::crash::failpoints::{HopClass, Trigger};
use crate::crash::inbound_delivery::SmtpAddressBook;
use crate::crash::injected_mail::InjectedMail;
use crate::crash::operations::{self, ClientOperation, MailVariant, OperationGenerator, RepeatableCall};
use crate::crash::recording_client::{RecordingClient, TeamCredential};
use crate::harness::child_processes::sleep;
use crate::proof::history::{CallKind, CallOutcome};
use crate::sink::oracle::provider_webhooks::{self, HookTarget, VendorWebhookEvent};
use crate::sink::oracle::sink_log::{SinkLog, SinkLogLine};
use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Operations per cycle before clients run triggers only.
const OPERATIONS_PER_CYCLE: u64 = 7;
/// Trigger numbers start above operation numbers.
const TRIGGER_NUMBER_BASE: u64 = 1_000;
/// Pause between two triggers.
const TRIGGER_PAUSE: Duration = Duration::from_millis(60);
/// How often unanswered calls are retried at the end.
const RETRY_ROUNDS: usize = 20;
/// Concurrent clients.
pub const CONCURRENT_CLIENTS: usize = 2;

/// What the clients of a round share.
#[derive(Debug)]
pub struct Workload {
    /// The client that records calls.
    pub client: RecordingClient,
    /// The teams that exist so far.
    pub teams: Mutex<Vec<TeamCredential>>,
    /// Where provider events are sent.
    pub hook_target: Mutex<Option<HookTarget>>,
    /// The sends so far.
    pub requests: Mutex<Vec<RepeatableCall>>,
    /// The path of the webhook for received mail.
    pub inbound_hook_path: Mutex<Option<String>>,
    /// The SMTP addresses of the servers.
    pub smtp_addresses: Arc<SmtpAddressBook>,
    /// The mails that senders delivered so far.
    pub sent_mail: Mutex<Vec<InjectedMail>>,
    /// Replies that senders must never get.
    pub unexpected_refusals: Mutex<Vec<String>>,
    /// The path of the sink's log.
    pub sink_log: PathBuf,
}

/// The workload of one cycle.
#[derive(Debug)]
pub struct CycleWorkload<'a> {
    /// Generates the operations.
    pub generator: OperationGenerator,
    /// What triggers the failpoint.
    pub trigger: Trigger,
    /// The servers.
    pub servers: &'a [SocketAddr],
    /// Set at the end of the cycle.
    pub stop: &'a AtomicBool,
    /// The number of the next operation.
    pub next_number: &'a AtomicU64,
}

pub(super) fn lock<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Workload {
    /// Runs until the cycle ends: triggers first, then operations, then triggers again.
    pub fn run_until_stopped(&self, cycle: &CycleWorkload<'_>) {
        let mut triggers = 0;
        while !cycle.stop.load(Ordering::SeqCst) {
            let n = cycle.next_number.fetch_add(1, Ordering::SeqCst);
            let at = cycle.servers[(n as usize) % cycle.servers.len()];
            let inbound = cycle.generator.class == HopClass::Inbound;
            if (2..OPERATIONS_PER_CYCLE).contains(&n) && (!inbound || n.is_multiple_of(2)) {
                self.run_operation(&cycle.generator, at, cycle.generator.operation(n));
                continue;
            }
            self.run_trigger(cycle, at, TRIGGER_NUMBER_BASE + n, triggers);
            triggers += 1;
            // A failpoint that is slow to reach needs time rather than more mail.
            sleep(if n < 2 { Duration::ZERO } else { TRIGGER_PAUSE * (1 + triggers as u32 / 8).min(8) });
        }
    }

    /// Runs what triggers the failpoint.
    fn run_trigger(&self, cycle: &CycleWorkload<'_>, at: SocketAddr, n: u64, before: u64) {
        let source = &cycle.generator;
        if source.class == HopClass::Inbound && cycle.trigger != Trigger::EmptyLedger {
            return self.run_inbound_operation(source, at, n, Some(cycle.trigger));
        }
        let mail = |special| ClientOperation::Send(source.mail(n, special));
        let operations = match cycle.trigger {
            Trigger::EmptyLedger | Trigger::Start | Trigger::Leftover if before > 2 => Vec::new(),
            Trigger::EmptyLedger | Trigger::Start | Trigger::Leftover => vec![mail(MailVariant::Plain)],
            Trigger::InboundSmtp
            | Trigger::InboundHook
            | Trigger::InboundLarge
            | Trigger::ConsumeCode
            | Trigger::ReplyToPerson
            | Trigger::Claim
            | Trigger::Outbox
            | Trigger::Erasure => Vec::new(),
            Trigger::Send => {
                vec![mail(if n.is_multiple_of(2) { MailVariant::Plain } else { MailVariant::ThroughWorker })]
            }
            Trigger::Batch => vec![ClientOperation::Send(source.batch(n))],
            Trigger::CancelOrResend => {
                vec![mail(MailVariant::Scheduled), ClientOperation::Cancel(u64::MAX), ClientOperation::Resend(n)]
            }
            Trigger::Resolve if before == 0 => vec![mail(MailVariant::LostReply), ClientOperation::Resolve(n)],
            Trigger::Resolve => vec![ClientOperation::Resolve(n)],
            // A new unknown outcome now and then, since the first may be decided before the failpoint is reached.
            Trigger::Unknown | Trigger::OldUnknown if before.is_multiple_of(16) => vec![mail(MailVariant::LostReply)],
            Trigger::Unknown | Trigger::OldUnknown => Vec::new(),
            Trigger::Hook => vec![mail(MailVariant::Plain), ClientOperation::ProviderEvent(n)],
        };
        operations.into_iter().for_each(|operation| self.run_operation(source, at, operation));
    }

    /// Runs one operation.
    fn run_operation(&self, source: &OperationGenerator, at: SocketAddr, operation: ClientOperation) {
        match operation {
            ClientOperation::Send(mut request) => {
                // Until the second team exists, its sends belong to the first.
                request.team = request.team.min(lock(&self.teams).len() - 1);
                lock(&self.requests).push(request.clone());
                if request.has_short_ttl() {
                    self.client.record_key_expiry(&self.team(request.team), &request);
                }
                self.send(at, &request);
            }
            ClientOperation::Retry(which) => {
                if let Some(request) = self.earlier_request(which) {
                    self.send(at, &request);
                }
            }
            ClientOperation::SendMismatch(which) => {
                // Under a key that may be unbound, the other content would be accepted first.
                let bound = self.earlier_request(which).filter(|request| self.is_acknowledged(request));
                let other = bound.and_then(|request| Some((request.team, operations::mismatching_call(&request)?)));
                if let Some((team, make_call)) = other {
                    self.client.send(at, &self.team(team), &make_call);
                }
            }
            ClientOperation::Cancel(which) => self.send_about_email(at, which, operations::cancel_call),
            ClientOperation::Resend(which) => self.send_about_email(at, which, operations::resend_call),
            ClientOperation::CrossTenantRead(which) => self.send_cross_tenant(at, which),
            ClientOperation::Resolve(which) => self.resolve(at, which),
            ClientOperation::ProviderEvent(which) => self.send_provider_event(at, source.class, which),
        }
    }

    pub(super) fn send(&self, at: SocketAddr, request: &RepeatableCall) {
        self.client.send(at, &self.team(request.team), &request.call);
    }

    /// A team; the first one until the second exists.
    pub fn team(&self, n: usize) -> TeamCredential {
        let teams = lock(&self.teams);
        teams.get(n).or_else(|| teams.first()).cloned().unwrap_or_else(|| operations::team_credential(0, ""))
    }

    /// An earlier send whose key does not expire.
    fn earlier_request(&self, which: u64) -> Option<RepeatableCall> {
        let requests = lock(&self.requests);
        let request = requests.get((which % requests.len().max(1) as u64) as usize)?;
        (!request.has_short_ttl()).then(|| request.clone())
    }

    /// Whether a send was acknowledged.
    fn is_acknowledged(&self, request: &RepeatableCall) -> bool {
        let history = self.client.history();
        let answered_keys = |end: &CallOutcome| matches!(end, CallOutcome::Ok { .. });
        history.calls.iter().any(|call| call.key == request.call.key && answered_keys(&call.end))
    }

    /// An acknowledged email with its team. The highest number selects the latest.
    fn known_email(&self, which: u64) -> Option<(TeamCredential, String)> {
        let history = self.client.history();
        // A cancelled reply makes room for another one, unlike an email under an idempotency key.
        let made = history.calls.iter().filter(|call| !call.forgives);
        let made = made.filter(|call| matches!(call.verb, CallKind::Send | CallKind::Batch | CallKind::Resend));
        let ids: Vec<(&str, &String)> = made
            .filter_map(|call| match &call.end {
                CallOutcome::Ok { ids, .. } => Some((call.team.as_str(), ids.first()?)),
                _ => None,
            })
            .collect();
        let index =
            if which == u64::MAX { ids.len().checked_sub(1)? } else { (which % ids.len().max(1) as u64) as usize };
        let (team, id) = ids.get(index)?;
        let team = lock(&self.teams).iter().find(|known| known.name == *team)?.clone();
        Some((team, (*id).clone()))
    }

    fn send_about_email(
        &self,
        at: SocketAddr,
        which: u64,
        make_call: impl Fn(&str) -> crate::crash::recording_client::ApiCall,
    ) {
        if let Some((team, id)) = self.known_email(which) {
            self.client.send(at, &team, &make_call(&id));
        }
    }

    /// Sends a call from the other team.
    fn send_cross_tenant(&self, at: SocketAddr, which: u64) {
        let Some((team, id)) = self.known_email(which) else { return };
        let other = lock(&self.teams).iter().find(|known| known.name != team.name).cloned();
        if let Some(other) = other {
            let cancel = which.is_multiple_of(2).then(|| operations::cancel_call(&id));
            let make_call = cancel.unwrap_or_else(|| operations::cross_tenant_call(&id));
            self.client.send(
                at,
                &other,
                &crate::crash::recording_client::ApiCall { allowed_errors: &["not_found"], ..make_call },
            );
        }
    }

    /// Resolves an unknown email: as sent if the sink's log has it, as abandoned if not. Every third one is resent
    /// regardless.
    fn resolve(&self, at: SocketAddr, which: u64) {
        let team = self.team(0);
        let unknown = emails_in_state(at, &team, "unknown").unwrap_or_default();
        let Some((id, rev)) = unknown.get((which % unknown.len().max(1) as u64) as usize) else { return };
        let arrived = self.accepted_by_sink().iter().any(|line| line.email == *id);
        let r#as = match (arrived, which % 3) {
            (true, 1 | 2) => "sent",
            (_, 0) => "resend",
            (false, _) => "abandon",
            (true, _) => "resend",
        };
        self.client.send(at, &team, &operations::resolve_call(id, r#as, *rev));
    }

    /// The mails that the sink accepted so far.
    fn accepted_by_sink(&self) -> Vec<SinkLogLine> {
        let lines: Vec<SinkLogLine> = SinkLog::read(&self.sink_log).unwrap_or_default();
        lines.into_iter().filter(|line| line.taken).collect()
    }

    /// Sends a provider event about an accepted mail.
    fn send_provider_event(&self, at: SocketAddr, class: HopClass, which: u64) {
        let Some(hook) = lock(&self.hook_target).clone() else { return };
        let mails: BTreeSet<(String, String)> = if class.transport_name() == HopClass::Sandbox.as_str() {
            let sent = emails_in_state(at, &self.team(0), "sent").unwrap_or_default();
            sent.into_iter().map(|(id, _)| (id, "ada@example.org".to_owned())).collect()
        } else {
            self.accepted_by_sink()
                .into_iter()
                .filter_map(|line| Some((line.email, line.to.first()?.clone())))
                .collect()
        };
        let index = (which % mails.len().max(1) as u64) as usize;
        let Some((email, to)) = mails.iter().nth(index) else { return };
        let event = VendorWebhookEvent { id: format!("rig-{which}"), kind: "email.delivered", email, to };
        // A crashed server does not reply. The sink retries its own events.
        let _answer = provider_webhooks::send_event(&HookTarget { at, ..hook }, &event);
    }

    /// Retries every unanswered send until it is answered.
    pub fn retry_unanswered(&self, at: SocketAddr) -> Result<()> {
        for _ in 0..RETRY_ROUNDS {
            let open = self.unanswered();
            if open.is_empty() {
                return Ok(());
            }
            open.iter().for_each(|request| self.send(at, request));
        }
        bail!("{} sends have no answer", self.unanswered().len())
    }

    fn unanswered(&self) -> Vec<RepeatableCall> {
        let history = self.client.history();
        let answered = |end: &CallOutcome| match end {
            CallOutcome::Ok { .. } => true,
            CallOutcome::Fail { status, .. } => *status != 503,
            CallOutcome::Info => false,
        };
        let answered_keys: BTreeSet<&str> =
            history.calls.iter().filter(|call| answered(&call.end)).filter_map(|call| call.key.as_deref()).collect();
        let asked: BTreeSet<&str> = history.calls.iter().filter_map(|call| call.key.as_deref()).collect();
        // A send that never reached a server needs no answer.
        let open = |request: &&RepeatableCall| {
            request.call.key.as_deref().is_some_and(|key| asked.contains(key) && !answered_keys.contains(key))
        };
        lock(&self.requests).iter().filter(open).cloned().collect()
    }
}
