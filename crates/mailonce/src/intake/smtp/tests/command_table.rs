//! Every command in every state, and every reply.

use super::{MAX_SIZE, TestSession, codes};
use crate::intake::smtp::{mail_receiver::NotAccepted, metrics::Reason};

/// A command, and its reply codes before EHLO, after EHLO, after MAIL and after RCPT.
const TABLE: [(&str, [&str; 4]); 15] = [
    ("EHLO again.test", ["250", "250", "250", "250"]),
    ("HELO again.test", ["250", "250", "250", "250"]),
    ("MAIL FROM:<eve@out.test>", ["503", "250", "503", "503"]),
    ("RCPT TO:<bob@in.test>", ["503", "503", "250", "250"]),
    ("DATA", ["503", "503", "503", "354"]),
    ("RSET", ["250", "250", "250", "250"]),
    ("NOOP", ["250", "250", "250", "250"]),
    ("VRFY ada", ["252", "252", "252", "252"]),
    ("HELP", ["214", "214", "214", "214"]),
    ("QUIT", ["221", "221", "221", "221"]),
    ("STARTTLS", ["503", "220", "503", "503"]),
    ("BDAT 5 LAST", ["502", "502", "502", "502"]),
    ("AUTH PLAIN AGEAYg==", ["502", "502", "502", "502"]),
    ("EXPN list", ["502", "502", "502", "502"]),
    ("WHAT", ["500", "500", "500", "500"]),
];

/// The commands that lead to each state.
const STATE_SETUPS: [&[&str]; 4] = [
    &[],
    &["EHLO out.test"],
    &["EHLO out.test", "MAIL FROM:<eve@out.test>"],
    &["EHLO out.test", "MAIL FROM:<eve@out.test>", "RCPT TO:<ada@in.test>"],
];

/// The state of a session, found by trying RCPT and MAIL.
fn state(session: &mut TestSession) -> &'static str {
    match (codes(&session.send("RCPT TO:<x@in.test>\r\n")).first().copied(), session.closed) {
        (_, true) => "closed",
        (Some("250"), _) => "mail",
        _ if codes(&session.send("MAIL FROM:<>\r\n")) == ["250"] => "greeted",
        _ => "new",
    }
}

#[test]
fn every_command_in_every_state() {
    for (command, answers) in TABLE {
        for (setup, answer) in STATE_SETUPS.iter().zip(answers) {
            let mut session = TestSession::new();
            for line in *setup {
                session.send(format!("{line}\r\n"));
            }
            let replies = session.send(format!("{command}\r\n"));
            assert_eq!(codes(&replies), [answer], "{command} after {setup:?}: {replies}");
            let closes = matches!(command, "QUIT" | "BDAT 5 LAST");
            assert_eq!(session.closed, closes, "{command} after {setup:?}");
        }
    }
}

#[test]
fn commands_lead_to_the_states_they_should() {
    for (command, states) in [
        ("EHLO again.test", ["greeted"; 4]),
        ("HELO again.test", ["greeted"; 4]),
        ("RSET", ["new", "greeted", "greeted", "greeted"]),
        ("NOOP", ["new", "greeted", "mail", "mail"]),
        ("VRFY ada", ["new", "greeted", "mail", "mail"]),
        ("WHAT", ["new", "greeted", "mail", "mail"]),
        ("MAIL FROM:<eve@out.test>", ["new", "mail", "mail", "mail"]),
        ("STARTTLS", ["new", "new", "mail", "mail"]),
        ("QUIT", ["closed"; 4]),
    ] {
        for (setup, expected) in STATE_SETUPS.iter().zip(states) {
            let mut session = TestSession::new();
            for line in *setup {
                session.send(format!("{line}\r\n"));
            }
            session.send(format!("{command}\r\n"));
            assert_eq!(state(&mut session), expected, "{command} after {setup:?}");
        }
    }
}

#[test]
fn ehlo_lists_exactly_the_supported_extensions() {
    let mut session = TestSession::new();
    let replies = session.send("EHLO out.test\r\n");
    let offered: Vec<_> = replies.lines().map(|line| &line[4..]).collect();
    let size = format!("SIZE {MAX_SIZE}");
    let plain = ["mx.in.test", "PIPELINING", &size, "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES"];
    assert_eq!(offered, [&plain[..], &["STARTTLS"]].concat());
    session.send("STARTTLS\r\n");
    assert!(!session.send("EHLO out.test\r\n").contains("STARTTLS"), "TLS runs already");
    assert!(session.send("STARTTLS\r\n").starts_with("503 5.5.1"));
    assert_eq!(TestSession::new().send("HELO out.test\r\n"), "250 mx.in.test\r\n");
}

#[test]
fn every_verdict_has_its_answer() {
    let mut session = TestSession::after_ehlo();
    session.send("MAIL FROM:<>\r\n");
    for (name, expected) in [
        ("ada", "250 2.1.5"),
        ("ADA", "250 2.1.5"),
        ("gone", "550 5.1.1"),
        ("old", "550 5.2.1"),
        ("rude", "550 5.7.1 refused"),
        ("far", "550 5.7.1 relaying denied"),
        ("ill", "451 4.3.0"),
        ("bob", "250 2.1.5"),
        ("cyd", "250 2.1.5"),
        ("dan", "452 4.5.3"),
        ("bob", "250 2.1.5"),
    ] {
        let reply = session.send(format!("RCPT TO:<{name}@In.Test>\r\n"));
        assert!(reply.starts_with(expected), "{name}: {reply}");
    }
    assert_eq!(codes(&session.send("DATA\r\n")), ["354"]);
    assert!(session.send("hello\r\n.\r\n").starts_with("250 2.0.0"));
    let mail = &session.accepted[0];
    assert_eq!((mail.sender.as_str(), mail.helo.as_str()), ("", "out.test"));
    assert_eq!(mail.recipients, ["ada@in.test", "bob@in.test", "cyd@in.test"]);
    for reason in [Reason::Unknown, Reason::Expired, Reason::Blocked, Reason::Elsewhere, Reason::Recipients] {
        assert_eq!(session.tally.refused(reason), 1, "{reason:?}");
    }
    assert_eq!((session.tally.accepted(), session.tally.accepted_octets()), (1, 7));
}

#[test]
fn addresses_are_addresses() {
    for (line, expected) in [
        ("MAIL FROM:<a..b@out.test>", "501 5.1.7"),
        ("MAIL FROM:<a@[192.0.2.1]>", "501 5.1.7"),
        ("MAIL FROM:<ü@out.test>", "553 5.6.7"),
        ("MAIL FROM:<a@müller.de>", "553 5.6.7"),
        ("MAIL FROM:<ü@out.test> SMTPUTF8", "250"),
        ("MAIL FROM:<eve@out.test> SIZE=40001", "552 5.3.4"),
        ("MAIL FROM:<eve@out.test> SIZE=40000", "250"),
        ("MAIL FROM:<eve@out.test> SIZE=99999999999999999999", "501 5.5.4"),
        ("MAIL FROM:<eve@out.test> WHAT=1", "555 5.5.4"),
        ("MAIL FROM:eve@out.test", "501 5.5.4"),
    ] {
        let reply = TestSession::after_ehlo().send(format!("{line}\r\n"));
        assert!(reply.starts_with(expected), "{line}: {reply}");
    }
    for (mail, line, expected) in [
        ("", "RCPT TO:<a b@in.test>", "501 5.1.3"),
        ("", "RCPT TO:<.a@in.test>", "501 5.1.3"),
        ("", "RCPT TO:<a@-in.test>", "501 5.1.3"),
        ("", "RCPT TO:<ü@in.test>", "553 5.6.7"),
        (" SMTPUTF8", "RCPT TO:<ü@in.test>", "250"),
        (" SMTPUTF8", "RCPT TO:<a@müller.de>", "250"),
        ("", "RCPT TO:<Postmaster>", "250"),
    ] {
        let mut session = TestSession::after_ehlo();
        session.send(format!("MAIL FROM:<eve@out.test>{mail}\r\n"));
        let reply = session.send(format!("{line}\r\n"));
        assert!(reply.starts_with(expected), "{line}: {reply}");
    }
}

#[test]
fn a_sender_keeps_its_case_and_a_recipient_does_not() {
    let mut session = TestSession::after_ehlo();
    session.send("MAIL FROM:<Eve.X@Out.TEST>\r\nRCPT TO:<Ada@In.TEST>\r\nRCPT TO:<PostMaster>\r\nDATA\r\n");
    session.send("x\r\n.\r\n");
    assert_eq!(session.accepted[0].sender, "Eve.X@out.test");
    assert_eq!(session.accepted[0].recipients, ["ada@in.test", "postmaster@mx.in.test"]);
}

#[test]
fn a_mail_that_is_too_large_is_refused_and_the_next_one_taken() {
    let largest = "x".repeat(MAX_SIZE - 2);
    let mut session = TestSession::after_data();
    assert!(session.send(format!("{largest}\r\n.\r\n")).starts_with("250"), "just fits");
    assert_eq!(session.accepted[0].raw.len(), MAX_SIZE);
    let envelope = "MAIL FROM:<eve@out.test>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\n";
    session.send(envelope);
    assert_eq!(session.send(format!("x{largest}\r\n")), "", "nothing is said before the end");
    assert_eq!(session.session.memory_octets(), 0, "nothing is held of it");
    assert!(session.send("more\r\n.\r\n").starts_with("552 5.3.4"));
    session.send(envelope);
    assert!(session.send("small\r\n.\r\n").starts_with("250"));
    assert_eq!(session.accepted.len(), 2);
    session.send(envelope);
    let replies: String = (0..30).map(|_| session.send("y".repeat(5000))).collect();
    assert!(replies.starts_with("552 5.3.4") && session.closed, "endless: {replies}");
}

#[test]
fn long_lines_are_for_mails_only() {
    let mut session = TestSession::after_ehlo();
    let noop = |octets: usize| format!("NOOP {}\r\n", "x".repeat(octets - 7));
    assert!(session.send(noop(2048)).starts_with("250"));
    assert!(session.send(noop(2049)).starts_with("500 5.5.2"));
    assert!(session.send(noop(9000)).starts_with("500 5.5.2"));
    assert_eq!(session.send("x".repeat(3000)), "");
    assert_eq!(session.send("x".repeat(3000)), "");
    assert_eq!(codes(&session.send("x\r\nNOOP\r\n")), ["500", "250"], "one answer to one line");
    let replies: String = (0..30).map(|_| session.send("x".repeat(3000))).collect();
    assert!(replies.starts_with("500 5.5.2") && session.closed, "endless: {replies}");
    let mut session = TestSession::after_data();
    assert!(session.send(format!("{}\r\n.\r\n", "x".repeat(30_000))).starts_with("250"));
}

#[test]
fn ten_invalid_commands_close_the_connection() {
    let mut session = TestSession::after_ehlo();
    for n in 1..10 {
        assert!(session.send("WHAT\r\n").starts_with("500"), "mistake {n}");
    }
    assert!(session.send("RCPT TO:<ada@in.test>\r\n").starts_with("421 4.7.0"));
    assert!(session.closed);
    let mut session = TestSession::after_ehlo();
    session.send("MAIL FROM:<>\r\n");
    let replies: String = (0..101).map(|n| session.send(format!("RCPT TO:<gone@in{n}.test>\r\n"))).collect();
    assert_eq!((codes(&replies).last().copied(), session.closed), (Some("421"), true), "no dictionaries");
    let mut session = TestSession::after_ehlo();
    let replies: String = (0..1000).map(|_| session.send("NOOP\r\n")).collect();
    assert_eq!((codes(&replies).last().copied(), session.closed), (Some("421"), true), "no idle chatter");
    let mut session = TestSession::after_ehlo();
    for _ in 0..400 {
        session.send("MAIL FROM:<>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\n");
        assert!(session.send("x\r\n.\r\n").starts_with("250"));
    }
}

#[test]
fn no_room_no_keeping_and_too_many_are_for_later() {
    let mut session = TestSession::after_ehlo();
    session.may_begin = false;
    assert!(session.send("MAIL FROM:<>\r\n").starts_with("450 4.7.1"));
    assert!(session.send("RCPT TO:<ada@in.test>\r\n").starts_with("503"), "it did not begin");
    let mut session = TestSession::after_ehlo();
    session.has_room = false;
    assert!(session.send("MAIL FROM:<>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\n").contains("\n451 4.3.1"));
    session.has_room = true;
    assert!(session.send("DATA\r\n").starts_with("354"), "the envelope is still there");
    session.has_room = false;
    assert_eq!(session.send("x".repeat(20_000)), "");
    assert!(session.send("\r\n.\r\n").starts_with("451 4.3.1"), "no room in the middle");
    let mut session = TestSession::after_data();
    session.accept_result = Err(NotAccepted::TemporaryError);
    assert!(session.send("x\r\n.\r\n").starts_with("451 4.3.0"));
    assert!(session.send("DATA\r\n").starts_with("503"), "the transaction is over");
    assert_eq!((session.accepted.len(), session.tally.accepted(), session.tally.refused(Reason::Trouble)), (0, 0, 1));
}

#[test]
fn a_mail_whose_recipients_are_gone_is_not_acknowledged() {
    for (why, answer) in [(NotAccepted::AllRecipientsGone, "550 5.1.1"), (NotAccepted::SomeRecipientsGone, "451 4.2.1")]
    {
        let mut session = TestSession::after_data();
        session.accept_result = Err(why);
        assert!(session.send("x\r\n.\r\n").starts_with(answer));
        assert_eq!((session.tally.accepted(), session.tally.refused(Reason::Gone)), (0, 1));
    }
}

#[test]
fn a_tls_handshake_closes_the_connection() {
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03random";
    let with_line_end = b"\x16\x03\x03\x00\x40\x01\r\nEHLO out.test\r\nMAIL FROM:<eve@out.test>\r\n";
    for bytes in [&hello[..], with_line_end] {
        let mut session = TestSession::new();
        let replies = session.send(bytes);
        assert_eq!((codes(&replies), session.closed), (vec!["554"], true), "{replies}");
        assert_eq!(session.tally.refused(Reason::Syntax), 1);
    }
    let mut session = TestSession::new();
    assert_eq!((session.send(b"\x16"), session.closed), (String::new(), false), "half of the first two bytes");
    assert_eq!((codes(&session.send(b"\x03\x01")), session.closed), (vec!["554"], true));
}

#[test]
fn an_http_request_closes_the_connection() {
    let smuggled = "Host: mx.in.test\r\n\r\nEHLO out.test\r\nMAIL FROM:<eve@out.test>\r\n";
    let long = format!("POST /{} HTTP/1.1", "x".repeat(5_000));
    for request in ["POST / HTTP/1.1", "GET /x?y", "options * HTTP/1.1", "PRI * HTTP/2.0", "PURGE / HTTP/1.1", &long] {
        for end in ["\r\n", "\n"] {
            let mut session = TestSession::new();
            let replies = session.send(format!("{request}{end}{smuggled}"));
            assert_eq!((codes(&replies), session.closed), (vec!["554"], true), "{request}: {replies}");
            assert_eq!(session.tally.refused(Reason::Syntax), 1, "{request}");
        }
    }
    let mut session = TestSession::new();
    assert_eq!(codes(&session.send(&long[..3_000])), ["554"], "before the end of a long line");
    for command in ["POST", "POSTER x", "NOOP HTTP/1.1", "EHLO HTTP/1.1", "WHAT HTTP/"] {
        let mut session = TestSession::new();
        session.send(format!("{command}\r\n"));
        assert!(!session.closed, "{command}");
    }
}
