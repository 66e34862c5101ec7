//! The content guard finds emails between the same people with similar content within minutes.
//!
//! In flag mode it compares only with earlier items of the batch and with emails that this process accepted recently,
//! which it keeps in memory. A small unencrypted email is parsed only when a second one between the same people arrives;
//! the fingerprint of any other is computed at once. The store also flags an email without a key through a dialect, if
//! one of another node is similar. In hold mode it reads the latest emails from the store, and the store decides between
//! two that arrive at once.

use crate::{
    access::{Access, caller::Caller},
    outbound::{Outbound, keyed_send::KeyedSend},
    runtime::{blocking::run_blocking, context::Context, pack, problems::unavailable},
};
use mailonce_core::{
    address::NamedAddress,
    id::{EmailId, TeamId},
    outbound::{
        accept::GuardInput,
        content::EmailContent,
        content_guard::{self, ContentFingerprint, ContentGuardMode, IdenticalCheck, IdenticalMode},
        digest::{Digest, identity_hash},
        email::{Channel, Email, Guard},
        email_query::EmailQuery,
        holds::Holds,
        policy_trace::{PolicyKind, PolicyStep, PolicyTrace, PolicyVerdict},
    },
    ports::store::StoreError,
    problem::Problem,
    time::Time,
};
use mailonce_mail::html::HtmlPage;
use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};
use subtle::ConstantTimeEq as _;
use tokio::sync::OnceCell;

const SHARDS: usize = 16;
/// Sender and recipient pairs in one generation of a shard.
const PAIRS_PER_GENERATION: usize = 128;
/// Of larger bodies the window keeps only the fingerprint.
const MAX_CACHED_BODY_BYTES: usize = 4 * 1024;
/// How many of a team's latest emails are searched for ones between the same people. Reading one takes microseconds,
/// so this bounds the cost of a send for busy teams.
const SCAN_LIMIT: usize = 1_000;
/// Fingerprints in one generation of the cache.
const FINGERPRINTS_PER_GENERATION: usize = 2_048;
/// The prefix of distinct tokens.
const DISTINCT_TOKEN_PREFIX: &str = "dt_";

/// An email that this process accepted recently.
#[derive(Clone)]
struct RecentSend {
    at: Time,
    digest: Digest,
    body: Option<Arc<[u8]>>,
    fingerprint: Arc<OnceLock<Option<ContentFingerprint>>>,
}

impl RecentSend {
    /// Its fingerprint, computed at the first use.
    fn fingerprint(&self, team: TeamId) -> Option<&ContentFingerprint> {
        let read = || pack::unpack(self.body.as_deref()?).map(|content| content_fingerprint(team, &content));
        self.fingerprint.get_or_init(read).as_ref()
    }
}

#[derive(Default)]
struct RecentSendShard {
    young: HashMap<u64, Vec<RecentSend>>,
    old: HashMap<u64, Vec<RecentSend>>,
}

/// Recently accepted emails by team, sender and recipients. Bounded: when the young generation is full, the old one is
/// dropped.
#[derive(Default)]
struct RecentSendWindow {
    shards: [Mutex<RecentSendShard>; SHARDS],
    hasher: RandomState,
}

impl RecentSendWindow {
    fn pair_hash(&self, team: TeamId, content: &EmailContent) -> u64 {
        let of = |mailbox: &NamedAddress| self.hasher.hash_one(mailbox.lowercased());
        // The order of the recipients doesn't matter, so their hashes are added.
        let to = content.to.iter().map(of).fold(0, u64::wrapping_add);
        self.hasher.hash_one((team, of(&content.from), to))
    }

    fn with_shard<T>(&self, pair: u64, action: impl FnOnce(&mut RecentSendShard) -> T) -> T {
        let at = (pair % SHARDS as u64) as usize;
        action(&mut self.shards[at].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The recent emails between the same people.
    fn latest(&self, team: TeamId, content: &EmailContent, now: Time) -> Vec<RecentSend> {
        let pair = self.pair_hash(team, content);
        let found = self.with_shard(pair, |shard| shard.young.get(&pair).or_else(|| shard.old.get(&pair)).cloned());
        let recent = |send: &RecentSend| now.since(send.at) < content_guard::COMPARE_WINDOW_MS;
        found.unwrap_or_default().into_iter().filter(recent).collect()
    }

    /// Whether an email that this process accepted recently has similar content.
    fn has_look_alike(&self, team: TeamId, content: &EmailContent, digest: &Digest, now: Time) -> bool {
        let latest = self.latest(team, content, now);
        // Most look-alikes are retries. An equal digest proves the match without comparing texts.
        if latest.is_empty() || latest.iter().any(|send| send.digest == *digest) {
            return !latest.is_empty();
        }
        let fingerprint = content_fingerprint(team, content);
        latest.iter().any(|send| send.fingerprint(team).is_some_and(|other| fingerprint.is_similar_to(other)))
    }

    /// Remembers an accepted email.
    fn record(&self, team: TeamId, content: &EmailContent, digest: &Digest, body: &Arc<[u8]>, now: Time) {
        let pair = self.pair_hash(team, content);
        // A sealed body would have to be decrypted for each comparison.
        let keeps_body = body.len() <= MAX_CACHED_BODY_BYTES && !pack::is_sealed(body);
        let fingerprint = Arc::new(OnceLock::new());
        if !keeps_body {
            fingerprint.get_or_init(|| Some(content_fingerprint(team, content)));
        }
        let send =
            RecentSend { at: now, digest: digest.clone(), body: keeps_body.then(|| Arc::clone(body)), fingerprint };
        self.with_shard(pair, |shard| {
            let known = shard.young.remove(&pair).or_else(|| shard.old.remove(&pair));
            // Most pairs send one email, so the first entry allocates only one slot.
            let all = match known {
                None => vec![send],
                Some(mut all) => {
                    all.retain(|send| now.since(send.at) < content_guard::COMPARE_WINDOW_MS);
                    let over = (all.len() + 1).saturating_sub(content_guard::MAX_COMPARED);
                    all.drain(..over);
                    all.push(send);
                    all
                }
            };
            if shard.young.len() >= PAIRS_PER_GENERATION {
                // The maps swap places, so that both keep their capacity.
                let RecentSendShard { young, old } = shard;
                std::mem::swap(young, old);
                young.clear();
            }
            shard.young.insert(pair, all);
        });
    }
}

/// Fingerprints of stored emails, so that a large email isn't parsed again for every later email to the same person.
#[derive(Default)]
struct FingerprintCache(Mutex<FingerprintGenerations>);

#[derive(Default)]
struct FingerprintGenerations {
    young: HashMap<EmailId, Arc<ContentFingerprint>>,
    old: HashMap<EmailId, Arc<ContentFingerprint>>,
}

impl FingerprintCache {
    fn get(&self, id: EmailId) -> Option<Arc<ContentFingerprint>> {
        let cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cache.young.get(&id).or_else(|| cache.old.get(&id)).cloned()
    }

    /// The fingerprint of an email. `compute` runs only when the cache doesn't have it.
    async fn get_or_compute(
        &self,
        id: EmailId,
        compute: impl Future<Output = Result<Option<ContentFingerprint>, StoreError>>,
    ) -> Result<Option<Arc<ContentFingerprint>>, StoreError> {
        if let Some(known) = self.get(id) {
            return Ok(Some(known));
        }
        let Some(computed) = compute.await? else { return Ok(None) };
        let fingerprint = Arc::new(computed);
        self.put(id, Arc::clone(&fingerprint));
        Ok(Some(fingerprint))
    }

    fn put(&self, id: EmailId, fingerprint: Arc<ContentFingerprint>) {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.young.len() >= FINGERPRINTS_PER_GENERATION {
            cache.old = std::mem::take(&mut cache.young);
        }
        cache.young.insert(id, fingerprint);
    }
}

/// What the emails of one call are compared with: the team's latest emails, read once and only when needed, and the
/// earlier items of the same batch.
#[derive(Default)]
pub(crate) struct ComparisonSet {
    latest: OnceCell<Vec<Email>>,
    batch_items: Option<RecentSendWindow>,
}

impl ComparisonSet {
    /// A set for the items of a batch.
    pub(crate) fn for_batch() -> Self {
        Self { batch_items: Some(RecentSendWindow::default()), ..Self::default() }
    }

    /// The latest emails of the team. `read` runs once, however many emails are compared.
    async fn latest(&self, read: impl Future<Output = Result<Vec<Email>, StoreError>>) -> Result<&[Email], StoreError> {
        Ok(self.latest.get_or_try_init(|| read).await?)
    }

    /// Remembers an item of the batch for the items after it.
    pub(crate) fn record_item(&self, team: TeamId, keyed: &KeyedSend, body: &Arc<[u8]>, now: Time) {
        if let Some(window) = &self.batch_items {
            window.record(team, &keyed.request.content, &keyed.digest, body, now);
        }
    }
}

/// Whether a client of another provider's API sends without a key, as it always did.
pub(crate) fn is_keyless_dialect_send(caller: &Caller, keyed: &KeyedSend) -> bool {
    caller.channel.is_dialect() && !keyed.is_keyed()
}

/// The fingerprint of an email's content.
pub(crate) fn content_fingerprint(team: TeamId, content: &EmailContent) -> ContentFingerprint {
    let from = content.from.to_address();
    let to: Vec<String> = content.to_addresses().iter().map(|to| to.as_str().to_owned()).collect();
    let page = content.text.is_none().then(|| content.html.as_deref().map(HtmlPage::parse)).flatten();
    let text = content.text.as_deref().or(page.as_ref().map(|page| page.text.as_str())).unwrap_or_default();
    ContentFingerprint::from_email(team, from.as_str(), &to, &content.subject, text)
}

/// The fingerprint of the intent that a model chose: when it retries, it may spell the same intent in another way.
fn intent_fingerprint(caller: &Caller, keyed: &KeyedSend) -> Option<ContentFingerprint> {
    let intent = keyed.request.intent.as_ref().filter(|_| caller.channel == Channel::Mcp)?;
    let recipients = keyed.request.content.to_addresses();
    let to: Vec<String> = recipients.iter().map(|to| to.as_str().to_owned()).collect();
    Some(ContentFingerprint::of_intent(intent, &to))
}

/// Compares emails with those that were sent before, as the settings of their team say.
pub(crate) struct ContentGuard {
    ctx: Arc<Context>,
    access: Arc<Access>,
    recent_sends: RecentSendWindow,
    fingerprints: FingerprintCache,
}

impl ContentGuard {
    pub(crate) fn new(ctx: Arc<Context>, access: Arc<Access>) -> Self {
        Self { ctx, access, recent_sends: RecentSendWindow::default(), fingerprints: FingerprintCache::default() }
    }

    /// Records an accepted email for comparison with the next ones.
    pub(crate) fn record(&self, caller: &Caller, send: &KeyedSend, body: &Arc<[u8]>, now: Time) {
        self.recent_sends.record(caller.team.id, &send.request.content, &send.digest, body, now);
    }

    /// Applies the team's guard mode to an email before it is accepted. `holds` are the guards that hold it already.
    pub(crate) async fn evaluate(
        &self,
        caller: &Caller,
        keyed: &KeyedSend,
        (mut holds, compared): (Holds, &ComparisonSet),
        now: Time,
        trace: &mut PolicyTrace,
    ) -> Result<GuardInput, Problem> {
        let (team, content) = (caller.team.id, &keyed.request.content);
        let settings = self.access.settings_of(team).await.map_err(unavailable)?;
        let repeats = is_keyless_dialect_send(caller, keyed).then(|| settings.compat.resolve(self.ctx.deps.compat));
        let identical = repeats
            .filter(|(mode, _)| *mode == IdenticalMode::Replay)
            .map(|(_, window_ms)| self.identical_check(content, window_ms, keyed.identical_place));
        let mode = match &keyed.request.intent {
            _ if repeats.is_some_and(|(mode, _)| mode == IdenticalMode::Hold) => ContentGuardMode::Hold,
            Some(intent) if intent.period.is_some() => ContentGuardMode::Off,
            // A model that retries may choose another intent for the same email.
            Some(_) if caller.channel == Channel::Mcp => settings.mcp,
            // Clients of another provider's API don't know held emails, so dialects get the mode for keyed sends.
            _ if keyed.is_keyed() || caller.channel.is_dialect() => settings.keyed,
            _ => settings.keyless,
        };
        // Recurring emails are alike, but a model that spells the intent of one in another way repeats it.
        let intent = intent_fingerprint(caller, keyed).filter(|_| settings.mcp == ContentGuardMode::Hold);
        match mode {
            ContentGuardMode::Off => {
                let why = match &intent {
                    Some(_) => "no recent email has the same intent in another spelling; the content is not compared",
                    None => "not compared: the content guard is off for this send",
                };
                let name = Guard::LooksDuplicate.as_str();
                trace.record(PolicyStep::new(PolicyKind::Guard, name, PolicyVerdict::Pass, why));
                Ok(GuardInput { holds, identical, intent, ..GuardInput::default() })
            }
            ContentGuardMode::Flag => {
                let mut windows = std::iter::once(&self.recent_sends).chain(&compared.batch_items);
                let look_alike = windows.any(|window| window.has_look_alike(team, content, &keyed.digest, now));
                Ok(GuardInput {
                    holds,
                    identical,
                    flag_similar: repeats.map(|_| content_fingerprint(team, content)),
                    flagged_by: look_alike.then_some(Guard::LooksDuplicate),
                    ..GuardInput::default()
                })
            }
            ContentGuardMode::Hold => {
                let fingerprint = content_fingerprint(team, content);
                let latest = compared.latest(self.latest_emails(team, None, now)).await.map_err(unavailable)?;
                let look_alike =
                    Box::pin(self.find_look_alike(&fingerprint, content, latest)).await.map_err(unavailable)?;
                holds = holds.union(look_alike.map(|_| Guard::LooksDuplicate).into());
                Ok(GuardInput { holds, identical, fingerprint: Some(fingerprint), intent, ..GuardInput::default() })
            }
        }
    }

    /// Asks whether an email repeats an identical one of this window. `place` is its place among the identical items of
    /// its batch.
    pub(crate) fn identical_check(&self, content: &EmailContent, window_ms: i64, place: Option<u32>) -> IdenticalCheck {
        let fingerprint = ContentFingerprint::of_meaning(identity_hash(content, &self.ctx.secret));
        let mut check = IdenticalCheck { fingerprint, window_ms };
        check.set_batch_place(place);
        check
    }

    /// The latest emails of a team within the window: those before an email, or all.
    pub(crate) async fn latest_emails(
        &self,
        team: TeamId,
        before: Option<EmailId>,
        now: Time,
    ) -> Result<Vec<Email>, StoreError> {
        let since = Some(now.plus(-content_guard::COMPARE_WINDOW_MS));
        let query = EmailQuery { since, before, limit: SCAN_LIMIT, ..EmailQuery::default() };
        Ok(self.ctx.store.emails(team, query).await?.rows)
    }

    /// The latest of these emails that is between the same people and has similar content.
    pub(crate) async fn find_look_alike<'a>(
        &self,
        fingerprint: &ContentFingerprint,
        content: &EmailContent,
        latest: &'a [Email],
    ) -> Result<Option<&'a Email>, StoreError> {
        let from = content.from.to_address();
        let recipients: Vec<String> = content.to_addresses().iter().map(|to| to.as_str().to_owned()).collect();
        let is_comparable = |email: &&Email| {
            email.head.from == from.as_str() && email.head.to == recipients && !email.is_surely_unsent()
        };
        for email in latest.iter().filter(is_comparable).take(content_guard::MAX_COMPARED) {
            if self.stored_fingerprint(email).await?.is_some_and(|other| other.is_similar_to(fingerprint)) {
                return Ok(Some(email));
            }
        }
        Ok(None)
    }

    /// The fingerprint of a stored email; `None` when its content was deleted.
    async fn stored_fingerprint(&self, email: &Email) -> Result<Option<Arc<ContentFingerprint>>, StoreError> {
        self.fingerprints.get_or_compute(email.id, self.compute_fingerprint(email)).await
    }

    async fn compute_fingerprint(&self, email: &Email) -> Result<Option<ContentFingerprint>, StoreError> {
        let Some(content) = self.stored_content(email).await? else { return Ok(None) };
        let team = email.team;
        if content.html.is_none() {
            return Ok(Some(content_fingerprint(team, &content)));
        }
        // Hostile HTML can take long to parse, so a worker thread does it. An email that crashes the parser matches
        // none.
        Ok(run_blocking(move || content_fingerprint(team, &content)).await.ok())
    }

    /// The content of a stored email; `None` when it was deleted.
    pub(crate) async fn stored_content(&self, email: &Email) -> Result<Option<EmailContent>, StoreError> {
        let detail = self.ctx.store.email_detail(email.team, email.id).await?;
        Ok(detail.and_then(|detail| detail.body.as_deref().and_then(|body| self.ctx.packer.unpack(body))))
    }

    /// The token with which a sender confirms that a held look-alike should be sent.
    pub(crate) fn distinct_token(&self, team: TeamId, id: EmailId) -> String {
        let mac = self.ctx.secret.mac("distinct", &[team.0.as_bytes(), id.0.as_bytes()]);
        format!("{DISTINCT_TOKEN_PREFIX}{}_{}", id.0.simple(), crate::runtime::hex::hex(&mac[..16]))
    }

    /// The email that a distinct token of this team names.
    pub(crate) fn email_of_distinct_token(&self, team: TeamId, token: &str) -> Option<EmailId> {
        let (id, _) = token.strip_prefix(DISTINCT_TOKEN_PREFIX)?.split_once('_')?;
        let id = EmailId(uuid::Uuid::try_parse(id).ok()?);
        bool::from(self.distinct_token(team, id).as_bytes().ct_eq(token.as_bytes())).then_some(id)
    }
}

impl Outbound {
    /// Checks that the API key may send from an address.
    pub(crate) fn check_may_send_from(caller: &Caller, address: &str) -> Result<(), Problem> {
        if !caller.may_see_sender(address) {
            let detail = format!("this API key is restricted to inboxes, and none of them has the address {address}");
            let next = "Send from the address of one of the key's `inboxes`.";
            let problem = Problem::for_field(mailonce_core::problem::Code::SenderNotAllowed, "from", detail);
            return Err(problem
                .with_extension("inboxes", caller.key.details.inboxes.clone())
                .with_extension("next", next));
        }
        if caller.key.may_send_from(address) {
            return Ok(());
        }
        let detail = format!("this API key may not send from {address}");
        Err(Problem::for_field(mailonce_core::problem::Code::SenderNotAllowed, "from", detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::outbound::content::RawContent;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use uuid::Uuid;

    const TEAM: TeamId = TeamId(Uuid::from_u128(1));

    fn content(to: &str, text: &str) -> EmailContent {
        let raw = RawContent {
            from: "bot@example.org".into(),
            to: vec![to.into()],
            subject: "News".into(),
            text: Some(text.into()),
            ..RawContent::default()
        };
        EmailContent::validate(raw).unwrap()
    }

    fn note(window: &RecentSendWindow, content: &EmailContent, at: i64) {
        window.record(TEAM, content, &Digest::of_content(content), &pack::pack(content).into(), Time(at));
    }

    #[test]
    fn words_are_worked_out_only_for_a_second_mail_between_the_same_people() {
        let window = RecentSendWindow::default();
        let (one, other) = (content("a@x.test", "Hello there"), content("b@x.test", "Hello there"));
        note(&window, &one, 0);
        assert!(window.latest(TEAM, &other, Time(1)).is_empty());
        let latest = window.latest(TEAM, &one, Time(1));
        assert_eq!(latest.len(), 1);
        assert!(latest[0].fingerprint.get().is_none());
        assert!(
            latest[0]
                .fingerprint(TEAM)
                .is_some_and(|fingerprint| fingerprint.is_similar_to(&content_fingerprint(TEAM, &one)))
        );
        assert!(window.latest(TEAM, &one, Time(content_guard::COMPARE_WINDOW_MS)).is_empty());
    }

    #[test]
    fn a_retry_is_alike_without_a_look_at_its_words() {
        let window = RecentSendWindow::default();
        let (one, again) = (content("a@x.test", "Hello there"), content("a@x.test", "Hello there you"));
        note(&window, &one, 0);
        let has_alike =
            |content: &EmailContent| window.has_look_alike(TEAM, content, &Digest::of_content(content), Time(1));
        let is_read = || window.latest(TEAM, &one, Time(1))[0].fingerprint.get().is_some();
        assert!(has_alike(&one) && !is_read());
        assert!(!has_alike(&content("b@x.test", "Hello there")) && !is_read());
        assert!(!has_alike(&content("a@x.test", "Something else")) && is_read());
        assert!(has_alike(&again));
    }

    #[test]
    fn a_large_body_is_compared_and_not_kept() {
        let window = RecentSendWindow::default();
        let words = (0..20_000_u64).map(|n| format!("w{}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let noise = words.collect::<Vec<_>>().join(" ");
        let large = content("a@x.test", &noise);
        note(&window, &large, 0);
        let latest = window.latest(TEAM, &large, Time(1));
        assert!(latest[0].body.is_none() && latest[0].fingerprint(TEAM).is_some());
    }

    #[tokio::test]
    async fn a_large_email_is_parsed_once_however_many_are_compared_with_it() {
        let (cache, parsed) = (FingerprintCache::default(), AtomicUsize::new(0));
        let parse = async || {
            parsed.fetch_add(1, Ordering::Relaxed);
            Ok(Some(content_fingerprint(TEAM, &content("a@x.test", "Hello there"))))
        };
        for _ in 0..3 {
            assert!(cache.get_or_compute(EmailId(Uuid::from_u128(1)), parse()).await.unwrap().is_some());
        }
        assert_eq!(parsed.load(Ordering::Relaxed), 1);
        cache.get_or_compute(EmailId(Uuid::from_u128(2)), parse()).await.unwrap();
        assert_eq!(parsed.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_batch_reads_the_latest_emails_once() {
        let (batch, reads) = (ComparisonSet::for_batch(), AtomicUsize::new(0));
        let read = async || {
            reads.fetch_add(1, Ordering::Relaxed);
            Ok(Vec::new())
        };
        for _ in 0..3 {
            assert!(batch.latest(read()).await.unwrap().is_empty());
        }
        assert_eq!(reads.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_window_stays_small() {
        let window = RecentSendWindow::default();
        for n in 0..20_000 {
            note(&window, &content(&format!("u{n}@x.test"), "Hello"), 0);
        }
        for _ in 0..50 {
            note(&window, &content("same@x.test", "Hello"), 0);
        }
        let kept = |shard: &Mutex<RecentSendShard>| {
            let shard = shard.lock().unwrap();
            shard.young.len() + shard.old.len()
        };
        assert!(window.shards.iter().map(kept).sum::<usize>() <= 2 * SHARDS * PAIRS_PER_GENERATION + SHARDS);
        assert_eq!(window.latest(TEAM, &content("same@x.test", "Hello"), Time(0)).len(), content_guard::MAX_COMPARED);
    }
}
