//! Properties of received mail for any bytes: nothing panics, everything terminates, every list has a limit.

#[cfg(test)]
mod deep;
#[cfg(test)]
mod hidden;
#[cfg(test)]
mod hostile;
mod mutants;

use mailonce_mail::{
    artifact::{self, MAX_CANDIDATES},
    automatic, bounce,
    html::{HtmlPage, MAX_ANCHORS},
    link::{self, LinkPolicy, MAX_LINKS, Verdict},
    minimise,
    parse::{self, ParsedMail},
    thread,
};
use proptest::prelude::*;

/// Runs one mail through all steps and checks the results.
fn process_mail(raw: &[u8]) -> Result<(), TestCaseError> {
    let mail = parse::parse(raw);
    prop_assert_eq!(&parse::parse(raw), &mail, "the same bytes, the same mail");
    prop_assert_eq!(parse::digest(&mail).len(), 67);
    within_bounds(raw, &mail)?;
    let page = mail.html.as_deref().map(HtmlPage::parse);
    prop_assert!(page.as_ref().is_none_or(|page| page.anchors.len() <= MAX_ANCHORS));
    let links = link::check_links(
        &mail,
        page.as_ref(),
        &LinkPolicy { allowed_domains: Vec::new(), sender_domain: Some("x.example".to_owned()) },
    );
    prop_assert!(links.len() <= MAX_LINKS);
    for link in links.iter().filter(|link| link.verdict == Verdict::Allowed) {
        prop_assert!(link.url.starts_with("https://"), "{}", link.url);
    }
    let found = artifact::extract(&mail, page.as_ref(), &links);
    prop_assert!(found.candidates.len() <= MAX_CANDIDATES && found.decided.len() <= 2);
    let codes = found.decided.iter().filter(|code| code.kind == artifact::Kind::Code);
    for code in codes {
        prop_assert!(code.value.bytes().all(|b| b.is_ascii_alphanumeric()) && (4..=12).contains(&code.value.len()));
    }
    let view = minimise::build_view(&mail, page.as_ref(), &found, "n0nce");
    prop_assert_eq!((view.text.matches("<<<").count(), view.text.matches(">>>").count()), (1, 1));
    prop_assert!(view.text.chars().count() <= minimise::MAX_VIEW_CHARS + 60);
    automatic::detect(&mail, None);
    bounce::parse_bounce(raw, &mail, Some(""), "bounce+x@x.example");
    prop_assert!(thread::ancestors(&mail).len() <= parse::MAX_REFERENCES);
    thread::base_subject(&mail.subject);
    Ok(())
}

fn within_bounds(raw: &[u8], mail: &ParsedMail) -> Result<(), TestCaseError> {
    prop_assert!(mail.headers.0.len() <= parse::MAX_HEADER_FIELDS);
    prop_assert!(mail.subject.chars().count() <= 998 && !mail.subject.contains(['\r', '\n']));
    for body in mail.text.iter().chain(&mail.html) {
        prop_assert!(body.len() <= parse::MAX_TEXT_BYTES + 1);
    }
    for attachment in &mail.attachments {
        prop_assert_eq!(attachment.decode(raw).len(), attachment.size);
        let name = attachment.filename.as_deref().unwrap_or("x");
        prop_assert!(!name.contains(['/', '\\', '\0', '\n']) && name != ".." && !name.is_empty());
    }
    for id in mail.message_id.iter().chain(&mail.references).chain(&mail.in_reply_to) {
        prop_assert!(id.starts_with('<') && id.ends_with('>') && !id.contains(char::is_whitespace));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_do_not_panic(raw in proptest::collection::vec(any::<u8>(), 0..2000)) {
        process_mail(&raw)?;
    }

    #[test]
    fn mutated_mails_do_not_panic(raw in mutants::mails()) {
        process_mail(&raw)?;
    }

    #[test]
    fn random_markup_does_not_panic(html in mutants::markup()) {
        let page = HtmlPage::parse(&html);
        let hidden = page.hidden.chars;
        prop_assert!(hidden <= html.chars().count());
        let again = HtmlPage::parse(&page.clean_html);
        prop_assert_eq!(again.hidden.chars, 0, "what is clean hides nothing");
        prop_assert!(again.anchors.is_empty());
        process_mail(format!("Content-Type: text/html\n\n{html}").as_bytes())?;
    }

    #[test]
    fn random_words_and_numbers_do_not_panic(text in mutants::words()) {
        process_mail(format!("Subject: {}\nContent-Type: text/plain; charset=utf-8\n\n{text}", text.replace('\n', " ")).as_bytes())?;
    }
}

#[test]
fn hostile_mails_do_not_panic() {
    for (name, raw) in hostile::mails() {
        process_mail(&raw).unwrap_or_else(|broken| panic!("{name}: {broken}"));
    }
}
