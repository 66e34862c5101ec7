//! The content guard: mails between the same people that say the same within minutes.
//!
//! Where a look-alike is only flagged, nothing is read and nothing is compared until a second mail between the same
//! people comes: what was said of late is in the memory of this process. Where it is held, the ledger is asked, and
//! decides between two that come at once.

use mailonce_core::{
    address::Mailbox,
    content::Content,
    conversation::likeness::{self, Likeness, Mode},
    digest::Digest,
    dispatch::Act,
    email::{Channel, Email, EmailState, Guard},
    id::{EmailId, TeamId},
    port::store::{Acted, Care, EmailQuery, Once, StoreError},
    problem::Problem,
    time::Time,
};
use mailonce_mail::html::Page;
use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};
use subtle::ConstantTimeEq as _;
use tokio::sync::OnceCell;

use crate::{Caller, Engine, pack, read::apart, send::Named, unavailable};

const SHARDS: usize = 16;
/// Pairs of people in one generation of a shard.
const PAIRS: usize = 128;
/// Larger bodies are not kept until they are needed, only what is compared of them.
const KEPT_BYTES: usize = 4 * 1024;
/// Latest emails of a team that are looked through for those between the same people. Reading one takes microseconds, so
/// this bounds what a send costs when a team sends much.
const LATEST_EMAILS: usize = 1_000;
/// Emails in one generation of the cache of what is compared.
const CACHED: usize = 2_048;
/// What a token begins with.
const TOKEN: &str = "dt_";

/// A mail that was said of late.
#[derive(Clone)]
struct Said {
    at: Time,
    digest: Digest,
    body: Option<Arc<[u8]>>,
    likeness: Arc<OnceLock<Option<Likeness>>>,
}

impl Said {
    /// What is compared of it, worked out when it is first needed.
    fn likeness(&self, team: TeamId) -> Option<&Likeness> {
        let read = || pack::unpack(self.body.as_deref()?).map(|content| likeness_of(team, &content));
        self.likeness.get_or_init(read).as_ref()
    }
}

#[derive(Default)]
struct Shard {
    young: HashMap<u64, Vec<Said>>,
    old: HashMap<u64, Vec<Said>>,
}

/// What was said of late, by who said it to whom. Bounded: two generations, the older of which is dropped.
#[derive(Default)]
pub(crate) struct Window {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
}

impl Window {
    fn pair(&self, team: TeamId, content: &Content) -> u64 {
        let of = |mailbox: &Mailbox| self.hasher.hash_one(mailbox.folded());
        // The order of the recipients means nothing.
        let to = content.to.iter().map(of).fold(0, u64::wrapping_add);
        self.hasher.hash_one((team, of(&content.from), to))
    }

    fn with<T>(&self, pair: u64, act: impl FnOnce(&mut Shard) -> T) -> T {
        let at = (pair % SHARDS as u64) as usize;
        act(&mut self.shards[at].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The latest between the same people.
    fn latest(&self, team: TeamId, content: &Content, now: Time) -> Vec<Said> {
        let pair = self.pair(team, content);
        let found = self.with(pair, |shard| shard.young.get(&pair).or_else(|| shard.old.get(&pair)).cloned());
        let recent = |said: &Said| now.since(said.at) < likeness::WINDOW_MS;
        found.unwrap_or_default().into_iter().filter(recent).collect()
    }

    /// Whether a mail of late says the same, as far as this process remembers.
    fn has_alike(&self, team: TeamId, content: &Content, digest: &Digest, now: Time) -> bool {
        let latest = self.latest(team, content, now);
        // Most of them are retries: the same mail is alike without a look at its words.
        if latest.is_empty() || latest.iter().any(|said| said.digest == *digest) {
            return !latest.is_empty();
        }
        let likeness = likeness_of(team, content);
        latest.iter().any(|said| said.likeness(team).is_some_and(|other| likeness.is_like(other)))
    }

    /// Remembers a mail that was accepted.
    pub(crate) fn note(&self, team: TeamId, content: &Content, digest: &Digest, body: &Arc<[u8]>, now: Time) {
        let pair = self.pair(team, content);
        // A sealed body would have to be opened for each comparison.
        let small = body.len() <= KEPT_BYTES && !pack::is_sealed(body);
        let likeness = Arc::new(OnceLock::new());
        if !small {
            likeness.get_or_init(|| Some(likeness_of(team, content)));
        }
        let said = Said { at: now, digest: digest.clone(), body: small.then(|| Arc::clone(body)), likeness };
        self.with(pair, |shard| {
            let known = shard.young.remove(&pair).or_else(|| shard.old.remove(&pair));
            // Most people are written to once, so that the first takes no more room than it needs.
            let all = match known {
                None => vec![said],
                Some(mut all) => {
                    all.retain(|said| now.since(said.at) < likeness::WINDOW_MS);
                    let over = (all.len() + 1).saturating_sub(likeness::LATEST);
                    all.drain(..over);
                    all.push(said);
                    all
                }
            };
            if shard.young.len() >= PAIRS {
                // The tables change places, so that neither grows anew.
                let Shard { young, old } = shard;
                std::mem::swap(young, old);
                young.clear();
            }
            shard.young.insert(pair, all);
        });
    }
}

/// What is compared of emails in the ledger, so that a large one is not parsed again for every email to the same person.
#[derive(Default)]
pub(crate) struct LikenessCache(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    young: HashMap<EmailId, Arc<Likeness>>,
    old: HashMap<EmailId, Arc<Likeness>>,
}

impl LikenessCache {
    fn get(&self, id: EmailId) -> Option<Arc<Likeness>> {
        let cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cache.young.get(&id).or_else(|| cache.old.get(&id)).cloned()
    }

    /// What is compared of an email. It is computed only when it is not in the cache.
    async fn get_or_compute(
        &self,
        id: EmailId,
        compute: impl Future<Output = Result<Option<Likeness>, StoreError>>,
    ) -> Result<Option<Arc<Likeness>>, StoreError> {
        if let Some(known) = self.get(id) {
            return Ok(Some(known));
        }
        let Some(computed) = compute.await? else { return Ok(None) };
        let likeness = Arc::new(computed);
        self.put(id, Arc::clone(&likeness));
        Ok(Some(likeness))
    }

    fn put(&self, id: EmailId, likeness: Arc<Likeness>) {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.young.len() >= CACHED {
            cache.old = std::mem::take(&mut cache.young);
        }
        cache.young.insert(id, likeness);
    }
}

/// What the emails of one call are compared with: the latest of the team, read once and only when needed, and the items of
/// the batch that come before.
#[derive(Default)]
pub(crate) struct ComparisonSet {
    latest: OnceCell<Vec<Email>>,
    beside: Option<Window>,
}

impl ComparisonSet {
    /// For the items of a batch.
    pub(crate) fn of_batch() -> Self {
        Self { beside: Some(Window::default()), ..Self::default() }
    }

    /// The latest emails of the team. `read` runs once, however many emails are compared.
    async fn latest(&self, read: impl Future<Output = Result<Vec<Email>, StoreError>>) -> Result<&[Email], StoreError> {
        Ok(self.latest.get_or_try_init(|| read).await?)
    }

    /// Remembers an item of the batch for those behind it.
    pub(crate) fn note(&self, team: TeamId, named: &Named, body: &Arc<[u8]>, now: Time) {
        if let Some(beside) = &self.beside {
            beside.note(team, &named.request.content, &named.digest, body, now);
        }
    }
}

/// What is compared of a mail.
pub(crate) fn likeness_of(team: TeamId, content: &Content) -> Likeness {
    let from = content.from.bare();
    let to: Vec<String> = content.bare_to().iter().map(|to| to.as_str().to_owned()).collect();
    let page = content.text.is_none().then(|| content.html.as_deref().map(Page::read)).flatten();
    let text = content.text.as_deref().or(page.as_ref().map(|page| page.text.as_str())).unwrap_or_default();
    Likeness::of(team, from.as_str(), &to, &content.subject, text)
}

impl Engine {
    /// What the guard has to say about a mail before it is accepted. `hold` is what others said.
    pub(crate) async fn care(
        &self,
        caller: &Caller,
        named: &Named,
        (hold, compared): (Option<Guard>, &ComparisonSet),
        now: Time,
    ) -> Result<Care, Problem> {
        let (team, content) = (caller.team.id, &named.request.content);
        let settings = self.settings_of(team).await.map_err(unavailable)?;
        let mode = match &named.request.intent {
            Some(intent) if intent.period.is_some() => Mode::Off,
            // A model that retries may call the same matter by another name.
            Some(_) if caller.channel == Channel::Mcp => settings.mcp,
            // Code that was written for another service does not know what a held mail is.
            _ if named.is_keyed() || caller.channel.is_dialect() => settings.keyed,
            _ => settings.keyless,
        };
        match mode {
            Mode::Off => Ok(Care { hold, ..Care::default() }),
            Mode::Flag => {
                let mut said = std::iter::once(&self.window).chain(&compared.beside);
                let alike = said.any(|window| window.has_alike(team, content, &named.digest, now));
                Ok(Care { hold, flag: alike.then_some(Guard::LooksDuplicate), ..Care::default() })
            }
            Mode::Hold => {
                let likeness = likeness_of(team, content);
                let latest = compared.latest(self.latest_emails(team, None, now)).await.map_err(unavailable)?;
                let alike = Box::pin(self.look_alike(&likeness, content, latest)).await.map_err(unavailable)?;
                let hold = hold.or(alike.map(|_| Guard::LooksDuplicate));
                Ok(Care { hold, likeness: Some(likeness), ..Care::default() })
            }
        }
    }

    /// The latest emails of a team within the window: before an email, or before now.
    pub(crate) async fn latest_emails(
        &self,
        team: TeamId,
        before: Option<EmailId>,
        now: Time,
    ) -> Result<Vec<Email>, StoreError> {
        let since = Some(now.plus(-likeness::WINDOW_MS));
        let query = EmailQuery { since, before, limit: LATEST_EMAILS, ..EmailQuery::default() };
        Ok(self.store.emails(team, query).await?.rows)
    }

    /// The latest of these emails that is between the same people and says the same.
    pub(crate) async fn look_alike<'a>(
        &self,
        likeness: &Likeness,
        content: &Content,
        latest: &'a [Email],
    ) -> Result<Option<&'a Email>, StoreError> {
        let from = content.from.bare();
        let people: Vec<String> = content.bare_to().iter().map(|to| to.as_str().to_owned()).collect();
        let stands = |email: &Email| !matches!(email.state(), EmailState::Failed | EmailState::Cancelled);
        let same = |email: &&Email| email.head.from == from.as_str() && email.head.to == people && stands(email);
        for email in latest.iter().filter(same).take(likeness::LATEST) {
            if self.likeness_in_ledger(email).await?.is_some_and(|other| other.is_like(likeness)) {
                return Ok(Some(email));
            }
        }
        Ok(None)
    }

    /// What is compared of an email in the ledger; `None` when its content is no longer kept.
    async fn likeness_in_ledger(&self, email: &Email) -> Result<Option<Arc<Likeness>>, StoreError> {
        self.likenesses.get_or_compute(email.id, self.compute_likeness(email)).await
    }

    async fn compute_likeness(&self, email: &Email) -> Result<Option<Likeness>, StoreError> {
        let Some(content) = self.content_in_ledger(email).await? else { return Ok(None) };
        let team = email.team;
        if content.html.is_none() {
            return Ok(Some(likeness_of(team, &content)));
        }
        // Hostile HTML can take long to parse, so a worker thread does it. An email that crashes the parser matches none.
        Ok(apart(move || likeness_of(team, &content)).await.ok())
    }

    /// What an email says; `None` when its content is no longer kept.
    pub(crate) async fn content_in_ledger(&self, email: &Email) -> Result<Option<Content>, StoreError> {
        let detail = self.store.email_detail(email.team, email.id).await?;
        Ok(detail.and_then(|detail| detail.body.as_deref().and_then(|body| self.bodies.unpack(body))))
    }

    /// The one-use token by which a sender says that a held look-alike is meant.
    pub(crate) fn distinct_token(&self, team: TeamId, id: EmailId) -> String {
        let mac = self.secret.mac("distinct", &[team.0.as_bytes(), id.0.as_bytes()]);
        format!("{TOKEN}{}_{}", id.0.simple(), crate::hex(&mac[..16]))
    }

    /// The email that a token of this team names.
    pub(crate) fn by_distinct_token(&self, team: TeamId, token: &str) -> Option<EmailId> {
        let (id, _) = token.strip_prefix(TOKEN)?.split_once('_')?;
        let id = EmailId(uuid::Uuid::try_parse(id).ok()?);
        bool::from(self.distinct_token(team, id).as_bytes().ct_eq(token.as_bytes())).then_some(id)
    }

    /// Lets a held email go. What it is from then on; `None` when the team has no such email.
    pub(crate) async fn release(&self, team: TeamId, id: EmailId) -> Result<Option<Email>, StoreError> {
        let acted = self.store.act(team, id, Act::Release, None, self.now()).await?;
        self.ways.wake();
        match acted {
            Once::Done(Acted::Email(_, email)) => Ok(Some(email)),
            // No key was given.
            Once::Done(Acted::Missing) | Once::Repeated(_) | Once::Mismatch(_) => Ok(None),
        }
    }

    /// Whether a caller may send from an address.
    pub(crate) fn may_send_from(caller: &Caller, address: &str) -> Result<(), Problem> {
        if !caller.may_see_from(address) {
            let detail = format!("this API key is tied to inboxes, and {address} is the address of none of them");
            let next = "Send from the address of one of the key's `inboxes`.";
            let problem = Problem::field(mailonce_core::problem::Code::SenderNotAllowed, "from", detail);
            return Err(problem.with("inboxes", caller.key.about.inboxes.clone()).with("next", next));
        }
        if caller.key.may_send_from(address) {
            return Ok(());
        }
        let detail = format!("this API key may not send from {address}");
        Err(Problem::field(mailonce_core::problem::Code::SenderNotAllowed, "from", detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::content::RawContent;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use uuid::Uuid;

    const TEAM: TeamId = TeamId(Uuid::from_u128(1));

    fn content(to: &str, text: &str) -> Content {
        let raw = RawContent {
            from: "bot@example.org".into(),
            to: vec![to.into()],
            subject: "News".into(),
            text: Some(text.into()),
            ..RawContent::default()
        };
        Content::check(raw).unwrap()
    }

    fn note(window: &Window, content: &Content, at: i64) {
        window.note(TEAM, content, &Digest::of(content), &pack::pack(content).into(), Time(at));
    }

    #[test]
    fn words_are_worked_out_only_for_a_second_mail_between_the_same_people() {
        let window = Window::default();
        let (one, other) = (content("a@x.test", "Hello there"), content("b@x.test", "Hello there"));
        note(&window, &one, 0);
        assert!(window.latest(TEAM, &other, Time(1)).is_empty());
        let latest = window.latest(TEAM, &one, Time(1));
        assert_eq!(latest.len(), 1);
        assert!(latest[0].likeness.get().is_none());
        assert!(latest[0].likeness(TEAM).is_some_and(|said| said.is_like(&likeness_of(TEAM, &one))));
        assert!(window.latest(TEAM, &one, Time(likeness::WINDOW_MS)).is_empty());
    }

    #[test]
    fn a_retry_is_alike_without_a_look_at_its_words() {
        let window = Window::default();
        let (one, again) = (content("a@x.test", "Hello there"), content("a@x.test", "Hello there you"));
        note(&window, &one, 0);
        let has_alike = |content: &Content| window.has_alike(TEAM, content, &Digest::of(content), Time(1));
        let is_read = || window.latest(TEAM, &one, Time(1))[0].likeness.get().is_some();
        assert!(has_alike(&one) && !is_read());
        assert!(!has_alike(&content("b@x.test", "Hello there")) && !is_read());
        assert!(!has_alike(&content("a@x.test", "Something else")) && is_read());
        assert!(has_alike(&again));
    }

    #[test]
    fn a_large_body_is_compared_and_not_kept() {
        let window = Window::default();
        let words = (0..20_000_u64).map(|n| format!("w{}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let noise = words.collect::<Vec<_>>().join(" ");
        let large = content("a@x.test", &noise);
        note(&window, &large, 0);
        let latest = window.latest(TEAM, &large, Time(1));
        assert!(latest[0].body.is_none() && latest[0].likeness(TEAM).is_some());
    }

    #[tokio::test]
    async fn a_large_email_is_parsed_once_however_many_are_compared_with_it() {
        let (cache, parsed) = (LikenessCache::default(), AtomicUsize::new(0));
        let parse = async || {
            parsed.fetch_add(1, Ordering::Relaxed);
            Ok(Some(likeness_of(TEAM, &content("a@x.test", "Hello there"))))
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
        let (batch, reads) = (ComparisonSet::of_batch(), AtomicUsize::new(0));
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
        let window = Window::default();
        for n in 0..20_000 {
            note(&window, &content(&format!("u{n}@x.test"), "Hello"), 0);
        }
        for _ in 0..50 {
            note(&window, &content("same@x.test", "Hello"), 0);
        }
        let kept = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap();
            shard.young.len() + shard.old.len()
        };
        assert!(window.shards.iter().map(kept).sum::<usize>() <= 2 * SHARDS * PAIRS + SHARDS);
        assert_eq!(window.latest(TEAM, &content("same@x.test", "Hello"), Time(0)).len(), likeness::LATEST);
    }
}
