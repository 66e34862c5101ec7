//! Received mail, from bytes to the view that a model is shown. Everything has a bound, and the same bytes mean the same.

use mailonce_core::limits;
use mailonce_mail::{
    artifact::{self, CANDIDATES, Kind},
    automatic, bounce,
    html::{self, ANCHORS, Page},
    link::{self, LINKS, Link, Policy, Verdict},
    minimise,
    parse::{self, Parsed},
    thread,
};

use super::{Came, Check, holds};

/// A mail with its page and its links.
fn read(raw: &[u8]) -> (Parsed, Option<Page>, Vec<Link>) {
    let mail = parse::parse(raw);
    let page = mail.html.as_deref().map(Page::read);
    let links = link::links(&mail, page.as_ref(), &policy());
    (mail, page, links)
}

fn policy() -> Policy {
    Policy { allow: vec!["allowed.example".into()], sender: Some("x.example".into()) }
}

/// Bytes as values.
pub fn parse(raw: &[u8]) -> Check {
    let mail = parse::parse(raw);
    holds(parse::parse(raw) == mail, "the same bytes, another mail")?;
    holds(parse::digest(&mail).len() == 67, "a digest of another form")?;
    holds(mail.headers.0.len() <= parse::FIELDS, "too many headers")?;
    let subject = &mail.subject;
    holds(subject.chars().count() <= limits::SUBJECT_CHARS, "a subject too long")?;
    holds(!subject.contains(['\r', '\n']), "a subject of two lines")?;
    for body in mail.text.iter().chain(&mail.html) {
        holds(body.len() <= parse::TEXT_BYTES + 1, "a body too long")?;
    }
    for attachment in &mail.attachments {
        holds(attachment.bytes(raw).len() == attachment.size, "an attachment of another size")?;
        let name = attachment.filename.as_deref().unwrap_or("x");
        holds(
            !name.contains(['/', '\\', '\0', '\n']) && name != ".." && !name.is_empty(),
            "a file name that leads away",
        )?;
    }
    for id in mail.message_id.iter().chain(&mail.references).chain(&mail.in_reply_to) {
        let whole = id.starts_with('<') && id.ends_with('>') && !id.contains(char::is_whitespace);
        holds(whole, "a Message-ID that is none")?;
    }
    Ok(Came::through(mail.text.is_some() || mail.html.is_some()))
}

/// HTML by itself.
pub fn html(bytes: &[u8]) -> Check {
    let html = String::from_utf8_lossy(bytes);
    let page = Page::read(&html);
    holds(page.anchors.len() <= ANCHORS, "too many anchors")?;
    holds(page.hidden.chars <= html.chars().count(), "more hidden than there is")?;
    let again = Page::read(&page.clean);
    holds(again.hidden.chars == 0, "what is clean hides something")?;
    holds(again.anchors.is_empty(), "what is clean links somewhere")?;
    holds(html::render(&page).len() <= 8 * html.len() + 1_024, "more words than the page has")?;
    Ok(Came::through(!page.clean.is_empty()))
}

/// One link, and all of a mail.
pub fn link(bytes: &[u8]) -> Check {
    let href = String::from_utf8_lossy(bytes);
    let (url, _, reasons) = link::judge(&href, Some(&href), &policy());
    let again = link::judge(&href, Some(&href), &policy());
    holds(again.0 == url && again.2 == reasons, "the same link, another verdict")?;
    let (_, _, links) = read(bytes);
    holds(links.len() <= LINKS, "too many links")?;
    let mut allowed = links.iter().filter(|link| link.verdict == Verdict::Allowed);
    holds(allowed.all(|link| link.url.starts_with("https://")), "a link is allowed that is not https")?;
    Ok(Came::through(!links.is_empty()))
}

/// Codes and links that an agent waits for.
pub fn artifact(raw: &[u8]) -> Check {
    let (mail, page, links) = read(raw);
    let found = artifact::find(&mail, page.as_ref(), &links);
    holds(found.candidates.len() <= CANDIDATES && found.decided.len() <= 2, "too many artifacts")?;
    for code in found.decided.iter().filter(|found| found.kind == Kind::Code) {
        let plain = code.value.bytes().all(|byte| byte.is_ascii_alphanumeric());
        holds(plain && (4..=12).contains(&code.value.len()), "a code that is none")?;
        let hidden = artifact::hide(&format!("code {} code", code.value), &found);
        holds(!hidden.contains(&code.value), "a code that shines through")?;
    }
    Ok(Came::through(!found.decided.is_empty()))
}

/// The view that a model is shown.
pub fn minimise(raw: &[u8]) -> Check {
    let (mail, page, links) = read(raw);
    let found = artifact::find(&mail, page.as_ref(), &links);
    let view = minimise::view(&mail, page.as_ref(), &found, "n0nce");
    let fences = (view.text.matches("<<<").count(), view.text.matches(">>>").count());
    holds(fences == (1, 1), "a fence that a mail can write")?;
    holds(view.text.chars().count() <= minimise::VIEW_CHARS + 60, "a view too long")?;
    Ok(Came::through(!view.text.is_empty()))
}

/// Which thread a mail belongs to.
pub fn thread(raw: &[u8]) -> Check {
    let mail = parse::parse(raw);
    let ancestors = thread::ancestors(&mail).len();
    holds(ancestors <= parse::REFERENCES, "too many ancestors")?;
    let base = thread::base_subject(&mail.subject);
    holds(thread::base_subject(&base) == base, "a base subject that has one of its own")?;
    Ok(Came::through(ancestors > 0))
}

/// Why a machine must not answer.
pub fn automatic(raw: &[u8]) -> Check {
    let mail = parse::parse(raw);
    let why = automatic::why(&mail, Some(""));
    holds(why.is_some(), "mail with a null return path may be answered")?;
    Ok(Came::through(automatic::why(&mail, None).is_some()))
}

/// What became of our own mail.
pub fn bounce(raw: &[u8]) -> Check {
    let mail = parse::parse(raw);
    let Some(bounce) = bounce::read(raw, &mail, Some(""), "bounce+x@x.example") else { return Ok(Came::Short) };
    holds(bounce.recipients.len() <= bounce::RECIPIENTS, "too many recipients")?;
    for fate in &bounce.recipients {
        holds(!fate.reason.contains(char::is_control), "a reason that cannot be printed")?;
        holds(!fate.recipient.contains(|c: char| c.is_control()), "a recipient that cannot be printed")?;
    }
    Ok(Came::Through)
}
