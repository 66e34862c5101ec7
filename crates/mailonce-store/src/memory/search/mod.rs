//! Search: implements `SearchStore` for [`Memory`] by comparing every document with the query.

use async_trait::async_trait;
use mailonce_core::{
    id::{EmailId, MessageId, TeamId},
    limits,
    ports::{search_store::SearchStore, store::Result},
    search::{
        SOURCE_BYTES, SearchBacklog, SearchHit, SearchKind, SearchPage, SearchPosition, SearchRef, SearchResult,
        SearchSource,
        document::SearchDocument,
        query::{SearchQuery, StateFilter},
        snippet::snippet,
    },
};
use std::collections::BTreeMap;

use super::{Memory, Tables};

/// The documents of every team, and how far the events of each team are indexed.
#[derive(Default)]
pub(crate) struct SearchTables {
    documents: BTreeMap<(TeamId, SearchPosition), SearchDocument>,
    pub(crate) cursors: BTreeMap<TeamId, u64>,
}

impl SearchTables {
    /// Deletes the document of a mail.
    pub(crate) fn forget(&mut self, mail: uuid::Uuid) {
        self.documents.retain(|_, document| document.mail.id != mail);
    }
}

impl Tables {
    fn search_source(&self, team: TeamId, mail: SearchRef) -> Option<SearchSource> {
        match mail.kind {
            SearchKind::Email => {
                let email = self.outbound.email_of_team(team, EmailId(mail.id))?;
                let body = self.outbound.bodies.get(&email.id).cloned();
                Some(SearchSource::Email { email: Box::new(email), body })
            }
            SearchKind::Message => {
                let found = self.inbound.messages.get(&MessageId(mail.id)).filter(|message| message.team == team);
                let message = found?.clone();
                let raw = self.inbound.deliveries.get(&message.delivery).and_then(|kept| kept.raw);
                let raw = raw.and_then(|raw| self.inbound.raws.get(&raw)).map(|raw| raw.to_vec());
                Some(SearchSource::Message { message: Box::new(message), raw })
            }
        }
    }

    /// The document without what is gone by now; `None` when its mail is.
    fn without_erased(&self, team: TeamId, document: &SearchDocument) -> Option<SearchDocument> {
        let (body, is_erased) = match self.search_source(team, document.mail)? {
            SearchSource::Email { email, body } => (body, email.head.erased.is_some()),
            SearchSource::Message { message, raw } => (raw, !message.is_visible()),
        };
        if is_erased {
            return None;
        }
        let text = body.map(|_| document.text.clone()).unwrap_or_default();
        Some(SearchDocument { text, ..document.clone() })
    }

    /// Erases documents whose mail is gone, and texts whose body is gone.
    pub(crate) fn erase_from_search(&mut self) {
        let all = std::mem::take(&mut self.search.documents);
        let kept =
            all.into_iter().filter_map(|(place, document)| Some((place, self.without_erased(place.0, &document)?)));
        self.search.documents = kept.collect();
    }

    fn index_documents(&mut self, team: TeamId, (since, until): (u64, u64), documents: &[SearchDocument]) -> bool {
        let cursor = self.search.cursors.entry(team).or_default();
        if *cursor != since {
            return false;
        }
        *cursor = until;
        for document in documents {
            let known = |((of, _), known): (&(TeamId, SearchPosition), &SearchDocument)| {
                *of == team && known.mail == document.mail
            };
            if self.search.documents.iter().any(known) {
                continue;
            }
            let Some(document) = self.without_erased(team, document) else { continue };
            let mut position = SearchPosition::preferred(document.at, document.mail.id);
            while self.search.documents.contains_key(&(team, position)) {
                position = position.next();
            }
            self.search.documents.insert((team, position), document);
        }
        true
    }

    fn is_in_state(&self, team: TeamId, mail: SearchRef, state: Option<StateFilter>) -> bool {
        match (self.search_source(team, mail), state) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(SearchSource::Email { email, .. }), Some(StateFilter::Email(state))) => email.state() == state,
            (Some(SearchSource::Message { message, .. }), Some(StateFilter::Message(state))) => message.state == state,
            (Some(_), Some(_)) => false,
        }
    }

    fn search(&self, team: TeamId, query: &SearchQuery) -> SearchPage {
        let (mut page, mut looked) = (SearchPage::default(), 0);
        let (from, to) = query.position_range();
        if query.is_empty() || from >= to {
            return page;
        }
        for ((_, position), document) in self.search.documents.range((team, from)..(team, to)).rev() {
            if !query.matches(document) {
                continue;
            }
            if page.hits.len() == query.limit || looked == limits::SCAN_ROWS {
                return page;
            }
            (page.next, looked) = (Some(*position), looked + 1);
            if self.is_in_state(team, document.mail, query.state) {
                let snippet = snippet(query, &document.subject, &document.text);
                page.hits.push(SearchHit { mail: document.mail, at: document.at, snippet });
            }
        }
        page.next = None;
        page
    }
}

#[async_trait]
impl SearchStore for Memory {
    async fn search_backlog(&self, max: usize) -> Result<Vec<SearchBacklog>> {
        let tables = self.lock_tables();
        let backlog = tables.events.log.iter().filter_map(|(team, events)| {
            let indexed_until = tables.search.cursors.get(team).copied().unwrap_or(0);
            (indexed_until < events.len() as u64).then_some(SearchBacklog { team: *team, indexed_until })
        });
        Ok(backlog.take(max).collect())
    }

    async fn search_sources(&self, team: TeamId, mails: Vec<SearchRef>) -> Result<Vec<SearchSource>> {
        let tables = self.lock_tables();
        let mut bytes = 0;
        let mut sources = Vec::new();
        for source in mails.into_iter().filter_map(|mail| tables.search_source(team, mail)) {
            let (SearchSource::Email { body, .. } | SearchSource::Message { raw: body, .. }) = &source;
            bytes += body.as_ref().map_or(0, Vec::len);
            if bytes > SOURCE_BYTES && !sources.is_empty() {
                break;
            }
            sources.push(source);
        }
        Ok(sources)
    }

    async fn index_documents(&self, team: TeamId, events: (u64, u64), documents: Vec<SearchDocument>) -> Result<bool> {
        Ok(self.lock_tables().index_documents(team, events, &documents))
    }

    async fn search(&self, team: TeamId, query: SearchQuery) -> Result<SearchResult> {
        Ok(SearchResult::Page(self.lock_tables().search(team, &query)))
    }
}
