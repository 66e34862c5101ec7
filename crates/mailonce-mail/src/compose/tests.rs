//! The exact bytes of composed mails, and rejected input.

use super::*;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::outbound::content::{Attachment, RawContent};

fn content(change: impl FnOnce(&mut RawContent)) -> EmailContent {
    let mut raw = RawContent {
        from: "Ada <ada@example.com>".into(),
        to: vec!["bob@example.net".into()],
        subject: "Hello".into(),
        text: Some("Hi Bob\n".into()),
        ..RawContent::default()
    };
    change(&mut raw);
    EmailContent::validate(raw).unwrap()
}

fn compose_input(content: &EmailContent) -> ComposeInput<'_> {
    ComposeInput {
        content,
        message_id: "<m1@example.com>",
        date: Time(1_731_664_800_123),
        id: "0193a1b2-c3d4-7e5f-8a6b-0c1d2e3f4a5b".parse().unwrap(),
        in_reply_to: &[],
        references: &[],
        auto_submitted: None,
        loop_marker: None,
    }
}

fn composed(content: &EmailContent) -> String {
    String::from_utf8(compose(&compose_input(content)).unwrap()).unwrap()
}

fn file(filename: &str, content_id: Option<&str>, bytes: &[u8]) -> Attachment {
    Attachment {
        filename: Some(filename.into()),
        content_type: None,
        content_id: content_id.map(Into::into),
        bytes: bytes.to_vec(),
    }
}

#[test]
fn a_plain_mail_has_simple_headers_and_body() {
    let content = content(|raw| {
        raw.cc = vec!["\"Doe, Carol\" <carol@example.org>".into()];
        raw.bcc = vec!["hidden@example.org".into()];
        raw.reply_to = vec!["desk@example.com".into()];
        raw.headers = vec![("X-Order".into(), "4821".into())];
    });
    let expected = "From: Ada <ada@example.com>\r\n\
        To: bob@example.net\r\n\
        Cc: \"Doe, Carol\" <carol@example.org>\r\n\
        Reply-To: desk@example.com\r\n\
        Subject: Hello\r\n\
        Date: Fri, 15 Nov 2024 10:00:00 +0000\r\n\
        Message-ID: <m1@example.com>\r\n\
        MIME-Version: 1.0\r\n\
        X-Mailonce-Id: 0193a1b2-c3d4-7e5f-8a6b-0c1d2e3f4a5b\r\n\
        X-Order: 4821\r\n\
        Content-Type: text/plain; charset=\"utf-8\"\r\n\
        Content-Transfer-Encoding: 7bit\r\n\
        \r\n\
        Hi Bob\r\n";
    assert_eq!(composed(&content), expected);
}

#[test]
fn parts_are_nested_as_readers_expect() {
    let mut content = content(|raw| raw.html = Some("<p>Hi<img src=cid:logo></p>".into()));
    content.attachments = vec![file("logo.png", Some("<logo>"), b"png"), file("a.pdf", None, b"")];
    let mail = composed(&content);
    let outline: Vec<&str> = mail.lines().filter(|l| l.starts_with("Content-Type:") || l.starts_with("--")).collect();
    let kinds: Vec<&str> = outline.iter().filter_map(|l| l.strip_prefix("Content-Type: ")?.split(';').next()).collect();
    let expected = [
        "multipart/mixed",
        "multipart/alternative",
        "text/plain",
        "multipart/related",
        "text/html",
        "image/png",
        "application/pdf",
    ];
    assert_eq!(kinds, expected);
    assert!(mail.contains("Content-Disposition: inline; filename=\"logo.png\"\r\nContent-ID: <logo>\r\n"));
    assert!(mail.contains("Content-Disposition: attachment; filename=\"a.pdf\"\r\n\r\n\r\n--=_"));
}

#[test]
fn a_content_id_without_html_is_an_attachment() {
    let mut content = content(|_| {});
    content.attachments = vec![file("logo.png", Some("logo"), b"png")];
    let mail = composed(&content);
    assert!(mail.contains("multipart/mixed") && !mail.contains("multipart/related"));
    assert!(mail.contains("Content-Disposition: attachment;"));
}

#[test]
fn boundaries_are_derived_from_the_message_id() {
    let mut content = content(|_| {});
    content.attachments = vec![file("a", None, b"x")];
    let first = compose(&compose_input(&content)).unwrap();
    assert_eq!(first, compose(&compose_input(&content)).unwrap());
    let other = ComposeInput { message_id: "<m2@example.com>", ..compose_input(&content) };
    let other = String::from_utf8(compose(&other).unwrap()).unwrap();
    let boundary = |mail: &str| mail.split("boundary=").nth(1).unwrap()[..36].to_owned();
    assert_ne!(boundary(&String::from_utf8(first).unwrap()), boundary(&other));
}

#[test]
fn a_body_cannot_contain_a_boundary() {
    let boundary = {
        let mut content = content(|_| {});
        content.attachments = vec![file("a", None, b"x")];
        composed(&content).split("boundary=\"").nth(1).unwrap()[..34].to_owned()
    };
    let mut content = content(|raw| raw.text = Some(format!("x\n--{boundary}\nContent-Type: text/html\n\nevil")));
    content.attachments = vec![file("a", None, b"x")];
    assert_eq!(composed(&content).matches(&format!("--{boundary}")).count(), 3);
}

#[test]
fn references_of_long_threads_are_truncated_in_the_middle() {
    let content = content(|raw| raw.headers = vec![("references".into(), "<copied@x>".into())]);
    let ids: Vec<String> = (0..500).map(|i| format!("<{i}@example.com>")).collect();
    let letter = ComposeInput {
        in_reply_to: &ids[499..],
        references: &ids,
        auto_submitted: Some(AutoSubmitted::Replied),
        ..compose_input(&content)
    };
    let mail = String::from_utf8(compose(&letter).unwrap()).unwrap();
    let references = mail.split("References: ").nth(1).unwrap().split("\r\nAuto").next().unwrap();
    let named: Vec<&str> = references.split_whitespace().collect();
    assert_eq!(
        (named.len(), named[0], named[1], named[99]),
        (MAX_REFERENCES, "<0@example.com>", "<401@example.com>", "<499@example.com>")
    );
    assert!(mail.contains("\r\nIn-Reply-To: <499@example.com>\r\n"));
    assert!(mail.contains("\r\nAuto-Submitted: auto-replied\r\n"));
    assert!(!mail.contains("copied"));
}

#[test]
fn an_international_address_needs_smtputf8_and_a_name_does_not() {
    let plain = content(|raw| {
        raw.to = vec!["Jürgen <j@müller.de>".into()];
        raw.bcc = vec!["jürgen@example.com".into()];
    });
    assert!(!needs_smtputf8(&plain));
    assert!(composed(&plain).is_ascii());
    let international = content(|raw| raw.reply_to = vec!["Jürgen <jürgen@müller.de>".into()]);
    assert!(needs_smtputf8(&international));
    assert!(composed(&international).contains("Reply-To: =?utf-8?Q?J=C3=BCrgen?= <jürgen@xn--mller-kva.de>\r\n"));
}

#[test]
fn header_injection_is_rejected() {
    let refused = |change: fn(&mut EmailContent)| {
        let mut content = content(|_| {});
        content.attachments = vec![file("a", None, b"")];
        change(&mut content);
        compose(&compose_input(&content)).unwrap_err()
    };
    let control = |field: &str| ComposeError::ControlCharacter(field.into());
    assert_eq!(refused(|c| c.subject = "a\r\nBcc: x@y".into()), control("Subject"));
    assert_eq!(refused(|c| c.subject = "a\0".into()), control("Subject"));
    assert_eq!(refused(|c| c.from.name = Some("a\n".into())), control("From"));
    assert_eq!(refused(|c| c.to[0].address = "a@b\r\nX: y".into()), ComposeError::Address("To"));
    assert_eq!(refused(|c| c.to[0].address = "a@b, c@d".into()), ComposeError::Address("To"));
    assert_eq!(refused(|c| c.to[0].address = "<a@b>".into()), ComposeError::Address("To"));
    assert_eq!(refused(|c| c.to[0].address = "a".into()), ComposeError::Address("To"));
    assert_eq!(refused(|c| c.to[0].address = "=?x?q?a=40b?=@c".into()), ComposeError::Address("To"));
    assert_eq!(refused(|c| c.headers = vec![("X".into(), "a\rb".into())]), control("X"));
    assert_eq!(refused(|c| c.headers = vec![("X: y".into(), String::new())]), ComposeError::Header("X: y".into()));
    assert_eq!(refused(|c| c.headers = vec![("bCC".into(), "x@y".into())]), ComposeError::Header("bCC".into()));
    assert_eq!(refused(|c| c.attachments[0].filename = Some("a\r\nX: y".into())), control("attachment 0"));
    assert_eq!(refused(|c| c.attachments[0].content_type = Some("a/b\r\nX: y".into())), control("attachment 0"));
    assert_eq!(refused(|c| c.attachments[0].content_id = Some("a\nb".into())), control("attachment 0"));
    assert_eq!(refused(|c| c.attachments[0].content_id = Some("ü".repeat(200))), ComposeError::ContentId(0));
    assert_eq!(refused(|c| c.text = Some("a\0b".into())), control("text/plain"));
}

#[test]
fn message_ids_are_checked() {
    for id in ["", "m1@example.com", "<>", "<a b@c>", "<a@b>\r\nX: y", "<a@b> <c@d>", "<ü@b>", "<=?utf-8?Q?x?=@b>"] {
        let content = content(|_| {});
        assert!(!is_message_id(id), "{id}");
        let own = compose(&ComposeInput { message_id: id, ..compose_input(&content) });
        assert_eq!(own, Err(ComposeError::MessageId("Message-ID")), "{id}");
        let other = compose(&ComposeInput { references: &[id.to_owned()], ..compose_input(&content) });
        assert_eq!(other, Err(ComposeError::MessageId("References")), "{id}");
    }
    let long = format!("<{}@b>", "a".repeat(MAX_HEADER_WORD_OCTETS));
    assert!(!is_message_id(&long));
}

#[test]
fn a_date_out_of_range_is_rejected() {
    let content = content(|_| {});
    for date in [Time(i64::MAX), Time(i64::MIN)] {
        assert_eq!(compose(&ComposeInput { date, ..compose_input(&content) }), Err(ComposeError::Date));
    }
}

#[test]
fn large_attachments_are_composed_in_one_go() {
    let mut content = content(|_| {});
    let bytes: Vec<u8> = (0..20_000_000_u32).map(|i| (i ^ (i >> 8)) as u8).collect();
    content.attachments = vec![file("big.bin", None, &bytes)];
    let mail = compose(&compose_input(&content)).unwrap();
    // The size estimate avoids reallocations, each of which would copy the mail.
    assert!(mail.capacity() < mail.len() + 10_000);
    let text = String::from_utf8(mail).unwrap();
    let body = text.split("filename=\"big.bin\"\r\n\r\n").nth(1).unwrap().split("\r\n--").next().unwrap();
    assert!(STANDARD.decode(body.replace("\r\n", "")).unwrap() == bytes, "the decoded bytes differ");
}
