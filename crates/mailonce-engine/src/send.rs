//! Sending: a wish becomes one email, or the answer that an earlier one got.

use mailonce_core::{
    address::Mailbox,
    content::Content,
    digest::{Digest, Field},
    email::{Channel, Email, EmailHead, EmailState, Guard, OnUnknown},
    id::{EmailId, MessageId},
    intent::Intent,
    key::{Key, KeyHash, KeyName},
    limits,
    message::Message,
    mutant,
    port::store::{Accept, AcceptBatch, BatchWish, Bound, Care, Operation, SuppressedReason, Wish},
    problem::{Code, FieldError, Problem},
    rule::RuleName,
    time::Time,
    ttl::{self, Ttl},
};
use std::{collections::BTreeMap, sync::Arc};

use crate::{
    Caller, Engine,
    content_guard::ComparisonSet,
    reply::Terms,
    seen::Glimpse,
    unavailable,
    view::{Sent, message_id},
};

/// What to do when a bound key comes with another meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMismatch {
    /// Refuse, naming what differs.
    Reject,
    /// The first wording stands, if only words differ.
    FirstWins,
}

/// A wish as a caller brings it, its words already checked.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// The mail.
    pub content: Content,
    /// What it is about.
    pub intent: Option<Intent>,
    /// The key from the header.
    pub key: Option<Key>,
    /// How long the key is remembered.
    pub ttl: Option<Ttl>,
    /// What to do on a mismatch; by default it depends on where the key came from.
    pub on_mismatch: Option<OnMismatch>,
    /// What to do when the outcome stays unknown.
    pub on_unknown: Option<OnUnknown>,
    /// The way out, when the caller names one.
    pub transport: Option<String>,
    /// The one-use token of a held look-alike.
    pub distinct_token: Option<String>,
    /// The name that its inbox gives the sender: a setting, and not what the caller says.
    pub sender_name: Option<String>,
    /// Why nothing new is accepted of it. A repeat of what was accepted gets its answer all the same.
    pub stopped: Option<Problem>,
}

impl SendRequest {
    /// A mail, perhaps under a key, and everything else as it usually is.
    pub fn plain(content: Content, key: Option<Key>) -> Self {
        Self {
            content,
            intent: None,
            key,
            ttl: None,
            on_mismatch: None,
            on_unknown: None,
            transport: None,
            distinct_token: None,
            sender_name: None,
            stopped: None,
        }
    }
}

/// A wish with its name and meaning worked out.
pub(crate) struct Named {
    pub(crate) request: SendRequest,
    pub(crate) name: Option<KeyName>,
    pub(crate) hash: Option<KeyHash>,
    pub(crate) digest: Digest,
    on_mismatch: OnMismatch,
    /// The message it answers: an answer is named by what it answers, even without a key.
    pub(crate) answers: Option<MessageId>,
    /// The fields that can still be compared, where the rest followed from what is gone.
    said: Option<&'static [Field]>,
}

impl Named {
    /// Whether a retry of it can be told from another wish.
    pub(crate) fn is_keyed(&self) -> bool {
        self.name.is_some() || self.answers.is_some()
    }

    /// Whether a difference in these fields leaves the first wording standing.
    fn forgives(&self, fields: &[Field]) -> bool {
        self.on_mismatch == OnMismatch::FirstWins && fields.iter().all(|field| field.forgiven())
    }
}

/// The answer to a batch: each item's, or its fault.
#[derive(Debug)]
pub struct BatchAnswer {
    /// In order; `None` where `faults` has a row.
    pub items: Vec<Option<Sent>>,
    /// What was wrong with which item.
    pub faults: Vec<(usize, Problem)>,
    /// Whether every item was answered with an earlier email.
    pub replayed: bool,
}

impl Engine {
    /// Accepts an email once. The same key again gets the same email.
    pub fn send<'a>(
        &'a self,
        caller: &'a Caller,
        request: SendRequest,
    ) -> impl Future<Output = Result<Sent, Problem>> + Send + 'a {
        self.metrics.attempted(caller.channel);
        // Here, so that hundreds of calls that wait for their commit do not keep room for the request as well.
        self.send_named(caller, name(caller, request, None))
    }

    async fn send_named(&self, caller: &Caller, named: Named) -> Result<Sent, Problem> {
        let now = self.now();
        if let Some(token) = &named.request.distinct_token
            && let Some(sent) = Box::pin(self.send_distinct(caller, &named, token, None)).await?
        {
            return Ok(sent);
        }
        // A bound key is looked up before anything else is checked, so that a retry is never refused. The cache
        // answers most; the accept itself looks up the rest; only a wish that fails a check has to ask first.
        if let Some(glimpse) = named.hash.and_then(|hash| self.glimpse(hash, now)) {
            return self.replay(caller, &named, &glimpse, now);
        }
        let wish = match self.careful_wish(caller, &named, now).await {
            Ok(wish) => wish,
            Err(problem) => return self.bound_or(caller, &named, problem, now).await,
        };
        let body = Arc::clone(&wish.body);
        match self.store.accept(*wish, now).await.map_err(unavailable)? {
            Accept::First(email) => {
                self.window.note(caller.team.id, &named.request.content, &named.digest, &body, now);
                self.ask_about(&email).await;
                Ok(self.first(caller, &email))
            }
            Accept::Bound(bound) => self.answer_bound(caller, &named, bound, now),
            Accept::OverBudget(exceeded) => Err(self.quota_exceeded(caller.team.id, &exceeded).await),
        }
    }

    /// The wish with what rules and guards say before it is accepted. In a box, because it is large and goes far.
    pub(crate) async fn careful_wish(&self, caller: &Caller, named: &Named, now: Time) -> Result<Box<Wish>, Problem> {
        let rule = self.check_policy(caller, named, now).await?;
        let hold = rule.as_ref().map(|_| Guard::Approval);
        let mut wish = Box::new(self.wish(caller, named, now));
        wish.head.held_by = rule;
        wish.care = self.care(caller, named, (hold, &ComparisonSet::default()), now).await?;
        wish.care.charges = self.charges(caller, &wish).await?;
        Ok(wish)
    }

    /// The answer that the key is bound to, or else the problem.
    pub(crate) async fn bound_or(
        &self,
        caller: &Caller,
        named: &Named,
        problem: Problem,
        now: Time,
    ) -> Result<Sent, Problem> {
        match self.bound(caller, named, now).await? {
            Some(glimpse) => self.replay(caller, named, &glimpse, now),
            None => Err(problem),
        }
    }

    /// The answer to a repeat of something that could not be said anew, because what it was about is gone; else the
    /// problem. Only those `fields` are compared that the caller can still say.
    pub async fn repeated(
        &self,
        caller: &Caller,
        request: SendRequest,
        (answers, fields): (Option<MessageId>, &'static [Field]),
        problem: Problem,
    ) -> Result<Sent, Problem> {
        let now = self.now();
        let named = Named { answers, said: Some(fields), ..name(caller, request, None) };
        match self.bound(caller, &named, now).await? {
            Some(first) if caller.may_see_from(&first.from) && (answers.is_none() || first.answers == answers) => {
                self.replay(caller, &named, &first, now)
            }
            _ => Err(problem),
        }
    }

    /// Its sender says that a held look-alike is meant: that very email goes, and never another. `None` when the token
    /// names none. An answer goes only if nothing happened in its thread that its writer had to know of.
    pub(crate) async fn send_distinct(
        &self,
        caller: &Caller,
        named: &Named,
        token: &str,
        answers: Option<(&Message, &Terms)>,
    ) -> Result<Option<Sent>, Problem> {
        let team = caller.team.id;
        let Some(id) = self.by_distinct_token(team, token) else { return Ok(None) };
        let found = self.store.email(team, id).await.map_err(unavailable)?;
        let own = found.filter(|email| caller.may_see_from(&email.head.from));
        let Some(email) = own.filter(Email::may_be_meant) else { return Ok(None) };
        Self::may_send_from(caller, named.request.content.from.bare().as_str())?;
        let glimpse = Glimpse::from(&email);
        let fields = differences(named, &glimpse);
        let own = email.head.key.as_ref().map(|name| name.hash(team));
        if named.hash.is_some() && named.hash != own {
            let detail = format!("the token belongs to email {id}, which has another key or none");
            return Err(Problem::new(Code::KeyMismatch, detail).with("original", id.to_string()));
        }
        if email.head.answers != named.answers {
            let detail = format!("the token belongs to email {id}, which does not answer the same message");
            return Err(Problem::new(Code::KeyMismatch, detail).with("original", id.to_string()));
        }
        // Without a name of its own, other words are another mail, and those of the held one would go instead.
        if !fields.is_empty() && (named.name.is_none() || !named.forgives(&fields)) {
            return Err(another_mail(&glimpse, &fields));
        }
        if let Some((message, terms)) = answers.filter(|_| email.state() == EmailState::Held) {
            self.check_not_late(message, terms).await?;
        }
        let Some(released) = self.release(team, id).await.map_err(unavailable)? else { return Ok(None) };
        self.close_moot(&released).await;
        Ok(Some(self.sent(caller, &Glimpse::from(&released), false, !fields.is_empty(), 0)))
    }

    pub(crate) fn glimpse(&self, hash: KeyHash, now: Time) -> Option<Arc<Glimpse>> {
        if self.alone { self.seen.get(hash, now) } else { None }
    }

    async fn bound(&self, caller: &Caller, named: &Named, now: Time) -> Result<Option<Glimpse>, Problem> {
        let Some(hash) = named.hash else { return Ok(None) };
        match self.store.bound(caller.team.id, hash, now).await.map_err(unavailable)? {
            Some(Bound::Email(email)) => Ok(Some(Glimpse::from(&email))),
            Some(Bound::Operation { .. }) => Err(bound_elsewhere(named.name.as_ref())),
            None => Ok(None),
        }
    }

    pub(crate) fn answer_bound(
        &self,
        caller: &Caller,
        named: &Named,
        bound: Bound,
        now: Time,
    ) -> Result<Sent, Problem> {
        match bound {
            Bound::Email(email) => self.replay(caller, named, &Glimpse::from(&email), now),
            Bound::Operation { .. } => Err(bound_elsewhere(named.name.as_ref())),
        }
    }

    /// The answer to the call that made the email.
    pub(crate) fn first(&self, caller: &Caller, email: &Email) -> Sent {
        // Whoever lets the hand-off go on wakes every way, so while it rests none needs to be woken.
        if !self.is_paused() {
            email.handoffs.iter().for_each(|handoff| self.ways.wake_one(&handoff.transport));
        }
        let glimpse = &Glimpse::from(email);
        self.metrics.accepted(glimpse.ttl_ms, glimpse.key.is_some());
        self.sent(caller, glimpse, true, false, 0)
    }

    /// The answer to a call whose key was bound before.
    pub(crate) fn replay(&self, caller: &Caller, named: &Named, glimpse: &Glimpse, now: Time) -> Result<Sent, Problem> {
        if !caller.may_see_from(&glimpse.from) {
            let detail = "this key names an email of an inbox that the API key is not tied to";
            return Err(Problem::new(Code::SenderNotAllowed, detail));
        }
        let fields = differences(named, glimpse);
        let reason = match (fields.is_empty(), named.forgives(&fields)) {
            (true, _) => SuppressedReason::KeyReplay,
            (false, true) => SuppressedReason::PayloadDiffers,
            (false, false) => SuppressedReason::Mismatch,
        };
        self.metrics.deduplicated(caller.channel, reason);
        self.metrics.hit_age(now.since(glimpse.created_at), glimpse.ttl_ms);
        let waiting = self.suppressions.note(caller.team.id, glimpse.id, caller.suppressed(reason, now));
        if reason == SuppressedReason::Mismatch {
            return Err(mismatch(named.name.as_ref(), glimpse, &fields));
        }
        Ok(self.sent(caller, glimpse, false, !fields.is_empty(), waiting))
    }

    pub(crate) fn sent(
        &self,
        caller: &Caller,
        glimpse: &Glimpse,
        first: bool,
        payload_differs: bool,
        waiting: u64,
    ) -> Sent {
        Sent {
            id: glimpse.id,
            state: glimpse.state,
            rev: glimpse.rev,
            message_id: message_id(&self.secret, caller.team.id, glimpse),
            created_at: glimpse.created_at,
            guard: glimpse.guard,
            first,
            key: glimpse.key.as_ref().map(KeyName::shown),
            expires_at: glimpse.expires_at,
            suppressed: glimpse.suppressed + waiting,
            payload_differs,
            distinct_token: glimpse.is_held_look_alike().then(|| self.distinct_token(caller.team.id, glimpse.id)),
            thread: glimpse.thread,
            fence: None,
            resent_as: glimpse.resent_as,
        }
    }

    pub(crate) fn wish(&self, caller: &Caller, named: &Named, now: Time) -> Wish {
        let content = &named.request.content;
        let bare = |list: &[Mailbox]| list.iter().map(|mailbox| mailbox.bare().into()).collect();
        let head = EmailHead {
            from: content.from.bare().into(),
            to: content.bare_to().into_iter().map(String::from).collect(),
            cc: bare(&content.cc),
            bcc: bare(&content.bcc),
            subject: content.subject.clone(),
            key: named.name.clone(),
            intent: named.request.intent.clone(),
            created_at: now,
            on_unknown: named.request.on_unknown.unwrap_or(self.outside.on_unknown),
            caller: Some(caller.key.id),
            channel: caller.channel,
            version: named.request.intent.as_ref().map_or(1, |intent| intent.version),
            transport: named.request.transport.clone(),
            resend_of: None,
            reason: None,
            answers: named.answers,
            thread: None,
            call: caller.call.clone(),
            held_by: None,
        };
        let usual = || self.ways.first(content, self.chance.number());
        let transport = named.request.transport.as_deref().unwrap_or_else(usual);
        Wish {
            id: EmailId(self.new_id(now)),
            team: caller.team.id,
            slots: head.slots(caller.team.id),
            head,
            digest: named.digest.clone(),
            key: named.hash,
            first_wins: named.on_mismatch == OnMismatch::FirstWins,
            ttl: named.request.ttl.unwrap_or(ttl::DEFAULT),
            envelopes: self.ways.envelopes(transport, content),
            due: content
                .scheduled_at
                .as_ref()
                .map(|schedule| schedule.due(now))
                .filter(|due| *due > self.time.schedules_by()),
            body: self.bodies.pack(content).into(),
            care: Care::default(),
        }
    }

    /// Checks that depend on the moment, the caller, the configuration or what the team owns. A retry of what was
    /// accepted skips them. `Some` is the rule that wants a person to look first.
    async fn check_policy(&self, caller: &Caller, named: &Named, now: Time) -> Result<Option<RuleName>, Problem> {
        self.check_rules(caller, named, now)?;
        let content = &named.request.content;
        let from = content.from.folded();
        // An answer comes from an inbox of the team, and inboxes may be at the installation's own domains.
        let own = named.answers.is_some() && self.inbound.domains.iter().any(|domain| domain == content.from.domain());
        if !own {
            self.check_sender(caller.team.id, &from).await?;
        }
        self.check_recipients(caller.team.id, content).await?;
        self.check_team_rules(caller.team.id, content).await
    }

    fn check_rules(&self, caller: &Caller, named: &Named, now: Time) -> Result<(), Problem> {
        let request = &named.request;
        if let Some(problem) = &request.stopped {
            return Err(problem.clone());
        }
        if !named.is_keyed() && caller.team.require_keys {
            return Err(Problem::new(Code::KeyRequired, "this team accepts no send without a key or an intent"));
        }
        Self::may_send_from(caller, &request.content.from.folded())?;
        let fault = |path: &str, message: &str| Err(Problem::from(vec![FieldError::new(path, message)]));
        if request.content.scheduled_at.as_ref().is_some_and(|schedule| !schedule.fits(now)) {
            return fault(
                "scheduled_at",
                &format!("is more than {} days ahead", limits::SCHEDULE_AHEAD_MS / 86_400_000),
            );
        }
        // Most mails name no way out, and then nothing is looked up.
        if let Some(wanted) = &request.transport {
            let names = self.ways.names();
            if !names.contains(&wanted.as_str()) {
                let known = names.join(", ");
                return fault("transport", &format!("names no transport that is configured; known are {known}"));
            }
        }
        if request.distinct_token.is_some() {
            return fault("distinct_token", "belongs to no held email");
        }
        Ok(())
    }

    /// Accepts a batch. Items that fault leave a row in `faults`; when `strict`, the first fault refuses the whole.
    pub async fn send_batch(
        &self,
        caller: &Caller,
        key: Option<Key>,
        items: Vec<Result<SendRequest, Problem>>,
        strict: bool,
    ) -> Result<BatchAnswer, Problem> {
        let now = self.now();
        let channel = if caller.channel.is_dialect() { caller.channel } else { Channel::Batch };
        let caller = &Caller { channel, ..caller.clone() };
        let digest = batch_digest(&items, strict);
        let mut faults = Vec::new();
        let (mut named, mut held) = (BTreeMap::new(), BTreeMap::new());
        let count = items.len();
        for (index, item) in items.into_iter().enumerate() {
            self.metrics.attempted(channel);
            match self.name_item(caller, key.as_ref(), index, item, now).await {
                Ok((item, rule)) => {
                    held.extend(rule.map(|rule| (index, rule)));
                    named.insert(index, item);
                }
                Err(problem) if strict => return Err(at_item(index, problem)),
                Err(problem) => faults.push((index, problem)),
            }
        }
        if let Some((index, problem)) = contradiction(&named) {
            if strict {
                return Err(at_item(index, problem));
            }
            named.remove(&index);
            faults.push((index, problem));
        }
        // The batch is known for as long as any of its items.
        let memory = named.values().map(|item| item.request.ttl.unwrap_or(ttl::DEFAULT).0).max().unwrap_or_default();
        // A batch without one good item is a validation error, and those do not bind the key.
        let operation = key.filter(|_| !named.is_empty()).map(|key| Operation {
            team: caller.team.id,
            key: KeyName::Given(key).hash(caller.team.id),
            digest,
            answer: Vec::new(),
            expires_at: now.plus(memory),
        });
        let wishes = self.batch_wishes(caller, &named, held, now).await?;
        let bodies: Vec<Arc<[u8]>> = wishes.iter().map(|wish| Arc::clone(&wish.body)).collect();
        let batch = BatchWish { team: caller.team.id, operation, items: wishes, strict };
        match self.store.accept_batch(batch, now).await.map_err(unavailable)? {
            AcceptBatch::Items(answers) => {
                for ((item, body), answer) in named.values().zip(&bodies).zip(&answers) {
                    if let Accept::First(_) = answer {
                        self.window.note(caller.team.id, &item.request.content, &item.digest, body, now);
                    }
                }
                Ok(self.answer_batch(caller, (count, named), answers, faults, now).await)
            }
            AcceptBatch::Mismatch(bound) => Err(batch_mismatch(&bound)),
            AcceptBatch::Contradiction(place, bound) => Err(contradicted(&named, place, &bound)),
            AcceptBatch::OverBudget(place, exceeded) => {
                let problem = self.quota_exceeded(caller.team.id, &exceeded).await;
                Err(at_item(named.keys().nth(place).copied().unwrap_or(place), problem))
            }
        }
    }

    /// The wishes of a batch with what rules and guards say, each compared with those before it as well.
    async fn batch_wishes(
        &self,
        caller: &Caller,
        named: &BTreeMap<usize, Named>,
        mut held: BTreeMap<usize, RuleName>,
        now: Time,
    ) -> Result<Vec<Wish>, Problem> {
        let mut wishes = Vec::with_capacity(named.len());
        // Of its own: what is not accepted in the end is not remembered.
        let compared = ComparisonSet::of_batch();
        for (index, item) in named {
            let mut wish = self.wish(caller, item, now);
            wish.head.held_by = held.remove(index);
            let hold = wish.head.held_by.as_ref().map(|_| Guard::Approval);
            wish.care = self.care(caller, item, (hold, &compared), now).await?;
            wish.care.charges = self.charges(caller, &wish).await?;
            compared.note(caller.team.id, item, &wish.body, now);
            wishes.push(wish);
        }
        Ok(wishes)
    }

    /// Works out an item's name and checks it. A bound key is looked up before it is refused.
    async fn name_item(
        &self,
        caller: &Caller,
        batch: Option<&Key>,
        index: usize,
        item: Result<SendRequest, Problem>,
        now: Time,
    ) -> Result<(Named, Option<RuleName>), Problem> {
        let named = name(caller, item?, batch.map(|key| (key.clone(), index as u32)));
        let checked = self.check_policy(caller, &named, now).await;
        if checked.is_ok() && named.request.intent.is_none() {
            return checked.map(|rule| (named, rule));
        }
        match self.bound(caller, &named, now).await? {
            Some(glimpse) => {
                let fields = differences(&named, &glimpse);
                if fields.is_empty() || named.forgives(&fields) {
                    Ok((named, None))
                } else {
                    Err(mismatch(named.name.as_ref(), &glimpse, &fields))
                }
            }
            None => checked.map(|rule| (named, rule)),
        }
    }

    async fn answer_batch(
        &self,
        caller: &Caller,
        (count, named): (usize, BTreeMap<usize, Named>),
        answers: Vec<Accept>,
        mut faults: Vec<(usize, Problem)>,
        now: Time,
    ) -> BatchAnswer {
        let mut items: BTreeMap<usize, Sent> = BTreeMap::new();
        let mut replayed = !answers.is_empty();
        for ((index, item), answer) in named.iter().zip(answers) {
            let answer = match answer {
                Accept::First(email) => {
                    replayed = false;
                    Ok(self.first(caller, &email))
                }
                Accept::Bound(bound) => self.answer_bound(caller, item, bound, now),
                Accept::OverBudget(exceeded) => Err(self.quota_exceeded(caller.team.id, &exceeded).await),
            };
            match answer {
                Ok(sent) => {
                    items.insert(*index, sent);
                }
                Err(problem) => faults.push((*index, problem)),
            }
        }
        faults.sort_by_key(|(index, _)| *index);
        BatchAnswer { items: (0..count).map(|index| items.remove(&index)).collect(), faults, replayed }
    }
}

/// What differs from the first, compared in the version the first was written in.
pub(crate) fn differences(named: &Named, glimpse: &Glimpse) -> Vec<Field> {
    let version = glimpse.digest.version();
    let whole = || glimpse.digest.differences(&Digest::in_version(version, &named.request.content));
    if version != named.digest.version() {
        return whole();
    }
    let mut fields = glimpse.digest.differences(&named.digest);
    if let Some(said) = named.said {
        fields.retain(|field| said.contains(field));
    }
    // The first may have said the sender's name itself, or be of a time when every name was part of the meaning.
    if fields == [Field::Names] && named.request.sender_name.is_some() && whole().is_empty() {
        return Vec::new();
    }
    fields
}

/// The first item that names the same wish as an earlier one and means something else.
fn contradiction(named: &BTreeMap<usize, Named>) -> Option<(usize, Problem)> {
    let mut firsts: BTreeMap<KeyHash, &Named> = BTreeMap::new();
    for (index, item) in named {
        let Some(hash) = item.hash else { continue };
        let first = firsts.entry(hash).or_insert(item);
        let fields = first.digest.differences(&item.digest);
        if !fields.is_empty() && !item.forgives(&fields) {
            let fields: Vec<&str> = fields.iter().map(|field| field.name()).collect();
            let detail =
                format!("an earlier item of this batch has the same key and differs in: {}", fields.join(", "));
            return Some((*index, Problem::new(Code::KeyMismatch, detail).with("differs", fields)));
        }
    }
    None
}

/// What a batch means: its items in order, and what happens to those that fault.
fn batch_digest(items: &[Result<SendRequest, Problem>], strict: bool) -> [u8; 32] {
    let meaning = |item: &Result<SendRequest, Problem>| match item {
        Ok(request) => Digest::of(&request.content).whole(),
        Err(_) => [0; 32],
    };
    let body: Vec<u8> = items.iter().flat_map(meaning).collect();
    mailonce_core::digest::of_operation("batch", if strict { "strict" } else { "permissive" }, &body)
}

/// Works out the name of a wish: its header, its intent, or its place in a batch.
pub(crate) fn name(caller: &Caller, mut request: SendRequest, place: Option<(Key, u32)>) -> Named {
    let derive = |intent: &Intent| Key::parse(&intent.key(&request.content.bare_to())).ok();
    let derived = request.intent.as_ref().and_then(derive);
    // A header equal to the derived key counts as the intent.
    let by_intent = derived.is_some() && (request.key.is_none() || request.key == derived);
    let name = match (&request.key, derived, place) {
        (Some(key), _, _) => Some(KeyName::Given(key.clone())),
        (None, Some(derived), _) => Some(KeyName::Given(derived)),
        (None, None, Some(_)) if mutant!("batch-items-keyless") => None,
        (None, None, Some((batch, index))) => Some(KeyName::Item { batch, index }),
        (None, None, None) => None,
    };
    let default = if by_intent { OnMismatch::FirstWins } else { OnMismatch::Reject };
    // What the inbox is called is no part of the wish: a retry after a new name is the same wish.
    let digest = Digest::of(&request.content);
    if let Some(name) = &request.sender_name {
        request.content.from.name = Some(name.clone());
    }
    Named {
        hash: name.as_ref().map(|name| name.hash(caller.team.id)),
        name,
        digest,
        on_mismatch: request.on_mismatch.unwrap_or(default),
        answers: None,
        said: None,
        request,
    }
}

fn mismatch(name: Option<&KeyName>, original: &Glimpse, fields: &[Field]) -> Problem {
    let fields: Vec<&str> = fields.iter().map(|field| field.name()).collect();
    let key = name.map(KeyName::shown).unwrap_or_default();
    let detail = format!("the key `{key}` belongs to email {}, which differs in: {}", original.id, fields.join(", "));
    Problem::new(Code::KeyMismatch, detail)
        .with("differs", fields)
        .with("original", original.id.to_string())
        .with("key", key)
}

/// A token of a held email came with another mail.
fn another_mail(held: &Glimpse, fields: &[Field]) -> Problem {
    let fields: Vec<&str> = fields.iter().map(|field| field.name()).collect();
    let detail =
        format!("the token belongs to another mail: email {}, which differs in: {}", held.id, fields.join(", "));
    Problem::new(Code::KeyMismatch, detail).with("differs", fields).with("original", held.id.to_string())
}

fn bound_elsewhere(name: Option<&KeyName>) -> Problem {
    let key = name.map(KeyName::shown).unwrap_or_default();
    let detail = format!("the key `{key}` was used for another operation or batch");
    Problem::new(Code::KeyMismatch, detail).with("differs", vec!["operation"]).with("key", key)
}

/// The fault of a batch's item whose key was bound to something else meanwhile. `place` counts the good items.
fn contradicted(named: &BTreeMap<usize, Named>, place: usize, bound: &Bound) -> Problem {
    let Some((index, item)) = named.iter().nth(place) else { return batch_mismatch(bound) };
    let problem = match bound {
        Bound::Email(email) => {
            let glimpse = Glimpse::from(email);
            mismatch(item.name.as_ref(), &glimpse, &differences(item, &glimpse))
        }
        Bound::Operation { .. } => bound_elsewhere(item.name.as_ref()),
    };
    at_item(*index, problem)
}

fn batch_mismatch(bound: &Bound) -> Problem {
    match bound {
        Bound::Email(email) => {
            Problem::new(Code::KeyMismatch, format!("this key belongs to the single email {}", email.id))
                .with("differs", vec!["operation"])
                .with("original", email.id.to_string())
        }
        Bound::Operation { .. } => {
            Problem::new(Code::KeyMismatch, "this key was used for a batch or call with another body")
                .with("differs", vec!["body"])
        }
    }
}

/// Says which item of a batch a problem is about.
fn at_item(index: usize, mut problem: Problem) -> Problem {
    let path = problem.field.take().map_or_else(|| format!("[{index}]"), |field| format!("[{index}].{field}"));
    problem.detail = format!("item {index}: {}", problem.detail);
    problem.field = Some(path);
    problem.with("index", index)
}
