//! Decides the verdict of a link. The same parser serves the check and the displayed URL: the WHATWG URL parser that
//! browsers follow.

use url::{Host, Url};

use super::{LinkPolicy, MAX_LINK_BYTES, Reason, Verdict, host, redirect};
use crate::unicode;

/// Reserved or unofficial top-level domains that host names still use.
const RESERVED_TOPS: &[&str] =
    &["corp", "example", "home", "internal", "invalid", "lan", "local", "localhost", "onion", "test"];

/// Checks a link. Returns the URL as a browser parses it, its host, and the reasons for and against it.
pub fn check_link(href: &str, text: Option<&str>, policy: &LinkPolicy) -> (String, Option<String>, Vec<Reason>) {
    check_link_at_depth(href, text, policy, 0)
}

fn check_link_at_depth(
    href: &str,
    text: Option<&str>,
    policy: &LinkPolicy,
    depth: usize,
) -> (String, Option<String>, Vec<Reason>) {
    let mut reasons = Vec::new();
    let plain: String = href.trim().chars().filter(|c| !unicode::is_invisible(*c)).take(MAX_LINK_BYTES).collect();
    let trimmed = href.trim();
    if plain.len() != trimmed.len() || trimmed.contains(['\\', '\t', '\n', '\r']) {
        reasons.push(Reason::Disguised);
    }
    // A mail has no URL of its own, so a link without a scheme has no target.
    let plain = if plain.starts_with("//") { format!("https:{plain}") } else { plain };
    let Ok(url) = Url::parse(&plain) else {
        reasons.push(Reason::Unreadable);
        return (crate::parse::one_line(&plain, MAX_LINK_BYTES), None, reasons);
    };
    if trimmed.len() > MAX_LINK_BYTES {
        reasons.push(Reason::Unreadable);
    }
    if !matches!(url.scheme(), "http" | "https") {
        reasons.push(Reason::Scheme);
        return (url.to_string(), None, reasons);
    }
    if url.scheme() == "http" {
        reasons.push(Reason::PlainHttp);
    }
    if !url.username().is_empty() || url.password().is_some() {
        reasons.push(Reason::Userinfo);
    }
    if url.port().is_some() {
        reasons.push(Reason::Port);
    }
    let name = check_host(&url, policy, &mut reasons);
    if let Some(name) = &name {
        check_redirects(&url, name, policy, depth, &mut reasons);
        if text.is_some_and(|text| shows_other_domain(text, name)) {
            reasons.push(Reason::TextMismatch);
        }
        check_trust(name, policy, &mut reasons);
    } else if let (Some(text), Some(host)) = (text, url.host_str())
        && shows_other_domain(text, host)
    {
        reasons.push(Reason::TextMismatch);
    }
    (url.to_string(), url.host_str().map(str::to_owned), reasons)
}

/// Returns the host name. Adds reasons for IP addresses, internal names and look-alikes.
fn check_host(url: &Url, policy: &LinkPolicy, reasons: &mut Vec<Reason>) -> Option<String> {
    match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            if host::is_internal(&name) {
                reasons.push(Reason::Internal);
            }
            if name.split('.').any(|label| label.starts_with("xn--")) {
                reasons.push(Reason::Punycode);
            }
            let (unicode, _) = idna::domain_to_unicode(&name);
            let mut trusted = policy.allowed_domains.iter().chain(&policy.sender_domain);
            if host::is_confusable(&unicode) || trusted.any(|known| host::is_lookalike_domain(&unicode, known)) {
                reasons.push(Reason::Confusable);
            }
            Some(name)
        }
        Some(Host::Ipv4(_) | Host::Ipv6(_)) => {
            reasons.push(Reason::IpAddress);
            None
        }
        None => {
            reasons.push(Reason::Unreadable);
            None
        }
    }
}

/// Checks the targets of a redirecting link, too.
fn check_redirects(url: &Url, name: &str, policy: &LinkPolicy, depth: usize, reasons: &mut Vec<Reason>) {
    if redirect::is_redirector(name, url.path()) {
        reasons.push(Reason::Redirector);
    }
    for inner in redirect::embedded_urls(url) {
        let inner_policy = LinkPolicy { allowed_domains: Vec::new(), sender_domain: policy.sender_domain.clone() };
        let inner_url = Url::parse(&inner).ok();
        let inner_name = inner_url.as_ref().and_then(Url::host_str).unwrap_or_default();
        let same_domain = host::registrable_domain(inner_name).is_some()
            && host::registrable_domain(inner_name) == host::registrable_domain(name);
        if !same_domain && !reasons.contains(&Reason::Redirector) {
            reasons.push(Reason::Redirector);
        }
        if depth < 3 {
            let (_, _, inner_reasons) = check_link_at_depth(&inner, None, &inner_policy, depth + 1);
            if inner_reasons.iter().any(|reason| reason.verdict() == Verdict::Blocked) {
                reasons.push(Reason::WrapsBlocked);
            }
        }
    }
    reasons.dedup();
}

fn check_trust(name: &str, policy: &LinkPolicy, reasons: &mut Vec<Reason>) {
    let sender = policy.sender_domain.as_deref().and_then(host::registrable_domain);
    if policy.allowed_domains.iter().any(|known| host::is_same_or_subdomain(name, known)) {
        // The operator who allowed the domain knows its port and its script.
        reasons.retain(|reason| !matches!(reason, Reason::Port | Reason::Punycode | Reason::Internal));
        reasons.push(Reason::AllowList);
    } else if !policy.allowed_domains.is_empty() {
        reasons.push(Reason::NotOnList);
    } else if sender.is_some() && host::registrable_domain(name) == sender {
        reasons.push(Reason::SenderDomain);
    } else {
        reasons.push(Reason::ForeignDomain);
    }
}

/// A full stop instead of the ones of other scripts, which browsers accept in host names.
fn fold_dot(c: char) -> char {
    if matches!(c, '\u{3002}' | '\u{FF0E}' | '\u{FF61}') { '.' } else { c }
}

/// Whether the link text shows another registrable domain than the link's target.
fn shows_other_domain(text: &str, name: &str) -> bool {
    let folded: String = text
        .chars()
        .filter(|c| !unicode::is_invisible(*c))
        .map(fold_dot)
        .map(unicode::fold_to_ascii)
        .take(500)
        .collect();
    folded.split(|c: char| c.is_whitespace() || "()<>[]\"',;".contains(c)).any(|word| {
        let (has_scheme, rest) = word.split_once("://").map_or((false, word), |(_, rest)| (true, rest));
        let shown_host = rest.split(['/', '?', '#', ':']).next().unwrap_or_default();
        let shown_host = shown_host.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        let shown_host = shown_host.rsplit_once('@').map_or(shown_host.as_str(), |(_, host)| host);
        // `e.g.` and `report.pdf` are not hosts: without a scheme, the top-level domain must exist.
        let has_known_tld = psl::suffix(shown_host.as_bytes()).is_some_and(|suffix| suffix.is_known())
            || shown_host.rsplit('.').next().is_some_and(|tld| RESERVED_TOPS.contains(&tld));
        let is_host = shown_host.contains('.') && (has_scheme || has_known_tld && shown_host.len() > 4);
        is_host
            && host::registrable_domain(shown_host).is_some_and(|domain| Some(domain) != host::registrable_domain(name))
    })
}
