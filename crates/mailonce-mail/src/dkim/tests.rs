//! Keys, records and signatures. Verification by other implementations is tested in `tests/python`.

use super::*;
use mailonce_core::time::Time;

const MAIL: &[u8] = b"From: a@example.com\r\nTo: b@example.net\r\nSubject: x\r\n\r\nHi\r\n";
const DATE: Time = Time(1_731_664_800_999);

fn ed25519() -> DkimKey {
    DkimKey::generate(DkimAlgorithm::Ed25519, [7; 32]).unwrap()
}

fn signed(mail: &[u8], keys: &[&DkimKey]) -> String {
    let signers: Vec<DkimSigner<'_>> =
        keys.iter().map(|key| DkimSigner { domain: "example.com", selector: "s1", key }).collect();
    String::from_utf8(sign(mail, &signers, DATE).unwrap()).unwrap()
}

#[test]
fn a_key_is_derived_from_its_seed_and_survives_storage() {
    for algorithm in [DkimAlgorithm::Rsa, DkimAlgorithm::Ed25519] {
        let key = DkimKey::generate(algorithm, [1; 32]).unwrap();
        let again = DkimKey::generate(algorithm, [1; 32]).unwrap();
        assert_eq!(key.to_pkcs8(), again.to_pkcs8());
        let read = DkimKey::from_pkcs8(key.to_pkcs8()).unwrap();
        assert_eq!((read.algorithm(), read.public_key()), (algorithm, key.public_key()));
        assert_eq!(signed(MAIL, &[&read]), signed(MAIL, &[&key]));
        let other = DkimKey::generate(algorithm, [2; 32]).unwrap();
        assert_ne!(other.public_key(), key.public_key());
        assert!(!format!("{key:?}").contains("30"));
    }
}

#[test]
fn the_ed25519_key_of_the_rfc_gives_its_record() {
    // RFC 8463 appendix A.
    let seed = *b"\x9d\x61\xb1\x9d\xef\xfd\x5a\x60\xba\x84\x4a\xf4\x92\xec\x2c\xc4\x44\x49\xc5\x69\x7b\x32\x69\x19\x70\x3b\xac\x03\x1c\xae\x7f\x60";
    let key = DkimKey::generate(DkimAlgorithm::Ed25519, seed).unwrap();
    let record = DkimDnsRecord::for_key(&key, "brisbane", "football.example.com").unwrap();
    assert_eq!(record.name, "brisbane._domainkey.football.example.com");
    assert_eq!(record.value, "v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=");
}

#[test]
fn a_long_record_is_split_into_strings() {
    let key = DkimKey::generate(DkimAlgorithm::Rsa, [3; 32]).unwrap();
    let record = DkimDnsRecord::for_key(&key, "s1", "example.com").unwrap();
    assert!(record.value.starts_with("v=DKIM1; k=rsa; p=MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA"));
    assert_eq!(record.strings().len(), 2);
    assert!(record.strings().iter().all(|s| s.len() <= 255));
    assert_eq!(record.strings().concat(), record.value);
}

#[test]
fn rsa_signs_first_and_the_mail_is_unchanged() {
    let (rsa, ed25519) = (DkimKey::generate(DkimAlgorithm::Rsa, [4; 32]).unwrap(), ed25519());
    let mail = signed(MAIL, &[&ed25519, &rsa]);
    let first = mail.find("a=rsa-sha256").unwrap();
    assert!(first < mail.find("a=ed25519-sha256").unwrap());
    assert!(mail.as_bytes().ends_with(MAIL));
    assert_eq!(mail, signed(MAIL, &[&ed25519, &rsa]));
    assert!(mail.lines().all(|line| line.len() <= 78), "{mail}");
}

#[test]
fn visible_headers_are_oversigned() {
    let mail = signed(MAIL, &[&ed25519()]).replace("\r\n ", "");
    assert!(mail.contains("h=From:From:To:To:Cc:Subject:Subject:Date:Reply-To:MIME-Version:Content-Type;"), "{mail}");
    assert!(mail.contains("t=1731664800;") && !mail.contains("l="));
}

#[test]
fn invalid_input_is_not_signed() {
    let key = ed25519();
    let sign_error =
        |domain, selector, mail: &[u8]| sign(mail, &[DkimSigner { domain, selector, key: &key }], DATE).unwrap_err();
    assert_eq!(sign_error("example.com", "s1", b"To: x\r\n\r\n"), DkimError::Mail);
    assert_eq!(sign_error("example.com", "s1", b"From: x"), DkimError::Mail);
    assert_eq!(sign_error("exa mple.com", "s1", MAIL), DkimError::Name("exa mple.com".into()));
    assert_eq!(sign_error("example.com", "s;1", MAIL), DkimError::Name("s;1".into()));
    assert!(DkimDnsRecord::for_key(&key, "", "example.com").is_err());
    assert!(matches!(DkimKey::from_pkcs8(b"nonsense"), Err(DkimError::Key(_))));
}
