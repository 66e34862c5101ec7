//! The session by table, against tricks, and cut at every byte; no socket anywhere.

mod cuts;
mod smuggling;
mod table;

use std::{net::IpAddr, sync::Arc};

use super::{
    reception::{Mail, NotTaken, Verdict},
    reply::{self, Reply},
    session::{Rules, Session, Step},
    tally::Tally,
};

pub(super) const IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
/// What a mail may have in these tests.
pub(super) const MOST: usize = 40_000;

/// A session and a reception that answers at once.
pub(super) struct Talk {
    pub(super) session: Session,
    pub(super) tally: Arc<Tally>,
    pub(super) taken: Vec<Mail>,
    /// What went to the spool of the mail that is under way.
    pub(super) spooled: Vec<u8>,
    pub(super) closed: bool,
    pub(super) may_begin: bool,
    pub(super) has_room: bool,
    pub(super) disk: Result<(), Reply>,
    pub(super) keeps: Result<(), NotTaken>,
}

impl Talk {
    /// Greeted by the host.
    pub(super) fn new() -> Self {
        Self::with_max_size(MOST)
    }

    /// Greeted by a host whose mails may have so many octets.
    pub(super) fn with_max_size(max_size: usize) -> Self {
        let tally = Arc::new(Tally::default());
        let rules = Rules { hostname: "mx.in.test".to_owned(), max_size, max_recipients: 3, tls: true };
        let mut session = Session::new(Arc::new(rules), Arc::clone(&tally), IP);
        assert_eq!(session.say_out(), b"220 mx.in.test ESMTP mailonce\r\n");
        Self {
            session,
            tally,
            taken: Vec::new(),
            spooled: Vec::new(),
            closed: false,
            may_begin: true,
            has_room: true,
            disk: Ok(()),
            keeps: Ok(()),
        }
    }

    /// Greeted by both.
    pub(super) fn greeted() -> Self {
        let mut talk = Self::new();
        talk.say("EHLO out.test\r\n");
        talk
    }

    /// Ready for a text.
    pub(super) fn in_text() -> Self {
        let mut talk = Self::greeted();
        let said = talk.say("MAIL FROM:<eve@out.test>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\n");
        assert_eq!(codes(&said), ["250", "250", "354"]);
        talk
    }

    /// Says something and hears the answers.
    pub(super) fn say(&mut self, bytes: impl AsRef<[u8]>) -> String {
        if !self.closed {
            self.session.receive(bytes.as_ref());
            self.go_on();
        }
        String::from_utf8(self.session.say_out()).unwrap()
    }

    fn go_on(&mut self) {
        loop {
            match self.session.step() {
                Step::Read => return,
                Step::Begin => self.session.may_begin(self.may_begin),
                Step::Ask { address, .. } => self.session.recipient_is(verdict(&address)),
                Step::Room(_) => self.session.room_is(if self.has_room { Ok(()) } else { Err(reply::NO_ROOM) }),
                Step::Spool(bytes) => {
                    self.spooled.extend_from_slice(&bytes);
                    self.session.spooled_is(self.disk);
                }
                Step::Take(mut mail) => {
                    mail.raw = [&std::mem::take(&mut self.spooled)[..], &mail.raw].concat().into();
                    if self.keeps.is_ok() {
                        self.taken.push(mail);
                    }
                    self.session.mail_is(self.keeps.map_err(reply::not_taken));
                }
                Step::Secure => self.session.secured(),
                Step::Close => {
                    self.closed = true;
                    return;
                }
            }
        }
    }

    /// The bytes of the mails that were taken.
    pub(super) fn texts(&self) -> Vec<&[u8]> {
        self.taken.iter().map(|mail| &mail.raw[..]).collect()
    }
}

fn verdict(address: &str) -> Verdict {
    match address.split('@').next() {
        Some("gone") => Verdict::Unknown,
        Some("old") => Verdict::Expired,
        Some("rude") => Verdict::Blocked,
        Some("far") => Verdict::Elsewhere,
        Some("ill") => Verdict::Trouble,
        _ => Verdict::Here,
    }
}

/// The codes of all answers, the last line of each.
pub(super) fn codes(said: &str) -> Vec<&str> {
    said.lines().filter(|line| line.as_bytes().get(3) == Some(&b' ')).map(|line| &line[..3]).collect()
}
