//! The list of cases, with their names and descriptions.

/// One case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProveCase {
    SameKeyTwice,
    DifferentKeys,
    ConcurrentCalls,
    KeyReusedForOtherBody,
    RetryAfterRefusal,
    DisconnectAfterHead,
    DisconnectMidBody,
    DisconnectBeforeResponse,
    SameBatchTwice,
    KeyReusedForOtherBatch,
    KeyAcrossSendAndBatch,
    LongKey,
    EmptyKey,
    QuotedKey,
}

impl ProveCase {
    pub(super) const ALL: [Self; 14] = [
        Self::SameKeyTwice,
        Self::DifferentKeys,
        Self::ConcurrentCalls,
        Self::KeyReusedForOtherBody,
        Self::RetryAfterRefusal,
        Self::DisconnectAfterHead,
        Self::DisconnectMidBody,
        Self::DisconnectBeforeResponse,
        Self::SameBatchTwice,
        Self::KeyReusedForOtherBatch,
        Self::KeyAcrossSendAndBatch,
        Self::LongKey,
        Self::EmptyKey,
        Self::QuotedKey,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::SameKeyTwice => "twice",
            Self::DifferentKeys => "two_keys",
            Self::ConcurrentCalls => "race",
            Self::KeyReusedForOtherBody => "other_body",
            Self::RetryAfterRefusal => "after_refusal",
            Self::DisconnectAfterHead => "cut_head",
            Self::DisconnectMidBody => "cut_body",
            Self::DisconnectBeforeResponse => "cut_answer",
            Self::SameBatchTwice => "batch_twice",
            Self::KeyReusedForOtherBatch => "batch_other",
            Self::KeyAcrossSendAndBatch => "across",
            Self::LongKey => "long_key",
            Self::EmptyKey => "empty_key",
            Self::QuotedKey => "quoted_key",
        }
    }

    pub(super) fn description(self) -> &'static str {
        match self {
            Self::SameKeyTwice => "the same email twice with one key",
            Self::DifferentKeys => "the same email with two keys",
            Self::ConcurrentCalls => "many clients at once with one key",
            Self::KeyReusedForOtherBody => "another email with the same key",
            Self::RetryAfterRefusal => "a key whose first request was refused",
            Self::DisconnectAfterHead => "disconnect after the head, then retry",
            Self::DisconnectMidBody => "disconnect in the middle of the body, then retry",
            Self::DisconnectBeforeResponse => "disconnect before the response is read, then retry",
            Self::SameBatchTwice => "the same batch twice with one key",
            Self::KeyReusedForOtherBatch => "another batch with the same key",
            Self::KeyAcrossSendAndBatch => "one key for a batch and for a single email",
            Self::LongKey => "the longest key, and one character more",
            Self::EmptyKey => "an empty key",
            Self::QuotedKey => "a key with and without quotes",
        }
    }
}
