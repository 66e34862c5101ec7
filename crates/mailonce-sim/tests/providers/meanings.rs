//! What each vendor's answers mean, with the number of mails it really took.

use mailonce_core::port::transport::{Meaning, Phase, Recovery};
use mailonce_sim::sink::http::{API_KEY, Act, SECRET_ACCESS_KEY, Sink, Trouble, Vendor};
use std::time::Duration;
use tokio::task::JoinSet;

use crate::world::{EMAIL, KEY, MESSAGE_ID, attempt, build, setting, transport};

/// What an act means at a vendor, and how many mails it leaves there.
fn expected(vendor: Vendor, act: Act) -> (Meaning, usize) {
    let keyed = matches!(vendor, Vendor::Resend | Vendor::UseSend);
    match act {
        Act::Honest => (Meaning::Accepted, 1),
        Act::TakeThenDrop | Act::TakeThenBreak | Act::TakeThenStall | Act::TakeThenEmpty | Act::TakeThenHuge => {
            (Meaning::Unknown, 1)
        }
        Act::TakeLate | Act::TakeAfter(_) | Act::Drop | Act::Portal | Act::Redirect => (Meaning::Unknown, 0),
        Act::Trouble(Trouble::Broken) => (Meaning::Unknown, 0),
        Act::Trouble(Trouble::Busy(_)) => (Meaning::Deferred, 0),
        Act::Trouble(Trouble::Revoked | Trouble::Quoting) => (Meaning::Fault, 0),
        Act::Trouble(Trouble::Refused) => (Meaning::Refused, 0),
        Act::Trouble(Trouble::Concurrent) if keyed => (Meaning::Concurrent, 0),
        Act::Trouble(Trouble::Mismatch) if keyed => (Meaning::Mismatch, 0),
        Act::Trouble(Trouble::Concurrent | Trouble::Mismatch) if vendor == Vendor::Other => (Meaning::Repeated, 0),
        Act::Trouble(Trouble::Concurrent | Trouble::Mismatch) => (Meaning::Unknown, 0),
        // Only Postmark documents that nothing was taken.
        Act::Trouble(Trouble::Away) if vendor == Vendor::Postmark => (Meaning::Deferred, 0),
        Act::Trouble(Trouble::Away) => (Meaning::Unknown, 0),
    }
}

const ACTS: [Act; 18] = [
    Act::Honest,
    Act::TakeThenDrop,
    Act::TakeThenBreak,
    Act::TakeThenStall,
    Act::TakeThenEmpty,
    Act::TakeThenHuge,
    Act::TakeLate,
    Act::Drop,
    Act::Portal,
    Act::Redirect,
    Act::Trouble(Trouble::Broken),
    Act::Trouble(Trouble::Busy(2)),
    Act::Trouble(Trouble::Revoked),
    Act::Trouble(Trouble::Refused),
    Act::Trouble(Trouble::Concurrent),
    Act::Trouble(Trouble::Mismatch),
    Act::Trouble(Trouble::Away),
    Act::Trouble(Trouble::Quoting),
];

#[tokio::test]
async fn every_act_has_its_meaning_at_every_vendor() {
    // The silent acts cost a second each, so the vendors are tried side by side.
    let mut vendors = JoinSet::new();
    for vendor in Vendor::ALL {
        vendors.spawn(async move {
            for act in ACTS {
                one(vendor, act).await;
            }
        });
    }
    vendors.join_all().await;
}

async fn one(vendor: Vendor, act: Act) {
    let sink = Sink::open().await.unwrap();
    sink.script(&[act]);
    let mut setting = setting(sink.url());
    if matches!(act, Act::TakeThenStall | Act::TakeLate) {
        setting.timeout = Duration::from_secs(1);
    }
    let reply = attempt(&*build(vendor, setting, API_KEY).unwrap(), 1).await;
    let found = (reply.meaning, sink.taken().len());
    assert_eq!(found, expected(vendor, act), "{vendor:?} {act:?}: {}", reply.text);
    assert_eq!(reply.phase, Phase::Final, "{vendor:?} {act:?}");
    assert!(!reply.text.is_empty(), "{vendor:?} {act:?} says why");
    let shown = [API_KEY, SECRET_ACCESS_KEY].iter().any(|secret| reply.text.contains(secret));
    assert!(!shown, "{vendor:?} {act:?} shows the secret: {}", reply.text);
    let pause = matches!(act, Act::Trouble(Trouble::Busy(_))).then_some(2_000);
    assert_eq!(reply.retry_after_ms, pause, "{vendor:?} {act:?}");
    assert_eq!(reply.remote_id.is_some(), act == Act::Honest, "{vendor:?} {act:?}");
}

#[tokio::test]
async fn what_is_taken_is_the_mail_with_its_key_and_names() {
    for vendor in Vendor::ALL {
        let sink = Sink::open().await.unwrap();
        let reply = attempt(&*transport(vendor, sink.url()), 1).await;
        let [taken] = &sink.taken()[..] else { panic!("{vendor:?} took no mail: {}", reply.text) };
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
        let told = reply.remote_id.unwrap();
        assert!(told.contains(&taken.id) || told == MESSAGE_ID, "{vendor:?} named it {told}");
    }
}

#[tokio::test]
async fn a_repeat_under_the_same_key_makes_no_second_mail_where_keys_are_kept() {
    for (vendor, meaning) in [
        (Vendor::Resend, Meaning::Accepted),
        (Vendor::UseSend, Meaning::Accepted),
        (Vendor::Brevo, Meaning::Repeated),
        (Vendor::Other, Meaning::Repeated),
    ] {
        let sink = Sink::open().await.unwrap();
        sink.script(&[Act::TakeThenDrop]);
        let transport = transport(vendor, sink.url());
        assert_eq!(attempt(&*transport, 1).await.meaning, Meaning::Unknown, "{vendor:?}");
        for number in 2..4 {
            assert_eq!(attempt(&*transport, number).await.meaning, meaning, "{vendor:?}");
        }
        assert_eq!(sink.taken().len(), 1, "{vendor:?}");
    }
}

#[tokio::test]
async fn a_repeat_makes_a_second_mail_where_no_keys_are_kept_and_so_no_key_is_claimed() {
    for vendor in [Vendor::Postmark, Vendor::Mailgun, Vendor::SendGrid, Vendor::Ses] {
        let sink = Sink::open().await.unwrap();
        let transport = transport(vendor, sink.url());
        attempt(&*transport, 1).await;
        attempt(&*transport, 2).await;
        assert_eq!(sink.taken().len(), 2, "{vendor:?}");
        let recovery = transport.capability().recovery;
        assert!(!matches!(recovery, Recovery::Key { .. }), "{vendor:?} has no keys but claims them");
    }
}

#[tokio::test]
async fn a_wrong_credential_is_the_transports_fault() {
    let sink = Sink::open().await.unwrap();
    for vendor in Vendor::ALL.into_iter().filter(|vendor| !matches!(vendor, Vendor::Ses | Vendor::Other)) {
        let wrong = build(vendor, setting(sink.url()), "not-the-key-0123456789").unwrap();
        let reply = attempt(&*wrong, 1).await;
        assert_eq!(reply.meaning, Meaning::Fault, "{vendor:?}: {}", reply.text);
    }
    assert!(sink.taken().is_empty());
}
