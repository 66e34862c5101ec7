//! Well-formed, malformed and oversized mails.

use super::*;

fn crlf(text: &str) -> Vec<u8> {
    text.replace('\n', "\r\n").into_bytes()
}

const PLAIN: &str = "\
Return-Path: <bounce@example.com>
Received: from a by b
From: =?utf-8?q?J=C3=BCrgen?= <Jo@EXAMPLE.com>
To: Ada <ada@x.example>, Group: b@x.example, c@x.example;
Cc: d@x.example
Subject: =?utf-8?b?SGVsbMO2?=
  world
Date: Sun, 15 Nov 2026 10:00:00 +0200
Message-ID:
 <one@example.com>
In-Reply-To: <zero@example.com>
References: <minus@example.com>\t<zero@example.com>
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

Gr=FC=DFe =
weiter
";

#[test]
fn a_plain_mail_is_parsed() {
    let mail = parse(&crlf(PLAIN));

    let name = |m: &NamedAddress| (m.name.clone().unwrap_or_default(), m.address.clone());
    assert_eq!(mail.from.iter().map(name).collect::<Vec<_>>(), [("Jürgen".to_owned(), "Jo@example.com".to_owned())]);
    assert_eq!(
        mail.to.iter().map(|m| m.address.as_str()).collect::<Vec<_>>(),
        ["ada@x.example", "b@x.example", "c@x.example"]
    );
    assert_eq!(mail.cc.len(), 1);
    assert_eq!(mail.subject, "Hellö world");
    assert_eq!(mail.date.map(|date| date.to_string()).as_deref(), Some("2026-11-15T08:00:00.000Z"));
    assert_eq!(mail.message_id.as_deref(), Some("<one@example.com>"));
    assert_eq!(mail.in_reply_to, ["<zero@example.com>"]);
    assert_eq!(mail.references, ["<minus@example.com>", "<zero@example.com>"]);
    assert_eq!(mail.text.as_deref(), Some("Grüße weiter\n"));
    assert_eq!((mail.html, mail.attachments.len(), mail.cut.is_truncated()), (None, 0, false));
    assert_eq!(mail.headers.first("SUBJECT"), Some("Hellö world"));
    assert_eq!(mail.signs.received, 1);
    // A mail with bare line feeds gives the same result.
    assert_eq!(parse(PLAIN.as_bytes()).text.as_deref(), Some("Grüße weiter\n"));
}

const PARTS_MAIL: &str = "\
From: a@x.example
Content-Type: multipart/mixed; boundary=\"out\"

prologue
--out
Content-Type: multipart/alternative; boundary=in

--in
Content-Type: text/plain; charset=utf-8

plain
--in
Content-Type: text/html

<b>html</b>
--in--
--out
Content-Type: application/pdf; name=\"../../etc/b\u{202e}ill.pdf\"
Content-Disposition: attachment
Content-Transfer-Encoding: base64

aGVs
bG8=
--out
Content-Type: image/png
Content-ID: <logo@x>
Content-Disposition: inline

png
--out
Content-Type: message/rfc822

From: inner@x.example
Subject: inner

inner text
--out--
epilogue
";

#[test]
fn bodies_and_attachments_are_separated() {
    let raw = crlf(PARTS_MAIL);
    let mail = parse(&raw);

    assert_eq!(mail.text.as_deref(), Some("plain"));
    assert_eq!(mail.html.as_deref(), Some("<b>html</b>"));
    let [pdf, png, inner] = mail.attachments.as_slice() else { panic!("{:?}", mail.attachments) };
    assert_eq!((pdf.filename.as_deref(), pdf.size, pdf.inline), (Some("bill.pdf"), 5, false));
    assert_eq!(pdf.decode(&raw), b"hello");
    assert_eq!((png.content_id.as_deref(), png.inline), (Some("logo@x"), true));
    assert_eq!(inner.content_type, "message/rfc822");
    assert!(inner.decode(&raw).starts_with(b"From: inner"));
}

#[test]
fn a_parsed_mail_survives_serialization() {
    let mail = parse(&crlf(PARTS_MAIL));
    let json = serde_json::to_string(&mail).unwrap();
    assert_eq!(serde_json::from_str::<ParsedMail>(&json).unwrap(), mail);
}

#[test]
fn malformed_mails_keep_what_can_be_parsed() {
    for (raw, text) in [
        ("no header at all", "no header at all"),
        ("Subject: x\nnot a field\nbody", "not a field\nbody"),
        ("Content-Type: multipart/mixed; boundary=z\n\nno boundary here", ""),
        ("Content-Type: multipart/mixed; boundary=z\n\n--z\n\nunclosed", "unclosed"),
        ("Content-Type: text/plain; charset=klingon\n\nh\u{e9}", "h\u{e9}"),
        ("Content-Transfer-Encoding: base64\n\naGVs*bG8", "hello"),
        ("Content-Transfer-Encoding: quoted-printable\n\n=ZZ=4", "=ZZ=4"),
        ("From x Mon\nSubject: y\n\nz", "z"),
    ] {
        assert_eq!(parse(raw.as_bytes()).text.unwrap_or_default(), text, "{raw:?}");
    }
    assert_eq!(parse(b"Subject: x\n\n\xe9t\xe9").text.as_deref(), Some("été"), "8 bit without a charset");
    assert_eq!(parse(b""), parse(b""));
}

#[test]
fn from_is_parsed_after_blank_lines_and_without_obsolete_spaces() {
    for raw in [
        "From: ceo@bank.test\n\n",
        "\nFrom: ceo@bank.test\n\n",
        " \nFrom: ceo@bank.test\n\n",
        "From foo\n \nFrom: ceo@bank.test\n\n",
        "From: ceo @ bank . test\n\n",
        "From: Ceo <ceo @ Bank.test>\n\n",
        "From: ceo@\n bank.test\n\n",
    ] {
        let from = parse(raw.as_bytes()).from;
        assert_eq!(from.iter().map(|from| from.address.as_str()).collect::<Vec<_>>(), ["ceo@bank.test"], "{raw:?}");
    }
}

#[test]
fn a_header_that_other_parsers_read_differently_is_marked() {
    let is_marked = |raw: &[u8]| parse(raw).cut.sender;
    let long = vec![b'x'; 100_000];
    let malformed: [&[u8]; 20] = [
        b"<p>Your code is: 482913 <a href=\"https://evil.test/x\">",
        b"X Y: z",
        b": z",
        b"\0: z",
        b"X: \0",
        b"X: y\rz",
        b"X\xa0: z",
        b"X\xc3\xa9: z",
        b"\xef\xbb\xbfX: z",
        b"X\x0b: z",
        b"X\x0c: z",
        b"X : z",
        b"Fr\rom: z",
        b"From x Mon 10:00",
        b">From x",
        b"no field",
        b"\r\r",
        b"\0",
        &long,
        &[&long[..], b": z"].concat(),
    ];
    for line in malformed {
        for end in [&b"\r\n"[..], b"\n"] {
            let raw = [b"From: a@x.example\r\n", line, end, b"From: b@x.example\r\n\r\nbody"].concat();
            assert!(is_marked(&raw), "{:?}", String::from_utf8_lossy(&raw[..raw.len().min(100)]));
        }
    }
    for raw in ["no header", " folded\nFrom: a@x.example\n\n", "From: a@x.example", "From: a@x.example\nbody"] {
        assert!(is_marked(raw.as_bytes()), "{raw:?}");
    }
    for raw in [
        "",
        "From: a@x.example\n",
        "From: a@x.example\r\n\r\nno field: here",
        "\r\nFrom x Mon 10:00\r\nFrom: a@x.example\r\n \r\n\tfolded: x\r\nX_!:\r\nSubject: \u{e9}\n\nno field",
        "Content-Type: multipart/mixed; boundary=b\n\n--b\nno field: x\n--b\n\0: z\n--b--\n",
    ] {
        assert!(!is_marked(raw.as_bytes()), "{raw:?}");
    }
}

#[test]
fn a_truncated_field_that_decides_what_is_shown_is_marked() {
    let long = " ".repeat(MAX_FIELD_BYTES);
    for (name, is_marked) in [("From", true), ("Subject", true), ("Content-Type", true), ("To", false), ("X", false)] {
        for raw in [format!("{name}: a{long}; b\n\n"), format!("{name}: a\n{long}; b\n\n")] {
            let cut = parse(raw.as_bytes()).cut;
            assert_eq!((cut.headers, cut.sender), (true, is_marked), "{name}");
        }
    }
}

#[test]
fn a_from_that_runs_two_addresses_together_is_marked() {
    for (from, is_marked) in [
        ("<ceo@bank.example> <a@evil.example>", true),
        ("<ceo@bank.example>a@evil.example", true),
        ("ceo@bank.example@evil.example", true),
        ("CEO <ceo@bank.example@evil.example>", true),
        ("ceo@bank.example a@evil.example", true),
        ("\"ceo@bank.example\"@evil.example", true),
        ("ceo\u{ff20}bank.example@evil.example", true),
        ("a@evil.example", false),
        ("\"ceo@bank.example\" <a@evil.example>", false),
        ("a@evil.example, b@evil.example", false),
        ("\"two words\"@evil.example", false),
        ("nobody", false),
    ] {
        assert_eq!(parse(format!("From: {from}\n\n").as_bytes()).cut.sender, is_marked, "{from}");
    }
    assert!(!parse(b"From: a@b.example\nTo: <c@d.example> <e@f.example>\n\n").cut.sender, "only From");
}

#[test]
fn message_ids_have_angle_brackets() {
    for (field, ids) in [
        ("Message-ID: <a@b>", vec!["<a@b>"]),
        ("Message-ID: a@b", vec!["<a@b>"]),
        ("Message-ID: <a\n @b>", vec!["<a@b>"]),
        ("Message-ID: <>", vec![]),
        ("Message-ID: nothing", vec![]),
    ] {
        assert_eq!(parse(format!("{field}\n\n").as_bytes()).message_id.as_deref(), ids.first().copied(), "{field:?}");
    }
}

#[test]
fn every_limit_truncates_the_mail() {
    let nested = "Content-Type: message/rfc822\n\n".repeat(50_000);
    assert_eq!(parse(nested.as_bytes()).attachments.len(), 1);

    let level = |level| format!("Content-Type: multipart/mixed; boundary=b{level}\n\n--b{level}\n");
    let deep = (0..100).map(level).collect::<Vec<_>>().concat();
    assert!(parse(deep.as_bytes()).cut.parts);

    let wide = format!("Content-Type: multipart/mixed; boundary=b\n\n{}", "--b\n\nx\n".repeat(10_000));
    assert!(parse(wide.as_bytes()).cut.parts);

    let headers = format!("{}\n\nbody", "X: y\n".repeat(200_000));
    let mail = parse(headers.as_bytes());
    assert!(mail.cut.headers && mail.headers.0.len() == MAX_HEADER_FIELDS);

    let long = format!("Subject: x\n\n{}", "é".repeat(MAX_TEXT_BYTES));
    let mail = parse(long.as_bytes());
    assert!(mail.cut.body && mail.text.unwrap_or_default().len() <= MAX_TEXT_BYTES);

    let attachments =
        format!("Content-Type: multipart/mixed; boundary=b\n\n{}", "--b\nContent-Type: a/b\n\nx\n".repeat(200));
    assert!(parse(attachments.as_bytes()).cut.attachments);
}

#[test]
fn the_digest_ignores_transit_changes_and_detects_content_changes() {
    let one = digest(&parse(&crlf(PLAIN)));
    assert!(one.starts_with("m1_") && one.len() == 67);
    let traced = PLAIN.replace("Received: from a by b\n", "Received: from c by d\nX-Spam: no\nDKIM-Signature: x\n");
    let encoded = PLAIN.replace("Gr=FC=DFe =\nweiter", "Gr=FC=DFe weiter  ");
    for same in [traced, encoded] {
        assert_eq!(digest(&parse(&crlf(&same))), one);
    }
    for (old, new) in [("weiter", "anders"), ("+0200", "+0300"), ("d@x", "e@x"), ("world", "earth"), ("ada@", "bob@")] {
        assert_ne!(digest(&parse(&crlf(&PLAIN.replace(old, new)))), one, "{old}");
    }
    let parts = digest(&parse(&crlf(PARTS_MAIL)));
    assert_ne!(digest(&parse(&crlf(&PARTS_MAIL.replace("bG8=", "bGg=")))), parts);
}

#[test]
fn a_quoted_local_part_is_part_of_the_address() {
    for (written, name, address) in [
        (r#""first.last"@example.com"#, None, "first.last@example.com"),
        (r#"Ann <"first.last"@example.com>"#, Some("Ann"), "first.last@example.com"),
        (r#""Ann" <ann@example.com>"#, Some("Ann"), "ann@example.com"),
        (r#""two words"@example.com"#, Some("two words"), "@example.com"),
    ] {
        let mail = parse(&crlf(&format!("From: {written}\nSubject: x\n\nHello.\n")));
        let [from] = mail.from.as_slice() else { panic!("{written}: {:?}", mail.from) };
        assert_eq!((from.name.as_deref(), from.address.as_str()), (name, address), "{written}");
    }
}
