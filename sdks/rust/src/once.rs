//! What names a mail. A send takes one of these, so that one without a name does not compile.

use crate::{
    error::Error,
    wire::{Addresses, Intent, Mail, Reply, Scalar, Tag, TagPair, Ttl},
};
use serde_json::Value;

/// What makes a mail happen once: an intent, a key, or both.
///
/// There is no way to leave it out, and one way around it that says so: [`Once::without_key`].
#[derive(Clone, Debug, PartialEq)]
pub struct Once(pub(crate) Name);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Name {
    Intent(Intent),
    Key(String),
    Both(Intent, String),
    Nothing,
}

impl Once {
    /// What the mail is about: the key follows from this and from `to`, so that every retry has the same key.
    pub fn intent(kind: impl Into<String>, entity: impl Into<String>) -> Self {
        Intent::new(kind, entity).into()
    }

    /// The name of this wish. Derive it from your data; a random one protects nothing.
    pub fn key(key: impl Into<String>) -> Self {
        Self(Name::Key(key.into()))
    }

    /// The way out: nothing names this mail, so it is tried once, and whoever calls twice may send two.
    pub fn without_key() -> Self {
        Self(Name::Nothing)
    }

    /// For callers who learn only at run time what names a mail. `key_required` when nothing does.
    pub fn given(intent: Option<Intent>, key: Option<String>) -> Result<Self, Error> {
        match (intent, key) {
            (Some(intent), Some(key)) => Ok(Self(Name::Both(intent, key))),
            (Some(intent), None) => Ok(intent.into()),
            (None, Some(key)) => Ok(Self::key(key)),
            (None, None) => Err(nameless()),
        }
    }

    /// The key beside the intent: it wins, and the intent is kept.
    #[must_use]
    pub fn with_key(self, key: impl Into<String>) -> Self {
        match self.0 {
            Name::Intent(intent) | Name::Both(intent, _) => Self(Name::Both(intent, key.into())),
            Name::Key(_) | Name::Nothing => Self::key(key),
        }
    }
}

impl From<Intent> for Once {
    fn from(intent: Intent) -> Self {
        Self(Name::Intent(intent))
    }
}

pub(crate) fn nameless() -> Error {
    Error::here(
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

    /// One more when the same thing is told again on purpose.
    #[must_use]
    pub fn version(self, version: u32) -> Self {
        Self { version: Some(version), ..self }
    }

    /// The day, week or run of a mail that recurs.
    #[must_use]
    pub fn period(self, period: impl Into<String>) -> Self {
        Self { period: Some(period.into()), ..self }
    }
}

impl Mail {
    /// A mail from somebody to somebody: one address, or several.
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
    /// An answer in plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// With the lease under which it is given.
    #[must_use]
    pub fn lease(self, token: impl Into<String>) -> Self {
        Self { lease: Some(token.into()), ..self }
    }
}

/// Mails of one batch, with what names them.
#[derive(Clone, Debug)]
pub struct Mails {
    pub(crate) items: Vec<Item>,
    pub(crate) key: Option<String>,
    pub(crate) repeat: bool,
}

/// A mail of a batch, with or without an intent of its own.
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
    /// All under one key: each is sent once, also when the batch is repeated.
    pub fn keyed(key: impl Into<String>, mails: impl IntoIterator<Item = impl Into<Item>>) -> Self {
        Self { items: mails.into_iter().map(Into::into).collect(), key: Some(key.into()), repeat: true }
    }

    /// Each under its own intent.
    pub fn intents(mails: impl IntoIterator<Item = (Mail, Intent)>) -> Self {
        Self { items: mails.into_iter().map(Into::into).collect(), key: None, repeat: true }
    }

    /// The way out, as for one mail.
    pub fn without_key(mails: impl IntoIterator<Item = Mail>) -> Self {
        Self { items: mails.into_iter().map(Into::into).collect(), key: None, repeat: false }
    }

    /// For callers who learn only at run time what names the mails. `key_required` when one has no name.
    pub fn given(items: Vec<Item>, key: Option<String>) -> Result<Self, Error> {
        if key.is_none() && items.iter().any(|item| item.intent.is_none()) {
            return Err(nameless());
        }
        Ok(Self { items, key, repeat: true })
    }
}

impl Item {
    pub(crate) fn body(&self) -> Result<Value, Error> {
        let unwritable = |error: serde_json::Error| {
            Error::here("invalid_field", format!("the mail cannot be written as JSON: {error}"), "Mend the mail.")
        };
        let mut body = serde_json::to_value(&self.mail).map_err(unwritable)?;
        if let Some(intent) = &self.intent {
            body["intent"] = serde_json::to_value(intent).map_err(unwritable)?;
        }
        Ok(body)
    }
}

impl Addresses {
    /// As a list, whichever it is.
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
