//! AWS Signature Version 4: signs the sender, time and content of a request.

use hmac::{Hmac, KeyInit as _, Mac as _};
use mailonce_core::time::Time;
use sha2::{Digest as _, Sha256};

use super::{Secret, base::percent_encode, form::hex};

/// The credential, and the region and service for which the signature is valid.
pub(super) struct SigV4Signer<'a> {
    pub(super) access_key_id: &'a str,
    pub(super) secret: &'a Secret,
    pub(super) region: &'a str,
    pub(super) service: &'a str,
}

/// The request to sign. Header names are in lower case, values as they are sent.
pub(super) struct SigV4Request<'a> {
    pub(super) method: &'a str,
    /// The path as in the request line, without the query.
    pub(super) path: &'a str,
    /// Names and values before percent-encoding.
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) headers: &'a [(&'a str, &'a str)],
    pub(super) body: &'a [u8],
}

/// A time in the AWS format: `20150830T123600Z`.
pub(super) fn amz_date(at: Time) -> String {
    let text = at.to_string();
    let seconds = text.split('.').next().unwrap_or_default();
    seconds.chars().filter(char::is_ascii_alphanumeric).chain(['Z']).collect()
}

impl SigV4Signer<'_> {
    /// The `Authorization` header.
    pub(super) fn authorization(&self, signed: &SigV4Request<'_>, at: Time) -> String {
        let timestamp = amz_date(at);
        let day = timestamp.get(..8).unwrap_or_default();
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let (request, names) = canonical_request(signed);
        let digest = hex(&Sha256::digest(request.as_bytes()));
        let string_to_sign = format!("AWS4-HMAC-SHA256\n{timestamp}\n{scope}\n{digest}");
        let mut key = hmac_sha256(format!("AWS4{}", self.secret.0).as_bytes(), day);
        for part in [self.region, self.service, "aws4_request", string_to_sign.as_str()] {
            key = hmac_sha256(&key, part);
        }
        let key_id = self.access_key_id;
        format!("AWS4-HMAC-SHA256 Credential={key_id}/{scope}, SignedHeaders={names}, Signature={}", hex(&key))
    }
}

/// The canonical request that both sides hash, and the names of its signed headers.
fn canonical_request(signed: &SigV4Request<'_>) -> (String, String) {
    let mut headers: Vec<(&str, String)> = signed
        .headers
        .iter()
        .map(|(name, value)| (*name, value.split_whitespace().collect::<Vec<_>>().join(" ")))
        .collect();
    headers.sort();
    let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let lines = headers.iter().map(|(name, value)| format!("{name}:{value}")).collect::<Vec<_>>().join("\n");
    let mut query: Vec<String> = signed
        .query
        .iter()
        .map(|(name, value)| format!("{}={}", percent_encode(name), percent_encode(value)))
        .collect();
    query.sort();
    // Each segment is encoded once more than in the request line; only S3 does not do this.
    let path = signed.path.split('/').map(percent_encode).collect::<Vec<_>>().join("/");
    let body = hex(&Sha256::digest(signed.body));
    (format!("{}\n{path}\n{}\n{lines}\n\n{names}\n{body}", signed.method, query.join("&")), names)
}

fn hmac_sha256(key: &[u8], text: &str) -> Vec<u8> {
    // HMAC accepts keys of any length, so the fallback is never used.
    Hmac::<Sha256>::new_from_slice(key).map_or_else(
        |_never| Vec::new(),
        |mut mac| {
            mac.update(text.as_bytes());
            mac.finalize().into_bytes().to_vec()
        },
    )
}

/// The vectors that AWS publishes for its own implementations (aws-sig-v4-test-suite, and the signing example of the
/// IAM guide).
#[cfg(test)]
mod tests {
    use super::*;

    fn signature(service: &str, signed: &SigV4Request<'_>) -> String {
        let secret = Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
        let signer = SigV4Signer { access_key_id: "AKIDEXAMPLE", secret: &secret, region: "us-east-1", service };
        let at = Time::parse("2015-08-30T12:36:00Z").unwrap();
        let header = signer.authorization(signed, at);
        assert!(header.contains("Credential=AKIDEXAMPLE/20150830/us-east-1/"), "{header}");
        header.rsplit_once("Signature=").unwrap().1.to_owned()
    }

    const DATED: [(&str, &str); 2] = [("host", "example.amazonaws.com"), ("x-amz-date", "20150830T123600Z")];

    #[test]
    fn plain_requests() {
        for (method, expected) in [
            ("GET", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
            ("POST", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        ] {
            let signed = SigV4Request { method, path: "/", query: &[], headers: &DATED, body: b"" };
            assert_eq!(signature("service", &signed), expected, "{method}");
        }
    }

    #[test]
    fn queries_are_sorted_and_values_trimmed() {
        let query = [("Param2", "value2"), ("Param1", "value1")];
        let signed = SigV4Request { method: "GET", path: "/", query: &query, headers: &DATED, body: b"" };
        assert_eq!(signature("service", &signed), "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
        let headers = [
            ("host", "example.amazonaws.com"),
            ("my-header1", " value1"),
            ("my-header2", " \"a   b   c\""),
            ("x-amz-date", "20150830T123600Z"),
        ];
        let signed = SigV4Request { method: "GET", path: "/", query: &[], headers: &headers, body: b"" };
        assert_eq!(signature("service", &signed), "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736");
    }

    #[test]
    fn a_body_is_signed() {
        let headers = [
            ("content-type", "application/x-www-form-urlencoded"),
            ("host", "example.amazonaws.com"),
            ("x-amz-date", "20150830T123600Z"),
        ];
        let signed = SigV4Request { method: "POST", path: "/", query: &[], headers: &headers, body: b"Param1=value1" };
        assert_eq!(signature("service", &signed), "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a");
    }

    #[test]
    fn the_example_of_the_guide() {
        let query = [("Action", "ListUsers"), ("Version", "2010-05-08")];
        let headers = [
            ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
            ("host", "iam.amazonaws.com"),
            ("x-amz-date", "20150830T123600Z"),
        ];
        let signed = SigV4Request { method: "GET", path: "/", query: &query, headers: &headers, body: b"" };
        assert_eq!(signature("iam", &signed), "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7");
    }
}
