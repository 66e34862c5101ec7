//! Generators of malformed mails and markup.

use proptest::{prelude::*, sample::Index};

const SEEDS: &[&str] = &[
    "From: =?utf-8?b?w7w=?= <a@x.example>\r\nTo: G: b@x.example, c@x.example;\r\nSubject: =?iso-8859-1?q?=FC?= code 482913\r\nDate: Sun, 15 Nov 2026 10:00:00 +0200\r\nMessage-ID: <a@b>\r\nReferences: <c@d> <e@f>\r\n\r\nYour code is 482 913.\r\nhttps://x.example/verify?token=a1b2c3d4e5\r\n\r\nOn 1 Jan 2026, A wrote:\r\n> old\r\n-- \r\nsig\r\n",
    "From: a@x.example\r\nContent-Type: multipart/mixed; boundary=\"o\"\r\n\r\n--o\r\nContent-Type: multipart/alternative; boundary=i\r\n\r\n--i\r\nContent-Type: text/plain; charset=gb2312\r\nContent-Transfer-Encoding: base64\r\n\r\nxOO6ww==\r\n--i\r\nContent-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n<p style=3D'display:none'>x</p><a href=3D'https://1.2.3.4/'>Verify</a> Code: <b>48=\r\n2913</b>\r\n--i--\r\n--o\r\nContent-Type: application/pdf; name*=utf-8''..%2Fx.pdf\r\nContent-Disposition: attachment; filename=\"../x\"\r\nContent-Transfer-Encoding: base64\r\n\r\naGVsbG8=\r\n--o\r\nContent-Type: message/rfc822\r\n\r\nSubject: in\r\n\r\nin\r\n--o--\r\n",
    "Return-Path: <>\r\nFrom: MAILER-DAEMON@x.example\r\nContent-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n--b\r\n\r\nno\r\n--b\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; x\r\nOriginal-Envelope-Id: mo1-agj2dmwd2r7f7ctlbqos4p2klmaagaaaaad2ljnfuws2ljnfuws2ljnf\r\n\r\nFinal-Recipient: rfc822; a@x.example\r\nAction: failed\r\nStatus: 5.1.1\r\nDiagnostic-Code: smtp; 550 no\r\n\r\n--b\r\nContent-Type: text/rfc822-headers\r\n\r\nMessage-ID: <a@b>\r\n--b--\r\n",
];

/// A seed with bytes changed, pieces cut out, and pieces of other seeds put in.
pub(crate) fn mails() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<Index>(), any::<Index>(), any::<u8>(), 0..4_u8, 0..60_usize);
    (any::<Index>(), proptest::collection::vec(change, 0..12)).prop_map(|(seed, changes)| {
        let mut raw = SEEDS[seed.index(SEEDS.len())].as_bytes().to_vec();
        for (at, from, byte, kind, length) in changes {
            let at = at.index(raw.len().max(1));
            let end = (at + length).min(raw.len());
            match kind {
                0 if at < raw.len() => raw[at] = byte,
                1 => drop(raw.drain(at.min(end)..end)),
                2 => drop(raw.splice(at..at, std::iter::repeat_n(byte, length))),
                _ => {
                    let other = SEEDS[usize::from(byte) % SEEDS.len()].as_bytes();
                    let start = from.index(other.len());
                    let piece = other[start..(start + length).min(other.len())].to_vec();
                    drop(raw.splice(at.min(raw.len())..at.min(raw.len()), piece));
                }
            }
        }
        raw
    })
}

/// Tags, attributes and text in random order.
pub(crate) fn markup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "<(div|p|a|b|font|td|tr|table|li|ul|img|br|style|script|span)( (style|href|class|color|hidden|width)=['\"]?(display:none|font-size:0|color:#fff|x|1|https://x\\.example/)['\"]?)?>?",
        "</(div|p|a|b|font|td|tr|table|li|ul|style|script|span)>",
        "(<!--|-->|--!>|<!|<\\?|&#[0-9]{1,9};?|&amp;|<|>|\"|')",
        "[a-zé日 0-9]{0,12}",
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

/// Words that matter to the search for codes, numbers in every format, and separators.
pub(crate) fn words() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "(code|your code is|order|PIN|验证码|コード|رمز|tel|verify|share this code|tracking code)",
        "[0-9０-９٠-٩]{1,12}",
        "[A-Z]{1,3}-[0-9]{3,7}",
        "[A-Z0-9]{3,6}-[A-Z0-9]{3,6}",
        "([ :.,#*@/+-]|\n|\n\n|https://x\\.example/\\?code=1234|\u{200b}|\u{202e}|。|：)",
    ];
    proptest::collection::vec(piece, 0..50).prop_map(|pieces| pieces.join(" "))
}
