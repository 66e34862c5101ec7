//! Received mail, from bytes to the view for a model. Everything is bounded, and equal bytes have equal results.

use mailonce_core::{limits, outbound::template::TemplateSource};
use mailonce_mail::{
    artifact::{self, Kind, MAX_CANDIDATES},
    automatic, bounce,
    html::{self, HtmlPage, MAX_ANCHORS},
    link::{self, CheckedLink, LinkPolicy, MAX_LINKS, Verdict},
    minimise,
    parse::{self, ParsedMail},
    template, thread,
};
use serde_json::{Map, json};

use super::{FuzzResult, InputOutcome, ensure_holds};

/// A mail with its HTML and links.
fn parse_mail(raw: &[u8]) -> (ParsedMail, Option<HtmlPage>, Vec<CheckedLink>) {
    let mail = parse::parse(raw);
    let page = mail.html.as_deref().map(HtmlPage::parse);
    let links = link::check_links(&mail, page.as_ref(), &link_policy());
    (mail, page, links)
}

fn link_policy() -> LinkPolicy {
    LinkPolicy { allowed_domains: vec!["allowed.example".into()], sender_domain: Some("x.example".into()) }
}

/// Single header values.
pub fn parse(raw: &[u8]) -> FuzzResult {
    let mail = parse::parse(raw);
    ensure_holds(parse::parse(raw) == mail, "the same bytes, another mail")?;
    ensure_holds(parse::digest(&mail).len() == 67, "a digest of another form")?;
    ensure_holds(mail.headers.0.len() <= parse::MAX_HEADER_FIELDS, "too many headers")?;
    let subject = &mail.subject;
    ensure_holds(subject.chars().count() <= limits::SUBJECT_CHARS, "a subject too long")?;
    ensure_holds(!subject.contains(['\r', '\n']), "a subject of two lines")?;
    for body in mail.text.iter().chain(&mail.html) {
        ensure_holds(body.len() <= parse::MAX_TEXT_BYTES + 1, "a body too long")?;
    }
    for attachment in &mail.attachments {
        ensure_holds(attachment.decode(raw).len() == attachment.size, "an attachment of another size")?;
        let name = attachment.filename.as_deref().unwrap_or("x");
        ensure_holds(
            !name.contains(['/', '\\', '\0', '\n']) && name != ".." && !name.is_empty(),
            "a file name that leads away",
        )?;
    }
    for id in mail.message_id.iter().chain(&mail.references).chain(&mail.in_reply_to) {
        let whole = id.starts_with('<') && id.ends_with('>') && !id.contains(char::is_whitespace);
        ensure_holds(whole, "a Message-ID that is none")?;
    }
    Ok(InputOutcome::accepted_if(mail.text.is_some() || mail.html.is_some()))
}

/// The wording of a template.
pub fn template(bytes: &[u8]) -> FuzzResult {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let source = TemplateSource { subject: "s".into(), html: Some(text), ..TemplateSource::default() };
    let checked = template::check(&source);
    let variables = json!({ "name": "Ada", "n": 7, "l": [1, "x", { "k": 2 }], "big": "x".repeat(10_000) });
    let rendered = template::render(&source, variables.as_object().unwrap_or(&Map::new()));
    ensure_holds(checked.is_ok() || rendered.is_err(), "a template that does not compile and is rendered")?;
    let html = rendered.ok().and_then(|rendered| rendered.html);
    ensure_holds(html.is_none_or(|html| html.len() <= template::MAX_RENDERED_BYTES), "a page beyond the limit")?;
    Ok(InputOutcome::accepted_if(checked.is_ok()))
}

/// HTML by itself.
pub fn html(bytes: &[u8]) -> FuzzResult {
    let html = String::from_utf8_lossy(bytes);
    let page = HtmlPage::parse(&html);
    ensure_holds(page.anchors.len() <= MAX_ANCHORS, "too many anchors")?;
    ensure_holds(page.hidden.chars <= html.chars().count(), "more hidden than there is")?;
    let again = HtmlPage::parse(&page.clean_html);
    ensure_holds(again.hidden.chars == 0, "what is clean hides something")?;
    ensure_holds(again.anchors.is_empty(), "what is clean links somewhere")?;
    ensure_holds(html::render(&page).len() <= 8 * html.len() + 1_024, "more words than the page has")?;
    Ok(InputOutcome::accepted_if(!page.clean_html.is_empty()))
}

/// One link, and all links of a mail.
pub fn link(bytes: &[u8]) -> FuzzResult {
    let href = String::from_utf8_lossy(bytes);
    let (url, _, reasons) = link::check_link(&href, Some(&href), &link_policy());
    let again = link::check_link(&href, Some(&href), &link_policy());
    ensure_holds(again.0 == url && again.2 == reasons, "the same link, another verdict")?;
    let (_, _, links) = parse_mail(bytes);
    ensure_holds(links.len() <= MAX_LINKS, "too many links")?;
    let mut allowed = links.iter().filter(|link| link.verdict == Verdict::Allowed);
    ensure_holds(allowed.all(|link| link.url.starts_with("https://")), "a link is allowed that is not https")?;
    Ok(InputOutcome::accepted_if(!links.is_empty()))
}

/// Codes and links that an agent waits for.
pub fn artifact(raw: &[u8]) -> FuzzResult {
    let (mail, page, links) = parse_mail(raw);
    let found = artifact::extract(&mail, page.as_ref(), &links);
    ensure_holds(found.candidates.len() <= MAX_CANDIDATES && found.decided.len() <= 2, "too many artifacts")?;
    for code in found.decided.iter().filter(|found| found.kind == Kind::Code) {
        let plain = code.value.bytes().all(|byte| byte.is_ascii_alphanumeric());
        ensure_holds(plain && (4..=12).contains(&code.value.len()), "a code that is none")?;
        let hidden = artifact::redact_text(&format!("code {} code", code.value), &found);
        ensure_holds(!hidden.contains(&code.value), "a code that shines through")?;
    }
    Ok(InputOutcome::accepted_if(!found.decided.is_empty()))
}

/// The view for a model.
pub fn minimise(raw: &[u8]) -> FuzzResult {
    let (mail, page, links) = parse_mail(raw);
    let found = artifact::extract(&mail, page.as_ref(), &links);
    let view = minimise::build_view(&mail, page.as_ref(), &found, "n0nce");
    let fences = (view.text.matches("<<<").count(), view.text.matches(">>>").count());
    ensure_holds(fences == (1, 1), "a fence that a mail can write")?;
    ensure_holds(view.text.chars().count() <= minimise::MAX_VIEW_CHARS + 60, "a view too long")?;
    Ok(InputOutcome::accepted_if(!view.text.is_empty()))
}

/// The thread of a mail.
pub fn thread(raw: &[u8]) -> FuzzResult {
    let mail = parse::parse(raw);
    let ancestors = thread::ancestors(&mail).len();
    ensure_holds(ancestors <= parse::MAX_REFERENCES, "too many ancestors")?;
    let base = thread::base_subject(&mail.subject);
    ensure_holds(thread::base_subject(&base) == base, "a base subject that has one of its own")?;
    Ok(InputOutcome::accepted_if(ancestors > 0))
}

/// Why a mail must not be answered automatically.
pub fn automatic(raw: &[u8]) -> FuzzResult {
    let mail = parse::parse(raw);
    let why = automatic::detect(&mail, Some(""));
    ensure_holds(why.is_some(), "mail with a null return path may be answered")?;
    Ok(InputOutcome::accepted_if(automatic::detect(&mail, None).is_some()))
}

/// Bounces of our own mail.
pub fn bounce(raw: &[u8]) -> FuzzResult {
    let mail = parse::parse(raw);
    let Some(bounce) = bounce::parse_bounce(raw, &mail, Some(""), "bounce+x@x.example") else {
        return Ok(InputOutcome::Rejected);
    };
    ensure_holds(bounce.recipients.len() <= bounce::MAX_RECIPIENTS, "too many recipients")?;
    for fate in &bounce.recipients {
        ensure_holds(!fate.reason.contains(char::is_control), "a reason that cannot be printed")?;
        ensure_holds(!fate.recipient.contains(|c: char| c.is_control()), "a recipient that cannot be printed")?;
    }
    Ok(InputOutcome::Accepted)
}
