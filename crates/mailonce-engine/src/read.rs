//! Reading mail that was kept: parse it, ask who wrote it, find what agents wait for, and file it.
//!
//! A delivery may be read twice, by two processes or after a crash; only the first filing counts. What can never be
//! read is kept as it came, visible, and can be tried again.

use mailonce_core::{
    address::Mailbox,
    artifact::{ArtifactKind, FoundValue, NewArtifact},
    delivery::{Delivery, Form, Intake, Reading, Settle, Suppression, Target},
    email::Email,
    id::{ArtifactId, MessageId, ThreadId},
    inbox::Inbox,
    limits,
    message::{Filed, Handle, Marks, MessageFlag, MessageHead, MessageState, NewMessage, Party},
    port::{
        authenticate::{Arrived, Auth, AuthResult},
        store::StoreError,
    },
};
use mailonce_mail::{
    artifact::{self, Kind, Reason},
    automatic,
    hook::MISSING_FILE,
    html::Page,
    link::{self, Policy},
    minimise,
    parse::{self, Parsed},
    thread,
};
use sha2::{Digest as _, Sha256};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
};

use crate::{Engine, collect::FETCHED, inbound::Fresh};

/// Mails read at a time.
const AT_ONCE: usize = 16;
/// How often a mail that the parser cannot read is tried before its delivery counts as dead.
const PARSED: u32 = 5;
/// How often a delivery is taken up before it counts as dead: one that brings its reader down must not do so for ever.
/// Many, and with pauses (`Delivery::give_back`): a process may end over and over for reasons of its own, and its mail
/// is not to blame.
const TAKEN_UP: u32 = 14;
/// Deliveries taken from the ledger at a time.
const TAKEN_AT_ONCE: usize = 32;
/// How often the ledger is asked when nobody says that something waits.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long senders may be asked about.
const ASK_TIME: Duration = Duration::from_secs(2);
/// Characters of a preview.
const PREVIEW_CHARS: usize = 200;
/// References kept.
const REFERENCES: usize = 50;

/// What was found in a mail, before the ledger has a say.
struct Draft {
    head: MessageHead,
    content: [u8; 32],
    names: Vec<[u8; 32]>,
    found: artifact::Found,
    parsed: Parsed,
}

fn name_hash(message_id: &str) -> [u8; 32] {
    Sha256::digest(message_id.as_bytes()).into()
}

pub(crate) fn party(mailbox: &Mailbox) -> Party {
    Party { name: mailbox.name.as_deref().map(minimise::line), address: mailbox.address.to_ascii_lowercase() }
}

fn parties(mailboxes: &[Mailbox]) -> Vec<Party> {
    mailboxes.iter().take(limits::RECIPIENTS).map(party).collect()
}

/// Does something apart from the requests.
pub(crate) async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    #[cfg(feature = "failpoints")]
    if crate::failpoint::is_simulated() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await
}

/// Mails above this size are hashed, packed and parsed on another thread. Below, it takes about a millisecond.
const APART_ABOVE: usize = 256 * 1024;

/// Runs work over so many octets: on another thread if they are many.
pub(crate) async fn apart_if<T: Send + 'static>(
    octets: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    if octets > APART_ABOVE { apart(work).await } else { Ok(work()) }
}

/// Runs a future on another thread, because it computes for long between its awaits.
async fn await_apart<T: Send + 'static>(awaited: impl Future<Output = T> + Send + 'static) -> Result<T, JoinError> {
    #[cfg(feature = "failpoints")]
    if crate::failpoint::is_simulated() {
        return Ok(awaited.await);
    }
    let here = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || here.block_on(awaited)).await
}

/// Everything that follows from the bytes alone.
fn draft(raw: &[u8], delivery: &Delivery, inbox: &Inbox) -> Draft {
    let parsed = parse::parse(raw);
    let page = parsed.html.as_deref().map(Page::read);
    let sender = parsed.from.first().map(|from| from.bare().domain().to_owned());
    let links = link::links(&parsed, page.as_ref(), &Policy { allow: inbox.about.link_domains.clone(), sender });
    let found = artifact::find(&parsed, page.as_ref(), &links);
    let envelope = delivery.about.sender.as_deref();
    let automatic = automatic::why(&parsed, envelope).map(|reason| (reason.why.word().to_owned(), reason.hard));
    let own = minimise::split(&minimise::visible(&parsed, page.as_ref())).own;
    let preview = minimise::line(&artifact::hide(&own, &found)).split_whitespace().collect::<Vec<_>>().join(" ");
    let head = MessageHead {
        message_id: parsed.message_id.clone(),
        from: parsed.from.first().map(party),
        to: parties(&parsed.to),
        cc: parties(&parsed.cc),
        reply_to: parties(&parsed.reply_to),
        return_path: delivery.about.sender.clone(),
        recipient: delivery.about.recipient.clone(),
        subject: minimise::line(&artifact::hide(&parsed.subject, &found)),
        date: parsed.date,
        references: parsed.references.iter().rev().take(REFERENCES).rev().cloned().collect(),
        preview: preview.chars().take(PREVIEW_CHARS).collect(),
        size: raw.len() as u64,
        automatic,
        flags: flags(&parsed, &found, delivery.about.form),
        attachments: parsed.attachments.iter().map(handle).collect(),
        candidates: found.candidates.iter().map(candidate).collect(),
        ..MessageHead::default()
    };
    let ancestors = thread::ancestors(&parsed);
    let names = parsed.message_id.iter().chain(&ancestors).take(limits::THREAD_NAMES);
    let names = names.map(|id| name_hash(id)).collect();
    let content = if parsed.cut.unreadable { Sha256::digest(raw) } else { Sha256::digest(parse::digest(&parsed)) };
    Draft { head, content: content.into(), names, found, parsed }
}

/// Header fields that a mail has once (RFC 5322 §3.6).
const SINGLE: [&str; 8] = ["From", "Sender", "Reply-To", "To", "Cc", "Subject", "Date", "Message-ID"];

fn is_doubled(parsed: &Parsed, name: &str) -> bool {
    parsed.headers.all(name).nth(1).is_some()
}

/// What authentication is worth for the fields that people see. A signature covers the lowest field of a name and a
/// reader shows the highest, so that whoever forwards a signed mail can put a field of their own on top.
fn believable(mut auth: Auth, parsed: &Parsed) -> Auth {
    if !shows_checked_sender(&auth, parsed) {
        auth.verdict = AuthResult::Fail;
    } else if auth.is_pass() && SINGLE.iter().any(|name| is_doubled(parsed, name)) {
        auth.verdict = AuthResult::None;
    }
    auth
}

/// Whether the sender that we show is the one that the authenticator looked at. The two read the header by different code,
/// and whoever writes a header that they read differently must not get the verdict of one for the sender of the other.
fn shows_checked_sender(auth: &Auth, parsed: &Parsed) -> bool {
    if parsed.cut.sender || is_doubled(parsed, "From") {
        return false;
    }
    let mut domains = parsed.from.iter().map(Mailbox::domain);
    match (&auth.domain, domains.clone().next()) {
        (Some(checked), Some(_)) => domains.all(|domain| domain == checked),
        // Without a check there is still only one domain that somebody may ask for.
        (None, Some(first)) => domains.all(|domain| domain == first),
        (Some(_) | None, None) => true,
    }
}

fn flags(parsed: &Parsed, found: &artifact::Found, form: Form) -> Vec<MessageFlag> {
    let missing = form == Form::Rebuilt && parsed.headers.has(MISSING_FILE);
    let ambiguous = found.candidates.iter().any(|candidate| candidate.reasons.contains(&Reason::Ambiguous));
    [
        (parsed.message_id.is_none(), MessageFlag::NoMessageId),
        (parsed.cut.unreadable, MessageFlag::Unreadable),
        ((parsed.cut.any() || missing) && !parsed.cut.unreadable, MessageFlag::Cut),
        (ambiguous, MessageFlag::Ambiguous),
        (SINGLE.iter().any(|name| is_doubled(parsed, name)), MessageFlag::DuplicateHeader),
    ]
    .into_iter()
    .filter_map(|(is, flag)| is.then_some(flag))
    .collect()
}

fn handle(attachment: &parse::Attachment) -> Handle {
    Handle {
        filename: attachment.filename.clone(),
        content_type: attachment.content_type.clone(),
        content_id: attachment.content_id.clone(),
        inline: attachment.inline,
        size: attachment.size as u64,
    }
}

/// What a mail might hold, its value hidden.
fn candidate(candidate: &artifact::Artifact) -> serde_json::Value {
    serde_json::json!({
        "type": candidate.kind,
        "masked": artifact::masked(candidate),
        "confidence": candidate.confidence,
        "reasons": candidate.reasons,
    })
}

fn kind_of(kind: Kind) -> ArtifactKind {
    match kind {
        Kind::Code => ArtifactKind::Code,
        Kind::Link => ArtifactKind::Link,
    }
}

impl Engine {
    /// Reads mail that was kept until `stop` changes.
    pub async fn read_mail(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut at_work = JoinSet::new();
        let mut way_out = self.inbound.way_out.lock().await;
        while !*stop.borrow() {
            // Whoever waits for a provider takes nobody's place.
            let has_room = at_work.len() < AT_ONCE + self.desks.at_it();
            // In this order, so that a world is the same again: who is done makes room, what waits longest goes first.
            tokio::select! {
                biased;
                Some(ended) = at_work.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a reader of mail ended badly");
                    }
                }
                () = self.inbound.waiting.notified(), if has_room => self.take_up(&mut at_work).await,
                fresh = way_out.recv(), if has_room => {
                    let Some(Fresh { delivery, raw }) = fresh else { break };
                    let engine = Arc::clone(&self);
                    at_work.spawn(async move { engine.read_one(&delivery, raw).await });
                }
                // Without room it is only looked whether there is some now.
                () = tokio::time::sleep(LOOK_EVERY) => {
                    if has_room {
                        self.take_up(&mut at_work).await;
                    }
                }
                _ = stop.changed() => {}
            }
        }
        while at_work.join_next().await.is_some() {}
    }

    /// Takes due deliveries from the ledger.
    async fn take_up(self: &Arc<Self>, at_work: &mut JoinSet<()>) {
        let read = match self.store.read(self.holder.current().id, TAKEN_AT_ONCE, self.now()).await {
            Ok(read) => read,
            Err(error) => return tracing::warn!(%error, "looking for mail to read"),
        };
        if read.len() == TAKEN_AT_ONCE {
            self.inbound.waiting.notify_one();
        }
        if !read.is_empty() {
            crate::failpoint!("mail-leased");
        }
        for reading in read {
            let engine = Arc::clone(self);
            at_work.spawn(async move { engine.read_kept(reading).await });
        }
    }

    /// Reads everything that waits now, one after the other. How many deliveries that were.
    pub async fn read_waiting(&self) -> Result<usize, StoreError> {
        let mut count = 0;
        loop {
            let fresh = self.inbound.way_out.lock().await.try_recv().ok();
            if let Some(Fresh { delivery, raw }) = fresh {
                self.read_one(&delivery, raw).await;
                count += 1;
                continue;
            }
            let read = self.store.read(self.holder.current().id, TAKEN_AT_ONCE, self.now()).await?;
            if read.is_empty() {
                return Ok(count);
            }
            for reading in read {
                self.read_kept(reading).await;
                count += 1;
            }
        }
    }

    async fn read_kept(&self, Reading { delivery, raw }: Reading) {
        let octets = usize::try_from(delivery.about.size).unwrap_or(usize::MAX);
        let bodies = Arc::clone(&self.bodies);
        let unpacked = match apart_if(octets, move || bodies.unpack_raw(&raw)).await {
            Ok(unpacked) => unpacked,
            // It stays waiting, and is taken up again when its time has passed.
            Err(error) => return tracing::error!(%error, delivery = %delivery.id, "a mail could not be unpacked"),
        };
        match unpacked {
            Some(raw) => self.read_one(&delivery, Arc::new(raw)).await,
            None => self.end(&delivery, Settle::Dead("the kept bytes are damaged".into())).await,
        }
    }

    async fn read_one(&self, delivery: &Delivery, raw: Arc<Vec<u8>>) {
        let told = delivery.about.form == Form::Notice;
        let most = if told { FETCHED } else { TAKEN_UP };
        if delivery.attempts > most {
            let why = format!("taken up {most} times and never finished");
            return self.end(delivery, Settle::Dead(why)).await;
        }
        let done = if told { self.read_told(delivery, &raw).await } else { self.read_here(delivery, raw).await };
        match done {
            Ok(None) => {}
            Ok(Some(settle)) => self.end(delivery, settle).await,
            // It stays waiting, and is taken up again when its time has passed.
            Err(error) => tracing::warn!(%error, delivery = %delivery.id, "a mail could not be filed yet"),
        }
    }

    /// Fetches a mail that was only told of, and reads it.
    async fn read_told(&self, delivery: &Delivery, notice: &[u8]) -> Result<Option<Settle>, StoreError> {
        match self.fetch_told(delivery, notice).await? {
            Ok((delivery, raw)) => self.read_here(&delivery, raw).await,
            Err(settle) => Ok(settle),
        }
    }

    async fn read_here(&self, delivery: &Delivery, raw: Arc<Vec<u8>>) -> Result<Option<Settle>, StoreError> {
        match delivery.target {
            Target::Inbox(_) => self.read_message(delivery, raw).await,
            Target::Return { .. } => self.read_bounce(delivery, raw).await,
            Target::Nobody => Ok(Some(Settle::Refused(Suppression::UnknownInbox))),
        }
    }

    async fn end(&self, delivery: &Delivery, settle: Settle) {
        if let Settle::Dead(why) | Settle::Later(_, why) = &settle {
            tracing::warn!(delivery = %delivery.id, why, "a delivery could not be read");
        }
        self.metrics.settled_delivery(delivery.about.intake, &settle);
        if let Err(error) = self.store.settle_delivery(delivery.team, delivery.id, settle, self.now()).await {
            tracing::warn!(%error, delivery = %delivery.id, "a delivery could not be settled yet");
        }
    }

    /// Reads and files. `Some` when it makes no message.
    async fn read_message(&self, delivery: &Delivery, raw: Arc<Vec<u8>>) -> Result<Option<Settle>, StoreError> {
        let Target::Inbox(inbox) = delivery.target else { return Ok(Some(Settle::Done)) };
        let Some(inbox) = self.store.inbox(delivery.team, inbox).await? else {
            return Ok(Some(Settle::Refused(Suppression::UnknownInbox)));
        };
        let bytes = Arc::clone(&raw);
        let (copy, of) = (delivery.clone(), inbox.clone());
        let (drafted, auth) = tokio::join!(
            // Apart from the requests: a large mail takes its time, and one that brings the parser down brings down
            // nothing else.
            apart(move || draft(&bytes, &copy, &of)),
            self.authenticate_mail(delivery, Arc::clone(&raw)),
        );
        let Ok(mut drafted) = drafted else {
            return Ok(Some(self.again(delivery, "the parser ended unexpectedly")));
        };
        crate::failpoint!("mail-parsed");
        let parsed = std::mem::take(&mut drafted.parsed);
        drafted.head.auth = believable(auth, &parsed);
        drafted.head.own = self.why_own(&inbox, &parsed).await?.map(str::to_owned);
        let answered = self.answered_email(&inbox, &parsed).await?;
        if let Some(email) = &answered {
            self.name_thread_of(email, &mut drafted.names).await?;
        }
        let mut message = self.new_message(&inbox, drafted, answered.as_ref()).await?;
        if let Some(settle) = self.run_rules(&inbox, &parsed, &mut message).await? {
            return Ok(Some(settle));
        }
        let name = message.name;
        crate::failpoint!("before-filing");
        let filed = self.store.file(delivery.team, delivery.id, message, self.now()).await?;
        crate::failpoint!("after-filing");
        self.metrics.filed(delivery.about.intake, &filed);
        if let Filed::New(..) = filed {
            self.learn_from_report(delivery, raw, parsed, name).await?;
        }
        Ok(None)
    }

    /// A mail that answers our answer belongs where that is, even when its writer's program names nothing older.
    async fn name_thread_of(&self, email: &Email, names: &mut Vec<[u8; 32]>) -> Result<(), StoreError> {
        let name = match email.head.answers {
            None => Some(name_hash(&self.message_id(email))),
            Some(message) => {
                let found = self.store.message(email.team, message).await?;
                found.and_then(|message| message.head.message_id.as_deref().map(name_hash))
            }
        };
        if let Some(name) = name.filter(|name| !names.contains(name)) {
            // In place of the oldest, which is the least likely to decide.
            names.truncate(limits::THREAD_NAMES - 1);
            names.push(name);
        }
        Ok(())
    }

    async fn new_message(
        &self,
        inbox: &Inbox,
        drafted: Draft,
        answered: Option<&Email>,
    ) -> Result<NewMessage, StoreError> {
        let now = self.now();
        // A conversation that a mail of this inbox began is known by that mail, so that it has a name before the first
        // answer. Every answer names the mail, so the second finds the thread of the first.
        let began = |email: &&Email| email.head.thread.is_none() && email.head.from == inbox.address;
        let thread = answered.filter(began).map_or_else(|| self.new_id(now), |email| email.id.0);
        let team = inbox.team;
        let Draft { mut head, content, names, found, .. } = drafted;
        head.preview = self.bodies.preview(head.preview);
        let stopped = |(_, hard): &(String, bool)| *hard || !inbox.about.answers_soft;
        let no_answer = head.own.is_some()
            || head.automatic.as_ref().is_some_and(stopped)
            || !self.has_somebody_to_answer(inbox, &head).await?;
        let artifacts = found.decided.iter().map(|value| NewArtifact {
            id: ArtifactId(self.new_id(now)),
            kind: kind_of(value.kind),
            hash: self
                .secret
                .mac("artifact", &[team.0.as_bytes(), value.kind.word().as_bytes(), value.value.as_bytes()]),
            found: FoundValue {
                value: self.bodies.pack_text(value.value.clone()),
                masked: artifact::masked(value),
                confidence: value.confidence,
                reasons: value.reasons.iter().map(|reason| reason.word().to_owned()).collect(),
            },
        });
        Ok(NewMessage {
            id: MessageId(self.new_id(now)),
            thread: ThreadId(thread),
            name: head.message_id.as_deref().map(name_hash),
            content,
            names,
            email: answered.map(|email| email.id),
            artifacts: artifacts.collect(),
            marks: Marks::default(),
            state: if no_answer { MessageState::Skipped } else { MessageState::Unanswered },
            head,
        })
    }

    /// Who wrote it, as far as others can be asked. Only of mail whose bytes are as they travelled.
    async fn authenticate_mail(&self, delivery: &Delivery, raw: Arc<Vec<u8>>) -> Auth {
        let about = delivery.about.clone();
        if matches!(about.intake, Intake::Local | Intake::Simulated) || about.form == Form::Rebuilt {
            return Auth::default();
        }
        let (octets, authenticator) = (raw.len(), Arc::clone(&self.inbound.authenticator));
        let asked = async move {
            let mail =
                Arrived { raw: &raw, ip: about.ip, helo: about.helo.as_deref(), sender: about.sender.as_deref() };
            tokio::time::timeout(ASK_TIME, authenticator.authenticate(mail)).await
        };
        // Verifying a signature hashes the whole mail.
        let asked = if octets > APART_ABOVE { await_apart(asked).await } else { Ok(asked.await) };
        asked.ok().and_then(Result::ok).unwrap_or_else(Auth::late)
    }

    /// Once more after a pause, or never.
    pub(crate) fn again(&self, delivery: &Delivery, why: &str) -> Settle {
        if delivery.attempts >= PARSED {
            return Settle::Dead(why.to_owned());
        }
        let pause = 1_000_i64 << (2 * delivery.attempts.min(6));
        Settle::Later(self.now().plus(pause), why.to_owned())
    }
}
