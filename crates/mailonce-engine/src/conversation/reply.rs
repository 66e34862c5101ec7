//! Replies and forwards. Each becomes one email; a duplicate returns the receipt of the email that exists already.

use crate::{
    access::caller::Caller,
    control::policy_trace::trace_refusal,
    conversation::Conversations,
    inbox::reply_recipients::{ReplyRecipients, addressees, sanitize_line, sanitize_name},
    outbound::{
        keyed_send::{KeyedSend, ReplayComparison, SendRequest, differences, identify_send},
        replay_cache::CachedEmail,
        reply_terms::{ReplyTerms, guard_problem, lease_token_hash},
        send::with_policy,
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
        reply_guards::{NewReply, ReplyResult, is_surely_unsent},
        thread::Thread,
    },
    id::{EmailId, MessageId},
    inbox::{
        Inbox,
        message::{Message, MessageHead, Party, ReplyToPolicy},
        progress::ReplySlot,
    },
    key::Key,
    outbound::{
        content::{EmailContent, RawAttachment, RawContent},
        digest::DigestField,
        email::{Email, Guard},
        policy_trace::{PolicyKind, PolicyTrace},
        suppressed_call::SuppressedReason,
        template::TemplateUse,
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

/// Most Message-IDs in the `References` header of a reply: the first of the thread and the latest.
const MAX_REFERENCES: usize = 25;

/// A reply as the caller requests it.
#[derive(Clone, Debug, Default)]
pub struct ReplyRequest {
    /// Plain text.
    pub text: Option<String>,
    /// HTML.
    pub html: Option<String>,
    /// The template that writes text and HTML. The subject stays that of the thread.
    pub template: Option<TemplateUse>,
    /// Whether the reply also goes to the other recipients of the message.
    pub reply_all: bool,
    /// The number of the reply to this message; 0 is the first reply.
    pub follow_up: u32,
    /// Newer messages of the thread that the caller has read.
    pub seen: Vec<MessageId>,
    /// The token of the thread lease that the caller holds.
    pub lease: Option<String>,
    /// Whether the message is quoted below the reply.
    pub quote: bool,
    /// The idempotency key from the header.
    pub key: Option<Key>,
    /// The one-use token of a held look-alike.
    pub distinct_token: Option<String>,
    /// Whether a refusal shows what each check decided.
    pub wants_policy: bool,
}

/// A forward as the caller requests it.
#[derive(Clone, Debug, Default)]
pub struct ForwardRequest {
    /// Recipients.
    pub to: Vec<String>,
    /// Copies.
    pub cc: Vec<String>,
    /// Plain text before the forwarded message.
    pub text: Option<String>,
    /// The token of the thread lease that the caller holds.
    pub lease: Option<String>,
    /// The idempotency key from the header.
    pub key: Option<Key>,
    /// The one-use token of a held look-alike.
    pub distinct_token: Option<String>,
}

/// Further parts of a reply or forward that a caller may set. Empty fields are derived from the message.
#[derive(Clone, Debug, Default)]
pub struct ReplyOverrides {
    /// Recipients instead of those derived from the message.
    pub to: Vec<String>,
    /// Copies instead of those derived from the message.
    pub cc: Vec<String>,
    /// Hidden copies.
    pub bcc: Vec<String>,
    /// The `Reply-To` addresses.
    pub reply_to: Vec<String>,
    /// A subject instead of the derived one.
    pub subject: Option<String>,
    /// HTML before a forwarded message.
    pub html: Option<String>,
    /// Custom headers.
    pub headers: Vec<(String, String)>,
    /// Attachments.
    pub attachments: Vec<RawAttachment>,
    /// When to send it.
    pub scheduled_at: Option<String>,
    /// How long the idempotency key is remembered.
    pub ttl: Option<Ttl>,
    /// The problem that refuses a new email. A replay of an accepted email still returns its receipt.
    pub refusal: Option<Problem>,
}

/// The digest fields of a forward that do not depend on the message.
const FORWARD_FIELDS: [DigestField; 2] = [DigestField::To, DigestField::Cc];

/// The digest fields of a reply that do not depend on the message.
fn reply_fields(request: &ReplyRequest) -> &'static [DigestField] {
    match &request.template {
        Some(_) => &[DigestField::Template],
        None if request.quote => &[],
        None => &[DigestField::Text, DigestField::Html],
    }
}

/// The parts of a forward that can be compared when the message no longer exists.
fn forward_content(request: ForwardRequest) -> (RawContent, Option<Key>) {
    let content = RawContent { to: request.to, cc: request.cc, ..RawContent::default() };
    (content, request.key)
}

/// The default subject of a reply to a message with this subject.
pub fn default_reply_subject(subject: &str) -> String {
    reply_subject(&sanitize_line(subject))
}

/// Where a reply to a message goes, and the warnings about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyTarget {
    /// The addresses.
    pub to: Vec<String>,
    /// `other_domain` when an address belongs to another organization than the sender's. `auth_failed` when the
    /// sender's domain failed authentication.
    pub flags: Vec<&'static str>,
}

/// Where a reply to a message goes. A sender can name any address in `Reply-To`, so callers must be able to see it.
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

/// The problem for a reply that the team's `reply_to` setting refuses.
fn reply_to_refused(target: &ReplyTarget) -> Problem {
    let detail = format!("the reply would go to {}, which `settings.reply_to` refuses", target.to.join(", "));
    let problem = Problem::new(Code::ReplyTo, detail)
        .with_extension("to", target.to.clone())
        .with_extension("reason", target.flags.clone());
    problem.with_extension("guard", Guard::ReplyTo.as_str())
}

/// Adds a `next` hint to a refusal because of a recipient that was derived from the message, not named by the caller.
fn with_reply_hint(problem: Problem, requested: &[String], all: bool) -> Problem {
    let remedy = match problem.code {
        Code::RecipientSuppressed => {
            "the suppression of `recipient` may be removed (DELETE /v1/suppressions/{address})"
        }
        Code::BlockedByRule => "the list named in `detail` may allow `recipient`",
        _ => return problem,
    };
    let Some(refused) = problem.extensions.get("recipient").and_then(Value::as_str) else { return problem };
    let next = if all && !requested.iter().any(|address| address == refused) {
        format!("Reply without `reply_all`, or ask a person whether {remedy}. Nothing was stored.")
    } else {
        format!("Do not work around the refusal. Ask a person whether {remedy}. Nothing was stored.")
    };
    problem.with_extension("next", next)
}

/// The Message-IDs for the `References` header: those of the message and its own, oldest first.
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
    /// Replies to a message, at most once for each `follow_up` number.
    pub async fn reply(&self, caller: &Caller, id: MessageId, request: ReplyRequest) -> Result<SendReceipt, Problem> {
        self.reply_with(caller, id, request, ReplyOverrides::default()).await
    }

    /// Replies to a message, with overrides for the parts that are otherwise derived from it.
    pub async fn reply_with(
        &self,
        caller: &Caller,
        id: MessageId,
        request: ReplyRequest,
        overrides: ReplyOverrides,
    ) -> Result<SendReceipt, Problem> {
        let (message, inbox) = match self.load_replyable(caller, id).await {
            Ok(found) => found,
            Err(problem) => {
                let fields = reply_fields(&request);
                let ReplyRequest { text, html, template, .. } = request;
                let content = RawContent { text, html, template, ..RawContent::default() };
                return Box::pin(self.replay_without_message(
                    caller,
                    content,
                    request.key,
                    ReplayComparison { answers: Some(id), fields },
                    problem,
                ))
                .await;
            }
        };
        let all = request.reply_all;
        // The recipient check applies only to derived recipients: the caller can change those that it names itself.
        let is_derived = overrides.to.is_empty() && overrides.cc.is_empty() && overrides.bcc.is_empty();
        let ReplyRecipients { to, cc, requested, is_to_self } = if overrides.to.is_empty() {
            self.inboxes.reply_recipients(&message, &inbox, all).await?
        } else {
            ReplyRecipients { to: overrides.to, cc: Vec::new(), requested: Vec::new(), is_to_self: false }
        };
        let wants_policy = request.wants_policy;
        let ReplyRequest { mut text, mut html, template, follow_up, seen, lease, quote, key, distinct_token, .. } =
            request;
        if quote && let Some(original) = self.load_quoted_message(caller, &message).await? {
            text = text.map(|text| original.quote_below(&text));
            html = html.map(|html| original.quote_below_html(&html));
        }
        let subject = overrides.subject.unwrap_or_else(|| default_reply_subject(&message.head.subject));
        let raw = RawContent {
            from: inbox.address.clone(),
            to,
            cc: if overrides.cc.is_empty() { cc } else { overrides.cc },
            bcc: overrides.bcc,
            reply_to: overrides.reply_to,
            subject,
            text,
            html,
            template,
            headers: overrides.headers,
            attachments: overrides.attachments,
            scheduled_at: overrides.scheduled_at,
            ..RawContent::default()
        };
        let mut content = EmailContent::validate_reply(raw)?;
        let person_hash = content.to.first().map(|to| recipient_hash(to.to_address().as_str()));
        let ids = references(&message);
        let answered = message.head.message_id.iter().filter(|id| compose::is_message_id(id));
        let mut headers: Vec<(String, String)> = answered.map(|id| ("In-Reply-To".to_owned(), id.clone())).collect();
        headers.push(("References".to_owned(), join_ids(&ids)));
        content.headers.extend(headers.into_iter().filter(|(_, value)| !value.is_empty()));
        let (refused, flag) = if is_derived { self.check_reply_target(&message).await? } else { (None, None) };
        let terms = ReplyTerms { slot: ReplySlot::Reply(follow_up), lease, seen, is_to_self, person_hash, flag };
        let plain = SendRequest::new(content, key);
        let request = SendRequest {
            ttl: overrides.ttl,
            distinct_token,
            refusal: overrides.refusal.or(refused),
            wants_policy,
            ..plain
        };
        let answered = self.accept_reply(caller, (&message, &inbox), request, terms).await;
        answered.map_err(|problem| if is_derived { with_reply_hint(problem, &requested, all) } else { problem })
    }

    /// Forwards a message, at most once to the same set of recipients.
    pub async fn forward(
        &self,
        caller: &Caller,
        id: MessageId,
        request: ForwardRequest,
    ) -> Result<SendReceipt, Problem> {
        self.forward_with(caller, id, request, ReplyOverrides::default()).await
    }

    /// Forwards a message, with overrides for the parts that are otherwise derived from it.
    pub async fn forward_with(
        &self,
        caller: &Caller,
        id: MessageId,
        request: ForwardRequest,
        overrides: ReplyOverrides,
    ) -> Result<SendReceipt, Problem> {
        let compared = ReplayComparison { answers: Some(id), fields: &FORWARD_FIELDS };
        let found = match self.load_replyable(caller, id).await {
            Ok((message, inbox)) => {
                self.load_quoted_message(caller, &message).await?.map(|bytes| (message, inbox, bytes))
            }
            Err(problem) => {
                let (content, key) = forward_content(request);
                return Box::pin(self.replay_without_message(caller, content, key, compared, problem)).await;
            }
        };
        let Some((message, inbox, original)) = found else {
            let problem = Problem::new(Code::NotFound, "the raw bytes of this message are no longer stored");
            let (content, key) = forward_content(request);
            return Box::pin(self.replay_without_message(caller, content, key, compared, problem)).await;
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
            bcc: overrides.bcc,
            reply_to: overrides.reply_to,
            subject: overrides.subject.unwrap_or_else(|| forward_subject(&sanitize_line(&message.head.subject))),
            text: Some(original.forward_text(&text.unwrap_or_default())),
            html: overrides.html.map(|html| original.forward_html(&html)),
            headers: overrides.headers,
            attachments: original.files.iter().map(attached).chain(overrides.attachments).collect(),
            scheduled_at: overrides.scheduled_at,
            ..RawContent::default()
        };
        let mut content = EmailContent::validate(raw)?;
        let mut hash = Sha256::new();
        // The slot covers all recipients including copies, so a different set of recipients is a different forward.
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
        let request = SendRequest { ttl: overrides.ttl, distinct_token, refusal: overrides.refusal, ..plain };
        self.accept_reply(caller, (&message, &inbox), request, terms).await
    }

    /// Replays an accepted reply or forward by its key when the message or its inbox no longer exists. Returns
    /// `problem` when there is nothing to replay. Fields that were derived from the message are not compared.
    pub async fn replay_without_message(
        &self,
        caller: &Caller,
        raw: RawContent,
        key: Option<Key>,
        compared: ReplayComparison,
        problem: Problem,
    ) -> Result<SendReceipt, Problem> {
        let (Code::NotFound, Some(key)) = (problem.code, key) else { return Err(problem) };
        let placeholder = || "nobody@mailonce.test".to_owned();
        let from = if raw.from.is_empty() { placeholder() } else { raw.from.clone() };
        let to = if raw.to.is_empty() { vec![placeholder()] } else { raw.to.clone() };
        // Placeholders pass the validation; these fields are not compared.
        let text = raw.text.clone().filter(|text| !text.is_empty());
        let text = text.or_else(|| raw.html.is_none().then(|| "nothing".to_owned()));
        let content = EmailContent::validate(RawContent { from, to, text, ..raw })?;
        self.outbound.replay_compared_fields(caller, SendRequest::new(content, Some(key)), compared, problem).await
    }

    /// A message that the caller may reply to, and its inbox.
    async fn load_replyable(&self, caller: &Caller, id: MessageId) -> Result<(Message, Inbox), Problem> {
        caller.require_scope(ApiKeyScope::Reply)?;
        let missing = || Problem::new(Code::NotFound, format!("there is no message {id}"));
        let team = caller.team.id;
        let message = self.ctx.store.message(team, id).await.map_err(unavailable)?.ok_or_else(missing)?;
        let inbox = self.ctx.store.inbox(team, message.inbox).await.map_err(unavailable)?;
        let inbox = inbox.filter(|inbox| crate::inbox::inboxes::may_use(caller, inbox)).ok_or_else(missing)?;
        Ok((message, inbox))
    }

    /// Applies the team's `reply_to` setting to a reply that goes to another organization, or answers a message that
    /// failed authentication. Returns a refusal or a flag.
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
        let mut keyed = Self::keyed_reply(caller, message, inbox, request);
        if let Some(token) = &keyed.request.distinct_token
            && let Some(sent) =
                Box::pin(self.outbound.release_by_distinct_token(caller, &keyed, token, Some((message, &terms))))
                    .await?
        {
            return Ok(sent);
        }
        if let Some(cached) = keyed.key_hash.and_then(|hash| self.outbound.cached_email(hash, now)) {
            return self.outbound.replay(caller, &keyed, &cached, now);
        }
        let mut trace = PolicyTrace::default();
        let mut new_email = match self.outbound.guarded_email(caller, &mut keyed, now, &mut trace).await {
            Ok(new_email) => new_email,
            Err(problem) => {
                let problem = with_policy(caller, &keyed, problem, &trace);
                return Box::pin(self.replay_reply_or(caller, &keyed, (message, &terms.slot), problem)).await;
            }
        };
        new_email.head.thread = Some(message.thread);
        new_email.guard_input.flagged_by = terms.flag.or(new_email.guard_input.flagged_by);
        let (body, charges) = (std::sync::Arc::clone(&new_email.body), new_email.guard_input.charges.clone());
        let new_reply = NewReply {
            email: *new_email,
            message: message.id,
            slot: terms.slot,
            lease_token_hash: terms.lease.as_deref().map(lease_token_hash),
            seen: terms.seen,
            may_answer_soft_automatic: inbox.settings.reply_to_likely_automatic,
            is_to_own_team: terms.is_to_self,
            caps: inbox.settings.caps.unwrap_or_default(),
            recipient_hash: terms.person_hash,
        };
        crate::failpoint!("before-reply");
        let result = self.ctx.store.accept_reply(new_reply, now).await.map_err(unavailable)?;
        crate::failpoint!("after-reply");
        match result {
            ReplyResult::First(email, thread) => {
                self.outbound.content_guard.record(caller, &keyed, &body, now);
                self.escalations.escalate_if_stuck(&email).await;
                let receipt = self.outbound.first_receipt(caller, &email);
                let tightest_budget = self.budgets.tightest_budget(email.team, &charges).await;
                Ok(with_fence(SendReceipt { tightest_budget, ..receipt }, &thread))
            }
            ReplyResult::KeyBound(bound) => self.outbound.replay_bound(caller, &keyed, bound, now),
            ReplyResult::AlreadyAnswered(id, email, thread) => {
                self.already_answered(caller, &keyed, (id, email), &thread, now)
            }
            ReplyResult::Refused(guard, newer, message, thread) => {
                if matches!(guard, Guard::Itself | Guard::Automatic) {
                    self.escalate_loop(caller, &message).await;
                }
                let problem = guard_problem(guard, newer, &message, &thread, now);
                let refused = trace_refusal(&mut trace, PolicyKind::Guard, guard.as_str(), Err(problem));
                refused.map_err(|problem| with_policy(caller, &keyed, problem, &trace))
            }
            ReplyResult::OverBudget(exceeded) => {
                let problem = self.budgets.quota_exceeded(caller.team.id, &exceeded).await;
                trace.record_budget(exceeded.policy_step());
                Err(with_policy(caller, &keyed, problem.with_extension("guard", "budget"), &trace))
            }
            ReplyResult::Missing => Err(Problem::new(Code::NotFound, format!("there is no message {}", message.id))),
        }
    }

    /// Replays the email that the key is bound to, or that took the reply slot. Returns `problem` when there is none.
    /// An accepted reply is replayed even if a guard would refuse it today.
    async fn replay_reply_or(
        &self,
        caller: &Caller,
        keyed: &KeyedSend,
        (message, slot): (&Message, &ReplySlot),
        problem: Problem,
    ) -> Result<SendReceipt, Problem> {
        let (team, now) = (caller.team.id, self.ctx.now());
        let problem = match self.outbound.replay_or(caller, keyed, problem, now).await {
            Err(problem) if problem.code != Code::KeyMismatch => problem,
            answer => return answer,
        };
        let Some(id) = message.annotations.progress.answered_by(slot) else { return Err(problem) };
        let email = self.ctx.store.email(team, id).await.map_err(unavailable)?;
        if email.as_ref().is_none_or(is_surely_unsent) {
            return Err(problem);
        }
        match self.ctx.store.thread(team, message.thread).await.map_err(unavailable)? {
            Some(thread) => self.already_answered(caller, keyed, (id, email), &thread, now),
            None => Err(problem),
        }
    }

    /// Computes the key and digest of a reply. The digest leaves out the inbox's sender name and the `Auto-Submitted`
    /// headers, because a change of these settings must not turn a retry into a mismatch.
    fn keyed_reply(caller: &Caller, message: &Message, inbox: &Inbox, request: SendRequest) -> KeyedSend {
        let request = SendRequest { sender_name: sender_name(inbox), ..request };
        let mut keyed = identify_send(caller, request, None);
        keyed.answers = Some(message.id);
        if inbox.settings.mark_auto_submitted {
            let stamps = [("Auto-Submitted", "auto-replied"), ("X-Auto-Response-Suppress", "OOF, AutoReply")];
            let stamps = stamps.map(|(name, value)| (name.to_owned(), value.to_owned()));
            keyed.request.content.headers.extend(stamps);
        }
        keyed
    }

    /// The message was already answered: returns the receipt of that reply and records the suppressed call.
    fn already_answered(
        &self,
        caller: &Caller,
        keyed: &KeyedSend,
        (id, email): (EmailId, Option<Email>),
        thread: &Thread,
        now: Time,
    ) -> Result<SendReceipt, Problem> {
        let Some(email) = email else {
            let detail = format!("the message was answered by email {id}, which is no longer stored");
            return Err(Problem::new(Code::AlreadyAnswered, detail).with_extension("email", id.to_string()));
        };
        let reason = SuppressedReason::AlreadyAnswered;
        self.ctx.metrics.record_deduplicated(caller.channel, reason);
        let waiting = self.outbound.record_suppressed_call(caller, email.id, reason, now);
        let cached = CachedEmail::from(&email);
        let differs = !differences(keyed, &cached, &self.ctx.secret).is_empty();
        let mut sent = self.outbound.receipt(caller, &cached, false, differs, waiting);
        // A caller that repeats its own reply, held as a look-alike, still gets the token to release it.
        let own = !differs && email.head.caller == Some(caller.key.id) && sent.distinct_token.is_some();
        if !own {
            sent.guard = Some(Guard::AlreadyAnswered);
            sent.distinct_token = None;
        }
        Ok(with_fence(sent, thread))
    }

    /// Opens an escalation for a thread that looks like a mail loop.
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

/// The display name of the sender for mail from an inbox.
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
