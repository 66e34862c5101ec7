//! Why a request is not believed, and what to answer.

/// A request that did not prove where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookRejection {
    /// The proof is not there.
    #[error("header {0} is missing")]
    MissingHeader(&'static str),
    /// The body lacks a part of the proof.
    #[error("field {0} is missing")]
    MissingField(&'static str),
    /// The proof is there and wrong.
    #[error("the signature or secret does not match")]
    BadSignature,
    /// Rightly signed, but at another time: an old request sent again, or one of the clocks is wrong.
    #[error("signed {} s from now", .off_ms / 1000)]
    Stale {
        /// Milliseconds from the signed time to now; negative when it was signed in the future.
        off_ms: i64,
    },
    /// Not what this provider sends.
    #[error("malformed: {0}")]
    Malformed(String),
    /// SNS: signed for a topic that is not on the source's list.
    #[error("the topic is not one of this source's")]
    ForeignTopic,
    /// SNS: the certificate could not be had or used.
    #[error("the signing certificate {0}")]
    Certificate(&'static str),
    /// SNS: signed with SHA-1, which this source does not allow.
    #[error("signed with SHA-1; set SignatureVersion 2 on the topic, or allow SHA-1 for this source")]
    Sha1,
    /// The body is over the limit.
    #[error("the body is larger than this source may send")]
    TooLarge,
    /// The source holds secrets of another kind.
    #[error("the source holds secrets of another provider")]
    Misconfigured,
}

impl HookRejection {
    /// The HTTP status to answer with. Never 403 or 406: Postmark and Mailgun take those as "stop for good".
    pub fn status(&self) -> u16 {
        match self {
            Self::TooLarge => 413,
            // Ours to repair, so the provider must come again. SNS in particular drops what gets a 4xx.
            Self::Stale { .. } | Self::Certificate(_) | Self::Sha1 | Self::Misconfigured => 503,
            _ => 401,
        }
    }

    /// Whether the answer asks the provider to come again.
    pub fn is_retryable(&self) -> bool {
        self.status() == 503
    }
}
