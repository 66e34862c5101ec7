//! Every link of a mail with a verdict. Nothing is ever fetched: a look may already use a link up.
//!
//! | file | what it holds |
//! |---|---|
//! | `find` | links in text and HTML |
//! | `judge` | the verdict and its reasons |
//! | `host` | names: registrable domains, internal ones, look-alikes |
//! | `redirect` | links that lead to other links |
//! | `purpose`, `purpose_words` | what a link is for |

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

/// Links kept of one mail.
pub const MAX_LINKS: usize = 200;
/// Bytes of one link. A longer one is blocked.
pub const MAX_LINK_BYTES: usize = 4096;

string_enum! {
    /// What an agent may do with a link.
    Verdict {
        /// Nothing speaks against it.
        Allowed = "allowed",
        /// Something does; ask before following.
        Suspicious = "suspicious",
        /// Never follow it.
        Blocked = "blocked",
    }
}

string_enum! {
    /// Why.
    Reason {
        /// On the allow list.
        AllowList = "allow_list",
        /// Of the sender's own domain.
        SenderDomain = "sender_domain",
        /// Not on the allow list, and there is one.
        NotOnList = "not_on_list",
        /// Of another domain than the sender's.
        ForeignDomain = "foreign_domain",
        /// Not `http` or `https`.
        Scheme = "scheme",
        /// `http`, readable on the way.
        PlainHttp = "plain_http",
        /// No link that a browser could read.
        Unreadable = "unreadable",
        /// A name or password before the host.
        Userinfo = "userinfo",
        /// A number instead of a name, in whatever spelling.
        IpAddress = "ip_address",
        /// A name of an inner network.
        Internal = "internal",
        /// Another port than the usual one.
        Port = "port",
        /// A name with letters beyond ASCII.
        Punycode = "punycode",
        /// A name that looks like another.
        Confusable = "confusable",
        /// Leads on to somewhere else.
        Redirector = "redirector",
        /// Leads on to something that is blocked.
        WrapsBlocked = "wraps_blocked",
        /// Its words show another address.
        TextMismatch = "text_mismatch",
        /// Backslashes, blanks or characters nobody sees.
        Disguised = "disguised",
        /// Its reader would not see it.
        Hidden = "hidden",
    }
}

impl Reason {
    /// The verdict it leads to by itself.
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

/// What is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkPolicy {
    /// Registrable domains or hosts; each also stands for what is below it. When there is any, all else is blocked.
    pub allowed_domains: Vec<String>,
    /// The domain of a sender who was authenticated. Without one no link is the sender's own.
    pub sender_domain: Option<String>,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedLink {
    /// As a browser would read it: host as A-label, default port and disguises gone.
    pub url: String,
    /// The host, when there is one.
    pub host: Option<String>,
    /// What stands on it, when it comes from HTML.
    pub text: Option<String>,
    /// What an agent may do with it.
    pub verdict: Verdict,
    /// Why.
    pub reasons: Vec<Reason>,
    /// What it is for, when that can be told.
    pub purpose: Option<Purpose>,
    /// How sure that is, 0 to 100.
    pub confidence: u8,
}

/// Every link of a mail, in the order they stand, each once. `page` is the mail's HTML, read.
pub fn check_links(mail: &ParsedMail, page: Option<&HtmlPage>, policy: &LinkPolicy) -> Vec<CheckedLink> {
    let mut links: Vec<CheckedLink> = Vec::new();
    for found in find::find_links(mail, page) {
        let (url, host, reasons) = check_link(&found.href, found.text.as_deref(), policy);
        let mut reasons = reasons;
        if found.is_hidden {
            reasons.push(Reason::Hidden);
        }
        let guess = purpose::guess_purpose(&url, found.text.as_deref(), &found.preceding_text, &mail.subject);
        let (purpose, confidence) = guess.map_or((None, 0), |(purpose, confidence)| (Some(purpose), confidence));
        let verdict = reasons.iter().map(|reason| reason.verdict()).max().unwrap_or(Verdict::Allowed);
        let link = CheckedLink {
            url,
            host,
            text: found.text,
            verdict,
            reasons,
            purpose,
            confidence: if found.is_hidden { 0 } else { confidence },
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
    /// Two places, one link: the worse verdict and the surer purpose stay.
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
