//! What identifies an email: an intent, an idempotency key, or both. A send requires one, so that it cannot be forgotten.

use crate::{
    error::Error,
    wire::{Addresses, Intent, Mail, Reply, Scalar, Tag, TagPair, Ttl},
};
use serde_json::Value;

/// What makes a send idempotent: an intent, an idempotency key, or both.
///
/// [`Once::without_key`] sends without either.
#[derive(Clone, Debug, PartialEq)]
pub struct Once(pub(crate) SendIdentity);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SendIdentity {
    Intent(Intent),
    Key(String),
    Both(Intent, String),
    None,
}

impl Once {
    /// What the email is about. The key is derived from this and from `to`, so every retry has the same key.
    pub fn intent(kind: impl Into<String>, entity: impl Into<String>) -> Self {
        Intent::new(kind, entity).into()
    }

    /// An idempotency key. Derive it from your data, such as an order id; a random key protects nothing.
    pub fn key(key: impl Into<String>) -> Self {
        Self(SendIdentity::Key(key.into()))
    }

    /// Sends without an idempotency key. The send is tried once, and calling twice sends two emails.
    pub fn without_key() -> Self {
        Self(SendIdentity::None)
    }

    /// For callers that know only at run time whether there is an intent or a key. `key_required` if there is neither.
    pub fn from_parts(intent: Option<Intent>, key: Option<String>) -> Result<Self, Error> {
        match (intent, key) {
            (Some(intent), Some(key)) => Ok(Self(SendIdentity::Both(intent, key))),
            (Some(intent), None) => Ok(intent.into()),
            (None, Some(key)) => Ok(Self::key(key)),
            (None, None) => Err(missing_key()),
        }
    }

    /// Uses this key instead of the derived one; the intent is still recorded.
    #[must_use]
    pub fn with_key(self, key: impl Into<String>) -> Self {
        match self.0 {
            SendIdentity::Intent(intent) | SendIdentity::Both(intent, _) => {
                Self(SendIdentity::Both(intent, key.into()))
            }
            SendIdentity::Key(_) | SendIdentity::None => Self::key(key),
        }
    }
}

impl From<Intent> for Once {
    fn from(intent: Intent) -> Self {
        Self(SendIdentity::Intent(intent))
    }
}

pub(crate) fn missing_key() -> Error {
    Error::local(
        "key_required",
        "neither an intent nor a key names this mail",
        "Pass an intent, or a key, or Once::without_key() if a second mail does no harm.",
    )
}

impl Intent {
    /// `Intent::new("order.confirmation", "order_4821")`.
    pub fn new(kind: impl Into<String>, entity: impl Into<String>) -> Self {
        Self { kind: kind.into(), entity: entity.into(), ..Self::default() }
    }

    /// Increase it to send about the same thing again on purpose; 1 by default.
    #[must_use]
    pub fn version(self, version: u32) -> Self {
        Self { version: Some(version), ..self }
    }

    /// The day, week or run of a recurring email.
    #[must_use]
    pub fn period(self, period: impl Into<String>) -> Self {
        Self { period: Some(period.into()), ..self }
    }
}

impl Mail {
    /// An email to one or several addresses.
    pub fn new(from: impl Into<String>, to: impl Into<Addresses>) -> Self {
        Self { from: from.into(), to: to.into(), ..Self::default() }
    }

    /// The subject.
    #[must_use]
    pub fn subject(self, subject: impl Into<String>) -> Self {
        Self { subject: Some(subject.into()), ..self }
    }

    /// The plain text.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..self }
    }

    /// The HTML.
    #[must_use]
    pub fn html(self, html: impl Into<String>) -> Self {
        Self { html: Some(html.into()), ..self }
    }
}

impl Reply {
    /// A plain text reply.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// Adds the token of the lease under which the reply is sent.
    #[must_use]
    pub fn lease(self, token: impl Into<String>) -> Self {
        Self { lease: Some(token.into()), ..self }
    }
}

/// The emails of one batch, with their key or intents.
#[derive(Clone, Debug)]
pub struct Mails {
    pub(crate) items: Vec<Item>,
    pub(crate) key: Option<String>,
    pub(crate) repeat: bool,
}

/// An email of a batch, with or without its own intent.
#[derive(Clone, Debug)]
pub struct Item {
    pub(crate) mail: Mail,
    pub(crate) intent: Option<Intent>,
}

impl From<Mail> for Item {
    fn from(mail: Mail) -> Self {
        Self { mail, intent: None }
    }
}

impl From<(Mail, Intent)> for Item {
    fn from((mail, intent): (Mail, Intent)) -> Self {
        Self { mail, intent: Some(intent) }
    }
}

impl Mails {
    /// A batch under one idempotency key: each email is sent once, even if the batch is retried.
    pub fn keyed(key: impl Into<String>, mails: impl IntoIterator<Item = impl Into<Item>>) -> Self {
        Self { items: mails.into_iter().map(Into::into).collect(), key: Some(key.into()), repeat: true }
    }

    /// A batch in which each email has its own intent.
    pub fn intents(mails: impl IntoIterator<Item = (Mail, Intent)>) -> Self {
        Self { items: mails.into_iter().map(Into::into).collect(), key: None, repeat: true }
    }

    /// A batch without idempotency; see [`Once::without_key`].
    pub fn without_key(mails: impl IntoIterator<Item = Mail>) -> Self {
        Self { items: mails.into_iter().map(Into::into).collect(), key: None, repeat: false }
    }

    /// For callers that know only at run time what identifies the emails. `key_required` if one has neither intent nor key.
    pub fn from_parts(items: Vec<Item>, key: Option<String>) -> Result<Self, Error> {
        if key.is_none() && items.iter().any(|item| item.intent.is_none()) {
            return Err(missing_key());
        }
        Ok(Self { items, key, repeat: true })
    }
}

impl Item {
    pub(crate) fn body(&self) -> Result<Value, Error> {
        let not_serializable = |error: serde_json::Error| {
            Error::local("invalid_field", format!("the mail cannot be written as JSON: {error}"), "Mend the mail.")
        };
        let mut body = serde_json::to_value(&self.mail).map_err(not_serializable)?;
        if let Some(intent) = &self.intent {
            body["intent"] = serde_json::to_value(intent).map_err(not_serializable)?;
        }
        Ok(body)
    }
}

impl Addresses {
    /// The addresses as a list.
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::Text(one) => std::slice::from_ref(one),
            Self::List(many) => many,
        }
    }
}

impl Default for Addresses {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl From<&str> for Addresses {
    fn from(one: &str) -> Self {
        Self::Text(one.to_owned())
    }
}

impl From<String> for Addresses {
    fn from(one: String) -> Self {
        Self::Text(one)
    }
}

impl<T: Into<String>> From<Vec<T>> for Addresses {
    fn from(many: Vec<T>) -> Self {
        Self::List(many.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<String>, const N: usize> From<[T; N]> for Addresses {
    fn from(many: [T; N]) -> Self {
        Self::List(many.into_iter().map(Into::into).collect())
    }
}

impl From<&[&str]> for Addresses {
    fn from(many: &[&str]) -> Self {
        Self::List(many.iter().map(|one| (*one).to_owned()).collect())
    }
}

impl From<&str> for Tag {
    fn from(name: &str) -> Self {
        Self::Text(name.to_owned())
    }
}

impl From<(&str, &str)> for Tag {
    fn from((name, value): (&str, &str)) -> Self {
        Self::Object(TagPair { name: name.to_owned(), value: Some(value.to_owned()) })
    }
}

impl From<&str> for Ttl {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&str> for Scalar {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<f64> for Scalar {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<i32> for Scalar {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Scalar {
    fn from(truth: bool) -> Self {
        Self::Truth(truth)
    }
}
