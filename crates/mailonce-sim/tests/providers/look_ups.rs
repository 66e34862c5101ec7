//! Look-ups of a mail whose reply was lost. A positive result must be proof.

use mailonce_core::{
    handoff::{
        capabilities::RecoveryMethod,
        transport_request::{LookUpRequest, LookUpResult},
    },
    id::EmailId,
};
use mailonce_sim::sink::http::{API_KEY, HttpSink, ScriptedResponse, Vendor};
use std::time::Duration;
use uuid::Uuid;

use crate::fixtures::{build_transport, lookup_query, provider_setting, run_attempt, vendor_transport};

const LOOKUP_VENDORS: [Vendor; 4] = [Vendor::Postmark, Vendor::Mailgun, Vendor::SendGrid, Vendor::UseSend];

#[tokio::test]
async fn a_mail_is_found_only_once_it_was_taken() {
    for vendor in LOOKUP_VENDORS {
        let sink = HttpSink::start().await.unwrap();
        let transport = vendor_transport(vendor, sink.url());
        assert!(matches!(transport.capabilities().recovery, RecoveryMethod::LookUp { .. }), "{vendor:?}");
        assert_eq!(transport.look_up(lookup_query()).await, LookUpResult::NotFound, "{vendor:?}");
        sink.queue_responses(&[ScriptedResponse::AcceptThenDrop]);
        run_attempt(&*transport, 1).await;
        let found = transport.look_up(lookup_query()).await;
        let LookUpResult::Found { remote_id, .. } = &found else { panic!("{vendor:?}: {found:?}") };
        // useSend replies that the key is known, without the mail's id.
        assert_eq!(remote_id.is_some(), vendor != Vendor::UseSend, "{vendor:?}");
        assert_eq!(sink.accepted_mail().len(), 1, "{vendor:?}: asking sends nothing");
    }
}

#[tokio::test]
async fn a_mail_that_is_taken_late_is_found_late() {
    for vendor in LOOKUP_VENDORS {
        let sink = HttpSink::start().await.unwrap();
        sink.queue_responses(&[ScriptedResponse::AcceptOnRelease]);
        let mut setting = provider_setting(sink.url());
        setting.timeout = Duration::from_secs(1);
        run_attempt(&*build_transport(vendor, setting, API_KEY).unwrap(), 1).await;
        let transport = vendor_transport(vendor, sink.url());
        assert_eq!(
            transport.look_up(lookup_query()).await,
            LookUpResult::NotFound,
            "{vendor:?}: a no is only evidence"
        );
        sink.release_late_mail().await;
        assert!(matches!(transport.look_up(lookup_query()).await, LookUpResult::Found { .. }), "{vendor:?}");
    }
}

#[tokio::test]
async fn another_mail_is_not_taken_for_ours() {
    for vendor in LOOKUP_VENDORS {
        let sink = HttpSink::start().await.unwrap();
        let transport = vendor_transport(vendor, sink.url());
        run_attempt(&*transport, 1).await;
        let other = LookUpRequest {
            email: EmailId(Uuid::from_u128(2)),
            message_id: "<k2@mail.example.com>".into(),
            key: Uuid::from_u128(3),
            ..lookup_query()
        };
        assert_eq!(transport.look_up(other).await, LookUpResult::NotFound, "{vendor:?}");
    }
}

#[tokio::test]
async fn a_vendor_without_look_up_answers_nothing() {
    let sink = HttpSink::start().await.unwrap();
    run_attempt(&*vendor_transport(Vendor::Postmark, sink.url()), 1).await;
    for vendor in LOOKUP_VENDORS {
        let wrong = build_transport(vendor, provider_setting(sink.url()), "not-the-key-0123456789").unwrap();
        let found = wrong.look_up(lookup_query()).await;
        assert!(matches!(found, LookUpResult::Unavailable(_)), "{vendor:?}: {found:?}");
    }
    let gone = vendor_transport(Vendor::Postmark, "http://127.0.0.1:1");
    assert!(matches!(gone.look_up(lookup_query()).await, LookUpResult::Unavailable(_)));
}
