//! A connection that breaks at any byte: nothing was taken, or exactly one mail.

use super::{Talk, codes};

const TRANSACTION: &str = "EHLO out.test\r\nMAIL FROM:<eve@out.test> SIZE=40\r\nRCPT TO:<ada@in.test>\r\n\
    RCPT TO:<gone@in.test>\r\nDATA\r\nSubject: x\r\n\r\n..dots\r\nhello\r\n.\r\nQUIT\r\n";

#[test]
fn a_cut_at_any_byte_takes_nothing_or_one() {
    let end = TRANSACTION.find("\r\n.\r\n").unwrap() + 5;
    for cut in 0..=TRANSACTION.len() {
        let mut talk = Talk::new();
        talk.say(&TRANSACTION[..cut]);
        let expected: &[&[u8]] = if cut < end { &[] } else { &[b"Subject: x\r\n\r\n.dots\r\nhello\r\n"] };
        assert_eq!(talk.texts(), expected, "cut after {cut} bytes");
    }
}

#[test]
fn however_it_is_divided_it_is_the_same() {
    let mut whole = Talk::new();
    let expected = whole.say(TRANSACTION);
    assert_eq!(codes(&expected), ["250", "250", "250", "550", "354", "250", "221"]);
    for first in 0..=TRANSACTION.len() {
        for second in [first, (first + 1).min(TRANSACTION.len()), (first + 7).min(TRANSACTION.len())] {
            let mut talk = Talk::new();
            let parts = [&TRANSACTION[..first], &TRANSACTION[first..second], &TRANSACTION[second..]];
            let said: String = parts.into_iter().map(|part| talk.say(part)).collect();
            assert_eq!(said, expected, "divided at {first} and {second}");
            assert_eq!(talk.taken, whole.taken);
        }
    }
    let mut talk = Talk::new();
    let said: String = TRANSACTION.bytes().map(|byte| talk.say([byte])).collect();
    assert_eq!(said, expected);
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
        let mut talk = Talk::in_text();
        let text = format!("{stuffed}.\r\n");
        let said: String = text.as_bytes().chunks(size).map(|part| talk.say(part)).collect();
        assert_eq!(codes(&said), ["250"]);
        assert_eq!(talk.texts(), [lines.as_bytes()], "in parts of {size}");
    }
}
