//! The inbound worker: parses stored deliveries, authenticates their senders, extracts codes and links, and files
//! messages.
//!
//! A delivery may be processed twice, by two nodes or after a crash; only the first filing counts. A delivery that
//! cannot be processed becomes a dead letter. It keeps its bytes and can be replayed.

use crate::{
    conversation::exposed_links::possible_tokens_in,
    inbound::{Inbound, collect::MAX_FETCH_ATTEMPTS},
    inbox::parties::{parties, party},
    runtime::{
        blocking::{BLOCKING_ABOVE_BYTES, run_blocking, run_blocking_if_large},
        inbound_runtime::FastPathMail,
    },
};
use mailonce_core::{
    address::NamedAddress,
    id::{ArtifactId, MessageId, ThreadId},
    inbound::{
        delivery::{
            Delivery, DeliveryFormat, DeliveryOutcome, DeliverySuppression, DeliveryTarget, Intake, LeasedDelivery,
        },
        sender_auth::{AuthResult, SenderAuth, UnauthenticatedMail},
    },
    inbox::{
        Inbox,
        artifact::{ArtifactKind, ExtractedValue, NewArtifact},
        message::{
            AttachmentInfo, FileMessageResult, MessageAnnotations, MessageFlag, MessageHead, MessageState, NewMessage,
        },
    },
    limits,
    outbound::email::Email,
    ports::store::StoreError,
};
use mailonce_mail::{
    artifact::{self, Kind, Reason},
    automatic,
    hooks::MISSING_FILE_HEADER,
    html::HtmlPage,
    link::{self, LinkPolicy},
    minimise,
    parse::{self, ParsedMail},
    quote::split_quotes,
    thread,
};
use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
};

/// How many deliveries are processed concurrently.
const MAX_CONCURRENT_DELIVERIES: usize = 16;
/// How often parsing is attempted before a delivery becomes a dead letter, when the parser panics.
const MAX_PARSE_ATTEMPTS: u32 = 5;
/// How often processing may start without a recorded outcome before a delivery becomes a dead letter, so that a mail
/// that crashes the process does so only a few times. The mail is kept and can be replayed, because the process may also
/// crash for other reasons.
const MAX_LOST_ATTEMPTS: u32 = 5;
/// How many further attempts are allowed because leases of this process were committed and their replies lost.
const MAX_UNCONFIRMED_LEASES: u32 = 9;
/// The error of a delivery that reached [`MAX_LOST_ATTEMPTS`].
const LOST_ATTEMPTS: &str = "processing started 5 times and never finished";
/// How often processing is started before a delivery becomes a dead letter, when errors were recorded.
const MAX_PROCESS_ATTEMPTS: u32 = 14;
/// How many deliveries are leased at once.
const LEASE_BATCH: usize = 32;
/// How often the worker looks for due deliveries without a wake-up.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long sender authentication, which queries DNS, may take.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(2);
/// The length of a message's preview, in characters.
const PREVIEW_CHARS: usize = 200;
/// How many message ids of a References header are stored, the latest ones.
const MAX_REFERENCES: usize = 50;

/// What was parsed from a mail, without anything that needs the store.
struct ParsedDelivery {
    head: MessageHead,
    content_hash: [u8; 32],
    thread_names: Vec<[u8; 32]>,
    artifacts: artifact::ExtractedArtifacts,
    /// What may be tokens of approval links.
    possible_tokens: BTreeSet<String>,
    parsed: ParsedMail,
}

fn message_id_hash(message_id: &str) -> [u8; 32] {
    Sha256::digest(message_id.as_bytes()).into()
}

/// Runs a future on a blocking thread, because it computes for long between its awaits.
async fn block_on_worker_thread<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T, JoinError> {
    #[cfg(feature = "failpoints")]
    if crate::failpoint::is_simulated() {
        return Ok(future.await);
    }
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(future)).await
}

/// Why a leased delivery is not processed again: it crashed the process too often, or failed too often. A lease whose
/// reply was lost counts as an attempt in the store, and crashed nothing: this process, which asked for it, still runs.
fn exhausted_attempts(delivery: &Delivery, unconfirmed_leases: u32) -> Option<String> {
    // A retry records its error. A crash records nothing, and a replay keeps the error of the dead letter.
    if delivery.last_error.as_deref().is_none_or(|error| error == LOST_ATTEMPTS) {
        let max_attempts = MAX_LOST_ATTEMPTS + unconfirmed_leases.min(MAX_UNCONFIRMED_LEASES);
        return (delivery.attempts > max_attempts).then(|| LOST_ATTEMPTS.to_owned());
    }
    let is_notice = delivery.details.form == DeliveryFormat::Notice;
    let max_attempts = if is_notice { MAX_FETCH_ATTEMPTS } else { MAX_PROCESS_ATTEMPTS };
    (delivery.attempts > max_attempts).then(|| format!("processing started {max_attempts} times and never finished"))
}

/// Parses a mail and extracts everything that depends on its bytes alone.
fn parse_delivery(raw: &[u8], delivery: &Delivery, inbox: &Inbox) -> ParsedDelivery {
    let parsed = parse::parse(raw);
    let page = parsed.html.as_deref().map(HtmlPage::parse);
    let sender = parsed.from.first().map(|from| from.to_address().domain().to_owned());
    let links = link::check_links(
        &parsed,
        page.as_ref(),
        &LinkPolicy { allowed_domains: inbox.settings.allowed_link_domains.clone(), sender_domain: sender },
    );
    let artifacts = artifact::extract(&parsed, page.as_ref(), &links);
    let envelope = delivery.details.sender.as_deref();
    let automatic =
        automatic::detect(&parsed, envelope).map(|reason| (reason.reason.as_str().to_owned(), reason.is_hard));
    let own_text = split_quotes(&minimise::visible_text(&parsed, page.as_ref())).own_text;
    let preview = minimise::sanitize_line(&artifact::redact_text(&own_text, &artifacts))
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let head = MessageHead {
        message_id: parsed.message_id.clone(),
        from: parsed.from.first().map(party),
        to: parties(&parsed.to),
        cc: parties(&parsed.cc),
        reply_to: parties(&parsed.reply_to),
        return_path: delivery.details.sender.clone(),
        recipient: delivery.details.recipient.clone(),
        subject: minimise::sanitize_line(&artifact::redact_text(&parsed.subject, &artifacts)),
        date: parsed.date,
        references: parsed.references.iter().rev().take(MAX_REFERENCES).rev().cloned().collect(),
        preview: preview.chars().take(PREVIEW_CHARS).collect(),
        size: raw.len() as u64,
        automatic,
        flags: message_flags(&parsed, page.as_ref(), &artifacts, delivery.details.form),
        attachments: parsed.attachments.iter().map(attachment_handle).collect(),
        candidates: artifacts.candidates.iter().map(masked_candidate).collect(),
        ..MessageHead::default()
    };
    let ancestors = thread::ancestors(&parsed);
    let thread_names = parsed.message_id.iter().chain(&ancestors).take(limits::THREAD_REFERENCES);
    let thread_names = thread_names.map(|id| message_id_hash(id)).collect();
    let content_hash = if parsed.cut.unreadable { Sha256::digest(raw) } else { Sha256::digest(parse::digest(&parsed)) };
    let possible_tokens = possible_tokens_in(raw, &parsed);
    ParsedDelivery { head, content_hash: content_hash.into(), thread_names, artifacts, possible_tokens, parsed }
}

/// Header fields that a mail may have only once (RFC 5322 §3.6, RFC 2045 §3 and RFC 2183 §2). The MIME fields are
/// included because they decide which text of a body is shown.
const SINGLE_VALUE_HEADERS: [&str; 17] = [
    "From",
    "Sender",
    "Reply-To",
    "To",
    "Cc",
    "Bcc",
    "Subject",
    "Date",
    "Message-ID",
    "In-Reply-To",
    "References",
    "MIME-Version",
    "Content-Type",
    "Content-Transfer-Encoding",
    "Content-Disposition",
    "Content-ID",
    "Content-Description",
];

/// What the authenticator reported about a mail.
struct AuthReport {
    auth: SenderAuth,
    /// Whether the authenticator examined the mail and would have reported the sender's domain.
    is_domain_checked: bool,
}

impl AuthReport {
    /// A report without a check of the sender's domain.
    fn unchecked(auth: SenderAuth) -> Self {
        Self { auth, is_domain_checked: false }
    }
}

fn is_duplicate_header(parsed: &ParsedMail, name: &str) -> bool {
    parsed.headers.all(name).nth(1).is_some()
}

/// Downgrades an authentication result that does not cover the header fields that people see. DKIM signs the last of
/// several fields with the same name, while mail clients show the first. So a forwarder of a signed mail could add a
/// forged field on top.
fn downgrade_unshown_auth(report: AuthReport, parsed: &ParsedMail) -> SenderAuth {
    let is_shown = is_checked_sender_shown(&report, parsed);
    let mut auth = report.auth;
    if !is_shown {
        auth.verdict = AuthResult::Fail;
    } else if auth.is_pass() && SINGLE_VALUE_HEADERS.iter().any(|name| is_duplicate_header(parsed, name)) {
        auth.verdict = AuthResult::None;
    }
    auth
}

/// Whether the sender that we show is the one that the authenticator checked. Parser and authenticator read the header
/// with different code. A header that they read differently must not get the verdict for another sender.
fn is_checked_sender_shown(report: &AuthReport, parsed: &ParsedMail) -> bool {
    if parsed.cut.sender || is_duplicate_header(parsed, "From") {
        return false;
    }
    let mut domains = parsed.from.iter().map(NamedAddress::domain);
    match (&report.auth.domain, domains.clone().next()) {
        (Some(checked), Some(_)) => domains.all(|domain| domain == checked),
        // The authenticator found no sender where the parser found one.
        (None, Some(_)) if report.is_domain_checked => domains.all(str::is_empty),
        // Without a check, all senders must still share one domain.
        (None, Some(first)) => domains.all(|domain| domain == first),
        // The authenticator found a sender where the parser found none.
        (Some(_), None) => false,
        (None, None) => true,
    }
}

fn message_flags(
    parsed: &ParsedMail,
    page: Option<&HtmlPage>,
    artifacts: &artifact::ExtractedArtifacts,
    form: DeliveryFormat,
) -> Vec<MessageFlag> {
    // A page that is too complex to evaluate counts as hidden, so that its reader may get an empty text.
    let is_page_cut = page.is_some_and(|page| page.is_truncated);
    let has_missing_file = form == DeliveryFormat::Rebuilt && parsed.headers.has(MISSING_FILE_HEADER);
    let is_ambiguous = artifacts.candidates.iter().any(|candidate| candidate.reasons.contains(&Reason::Ambiguous));
    [
        (parsed.message_id.is_none(), MessageFlag::NoMessageId),
        (parsed.cut.unreadable, MessageFlag::Unreadable),
        ((parsed.cut.is_truncated() || is_page_cut || has_missing_file) && !parsed.cut.unreadable, MessageFlag::Cut),
        (is_ambiguous, MessageFlag::Ambiguous),
        (SINGLE_VALUE_HEADERS.iter().any(|name| is_duplicate_header(parsed, name)), MessageFlag::DuplicateHeader),
    ]
    .into_iter()
    .filter_map(|(is_set, flag)| is_set.then_some(flag))
    .collect()
}

fn attachment_handle(attachment: &parse::ParsedAttachment) -> AttachmentInfo {
    AttachmentInfo {
        filename: attachment.filename.clone(),
        content_type: attachment.content_type.clone(),
        content_id: attachment.content_id.clone(),
        inline: attachment.inline,
        size: attachment.size as u64,
    }
}

/// A possible code or link as JSON, with its value masked.
fn masked_candidate(candidate: &artifact::ExtractedArtifact) -> serde_json::Value {
    serde_json::json!({
        "type": candidate.kind,
        "masked": artifact::masked_value(candidate),
        "confidence": candidate.confidence,
        "reasons": candidate.reasons,
    })
}

fn artifact_kind(kind: Kind) -> ArtifactKind {
    match kind {
        Kind::Code => ArtifactKind::Code,
        Kind::Link => ArtifactKind::Link,
    }
}

impl Inbound {
    /// Processes stored deliveries until `stop` changes.
    pub async fn run_inbound_worker(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut tasks = JoinSet::new();
        let mut fast_path = self.ctx.inbound.fast_path_rx.lock().await;
        while !*stop.borrow() {
            // Tasks that wait for a provider don't count against the limit.
            let has_room = tasks.len() < MAX_CONCURRENT_DELIVERIES + self.ctx.inbound.fetch_limiter.extra_task_slots();
            // The order is fixed, so that simulations are reproducible. Finished tasks make room first, then leased
            // deliveries go before new ones.
            tokio::select! {
                biased;
                Some(ended) = tasks.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a task that processes a delivery panicked");
                    }
                }
                () = self.ctx.inbound.work_available.notified(), if has_room => self.lease_deliveries(&mut tasks).await,
                received = fast_path.recv(), if has_room => {
                    let Some(FastPathMail { delivery, raw }) = received else { break };
                    let inbound = Arc::clone(&self);
                    tasks.spawn(async move { inbound.process_delivery(&delivery, raw).await });
                }
                // Wakes up even without room, because the number of waiting tasks may have changed.
                () = tokio::time::sleep(POLL_INTERVAL) => {
                    if has_room {
                        self.lease_deliveries(&mut tasks).await;
                    }
                }
                _ = stop.changed() => {}
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Leases due deliveries and spawns a task for each.
    async fn lease_deliveries(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let leased = match self
            .ctx
            .store
            .lease_deliveries(self.ctx.lease_identities.current().id, LEASE_BATCH, self.ctx.now())
            .await
        {
            Ok(leased) => leased,
            Err(error) => {
                self.ctx.inbound.unconfirmed_leases.fetch_add(1, Ordering::Relaxed);
                return tracing::warn!(%error, "leasing due deliveries failed");
            }
        };
        if leased.len() == LEASE_BATCH {
            self.ctx.inbound.work_available.notify_one();
        }
        if !leased.is_empty() {
            crate::failpoint!("mail-leased");
        }
        for delivery in leased {
            let inbound = Arc::clone(self);
            tasks.spawn(async move { inbound.unpack_and_process(delivery).await });
        }
    }

    /// Processes all waiting deliveries, one after the other. Returns how many there were.
    pub async fn process_waiting_deliveries(&self) -> Result<usize, StoreError> {
        let mut count = 0;
        loop {
            let received = self.ctx.inbound.fast_path_rx.lock().await.try_recv().ok();
            if let Some(FastPathMail { delivery, raw }) = received {
                self.process_delivery(&delivery, raw).await;
                count += 1;
                continue;
            }
            let leased = self
                .ctx
                .store
                .lease_deliveries(self.ctx.lease_identities.current().id, LEASE_BATCH, self.ctx.now())
                .await?;
            if leased.is_empty() {
                return Ok(count);
            }
            for delivery in leased {
                self.unpack_and_process(delivery).await;
                count += 1;
            }
        }
    }

    async fn unpack_and_process(&self, LeasedDelivery { delivery, raw }: LeasedDelivery) {
        let bytes = usize::try_from(delivery.details.size).unwrap_or(usize::MAX);
        let packer = Arc::clone(&self.ctx.packer);
        let unpacked = match run_blocking_if_large(bytes, move || packer.unpack_raw(&raw)).await {
            Ok(unpacked) => unpacked,
            // The delivery stays leased and is retried when the lease expires.
            Err(error) => return tracing::error!(%error, delivery = %delivery.id, "a mail could not be unpacked"),
        };
        match unpacked {
            Some(raw) => self.process_delivery(&delivery, Arc::new(raw)).await,
            None => {
                self.record_delivery_outcome(&delivery, DeliveryOutcome::Dead("the stored bytes are damaged".into()))
                    .await
            }
        }
    }

    async fn process_delivery(&self, delivery: &Delivery, raw: Arc<Vec<u8>>) {
        let is_notice = delivery.details.form == DeliveryFormat::Notice;
        let unconfirmed_leases = self.ctx.inbound.unconfirmed_leases.load(Ordering::Relaxed);
        if let Some(why) = exhausted_attempts(delivery, unconfirmed_leases) {
            return self.record_delivery_outcome(delivery, DeliveryOutcome::Dead(why)).await;
        }
        let result = if is_notice {
            self.process_notified_delivery(delivery, &raw).await
        } else {
            self.process_mail(delivery, raw).await
        };
        match result {
            Ok(None) => {}
            Ok(Some(outcome)) => self.record_delivery_outcome(delivery, outcome).await,
            Err(error) => {
                tracing::warn!(%error, delivery = %delivery.id, "a mail could not be filed yet");
                // Recorded, so that it does not count as a crash.
                let at = self.ctx.now().plus(limits::DELIVERY_LEASE_MS);
                self.record_delivery_outcome(delivery, DeliveryOutcome::Retry(at, "the store failed".into())).await;
            }
        }
    }

    /// Fetches the mail of a notice and processes it.
    async fn process_notified_delivery(
        &self,
        delivery: &Delivery,
        notice: &[u8],
    ) -> Result<Option<DeliveryOutcome>, StoreError> {
        match self.fetch_notified_mail(delivery, notice).await? {
            Ok((delivery, raw)) => self.process_mail(&delivery, raw).await,
            Err(outcome) => Ok(outcome),
        }
    }

    async fn process_mail(
        &self,
        delivery: &Delivery,
        raw: Arc<Vec<u8>>,
    ) -> Result<Option<DeliveryOutcome>, StoreError> {
        match delivery.target {
            DeliveryTarget::Inbox(_) => self.parse_and_file(delivery, raw).await,
            DeliveryTarget::Return { .. } => self.process_bounce(delivery, raw).await,
            DeliveryTarget::Nobody => Ok(Some(DeliveryOutcome::Refused(DeliverySuppression::UnknownInbox))),
        }
    }

    async fn record_delivery_outcome(&self, delivery: &Delivery, outcome: DeliveryOutcome) {
        if let DeliveryOutcome::Dead(why) | DeliveryOutcome::Retry(_, why) = &outcome {
            tracing::warn!(delivery = %delivery.id, why, "a delivery could not be processed");
        }
        self.ctx.metrics.record_delivery_outcome(delivery.details.intake, &outcome);
        if let Err(error) =
            self.ctx.store.record_delivery_outcome(delivery.team, delivery.id, outcome, self.ctx.now()).await
        {
            tracing::warn!(%error, delivery = %delivery.id, "the outcome of a delivery could not be recorded yet");
        }
    }

    /// Parses a delivery and files its message. Returns `Some` when it makes no message.
    async fn parse_and_file(
        &self,
        delivery: &Delivery,
        raw: Arc<Vec<u8>>,
    ) -> Result<Option<DeliveryOutcome>, StoreError> {
        let DeliveryTarget::Inbox(inbox) = delivery.target else { return Ok(Some(DeliveryOutcome::Done)) };
        let Some(inbox) = self.ctx.store.inbox(delivery.team, inbox).await? else {
            return Ok(Some(DeliveryOutcome::Refused(DeliverySuppression::UnknownInbox)));
        };
        let bytes = Arc::clone(&raw);
        let (delivery_copy, inbox_copy) = (delivery.clone(), inbox.clone());
        let (parsed_delivery, auth) = tokio::join!(
            // On a blocking thread: a large mail takes long, and a panic of the parser affects only this delivery.
            run_blocking(move || parse_delivery(&bytes, &delivery_copy, &inbox_copy)),
            self.authenticate_mail(delivery, Arc::clone(&raw)),
        );
        let Ok(mut parsed_delivery) = parsed_delivery else {
            return Ok(Some(self.retry_parse_or_dead(delivery, "the parser panicked")));
        };
        crate::failpoint!("mail-parsed");
        // Before an agent can read the mail.
        self.ctx.withdraw_approval_links(&parsed_delivery.possible_tokens).await?;
        let parsed = std::mem::take(&mut parsed_delivery.parsed);
        parsed_delivery.head.auth = downgrade_unshown_auth(auth, &parsed);
        parsed_delivery.head.own = self.loop_reason(&inbox, &parsed).await?.map(str::to_owned);
        let answered = self.find_answered_email(&inbox, &parsed).await?;
        if let Some(email) = &answered {
            self.add_thread_name(email, &mut parsed_delivery.thread_names).await?;
        }
        let mut message = self.build_message(&inbox, parsed_delivery, answered.as_ref()).await?;
        if let Some(outcome) = self.control.apply_inbound_rules(&inbox, &parsed, &mut message).await? {
            return Ok(Some(outcome));
        }
        let message_id_hash = message.message_id_hash;
        crate::failpoint!("before-filing");
        let filed = self.ctx.store.file_message(delivery.team, delivery.id, message, self.ctx.now()).await?;
        crate::failpoint!("after-filing");
        self.ctx.metrics.record_filed(delivery.details.intake, &filed);
        if let FileMessageResult::New(..) = filed {
            self.record_returned_report(delivery, raw, parsed, message_id_hash).await?;
        }
        Ok(None)
    }

    /// Adds the Message-ID hash by which a reply to our email joins the right thread: that of the message our email
    /// answered, or of our email itself. Some mail programs list only the latest Message-ID in their replies.
    async fn add_thread_name(&self, email: &Email, thread_names: &mut Vec<[u8; 32]>) -> Result<(), StoreError> {
        let hash = match email.head.answers {
            None => Some(message_id_hash(&self.ctx.message_id(email))),
            Some(message) => {
                let found = self.ctx.store.message(email.team, message).await?;
                found.and_then(|message| message.head.message_id.as_deref().map(message_id_hash))
            }
        };
        if let Some(hash) = hash.filter(|hash| !thread_names.contains(hash)) {
            // When the list is full, this replaces the oldest id, which is the least likely to match.
            thread_names.truncate(limits::THREAD_REFERENCES - 1);
            thread_names.push(hash);
        }
        Ok(())
    }

    async fn build_message(
        &self,
        inbox: &Inbox,
        parsed_delivery: ParsedDelivery,
        answered: Option<&Email>,
    ) -> Result<NewMessage, StoreError> {
        let now = self.ctx.now();
        // A thread that an email of this inbox started has the id of that email, so that the id exists before the first
        // reply. Every reply refers to the email, so later replies find the same thread.
        let started_thread = |email: &&Email| email.head.thread.is_none() && email.head.from == inbox.address;
        let thread = answered.filter(started_thread).map_or_else(|| self.ctx.new_id(now), |email| email.id.0);
        let team = inbox.team;
        let ParsedDelivery { mut head, content_hash, thread_names, artifacts: extracted, .. } = parsed_delivery;
        head.preview = self.ctx.packer.storable_preview(head.preview);
        let is_unanswerable = |(_, hard): &(String, bool)| *hard || !inbox.settings.reply_to_likely_automatic;
        let is_skipped = head.own.is_some()
            || head.automatic.as_ref().is_some_and(is_unanswerable)
            || !self.inboxes.has_reply_recipient(inbox, &head).await?;
        let artifacts = extracted.decided.iter().map(|value| NewArtifact {
            id: ArtifactId(self.ctx.new_id(now)),
            kind: artifact_kind(value.kind),
            hash: self
                .ctx
                .secret
                .mac("artifact", &[team.0.as_bytes(), value.kind.as_str().as_bytes(), value.value.as_bytes()]),
            extracted: ExtractedValue {
                value: self.ctx.packer.pack_text(value.value.clone()),
                masked: artifact::masked_value(value),
                confidence: value.confidence,
                reasons: value.reasons.iter().map(|reason| reason.as_str().to_owned()).collect(),
            },
        });
        Ok(NewMessage {
            id: MessageId(self.ctx.new_id(now)),
            thread: ThreadId(thread),
            message_id_hash: head.message_id.as_deref().map(message_id_hash),
            content_hash,
            thread_hashes: thread_names,
            answers_email: answered.map(|email| email.id),
            artifacts: artifacts.collect(),
            annotations: MessageAnnotations::default(),
            state: if is_skipped { MessageState::Skipped } else { MessageState::Unanswered },
            head,
        })
    }

    /// Authenticates the sender of a mail. Local, simulated and rebuilt mail is not checked, because its bytes are not
    /// those that a sender's server signed.
    async fn authenticate_mail(&self, delivery: &Delivery, raw: Arc<Vec<u8>>) -> AuthReport {
        let details = delivery.details.clone();
        if matches!(details.intake, Intake::Local | Intake::Simulated) || details.form == DeliveryFormat::Rebuilt {
            return AuthReport::unchecked(SenderAuth::default());
        }
        let (bytes, authenticator) = (raw.len(), Arc::clone(&self.ctx.inbound.authenticator));
        let is_domain_checked = authenticator.checks_domain();
        let check = async move {
            let mail = UnauthenticatedMail {
                raw: &raw,
                ip: details.ip,
                helo: details.helo.as_deref(),
                sender: details.sender.as_deref(),
            };
            tokio::time::timeout(AUTHENTICATION_TIMEOUT, authenticator.authenticate(mail)).await
        };
        // Verifying a signature hashes the whole mail.
        let check = if bytes > BLOCKING_ABOVE_BYTES { block_on_worker_thread(check).await } else { Ok(check.await) };
        match check.ok().and_then(Result::ok) {
            Some(auth) => AuthReport { auth, is_domain_checked },
            None => AuthReport::unchecked(SenderAuth::timed_out()),
        }
    }

    /// Retry with backoff, or dead letter after too many attempts.
    pub(crate) fn retry_parse_or_dead(&self, delivery: &Delivery, why: &str) -> DeliveryOutcome {
        if delivery.attempts >= MAX_PARSE_ATTEMPTS {
            return DeliveryOutcome::Dead(why.to_owned());
        }
        let pause = 1_000_i64 << (2 * delivery.attempts.min(6));
        DeliveryOutcome::Retry(self.ctx.now().plus(pause), why.to_owned())
    }
}
