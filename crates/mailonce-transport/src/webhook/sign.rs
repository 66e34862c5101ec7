//! Signatures of Standard Webhooks, version 1: HMAC-SHA256 over id, time and body.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use mailonce_core::events::webhook::OutgoingWebhook;
use sha2::Sha256;

/// One signature per active secret, newest first. A receiver accepts the webhook if any of them verifies.
pub(super) fn signatures(post: &OutgoingWebhook) -> String {
    let sign = |secret: &Vec<u8>| {
        // HMAC takes keys of any length.
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
        mac.update(post.id.as_bytes());
        mac.update(format!(".{}.", post.timestamp_s).as_bytes());
        mac.update(&post.body);
        Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
    };
    post.secrets.iter().filter_map(sign).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_specification_verifies() {
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let post = OutgoingWebhook {
            url: String::new(),
            id: "msg_p5jXN8AQM9LWM0D4loKWxJek".into(),
            timestamp_s: 1_614_265_330,
            secrets: vec![secret, b"other".to_vec()],
            headers: Vec::new(),
            body: br#"{"test": 2432232314}"#.to_vec(),
        };
        let signed = signatures(&post);
        let (first, second) = signed.split_once(' ').unwrap();
        assert_eq!(first, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert!(second.starts_with("v1,") && second != first);
    }
}
