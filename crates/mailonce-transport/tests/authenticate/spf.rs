//! SPF: whether a host may send for a domain.

use crate::zone::{DnsZone, without_envelope};
use mailonce_core::inbound::sender_auth::{AuthResult, UnauthenticatedMail};
use std::net::Ipv4Addr;

const MAIL: &[u8] = b"From: a@shop.example\r\nSubject: x\r\n\r\nx\r\n";
const HOST: Ipv4Addr = Ipv4Addr::new(11, 22, 33, 7);

fn from(sender: &str) -> UnauthenticatedMail<'_> {
    UnauthenticatedMail {
        ip: Some(HOST.into()),
        helo: Some("mx.host.example"),
        sender: Some(sender),
        ..without_envelope(MAIL)
    }
}

/// The SPF result if `shop.example` publishes this record. Some other names exist too.
async fn spf_result(record: &str) -> AuthResult {
    let zone = DnsZone::default()
        .txt("shop.example", "some other text")
        .txt("shop.example", record)
        .txt("partner.example", "v=spf1 ip4:11.22.33.0/24 -all")
        .txt("stranger.example", "v=spf1 ip4:198.51.100.1 -all")
        .txt("moved.example", "v=spf1 a:mx.host.example -all")
        .ip("mx.host.example", "11.22.33.7")
        .ip("shop.example", "198.51.100.9")
        .mx("shop.example", "mx.host.example")
        .ptr(HOST, "mx.host.example")
        .ip("7.33.22.11.ok.example", "127.0.0.2")
        .failing("troubled.example");
    zone.serve().await.authenticate(from("a@shop.example")).await.spf
}

#[tokio::test]
async fn each_record_gives_its_spf_result() {
    for (record, result) in [
        ("v=spf1 ip4:11.22.33.7 -all", AuthResult::Pass),
        ("v=spf1 ip4:11.22.33.0/28 -all", AuthResult::Pass),
        ("v=spf1 ip6:2001:db8::/32 mx -all", AuthResult::Pass),
        ("v=spf1 a:mx.host.example -all", AuthResult::Pass),
        ("v=spf1 ptr:host.example -all", AuthResult::Pass),
        ("v=spf1 include:stranger.example include:partner.example -all", AuthResult::Pass),
        ("v=spf1 redirect=moved.example", AuthResult::Pass),
        ("v=spf1 exists:%{ir}.ok.example -all", AuthResult::Pass),
        ("v=spf1 exists:%{i}.ok.example -all", AuthResult::Fail),
        ("v=spf1 a -all", AuthResult::Fail),
        ("v=spf1 include:stranger.example -all", AuthResult::Fail),
        ("v=spf1 ~all", AuthResult::SoftFail),
        ("v=spf1 ?all", AuthResult::Neutral),
        ("v=spf1 ip4:198.51.100.1", AuthResult::Neutral),
        ("v=spf1 ip4:nonsense -all", AuthResult::PermError),
        ("v=spf1 include:nowhere.example -all", AuthResult::PermError),
        ("v=spf1 include:troubled.example -all", AuthResult::TempError),
        ("no policy at all", AuthResult::None),
    ] {
        assert_eq!(spf_result(record).await, result, "{record}");
    }
}

#[tokio::test]
async fn more_than_ten_lookups_are_an_error() {
    let record_with_lookups = |names: usize| {
        let mechanisms = (0..names).map(|n| format!("a:n{n}.example")).collect::<Vec<_>>().join(" ");
        format!("v=spf1 {mechanisms} ip4:11.22.33.7 -all")
    };
    assert_eq!(spf_result(&record_with_lookups(10)).await, AuthResult::Pass);
    assert_eq!(spf_result(&record_with_lookups(11)).await, AuthResult::PermError);
    let self_including = DnsZone::default().txt("shop.example", "v=spf1 include:shop.example -all").serve().await;
    assert_eq!(self_including.authenticate(from("a@shop.example")).await.spf, AuthResult::PermError);
}

#[tokio::test]
async fn the_null_return_path_is_checked_by_the_helo_name() {
    let zone = DnsZone::default().txt("mx.host.example", "v=spf1 ip4:11.22.33.7 -all").serve().await;
    assert_eq!(zone.authenticate(from("")).await.spf, AuthResult::Pass);
    let without_helo = UnauthenticatedMail { helo: None, ..from("") };
    assert_eq!(zone.authenticate(without_helo).await.spf, AuthResult::None);
    let literal = UnauthenticatedMail { helo: Some("[11.22.33.7]"), ..from("") };
    assert_eq!(zone.authenticate(literal).await.spf, AuthResult::None);
}

#[tokio::test]
async fn an_ipv4_mapped_ipv6_address_is_the_same_host() {
    let zone = DnsZone::default().txt("shop.example", "v=spf1 ip4:11.22.33.7 -all").serve().await;
    let mapped = UnauthenticatedMail { ip: Some(HOST.to_ipv6_mapped().into()), ..from("a@shop.example") };
    assert_eq!(zone.authenticate(mapped).await.spf, AuthResult::Pass);
}

#[tokio::test]
async fn without_a_public_host_no_dns_query_is_sent() {
    let zone = DnsZone::default().serve().await;
    assert_eq!(
        zone.authenticate(UnauthenticatedMail { ip: None, ..from("a@other.example") }).await.spf,
        AuthResult::None
    );
    assert_eq!(zone.authenticate(UnauthenticatedMail { sender: None, ..from("") }).await.spf, AuthResult::None);
    // A private address is a relay in front of us and says nothing about the sender.
    for private in ["127.0.0.1", "10.1.2.3", "192.168.1.1", "::1", "fd00::1", "::ffff:10.0.0.1"] {
        let private = UnauthenticatedMail { ip: Some(private.parse().unwrap()), ..from("a@other.example") };
        assert_eq!(zone.authenticate(private).await.spf, AuthResult::None);
    }
    assert!(!zone.queried_names().iter().any(|name| name == "other.example" || name == "mx.host.example"));
}

/// With paused time the runtime advances the clock when all tasks are idle.
#[tokio::test(start_paused = true)]
async fn unanswered_queries_time_out_after_two_seconds_in_total() {
    let mut zone = DnsZone::default().silent("shop.example").silent("_dmarc.shop.example");
    // Each query alone would time out early enough; together they would not.
    let keys = ["a", "b", "c", "d", "e"];
    for key in keys {
        zone = zone.silent(&format!("{key}._domainkey.shop.example"));
    }
    let hash = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
    let raw = keys.map(|key| {
        format!("DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed; d=shop.example; s={key}; h=from; bh={hash}; b=AAAA\r\n")
    });
    let raw = raw.concat() + "From: a@shop.example\r\n\r\n";
    let zone = zone.serve().await;
    let start = tokio::time::Instant::now();
    let auth = zone.authenticate(UnauthenticatedMail { raw: raw.as_bytes(), ..from("a@shop.example") }).await;
    let temp_error = AuthResult::TempError;
    assert_eq!((auth.spf, auth.dkim, auth.dmarc, auth.verdict), (temp_error, temp_error, temp_error, temp_error));
    assert!(start.elapsed().as_millis() < 2_000, "{:?}", start.elapsed());
}
