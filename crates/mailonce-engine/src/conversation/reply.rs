//! Answering: a reply or a forward becomes one email, or the answer that an earlier one got.

use crate::{
    access::caller::Caller,
    conversation::Conversations,
    inbox::reply_recipients::{ReplyRecipients, addressees, sanitize_line, sanitize_name},
    outbound::{
        keyed_send::{KeyedSend, SendRequest, differences, identify_send},
        replay_cache::CachedEmail,
        reply_terms::{ReplyTerms, guard_problem, lease_token_hash},
        send_receipt::SendReceipt,
    },
    runtime::problems::unavailable,
};
use mailonce_core::{
    access::team::ApiKeyScope,
    address::{Address, NamedAddress},
    conversation::{
        caps::recipient_hash,
        escalation::{Escalation, EscalationReason, EscalationSubject},
        message_progress::ReplySlot,
        reply_guards::{NewReply, ReplyResult, is_surely_unsent},
        thread::Thread,
    },
    id::{EmailId, MessageId},
    inbox::{
        Inbox,
        message::{Message, MessageHead, Party, ReplyToPolicy},
    },
    key::Key,
    outbound::{
        content::{EmailContent, RawAttachment, RawContent},
        digest::DigestField,
        email::{Email, Guard},
        suppressed_call::SuppressedReason,
    },
    problem::{Code, Problem},
    time::Time,
    ttl::Ttl,
};
use mailonce_mail::{
    compose,
    link::registrable_or_host,
    thread::{forward_subject, reply_subject},
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;

/// Ids of earlier messages that an answer names: the first and the latest.
const MAX_REFERENCES: usize = 25;

/// An answer as a caller words it.
#[derive(Clone, Debug, Default)]
pub struct ReplyRequest {
    /// Plain text.
    pub text: Option<String>,
    /// HTML.
    pub html: Option<String>,
    /// Whether everybody who got the message gets the answer.
    pub reply_all: bool,
    /// Which answer to the message it is; 0 is the first.
    pub follow_up: u32,
    /// Newer messages that its writer knows of.
    pub seen: Vec<MessageId>,
    /// The token of the lease that its writer holds.
    pub lease: Option<String>,
    /// Whether what is answered follows below.
    pub quote: bool,
    /// The key from the header.
    pub key: Option<Key>,
    /// The one-use token of a held look-alike.
    pub distinct_token: Option<String>,
}

/// A message to be passed on.
#[derive(Clone, Debug, Default)]
pub struct ForwardRequest {
    /// To whom.
    pub to: Vec<String>,
    /// Copies.
    pub cc: Vec<String>,
    /// Words before it.
    pub text: Option<String>,
    /// The token of the lease that its writer holds.
    pub lease: Option<String>,
    /// The key from the header.
    pub key: Option<Key>,
    /// The one-use token of a held look-alike.
    pub distinct_token: Option<String>,
}

/// What whoever words every part of an answer may say besides. What is empty follows from the message.
#[derive(Clone, Debug, Default)]
pub struct ReplyOverrides {
    /// Others than those who follow from the message.
    pub to: Vec<String>,
    /// Copies for others than those who follow from the message.
    pub cc: Vec<String>,
    /// Hidden copies.
    pub bcc: Vec<String>,
    /// Where answers to it go.
    pub reply_to: Vec<String>,
    /// Another subject.
    pub subject: Option<String>,
    /// HTML before a message that is passed on.
    pub html: Option<String>,
    /// Custom headers.
    pub headers: Vec<(String, String)>,
    /// Files that go with it.
    pub attachments: Vec<RawAttachment>,
    /// When it is due.
    pub scheduled_at: Option<String>,
    /// How long its key is remembered.
    pub ttl: Option<Ttl>,
    /// Why nothing new is accepted. A repeat of what was accepted gets its answer all the same.
    pub refusal: Option<Problem>,
}

/// What can be said of a forward without the message.
const FORWARD_FIELDS: [DigestField; 2] = [DigestField::To, DigestField::Cc];

/// To whom a message that is gone was to be passed on.
fn forward_content(request: ForwardRequest) -> (RawContent, Option<Key>) {
    let words = RawContent { to: request.to, cc: request.cc, ..RawContent::default() };
    (words, request.key)
}

/// The subject of an answer to a mail with this subject.
pub fn default_reply_subject(subject: &str) -> String {
    reply_subject(&sanitize_line(subject))
}

/// Where an answer to a message goes, and what speaks against that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyTarget {
    /// The addresses.
    pub to: Vec<String>,
    /// `other_domain` when an address belongs to another organization than the sender's, `auth_failed` when the sender's
    /// domain disowns the message.
    pub flags: Vec<&'static str>,
}

/// Where an answer to a message goes. A stranger may ask for it anywhere, so whoever answers has to know.
pub fn reply_target(head: &MessageHead) -> ReplyTarget {
    let to: Vec<&Party> = addressees(head);
    let owner = |address: &str| {
        let (_, domain) = address.rsplit_once('@')?;
        Some(registrable_or_host(&domain.to_ascii_lowercase()).to_owned())
    };
    let sender = head.from.as_ref().and_then(|from| owner(&from.address));
    let elsewhere = to.iter().any(|party| owner(&party.address) != sender);
    let flags = [(elsewhere, "other_domain"), (head.auth.is_fail(), "auth_failed")];
    ReplyTarget {
        to: to.iter().map(|party| party.address.clone()).collect(),
        flags: flags.into_iter().filter_map(|(is, flag)| is.then_some(flag)).collect(),
    }
}

/// The problem of an answer that the team's settings refuse.
fn reply_to_refused(target: &ReplyTarget) -> Problem {
    let detail = format!("the answer would go to {}, for which the sender does not vouch", target.to.join(", "));
    let problem = Problem::new(Code::ReplyTo, detail)
        .with_extension("to", target.to.clone())
        .with_extension("why", target.flags.clone());
    problem.with_extension("guard", Guard::ReplyTo.as_str())
}

/// A refusal because of somebody whom the message names and not the caller: what the caller can do about it.
fn with_reply_hint(problem: Problem, asked: &[String], all: bool) -> Problem {
    let off = match problem.code {
        Code::RecipientSuppressed => "the suppression of `recipient` is removed (DELETE /v1/suppressions/{address})",
        Code::BlockedByRule => "`recipient` is let through by the list that `detail` names",
        _ => return problem,
    };
    let Some(stopped) = problem.extensions.get("recipient").and_then(Value::as_str) else { return problem };
    let next = if all && !asked.iter().any(|asked| asked == stopped) {
        format!("Answer without `reply_all`, or ask a person whether {off}; nothing was stored.")
    } else {
        format!("Do not answer it another way: ask a person whether {off}; nothing was stored.")
    };
    problem.with_extension("next", next)
}

/// The ids of the thread so far and of the message, oldest first.
fn references(message: &Message) -> Vec<&String> {
    let head = &message.head;
    let all: Vec<&String> =
        head.references.iter().chain(&head.message_id).filter(|id| compose::is_message_id(id)).collect();
    match all.split_first() {
        Some((first, rest)) if all.len() > MAX_REFERENCES => {
            std::iter::once(*first).chain(rest[rest.len() - (MAX_REFERENCES - 1)..].iter().copied()).collect()
        }
        _ => all,
    }
}

fn join_ids(ids: &[&String]) -> String {
    ids.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(" ")
}

impl Conversations {
    /// Answers a message, once.
    pub async fn reply(&self, caller: &Caller, id: MessageId, request: ReplyRequest) -> Result<SendReceipt, Problem> {
        self.reply_with(caller, id, request, ReplyOverrides::default()).await
    }

    /// The same for whoever words every part of it.
    pub async fn reply_with(
        &self,
        caller: &Caller,
        id: MessageId,
        request: ReplyRequest,
        more: ReplyOverrides,
    ) -> Result<SendReceipt, Problem> {
        let (message, inbox) = match self.load_replyable(caller, id).await {
            Ok(found) => found,
            Err(problem) => {
                let fields: &[DigestField] = if request.quote { &[] } else { &[DigestField::Text, DigestField::Html] };
                let words = RawContent { text: request.text, html: request.html, ..RawContent::default() };
                return Box::pin(self.replay_without_message(
                    caller,
                    (words, request.key),
                    (Some(id), fields),
                    problem,
                ))
                .await;
            }
        };
        let all = request.reply_all;
        // Who is named by the caller can be left out by the caller.
        let follows = more.to.is_empty() && more.cc.is_empty() && more.bcc.is_empty();
        let ReplyRecipients { to, cc, requested: asked, is_to_self: itself } = if more.to.is_empty() {
            self.inboxes.reply_recipients(&message, &inbox, all).await?
        } else {
            ReplyRecipients { to: more.to, cc: Vec::new(), requested: Vec::new(), is_to_self: false }
        };
        let ReplyRequest { mut text, mut html, follow_up, seen, lease, quote, key, distinct_token, .. } = request;
        if quote && let Some(original) = self.load_quoted_message(caller, &message).await? {
            text = text.map(|text| original.quote_below(&text));
            html = html.map(|html| original.quote_below_html(&html));
        }
        let raw = RawContent {
            from: inbox.address.clone(),
            to,
            cc: if more.cc.is_empty() { cc } else { more.cc },
            bcc: more.bcc,
            reply_to: more.reply_to,
            subject: more.subject.unwrap_or_else(|| default_reply_subject(&message.head.subject)),
            text,
            html,
            headers: more.headers,
            attachments: more.attachments,
            scheduled_at: more.scheduled_at,
            ..RawContent::default()
        };
        let mut content = EmailContent::validate(raw)?;
        let person = content.to.first().map(|to| recipient_hash(to.to_address().as_str()));
        let ids = references(&message);
        let answered = message.head.message_id.iter().filter(|id| compose::is_message_id(id));
        let mut heads: Vec<(String, String)> = answered.map(|id| ("In-Reply-To".to_owned(), id.clone())).collect();
        heads.push(("References".to_owned(), join_ids(&ids)));
        content.headers.extend(heads.into_iter().filter(|(_, value)| !value.is_empty()));
        let (refused, flag) = if follows { self.check_reply_target(&message).await? } else { (None, None) };
        let terms = ReplyTerms {
            slot: ReplySlot::Reply(follow_up),
            lease,
            seen,
            is_to_self: itself,
            person_hash: person,
            flag,
        };
        let plain = SendRequest::new(content, key);
        let request = SendRequest { ttl: more.ttl, distinct_token, refusal: more.refusal.or(refused), ..plain };
        let answered = self.accept_reply(caller, (&message, &inbox), request, terms).await;
        answered.map_err(|problem| if follows { with_reply_hint(problem, &asked, all) } else { problem })
    }

    /// Passes a message on, once to the same people.
    pub async fn forward(
        &self,
        caller: &Caller,
        id: MessageId,
        request: ForwardRequest,
    ) -> Result<SendReceipt, Problem> {
        self.forward_with(caller, id, request, ReplyOverrides::default()).await
    }

    /// The same for whoever words every part of it.
    pub async fn forward_with(
        &self,
        caller: &Caller,
        id: MessageId,
        request: ForwardRequest,
        more: ReplyOverrides,
    ) -> Result<SendReceipt, Problem> {
        let found = match self.load_replyable(caller, id).await {
            Ok((message, inbox)) => {
                self.load_quoted_message(caller, &message).await?.map(|bytes| (message, inbox, bytes))
            }
            Err(problem) => {
                return Box::pin(self.replay_without_message(
                    caller,
                    forward_content(request),
                    (Some(id), &FORWARD_FIELDS),
                    problem,
                ))
                .await;
            }
        };
        let Some((message, inbox, original)) = found else {
            let problem = Problem::new(Code::NotFound, "the bytes of this message are gone");
            return Box::pin(self.replay_without_message(
                caller,
                forward_content(request),
                (Some(id), &FORWARD_FIELDS),
                problem,
            ))
            .await;
        };
        let ForwardRequest { to, cc, text, lease, key, distinct_token } = request;
        let attached = |file: &crate::inbox::messages::AttachmentBytes| RawAttachment {
            filename: file.filename.clone(),
            content: original.encode_file(file),
            content_type: Some(file.content_type.clone()),
            content_id: None,
        };
        let raw = RawContent {
            from: inbox.address.clone(),
            to,
            cc,
            bcc: more.bcc,
            reply_to: more.reply_to,
            subject: more.subject.unwrap_or_else(|| forward_subject(&sanitize_line(&message.head.subject))),
            text: Some(original.forward_text(&text.unwrap_or_default())),
            html: more.html.map(|html| original.forward_html(&html)),
            headers: more.headers,
            attachments: original.files.iter().map(attached).chain(more.attachments).collect(),
            scheduled_at: more.scheduled_at,
            ..RawContent::default()
        };
        let mut content = EmailContent::validate(raw)?;
        let mut hash = Sha256::new();
        // Everybody counts, those who get copies too: with one more among them it goes to other people.
        let everybody = content.to.iter().chain(&content.cc).chain(&content.bcc);
        let everybody: BTreeSet<Address> = everybody.map(NamedAddress::to_address).collect();
        for one in everybody {
            hash.update((one.as_str().len() as u64).to_be_bytes());
            hash.update(one.as_str());
        }
        let slot = ReplySlot::Forward(crate::runtime::hex::hex(&hash.finalize()[..16]));
        let ids = join_ids(&references(&message));
        content.headers.extend((!ids.is_empty()).then(|| ("References".to_owned(), ids)));
        let terms = ReplyTerms { slot, lease, seen: Vec::new(), is_to_self: false, person_hash: None, flag: None };
        let plain = SendRequest::new(content, key);
        let request = SendRequest { ttl: more.ttl, distinct_token, refusal: more.refusal, ..plain };
        self.accept_reply(caller, (&message, &inbox), request, terms).await
    }

    /// The answer to a repeat under a key, where the message or its inbox is gone; else the problem. What followed
    /// from them is not compared.
    pub async fn replay_without_message(
        &self,
        caller: &Caller,
        (words, key): (RawContent, Option<Key>),
        said: (Option<MessageId>, &'static [DigestField]),
        problem: Problem,
    ) -> Result<SendReceipt, Problem> {
        let (Code::NotFound, Some(key)) = (problem.code, key) else { return Err(problem) };
        let somebody = || "nobody@mailonce.test".to_owned();
        let from = if words.from.is_empty() { somebody() } else { words.from.clone() };
        let to = if words.to.is_empty() { vec![somebody()] } else { words.to.clone() };
        // What is not compared is only to be there.
        let text = words.text.clone().filter(|text| !text.is_empty());
        let text = text.or_else(|| words.html.is_none().then(|| "nothing".to_owned()));
        let content = EmailContent::validate(RawContent { from, to, text, ..words })?;
        self.outbound.replay_compared_fields(caller, SendRequest::new(content, Some(key)), said, problem).await
    }

    /// A message that the caller may answer, and its inbox.
    async fn load_replyable(&self, caller: &Caller, id: MessageId) -> Result<(Message, Inbox), Problem> {
        caller.require_scope(ApiKeyScope::Reply)?;
        let missing = || Problem::new(Code::NotFound, format!("there is no message {id}"));
        let team = caller.team.id;
        let message = self.ctx.store.message(team, id).await.map_err(unavailable)?.ok_or_else(missing)?;
        let inbox = self.ctx.store.inbox(team, message.inbox).await.map_err(unavailable)?;
        let inbox = inbox.filter(|inbox| crate::inbox::inboxes::may_use(caller, inbox)).ok_or_else(missing)?;
        Ok((message, inbox))
    }

    /// What the team's settings say about an answer that would go to somebody for whom the sender does not vouch: a
    /// refusal, or a flag.
    async fn check_reply_target(&self, message: &Message) -> Result<(Option<Problem>, Option<Guard>), Problem> {
        let target = reply_target(&message.head);
        if target.flags.is_empty() {
            return Ok((None, None));
        }
        match self.access.settings_of(message.team).await.map_err(unavailable)?.reply_to {
            ReplyToPolicy::Allow => Ok((None, None)),
            ReplyToPolicy::Flag => Ok((None, Some(Guard::ReplyTo))),
            ReplyToPolicy::Refuse => Ok((Some(reply_to_refused(&target)), None)),
        }
    }

    async fn accept_reply(
        &self,
        caller: &Caller,
        (message, inbox): (&Message, &Inbox),
        request: SendRequest,
        terms: ReplyTerms,
    ) -> Result<SendReceipt, Problem> {
        let now = self.ctx.now();
        self.ctx.metrics.record_send_attempt(caller.channel);
        let named = Self::keyed_reply(caller, message, inbox, request);
        if let Some(token) = &named.request.distinct_token
            && let Some(sent) =
                Box::pin(self.outbound.release_by_distinct_token(caller, &named, token, Some((message, &terms))))
                    .await?
        {
            return Ok(sent);
        }
        if let Some(glimpse) = named.key_hash.and_then(|hash| self.outbound.cached_email(hash, now)) {
            return self.outbound.replay(caller, &named, &glimpse, now);
        }
        let mut wish = match self.outbound.guarded_email(caller, &named, now).await {
            Ok(wish) => wish,
            Err(problem) => {
                return Box::pin(self.replay_reply_or(caller, &named, (message, &terms.slot), problem)).await;
            }
        };
        wish.head.thread = Some(message.thread);
        wish.guard_input.flagged_by = terms.flag.or(wish.guard_input.flagged_by);
        let body = std::sync::Arc::clone(&wish.body);
        let wish = NewReply {
            email: *wish,
            message: message.id,
            slot: terms.slot,
            lease_token_hash: terms.lease.as_deref().map(lease_token_hash),
            seen: terms.seen,
            may_answer_soft_automatic: inbox.settings.answers_soft,
            is_to_own_team: terms.is_to_self,
            caps: inbox.settings.caps.unwrap_or_default(),
            recipient_hash: terms.person_hash,
        };
        crate::failpoint!("before-reply");
        let answered = self.ctx.store.accept_reply(wish, now).await.map_err(unavailable)?;
        crate::failpoint!("after-reply");
        match answered {
            ReplyResult::First(email, thread) => {
                self.outbound.record_recent_send(caller, &named, &body, now);
                self.escalations.escalate_if_stuck(&email).await;
                Ok(with_fence(self.outbound.first_receipt(caller, &email), &thread))
            }
            ReplyResult::KeyBound(bound) => self.outbound.replay_bound(caller, &named, bound, now),
            ReplyResult::AlreadyAnswered(id, email, thread) => {
                self.already_answered(caller, &named, (id, email), &thread, now)
            }
            ReplyResult::Refused(guard, newer, message, thread) => {
                if matches!(guard, Guard::Itself | Guard::Automatic) {
                    self.escalate_loop(caller, &message).await;
                }
                Err(guard_problem(guard, newer, &message, &thread, now))
            }
            ReplyResult::OverBudget(exceeded) => {
                Err(self.control.quota_exceeded(caller.team.id, &exceeded).await.with_extension("guard", "budget"))
            }
            ReplyResult::Missing => Err(Problem::new(Code::NotFound, format!("there is no message {}", message.id))),
        }
    }

    /// The answer that the key is bound to or that took the slot, or else the problem: what was said before stands,
    /// whatever would stop it now.
    async fn replay_reply_or(
        &self,
        caller: &Caller,
        named: &KeyedSend,
        (message, slot): (&Message, &ReplySlot),
        problem: Problem,
    ) -> Result<SendReceipt, Problem> {
        let (team, now) = (caller.team.id, self.ctx.now());
        let problem = match self.outbound.replay_or(caller, named, problem, now).await {
            Err(problem) if problem.code != Code::KeyMismatch => problem,
            answer => return answer,
        };
        let Some(id) = message.annotations.turn.answered_by(slot) else { return Err(problem) };
        let email = self.ctx.store.email(team, id).await.map_err(unavailable)?;
        if email.as_ref().is_none_or(is_surely_unsent) {
            return Err(problem);
        }
        match self.ctx.store.thread(team, message.thread).await.map_err(unavailable)? {
            Some(thread) => self.already_answered(caller, named, (id, email), &thread, now),
            None => Err(problem),
        }
    }

    /// The answer with its name and meaning. How the inbox is called and that a machine wrote it are settings and not
    /// its meaning.
    fn keyed_reply(caller: &Caller, message: &Message, inbox: &Inbox, request: SendRequest) -> KeyedSend {
        let request = SendRequest { sender_name: sender_name(inbox), ..request };
        let mut named = identify_send(caller, request, None);
        named.answers = Some(message.id);
        if inbox.settings.says_automatic {
            let stamps = [("Auto-Submitted", "auto-replied"), ("X-Auto-Response-Suppress", "OOF, AutoReply")];
            let stamps = stamps.map(|(name, value)| (name.to_owned(), value.to_owned()));
            named.request.content.headers.extend(stamps);
        }
        named
    }

    /// The message was answered before: the caller gets that answer, and the call leaves a row.
    fn already_answered(
        &self,
        caller: &Caller,
        named: &KeyedSend,
        (id, email): (EmailId, Option<Email>),
        thread: &Thread,
        now: Time,
    ) -> Result<SendReceipt, Problem> {
        let Some(email) = email else {
            let detail = format!("the message was answered by email {id}, which is no longer kept");
            return Err(Problem::new(Code::AlreadyAnswered, detail).with_extension("email", id.to_string()));
        };
        let reason = SuppressedReason::AlreadyAnswered;
        self.ctx.metrics.record_deduplicated(caller.channel, reason);
        let waiting = self.outbound.record_suppressed_call(caller, email.id, reason, now);
        let glimpse = CachedEmail::from(&email);
        let differs = !differences(named, &glimpse).is_empty();
        let mut sent = self.outbound.receipt(caller, &glimpse, false, differs, waiting);
        // Who repeats its own answer that is held as a look-alike can still say that it is meant.
        let own = !differs && email.head.caller == Some(caller.key.id) && sent.distinct_token.is_some();
        if !own {
            sent.guard = Some(Guard::AlreadyAnswered);
            sent.distinct_token = None;
        }
        Ok(with_fence(sent, thread))
    }

    /// Asks a person about a thread in which machines seem to talk to each other.
    async fn escalate_loop(&self, caller: &Caller, message: &Message) {
        let about = EscalationSubject {
            message: Some(message.id),
            thread: Some(message.thread),
            inbox: Some(message.inbox),
            ..EscalationSubject::default()
        };
        self.escalations
            .open_escalation_or_log(
                caller.team.id,
                Escalation::open(EscalationReason::Loop, about, Some(caller.key.id)),
            )
            .await;
    }
}

/// The name that an inbox gives the sender of its mail.
pub fn sender_name(inbox: &Inbox) -> Option<String> {
    inbox.settings.name.as_deref().map(sanitize_name).filter(|name| !name.is_empty())
}

fn with_fence(mut sent: SendReceipt, thread: &Thread) -> SendReceipt {
    (sent.thread, sent.fence) = (Some(thread.id), Some(thread.details.fence));
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hash_of_a_token_is_kept() {
        assert_eq!(lease_token_hash("a").len(), 64);
        assert_ne!(lease_token_hash("a"), lease_token_hash("b"));
    }
}
