//! Inboxes: create, find, change and remove the addresses that agents read.

use crate::{
    access::{caller::Caller, domains::DomainDetails},
    inbox::Inboxes,
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
        records::{self, CreateOutcome, CursorPage},
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    address::{Address, NamedAddress},
    conversation::caps::ReplyCaps,
    id::InboxId,
    inbox::{self, CreateInboxResult, Inbox, InboxChangeResult, InboxEdit, InboxRetention, InboxSettings},
    operation::IdempotentResult,
    ports::store::StoreError,
    problem::{Code, Problem},
    record::RecordKind,
    time::Time,
};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The characters of a random address, without those that people confuse.
const ADDRESS_ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// The length of a random local part.
const RANDOM_NAME_LENGTH: usize = 12;
/// How often a random address, or a change that conflicts with a concurrent change, is tried.
const MAX_CONFLICT_RETRIES: usize = 4;
/// How many pages of inboxes are read per team to find the domains of inboxes.
const MAX_PAGES: usize = 100;
/// How many inboxes are read per page.
const PAGE_SIZE: usize = 1_000;

/// An inbox to create.
#[derive(Clone, Debug, Default)]
pub struct NewInbox {
    /// The whole address, in place of `username` and `domain`. Without any of them the address is random.
    pub address: Option<String>,
    /// The local part, before the `@`; random by default.
    pub username: Option<String>,
    /// The domain; the first domain of this installation by default.
    pub domain: Option<String>,
    /// How long the inbox accepts mail, in milliseconds.
    pub ttl_ms: Option<i64>,
    /// The caller's id for the inbox. Creating it again with the same id returns the existing inbox.
    pub client_id: Option<String>,
    /// The settings, which can be changed later.
    pub about: InboxSettings,
}

/// A change of an inbox's reply limits. `None` leaves a limit unchanged; an inner `None` removes it.
#[derive(Clone, Copy, Debug, Default)]
pub struct CapsPatch {
    /// Replies per thread within the window.
    pub per_window: Option<u32>,
    /// The window, in milliseconds.
    pub window_ms: Option<i64>,
    /// Replies per thread within a day.
    pub per_day: Option<u32>,
    /// Replies to one person within a day.
    pub per_person: Option<u32>,
    /// Replies per thread in total.
    pub per_thread: Option<Option<u32>>,
}

impl CapsPatch {
    /// Applies the change to limits.
    pub fn apply_to(self, old: ReplyCaps) -> ReplyCaps {
        ReplyCaps {
            per_window: self.per_window.unwrap_or(old.per_window),
            window_ms: self.window_ms.unwrap_or(old.window_ms),
            per_day: self.per_day.unwrap_or(old.per_day),
            per_person: self.per_person.unwrap_or(old.per_person),
            per_thread: self.per_thread.unwrap_or(old.per_thread),
        }
    }
}

/// A change of an inbox. `None` leaves a setting unchanged; an inner `None` removes it.
#[derive(Clone, Debug, Default)]
pub struct InboxPatch {
    /// The agent that uses the inbox.
    pub agent: Option<Option<String>>,
    /// The display name of its address.
    pub name: Option<Option<String>>,
    /// When the inbox stops accepting mail.
    pub expires_at: Option<Option<Time>>,
    /// Whether the inbox receives all mail of its domain that has no other inbox.
    pub catch_all: Option<bool>,
    /// Domains whose links are allowed.
    pub allowed_link_domains: Option<Vec<String>>,
    /// The limits on replies.
    pub caps: Option<Option<CapsPatch>>,
    /// Whether mail that is likely, but not certainly, automatic may be answered.
    pub reply_to_likely_automatic: Option<bool>,
    /// Whether replies are marked as automatic (`Auto-Submitted`).
    pub mark_auto_submitted: Option<bool>,
    /// How long mail is kept.
    pub retention: Option<InboxRetention>,
    /// The caller's own key-value data.
    pub metadata: Option<BTreeMap<String, String>>,
}

impl InboxPatch {
    fn apply_to(self, settings: &InboxSettings) -> InboxSettings {
        let old = settings.clone();
        InboxSettings {
            agent: self.agent.unwrap_or(old.agent),
            name: self.name.unwrap_or(old.name),
            expires_at: self.expires_at.unwrap_or(old.expires_at),
            catch_all: self.catch_all.unwrap_or(old.catch_all),
            allowed_link_domains: self.allowed_link_domains.unwrap_or(old.allowed_link_domains),
            caps: self.caps.map_or(old.caps, |patch| patch.map(|patch| patch.apply_to(old.caps.unwrap_or_default()))),
            reply_to_likely_automatic: self.reply_to_likely_automatic.unwrap_or(old.reply_to_likely_automatic),
            mark_auto_submitted: self.mark_auto_submitted.unwrap_or(old.mark_auto_submitted),
            retention: self.retention.unwrap_or(old.retention),
            metadata: self.metadata.unwrap_or(old.metadata),
            changed_at: old.changed_at,
        }
    }
}

pub(crate) fn inbox_not_found(id: impl std::fmt::Display) -> Problem {
    Problem::new(Code::NotFound, format!("there is no inbox {id}"))
}

fn address_taken() -> Problem {
    Problem::for_field(Code::NameTaken, "address", "this address is or was in use; choose another")
}

/// Whether the caller's API key may use an inbox.
pub(crate) fn may_use(caller: &Caller, inbox: &Inbox) -> bool {
    let allowed = &caller.key.details.inboxes;
    allowed.is_empty() || allowed.iter().any(|name| *name == inbox.address || *name == inbox.id.to_string())
}

/// Refuses API keys that are restricted to some inboxes. They cannot create or change inboxes.
fn require_unrestricted(caller: &Caller) -> Result<(), Problem> {
    if caller.key.details.inboxes.is_empty() {
        return Ok(());
    }
    Err(Problem::new(Code::WrongScope, "this API key is restricted to its inboxes and cannot create or change inboxes"))
}

impl Inboxes {
    /// Loads the domains that have inboxes, for the transport that delivers to them. Domains of teams are known only to
    /// the store. Must be called before the first hand-off.
    pub async fn load_inbox_domains(&self) -> Result<(), StoreError> {
        if !self.ctx.deps.delivers_locally() {
            return Ok(());
        }
        for team in self.ctx.store.teams().await? {
            let mut before = None;
            for _ in 0..MAX_PAGES {
                let page = self.ctx.store.inboxes(team.id, before, PAGE_SIZE).await?;
                page.iter().for_each(|inbox| self.ctx.inbound.inbox_domains.add(inbox.domain()));
                before = page.last().map(|inbox| inbox.id).filter(|_| page.len() == PAGE_SIZE);
                if before.is_none() {
                    break;
                }
            }
            if before.is_some() {
                tracing::warn!(team = %team.id, "a team has too many inboxes to load all their domains");
            }
        }
        Ok(())
    }

    /// Creates an inbox. With the `client_id` of an existing inbox, returns that inbox.
    pub async fn create_inbox(
        &self,
        caller: &Caller,
        new: NewInbox,
        keyed_call: Option<KeyedCall>,
    ) -> Result<CreateOutcome<Inbox>, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        require_unrestricted(caller)?;
        // Only admins may set these, so that an agent cannot loosen its own guards.
        let settings = &new.about;
        if settings.catch_all
            || settings.caps.is_some()
            || settings.reply_to_likely_automatic
            || !settings.allowed_link_domains.is_empty()
            || !settings.retention.is_empty()
        {
            caller.require_scope(ApiKeyScope::Admin)?;
        }
        let is_repeat = self.ctx.is_repeated_call(caller, keyed_call.as_ref()).await?;
        let is_address_chosen = new.address.is_some() || new.username.is_some();
        for _ in 0..MAX_CONFLICT_RETRIES {
            let address = self.new_inbox_address(caller, &new, is_repeat).await?;
            if new.about.catch_all {
                self.check_catch_all(caller, address.domain()).await?;
            }
            self.check_approval_sender(caller, address.as_str()).await?;
            match self.try_create_inbox(caller, &new, address, keyed_call.as_ref()).await? {
                Some(created) => return Ok(created),
                None if is_address_chosen => return Err(address_taken()),
                None => {}
            }
        }
        Err(address_taken())
    }

    /// Tries to create an inbox at an address. `None` when the address is taken.
    async fn try_create_inbox(
        &self,
        caller: &Caller,
        new: &NewInbox,
        address: Address,
        keyed_call: Option<&KeyedCall>,
    ) -> Result<Option<CreateOutcome<Inbox>>, Problem> {
        let now = self.ctx.now();
        let id = InboxId(self.ctx.new_id(now));
        let mut settings = new.about.clone();
        settings.expires_at = new.ttl_ms.map(|ttl| now.plus(ttl)).or(settings.expires_at);
        let inbox = Inbox {
            id,
            team: caller.team.id,
            rev: 1,
            address: address.as_str().to_owned(),
            client_id: new.client_id.clone(),
            created_at: now,
            latest_seq: 0,
            settings,
        };
        let operation = operation(caller, keyed_call, id.0.as_bytes().to_vec(), now);
        match self.ctx.store.create_inbox(inbox, operation).await.map_err(unavailable)? {
            IdempotentResult::Done(CreateInboxResult::Created(inbox)) => {
                self.ctx.inbound.inbox_domains.add(inbox.domain());
                self.access.clear_credentials();
                Ok(Some(CreateOutcome { value: inbox, is_new: true }))
            }
            IdempotentResult::Done(CreateInboxResult::AlreadyExists(inbox)) => {
                Ok(Some(CreateOutcome { value: inbox, is_new: false }))
            }
            IdempotentResult::Done(CreateInboxResult::AddressTaken) => Ok(None),
            IdempotentResult::Replayed(answer) => {
                let id = Uuid::from_slice(&answer).map_err(|_bytes| inbox_not_found("of this key"))?;
                Ok(Some(CreateOutcome { value: self.inbox(caller, InboxId(id)).await?, is_new: false }))
            }
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// The address of a new inbox, checked.
    async fn new_inbox_address(&self, caller: &Caller, new: &NewInbox, is_repeat: bool) -> Result<Address, Problem> {
        let (field, text) = match (&new.address, &new.username) {
            (Some(_), Some(_)) => {
                return Err(Problem::invalid_field("address", "and username cannot be used together"));
            }
            (Some(_), None) if new.domain.is_some() => {
                return Err(Problem::invalid_field("address", "and domain cannot be used together"));
            }
            (Some(address), None) => ("address", address.clone()),
            (None, username) => {
                let name = username.clone().unwrap_or_else(|| self.random_name());
                let default_domain = || self.ctx.inbound.local_domains.first().cloned();
                let domain = new.domain.clone().or_else(default_domain).ok_or_else(|| {
                    Problem::invalid_field(
                        "domain",
                        "is missing, and this installation has no domain of its own; set smtp.domains",
                    )
                })?;
                ("username", format!("{name}@{domain}"))
            }
        };
        let address = Address::parse(&text).map_err(|error| Problem::invalid_field(field, error.to_string()))?;
        let local = address.as_str().split('@').next().unwrap_or_default();
        if local.contains('+') || local.contains('*') {
            return Err(Problem::invalid_field(
                field,
                "must not have a + or * before the @; mail to name+tag@ reaches the inbox name@",
            ));
        }
        let is_shared = self.is_shared_domain(address.domain());
        if is_shared {
            self.check_reserved(caller, field, &address)?;
        }
        if !is_shared && !is_repeat && !self.may_have_inbox_at(caller, address.domain()).await? {
            let detail = format!(
                "{} is not a verified domain of this team, nor one of this installation's domains: {}",
                address.domain(),
                self.ctx.inbound.local_domains.join(", ")
            );
            return Err(Problem::invalid_field(if new.address.is_some() { "address" } else { "domain" }, detail));
        }
        Ok(address)
    }

    /// Whether every team may have inboxes at a domain.
    fn is_shared_domain(&self, domain: &str) -> bool {
        self.ctx.inbound.local_domains.iter().any(|own| own == domain)
    }

    /// Refuses addresses such as postmaster at a shared domain, and lookalikes, to all but operators. Mail to such an
    /// address can be used to obtain a certificate for the domain, and mail from it appears to come from the operator.
    fn check_reserved(&self, caller: &Caller, field: &str, address: &Address) -> Result<(), Problem> {
        let local = address.as_str().split('@').next().unwrap_or_default();
        let is_return_path = mailonce_mail::return_path::AttemptTag::from_return_path(address.as_str()).is_some();
        let is_reserved = is_return_path
            || self.ctx.deps.reserved_names.iter().any(|name| mailonce_mail::link::is_lookalike(name, local));
        if !is_reserved || caller.require_scope(ApiKeyScope::Operator).is_ok() {
            return Ok(());
        }
        let detail = format!("{local} is reserved at {}, a domain that all teams share", address.domain());
        Err(Problem::for_field(Code::AddressReserved, field, detail))
    }

    /// Refuses an inbox that would receive replies to the team's approval emails, which may quote approval links.
    async fn check_approval_sender(&self, caller: &Caller, address: &str) -> Result<(), Problem> {
        let settings = self.access.settings_of(caller.team.id).await.map_err(unavailable)?;
        let from = settings.approval_emails.as_ref().and_then(|emails| emails.from.as_ref());
        let from = from.and_then(|from| NamedAddress::parse(from).ok()).map(|from| from.to_address());
        if !from.is_some_and(|from| inbox::candidate_addresses(from.as_str()).iter().any(|place| place == address)) {
            return Ok(());
        }
        let detail = "this inbox would receive replies to the approval emails of the team (`approval_emails.from` of its \
                      settings), and its agent could read approval links";
        Err(Problem::for_field(Code::AddressReserved, "address", detail))
    }

    /// Refuses a catch-all at a shared domain to all but operators, and one that covers the sender of approval emails.
    async fn check_catch_all(&self, caller: &Caller, domain: &str) -> Result<(), Problem> {
        self.check_approval_sender(caller, &inbox::catch_all_address(domain)).await?;
        if !self.is_shared_domain(domain) || caller.require_scope(ApiKeyScope::Operator).is_ok() {
            return Ok(());
        }
        let detail = format!("{domain} is a domain that all teams share, where only an operator may have a catch-all");
        Err(Problem::for_field(Code::AddressReserved, "catch_all", detail))
    }

    /// Whether a team may have inboxes at a domain that is not the installation's own.
    async fn may_have_inbox_at(&self, caller: &Caller, domain: &str) -> Result<bool, Problem> {
        if !self.ctx.deps.verify_domains {
            return Ok(true);
        }
        let found =
            self.ctx.store.record_by_name(caller.team.id, RecordKind::Domain, domain).await.map_err(unavailable)?;
        let Some(record) = found else { return Ok(false) };
        Ok(records::decode::<DomainDetails>(&record)?.verified_at.is_some())
    }

    fn random_name(&self) -> String {
        let mut bytes = [0; RANDOM_NAME_LENGTH];
        self.ctx.entropy.fill(&mut bytes);
        bytes.iter().map(|byte| char::from(ADDRESS_ALPHABET[usize::from(byte % 32)])).collect()
    }

    /// One inbox that the caller may use.
    pub async fn inbox(&self, caller: &Caller, id: InboxId) -> Result<Inbox, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        let found = self.ctx.store.inbox(caller.team.id, id).await.map_err(unavailable)?;
        found.filter(|inbox| may_use(caller, inbox)).ok_or_else(|| inbox_not_found(id))
    }

    /// The inbox at an address of the caller's team.
    pub async fn inbox_by_address(&self, caller: &Caller, address: &str) -> Result<Inbox, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        let address = Address::parse(address).map_err(|_not_one| inbox_not_found(address))?;
        let addresses = [address.as_str().to_owned()];
        let found = self.ctx.store.inbox_by_address(&addresses).await.map_err(unavailable)?;
        let found = found.filter(|inbox| inbox.team == caller.team.id && may_use(caller, inbox));
        found.ok_or_else(|| inbox_not_found(address.as_str()))
    }

    /// The inboxes that the caller may use, newest first.
    pub async fn inboxes(
        &self,
        caller: &Caller,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<CursorPage<Inbox>, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        let before = before.map(InboxId);
        let mut rows = self.ctx.store.inboxes(caller.team.id, before, limit + 1).await.map_err(unavailable)?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(|inbox| inbox.id.0);
        rows.retain(|inbox| may_use(caller, inbox));
        Ok(CursorPage { rows, next })
    }

    /// Changes an inbox.
    pub async fn change_inbox(
        &self,
        caller: &Caller,
        id: InboxId,
        patch: InboxPatch,
        rev: Option<u32>,
    ) -> Result<Inbox, Problem> {
        require_unrestricted(caller)?;
        let needs_admin = patch.caps.is_some()
            || patch.reply_to_likely_automatic.is_some()
            || patch.mark_auto_submitted.is_some()
            || patch.allowed_link_domains.is_some()
            || patch.retention.is_some();
        if needs_admin || patch.catch_all == Some(true) {
            caller.require_scope(ApiKeyScope::Admin)?;
        }
        if patch.catch_all == Some(true) {
            self.check_catch_all(caller, self.inbox(caller, id).await?.domain()).await?;
        }
        let change = |inbox: &Inbox| Ok((inbox.address.clone(), patch.clone().apply_to(&inbox.settings)));
        self.edit_inbox(caller, id, rev, None, change).await
    }

    /// Gives an inbox a new random address at its domain. The old address stops accepting mail.
    pub async fn rotate_inbox(
        &self,
        caller: &Caller,
        id: InboxId,
        keyed_call: Option<KeyedCall>,
    ) -> Result<Inbox, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        require_unrestricted(caller)?;
        let address = |inbox: &Inbox| format!("{}@{}", self.random_name(), inbox.domain());
        self.edit_inbox(caller, id, None, keyed_call, |inbox| Ok((address(inbox), inbox.settings.clone()))).await
    }

    async fn edit_inbox(
        &self,
        caller: &Caller,
        id: InboxId,
        rev: Option<u32>,
        keyed_call: Option<KeyedCall>,
        change: impl Fn(&Inbox) -> Result<(String, InboxSettings), Problem>,
    ) -> Result<Inbox, Problem> {
        let mut inbox = self.inbox(caller, id).await?;
        for _ in 0..MAX_CONFLICT_RETRIES {
            if rev.is_some_and(|rev| rev != inbox.rev) {
                break;
            }
            let now = self.ctx.now();
            let (address, settings) = change(&inbox)?;
            let settings = InboxSettings { changed_at: Some(now), ..settings };
            let edit = InboxEdit { team: inbox.team, id, rev: inbox.rev, address, settings };
            let operation = operation(caller, keyed_call.as_ref(), Vec::new(), now);
            match self.ctx.store.change_inbox(edit, operation, now).await.map_err(unavailable)? {
                IdempotentResult::Done(InboxChangeResult::Changed(inbox)) => {
                    self.access.clear_credentials();
                    return Ok(inbox);
                }
                IdempotentResult::Done(InboxChangeResult::Stale(now)) => inbox = now,
                IdempotentResult::Done(InboxChangeResult::AddressTaken) => return Err(address_taken()),
                IdempotentResult::Done(InboxChangeResult::Missing) => return Err(inbox_not_found(id)),
                IdempotentResult::Replayed(_) => return self.inbox(caller, id).await,
                IdempotentResult::KeyMismatch(bound) => return Err(key_mismatch(&bound)),
            }
        }
        Err(Problem::new(Code::StaleRev, format!("the inbox {} changed meanwhile", inbox.address))
            .with_extension("rev", inbox.rev))
    }

    /// Removes an inbox with its messages.
    pub async fn remove_inbox(&self, caller: &Caller, id: InboxId) -> Result<Inbox, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        require_unrestricted(caller)?;
        let removed = self.ctx.store.remove_inbox(caller.team.id, id, self.ctx.now()).await.map_err(unavailable)?;
        self.access.clear_credentials();
        removed.ok_or_else(|| inbox_not_found(id))
    }
}
