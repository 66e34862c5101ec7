//! How an event is told to an endpoint that wants to hear it in the words of another service.

use crate::{
    conversation::thread::Thread,
    events::{endpoint::Endpoint, event::Event, notice::Notice},
    inbox::{Inbox, message::Message},
    outbound::{content::EmailContent, email::Email},
    time::Time,
};

/// An event that is owed to an endpoint, with everything that may be said of it.
#[derive(Debug)]
pub struct NoticeContext<'a> {
    /// What happened.
    pub event: &'a Event,
    /// That it is owed, and how often it was tried.
    pub notice: &'a Notice,
    /// To whom.
    pub endpoint: &'a Endpoint,
    /// The email it is about.
    pub email: Option<EmailEvent>,
    /// The message it is about.
    pub message: Option<Message>,
    /// The inbox that the message came to, or that the email left from.
    pub inbox: Option<Inbox>,
    /// The thread of the message.
    pub thread: Option<Thread>,
    /// What the message says, its codes and links hidden.
    pub text: Option<String>,
    /// Secrets of the endpoint, newest first.
    pub secrets: &'a [Vec<u8>],
    /// When this attempt is made.
    pub attempted_at: Time,
}

/// An email that something is told of.
#[derive(Debug)]
pub struct EmailEvent {
    /// The email as it is now.
    pub email: Email,
    /// Its Message-ID, with angle brackets.
    pub message_id: String,
    /// Its words, while they are kept.
    pub content: Option<EmailContent>,
}

/// An event in other words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormattedEvent {
    /// JSON.
    pub body: String,
    /// Headers beside the usual ones.
    pub headers: Vec<(String, String)>,
}

/// Knows the words of other services.
pub trait EventFormatter: Send + Sync + 'static {
    /// The event in the words of the endpoint's dialect; `None` when that has no word for it, or nobody wants it.
    fn format_event(&self, telling: &NoticeContext<'_>) -> Option<FormattedEvent>;
}

/// Knows no other words.
#[derive(Clone, Copy, Debug)]
pub struct NoDialects;

impl EventFormatter for NoDialects {
    fn format_event(&self, _: &NoticeContext<'_>) -> Option<FormattedEvent> {
        None
    }
}
