//! Links in untrusted mail.

use super::*;
use crate::parse::parse;

fn policy() -> LinkPolicy {
    LinkPolicy { allowed_domains: Vec::new(), sender_domain: Some("example.com".to_owned()) }
}

#[test]
fn the_senders_own_links_are_allowed() {
    for href in ["https://app.example.com/verify?token=abc", "https://example.com/login?next=https://app.example.com/x"]
    {
        let (_, _, reasons) = check_link(href, None, &policy());
        assert_eq!(reasons, [Reason::SenderDomain], "{href}");
    }
    let (_, _, reasons) = check_link("https://example.com/", None, &LinkPolicy::default());
    assert_eq!(reasons, [Reason::ForeignDomain], "nobody was authenticated");
}

#[test]
fn the_list_ends_at_a_label() {
    let policy = LinkPolicy {
        allowed_domains: vec!["service.co.uk".to_owned(), "co.uk".to_owned()],
        sender_domain: Some("other.co.uk".to_owned()),
    };
    for (href, allowed) in [
        ("https://service.co.uk/", true),
        ("https://a.b.SERVICE.co.uk./x", true),
        ("https://evilservice.co.uk/", false),
        ("https://service.co.uk.evil.example/", false),
        ("https://other.co.uk/", false),
    ] {
        let (_, _, reasons) = check_link(href, None, &policy);
        assert_eq!(reasons.iter().all(|reason| reason.verdict() == Verdict::Allowed), allowed, "{href} {reasons:?}");
    }
}

#[test]
fn words_that_show_another_address_are_told() {
    for (text, mismatch) in [
        ("https://paypal.com/login", true),
        ("www.paypal.com", true),
        ("Log in at paypal.com now", true),
        ("paypal.com!", true),
        ("bank.example", true),
        ("example.com", false),
        ("https://www.example.com/x", false),
        ("Confirm, e.g. now. report.pdf", false),
    ] {
        let (_, _, reasons) = check_link("https://app.example.com/", Some(text), &policy());
        assert_eq!(reasons.contains(&Reason::TextMismatch), mismatch, "{text} {reasons:?}");
    }
}

#[test]
fn links_of_text_and_html_are_found_once() {
    let mail = parse(b"Subject: x\n\nSee (https://example.com/a_(b)), https://example.com/c. and <https://example.com/d>\xe3\x80\x82 Mail mailto:x@y.z");
    let urls: Vec<String> = check_links(&mail, None, &policy()).into_iter().map(|link| link.url).collect();
    assert_eq!(urls, ["https://example.com/a_(b)", "https://example.com/c", "https://example.com/d"]);

    let page = HtmlPage::parse(
        "<a href='https://example.com/v?token=a1b2c3d4e5'>Verify</a> https://example.com/v?token=a1b2c3d4e5 <a href='mailto:x@y'>w</a>",
    );
    let found = check_links(&mail, Some(&page), &policy());
    assert_eq!((found.len(), found[0].purpose), (4, Some(Purpose::Confirm)));
    assert!(found[0].confidence >= 70);
}

#[test]
fn full_stops_of_other_scripts_are_dots() {
    for text in ["www。good。com", "www．good．com", "www｡good｡com"] {
        let (_, _, reasons) = check_link("https://evil.example/", Some(text), &LinkPolicy::default());
        assert!(reasons.contains(&Reason::TextMismatch), "{text}: {reasons:?}");
    }
}
