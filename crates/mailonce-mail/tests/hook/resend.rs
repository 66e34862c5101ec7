//! Resend: the published vector of Standard Webhooks and Svix, and its events.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::time::Time;
use mailonce_mail::hook::{BadSecret, Kind, Reject, Says, Secrets, Unreadable};
use serde_json::{Value, json};

use crate::rig::{HARD, NOW, OURS, Post, SOFT, hmac, one, ours, set};

/// From the tests of the Standard Webhooks libraries.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const VECTOR: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
const VECTOR_BODY: &str = r#"{"test": 2432232314}"#;
const THEN: Time = Time(1_614_265_330_000);

fn secrets() -> Secrets {
    Secrets::keys(Kind::Resend, &[SECRET]).unwrap()
}

fn vector(family: &str) -> Post {
    Post::of(VECTOR_BODY)
        .with(&format!("{family}-id"), "msg_p5jXN8AQM9LWM0D4loKWxJek")
        .with(&format!("{family}-timestamp"), "1614265330")
        .with(&format!("{family}-signature"), VECTOR)
}

fn signed(secret: &str, at: Time, body: &str) -> Post {
    let key = STANDARD.decode(secret.trim_start_matches("whsec_")).unwrap();
    let seconds = (at.0 / 1000).to_string();
    let signature = hmac(&key, format!("msg_1.{seconds}.{body}").as_bytes());
    Post::of(body)
        .with("svix-id", "msg_1")
        .with("svix-timestamp", seconds)
        .with("svix-signature", format!("v1,{}", STANDARD.encode(signature)))
}

fn event(word: &str) -> Value {
    json!({
        "type": word, "created_at": "2026-11-15T09:59:43.736Z",
        "data": {
            "created_at": "2026-11-15T09:59:00.982Z", "email_id": "56761188-7520-42d8-8898-ff6fc54ce618",
            "from": "Acme <onboarding@example.org>", "to": ["Ada <ada@example.com>"], "subject": "Sending this example",
            "tags": {"mailonce": OURS, "category": "confirm_email"}
        }
    })
}

fn bounce(kind: &str, sub: &str) -> Value {
    let bounce = json!({"type": kind, "subType": sub, "message": "The server said no", "diagnosticCode": ["550"]});
    set(&event("email.bounced"), "/data/bounce", bounce)
}

#[test]
fn the_published_vector_is_believed_under_both_names() {
    for family in ["svix", "webhook", "SVIX", "Webhook"] {
        assert_eq!(vector(family).verify(&secrets(), THEN), Ok(()), "{family}");
    }
    // Unknown versions and a signature by another key beside it, as during a change of secrets at the sender.
    let many = format!(
        "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg== v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc= {VECTOR} v2,x novalue"
    );
    let several = vector("svix").without("svix-signature").with("svix-signature", many);
    assert_eq!(several.verify(&secrets(), THEN), Ok(()));
}

#[test]
fn a_bent_vector_is_not() {
    let verdict = |post: Post| post.verify(&secrets(), THEN);
    assert_eq!(verdict(vector("svix").saying(r#"{"test":2432232314}"#)), Err(Reject::BadSignature));
    let other = Secrets::keys(Kind::Resend, &["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"]).unwrap();
    assert_eq!(vector("svix").verify(&other, THEN), Err(Reject::BadSignature));
    for (name, value) in [("svix-id", "msg_other"), ("svix-timestamp", "1614265331"), ("svix-signature", "v1,AAAA")] {
        assert_eq!(verdict(vector("svix").without(name).with(name, value)), Err(Reject::BadSignature), "{name}");
        assert_eq!(verdict(vector("svix").without(name)), Err(Reject::MissingHeader(name)));
        let twice = vector("svix").with(name, value);
        assert!(matches!(verdict(twice), Err(Reject::Malformed(_))), "{name}");
    }
    // Half of one family does not complete the other.
    let mixed = vector("svix").without("svix-id").with("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek");
    assert_eq!(verdict(mixed), Err(Reject::MissingHeader("webhook-timestamp")));
    let dotted = vector("svix").without("svix-id").with("svix-id", "msg.1");
    assert!(matches!(verdict(dotted), Err(Reject::Malformed(_))));
    assert_eq!(verdict(Post::of(VECTOR_BODY)).unwrap_err().status(), 401);
}

#[test]
fn time_is_checked_on_both_sides_after_the_signature() {
    for near in [-300_000, 300_000] {
        assert_eq!(vector("svix").verify(&secrets(), THEN.plus(near)), Ok(()));
    }
    for far in [-300_001, 300_001] {
        assert_eq!(vector("svix").verify(&secrets(), THEN.plus(far)), Err(Reject::Stale { off_ms: far }));
    }
    assert_eq!(vector("svix").verify(&secrets().tolerating(301_000), THEN.plus(300_001)), Ok(()));
    // A forged one does not learn about our clock.
    let forged = vector("svix").saying("{}");
    assert_eq!(forged.verify(&secrets(), THEN.plus(900_000)), Err(Reject::BadSignature));
}

#[test]
fn two_secrets_live_side_by_side() {
    let new = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    let both = Secrets::keys(Kind::Resend, &[SECRET, new]).unwrap();
    for secret in [SECRET, new] {
        assert_eq!(signed(secret, NOW, "{}").verify(&both, NOW), Ok(()), "{secret}");
    }
    assert_eq!(signed("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAA", NOW, "{}").verify(&both, NOW), Err(Reject::BadSignature));
    assert_eq!(Secrets::keys(Kind::Resend, &["whsec_"]).unwrap_err(), BadSecret::Short);
    assert!(matches!(Secrets::keys(Kind::Resend, &["whsec_not base64"]), Err(BadSecret::Unusable(_))));
    assert_eq!(Secrets::keys(Kind::Resend, &[SECRET; 3]).unwrap_err(), BadSecret::Count);
    assert_eq!(Secrets::keys(Kind::Ses, &[SECRET]).unwrap_err(), BadSecret::Kind(Kind::Ses));
}

#[test]
fn a_source_of_another_kind_is_our_own_trouble() {
    let reject = vector("svix").verify_as(Kind::Usesend, &secrets(), THEN).unwrap_err();
    assert_eq!((reject.clone(), reject.status()), (Reject::Misconfigured, 503));
}

#[test]
fn events_are_told_apart() {
    let sentence = "Resend has suppressed sending to this address because it is on the account-level suppression list.";
    let cases = [
        (event("email.sent"), Says::Accepted),
        (event("email.delivered"), Says::Delivered),
        (event("email.delivery_delayed"), Says::Deferred),
        (bounce("Permanent", "General"), HARD),
        (bounce("Transient", "MailboxFull"), SOFT),
        (bounce("Undetermined", "Undetermined"), SOFT),
        (bounce("Permanent", "OnAccountSuppressionList"), Says::Suppressed),
        (set(&event("email.bounced"), "/data/bounce", json!({"message": "hard bounce"})), HARD),
        (set(&event("email.bounced"), "/data/bounce", json!({"message": sentence})), Says::Suppressed),
        (event("email.complained"), Says::Complained),
        (event("email.failed"), Says::Refused),
        (event("email.suppressed"), Says::Suppressed),
        (event("email.opened"), Says::Other),
        (event("inbox.of.tomorrow"), Says::Other),
    ];
    for (event, says) in cases {
        let report = one(Kind::Resend, &event);
        assert_eq!(report.says, says, "{event}");
        assert_eq!((report.email, report.recipient.as_deref()), (ours(), Some("ada@example.com")));
        assert_eq!(report.remote_id.as_deref(), Some("56761188-7520-42d8-8898-ff6fc54ce618"));
    }
    assert_eq!(one(Kind::Resend, &bounce("Permanent", "General")).reason, "The server said no");
    assert_eq!(one(Kind::Resend, &event("email.sent")).at, Time::parse("2026-11-15T09:59:43.736Z"));
}

#[test]
fn the_signed_id_names_the_event() {
    let body = event("email.sent").to_string();
    let read = |post: Post| post.read(Kind::Resend).unwrap().remove(0).once;
    let first = read(signed(SECRET, NOW, &body));
    assert_eq!(first, "msg_1");
    // A retry has another time and signature, and the same id.
    assert_eq!(first, read(signed(SECRET, NOW.plus(3_600_000), &body)));
    assert_ne!(first, read(Post::of(body.as_str()).with("webhook-id", "msg_2")));
    let bare = read(Post::of(body.as_str()));
    assert_eq!(bare, read(Post::of(event("email.sent").to_string().replace("Sending", "Another"))));
    assert_ne!(bare, read(Post::of(event("email.delivered").to_string())));
}

#[test]
fn tags_as_a_list_headers_and_many_recipients_are_read() {
    let listed = set(
        &event("email.sent"),
        "/data/tags",
        json!([{"name": "a", "value": "b"}, {"name": "mailonce", "value": OURS}]),
    );
    assert_eq!(one(Kind::Resend, &listed).email, ours());
    let headers = json!([{"name": "X-Mailonce-Id", "value": OURS}]);
    let headed = set(&set(&event("email.sent"), "/data/tags", json!({})), "/data/headers", headers);
    assert_eq!(one(Kind::Resend, &headed).email, ours());
    // Nobody can tell which of two it is about.
    let two = set(&event("email.sent"), "/data/to", json!(["a@example.com", "b@example.com"]));
    assert_eq!(one(Kind::Resend, &two).recipient, None);
    assert!(one(Kind::Resend, &set(&event("email.sent"), "/data/to", json!(["bounced@resend.dev"]))).test);
    assert!(matches!(Post::of("{}").read(Kind::Resend), Err(Unreadable::Shape(_))));
}
