//! Mails that attack a parser, some of them large.

/// All hostile mails with their names.
pub(crate) fn mails() -> Vec<(&'static str, Vec<u8>)> {
    let mut mails = small();
    mails.extend(large());
    mails.into_iter().map(|(name, mail)| (name, mail.into_bytes())).chain(bytes()).collect()
}

fn small() -> Vec<(&'static str, String)> {
    let of = |text: &str| text.replace('\n', "\r\n");
    vec![
        ("nothing", String::new()),
        ("no body", of("From: a@x.example")),
        ("a colon", ":".to_owned()),
        ("a boundary of nothing", of("Content-Type: multipart/mixed; boundary=\"\"\n\n--\n\nx\n----\n")),
        ("no boundary", of("Content-Type: multipart/mixed\n\n--x\n\ny\n--x--\n")),
        ("a boundary that never comes", of("Content-Type: multipart/mixed; boundary=b\n\ntext without parts")),
        (
            "a boundary inside itself",
            of(
                "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nx\n--b--\n--b--\n",
            ),
        ),
        ("a part that ends at once", of("Content-Type: multipart/mixed; boundary=b\n\n--b--")),
        ("base64 that is none", of("Content-Transfer-Encoding: base64\n\n====@@@@\n\u{fffd}A=B=\n")),
        ("quoted-printable cut short", of("Content-Transfer-Encoding: quoted-printable\n\na=\nb=4\n=ZZ=")),
        (
            "an encoding nobody knows",
            of("Content-Type: text/plain; charset=klingon\nContent-Transfer-Encoding: morse\n\n..."),
        ),
        ("utf-7", of("Content-Type: text/plain; charset=utf-7\n\n+AGEAYg-+2AA-+//8\n")),
        ("words that are half encoded", of("Subject: =?utf-8?b?w7w?= =?utf-8?q?=C3?= =?x?y?z?= =?utf-8?b?\n\nx")),
        (
            "a filename that climbs",
            of(
                "Content-Type: application/x; name*0*=utf-8''..%2F..%2Fetc; name*1*=%2Fpasswd%00\nContent-Disposition: attachment; filename=\"..\\..\\x\0y\"\n\nx",
            ),
        ),
        (
            "continuations out of order",
            of("Content-Type: application/x; name*9=z; name*0=a; name*99999999999=b; name*-1=c\n\nx"),
        ),
        (
            "a message in a message in itself",
            of("Content-Type: message/rfc822\n\nContent-Type: message/rfc822\n\nContent-Type: message/rfc822\n\n"),
        ),
        ("a partial message", of("Content-Type: message/partial; id=x; number=1; total=99999999\n\nx")),
        ("an address list without end", of("To: G: a@x, (((((((, <<<<<<@>>>>, \"\\\n\nx")),
        ("a date of no calendar", of("Date: Mon, 99 Foo 99999 99:99:99 +9999\nFrom: a@x\n\nx")),
        (
            "two of everything",
            of("From: a@x\nFrom: b@y\nSubject: 1\nSubject: 2\nContent-Type: text/html\nContent-Type: text/plain\n\nx"),
        ),
        ("line ends of every kind", "From: a@x\rSubject: b\nTo: c\r\n\r\n\rbody\n\r\r\n".to_owned()),
    ]
}

/// Each would grow many times in size in a careless parser.
fn large() -> Vec<(&'static str, String)> {
    let nested = (0..3_000).fold(String::new(), |mail, n| {
        mail + &format!("Content-Type: multipart/mixed; boundary=b{n}\r\n\r\n--b{n}\r\n")
    });
    let messages = "Content-Type: message/rfc822\r\n\r\n".repeat(5_000);
    let parts = format!("Content-Type: multipart/mixed; boundary=b\r\n\r\n{}", "--b\r\n\r\nx\r\n".repeat(100_000));
    let words = format!("Subject: {}\r\n\r\nx", "=?utf-8?b?w7w=?=\r\n ".repeat(50_000));
    let addresses = format!("To: {}\r\n\r\nx", "a@x.example,\r\n ".repeat(80_000));
    let references = format!("References: {}\r\n\r\nx", "<a@x.example>\r\n ".repeat(60_000));
    let parameters = format!("Content-Type: text/plain{}\r\n\r\nx", "; a*0*=utf-8''x".repeat(50_000));
    let comments = format!("From: {}a@x.example\r\n\r\nx", "(".repeat(500_000));
    vec![
        ("parts in parts", nested),
        ("messages in messages", messages),
        ("a hundred thousand parts", parts),
        ("a hundred thousand headers", "X: y\r\n".repeat(100_000) + "\r\nx"),
        ("one header without end", format!("Subject: {}\r\n\r\nx", "x".repeat(1_000_000))),
        ("folds without end", format!("Subject: x{}\r\n\r\nx", "\r\n ".repeat(300_000))),
        ("encoded words without end", words),
        ("addresses without end", addresses),
        ("references without end", references),
        ("parameters without end", parameters),
        ("comments in comments", comments),
        ("a megabyte of base64", format!("Content-Transfer-Encoding: base64\r\n\r\n{}", "QUJD".repeat(300_000))),
        (
            "a megabyte of soft breaks",
            format!("Content-Transfer-Encoding: quoted-printable\r\n\r\n{}", "=\r\n".repeat(400_000)),
        ),
        ("a megabyte of open tags", format!("Content-Type: text/html\r\n\r\n{}", "<div><b><a href=x>".repeat(60_000))),
        ("a megabyte of entities", format!("Content-Type: text/html\r\n\r\n{}", "&#x1F600;&amp;".repeat(80_000))),
    ]
}

fn bytes() -> Vec<(&'static str, Vec<u8>)> {
    let utf16: Vec<u8> = "ab".repeat(200_000).encode_utf16().flat_map(u16::to_le_bytes).collect();
    vec![
        ("zeros", vec![0; 100_000]),
        ("every byte", (0..=255_u8).cycle().take(100_000).collect()),
        (
            "euro signs",
            [b"Content-Type: text/plain; charset=windows-1252\r\n\r\n".to_vec(), vec![0x80; 300_000]].concat(),
        ),
        ("utf-16", [b"Content-Type: text/plain; charset=utf-16\r\n\r\n".to_vec(), utf16].concat()),
        ("broken utf-8", [b"Content-Type: text/plain; charset=utf-8\r\n\r\n".to_vec(), vec![0xf0; 500_000]].concat()),
    ]
}
