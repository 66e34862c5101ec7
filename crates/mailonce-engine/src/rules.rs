//! Rules: what a team wants done with some mail, asked at the door, when a mail is read, and when one is sent.

use mailonce_core::{
    address::{Address, Mailbox},
    content::Content,
    delivery::{Settle, Suppression},
    id::TeamId,
    inbox::Inbox,
    message::{MessageState, NewMessage},
    port::{
        authenticate::Auth,
        store::{Once, StoreError},
    },
    problem::{Code, Problem},
    record::{Record, RecordChange, RecordEdit, RecordKind},
    rule::{self, AboutRule, ActionKind, Direction, Evaluated, Facts, Rule, RuleName, SenderProof},
    team::Scope,
    time::Time,
};
use mailonce_mail::parse::Parsed;
use std::sync::Arc;
use uuid::Uuid;

use crate::{
    Asked, Caller, Engine,
    records::{self, Listed, Made},
    unavailable,
};

/// A rule as its team sees it.
#[derive(Clone, Debug)]
pub struct RuleView {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Its rev.
    pub rev: u32,
    /// When it was made.
    pub created_at: Time,
    /// What it says.
    pub about: AboutRule,
}

fn view(record: &Record) -> Result<RuleView, Problem> {
    Ok(RuleView {
        id: record.id,
        name: record.name.clone(),
        rev: record.rev,
        created_at: record.created_at,
        about: records::read(record)?,
    })
}

impl Engine {
    /// Adds a rule. Its name must be free.
    pub async fn create_rule(
        &self,
        caller: &Caller,
        name: String,
        about: &AboutRule,
        asked: Option<Asked>,
    ) -> Result<Made<RuleView>, Problem> {
        caller.need(Scope::Admin)?;
        caller.need_whole_team()?;
        about.check()?;
        let team = caller.team.id;
        let again = self.was_asked(caller, asked.as_ref()).await?;
        if !again && self.rules_of(team).await.map_err(unavailable)?.len() >= rule::RULES {
            return Err(Problem::new(Code::InvalidField, format!("a team has at most {} rules", rule::RULES)));
        }
        let new = (RecordKind::Rule, name, records::write(about)?);
        let made = self.create_named(caller, new, asked.as_ref(), |team| self.caches.rules.forget(team)).await?;
        Ok(Made { thing: view(&made.thing)?, first: made.first })
    }

    /// The caller's rules, newest first.
    pub async fn rules(
        &self,
        caller: &Caller,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Listed<RuleView>, Problem> {
        caller.need(Scope::Read)?;
        caller.need_whole_team()?;
        self.own_records(caller, RecordKind::Rule, before, limit, view).await
    }

    /// One rule.
    pub async fn rule(&self, caller: &Caller, id: Uuid) -> Result<RuleView, Problem> {
        caller.need(Scope::Read)?;
        caller.need_whole_team()?;
        view(&self.own_record(caller, RecordKind::Rule, id).await?)
    }

    /// One rule, for whoever is about to change it and may not be one who reads.
    pub async fn rule_to_change(&self, caller: &Caller, id: Uuid) -> Result<RuleView, Problem> {
        caller.need(Scope::Admin)?;
        caller.need_whole_team()?;
        view(&self.own_record(caller, RecordKind::Rule, id).await?)
    }

    /// Changes a rule as it was seen.
    pub async fn change_rule(
        &self,
        caller: &Caller,
        id: Uuid,
        rev: u32,
        about: &AboutRule,
    ) -> Result<RuleView, Problem> {
        caller.need(Scope::Admin)?;
        caller.need_whole_team()?;
        about.check()?;
        let (team, kind) = (caller.team.id, RecordKind::Rule);
        let edit = RecordEdit { team, kind, id, rev, about: records::write(about)? };
        let changed = self.store.change_record(edit, None, self.now()).await.map_err(unavailable)?;
        self.caches.rules.forget(team);
        match changed {
            Once::Done(RecordChange::Changed(record)) => view(&record),
            Once::Done(RecordChange::Stale(record)) => {
                let detail = format!("the rule {} changed since it was looked at", record.name);
                Err(Problem::new(Code::StaleRev, detail).with("rev", record.rev))
            }
            Once::Done(RecordChange::Missing) => Err(records::missing(kind, &id.to_string())),
            // No key was given.
            Once::Repeated(_) | Once::Mismatch(_) => self.rule_to_change(caller, id).await,
        }
    }

    /// Removes a rule.
    pub async fn remove_rule(&self, caller: &Caller, id: Uuid) -> Result<RuleView, Problem> {
        caller.need(Scope::Admin)?;
        caller.need_whole_team()?;
        let (team, kind) = (caller.team.id, RecordKind::Rule);
        let removed = self.store.remove_record(team, kind, id).await.map_err(unavailable)?;
        self.caches.rules.forget(team);
        view(&removed.ok_or_else(|| records::missing(kind, &id.to_string()))?)
    }

    /// A team's rules in their order.
    async fn rules_of(&self, team: TeamId) -> Result<Arc<[Rule]>, StoreError> {
        let read = |record: Record| {
            let about = serde_json::from_str(&record.about)?;
            Ok(Rule { id: record.id, name: record.name, about })
        };
        self.cached_records(&self.caches.rules, team, read, |rules| rule::sort(rules)).await
    }

    /// Whether a rule refuses mail from this sender before it is taken.
    pub(crate) async fn is_blocked(
        &self,
        inbox: &Inbox,
        sender: Option<&str>,
        recipient: &str,
    ) -> Result<bool, StoreError> {
        let rules = self.rules_of(inbox.team).await?;
        let sender = sender.map(str::to_ascii_lowercase).filter(|sender| !sender.is_empty());
        let facts = Facts { from: sender.as_deref(), recipients: vec![recipient], ..Facts::default() };
        Ok(rule::evaluate(&rules, Direction::Inbound, &facts).blocks().is_some())
    }

    /// Lets rules mark a message. `Some` when one of them refuses it.
    pub(crate) async fn run_rules(
        &self,
        inbox: &Inbox,
        parsed: &Parsed,
        message: &mut NewMessage,
    ) -> Result<Option<Settle>, StoreError> {
        let from = message.head.from.as_ref().map(|from| from.address.as_str());
        let sender = (from, &message.head.auth);
        if self.lists_stop_arrival(inbox, sender, message.email.is_some()).await? {
            return Ok(Some(Settle::Refused(Suppression::Blocked)));
        }
        let rules = self.rules_of(inbox.team).await?;
        if rules.is_empty() {
            return Ok(None);
        }
        let headers: Vec<(String, String)> =
            parsed.headers.0.iter().map(|field| (field.name.clone(), field.value.clone())).collect();
        let recipient = message.head.recipient.to_ascii_lowercase();
        let facts = Facts {
            from: message.head.from.as_ref().map(|from| from.address.as_str()),
            recipients: vec![&recipient, &inbox.address],
            subject: Some(&parsed.subject),
            headers: Some(&headers),
            dmarc: Some(message.head.auth.dmarc.word()),
            flags: Vec::new(),
            sender: Some(proof(&message.head.auth)),
        };
        let evaluated = rule::evaluate(&rules, Direction::Inbound, &facts);
        if evaluated.blocks().is_some() {
            return Ok(Some(Settle::Refused(Suppression::Blocked)));
        }
        mark(message, &evaluated);
        message.head.rules = Some(evaluated);
        Ok(None)
    }

    /// Refuses a send that a rule of its team blocks. `Some` is the rule that wants a person to look first.
    pub(crate) async fn check_team_rules(&self, team: TeamId, content: &Content) -> Result<Option<RuleName>, Problem> {
        self.check_lists(team, content).await?;
        let rules = self.rules_of(team).await.map_err(unavailable)?;
        if !rules.iter().any(|rule| rule.about.direction == Direction::Outbound) {
            return Ok(None);
        }
        let from = content.from.bare();
        let recipients: Vec<_> =
            [&content.to, &content.cc, &content.bcc].into_iter().flatten().map(Mailbox::bare).collect();
        let facts = Facts {
            from: Some(from.as_str()),
            recipients: recipients.iter().map(Address::as_str).collect(),
            subject: Some(&content.subject),
            headers: Some(&content.headers),
            dmarc: None,
            flags: Box::pin(self.outbound_flags(team, &rules, content)).await.map_err(unavailable)?,
            sender: None,
        };
        let evaluated = rule::evaluate(&rules, Direction::Outbound, &facts);
        match evaluated.blocks() {
            None => Ok(evaluated.wants_approval().map(|hit| RuleName { id: hit.id, name: hit.name.clone() })),
            Some(hit) => {
                let detail = format!("the rule {} does not let this mail out", hit.name);
                Err(Problem::new(Code::BlockedByRule, detail).with("rule", hit.id.to_string()))
            }
        }
    }
}

fn proof(auth: &Auth) -> SenderProof {
    match (auth.is_pass(), auth.is_fail()) {
        (true, _) => SenderProof::Authenticated,
        (false, true) => SenderProof::Forged,
        (false, false) => SenderProof::None,
    }
}

/// Does what rules say to a message. Of several folders the first counts.
fn mark(message: &mut NewMessage, evaluated: &Evaluated) {
    for action in evaluated.actions() {
        match (action.kind, &action.value) {
            (ActionKind::Folder, Some(folder)) => {
                message.marks.folder.get_or_insert_with(|| folder.clone());
            }
            (ActionKind::Label, Some(label)) if !message.marks.labels.contains(label) => {
                message.marks.labels.push(label.clone());
            }
            (ActionKind::SkipAgent, _) => message.state = MessageState::Skipped,
            (ActionKind::MarkRead, _) => message.marks.read = true,
            _ => {}
        }
    }
}
