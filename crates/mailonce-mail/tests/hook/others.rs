//! Signatures of other implementations: the official `standardwebhooks` and `svix` packages, and Python's
//! `cryptography` for SNS and SendGrid. Their signatures verify; modified, with another secret or too old they do not.

use mailonce_core::time::Time;
use mailonce_mail::hooks::{HookRejection, HookSecrets, Kind};
use serde_json::{Value, json};

use crate::{
    python,
    rig::{HookTestRequest, NOW, with_field},
    sns::{TOPIC, confirmation, notification},
};

const BODY: &str = r#"{"type":"email.received","data":{"email_id":"m1","subject":"Grüße"}}"#;

/// Requests that the other implementations signed now.
fn requests() -> Vec<Value> {
    let packages = ["standardwebhooks==1.1.0", "svix==2.9.1", "cryptography==50.0.2"];
    let python_path = python::with("hooks", "standardwebhooks, svix.webhooks, cryptography", &packages);
    let with_subject = with_field(&notification("hello"), "/Subject", "About it");
    let sns: Vec<Value> = [notification("hello"), with_subject, confirmation()].map(unsigned).to_vec();
    let input = json!({ "at": NOW.0 / 1000, "body": BODY, "sns": sns });
    serde_json::from_str(&python::run(&python_path, "sign_hooks.py", &input)).unwrap()
}

/// The message without its signature fields.
fn unsigned(mut message: Value) -> Value {
    for name in ["Signature", "SignatureVersion"] {
        message.as_object_mut().unwrap().remove(name);
    }
    message
}

fn post(request: &Value) -> HookTestRequest {
    let headers = request["headers"].as_object().unwrap();
    let post = HookTestRequest::new(request["body"].as_str().unwrap());
    let post = headers.iter().fold(post, |post, (name, value)| post.with(name, value.as_str().unwrap()));
    HookTestRequest { certificate: request["certificate"].as_str().map(|pem| pem.as_bytes().to_vec()), ..post }
}

/// The kinds that accept a request, each with right and with wrong secrets.
fn secrets(request: &Value) -> Vec<(Kind, HookSecrets, HookSecrets)> {
    let secret = || request["secret"].as_str().unwrap();
    let keys = |kind, key: &str| HookSecrets::from_keys(kind, &[key]).unwrap();
    let other = "whsec_YW5vdGhlciBvbmUgb2YgMjQgbGV0dGVycw==";
    let topics = |topic: &str, sha1| HookSecrets::from_topics(vec![topic.into()], sha1).unwrap();
    match request["scheme"].as_str().unwrap() {
        "standardwebhooks" | "svix" => {
            [Kind::Standard, Kind::Resend].map(|kind| (kind, keys(kind, secret()), keys(kind, other))).to_vec()
        }
        "sendgrid" => {
            let stranger = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==";
            vec![(Kind::Sendgrid, keys(Kind::Sendgrid, secret()), keys(Kind::Sendgrid, stranger))]
        }
        "sns1" => vec![(Kind::Ses, topics(TOPIC, true), topics(TOPIC, false))],
        _ => vec![(Kind::Ses, topics(TOPIC, false), topics(&TOPIC.replace("events", "other"), false))],
    }
}

#[test]
fn signatures_of_other_libraries_verify_and_forgeries_do_not() {
    let requests = requests();
    let schemes: std::collections::BTreeSet<&str> =
        requests.iter().map(|one| one["scheme"].as_str().unwrap()).collect();
    assert_eq!(schemes.into_iter().collect::<Vec<_>>(), ["sendgrid", "sns1", "sns2", "standardwebhooks", "svix"]);
    for request in &requests {
        let (scheme, body) = (&request["scheme"], request["body"].as_str().unwrap());
        for (kind, right, wrong) in secrets(request) {
            let verify = |post: &HookTestRequest, secrets: &HookSecrets, now: Time| post.verify(secrets, now);
            let post = post(request);
            assert_eq!(verify(&post, &right, NOW), Ok(()), "{scheme} for {kind}");
            let refused = verify(&post, &wrong, NOW);
            assert!(refused.is_err(), "{scheme} for {kind} with a wrong secret");
            let modified = body.replace("m1", "m2").replace("hello", "hullo").replace("chosen", "chusen");
            assert_ne!(modified, body);
            assert_eq!(
                verify(&post.clone().with_body(modified), &right, NOW),
                Err(HookRejection::BadSignature),
                "{scheme} for {kind}"
            );
            let late = NOW.plus(right.tolerance_ms() + 1_000);
            assert!(
                matches!(verify(&post, &right, late), Err(HookRejection::Stale { .. })),
                "{scheme} for {kind}, too old"
            );
        }
    }
}
