//! Reading mail that was kept: parse it, ask who wrote it, find what agents wait for, and file it.
//!
//! A delivery may be read twice, by two processes or after a crash; only the first filing counts. What can never be
//! read is kept as it came, visible, and can be tried again.

use crate::{
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
    thread,
};
use sha2::{Digest as _, Sha256};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
};

/// Mails read at a time.
const MAX_CONCURRENT_DELIVERIES: usize = 16;
/// How often a mail that the parser cannot read is tried before its delivery counts as dead.
const MAX_PARSE_ATTEMPTS: u32 = 5;
/// How often a delivery is taken up before it counts as dead: one that brings its reader down must not do so for ever.
/// Many, and with pauses (`Delivery::give_back`): a process may end over and over for reasons of its own, and its mail
/// is not to blame.
const MAX_PROCESS_ATTEMPTS: u32 = 14;
/// Deliveries taken from the ledger at a time.
const LEASE_BATCH: usize = 32;
/// How often the ledger is asked when nobody says that something waits.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long senders may be asked about.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(2);
/// Characters of a preview.
const PREVIEW_CHARS: usize = 200;
/// References kept.
const MAX_REFERENCES: usize = 50;

/// What was found in a mail, before the ledger has a say.
struct ParsedDelivery {
    head: MessageHead,
    content_hash: [u8; 32],
    thread_names: Vec<[u8; 32]>,
    artifacts: artifact::ExtractedArtifacts,
    parsed: ParsedMail,
}

fn message_id_hash(message_id: &str) -> [u8; 32] {
    Sha256::digest(message_id.as_bytes()).into()
}

/// Runs a future on another thread, because it computes for long between its awaits.
async fn block_on_worker_thread<T: Send + 'static>(
    awaited: impl Future<Output = T> + Send + 'static,
) -> Result<T, JoinError> {
    #[cfg(feature = "failpoints")]
    if crate::failpoint::is_simulated() {
        return Ok(awaited.await);
    }
    let here = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || here.block_on(awaited)).await
}

/// Everything that follows from the bytes alone.
fn parse_delivery(raw: &[u8], delivery: &Delivery, inbox: &Inbox) -> ParsedDelivery {
    let parsed = parse::parse(raw);
    let page = parsed.html.as_deref().map(HtmlPage::parse);
    let sender = parsed.from.first().map(|from| from.to_address().domain().to_owned());
    let links = link::check_links(
        &parsed,
        page.as_ref(),
        &LinkPolicy { allowed_domains: inbox.settings.allowed_link_domains.clone(), sender_domain: sender },
    );
    let found = artifact::extract(&parsed, page.as_ref(), &links);
    let envelope = delivery.details.sender.as_deref();
    let automatic =
        automatic::detect(&parsed, envelope).map(|reason| (reason.reason.as_str().to_owned(), reason.is_hard));
    let own = minimise::split_quotes(&minimise::visible_text(&parsed, page.as_ref())).own_text;
    let preview =
        minimise::sanitize_line(&artifact::redact_text(&own, &found)).split_whitespace().collect::<Vec<_>>().join(" ");
    let head = MessageHead {
        message_id: parsed.message_id.clone(),
        from: parsed.from.first().map(party),
        to: parties(&parsed.to),
        cc: parties(&parsed.cc),
        reply_to: parties(&parsed.reply_to),
        return_path: delivery.details.sender.clone(),
        recipient: delivery.details.recipient.clone(),
        subject: minimise::sanitize_line(&artifact::redact_text(&parsed.subject, &found)),
        date: parsed.date,
        references: parsed.references.iter().rev().take(MAX_REFERENCES).rev().cloned().collect(),
        preview: preview.chars().take(PREVIEW_CHARS).collect(),
        size: raw.len() as u64,
        automatic,
        flags: message_flags(&parsed, page.as_ref(), &found, delivery.details.form),
        attachments: parsed.attachments.iter().map(attachment_handle).collect(),
        candidates: found.candidates.iter().map(masked_candidate).collect(),
        ..MessageHead::default()
    };
    let ancestors = thread::ancestors(&parsed);
    let names = parsed.message_id.iter().chain(&ancestors).take(limits::THREAD_REFERENCES);
    let names = names.map(|id| message_id_hash(id)).collect();
    let content = if parsed.cut.unreadable { Sha256::digest(raw) } else { Sha256::digest(parse::digest(&parsed)) };
    ParsedDelivery { head, content_hash: content.into(), thread_names: names, artifacts: found, parsed }
}

/// Header fields that a mail has once (RFC 5322 §3.6, RFC 2045 §3 and RFC 2183 §2). Those of MIME decide which text of a
/// body is shown.
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
    /// Whether the authenticator read the mail and would have named the sender's domain.
    is_domain_checked: bool,
}

impl AuthReport {
    /// Nobody looked at the sender.
    fn unchecked(auth: SenderAuth) -> Self {
        Self { auth, is_domain_checked: false }
    }
}

fn is_duplicate_header(parsed: &ParsedMail, name: &str) -> bool {
    parsed.headers.all(name).nth(1).is_some()
}

/// What authentication is worth for the fields that people see. A signature covers the lowest field of a name and a
/// reader shows the highest, so that whoever forwards a signed mail can put a field of their own on top.
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

/// Whether the sender that we show is the one that the authenticator looked at. The two read the header by different code,
/// and whoever writes a header that they read differently must not get the verdict of one for the sender of the other.
fn is_checked_sender_shown(report: &AuthReport, parsed: &ParsedMail) -> bool {
    if parsed.cut.sender || is_duplicate_header(parsed, "From") {
        return false;
    }
    let mut domains = parsed.from.iter().map(NamedAddress::domain);
    match (&report.auth.domain, domains.clone().next()) {
        (Some(checked), Some(_)) => domains.all(|domain| domain == checked),
        // The authenticator found no sender where the parser found one.
        (None, Some(_)) if report.is_domain_checked => domains.all(str::is_empty),
        // Without a check there is still only one domain that somebody may ask for.
        (None, Some(first)) => domains.all(|domain| domain == first),
        // The authenticator found a sender where the parser found none.
        (Some(_), None) => false,
        (None, None) => true,
    }
}

fn message_flags(
    parsed: &ParsedMail,
    page: Option<&HtmlPage>,
    found: &artifact::ExtractedArtifacts,
    form: DeliveryFormat,
) -> Vec<MessageFlag> {
    // A page that is too complex to evaluate counts as hidden, so that its reader may get an empty text.
    let is_page_cut = page.is_some_and(|page| page.is_truncated);
    let missing = form == DeliveryFormat::Rebuilt && parsed.headers.has(MISSING_FILE_HEADER);
    let ambiguous = found.candidates.iter().any(|candidate| candidate.reasons.contains(&Reason::Ambiguous));
    [
        (parsed.message_id.is_none(), MessageFlag::NoMessageId),
        (parsed.cut.unreadable, MessageFlag::Unreadable),
        ((parsed.cut.is_truncated() || is_page_cut || missing) && !parsed.cut.unreadable, MessageFlag::Cut),
        (ambiguous, MessageFlag::Ambiguous),
        (SINGLE_VALUE_HEADERS.iter().any(|name| is_duplicate_header(parsed, name)), MessageFlag::DuplicateHeader),
    ]
    .into_iter()
    .filter_map(|(is, flag)| is.then_some(flag))
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

/// What a mail might hold, its value hidden.
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
    /// Reads mail that was kept until `stop` changes.
    pub async fn run_inbound_worker(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut at_work = JoinSet::new();
        let mut way_out = self.ctx.inbound.fast_path_rx.lock().await;
        while !*stop.borrow() {
            // Whoever waits for a provider takes nobody's place.
            let has_room = at_work.len() < MAX_CONCURRENT_DELIVERIES + self.ctx.inbound.fetch_limiter.waiting_workers();
            // In this order, so that a world is the same again: who is done makes room, what waits longest goes first.
            tokio::select! {
                biased;
                Some(ended) = at_work.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a reader of mail ended badly");
                    }
                }
                () = self.ctx.inbound.work_available.notified(), if has_room => self.lease_deliveries(&mut at_work).await,
                fresh = way_out.recv(), if has_room => {
                    let Some(FastPathMail { delivery, raw }) = fresh else { break };
                    let inbound = Arc::clone(&self);
                    at_work.spawn(async move { inbound.process_delivery(&delivery, raw).await });
                }
                // Without room it is only looked whether there is some now.
                () = tokio::time::sleep(POLL_INTERVAL) => {
                    if has_room {
                        self.lease_deliveries(&mut at_work).await;
                    }
                }
                _ = stop.changed() => {}
            }
        }
        while at_work.join_next().await.is_some() {}
    }

    /// Takes due deliveries from the ledger.
    async fn lease_deliveries(self: &Arc<Self>, at_work: &mut JoinSet<()>) {
        let read = match self
            .ctx
            .store
            .lease_deliveries(self.ctx.lease_identities.current().id, LEASE_BATCH, self.ctx.now())
            .await
        {
            Ok(read) => read,
            Err(error) => return tracing::warn!(%error, "looking for mail to read"),
        };
        if read.len() == LEASE_BATCH {
            self.ctx.inbound.work_available.notify_one();
        }
        if !read.is_empty() {
            crate::failpoint!("mail-leased");
        }
        for reading in read {
            let inbound = Arc::clone(self);
            at_work.spawn(async move { inbound.unpack_and_process(reading).await });
        }
    }

    /// Reads everything that waits now, one after the other. How many deliveries that were.
    pub async fn process_waiting_deliveries(&self) -> Result<usize, StoreError> {
        let mut count = 0;
        loop {
            let fresh = self.ctx.inbound.fast_path_rx.lock().await.try_recv().ok();
            if let Some(FastPathMail { delivery, raw }) = fresh {
                self.process_delivery(&delivery, raw).await;
                count += 1;
                continue;
            }
            let read = self
                .ctx
                .store
                .lease_deliveries(self.ctx.lease_identities.current().id, LEASE_BATCH, self.ctx.now())
                .await?;
            if read.is_empty() {
                return Ok(count);
            }
            for reading in read {
                self.unpack_and_process(reading).await;
                count += 1;
            }
        }
    }

    async fn unpack_and_process(&self, LeasedDelivery { delivery, raw }: LeasedDelivery) {
        let octets = usize::try_from(delivery.details.size).unwrap_or(usize::MAX);
        let bodies = Arc::clone(&self.ctx.packer);
        let unpacked = match run_blocking_if_large(octets, move || bodies.unpack_raw(&raw)).await {
            Ok(unpacked) => unpacked,
            // It stays waiting, and is taken up again when its time has passed.
            Err(error) => return tracing::error!(%error, delivery = %delivery.id, "a mail could not be unpacked"),
        };
        match unpacked {
            Some(raw) => self.process_delivery(&delivery, Arc::new(raw)).await,
            None => {
                self.record_delivery_outcome(&delivery, DeliveryOutcome::Dead("the kept bytes are damaged".into()))
                    .await
            }
        }
    }

    async fn process_delivery(&self, delivery: &Delivery, raw: Arc<Vec<u8>>) {
        let told = delivery.details.form == DeliveryFormat::Notice;
        let most = if told { MAX_FETCH_ATTEMPTS } else { MAX_PROCESS_ATTEMPTS };
        if delivery.attempts > most {
            let why = format!("taken up {most} times and never finished");
            return self.record_delivery_outcome(delivery, DeliveryOutcome::Dead(why)).await;
        }
        let done = if told {
            self.process_notified_delivery(delivery, &raw).await
        } else {
            self.process_mail(delivery, raw).await
        };
        match done {
            Ok(None) => {}
            Ok(Some(settle)) => self.record_delivery_outcome(delivery, settle).await,
            // It stays waiting, and is taken up again when its time has passed.
            Err(error) => tracing::warn!(%error, delivery = %delivery.id, "a mail could not be filed yet"),
        }
    }

    /// Fetches a mail that was only told of, and reads it.
    async fn process_notified_delivery(
        &self,
        delivery: &Delivery,
        notice: &[u8],
    ) -> Result<Option<DeliveryOutcome>, StoreError> {
        match self.fetch_notified_mail(delivery, notice).await? {
            Ok((delivery, raw)) => self.process_mail(&delivery, raw).await,
            Err(settle) => Ok(settle),
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

    async fn record_delivery_outcome(&self, delivery: &Delivery, settle: DeliveryOutcome) {
        if let DeliveryOutcome::Dead(why) | DeliveryOutcome::Retry(_, why) = &settle {
            tracing::warn!(delivery = %delivery.id, why, "a delivery could not be read");
        }
        self.ctx.metrics.record_delivery_outcome(delivery.details.intake, &settle);
        if let Err(error) =
            self.ctx.store.record_delivery_outcome(delivery.team, delivery.id, settle, self.ctx.now()).await
        {
            tracing::warn!(%error, delivery = %delivery.id, "a delivery could not be settled yet");
        }
    }

    /// Reads and files. `Some` when it makes no message.
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
        let (copy, of) = (delivery.clone(), inbox.clone());
        let (drafted, auth) = tokio::join!(
            // Apart from the requests: a large mail takes its time, and one that brings the parser down brings down
            // nothing else.
            run_blocking(move || parse_delivery(&bytes, &copy, &of)),
            self.authenticate_mail(delivery, Arc::clone(&raw)),
        );
        let Ok(mut drafted) = drafted else {
            return Ok(Some(self.retry_parse_or_dead(delivery, "the parser ended unexpectedly")));
        };
        crate::failpoint!("mail-parsed");
        let parsed = std::mem::take(&mut drafted.parsed);
        drafted.head.auth = downgrade_unshown_auth(auth, &parsed);
        drafted.head.own = self.loop_reason(&inbox, &parsed).await?.map(str::to_owned);
        let answered = self.find_answered_email(&inbox, &parsed).await?;
        if let Some(email) = &answered {
            self.add_thread_name(email, &mut drafted.thread_names).await?;
        }
        let mut message = self.build_message(&inbox, drafted, answered.as_ref()).await?;
        if let Some(settle) = self.control.apply_inbound_rules(&inbox, &parsed, &mut message).await? {
            return Ok(Some(settle));
        }
        let name = message.message_id_hash;
        crate::failpoint!("before-filing");
        let filed = self.ctx.store.file_message(delivery.team, delivery.id, message, self.ctx.now()).await?;
        crate::failpoint!("after-filing");
        self.ctx.metrics.record_filed(delivery.details.intake, &filed);
        if let FileMessageResult::New(..) = filed {
            self.record_returned_report(delivery, raw, parsed, name).await?;
        }
        Ok(None)
    }

    /// A mail that answers our answer belongs where that is, even when its writer's program names nothing older.
    async fn add_thread_name(&self, email: &Email, names: &mut Vec<[u8; 32]>) -> Result<(), StoreError> {
        let name = match email.head.answers {
            None => Some(message_id_hash(&self.ctx.message_id(email))),
            Some(message) => {
                let found = self.ctx.store.message(email.team, message).await?;
                found.and_then(|message| message.head.message_id.as_deref().map(message_id_hash))
            }
        };
        if let Some(name) = name.filter(|name| !names.contains(name)) {
            // In place of the oldest, which is the least likely to decide.
            names.truncate(limits::THREAD_REFERENCES - 1);
            names.push(name);
        }
        Ok(())
    }

    async fn build_message(
        &self,
        inbox: &Inbox,
        drafted: ParsedDelivery,
        answered: Option<&Email>,
    ) -> Result<NewMessage, StoreError> {
        let now = self.ctx.now();
        // A conversation that a mail of this inbox began is known by that mail, so that it has a name before the first
        // answer. Every answer names the mail, so the second finds the thread of the first.
        let began = |email: &&Email| email.head.thread.is_none() && email.head.from == inbox.address;
        let thread = answered.filter(began).map_or_else(|| self.ctx.new_id(now), |email| email.id.0);
        let team = inbox.team;
        let ParsedDelivery { mut head, content_hash: content, thread_names: names, artifacts: found, .. } = drafted;
        head.preview = self.ctx.packer.storable_preview(head.preview);
        let stopped = |(_, hard): &(String, bool)| *hard || !inbox.settings.reply_to_likely_automatic;
        let no_answer = head.own.is_some()
            || head.automatic.as_ref().is_some_and(stopped)
            || !self.inboxes.has_reply_recipient(inbox, &head).await?;
        let artifacts = found.decided.iter().map(|value| NewArtifact {
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
            content_hash: content,
            thread_hashes: names,
            answers_email: answered.map(|email| email.id),
            artifacts: artifacts.collect(),
            annotations: MessageAnnotations::default(),
            state: if no_answer { MessageState::Skipped } else { MessageState::Unanswered },
            head,
        })
    }

    /// Who wrote it, as far as others can be asked. Only of mail whose bytes are as they travelled.
    async fn authenticate_mail(&self, delivery: &Delivery, raw: Arc<Vec<u8>>) -> AuthReport {
        let about = delivery.details.clone();
        if matches!(about.intake, Intake::Local | Intake::Simulated) || about.form == DeliveryFormat::Rebuilt {
            return AuthReport::unchecked(SenderAuth::default());
        }
        let (octets, authenticator) = (raw.len(), Arc::clone(&self.ctx.inbound.authenticator));
        let is_domain_checked = authenticator.checks_domain();
        let asked = async move {
            let mail = UnauthenticatedMail {
                raw: &raw,
                ip: about.ip,
                helo: about.helo.as_deref(),
                sender: about.sender.as_deref(),
            };
            tokio::time::timeout(AUTHENTICATION_TIMEOUT, authenticator.authenticate(mail)).await
        };
        // Verifying a signature hashes the whole mail.
        let asked = if octets > BLOCKING_ABOVE_BYTES { block_on_worker_thread(asked).await } else { Ok(asked.await) };
        match asked.ok().and_then(Result::ok) {
            Some(auth) => AuthReport { auth, is_domain_checked },
            None => AuthReport::unchecked(SenderAuth::timed_out()),
        }
    }

    /// Once more after a pause, or never.
    pub(crate) fn retry_parse_or_dead(&self, delivery: &Delivery, why: &str) -> DeliveryOutcome {
        if delivery.attempts >= MAX_PARSE_ATTEMPTS {
            return DeliveryOutcome::Dead(why.to_owned());
        }
        let pause = 1_000_i64 << (2 * delivery.attempts.min(6));
        DeliveryOutcome::Retry(self.ctx.now().plus(pause), why.to_owned())
    }
}
