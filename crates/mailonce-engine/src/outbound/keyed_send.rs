//! A send request with its idempotency key and digest, before it is accepted.

use crate::{access::caller::Caller, outbound::replay_cache::CachedEmail};
use mailonce_core::{
    id::MessageId,
    intent::Intent,
    key::{EmailKey, InstallSecret, Key, KeyHash},
    outbound::{
        content::EmailContent,
        digest::{Digest, DigestField},
        email::OnUnknown,
        template::TemplateRef,
    },
    problem::Problem,
    ttl::Ttl,
};

/// What to do when a key is used again with a different email.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMismatch {
    /// Refuse, and name the fields that differ.
    Reject,
    /// Answer with the first email, if only wording differs.
    FirstWins,
}

/// A validated send request.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// The content of the email.
    pub content: EmailContent,
    /// What the email is about. An idempotency key is derived from it.
    pub intent: Option<Intent>,
    /// The idempotency key from the header.
    pub key: Option<Key>,
    /// How long the key is remembered.
    pub ttl: Option<Ttl>,
    /// What to do on a mismatch. The default depends on where the key came from.
    pub on_mismatch: Option<OnMismatch>,
    /// What to do when the outcome stays unknown.
    pub on_unknown: Option<OnUnknown>,
    /// The transport, when the caller names one.
    pub transport: Option<String>,
    /// The distinct token that confirms a held look-alike.
    pub distinct_token: Option<String>,
    /// The sender's display name from the inbox settings. It is not part of the caller's request.
    pub sender_name: Option<String>,
    /// Why no new email may be created. A retry of an accepted email is still answered.
    pub refusal: Option<Problem>,
    /// Whether a refusal shows what each check decided.
    pub wants_policy: bool,
}

impl SendRequest {
    /// A request with defaults for everything but content and key.
    pub fn new(content: EmailContent, key: Option<Key>) -> Self {
        Self {
            content,
            intent: None,
            key,
            ttl: None,
            on_mismatch: None,
            on_unknown: None,
            transport: None,
            distinct_token: None,
            sender_name: None,
            refusal: None,
            wants_policy: false,
        }
    }
}

/// A send request with its key and digest.
pub(crate) struct KeyedSend {
    pub(crate) request: SendRequest,
    pub(crate) email_key: Option<EmailKey>,
    pub(crate) key_hash: Option<KeyHash>,
    pub(crate) digest: Digest,
    pub(crate) on_mismatch: OnMismatch,
    /// The message that this email replies to. It identifies a reply even without a key.
    pub(crate) answers: Option<MessageId>,
    /// The digest fields to compare, when the others depended on something that was deleted.
    pub(crate) compared_fields: Option<&'static [DigestField]>,
    /// The template that wrote the content, once it is rendered.
    pub(crate) template: Option<TemplateRef>,
    /// The place among the identical items of its batch, unless it is the first of them.
    pub(crate) identical_place: Option<u32>,
}

impl KeyedSend {
    /// Whether a retry can be recognized.
    pub(crate) fn is_keyed(&self) -> bool {
        self.email_key.is_some() || self.answers.is_some()
    }

    /// Whether a retry that differs in these fields replays the first email.
    pub(crate) fn tolerates_difference(&self, fields: &[DigestField]) -> bool {
        self.on_mismatch == OnMismatch::FirstWins && fields.iter().all(|field| field.is_forgivable())
    }
}

/// The fields that differ from the first email, compared in the digest version of the first.
pub(crate) fn differences(keyed: &KeyedSend, cached: &CachedEmail, secret: &InstallSecret) -> Vec<DigestField> {
    let full_comparison = || cached.digest.differences(&cached.digest.of_same_form(&keyed.request.content, secret));
    let is_same_version = cached.digest.version() == keyed.digest.version();
    let mut fields = if is_same_version { cached.digest.differences(&keyed.digest) } else { full_comparison() };
    if let Some(compared) = keyed.compared_fields {
        fields.retain(|field| compared.contains(field));
    }
    // The stored digest may include the sender's name: the first caller sent the name, or an older release added it.
    if fields == [DigestField::Names] && keyed.request.sender_name.is_some() && full_comparison().is_empty() {
        return Vec::new();
    }
    fields
}

/// What must agree to replay an email whose request cannot be rebuilt.
#[derive(Clone, Copy, Debug)]
pub struct ReplayComparison {
    /// The message that it answered, if that is known.
    pub answers: Option<MessageId>,
    /// The fields to compare.
    pub fields: &'static [DigestField],
}

/// Derives the key of a send request: from its header, its intent or its position in a batch.
pub(crate) fn identify_send(
    caller: &Caller,
    mut request: SendRequest,
    batch_position: Option<(Key, u32)>,
) -> KeyedSend {
    let derive = |intent: &Intent| Key::parse(&intent.derive_key(&request.content.to_addresses())).ok();
    let derived = request.intent.as_ref().and_then(derive);
    // A header equal to the derived key counts as the intent.
    let by_intent = derived.is_some() && (request.key.is_none() || request.key == derived);
    let name = match (&request.key, derived, batch_position) {
        (Some(key), _, _) => Some(EmailKey::Given(key.clone())),
        (None, Some(derived), _) => Some(EmailKey::Given(derived)),
        (None, None, Some((batch, index))) => Some(EmailKey::Item { batch, index }),
        (None, None, None) => None,
    };
    let default = if by_intent { OnMismatch::FirstWins } else { OnMismatch::Reject };
    // The inbox's display name is not part of the digest: a retry after a rename is still the same email.
    let digest = Digest::of_content(&request.content);
    if let Some(name) = &request.sender_name {
        request.content.from.name = Some(name.clone());
    }
    KeyedSend {
        key_hash: name.as_ref().map(|name| name.hash(caller.team.id)),
        email_key: name,
        digest,
        on_mismatch: request.on_mismatch.unwrap_or(default),
        answers: None,
        compared_fields: None,
        template: None,
        identical_place: None,
        request,
    }
}
