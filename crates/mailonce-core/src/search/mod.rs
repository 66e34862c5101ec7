//! Full-text search over outbound and received mail: documents, queries and results.
//!
//! A document is the searchable form of one email or message. A background worker makes it from the committed row, so
//! that an accept pays nothing for it. The stores keep documents; the rules of what matches are here.
//!
//! | file | what it holds |
//! |---|---|
//! | [`document`] | the searchable form of an email or message |
//! | [`query`] | a query, and whether a document matches it |
//! | [`query_parser`] | parses the text of a query |
//! | [`words`] | splits text into words |
//! | [`snippet`] | the excerpt that a result shows |

pub mod document;
pub mod query;
pub mod query_parser;
pub mod snippet;
pub mod words;

use uuid::Uuid;

use crate::{id::TeamId, inbox::message::Message, outbound::email::Email, string_enum::string_enum, time::Time};

/// Bytes of a query.
pub const QUERY_BYTES: usize = 512;
/// Terms of a query: words, phrases and fields.
pub const QUERY_TERMS: usize = 16;
/// Characters of one word. Longer ones are not searchable; they are encoded data rather than words.
pub const WORD_CHARS: usize = 64;
/// Words of one document. The rest of a longer mail is not searchable.
pub const DOCUMENT_WORDS: usize = 10_000;
/// Bytes of the text of one document.
pub const DOCUMENT_TEXT_BYTES: usize = 64 * 1024;
/// How long a search may run, in milliseconds.
pub const SEARCH_TIMEOUT_MS: u64 = 2_000;
/// Bytes of bodies that are read at once to make documents of them. A single larger body is read alone.
pub const SOURCE_BYTES: usize = 8 * 1024 * 1024;

string_enum! {
    /// The direction of a mail.
    SearchKind {
        /// An outbound email.
        Email = "email",
        /// A received message.
        Message = "message",
    }
}

/// The mail that a document or result stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SearchRef {
    /// Its direction.
    pub kind: SearchKind,
    /// The id of the email or message.
    pub id: Uuid,
}

/// The place of a document in the order of results: milliseconds of its time, then 20 bits that tell documents of one
/// millisecond apart. Unique within a team, so that it is also the cursor of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SearchPosition(pub i64);

/// The low bits of a position.
const POSITION_BITS: u32 = 20;
/// The highest time of a position, in milliseconds (year 2248).
const MAX_POSITION_MS: i64 = (1 << 43) - 1;

impl SearchPosition {
    /// The first position of an instant.
    pub fn first_at(at: Time) -> Self {
        Self(at.0.clamp(0, MAX_POSITION_MS) << POSITION_BITS)
    }

    /// The position for a document, unless another document has it.
    pub fn preferred(at: Time, id: Uuid) -> Self {
        let low = (id.as_u128() & ((1 << POSITION_BITS) - 1)) as i64;
        Self(Self::first_at(at).0 | low)
    }

    /// The instant, unless it was out of range.
    pub fn time(self) -> Time {
        Time(self.0 >> POSITION_BITS)
    }

    /// The position to try when this one is taken. Stays within the millisecond.
    #[must_use]
    pub fn next(self) -> Self {
        let mask = (1 << POSITION_BITS) - 1;
        Self((self.0 & !mask) | (((self.0 & mask) + 1) & mask))
    }
}

/// A team whose latest events are not indexed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchBacklog {
    /// The team.
    pub team: TeamId,
    /// The number of the last event that was indexed.
    pub indexed_until: u64,
}

/// What a document is made of.
#[derive(Clone, Debug)]
pub enum SearchSource {
    /// An email, with its packed body while it is kept.
    Email {
        /// The email.
        email: Box<Email>,
        /// Its packed body.
        body: Option<Vec<u8>>,
    },
    /// A message, with its packed bytes while they are kept.
    Message {
        /// The message.
        message: Box<Message>,
        /// Its packed bytes.
        raw: Option<Vec<u8>>,
    },
}

impl SearchSource {
    /// The mail.
    pub fn reference(&self) -> SearchRef {
        match self {
            Self::Email { email, .. } => SearchRef { kind: SearchKind::Email, id: email.id.0 },
            Self::Message { message, .. } => SearchRef { kind: SearchKind::Message, id: message.id.0 },
        }
    }
}

/// One result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchHit {
    /// The mail.
    pub mail: SearchRef,
    /// When it was accepted or received.
    pub at: Time,
    /// Plain text around the first hit.
    pub snippet: String,
}

/// A page of results, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchPage {
    /// The results.
    pub hits: Vec<SearchHit>,
    /// Where the next page continues; `None` at the end. A page shorter than its limit may still have a next page.
    pub next: Option<SearchPosition>,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchResult {
    /// A page of results.
    Page(SearchPage),
    /// The search was ended after [`SEARCH_TIMEOUT_MS`].
    TimedOut,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_follow_time_and_never_leave_their_millisecond() {
        let (at, id) = (Time(1_731_628_800_123), Uuid::from_u128(u128::MAX));
        let mut position = SearchPosition::preferred(at, id);
        assert!(SearchPosition::preferred(Time(at.0 - 1), id) < position);
        for _ in 0..3 {
            position = position.next();
            assert!(position >= SearchPosition::first_at(at));
            assert!(position < SearchPosition::first_at(Time(at.0 + 1)));
        }
        assert!(SearchPosition::first_at(Time(i64::MAX)).0 > 0);
        assert_eq!(SearchPosition::first_at(Time(i64::MIN)).0, 0);
    }
}
