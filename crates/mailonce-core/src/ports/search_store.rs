//! The part of the store for search. It follows the rules of the store: every method is one transaction and idempotent,
//! and every row and every query carries its team.
//!
//! Documents are erased with their mail: whatever deletes an email, a message or a body deletes what search has of it in
//! the same transaction.

use async_trait::async_trait;

use super::store::Result;
use crate::{
    id::TeamId,
    search::{SearchBacklog, SearchRef, SearchResult, SearchSource, document::SearchDocument, query::SearchQuery},
};

/// Search. The module documentation states the rules that every method follows.
#[async_trait]
pub trait SearchStore: Send + Sync + 'static {
    /// Teams with events that are not indexed yet, at most `max`.
    async fn search_backlog(&self, max: usize) -> Result<Vec<SearchBacklog>>;
    /// These mails of a team with their bodies, as far as they exist. Stops before the bodies exceed
    /// [`crate::search::SOURCE_BYTES`], but returns at least one mail; the caller asks again for those that follow.
    async fn search_sources(&self, team: TeamId, mails: Vec<SearchRef>) -> Result<Vec<SearchSource>>;
    /// Adds documents and records that the team's events up to `until` are indexed, if they were indexed up to `since`.
    /// Returns false, and changes nothing, if they were not: another worker was faster. Documents whose mail is gone are
    /// left out, and so is the text of those whose body is gone. A mail that has a document keeps it.
    async fn index_documents(
        &self,
        team: TeamId,
        (since, until): (u64, u64),
        documents: Vec<SearchDocument>,
    ) -> Result<bool>;
    /// Mails of a team that match a query, newest first. Messages in removed inboxes are not found.
    async fn search(&self, team: TeamId, query: SearchQuery) -> Result<SearchResult>;
}
