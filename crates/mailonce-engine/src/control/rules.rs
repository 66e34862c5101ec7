//! Rules of a team. They are evaluated when a recipient is accepted, when a received mail is filed, and when an email
//! is sent.

use crate::{
    access::caller::Caller,
    control::{
        Control,
        policy_trace::{rule_steps, trace_refusal},
    },
    runtime::{
        keyed_call::KeyedCall,
        problems::unavailable,
        records::{self, CreateOutcome, CursorPage},
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    address::{Address, NamedAddress},
    control::{
        erasure::is_alias,
        rule::{
            self, MailFacts, Rule, RuleActionKind, RuleDefinition, RuleDirection, RuleEvaluation, RuleMatch, RuleRef,
            SenderProof,
        },
    },
    id::TeamId,
    inbound::{
        delivery::{DeliveryOutcome, DeliverySuppression},
        sender_auth::SenderAuth,
    },
    inbox::{
        Inbox,
        message::{MessageState, NewMessage},
    },
    operation::IdempotentResult,
    outbound::{
        content::EmailContent,
        policy_trace::{PolicyKind, PolicyTrace},
    },
    ports::store::StoreError,
    problem::{Code, Problem},
    record::{Record, RecordChangeResult, RecordEdit, RecordKind},
    time::Time,
};
use mailonce_mail::parse::ParsedMail;
use std::sync::Arc;
use uuid::Uuid;

/// A rule as its team sees it.
#[derive(Clone, Debug)]
pub struct RuleView {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Its rev.
    pub rev: u32,
    /// When it was created.
    pub created_at: Time,
    /// Its definition.
    pub about: RuleDefinition,
}

fn view(record: &Record) -> Result<RuleView, Problem> {
    Ok(RuleView {
        id: record.id,
        name: record.name.clone(),
        rev: record.rev,
        created_at: record.created_at,
        about: records::decode(record)?,
    })
}

impl Control {
    /// Creates a rule. Its name must be unused.
    pub async fn create_rule(
        &self,
        caller: &Caller,
        name: String,
        definition: &RuleDefinition,
        keyed_call: Option<KeyedCall>,
    ) -> Result<CreateOutcome<RuleView>, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        definition.validate()?;
        let team = caller.team.id;
        let is_repeat = self.ctx.is_repeated_call(caller, keyed_call.as_ref()).await?;
        if !is_repeat && self.rules_of(team).await.map_err(unavailable)?.len() >= rule::MAX_RULES {
            return Err(Problem::new(Code::InvalidField, format!("a team can have at most {} rules", rule::MAX_RULES)));
        }
        let new = (RecordKind::Rule, name, records::encode(definition)?);
        let created = self
            .ctx
            .create_named(caller, new, keyed_call.as_ref(), |team| self.record_caches.rules.invalidate(team))
            .await?;
        Ok(CreateOutcome { value: view(&created.value)?, is_new: created.is_new })
    }

    /// The team's rules, newest first.
    pub async fn rules(
        &self,
        caller: &Caller,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<CursorPage<RuleView>, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        caller.require_unrestricted_key()?;
        self.ctx.team_records(caller, RecordKind::Rule, before, limit, view).await
    }

    /// One rule.
    pub async fn rule(&self, caller: &Caller, id: Uuid) -> Result<RuleView, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        caller.require_unrestricted_key()?;
        view(&self.ctx.team_record(caller, RecordKind::Rule, id).await?)
    }

    /// One rule, for a caller that is going to change it. Needs the scope `admin`, but not `read`.
    pub async fn rule_for_update(&self, caller: &Caller, id: Uuid) -> Result<RuleView, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        view(&self.ctx.team_record(caller, RecordKind::Rule, id).await?)
    }

    /// Changes a rule, which must still have the given rev.
    pub async fn change_rule(
        &self,
        caller: &Caller,
        id: Uuid,
        rev: u32,
        definition: &RuleDefinition,
    ) -> Result<RuleView, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        definition.validate()?;
        let (team, kind) = (caller.team.id, RecordKind::Rule);
        let edit = RecordEdit { team, kind, id, rev, json: records::encode(definition)? };
        let changed = self.ctx.store.change_record(edit, None, self.ctx.now()).await.map_err(unavailable)?;
        self.record_caches.rules.invalidate(team);
        match changed {
            IdempotentResult::Done(RecordChangeResult::Changed(record)) => view(&record),
            IdempotentResult::Done(RecordChangeResult::Stale(record)) => {
                let detail = format!("the rule {} changed since rev {rev}; it is at rev {}", record.name, record.rev);
                Err(Problem::new(Code::StaleRev, detail).with_extension("rev", record.rev))
            }
            IdempotentResult::Done(RecordChangeResult::Missing) => Err(records::not_found(kind, &id.to_string())),
            // Impossible: the call has no idempotency key.
            IdempotentResult::Replayed(_) | IdempotentResult::KeyMismatch(_) => self.rule_for_update(caller, id).await,
        }
    }

    /// Removes a rule.
    pub async fn remove_rule(&self, caller: &Caller, id: Uuid) -> Result<RuleView, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        let (team, kind) = (caller.team.id, RecordKind::Rule);
        let removed = self.ctx.store.remove_record(team, kind, id).await.map_err(unavailable)?;
        self.record_caches.rules.invalidate(team);
        view(&removed.ok_or_else(|| records::not_found(kind, &id.to_string()))?)
    }

    /// A team's rules, sorted by priority.
    async fn rules_of(&self, team: TeamId) -> Result<Arc<[Rule]>, StoreError> {
        let read = |record: Record| {
            let definition = serde_json::from_str(&record.json)?;
            Ok(Rule { id: record.id, name: record.name, definition })
        };
        self.cached_records(&self.record_caches.rules, team, read, |rules| rule::sort_by_priority(rules)).await
    }

    /// The rules of a team, with these addresses in the place of their aliases.
    async fn rules_for(
        &self,
        team: TeamId,
        addresses: impl IntoIterator<Item = &str>,
    ) -> Result<Arc<[Rule]>, StoreError> {
        let rules = self.rules_of(team).await?;
        let mut conditions = rules.iter().flat_map(|rule| &rule.definition.conditions);
        if !conditions.any(|condition| condition.values.iter().any(|value| is_alias(value))) {
            return Ok(rules);
        }
        let addresses = self.addresses_by_alias(team, addresses);
        let with_address = |rule: &Rule| {
            let mut rule = rule.clone();
            for value in rule.definition.conditions.iter_mut().flat_map(|condition| &mut condition.values) {
                if let Some(address) = addresses.get(value) {
                    (*address).clone_into(value);
                }
            }
            rule
        };
        Ok(rules.iter().map(with_address).collect())
    }

    /// Whether a rule refuses mail from this envelope sender before it is received.
    pub(crate) async fn is_sender_blocked(
        &self,
        inbox: &Inbox,
        sender: Option<&str>,
        recipient: &str,
    ) -> Result<bool, StoreError> {
        let sender = sender.map(str::to_ascii_lowercase).filter(|sender| !sender.is_empty());
        let rules = self.rules_for(inbox.team, sender.as_deref()).await?;
        let facts = MailFacts { from: sender.as_deref(), recipients: vec![recipient], ..MailFacts::default() };
        Ok(rule::evaluate(&rules, RuleDirection::Inbound, &facts).blocking_rule().is_some())
    }

    /// Applies the lists and rules to a received message. `Some` when one of them refuses it.
    pub(crate) async fn apply_inbound_rules(
        &self,
        inbox: &Inbox,
        parsed: &ParsedMail,
        message: &mut NewMessage,
    ) -> Result<Option<DeliveryOutcome>, StoreError> {
        let from = message.head.from.as_ref().map(|from| from.address.as_str());
        let sender = (from, &message.head.auth);
        if self.is_arrival_blocked(inbox, sender, message.answers_email.is_some()).await? {
            return Ok(Some(DeliveryOutcome::Refused(DeliverySuppression::Blocked)));
        }
        let rules = self.rules_for(inbox.team, from).await?;
        if rules.is_empty() {
            return Ok(None);
        }
        let headers: Vec<(String, String)> =
            parsed.headers.0.iter().map(|field| (field.name.clone(), field.value.clone())).collect();
        let recipient = message.head.recipient.to_ascii_lowercase();
        let facts = MailFacts {
            from: message.head.from.as_ref().map(|from| from.address.as_str()),
            recipients: vec![&recipient, &inbox.address],
            subject: Some(&parsed.subject),
            headers: Some(&headers),
            dmarc: Some(message.head.auth.dmarc.as_str()),
            flags: Vec::new(),
            sender: Some(sender_proof(&message.head.auth)),
        };
        let evaluated = rule::evaluate(&rules, RuleDirection::Inbound, &facts);
        if evaluated.blocking_rule().is_some() {
            return Ok(Some(DeliveryOutcome::Refused(DeliverySuppression::Blocked)));
        }
        apply_actions(message, &evaluated);
        message.head.rules = Some(evaluated);
        Ok(None)
    }

    /// Refuses an email that a list or rule of its team blocks. Returns the rule that requires approval by a person, if
    /// any. What they decided is added to `trace`.
    pub(crate) async fn check_outbound_rules(
        &self,
        team: TeamId,
        content: &EmailContent,
        trace: &mut PolicyTrace,
    ) -> Result<Option<RuleRef>, Problem> {
        trace_refusal(trace, PolicyKind::List, "lists", self.check_lists(team, content).await)?;
        let rules = self.rules_of(team).await.map_err(unavailable)?;
        if !rules.iter().any(|rule| rule.definition.direction == RuleDirection::Outbound) {
            return Ok(None);
        }
        let from = content.from.to_address();
        let recipients: Vec<_> =
            [&content.to, &content.cc, &content.bcc].into_iter().flatten().map(NamedAddress::to_address).collect();
        let rules = self.rules_for(team, recipients.iter().map(Address::as_str)).await.map_err(unavailable)?;
        if !rules.iter().any(|rule| rule.definition.direction == RuleDirection::Outbound) {
            return Ok(None);
        }
        let facts = MailFacts {
            from: Some(from.as_str()),
            recipients: recipients.iter().map(Address::as_str).collect(),
            subject: Some(&content.subject),
            headers: Some(&content.headers),
            dmarc: None,
            flags: Box::pin(self.outbound_flags(team, &rules, content)).await.map_err(unavailable)?,
            sender: None,
        };
        let evaluated = rule::evaluate(&rules, RuleDirection::Outbound, &facts);
        let has_new_recipient = Box::pin(self.is_new_recipient_asked(team, content, &evaluated)).await?;
        trace.record_rules(rule_steps(&rules, &evaluated, has_new_recipient));
        match evaluated.blocking_rule() {
            None => {
                let hit = evaluated.approval_rule(has_new_recipient);
                Ok(hit.map(|hit| RuleRef { id: hit.id, name: hit.name.clone() }))
            }
            Some(hit) => {
                let detail = format!("the rule {} does not let this mail out", hit.name);
                Err(Problem::new(Code::BlockedByRule, detail).with_extension("rule", hit.id.to_string()))
            }
        }
    }

    /// Whether a rule asks about new recipients, and one is new. A rule that only observes changes no answer, so the
    /// email does not depend on this look-up for it.
    async fn is_new_recipient_asked(
        &self,
        team: TeamId,
        content: &EmailContent,
        evaluated: &RuleEvaluation,
    ) -> Result<bool, Problem> {
        let asks = |hits: &[RuleMatch]| {
            let mut actions = hits.iter().flat_map(|hit| &hit.actions);
            actions.any(|action| action.kind == RuleActionKind::ApproveNewRecipients)
        };
        let is_enforced = asks(&evaluated.matched) && evaluated.blocking_rule().is_none();
        if !is_enforced && !asks(&evaluated.observed) {
            return Ok(false);
        }
        match self.has_new_recipient(team, content).await {
            Err(error) if is_enforced => Err(unavailable(error)),
            found => Ok(found.unwrap_or(false)),
        }
    }
}

fn sender_proof(auth: &SenderAuth) -> SenderProof {
    match (auth.is_pass(), auth.is_fail()) {
        (true, _) => SenderProof::Authenticated,
        (false, true) => SenderProof::Forged,
        (false, false) => SenderProof::None,
    }
}

/// Applies the actions of matching rules to a message. Of several folders the first counts.
fn apply_actions(message: &mut NewMessage, evaluated: &RuleEvaluation) {
    for action in evaluated.actions() {
        match (action.kind, &action.value) {
            (RuleActionKind::Folder, Some(folder)) => {
                message.annotations.folder.get_or_insert_with(|| folder.clone());
            }
            (RuleActionKind::Label, Some(label)) if !message.annotations.labels.contains(label) => {
                message.annotations.labels.push(label.clone());
            }
            (RuleActionKind::SkipAgent, _) => message.state = MessageState::Skipped,
            (RuleActionKind::MarkRead, _) => message.annotations.read = true,
            _ => {}
        }
    }
}
