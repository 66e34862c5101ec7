//! Finds every link of a mail and gives it a verdict. Links are never fetched: a single request may use up a one-time
//! link.
//!
//! | file | contents |
//! |---|---|
//! | `find` | links in text and HTML |
//! | `verdict` | the verdict and its reasons |
//! | `host` | host names: registrable domains, internal names, look-alikes |
//! | `redirect` | links that redirect to other links |
//! | `purpose`, `purpose_words` | the purpose of a link |

mod find;
mod host;
mod purpose;
mod purpose_words;
mod redirect;
mod verdict;

use serde::{Deserialize, Serialize};

use crate::{html::HtmlPage, parse::ParsedMail, string_enum::string_enum};

pub(crate) use find::link_spans;
pub use host::{is_lookalike, registrable_domain, registrable_or_host};
pub use purpose::Purpose;
pub(crate) use purpose::has_secret;
pub use verdict::check_link;

/// Maximum links kept per mail.
pub const MAX_LINKS: usize = 200;
/// Maximum bytes of a link. A longer one is blocked.
pub const MAX_LINK_BYTES: usize = 4096;

string_enum! {
    /// What an agent may do with a link.
    Verdict {
        /// No reason against it was found.
        Allowed = "allowed",
        /// A reason against it was found. Ask a person before following it.
        Suspicious = "suspicious",
        /// Never follow it.
        Blocked = "blocked",
    }
}

string_enum! {
    /// Why a link has its verdict.
    Reason {
        /// On the allow list.
        AllowList = "allow_list",
        /// Has the sender's registrable domain.
        SenderDomain = "sender_domain",
        /// An allow list exists, and the link is not on it.
        NotOnList = "not_on_list",
        /// Has another domain than the sender.
        ForeignDomain = "foreign_domain",
        /// Not `http` or `https`.
        Scheme = "scheme",
        /// Uses `http`, which is not encrypted in transit.
        PlainHttp = "plain_http",
        /// Not a URL that a browser can parse, or too long.
        Unreadable = "unreadable",
        /// Has a user name or password before the host.
        Userinfo = "userinfo",
        /// Has an IP address as the host, in any notation.
        IpAddress = "ip_address",
        /// Has a host name of an internal network.
        Internal = "internal",
        /// Has a port other than the default.
        Port = "port",
        /// Has an internationalized host name (`xn--`).
        Punycode = "punycode",
        /// Has a host name that looks like another one.
        Confusable = "confusable",
        /// Redirects to another URL.
        Redirector = "redirector",
        /// Redirects to a URL that is blocked.
        WrapsBlocked = "wraps_blocked",
        /// Its text shows another domain than its target.
        TextMismatch = "text_mismatch",
        /// Contains backslashes, tabs, line breaks or invisible characters.
        Disguised = "disguised",
        /// Is not visible to the reader.
        Hidden = "hidden",
    }
}

impl Reason {
    /// The verdict that this reason causes on its own.
    pub fn verdict(self) -> Verdict {
        match self {
            Self::AllowList | Self::SenderDomain => Verdict::Allowed,
            Self::PlainHttp
            | Self::Port
            | Self::Punycode
            | Self::Confusable
            | Self::Redirector
            | Self::TextMismatch => Verdict::Suspicious,
            Self::ForeignDomain | Self::Hidden | Self::Disguised => Verdict::Suspicious,
            Self::NotOnList
            | Self::Scheme
            | Self::Unreadable
            | Self::Userinfo
            | Self::IpAddress
            | Self::Internal
            | Self::WrapsBlocked => Verdict::Blocked,
        }
    }
}

/// The domains that are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkPolicy {
    /// Registrable domains or hosts, including their subdomains. If the list is not empty, all other domains are
    /// blocked.
    pub allowed_domains: Vec<String>,
    /// The domain of the authenticated sender. Without one, no link counts as the sender's own.
    pub sender_domain: Option<String>,
}

/// A link and its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedLink {
    /// The URL as a browser parses it: host as A-label, without default port and disguises.
    pub url: String,
    /// The host, if there is one.
    pub host: Option<String>,
    /// The link text, if the link comes from HTML.
    pub text: Option<String>,
    /// What an agent may do with it.
    pub verdict: Verdict,
    /// The reasons for the verdict.
    pub reasons: Vec<Reason>,
    /// The purpose of the link, if it can be guessed.
    pub purpose: Option<Purpose>,
    /// How certain the purpose is, from 0 to 100.
    pub confidence: u8,
}

/// Checks every link of a mail. Returns them in document order, each URL once. `page` is the parsed HTML of the mail.
pub fn check_links(mail: &ParsedMail, page: Option<&HtmlPage>, policy: &LinkPolicy) -> Vec<CheckedLink> {
    let mut links: Vec<CheckedLink> = Vec::new();
    for raw_link in find::find_links(mail, page) {
        let (url, host, reasons) = check_link(&raw_link.href, raw_link.text.as_deref(), policy);
        let mut reasons = reasons;
        if raw_link.is_hidden {
            reasons.push(Reason::Hidden);
        }
        let guess = purpose::guess_purpose(&url, raw_link.text.as_deref(), &raw_link.preceding_text, &mail.subject);
        let (purpose, confidence) = guess.map_or((None, 0), |(purpose, confidence)| (Some(purpose), confidence));
        let verdict = reasons.iter().map(|reason| reason.verdict()).max().unwrap_or(Verdict::Allowed);
        let link = CheckedLink {
            url,
            host,
            text: raw_link.text,
            verdict,
            reasons,
            purpose,
            confidence: if raw_link.is_hidden { 0 } else { confidence },
        };
        if let Some(known) = links.iter_mut().find(|known| known.url == link.url) {
            known.merge(link);
        } else if links.len() < MAX_LINKS {
            links.push(link);
        }
    }
    links
}

impl CheckedLink {
    /// Merges a second occurrence of the same URL. The worse verdict and the more certain purpose win.
    fn merge(&mut self, other: Self) {
        self.verdict = self.verdict.max(other.verdict);
        for reason in other.reasons {
            if !self.reasons.contains(&reason) {
                self.reasons.push(reason);
            }
        }
        if other.confidence > self.confidence {
            (self.purpose, self.confidence) = (other.purpose, other.confidence);
        }
        self.text = self.text.take().or(other.text);
    }
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
