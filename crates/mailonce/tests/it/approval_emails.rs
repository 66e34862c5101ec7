//! Emails that tell people of questions: sent once, collected, not at night, and readable by nobody else.

use async_trait::async_trait;
use mailonce_core::{
    handoff::{
        capabilities::{HandoffSplit, PayloadFormat, RecoveryMethod, TransportCapabilities},
        reply::{AttemptPhase, ReplyMeaning, TransportReply},
        transport_request::{FrozenEnvelope, LookUpRequest, LookUpResult, OutboundMail, UnsupportedMail},
    },
    ports::transport::{PreparedHandoff, Transport},
};
use mailonce_engine::{EngineDeps, handoff::transport_selector::Routing};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

use crate::{
    approvals::{press, require_approval, send_for_approval},
    call::{get, patch, post},
    world::{MINUTE, World},
};

const PUBLIC_URL: &str = "https://mail.example.com";
const HOUR: i64 = 60 * MINUTE;

/// A relay that records what it gets, and answers what it is told to.
struct Relay {
    meaning: Mutex<ReplyMeaning>,
    mails: Mutex<Vec<FrozenEnvelope>>,
}

struct ReadyMail(TransportReply);

#[async_trait]
impl PreparedHandoff for ReadyMail {
    async fn hand_over(self: Box<Self>) -> TransportReply {
        self.0
    }
}

/// The relay as a transport.
struct RelayTransport(Arc<Relay>);

#[async_trait]
impl Transport for RelayTransport {
    fn name(&self) -> &'static str {
        "relay"
    }
    fn kind(&self) -> &'static str {
        "smtp"
    }
    fn account(&self) -> &'static str {
        "relay"
    }
    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities {
            payload_format: PayloadFormat::Mime,
            split: HandoffSplit::PerRecipient,
            recovery: RecoveryMethod::None,
            timeout_ms: 5_000,
            max_concurrency: 8,
        }
    }
    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
        Ok(mail.mime.unwrap().to_vec())
    }
    async fn prepare(&self, envelope: FrozenEnvelope) -> Result<Box<dyn PreparedHandoff>, TransportReply> {
        self.0.mails.lock().unwrap().push(envelope);
        let reply = TransportReply::new(*self.0.meaning.lock().unwrap(), AttemptPhase::Final, Some(250), "as told");
        Ok(Box::new(ReadyMail(reply)))
    }
    async fn look_up(&self, _: LookUpRequest) -> LookUpResult {
        LookUpResult::NotFound
    }
}

impl Relay {
    /// The mails since the last call: recipient and text.
    fn take(&self) -> Vec<(String, String)> {
        let mails = std::mem::take(&mut *self.mails.lock().unwrap());
        // Composed text may be wrapped with soft line breaks.
        let text =
            |mail: &FrozenEnvelope| String::from_utf8_lossy(&mail.bytes).replace("=\r\n", "").replace("=3D", "=");
        mails.iter().map(|mail| (mail.recipients.join(","), text(mail))).collect()
    }
}

/// The path of the first approval link in a mail.
fn link_in(text: &str) -> String {
    let start = text.find(&format!("{PUBLIC_URL}/a/")).expect("no link") + PUBLIC_URL.len();
    text[start..].split_whitespace().next().unwrap().to_owned()
}

async fn world_with_relay(world: World) -> (World, Arc<Relay>) {
    let relay = Arc::new(Relay { meaning: Mutex::new(ReplyMeaning::Accepted), mails: Mutex::default() });
    let transports: Vec<Arc<dyn Transport>> = vec![Arc::new(RelayTransport(Arc::clone(&relay)))];
    let routing = Routing { rules: Vec::new(), default: vec!["relay".into()] };
    let public_url = Some(PUBLIC_URL.to_owned());
    let local_domains = vec!["agents.test".to_owned()];
    let deps = EngineDeps { transports, routing, public_url, local_domains, ..EngineDeps::default() };
    let world = world.with_engine_deps(deps).await;
    require_approval(&world).await;
    (world, relay)
}

async fn set_emails(world: &World, emails: Value) {
    world.call(patch("/v1/settings").json(&json!({ "approval_emails": emails }))).await.expect_status(200);
}

async fn add_person(world: &World, name: &str, role: &str) -> String {
    let person = json!({ "name": name, "role": role, "address": format!("{name}@people.example") });
    world.post("/v1/people", &person).await.expect_status(201).string_field("id")
}

async fn run_round(world: &World) {
    world.engine.escalations.run_notification_round().await;
}

fn recipients(mails: &[(String, String)]) -> Vec<&str> {
    mails.iter().map(|(to, _)| to.as_str()).collect()
}

over_every_engine! {
    async fn whoever_may_decide_gets_one_email_whose_link_decides(world) {
        let (world, relay) = world_with_relay(world).await;
        add_person(&world, "ada", "approver").await;
        add_person(&world, "eve", "viewer").await;
        world.post("/v1/people", &json!({ "name": "Bob", "role": "admin" })).await.expect_status(201);
        let (email, _) = send_for_approval(&world, "early", "Invoice 6").await;
        run_round(&world).await;
        assert!(relay.take().is_empty(), "nothing is configured");
        set_emails(&world, json!({ "from": "desk@example.com" })).await;
        world.post("/v1/stops", &json!({ "scope": { "team": true }, "reason": "test" })).await.expect_status(201);
        for _ in 0..3 {
            run_round(&world).await;
        }
        let mails = relay.take();
        assert_eq!(recipients(&mails), ["ada@people.example"]);
        let text = &mails[0].1;
        assert!(text.contains("Subject: Approve this email?") && text.contains("Invoice 6"), "{text}");
        assert!(text.contains("Auto-Submitted: auto-generated") && text.contains("From: desk@example.com"), "{text}");
        world.call(get(&link_in(text)).anonymous()).await.expect_status(200);
        assert_eq!(world.email(&email).await["state"], "held");
        press(&world, &link_in(text), &[("as", "reject"), ("rev", "1"), ("reason", "no")]).await.expect_status(200);
        assert_eq!(world.email(&email).await["state"], "cancelled");
    }

    async fn the_link_is_nowhere_but_in_the_email(world) {
        let (world, relay) = world_with_relay(world).await;
        set_emails(&world, json!({ "from": "desk@example.com" })).await;
        add_person(&world, "ada", "approver").await;
        let (_, asked) = send_for_approval(&world, "k", "Invoice 7").await;
        run_round(&world).await;
        let link = link_in(&relay.take()[0].1);
        let secret = link.rsplit_once('-').unwrap().1;
        let escalation = format!("/v1/escalations/{}", asked["id"].as_str().unwrap());
        for path in ["/v1/emails?limit=100", "/v1/events?limit=1000", "/v1/escalations", &escalation, "/v1/audit?limit=1000", "/v1/search?q=Invoice", "/v1/people", "/v1/settings", "/metrics", "/v1/stats", "/v1/keys"] {
            let shown = world.get(path).await.expect_status(200);
            assert!(!shown.text.contains(secret), "{path}: {}", shown.text);
        }
        assert_eq!(world.email_count().await, 1, "the notification is no email of the team");
    }

    async fn many_questions_come_in_one_email(world) {
        let (world, relay) = world_with_relay(world).await;
        set_emails(&world, json!({ "from": "desk@example.com" })).await;
        add_person(&world, "ada", "approver").await;
        send_for_approval(&world, "first", "Invoice 1").await;
        run_round(&world).await;
        assert_eq!(relay.take().len(), 1, "the first one is not delayed");
        for n in 0..4 {
            world.post("/v1/escalations", &json!({ "question": format!("May I do {n}?") })).await.expect_status(201);
            run_round(&world).await;
        }
        assert!(relay.take().is_empty(), "the others are collected");
        world.advance_clock(5 * MINUTE);
        run_round(&world).await;
        run_round(&world).await;
        let mails = relay.take();
        assert_eq!(mails.len(), 1);
        assert!(mails[0].1.contains("Subject: 4 questions wait for your decision"), "{}", mails[0].1);
        assert_eq!(mails[0].1.matches(&format!("{PUBLIC_URL}/a/")).count(), 4);
    }

    async fn the_next_person_is_told_after_a_time_and_nobody_at_night(world) {
        let (world, relay) = world_with_relay(world).await;
        add_person(&world, "ada", "approver").await;
        world.advance_clock(1);
        add_person(&world, "bob", "admin").await;
        set_emails(&world, json!({ "from": "desk@example.com", "next_after": "30m" })).await;
        send_for_approval(&world, "k", "Invoice 7").await;
        run_round(&world).await;
        world.advance_clock(29 * MINUTE);
        run_round(&world).await;
        assert_eq!(recipients(&relay.take()), ["ada@people.example"]);
        world.advance_clock(MINUTE);
        run_round(&world).await;
        let second = relay.take();
        assert_eq!(recipients(&second), ["bob@people.example"]);
        press(&world, &link_in(&second[0].1), &[("as", "reject"), ("rev", "1"), ("reason", "no")]).await.expect_status(200);
        // The night lasts from the hour of now to the next but one.
        let hour = world.engine.ctx.now().0.rem_euclid(24 * HOUR) / HOUR;
        let text = |hour: i64| format!("{:02}:00", hour % 24);
        let night = json!({ "from": text(hour), "to": text(hour + 2) });
        set_emails(&world, json!({ "from": "desk@example.com", "quiet_hours": night })).await;
        send_for_approval(&world, "night", "Invoice 8").await;
        run_round(&world).await;
        assert!(relay.take().is_empty());
        world.advance_clock(2 * HOUR);
        run_round(&world).await;
        assert_eq!(recipients(&relay.take()), ["ada@people.example", "bob@people.example"]);
    }

    async fn a_refused_email_is_tried_again_and_an_unknown_one_is_not(world) {
        let (world, relay) = world_with_relay(world).await;
        set_emails(&world, json!({ "from": "desk@example.com" })).await;
        add_person(&world, "ada", "approver").await;
        *relay.meaning.lock().unwrap() = ReplyMeaning::Deferred;
        send_for_approval(&world, "k", "Invoice 7").await;
        run_round(&world).await;
        let first = relay.take();
        *relay.meaning.lock().unwrap() = ReplyMeaning::Unknown;
        world.advance_clock(6 * MINUTE);
        run_round(&world).await;
        let second = relay.take();
        assert_eq!((first.len(), second.len()), (1, 1));
        assert_eq!(link_in(&first[0].1), link_in(&second[0].1));
        world.advance_clock(24 * HOUR);
        run_round(&world).await;
        assert!(relay.take().is_empty());
    }

    async fn an_address_of_an_agents_inbox_gets_no_link(world) {
        let (world, relay) = world_with_relay(world).await;
        world.create_inbox("agent").await;
        set_emails(&world, json!({ "from": "desk@example.com" })).await;
        world.post("/v1/people", &json!({ "name": "Agent", "role": "admin", "address": "agent@agents.test" })).await.expect_status(201);
        send_for_approval(&world, "k", "Invoice 7").await;
        run_round(&world).await;
        assert!(relay.take().is_empty());
        for (emails, field) in [
            (json!({ "from": "nobody" }), "approval_emails.from"),
            (json!({ "from": "a@b.example", "next_after": "30s" }), "approval_emails.next_after"),
            (json!({ "from": "a@b.example", "quiet_hours": { "from": "22", "to": "07:00" } }), "approval_emails.quiet_hours"),
        ] {
            let refused = world.call(patch("/v1/settings").json(&json!({ "approval_emails": emails }))).await;
            assert_eq!(refused.expect_problem(422, "invalid_field")["field"], field);
        }
        world.call(post("/v1/escalations").json(&json!({ "question": "?" }))).await.expect_status(201);
    }
}
