//! A connection that breaks at any byte: either no mail was accepted, or exactly one.

use super::{TestSession, codes};
use crate::intake::smtp::{data_reader::SPOOL_ABOVE, reply};

const TRANSACTION: &str = "EHLO out.test\r\nMAIL FROM:<eve@out.test> SIZE=40\r\nRCPT TO:<ada@in.test>\r\n\
    RCPT TO:<gone@in.test>\r\nDATA\r\nSubject: x\r\n\r\n..dots\r\nhello\r\n.\r\nQUIT\r\n";

#[test]
fn a_cut_at_any_byte_takes_nothing_or_one() {
    let end = TRANSACTION.find("\r\n.\r\n").unwrap() + 5;
    for cut in 0..=TRANSACTION.len() {
        let mut session = TestSession::new();
        session.send(&TRANSACTION[..cut]);
        let expected: &[&[u8]] = if cut < end { &[] } else { &[b"Subject: x\r\n\r\n.dots\r\nhello\r\n"] };
        assert_eq!(session.texts(), expected, "cut after {cut} bytes");
    }
}

#[test]
fn however_it_is_divided_it_is_the_same() {
    let mut whole = TestSession::new();
    let expected = whole.send(TRANSACTION);
    assert_eq!(codes(&expected), ["250", "250", "250", "550", "354", "250", "221"]);
    for first in 0..=TRANSACTION.len() {
        for second in [first, (first + 1).min(TRANSACTION.len()), (first + 7).min(TRANSACTION.len())] {
            let mut session = TestSession::new();
            let parts = [&TRANSACTION[..first], &TRANSACTION[first..second], &TRANSACTION[second..]];
            let replies: String = parts.into_iter().map(|part| session.send(part)).collect();
            assert_eq!(replies, expected, "divided at {first} and {second}");
            assert_eq!(session.accepted, whole.accepted);
        }
    }
    let mut session = TestSession::new();
    let replies: String = TRANSACTION.bytes().map(|byte| session.send([byte])).collect();
    assert_eq!(replies, expected);
}

#[test]
fn a_spooled_text_is_the_same_however_it_is_divided() {
    let lines = (0..9_000).fold(String::new(), |lines, n| lines + &format!("line {n} {}\r\n", "x".repeat(n % 90)));
    // One very long line, so that a chunk ends within a line.
    let text = format!("{lines}{}\r\n", "y".repeat(300_000));
    for size in [7, 1000, 4096, 16_384, 1_000_000] {
        let mut session = TestSession::with_max_size(text.len());
        session.send("EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\n");
        let mut held = 0;
        let whole = format!("{text}.\r\n");
        for part in whole.as_bytes().chunks(size) {
            assert!(session.accepted.is_empty());
            session.send(part);
            held = held.max(session.session.memory_octets());
        }
        assert_eq!(session.texts(), [text.as_bytes()], "in parts of {size}");
        assert!(size > 300_000 || held == SPOOL_ABOVE, "{held} octets of memory for a text of {}", text.len());
        assert_eq!(
            (session.session.memory_octets(), session.session.spooled_octets()),
            (0, 0),
            "all memory and spool space is released"
        );
    }
    let mut session = TestSession::with_max_size(text.len() - 1);
    session.send("EHLO out.test\r\nMAIL FROM:<>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\n");
    assert!(session.send(format!("{text}.\r\n")).starts_with("552 5.3.4"), "one octet too large");
}

#[test]
fn a_full_disk_is_reported_after_the_body_and_nothing_is_accepted() {
    let mut session = TestSession::with_max_size(1_000_000);
    let envelope = "MAIL FROM:<>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\n";
    session.send(format!("EHLO out.test\r\n{envelope}"));
    session.disk = Err(reply::DISK_FULL);
    assert_eq!(session.send("x".repeat(500_000)), "");
    assert_eq!(
        (session.session.memory_octets(), session.session.spooled_octets()),
        (0, 0),
        "no memory or spool space is held"
    );
    assert!(session.send("\r\n.\r\n").starts_with("452 4.3.1"));
    (session.disk, session.spooled) = (Ok(()), Vec::new());
    session.send(envelope);
    assert!(session.send("x\r\n.\r\n").starts_with("250"), "the session continues");
    assert_eq!(session.texts(), [b"x\r\n"]);
}

#[test]
fn a_large_text_is_the_same_however_it_is_divided() {
    let starts = ["", ".", "line ", ".."];
    let lines = (0..900).fold(String::new(), |lines, n| lines + starts[n % 4] + &n.to_string() + "\r\n");
    let stuffed = lines.split_inclusive("\r\n").fold(String::new(), |text, line| {
        let dot = if line.starts_with('.') { "." } else { "" };
        text + dot + line
    });
    for size in [1, 2, 3, 5, 64, 1000, 4096, 100_000] {
        let mut session = TestSession::after_data();
        let text = format!("{stuffed}.\r\n");
        let replies: String = text.as_bytes().chunks(size).map(|part| session.send(part)).collect();
        assert_eq!(codes(&replies), ["250"]);
        assert_eq!(session.texts(), [lines.as_bytes()], "in parts of {size}");
    }
}
