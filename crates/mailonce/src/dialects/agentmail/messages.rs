//! Messages of an inbox: both directions in one list, newest first, labelled, searched, read and answered.

use axum::{
    http::{Method, StatusCode},
    response::IntoResponse as _,
};
use mailonce_core::{
    id::EmailId,
    inbox::Inbox,
    problem::{Code, FieldError, Problem},
    time::Time,
};
use mailonce_engine::mailbox::MailPlace;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    Answer,
    door::Call,
    labels::check_labels,
    mail::{self, Mail},
    no_route,
    query::{Query, listed, token},
    search::{Hit, Words},
    send,
};
use crate::{api::wire::OneOrMany, dialects::json as as_json};

/// Mails that are looked through for a search, and for a list that begins with the oldest.
const LOOKED_AT: usize = 1_000;
/// Mails whose words are read for a search.
const READ: usize = 300;
/// Messages of one call that gets, and of one that changes.
const GOT: usize = 500;
const CHANGED: usize = 50;

/// A change of labels.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct LabelsBody {
    message_ids: Vec<String>,
    add_labels: OneOrMany,
    remove_labels: OneOrMany,
}

impl LabelsBody {
    fn check(&self) -> Result<(), Problem> {
        if self.add_labels.0.is_empty() && self.remove_labels.0.is_empty() {
            return Err(fault("add_labels", "is missing, and so is remove_labels"));
        }
        check_labels(&self.add_labels.0, "add_labels")?;
        check_labels(&self.remove_labels.0, "remove_labels")
    }
}

/// Messages by their ids.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IdsBody {
    message_ids: Vec<String>,
}

fn fault(path: &str, text: &str) -> Problem {
    Problem::from(vec![FieldError::new(path, text)])
}

/// What a path below `messages` asks for: an id may have slashes in it, so its ends decide.
enum Asked {
    Message(String),
    Deed(String, &'static str),
    Attachment(String, String),
}

fn asked(rest: &[&str]) -> Asked {
    const DEEDS: [&str; 4] = ["reply", "reply-all", "forward", "raw"];
    match rest {
        [id @ .., "attachments", file] if !id.is_empty() => Asked::Attachment(id.join("/"), (*file).to_owned()),
        [id @ .., last] if !id.is_empty() => match DEEDS.iter().find(|deed| *deed == last) {
            Some(deed) => Asked::Deed(id.join("/"), deed),
            None => Asked::Message(rest.join("/")),
        },
        _ => Asked::Message(rest.join("/")),
    }
}

pub(super) async fn route(call: &Call, inbox: &str, rest: &[&str]) -> Answer {
    let inbox = &match call.inbox(inbox).await {
        Ok(found) => found,
        Err(missing) => return send::from_gone(call, inbox, rest, missing).await,
    };
    match (&call.method, rest) {
        (&Method::GET, []) => list(call, inbox).await,
        (&Method::GET, ["search"]) => search(call, inbox).await,
        (&Method::POST, ["send"]) => send::send(call, inbox).await,
        (&Method::POST, ["batch-get"]) => batch_get(call, inbox).await,
        (&Method::POST, ["batch-update"]) => batch_update(call, inbox).await,
        (_, []) => Err(no_route(call).into()),
        (method, rest) => match (method, asked(rest)) {
            (&Method::GET, Asked::Message(id)) => {
                let mail = mail::find(call, inbox, &id).await?;
                Ok(as_json(StatusCode::OK, &mail.whole(call, inbox).await?))
            }
            (&Method::PATCH, Asked::Message(id)) => update(call, inbox, &id).await,
            (&Method::DELETE, Asked::Message(id)) => remove(call, inbox, &id).await,
            (&Method::GET, Asked::Deed(id, "raw")) => {
                Ok(as_json(StatusCode::OK, &mail::find(call, inbox, &id).await?.raw(call)?))
            }
            (&Method::GET, Asked::Attachment(id, file)) => {
                let mail = mail::find(call, inbox, &id).await?;
                Ok(as_json(StatusCode::OK, &mail.attachment(call, &file)?.ok_or_else(|| no_file(&file))?))
            }
            (&Method::POST, Asked::Deed(id, "reply")) => send::reply(call, inbox, &id, false).await,
            (&Method::POST, Asked::Deed(id, "reply-all")) => send::reply(call, inbox, &id, true).await,
            (&Method::POST, Asked::Deed(id, "forward")) => send::forward(call, inbox, &id).await,
            _ => Err(no_route(call).into()),
        },
    }
}

/// The problem of a file that a mail does not have.
pub(super) fn no_file(name: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no attachment {name}"))
}

/// Which mails of a list are wanted.
pub(super) struct Filter {
    labels: Vec<String>,
    before: Option<Time>,
    after: Option<Time>,
    from: Vec<String>,
    to: Vec<String>,
    subject: Vec<String>,
    /// Labels that keep a mail out of lists.
    shut: Vec<&'static str>,
}

impl Filter {
    pub(super) fn read(query: &Query, (from, to): (&str, &str)) -> Result<Self, Problem> {
        let lower = |name: &str| Ok::<_, Problem>(query.list(name)?.iter().map(|text| text.to_lowercase()).collect());
        let mut shut = Vec::new();
        for label in ["spam", "blocked", "unauthenticated", "trash"] {
            shut.extend((!query.flag(&format!("include_{label}"))?).then_some(label));
        }
        let labels = query.list("labels")?;
        // Whoever asks for a label wants mails that have it.
        shut.retain(|label| !labels.iter().any(|wanted| wanted == label));
        Ok(Self {
            labels,
            before: query.time("before")?,
            after: query.time("after")?,
            from: lower(from)?,
            to: lower(to)?,
            subject: lower("subject")?,
            shut,
        })
    }

    /// Everything that is shown without asking.
    pub(super) fn usual(query: &Query) -> Result<Self, Problem> {
        let shut = vec!["spam", "blocked", "unauthenticated", "trash"];
        let (before, after) = (query.time("before")?, query.time("after")?);
        let none = Vec::new;
        Ok(Self { labels: none(), before, after, from: none(), to: none(), subject: none(), shut })
    }

    /// Whether nothing older can be wanted.
    pub(super) fn is_past(&self, at: Time) -> bool {
        self.after.is_some_and(|after| at < after)
    }

    /// Whether these labels are all that are asked for, or more.
    pub(super) fn has_labels(&self, labels: &[String]) -> bool {
        self.labels.iter().all(|label| labels.contains(label))
    }

    pub(super) fn wants(&self, mail: &Mail) -> bool {
        self.has_labels(&mail.labels()) && self.fits(mail)
    }

    /// Whether a mail is wanted, its labels apart.
    pub(super) fn fits(&self, mail: &Mail) -> bool {
        if mail.labels.hidden
            || self.before.is_some_and(|before| mail.at() >= before)
            || self.after.is_some_and(|after| mail.at() <= after)
        {
            return false;
        }
        let labels = mail.labels();
        let all = |wanted: &[String], text: &str| {
            let text = text.to_lowercase();
            wanted.iter().all(|part| text.contains(part.as_str()))
        };
        !labels.iter().any(|label| self.shut.contains(&label.as_str()))
            && all(&self.from, &mail.from())
            && all(&self.to, &mail.people().concat().join(" "))
            && all(&self.subject, mail.subject())
    }
}

/// The place that a page begins at.
pub(super) fn place(query: &Query) -> Result<MailPlace, Problem> {
    let Some([message, email]) = query.page::<2>()? else { return Ok(MailPlace::default()) };
    let email = (email != 0).then(|| EmailId(Uuid::from_u128(email)));
    Ok(MailPlace { message: u64::try_from(message).unwrap_or(u64::MAX), email })
}

pub(super) fn place_token(place: MailPlace) -> String {
    token(&[u128::from(place.message), place.email.map_or(0, |id| id.0.as_u128())])
}

/// Wanted mails, newest first, and where to go on.
async fn newest(
    call: &Call,
    inbox: &Inbox,
    filter: &Filter,
    (place, limit): (MailPlace, usize),
) -> Result<(Vec<Mail>, Option<MailPlace>), Problem> {
    let mut mailbox = call.engine.mailbox(&call.caller, inbox, place);
    let mut found = Vec::new();
    for _ in 0..LOOKED_AT {
        if found.len() == limit {
            break;
        }
        let Some(said) = mailbox.next().await? else { break };
        if filter.is_past(said.at()) {
            return Ok((found, None));
        }
        let mail = Mail::of(call, said).await?;
        if filter.wants(&mail) {
            found.push(mail);
        }
    }
    Ok((found, mailbox.rest()))
}

async fn list(call: &Call, inbox: &Inbox) -> Answer {
    let filter = Filter::read(&call.query, ("from", "to"))?;
    let limit = call.query.limit()?;
    let (found, next) = if call.query.flag("ascending")? {
        let (all, rest) = newest(call, inbox, &filter, (MailPlace::default(), LOOKED_AT)).await?;
        call.query.turned(all, rest.is_some())?
    } else {
        let (found, rest) = newest(call, inbox, &filter, (place(&call.query)?, limit)).await?;
        (found, rest.map(place_token))
    };
    let messages = found.iter().map(|mail| mail.item(&mail.name(call), inbox).into()).collect();
    Ok(as_json(StatusCode::OK, &listed("messages", messages, limit, next)))
}

/// Mails in which every word is said, those that say more of them in their heads first.
async fn search(call: &Call, inbox: &Inbox) -> Answer {
    let (limit, words) = (call.query.limit()?, Words::read(&call.query)?);
    let filter = Filter::usual(&call.query)?;
    let (all, _) = newest(call, inbox, &filter, (MailPlace::default(), LOOKED_AT)).await?;
    let mut hits = Vec::new();
    for (number, mail) in all.iter().enumerate() {
        let text = if number < READ { mail.words(call).await?.0 } else { Some(mail.preview()) };
        let mut hit = Hit::default();
        words.look(mail, text.as_deref(), &mut hit);
        if hit.is_whole() {
            let mut item = mail.item(&mail.name(call), inbox);
            item.insert("highlights".to_owned(), words.highlights(mail, text.as_deref()));
            hits.push((hit.worth(), Value::Object(item)));
        }
    }
    hits.sort_by_key(|(worth, _)| std::cmp::Reverse(*worth));
    let (found, next) = call.query.page_of(hits.into_iter().map(|(_, item)| item).collect())?;
    Ok(as_json(StatusCode::OK, &listed("messages", found, limit, next)))
}

fn check_ids(ids: &[String], most: usize) -> Result<(), Problem> {
    if (1..=most).contains(&ids.len()) {
        return Ok(());
    }
    Err(fault("message_ids", &format!("must hold 1 to {most} ids")))
}

/// The mails that are there, in the order of their ids.
async fn those(call: &Call, inbox: &Inbox, ids: &[String]) -> Result<Vec<Mail>, Problem> {
    let mut found = Vec::new();
    for id in ids {
        match mail::find(call, inbox, id).await {
            Ok(mail) => found.push(mail),
            Err(problem) if problem.code == Code::NotFound => {}
            Err(problem) => return Err(problem),
        }
    }
    Ok(found)
}

async fn batch_get(call: &Call, inbox: &Inbox) -> Answer {
    let IdsBody { message_ids } = call.parse()?;
    check_ids(&message_ids, GOT)?;
    let found = those(call, inbox, &message_ids).await?;
    let messages: Vec<_> = found.iter().map(|mail| mail.item(&mail.name(call), inbox)).collect();
    let body = json!({ "limit": message_ids.len(), "count": messages.len(), "messages": messages });
    Ok(as_json(StatusCode::OK, &body))
}

async fn relabelled(call: &Call, mut mail: Mail, body: &LabelsBody) -> Result<Value, Problem> {
    let (add, remove) = (&body.add_labels.0, &body.remove_labels.0);
    mail.labels = call.engine.relabel(&call.caller, mail::id_of(&mail.said), add, remove).await?;
    Ok(json!({ "message_id": mail::name_of(call, &mail.said), "labels": mail.labels() }))
}

async fn batch_update(call: &Call, inbox: &Inbox) -> Answer {
    let body: LabelsBody = call.parse()?;
    check_ids(&body.message_ids, CHANGED)?;
    body.check()?;
    let mut updates = Vec::new();
    for mail in those(call, inbox, &body.message_ids).await? {
        updates.push(relabelled(call, mail, &body).await?);
    }
    let body = json!({ "limit": body.message_ids.len(), "count": updates.len(), "updates": updates });
    Ok(as_json(StatusCode::OK, &body))
}

async fn update(call: &Call, inbox: &Inbox, id: &str) -> Answer {
    let body: LabelsBody = call.parse()?;
    body.check()?;
    let mail = mail::find(call, inbox, id).await?;
    Ok(as_json(StatusCode::OK, &relabelled(call, mail, &body).await?))
}

async fn remove(call: &Call, inbox: &Inbox, id: &str) -> Answer {
    let mail = mail::find(call, inbox, id).await?;
    call.engine.hide_mail(&call.caller, mail::id_of(&mail.said)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_path_decide_what_is_asked() {
        let told = |rest: &[&str]| match asked(rest) {
            Asked::Message(id) => id,
            Asked::Deed(id, deed) => format!("{deed} {id}"),
            Asked::Attachment(id, file) => format!("{file} of {id}"),
        };
        assert_eq!(told(&["<a@b>"]), "<a@b>");
        assert_eq!(told(&["<a", "b@c>"]), "<a/b@c>");
        assert_eq!(told(&["<a", "b@c>", "reply"]), "reply <a/b@c>");
        assert_eq!(told(&["<a@b>", "reply-all"]), "reply-all <a@b>");
        assert_eq!(told(&["<a", "b@c>", "attachments", "7"]), "7 of <a/b@c>");
        assert_eq!(told(&["reply"]), "reply");
    }
}
