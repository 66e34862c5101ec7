//! Templates: stored wording that a send fills in with variables.

use mailonce_core::limits;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

use crate::fixtures::{
    api_fixture::{World, mail_with},
    requests::{TestResponse, delete, get, patch, post},
};

/// A template that greets somebody.
fn welcome() -> Value {
    json!({
        "name": "welcome", "subject": "Hello {{ name }}", "html": "<p>Dear {{ name }}, order {{ order.id }}.</p>",
        "variables": { "name": { "default": "you" } },
    })
}

fn variables() -> Value {
    json!({ "name": "Ada", "order": { "id": 7 } })
}

/// A send with the template, without subject and bodies.
fn templated(name: &str, variables: Value) -> Value {
    json!({
        "from": "agent@example.com", "to": ["user@example.com"],
        "template": { "name": name, "variables": variables },
    })
}

async fn create(world: &World, body: &Value) -> TestResponse {
    world.post("/v1/templates", body).await.expect_status(201)
}

async fn change(world: &World, body: Value) -> TestResponse {
    world.call(patch("/v1/templates/welcome").json(&body)).await.expect_status(200)
}

over_every_engine! {
    async fn a_send_by_template_stores_and_shows_the_rendered_email(world) {
        create(&world, &welcome()).await;
        let sent = world.send("k", &templated("welcome", json!({ "name": "<Ada>", "order": { "id": 7 } }))).await.expect_status(202);

        let email = world.email(&sent.string_field("id")).await;
        assert_eq!((&email["subject"], &email["template"]), (&json!("Hello <Ada>"), &json!({ "name": "welcome", "version": 1 })));
        assert_eq!(email["html"], "<p>Dear &lt;Ada&gt;, order 7.</p>", "{email}");
        assert_eq!(email["text"], "Dear <Ada>, order 7.");
    }

    async fn a_retry_after_the_template_changed_is_answered_with_the_first_wording(world) {
        create(&world, &welcome()).await;
        let mail = templated("welcome", variables());
        let first = world.send("k", &mail).await.expect_status(202).string_field("id");

        assert_eq!(change(&world, json!({ "subject": "Welcome {{ name }} {{ surname }}" })).await["version"], 2);
        let changed = world.send("k", &mail).await.expect_status(200);
        let mut pinned = mail.clone();
        pinned["template"]["version"] = json!(2);
        let pinned = world.send("k", &pinned).await.expect_status(200);
        world.call(delete("/v1/templates/welcome")).await.expect_status(200);
        let removed = world.send("k", &mail).await.expect_status(200);

        for retry in [changed, pinned, removed] {
            assert!(retry.is_replay());
            assert_eq!((retry.string_field("id"), &retry["dedupe"]["payload_differs"]), (first.clone(), &json!(false)));
        }
        assert_eq!(world.email_count().await, 1);
        let email = world.email(&first).await;
        assert_eq!((&email["subject"], &email["template"]["version"]), (&json!("Hello Ada"), &json!(1)));
    }

    async fn other_variables_under_the_same_key_are_a_mismatch(world) {
        create(&world, &welcome()).await;
        create(&world, &json!({ "name": "other", "subject": "Hello {{ name }}", "text": "{{ order.id }}" })).await;
        world.send("k", &templated("welcome", variables())).await.expect_status(202);

        for other in [
            templated("welcome", json!({ "name": "Bob", "order": { "id": 7 } })),
            templated("welcome", json!({ "name": "Ada", "order": { "id": 8 } })),
            templated("other", variables()),
        ] {
            let refused = world.send("k", &other).await.expect_problem(422, "key_mismatch");
            assert_eq!(refused["differing_fields"], json!(["template"]), "{}", refused.text);
        }
        let plain = mail_with(json!({ "subject": "Hello Ada" }));
        let refused = world.send("k", &plain).await.expect_problem(422, "key_mismatch");
        assert_eq!(refused["differing_fields"], json!(["subject", "text", "template"]), "{}", refused.text);
        assert_eq!(world.email_count().await, 1);
    }

    async fn a_missing_variable_is_named_and_nothing_is_stored(world) {
        create(&world, &welcome()).await;

        let refused = world.send("k", &templated("welcome", json!({ "name": "Ada" }))).await.expect_problem(422, "template_error");
        assert_eq!((&refused["part"], &refused["line"], &refused["variable"]), (&json!("html"), &json!(1), &json!("order")), "{}", refused.text);
        for (template, field) in [("missing", "template.name"), ("wel come", "template.name")] {
            let answer = world.send("k", &templated(template, json!({}))).await;
            assert_eq!((answer.status, &answer["field"]), (422, &json!(field)), "{}", answer.text);
        }
        let mut version = templated("welcome", variables());
        version["template"]["version"] = json!(2);
        world.send("k", &version).await.expect_problem(422, "template_error");

        assert_eq!(world.email_count().await, 0);
        assert_eq!(world.get("/v1/keys/k").await.status, 404, "the key was bound");
        // The key is free for the corrected call.
        world.send("k", &templated("welcome", variables())).await.expect_status(202);
    }

    async fn a_batch_takes_templates_and_its_retry_sends_nothing(world) {
        create(&world, &welcome()).await;
        let items = json!([templated("welcome", variables()), mail_with(json!({ "to": "b@example.com" }))]);
        let batch = |items: &Value| post("/v1/emails/batch").key("b").json(items);
        let first = world.call(batch(&items)).await.expect_status(202);
        change(&world, json!({ "subject": "{{ name }} {{ surname }}" })).await;

        let retried = world.call(batch(&items)).await.expect_status(200);

        assert_eq!(retried["data"][0]["id"], first["data"][0]["id"], "{}", retried.text);
        assert_eq!((retried["errors"].as_array().unwrap().len(), world.email_count().await), (0, 2));
        let bad = json!([templated("welcome", json!({}))]);
        let refused = world.call(post("/v1/emails/batch").key("c").json(&bad)).await.expect_problem(422, "template_error");
        assert_eq!(refused["index"], 0, "{}", refused.text);
    }

    async fn a_template_is_created_read_changed_and_removed(world) {
        let created = create(&world, &welcome()).await;
        assert_eq!((&created["version"], &created["text"]), (&json!(1), &Value::Null));
        assert_eq!(created["variables"], json!({ "name": { "default": "you" }, "order": {} }), "{}", created.text);
        world.post("/v1/templates", &welcome()).await.expect_problem(409, "name_taken");

        let changed = change(&world, json!({ "html": "<p>{{ name }}</p>", "text": "Hi {{ name }}" })).await;
        assert_eq!((&changed["version"], &changed["variables"]), (&json!(2), &json!({ "name": { "default": "you" } })));
        let same = change(&world, json!({ "text": "Hi {{ name }}" })).await;
        assert_eq!(same["version"], 2, "a change that changes nothing adds no version");
        let stale = patch("/v1/templates/welcome").json(&json!({ "version": 1, "subject": "x" }));
        world.call(stale).await.expect_problem(409, "stale_rev");

        let newest = world.get("/v1/templates/welcome").await.expect_status(200);
        assert_eq!((&newest["version"], newest["versions"].as_array().unwrap().len()), (&json!(2), 2));
        let by_id = world.get(&format!("/v1/templates/{}", created.string_field("id"))).await.expect_status(200);
        assert_eq!(by_id["name"], "welcome");
        let first = world.get("/v1/templates/welcome?version=1").await.expect_status(200);
        assert_eq!((&first["version"], &first["html"]), (&json!(1), &welcome()["html"]));
        world.get("/v1/templates/welcome?version=3").await.expect_problem(404, "not_found");
        world.get("/v1/templates/welcome?version=x").await.expect_problem(400, "invalid_query");

        let listed = world.get("/v1/templates").await.expect_status(200).rows();
        assert_eq!((listed.len(), &listed[0]["version"]), (1, &json!(2)));
        world.call(delete("/v1/templates/welcome?version=2")).await.expect_problem(400, "invalid_query");
        world.call(delete("/v1/templates/welcome?version=1")).await.expect_status(200);
        world.get("/v1/templates/welcome?version=1").await.expect_problem(404, "not_found");
        world.call(delete("/v1/templates/welcome")).await.expect_status(200);
        world.get("/v1/templates/welcome").await.expect_problem(404, "not_found");
    }

    async fn a_template_is_created_once_under_a_key(world) {
        let call = |body: &Value| post("/v1/templates").key("create").json(body);
        let first = world.call(call(&welcome())).await.expect_status(201).string_field("id");
        let again = world.call(call(&welcome())).await.expect_status(200);
        assert!(again.is_replay() && again.string_field("id") == first);
        let other = json!({ "name": "other", "subject": "s", "text": "t" });
        world.call(call(&other)).await.expect_problem(422, "key_mismatch");
    }

    async fn versions_can_be_pinned(world) {
        create(&world, &welcome()).await;
        change(&world, json!({ "subject": "Welcome {{ name }}" })).await;
        let send = async |key: &str, version: Value| {
            let mut mail = templated("welcome", variables());
            mail["template"]["version"] = version;
            world.email(&world.send(key, &mail).await.expect_status(202).string_field("id")).await["subject"].clone()
        };
        assert_eq!(send("1", json!(1)).await, "Hello Ada");
        assert_eq!(send("2", json!(2)).await, "Welcome Ada");
        assert_eq!(send("3", Value::Null).await, "Welcome Ada");
    }

    async fn a_template_and_a_body_exclude_each_other(world) {
        create(&world, &welcome()).await;
        for field in ["subject", "text", "html"] {
            let mut mail = templated("welcome", variables());
            mail[field] = json!("x");
            let refused = world.send("k", &mail).await.expect_problem(422, "invalid_field");
            assert_eq!(refused["field"], "template", "{}", refused.text);
        }
        let mut unknown = templated("welcome", variables());
        unknown["template"]["vars"] = json!({});
        world.send("k", &unknown).await.expect_problem(400, "unknown_field");
    }

    async fn defaults_and_nulls_fill_in_missing_values(world) {
        create(&world, &welcome()).await;
        let id = world.send("k", &templated("welcome", json!({ "name": null, "order": { "id": 1 } }))).await.expect_status(202).string_field("id");
        assert_eq!(world.email(&id).await["subject"], "Hello you");
        // A variable that is null counts as absent.
        world.send("k", &templated("welcome", json!({ "order": { "id": 1 } }))).await.expect_status(200);
    }

    async fn a_preview_and_a_validation_store_nothing(world) {
        create(&world, &welcome()).await;
        let call = async |what: &str, body: Value| world.post(&format!("/v1/templates/welcome/{what}"), &body).await;

        let preview = call("preview", json!({ "variables": variables() })).await.expect_status(200);
        assert_eq!((&preview["subject"], &preview["text"]), (&json!("Hello Ada"), &json!("Dear Ada, order 7.")));
        call("preview", json!({})).await.expect_problem(422, "template_error");
        let valid = call("validate", json!({})).await.expect_status(200);
        assert_eq!((&valid["valid"], &valid["missing"]), (&json!(true), &json!([])), "{}", valid.text);
        let missing = call("validate", json!({ "variables": { "nam": "x" } })).await.expect_status(200);
        assert_eq!((&missing["valid"], &missing["missing"], &missing["unused"]), (&json!(false), &json!(["order"]), &json!(["nam"])));
        let broken = call("validate", json!({ "subject": "{{ x", "text": "a\n{% include 'x' %}" })).await.expect_status(200);
        let errors = broken["errors"].as_array().unwrap();
        assert_eq!((&broken["valid"], errors.len(), &errors[1]["line"]), (&json!(false), 2, &json!(2)), "{}", broken.text);

        assert_eq!(world.get("/v1/templates/welcome").await["version"], 1);
        assert_eq!(world.email_count().await, 0);
    }

    async fn a_template_that_does_not_compile_is_refused_with_its_line(world) {
        for (subject, text) in [("{{ x", "t"), ("s", "{% for x in y %}"), ("s", "{{ a|nope }}"), ("s", "{% include 'x' %}")] {
            let body = json!({ "name": "broken", "subject": subject, "text": text });
            let refused = world.post("/v1/templates", &body).await.expect_problem(422, "template_error");
            assert_eq!(refused["line"], 1, "{}", refused.text);
        }
        for (name, subject, text) in [("a b", "s", "t"), ("a", "s\nBcc: x", "t"), ("a", "s", "")] {
            let body = json!({ "name": name, "subject": subject, "text": text });
            world.post("/v1/templates", &body).await.expect_problem(422, "invalid_field");
        }
        create(&world, &welcome()).await;
        let broken = patch("/v1/templates/welcome").json(&json!({ "html": "{{" }));
        world.call(broken).await.expect_problem(422, "template_error");
        assert_eq!(world.get("/v1/templates/welcome").await["version"], 1);
    }

    async fn limits_are_enforced(world) {
        let large = json!({ "name": "large", "subject": "s", "text": "x".repeat(limits::TEMPLATE_BYTES) });
        world.post("/v1/templates", &large).await.expect_problem(422, "invalid_field");
        create(&world, &welcome()).await;
        let heavy = templated("welcome", json!({ "name": "x".repeat(limits::TEMPLATE_BYTES) }));
        let refused = world.send("k", &heavy).await.expect_problem(422, "invalid_field");
        assert_eq!(refused["field"], "template.variables");

        for version in 2..=limits::TEMPLATE_VERSIONS {
            change(&world, json!({ "subject": format!("v{version}") })).await;
        }
        let more = || patch("/v1/templates/welcome").json(&json!({ "subject": "more" }));
        let refused = world.call(more()).await.expect_problem(422, "invalid_field");
        assert!(refused.string_field("detail").contains("100 versions"), "{}", refused.text);
        world.call(delete("/v1/templates/welcome?version=1")).await.expect_status(200);
        assert_eq!(world.call(more()).await.expect_status(200)["version"], 101);
    }

    async fn hostile_templates_and_variables_end_fast(world) {
        let hostile = ["{{ \"x\" * 10**9 }}".to_owned(), "{% for a in b recursive %}{{ loop(a) }}{% endfor %}".into(),
            "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".into(), format!("{{{{ {}1{} }}}}", "(".repeat(50_000), ")".repeat(50_000))];
        for text in hostile {
            let started = Instant::now();
            let body = json!({ "name": "hostile", "subject": "s", "text": text });
            world.post("/v1/templates", &body).await.expect_problem(422, "template_error");
            assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        }
        let nested = "{% for a in l %}{% for b in l %}{% for c in l %}{{ x }}{% endfor %}{% endfor %}{% endfor %}";
        create(&world, &json!({ "name": "nested", "subject": "s", "text": nested })).await;
        let started = Instant::now();
        for x in ["", "long long long long long long"] {
            let list: Vec<u32> = (0..2_000).collect();
            world.send("k", &templated("nested", json!({ "l": list, "x": x }))).await.expect_problem(422, "template_error");
        }
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        assert_eq!(world.email_count().await, 0);
    }

    async fn a_variable_cannot_add_a_header(world) {
        create(&world, &welcome()).await;
        let injected = templated("welcome", json!({ "name": "Ada\r\nBcc: eve@example.com", "order": { "id": 1 } }));
        let refused = world.send("k", &injected).await.expect_problem(422, "template_error");
        assert_eq!((&refused["part"], &refused["variable"]), (&json!("subject"), &json!("name")), "{}", refused.text);
        assert_eq!(world.email_count().await, 0);
    }

    async fn guards_see_the_rendered_email(world) {
        create(&world, &welcome()).await;
        let rule = json!({
            "name": "greetings", "direction": "outbound",
            "match": { "operator": "all", "conditions": [{ "field": "subject", "operator": "contains", "value": "Hello Ada" }] },
            "actions": [{ "type": "approve" }],
        });
        world.post("/v1/rules", &rule).await.expect_status(201);
        let held = world.send("k", &templated("welcome", variables())).await.expect_status(202);
        assert_eq!((&held["state"], &held["guard"]), (&json!("held"), &json!("approval")), "{}", held.text);
        let open = world.get("/v1/escalations").await.expect_status(200).ids().remove(0);
        let shown = world.get(&format!("/v1/escalations/{open}")).await.expect_status(200);
        assert!(shown.text.contains("Hello Ada") && shown.text.contains("Dear Ada, order 7."), "{}", shown.text);
        let bob = templated("welcome", json!({ "name": "Bob", "order": { "id": 7 } }));
        assert_ne!(world.send("b", &bob).await.expect_status(202)["state"], "held");

        // The content guard compares the wording, whoever wrote it.
        let plain = mail_with(json!({ "subject": "Hello Bob", "text": "Dear Bob, order 7." }));
        let look_alike = world.send_without_key(&plain).await.expect_status(202);
        assert_eq!(look_alike["guard"], "looks_duplicate", "{}", look_alike.text);

        let simulated = world.post("/v1/policy/simulate", &templated("welcome", variables())).await.expect_status(200);
        assert_eq!(simulated["would"], "hold", "{}", simulated.text);
        let refused = world.post("/v1/policy/simulate", &templated("welcome", json!({}))).await.expect_status(200);
        assert_eq!(refused["would"], "refuse", "{}", refused.text);
    }

    async fn an_edited_email_is_the_persons_wording(world) {
        create(&world, &welcome()).await;
        let rule = json!({
            "name": "all", "direction": "outbound",
            "match": { "operator": "all", "conditions": [{ "field": "subject", "operator": "contains", "value": "Hello" }] },
            "actions": [{ "type": "approve" }],
        });
        world.post("/v1/rules", &rule).await.expect_status(201);
        let held = world.send("k", &templated("welcome", variables())).await.expect_status(202).string_field("id");
        let open = world.get("/v1/escalations").await.expect_status(200).ids().remove(0);
        let open = world.get(&format!("/v1/escalations/{open}")).await.expect_status(200);
        let edit = json!({ "as": "edit", "rev": open["rev"], "edit": { "subject": "Good morning" }, "digest": open["email"]["digest"] });
        let path = format!("/v1/escalations/{}/resolve", open.string_field("id"));
        world.post(&path, &edit).await.expect_status(200);
        let next = world.email(&held).await["resent_as"].as_str().unwrap().to_owned();
        let edited = world.email(&next).await;
        assert_eq!((&edited["subject"], edited.get("template")), (&json!("Good morning"), None), "{edited}");
        assert_eq!(edited["text"], "Dear Ada, order 7.");
    }

    async fn a_key_without_the_scope_cannot_change_templates(world) {
        create(&world, &welcome()).await;
        let key = world.create_api_key(&json!({ "name": "agent", "scopes": ["send", "read"] })).await;
        for call in [
            post("/v1/templates").json(&welcome()),
            patch("/v1/templates/welcome").json(&json!({ "subject": "x" })),
            delete("/v1/templates/welcome"),
        ] {
            world.call(call.bearer(&key)).await.expect_problem(403, "wrong_scope");
        }
        world.call(get("/v1/templates/welcome").bearer(&key)).await.expect_status(200);
        let send = post("/v1/emails").key("k").json(&templated("welcome", variables()));
        world.call(send.bearer(&key)).await.expect_status(202);
    }

    async fn templates_of_another_team_are_not_used(world) {
        create(&world, &welcome()).await;
        let other = world.create_team("other").await;
        world.call(get("/v1/templates/welcome").bearer(&other)).await.expect_problem(404, "not_found");
        let send = post("/v1/emails").key("k").json(&templated("welcome", variables()));
        world.call(send.bearer(&other)).await.expect_problem(422, "template_error");
        world.call(post("/v1/templates").json(&welcome()).bearer(&other)).await.expect_status(201);
    }
}
