//! Whether a signature holds. `signed.json` is written by `make.py` with OpenSSL.

use crate::zone::{DnsZone, without_envelope};
use mailonce_core::{inbound::sender_auth::AuthResult, time::Time};
use mailonce_mail::dkim::{DkimAlgorithm, DkimDnsRecord, DkimKey, DkimSigner, sign};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct SignedMails {
    keys: BTreeMap<String, String>,
    cases: Vec<SignatureCase>,
}

#[derive(Deserialize)]
struct SignatureCase {
    name: String,
    mail: String,
    dkim: String,
    verdict: String,
}

#[tokio::test]
async fn every_signature_is_worth_what_it_is_worth() {
    let signed: SignedMails = serde_json::from_str(include_str!("signed.json")).unwrap();
    let mut zone = DnsZone::default();
    for (selector, record) in &signed.keys {
        for domain in ["signed.example", "mail.signed.example", "list.example"] {
            zone = zone.txt(&format!("{selector}._domainkey.{domain}"), record);
        }
    }
    let zone = zone.serve().await;
    for case in &signed.cases {
        let auth = zone.authenticate(without_envelope(case.mail.as_bytes())).await;
        let said = (auth.dkim.as_str(), auth.verdict.as_str());
        assert_eq!(said, (case.dkim.as_str(), case.verdict.as_str()), "{}: {auth:?}", case.name);
    }
}

/// The example of RFC 8463, appendix A.
#[tokio::test]
async fn the_example_of_the_rfc_holds() {
    let rsa = "v=DKIM1; k=rsa; p=MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDkHlOQoBTzWRiGs5V6NpP3idY6Wk08a5qhdR6wy5bdOKb2jLQiY/J16JYi0Qvx/byYzCNb3W91y3FutACDfzwQ/BC/e/8uBsCR+yz1Lxj+PL6lHvqMKrM3rG4hstT5QjvHO9PzoxZyVYLzBfO2EeC3Ip3G+2kryOTIKT+l/K4w3QIDAQAB";
    let ed25519 = "v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
    let mail = include_str!("rfc8463.eml").replace('\n', "\r\n");
    for (selector, record) in [("test", rsa), ("brisbane", ed25519)] {
        let zone = DnsZone::default().txt(&format!("{selector}._domainkey.football.example.com"), record);
        let auth = zone.serve().await.authenticate(without_envelope(mail.as_bytes())).await;
        assert_eq!((auth.dkim, auth.verdict), (AuthResult::Pass, AuthResult::Pass), "{selector}");
        assert_eq!(auth.domain.as_deref(), Some("football.example.com"));
    }
}

/// What our own signer writes.
#[tokio::test]
async fn our_own_signatures_hold() {
    let mail = b"From: Ada <ada@ours.example>\r\nTo: b@x.example\r\nSubject: =?utf-8?q?=C3=BC?=\r\nMIME-Version: 1.0\r\nContent-Type: text/plain\r\n\r\nHello  there \r\n\r\n";
    for key in [DkimKey::generate(DkimAlgorithm::Ed25519, [7; 32]), DkimKey::generate(DkimAlgorithm::Rsa, [7; 32])] {
        let key = key.unwrap();
        let signer = DkimSigner { domain: "ours.example", selector: "mo1", key: &key };
        let signed = sign(mail, &[signer], Time(1_700_000_000_000)).unwrap();
        let record = DkimDnsRecord::for_key(&key, "mo1", "ours.example").unwrap();
        let zone = DnsZone::default().txt(&record.name, &record.value).serve().await;
        let auth = zone.authenticate(without_envelope(&signed)).await;
        assert_eq!((auth.dkim, auth.verdict), (AuthResult::Pass, AuthResult::Pass), "{:?}", key.algorithm());
    }
}

#[tokio::test]
async fn only_ten_signatures_are_asked_about() {
    let one = |n: usize| {
        format!(
            "DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed; d=s{n}.example; s=k; h=from; bh=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=; b=AAAA\r\n"
        )
    };
    let mail = (0..500).map(one).collect::<String>() + "From: a@x.example\r\n\r\n";
    let zone = DnsZone::default().serve().await;
    assert_eq!(zone.authenticate(without_envelope(mail.as_bytes())).await.dkim, AuthResult::PermError);
    assert_eq!(zone.queried_names().iter().filter(|name| name.contains("_domainkey")).count(), 10);
}

#[tokio::test]
async fn headers_without_end_or_number_are_not_looked_at() {
    let endless = format!("From: a@x.example\r\nX: {}\r\n\r\n", "x".repeat(300_000));
    let many = format!("From: a@x.example\r\n{}\r\n", "X: y\r\n".repeat(3_000));
    let zone = DnsZone::default().serve().await;
    let (none, fail) = (AuthResult::None, AuthResult::Fail);
    for (mail, verdict) in
        [(endless.as_str(), fail), (&many, fail), ("", none), ("\r\n", none), ("From: a@x.example", fail)]
    {
        let auth = zone.authenticate(without_envelope(mail.as_bytes())).await;
        assert_eq!((auth.dkim, auth.verdict, auth.domain), (none, verdict, None));
    }
    assert_eq!(zone.queried_names(), Vec::<String>::new());
}
