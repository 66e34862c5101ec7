//! The verdict. One parser reads the link for the check and for what is shown: the one browsers agree on.

use url::{Host, Url};

use super::{LINK_BYTES, Policy, Reason, Verdict, host, redirect};
use crate::glyph;

/// A link as a browser would read it, its host, and what speaks for and against it.
pub fn judge(href: &str, text: Option<&str>, policy: &Policy) -> (String, Option<String>, Vec<Reason>) {
    judge_within(href, text, policy, 0)
}

fn judge_within(
    href: &str,
    text: Option<&str>,
    policy: &Policy,
    depth: usize,
) -> (String, Option<String>, Vec<Reason>) {
    let mut reasons = Vec::new();
    let plain: String = href.trim().chars().filter(|c| !glyph::is_invisible(*c)).take(LINK_BYTES).collect();
    let written = href.trim();
    if plain.len() != written.len() || written.contains(['\\', '\t', '\n', '\r']) {
        reasons.push(Reason::Disguised);
    }
    // A page of a mail has no address of its own, so a link without a scheme leads nowhere.
    let plain = if plain.starts_with("//") { format!("https:{plain}") } else { plain };
    let Ok(url) = Url::parse(&plain) else {
        reasons.push(Reason::Unreadable);
        return (crate::parse::one_line(&plain, LINK_BYTES), None, reasons);
    };
    if written.len() > LINK_BYTES {
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
    let name = name(&url, policy, &mut reasons);
    if let Some(name) = &name {
        reach(&url, name, policy, depth, &mut reasons);
        if text.is_some_and(|text| shows_other(text, name)) {
            reasons.push(Reason::TextMismatch);
        }
        trust(name, policy, &mut reasons);
    }
    (url.to_string(), url.host_str().map(str::to_owned), reasons)
}

/// The host's name; numbers and inner names get their reasons.
fn name(url: &Url, policy: &Policy, reasons: &mut Vec<Reason>) -> Option<String> {
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
            let mut trusted = policy.allow.iter().chain(&policy.sender);
            if host::is_disguised(&unicode) || trusted.any(|known| host::looks_like(&unicode, known)) {
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
fn reach(url: &Url, name: &str, policy: &Policy, depth: usize, reasons: &mut Vec<Reason>) {
    if redirect::is_known(name, url.path()) {
        reasons.push(Reason::Redirector);
    }
    for inner in redirect::wrapped(url) {
        let own = Policy { allow: Vec::new(), sender: policy.sender.clone() };
        let inner_url = Url::parse(&inner).ok();
        let inner_name = inner_url.as_ref().and_then(Url::host_str).unwrap_or_default();
        let same = host::registrable(inner_name).is_some() && host::registrable(inner_name) == host::registrable(name);
        if !same && !reasons.contains(&Reason::Redirector) {
            reasons.push(Reason::Redirector);
        }
        if depth < 3 {
            let (_, _, found) = judge_within(&inner, None, &own, depth + 1);
            if found.iter().any(|reason| reason.verdict() == Verdict::Blocked) {
                reasons.push(Reason::WrapsBlocked);
            }
        }
    }
    reasons.dedup();
}

fn trust(name: &str, policy: &Policy, reasons: &mut Vec<Reason>) {
    let sender = policy.sender.as_deref().and_then(host::registrable);
    if policy.allow.iter().any(|known| host::is_within(name, known)) {
        // Whoever put a name on the list knows its port and its letters.
        reasons.retain(|reason| !matches!(reason, Reason::Port | Reason::Punycode | Reason::Internal));
        reasons.push(Reason::AllowList);
    } else if !policy.allow.is_empty() {
        reasons.push(Reason::NotOnList);
    } else if sender.is_some() && host::registrable(name) == sender {
        reasons.push(Reason::SenderDomain);
    } else {
        reasons.push(Reason::ForeignDomain);
    }
}

/// Whether the words on a link show another registrable domain than the one it leads to.
fn shows_other(text: &str, name: &str) -> bool {
    let folded: String = text.chars().filter(|c| !glyph::is_invisible(*c)).map(glyph::fold).take(500).collect();
    folded.split(|c: char| c.is_whitespace() || "()<>[]\"',;".contains(c)).any(|word| {
        let (scheme, rest) = word.split_once("://").map_or((false, word), |(_, rest)| (true, rest));
        let shown = rest.split(['/', '?', '#', ':']).next().unwrap_or_default().trim_end_matches('.').to_lowercase();
        let shown = shown.rsplit_once('@').map_or(shown.as_str(), |(_, host)| host);
        // `e.g.` and `report.pdf` are no hosts: without a scheme the top level must be one that exists.
        let top = psl::suffix(shown.as_bytes()).is_some_and(|suffix| suffix.is_known());
        let looks = shown.contains('.') && (scheme || top && shown.len() > 4);
        looks && host::registrable(shown).is_some_and(|shown| Some(shown) != host::registrable(name))
    })
}
