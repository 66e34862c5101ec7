//! Erasure: afterwards nothing that is stored names the person, retries still find their email, and a suppression still
//! applies. Also retention and deletion.

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use mailonce_core::inbound::delivery::{DeliveryOutcome, ReceiveResult};
use mailonce_engine::EngineDeps;
use serde_json::{Value, json};
use std::path::Path;

use super::{erased_claims::plant_claims, erased_texts::plant_typed_texts};
use crate::fixtures::{
    api_fixture::{HOUR, World, incoming_mail, mail_with},
    binary::{CliFixture, SpawnedServer},
    conversations::{TestMail, str_field},
    database::{TempDatabase, connect_client},
    requests::{delete, get, patch, post},
    webhook_receivers::{ScriptedReceiver, respond_with},
};

pub(super) const ADDRESS: &str = "zoe.quill@person.test";
pub(super) const NAME: &str = "Zoe Quillfeather";
pub(super) const SUBJECT: &str = "Xylophone matters";
pub(super) const TEXT: &str = "marzipan weather over the harbour";
/// The idempotency key of the first email names the person too.
const KEY: &str = "welcome zoe.quill@person.test";
/// What must not be found anywhere, in lower case.
const CANARIES: [&str; 5] = [ADDRESS, "zoe.quill%40person.test", "quillfeather", "xylophone", "marzipan"];

pub(super) fn mail_to_zoe(more: Value) -> Value {
    let mut mail = mail_with(json!({ "to": [format!("{NAME} <{ADDRESS}>")], "subject": SUBJECT, "text": TEXT }));
    for (name, value) in more.as_object().into_iter().flatten() {
        mail[name] = value.clone();
    }
    mail
}

/// An engine with inboxes, endpoints and search.
pub(super) async fn with_everything(world: World) -> World {
    let deps = EngineDeps {
        local_domains: vec!["agents.test".into()],
        bounce_domain: Some("agents.test".into()),
        webhook_sender: ScriptedReceiver::new(|_| respond_with(200)),
        ..EngineDeps::default()
    };
    world.with_engine_deps(deps).await
}

pub(super) async fn erase(world: &World, address: &str) -> Value {
    let body = json!({ "address": address, "reason": format!("{address} asked for it") });
    world.post("/v1/erasures", &body).await.expect_status(202).body
}

/// Runs erasures until they are done or wait, and returns the one with this id.
pub(super) async fn run(world: &World, erasure: &Value) -> Value {
    world.engine.erasures.run_erasures(usize::MAX).await.unwrap();
    world.get(&format!("/v1/erasures/{}", str_field(erasure, "id"))).await.expect_status(200).body
}

/// Receives a mail for the inbox `a` that cannot be processed. Returns the id of its delivery.
pub(super) async fn dead_delivery(world: &World, text: &str) -> String {
    let raw = format!("From: ann@shop.test\nMessage-ID: <{text}@shop.test>\n\n{text}\n");
    let mail = incoming_mail(&["a@agents.test"], &raw);
    let received = world.engine.inbound.receive_mail(mail).await.unwrap();
    let [ReceiveResult::Stored(id)] = received[..] else { panic!("{received:?}") };
    let (store, now) = (world.engine.ctx.store(), world.engine.ctx.now());
    let team = store.teams().await.unwrap().remove(0).id;
    store.record_delivery_outcome(team, id, DeliveryOutcome::Dead("broken".into()), now).await.unwrap();
    id.to_string()
}

/// Every form in which a database or a dump may have a text.
fn forms(canary: &str) -> Vec<Vec<u8>> {
    let hex = canary.bytes().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    // The first and last characters of base64 depend on the neighbours.
    let base64 = (0..3).map(|shift| {
        let encoded = STANDARD_NO_PAD.encode([vec![b'x'; shift], canary.as_bytes().to_vec()].concat());
        encoded[4..encoded.len() - 4].to_ascii_lowercase().into_bytes()
    });
    [canary.as_bytes().to_vec(), hex.into_bytes()].into_iter().chain(base64).collect()
}

#[track_caller]
fn assert_no_canary(bytes: &[u8], place: &str) {
    let lower = bytes.to_ascii_lowercase();
    for canary in CANARIES {
        for form in forms(canary) {
            let found = lower.windows(form.len()).position(|part| part == form);
            let around = found.map(|at| {
                String::from_utf8_lossy(&bytes[at.saturating_sub(80)..(at + 120).min(bytes.len())]).into_owned()
            });
            assert_eq!(around, None, "{canary} in {place}");
        }
    }
}

/// The bytes of every file of a ledger, free pages and log included.
fn dump_files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.map(|path| (path.display().to_string(), std::fs::read(&path).unwrap())).collect()
}

async fn dump_postgres(url: &str) -> Vec<(String, Vec<u8>)> {
    let client = connect_client(url).await;
    let tables = "SELECT table_schema || '.' || table_name FROM information_schema.tables \
         WHERE table_schema NOT IN ('pg_catalog', 'information_schema') AND table_type = 'BASE TABLE'";
    let mut dump = Vec::new();
    for table in client.query(tables, &[]).await.unwrap() {
        let table: String = table.get(0);
        for row in client.query(&format!("SELECT t::text FROM {table} t"), &[]).await.unwrap() {
            dump.push((table.clone(), row.get::<_, String>(0).into_bytes()));
        }
    }
    dump
}

/// Everything that is stored: rows by table, or files.
async fn dump(world: &World) -> Vec<(String, Vec<u8>)> {
    match (world.data_directory(), world.database_url()) {
        (Some(folder), _) => dump_files(folder),
        (_, Some(url)) => dump_postgres(url).await,
        _ => Vec::new(),
    }
}

fn tables_with_canaries(dump: &[(String, Vec<u8>)]) -> std::collections::BTreeSet<String> {
    let has_canary = |bytes: &[u8]| {
        let lower = String::from_utf8_lossy(bytes).to_ascii_lowercase();
        CANARIES.iter().any(|canary| forms(canary).iter().any(|form| lower.contains(&*String::from_utf8_lossy(form))))
    };
    let name = |table: &str| table.rsplit('.').next().unwrap_or(table).split(' ').next().unwrap_or(table).to_owned();
    dump.iter().filter(|(_, bytes)| has_canary(bytes)).map(|(table, _)| name(table)).collect()
}

/// Columns of text or bytes that need no canary, as `table.column` or as all columns of a table.
const COLUMNS_WITHOUT_A_PERSON: &[&str] = &[
    // Words from closed sets, and names from the configuration.
    "artifacts.kind",
    "attempts.outcome",
    "claims.state",
    "deliveries.state",
    "deliveries.suppressed",
    "emails.guard",
    "emails.holds",
    "endpoints.state",
    "events.kind",
    "events_pending",
    "handoffs.state",
    "handoffs.transport",
    "messages.state",
    "notices.kind",
    "notices.state",
    "records.kind",
    "transports",
    "wires.transport",
    // Packed: a text search does not look into them. The tests of the engine read what they hold.
    "claims.payload",
    "claims.result",
    "emails.body",
    "keys.answer",
    "raws.bytes",
    "wires.bytes",
    // Ids, times and numbers.
    "audit_names.id",
    "events.about",
    "events.at",
    "events.rev",
    // Not planted here: what other systems answered, what the server noted, and calls that were answered by a replay.
    "artifacts.found",
    "deliveries.target",
    "deliveries.trouble",
    "handoffs.work",
    "messages.marks",
    "notices.log",
    "suppressed.latest",
    // Hashes.
    "artifacts.hash",
    "audit_chains",
    "audit_entries",
    "contacts",
    "delivery_keys",
    "emails.digest",
    "implicit_watches",
    "keys.digest",
    "keys.hash",
    "likenesses",
    "messages.content",
    "messages.name",
    "tallies",
    "thread_names",
    // What the next hop says; the sandbox says nothing about a person.
    "attempts.about",
    "attempts.remote_id",
    "attempts.reply",
    "evidence",
    // About their own installation. `docs/erasure.md` says what of it is not searched.
    "addresses",
    "api_keys.hash",
    "endpoints.reason",
    "inboxes.address",
    "inboxes.client_id",
    "install",
    "install_secret",
    "oauth_clients",
    "stops.scope",
    "teams",
    "templates",
    "template_versions",
];

/// The columns of text or bytes that neither hold a canary nor are listed. A new column belongs into [`plant`], or into
/// the list above with the reason.
async fn uncovered_columns(url: &str) -> Vec<String> {
    let client = connect_client(url).await;
    let columns = "SELECT c.table_name, c.column_name FROM information_schema.columns c
          JOIN information_schema.tables t USING (table_schema, table_name)
         WHERE t.table_schema = 'mailonce' AND t.table_type = 'BASE TABLE'
           AND c.data_type IN ('text', 'bytea', 'json', 'jsonb', 'ARRAY', 'tsvector', 'character varying') ORDER BY 1, 2";
    let mut uncovered = Vec::new();
    for row in client.query(columns, &[]).await.unwrap() {
        let (table, column): (String, String) = (row.get(0), row.get(1));
        let values = client.query(&format!("SELECT {column}::text FROM mailonce.{table}"), &[]).await.unwrap();
        let text: String = values.iter().filter_map(|value| value.get::<_, Option<String>>(0)).collect();
        let is_planted = !tables_with_canaries(&[(table.clone(), text.into_bytes())]).is_empty();
        let name = format!("{table}.{column}");
        let is_listed = COLUMNS_WITHOUT_A_PERSON.iter().any(|listed| *listed == name || *listed == table);
        if !is_planted && !is_listed {
            uncovered.push(name);
        }
    }
    uncovered
}

/// Puts the person into everything that can hold one. Returns the id of the first email.
async fn plant(world: &World) -> String {
    world.create_inbox("a").await;
    world.create_endpoint("https://hooks.example.com/in").await;
    let settings = json!({ "escalation_email": { "from": "a@agents.test", "to": [format!("{NAME} <{ADDRESS}>")] } });
    world.call(patch("/v1/settings").json(&settings)).await.expect_status(200);
    // Outbound: sent, replayed, to several with an intent, scheduled, in a batch, and mentioned to another person.
    let first = world.send(KEY, &mail_to_zoe(json!({}))).await.expect_status(202).string_field("id");
    world.send(KEY, &mail_to_zoe(json!({}))).await.expect_status(200);
    world.engine.outbound.flush_suppressed_calls().await;
    let intent = json!({ "type": "order", "entity": format!("customer {ADDRESS}") });
    let several =
        json!({ "to": [ADDRESS, "bob@example.com"], "cc": [format!("{NAME} <zoe2@example.com>")], "intent": intent });
    world.send_without_key(&mail_to_zoe(several)).await.expect_status(202);
    world.send("later", &mail_to_zoe(json!({ "scheduled_at": "in 1 hour" }))).await.expect_status(202);
    let batch = json!([
        mail_to_zoe(json!({ "text": format!("{TEXT}, first") })),
        mail_to_zoe(json!({ "text": format!("other {TEXT}") }))
    ]);
    world.call(post("/v1/emails/batch").key(&format!("batch {ADDRESS}")).json(&batch)).await.expect_status(202);
    let mention =
        mail_with(json!({ "subject": "A new customer", "text": format!("{NAME} is at {ADDRESS}. {SUBJECT}: {TEXT}") }));
    world.send("mention", &mention).await.expect_status(202);
    world.hand_off_due().await;
    plant_held(world).await;
    plant_received(world).await;
    plant_records(world).await;
    plant_claims(world).await;
    plant_typed_texts(world).await;
    world.engine.search.index_all().await.unwrap();
    world.engine.events.deliver_due_notices().await;
    first
}

/// Email that looks like a duplicate: one stays held, one is edited by a person.
async fn plant_held(world: &World) {
    for end in [".", "!", "?"] {
        let text = format!("Thank you for your letter about {TEXT}{end}");
        world.send_without_key(&mail_to_zoe(json!({ "text": text }))).await.expect_status(202);
    }
    let open = world.escalations("reason=looks_duplicate&state=open").await;
    assert_eq!(open.len(), 2, "{open:?}");
    let path = format!("/v1/escalations/{}/resolve", str_field(&open[0], "id"));
    let edit = json!({ "subject": format!("{SUBJECT} again"), "text": format!("edited {TEXT}") });
    let body = json!({ "as": "edit", "rev": open[0]["rev"], "edit": edit, "reason": format!("{NAME} is right") });
    world.post(&path, &body).await.expect_status(200);
    world.hand_off_due().await;
}

/// Messages from the person: with a code, a reply and a question, received twice, and refused.
async fn plant_received(world: &World) {
    let from = format!("{NAME} <{ADDRESS}>");
    let text = format!("Your verification code is 482 913. {TEXT}");
    let code = || TestMail { from: &from, id: "m1", subject: SUBJECT, text: &text, ..TestMail::default() };
    let message = world.receive_message(code()).await;
    let mut again = incoming_mail(&["a@agents.test"], &code().to_raw());
    (again.sender, again.provider_delivery_id) = (Some(ADDRESS.into()), Some("again".into()));
    world.engine.inbound.receive_mail(again).await.unwrap();
    let mut unknown = incoming_mail(&["nobody@agents.test"], &code().to_raw());
    unknown.sender = Some(ADDRESS.into());
    world.engine.inbound.receive_mail(unknown).await.unwrap();
    world.engine.inbound.process_waiting_deliveries().await.unwrap();
    let artifact = world.get(&format!("/v1/messages/{}/artifacts", str_field(&message, "id"))).await.expect_status(200);
    let path = format!("/v1/artifacts/{}/consume", artifact.ids()[0]);
    world.post(&path, &json!({ "for": format!("sign-up of {NAME}") })).await.expect_status(200);
    let other = TestMail { from: &from, id: "m2", subject: "A question", text: TEXT, ..TestMail::default() };
    let question = world.receive_message(other).await;
    world.reply(&question, &format!("Dear {NAME}, {TEXT}")).await.expect_status(202);
    let ask = json!({ "question": format!("May I call {NAME}?"), "message": question["id"] });
    world.post("/v1/escalations", &ask).await.expect_status(201);
    // A mail of somebody else with the person in copy, and one that quotes the person.
    let copied = format!(
        "From: Bob <bob@shop.test>\nTo: a@agents.test\nCc: {NAME} <{ADDRESS}>\nMessage-ID: <m3@shop.test>\nSubject: {SUBJECT}\n\n{TEXT}\n"
    );
    world.receive_raw_message(&copied).await;
    let body = base64::engine::general_purpose::STANDARD.encode(format!("On Monday {NAME} <{ADDRESS}> wrote: {TEXT}"));
    let quoting = format!(
        "From: Bob <bob@shop.test>\nTo: a@agents.test\nMessage-ID: <m4@shop.test>\nSubject: Fwd\nContent-Transfer-Encoding: base64\nContent-Type: text/plain\n\n{body}\n"
    );
    world.receive_raw_message(&quoting).await;
    world.hand_off_due().await;
}

/// Suppressions, lists, rules, budgets and drafts.
async fn plant_records(world: &World) {
    let suppression = json!({ "address": ADDRESS, "reason": format!("{ADDRESS} complained") });
    world.post("/v1/suppressions", &suppression).await.expect_status(201);
    world.post("/v1/lists/receive/block", &json!({ "entry": ADDRESS, "reason": ADDRESS })).await.expect_status(201);
    let rule = json!({
        "name": format!("mail to {ADDRESS}"), "direction": "outbound", "actions": [{ "type": "approve" }],
        "match": { "conditions": [{ "field": "recipient.address", "operator": "is", "value": ADDRESS }] },
    });
    world.post("/v1/rules", &rule).await.expect_status(201);
    let scope = json!({ "recipient": ADDRESS });
    let budget =
        json!({ "name": format!("for {ADDRESS}"), "scope": scope, "measure": "mails", "per": "day", "limit": 9 });
    world.post("/v1/budgets", &budget).await.expect_status(201);
    let draft = json!({ "to": [format!("{NAME} <{ADDRESS}>")], "subject": SUBJECT, "text": TEXT });
    let path = "/compat/agentmail/v0/inboxes/a@agents.test/drafts";
    let created = world.post(path, &draft).await;
    assert!(created.status < 300, "{}", created.text);
}

over_every_engine! {
    async fn nothing_of_an_erased_person_is_left(world) {
        let world = with_everything(world).await;
        let first = plant(&world).await;
        let planted = tables_with_canaries(&dump(&world).await);
        assert_eq!(planted.is_empty(), world.data_directory().is_none() && world.database_url().is_none());
        if world.database_url().is_some() {
            assert_eq!(uncovered_columns(world.database_url().unwrap()).await, Vec::<String>::new());
            for table in ["api_keys", "claims", "emails", "endpoints", "handoffs", "deliveries", "messages", "records", "audit_names", "search_documents", "threads", "artifacts", "inboxes", "stops"] {
                assert!(planted.contains(table), "nothing was planted in {table}: {planted:?}");
            }
        }

        let requested = erase(&world, ADDRESS).await;
        assert_eq!(requested["state"], "running");
        let erased = run(&world, &requested).await;
        assert_eq!((&erased["state"], &erased["in_doubt"]), (&json!("done"), &json!(0)), "{erased}");
        for count in ["cancelled", "emails", "messages", "deliveries", "claims", "drafts", "records", "events", "audit_names"] {
            assert_ne!(erased["counts"][count], 0, "{count}: {erased}");
        }

        for (place, bytes) in dump(&world).await {
            assert_no_canary(&bytes, &place);
        }
        for path in ["/v1/emails?limit=100", "/v1/claims?limit=100", "/v1/inboxes/a@agents.test/messages", "/v1/events?limit=1000", "/v1/threads",
            "/v1/deliveries", "/v1/escalations?limit=100", "/v1/suppressions", "/v1/lists/receive/block", "/v1/rules", "/v1/budgets", "/v1/audit?limit=1000", "/v1/settings",
            "/v1/search?q=marzipan", "/v1/search?q=person.test"] {
            let shown = world.get(path).await.expect_status(200).text;
            assert_no_canary(shown.as_bytes(), path);
        }
        assert_no_canary(world.get(&format!("/v1/emails/{first}")).await.expect_status(200).text.as_bytes(), "the first email");
    }

    async fn an_erased_email_still_answers_its_retries(world) {
        let world = with_everything(world).await;
        let first = world.send(KEY, &mail_to_zoe(json!({}))).await.expect_status(202).string_field("id");
        world.hand_off_due().await;
        let erasure = erase(&world, ADDRESS).await;
        assert_eq!(run(&world, &erasure).await["state"], "done");

        let again = world.send(KEY, &mail_to_zoe(json!({}))).await.expect_status(200);
        assert_eq!(again.string_field("id"), first);
        let other = mail_to_zoe(json!({ "text": "something else" }));
        let refused = world.send(KEY, &other).await.expect_problem(422, "key_mismatch");
        assert_eq!(refused["differing_fields"], json!(["text"]), "{}", refused.text);
        assert_eq!(world.get(&format!("/v1/keys/{}", KEY.replace(' ', "%20"))).await.expect_status(200)["bound_to"], json!("email"));
        world.advance_clock(HOUR);
        let new = world.send("new", &mail_to_zoe(json!({}))).await.expect_status(202);
        assert_eq!(world.email(&new.string_field("id")).await["to"], json!([ADDRESS]), "mail from later is new data");
    }

    async fn an_erased_contact_stays_known(world) {
        let world = with_everything(world).await;
        let budget = json!({ "name": "first contacts", "scope": { "team": true }, "measure": "new_recipients", "per": "day", "limit": 1 });
        world.post("/v1/budgets", &budget).await.expect_status(201);
        world.send(KEY, &mail_to_zoe(json!({}))).await.expect_status(202);
        world.hand_off_due().await;
        let erasure = erase(&world, ADDRESS).await;
        assert_eq!(run(&world, &erasure).await["state"], "done");

        world.send("stranger", &mail_with(json!({ "to": ["new@person.test"] }))).await.expect_problem(429, "quota_exceeded");
        world.send("again", &mail_to_zoe(json!({}))).await.expect_status(202);
    }

    async fn a_suppressed_person_is_not_mailed_after_the_erasure(world) {
        let world = with_everything(world).await;
        world.post("/v1/suppressions", &json!({ "address": ADDRESS })).await.expect_status(201);
        let erasure = erase(&world, ADDRESS).await;
        assert_eq!(run(&world, &erasure).await["state"], "done");
        world.send("1", &mail_to_zoe(json!({}))).await.expect_problem(422, "recipient_suppressed");
        let world = world.restart().await;
        world.send("1", &mail_to_zoe(json!({}))).await.expect_problem(422, "recipient_suppressed");
        let path = format!("/v1/suppressions/{ADDRESS}");
        world.get(&path).await.expect_status(200);
        world.call(delete(&path)).await.expect_status(200);
        world.send("1", &mail_to_zoe(json!({}))).await.expect_status(202);
    }

    async fn lists_rules_and_budgets_still_apply_to_an_erased_person(world) {
        let world = with_everything(world).await;
        world.post("/v1/lists/send/block", &json!({ "entry": ADDRESS })).await.expect_status(201);
        let condition = json!({ "field": "recipient.address", "operator": "is", "value": "bob@person.test" });
        let rule = json!({ "name": "bob", "direction": "outbound", "actions": [{ "type": "block" }], "match": { "conditions": [condition] } });
        world.post("/v1/rules", &rule).await.expect_status(201);
        let scope = json!({ "recipient": "eve@person.test" });
        let budget = json!({ "name": "eve", "scope": scope, "measure": "mails", "per": "day", "limit": 0, "at_limit": "refuse" });
        world.post("/v1/budgets", &budget).await.expect_status(201);
        for address in [ADDRESS, "bob@person.test", "eve@person.test"] {
            let erasure = erase(&world, address).await;
            assert_eq!(run(&world, &erasure).await["state"], "done");
        }
        let stored = dump(&world).await;
        assert!(stored.iter().all(|(_, bytes)| !String::from_utf8_lossy(bytes).contains("@person.test")));
        for (address, status, code) in [(ADDRESS, 422, "blocked_by_rule"), ("bob@person.test", 422, "blocked_by_rule"), ("eve@person.test", 429, "quota_exceeded")] {
            world.send(address, &mail_with(json!({ "to": [address] }))).await.expect_problem(status, code);
        }
        world.send("other", &mail_with(json!({ "to": ["joe@person.test"] }))).await.expect_status(202);
    }

    async fn waiting_mail_is_cancelled_and_mail_of_others_stays(world) {
        let later = json!({ "scheduled_at": "in 1 hour" });
        let waiting = world.send("1", &mail_to_zoe(later)).await.expect_status(202).string_field("id");
        let other = world.send("2", &mail_with(json!({ "to": ["joe.zoe.quill@person.test"] }))).await.expect_status(202).string_field("id");
        let erasure = erase(&world, "Zoe.Quill@Person.test").await;
        let erased = run(&world, &erasure).await;
        assert_eq!((&erased["counts"]["cancelled"], &erased["counts"]["emails"]), (&json!(1), &json!(1)));
        assert!(!erased.to_string().contains(ADDRESS), "{erased}");
        let email = world.email(&waiting).await;
        assert_eq!((&email["state"], &email["subject"], &email["to"]), (&json!("cancelled"), &json!(""), &json!([erased["alias"]])));
        assert_eq!(world.email(&other).await["to"], json!(["joe.zoe.quill@person.test"]));
        let actions: Vec<Value> = world.get("/v1/audit?action=erasure.*").await.expect_status(200).rows();
        let actions: Vec<&str> = actions.iter().map(|entry| str_field(entry, "action")).collect();
        assert_eq!(actions, ["erasure.requested", "erasure.done"]);
    }

    async fn an_erasure_goes_on_after_a_kill_at_any_step(world) {
        let mut world = with_everything(world).await;
        plant(&world).await;
        let erasure = erase(&world, ADDRESS).await;
        let mut steps = 0;
        let erased = loop {
            world.engine.erasures.run_erasures(1).await.unwrap();
            steps += 1;
            // Another process, which knows only what was saved.
            world = with_everything(world.restart().await).await;
            world.engine.erasures.find_erasures().await.unwrap();
            let now = world.get(&format!("/v1/erasures/{}", str_field(&erasure, "id"))).await.expect_status(200).body;
            if now["state"] == "done" {
                break now;
            }
            assert!(steps < 200, "{now}");
        };
        assert!(steps > 10, "{steps} steps: {erased}");
        for (place, bytes) in dump(&world).await {
            assert_no_canary(&bytes, &place);
        }
        let shown = world.get("/v1/emails?limit=100").await.expect_status(200).text;
        assert_no_canary(shown.as_bytes(), "emails");
    }

    async fn a_request_is_checked_and_repeated_safely(world) {
        let world = with_everything(world).await;
        world.create_inbox("a").await;
        for (body, field) in [
            (json!({ "address": "nobody" }), "address"),
            (json!({ "address": "a@agents.test" }), "address"),
            (json!({ "address": ADDRESS, "reason": "x".repeat(1_001) }), "reason"),
        ] {
            world.post("/v1/erasures", &body).await.expect_problem(422, "invalid_field").expect_field(field);
        }
        let reader = world.create_api_key(&json!({ "name": "reader", "scopes": ["read", "send"] })).await;
        world.call(get("/v1/erasures").bearer(&reader)).await.expect_problem(403, "wrong_scope");
        let body = json!({ "address": ADDRESS });
        let request = || world.call(post("/v1/erasures").key("e").json(&body));
        let first = request().await.expect_status(202).string_field("id");
        assert_eq!(request().await.expect_status(202).string_field("id"), first);
        assert_eq!(erase(&world, ADDRESS).await["id"], json!(first), "one erasure per person");
        world.engine.erasures.run_erasures(usize::MAX).await.unwrap();
        world.send("1", &mail_to_zoe(json!({}))).await.expect_status(202);
        let second = erase(&world, ADDRESS).await;
        assert_eq!((&second["id"], &second["state"]), (&json!(first), &json!("running")));
        assert_eq!(run(&world, &second).await["counts"]["emails"], 1);
        assert_eq!(world.get("/v1/erasures").await.expect_status(200).rows().len(), 1);
        world.get("/v1/erasures/nothing").await.expect_problem(404, "not_found");
    }

    async fn bodies_and_received_mail_are_kept_as_long_as_the_team_wants(world) {
        let world = with_everything(world).await;
        world.create_inbox("a").await;
        for (retention, field) in [(json!({ "bodies": "31d" }), "retention.bodies"), (json!({ "bodies": "1m" }), "retention.bodies"), (json!({ "raw": "59m" }), "retention.raw")] {
            let refused = world.call(patch("/v1/settings").json(&json!({ "retention": retention }))).await;
            refused.expect_problem(422, "invalid_field").expect_field(field);
        }
        world.call(patch("/v1/settings").json(&json!({ "retention": { "bodies": "2h", "raw": "3h" } }))).await.expect_status(200);
        let old = world.send("old", &mail_to_zoe(json!({}))).await.expect_status(202).string_field("id");
        world.hand_off_due().await;
        let waiting = world.send("waiting", &mail_to_zoe(json!({ "scheduled_at": "in 1 day", "text": "another" }))).await.expect_status(202).string_field("id");
        let message = world.receive_message(TestMail::default()).await;
        let raw = format!("/v1/messages/{}/raw", str_field(&message, "id"));
        world.advance_clock(2 * HOUR + HOUR / 2);
        world.engine.ctx.confirm_time();
        let new = world.send("new", &mail_to_zoe(json!({ "text": "new" }))).await.expect_status(202).string_field("id");
        world.hand_off_due().await;
        world.engine.apply_retention().await;
        for (email, kept) in [(&old, false), (&waiting, true), (&new, true)] {
            assert_eq!(world.email(email).await["text"].is_string(), kept, "{}", world.email(email).await);
        }
        world.get(&raw).await.expect_status(200);
        world.advance_clock(HOUR);
        world.engine.ctx.confirm_time();
        world.engine.apply_retention().await;
        world.get(&raw).await.expect_problem(404, "not_found");
        assert_eq!(world.get("/v1/inboxes/a@agents.test/messages").await.expect_status(200).rows().len(), 1);
        assert_eq!(world.send("old", &mail_to_zoe(json!({}))).await.expect_status(200).string_field("id"), old);
    }

    async fn mail_that_could_not_be_processed_is_kept_as_long_as_the_team_wants(world) {
        let world = with_everything(world).await;
        let inbox = world.create_inbox("a").await;
        world.call(patch("/v1/settings").json(&json!({ "retention": { "raw": "2h" } }))).await.expect_status(200);
        let old = dead_delivery(&world, "old").await;
        world.advance_clock(HOUR + HOUR / 2);
        let new = dead_delivery(&world, "new").await;
        world.advance_clock(HOUR);
        world.engine.ctx.confirm_time();
        world.engine.apply_retention().await;

        let gone = world.post(&format!("/v1/deliveries/{old}/replay"), &json!({})).await.expect_problem(404, "not_found");
        assert!(str_field(&gone.body, "detail").contains("retention.raw"), "{}", gone.body);
        world.post(&format!("/v1/deliveries/{new}/replay"), &json!({})).await.expect_status(200);
        let rows = world.get(&format!("/v1/deliveries?inbox={inbox}")).await.expect_status(200).rows();
        assert_eq!(rows.iter().map(|row| str_field(row, "state")).collect::<Vec<_>>(), ["waiting", "dead"]);
    }

    async fn an_email_in_doubt_keeps_its_erasure_running(world) {
        let world = with_everything(world).await;
        let mention = mail_with(json!({ "text": format!("Please write to {ADDRESS}"), "scheduled_at": "in 1 hour" }));
        let waiting = world.send("1", &mention).await.expect_status(202).string_field("id");
        let erasure = erase(&world, ADDRESS).await;
        let running = run(&world, &erasure).await;
        assert_eq!((&running["state"], &running["stage"], &running["in_doubt"]), (&json!("running"), &json!("waiting"), &json!(1)));
        assert_eq!(world.email(&waiting).await["state"], "scheduled", "it is not for the person");
        world.advance_clock(2 * HOUR);
        world.engine.ctx.confirm_time();
        world.hand_off_due().await;
        assert_eq!(world.email(&waiting).await["state"], "sent");
        let done = run(&world, &erasure).await;
        assert_eq!((&done["state"], &done["counts"]["emails"]), (&json!("done"), &json!(1)), "{done}");
        assert_eq!(world.email(&waiting).await["text"], Value::Null);
    }

    async fn events_of_new_mail_keep_the_address(world) {
        let world = with_everything(world).await;
        world.create_inbox("a").await;
        let from = |id| TestMail { from: ADDRESS, id, ..TestMail::default() };
        let old = world.receive_message(from("old")).await;
        let erasure = erase(&world, ADDRESS).await;
        world.advance_clock(1_000);
        let new = world.receive_message(from("new")).await;
        assert_eq!(run(&world, &erasure).await["state"], "done");

        for (message, is_kept) in [(&old, false), (&new, true)] {
            let id = str_field(message, "id");
            let of_message = |event: &Value| event["type"] == "message.received" && event["about"]["id"] == id;
            let events = world.events().await;
            let shown = events.iter().find(|event| of_message(event)).unwrap();
            assert_eq!(shown.to_string().contains(ADDRESS), is_kept, "{shown}");
        }
    }

    async fn what_others_wrote_about_the_person_loses_the_address(world) {
        let world = with_everything(world).await;
        world.create_inbox("a").await;
        let code = TestMail { from: "bob@shop.test", text: "Your verification code is 482 913.", ..TestMail::default() };
        let message = world.receive_message(code).await;
        let artifact = world.get(&format!("/v1/messages/{}/artifacts", str_field(&message, "id"))).await.expect_status(200).ids().remove(0);
        let taken = json!({ "for": format!("sign-up of {ADDRESS}") });
        world.post(&format!("/v1/artifacts/{artifact}/consume"), &taken).await.expect_status(200);
        let thread = format!("/v1/threads/{}", str_field(&message, "thread_id"));
        let labels = json!({ "labels": [format!("about {ADDRESS}")] });
        world.call(patch(&thread).json(&labels)).await.expect_status(200);
        let lease = json!({ "holder": format!("agent of {ADDRESS}") });
        world.post(&format!("{thread}/lease"), &lease).await.expect_status(201);

        let erasure = erase(&world, ADDRESS).await;
        assert_eq!(run(&world, &erasure).await["state"], "done");
        for (place, bytes) in dump(&world).await {
            assert_no_canary(&bytes, &place);
        }
        let shown = world.get(&thread).await.expect_status(200).text;
        assert!(!shown.contains(ADDRESS) && shown.contains("about erased-"), "{shown}");
    }

    async fn an_erased_addressee_gets_no_more_questions(world) {
        let world = with_everything(world).await;
        world.create_inbox("a").await;
        for (to, left) in [(json!([ADDRESS, "bob@example.com"]), json!(["bob@example.com"])), (json!([ADDRESS]), Value::Null)] {
            let settings = json!({ "escalation_email": { "from": "a@agents.test", "to": to } });
            world.call(patch("/v1/settings").json(&settings)).await.expect_status(200);
            let erasure = erase(&world, ADDRESS).await;
            assert_eq!(run(&world, &erasure).await["state"], "done");
            let settings = world.get("/v1/settings").await.expect_status(200);
            assert_eq!(settings["escalation_email"]["to"], left, "{}", settings.text);
            world.advance_clock(1_000);
        }
    }

    async fn mail_of_a_removed_inbox_is_gone_before_an_erasure_is_done(world) {
        let world = with_everything(world).await;
        let inbox = world.create_inbox("a").await;
        let from = format!("{NAME} <{ADDRESS}>");
        world.receive_message(TestMail { from: &from, text: TEXT, ..TestMail::default() }).await;
        world.call(delete(&format!("/v1/inboxes/{inbox}"))).await.expect_status(200);
        let erasure = erase(&world, ADDRESS).await;
        let running = run(&world, &erasure).await;
        assert_eq!((&running["state"], &running["stage"]), (&json!("running"), &json!("messages")), "{running}");

        world.engine.ctx.confirm_time();
        world.engine.sweep().await;
        assert_eq!(run(&world, &erasure).await["state"], "done");
        for (place, bytes) in dump(&world).await {
            assert_no_canary(&bytes, &place);
        }
    }

    async fn nothing_leaves_before_the_journal_of_a_restore_is_applied(world) {
        let world = with_everything(world).await;
        let first = erase(&world, ADDRESS).await;
        assert_eq!(run(&world, &first).await["state"], "done");
        world.advance_clock(1_000);
        let to_zoe = world.send("1", &mail_to_zoe(json!({}))).await.expect_status(202).string_field("id");
        let other = world.send("2", &mail_with(json!({}))).await.expect_status(202).string_field("id");
        world.advance_clock(1_000);
        // The ledger is from before the second request, which only the journal knows.
        let mut journal = world.engine.erasures.erasure_journal().await.unwrap();
        journal[0].requested_at = world.engine.ctx.now();
        assert_eq!(world.engine.erasures.apply_erasure_journal(journal.clone()).await.unwrap(), 1);

        world.hand_off_due().await;
        for id in [&to_zoe, &other] {
            assert_eq!(world.email(id).await["state"], "queued");
        }
        world.engine.erasures.run_erasures(usize::MAX).await.unwrap();
        world.engine.handoffs.release_stopped().await;
        world.hand_off_due().await;
        assert_eq!((&world.email(&to_zoe).await["state"], &world.email(&other).await["state"]), (&json!("cancelled"), &json!("sent")));
        assert_eq!(world.engine.erasures.apply_erasure_journal(journal).await.unwrap(), 0);
        assert_eq!(world.get("/v1/stops").await.expect_status(200).rows().len(), 0);
    }

    async fn events_of_deleted_mail_lose_its_texts(world) {
        let world = with_everything(world).await;
        world.create_inbox("a").await;
        let mail = |from: &'static str, id: &'static str| TestMail { from, id, subject: "Your code", text: "Your verification code is 482913.", ..TestMail::default() };
        world.receive_message(mail("bob@shop.test", "m0")).await;
        world.advance_clock(3 * HOUR);
        let message = world.receive_message(mail(ADDRESS, "m1")).await;
        let id = str_field(&message, "id").to_owned();
        let of_message = async || {
            let events = world.events().await;
            let is_about = |event: &Value| event["data"]["message"] == id.as_str() || event["subject"]["id"] == id.as_str();
            (events.len(), json!(events.iter().filter(|event| is_about(event)).collect::<Vec<_>>()).to_string(), json!(events).to_string())
        };
        let (count, about, all) = of_message().await;
        assert!(all.contains(ADDRESS) && about.contains("masked"), "{all}");
        world.call(delete(&format!("/v1/messages/{id}"))).await.expect_status(204);
        let (left, about, all) = of_message().await;
        assert!(left >= count && about.contains(&id), "the events themselves stay: {all}");
        assert!(!all.contains(ADDRESS) && !about.contains("masked") && !about.contains("Your code"), "{all}");
        assert!(all.contains("bob@shop.test") && all.contains("masked"), "{all}");

        let message = world.receive_message(mail(ADDRESS, "m2")).await;
        assert!(json!(world.events().await).to_string().contains(ADDRESS));
        let thread = str_field(&message, "thread_id");
        world.call(delete(&format!("/v1/threads/{thread}"))).await.expect_status(204);
        let all = json!(world.events().await).to_string();
        assert!(!all.contains(ADDRESS) && all.contains("bob@shop.test"), "{all}");
    }

    async fn the_stop_of_the_journal_ends_no_other_stop(world) {
        let world = with_everything(world).await;
        let mut erasure = erase(&world, ADDRESS).await;
        let installation = json!({ "scope": { "installation": true }, "reason": "a person" });
        let refuse = json!({ "scope": { "installation": true }, "mode": "refuse" });
        let other = world.send("1", &mail_with(json!({}))).await.expect_status(202).string_field("id");
        for (before, during) in
            [(Some("configuration"), None), (None, Some(&installation)), (None, Some(&refuse)), (Some("a person"), None)]
        {
            assert_eq!(run(&world, &erasure).await["state"], "done");
            world.advance_clock(1_000);
            match before {
                Some("a person") => _ = world.post("/v1/stops", &refuse).await.expect_status(201),
                Some(author) => world.engine.control.stops.stop_installation(author, "paused").await.unwrap(),
                None => {}
            }
            let mut journal = world.engine.erasures.erasure_journal().await.unwrap();
            journal[0].requested_at = world.engine.ctx.now();
            assert_eq!(world.engine.erasures.apply_erasure_journal(journal).await.unwrap(), 1);
            // Resuming ends what was there before, and not the stop of the journal.
            if let Some(stop) = during {
                assert_eq!(world.post("/v1/handoff/resume", &json!({})).await.expect_status(200)["state"], "paused");
                world.post("/v1/stops", stop).await.expect_status(201);
            }

            world.engine.erasures.run_erasures(usize::MAX).await.unwrap();
            world.engine.handoffs.release_stopped().await;
            world.hand_off_due().await;

            erasure = world.get(&format!("/v1/erasures/{}", str_field(&erasure, "id"))).await.expect_status(200).body;
            assert_eq!(erasure["state"], "done");
            assert_eq!(world.email(&other).await["state"], "queued", "{before:?} {during:?}");
            let left = world.get("/v1/stops").await.expect_status(200).rows();
            assert_eq!(left.len(), 1, "{left:?}");
            assert_ne!(left[0]["by"], "the journal of erasures");
            assert_eq!(world.post("/v1/handoff/resume", &json!({})).await.expect_status(200)["state"], "running");
            world.engine.handoffs.release_stopped().await;
        }
        world.hand_off_due().await;
        assert_eq!(world.email(&other).await["state"], "sent");
    }

    async fn a_deleted_message_or_thread_is_gone_for_good(world) {
        let world = with_everything(world).await;
        world.create_inbox("a").await;
        let mail = || TestMail { from: "ann@shop.test", id: "m1", ..TestMail::default() };
        let message = world.receive_message(mail()).await;
        let (id, thread) = (str_field(&message, "id").to_owned(), str_field(&message, "thread_id").to_owned());
        world.call(delete(&format!("/v1/messages/{id}"))).await.expect_status(204);
        for path in [format!("/v1/messages/{id}"), format!("/v1/messages/{id}/raw")] {
            world.get(&path).await.expect_problem(404, "not_found");
        }
        world.call(delete(&format!("/v1/messages/{id}"))).await.expect_problem(404, "not_found");
        world.reply(&message, "Too late").await.expect_problem(404, "not_found");
        world.receive_mail(&["a@agents.test"], &mail().to_raw()).await;
        assert_eq!(world.get("/v1/inboxes/a@agents.test/messages").await.expect_status(200).rows().len(), 0);
        let next = world.post("/v1/inboxes/a@agents.test/next", &json!({})).await.expect_status(200);
        assert_eq!(next.rows().len(), 0, "{}", next.text);

        let reply = TestMail { id: "m2", extra_headers: "In-Reply-To: <m1@shop.test>\n".into(), ..mail() };
        assert_eq!(str_field(&world.receive_message(reply).await, "thread_id"), thread);
        let path = format!("/v1/threads/{thread}");
        let reader = world.create_api_key(&json!({ "name": "reader", "scopes": ["read", "reply"] })).await;
        world.call(delete(&path).bearer(&reader)).await.expect_problem(403, "wrong_scope");
        world.call(delete(&path)).await.expect_status(204);
        world.get(&path).await.expect_problem(404, "not_found");
        assert_eq!(world.get("/v1/inboxes/a@agents.test/messages").await.expect_status(200).rows().len(), 0);
        assert_eq!(world.get("/v1/threads").await.expect_status(200).rows().len(), 0);
        let later = TestMail { id: "m3", extra_headers: "In-Reply-To: <m1@shop.test>\n".into(), ..mail() };
        world.receive_message(later).await;
        assert_eq!(world.get("/v1/threads").await.expect_status(200).rows().len(), 1);
    }
}

#[tokio::test]
async fn a_node_on_postgresql_keeps_the_journal_of_erasures() {
    let (cli, database) = (CliFixture::new(), TempDatabase::create().await);
    std::fs::write(cli.path().join("mailonce.toml"), "[defaults]\nverify_domains = false\n").unwrap();
    let store = [("MAILONCE_STORE", database.url.as_str())];
    let key =
        cli.run_with_env(&["api-keys", "create", "--name", "ops", "--scope", "send", "--scope", "admin"], &store).await;
    let key = str_field(&key.expect_exit(0).json(), "api_key").to_owned();
    let server = start_serve(&cli, &database).await;
    let run = async |server: &SpawnedServer, args: &[&str]| {
        let env = [("MAILONCE_URL", server.url.as_str()), ("MAILONCE_API_KEY", key.as_str())];
        cli.run_with_env(args, &env).await.expect_exit(0).json()
    };
    let send = ["send", "--from", "a@x.test", "--to", ADDRESS, "--subject", SUBJECT, "--text", TEXT, "--key", "1"];
    run(&server, &send).await;
    server.terminate().await;
    assert!(!cli.data_dir().exists(), "without erasures there is nothing to keep");
    let copy = TempDatabase::create_from(database.admin_url.clone(), &database.name).await;

    let server = start_serve(&cli, &database).await;
    run(&server, &["erase", ADDRESS, "--reason", "asked by mail"]).await;
    let journal = cli.data_dir().join("erasures.json");
    for _ in 0..600 {
        if journal.exists() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(!std::fs::read_to_string(&journal).unwrap().contains("person.test"), "the journal has aliases only");
    server.terminate().await;

    let server = start_serve(&cli, &copy).await;
    let mut erasures = run(&server, &["erasures", "list"]).await;
    for _ in 0..600 {
        if erasures["data"][0]["state"] == "done" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        erasures = run(&server, &["erasures", "list"]).await;
    }
    assert_eq!(erasures["data"][0]["counts"]["emails"], 1, "the copy is from before the erasure: {erasures}");
    server.terminate().await;
}

/// Starts `serve` on a database.
async fn start_serve(cli: &CliFixture, database: &TempDatabase) -> SpawnedServer {
    let args = ["serve", "--http", "127.0.0.1:0", "--store", &database.url];
    let mut server = SpawnedServer::spawn(&mut cli.command(&args));
    let log = server.read_stderr_until("serving").await;
    let line: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    server.url = format!("http://{}", str_field(&line["fields"], "http"));
    server
}

pub(super) async fn wait_until_done(cli: &CliFixture, data: &[&str]) -> Value {
    for _ in 0..300 {
        let listed = cli.run(&[&["erasures", "list"], data].concat()).await.expect_exit(0).json();
        if listed["data"][0]["state"] == "done" {
            return listed["data"][0].clone();
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the erasure is not done");
}

pub(super) fn assert_ledger_without_canary(folder: &Path) {
    for (place, bytes) in dump_files(folder) {
        assert_no_canary(&bytes, &place);
    }
}

/// A process that reads the ledger from now on, until its stdin closes.
struct LedgerReader(std::process::Child);

impl LedgerReader {
    const SCRIPT: &str = "
import sqlite3, sys
reader = sqlite3.connect(sys.argv[1], isolation_level=None)
reader.execute('BEGIN')
reader.execute('SELECT count(*) FROM emails').fetchone()
print('reading', flush=True)
sys.stdin.read()
";

    fn start(file: &Path) -> Self {
        use std::io::BufRead as _;
        let mut command = std::process::Command::new("python3");
        command.args(["-c", Self::SCRIPT]).arg(file);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "reading");
        Self(child)
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

/// How often the file's schema was changed or the whole file was rewritten.
fn schema_changes(file: &Path) -> String {
    let script =
        "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('PRAGMA schema_version').fetchone()[0])";
    let output = std::process::Command::new("python3").args(["-c", script]).arg(file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn a_reader_of_the_ledger_does_not_make_an_erasure_rewrite_the_file_again() {
    let world = with_everything(World::sqlite().await).await;
    world.send("1", &mail_to_zoe(json!({}))).await.expect_status(202);
    let erasure = erase(&world, ADDRESS).await;
    let file = world.data_directory().unwrap().join("ledger.db");
    let reader = LedgerReader::start(&file);

    let mut versions = vec![schema_changes(&file)];
    for _ in 0..2 {
        assert!(world.engine.erasures.run_erasures(usize::MAX).await.is_err(), "the log is in use");
        versions.push(schema_changes(&file));
    }
    assert!(versions[0] != versions[1] && versions[1] == versions[2], "the file is rewritten once: {versions:?}");
    let running = world.get(&format!("/v1/erasures/{}", str_field(&erasure, "id"))).await.expect_status(200);
    assert_eq!((&running["state"], &running["stage"]), (&json!("running"), &json!("storage")));

    reader.end();
    assert_eq!(run(&world, &erasure).await["state"], "done");
    assert_ledger_without_canary(world.data_directory().unwrap());
}

#[tokio::test]
async fn a_restored_backup_is_erased_again() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let send =
        ["send", "--from", "agent@mailonce.test", "--to", ADDRESS, "--subject", SUBJECT, "--text", TEXT, "--key", "1"];
    let sent = cli.run(&send).await.expect_exit(0).json();
    cli.run(&["backup", "copy.db"]).await.expect_exit(0);
    let asked = cli.run(&["erase", ADDRESS, "--reason", "asked by mail"]).await.expect_exit(0).json();
    let erased = wait_until_done(&cli, &[]).await;
    assert_eq!((&erased["id"], &erased["counts"]["emails"]), (&asked["id"], &json!(1)), "{erased}");
    assert_ledger_without_canary(&cli.data_dir());
    let shown = cli.run(&["erasures", "show", str_field(&erased, "id")]).await.expect_exit(0).json();
    assert_eq!(shown["reason"], "asked by mail");
    server.terminate().await;

    let journal = cli.data_dir().join("erasures.json");
    assert!(!std::fs::read_to_string(&journal).unwrap().contains("person.test"), "the journal has aliases only");
    let journal = journal.to_str().unwrap();
    cli.run(&["restore", "copy.db", "--data", "restored", "--erasures", "nothing.json"]).await.expect_exit(5);
    cli.run(&["restore", "copy.db", "--data", "restored", "--run", "--erasures", journal]).await.expect_exit(0);
    let restored = cli.path().join("restored");
    assert!(dump_files(&restored).iter().any(|(_, bytes)| String::from_utf8_lossy(bytes).contains(ADDRESS)));
    let _server = cli.start_dev(&[("MAILONCE_DATA", "restored")]).await;
    let again = wait_until_done(&cli, &["--data", "restored"]).await;
    assert_eq!((&again["alias"], &again["counts"]["emails"]), (&erased["alias"], &json!(1)), "{again}");
    assert_ledger_without_canary(&restored);
    let retried = cli.run(&[&send[..], &["--data", "restored"]].concat()).await;
    assert_eq!(retried.expect_exit(0).json()["id"], sent["id"], "a retry is still a duplicate");
}
