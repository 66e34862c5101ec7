//! Tests of the session without a socket: command table, smuggling, disconnects at every byte.

mod command_table;
mod disconnects;
mod smuggling;

use std::{net::IpAddr, sync::Arc};

use super::{
    reply::{self, SmtpReply},
    session::{SessionConfig, SessionStep, SmtpSession},
};
use crate::intake::smtp::{
    mail_receiver::{NotAccepted, ReceivedMail, RecipientStatus},
    metrics::SmtpMetrics,
};

pub(super) const IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
/// Maximum octets of a mail in these tests.
pub(super) const MAX_SIZE: usize = 40_000;

/// A session with a receiver that answers at once.
pub(super) struct TestSession {
    pub(super) session: SmtpSession,
    pub(super) tally: Arc<SmtpMetrics>,
    pub(super) accepted: Vec<ReceivedMail>,
    /// The spooled part of the current mail.
    pub(super) spooled: Vec<u8>,
    pub(super) closed: bool,
    pub(super) may_begin: bool,
    pub(super) has_room: bool,
    pub(super) disk: Result<(), SmtpReply>,
    pub(super) accept_result: Result<(), NotAccepted>,
}

impl TestSession {
    /// A session after the greeting.
    pub(super) fn new() -> Self {
        Self::with_max_size(MAX_SIZE)
    }

    /// A session after the greeting, with this maximum size of a mail.
    pub(super) fn with_max_size(max_size: usize) -> Self {
        let tally = Arc::new(SmtpMetrics::default());
        let config = SessionConfig { hostname: "mx.in.test".to_owned(), max_size, max_recipients: 3, tls: true };
        let mut session = SmtpSession::new(Arc::new(config), Arc::clone(&tally), IP);
        assert_eq!(session.take_output(), b"220 mx.in.test ESMTP mailonce\r\n");
        Self {
            session,
            tally,
            accepted: Vec::new(),
            spooled: Vec::new(),
            closed: false,
            may_begin: true,
            has_room: true,
            disk: Ok(()),
            accept_result: Ok(()),
        }
    }

    /// A session after EHLO.
    pub(super) fn after_ehlo() -> Self {
        let mut session = Self::new();
        session.send("EHLO out.test\r\n");
        session
    }

    /// A session after DATA.
    pub(super) fn after_data() -> Self {
        let mut session = Self::after_ehlo();
        let replies = session.send("MAIL FROM:<eve@out.test>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\n");
        assert_eq!(codes(&replies), ["250", "250", "354"]);
        session
    }

    /// Sends bytes and returns the replies.
    pub(super) fn send(&mut self, bytes: impl AsRef<[u8]>) -> String {
        if !self.closed {
            self.session.receive(bytes.as_ref());
            self.drive();
        }
        String::from_utf8(self.session.take_output()).unwrap()
    }

    fn drive(&mut self) {
        loop {
            match self.session.step() {
                SessionStep::Read => return,
                SessionStep::CheckMailRate => self.session.on_mail_rate(self.may_begin),
                SessionStep::CheckRecipient { address, .. } => {
                    self.session.on_recipient_status(recipient_status(&address))
                }
                SessionStep::ReserveMemory(_) => {
                    self.session.on_memory_reserved(if self.has_room { Ok(()) } else { Err(reply::OUT_OF_MEMORY) })
                }
                SessionStep::Spool(bytes) => {
                    self.spooled.extend_from_slice(&bytes);
                    self.session.on_spooled(self.disk);
                }
                SessionStep::CommitMail(mut mail) => {
                    mail.raw = [&std::mem::take(&mut self.spooled)[..], &mail.raw].concat().into();
                    if self.accept_result.is_ok() {
                        self.accepted.push(mail);
                    }
                    self.session.on_mail_committed(self.accept_result.map_err(reply::for_not_accepted));
                }
                SessionStep::StartTls => self.session.on_tls_established(),
                SessionStep::Close => {
                    self.closed = true;
                    return;
                }
            }
        }
    }

    /// The bytes of the accepted mails.
    pub(super) fn texts(&self) -> Vec<&[u8]> {
        self.accepted.iter().map(|mail| &mail.raw[..]).collect()
    }
}

fn recipient_status(address: &str) -> RecipientStatus {
    match address.split('@').next() {
        Some("gone") => RecipientStatus::Unknown,
        Some("old") => RecipientStatus::Expired,
        Some("rude") => RecipientStatus::Blocked,
        Some("far") => RecipientStatus::NotLocal,
        Some("ill") => RecipientStatus::TemporaryError,
        _ => RecipientStatus::Accepted,
    }
}

/// The codes of all replies, from the last line of each.
pub(super) fn codes(replies: &str) -> Vec<&str> {
    replies.lines().filter(|line| line.as_bytes().get(3) == Some(&b' ')).map(|line| &line[..3]).collect()
}
