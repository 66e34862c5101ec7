//! Threads, of one inbox or of the whole team.

use axum::{
    http::{Method, StatusCode},
    response::IntoResponse as _,
};
use mailonce_core::{
    conversation::thread::{ThreadEdit, ThreadQuery},
    id::ThreadId,
    inbox::Inbox,
    problem::{Code, FieldError, Problem},
    time::Time,
};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    Answer,
    door::Call,
    labels::check_labels,
    mail,
    messages::{Filter, no_file, place, place_token},
    no_route,
    query::token,
    talk::Talk,
};
use crate::{api::wire::OneOrMany, dialects::json as as_json};

/// Mails that are looked at for one page.
const LOOKED_AT: usize = 500;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LabelsBody {
    add_labels: OneOrMany,
    remove_labels: OneOrMany,
}

pub(super) async fn route(call: &Call, inbox: Option<&str>, rest: &[&str]) -> Answer {
    let inbox = match inbox {
        Some(name) => Some(call.inbox(name).await?),
        None => None,
    };
    match (&call.method, rest) {
        (&Method::GET, []) => list(call, inbox.as_ref(), None).await,
        (&Method::GET, ["search"]) => {
            let query = call.query.one("q").unwrap_or_default().trim().to_lowercase();
            if query.is_empty() {
                return Err(Problem::from(vec![FieldError::new("q", "is missing")]).into());
            }
            list(call, inbox.as_ref(), Some(&query)).await
        }
        (&Method::GET, [id]) => {
            let skip = call.query.page::<1>()?.map_or(0, |[skip]| usize::try_from(skip).unwrap_or(usize::MAX));
            let limit = if call.query.one("limit").is_some() { call.query.limit()? } else { 100 };
            let talk = find(call, inbox.as_ref(), id).await?;
            Ok(as_json(StatusCode::OK, &talk.whole(call, (skip, limit)).await?))
        }
        (&Method::GET, [id, "attachments", file]) => {
            let talk = find(call, inbox.as_ref(), id).await?;
            for mail in &talk.mails {
                if let Some(body) = mail.attachment(call, file)? {
                    return Ok(as_json(StatusCode::OK, &body));
                }
            }
            Err(no_file(file).into())
        }
        (&Method::PATCH, [id]) => update(call, inbox.as_ref(), id).await,
        (&Method::DELETE, [id]) => {
            for mail in &find(call, inbox.as_ref(), id).await?.mails {
                call.engine.hide_mail(&call.caller, mail::id_of(&mail.said)).await?;
            }
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        _ => Err(no_route(call).into()),
    }
}

/// The thread that a path names, in the inbox that it names.
async fn find(call: &Call, inbox: Option<&Inbox>, text: &str) -> Result<Talk, Problem> {
    let missing = || Problem::new(Code::NotFound, format!("there is no thread {text}"));
    let talk = Talk::find(call, Uuid::try_parse(text).map_err(|_not_an_id| missing())?).await?;
    if inbox.is_some_and(|inbox| inbox.id != talk.inbox.id) { Err(missing()) } else { Ok(talk) }
}

/// Whether something is said in a thread.
fn says(talk: &Talk, query: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(query);
    talk.mails.iter().any(|mail| {
        has(&mail.from())
            || has(mail.subject())
            || has(&mail.preview())
            || mail.people().concat().iter().any(|one| has(one))
    })
}

async fn list(call: &Call, inbox: Option<&Inbox>, query: Option<&str>) -> Answer {
    call.query.newest_first()?;
    let limit = call.query.limit()?;
    let filter = Filter::read(&call.query, ("senders", "recipients"))?;
    let wanted =
        |talk: &Talk| talk.mails.iter().any(|mail| filter.wants(mail)) && query.is_none_or(|query| says(talk, query));
    let (found, next) = match inbox {
        Some(inbox) => of_inbox(call, inbox, &filter, limit, wanted).await?,
        None => of_team(call, limit, wanted).await?,
    };
    let threads: Vec<Value> = found.iter().map(|talk| Value::Object(talk.item(call))).collect();
    let mut body = json!({ "count": threads.len(), "limit": limit, "threads": threads });
    if let Some(next) = next {
        body["next_page_token"] = next.into();
    }
    Ok(as_json(StatusCode::OK, &body))
}

/// Threads by their latest mail: whoever meets an older one of a thread has seen the thread before.
async fn of_inbox(
    call: &Call,
    inbox: &Inbox,
    filter: &Filter,
    limit: usize,
    wanted: impl Fn(&Talk) -> bool,
) -> Result<(Vec<Talk>, Option<String>), Problem> {
    let mut mailbox = call.engine.mailbox(&call.caller, inbox, place(&call.query)?);
    let mut found = Vec::new();
    for _ in 0..LOOKED_AT {
        if found.len() == limit {
            break;
        }
        let Some(said) = mailbox.next().await? else { break };
        if filter.is_past(said.at()) {
            return Ok((found, None));
        }
        let talk = match Talk::find(call, mail::thread_of(&said)).await {
            Ok(talk) => talk,
            Err(problem) if problem.code == Code::NotFound => continue,
            Err(problem) => return Err(problem),
        };
        let latest = talk.mails.last().map(|mail| mail::id_of(&mail.said));
        if latest == Some(mail::id_of(&said)) && wanted(&talk) {
            found.push(talk);
        }
    }
    Ok((found, mailbox.rest().map(place_token)))
}

/// Threads of every inbox that somebody answered or began, those with the latest news first.
async fn of_team(
    call: &Call,
    limit: usize,
    wanted: impl Fn(&Talk) -> bool,
) -> Result<(Vec<Talk>, Option<String>), Problem> {
    let before = call
        .query
        .page::<2>()?
        .map(|[at, id]| (Time(i64::try_from(at).unwrap_or(i64::MAX)), ThreadId(Uuid::from_u128(id))));
    let page = call.engine.threads(&call.caller, ThreadQuery { before, limit, ..ThreadQuery::default() }).await?;
    let mut found = Vec::new();
    for thread in &page.rows {
        match Talk::find(call, thread.id.0).await {
            Ok(talk) => found.extend(wanted(&talk).then_some(talk)),
            Err(problem) if problem.code == Code::NotFound => {}
            Err(problem) => return Err(problem),
        }
    }
    let next = page.next.map(|(at, id)| token(&[u128::try_from(at.0).unwrap_or_default(), id.0.as_u128()]));
    Ok((found, next))
}

async fn update(call: &Call, inbox: Option<&Inbox>, id: &str) -> Answer {
    let LabelsBody { add_labels, remove_labels } = call.parse()?;
    check_labels(&add_labels.0, "add_labels")?;
    check_labels(&remove_labels.0, "remove_labels")?;
    let mut talk = find(call, inbox, id).await?;
    let (add, remove) = (&add_labels.0, &remove_labels.0);
    // A label of a thread is one of any mail in it, so it goes from them as well.
    for mail in &mut talk.mails {
        if remove.iter().any(|label| mail.labels().contains(label)) {
            mail.labels = call.engine.relabel(&call.caller, mail::id_of(&mail.said), &[], remove).await?;
        }
    }
    talk.own.retain(|label| !remove.contains(label));
    for label in add.iter().filter(|label| !remove.contains(label)) {
        if !talk.own.contains(label) {
            talk.own.push(label.clone());
        }
    }
    if talk.has_row {
        let edit = ThreadEdit { labels: Some(talk.own.clone()), handled: None };
        call.engine.change_thread(&call.caller, ThreadId(talk.id), edit).await?;
    } else if let Some(mail) = talk.mails.first_mut() {
        // Nobody answered yet, so the mail is all there is.
        mail.labels = call.engine.relabel(&call.caller, mail::id_of(&mail.said), add, remove).await?;
    }
    Ok(as_json(StatusCode::OK, &json!({ "thread_id": talk.id.to_string(), "labels": talk.labels() })))
}
