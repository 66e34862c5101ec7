//! Full-text search over outbound and received mail.

mod documents;
pub mod indexer;

use mailonce_core::{
    access::team::ApiKeyScope,
    key::{EmailKey, Key},
    outbound::email_query::EmailQuery,
    problem::{Code, Problem},
    search::{
        SEARCH_TIMEOUT_MS, SearchKind, SearchPage, SearchPosition, SearchRef, SearchResult,
        document::scope_token,
        query::{MailboxFilter, ScopeTerm, SearchQuery},
        query_parser::{ParsedQuery, parse_query},
    },
};
use std::sync::Arc;
use tokio::sync::Notify;

use crate::{
    access::caller::Caller,
    inbox::Inboxes,
    runtime::{context::Context, problems::unavailable},
};

/// Full-text search over outbound and received mail.
pub struct Search {
    ctx: Arc<Context>,
    inboxes: Arc<Inboxes>,
    /// Wakes the indexer when there are new events.
    wakeup: Arc<Notify>,
}

/// Which page of results a caller asks for.
#[derive(Clone, Copy, Debug)]
pub struct SearchRequest<'a> {
    /// The text of the query.
    pub text: &'a str,
    /// Only mail of this direction.
    pub kind: Option<SearchKind>,
    /// Behind this position.
    pub position: Option<SearchPosition>,
    /// The maximum number of results.
    pub limit: usize,
}

impl Search {
    pub(crate) fn new(ctx: Arc<Context>, inboxes: Arc<Inboxes>, wakeup: Arc<Notify>) -> Self {
        Self { ctx, inboxes, wakeup }
    }

    /// Mail that matches a query and that the caller may see, newest first.
    pub async fn search(&self, caller: &Caller, request: SearchRequest<'_>) -> Result<SearchPage, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        if !self.ctx.deps.search_enabled {
            return Err(Problem::new(Code::SearchDisabled, "search is turned off in the configuration of this server"));
        }
        let query = self.build_query(caller, request).await?;
        match self.ctx.store.search(caller.team.id, query).await.map_err(unavailable)? {
            SearchResult::Page(page) => Ok(page),
            SearchResult::TimedOut => Err(Problem::new(
                Code::SearchTimeout,
                format!("the search was ended after {} s", SEARCH_TIMEOUT_MS / 1_000),
            )),
        }
    }

    async fn build_query(&self, caller: &Caller, request: SearchRequest<'_>) -> Result<SearchQuery, Problem> {
        let ParsedQuery { terms, mut scope, state, after, before, inbox, key, id } = parse_query(request.text)?;
        scope.extend(request.kind.map(|kind| ScopeTerm { token: scope_token::kind(kind), is_negated: false }));
        let mut mailboxes = Vec::new();
        if let Some(own) = &caller.inbox_restriction {
            mailboxes.push(MailboxFilter { inboxes: own.inbox_ids(), addresses: own.addresses() });
        }
        if let Some(name) = &inbox {
            mailboxes.push(self.mailbox(caller, name).await?);
        }
        let mut only: Option<Vec<SearchRef>> =
            id.map(|id| [SearchKind::Email, SearchKind::Message].map(|kind| SearchRef { kind, id }).into());
        if let Some(key) = &key {
            let mut named = self.email_by_key(caller, key).await?;
            named.retain(|mail| only.as_ref().is_none_or(|only| only.contains(mail)));
            only = Some(named);
        }
        let SearchRequest { position, limit, .. } = request;
        Ok(SearchQuery { terms, scope, mailboxes, state, only, after, before, position, limit })
    }

    async fn mailbox(&self, caller: &Caller, name: &str) -> Result<MailboxFilter, Problem> {
        let found = match name.parse() {
            Ok(id) => self.inboxes.inbox(caller, id).await,
            Err(_not_an_id) => self.inboxes.inbox_by_address(caller, name).await,
        };
        let inbox = found.map_err(|problem| match problem.code {
            Code::NotFound => Problem::invalid_query(
                "q",
                format!("`inbox:{name}` is not an inbox of the team; use its address or its id"),
            ),
            _ => problem,
        })?;
        Ok(MailboxFilter { inboxes: vec![inbox.id], addresses: vec![inbox.address] })
    }

    async fn email_by_key(&self, caller: &Caller, key: &str) -> Result<Vec<SearchRef>, Problem> {
        let key = Key::parse(key).map_err(|error| Problem::invalid_query("q", format!("`key:` {error}")))?;
        let key = Some(EmailKey::Given(key).hash(caller.team.id));
        let query = EmailQuery { key, limit: 1, ..EmailQuery::default() };
        let page = self.ctx.store.emails(caller.team.id, query).await.map_err(unavailable)?;
        Ok(page.rows.iter().map(|email| SearchRef { kind: SearchKind::Email, id: email.id.0 }).collect())
    }
}
