//! Links as strangers write them.

use super::*;
use crate::parse::parse;

fn policy() -> Policy {
    Policy { allow: Vec::new(), sender: Some("example.com".to_owned()) }
}

#[track_caller]
fn check(href: &str, verdict: Verdict, reason: Reason) {
    let (url, _, reasons) = judge(href, None, &policy());
    let found = reasons.iter().map(|reason| reason.verdict()).max();
    assert_eq!(found, Some(verdict), "{href} → {url} {reasons:?}");
    assert!(reasons.contains(&reason), "{href} → {url} {reasons:?}");
}

#[test]
fn numbers_are_blocked_in_every_spelling() {
    for href in [
        "https://127.0.0.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0177.0.0.1/",
        "https://127.1/",
        "https://0x7f.1/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::ffff:7f00:1]/",
        "https://１２７.０.０.１/",
        "https://8.8.8.8/",
        "https://0/",
        "https://169.254.169.254/latest/meta-data",
        "https://127。0。0。1/",
    ] {
        check(href, Verdict::Blocked, Reason::IpAddress);
    }
}

#[test]
fn what_must_never_be_followed_is_blocked() {
    for (href, reason) in [
        ("javascript:alert(1)", Reason::Scheme),
        ("JaVa\tScript:alert(1)", Reason::Scheme),
        ("data:text/html,x", Reason::Scheme),
        ("file:///etc/passwd", Reason::Scheme),
        ("intent://x#Intent", Reason::Scheme),
        ("https://example.com@evil.example/", Reason::Userinfo),
        ("https://user:pass@example.com/", Reason::Userinfo),
        ("https://localhost/", Reason::Internal),
        ("https://router/", Reason::Internal),
        ("https://metadata.google.internal/", Reason::Internal),
        ("https://printer.local./", Reason::Internal),
        ("https://127.0.0.1.nip.io/", Reason::Internal),
        ("/relative", Reason::Unreadable),
        ("https://", Reason::Unreadable),
        ("https://example.com/login?next=http://127.0.0.1/", Reason::WrapsBlocked),
        ("https://www.google.com/url?q=javascript:alert(1)", Reason::WrapsBlocked),
    ] {
        check(href, Verdict::Blocked, reason);
    }
}

#[test]
fn what_needs_a_second_look_is_suspicious() {
    for (href, reason) in [
        ("http://example.com/", Reason::PlainHttp),
        ("https://example.com:8443/", Reason::Port),
        ("https://other.example/", Reason::ForeignDomain),
        ("https://xn--mnchen-3ya.example.com/", Reason::Punycode),
        ("https://ехаmple.com/", Reason::Confusable),
        ("https://examp1e.com/", Reason::Confusable),
        ("https://bit.ly/x", Reason::Redirector),
        ("https://www.google.com/url?q=https://evil.example/", Reason::Redirector),
        ("https://example.com/go?u=https%3A%2F%2Fevil.example", Reason::Redirector),
        ("https://example.com/go?u=//evil.example", Reason::Redirector),
        ("https:\\\\example.com\\x", Reason::Disguised),
        ("https://exam\u{200b}ple.com/", Reason::Disguised),
    ] {
        check(href, Verdict::Suspicious, reason);
    }
}

#[test]
fn the_senders_own_links_are_allowed() {
    check("https://app.example.com/verify?token=abc", Verdict::Allowed, Reason::SenderDomain);
    check("https://example.com/login?next=https://app.example.com/x", Verdict::Allowed, Reason::SenderDomain);
    let (_, _, reasons) = judge("https://example.com/", None, &Policy::default());
    assert_eq!(reasons, [Reason::ForeignDomain], "nobody was authenticated");
}

#[test]
fn the_list_ends_at_a_label() {
    let policy =
        Policy { allow: vec!["service.co.uk".to_owned(), "co.uk".to_owned()], sender: Some("other.co.uk".to_owned()) };
    for (href, allowed) in [
        ("https://service.co.uk/", true),
        ("https://a.b.SERVICE.co.uk./x", true),
        ("https://evilservice.co.uk/", false),
        ("https://service.co.uk.evil.example/", false),
        ("https://other.co.uk/", false),
    ] {
        let (_, _, reasons) = judge(href, None, &policy);
        assert_eq!(reasons.iter().all(|reason| reason.verdict() == Verdict::Allowed), allowed, "{href} {reasons:?}");
    }
}

#[test]
fn words_that_show_another_address_are_told() {
    for (text, mismatch) in [
        ("https://paypal.com/login", true),
        ("www.paypal.com", true),
        ("Log in at paypal.com now", true),
        ("example.com", false),
        ("https://www.example.com/x", false),
        ("Confirm, e.g. now. report.pdf", false),
    ] {
        let (_, _, reasons) = judge("https://app.example.com/", Some(text), &policy());
        assert_eq!(reasons.contains(&Reason::TextMismatch), mismatch, "{text} {reasons:?}");
    }
}

#[test]
fn links_of_text_and_html_are_found_once() {
    let mail = parse(b"Subject: x\n\nSee (https://example.com/a_(b)), https://example.com/c. and <https://example.com/d>\xe3\x80\x82 Mail mailto:x@y.z");
    let urls: Vec<String> = links(&mail, None, &policy()).into_iter().map(|link| link.url).collect();
    assert_eq!(urls, ["https://example.com/a_(b)", "https://example.com/c", "https://example.com/d"]);

    let page = Page::read(
        "<a href='https://example.com/v?token=a1b2c3d4e5'>Verify</a> https://example.com/v?token=a1b2c3d4e5 <a href='mailto:x@y'>w</a>",
    );
    let found = links(&mail, Some(&page), &policy());
    assert_eq!((found.len(), found[0].purpose), (4, Some(Purpose::Confirm)));
    assert!(found[0].confidence >= 70);
}
