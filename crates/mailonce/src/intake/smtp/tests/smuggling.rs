//! Tricks: ends of data that are none, commands inside of mails, bytes where none may be.

use super::{TestSession, codes};
use crate::intake::smtp::{
    data_reader::{DataReader, DataStatus, DataStep, INITIAL_MEMORY},
    metrics::Reason,
};

/// Sequences that some server somewhere took for an end of data. None is one.
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
            let mut talk = TestSession::after_data();
            let text = format!("Subject: one\r\n\r\nhi{false_end}{SMUGGLED_MAIL}");
            let said =
                if whole { talk.send(&text) } else { text.bytes().map(|byte| talk.send([byte])).collect::<String>() };
            // Everything up to the real end is one mail, and it is refused.
            assert!(said.starts_with("554 5.6.11"), "{false_end:?}: {said}");
            assert_eq!(codes(&said), ["554"], "{false_end:?}");
            assert!(talk.closed && talk.accepted.is_empty(), "{false_end:?}");
            assert_eq!(talk.tally.refused(Reason::LineEnd), 1);
        }
    }
}

#[test]
fn what_looks_like_an_end_but_is_text_stays_text() {
    for (sent, kept) in [
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
        let mut talk = TestSession::after_data();
        let said = talk.send(sent);
        assert_eq!((codes(&said), talk.texts()), (vec!["250"], vec![kept.as_bytes()]), "{sent:?}");
        let mut talk = TestSession::after_data();
        sent.bytes().for_each(|byte| drop(talk.send([byte])));
        assert_eq!(talk.texts(), [kept.as_bytes()], "{sent:?} byte by byte");
    }
}

#[test]
fn commands_in_a_mail_are_its_text() {
    let mut talk = TestSession::after_ehlo();
    let mail = "MAIL FROM:<eve@out.test>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\nRSET\r\nQUIT\r\nNOOP\r\n.\r\nNOOP\r\n";
    assert_eq!(codes(&talk.send(mail)), ["250", "250", "354", "250", "250"], "not one command of the text was obeyed");
    assert_eq!(talk.texts(), [b"RSET\r\nQUIT\r\nNOOP\r\n"]);
}

#[test]
fn a_text_after_a_data_that_was_refused_is_not_obeyed() {
    let mut talk = TestSession::after_ehlo();
    let said = talk.send(format!("MAIL FROM:<>\r\nRCPT TO:<gone@in.test>\r\nDATA\r\n{SMUGGLED_MAIL}"));
    assert_eq!(codes(&said), ["250", "550", "503", "421"]);
    assert!(talk.closed && talk.accepted.is_empty());
    assert_eq!(talk.tally.refused(Reason::OutOfTurn), 1);
    let mut talk = TestSession::after_ehlo();
    let said = talk.send(format!("MAIL FROM:<>\r\nBDAT 200 LAST\r\n{SMUGGLED_MAIL}"));
    assert_eq!(codes(&said), ["250", "502"]);
    assert!(talk.closed && talk.accepted.is_empty(), "chunks are not offered, so they are not read as commands");
}

#[test]
fn nothing_that_came_before_tls_counts_after_it() {
    let mut talk = TestSession::after_ehlo();
    let said = talk.send("STARTTLS\r\nMAIL FROM:<eve@out.test>\r\n");
    assert!(said.starts_with("554") && talk.closed, "injected: {said}");
    let mut talk = TestSession::after_ehlo();
    assert_eq!(codes(&talk.send("STARTTLS\r\n")), ["220"]);
    assert!(talk.send("MAIL FROM:<eve@out.test>\r\n").starts_with("503"), "the greeting is forgotten");
}

#[test]
fn a_command_line_ends_in_cr_lf() {
    for line in ["NOOP\n", "NO\rOP\r\n", "\nNOOP\n", "NOOP\r\r\n"] {
        let mut talk = TestSession::after_ehlo();
        let said = talk.send(line);
        assert!(said.starts_with("500 5.5.2"), "{line:?}: {said}");
    }
}

/// Where a text ends and what is kept of it, said the plain way.
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
    let kept = (!(0..text.len()).any(is_bare)).then(|| {
        let lines = text.split_inclusive(|byte| *byte == b'\n');
        lines.flat_map(|line| line.strip_prefix(b".").unwrap_or(line)).copied().collect()
    });
    Some((end + 3, kept))
}

#[test]
fn every_short_text_is_read_as_it_is_written_down() {
    for number in 0..4_usize.pow(8) {
        let letters = (0..8).map(|place| b"\r\n.a"[number >> (2 * place) & 3]);
        let bytes: Vec<u8> = letters.chain(*b"\r\n.\r\n").collect();
        let mut text = DataReader::new(100, INITIAL_MEMORY);
        let (end, next) = text.feed(&bytes);
        assert_eq!(next, DataStep::Complete, "{bytes:?}");
        let kept = (text.status() == DataStatus::Intact).then(|| text.into_bytes().to_vec());
        assert_eq!(Some((end, kept)), reference_parse(&bytes), "{:?}", String::from_utf8_lossy(&bytes));
    }
}
