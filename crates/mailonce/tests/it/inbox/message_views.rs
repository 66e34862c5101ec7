//! Views of received messages: masked codes, scopes, attachments, and bounces that become evidence.

use mailonce_core::{
    handoff::{
        action::{HandoffAction, LeaseRef},
        lease::LeaseRequest,
    },
    id::NodeId,
    outbound::email::Email,
};
use mailonce_engine::SANDBOX;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::fixtures::{
    api_fixture::{World, incoming_mail, mail_with},
    requests::get,
};

const CODE_MAIL: &str = "From: Shop <no-reply@shop.test>\nTo: a@agents.test\nMessage-ID: <1@shop.test>\n\
    Subject: Your sign-in code\nDate: Sun, 15 Nov 2026 10:00:00 +0000\n\nYour verification code is 482 913.\n";

async fn list_messages(world: &World, inbox: &str) -> Vec<Value> {
    world.get(&format!("/v1/inboxes/{inbox}/messages?limit=100")).await.expect_status(200).rows()
}

over_memory_and_sqlite! {
    async fn views_mask_codes_and_raw_needs_the_secrets_scope(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        world.receive_mail(&["a@agents.test"], CODE_MAIL).await;
        let id = list_messages(&world, &inbox).await[0]["id"].as_str().unwrap().to_owned();
        let reader = world.create_api_key(&json!({ "name": "agent", "scopes": ["read"] })).await;
        let get_message = async |path: &str| world.call(get(&format!("/v1/messages/{id}{path}")).bearer(&reader)).await;
        for view in ["", "?view=min", "?view=plain"] {
            let shown = get_message(view).await.expect_status(200);
            assert!(!shown.text.contains("482 913") && !shown.text.contains("482913"), "{}", shown.text);
        }
        assert!(get_message("").await.string_field("text").starts_with("<<<untrusted mail "));
        get_message("?view=full").await.expect_status(403);
        get_message("/raw").await.expect_status(403);
        get_message("?view=odd").await.expect_status(400);
        let full = world.get(&format!("/v1/messages/{id}?view=full")).await.expect_status(200);
        assert!(full.string_field("text").contains("482 913"));
        let raw = world.get(&format!("/v1/messages/{id}/raw")).await.expect_status(200);
        assert_eq!(raw.text, CODE_MAIL.replace('\n', "\r\n"));
        assert_eq!(raw.header("content-type"), Some("message/rfc822"));
    }

    async fn attachments_are_downloaded_by_number(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let raw = "From: x@shop.test\nSubject: s\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n\
            --b\nContent-Type: text/plain\n\nhello\n--b\nContent-Type: text/html; name=\"../../evil.html\"\n\
            Content-Disposition: attachment; filename=\"../../evil.html\"\nContent-Transfer-Encoding: base64\n\n\
            PGI+aGk8L2I+\n--b--\n";
        world.receive_mail(&["a@agents.test"], raw).await;
        let row = list_messages(&world, &inbox).await.remove(0);
        assert_eq!(row["attachments"][0]["filename"], "evil.html");
        let path = format!("/v1/messages/{}/attachments", row["id"].as_str().unwrap());
        let file = world.get(&format!("{path}/0")).await.expect_status(200);
        assert_eq!(file.text, "<b>hi</b>");
        assert!(file.header("content-disposition").unwrap().starts_with("attachment"));
        assert_eq!(file.header("x-content-type-options"), Some("nosniff"));
        world.get(&format!("{path}/1")).await.expect_status(404);
        world.get(&format!("{path}/x")).await.expect_status(404);
    }

    async fn a_bounce_to_our_return_path_becomes_evidence(world) {
        let world = world.with_inbox_domain().await;
        let sent = world.send("k", &crate::fixtures::api_fixture::mail()).await.expect_status(202).string_field("id");
        world.hand_off_due().await;
        let email = world.engine.ctx.store().emails(team_id(&world).await, first_email_query()).await.unwrap().rows.remove(0);
        let path = world.engine.ctx.return_path(&email, 0, 1).0;
        let report = delivery_status_report(&path, &email.handoffs[0].recipients[0], "failed", "5.1.1");
        let mut mail = incoming_mail(&[path.as_str()], &report);
        mail.sender = Some(String::new());
        for _ in 0..3 {
            world.engine.inbound.receive_mail(mail.clone()).await.unwrap();
            world.engine.inbound.process_waiting_deliveries().await.unwrap();
        }
        let email = world.email(&sent).await;
        assert_eq!(email["state"], "bounced", "{email}");
        assert_eq!(email["evidence"].as_array().unwrap().len(), 1);
        // A return path with a forged HMAC is not accepted.
        let forged = path.replacen(char::is_alphanumeric, "x", 30);
        assert!(world.engine.inbound.receive_mail(incoming_mail(&[&forged], &report)).await.unwrap().is_empty());
    }

    async fn a_delay_notification_resolves_an_unknown_outcome(world) {
        let world = world.with_inbox_domain().await;
        for (key, reported_recipient) in [("k1", "User@Example.COM"), ("k2", "user@forwarded.test")] {
            let sent = world.send(key, &mail_with(json!({ "on_unknown": "resend" }))).await.expect_status(202).string_field("id");
            let lost = crash_after_marker(&world).await;
            assert_eq!(world.email(&sent).await["state"], "unknown");
            let path = world.engine.ctx.return_path(&lost, 0, 1).0;
            let mut mail = incoming_mail(&[path.as_str()], &delivery_status_report(&path, reported_recipient, "delayed", "4.4.1"));
            mail.sender = Some(String::new());
            world.engine.inbound.receive_mail(mail).await.unwrap();
            world.engine.inbound.process_waiting_deliveries().await.unwrap();
            let email = world.email(&sent).await;
            assert_eq!(email["state"], "sent", "{reported_recipient}: {email}");
        }
    }
}

/// Leases the only due email, commits its marker and crashes the worker.
async fn crash_after_marker(world: &World) -> Email {
    let (store, now, node) = (world.engine.ctx.store(), world.engine.ctx.now(), NodeId(Uuid::from_u128(1)));
    let request =
        LeaseRequest { transport: SANDBOX.into(), node, max: 10, excluded_domains: Vec::new(), schedule_cutoff: None };
    let leased = store.lease_handoffs(request, now).await.unwrap().remove(0).email;
    let (fence, transport) = (leased.handoffs[0].fence, SANDBOX.to_owned());
    let mark = HandoffAction::Mark {
        lease: LeaseRef { number: 0, fence, transport, account: "A".into() },
        frozen_bytes: None,
        contacts: Vec::new(),
    };
    for action_to_apply in [mark, HandoffAction::Crash { number: 0, holder: node }] {
        let _done = store.apply_action(leased.team, leased.id, action_to_apply, None, now).await.unwrap();
    }
    leased
}

/// A delivery status report for a mail with this return path.
fn delivery_status_report(path: &str, to: &str, action: &str, status: &str) -> String {
    format!(
        "From: MAILER-DAEMON@mx.test\nTo: {path}\nSubject: Undelivered\nMIME-Version: 1.0\n\
         Content-Type: multipart/report; report-type=delivery-status; boundary=b\n\n--b\n\nsorry\n--b\n\
         Content-Type: message/delivery-status\n\nReporting-MTA: dns; mx.test\n\n\
         Final-Recipient: rfc822; {to}\nAction: {action}\nStatus: {status}\nDiagnostic-Code: smtp; {status} sorry\n\
         --b--\n"
    )
}

async fn team_id(world: &World) -> mailonce_core::id::TeamId {
    world.engine.ctx.store().teams().await.unwrap()[0].id
}

fn first_email_query() -> mailonce_core::outbound::email_query::EmailQuery {
    mailonce_core::outbound::email_query::EmailQuery { limit: 1, ..Default::default() }
}
