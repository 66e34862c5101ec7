//! Resend's search in the threads of an inbox. Every term of the query must be found in a thread.

use axum::extract::State;
use mailonce_core::{access::team::ApiKeyScope, outbound::content::EmailContent, problem::Problem, time::Time};
use mailonce_engine::{
    conversation::threads::{ThreadEntry, ThreadView},
    inbox::messages::{MessageView, RenderedBody},
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    DialectPath, DialectQuery, OnePathParam, ResendDialect, ResendRequest, ResendResult,
    inboxes::find_inbox,
    list_response,
    receiving::{format_parties, format_party},
    threads::{ThreadBody, ThreadsQuery, all_threads, entry_id, is_read, parse_flag, split_list, thread_body},
};
use crate::{
    dialects::{
        pagination::PageRows,
        search_terms::{SearchTerms, TermMatch},
    },
    http::app::App,
};

/// Maximum emails whose bodies are read for a search.
const MAX_BODIES_READ: usize = 300;

/// The parameters of a search, in addition to those of a thread list.
#[derive(Deserialize)]
pub(super) struct ThreadSearchParams {
    #[serde(flatten)]
    threads: ThreadsQuery,
    query: Option<String>,
    from: Option<String>,
    to: Option<String>,
    cc: Option<String>,
    bcc: Option<String>,
    has_attachment: Option<String>,
    start_date: Option<String>,
    end_date: Option<String>,
}

/// What a thread must contain.
struct ThreadSearch {
    terms: SearchTerms,
    from: Vec<String>,
    to: Vec<String>,
    cc: Vec<String>,
    bcc: Vec<String>,
    has_attachment: Option<bool>,
    start: Option<Time>,
    end: Option<Time>,
}

/// Parses an ISO 8601 time, or a date, which counts as its first instant in UTC.
pub(super) fn parse_date(field: &str, text: Option<&str>) -> Result<Option<Time>, Problem> {
    let parse = |text: &str| Time::parse(text).or_else(|| Time::parse(&format!("{text}T00:00:00Z")));
    let invalid = || Problem::invalid_query(field, format!("The `{field}` must be an ISO 8601 date or time."));
    text.map(|text| parse(text).ok_or_else(invalid)).transpose()
}

impl ThreadSearchParams {
    fn parse(&self) -> Result<ThreadSearch, Problem> {
        let addresses = |text: &Option<String>| split_list(text.as_deref().map(str::to_lowercase).as_deref());
        Ok(ThreadSearch {
            terms: SearchTerms::parse(self.query.as_deref().unwrap_or_default()),
            from: addresses(&self.from),
            to: addresses(&self.to),
            cc: addresses(&self.cc),
            bcc: addresses(&self.bcc),
            has_attachment: parse_flag("has_attachment", self.has_attachment.as_deref())?,
            start: parse_date("start_date", self.start_date.as_deref())?,
            end: parse_date("end_date", self.end_date.as_deref())?,
        })
    }
}

/// The searched fields of an email.
struct EntryFields {
    from: String,
    to: Vec<String>,
    cc: Vec<String>,
    bcc: Vec<String>,
    subject: String,
    /// `None` for a sent email: its content says so.
    has_attachment: Option<bool>,
    at: Time,
}

impl EntryFields {
    fn of(entry: &ThreadEntry) -> Self {
        match entry {
            ThreadEntry::Message(message) => Self {
                from: message.head.from.as_ref().map(format_party).unwrap_or_default(),
                to: format_parties(&message.head.to),
                cc: format_parties(&message.head.cc),
                bcc: Vec::new(),
                subject: message.head.subject.clone(),
                has_attachment: Some(!message.head.attachments.is_empty()),
                at: message.received_at,
            },
            ThreadEntry::Email(email) => Self {
                from: email.head.from.clone(),
                to: email.head.to.clone(),
                cc: email.head.cc.clone(),
                bcc: email.head.bcc.clone(),
                subject: email.head.subject.clone(),
                has_attachment: None,
                at: email.head.created_at,
            },
        }
    }
}

impl ThreadSearch {
    /// Whether an email has the addresses and the date of the search.
    fn matches(&self, fields: &EntryFields) -> bool {
        let has = |wanted: &[String], found: &[String]| {
            wanted.is_empty() || wanted.iter().any(|one| found.iter().any(|text| text.to_lowercase().contains(one)))
        };
        has(&self.from, std::slice::from_ref(&fields.from))
            && has(&self.to, &fields.to)
            && has(&self.cc, &fields.cc)
            && has(&self.bcc, &fields.bcc)
            && self.start.is_none_or(|start| fields.at >= start)
            && self.end.is_none_or(|end| fields.at < end)
    }

    /// The newest email of a thread that matches, with `None` for its id when only the whole thread has every term.
    async fn find_in(
        &self,
        app: &App,
        auth: &ResendRequest,
        view: &ThreadView,
        bodies_read: &mut usize,
    ) -> Result<Option<Option<Uuid>>, Problem> {
        let (mut whole, mut newest, mut is_match) = (TermMatch::default(), None, false);
        for entry in &view.entries {
            let fields = EntryFields::of(entry);
            if !self.matches(&fields) {
                continue;
            }
            let EntryBody { text, has_attachment } = read_body(app, auth, entry, bodies_read).await?;
            let has_attachment = fields.has_attachment.unwrap_or(has_attachment);
            if self.has_attachment.is_some_and(|wanted| wanted != has_attachment) {
                continue;
            }
            is_match = true;
            let recipients = [fields.to.as_slice(), &fields.cc, &fields.bcc].concat().join(", ");
            let searched = [fields.from.as_str(), &recipients, &fields.subject];
            let mut alone = TermMatch::default();
            self.terms.match_fields(searched, text.as_deref(), &mut alone);
            self.terms.match_fields(searched, text.as_deref(), &mut whole);
            if alone.has_all_terms() {
                newest = Some(entry_id(entry));
            }
        }
        Ok((is_match && whole.has_all_terms()).then_some(newest))
    }
}

/// What the body of an email says.
#[derive(Default)]
struct EntryBody {
    /// The text, with its codes masked.
    text: Option<String>,
    /// Whether a sent email has files.
    has_attachment: bool,
}

/// The body of an email. Only a limited number of bodies is read per search.
async fn read_body(
    app: &App,
    auth: &ResendRequest,
    entry: &ThreadEntry,
    bodies_read: &mut usize,
) -> Result<EntryBody, Problem> {
    *bodies_read += 1;
    if *bodies_read > MAX_BODIES_READ {
        return Ok(EntryBody::default());
    }
    match entry {
        ThreadEntry::Email(email) => {
            let content = app.engine.outbound.email_view(&auth.caller, email.id).await?.content;
            let body = |content: EmailContent| EntryBody {
                has_attachment: !content.attachments.is_empty(),
                text: content.text,
            };
            Ok(content.map(body).unwrap_or_default())
        }
        ThreadEntry::Message(message) => {
            let rendered = app.engine.inboxes.render_message(&auth.caller, message.id, MessageView::Plain).await?;
            let text = match rendered.body {
                RenderedBody::Plain { text } => Some(text),
                _ => None,
            };
            Ok(EntryBody { text, has_attachment: false })
        }
    }
}

/// A thread in the results of a search.
#[derive(Serialize)]
struct SearchResultBody {
    #[serde(flatten)]
    thread: ThreadBody,
    matched_email_id: Option<String>,
}

/// `GET /inboxes/{inbox}/threads/search`. Searches the latest 1,000 threads, the latest activity first.
pub(super) async fn search(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
    DialectQuery(query, ..): DialectQuery<ThreadSearchParams, ResendDialect>,
) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = find_inbox(&app, &auth, &name).await?;
    let (page, filter) = (query.threads.page().parse()?, query.threads.parse_filter()?);
    let wanted = query.parse()?;
    let mut all = all_threads(&app, &auth, inbox.id).await?;
    filter.check_labels(&all)?;
    all.retain(|thread| filter.matches(thread));
    let (mut found, mut bodies_read) = (Vec::new(), 0);
    for thread in all {
        let view = app.engine.conversations.thread_view(&auth.caller, thread.id).await?;
        if filter.read.is_some_and(|read| is_read(&view) != read) {
            continue;
        }
        if let Some(newest) = wanted.find_in(&app, &auth, &view, &mut bodies_read).await? {
            let matched_email_id = newest.map(|id| id.to_string());
            found.push((thread.id.0, SearchResultBody { thread: thread_body(&view), matched_email_id }));
        }
    }
    let PageRows { rows, has_more } = page.slice_in_order(found, |(id, _)| *id);
    Ok(list_response(PageRows { rows, has_more }, |(_, body)| body))
}
