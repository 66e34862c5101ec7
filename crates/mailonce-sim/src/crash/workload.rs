//! Callers at work: they do deed after deed on a server until it dies, falls asleep, or time is up.

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

/// Deeds of a cycle before callers only do what leads to the point.
const OPERATIONS_PER_CYCLE: u64 = 7;
/// The numbers of baits lie beyond those of deeds.
const TRIGGER_NUMBER_BASE: u64 = 1_000;
/// Between two baits.
const TRIGGER_PAUSE: Duration = Duration::from_millis(60);
/// How often what was not answered is asked for again in the end.
const RETRY_ROUNDS: usize = 20;
/// Callers at a time.
pub const CONCURRENT_CLIENTS: usize = 2;

/// What callers of a round share.
#[derive(Debug)]
pub struct Workload {
    /// Who asks.
    pub client: RecordingClient,
    /// The teams that are known so far.
    pub teams: Mutex<Vec<TeamCredential>>,
    /// Where hooks go.
    pub hook_target: Mutex<Option<HookTarget>>,
    /// What was wished for so far.
    pub requests: Mutex<Vec<RepeatableCall>>,
    /// Where mail is brought by a hook.
    pub inbound_hook_path: Mutex<Option<String>>,
    /// Where mail is brought by SMTP.
    pub smtp_addresses: Arc<SmtpAddressBook>,
    /// The mails that senders brought so far.
    pub sent_mail: Mutex<Vec<InjectedMail>>,
    /// What senders were told that they must never be told.
    pub unexpected_refusals: Mutex<Vec<String>>,
    /// The sink's log.
    pub sink_log: PathBuf,
}

/// The work of one cycle.
#[derive(Debug)]
pub struct CycleWorkload<'a> {
    /// Where deeds come from.
    pub generator: OperationGenerator,
    /// What leads to the point.
    pub trigger: Trigger,
    /// The servers.
    pub servers: &'a [SocketAddr],
    /// Told when it is over.
    pub stop: &'a AtomicBool,
    /// The number of the next deed.
    pub next_number: &'a AtomicU64,
}

pub(super) fn lock<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Workload {
    /// Works until it is told that it is over: baits first, then deeds, then baits again.
    pub fn run_until_stopped(&self, shift: &CycleWorkload<'_>) {
        let mut baits = 0;
        while !shift.stop.load(Ordering::SeqCst) {
            let n = shift.next_number.fetch_add(1, Ordering::SeqCst);
            let at = shift.servers[(n as usize) % shift.servers.len()];
            let inbound = shift.generator.class == HopClass::Inbound;
            if (2..OPERATIONS_PER_CYCLE).contains(&n) && (!inbound || n.is_multiple_of(2)) {
                self.run_operation(&shift.generator, at, shift.generator.operation(n));
                continue;
            }
            self.run_trigger(shift, at, TRIGGER_NUMBER_BASE + n, baits);
            baits += 1;
            // A point that takes long needs time rather than mail.
            sleep(if n < 2 { Duration::ZERO } else { TRIGGER_PAUSE * (1 + baits as u32 / 8).min(8) });
        }
    }

    /// Does what leads to the point.
    fn run_trigger(&self, shift: &CycleWorkload<'_>, at: SocketAddr, n: u64, before: u64) {
        let source = &shift.generator;
        if source.class == HopClass::Inbound && shift.trigger != Trigger::EmptyLedger {
            return self.run_inbound(source, at, n, Some(shift.trigger));
        }
        let mail = |special| ClientOperation::Send(source.mail(n, special));
        let deeds = match shift.trigger {
            Trigger::EmptyLedger | Trigger::Start | Trigger::Leftover if before > 2 => Vec::new(),
            Trigger::EmptyLedger | Trigger::Start | Trigger::Leftover => vec![mail(MailVariant::Plain)],
            Trigger::InboundSmtp
            | Trigger::InboundHook
            | Trigger::InboundLarge
            | Trigger::ConsumeCode
            | Trigger::ReplyToPerson => Vec::new(),
            Trigger::Send => {
                vec![mail(if n.is_multiple_of(2) { MailVariant::Plain } else { MailVariant::ThroughWorker })]
            }
            Trigger::Batch => vec![ClientOperation::Send(source.batch(n))],
            Trigger::CancelOrResend => {
                vec![mail(MailVariant::Scheduled), ClientOperation::Cancel(u64::MAX), ClientOperation::Resend(n)]
            }
            Trigger::Resolve if before == 0 => vec![mail(MailVariant::LostReply), ClientOperation::Resolve(n)],
            Trigger::Resolve => vec![ClientOperation::Resolve(n)],
            // A new doubt now and then: the first may be settled before the point is reached.
            Trigger::Unknown | Trigger::OldUnknown if before.is_multiple_of(16) => vec![mail(MailVariant::LostReply)],
            Trigger::Unknown | Trigger::OldUnknown => Vec::new(),
            Trigger::Hook => vec![mail(MailVariant::Plain), ClientOperation::ProviderEvent(n)],
        };
        deeds.into_iter().for_each(|deed| self.run_operation(source, at, deed));
    }

    /// Does one deed.
    fn run_operation(&self, source: &OperationGenerator, at: SocketAddr, deed: ClientOperation) {
        match deed {
            ClientOperation::Send(mut wish) => {
                // Before there are two teams, the second one's wishes are the first one's.
                wish.team = wish.team.min(lock(&self.teams).len() - 1);
                lock(&self.requests).push(wish.clone());
                if wish.has_short_ttl() {
                    self.client.record_key_expiry(&self.team(wish.team), &wish);
                }
                self.send(at, &wish);
            }
            ClientOperation::Retry(which) => {
                if let Some(wish) = self.earlier_request(which) {
                    self.send(at, &wish);
                }
            }
            ClientOperation::SendMismatch(which) => {
                // Under a key that is not surely bound, other words would be the first.
                let bound = self.earlier_request(which).filter(|wish| self.is_acknowledged(wish));
                let other = bound.and_then(|wish| Some((wish.team, operations::mismatching_call(&wish)?)));
                if let Some((team, ask)) = other {
                    self.client.send(at, &self.team(team), &ask);
                }
            }
            ClientOperation::Cancel(which) => self.send_about_email(at, which, operations::cancel_call),
            ClientOperation::Resend(which) => self.send_about_email(at, which, operations::resend_call),
            ClientOperation::CrossTenantRead(which) => self.send_cross_tenant(at, which),
            ClientOperation::Resolve(which) => self.resolve(at, which),
            ClientOperation::ProviderEvent(which) => self.send_provider_event(at, source.class, which),
        }
    }

    pub(super) fn send(&self, at: SocketAddr, wish: &RepeatableCall) {
        self.client.send(at, &self.team(wish.team), &wish.call);
    }

    /// A team; the first while the other is not there yet.
    pub fn team(&self, n: usize) -> TeamCredential {
        let teams = lock(&self.teams);
        teams.get(n).or_else(|| teams.first()).cloned().unwrap_or_else(|| operations::team_credential(0, ""))
    }

    /// A wish from before whose key is still remembered.
    fn earlier_request(&self, which: u64) -> Option<RepeatableCall> {
        let wishes = lock(&self.requests);
        let wish = wishes.get((which % wishes.len().max(1) as u64) as usize)?;
        (!wish.has_short_ttl()).then(|| wish.clone())
    }

    /// Whether a wish was surely granted.
    fn is_acknowledged(&self, wish: &RepeatableCall) -> bool {
        let history = self.client.history();
        let told = |end: &CallOutcome| matches!(end, CallOutcome::Ok { .. });
        history.calls.iter().any(|call| call.key == wish.call.key && told(&call.end))
    }

    /// An email that was told of, with its team: the latest for the highest number.
    fn known_email(&self, which: u64) -> Option<(TeamCredential, String)> {
        let history = self.client.history();
        // An answer that was taken back makes room for another, which the key of a wish never does.
        let made = history.calls.iter().filter(|call| !call.forgives);
        let made = made.filter(|call| matches!(call.verb, CallKind::Send | CallKind::Batch | CallKind::Resend));
        let ids: Vec<(&str, &String)> = made
            .filter_map(|call| match &call.end {
                CallOutcome::Ok { ids, .. } => Some((call.team.as_str(), ids.first()?)),
                _ => None,
            })
            .collect();
        let place =
            if which == u64::MAX { ids.len().checked_sub(1)? } else { (which % ids.len().max(1) as u64) as usize };
        let (team, id) = ids.get(place)?;
        let team = lock(&self.teams).iter().find(|known| known.name == *team)?.clone();
        Some((team, (*id).clone()))
    }

    fn send_about_email(
        &self,
        at: SocketAddr,
        which: u64,
        ask: impl Fn(&str) -> crate::crash::recording_client::ApiCall,
    ) {
        if let Some((team, id)) = self.known_email(which) {
            self.client.send(at, &team, &ask(&id));
        }
    }

    /// The other team asks.
    fn send_cross_tenant(&self, at: SocketAddr, which: u64) {
        let Some((team, id)) = self.known_email(which) else { return };
        let other = lock(&self.teams).iter().find(|known| known.name != team.name).cloned();
        if let Some(other) = other {
            let cancel = which.is_multiple_of(2).then(|| operations::cancel_call(&id));
            let ask = cancel.unwrap_or_else(|| operations::cross_tenant_call(&id));
            self.client.send(
                at,
                &other,
                &crate::crash::recording_client::ApiCall { allowed_errors: &["not_found"], ..ask },
            );
        }
    }

    /// A person looks at the sink, and decides by it.
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

    /// What the sink took so far.
    fn accepted_by_sink(&self) -> Vec<SinkLogLine> {
        let lines: Vec<SinkLogLine> = SinkLog::read(&self.sink_log).unwrap_or_default();
        lines.into_iter().filter(|line| line.taken).collect()
    }

    /// A provider tells of a mail that it has.
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
        let place = (which % mails.len().max(1) as u64) as usize;
        let Some((email, to)) = mails.iter().nth(place) else { return };
        let event = VendorWebhookEvent { id: format!("rig-{which}"), kind: "email.delivered", email, to };
        // A server that dies of it does not answer; the sink's own hooks are insisted on.
        let _answer = provider_webhooks::send_event(&HookTarget { at, ..hook }, &event);
    }

    /// Asks for every wish that was never answered, until it is.
    pub fn retry_unanswered(&self, at: SocketAddr) -> Result<()> {
        for _ in 0..RETRY_ROUNDS {
            let open = self.unanswered();
            if open.is_empty() {
                return Ok(());
            }
            open.iter().for_each(|wish| self.send(at, wish));
        }
        bail!("{} wishes have no answer", self.unanswered().len())
    }

    fn unanswered(&self) -> Vec<RepeatableCall> {
        let history = self.client.history();
        let answered = |end: &CallOutcome| match end {
            CallOutcome::Ok { .. } => true,
            CallOutcome::Fail { status, .. } => *status != 503,
            CallOutcome::Info => false,
        };
        let told: BTreeSet<&str> =
            history.calls.iter().filter(|call| answered(&call.end)).filter_map(|call| call.key.as_deref()).collect();
        let asked: BTreeSet<&str> = history.calls.iter().filter_map(|call| call.key.as_deref()).collect();
        // What nobody ever listened to was not asked.
        let open = |wish: &&RepeatableCall| {
            wish.call.key.as_deref().is_some_and(|key| asked.contains(key) && !told.contains(key))
        };
        lock(&self.requests).iter().filter(open).cloned().collect()
    }
}
