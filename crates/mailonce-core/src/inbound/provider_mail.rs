//! Mail that a provider stores until it is fetched.

use crate::time::Time;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// A reference to a mail at a provider, from a webhook that announced the mail without its content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderMailRef {
    /// The provider's id of the mail.
    pub id: String,
    /// The account at the provider, where it has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// The bucket and key in Amazon S3, when the mail is stored there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<(String, String)>,
}

/// The credentials for a provider's API.
#[derive(Clone, PartialEq, Eq)]
pub struct ProviderAccount {
    /// The name of the provider.
    pub provider: &'static str,
    /// The API key.
    pub api_key: String,
    /// The base URL of the API. `None` means the provider's public one.
    pub base_url: Option<String>,
}

impl fmt::Debug for ProviderAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Account({}, {:?})", self.provider, self.base_url)
    }
}

/// A mail as the provider's API returned it.
#[derive(Clone, PartialEq)]
pub enum FetchedMail {
    /// The original RFC 5322 bytes.
    Mime(Vec<u8>),
    /// Its fields, in the provider's own JSON format.
    Fields(Value),
}

impl fmt::Debug for FetchedMail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mime(raw) => write!(f, "Mime({})", raw.len()),
            Self::Fields(_) => f.write_str("Fields"),
        }
    }
}

/// An entry in a provider's list of mails.
#[derive(Clone, Debug, PartialEq)]
pub struct MailListEntry {
    /// When the provider received it, by the provider's clock. `None` when the list does not say.
    pub at: Option<Time>,
    /// The other fields, in the provider's own JSON format.
    pub fields: Value,
}

/// A page of a provider's list, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MailListPage {
    /// The mails.
    pub mails: Vec<MailListEntry>,
    /// The cursor of the next page; `None` at the end.
    pub next: Option<String>,
}

/// Why a fetch or a list failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// A retry may succeed.
    #[error("{reason}")]
    Temporary {
        /// What went wrong.
        reason: String,
        /// The delay that the provider asked for, in milliseconds.
        retry_after_ms: Option<i64>,
    },
    /// The provider does not have the mail: it was deleted, or is not there yet.
    #[error("{0}")]
    NotFound(String),
    /// A retry cannot succeed.
    #[error("{0}")]
    Permanent(String),
}
