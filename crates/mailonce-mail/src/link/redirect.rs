//! Links that redirect: URL shorteners, click trackers, link wrappers of mail filters, and open redirects.

use url::Url;

use super::host;

/// Hosts whose links all redirect.
const REDIRECTOR_HOSTS: &[&str] = &[
    "bit.ly",
    "t.co",
    "tinyurl.com",
    "goo.gl",
    "lnkd.in",
    "ow.ly",
    "is.gd",
    "v.gd",
    "buff.ly",
    "rebrand.ly",
    "cutt.ly",
    "rb.gy",
    "t.ly",
    "shorturl.at",
    "tiny.cc",
    "s.id",
    "l.facebook.com",
    "lm.facebook.com",
    "l.instagram.com",
    "safelinks.protection.outlook.com",
    "urldefense.com",
    "urldefense.proofpoint.com",
    "linkprotect.cudasvc.com",
    "protect-us.mimecast.com",
    "protect-eu.mimecast.com",
    "ct.sendgrid.net",
    "sendgrid.net",
    "list-manage.com",
    "mandrillapp.com",
    "awstrack.me",
    "hubspotlinks.com",
    "sparkpostmail.com",
    "mailchi.mp",
    "clicks.mlsend.com",
    "klclick.com",
    "customeriomail.com",
    "mjt.lu",
    "sendibt2.com",
    "sendibm1.com",
    "pstmrk.it",
    "exct.net",
    "adj.st",
    "onelink.me",
    "app.link",
    "page.link",
];
/// Hosts with a path that redirects.
const REDIRECTOR_PATHS: &[(&str, &str)] = &[
    ("google.com", "/url"),
    ("google.com", "/amp"),
    ("youtube.com", "/redirect"),
    ("linkedin.com", "/redir"),
    ("linkedin.com", "/safety/go"),
    ("steamcommunity.com", "/linkfilter"),
    ("facebook.com", "/l.php"),
    ("vk.com", "/away"),
    ("bing.com", "/ck/a"),
    ("doubleclick.net", "/"),
    ("reddit.com", "/r/link"),
    ("medium.com", "/r/"),
    ("slack-redir.net", "/link"),
    ("yahoo.com", "/rd"),
];

pub(super) fn is_redirector(name: &str, path: &str) -> bool {
    REDIRECTOR_HOSTS.iter().any(|known| host::is_same_or_subdomain(name, known))
        || REDIRECTOR_PATHS
            .iter()
            .any(|(known, start)| host::is_same_or_subdomain(name, known) && path.starts_with(start))
}

/// URLs inside a link: values of its query, and a whole URL in its path.
pub(super) fn embedded_urls(url: &Url) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (_, value) in url.query_pairs().take(50) {
        found.extend(parse_embedded_url(&value));
    }
    if let Some(at) = url.path().find("http").filter(|at| *at > 0) {
        let inner = &url.path()[at..];
        found.extend(parse_embedded_url(
            &inner.replace("%3A", ":").replace("%2F", "/").replace("%3a", ":").replace("%2f", "/"),
        ));
    }
    found.truncate(5);
    found
}

fn parse_embedded_url(value: &str) -> Option<String> {
    let value = value.trim();
    let starts = |head: &str| value.get(..head.len()).is_some_and(|start| start.eq_ignore_ascii_case(head));
    if starts("http://") || starts("https://") || starts("javascript:") || starts("data:") {
        Some(value.to_owned())
    } else if value.starts_with("//") || value.starts_with("/\\") || value.starts_with("\\\\") {
        Some(format!("https:{}", value.replace('\\', "/")))
    } else {
        None
    }
}
