//! Emails that ask people for a decision: each question is sent once, several come in one email, quiet hours are kept,
//! and only the addressee gets the link.

use async_trait::async_trait;
use mailonce_core::{
    conversation::escalation::{Escalation, EscalationReason, EscalationSubject},
    events::webhook::{OutgoingWebhook, WebhookResponse, WebhookResult},
    handoff::{
        capabilities::{HandoffSplit, PayloadFormat, RecoveryMethod, TransportCapabilities},
        reply::{AttemptPhase, ReplyMeaning, TransportReply},
        transport_request::{FrozenEnvelope, LookUpRequest, LookUpResult, OutboundMail, UnsupportedMail},
    },
    ports::{
        transport::{PreparedHandoff, Transport},
        webhook_client::WebhookClient,
    },
    record::{Record, RecordKind},
};
use mailonce_engine::{EngineDeps, handoff::transport_selector::Routing};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::RwLock;

use crate::{
    conversation::approval_links::{press, require_approval, send_for_approval},
    fixtures::{
        api_fixture::{MINUTE, World},
        requests::{delete, get, patch, post},
    },
};

pub(crate) const PUBLIC_URL: &str = "https://mail.example.com";
const HOUR: i64 = 60 * MINUTE;

/// A relay that records what it gets, and answers what it is told to.
pub(crate) struct Relay {
    pub(crate) meaning: Mutex<ReplyMeaning>,
    /// While a test holds it, the relay does not answer the final dot.
    gate: RwLock<()>,
    mails: Mutex<Vec<FrozenEnvelope>>,
}

struct ReadyMail(Arc<Relay>, TransportReply);

#[async_trait]
impl PreparedHandoff for ReadyMail {
    async fn hand_over(self: Box<Self>) -> TransportReply {
        let _open = self.0.gate.read().await;
        self.1
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
        // A relay that quotes the link, also without soft line breaks.
        let mail = String::from_utf8_lossy(&envelope.bytes).into_owned();
        let link = |mail: &str| mail.find("/a/").map_or_else(String::new, |at| mail[at..].chars().take(150).collect());
        let text = format!("as told: {} {}", link(&mail), link(&mail.replace("=\r\n", "")));
        self.0.mails.lock().unwrap().push(envelope);
        let reply = TransportReply::new(*self.0.meaning.lock().unwrap(), AttemptPhase::Final, Some(250), &text);
        Ok(Box::new(ReadyMail(Arc::clone(&self.0), reply)))
    }
    async fn look_up(&self, _: LookUpRequest) -> LookUpResult {
        LookUpResult::NotFound
    }
}

impl Relay {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { meaning: Mutex::new(ReplyMeaning::Accepted), gate: RwLock::default(), mails: Mutex::default() })
    }

    /// The mails since the last call: recipient and text.
    pub(crate) fn take(&self) -> Vec<(String, String)> {
        let mails = std::mem::take(&mut *self.mails.lock().unwrap());
        // Composed text may be wrapped with soft line breaks.
        let text =
            |mail: &FrozenEnvelope| String::from_utf8_lossy(&mail.bytes).replace("=\r\n", "").replace("=3D", "=");
        mails.iter().map(|mail| (mail.recipients.join(","), text(mail))).collect()
    }
}

/// The path of the first approval link in a mail.
pub(crate) fn link_in(text: &str) -> String {
    let start = text.find(&format!("{PUBLIC_URL}/a/")).expect("no link") + PUBLIC_URL.len();
    text[start..].split_whitespace().next().unwrap().to_owned()
}

pub(crate) fn deps_with(relay: &Arc<Relay>) -> EngineDeps {
    let transports: Vec<Arc<dyn Transport>> = vec![Arc::new(RelayTransport(Arc::clone(relay)))];
    let routing = Routing { rules: Vec::new(), default: vec!["relay".into()] };
    let public_url = Some(PUBLIC_URL.to_owned());
    let local_domains = vec!["agents.test".to_owned()];
    EngineDeps { transports, routing, public_url, local_domains, ..EngineDeps::default() }
}

async fn world_with_relay(world: World) -> (World, Arc<Relay>) {
    let relay = Relay::new();
    let world = world.with_engine_deps(deps_with(&relay)).await;
    require_approval(&world).await;
    (world, relay)
}

pub(crate) async fn set_emails(world: &World, emails: Value) {
    world.call(patch("/v1/settings").json(&json!({ "approval_emails": emails }))).await.expect_status(200);
}

async fn add_person(world: &World, name: &str, role: &str) -> String {
    let person = json!({ "name": name, "role": role, "address": format!("{name}@people.example") });
    world.post("/v1/people", &person).await.expect_status(201).string_field("id")
}

async fn run_round(world: &World) {
    world.engine.notifications.run_notification_round().await;
}

/// The recipients in the order of the alphabet, because people are told at the same time.
fn recipients(mails: &[(String, String)]) -> Vec<&str> {
    let mut recipients: Vec<&str> = mails.iter().map(|(to, _)| to.as_str()).collect();
    recipients.sort_unstable();
    recipients
}

/// A webhook client whose posts to one host get no answer.
#[derive(Default)]
struct StuckClient(Mutex<Vec<String>>);

#[async_trait]
impl WebhookClient for StuckClient {
    fn check_url(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    async fn post(&self, post: OutgoingWebhook) -> WebhookResult {
        self.0.lock().unwrap().push(post.url.clone());
        if post.url.contains("stuck") {
            std::future::pending::<()>().await;
        }
        WebhookResult { response: Ok(WebhookResponse { status: 200, ..WebhookResponse::default() }), latency_ms: 1 }
    }
}

impl StuckClient {
    /// How many posts went to URLs that contain this.
    fn count(&self, part: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|url| url.contains(part)).count()
    }
}

/// Waits until something is so.
async fn wait_until(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), waiting).await.expect("it did not happen in time");
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

    async fn after_the_night_and_after_a_pause_people_are_told_one_after_another(world) {
        let (world, relay) = world_with_relay(world).await;
        for name in ["ada", "bob", "eve"] {
            add_person(&world, name, "approver").await;
            world.advance_clock(1);
        }
        let told_after = async |ms: i64| {
            world.advance_clock(ms);
            run_round(&world).await;
            run_round(&world).await;
            recipients(&relay.take()).join(" ")
        };
        let hour = world.engine.ctx.now().0.rem_euclid(24 * HOUR) / HOUR;
        let text = |hour: i64| format!("{:02}:00", hour % 24);
        let night = json!({ "from": text(hour), "to": text(hour + 2) });
        set_emails(&world, json!({ "from": "desk@example.com", "next_after": "30m", "quiet_hours": night })).await;
        send_for_approval(&world, "night", "Invoice 7").await;
        assert_eq!(told_after(0).await, "");
        assert_eq!(told_after(2 * HOUR).await, "ada@people.example");
        assert_eq!(told_after(30 * MINUTE - 1).await, "");
        assert_eq!(told_after(1).await, "bob@people.example");
        assert_eq!(told_after(30 * MINUTE).await, "eve@people.example");
        // No server runs for some hours.
        set_emails(&world, json!({ "from": "desk@example.com", "next_after": "30m" })).await;
        send_for_approval(&world, "pause", "Invoice 8").await;
        assert_eq!(told_after(5 * HOUR).await, "ada@people.example");
        assert_eq!(told_after(30 * MINUTE).await, "bob@people.example");
        // One whom the transport refuses does not keep the question from the next.
        send_for_approval(&world, "refused", "Invoice 9").await;
        *relay.meaning.lock().unwrap() = ReplyMeaning::Refused;
        run_round(&world).await;
        assert_eq!(recipients(&relay.take()), ["ada@people.example"]);
        assert!(told_after(30 * MINUTE).await.contains("bob@people.example"));
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

    async fn a_slow_relay_gets_each_question_once_from_two_nodes(world) {
        let (world, relay) = world_with_relay(world).await;
        let other = world.second_engine(deps_with(&relay)).await;
        set_emails(&world, json!({ "from": "desk@example.com" })).await;
        add_person(&world, "ada", "approver").await;
        send_for_approval(&world, "k", "Invoice 7").await;
        let closed = relay.gate.write().await;
        let engine = Arc::clone(&world.engine);
        let first = tokio::spawn(async move { engine.notifications.run_notification_round().await });
        wait_until(|| relay.mails.lock().unwrap().len() == 1).await;
        // Longer than the pause after an attempt that failed.
        world.advance_clock(MINUTE);
        other.notifications.run_notification_round().await;
        assert_eq!(relay.mails.lock().unwrap().len(), 1, "the first attempt is still running");
        drop(closed);
        first.await.unwrap();
        world.advance_clock(HOUR);
        for node in [&world.engine, &other] {
            node.notifications.run_notification_round().await;
        }
        assert_eq!(relay.take().len(), 1, "the first attempt succeeded");
    }

    async fn a_slow_target_or_relay_delays_nobody_else(world) {
        let (relay, client) = (Relay::new(), Arc::new(StuckClient::default()));
        let deps = EngineDeps { webhook_sender: Arc::clone(&client) as Arc<dyn WebhookClient>, ..deps_with(&relay) };
        let world = world.with_engine_deps(deps).await;
        set_emails(&world, json!({ "from": "desk@example.com" })).await;
        for name in ["ada", "bob"] {
            add_person(&world, name, "approver").await;
        }
        for name in ["stuck", "quick"] {
            let target = json!({ "name": name, "kind": "webhook", "url": format!("https://{name}.example/") });
            world.post("/v1/notification-targets", &target).await.expect_status(201);
        }
        let ask = async |question: &str| world.post("/v1/escalations", &json!({ "question": question })).await.expect_status(201);
        for question in ["May I?", "And I?", "And they?"] {
            ask(question).await;
        }
        let closed = relay.gate.write().await;
        let engine = Arc::clone(&world.engine);
        let round = tokio::spawn(async move { engine.notifications.run_notification_round().await });
        wait_until(|| client.count("quick") == 3 && relay.mails.lock().unwrap().len() == 2).await;
        assert!(client.count("stuck") < 3, "the others waited for a target that does not answer");
        ask("And now?").await;
        // The first round still tells the others.
        let told = async {
            while client.count("quick") < 4 {
                world.engine.notifications.run_notification_round().await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), told).await.expect("a new question waits for a slow recipient");
        round.abort();
        drop(closed);
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
            (json!({ "next_after": "30m" }), "approval_emails.next_after"),
            (json!({ "from": "a@b.example", "quiet_hours": { "from": "22", "to": "07:00" } }), "approval_emails.quiet_hours"),
        ] {
            let refused = world.call(patch("/v1/settings").json(&json!({ "approval_emails": emails }))).await;
            assert_eq!(refused.expect_problem(422, "invalid_field")["field"], field);
        }
        world.call(post("/v1/escalations").json(&json!({ "question": "?" }))).await.expect_status(201);
    }

    async fn a_link_that_is_forwarded_to_an_inbox_ends_before_anybody_reads_it(world) {
        let (world, relay) = world_with_relay(world).await;
        let inbox = world.create_inbox("agent").await;
        set_emails(&world, json!({ "from": "desk@example.com" })).await;
        let ada = add_person(&world, "ada", "approver").await;
        let (email, asked) = send_for_approval(&world, "k", "Invoice 7").await;
        run_round(&world).await;
        let link = link_in(&relay.take()[0].1);
        let withdrawals = async || world.get("/v1/audit?limit=1000&action=approval_link.withdrawn").await.expect_status(200).rows();
        let forward = async |id: u32, kind: &str, body: &str| {
            let raw = format!("From: ada@people.example\nMessage-ID: <{id}@p>\nSubject: Fwd\nMIME-Version: 1.0\n{kind}\n\n{body}\n");
            world.receive_mail(&["agent@agents.test"], &raw).await;
        };
        // A token that this server did not make changes nothing.
        let other = if link.ends_with("0000") { "1111" } else { "0000" };
        let forged = format!("{PUBLIC_URL}{}{other}", &link[..link.len() - 4]);
        forward(1, "Content-Type: text/plain", &forged).await;
        world.call(get(&link).anonymous()).await.expect_status(200);
        assert!(withdrawals().await.is_empty());

        let (start, end) = link.split_at(link.len() - 20);
        let html = format!("<p>Approve? <a href=3D\"https://safe.example/?url=3D{PUBLIC_URL}{start}=\n{end}\">here</a></p>");
        forward(2, "Content-Type: text/html; charset=utf-8\nContent-Transfer-Encoding: quoted-printable", &html).await;
        let over = world.call(get(&link).anonymous()).await.expect_status(410);
        assert!(over.text.contains("forwarded to an inbox") && !over.text.contains("<form"), "{}", over.text);
        press(&world, &link, &[("as", "release"), ("rev", "1")]).await.expect_status(410);
        assert_eq!(world.email(&email).await["state"], "held");
        forward(3, "Content-Type: text/plain", &format!("{PUBLIC_URL}{link}")).await;
        let rows = withdrawals().await;
        let about = format!("escalation/{}", asked["id"].as_str().unwrap());
        assert_eq!((rows.len(), &rows[0]["actor"]["kind"], &rows[0]["about"]), (1, &json!("system"), &json!(about)), "{rows:?}");
        assert_eq!(rows[0]["before"]["for"]["person"], json!(ada), "{rows:?}");
        let filed = world.get(&format!("/v1/inboxes/{inbox}/messages")).await.expect_status(200);
        assert_eq!(filed.rows().len(), 3, "the messages are filed");

        // Nobody is told again, because that email would be forwarded, too. An admin can make another link.
        world.advance_clock(HOUR);
        run_round(&world).await;
        assert!(relay.take().is_empty());
        let path = format!("/v1/escalations/{}/approval-links", asked["id"].as_str().unwrap());
        let made = world.post(&path, &json!({ "person": ada })).await.expect_status(201).string_field("url");
        assert!(!made.ends_with(&link), "{made}");
        press(&world, &made[made.find("/a/").unwrap()..], &[("as", "reject"), ("rev", "1")]).await.expect_status(200);
    }

    async fn an_attached_notice_ends_all_of_its_links(world) {
        let (world, relay) = world_with_relay(world).await;
        world.create_inbox("agent").await;
        set_emails(&world, json!({ "from": "desk@example.com" })).await;
        add_person(&world, "ada", "approver").await;
        for n in 0..2 {
            world.post("/v1/escalations", &json!({ "question": format!("May I do {n}?") })).await.expect_status(201);
        }
        run_round(&world).await;
        let notice = String::from_utf8(relay.mails.lock().unwrap()[0].bytes.to_vec()).unwrap().replace("\r\n", "\n");
        let text = relay.take().remove(0).1;
        let links: Vec<String> = text.match_indices(&format!("{PUBLIC_URL}/a/")).map(|(at, _)| link_in(&text[at..])).collect();
        assert_eq!(links.len(), 2, "{text}");
        let raw = format!(
            "From: ada@people.example\nMessage-ID: <1@p>\nSubject: Fwd\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n\
             --b\nContent-Type: text/plain\n\nPlease decide.\n--b\nContent-Type: message/rfc822\n\n{notice}\n--b--\n"
        );
        world.receive_mail(&["agent@agents.test"], &raw).await;
        for link in &links {
            world.call(get(link).anonymous()).await.expect_status(410);
        }
    }

    async fn only_the_exact_address_of_an_inbox_gets_no_link(world) {
        // Another process created the inbox, so that this one never heard of its domain.
        let inbox = world.post("/v1/inboxes", &json!({ "address": "agent@people.example" })).await.expect_status(201);
        let (world, relay) = world_with_relay(world).await;
        set_emails(&world, json!({ "from": "desk@example.com", "next_after": "30m" })).await;
        for name in ["agent", "agent+tag", "ada"] {
            add_person(&world, name, "approver").await;
            world.advance_clock(1);
        }
        send_for_approval(&world, "k", "Invoice 7").await;
        run_round(&world).await;
        assert_eq!(recipients(&relay.take()), ["ada@people.example"], "she is told at once, in the place of an inbox");
        let path = format!("/v1/inboxes/{}", inbox.string_field("id"));
        world.call(patch(&path).json(&json!({ "catch_all": true }))).await.expect_status(200);
        send_for_approval(&world, "l", "Invoice 8").await;
        world.advance_clock(HOUR);
        run_round(&world).await;
        assert!(relay.take().is_empty(), "the inbox gets all mail of the domain");
    }

    async fn the_sender_is_never_an_inbox(world) {
        let (world, relay) = world_with_relay(world).await;
        add_person(&world, "ada", "approver").await;
        let inbox = world.create_inbox("taken").await;
        for from in ["taken@agents.test", "Desk <taken+x@agents.test>"] {
            let emails = json!({ "approval_emails": { "from": from } });
            let refused = world.call(patch("/v1/settings").json(&emails)).await.expect_problem(422, "invalid_field");
            assert_eq!(refused["field"], "approval_emails.from");
        }
        set_emails(&world, json!({ "from": "Desk <desk@agents.test>" })).await;
        world.post("/v1/inboxes", &json!({ "username": "desk" })).await.expect_problem(409, "address_reserved");
        let catch_all = json!({ "catch_all": true });
        world.call(patch(&format!("/v1/inboxes/{inbox}")).json(&catch_all)).await.expect_problem(409, "address_reserved");
        world.post("/v1/inboxes", &json!({ "username": "all", "catch_all": true })).await.expect_problem(409, "address_reserved");
        send_for_approval(&world, "k", "Invoice 7").await;
        run_round(&world).await;
        assert_eq!(relay.mails.lock().unwrap()[0].return_path, "desk@agents.test");
        assert_eq!(relay.take().len(), 1);
        // Another team could take the address now.
        let other = world.create_team("blue").await;
        world.advance_clock(5 * MINUTE);
        send_for_approval(&world, "l", "Invoice 8").await;
        run_round(&world).await;
        assert!(relay.take().is_empty());
        set_emails(&world, json!({ "from": "desk@own.example" })).await;
        let inbox = world.call(post("/v1/inboxes").bearer(&other).json(&json!({ "address": "desk@own.example" }))).await;
        world.advance_clock(MINUTE);
        run_round(&world).await;
        assert!(relay.take().is_empty(), "replies would go to an inbox of another team");
        let path = format!("/v1/inboxes/{}", inbox.expect_status(201).string_field("id"));
        world.call(delete(&path).bearer(&other)).await.expect_status(200);
        world.advance_clock(MINUTE);
        run_round(&world).await;
        assert_eq!(relay.take().len(), 1);
    }

    async fn an_odd_question_keeps_nobody_from_the_others(world) {
        let (world, relay) = world_with_relay(world).await;
        set_emails(&world, json!({ "from": "desk@example.com" })).await;
        add_person(&world, "ada", "approver").await;
        for odd in ["May I?\0", "\u{1b}[2JMay I?", "May\u{85}I?"] {
            let refused = world.post("/v1/escalations", &json!({ "question": odd })).await;
            refused.expect_problem(422, "invalid_field").expect_field("question");
        }
        world.post("/v1/escalations", &json!({ "question": "May I?\r\n\tNow?" })).await.expect_status(201);
        // One that an earlier version accepted.
        let about = EscalationSubject { question: Some("Odd\0\u{1b}question".into()), ..EscalationSubject::default() };
        let json = serde_json::to_string(&Escalation::open(EscalationReason::Asked, about, None)).unwrap();
        let (store, now) = (world.engine.ctx.store(), world.engine.ctx.now());
        let team = store.teams().await.unwrap()[0].id;
        let id = uuid::Uuid::from_u128(u128::MAX >> 1);
        let record = Record { team, kind: RecordKind::Escalation, id, name: "odd".into(), rev: 1, created_at: now, json };
        store.create_record(record, None).await.map(drop).unwrap();
        run_round(&world).await;
        let mails = relay.take();
        assert_eq!(mails.len(), 1);
        assert!(mails[0].1.contains("Odd  question") && mails[0].1.contains("Now?"), "{}", mails[0].1);
    }

    async fn a_question_that_is_asked_again_is_told_again(world) {
        let (world, relay) = world_with_relay(world).await;
        set_emails(&world, json!({ "from": "desk@example.com" })).await;
        add_person(&world, "ada", "approver").await;
        let budget = json!({ "name": "none", "scope": { "team": true }, "measure": "mails", "per": "day", "limit": 0, "at_limit": "hold" });
        let budget = world.post("/v1/budgets", &budget).await.expect_status(201).string_field("id");
        let set_limit = async |rev: u32, limit: u32| {
            world.call(patch(&format!("/v1/budgets/{budget}")).json(&json!({ "rev": rev, "limit": limit }))).await.expect_status(200);
        };
        send_for_approval(&world, "k", "Invoice 7").await;
        run_round(&world).await;
        let first = relay.take();
        assert!(first[0].1.contains("Subject: 2 questions"), "{}", first[0].1);
        set_limit(1, 9).await;
        assert_eq!(world.engine.budgets.release_held_by_budget().await.unwrap(), 1);
        world.engine.escalations.run_escalation_round().await;
        set_limit(2, 0).await;
        // Long after the link of the first time has expired.
        world.advance_clock(100 * HOUR);
        let open = world.get("/v1/escalations?state=open").await.expect_status(200).rows().remove(0);
        let path = format!("/v1/escalations/{}/resolve", open["id"].as_str().unwrap());
        world.post(&path, &json!({ "as": "release", "rev": open["rev"] })).await.expect_status(200);
        run_round(&world).await;
        run_round(&world).await;
        let second = relay.take();
        assert_eq!(second.len(), 1, "once");
        assert!(second[0].1.contains("Subject: A budget is used up."), "{}", second[0].1);
        let rev = world.get("/v1/escalations?state=open").await.expect_status(200).rows().remove(0)["rev"].to_string();
        let stale = press(&world, &link_in(&second[0].1), &[("as", "release"), ("rev", "1")]).await.expect_status(409);
        assert!(stale.text.contains("asked again") && stale.text.contains("role=\"alert\""), "{}", stale.text);
        press(&world, &link_in(&second[0].1), &[("as", "release"), ("rev", &rev)]).await.expect_status(200);
        let events = world.events().await;
        let kinds = |kind: &str, state: &str| events.iter().filter(|event| event["type"] == kind && event["data"]["state"] == state).count();
        assert_eq!((kinds("escalation.resolved", "open"), kinds("escalation.opened", "open")), (0, 3), "{events:?}");
    }

    async fn a_digest_that_is_tried_again_brings_the_questions_added_since(world) {
        let (world, relay) = world_with_relay(world).await;
        set_emails(&world, json!({ "from": "desk@example.com" })).await;
        add_person(&world, "ada", "approver").await;
        *relay.meaning.lock().unwrap() = ReplyMeaning::Deferred;
        send_for_approval(&world, "k", "Invoice 7").await;
        run_round(&world).await;
        world.post("/v1/escalations", &json!({ "question": "May I?" })).await.expect_status(201);
        run_round(&world).await;
        let first = relay.mails.lock().unwrap()[0].key;
        assert_eq!(relay.take().len(), 1, "the other question waits for the next attempt");
        world.advance_clock(10_000);
        // A provider that has another email under this key did not send this one.
        *relay.meaning.lock().unwrap() = ReplyMeaning::Mismatch;
        run_round(&world).await;
        let second = relay.mails.lock().unwrap()[0].key;
        assert_ne!(first, second, "a provider would take it for the first one");
        assert!(relay.take()[0].1.contains("Subject: 2 questions"));
        world.advance_clock(HOUR);
        *relay.meaning.lock().unwrap() = ReplyMeaning::Accepted;
        run_round(&world).await;
        assert_eq!(relay.mails.lock().unwrap()[0].key, second, "the same email again");
        assert_eq!(relay.take()[0].1.matches(&format!("{PUBLIC_URL}/a/")).count(), 2);
    }

    async fn a_question_waits_until_there_is_a_transport(world) {
        let sandbox = EngineDeps { public_url: Some(PUBLIC_URL.to_owned()), ..EngineDeps::default() };
        let world = world.with_engine_deps(sandbox).await;
        require_approval(&world).await;
        set_emails(&world, json!({ "from": "desk@example.com" })).await;
        add_person(&world, "ada", "approver").await;
        send_for_approval(&world, "k", "Invoice 7").await;
        for _ in 0..20 {
            run_round(&world).await;
            world.advance_clock(HOUR);
        }
        let relay = Relay::new();
        let world = world.with_engine_deps(deps_with(&relay)).await;
        run_round(&world).await;
        assert_eq!(recipients(&relay.take()), ["ada@people.example"]);
    }

    async fn a_link_that_an_admin_made_first_is_mailed_too(world) {
        let (world, relay) = world_with_relay(world).await;
        set_emails(&world, json!({ "from": "desk@example.com" })).await;
        let ada = add_person(&world, "ada", "approver").await;
        let (_, asked) = send_for_approval(&world, "k", "Invoice 7").await;
        let path = format!("/v1/escalations/{}/approval-links", asked["id"].as_str().unwrap());
        let made = world.post(&path, &json!({ "person": ada })).await.expect_status(201).string_field("url");
        run_round(&world).await;
        run_round(&world).await;
        let mails = relay.take();
        assert_eq!(mails.len(), 1);
        assert!(made.ends_with(&link_in(&mails[0].1)), "{made}");
        let again = world.post(&path, &json!({ "person": ada })).await.expect_status(201).string_field("url");
        assert_eq!(again, made);
    }

    async fn whoever_signed_out_gets_a_link_that_works(world) {
        let (world, relay) = world_with_relay(world).await;
        set_emails(&world, json!({ "from": "desk@example.com" })).await;
        let ada = add_person(&world, "ada", "approver").await;
        *relay.meaning.lock().unwrap() = ReplyMeaning::Refused;
        send_for_approval(&world, "k", "Invoice 7").await;
        run_round(&world).await;
        let first = link_in(&relay.take()[0].1);
        world.advance_clock(1);
        world.post(&format!("/v1/people/{ada}/sign-out"), &json!({})).await.expect_status(200);
        world.advance_clock(10_000);
        *relay.meaning.lock().unwrap() = ReplyMeaning::Accepted;
        run_round(&world).await;
        let second = link_in(&relay.take()[0].1);
        assert_ne!(first, second);
        world.call(get(&second).anonymous()).await.expect_status(200);
    }
}
