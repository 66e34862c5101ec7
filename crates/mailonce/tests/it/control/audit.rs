//! The audit log: every administrative and human act has an entry, without secrets, content and addresses.

use mailonce_core::control::audit::chain;
use serde_json::{Value, json};
use std::collections::BTreeMap;

use crate::{
    access::tenant_isolation::{ROUTES, TeamResources},
    fixtures::{
        api_fixture::{DAY, HOUR, World, mail, mail_with},
        binary::CliFixture,
        conversations::str_field,
        requests::{delete, get, patch},
    },
};

/// A word that is in every secret, content, address and free text of these tests, and must be in no entry.
const CANARY: &str = "canary";

/// Routes that leave no entry in the log of the team: what agents do all day, and what changes no setting. Resuming what
/// is not stopped changes nothing, and the entry of a new team is in its own log.
const ROUTES_WITHOUT_ENTRY: &[(&str, &str)] = &[
    ("post", "/v1/emails"),
    ("post", "/v1/emails/batch"),
    ("patch", "/v1/emails/{id}"),
    ("post", "/v1/emails/{id}/cancel"),
    ("post", "/v1/handoff/resume"),
    ("post", "/v1/endpoints/{id}/test"),
    ("post", "/v1/endpoints/{id}/recover"),
    ("post", "/v1/notices/{id}/replay"),
    ("post", "/v1/inboxes/{id}/watches"),
    ("post", "/v1/inboxes/{id}/consume"),
    ("post", "/v1/watches/{id}/resend"),
    ("post", "/v1/artifacts/{id}/consume"),
    ("post", "/v1/messages/{id}/reply"),
    ("post", "/v1/messages/{id}/forward"),
    ("post", "/v1/inboxes/{id}/next"),
    ("patch", "/v1/threads/{id}"),
    ("post", "/v1/threads/{id}/lease"),
    ("delete", "/v1/threads/{id}/lease"),
    ("post", "/v1/escalations"),
    ("post", "/v1/templates/{name}/preview"),
    ("post", "/v1/templates/{name}/validate"),
    ("post", "/v1/policy/simulate"),
    ("post", "/v1/claims"),
    ("post", "/v1/claims/{id}/evidence"),
    ("post", "/hooks/{source_id}"),
    ("post", "/v1/teams"),
    ("post", "/v1/notification-targets/{id}/test"),
];

async fn entries(world: &World) -> Vec<Value> {
    world.get("/v1/audit?limit=1000").await.expect_status(200).rows()
}

async fn actions_after(world: &World, seq: u64) -> Vec<String> {
    let page = world.get(&format!("/v1/audit?limit=1000&after={seq}")).await.expect_status(200);
    page.rows().iter().map(|entry| str_field(entry, "action").to_owned()).collect()
}

async fn head_seq(world: &World) -> u64 {
    world.get("/v1/audit?limit=1").await.expect_status(200)["head"]["seq"].as_u64().unwrap()
}

async fn verify(world: &World) {
    let page = world.get("/v1/audit?limit=1").await.expect_status(200);
    let team = page.string_field("team").parse().unwrap();
    let whole = world.engine.ctx.store().audit_page(team, 0, 10_000).await.unwrap();
    assert_eq!(chain::verify(team, &whole), Ok(()));
}

fn rule_body(name: &str) -> Value {
    let condition = json!({ "field": "subject", "operator": "is", "value": CANARY });
    json!({ "name": name, "match": { "conditions": [condition] }, "actions": [{ "type": "mark_read" }] })
}

/// A random number generator.
struct TestRng(u64);

impl TestRng {
    /// Takes the seed from `MAILONCE_SEED`, else a new one, and prints it.
    fn from_env() -> Self {
        let seed = std::env::var("MAILONCE_SEED").ok().and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
        println!("MAILONCE_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// The records that exist, so that later actions can change them.
#[derive(Default)]
struct CreatedRecords {
    rules: Vec<(String, u64)>,
    stops: Vec<String>,
    keys: Vec<String>,
    suppressed: Vec<String>,
    endpoints: Vec<String>,
    listed: Vec<String>,
    /// By their kind in [`RECORD_KINDS`], with their revisions.
    others: BTreeMap<&'static str, Vec<(String, u64)>>,
}

/// Kinds that are created, changed and removed alike: their path, and their name in the log. A domain has nothing to
/// change. Drafts are the work of agents and have no entries.
const RECORD_KINDS: [(&str, &str); 4] =
    [("people", "person"), ("domains", "domain"), ("templates", "template"), ("budgets", "budget")];

fn record_body(kind: &str, number: usize) -> Value {
    let name = format!("{CANARY}-{number}");
    match kind {
        "person" => json!({ "name": name, "role": "viewer", "address": format!("{name}@example.com") }),
        "domain" => json!({ "name": format!("{name}.example") }),
        "template" => json!({ "name": name, "subject": CANARY, "text": CANARY }),
        _ => json!({ "name": name, "scope": { "team": true }, "measure": "mails", "per": "day", "limit": 100_000 }),
    }
}

fn record_change(kind: &str, rev: u64, number: usize) -> Option<Value> {
    match kind {
        "person" => Some(json!({ "rev": rev, "name": format!("{CANARY} {number}"), "role": "approver" })),
        "template" => Some(json!({ "subject": format!("{CANARY} {number}") })),
        "budget" => Some(json!({ "rev": rev, "limit": 1_000 + number })),
        _ => None,
    }
}

/// Performs a random audited action and returns its name.
async fn act(world: &World, created_records: &mut CreatedRecords, rng: &mut TestRng, number: usize) -> String {
    match rng.below(5) {
        0 | 1 => act_on_record(world, created_records, rng, number).await,
        2 => act_on_list(world, created_records, rng, number).await.to_owned(),
        _ => act_on_access(world, created_records, rng, number).await.to_owned(),
    }
}

/// Creates, changes or removes one of [`RECORD_KINDS`].
async fn act_on_record(
    world: &World,
    created_records: &mut CreatedRecords,
    rng: &mut TestRng,
    number: usize,
) -> String {
    let (path, kind) = RECORD_KINDS[rng.below(RECORD_KINDS.len() as u64) as usize];
    let existing = created_records.others.entry(kind).or_default();
    let change = existing.last().and_then(|(_, rev)| record_change(kind, *rev, number));
    match (rng.below(3), change) {
        (1, Some(change)) => {
            let (id, rev) = existing.last_mut().unwrap();
            world.call(patch(&format!("/v1/{path}/{id}")).json(&change)).await.expect_status(200);
            *rev += 1;
            format!("{kind}.changed")
        }
        (2, _) if !existing.is_empty() => {
            let (id, _) = existing.pop().unwrap();
            world.call(delete(&format!("/v1/{path}/{id}"))).await.expect_status(200);
            format!("{kind}.removed")
        }
        _ => {
            let created = world.post(&format!("/v1/{path}"), &record_body(kind, number)).await.expect_status(201);
            existing.push((created.string_field("id"), 1));
            format!("{kind}.created")
        }
    }
}

/// Adds an entry to a list or removes one.
async fn act_on_list(
    world: &World,
    created_records: &mut CreatedRecords,
    rng: &mut TestRng,
    number: usize,
) -> &'static str {
    if rng.below(3) == 0
        && let Some(entry) = created_records.listed.pop()
    {
        world.call(delete(&format!("/v1/lists/receive/block/{entry}"))).await.expect_status(200);
        return "list_entry.removed";
    }
    let entry = format!("{CANARY}{number}@example.com");
    world.post("/v1/lists/receive/block", &json!({ "entry": entry, "reason": CANARY })).await.expect_status(201);
    created_records.listed.push(entry);
    "list_entry.created"
}

/// Changes rules, API keys, suppressions, endpoints, stops or settings.
async fn act_on_access(
    world: &World,
    created_records: &mut CreatedRecords,
    rng: &mut TestRng,
    number: usize,
) -> &'static str {
    let name = format!("{CANARY} {number}");
    let created = async |path: &str, body: Value| world.post(path, &body).await.expect_status(201).string_field("id");
    match rng.below(11) {
        0 => {
            created_records.rules.push((created("/v1/rules", rule_body(&name)).await, 1));
            "rule.created"
        }
        1 if !created_records.rules.is_empty() => {
            let (id, rev) = created_records.rules.last_mut().unwrap();
            let change = json!({ "rev": rev, "priority": number });
            world.call(patch(&format!("/v1/rules/{id}")).json(&change)).await.expect_status(200);
            *rev += 1;
            "rule.changed"
        }
        2 if !created_records.rules.is_empty() => {
            let (id, _) = created_records.rules.pop().unwrap();
            world.call(delete(&format!("/v1/rules/{id}"))).await.expect_status(200);
            "rule.removed"
        }
        3 => {
            created_records.keys.push(created("/v1/api-keys", json!({ "name": name, "scopes": ["read"] })).await);
            "api_key.created"
        }
        4 if !created_records.keys.is_empty() => {
            world
                .call(delete(&format!("/v1/api-keys/{}", created_records.keys.pop().unwrap())))
                .await
                .expect_status(200);
            "api_key.revoked"
        }
        5 => {
            let address = format!("{CANARY}{number}@example.com");
            world.post("/v1/suppressions", &json!({ "address": address, "reason": CANARY })).await.expect_status(201);
            created_records.suppressed.push(address);
            "suppression.created"
        }
        6 if !created_records.suppressed.is_empty() => {
            let path = format!("/v1/suppressions/{}", created_records.suppressed.pop().unwrap());
            world.call(delete(&path)).await.expect_status(200);
            "suppression.removed"
        }
        7 => {
            let body = json!({ "url": format!("https://hooks.example.com/{CANARY}/{number}"), "description": name });
            created_records.endpoints.push(created("/v1/endpoints", body).await);
            "endpoint.created"
        }
        8 if !created_records.endpoints.is_empty() => {
            let path = format!("/v1/endpoints/{}/rotate", created_records.endpoints.last().unwrap());
            world.post(&path, &json!({})).await.expect_status(200);
            "endpoint.changed"
        }
        9 if !created_records.stops.is_empty() => {
            world.call(delete(&format!("/v1/stops/{}", created_records.stops.pop().unwrap()))).await.expect_status(200);
            world.engine.handoffs.release_stopped().await;
            "stop.ended"
        }
        _ if created_records.stops.is_empty() => {
            let body = json!({ "scope": { "team": true }, "reason": CANARY });
            created_records.stops.push(created("/v1/stops", body).await);
            "stop.created"
        }
        _ => {
            let notify = json!({ "from": format!("{CANARY}@example.com"), "to": [format!("{CANARY}@example.com")] });
            let settings = json!({ "escalation_email": notify, "held_expires_after": format!("{}h", 1 + number) });
            world.call(patch("/v1/settings").json(&settings)).await.expect_status(200);
            "settings.changed"
        }
    }
}

/// An email with an unknown outcome is not needed here; the promises of the stores cover `email.resolved`.
async fn decide_and_change_keys(world: &World) {
    world.send_without_key(&mail_with(json!({ "text": CANARY }))).await.expect_status(202);
    world.send_without_key(&mail_with(json!({ "text": format!("{CANARY}!") }))).await.expect_status(202);
    let held = world.escalations("state=open").await.remove(0);
    let path = format!("/v1/escalations/{}/resolve", str_field(&held, "id"));
    let edit = json!({ "as": "edit", "rev": 1, "reason": CANARY, "edit": { "subject": CANARY, "text": CANARY } });
    world.post(&path, &edit).await.expect_status(200);
    world.send(CANARY, &mail()).await.expect_status(202);
    world.hand_off_due().await;
    world.call(patch(&format!("/v1/keys/{CANARY}")).json(&json!({ "ttl": "60d" }))).await.expect_status(200);
    world.call(delete(&format!("/v1/keys/{CANARY}"))).await.expect_status(200);
}

over_every_engine! {
    async fn a_hundred_random_acts_have_their_entries(world) {
        let begin = head_seq(&world).await;
        decide_and_change_keys(&world).await;
        let mut expected = ["escalation.decided", "key.extended", "key.forgotten"].map(str::to_owned).to_vec();
        let (mut rng, mut created_records) = (TestRng::from_env(), CreatedRecords::default());
        for number in 0..100 {
            expected.push(act(&world, &mut created_records, &mut rng, number).await);
        }

        assert_eq!(actions_after(&world, begin).await, expected);
        verify(&world).await;
        let me = world.get("/v1/api-keys").await.expect_status(200).rows();
        let me = me.iter().find(|key| key["name"] == "test").unwrap()["id"].clone();
        for mut entry in entries(&world).await.split_off(usize::try_from(begin).unwrap()) {
            assert_eq!(entry["actor"], json!({ "kind": "api_key", "id": me }), "{entry}");
            assert_eq!(entry["names"][str_field(&entry["actor"], "id")], "test");
            entry["names"].take();
            assert!(!entry.to_string().contains(CANARY), "{entry}");
            assert!(!entry.to_string().contains('@'), "{entry}");
        }
    }

    async fn an_entry_says_who_did_what_to_what(world) {
        let rule = world.post("/v1/rules", &rule_body("ours")).await.expect_status(201).string_field("id");
        let change = json!({ "rev": 1, "enabled": false });
        world.call(patch(&format!("/v1/rules/{rule}")).json(&change)).await.expect_status(200);
        let key = world.post("/v1/api-keys", &json!({ "name": "agent", "scopes": ["send"], "allowed_senders": ["@canary.test"] })).await.expect_status(201);

        let last = entries(&world).await.split_off(3);
        let about = format!("rule/{rule}");
        assert_eq!((&last[0]["action"], &last[0]["about"]), (&json!("rule.changed"), &json!(about)));
        assert_eq!((&last[0]["before"], &last[0]["after"]), (&json!({ "enabled": true }), &json!({ "enabled": false })));
        assert_eq!(last[0]["names"][&about], "ours");
        assert_eq!(last[0]["prev"], entries(&world).await[2]["hash"]);
        assert_eq!(last[1]["about"], format!("api_key/{}", key.string_field("id")));
        assert_eq!(last[1]["after"]["scopes"], json!(["send"]));
        assert_eq!(last[1]["after"]["restricted_to"], json!(["senders"]));
        assert_eq!(last[1]["fault"], Value::Null);
    }

    async fn a_log_is_read_in_pages_and_filtered(world) {
        for name in ["a", "b", "c"] {
            world.post("/v1/rules", &rule_body(name)).await.expect_status(201);
        }
        world.post("/v1/stops", &json!({ "scope": { "team": true } })).await.expect_status(201);
        let all = entries(&world).await;
        let (mut seen, mut after) = (Vec::new(), "0".to_owned());
        loop {
            let page = world.get(&format!("/v1/audit?limit=2&after={after}")).await.expect_status(200);
            seen.extend(page.rows());
            let Some(next) = page["next_cursor"].as_str() else { break };
            next.clone_into(&mut after);
        }
        assert_eq!(seen, all);
        let count = async |query: &str| world.get(&format!("/v1/audit?{query}")).await.expect_status(200).rows().len();
        assert_eq!((count("action=rule.created").await, count("action=rule.*").await, count("action=stop.*").await), (3, 3, 1));
        let about = str_field(&all[3], "about");
        assert_eq!((count(&format!("about={about}")).await, count("about=nothing").await), (1, 0));
        let actor = str_field(&all[3]["actor"], "id");
        assert_eq!(count(&format!("actor={actor}&action=rule.*")).await, 3);
        for bad in ["after=x", "after=-1", "limit=0", "limit=1001", "who=me"] {
            world.get(&format!("/v1/audit?{bad}")).await.expect_problem(400, "invalid_query");
        }
    }

    async fn only_administrators_of_the_team_read_its_log(world) {
        let reader = world.create_api_key(&json!({ "name": "reader", "scopes": ["read", "send"] })).await;
        world.call(get("/v1/audit").bearer(&reader)).await.expect_problem(403, "wrong_scope");
        let other = world.create_team("other").await;
        let theirs = world.call(get("/v1/audit").bearer(&other)).await.expect_status(200).rows();
        let actions: Vec<&str> = theirs.iter().map(|entry| str_field(entry, "action")).collect();
        assert_eq!(actions, ["team.created", "api_key.created"]);
        world.call(get("/v1/audit").anonymous()).await.expect_problem(401, "unauthorized");
    }

    async fn a_team_may_get_an_event_for_each_entry(world) {
        world.post("/v1/rules", &rule_body("silent")).await.expect_status(201);
        world.call(patch("/v1/settings").json(&json!({ "audit_events": true }))).await.expect_status(200);
        let rule = world.post("/v1/rules", &rule_body("loud")).await.expect_status(201).string_field("id");
        let events = world.events().await;
        let last = events.last().unwrap();
        assert_eq!((events.len(), &last["type"]), (2, &json!("audit.recorded")));
        let head = head_seq(&world).await;
        assert_eq!(last["data"], json!({ "seq": head, "action": "rule.created", "about": format!("rule/{rule}") }));
    }

    async fn expired_entries_are_removed_and_the_rest_is_still_verified(world) {
        world.post("/v1/rules", &rule_body("old")).await.expect_status(201);
        let bad = json!({ "retention": { "audit": "1h" } });
        world.call(patch("/v1/settings").json(&bad)).await.expect_problem(422, "invalid_field");
        let kept = json!({ "retention": { "audit": "30d" } });
        let settings = world.call(patch("/v1/settings").json(&kept)).await.expect_status(200);
        assert_eq!(settings["retention"], json!({ "audit": "30d", "bodies": null, "events": null, "raw": null }));
        world.advance_clock(30 * DAY + HOUR);
        world.engine.ctx.confirm_time();
        world.post("/v1/rules", &rule_body("new")).await.expect_status(201);
        world.engine.prune_audit().await;
        let page = world.get("/v1/audit").await.expect_status(200);
        assert_eq!((page["start"]["seq"].as_u64(), page.rows().len()), (Some(4), 1), "{}", page.text);
        assert_eq!(page.rows()[0]["prev"], page["start"]["hash"]);
        verify(&world).await;
    }
}

#[tokio::test]
async fn every_route_that_administers_leaves_an_entry() {
    let mut silent = Vec::new();
    for (method, path, _) in ROUTES.iter().filter(|(method, ..)| *method != "get") {
        let world = World::memory().await.with_inbox_domain().await;
        let resources = TeamResources::create(&world).await;
        let before = head_seq(&world).await;
        let response = world.call(resources.request_for(method, path)).await;
        if response.status < 300 && head_seq(&world).await == before {
            silent.push((*method, *path));
        }
    }
    assert_eq!(silent, ROUTES_WITHOUT_ENTRY);
}

/// Runs the command in the fixture's directory, with a wide terminal.
async fn plain(cli: &CliFixture, args: &[&str]) -> String {
    cli.run_with_env(&[&["--plain"], args].concat(), &[("COLUMNS", "200")]).await.expect_exit(0).stdout
}

#[tokio::test]
async fn the_command_line_lists_exports_and_verifies_the_log() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    cli.run(&["stop", "--team", "--reason", CANARY]).await.expect_exit(0);
    let stop = cli.run(&["stops"]).await.expect_exit(0).json()["data"][0]["id"].as_str().unwrap().to_owned();
    cli.run(&["resume", &stop]).await.expect_exit(0);

    let listed = plain(&cli, &["audit", "list", "--limit", "2"]).await;
    for part in ["stop.created", "stop.ended", "127.0.0.1", "scope: team"] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    assert!(!listed.contains("team.created"), "{listed}");
    let stops = cli.run(&["audit", "list", "--action", "stop.*"]).await.expect_exit(0).json();
    assert_eq!(stops["data"].as_array().unwrap().len(), 2);
    let export = cli.run(&["audit", "export"]).await.expect_exit(0).stdout;
    for word in [CANARY, "127.0.0.1", "@", &server.api_key] {
        assert!(!export.contains(word), "{word}: {export}");
    }
    let verified = cli.run(&["audit", "verify"]).await.expect_exit(0).json();
    // The last line is the head of the log.
    let count = export.lines().count() as u64 - 1;
    assert_eq!((&verified["valid"], verified["entries"].as_u64()), (&json!(true), Some(count)));
    let head = verified["head"]["hash"].as_str().unwrap().to_owned();
    cli.run(&["audit", "verify", "--head", &head]).await.expect_exit(0);
    cli.run(&["audit", "verify", "--head", &"0f".repeat(32)]).await.expect_exit(1);
    cli.run(&["audit", "verify", "--head", "x"]).await.expect_exit(64);

    verify_exports(&cli, &export).await;
}

/// An export is verified without a server, and a change of any line is found.
async fn verify_exports(cli: &CliFixture, export: &str) {
    let file = cli.path().join("audit.jsonl");
    let check = async |text: &str, exit: i32| {
        std::fs::write(&file, text).unwrap();
        cli.run(&["audit", "verify", "--file", "audit.jsonl"]).await.expect_exit(exit).json()
    };
    check(export, 0).await;
    let tampered = check(&export.replace("stop.ended", "stop.begun"), 1).await;
    assert!(tampered["fault"].as_str().unwrap().contains("does not match its hash"), "{tampered}");
    let lines: Vec<&str> = export.lines().collect();
    let shorter = [&lines[..1], &lines[2..]].concat().join("\n");
    assert_eq!(check(&shorter, 1).await["fault"], "entry 2 is missing");
    let (last, head) = (lines[lines.len() - 2], lines[lines.len() - 1]);
    for cut in [lines[..lines.len() - 1].join("\n"), lines[..lines.len() - 3].join("\n"), String::new()] {
        let fault = check(&cut, 1).await["fault"].clone();
        assert_eq!(fault, "the file does not end with the head of the log: its end is missing");
    }
    let fault = check(&export.replace(&format!("{last}\n"), ""), 1).await["fault"].clone();
    assert!(fault.as_str().unwrap().contains("missing"), "{fault}");
    // Later exports are appended, and one without new entries has the head alone.
    check(&format!("{export}{head}\n"), 0).await;
    assert_eq!(check(head, 0).await["entries"], 0);
    check("not json\n", 1).await;
}

#[tokio::test]
async fn a_byte_that_was_changed_in_the_file_is_found() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    cli.run(&["stop", "--team"]).await.expect_exit(0);
    let seq = cli.run(&["audit", "verify"]).await.expect_exit(0).json()["head"]["seq"].clone();
    cli.run(&["backup", "copy.db"]).await.expect_exit(0);
    assert!(server.terminate().await.success());

    let path = cli.path().join("copy.db");
    let mut bytes = std::fs::read(&path).unwrap();
    // The event of the stop says `stop.created`, too; the entry has the length of the text before it.
    let needle = b"\x00\x00\x00\x0cstop.created";
    let at = bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    bytes[at + needle.len() - 1] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    cli.run(&["restore", "copy.db", "--data", "restored", "--run"]).await.expect_exit(0);

    let _server = cli.start_dev(&[("MAILONCE_DATA", "restored")]).await;
    let verified = cli.run(&["audit", "verify", "--data", "restored"]).await.expect_exit(1).json();
    let fault = format!("entry {seq} was changed: its content does not match its hash");
    assert_eq!(verified["fault"], fault);
    let output = cli.run(&["--plain", "audit", "list", "--data", "restored"]).await.expect_exit(0);
    assert!(output.stderr.contains("The log is damaged."), "{output:?}");
}

#[tokio::test]
async fn a_command_on_the_ledger_and_a_restore_have_entries() {
    let cli = CliFixture::new();
    cli.run(&["api-keys", "create", "--name", "ops", "--scope", "admin"]).await.expect_exit(0);
    cli.run(&["backup", "copy.db"]).await.expect_exit(0);
    cli.run(&["restore", "copy.db", "--data", "restored", "--run"]).await.expect_exit(0);
    let _server = cli.start_dev(&[("MAILONCE_DATA", "restored")]).await;
    let reach = ["audit", "export", "--data", "restored"];
    // The key of `dev` is of the same team.
    let export = cli.run(&reach).await.expect_exit(0).stdout;
    let lines: Vec<Value> = export.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["actor"], json!({ "kind": "system", "id": "cli" }));
    assert_eq!((&lines[0]["from"], &lines[0]["action"]), (&json!("cli"), &json!("team.created")));
    let restored = lines.iter().find(|line| line["action"] == "ledger.restored").unwrap();
    assert_eq!(restored["actor"], json!({ "kind": "system", "id": "server" }));
    assert!(!cli.path().join("restored/restored").exists(), "the mark is gone");
}
