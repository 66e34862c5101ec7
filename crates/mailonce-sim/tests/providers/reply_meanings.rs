//! The meaning of each vendor's replies, compared with the number of accepted mails.

use mailonce_core::handoff::{
    capabilities::RecoveryMethod,
    reply::{AttemptPhase, ReplyMeaning},
};
use mailonce_sim::sink::http::{API_KEY, HttpSink, SECRET_ACCESS_KEY, ScriptedResponse, Vendor, VendorError};
use std::time::Duration;
use tokio::task::JoinSet;

use crate::fixtures::{EMAIL, KEY, MESSAGE_ID, build_transport, provider_setting, run_attempt, vendor_transport};

/// The meaning of a scripted response at a vendor, and the number of mails that it leaves there.
fn expected_meaning(vendor: Vendor, act: ScriptedResponse) -> (ReplyMeaning, usize) {
    let keyed = matches!(vendor, Vendor::Resend | Vendor::UseSend);
    match act {
        ScriptedResponse::Normal => (ReplyMeaning::Accepted, 1),
        ScriptedResponse::AcceptThenDrop
        | ScriptedResponse::AcceptThenServerError
        | ScriptedResponse::AcceptThenStall
        | ScriptedResponse::AcceptThenEmpty
        | ScriptedResponse::AcceptThenHuge => (ReplyMeaning::Unknown, 1),
        ScriptedResponse::AcceptOnRelease
        | ScriptedResponse::AcceptAfter(_)
        | ScriptedResponse::Drop
        | ScriptedResponse::CaptivePortal
        | ScriptedResponse::Redirect => (ReplyMeaning::Unknown, 0),
        ScriptedResponse::Error(VendorError::ServerError) => (ReplyMeaning::Unknown, 0),
        ScriptedResponse::Error(VendorError::RateLimited(_)) => (ReplyMeaning::Deferred, 0),
        ScriptedResponse::Error(VendorError::Revoked | VendorError::EchoesCredential) => (ReplyMeaning::Fault, 0),
        ScriptedResponse::Error(VendorError::Refused) => (ReplyMeaning::Refused, 0),
        ScriptedResponse::Error(VendorError::Concurrent) if keyed => (ReplyMeaning::Concurrent, 0),
        ScriptedResponse::Error(VendorError::Mismatch) if keyed => (ReplyMeaning::Mismatch, 0),
        ScriptedResponse::Error(VendorError::Concurrent | VendorError::Mismatch) if vendor == Vendor::Other => {
            (ReplyMeaning::Repeated, 0)
        }
        ScriptedResponse::Error(VendorError::Concurrent | VendorError::Mismatch) => (ReplyMeaning::Unknown, 0),
        // Only Postmark documents that nothing was accepted.
        ScriptedResponse::Error(VendorError::Unavailable) if vendor == Vendor::Postmark => (ReplyMeaning::Deferred, 0),
        ScriptedResponse::Error(VendorError::Unavailable) => (ReplyMeaning::Unknown, 0),
    }
}

const ACTS: [ScriptedResponse; 18] = [
    ScriptedResponse::Normal,
    ScriptedResponse::AcceptThenDrop,
    ScriptedResponse::AcceptThenServerError,
    ScriptedResponse::AcceptThenStall,
    ScriptedResponse::AcceptThenEmpty,
    ScriptedResponse::AcceptThenHuge,
    ScriptedResponse::AcceptOnRelease,
    ScriptedResponse::Drop,
    ScriptedResponse::CaptivePortal,
    ScriptedResponse::Redirect,
    ScriptedResponse::Error(VendorError::ServerError),
    ScriptedResponse::Error(VendorError::RateLimited(2)),
    ScriptedResponse::Error(VendorError::Revoked),
    ScriptedResponse::Error(VendorError::Refused),
    ScriptedResponse::Error(VendorError::Concurrent),
    ScriptedResponse::Error(VendorError::Mismatch),
    ScriptedResponse::Error(VendorError::Unavailable),
    ScriptedResponse::Error(VendorError::EchoesCredential),
];

#[tokio::test]
async fn every_scripted_response_has_its_meaning_at_every_vendor() {
    // Each response without a reply takes a second, so the vendors run in parallel.
    let mut vendors = JoinSet::new();
    for vendor in Vendor::ALL {
        vendors.spawn(async move {
            for act in ACTS {
                check_one(vendor, act).await;
            }
        });
    }
    vendors.join_all().await;
}

async fn check_one(vendor: Vendor, act: ScriptedResponse) {
    let sink = HttpSink::start().await.unwrap();
    sink.queue_responses(&[act]);
    let mut setting = provider_setting(sink.url());
    if matches!(act, ScriptedResponse::AcceptThenStall | ScriptedResponse::AcceptOnRelease) {
        setting.timeout = Duration::from_secs(1);
    }
    let reply = run_attempt(&*build_transport(vendor, setting, API_KEY).unwrap(), 1).await;
    let found = (reply.meaning, sink.accepted_mail().len());
    assert_eq!(found, expected_meaning(vendor, act), "{vendor:?} {act:?}: {}", reply.text);
    assert_eq!(reply.phase, AttemptPhase::Final, "{vendor:?} {act:?}");
    assert!(!reply.text.is_empty(), "{vendor:?} {act:?} says why");
    let shown = [API_KEY, SECRET_ACCESS_KEY].iter().any(|secret| reply.text.contains(secret));
    assert!(!shown, "{vendor:?} {act:?} shows the secret: {}", reply.text);
    let pause = matches!(act, ScriptedResponse::Error(VendorError::RateLimited(_))).then_some(2_000);
    assert_eq!(reply.retry_after_ms, pause, "{vendor:?} {act:?}");
    assert_eq!(reply.remote_id.is_some(), act == ScriptedResponse::Normal, "{vendor:?} {act:?}");
}

#[tokio::test]
async fn what_is_taken_is_the_mail_with_its_key_and_names() {
    for vendor in Vendor::ALL {
        let sink = HttpSink::start().await.unwrap();
        let reply = run_attempt(&*vendor_transport(vendor, sink.url()), 1).await;
        let [taken] = &sink.accepted_mail()[..] else { panic!("{vendor:?} took no mail: {}", reply.text) };
        assert_eq!(
            taken.recipients,
            ["ada@example.org", "bob@example.org", "carol@example.org", "dan@example.org"],
            "{vendor:?}"
        );
        assert_eq!(taken.correlation.as_deref(), Some(EMAIL.to_string().as_str()), "{vendor:?}");
        let keyed = matches!(vendor, Vendor::Resend | Vendor::UseSend | Vendor::Brevo | Vendor::Other);
        assert_eq!(taken.key, keyed.then(|| KEY.to_string()), "{vendor:?}");
        let named = matches!(vendor, Vendor::Postmark | Vendor::Mailgun | Vendor::SendGrid | Vendor::Ses);
        assert_eq!(taken.message_id.as_deref(), named.then_some(MESSAGE_ID), "{vendor:?}");
        let remote_id_text = reply.remote_id.unwrap();
        assert!(
            remote_id_text.contains(&taken.id) || remote_id_text == MESSAGE_ID,
            "{vendor:?} named it {remote_id_text}"
        );
    }
}

#[tokio::test]
async fn a_repeat_under_the_same_key_makes_no_second_mail_where_keys_are_kept() {
    for (vendor, meaning) in [
        (Vendor::Resend, ReplyMeaning::Accepted),
        (Vendor::UseSend, ReplyMeaning::Accepted),
        (Vendor::Brevo, ReplyMeaning::Repeated),
        (Vendor::Other, ReplyMeaning::Repeated),
    ] {
        let sink = HttpSink::start().await.unwrap();
        sink.queue_responses(&[ScriptedResponse::AcceptThenDrop]);
        let transport = vendor_transport(vendor, sink.url());
        assert_eq!(run_attempt(&*transport, 1).await.meaning, ReplyMeaning::Unknown, "{vendor:?}");
        for number in 2..4 {
            assert_eq!(run_attempt(&*transport, number).await.meaning, meaning, "{vendor:?}");
        }
        assert_eq!(sink.accepted_mail().len(), 1, "{vendor:?}");
    }
}

#[tokio::test]
async fn a_repeat_makes_a_second_mail_where_no_keys_are_kept_and_so_no_key_is_claimed() {
    for vendor in [Vendor::Postmark, Vendor::Mailgun, Vendor::SendGrid, Vendor::Ses] {
        let sink = HttpSink::start().await.unwrap();
        let transport = vendor_transport(vendor, sink.url());
        run_attempt(&*transport, 1).await;
        run_attempt(&*transport, 2).await;
        assert_eq!(sink.accepted_mail().len(), 2, "{vendor:?}");
        let recovery = transport.capabilities().recovery;
        assert!(!matches!(recovery, RecoveryMethod::IdempotencyKey { .. }), "{vendor:?} has no keys but claims them");
    }
}

#[tokio::test]
async fn a_wrong_credential_is_the_transports_fault() {
    let sink = HttpSink::start().await.unwrap();
    for vendor in Vendor::ALL.into_iter().filter(|vendor| !matches!(vendor, Vendor::Ses | Vendor::Other)) {
        let wrong = build_transport(vendor, provider_setting(sink.url()), "not-the-key-0123456789").unwrap();
        let reply = run_attempt(&*wrong, 1).await;
        assert_eq!(reply.meaning, ReplyMeaning::Fault, "{vendor:?}: {}", reply.text);
    }
    assert!(sink.accepted_mail().is_empty());
}
