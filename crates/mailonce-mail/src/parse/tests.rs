//! Mails as strangers write them.

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
fn a_plain_mail_is_read() {
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
    // Mails that were stored with bare line feeds say the same.
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
fn bodies_and_attachments_are_told_apart() {
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
fn a_stored_mail_comes_back_as_it_was() {
    let mail = parse(&crlf(PARTS_MAIL));
    let json = serde_json::to_string(&mail).unwrap();
    assert_eq!(serde_json::from_str::<ParsedMail>(&json).unwrap(), mail);
}

#[test]
fn broken_mails_keep_what_can_be_kept() {
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
fn a_sender_is_read_behind_blank_lines_and_without_obsolete_spaces() {
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
fn ids_have_their_brackets() {
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
fn every_limit_ends_the_mail_not_us() {
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
fn the_digest_is_blind_to_the_way_and_sees_the_words() {
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
fn a_local_part_in_quotes_is_part_of_the_address() {
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
