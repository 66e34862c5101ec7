//! Provider events: a request comes in at a source's address, is proven, read, and becomes evidence. What brings mail is
//! read by `hook_mail`.
//!
//! What it says counts only for emails of the source's own team and handoffs of its own transport. Everything else is
//! answered with a success and counted: a provider that gets an error stops telling us anything.

use crate::{
    access::sources::LiveSource, control::suppressions::SuppressionDetails, inbound::Inbound,
    runtime::problems::unavailable,
};
use mailonce_core::{
    address::Address,
    handoff::{
        Evidence, EvidenceFinding, EvidenceSource, Handoff,
        action::{HandoffAction, HandoffActionStatus},
        lease::HandoffActionResult,
    },
    id::SourceId,
    key::KeyHash,
    operation::{IdempotentResult, KeyedOperation},
    outbound::email::Email,
    problem::{Code, Problem},
    time::Time,
};
use mailonce_mail::hooks::{self, HookEvent, HookRejection, HookRequest, Kind};
use sha2::{Digest as _, Sha256};
use std::{collections::HashMap, sync::Arc};

/// How long a certificate is kept, in milliseconds.
const CERTIFICATE_TTL_MS: i64 = 24 * 3_600_000;
/// Certificates that are remembered.
const CERTIFICATE_CACHE_CAPACITY: usize = 16;

/// A request as it came in.
#[derive(Clone, Debug)]
pub struct ProviderHookRequest {
    /// Names and values, as they came.
    pub headers: Vec<(String, Vec<u8>)>,
    /// What follows the `?`.
    pub query: String,
    /// The raw body.
    pub body: Vec<u8>,
}

/// What came of a request's reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProviderHookSummary {
    /// Reports in it.
    pub reports: usize,
    /// New facts.
    pub recorded: usize,
    /// Facts that were known already.
    pub repeated: usize,
    /// About no email of this team and transport.
    pub unknown: usize,
    /// About nothing that matters here: opens, clicks, tests.
    pub ignored: usize,
    /// Addresses that are no longer written to.
    pub suppressed: usize,
    /// Deliveries that were kept, one for each recipient here.
    pub accepted: usize,
    /// Deliveries that came before.
    pub duplicate: usize,
    /// Deliveries for nobody here, or for somebody who does not want them.
    pub refused: usize,
}

/// What hooks remember between requests.
#[derive(Default)]
pub(crate) struct CertificateCache {
    /// By address. Whoever holds it fetches, so that strangers cannot make us fetch many things at once.
    entries: tokio::sync::Mutex<HashMap<String, (Arc<[u8]>, i64)>>,
}

/// What a report says in the words of evidence. `None` when it says nothing about a mail's fate.
pub(crate) fn to_evidence(says: hooks::ReportedStatus) -> Option<EvidenceFinding> {
    match says {
        hooks::ReportedStatus::Accepted => Some(EvidenceFinding::Accepted),
        hooks::ReportedStatus::Delivered => Some(EvidenceFinding::Delivered),
        hooks::ReportedStatus::Deferred => Some(EvidenceFinding::Delayed),
        // The provider had it, and it will not arrive: to its sender that is a mail that came back.
        hooks::ReportedStatus::Bounced { .. } | hooks::ReportedStatus::Refused | hooks::ReportedStatus::Suppressed => {
            Some(EvidenceFinding::Bounced)
        }
        hooks::ReportedStatus::Complained => Some(EvidenceFinding::Complained),
        hooks::ReportedStatus::Other => None,
    }
}

/// Why a recipient is not written to after a report, if so.
fn suppression_reason(report: &HookEvent) -> Option<&'static str> {
    match report.reported_status {
        // What a test says about an address is not true of it.
        _ if report.is_test => None,
        hooks::ReportedStatus::Bounced { permanent: true } => Some("bounced"),
        hooks::ReportedStatus::Complained => Some("complained"),
        _ => None,
    }
}

fn rejection_problem(reject: &HookRejection) -> Problem {
    let code = match reject.status() {
        413 => Code::TooLarge,
        503 => Code::Unavailable,
        _ => Code::BadSignature,
    };
    Problem::new(code, reject.to_string())
}

/// The recipient of a report among those of a handoff, in our form.
fn recipient_of(handoff: &Handoff, report: &HookEvent) -> Option<Address> {
    let address = Address::parse(report.recipient.as_deref()?).ok()?;
    let is_theirs = |to: &String| Address::parse(to).is_ok_and(|to| to == address);
    handoff.recipients.iter().any(is_theirs).then_some(address)
}

impl Inbound {
    /// The source behind an address, before anything is read from whoever calls it.
    pub async fn find_hook(&self, id: SourceId) -> Result<SourceHook, Problem> {
        Ok(SourceHook(self.access.live_source(id).await?))
    }

    /// Takes in a request of a provider.
    pub async fn handle_provider_hook(
        &self,
        SourceHook(source): &SourceHook,
        posted: &ProviderHookRequest,
    ) -> Result<ProviderHookSummary, Problem> {
        let headers: Vec<(&str, &[u8])> =
            posted.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        let most = source.max_body_bytes();
        let mut request = HookRequest {
            headers: &headers,
            query: &posted.query,
            body: &posted.body,
            certificate: None,
            max_body_bytes: most,
        };
        let certificate = self.fetch_certificate(source, &request).await?;
        request.certificate = certificate.as_deref();
        hooks::verify(source.kind, &source.secrets, &request, self.ctx.now())
            .map_err(|reject| self.rejected(source, &reject))?;
        if source.kind == Kind::Ses {
            self.confirm_subscription(source, &posted.body).await?;
        }
        if let Some(mail) = self.parse_hook_mail(source, &request)? {
            self.check_one_time_token(source, &request, Some(&mail.dedupe_key)).await?;
            return self.store_hook_mail(source.source_ref(), mail).await;
        }
        if !source.scope.events {
            self.ctx.metrics.record_provider_event(source.kind.as_str(), "ignored");
            return Ok(ProviderHookSummary { reports: 1, ignored: 1, ..ProviderHookSummary::default() });
        }
        let reports = hooks::parse_events(source.kind, &request).map_err(|why| {
            tracing::warn!(source = %source.id, %why, "a provider's request cannot be read");
            Problem::new(Code::InvalidJson, why.to_string())
        })?;
        self.check_one_time_token(source, &request, reports.first().map(|report| report.dedupe_key.as_str())).await?;
        let mut received = ProviderHookSummary { reports: reports.len(), ..ProviderHookSummary::default() };
        for report in &reports {
            self.apply_report(source, report, &mut received).await?;
        }
        Ok(received)
    }

    fn rejected(&self, source: &LiveSource, reject: &HookRejection) -> Problem {
        tracing::warn!(source = %source.id, kind = source.kind.as_str(), %reject, "a provider's request is not believed");
        self.ctx.metrics.record_provider_event(source.kind.as_str(), "rejected");
        rejection_problem(reject)
    }

    /// Mailgun signs a token and not what it brings: the same token beside something else is a forgery. The ledger
    /// remembers which event a token came with, so that it counts once for all nodes and over restarts.
    async fn check_one_time_token(
        &self,
        source: &LiveSource,
        request: &HookRequest<'_>,
        once: Option<&str>,
    ) -> Result<(), Problem> {
        let (Kind::Mailgun, Some(once)) = (source.kind, once) else { return Ok(()) };
        let Some(token) = hooks::mailgun::request_token(request) else { return Ok(()) };
        let now = self.ctx.now();
        let operation = self.token_operation(source, &token, once, now);
        match self.ctx.store.bind_operation(operation, now).await.map_err(unavailable)? {
            IdempotentResult::Done(()) | IdempotentResult::Replayed(_) => Ok(()),
            IdempotentResult::KeyMismatch(_) => Err(self.rejected(source, &HookRejection::BadSignature)),
        }
    }

    /// The use of a one-time token for an event, as the ledger remembers it.
    fn token_operation(&self, source: &LiveSource, token: &str, once: &str, now: Time) -> KeyedOperation {
        // A keyed hash, so that no caller can choose an idempotency key with the same hash.
        let mac = self.ctx.secret.mac("hook-token", &[source.id.0.as_bytes(), token.as_bytes()]);
        let mut key = [0; 16];
        key.copy_from_slice(&mac[..16]);
        KeyedOperation {
            team: source.team,
            key: KeyHash(key),
            digest: Sha256::digest(once.as_bytes()).into(),
            response: Vec::new(),
            // Afterwards its time is no longer believed anyway.
            expires_at: now.plus(2 * source.secrets.tolerance_ms().max(hooks::mailgun::ROUTE_TOLERANCE_MS)),
        }
    }

    /// The certificate a request names. It is fetched only when everything but the signature itself is in order.
    async fn fetch_certificate(
        &self,
        source: &LiveSource,
        request: &HookRequest<'_>,
    ) -> Result<Option<Arc<[u8]>>, Problem> {
        if source.kind != Kind::Ses {
            return Ok(None);
        }
        match hooks::verify(source.kind, &source.secrets, request, self.ctx.now()) {
            Err(HookRejection::Certificate(_)) => {}
            Err(reject) => return Err(self.rejected(source, &reject)),
            Ok(()) => return Ok(None),
        }
        let url = hooks::ses::sns_urls(request.body).map_err(|reject| self.rejected(source, &reject))?.certificate_url;
        let even = self.ctx.time.boot_clock_ms();
        let mut kept = self.certificate_cache.entries.lock().await;
        if let Some((bytes, _)) = kept.get(&url).filter(|(_, at)| even - at < CERTIFICATE_TTL_MS) {
            return Ok(Some(Arc::clone(bytes)));
        }
        let fetched =
            self.ctx.deps.http_fetcher.get(&url).await.map_err(|why| fetch_failed("the signing certificate", &why))?;
        let bytes: Arc<[u8]> = fetched.into();
        if kept.len() >= CERTIFICATE_CACHE_CAPACITY {
            kept.clear();
        }
        kept.insert(url, (Arc::clone(&bytes), even));
        drop(kept);
        Ok(Some(bytes))
    }

    /// Answers the question of SNS whether this address wants a topic. Only after the request was proven.
    async fn confirm_subscription(&self, source: &LiveSource, body: &[u8]) -> Result<(), Problem> {
        let needs = hooks::ses::sns_urls(body).map_err(|reject| self.rejected(source, &reject))?;
        let Some(url) = needs.subscribe_url else { return Ok(()) };
        self.ctx
            .deps
            .http_fetcher
            .get(&url)
            .await
            .map_err(|why| fetch_failed("the confirmation of the subscription", &why))?;
        tracing::info!(source = %source.id, "a subscription was confirmed");
        Ok(())
    }

    async fn apply_report(
        &self,
        source: &LiveSource,
        report: &HookEvent,
        received: &mut ProviderHookSummary,
    ) -> Result<(), Problem> {
        let outcome = match to_evidence(report.reported_status) {
            None => "ignored",
            Some(says) => match self.find_reported_handoff(source, report).await? {
                None => "unknown",
                Some((email, number)) => {
                    received.suppressed +=
                        usize::from(self.suppress_if_permanent(source, report, &email, number).await?);
                    if self.record_report(source, report, (&email, number), says).await? {
                        "learnt"
                    } else {
                        "repeated"
                    }
                }
            },
        };
        match outcome {
            "ignored" => received.ignored += 1,
            "unknown" => received.unknown += 1,
            "learnt" => received.recorded += 1,
            _ => received.repeated += 1,
        }
        self.ctx.metrics.record_provider_event(source.kind.as_str(), outcome);
        Ok(())
    }

    /// The handoff that a report is about. None outside the source's own team and transport.
    async fn find_reported_handoff(
        &self,
        source: &LiveSource,
        report: &HookEvent,
    ) -> Result<Option<(Email, u16)>, Problem> {
        let ours = match report.email {
            Some(id) => self.ctx.store.email(source.team, id).await.map_err(unavailable)?,
            None => None,
        };
        let by_name = match &report.remote_id {
            Some(name) => self.ctx.store.handoff_by_remote_id(source.team, name).await.map_err(unavailable)?,
            None => None,
        };
        let email = match (ours, by_name) {
            (Some(email), _) => Some(email),
            (None, Some((id, _))) => self.ctx.store.email(source.team, id).await.map_err(unavailable)?,
            (None, None) => None,
        };
        let Some(email) = email else { return Ok(None) };
        let by_recipient = email.handoffs.iter().find(|handoff| recipient_of(handoff, report).is_some());
        let by_remote = by_name.filter(|(id, _)| *id == email.id).map(|(_, number)| number);
        let number = by_recipient.map(|handoff| handoff.number).or(by_remote).unwrap_or(0);
        let own = |handoff: &Handoff| source.transport.as_ref() == Some(&handoff.transport);
        Ok(email.handoffs.get(usize::from(number)).is_some_and(own).then_some((email, number)))
    }

    /// Writes a report down as evidence. False when it was known already.
    async fn record_report(
        &self,
        source: &LiveSource,
        report: &HookEvent,
        (email, number): (&Email, u16),
        says: EvidenceFinding,
    ) -> Result<bool, Problem> {
        let fact = Evidence {
            handoff: number,
            attempt: None,
            at: self.ctx.now(),
            source: EvidenceSource::ProviderEvent,
            says,
            detail: report.reason.clone(),
            once: Some(dedup_key(source, report)),
        };
        crate::failpoint!("hook-before-note");
        let acted = self
            .ctx
            .store
            .apply_action(source.team, email.id, HandoffAction::AddEvidence(fact), None, self.ctx.now())
            .await;
        crate::failpoint!("hook-after-note");
        self.ctx.unknown_wakeup.notify_one();
        Ok(matches!(
            acted.map_err(unavailable)?,
            IdempotentResult::Done(HandoffActionResult::Applied(HandoffActionStatus::Done, _))
        ))
    }

    /// Stops writing to a recipient whose mail came back for good, or who complained. Before the report is written
    /// down, because a report that is known is not looked at again; and not again afterwards, because a person may
    /// have taken the address off the list.
    async fn suppress_if_permanent(
        &self,
        source: &LiveSource,
        report: &HookEvent,
        email: &Email,
        number: u16,
    ) -> Result<bool, Problem> {
        let (Some(reason), Some(handoff)) = (suppression_reason(report), email.handoffs.get(usize::from(number)))
        else {
            return Ok(false);
        };
        let only = || match handoff.recipients.as_slice() {
            [only] if report.recipient.is_none() => Address::parse(only).ok(),
            _ => None,
        };
        let Some(address) = recipient_of(handoff, report).or_else(only) else { return Ok(false) };
        let detail = self.ctx.store.email_detail(source.team, email.id).await.map_err(unavailable)?;
        let once = dedup_key(source, report);
        let known = |fact: &Evidence| fact.once.as_deref() == Some(once.as_str());
        if detail.is_none_or(|detail| detail.evidence.iter().any(known)) {
            return Ok(false);
        }
        let about = SuppressionDetails {
            reason: reason.into(),
            email: Some(email.id.0),
            source: Some(source.id.0),
            detail: Some(report.reason.clone()),
        };
        self.control.suppress_by_report(source.team, &address, about).await
    }
}

/// The name under which a report counts once.
fn dedup_key(source: &LiveSource, report: &HookEvent) -> String {
    format!("{}:{}", source.id, report.dedupe_key)
}

/// Ours to repair, so the provider must come again.
fn fetch_failed(what: &str, why: &str) -> Problem {
    tracing::warn!(why, "{what} could not be fetched");
    Problem::new(Code::Unavailable, format!("{what} could not be fetched"))
}

/// The source behind an address.
pub struct SourceHook(LiveSource);

impl SourceHook {
    /// Bytes of a body that are read: a mail may be large, events are not.
    pub fn max_body_bytes(&self) -> usize {
        self.0.max_body_bytes()
    }

    /// The answer to what a provider asks an address before it posts there, if it asks rightly.
    pub fn challenge<'a>(&self, query: &'a str) -> Option<&'a str> {
        if self.0.kind == Kind::Nylas { hooks::nylas::challenge_response(query) } else { None }
    }
}

impl LiveSource {
    fn max_body_bytes(&self) -> usize {
        if self.scope.inbound { hooks::MAX_MAIL_BODY_BYTES } else { hooks::MAX_EVENT_BODY_BYTES }
    }
}
