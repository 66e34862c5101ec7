//! Where a mail is that a provider told of without bringing it.

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
