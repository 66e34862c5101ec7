//! The verdict. One parser reads the link for the check and for what is shown: the one browsers agree on.

use url::{Host, Url};

use super::{LinkPolicy, MAX_LINK_BYTES, Reason, Verdict, host, redirect};
use crate::unicode;

/// Top levels that no registry has, and that names of hosts end with all the same.
const RESERVED_TOPS: &[&str] =
    &["corp", "example", "home", "internal", "invalid", "lan", "local", "localhost", "onion", "test"];

/// A link as a browser would read it, its host, and what speaks for and against it.
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
    let written = href.trim();
    if plain.len() != written.len() || written.contains(['\\', '\t', '\n', '\r']) {
        reasons.push(Reason::Disguised);
    }
    // A page of a mail has no address of its own, so a link without a scheme leads nowhere.
    let plain = if plain.starts_with("//") { format!("https:{plain}") } else { plain };
    let Ok(url) = Url::parse(&plain) else {
        reasons.push(Reason::Unreadable);
        return (crate::parse::one_line(&plain, MAX_LINK_BYTES), None, reasons);
    };
    if written.len() > MAX_LINK_BYTES {
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

/// The host's name; numbers and inner names get their reasons.
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

/// Links that lead on are judged by where they lead, too.
fn check_redirects(url: &Url, name: &str, policy: &LinkPolicy, depth: usize, reasons: &mut Vec<Reason>) {
    if redirect::is_redirector(name, url.path()) {
        reasons.push(Reason::Redirector);
    }
    for inner in redirect::embedded_urls(url) {
        let own = LinkPolicy { allowed_domains: Vec::new(), sender_domain: policy.sender_domain.clone() };
        let inner_url = Url::parse(&inner).ok();
        let inner_name = inner_url.as_ref().and_then(Url::host_str).unwrap_or_default();
        let same = host::registrable_domain(inner_name).is_some()
            && host::registrable_domain(inner_name) == host::registrable_domain(name);
        if !same && !reasons.contains(&Reason::Redirector) {
            reasons.push(Reason::Redirector);
        }
        if depth < 3 {
            let (_, _, found) = check_link_at_depth(&inner, None, &own, depth + 1);
            if found.iter().any(|reason| reason.verdict() == Verdict::Blocked) {
                reasons.push(Reason::WrapsBlocked);
            }
        }
    }
    reasons.dedup();
}

fn check_trust(name: &str, policy: &LinkPolicy, reasons: &mut Vec<Reason>) {
    let sender = policy.sender_domain.as_deref().and_then(host::registrable_domain);
    if policy.allowed_domains.iter().any(|known| host::is_same_or_subdomain(name, known)) {
        // Whoever put a name on the list knows its port and its letters.
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

/// Whether the words on a link show another registrable domain than the one it leads to.
fn shows_other_domain(text: &str, name: &str) -> bool {
    let folded: String =
        text.chars().filter(|c| !unicode::is_invisible(*c)).map(unicode::fold_to_ascii).take(500).collect();
    folded.split(|c: char| c.is_whitespace() || "()<>[]\"',;".contains(c)).any(|word| {
        let (scheme, rest) = word.split_once("://").map_or((false, word), |(_, rest)| (true, rest));
        let shown = rest.split(['/', '?', '#', ':']).next().unwrap_or_default();
        let shown = shown.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        let shown = shown.rsplit_once('@').map_or(shown.as_str(), |(_, host)| host);
        // `e.g.` and `report.pdf` are no hosts: without a scheme the top level must be one that exists.
        let top = psl::suffix(shown.as_bytes()).is_some_and(|suffix| suffix.is_known())
            || shown.rsplit('.').next().is_some_and(|top| RESERVED_TOPS.contains(&top));
        let looks = shown.contains('.') && (scheme || top && shown.len() > 4);
        looks && host::registrable_domain(shown).is_some_and(|shown| Some(shown) != host::registrable_domain(name))
    })
}
