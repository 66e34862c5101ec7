//! The header that is authenticated is the header that is shown: whatever the two parsers read differently never passes.

use crate::zone::{DnsServer, DnsZone, without_envelope};
use mail_auth::AuthenticatedMessage;
use mailonce_core::{
    header_block::header_start,
    inbound::sender_auth::{AuthResult, SenderAuth, UnauthenticatedMail},
    time::Time,
};
use mailonce_mail::{
    dkim::{DkimAlgorithm, DkimDnsRecord, DkimKey, DkimSigner, sign},
    parse::{ParsedMail, parse},
};
use std::net::Ipv4Addr;

/// A genuine mail of `signed.example`, and the DNS server that publishes its key.
async fn signed_mail() -> (Vec<u8>, DnsServer) {
    let key = DkimKey::generate(DkimAlgorithm::Ed25519, [7; 32]).unwrap();
    let record = DkimDnsRecord::for_key(&key, "k", "signed.example").unwrap();
    let mail = b"From: news@signed.example\r\nTo: b@x.example\r\nSubject: News\r\n\r\nhello\r\n";
    let signer = DkimSigner { domain: "signed.example", selector: "k", key: &key };
    let signed = sign(mail, &[signer], Time(1_700_000_000_000)).unwrap();
    (signed, DnsZone::default().txt(&record.name, &record.value).serve().await)
}

/// Lines that are neither a field, nor a continuation, nor the end of the header.
fn malformed_lines() -> Vec<Vec<u8>> {
    let lines: [&[u8]; 22] = [
        b"<p>Your code is: 482913 <a href=\"https://evil.test/x\">\r\n",
        b"X Y: z\r\n",
        b": z\r\n",
        b":\r\n",
        b"\0: z\r\n",
        b"X\0: z\r\n",
        b"X: z\0\r\n",
        b"X: y\rz: z\r\n",
        b"X\r: z\r\n",
        b"X\xa0: z\r\n",
        b"\xe9: z\r\n",
        b"X\xc3\xa9: z\r\n",
        b"\xef\xbb\xbfX: z\r\n",
        b"X\x0b: z\r\n",
        b"X\x0c: z\r\n",
        b"X\x7f: z\r\n",
        b"X : z\r\n",
        b"X\t: z\r\n",
        b"From x Mon Nov 16 10:00:00 2026\r\n",
        b">From x: y\r\n",
        b"no field\n",
        b"no field\n folded: z\r\n",
    ];
    let long = [&vec![b'x'; 100_000][..], b": z\r\n"].concat();
    lines.into_iter().map(<[u8]>::to_vec).chain([long]).collect()
}

#[tokio::test]
async fn a_signed_mail_below_a_malformed_line_does_not_pass() {
    let (signed, zone) = signed_mail().await;
    assert_eq!(zone.authenticate(without_envelope(&signed)).await.verdict, AuthResult::Pass, "as it was sent");
    let mut passed = Vec::new();
    for line in malformed_lines() {
        let start = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
        let head = b"From: ceo@signed.example\r\nSubject: Code\r\nContent-Type: text/html\r\n";
        for (front, from_count) in [(&head[..], 2), (b"", 1), (b"X: y\r\n", 1)] {
            let raw = [front, &line, &signed].concat();
            let auth = zone.authenticate(without_envelope(&raw)).await;
            if (auth.verdict, auth.domain) != (AuthResult::Fail, None) {
                passed.push((start.clone(), from_count));
            }
        }
    }
    // A mailbox line at the start is skipped by both parsers.
    passed
        .retain(|(line, from_count)| *from_count == 2 || !(line.starts_with("From x") || line.starts_with(">From x")));
    assert_eq!(passed, []);
}

#[tokio::test]
async fn a_sender_under_a_malformed_name_does_not_pass() {
    let zone = shop_zone().await;
    let names: [&[u8]; 10] = [
        b"From\x0b",
        b"From\x0c",
        b"From\xa0",
        b"From\0",
        b"F rom",
        b"Fr\rom",
        b" From",
        b"\tFrom",
        b"From\n ",
        b"From\r\n ",
    ];
    for name in names {
        for front in [&b""[..], b"X: y\r\n", b"Subject: x\r\nFrom: a@shop.example\r\n"] {
            let raw = [front, name, b": a@shop.example\r\nSubject: x\r\n\r\nx\r\n"].concat();
            let auth = authenticate_by_spf(&zone, &raw).await;
            // Leading whitespace makes the line a continuation if there is a field before it.
            let is_agreed = name[0].is_ascii_whitespace() && !front.is_empty() && same_header(&raw, &parse(&raw));
            assert!(is_agreed || !auth.is_pass(), "{:?}: {auth:?}", String::from_utf8_lossy(&raw));
        }
    }
}

#[tokio::test]
async fn a_from_that_runs_two_addresses_together_fails() {
    let zone = shop_zone().await;
    for from in [
        "<ceo@bank.example> <a@shop.example>",
        "<ceo@bank.example><a@shop.example>",
        "<ceo@bank.example> a@shop.example",
        "ceo@bank.example@shop.example",
        "CEO <ceo@bank.example@shop.example>",
        "ceo@bank.example a@shop.example",
        "ceo@bank.example\r\n @shop.example",
    ] {
        let raw = format!("From: {from}\r\nSubject: x\r\n\r\nx\r\n");
        let auth = authenticate_by_spf(&zone, raw.as_bytes()).await;
        assert_eq!((auth.verdict, auth.domain), (AuthResult::Fail, None), "{from}");
    }
    let raw = b"From: \"ceo@bank.example\" <a@shop.example>\r\nSubject: x\r\n\r\nx\r\n";
    assert!(authenticate_by_spf(&zone, raw).await.is_pass(), "a display name is no address");
}

async fn shop_zone() -> DnsServer {
    DnsZone::default().txt("shop.example", "v=spf1 ip4:11.22.33.7 -all").serve().await
}

/// Every mail whose `From` is at `shop.example` passes by SPF.
async fn authenticate_by_spf(zone: &DnsServer, raw: &[u8]) -> SenderAuth {
    let ip = Some(Ipv4Addr::new(11, 22, 33, 7).into());
    zone.authenticate(UnauthenticatedMail { ip, sender: Some("b@shop.example"), ..without_envelope(raw) }).await
}

/// Whether `mail-auth` and our parser read the same fields and the same body.
fn same_header(raw: &[u8], mail: &ParsedMail) -> bool {
    let raw = &raw[header_start(raw)..];
    let message = AuthenticatedMessage::parse(raw);
    let (fields, body) = message.as_ref().map_or((&[][..], raw), |it| (it.raw_parsed_headers(), it.raw_body()));
    let unfolded = |value: &[u8]| {
        let text = String::from_utf8_lossy(value).replace("\r\n", "").replace('\n', "");
        text.trim().to_owned()
    };
    let judged: Vec<_> = fields.iter().map(|(name, value)| (unfolded(name), unfolded(value))).collect();
    let shown: Vec<_> = mail.headers.0.iter().map(|field| (field.name.clone(), field.value.clone())).collect();
    // The text is decoded and has other line ends, which do not matter here.
    let letters = |bytes: &[u8]| bytes.iter().copied().filter(u8::is_ascii_alphanumeric).collect::<Vec<_>>();
    // Without any field `mail-auth` reads no mail, so there is no body to compare.
    let same_body = message.is_none() || letters(body) == letters(mail.text.as_deref().unwrap_or_default().as_bytes());
    judged == shown && same_body
}

const LINES: [&[u8]; 46] = [
    b"From: a@shop.example",
    b"From:b@shop.example",
    b"FROM: C <c@shop.example>",
    b"From: a@shop.example",
    b"Subject: one",
    b"Subject: two: three",
    b"X: y",
    b"X-Empty:",
    b"X_1!: y",
    b"X: \xe9",
    b"DKIM-Signature: v=1",
    b" folded",
    b"\tfolded: x",
    b" From: d@shop.example",
    b" ",
    b"\t",
    b"",
    b"",
    b"From : e@shop.example",
    b"From\t: e@shop.example",
    b"F rom: e@shop.example",
    b"Fr\rom: e@shop.example",
    b"From\r: e@shop.example",
    b"From\0: e@shop.example",
    b"From\x0b: e@shop.example",
    b"From\x0c: e@shop.example",
    b"From\xa0: e@shop.example",
    b"From\xc2\xa0: e@shop.example",
    b"\xef\xbb\xbfFrom: e@shop.example",
    b"From",
    b"From x Mon Nov 16 10:00:00 2026",
    b">From x Mon",
    b">From: e@shop.example",
    b"X Y: z",
    b": z",
    b":",
    b"\0: z",
    b"X: \0",
    b"X: a\rFrom: f@shop.example",
    b"X\xc3\xa9: z",
    b"no field",
    b"no field \0",
    b"\r",
    b"\0",
    b"--boundary",
    b".",
];

const LINE_ENDS: [&[u8]; 12] =
    [b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"\n", b"\r\r\n", b"\n\r", b"\r", b""];

const BODIES: [&[u8]; 5] = [b"", b"\r\nbody\r\n", b"\nbody", b"\r\nFrom: g@shop.example\r\n\r\nbody", b"body"];

/// Mails with random headers, the same in every run.
fn generated_mails(count: usize) -> impl Iterator<Item = Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = move |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % limit as u64) as usize
    };
    (0..count).map(move |n| {
        let mut raw = Vec::new();
        // Every second mail has at most one line from the whole list, so that many headers are almost well-formed.
        let (lines, odd) = (below(6), below(6));
        for line in 0..lines {
            let is_any = n % 2 == 0 || line == odd;
            raw.extend_from_slice(LINES[below(if is_any { LINES.len() } else { 16 })]);
            raw.extend_from_slice(LINE_ENDS[below(if is_any { LINE_ENDS.len() } else { 8 })]);
        }
        raw.extend_from_slice(BODIES[below(BODIES.len())]);
        raw
    })
}

#[test]
fn our_parser_marks_every_header_that_mail_auth_reads_differently() {
    let mut agreed = 0;
    for raw in generated_mails(200_000) {
        let mail = parse(&raw);
        if !mail.cut.sender {
            assert!(same_header(&raw, &mail), "{:?}\n{:?}", String::from_utf8_lossy(&raw), mail.headers);
            agreed += usize::from(!mail.from.is_empty());
        }
    }
    assert!(agreed > 20_000, "{agreed} headers with a sender are well-formed");
}

#[tokio::test]
async fn the_authenticator_passes_only_headers_that_our_parser_reads_alike() {
    let zone = shop_zone().await;
    let mut passed = 0;
    // Only a mail in which `mail-auth` finds a sender can pass.
    let has_sender = |raw: &Vec<u8>| {
        AuthenticatedMessage::parse(&raw[header_start(raw)..]).is_some_and(|message| !message.from.is_empty())
    };
    for raw in generated_mails(4_000).filter(has_sender) {
        if authenticate_by_spf(&zone, &raw).await.is_pass() {
            let mail = parse(&raw);
            let text = String::from_utf8_lossy(&raw);
            assert!(same_header(&raw, &mail), "{text:?}\n{:?}", mail.headers);
            // The engine fails a mail with two `From` fields.
            let has_one_from = mail.headers.all("from").count() == 1;
            assert!(!has_one_from || !mail.from.is_empty(), "{text:?}");
            assert!(!has_one_from || !mail.cut.sender, "{text:?}: {:?}", mail.from);
            passed += 1;
        }
    }
    assert!(passed > 200, "{passed} headers passed");
}

#[tokio::test]
async fn a_header_without_an_end_does_not_pass() {
    let zone = shop_zone().await;
    for raw in [
        "From: a@shop.example",
        "From: a@shop.example\r\n",
        "From: a@shop.example\r\nSubject: x",
        "From: a@shop.example\r\nSubject: x\r\nbody",
        "From: a@shop.example\r\n\r\r\nbody",
        "From: a@shop.example\r\r\n\r\nbody",
        "From: a@shop.example\rSubject: x\r\r\nbody",
    ] {
        let auth = authenticate_by_spf(&zone, raw.as_bytes()).await;
        assert_eq!((auth.verdict, auth.domain), (AuthResult::Fail, None), "{raw:?}");
    }
    for raw in ["From: a@shop.example\r\n\r\n", "From: a@shop.example\n\n", "From: a@shop.example\n\r\nbody"] {
        assert!(authenticate_by_spf(&zone, raw.as_bytes()).await.is_pass(), "{raw:?}");
    }
}
