//! The AgentMail routes for threads, of one inbox or of the whole team.

use axum::{
    http::{Method, StatusCode},
    response::IntoResponse as _,
};
use mailonce_core::{
    conversation::thread::ThreadEdit,
    id::ThreadId,
    inbox::Inbox,
    problem::{Code, Problem},
};
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::{
    AgentMailResult,
    labels::check_labels,
    messages::{MessageFilter, missing_attachment},
    no_route,
    query::page_json,
    search,
};
use crate::{
    dialects::{
        agentmail::{
            message_view, request::AgentMailRequest, thread_stream::ThreadStream, thread_view::AgentMailThread,
        },
        json as as_json,
        search_terms::TermMatch,
    },
    http::json::OneOrMany,
};

/// Maximum threads scanned per list page, per search and per ascending list.
const MAX_SCANNED: usize = 1_000;
/// Maximum emails whose bodies are read for a search.
const MAX_BODIES_READ: usize = 300;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct UpdateThreadBody {
    add_labels: OneOrMany,
    remove_labels: OneOrMany,
}

pub(super) async fn route(call: &AgentMailRequest, inbox: Option<&str>, rest: &[&str]) -> AgentMailResult {
    let inbox = match inbox {
        Some(name) => Some(call.inbox(name).await?),
        None => None,
    };
    match (&call.method, rest) {
        (&Method::GET, []) => list(call, inbox.as_ref()).await,
        (&Method::GET, ["search"]) => search(call, inbox.as_ref()).await,
        (&Method::GET, [id]) => {
            let skip = call.query.page_token::<1>()?.map_or(0, |[skip]| usize::try_from(skip).unwrap_or(usize::MAX));
            let limit = if call.query.last("limit").is_some() { call.query.limit()? } else { 100 };
            let thread = find(call, inbox.as_ref(), id).await?;
            Ok(as_json(StatusCode::OK, &thread.full_json(call, skip, limit).await?))
        }
        (&Method::GET, [id, "attachments", file]) => {
            let thread = find(call, inbox.as_ref(), id).await?;
            for mail in &thread.mails {
                if let Some(body) = mail.attachment(call, file)? {
                    return Ok(as_json(StatusCode::OK, &body));
                }
            }
            Err(missing_attachment(file).into())
        }
        (&Method::PATCH, [id]) => update(call, inbox.as_ref(), id).await,
        (&Method::DELETE, [id]) => {
            for mail in &find(call, inbox.as_ref(), id).await?.mails {
                call.engine.inboxes.hide_mail(&call.caller, message_view::entry_id(&mail.entry)).await?;
            }
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        _ => Err(no_route(call).into()),
    }
}

/// Finds the thread of a path, in the inbox of that path.
async fn find(call: &AgentMailRequest, inbox: Option<&Inbox>, text: &str) -> Result<AgentMailThread, Problem> {
    let missing = || Problem::new(Code::NotFound, format!("there is no thread {text}"));
    let thread = AgentMailThread::find(call, Uuid::try_parse(text).map_err(|_not_an_id| missing())?).await?;
    if inbox.is_some_and(|inbox| inbox.id != thread.inbox.id) { Err(missing()) } else { Ok(thread) }
}

/// Matching threads, the latest activity first, and the token of the next page.
async fn newest_threads(
    mut stream: ThreadStream<'_>,
    filter: &MessageFilter,
    limit: usize,
) -> Result<(Vec<AgentMailThread>, Option<String>), Problem> {
    let mut found = Vec::new();
    for _ in 0..MAX_SCANNED {
        if found.len() == limit {
            break;
        }
        let Some(thread) = stream.next().await? else { break };
        if thread.mails.last().is_some_and(|mail| filter.is_before_range(mail.timestamp())) {
            return Ok((found, None));
        }
        // The labels of a thread are its own and those of all its emails.
        if filter.has_labels(&thread.labels()) && thread.mails.iter().any(|mail| filter.matches_except_labels(mail)) {
            found.push(thread);
        }
    }
    Ok((found, stream.next_page_token()))
}

async fn list(call: &AgentMailRequest, inbox: Option<&Inbox>) -> AgentMailResult {
    let limit = call.query.limit()?;
    let filter = MessageFilter::parse(&call.query, "senders", "recipients")?;
    let (found, next) = if call.query.flag("ascending")? {
        let (all, rest) = newest_threads(ThreadStream::all(call, inbox), &filter, MAX_SCANNED).await?;
        call.query.paginate_oldest_first(all, rest.is_some())?
    } else {
        newest_threads(ThreadStream::after_page_token(call, inbox)?, &filter, limit).await?
    };
    let threads = found.iter().map(|thread| thread.list_item(call).into()).collect();
    Ok(as_json(StatusCode::OK, &page_json("threads", threads, limit, next)))
}

/// Threads that contain every search term. Those with more terms in sender, recipients or subject come first.
async fn search(call: &AgentMailRequest, inbox: Option<&Inbox>) -> AgentMailResult {
    let (limit, terms) = (call.query.limit()?, search::parse_terms(&call.query)?);
    let (all, _) =
        newest_threads(ThreadStream::all(call, inbox), &MessageFilter::with_defaults(&call.query)?, MAX_SCANNED)
            .await?;
    let (mut hits, mut bodies_read) = (Vec::new(), 0);
    for thread in all {
        let mut hit = TermMatch::default();
        for mail in &thread.mails {
            let text = if bodies_read < MAX_BODIES_READ { mail.content(call).await?.0 } else { Some(mail.preview()) };
            bodies_read += 1;
            search::match_message(&terms, mail, text.as_deref(), &mut hit);
        }
        if hit.has_all_terms() {
            hits.push((hit.score(), thread));
        }
    }
    hits.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    let (found, next) = call.query.paginate(hits)?;
    let threads = found.iter().map(|(_, thread)| thread.list_item(call).into()).collect();
    Ok(as_json(StatusCode::OK, &page_json("threads", threads, limit, next)))
}

async fn update(call: &AgentMailRequest, inbox: Option<&Inbox>, id: &str) -> AgentMailResult {
    let UpdateThreadBody { add_labels, remove_labels } = call.parse()?;
    check_labels(&add_labels.0, "add_labels")?;
    check_labels(&remove_labels.0, "remove_labels")?;
    let mut thread = find(call, inbox, id).await?;
    let (add, remove) = (&add_labels.0, &remove_labels.0);
    // A thread shows the labels of its emails, so a removed label is removed from them as well.
    for mail in &mut thread.mails {
        if remove.iter().any(|label| mail.labels().contains(label)) {
            mail.labels = call
                .engine
                .inboxes
                .change_labels(&call.caller, message_view::entry_id(&mail.entry), &[], remove)
                .await?;
        }
    }
    thread.thread_labels.retain(|label| !remove.contains(label));
    for label in add.iter().filter(|label| !remove.contains(label)) {
        if !thread.thread_labels.contains(label) {
            thread.thread_labels.push(label.clone());
        }
    }
    if thread.has_row {
        // Only what is asked for changes: another call may change other labels at the same time.
        let add_labels = add.iter().filter(|label| !remove.contains(label)).cloned().collect();
        let edit = ThreadEdit { add_labels, remove_labels: remove.clone(), ..ThreadEdit::default() };
        call.engine.conversations.change_thread(&call.caller, ThreadId(thread.id), edit).await?;
    } else if let Some(mail) = thread.mails.first_mut() {
        // A sent email without a reply: the thread is not stored, so the email holds the labels.
        mail.labels =
            call.engine.inboxes.change_labels(&call.caller, message_view::entry_id(&mail.entry), add, remove).await?;
    }
    Ok(as_json(StatusCode::OK, &json!({ "thread_id": thread.id.to_string(), "labels": thread.labels() })))
}
