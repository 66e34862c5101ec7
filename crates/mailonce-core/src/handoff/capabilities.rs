//! What a transport can do.

/// How an email is divided into envelopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoffSplit {
    /// One handoff per recipient.
    PerRecipient,
    /// One handoff for the whole email.
    PerEmail,
}

/// The form in which a transport gets the email.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadFormat {
    /// RFC 5322 bytes.
    Mime,
    /// The content, which the transport puts into its own format.
    Content,
}

/// How an unknown outcome can be recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryMethod {
    /// The next hop accepts an idempotency key: the same bytes under the same key make no second mail within the
    /// window.
    IdempotencyKey {
        /// How long the next hop remembers a key, counted from the first attempt, in milliseconds.
        window_ms: i64,
    },
    /// The next hop can be queried. A hit is proof; a miss is only evidence.
    LookUp {
        /// How long to wait before the first query, in milliseconds.
        settle_delay_ms: i64,
    },
    /// No recovery is possible.
    None,
}

impl RecoveryMethod {
    /// How long before its end a window already counts as closed: a tenth of it, between 3 and 30 minutes.
    pub fn window_margin_ms(window_ms: i64) -> i64 {
        (window_ms / 10).clamp(3 * 60_000, 30 * 60_000)
    }
}

/// The capabilities of a transport. They decide the envelopes at accept and the recovery after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportCapabilities {
    /// How an email is divided into envelopes.
    pub split: HandoffSplit,
    /// The form in which it gets the email.
    pub payload_format: PayloadFormat,
    /// How an unknown outcome can be recovered.
    pub recovery: RecoveryMethod,
    /// The longest duration of one attempt, in milliseconds. After it the outcome is unknown.
    pub timeout_ms: i64,
    /// The maximum number of concurrent attempts.
    pub max_concurrency: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idempotency_window_closes_before_its_end() {
        assert_eq!(RecoveryMethod::window_margin_ms(24 * 3_600_000), 30 * 60_000);
        assert_eq!(RecoveryMethod::window_margin_ms(15 * 60_000), 3 * 60_000);
    }
}
