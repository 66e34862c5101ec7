//! Fetching mail that a provider only told of, and asking it for mail it may never have told of.

use serde::{Deserialize, Serialize};

/// Where a mail is that a provider told of without bringing it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The provider's name for the mail.
    pub id: String,
    /// The account at the provider, where it has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// The bucket and key of Amazon S3, when it lies there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<(String, String)>,
}

/// An account at a provider, to fetch mail from.
#[derive(Clone, PartialEq, Eq)]
pub struct Account {
    /// The provider's word.
    pub kind: String,
    /// The key.
    pub api_key: String,
    /// Where, when not at the provider's own address.
    pub base_url: Option<String>,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Account({})", self.kind)
    }
}
