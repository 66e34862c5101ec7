//! The AgentMail routes for the messages of an inbox: list, search, read, label, delete and answer. Received and sent
//! emails are in one list, newest first.

use axum::{
    http::{Method, StatusCode},
    response::IntoResponse as _,
};
use mailonce_core::{
    id::EmailId,
    inbox::Inbox,
    problem::{Code, Problem},
    time::Time,
};
use mailonce_engine::conversation::mailbox_reader::MailboxCursor;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    AgentMailResult,
    labels::check_labels,
    no_route,
    query::{AgentMailQuery, encode_page_token, page_json},
    search, send,
};
use crate::{
    dialects::{
        agentmail::{
            message_view::{self, AgentMailMessage},
            request::AgentMailRequest,
        },
        json as as_json,
        search_terms::TermMatch,
    },
    http::json::OneOrMany,
};

/// Maximum emails scanned per list page, per search and per ascending list.
const MAX_SCANNED: usize = 1_000;
/// Maximum emails whose bodies are read for a search.
const MAX_BODIES_READ: usize = 300;
/// Maximum message ids in one `batch-get` request.
const MAX_BATCH_GET: usize = 500;
/// Maximum message ids in one `batch-update` request.
const MAX_BATCH_UPDATE: usize = 50;

/// The body of a label change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct UpdateMessagesBody {
    message_ids: Vec<String>,
    add_labels: OneOrMany,
    remove_labels: OneOrMany,
}

impl UpdateMessagesBody {
    fn check(&self) -> Result<(), Problem> {
        if self.add_labels.0.is_empty() && self.remove_labels.0.is_empty() {
            return Err(Problem::invalid_field(
                "add_labels",
                "is missing, and so is remove_labels: give at least one of them",
            ));
        }
        check_labels(&self.add_labels.0, "add_labels")?;
        check_labels(&self.remove_labels.0, "remove_labels")
    }
}

/// The body of a request for several messages.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GetMessagesBody {
    message_ids: Vec<String>,
}

/// The route of a path below `messages`. A message id may contain slashes, so the last segments decide.
enum MessageRoute {
    Message(String),
    Action(String, &'static str),
    Attachment(String, String),
}

fn parse_route(rest: &[&str]) -> MessageRoute {
    const ACTIONS: [&str; 4] = ["reply", "reply-all", "forward", "raw"];
    match rest {
        [id @ .., "attachments", file] if !id.is_empty() => MessageRoute::Attachment(id.join("/"), (*file).to_owned()),
        [id @ .., last] if !id.is_empty() => match ACTIONS.iter().find(|action| *action == last) {
            Some(action) => MessageRoute::Action(id.join("/"), action),
            None => MessageRoute::Message(rest.join("/")),
        },
        _ => MessageRoute::Message(rest.join("/")),
    }
}

pub(super) async fn route(call: &AgentMailRequest, inbox: &str, rest: &[&str]) -> AgentMailResult {
    let inbox = &match call.inbox(inbox).await {
        Ok(found) => found,
        Err(missing) => return send::replay_for_deleted_inbox(call, inbox, rest, missing).await,
    };
    match (&call.method, rest) {
        (&Method::GET, []) => list(call, inbox).await,
        (&Method::GET, ["search"]) => search(call, inbox).await,
        (&Method::POST, ["send"]) => send::send(call, inbox).await,
        (&Method::POST, ["batch-get"]) => batch_get(call, inbox).await,
        (&Method::POST, ["batch-update"]) => batch_update(call, inbox).await,
        (_, []) => Err(no_route(call).into()),
        (method, rest) => match (method, parse_route(rest)) {
            (&Method::GET, MessageRoute::Message(id)) => {
                let mail = message_view::find(call, inbox, &id).await?;
                Ok(as_json(StatusCode::OK, &mail.full_json(call, inbox).await?))
            }
            (&Method::PATCH, MessageRoute::Message(id)) => update(call, inbox, &id).await,
            (&Method::DELETE, MessageRoute::Message(id)) => remove(call, inbox, &id).await,
            (&Method::GET, MessageRoute::Action(id, "raw")) => {
                Ok(as_json(StatusCode::OK, &message_view::find(call, inbox, &id).await?.raw_json(call)?))
            }
            (&Method::GET, MessageRoute::Attachment(id, file)) => {
                let mail = message_view::find(call, inbox, &id).await?;
                Ok(as_json(StatusCode::OK, &mail.attachment(call, &file)?.ok_or_else(|| missing_attachment(&file))?))
            }
            (&Method::POST, MessageRoute::Action(id, "reply")) => send::reply(call, inbox, &id, false).await,
            (&Method::POST, MessageRoute::Action(id, "reply-all")) => send::reply(call, inbox, &id, true).await,
            (&Method::POST, MessageRoute::Action(id, "forward")) => send::forward(call, inbox, &id).await,
            _ => Err(no_route(call).into()),
        },
    }
}

/// The 404 for an unknown attachment.
pub(super) fn missing_attachment(name: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no attachment {name}"))
}

/// Which emails a list includes.
pub(super) struct MessageFilter {
    labels: Vec<String>,
    before: Option<Time>,
    after: Option<Time>,
    from: Vec<String>,
    to: Vec<String>,
    subject: Vec<String>,
    /// Labels whose emails are left out.
    excluded_labels: Vec<&'static str>,
}

impl MessageFilter {
    pub(super) fn parse(query: &AgentMailQuery, from: &str, to: &str) -> Result<Self, Problem> {
        let lower = |name: &str| Ok::<_, Problem>(query.list(name)?.iter().map(|text| text.to_lowercase()).collect());
        let mut excluded_labels = Vec::new();
        for label in ["spam", "blocked", "unauthenticated", "trash"] {
            excluded_labels.extend((!query.flag(&format!("include_{label}"))?).then_some(label));
        }
        let labels = query.list("labels")?;
        // A request for one of these labels must not exclude it.
        excluded_labels.retain(|label| !labels.iter().any(|wanted| wanted == label));
        Ok(Self {
            labels,
            before: query.time("before")?,
            after: query.time("after")?,
            from: lower(from)?,
            to: lower(to)?,
            subject: lower("subject")?,
            excluded_labels,
        })
    }

    /// The default filter: excludes spam, blocked, unauthenticated and trash.
    pub(super) fn with_defaults(query: &AgentMailQuery) -> Result<Self, Problem> {
        let excluded_labels = vec!["spam", "blocked", "unauthenticated", "trash"];
        let (before, after) = (query.time("before")?, query.time("after")?);
        let none = Vec::new;
        Ok(Self { labels: none(), before, after, from: none(), to: none(), subject: none(), excluded_labels })
    }

    /// Whether this email, and every older one, is before the requested range.
    pub(super) fn is_before_range(&self, at: Time) -> bool {
        self.after.is_some_and(|after| at < after)
    }

    /// Whether these labels include all requested ones.
    pub(super) fn has_labels(&self, labels: &[String]) -> bool {
        self.labels.iter().all(|label| labels.contains(label))
    }

    pub(super) fn matches(&self, mail: &AgentMailMessage) -> bool {
        self.has_labels(&mail.labels()) && self.matches_except_labels(mail)
    }

    /// Whether an email matches all conditions except the requested labels.
    pub(super) fn matches_except_labels(&self, mail: &AgentMailMessage) -> bool {
        if mail.labels.hidden
            || self.before.is_some_and(|before| mail.timestamp() >= before)
            || self.after.is_some_and(|after| mail.timestamp() <= after)
        {
            return false;
        }
        let labels = mail.labels();
        let all = |wanted: &[String], text: &str| {
            let text = text.to_lowercase();
            wanted.iter().all(|part| text.contains(part.as_str()))
        };
        !labels.iter().any(|label| self.excluded_labels.contains(&label.as_str()))
            && all(&self.from, &mail.from())
            && all(&self.to, &mail.recipients().concat().join(" "))
            && all(&self.subject, mail.subject())
    }
}

/// The cursor that a page begins at.
pub(super) fn parse_page_token(query: &AgentMailQuery) -> Result<MailboxCursor, Problem> {
    let Some([message, email]) = query.page_token::<2>()? else { return Ok(MailboxCursor::default()) };
    let email = (email != 0).then(|| EmailId(Uuid::from_u128(email)));
    Ok(MailboxCursor { message: u64::try_from(message).unwrap_or(u64::MAX), email })
}

pub(super) fn page_token(cursor: MailboxCursor) -> String {
    encode_page_token(&[u128::from(cursor.message), cursor.email.map_or(0, |id| id.0.as_u128())])
}

/// Matching emails, newest first, and the cursor of the next page.
async fn newest_messages(
    call: &AgentMailRequest,
    inbox: &Inbox,
    filter: &MessageFilter,
    cursor: MailboxCursor,
    limit: usize,
) -> Result<(Vec<AgentMailMessage>, Option<MailboxCursor>), Problem> {
    let mut mailbox = call.engine.conversations.read_mailbox(&call.caller, inbox, cursor);
    let mut found = Vec::new();
    for _ in 0..MAX_SCANNED {
        if found.len() == limit {
            break;
        }
        let Some(entry) = mailbox.next().await? else { break };
        if filter.is_before_range(entry.at()) {
            return Ok((found, None));
        }
        let mail = AgentMailMessage::load(call, entry).await?;
        if filter.matches(&mail) {
            found.push(mail);
        }
    }
    Ok((found, mailbox.next_cursor()))
}

async fn list(call: &AgentMailRequest, inbox: &Inbox) -> AgentMailResult {
    let filter = MessageFilter::parse(&call.query, "from", "to")?;
    let limit = call.query.limit()?;
    let (found, next) = if call.query.flag("ascending")? {
        let (all, rest) = newest_messages(call, inbox, &filter, MailboxCursor::default(), MAX_SCANNED).await?;
        call.query.paginate_oldest_first(all, rest.is_some())?
    } else {
        let (found, rest) = newest_messages(call, inbox, &filter, parse_page_token(&call.query)?, limit).await?;
        (found, rest.map(page_token))
    };
    let messages = found.iter().map(|mail| mail.list_item(&mail.public_id(call), inbox).into()).collect();
    Ok(as_json(StatusCode::OK, &page_json("messages", messages, limit, next)))
}

/// Emails that contain every search term. Those with more terms in sender, recipients or subject come first.
async fn search(call: &AgentMailRequest, inbox: &Inbox) -> AgentMailResult {
    let (limit, terms) = (call.query.limit()?, search::parse_terms(&call.query)?);
    let filter = MessageFilter::with_defaults(&call.query)?;
    let (all, _) = newest_messages(call, inbox, &filter, MailboxCursor::default(), MAX_SCANNED).await?;
    let mut hits = Vec::new();
    for (number, mail) in all.iter().enumerate() {
        let text = if number < MAX_BODIES_READ { mail.content(call).await?.0 } else { Some(mail.preview()) };
        let mut hit = TermMatch::default();
        search::match_message(&terms, mail, text.as_deref(), &mut hit);
        if hit.has_all_terms() {
            let mut item = mail.list_item(&mail.public_id(call), inbox);
            item.insert("highlights".to_owned(), search::highlights(&terms, mail, text.as_deref()));
            hits.push((hit.score(), Value::Object(item)));
        }
    }
    hits.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    let (found, next) = call.query.paginate(hits.into_iter().map(|(_, item)| item).collect())?;
    Ok(as_json(StatusCode::OK, &page_json("messages", found, limit, next)))
}

fn check_ids(ids: &[String], max: usize) -> Result<(), Problem> {
    if (1..=max).contains(&ids.len()) {
        return Ok(());
    }
    Err(Problem::invalid_field("message_ids", format!("must hold 1 to {max} ids")))
}

/// The emails with these ids, in that order. Unknown ids are skipped.
async fn find_all(call: &AgentMailRequest, inbox: &Inbox, ids: &[String]) -> Result<Vec<AgentMailMessage>, Problem> {
    let mut found = Vec::new();
    for id in ids {
        match message_view::find(call, inbox, id).await {
            Ok(mail) => found.push(mail),
            Err(problem) if problem.code == Code::NotFound => {}
            Err(problem) => return Err(problem),
        }
    }
    Ok(found)
}

async fn batch_get(call: &AgentMailRequest, inbox: &Inbox) -> AgentMailResult {
    let GetMessagesBody { message_ids } = call.parse()?;
    check_ids(&message_ids, MAX_BATCH_GET)?;
    let found = find_all(call, inbox, &message_ids).await?;
    let messages: Vec<_> = found.iter().map(|mail| mail.list_item(&mail.public_id(call), inbox)).collect();
    let body = json!({ "limit": message_ids.len(), "count": messages.len(), "messages": messages });
    Ok(as_json(StatusCode::OK, &body))
}

async fn update_labels(
    call: &AgentMailRequest,
    mut mail: AgentMailMessage,
    body: &UpdateMessagesBody,
) -> Result<Value, Problem> {
    let (add, remove) = (&body.add_labels.0, &body.remove_labels.0);
    mail.labels =
        call.engine.inboxes.change_labels(&call.caller, message_view::entry_id(&mail.entry), add, remove).await?;
    Ok(json!({ "message_id": message_view::public_id(call, &mail.entry), "labels": mail.labels() }))
}

async fn batch_update(call: &AgentMailRequest, inbox: &Inbox) -> AgentMailResult {
    let body: UpdateMessagesBody = call.parse()?;
    check_ids(&body.message_ids, MAX_BATCH_UPDATE)?;
    body.check()?;
    let mut updates = Vec::new();
    for mail in find_all(call, inbox, &body.message_ids).await? {
        updates.push(update_labels(call, mail, &body).await?);
    }
    let body = json!({ "limit": body.message_ids.len(), "count": updates.len(), "updates": updates });
    Ok(as_json(StatusCode::OK, &body))
}

async fn update(call: &AgentMailRequest, inbox: &Inbox, id: &str) -> AgentMailResult {
    let body: UpdateMessagesBody = call.parse()?;
    body.check()?;
    let mail = message_view::find(call, inbox, id).await?;
    Ok(as_json(StatusCode::OK, &update_labels(call, mail, &body).await?))
}

async fn remove(call: &AgentMailRequest, inbox: &Inbox, id: &str) -> AgentMailResult {
    let mail = message_view::find(call, inbox, id).await?;
    call.engine.inboxes.hide_mail(&call.caller, message_view::entry_id(&mail.entry)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_path_decide_what_is_asked() {
        let describe = |rest: &[&str]| match parse_route(rest) {
            MessageRoute::Message(id) => id,
            MessageRoute::Action(id, action) => format!("{action} {id}"),
            MessageRoute::Attachment(id, file) => format!("{file} of {id}"),
        };
        assert_eq!(describe(&["<a@b>"]), "<a@b>");
        assert_eq!(describe(&["<a", "b@c>"]), "<a/b@c>");
        assert_eq!(describe(&["<a", "b@c>", "reply"]), "reply <a/b@c>");
        assert_eq!(describe(&["<a@b>", "reply-all"]), "reply-all <a@b>");
        assert_eq!(describe(&["<a", "b@c>", "attachments", "7"]), "7 of <a/b@c>");
        assert_eq!(describe(&["reply"]), "reply");
    }
}
