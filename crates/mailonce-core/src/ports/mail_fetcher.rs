//! Mail that a provider holds: told of, listed and fetched.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

use crate::ports::network::NoNetwork;
use crate::time::Time;

/// Where a mail is that a provider told of without bringing it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderMailRef {
    /// The provider's name for the mail.
    pub id: String,
    /// The account at the provider, where it has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// The bucket and key of Amazon S3, when it lies there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<(String, String)>,
}

/// By what a provider is asked for mail.
#[derive(Clone, PartialEq, Eq)]
pub struct ProviderAccount {
    /// The provider's word.
    pub provider: &'static str,
    /// The credential.
    pub api_key: String,
    /// Where its API begins. The provider's own when absent.
    pub base_url: Option<String>,
}

impl fmt::Debug for ProviderAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Account({}, {:?})", self.provider, self.base_url)
    }
}

/// A mail as a provider gave it out.
#[derive(Clone, PartialEq)]
pub enum FetchedMail {
    /// As it travelled.
    Mime(Vec<u8>),
    /// Its fields, in the provider's own words.
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

/// A mail in a provider's list.
#[derive(Clone, Debug, PartialEq)]
pub struct MailListEntry {
    /// When the provider got it, by its own clock; `None` when it does not tell.
    pub at: Option<Time>,
    /// The rest, in the provider's own words.
    pub fields: Value,
}

/// A page of a provider's list, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MailListPage {
    /// The mails.
    pub mails: Vec<MailListEntry>,
    /// Where to go on; `None` at the end.
    pub next: Option<String>,
}

/// Why a provider gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// It may later.
    #[error("{reason}")]
    Temporary {
        /// What went wrong.
        reason: String,
        /// The pause it asked for, in milliseconds.
        retry_after_ms: Option<i64>,
    },
    /// It does not have the mail: no longer, or not yet.
    #[error("{0}")]
    NotFound(String),
    /// It never will.
    #[error("{0}")]
    Permanent(String),
}

/// Providers that hold mail. Nothing is tried twice here: whoever asks decides.
#[async_trait]
pub trait MailFetcher: Send + Sync + 'static {
    /// Whether this account could be asked at all. Nobody is asked; the error says what is wrong with it.
    fn check_account(&self, account: &ProviderAccount) -> Result<(), String>;
    /// One mail.
    async fn fetch(&self, account: &ProviderAccount, notice: &ProviderMailRef) -> Result<FetchedMail, FetchError>;
    /// Mails that came since then, and maybe older ones, a page at a time.
    async fn list(
        &self,
        account: &ProviderAccount,
        since: Time,
        page: Option<&str>,
    ) -> Result<MailListPage, FetchError>;
}

#[async_trait]
impl MailFetcher for NoNetwork {
    fn check_account(&self, _: &ProviderAccount) -> Result<(), String> {
        Ok(())
    }

    async fn fetch(&self, _: &ProviderAccount, _: &ProviderMailRef) -> Result<FetchedMail, FetchError> {
        Err(FetchError::Permanent("mail is not fetched here".into()))
    }

    async fn list(&self, _: &ProviderAccount, _: Time, _: Option<&str>) -> Result<MailListPage, FetchError> {
        Err(FetchError::Permanent("mail is not listed here".into()))
    }
}
