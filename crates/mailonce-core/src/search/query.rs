//! A query, and whether a document matches it.

use super::{
    SearchPosition, SearchRef,
    document::{SearchDocument, scope_token},
    words::words,
};
use crate::{id::InboxId, inbox::message::MessageState, outbound::email::EmailState, time::Time};

/// Where a term is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextField {
    /// Sender, recipients, subject and text.
    Any,
    /// The sender.
    Sender,
    /// The recipients.
    Recipients,
    /// The subject.
    Subject,
}

/// Words that must follow each other in one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextTerm {
    /// Where it is looked for.
    pub field: TextField,
    /// The words, in lower case; at least one.
    pub words: Vec<String>,
    /// Whether documents with it are excluded.
    pub is_negated: bool,
}

/// An exact name; see [`scope_token`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeTerm {
    /// The name.
    pub token: String,
    /// Whether documents with it are excluded.
    pub is_negated: bool,
}

/// Mail of some inboxes: the messages in them, and the emails from their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MailboxFilter {
    /// The inboxes.
    pub inboxes: Vec<InboxId>,
    /// Their addresses.
    pub addresses: Vec<String>,
}

impl MailboxFilter {
    /// The exact names of which a document must have one. Empty when nothing matches.
    pub fn tokens(&self) -> Vec<String> {
        let inboxes = self.inboxes.iter().map(|id| scope_token::inbox(*id));
        inboxes.chain(self.addresses.iter().map(|address| scope_token::sender(address))).collect()
    }
}

/// The state that a mail must be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateFilter {
    /// An email in this state.
    Email(EmailState),
    /// A message in this state.
    Message(MessageState),
}

/// A query. A document matches when all its parts do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchQuery {
    /// Words and phrases.
    pub terms: Vec<TextTerm>,
    /// Exact names.
    pub scope: Vec<ScopeTerm>,
    /// Mail of these inboxes. Each filter must match.
    pub mailboxes: Vec<MailboxFilter>,
    /// In this state. The state is read from the mail itself, because it changes.
    pub state: Option<StateFilter>,
    /// One of these mails.
    pub only: Option<Vec<SearchRef>>,
    /// At or after.
    pub after: Option<Time>,
    /// Before.
    pub before: Option<Time>,
    /// Behind this position, which is older.
    pub position: Option<SearchPosition>,
    /// The maximum number of results.
    pub limit: usize,
}

impl SearchQuery {
    /// Whether nothing can match.
    pub fn is_empty(&self) -> bool {
        self.only.as_ref().is_some_and(Vec::is_empty) || self.mailboxes.iter().any(|filter| filter.tokens().is_empty())
    }

    /// The positions that results can have: from the first one (inclusive) to the second one (exclusive).
    pub fn position_range(&self) -> (SearchPosition, SearchPosition) {
        let from = self.after.map_or(SearchPosition(0), SearchPosition::first_at);
        let before = self.before.map_or(SearchPosition(i64::MAX), SearchPosition::first_at);
        (from, self.position.map_or(before, |position| position.min(before)))
    }

    /// Whether a document matches. Its state and its position in the page are not checked.
    pub fn matches(&self, document: &SearchDocument) -> bool {
        let has = |token: &String| document.scope.contains(token);
        self.terms.iter().all(|term| term.is_in(document) != term.is_negated)
            && self.scope.iter().all(|term| has(&term.token) != term.is_negated)
            && self.mailboxes.iter().all(|filter| filter.tokens().iter().any(has))
            && self.only.as_ref().is_none_or(|only| only.contains(&document.mail))
            && self.after.is_none_or(|after| document.at >= after)
            && self.before.is_none_or(|before| document.at < before)
    }
}

impl TextTerm {
    fn is_in(&self, document: &SearchDocument) -> bool {
        let SearchDocument { sender, recipients, subject, text, .. } = document;
        let fields: &[&String] = match self.field {
            TextField::Any => &[sender, recipients, subject, text],
            TextField::Sender => &[sender],
            TextField::Recipients => &[recipients],
            TextField::Subject => &[subject],
        };
        fields.iter().any(|field| self.is_in_words(&words(field).collect::<Vec<_>>()))
    }

    fn is_in_words(&self, found: &[String]) -> bool {
        found.windows(self.words.len().max(1)).any(|window| window == self.words)
    }
}
