//! The search part of the store, as one process of a node sees it.

use crate::world::store::FaultyStore;
use async_trait::async_trait;
use mailonce_core::{
    id::TeamId,
    ports::{search_store::SearchStore, store::Result},
    search::{SearchBacklog, SearchRef, SearchResult, SearchSource, document::SearchDocument, query::SearchQuery},
};

/// Each method goes through the faulty network.
#[async_trait]
impl SearchStore for FaultyStore {
    async fn search_backlog(&self, max: usize) -> Result<Vec<SearchBacklog>> {
        self.call_with_faults("search_backlog", false, self.inner.search_backlog(max)).await
    }

    async fn search_sources(&self, team: TeamId, mails: Vec<SearchRef>) -> Result<Vec<SearchSource>> {
        self.call_with_faults("search_sources", false, self.inner.search_sources(team, mails)).await
    }

    async fn index_documents(&self, team: TeamId, events: (u64, u64), documents: Vec<SearchDocument>) -> Result<bool> {
        self.call_with_faults("index_documents", true, self.inner.index_documents(team, events, documents)).await
    }

    async fn search(&self, team: TeamId, query: SearchQuery) -> Result<SearchResult> {
        self.call_with_faults("search", false, self.inner.search(team, query)).await
    }
}
