//! Asking a vendor about a mail whose answer was lost. A yes must be proof.

use mailonce_core::{
    id::EmailId,
    port::transport::{Asked, Found, Recovery},
};
use mailonce_sim::sink::http::{API_KEY, Act, Sink, Vendor};
use std::time::Duration;
use uuid::Uuid;

use crate::world::{asked, attempt, build, setting, transport};

const ASKED: [Vendor; 4] = [Vendor::Postmark, Vendor::Mailgun, Vendor::SendGrid, Vendor::UseSend];

#[tokio::test]
async fn a_mail_is_found_only_once_it_was_taken() {
    for vendor in ASKED {
        let sink = Sink::open().await.unwrap();
        let transport = transport(vendor, sink.url());
        assert!(matches!(transport.capability().recovery, Recovery::LookUp { .. }), "{vendor:?}");
        assert_eq!(transport.look_up(asked()).await, Found::No, "{vendor:?}");
        sink.script(&[Act::TakeThenDrop]);
        attempt(&*transport, 1).await;
        let found = transport.look_up(asked()).await;
        let Found::Yes { remote_id, .. } = &found else { panic!("{vendor:?}: {found:?}") };
        // useSend answers that the key is known, without saying for what.
        assert_eq!(remote_id.is_some(), vendor != Vendor::UseSend, "{vendor:?}");
        assert_eq!(sink.taken().len(), 1, "{vendor:?}: asking sends nothing");
    }
}

#[tokio::test]
async fn a_mail_that_is_taken_late_is_found_late() {
    for vendor in ASKED {
        let sink = Sink::open().await.unwrap();
        sink.script(&[Act::TakeLate]);
        let mut setting = setting(sink.url());
        setting.timeout = Duration::from_secs(1);
        attempt(&*build(vendor, setting, API_KEY).unwrap(), 1).await;
        let transport = transport(vendor, sink.url());
        assert_eq!(transport.look_up(asked()).await, Found::No, "{vendor:?}: a no is only evidence");
        sink.release().await;
        assert!(matches!(transport.look_up(asked()).await, Found::Yes { .. }), "{vendor:?}");
    }
}

#[tokio::test]
async fn another_mail_is_not_taken_for_ours() {
    for vendor in ASKED {
        let sink = Sink::open().await.unwrap();
        let transport = transport(vendor, sink.url());
        attempt(&*transport, 1).await;
        let other = Asked {
            email: EmailId(Uuid::from_u128(2)),
            message_id: "<k2@mail.example.com>".into(),
            key: Uuid::from_u128(3),
            ..asked()
        };
        assert_eq!(transport.look_up(other).await, Found::No, "{vendor:?}");
    }
}

#[tokio::test]
async fn a_vendor_that_cannot_be_asked_is_silent() {
    let sink = Sink::open().await.unwrap();
    attempt(&*transport(Vendor::Postmark, sink.url()), 1).await;
    for vendor in ASKED {
        let wrong = build(vendor, setting(sink.url()), "not-the-key-0123456789").unwrap();
        let found = wrong.look_up(asked()).await;
        assert!(matches!(found, Found::Silent(_)), "{vendor:?}: {found:?}");
    }
    let gone = transport(Vendor::Postmark, "http://127.0.0.1:1");
    assert!(matches!(gone.look_up(asked()).await, Found::Silent(_)));
}
