//! The envelope of Amazon SNS: its URLs and its RSA signature.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::time::Time;
use ring::signature::{self, RsaParameters, UnparsedPublicKey};
use rustls_pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm, alg_id, pem::PemObject as _,
};
use serde_json::Value;
use webpki::EndEntityCert;

use super::{HookRejection, HookRequest, HookSecretError, MAX_EVENT_BODY_BYTES, json};
use crate::hooks::verification;

/// Maximum number of topics per source.
const MAX_TOPICS: usize = 100;

/// Maximum size of a certificate.
const MAX_CERTIFICATE_BYTES: usize = 64 * 1024;

/// Which SNS messages are trusted.
#[derive(Clone, Debug)]
pub(crate) struct SnsTrust {
    topics: Vec<String>,
    allow_sha1: bool,
}

impl SnsTrust {
    pub(crate) fn new(topics: Vec<String>, allow_sha1: bool) -> Result<Self, HookSecretError> {
        if topics.is_empty() || topics.len() > MAX_TOPICS {
            return Err(HookSecretError::Unusable("is not a list of 1 to 100 topics"));
        }
        let is_arn = |topic: &String| topic.starts_with("arn:aws") && topic.split(':').count() == 6;
        if topics.iter().all(is_arn) {
            Ok(Self { topics, allow_sha1 })
        } else {
            Err(HookSecretError::Unusable("is not a topic's ARN"))
        }
    }
}

/// A parsed envelope.
pub(crate) struct SnsMessage(Value);

impl SnsMessage {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, HookRejection> {
        if body.len() > MAX_EVENT_BODY_BYTES {
            return Err(HookRejection::TooLarge);
        }
        match json::parse(body) {
            Ok(value) if value.is_object() => Ok(Self(value)),
            Ok(_) => Err(HookRejection::Malformed("not an object".into())),
            Err(why) => Err(HookRejection::Malformed(why.to_string())),
        }
    }

    /// A field of the envelope. All fields of SNS are strings.
    pub(crate) fn field(&self, name: &'static str) -> Result<&str, HookRejection> {
        self.0.get(name).and_then(Value::as_str).ok_or(HookRejection::MissingField(name))
    }

    /// The certificate's URL. Only certificate files are allowed, because the SNS API on the same host can return bytes
    /// that an attacker chose.
    pub(crate) fn certificate_url(&self) -> Result<&str, HookRejection> {
        let url = self.field("SigningCertURL")?;
        let file = sns_path(url).and_then(|path| path.strip_prefix("SimpleNotificationService-")?.strip_suffix(".pem"));
        let plain = |name: &&str| name.bytes().all(|b| b.is_ascii_alphanumeric());
        file.filter(plain)
            .map(|_| url)
            .ok_or_else(|| HookRejection::Malformed("SigningCertURL is not a certificate of SNS".into()))
    }

    /// The URL that confirms a subscription. `None` if the message is not a `SubscriptionConfirmation`.
    pub(crate) fn subscribe_url(&self) -> Result<Option<&str>, HookRejection> {
        if self.field("Type")? != "SubscriptionConfirmation" {
            return Ok(None);
        }
        let url = self.field("SubscribeURL")?;
        let query = sns_path(url).and_then(|path| path.strip_prefix('?'));
        let confirms = |query: &&str| query.split('&').any(|pair| pair == "Action=ConfirmSubscription");
        let good = query.filter(confirms).map(|_| Some(url));
        good.ok_or_else(|| HookRejection::Malformed("SubscribeURL does not confirm a subscription at SNS".into()))
    }

    /// The signed text: names and values of fixed fields, sorted, each followed by a line feed.
    fn string_to_sign(&self) -> Result<String, HookRejection> {
        let names: &[&'static str] = match self.field("Type")? {
            "Notification" => &["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"],
            "SubscriptionConfirmation" | "UnsubscribeConfirmation" => {
                &["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"]
            }
            _ => return Err(HookRejection::Malformed("Type is not one of SNS".into())),
        };
        let mut text = String::new();
        for name in names {
            if *name == "Subject" && self.0.get("Subject").is_none_or(Value::is_null) {
                continue;
            }
            text.extend([name, "\n", self.field(name)?, "\n"]);
        }
        Ok(text)
    }
}

pub(crate) fn verify(
    trust: &SnsTrust,
    request: &HookRequest<'_>,
    now: Time,
    tolerance_ms: i64,
) -> Result<(), HookRejection> {
    let envelope = SnsMessage::parse(request.body)?;
    let topic = envelope.field("TopicArn")?;
    if !trust.topics.iter().any(|known| known == topic) {
        return Err(HookRejection::ForeignTopic);
    }
    envelope.certificate_url()?;
    envelope.subscribe_url()?;
    let algorithm = match envelope.field("SignatureVersion")? {
        "2" => &RSA_SHA256,
        "1" if trust.allow_sha1 => &RSA_SHA1,
        "1" => return Err(HookRejection::Sha1),
        _ => return Err(HookRejection::Malformed("SignatureVersion is unknown".into())),
    };
    let string_to_sign = envelope.string_to_sign()?;
    let Ok(signature) = STANDARD.decode(envelope.field("Signature")?) else {
        return Err(HookRejection::Malformed("Signature is not base64".into()));
    };
    let pem = request.certificate.ok_or(HookRejection::Certificate("was not given"))?;
    verify_signature(pem, algorithm, string_to_sign.as_bytes(), &signature)?;
    let signed_at = Time::parse(envelope.field("Timestamp")?);
    let signed_at = signed_at.ok_or_else(|| HookRejection::Malformed("Timestamp is not a time".into()))?;
    verification::check_freshness(signed_at, now, tolerance_ms)
}

/// Verifies the signature with the key of a certificate. The issuer is not checked: the certificate came over TLS from
/// a host that belongs to SNS. Amazon's own libraries do the same.
fn verify_signature(
    pem: &[u8],
    algorithm: &'static RsaPkcs1,
    signed: &[u8],
    signature: &[u8],
) -> Result<(), HookRejection> {
    if pem.len() > MAX_CERTIFICATE_BYTES {
        return Err(HookRejection::Certificate("is too large"));
    }
    let Ok(der) = CertificateDer::from_pem_slice(pem) else {
        return Err(HookRejection::Certificate("is not PEM"));
    };
    let Ok(certificate) = EndEntityCert::try_from(&der) else {
        return Err(HookRejection::Certificate("cannot be read"));
    };
    match certificate.verify_signature(algorithm, signed, signature) {
        Ok(()) => Ok(()),
        Err(webpki::Error::InvalidSignatureForPublicKey) => Err(HookRejection::BadSignature),
        Err(_) => Err(HookRejection::Certificate("does not hold an RSA key")),
    }
}

/// RSA PKCS#1 with SHA-256 or SHA-1. webpki does not offer SHA-1, which certificates no longer use.
#[derive(Debug)]
struct RsaPkcs1 {
    parameters: &'static RsaParameters,
    signature_id: AlgorithmIdentifier,
}

static RSA_SHA256: RsaPkcs1 =
    RsaPkcs1 { parameters: &signature::RSA_PKCS1_2048_8192_SHA256, signature_id: alg_id::RSA_PKCS1_SHA256 };

static RSA_SHA1: RsaPkcs1 = RsaPkcs1 {
    parameters: &signature::RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
    // sha1WithRSAEncryption (RFC 8017), with its NULL.
    signature_id: AlgorithmIdentifier::from_slice(&[
        0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05, 0x05, 0x00,
    ]),
};

impl SignatureVerificationAlgorithm for RsaPkcs1 {
    fn verify_signature(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        match UnparsedPublicKey::new(self.parameters, key).verify(message, signature) {
            Ok(()) => Ok(()),
            Err(_) => Err(InvalidSignature),
        }
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_ENCRYPTION
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.signature_id
    }
}

/// The path after `https://sns.REGION.amazonaws.com/`. `None` for URLs with another host, a port or a user.
fn sns_path(url: &str) -> Option<&str> {
    if url.len() > 2_048 || !url.bytes().all(|b| b.is_ascii_graphic() && b != b'\\' && b != b'#') {
        return None;
    }
    let (host, path) = url.strip_prefix("https://")?.split_once('/')?;
    let region = host.strip_prefix("sns.")?.strip_suffix(".amazonaws.com")?;
    is_aws_region(region).then_some(path)
}

/// Whether this is a region, such as `eu-west-1` or `us-gov-east-1`. Anyone can have a bucket at
/// `sns.s3-eu-west-1.amazonaws.com`.
fn is_aws_region(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let letters = |part: &&str| (2..=12).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_lowercase());
    match parts.as_slice() {
        [area, middle @ .., number] => {
            area.len() == 2
                && letters(area)
                && (1..=2).contains(&middle.len())
                && middle.iter().all(letters)
                && (1..=2).contains(&number.len())
                && number.bytes().all(|b| b.is_ascii_digit())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::sns_path;

    #[test]
    fn certificates_are_fetched_from_sns_hosts_only() {
        for region in ["eu-west-1", "us-east-2", "ap-southeast-4", "us-gov-west-1", "me-central-1", "il-central-1"] {
            assert_eq!(sns_path(&format!("https://sns.{region}.amazonaws.com/cert.pem")), Some("cert.pem"), "{region}");
        }
        for host in [
            "sns.s3-eu-west-1.amazonaws.com",
            "sns.s3.amazonaws.com",
            "sns.s3-accelerate.amazonaws.com",
            "sns.s3-website-eu-west-1.amazonaws.com",
            "sns.execute-api.eu-west-1.amazonaws.com",
            "sns.eu-west-1.amazonaws.com.evil.test",
            "sns.eu-west-1.amazonaws.com:444",
            "evil.sns.eu-west-1.amazonaws.com",
            "sns.eu-west-.amazonaws.com",
            "sns.1.amazonaws.com",
        ] {
            assert_eq!(sns_path(&format!("https://{host}/cert.pem")), None, "{host}");
        }
    }
}
