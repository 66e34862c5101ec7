//! Budgets limit how many emails or recipients may be sent in a period: by a team, an inbox or an API key, or to a
//! recipient or a domain.
//!
//! Only sends, replies and resends of callers count. Mail that mailonce sends itself, such as a question to a person,
//! does not count.

use crate::{
    access::caller::Caller,
    control::Budgets,
    runtime::{
        keyed_call::KeyedCall,
        problems::unavailable,
        records::{self, CreateOutcome, CursorPage},
        team_round::TeamRound,
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    control::{
        budget::{
            Budget, BudgetCounter, BudgetMeasure, BudgetRecipient, BudgetScope, BudgetUsage, Charge, ExceededBudget,
            MAX_BUDGETS, MAX_LIMIT,
        },
        erasure::is_alias,
    },
    handoff::{
        action::{HandoffAction, HoldRelease},
        lease::HandoffActionResult,
    },
    id::{ApiKeyId, EmailId, InboxId, TeamId},
    inbox,
    operation::IdempotentResult,
    outbound::{
        accept::NewEmail,
        email::{Email, EmailHead, Guard},
    },
    ports::store::StoreError,
    problem::{Code, Problem},
    record::{Record, RecordChangeResult, RecordKind},
    retry::RetryAdvice,
    time::Time,
};
use serde_json::json;
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use uuid::Uuid;

/// How many emails that wait for room in a budget are read at a time.
const HELD_PAGE_SIZE: usize = 200;
/// How many such pages one round reads.
const HELD_PAGES_PER_ROUND: usize = 25;

/// A budget as its team sees it.
#[derive(Clone, Debug)]
pub struct BudgetView {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Its rev.
    pub rev: u32,
    /// When it was created.
    pub created_at: Time,
    /// Its definition.
    pub budget: Budget,
    /// How much of it is used in the current period. `None` if it counts each recipient or domain on its own.
    pub used: Option<u64>,
    /// When the current period ends.
    pub resets_at: Time,
}

/// How much room a budget has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetRoom {
    /// The budget's id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Its limit.
    pub limit: u64,
    /// How much is left in the period of the email.
    pub remaining: u64,
    /// When that period ends.
    pub resets_at: Time,
}

/// A budget with its name, cached.
pub(crate) struct CachedBudget {
    id: Uuid,
    name: String,
    budget: Budget,
}

/// One round that releases held email.
#[derive(Default)]
struct ReleaseRound {
    /// What is known of the budgets of each team.
    usage: BTreeMap<TeamId, BudgetUsage>,
    teams: TeamRound,
    released: usize,
}

fn check_limit(budget: &Budget) -> Result<(), Problem> {
    if budget.limit > MAX_LIMIT {
        return Err(Problem::invalid_field("limit", format!("must be at most {MAX_LIMIT}, and is {}", budget.limit)));
    }
    Ok(())
}

impl Budgets {
    /// Creates a budget. It counts from now on.
    pub async fn create_budget(
        &self,
        caller: &Caller,
        name: String,
        budget: &Budget,
        keyed_call: Option<KeyedCall>,
    ) -> Result<CreateOutcome<BudgetView>, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        check_limit(budget)?;
        let team = caller.team.id;
        if !self.ctx.is_repeated_call(caller, keyed_call.as_ref()).await? {
            self.check_budget_scope(team, &budget.scope).await?;
            if self.budgets_of(team).await.map_err(unavailable)?.len() >= MAX_BUDGETS {
                return Err(Problem::invalid_field(
                    "name",
                    format!("is one too many: a team can have at most {MAX_BUDGETS} budgets"),
                ));
            }
        }
        let new = (RecordKind::Budget, name, records::encode(budget)?);
        let created = self
            .ctx
            .create_named(caller, new, keyed_call.as_ref(), |team| self.control.record_caches.budgets.invalidate(team))
            .await?;
        Ok(CreateOutcome { value: self.budget_view(created.value).await?, is_new: created.is_new })
    }

    /// Refuses the scope of an inbox or API key that the team doesn't have.
    async fn check_budget_scope(&self, team: TeamId, scope: &BudgetScope) -> Result<(), Problem> {
        match scope {
            BudgetScope::Team | BudgetScope::Recipient(_) | BudgetScope::RecipientDomain(_) => Ok(()),
            BudgetScope::Inbox(id) => match self.ctx.store.inbox(team, *id).await.map_err(unavailable)? {
                Some(_) => Ok(()),
                None => Err(Problem::invalid_field("scope.inbox", format!("names no inbox of the team: {id}"))),
            },
            BudgetScope::ApiKey(id) => {
                let keys = self.ctx.store.api_keys(team).await.map_err(unavailable)?;
                if keys.iter().any(|key| key.id == *id && key.is_used_by_program()) {
                    return Ok(());
                }
                Err(Problem::invalid_field(
                    "scope.api_key",
                    format!("names no API key or connection of the team: {id}"),
                ))
            }
        }
    }

    /// The team's budgets, newest first, with their usage.
    pub async fn budgets(
        &self,
        caller: &Caller,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<CursorPage<BudgetView>, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        let page =
            self.ctx.team_records(caller, RecordKind::Budget, before, limit, |record| Ok(record.clone())).await?;
        Ok(CursorPage { rows: self.budget_views(caller.team.id, page.rows).await?, next: page.next })
    }

    /// One budget.
    pub async fn budget(&self, caller: &Caller, id: Uuid) -> Result<BudgetView, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        self.budget_view(self.ctx.team_record(caller, RecordKind::Budget, id).await?).await
    }

    /// Changes a budget, which must still have the given rev. Its usage stays.
    pub async fn change_budget(
        &self,
        caller: &Caller,
        (id, rev): (Uuid, u32),
        change: impl FnOnce(&mut Budget),
    ) -> Result<BudgetView, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        let (team, kind) = (caller.team.id, RecordKind::Budget);
        let record = self.ctx.team_record(caller, kind, id).await?;
        let mut budget: Budget = records::decode(&record)?;
        change(&mut budget);
        check_limit(&budget)?;
        let mut edit = record.edit(records::encode(&budget)?);
        edit.rev = rev;
        let changed = self.ctx.store.change_record(edit, None, self.ctx.now()).await;
        self.control.record_caches.budgets.invalidate(team);
        match changed.map_err(unavailable)? {
            IdempotentResult::Done(RecordChangeResult::Changed(record)) => self.budget_view(record).await,
            IdempotentResult::Done(RecordChangeResult::Stale(record)) => {
                let detail = format!("the budget {} changed since rev {rev}; it is at rev {}", record.name, record.rev);
                Err(Problem::new(Code::StaleRev, detail).with_extension("rev", record.rev))
            }
            // A replay or mismatch is impossible: the call has no idempotency key.
            IdempotentResult::Done(RecordChangeResult::Missing)
            | IdempotentResult::Replayed(_)
            | IdempotentResult::KeyMismatch(_) => Err(records::not_found(kind, &id.to_string())),
        }
    }

    /// Removes a budget. Emails no longer count in it.
    pub async fn remove_budget(&self, caller: &Caller, id: Uuid) -> Result<BudgetView, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        let (team, kind) = (caller.team.id, RecordKind::Budget);
        let removed = self.ctx.store.remove_record(team, kind, id).await;
        self.control.record_caches.budgets.invalidate(team);
        self.budget_view(removed.map_err(unavailable)?.ok_or_else(|| records::not_found(kind, &id.to_string()))?).await
    }

    async fn budget_view(&self, record: Record) -> Result<BudgetView, Problem> {
        let kind = record.kind;
        let views = self.budget_views(record.team, vec![record]).await?;
        views.into_iter().next().ok_or_else(|| records::not_found(kind, ""))
    }

    async fn budget_views(&self, team: TeamId, rows: Vec<Record>) -> Result<Vec<BudgetView>, Problem> {
        let now = self.ctx.time.schedule_cutoff();
        let zone = self.access.settings_of(team).await.map_err(unavailable)?.calendar_zone();
        let budgets = rows.iter().map(records::decode).collect::<Result<Vec<Budget>, _>>()?;
        let counters: Vec<BudgetCounter> = rows
            .iter()
            .zip(&budgets)
            .map(|(record, budget)| (record.id, budget.per.bounds(now, &zone).starts_at))
            .collect();
        let usage = self.ctx.store.budget_usage(team, counters).await.map_err(unavailable)?;
        let view = |((record, budget), used): ((Record, Budget), u64)| BudgetView {
            id: record.id,
            name: record.name,
            rev: record.rev,
            created_at: record.created_at,
            resets_at: budget.per.bounds(now, &zone).ends_at,
            used: (!budget.scope.counts_each()).then_some(used),
            budget,
        };
        Ok(rows.into_iter().zip(budgets).zip(usage).map(view).collect())
    }

    async fn budgets_of(&self, team: TeamId) -> Result<Arc<[CachedBudget]>, StoreError> {
        let read = |record: Record| {
            let budget = serde_json::from_str(&record.json)?;
            Ok(CachedBudget { id: record.id, name: record.name, budget })
        };
        self.control.cached_records(&self.control.record_caches.budgets, team, read, |_| {}).await
    }

    /// The charges of a new email against the budgets of its team, its inbox and its API key.
    pub(crate) async fn charges(&self, caller: &Caller, email: &NewEmail) -> Result<Vec<Charge>, Problem> {
        let budgets = self.budgets_of(email.team).await.map_err(unavailable)?;
        let sender = (Some(caller.key.id), &email.head);
        self.charges_of(&budgets, email.team, sender, email.due_at).await.map_err(unavailable)
    }

    /// The charges of an accepted email that is rescheduled. It counts for the API key that sent it, whichever key
    /// reschedules it. Most teams have no budgets; then the email is not read.
    pub(crate) async fn charges_at(&self, team: TeamId, id: EmailId, due: Time) -> Result<Vec<Charge>, Problem> {
        let budgets = self.budgets_of(team).await.map_err(unavailable)?;
        if !budgets.iter().any(|cached| cached.budget.enabled) {
            return Ok(Vec::new());
        }
        match self.ctx.store.email(team, id).await.map_err(unavailable)? {
            Some(email) => {
                let sender = (email.head.caller, &*email.head);
                self.charges_of(&budgets, team, sender, Some(due)).await.map_err(unavailable)
            }
            None => Ok(Vec::new()),
        }
    }

    /// Removes one hold of an email, and returns the email. It leaves when no hold is left and its budgets have room.
    /// A person may decide that it leaves although they have none. `None` when the team has no such email.
    pub(crate) async fn release_hold(
        &self,
        team: TeamId,
        id: EmailId,
        hold: Guard,
        ignores_budgets: bool,
    ) -> Result<Option<Email>, StoreError> {
        let Some(email) = self.ctx.store.email(team, id).await? else { return Ok(None) };
        let now = self.ctx.now();
        let charges = self.charges_of_held(&email, now).await?;
        let action = HandoffAction::Release(HoldRelease { hold, charges, ignores_budgets });
        let result = self.ctx.store.apply_action(team, id, action, None, now).await?;
        self.ctx.transports.wake_all();
        match result {
            IdempotentResult::Done(HandoffActionResult::Applied(_, email)) => Ok(Some(email)),
            // Replays and mismatches cannot happen, because the call has no key.
            IdempotentResult::Done(HandoffActionResult::Missing)
            | IdempotentResult::Replayed(_)
            | IdempotentResult::KeyMismatch(_) => Ok(None),
        }
    }

    /// The charges of a held email when it leaves, at its requested time or now.
    pub(crate) async fn charges_of_held(&self, email: &Email, now: Time) -> Result<Vec<Charge>, StoreError> {
        let budgets = self.budgets_of(email.team).await?;
        let sender = (email.head.caller, &*email.head);
        self.charges_of(&budgets, email.team, sender, email.requested_due_at(now)).await
    }

    /// Releases email that waits for room in a budget, oldest first. Returns how many were released. A round that does
    /// not come to the end is continued by the next.
    pub async fn release_held_by_budget(&self) -> Result<usize, StoreError> {
        let mut position = self.release_position.lock().await;
        let (mut after, mut round) = (position.take(), ReleaseRound::default());
        for _ in 0..HELD_PAGES_PER_ROUND {
            let emails = match self.ctx.store.emails_held_by_budget(after, HELD_PAGE_SIZE).await {
                Ok(emails) => emails,
                // One of them cannot be read, and it is not known which one.
                Err(StoreError::Corrupt(_)) => {
                    self.release_held_one_by_one(&mut round).await?;
                    return round.teams.finish(round.released);
                }
                Err(error) => return Err(error),
            };
            for email in &emails {
                self.release_in_round(email, &mut round).await;
                if round.teams.must_end() {
                    *position = Some((email.team, email.id));
                    return round.teams.finish(round.released);
                }
            }
            let Some(last) = emails.last().filter(|_| emails.len() == HELD_PAGE_SIZE) else {
                return round.teams.finish(round.released);
            };
            after = Some((last.team, last.id));
        }
        *position = after;
        round.teams.finish(round.released)
    }

    /// Releases the oldest held emails of each team without reading those of two teams in one query. An email that
    /// cannot be read keeps only later ones of its own team waiting.
    async fn release_held_one_by_one(&self, round: &mut ReleaseRound) -> Result<(), StoreError> {
        for team in self.ctx.store.teams().await? {
            let mut after = EmailId(Uuid::nil());
            for _ in 0..HELD_PAGE_SIZE {
                let found = self.ctx.store.emails_held_by_budget(Some((team.id, after)), 1).await;
                let Some(emails) = round.teams.record(team.id, found) else { break };
                let Some(email) = emails.first().filter(|email| email.team == team.id) else { break };
                self.release_in_round(email, round).await;
                after = email.id;
            }
            if round.teams.must_end() {
                break;
            }
        }
        Ok(())
    }

    async fn release_in_round(&self, email: &Email, round: &mut ReleaseRound) {
        // What failed for one email of a team fails for its others, too.
        if round.teams.has_failed(email.team) {
            return;
        }
        let result = self.release_if_room(email, round.usage.entry(email.team).or_default()).await;
        round.released += usize::from(round.teams.record(email.team, result).unwrap_or(false));
    }

    /// Releases one email if its budgets have room. `usage` is what this round knows of its team's budgets, so that an
    /// email without room costs no transaction.
    async fn release_if_room(&self, email: &Email, usage: &mut BudgetUsage) -> Result<bool, StoreError> {
        let charges = self.charges_of_held(email, self.ctx.now()).await?;
        let missing: Vec<BudgetCounter> =
            charges.iter().map(Charge::counter).filter(|counter| !usage.is_loaded(*counter)).collect();
        let used = self.ctx.store.budget_usage(email.team, missing.clone()).await?;
        missing.into_iter().zip(used).for_each(|(counter, used)| usage.load(counter, used));
        if usage.exceeded_after_acceptance(&charges).is_some() {
            return Ok(false);
        }
        let after = self.release_hold(email.team, email.id, Guard::Budget, false).await?;
        let is_released = after.is_some_and(|after| !after.holds.contains(Guard::Budget));
        if is_released {
            usage.add(&charges);
        }
        Ok(is_released)
    }

    async fn charges_of(
        &self,
        budgets: &[CachedBudget],
        team: TeamId,
        (key, head): (Option<ApiKeyId>, &EmailHead),
        due: Option<Time>,
    ) -> Result<Vec<Charge>, StoreError> {
        let enabled: Vec<&CachedBudget> = budgets.iter().filter(|cached| cached.budget.enabled).collect();
        if enabled.is_empty() {
            return Ok(Vec::new());
        }
        let by_inbox = enabled.iter().any(|cached| matches!(cached.budget.scope, BudgetScope::Inbox(_)));
        let sender = self.inbox_of_sender(team, &head.from);
        let inbox = if by_inbox { sender.await? } else { None };
        let applies = |cached: &&CachedBudget| match &cached.budget.scope {
            BudgetScope::Inbox(id) => inbox == Some(*id),
            BudgetScope::ApiKey(id) => Some(*id) == key,
            BudgetScope::Team | BudgetScope::Recipient(_) | BudgetScope::RecipientDomain(_) => true,
        };
        let counts_new = enabled.iter().any(|cached| cached.budget.measure == BudgetMeasure::NewRecipients);
        let recipients = self.budget_recipients(team, head, counts_new).await?;
        let zone = self.access.settings_of(team).await?.calendar_zone();
        // The earlier clock decides, so that a node whose clock is ahead doesn't start a new period early. An email
        // that was due in the past leaves now, so it counts in the current period.
        let now = self.ctx.time.schedule_cutoff();
        let leaves_at = due.map_or(now, |due| due.max(now));
        let charges = |cached: &CachedBudget| {
            let counter_of = |counted: &str| self.counter_of(cached.id, counted);
            self.budget_of_erased(team, &cached.budget, &recipients).charges(
                cached.id,
                &recipients,
                cached.budget.per.bounds(leaves_at, &zone),
                counter_of,
            )
        };
        Ok(enabled.into_iter().filter(applies).flat_map(charges).collect())
    }

    /// The budget with the address of a recipient in the place of its alias.
    fn budget_of_erased<'a>(
        &self,
        team: TeamId,
        budget: &'a Budget,
        recipients: &[BudgetRecipient],
    ) -> Cow<'a, Budget> {
        let BudgetScope::Recipient(Some(name)) = &budget.scope else { return Cow::Borrowed(budget) };
        if !is_alias(name) {
            return Cow::Borrowed(budget);
        }
        let addresses =
            self.control.addresses_by_alias(team, recipients.iter().map(|recipient| recipient.address.as_str()));
        match addresses.get(name) {
            Some(address) => {
                Cow::Owned(Budget { scope: BudgetScope::Recipient(Some((*address).to_owned())), ..budget.clone() })
            }
            None => Cow::Borrowed(budget),
        }
    }

    /// The recipients of an email, each once. Whether one is new is looked up only if a budget counts that.
    async fn budget_recipients(
        &self,
        team: TeamId,
        head: &EmailHead,
        counts_new: bool,
    ) -> Result<Vec<BudgetRecipient>, StoreError> {
        let all = [&head.to, &head.cc, &head.bcc].into_iter().flatten();
        let addresses: BTreeSet<String> = all.map(|address| address.to_ascii_lowercase()).collect();
        let addresses: Vec<String> = addresses.into_iter().collect();
        let are_new = if counts_new {
            Box::pin(self.control.new_recipients(team, &addresses)).await?
        } else {
            vec![false; addresses.len()]
        };
        let recipient = |(address, is_new)| BudgetRecipient { address, is_new };
        Ok(addresses.into_iter().zip(are_new).map(recipient).collect())
    }

    /// The counter of one recipient or domain. It is derived, so that the table of counters holds no address.
    fn counter_of(&self, budget: Uuid, counted: &str) -> Uuid {
        let mac = self.ctx.secret.mac("budget-counter", &[budget.as_bytes(), counted.as_bytes()]);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&mac[..16]);
        Uuid::from_bytes(bytes)
    }

    /// The inbox that an address belongs to, plus tags and catch-alls included. Reads nothing for a domain without
    /// inboxes.
    pub(crate) async fn inbox_of_sender(&self, team: TeamId, from: &str) -> Result<Option<InboxId>, StoreError> {
        let from = from.to_ascii_lowercase();
        let domain = from.rsplit_once('@').map_or("", |(_, domain)| domain);
        if !self.ctx.inbound.inbox_domains.contains(domain) {
            return Ok(None);
        }
        let found = self.ctx.store.inbox_by_address(&inbox::candidate_addresses(&from)).await?;
        Ok(found.filter(|inbox| inbox.team == team).map(|inbox| inbox.id))
    }

    /// Of the budgets that an email counts against, the one with the least room. `None` if there is none, or if the store
    /// does not answer: the email is accepted already, so that is no error of the send.
    pub(crate) async fn tightest_budget(&self, team: TeamId, charges: &[Charge]) -> Option<BudgetRoom> {
        self.tightest_budgets(team, vec![charges.to_vec()]).await.pop().flatten()
    }

    /// The same for each of several emails, after all of them were accepted.
    pub(crate) async fn tightest_budgets(&self, team: TeamId, charges: Vec<Vec<Charge>>) -> Vec<Option<BudgetRoom>> {
        let counters: BTreeSet<BudgetCounter> = charges.iter().flatten().map(Charge::counter).collect();
        let counters: Vec<BudgetCounter> = counters.into_iter().collect();
        let nothing = vec![None; charges.len()];
        if counters.is_empty() {
            return nothing;
        }
        let Ok(usage) = self.ctx.store.budget_usage(team, counters.clone()).await else { return nothing };
        let used: BTreeMap<BudgetCounter, u64> = counters.into_iter().zip(usage).collect();
        let Ok(budgets) = self.budgets_of(team).await else { return nothing };
        let room = |charge: &Charge| {
            let cached = budgets.iter().find(|cached| cached.id == charge.budget)?;
            let (id, name, limit, resets_at) = (cached.id, cached.name.clone(), charge.limit, charge.ends_at);
            let used = used.get(&charge.counter()).copied().unwrap_or_default();
            Some(BudgetRoom { id, name, limit, remaining: limit.saturating_sub(used), resets_at })
        };
        charges.iter().map(|own| own.iter().filter_map(room).min_by_key(|room| room.remaining)).collect()
    }

    /// The name of a budget, or its id when it is gone or the store does not answer.
    pub(crate) async fn budget_name(&self, team: TeamId, id: Uuid) -> String {
        let budgets = self.budgets_of(team).await.unwrap_or_default();
        budgets.iter().find(|cached| cached.id == id).map_or_else(|| id.to_string(), |cached| cached.name.clone())
    }

    /// The problem for an email that would exceed a budget.
    pub(crate) async fn quota_exceeded(&self, team: TeamId, exceeded: &ExceededBudget) -> Problem {
        let ExceededBudget { charge, used } = exceeded;
        // If the store is unavailable now, the problem shows the budget's id in place of its name.
        let budgets = self.budgets_of(team).await.unwrap_or_default();
        let cached = budgets.iter().find(|cached| cached.id == charge.budget);
        let name = cached.map_or_else(|| charge.budget.to_string(), |cached| cached.name.clone());
        let counted = cached.map_or(BudgetMeasure::Mails, |cached| cached.budget.measure).as_str();
        let per = cached.map_or("period", |cached| cached.budget.per.as_str());
        let (limit, amount) = (charge.limit, charge.amount);
        let budget = json!({ "id": charge.budget, "name": name });
        let problem = |detail: String| {
            let problem = Problem::new(Code::QuotaExceeded, detail).with_extension("budget", budget);
            problem
                .with_extension("limit", limit)
                .with_extension("used", *used)
                .with_extension("resets_at", charge.ends_at.to_string())
        };
        if amount > limit {
            // Waiting does not help, so there is no `retry_after`.
            let detail =
                format!("the budget {name} allows {limit} {counted} per {per}, and this email alone counts {amount}");
            let next = "Do not retry: waiting does not help. Send to fewer recipients, or ask a person with the scope \
                        `admin` to raise the limit of `budget`.";
            return problem(detail).with_extension("retry", RetryAdvice::Never.as_str()).with_extension("next", next);
        }
        let seconds = (charge.ends_at.since(self.ctx.now()).max(0) + 999) / 1000;
        problem(format!(
            "the budget {name} allows {limit} {counted} per {per}; {used} are used and this email counts {amount}; \
             the next period begins at {}",
            charge.ends_at
        ))
        .with_extension("retry_after", seconds.max(1))
    }
}
