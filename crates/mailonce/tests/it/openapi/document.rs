//! The OpenAPI document, its paths, and the format of every error.

use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read as _,
};
use tower::ServiceExt as _;

use crate::fixtures::{
    api_fixture::{World, mail, mail_with},
    requests::{TestRequest, get, post},
};

#[test]
fn the_committed_document_is_the_one_that_is_served() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi.json");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == mailonce::api::openapi_json(),
        "openapi.json at the root is out of date; refresh it: cargo run -- openapi > openapi.json"
    );
}

/// Every `$ref` in the document.
fn collect_refs(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if let ("$ref", Some(target)) = (name.as_str(), member.as_str()) {
                    found.insert(target.to_owned());
                }
                collect_refs(member, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_refs(item, found)),
        _ => {}
    }
}

#[test]
fn the_document_is_openapi_3_1_and_every_ref_resolves() {
    let document = serde_json::to_value(mailonce::api::openapi()).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut found = BTreeSet::new();
    collect_refs(&document, &mut found);
    assert!(found.contains("#/components/schemas/ProblemBody"));
    for target in found {
        assert!(document.pointer(target.trim_start_matches('#')).is_some(), "{target} does not exist");
    }
}

#[test]
fn operation_ids_are_unique_and_path_parameters_are_in_the_path() {
    let document = serde_json::to_value(mailonce::api::openapi()).unwrap();
    let mut ids = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for operation in methods.as_object().unwrap().values() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "two operations are called {id}");
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            for parameter in parameters.filter(|parameter| parameter["in"] == "path") {
                let name = parameter["name"].as_str().unwrap();
                assert!(path.contains(&format!("{{{name}}}")), "{id}: {name} is not in {path}");
            }
        }
    }
}

#[test]
fn the_document_describes_the_send_body() {
    let document = serde_json::to_value(mailonce::api::openapi()).unwrap();
    let schemas = &document["components"]["schemas"];
    let send = &schemas["SendBody"]["properties"];
    for name in ["to", "cc", "bcc", "reply_to"] {
        assert_eq!(send[name]["$ref"], "#/components/schemas/Addresses", "{name}");
    }
    let kinds: Vec<&Value> =
        schemas["Addresses"]["oneOf"].as_array().unwrap().iter().map(|kind| &kind["type"]).collect();
    assert_eq!(kinds, ["string", "array"]);
    assert_eq!(schemas["IntentBody"]["required"], json!(["type", "entity"]));
    assert_eq!(send["attachments"]["items"]["$ref"], "#/components/schemas/AttachmentBody");
    for name in ["TagPair", "TtlClass", "AttachmentBody", "IntentBody"] {
        assert_eq!(schemas[name]["additionalProperties"], false, "{name} accepts unknown fields");
    }
}

/// Method, path and example of every operation with a request body in JSON. Calls of a provider's webhook are in its
/// format, not in ours.
fn example_requests() -> Vec<(String, String, Value)> {
    let document = serde_json::to_value(mailonce::api::openapi()).unwrap();
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap().iter().filter(|(path, _)| path.starts_with("/v1/")) {
        for (method, operation) in methods.as_object().unwrap() {
            let json = &operation["requestBody"]["content"]["application/json"];
            if json.is_object() {
                all.push((method.to_uppercase(), path.clone(), json["example"].clone()));
            }
        }
    }
    all
}

/// The id of one object of each kind, by the segment before it in a path. Where the document has an example of the
/// call that creates it, that example is the call.
async fn create_documented_objects(world: &World) -> BTreeMap<String, String> {
    let mut ids = BTreeMap::from([("transports".to_owned(), "sandbox".to_owned())]);
    let inbox = world.create_inbox("a").await;
    let raw = "From: shop@x.test\nTo: a@agents.test\nMessage-ID: <1@x.test>\nSubject: Your code\n\nYour verification code is 402625.\n";
    world.receive_mail(&["a@agents.test"], raw).await;
    let message = world.get(&format!("/v1/inboxes/{inbox}/messages")).await.rows().remove(0);
    let id = |value: &Value| value.as_str().unwrap().to_owned();
    let artifacts = world.get(&format!("/v1/messages/{}/artifacts", id(&message["id"]))).await.expect_status(200);
    let scheduled = mail_with(json!({ "scheduled_at": "in 3 hours" }));
    let email = world.send("order-4821", &scheduled).await.expect_status(202).string_field("id");
    for (kind, found) in [
        ("inboxes", inbox),
        ("messages", id(&message["id"])),
        ("threads", id(&message["thread_id"])),
        ("artifacts", id(&artifacts["data"][0]["id"])),
        ("emails", email),
        ("keys", "order-4821".to_owned()),
    ] {
        ids.insert(kind.to_owned(), found);
    }
    for (method, path, example) in example_requests() {
        let kind = path.trim_start_matches("/v1/").to_owned();
        if method == "POST" && !kind.contains('/') && !ids.contains_key(&kind) {
            let created = world.post(&path, &example).await;
            assert!(created.status < 300, "{path} {example}: {} {}", created.status, created.text);
            let name = if kind == "templates" { "name" } else { "id" };
            ids.extend(created[name].as_str().map(|id| (kind, id.to_owned())));
        }
    }
    ids
}

over_memory_and_sqlite! {
    async fn every_documented_path_is_served(world) {
        // Event streams are ended first, because an endless response cannot be read completely.
        world.engine.events.end_streams();
        let document = serde_json::to_value(mailonce::api::openapi()).unwrap();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for method in operations.as_object().unwrap().keys() {
                let filled = path.replace("{id}", "x").replace("{key}", "x").replace("{code}", "not_found");
                let filled = filled.replace("{source_id}", "x").replace("{address}", "x");
                let answer = world.call(TestRequest::new(method, &filled).json(&json!({}))).await;
                let detail = answer["detail"].as_str().unwrap_or_default();
                assert!(!detail.contains("there is no path"), "{method} {path}: {}", answer.text);
                assert!(answer.status != 405 && answer.status < 500, "{method} {path}: {}", answer.text);
            }
        }
    }

    async fn the_documented_bounds_of_parameters_are_enforced(world) {
        let document = serde_json::to_value(mailonce::api::openapi()).unwrap();
        let mut checked = 0;
        for (path, operations) in document["paths"].as_object().unwrap() {
            // A stream has no page size, and the objects of a path are looked up first.
            if path.contains('{') || path.ends_with("/stream") {
                continue;
            }
            for parameter in operations["get"]["parameters"].as_array().into_iter().flatten() {
                let (name, schema) = (parameter["name"].as_str().unwrap(), &parameter["schema"]);
                let bounds = (schema["minimum"].as_i64(), schema["maximum"].as_i64());
                let (Some(least), Some(most)) = bounds else { continue };
                for (value, is_valid) in [(least - 1, false), (least, true), (most, true), (most + 1, false)] {
                    let answer = world.get(&format!("{path}?{name}={value}")).await;
                    assert_eq!(answer["field"] != name, is_valid, "{path} {name}={value}: {}", answer.text);
                    checked += 1;
                }
            }
        }
        assert!(checked > 60, "{checked}");
    }

    async fn an_unknown_path_is_404_with_the_nearest_one(world) {
        let refused = world.get("/v1/email").await.expect_problem(404, "not_found");
        assert!(refused.string_field("detail").contains("/v1/emails"), "{}", refused.text);
        world.get("/bench/echo").await.expect_problem(404, "not_found");
    }

    async fn an_unsupported_method_is_405(world) {
        for (method, path) in [("PUT", "/v1/emails"), ("DELETE", "/v1/emails"), ("GET", "/v1/emails/batch"), ("POST", "/healthz")] {
            world.call(TestRequest::new(method, path)).await.expect_problem(405, "method_not_allowed");
        }
    }

    async fn a_405_lists_the_allowed_methods(world) {
        let refused = world.call(TestRequest::new("PUT", "/v1/emails")).await.expect_problem(405, "method_not_allowed");
        let allow = refused.header("allow").expect("a 405 names the methods (RFC 9110, 15.5.6)");
        assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
    }

    async fn every_error_is_a_complete_problem_with_a_documentation_page(world) {
        let slow = world.create_api_key(&json!({ "name": "slow", "rate_per_s": 1 })).await;
        let reader = world.create_api_key(&json!({ "name": "r", "scopes": ["read"] })).await;
        world.call(get("/v1/emails").bearer(&slow)).await.expect_status(200);
        let id = world.send("k", &mail()).await.expect_status(202).string_field("id");
        let calls = [
            (400, post("/v1/emails").json_bytes("nonsense")),
            (400, post("/v1/emails").key("").json(&mail())),
            (400, get("/v1/emails?limit=x")),
            (400, get("/v1/emails?x=y")),
            (401, get("/v1/emails").anonymous()),
            (403, post("/v1/emails").bearer(&reader).json(&mail())),
            (404, get("/nowhere")),
            (404, get("/v1/emails/x")),
            (404, get("/docs/errors/nonsense")),
            (405, TestRequest::new("PUT", "/v1/emails")),
            (409, post(&format!("/v1/emails/{id}/resend"))),
            (410, get("/v1/events?after=999-1")),
            (415, post("/v1/emails").header("content-type", "text/plain").raw_body("x")),
            (422, post("/v1/emails").key("k").json(&json!({ "from": "a@x.test", "to": "b@x.test", "text": "t" }))),
            (429, get("/v1/emails").bearer(&slow)),
        ];
        for (status, call) in calls {
            let answer = world.call(call).await.expect_status(status);
            answer.expect_problem_format();
            let page = world.call(get(&answer.string_field("type")).anonymous()).await.expect_status(200);
            assert!(page.text.contains(&status.to_string()), "{}", page.text);
        }
    }

    async fn a_path_that_is_not_utf_8_is_refused_with_a_problem(world) {
        for path in ["/v1/emails/%FF", "/v1/keys/%FF", "/docs/errors/%FF"] {
            let answer = world.get(path).await;
            assert!((400..500).contains(&answer.status), "{path}: {}", answer.text);
            answer.expect_problem_format();
        }
        let answer = world.call(post("/v1/emails/%C3%28/cancel")).await;
        answer.expect_problem_format();
    }

    async fn public_pages_need_no_api_key(world) {
        for (path, kind, word) in [
            ("/docs", "text/html", "<html"),
            ("/llms.txt", "text/plain", "mailonce"),
            ("/openapi.json", "application/json", "\"openapi\""),
            ("/metrics", "application/openmetrics-text", "# EOF"),
            ("/healthz", "application/json", "\"ok\""),
            ("/readyz", "application/json", "\"ready\""),
        ] {
            let answer = world.call(get(path).anonymous()).await.expect_status(200);
            assert!(answer.header("content-type").unwrap().starts_with(kind), "{path}");
            assert!(answer.text.contains(word), "{path}: {}", answer.text);
        }
        let page = world.call(get("/docs").anonymous()).await;
        assert!(page.text.contains("/docs/viewer.js") && page.text.contains("/llms.txt"), "{}", page.text);
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.contains("script-src 'self';") && !policy.contains("unsafe-eval"), "{policy}");
        let viewer = world.call(get("/docs/viewer.js").anonymous()).await.expect_status(200);
        assert!(viewer.header("content-type").unwrap().starts_with("text/javascript"));
        assert!(viewer.text.contains("@scalar/api-reference"), "{} bytes", viewer.text.len());
        let tag = viewer.header("etag").unwrap().to_owned();
        let again = world.call(get("/docs/viewer.js").anonymous().header("if-none-match", &tag)).await;
        assert_eq!((again.status, again.text.len()), (304, 0));
        let served = world.get("/openapi.json").await.expect_status(200);
        assert!(served.body == *mailonce::api::openapi() && !served.text.contains("\n  "), "small, and the same");
        let tag = served.header("etag").unwrap().to_owned();
        let again = world.call(get("/openapi.json").header("if-none-match", &tag)).await;
        assert_eq!((again.status, again.text.len()), (304, 0));
    }

    async fn no_example_request_is_refused_as_malformed(world) {
        let world = world.with_inbox_domain().await;
        let ids = create_documented_objects(&world).await;
        let mut count = 0;
        for (method, path, mut example) in example_requests() {
            // An example cannot know the ids of other objects.
            if path.ends_with("/approval-links") {
                let decider = json!({ "name": "Decider", "role": "approver" });
                let decider = world.post("/v1/people", &decider).await.expect_status(201).string_field("id");
                example["person"] = json!(decider);
            } else if path.ends_with("/reroute") {
                // Needs a second transport, which this server does not have.
                continue;
            }
            let segments: Vec<&str> = path.split('/').collect();
            let known = |(at, segment): (usize, &&str)| match *segment {
                "{direction}" => "send".to_owned(),
                "{type}" => "block".to_owned(),
                _ if segment.starts_with('{') => ids[segments[at - 1]].clone(),
                _ => (*segment).to_owned(),
            };
            let filled = segments.iter().enumerate().map(known).collect::<Vec<_>>().join("/");
            let answer = world.call(TestRequest::new(&method, &filled).json(&example)).await;
            let is_malformed = matches!(answer.status, 400 | 404 | 405 | 415) || answer["code"] == "invalid_field";
            assert!(!is_malformed, "{method} {filled} {example}: {} {}", answer.status, answer.text);
            count += 1;
        }
        assert!(count > 60, "{count} examples");
    }

    async fn the_document_is_compressed_for_clients_that_accept_it(world) {
        let plain = world.get("/openapi.json").await.expect_status(200).text;
        let request = get("/openapi.json").header("accept-encoding", "br, gzip").build(&world.secret);
        let (head, body) = world.router().oneshot(request).await.unwrap().into_parts();
        assert_eq!((&head.headers["content-encoding"], &head.headers["vary"]), (&"gzip".parse().unwrap(), &"accept-encoding".parse().unwrap()));
        let bytes = body.collect().await.unwrap().to_bytes();
        let mut text = String::new();
        flate2::read::GzDecoder::new(&*bytes).read_to_string(&mut text).unwrap();
        assert!(text == plain && bytes.len() < 60_000, "{} bytes", bytes.len());
        let refused = world.call(get("/openapi.json").header("accept-encoding", "gzip;q=0")).await;
        assert!(refused.header("content-encoding").is_none() && refused.text == plain);
    }

    async fn the_metrics_count_and_contain_no_secrets(world) {
        world.send("secret-key", &mail()).await.expect_status(202);
        world.send("secret-key", &mail()).await.expect_status(200);
        let metrics = world.get("/metrics").await.expect_status(200).text;
        for secret in ["secret-key", "user@example.com", world.secret.as_str()] {
            assert!(!metrics.contains(secret), "{secret} is in the metrics");
        }
        assert!(metrics.lines().any(|line| line.contains("key_replay") && line.ends_with(" 1")), "{metrics}");
    }
}

#[tokio::test]
async fn an_unavailable_ledger_is_503_and_the_call_may_be_retried() {
    let world = World::sqlite().await;
    world.send("k", &mail()).await.expect_status(202);
    world.engine.ctx.store().close().await;
    let batch = post("/v1/emails/batch").json(&json!([mail()]));
    for call in [post("/v1/emails").key("new").json(&mail()), batch, get("/readyz")] {
        let refused = world.call(call).await.expect_problem(503, "unavailable");
        assert_eq!((refused.header("retry-after"), &refused["retry"]), (Some("1"), &json!("same")));
    }
    world.call(get("/healthz")).await.expect_status(200);
}

/// No request may cause a panic.
#[tokio::test]
async fn odd_but_legal_calls_never_end_in_a_500() {
    let world = World::memory().await;
    let calls = [
        get("/v1/events?after=4294967295-18446744073709551615"),
        get("/v1/events?after=1-18446744073709551615"),
        get("/v1/emails?since=-009999-01-02T01:59:59Z&until=9999-12-30T22:00:00Z"),
        get("/v1/emails?cursor=ffffffff-ffff-ffff-ffff-ffffffffffff"),
        get("/v1/emails?cursor=00000000-0000-0000-0000-000000000000"),
        get("/v1/emails/ffffffff-ffff-ffff-ffff-ffffffffffff"),
    ];
    for call in calls {
        let answer = world.call(call).await;
        assert!(answer.status < 500, "{}", answer.text);
    }
}

/// All Rust files below a folder.
fn source_files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { source_files(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// Two schemas with one name would be merged in the document, and one of them would be described wrongly.
#[test]
fn no_two_schemas_of_the_document_share_a_name() {
    let api = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api");
    let mut files_by_schema = std::collections::BTreeMap::<String, String>::new();
    for file in source_files(&api) {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut is_schema = false;
        for line in text.lines() {
            is_schema = line.contains("ToSchema)]") || (is_schema && !line.is_empty());
            let Some((_, rest)) = line.split_once("struct ").filter(|_| is_schema && line.starts_with("pub")) else {
                continue;
            };
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
            let file_name = file.display().to_string();
            let other = files_by_schema.insert(name.clone(), file_name.clone());
            assert_eq!(other, None, "{name} is also in {file_name}");
            is_schema = false;
        }
    }
    assert!(files_by_schema.len() > 50, "no schemas were found: {files_by_schema:?}");
}

/// A model that reads only this page meets these answers and needs these calls.
#[test]
fn the_page_for_models_names_real_calls_and_the_codes_that_they_answer() {
    let page = include_str!("../../../src/api/llms.txt");
    let paths = mailonce::api::openapi()["paths"].as_object().unwrap();
    for call in ["/v1/emails", "/v1/claims", "/v1/claims/{id}/complete", "/v1/templates/{name}", "/v1/policy/simulate"]
    {
        assert!(page.contains(call) && paths.contains_key(call), "{call}");
    }
    assert!(page.contains("/mcp "), "{page}");
    for code in ["stopped", "quota_exceeded", "key_mismatch", "busy", "unknown", "already_consumed", "leased"] {
        let is_known = mailonce_core::problem::Code::ALL.iter().any(|known| known.as_str() == code);
        assert!(is_known && page.contains(&format!("`{code}`")), "{code}");
    }
    for word in page.split_whitespace().filter(|word| word.starts_with("/v1/")) {
        let path = word.split('?').next().unwrap_or_default().trim_end_matches([',', '.', ':']);
        assert!(paths.contains_key(path), "{path} is no route");
    }
}

#[test]
fn every_event_type_is_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/events.md");
    let text = std::fs::read_to_string(path).unwrap();
    let lines: BTreeSet<&str> = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let documented = lines.into_iter().filter(|word| word.contains('.')).collect::<BTreeSet<_>>();
    assert_eq!(documented, mailonce_core::events::event::EventKind::ALL.iter().map(|kind| kind.as_str()).collect());
}
