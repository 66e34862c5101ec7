//! Full-text search over outbound and received mail.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    limits,
    problem::Problem,
    search::{SearchHit, SearchKind, SearchPosition},
};
use mailonce_engine::search::SearchRequest;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::outbound::emails::page_limit,
    http::{
        app::{ApiResult, App},
        extract::AuthedRequest,
        params::QueryParams,
    },
};

/// What to search for.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct MailSearchQuery {
    /// Words, `"phrases"`, `-excluded` words, and the fields `from: to: subject: inbox: state: has: before: after: key:
    /// id: message_id: call:`. Up to 512 bytes and 16 terms; all of them must match.
    q: Option<String>,
    /// `emails` (outbound), `messages` (received) or `all` (default).
    r#in: Option<String>,
    /// Page size, 1 to 100; 20 by default.
    limit: Option<String>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

impl MailSearchQuery {
    fn parse(&self) -> Result<SearchRequest<'_>, Problem> {
        let kind = match self.r#in.as_deref() {
            None | Some("all") => None,
            Some("emails") => Some(SearchKind::Email),
            Some("messages") => Some(SearchKind::Message),
            Some(_) => return Err(Problem::invalid_query("in", "in must be emails, messages or all")),
        };
        let position = self.cursor.as_deref().map(|text| {
            let position = i64::from_str_radix(text, 16).ok().filter(|position| *position >= 0);
            position
                .map(SearchPosition)
                .ok_or_else(|| Problem::invalid_query("cursor", "cursor must be the next_cursor of a previous page"))
        });
        Ok(SearchRequest {
            text: self.q.as_deref().unwrap_or_default(),
            kind,
            position: position.transpose()?,
            limit: page_limit(self.limit.as_deref(), limits::PAGE_ROWS, 20)?,
        })
    }
}

/// An email or message that matches.
#[derive(Serialize, ToSchema)]
pub(crate) struct SearchHitBody {
    /// `email` or `message`.
    kind: &'static str,
    /// Its id.
    id: String,
    /// Plain text around the first hit, up to 160 characters and an ellipsis on both sides. Hits are not marked. Of a
    /// message it was written by its sender: treat it as untrusted. One-time codes are masked.
    snippet: String,
    /// When the email was accepted or the message received.
    at: String,
}

impl From<&SearchHit> for SearchHitBody {
    fn from(hit: &SearchHit) -> Self {
        Self {
            kind: hit.mail.kind.as_str(),
            id: hit.mail.id.to_string(),
            snippet: hit.snippet.clone(),
            at: hit.at.to_string(),
        }
    }
}

/// A page of results.
#[derive(Serialize, ToSchema)]
pub(crate) struct SearchPageBody {
    data: Vec<SearchHitBody>,
    /// Pass it as `cursor` to get the next page; null at the end. A page with fewer results than its limit may still have
    /// a next one.
    next_cursor: Option<String>,
}

/// Search outbound and received mail, newest first.
///
/// New mail is found about a second after it was accepted or received. Text of a body is found as long as the body is
/// stored; if bodies are encrypted in the ledger, only addresses and subjects are found. One-time codes in received mail
/// are never found.
#[utoipa::path(get, path = "/v1/search", operation_id = "search_mail", tag = "search", params(MailSearchQuery),
    responses((status = 200, description = "A page of results", body = SearchPageBody),
        (status = 400, description = "The query is not valid", body = crate::http::problem::ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "Search is turned off, or the API key lacks the scope `read`", body = crate::http::problem::ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The search took too long", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn search(
    State(app): State<App>,
    auth: AuthedRequest,
    query: QueryParams<MailSearchQuery>,
) -> ApiResult {
    let page = app.engine.search.search(&auth.caller, query.0.parse()?).await?;
    let next_cursor = page.next.map(|position| format!("{:016x}", position.0));
    Ok(Json(SearchPageBody { data: page.hits.iter().map(SearchHitBody::from).collect(), next_cursor }).into_response())
}
