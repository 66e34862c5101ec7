//! Hostile links, each with its verdict and a reason that must be reported.

use super::{
    LinkPolicy, Reason, Verdict,
    Verdict::{Blocked, Suspicious},
    check_link,
};

/// The sender is `example.com`.
const HOSTILE: &[(&str, Verdict, Reason)] = &[
    // IP addresses, in every notation that browsers accept.
    ("https://127.0.0.1/", Blocked, Reason::IpAddress),
    ("https://127.0.0.1./", Blocked, Reason::IpAddress),
    ("http://127.0.0.1:6245/v1/emails", Blocked, Reason::IpAddress),
    ("https://2130706433/", Blocked, Reason::IpAddress),
    ("https://0x7f000001/", Blocked, Reason::IpAddress),
    ("https://017700000001/", Blocked, Reason::IpAddress),
    ("https://0177.0.0.1/", Blocked, Reason::IpAddress),
    ("https://0x7f.0x0.0x0.0x1/", Blocked, Reason::IpAddress),
    ("https://127.1/", Blocked, Reason::IpAddress),
    ("https://0x7f.1/", Blocked, Reason::IpAddress),
    ("https://%31%32%37.0.0.1/", Blocked, Reason::IpAddress),
    ("https://１２７.０.０.１/", Blocked, Reason::IpAddress),
    ("https://①②⑦.⓪.⓪.①/", Blocked, Reason::IpAddress),
    ("https://127。0。0。1/", Blocked, Reason::IpAddress),
    ("https://8.8.8.8/", Blocked, Reason::IpAddress),
    ("https://0/", Blocked, Reason::IpAddress),
    ("https://169.254.169.254/latest/meta-data", Blocked, Reason::IpAddress),
    ("https://[::1]/", Blocked, Reason::IpAddress),
    ("https://[::]/", Blocked, Reason::IpAddress),
    ("https://[fe80::1]/", Blocked, Reason::IpAddress),
    ("https://[::ffff:127.0.0.1]/", Blocked, Reason::IpAddress),
    ("https://[::ffff:7f00:1]/", Blocked, Reason::IpAddress),
    // Schemes other than `http` and `https`.
    ("javascript:alert(1)", Blocked, Reason::Scheme),
    ("JaVa\tScript:alert(1)", Blocked, Reason::Scheme),
    ("\u{1}javascript:alert(1)", Blocked, Reason::Scheme),
    ("java\u{200b}script:alert(1)", Blocked, Reason::Scheme),
    ("vbscript:msgbox(1)", Blocked, Reason::Scheme),
    ("data:text/html,x", Blocked, Reason::Scheme),
    ("blob:https://example.com/x", Blocked, Reason::Scheme),
    ("file:///etc/passwd", Blocked, Reason::Scheme),
    ("ftp://example.com/", Blocked, Reason::Scheme),
    ("intent://x#Intent", Blocked, Reason::Scheme),
    // A user name before the host that looks like the host.
    ("https://example.com@evil.example/", Blocked, Reason::Userinfo),
    ("https://example.com:443@evil.example/", Blocked, Reason::Userinfo),
    ("https://example.com%2f@evil.example/", Blocked, Reason::Userinfo),
    ("https://user:pass@example.com/", Blocked, Reason::Userinfo),
    // Hosts of internal networks.
    ("https://localhost/", Blocked, Reason::Internal),
    ("https://router/", Blocked, Reason::Internal),
    ("https://metadata.google.internal/", Blocked, Reason::Internal),
    ("https://printer.local./", Blocked, Reason::Internal),
    ("https://api.default.svc.cluster.local/", Blocked, Reason::Internal),
    ("https://hidden.onion/", Blocked, Reason::Internal),
    ("https://127.0.0.1.nip.io/", Blocked, Reason::Internal),
    ("https://app.localtest.me/", Blocked, Reason::Internal),
    // URLs that a browser cannot open.
    ("/relative", Blocked, Reason::Unreadable),
    ("https://", Blocked, Reason::Unreadable),
    ("https://example.com%40evil.example/", Blocked, Reason::Unreadable),
    ("https://exam ple.com/", Blocked, Reason::Unreadable),
    // A harmless link that contains a blocked one.
    ("https://example.com/login?next=http://127.0.0.1/", Blocked, Reason::WrapsBlocked),
    ("https://example.com/login?next=https://[::1]/", Blocked, Reason::WrapsBlocked),
    ("https://example.com/r?to=data:text/html,x", Blocked, Reason::WrapsBlocked),
    ("https://www.google.com/url?q=javascript:alert(1)", Blocked, Reason::WrapsBlocked),
    (
        "https://www.google.com/url?q=https%3A%2F%2Fwww.google.com%2Furl%3Fq%3Dhttp%3A%2F%2F127.0.0.1",
        Blocked,
        Reason::WrapsBlocked,
    ),
    // Redirects.
    ("https://bit.ly/x", Suspicious, Reason::Redirector),
    ("https://www.google.com/url?q=https://evil.example/", Suspicious, Reason::Redirector),
    ("https://example.com/go?u=https%3A%2F%2Fevil.example", Suspicious, Reason::Redirector),
    ("https://example.com/go?u=//evil.example", Suspicious, Reason::Redirector),
    ("https://nam02.safelinks.protection.outlook.com/?url=https%3A%2F%2Fevil.example", Suspicious, Reason::Redirector),
    ("https://urldefense.com/v3/__https://evil.example/__;!!x", Suspicious, Reason::Redirector),
    // Not the sender's domain, although it may look like it.
    ("https://other.example/", Suspicious, Reason::ForeignDomain),
    ("https://example.com.evil.example/", Suspicious, Reason::ForeignDomain),
    ("https://evilexample.com/", Suspicious, Reason::ForeignDomain),
    ("https:///evil.example/", Suspicious, Reason::ForeignDomain),
    ("//evil.example/", Suspicious, Reason::ForeignDomain),
    ("https://xn--mnchen-3ya.example.com/", Suspicious, Reason::Punycode),
    ("https://xn--e1awd7f.com/", Suspicious, Reason::Punycode),
    ("https://ехаmple.com/", Suspicious, Reason::Confusable),
    ("https://examp1e.com/", Suspicious, Reason::Confusable),
    ("http://example.com/", Suspicious, Reason::PlainHttp),
    ("https://example.com:8443/", Suspicious, Reason::Port),
    // Written so that a reader sees another link than a browser opens.
    ("https:\\\\example.com\\x", Suspicious, Reason::Disguised),
    ("https://exam\u{200b}ple.com/", Suspicious, Reason::Disguised),
    ("ht\ntps://example.com/", Suspicious, Reason::Disguised),
    ("https://example.com/\u{202e}fdp.exe", Suspicious, Reason::Disguised),
    ("https://example.com\t.evil.example/", Suspicious, Reason::Disguised),
];

#[test]
fn every_hostile_link_has_its_verdict_and_reason() {
    assert!(HOSTILE.len() >= 60);
    let policy = LinkPolicy { allowed_domains: Vec::new(), sender_domain: Some("example.com".to_owned()) };
    for (href, verdict, reason) in HOSTILE {
        let (url, _, reasons) = check_link(href, None, &policy);
        let found = reasons.iter().map(|reason| reason.verdict()).max();
        assert_eq!(found, Some(*verdict), "{href:?} → {url} {reasons:?}");
        assert!(reasons.contains(reason), "{href:?} → {url} {reasons:?}");
    }
}

#[test]
fn a_link_without_end_is_blocked() {
    let href = format!("https://example.com/{}", "x".repeat(super::MAX_LINK_BYTES));
    let (_, _, reasons) = check_link(
        &href,
        None,
        &LinkPolicy { allowed_domains: Vec::new(), sender_domain: Some("example.com".to_owned()) },
    );
    assert!(reasons.contains(&Reason::Unreadable), "{reasons:?}");
}
