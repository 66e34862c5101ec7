//! DMARC: alignment with the `From` domain, and the verdict.

use crate::zone::{DnsZone, without_envelope};
use mailonce_core::{
    inbound::sender_auth::{AuthResult, UnauthenticatedMail},
    time::Time,
};
use mailonce_mail::dkim::{DkimAlgorithm, DkimDnsRecord, DkimKey, DkimSigner, sign};
use std::net::Ipv4Addr;

const FAIL: AuthResult = AuthResult::Fail;
const LATE: AuthResult = AuthResult::TempError;
const NONE: AuthResult = AuthResult::None;
const PASS: AuthResult = AuthResult::Pass;

/// The mail's `From`, its envelope sender, its DKIM signer, and the DNS records.
struct DmarcScenario {
    from: &'static str,
    sender: &'static str,
    signer: Option<&'static str>,
    zone: DnsZone,
}

impl DmarcScenario {
    /// The sending host is authorized by SPF for all of these domains.
    fn new(from: &'static str) -> Self {
        let mut zone = DnsZone::default();
        for domain in ["shop.example", "mail.shop.example", "other.example", "a.github.io", "shop.co.uk", "co.uk"] {
            zone = zone.txt(domain, "v=spf1 ip4:11.22.33.7 -all");
        }
        Self { from, sender: "", signer: None, zone }
    }

    fn sent_by(self, sender: &'static str) -> Self {
        Self { sender, ..self }
    }

    fn signed_by(mut self, domain: &'static str) -> Self {
        let key = DkimKey::generate(DkimAlgorithm::Ed25519, [7; 32]).unwrap();
        let record = DkimDnsRecord::for_key(&key, "k", domain).unwrap();
        self.zone = self.zone.txt(&record.name, &record.value);
        Self { signer: Some(domain), ..self }
    }

    fn publishes(self, domain: &str, record: &str) -> Self {
        let zone = self.zone.txt(&format!("_dmarc.{domain}"), record);
        Self { zone, ..self }
    }

    /// The DMARC result and our verdict.
    async fn evaluate(self) -> (AuthResult, AuthResult) {
        let mail = format!("From: A <{}>\r\nSubject: x\r\n\r\nx\r\n", self.from);
        let key = DkimKey::generate(DkimAlgorithm::Ed25519, [7; 32]).unwrap();
        let signers: Vec<_> =
            self.signer.map(|domain| DkimSigner { domain, selector: "k", key: &key }).into_iter().collect();
        let raw = sign(mail.as_bytes(), &signers, Time(1_700_000_000_000)).unwrap();
        let ip = Some(Ipv4Addr::new(11, 22, 33, 7).into());
        let mail = UnauthenticatedMail {
            ip,
            helo: Some("mx.shop.example"),
            sender: Some(self.sender),
            ..without_envelope(&raw)
        };
        let auth = self.zone.serve().await.authenticate(mail).await;
        (auth.dmarc, auth.verdict)
    }
}

fn shop() -> DmarcScenario {
    DmarcScenario::new("a@shop.example")
}

#[tokio::test]
async fn aligned_mail_passes_under_every_policy() {
    assert_eq!(shop().sent_by("b@shop.example").evaluate().await, (NONE, PASS));
    assert_eq!(shop().signed_by("shop.example").evaluate().await, (NONE, PASS));
    assert_eq!(shop().sent_by("b@mail.shop.example").evaluate().await, (NONE, PASS), "relaxed by default");
    for policy in ["none", "quarantine", "reject"] {
        let record = format!("v=DMARC1; p={policy}");
        assert_eq!(shop().signed_by("shop.example").publishes("shop.example", &record).evaluate().await, (PASS, PASS));
        assert_eq!(shop().sent_by("b@shop.example").publishes("shop.example", &record).evaluate().await, (PASS, PASS));
    }
}

#[tokio::test]
async fn unaligned_mail_fails_only_if_the_policy_is_enforced() {
    let unaligned = || shop().sent_by("b@other.example").signed_by("other.example");
    assert_eq!(unaligned().evaluate().await, (NONE, NONE));
    assert_eq!(unaligned().publishes("shop.example", "v=DMARC1; p=none").evaluate().await, (FAIL, NONE));
    assert_eq!(unaligned().publishes("shop.example", "v=DMARC1; p=quarantine").evaluate().await, (FAIL, FAIL));
    assert_eq!(unaligned().publishes("shop.example", "v=DMARC1; p=reject").evaluate().await, (FAIL, FAIL));
    assert_eq!(unaligned().publishes("shop.example", "v=DMARC1; rubbish").evaluate().await, (NONE, NONE));
    assert_eq!(
        shop().publishes("shop.example", "v=DMARC1; p=reject").evaluate().await,
        (FAIL, FAIL),
        "neither SPF nor DKIM"
    );
}

#[tokio::test]
async fn strict_alignment_requires_the_same_domain() {
    let strict = "v=DMARC1; p=reject; adkim=s; aspf=s";
    let subdomain = || shop().sent_by("b@mail.shop.example").signed_by("mail.shop.example");
    assert_eq!(subdomain().publishes("shop.example", strict).evaluate().await, (FAIL, FAIL));
    assert_eq!(subdomain().publishes("shop.example", "v=DMARC1; p=reject; adkim=s").evaluate().await, (PASS, PASS));
    assert_eq!(subdomain().publishes("shop.example", "v=DMARC1; p=reject; aspf=s").evaluate().await, (PASS, PASS));
    assert_eq!(shop().signed_by("shop.example").publishes("shop.example", strict).evaluate().await, (PASS, PASS));
    let only_spf = shop().sent_by("b@mail.shop.example").publishes("shop.example", "v=DMARC1; p=reject; aspf=s");
    assert_eq!(only_spf.evaluate().await, (FAIL, FAIL));
}

#[tokio::test]
async fn a_subdomain_uses_the_subdomain_policy() {
    let subdomain = || DmarcScenario::new("a@news.shop.example").sent_by("b@other.example");
    assert_eq!(subdomain().publishes("shop.example", "v=DMARC1; p=reject").evaluate().await, (FAIL, FAIL));
    assert_eq!(subdomain().publishes("shop.example", "v=DMARC1; p=reject; sp=none").evaluate().await, (FAIL, NONE));
    assert_eq!(subdomain().publishes("shop.example", "v=DMARC1; p=none; sp=reject").evaluate().await, (FAIL, FAIL));
    let own =
        subdomain().publishes("shop.example", "v=DMARC1; p=none").publishes("news.shop.example", "v=DMARC1; p=reject");
    assert_eq!(own.evaluate().await, (FAIL, FAIL), "its own record takes precedence");
}

#[tokio::test]
async fn domains_under_a_public_suffix_are_not_aligned() {
    assert_eq!(DmarcScenario::new("a@b.github.io").sent_by("x@a.github.io").evaluate().await, (NONE, NONE));
    assert_eq!(DmarcScenario::new("a@shop.co.uk").sent_by("x@co.uk").evaluate().await, (NONE, NONE));
    assert_eq!(DmarcScenario::new("a@www.shop.co.uk").sent_by("x@shop.co.uk").evaluate().await, (NONE, PASS));
}

#[tokio::test]
async fn the_null_return_path_authenticates_the_helo_name() {
    let mut scenario = shop().publishes("shop.example", "v=DMARC1; p=reject");
    scenario.zone = scenario.zone.txt("mx.shop.example", "v=spf1 ip4:11.22.33.7 -all");
    assert_eq!(scenario.evaluate().await, (PASS, PASS));
}

#[tokio::test]
async fn a_dns_failure_that_could_change_the_verdict_is_a_temperror() {
    let with_failing_name = |mut scenario: DmarcScenario, name: &str| {
        scenario.zone = scenario.zone.failing(name);
        scenario
    };
    let spf = shop().sent_by("b@mail.shop.example").publishes("shop.example", "v=DMARC1; p=reject");
    assert_eq!(with_failing_name(spf, "mail.shop.example").evaluate().await, (LATE, LATE));
    let key = shop().signed_by("shop.example").publishes("shop.example", "v=DMARC1; p=reject");
    assert_eq!(with_failing_name(key, "k._domainkey.shop.example").evaluate().await, (LATE, LATE));
    let unaligned = shop().sent_by("b@other.example").publishes("shop.example", "v=DMARC1; p=reject");
    assert_eq!(
        with_failing_name(unaligned, "other.example").evaluate().await,
        (FAIL, FAIL),
        "it would not have been aligned"
    );
    let aligned = || shop().sent_by("b@shop.example");
    assert_eq!(
        with_failing_name(aligned(), "_dmarc.shop.example").evaluate().await,
        (LATE, PASS),
        "aligned even if strict"
    );
    let subdomain = shop().sent_by("b@mail.shop.example");
    assert_eq!(
        with_failing_name(subdomain, "_dmarc.shop.example").evaluate().await,
        (LATE, LATE),
        "the policy might be strict"
    );
}

#[tokio::test]
async fn several_from_domains_fail() {
    let zone = DnsZone::default().txt("shop.example", "v=spf1 ip4:11.22.33.7 -all").serve().await;
    let authenticate = async |from: &str| {
        let raw = format!("From: {from}\r\nSubject: x\r\n\r\nx");
        let ip = Some(Ipv4Addr::new(11, 22, 33, 7).into());
        let auth = zone
            .authenticate(UnauthenticatedMail {
                ip,
                sender: Some("b@shop.example"),
                ..without_envelope(raw.as_bytes())
            })
            .await;
        (auth.verdict, auth.domain)
    };
    let shop = Some("shop.example".to_owned());
    assert_eq!(authenticate("a@shop.example, b@shop.example").await, (PASS, shop.clone()));
    assert_eq!(authenticate("\"x@other.example\" <a@SHOP.example>").await, (PASS, shop.clone()));
    for ambiguous in [
        "a@shop.example, b@other.example",
        "a@shop.example, x@[192.0.2.1]",
        "a@shop.example;b@other.example",
        "team: a@shop.example, b@other.example;",
        "a@shop.example\r\nFrom: b@other.example",
        "@",
    ] {
        assert_eq!(authenticate(ambiguous).await, (FAIL, None), "{ambiguous}");
    }
    assert_eq!(authenticate("nobody").await, (NONE, None));
    let idn = DnsZone::default().txt("xn--mller-kva.example", "v=spf1 ip4:11.22.33.7 -all").serve().await;
    let ip = Some(Ipv4Addr::new(11, 22, 33, 7).into());
    let raw = "From: a@müller.example\r\n\r\nx".as_bytes();
    let auth =
        idn.authenticate(UnauthenticatedMail { ip, sender: Some("b@müller.example"), ..without_envelope(raw) }).await;
    assert_eq!((auth.verdict, auth.domain.as_deref()), (PASS, Some("xn--mller-kva.example")));
}

/// The verdict for a forged mail of a domain with `p=reject`.
async fn authenticate_forged(raw: &str) -> (AuthResult, Option<String>) {
    let zone = DnsZone::default().txt("_dmarc.bank.example", "v=DMARC1; p=reject").serve().await;
    let auth = zone.authenticate(without_envelope(raw.as_bytes())).await;
    (auth.verdict, auth.domain)
}

#[tokio::test]
async fn lines_before_the_header_do_not_hide_the_sender() {
    let bank = Some("bank.example".to_owned());
    for front in [
        "",
        "\r\n",
        "\r\n\r\n",
        " \r\n",
        "\t \r\n\r\n",
        "From foo\r\n",
        "From foo\r\n \r\n",
        "\r\n>From foo\r\n",
        " \r\nFrom foo\r\n\t\r\n",
    ] {
        let raw = format!("{front}From: ceo@bank.example\r\nTo: a@agents.test\r\nSubject: q\r\n\r\nbody");
        assert_eq!(authenticate_forged(&raw).await, (FAIL, bank.clone()), "{front:?}");
    }
    for front in [" foo\r\n", "foo\r\n \r\n", "X: y\r\n \r\n"] {
        let raw = format!("{front}From: ceo@bank.example\r\nSubject: q\r\n\r\nbody");
        assert_eq!(authenticate_forged(&raw).await.0, FAIL, "{front:?}");
    }
}

#[tokio::test]
async fn a_from_field_in_an_unusual_form_does_not_hide_the_sender() {
    for from in [
        "From : <ceo@bank.example>",
        "From \t: ceo@bank.example",
        "From: \u{2039}ceo\u{ff20}bank.example>",
        "From: \u{2039}ceo\u{fe6b}bank.example>",
    ] {
        let raw = format!("{from}\r\nSubject: q\r\n\r\nbody");
        assert_eq!(authenticate_forged(&raw).await, (FAIL, None), "{from:?}");
    }
}

#[tokio::test]
async fn a_signature_verifies_after_leading_empty_lines() {
    let key = DkimKey::generate(DkimAlgorithm::Ed25519, [7; 32]).unwrap();
    let record = DkimDnsRecord::for_key(&key, "k", "shop.example").unwrap();
    let zone = DnsZone::default().txt(&record.name, &record.value).serve().await;
    let signer = DkimSigner { domain: "shop.example", selector: "k", key: &key };
    let signed = sign(b"From: a@shop.example\r\nSubject: x\r\n\r\nx\r\n", &[signer], Time(1_700_000_000_000)).unwrap();
    for front in ["", "\r\n", "From foo\r\n"] {
        let raw = [front.as_bytes(), &signed].concat();
        assert_eq!(zone.authenticate(without_envelope(&raw)).await.verdict, PASS, "{front:?}");
    }
}

#[tokio::test]
async fn spaces_around_the_parts_of_an_address_do_not_change_its_domain() {
    let bank = Some("bank.example".to_owned());
    for from in ["ceo @ bank . example", "ceo@bank .example", "CEO <ceo @ bank.example>", "\"the ceo\" @ bank.example"]
    {
        let raw = format!("From: {from}\r\nSubject: q\r\n\r\nbody");
        assert_eq!(authenticate_forged(&raw).await, (FAIL, bank.clone()), "{from:?}");
    }
    for from in ["ceo@ba nk.example", "ceo@bank.example evil", "ceo@bank%.example", "ceo@bank.\r\n example"] {
        let raw = format!("From: {from}\r\nSubject: q\r\n\r\nbody");
        assert_eq!(authenticate_forged(&raw).await, (FAIL, None), "{from:?}");
    }
}
