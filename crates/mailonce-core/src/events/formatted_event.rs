//! An event in the format of an endpoint.

use crate::{
    conversation::thread::Thread,
    events::{endpoint::Endpoint, event::Event, notice::Notice},
    inbox::{Inbox, message::Message},
    outbound::{content::EmailContent, email::Email},
    time::Time,
};

/// A notice with everything that its webhook body may contain.
#[derive(Debug)]
pub struct NoticeContext<'a> {
    /// The event.
    pub event: &'a Event,
    /// The notice, with the number of its attempts.
    pub notice: &'a Notice,
    /// The receiving endpoint.
    pub endpoint: &'a Endpoint,
    /// The email of the event.
    pub email: Option<EmailEvent>,
    /// The message of the event.
    pub message: Option<Message>,
    /// The inbox that received the message, or from which the email was sent.
    pub inbox: Option<Inbox>,
    /// The thread of the message.
    pub thread: Option<Thread>,
    /// The text of the message, with codes and links masked.
    pub text: Option<String>,
    /// The signing secrets of the endpoint, newest first.
    pub secrets: &'a [Vec<u8>],
    /// When this attempt is made.
    pub attempted_at: Time,
}

/// The email of an event.
#[derive(Debug)]
pub struct EmailEvent {
    /// The current email.
    pub email: Email,
    /// Its Message-ID, with angle brackets.
    pub message_id: String,
    /// Its content, until it is deleted.
    pub content: Option<EmailContent>,
}

/// An event in the format of a dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormattedEvent {
    /// The JSON body.
    pub body: String,
    /// Additional headers.
    pub headers: Vec<(String, String)>,
}
