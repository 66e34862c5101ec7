//! ID tokens (OpenID Connect Core 1.0 §3.1.3.7): signature, issuer, audience, times and nonce.
//!
//! Only RS256 and ES256 are accepted, so neither `none` nor a symmetric algorithm can be smuggled in.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;

/// The longest token that is read.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// How far the clocks of this server and of the provider may differ, in seconds.
const CLOCK_SKEW_S: i64 = 60;
/// The longest subject (OpenID Connect Core 1.0 §2).
const MAX_SUBJECT_BYTES: usize = 255;

/// Why a token was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IdTokenError {
    /// It is not a signed token.
    #[error("the ID token is not a signed JWT of at most {MAX_TOKEN_BYTES} bytes")]
    Malformed,
    /// Its algorithm is not accepted.
    #[error("the ID token is signed with {0}, and only RS256 and ES256 are accepted")]
    Algorithm(String),
    /// None of the known keys has its id. The provider may have new keys.
    #[error("the ID token is signed with a key that the provider does not publish")]
    UnknownKey,
    /// The signature is wrong.
    #[error("the signature of the ID token is wrong")]
    Signature,
    /// A claim has another value than it must have.
    #[error("the claim `{0}` of the ID token is missing or wrong")]
    Claim(&'static str),
    /// It is not valid now.
    #[error("the ID token has expired, or is from the future; compare the clocks of both servers")]
    Time,
}

/// A public key of the provider (RFC 7517). Fields of other kinds of keys are ignored.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Jwk {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    alg: Option<String>,
    #[serde(default, rename = "use")]
    usage: Option<String>,
    #[serde(default)]
    crv: Option<String>,
    #[serde(default)]
    n: Option<String>,
    #[serde(default)]
    e: Option<String>,
    #[serde(default)]
    x: Option<String>,
    #[serde(default)]
    y: Option<String>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    crit: Option<Value>,
}

/// What a token must say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpectedClaims<'a> {
    pub(crate) issuer: &'a str,
    pub(crate) client_id: &'a str,
    pub(crate) nonce: &'a str,
    /// The current time, in seconds since the epoch.
    pub(crate) now_s: i64,
}

/// Verifies a token and returns its claims.
pub(crate) fn verify(token: &str, keys: &[Jwk], expected: ExpectedClaims<'_>) -> Result<Value, IdTokenError> {
    let (signed, claims, header, signature) = parse(token)?;
    if !matches!(header.alg.as_str(), "RS256" | "ES256") {
        return Err(IdTokenError::Algorithm(header.alg.chars().take(20).collect()));
    }
    if header.crit.is_some() {
        return Err(IdTokenError::Malformed);
    }
    let mut candidates = keys.iter().filter(|key| key.may_verify(&header)).peekable();
    if candidates.peek().is_none() {
        return Err(IdTokenError::UnknownKey);
    }
    if !candidates.any(|key| key.verifies(&header.alg, signed, &signature)) {
        return Err(IdTokenError::Signature);
    }
    check_claims(&claims, expected)?;
    Ok(claims)
}

fn parse(token: &str) -> Result<(&[u8], Value, Header, Vec<u8>), IdTokenError> {
    let malformed = || IdTokenError::Malformed;
    let (signed, signature) =
        token.rsplit_once('.').filter(|_| token.len() <= MAX_TOKEN_BYTES).ok_or_else(malformed)?;
    let (header, claims) = signed.split_once('.').ok_or_else(malformed)?;
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_not_base64| malformed());
    let header = serde_json::from_slice(&decode(header)?).map_err(|_not_json| malformed())?;
    let claims = serde_json::from_slice(&decode(claims)?).map_err(|_not_json| malformed())?;
    Ok((signed.as_bytes(), claims, header, decode(signature)?))
}

impl Jwk {
    /// Whether a token with this header may be signed with this key.
    fn may_verify(&self, header: &Header) -> bool {
        let kty = if header.alg == "RS256" { "RSA" } else { "EC" };
        self.kty == kty
            && self.usage.as_deref().is_none_or(|usage| usage == "sig")
            && self.alg.as_ref().is_none_or(|alg| *alg == header.alg)
            && (header.kid.is_none() || header.kid == self.kid)
    }

    fn verifies(&self, alg: &str, signed: &[u8], signature: &[u8]) -> bool {
        let decode = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        if alg == "RS256" {
            let (Some(n), Some(e)) = (decode(&self.n), decode(&self.e)) else { return false };
            let key = RsaPublicKeyComponents { n, e };
            return key.verify(&signature::RSA_PKCS1_2048_8192_SHA256, signed, signature).is_ok();
        }
        let (Some(x), Some(y)) = (decode(&self.x), decode(&self.y)) else { return false };
        if self.crv.as_deref() != Some("P-256") || x.len() != 32 || y.len() != 32 {
            return false;
        }
        let point = [&[4][..], &x, &y].concat();
        UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point).verify(signed, signature).is_ok()
    }
}

fn check_claims(claims: &Value, expected: ExpectedClaims<'_>) -> Result<(), IdTokenError> {
    let wrong = |name| Err(IdTokenError::Claim(name));
    if claims["iss"] != expected.issuer {
        return wrong("iss");
    }
    let audiences: Vec<&str> = match &claims["aud"] {
        Value::String(one) => vec![one],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !audiences.contains(&expected.client_id) {
        return wrong("aud");
    }
    // A token for several clients names the one that it was made for.
    if (audiences.len() > 1 || !claims["azp"].is_null()) && claims["azp"] != expected.client_id {
        return wrong("azp");
    }
    if claims["nonce"] != expected.nonce {
        return wrong("nonce");
    }
    let subject = claims["sub"].as_str().unwrap_or_default();
    if subject.is_empty() || subject.len() > MAX_SUBJECT_BYTES {
        return wrong("sub");
    }
    let seconds = |name: &str| claims[name].as_f64().map(|at| at as i64);
    let (Some(exp), Some(iat)) = (seconds("exp"), seconds("iat")) else { return Err(IdTokenError::Time) };
    let latest_start = iat.max(seconds("nbf").unwrap_or(iat));
    if expected.now_s >= exp.saturating_add(CLOCK_SKEW_S) || latest_start > expected.now_s + CLOCK_SKEW_S {
        return Err(IdTokenError::Time);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::{
        rand::SystemRandom,
        signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
    };
    use serde_json::json;

    const NOW: i64 = 1_800_000_000;
    // A header and claims as `header` and `claims` have them, but RS256. OpenSSL made the keys and signed:
    // `openssl dgst -sha256 -sign key.pem`.
    /// What was signed.
    const RS256_SIGNED: &str = "\
        eyJhbGciOiJSUzI1NiIsImtpZCI6ImsifQ.eyJpc3MiOiJodHRwczovL2lkLnRlc3QiLCJhdWQiOiJtYWlsb25jZSIsIm5vbmNlI\
        joibiIsInN1YiI6ImFkYSIsImlhdCI6MTgwMDAwMDAwMCwiZXhwIjoxODAwMDAwMzAwfQ";
    /// The modulus of a key of 2048 bits.
    const RSA_2048: &str = "\
        ozzsf61h_z5Vs-l0LPm5x3K4HT3vkuiV8CPis89ciSYUF3GHklqJxjNx1YQnPONlX_FlsMCvduZ2TMa-4Kdu56Ko1SbWs1UUnvHa\
        OiAqnFD-jHubK7CsmCdatyIuvTMfbt5lWqX2Q1jripIBF-G4H-71UADcJmbhOSodR15OE8Gx3cOn-3yNx_lBuv_OablWlL8sTRcX\
        4zcRh3R8v6jHPyw727C4r5mP59bWbKQFHud0I0xAuLzs7ATyMHlE5U5UcfI3aFzR03vKiCpZ-45va5x3fjIzBS5V3nV2FD3EzYpw\
        P7WmDdC53GW-JdGGgHaQMXn0OwWLula2Cp9xgvmCDQ";
    /// Its signature.
    const RSA_2048_SIGNATURE: &str = "\
        lSKDDO84sM-uQpVwl_XAh5Ty64bd1c4DHtSrNR7Xdy19nPUoQypjP_gYkh1Jcv34h-o884BLNDoVpbM3sA2jv7M_3cfSITcPHZal\
        30lGgaAey8Pvbr8aKsE78i_4nDTF7oHM-Ra1ap8nlhOUz4yjIxG4-jDkX2OSsk-hjPY2cGb08gxfPfCGgfuVruXv-uVLQP7GAS7s\
        5enHqURrw-MAaKtI3-vNB9BZLkPkRWByprITMCSudDmh3J2TEXNlk5tH5lZ2sjNWXn-iXMf4GvFBTJb5CO6wVHOsEmIFtfkaYSls\
        grqJfi_pJGSlnLjGwAMI5S3M0M6HHRp5l33ZP2oMYQ";
    /// The modulus of a key of 1024 bits.
    const RSA_1024: &str = "\
        vz8eb9cNKLIae4HXKNs5X30FuNkgaPPY4-9C1bN41w_b7saBwMLTTxtdLPY1Blk9dYhY7hZpOcwC7bYcOKrDJZZIpBYZ8gz4SuTp\
        2iTjEiySoFvFMCQhrwmj6PEimDhQxYYuxQKWZsmggd1IFZp5X7NSuvQ1-AmYOy0vSej4GHM";
    /// Its signature.
    const RSA_1024_SIGNATURE: &str = "\
        uOj7le8G3KpQ8e0fq0exN_sZuO20ERet-VFG76DEL1RXO9HW-mkRODHeV8eag80l28oaz2LVYjRitfxs9Ne-xsuiA3Phfekax4yb\
        RGFg0wq0ovoVqbfw_ub6coT9zTji5hJgj3naFTuLbBSaCAcdxkd7WTPBK3nwTqs5gM0r-ZI";

    struct Signer(EcdsaKeyPair);

    impl Signer {
        fn new() -> Self {
            let random = SystemRandom::new();
            let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
            let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random);
            Self(pair.unwrap())
        }

        fn jwk(&self, kid: &str) -> Jwk {
            let point = self.0.public_key().as_ref();
            let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
            let key =
                json!({ "kty": "EC", "crv": "P-256", "kid": kid, "x": part(&point[1..33]), "y": part(&point[33..]) });
            serde_json::from_value(key).unwrap()
        }

        fn sign(&self, header: &Value, claims: &Value) -> String {
            let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let signed = format!("{}.{}", part(header), part(claims));
            let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
        }
    }

    fn expected() -> ExpectedClaims<'static> {
        ExpectedClaims { issuer: "https://id.test", client_id: "mailonce", nonce: "n", now_s: NOW }
    }

    fn claims() -> Value {
        json!({ "iss": "https://id.test", "aud": "mailonce", "nonce": "n", "sub": "ada", "iat": NOW, "exp": NOW + 300 })
    }

    fn header() -> Value {
        json!({ "alg": "ES256", "kid": "k" })
    }

    #[test]
    fn a_token_of_the_provider_is_accepted() {
        let signer = Signer::new();
        let keys = [Signer::new().jwk("old"), signer.jwk("k")];
        assert_eq!(verify(&signer.sign(&header(), &claims()), &keys, expected()).unwrap()["sub"], "ada");
        let without_kid = signer.sign(&json!({ "alg": "ES256" }), &claims());
        assert!(verify(&without_kid, &keys, expected()).is_ok());
    }

    #[test]
    fn an_rsa_signature_needs_the_right_key_of_2048_bits() {
        let key = |modulus: &str, more: Value| {
            let mut key = json!({ "kty": "RSA", "kid": "k", "n": modulus, "e": "AQAB" });
            more.as_object().unwrap().iter().for_each(|(name, value)| key[name] = value.clone());
            [serde_json::from_value::<Jwk>(key).unwrap()]
        };
        let check = |keys: &[Jwk], signature: &str| {
            verify(&format!("{RS256_SIGNED}.{signature}"), keys, expected()).map(|claims| claims["sub"].clone())
        };
        let good = key(RSA_2048, json!({}));
        assert_eq!(check(&good, RSA_2048_SIGNATURE), Ok(json!("ada")));
        assert_eq!(
            check(&key(RSA_2048, json!({ "alg": "RS256", "use": "sig" })), RSA_2048_SIGNATURE),
            Ok(json!("ada"))
        );
        let wrong = RSA_2048_SIGNATURE.replacen('l', "m", 1);
        for (keys, signature) in [
            (&good, wrong.as_str()),
            (&good, RSA_1024_SIGNATURE),
            (&good, ""),
            // Such a key can be broken, whoever publishes it.
            (&key(RSA_1024, json!({})), RSA_1024_SIGNATURE),
            (&key(RSA_2048, json!({ "e": null })), RSA_2048_SIGNATURE),
            (&key("", json!({})), RSA_2048_SIGNATURE),
        ] {
            assert_eq!(check(keys, signature), Err(IdTokenError::Signature), "{signature} {keys:?}");
        }
        for other in [json!({ "kty": "EC" }), json!({ "use": "enc" }), json!({ "alg": "RS512" }), json!({ "kid": "l" })]
        {
            assert_eq!(
                check(&key(RSA_2048, other.clone()), RSA_2048_SIGNATURE),
                Err(IdTokenError::UnknownKey),
                "{other}"
            );
        }
    }

    #[test]
    fn a_token_with_a_wrong_claim_is_refused() {
        let signer = Signer::new();
        let keys = [signer.jwk("k")];
        for (name, value, error) in [
            ("iss", json!("https://evil.test"), IdTokenError::Claim("iss")),
            ("iss", json!("https://id.test/"), IdTokenError::Claim("iss")),
            ("aud", json!("another"), IdTokenError::Claim("aud")),
            ("aud", json!(["mailonce", "another"]), IdTokenError::Claim("azp")),
            ("azp", json!("another"), IdTokenError::Claim("azp")),
            ("nonce", json!("m"), IdTokenError::Claim("nonce")),
            ("nonce", Value::Null, IdTokenError::Claim("nonce")),
            ("sub", json!(""), IdTokenError::Claim("sub")),
            ("sub", json!(7), IdTokenError::Claim("sub")),
            ("exp", json!(NOW - 61), IdTokenError::Time),
            ("exp", Value::Null, IdTokenError::Time),
            ("iat", json!(NOW + 61), IdTokenError::Time),
            ("nbf", json!(NOW + 61), IdTokenError::Time),
        ] {
            let mut claims = claims();
            claims[name] = value;
            let answer = verify(&signer.sign(&header(), &claims), &keys, expected());
            assert_eq!(answer.unwrap_err(), error, "{claims}");
        }
    }

    #[test]
    fn a_token_that_the_provider_did_not_sign_is_refused() {
        let (signer, other) = (Signer::new(), Signer::new());
        let keys = [signer.jwk("k")];
        let check = |token: &str| verify(token, &keys, expected()).unwrap_err();
        assert_eq!(check(&other.sign(&header(), &claims())), IdTokenError::Signature);
        assert_eq!(check(&signer.sign(&json!({ "alg": "ES256", "kid": "new" }), &claims())), IdTokenError::UnknownKey);
        assert_eq!(check(&signer.sign(&json!({ "alg": "RS256", "kid": "k" }), &claims())), IdTokenError::UnknownKey);
        for alg in ["none", "HS256", "ES384", "es256"] {
            let token = signer.sign(&json!({ "alg": alg, "kid": "k" }), &claims());
            assert_eq!(check(&token), IdTokenError::Algorithm(alg.into()));
        }
        let critical = signer.sign(&json!({ "alg": "ES256", "kid": "k", "crit": ["x"] }), &claims());
        assert_eq!(check(&critical), IdTokenError::Malformed);
        let token = signer.sign(&header(), &claims());
        let (signed, _) = token.rsplit_once('.').unwrap();
        assert_eq!(check(&format!("{signed}.")), IdTokenError::Signature);
        let long = "a".repeat(MAX_TOKEN_BYTES + 1);
        for bad in ["", "a.b", "a.b.c", long.as_str(), signed] {
            assert!(matches!(check(bad), IdTokenError::Malformed | IdTokenError::Signature), "{bad}");
        }
    }
}
