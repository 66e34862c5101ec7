//! Provider webhooks: verifies a request to a source's URL and records its events as evidence. Requests that carry
//! received mail are handled by `hook_mail`.
//!
//! An event counts only for emails of the source's own team and handoffs of its own transport. All other events are
//! counted and answered with success, because providers disable webhooks that return errors.

use crate::{
    access::sources::LiveSource,
    control::suppressions::{SuppressionDetails, SuppressionScope},
    inbound::Inbound,
    runtime::problems::unavailable,
};
use mailonce_core::{
    address::Address,
    control::erasure::alias_of,
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

/// How long a certificate is cached, in milliseconds.
const CERTIFICATE_TTL_MS: i64 = 24 * 3_600_000;
/// How many certificates are cached.
const CERTIFICATE_CACHE_CAPACITY: usize = 16;

/// A webhook request from a provider.
#[derive(Clone, Debug)]
pub struct ProviderHookRequest {
    /// Header names and values as received.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The query string, without the `?`.
    pub query: String,
    /// The raw body.
    pub body: Vec<u8>,
}

/// How many reports of a request had which result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProviderHookSummary {
    /// Reports in the request.
    pub reports: usize,
    /// Reports recorded as new evidence.
    pub recorded: usize,
    /// Reports that were recorded before.
    pub repeated: usize,
    /// Reports that match no email of this team and transport.
    pub unknown: usize,
    /// Reports of no interest here: opens, clicks, tests.
    pub ignored: usize,
    /// Addresses added to the suppression list.
    pub suppressed: usize,
    /// Deliveries stored, one for each local recipient.
    pub accepted: usize,
    /// Deliveries that were received before.
    pub duplicate: usize,
    /// Deliveries refused because the inbox is unknown, expired or blocks the sender.
    pub refused: usize,
}

/// The signing certificates of Amazon SNS, cached.
#[derive(Default)]
pub(crate) struct CertificateCache {
    /// Certificates by URL, with the time of the fetch by the boot clock. The lock is held during a fetch, so that
    /// unauthenticated requests cannot cause many fetches at once.
    entries: tokio::sync::Mutex<HashMap<String, (Arc<[u8]>, i64)>>,
}

/// Translates a provider's status to evidence. `None` when it says nothing about delivery.
pub(crate) fn to_evidence(status: hooks::ReportedStatus) -> Option<EvidenceFinding> {
    match status {
        hooks::ReportedStatus::Accepted => Some(EvidenceFinding::Accepted),
        hooks::ReportedStatus::Delivered => Some(EvidenceFinding::Delivered),
        hooks::ReportedStatus::Deferred => Some(EvidenceFinding::Delayed),
        // The provider accepted the mail and won't deliver it. For the sender that is a bounce.
        hooks::ReportedStatus::Bounced { .. } | hooks::ReportedStatus::Refused | hooks::ReportedStatus::Suppressed => {
            Some(EvidenceFinding::Bounced)
        }
        hooks::ReportedStatus::Complained => Some(EvidenceFinding::Complained),
        hooks::ReportedStatus::Other => None,
    }
}

/// Why a report suppresses its recipient, if it does.
fn suppression_reason(report: &HookEvent) -> Option<&'static str> {
    match report.reported_status {
        // A test event says nothing about the real address.
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

/// The recipient of a report, normalized, if it is a recipient of the handoff. `alias` is what an erasure puts in the
/// place of an address.
fn recipient_of(handoff: &Handoff, report: &HookEvent, alias: impl Fn(&Address) -> String) -> Option<Address> {
    let address = Address::parse(report.recipient.as_deref()?).ok()?;
    let find = |wanted: &Address| {
        handoff.recipients.iter().any(|to| Address::parse(to).is_ok_and(|to| to == *wanted)).then(|| wanted.clone())
    };
    find(&address).or_else(|| find(&Address::parse(&alias(&address)).ok()?))
}

impl Inbound {
    /// The source behind a webhook URL. The server calls this before it reads the request body.
    pub async fn find_hook(&self, id: SourceId) -> Result<SourceHook, Problem> {
        Ok(SourceHook(self.sources.live_source(id).await?))
    }

    /// Handles a webhook request of a provider.
    pub async fn handle_provider_hook(
        &self,
        SourceHook(source): &SourceHook,
        incoming: &ProviderHookRequest,
    ) -> Result<ProviderHookSummary, Problem> {
        let headers: Vec<(&str, &[u8])> =
            incoming.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        let max_body_bytes = source.max_body_bytes();
        let mut request = HookRequest {
            headers: &headers,
            query: &incoming.query,
            body: &incoming.body,
            certificate: None,
            max_body_bytes,
        };
        let certificate = self.fetch_certificate(source, &request).await?;
        request.certificate = certificate.as_deref();
        hooks::verify(source.kind, &source.secrets, &request, self.ctx.now())
            .map_err(|reject| self.rejected(source, &reject))?;
        if source.kind == Kind::Ses {
            self.confirm_subscription(source, &incoming.body).await?;
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
            tracing::warn!(source = %source.id, %why, "a provider's webhook request cannot be parsed");
            Problem::new(Code::InvalidJson, why.to_string())
        })?;
        self.check_one_time_token(source, &request, reports.first().map(|report| report.dedupe_key.as_str())).await?;
        let mut received = ProviderHookSummary { reports: reports.len(), ..ProviderHookSummary::default() };
        for report in &reports {
            self.apply_report(source, report, &mut received).await?;
        }
        Ok(received)
    }

    fn rejected(&self, source: &LiveSource, rejection: &HookRejection) -> Problem {
        tracing::warn!(source = %source.id, kind = source.kind.as_str(), %rejection, "a webhook request was rejected");
        self.ctx.metrics.record_provider_event(source.kind.as_str(), "rejected");
        rejection_problem(rejection)
    }

    /// Rejects a Mailgun token that was already used for another event. Mailgun signs only the token, not the body, so
    /// a reused token with another body is a forgery. The store remembers tokens, for all nodes and across restarts.
    async fn check_one_time_token(
        &self,
        source: &LiveSource,
        request: &HookRequest<'_>,
        dedupe_key: Option<&str>,
    ) -> Result<(), Problem> {
        let (Kind::Mailgun, Some(dedupe_key)) = (source.kind, dedupe_key) else { return Ok(()) };
        let Some(token) = hooks::mailgun::request_token(request) else { return Ok(()) };
        let now = self.ctx.now();
        let operation = self.token_operation(source, &token, dedupe_key, now);
        match self.ctx.store.bind_operation(operation, now).await.map_err(unavailable)? {
            IdempotentResult::Done(()) | IdempotentResult::Replayed(_) => Ok(()),
            IdempotentResult::KeyMismatch(_) => Err(self.rejected(source, &HookRejection::BadSignature)),
        }
    }

    /// The operation that binds a one-time token to an event in the store.
    fn token_operation(&self, source: &LiveSource, token: &str, dedupe_key: &str, now: Time) -> KeyedOperation {
        // A keyed hash, so that no caller can choose an idempotency key with the same hash.
        let mac = self.ctx.secret.mac("hook-token", &[source.id.0.as_bytes(), token.as_bytes()]);
        let mut key = [0; 16];
        key.copy_from_slice(&mac[..16]);
        KeyedOperation {
            team: source.team,
            key: KeyHash(key),
            digest: Sha256::digest(dedupe_key.as_bytes()).into(),
            response: Vec::new(),
            // After that, the timestamp check rejects the token.
            expires_at: now.plus(2 * source.secrets.tolerance_ms().max(hooks::mailgun::ROUTE_TOLERANCE_MS)),
        }
    }

    /// The signing certificate that a request refers to. It is fetched only when all checks but the signature pass.
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
        let boot_ms = self.ctx.time.boot_clock_ms();
        let mut cache = self.certificate_cache.entries.lock().await;
        if let Some((bytes, _)) = cache.get(&url).filter(|(_, at)| boot_ms - at < CERTIFICATE_TTL_MS) {
            return Ok(Some(Arc::clone(bytes)));
        }
        let fetched =
            self.ctx.deps.http_fetcher.get(&url).await.map_err(|why| fetch_failed("the signing certificate", &why))?;
        let bytes: Arc<[u8]> = fetched.into();
        if cache.len() >= CERTIFICATE_CACHE_CAPACITY {
            cache.clear();
        }
        cache.insert(url, (Arc::clone(&bytes), boot_ms));
        drop(cache);
        Ok(Some(bytes))
    }

    /// Confirms an Amazon SNS subscription. Called only after the request was verified.
    async fn confirm_subscription(&self, source: &LiveSource, body: &[u8]) -> Result<(), Problem> {
        let urls = hooks::ses::sns_urls(body).map_err(|reject| self.rejected(source, &reject))?;
        let Some(url) = urls.subscribe_url else { return Ok(()) };
        self.ctx
            .deps
            .http_fetcher
            .get(&url)
            .await
            .map_err(|why| fetch_failed("the confirmation of the subscription", &why))?;
        tracing::info!(source = %source.id, "an SNS subscription was confirmed");
        Ok(())
    }

    async fn apply_report(
        &self,
        source: &LiveSource,
        report: &HookEvent,
        summary: &mut ProviderHookSummary,
    ) -> Result<(), Problem> {
        let outcome = match to_evidence(report.reported_status) {
            None => "ignored",
            Some(finding) => match self.find_reported_handoff(source, report).await? {
                None => "unmatched",
                Some((email, number)) => {
                    summary.suppressed +=
                        usize::from(self.suppress_if_permanent(source, report, &email, number).await?);
                    if self.record_report(source, report, &email, number, finding).await? {
                        "recorded"
                    } else {
                        "already_known"
                    }
                }
            },
        };
        match outcome {
            "ignored" => summary.ignored += 1,
            "unmatched" => summary.unknown += 1,
            "recorded" => summary.recorded += 1,
            _ => summary.repeated += 1,
        }
        self.ctx.metrics.record_provider_event(source.kind.as_str(), outcome);
        Ok(())
    }

    /// The email and handoff number that a report is about. `None` outside the source's own team and transport.
    async fn find_reported_handoff(
        &self,
        source: &LiveSource,
        report: &HookEvent,
    ) -> Result<Option<(Email, u16)>, Problem> {
        let by_email_id = match report.email {
            Some(id) => self.ctx.store.email(source.team, id).await.map_err(unavailable)?,
            None => None,
        };
        let by_remote_id = match &report.remote_id {
            Some(remote_id) => {
                self.ctx.store.handoff_by_remote_id(source.team, remote_id).await.map_err(unavailable)?
            }
            None => None,
        };
        let email = match (by_email_id, by_remote_id) {
            (Some(email), _) => Some(email),
            (None, Some((id, _))) => self.ctx.store.email(source.team, id).await.map_err(unavailable)?,
            (None, None) => None,
        };
        let Some(email) = email else { return Ok(None) };
        let alias = |address: &Address| alias_of(&self.ctx.secret, source.team, address.as_str());
        let by_recipient = email.handoffs.iter().find(|handoff| recipient_of(handoff, report, alias).is_some());
        let remote_number = by_remote_id.filter(|(id, _)| *id == email.id).map(|(_, number)| number);
        let number = by_recipient.map(|handoff| handoff.number).or(remote_number).unwrap_or(0);
        let is_own_transport = |handoff: &Handoff| source.transport.as_ref() == Some(&handoff.transport);
        Ok(email.handoffs.get(usize::from(number)).is_some_and(is_own_transport).then_some((email, number)))
    }

    /// Records a report as evidence. Returns false when it was recorded before.
    async fn record_report(
        &self,
        source: &LiveSource,
        report: &HookEvent,
        email: &Email,
        number: u16,
        finding: EvidenceFinding,
    ) -> Result<bool, Problem> {
        let fact = Evidence {
            handoff: number,
            attempt: None,
            at: self.ctx.now(),
            source: EvidenceSource::ProviderEvent,
            finding,
            detail: report.reason.clone(),
            dedup_key: Some(dedup_key(source, report)),
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

    /// Suppresses a recipient that bounced permanently or complained. Returns whether the address was added.
    ///
    /// This happens before the report is recorded: after a crash in between, a retry suppresses the address. A report
    /// that is recorded already doesn't suppress again, because a person may have removed the address from the list.
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
        let alias = |address: &Address| alias_of(&self.ctx.secret, source.team, address.as_str());
        let Some(address) = recipient_of(handoff, report, alias).or_else(only) else { return Ok(false) };
        let detail = self.ctx.store.email_detail(source.team, email.id).await.map_err(unavailable)?;
        let report_key = dedup_key(source, report);
        let is_same_report = |fact: &Evidence| fact.dedup_key.as_deref() == Some(report_key.as_str());
        if detail.is_none_or(|detail| detail.evidence.iter().any(is_same_report)) {
            return Ok(false);
        }
        let details = SuppressionDetails {
            scope: SuppressionScope::All,
            reason: reason.into(),
            email: Some(email.id.0),
            source: Some(source.id.0),
            detail: Some(report.reason.clone()),
        };
        self.control.suppress_by_report(source.team, &address, details).await
    }
}

/// The deduplication key of a report.
fn dedup_key(source: &LiveSource, report: &HookEvent) -> String {
    format!("{}:{}", source.id, report.dedupe_key)
}

/// The problem when a URL of SNS cannot be fetched: 503, so that the provider retries.
fn fetch_failed(what: &str, why: &str) -> Problem {
    tracing::warn!(why, "{what} could not be fetched");
    Problem::new(Code::Unavailable, format!("{what} could not be fetched"))
}

/// The source behind a webhook URL.
pub struct SourceHook(LiveSource);

impl SourceHook {
    /// The largest request body accepted. Sources that receive mail have the higher limit.
    pub fn max_body_bytes(&self) -> usize {
        self.0.max_body_bytes()
    }

    /// The response to a provider's challenge request for a new webhook URL. `None` when the query is not a challenge.
    pub fn challenge<'a>(&self, query: &'a str) -> Option<&'a str> {
        if self.0.kind == Kind::Nylas { hooks::nylas::challenge_response(query) } else { None }
    }
}

impl LiveSource {
    fn max_body_bytes(&self) -> usize {
        if self.scope.inbound { hooks::MAX_MAIL_BODY_BYTES } else { hooks::MAX_EVENT_BODY_BYTES }
    }
}
