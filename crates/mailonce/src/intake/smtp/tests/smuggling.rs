//! SMTP smuggling: false ends of data, commands inside mails, bytes sent too early.

use super::{TestSession, codes};
use crate::intake::smtp::{
    data_reader::{DataReader, DataStatus, DataStep, INITIAL_MEMORY},
    metrics::Reason,
};

/// Sequences that some servers accept as the end of data. None of them is valid.
const FALSE_ENDS: [&str; 30] = [
    "\n.\n",
    "\n.\r\n",
    "\r.\r",
    "\r.\r\n",
    "\r\n.\n",
    "\r\n.\r",
    "\n.\r",
    "\r.\n",
    "\r\n.\r\r\n",
    "\r\n\n.\r\n",
    "\r\n\r.\r\n",
    "\n\r\n.\n",
    "\n\n.\n\n",
    "\r\r.\r\r",
    "\r\n.\n\r\n",
    "\r\n.\r\0\n",
    "\r\0\n.\r\0\n",
    "\r\n\n.\n",
    "\n\r.\n\r",
    "\r\n.\r.\n",
    "\r.\r\r\n",
    "\n.\n\r\n",
    "\r\r\n.\r\n",
    "\r\r\n.\r\r\n",
    "\n\n.\r\n",
    "\r\n..\n",
    "\n..\r\n",
    "x\n.\r\n.\n",
    "\r\n.\r \n",
    "\r\n.\u{b}\n",
];

const SMUGGLED_MAIL: &str =
    "MAIL FROM:<admin@in.test>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\nSubject: smuggled\r\n\r\nhi\r\n.\r\n";

#[test]
fn no_false_end_makes_a_second_mail() {
    for false_end in FALSE_ENDS {
        for whole in [true, false] {
            let mut session = TestSession::after_data();
            let text = format!("Subject: one\r\n\r\nhi{false_end}{SMUGGLED_MAIL}");
            let replies = if whole {
                session.send(&text)
            } else {
                text.bytes().map(|byte| session.send([byte])).collect::<String>()
            };
            // Everything up to the real end is one mail, which is refused.
            assert!(replies.starts_with("554 5.6.11"), "{false_end:?}: {replies}");
            assert_eq!(codes(&replies), ["554"], "{false_end:?}");
            assert!(session.closed && session.accepted.is_empty(), "{false_end:?}");
            assert_eq!(session.tally.refused(Reason::LineEnd), 1);
        }
    }
}

#[test]
fn what_looks_like_an_end_but_is_text_stays_text() {
    for (sent, expected) in [
        ("a\r\n..\r\nb\r\n.\r\n", "a\r\n.\r\nb\r\n"),
        ("..\r\n.\r\n", ".\r\n"),
        (".x\r\n.\r\n", "x\r\n"),
        ("a\r\n. \r\n.\r\n", "a\r\n \r\n"),
        ("a\r\n.\0\r\n.\r\n", "a\r\n\0\r\n"),
        ("a\0b\r\n.\r\n", "a\0b\r\n"),
        ("a\r\n...\r\n.\r\n", "a\r\n..\r\n"),
        ("a.\r\n.\r\n", "a.\r\n"),
        (".\r\n", ""),
        ("\r\n.\r\n", "\r\n"),
    ] {
        let mut session = TestSession::after_data();
        let replies = session.send(sent);
        assert_eq!((codes(&replies), session.texts()), (vec!["250"], vec![expected.as_bytes()]), "{sent:?}");
        let mut session = TestSession::after_data();
        sent.bytes().for_each(|byte| drop(session.send([byte])));
        assert_eq!(session.texts(), [expected.as_bytes()], "{sent:?} byte by byte");
    }
}

#[test]
fn commands_in_a_mail_are_its_text() {
    let mut session = TestSession::after_ehlo();
    let mail = "MAIL FROM:<eve@out.test>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\nRSET\r\nQUIT\r\nNOOP\r\n.\r\nNOOP\r\n";
    assert_eq!(codes(&session.send(mail)), ["250", "250", "354", "250", "250"], "no command in the data was executed");
    assert_eq!(session.texts(), [b"RSET\r\nQUIT\r\nNOOP\r\n"]);
}

#[test]
fn a_text_after_a_data_that_was_refused_is_not_obeyed() {
    let mut session = TestSession::after_ehlo();
    let replies = session.send(format!("MAIL FROM:<>\r\nRCPT TO:<gone@in.test>\r\nDATA\r\n{SMUGGLED_MAIL}"));
    assert_eq!(codes(&replies), ["250", "550", "503", "421"]);
    assert!(session.closed && session.accepted.is_empty());
    assert_eq!(session.tally.refused(Reason::OutOfTurn), 1);
    let mut session = TestSession::after_ehlo();
    let replies = session.send(format!("MAIL FROM:<>\r\nBDAT 200 LAST\r\n{SMUGGLED_MAIL}"));
    assert_eq!(codes(&replies), ["250", "502"]);
    assert!(session.closed && session.accepted.is_empty(), "chunks are not offered, so they are not read as commands");
}

#[test]
fn nothing_that_came_before_tls_counts_after_it() {
    let mut session = TestSession::after_ehlo();
    let replies = session.send("STARTTLS\r\nMAIL FROM:<eve@out.test>\r\n");
    assert!(replies.starts_with("554") && session.closed, "injected: {replies}");
    let mut session = TestSession::after_ehlo();
    assert_eq!(codes(&session.send("STARTTLS\r\n")), ["220"]);
    assert!(session.send("MAIL FROM:<eve@out.test>\r\n").starts_with("503"), "EHLO must be repeated");
}

#[test]
fn a_command_line_ends_in_cr_lf() {
    for line in ["NOOP\n", "NO\rOP\r\n", "\nNOOP\n", "NOOP\r\r\n"] {
        let mut session = TestSession::after_ehlo();
        let replies = session.send(line);
        assert!(replies.starts_with("500 5.5.2"), "{line:?}: {replies}");
    }
}

/// A simple reference implementation: where the data ends, and its content unless it has a bare line ending.
fn reference_parse(bytes: &[u8]) -> Option<(usize, Option<Vec<u8>>)> {
    let padded = [b"\r\n", bytes].concat();
    let end = padded.windows(5).position(|five| five == b"\r\n.\r\n")?;
    let text = &padded[2..end + 2];
    let at = |n: usize| text.get(n).copied();
    let is_bare = |n: usize| match text[n] {
        b'\r' => at(n + 1) != Some(b'\n'),
        b'\n' => n == 0 || at(n - 1) != Some(b'\r'),
        _ => false,
    };
    let content = (!(0..text.len()).any(is_bare)).then(|| {
        let lines = text.split_inclusive(|byte| *byte == b'\n');
        lines.flat_map(|line| line.strip_prefix(b".").unwrap_or(line)).copied().collect()
    });
    Some((end + 3, content))
}

#[test]
fn every_short_text_is_read_as_it_is_written_down() {
    for number in 0..4_usize.pow(8) {
        let letters = (0..8).map(|place| b"\r\n.a"[number >> (2 * place) & 3]);
        let bytes: Vec<u8> = letters.chain(*b"\r\n.\r\n").collect();
        let mut reader = DataReader::new(100, INITIAL_MEMORY);
        let (end, next) = reader.feed(&bytes);
        assert_eq!(next, DataStep::Complete, "{bytes:?}");
        let content = (reader.status() == DataStatus::Intact).then(|| reader.into_bytes().to_vec());
        assert_eq!(Some((end, content)), reference_parse(&bytes), "{:?}", String::from_utf8_lossy(&bytes));
    }
}
