//! Why a webhook request is rejected, and with which status.

/// Why a request could not be verified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookRejection {
    /// The header with the signature or secret is missing.
    #[error("header {0} is missing")]
    MissingHeader(&'static str),
    /// A field of the signature is missing in the body.
    #[error("field {0} is missing")]
    MissingField(&'static str),
    /// The signature or secret is wrong.
    #[error("the signature or secret does not match")]
    BadSignature,
    /// The signature is valid, but its timestamp is not: a replayed request, or one of the clocks is wrong.
    #[error("the signed time is {} s away from this server's clock", .off_ms / 1000)]
    Stale {
        /// Milliseconds from the signed time to now; negative when it was signed in the future.
        off_ms: i64,
    },
    /// Not a format that this provider sends.
    #[error("malformed: {0}")]
    Malformed(String),
    /// SNS: signed for a topic that is not on the source's list.
    #[error("the topic is not on this source's list")]
    ForeignTopic,
    /// SNS: the certificate could not be fetched or used.
    #[error("the signing certificate {0}")]
    Certificate(&'static str),
    /// SNS: signed with SHA-1, which this source does not allow.
    #[error("signed with SHA-1; set SignatureVersion 2 on the topic, or allow SHA-1 for this source")]
    Sha1,
    /// The body exceeds the source's limit.
    #[error("the body exceeds the size limit of this source")]
    TooLarge,
    /// The source is configured with secrets of another kind.
    #[error("the source is configured with secrets of another provider")]
    Misconfigured,
}

impl HookRejection {
    /// The HTTP status of the response. Never 403 or 406: Postmark and Mailgun then stop retrying for good.
    pub fn status(&self) -> u16 {
        match self {
            Self::TooLarge => 413,
            // The operator can fix these, so the provider must retry. SNS in particular drops a message after a 4xx.
            Self::Stale { .. } | Self::Certificate(_) | Self::Sha1 | Self::Misconfigured => 503,
            _ => 401,
        }
    }

    /// Whether the status makes the provider retry.
    pub fn is_retryable(&self) -> bool {
        self.status() == 503
    }
}
