//! The template for any other provider.

use mailonce_core::{
    content::{Content, RawContent},
    port::transport::{Meaning, Recovery, Transport, Wire},
};
use mailonce_sim::sink::http::{Act, Sink};
use mailonce_transport::http::{BadSetting, Setting, template};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::world::{EMAIL, KEY, attempt, content, mail, raw, setting, template};

fn build(config: template::Config) -> Result<Arc<dyn Transport>, BadSetting> {
    template::transport(Setting::new("other"), template::Config { url: "http://127.0.0.1:1/send".into(), ..config })
}

fn with_body(body: &str) -> template::Config {
    template::Config { body: body.into(), ..template() }
}

fn filled(body: &str, content: &Content) -> Value {
    serde_json::from_slice(&build(with_body(body)).unwrap().freeze(&mail(content)).unwrap()).unwrap()
}

const WHOLE: &str = r#""r":"{{recipients}}","m":"{{mime_base64}}""#;

#[test]
fn placeholders_become_values_of_their_own_type() {
    let body = r#"{"to": "{{to}}", "cc": ["{{cc}}"], "all": "To: {{to}} ({{id}})", "key": "{{ key }}", "n": 1,
        "from": {"email": "{{from_address}}", "name": "{{from_name}}"}, "html": "{{html}}", R}"#
        .replace('R', WHOLE);
    let content = Content::check(RawContent { html: None, ..raw() }).unwrap();
    let body = filled(&body, &content);
    assert_eq!(body["to"], json!(["\"Lovelace, Ada\" <ada@example.org>", "bob@example.org"]));
    assert_eq!(body["cc"], json!([["carol@example.org"]]));
    assert_eq!(body["all"], format!("To: \"Lovelace, Ada\" <ada@example.org>, bob@example.org ({EMAIL})"));
    assert_eq!((&body["key"], &body["n"]), (&json!(KEY.to_string()), &json!(1)));
    assert_eq!(body["from"], json!({"email": "agent@example.com", "name": "Agent"}));
    assert_eq!(body.get("html"), None, "what the mail has not is left out");
}

#[test]
fn a_mail_cannot_write_the_template() {
    let hostile = "\",\"admin\":true,\"x\":\"{{key}}\\";
    let content = Content::check(RawContent { subject: hostile.into(), ..raw() }).unwrap();
    let body = filled(&format!(r#"{{"subject":"Re: {{{{subject}}}}",{WHOLE}}}"#), &content);
    assert_eq!(body["subject"], format!("Re: {hostile}"));
    assert_eq!(body.get("admin"), None);
}

#[test]
fn what_the_template_has_no_place_for_is_unfit() {
    let content = content();
    for (body, missing) in [
        (r#"{"x":"{{subject}}"}"#, "to"),
        (r#"{"x":"{{to}}"}"#, "cc"),
        (r#"{"x":"{{to}} {{cc}}"}"#, "bcc"),
        (r#"{"x":"{{recipients}}"}"#, "reply_to"),
        (r#"{"x":"{{recipients}} {{reply_to}} {{text}}"}"#, "html"),
        (r#"{"x":"{{recipients}} {{reply_to}} {{html}}"}"#, "attachments"),
    ] {
        let unfit = build(with_body(body)).unwrap().freeze(&mail(&content)).unwrap_err();
        assert!(unfit.0.ends_with(missing), "{body}: {unfit}");
    }
}

#[test]
fn a_template_that_cannot_work_is_refused_at_once() {
    let usual = template;
    for (config, why) in [
        (with_body("{"), "no JSON"),
        (with_body(r#"{"x":"{{too}}"}"#), "too"),
        (template::Config { method: "GET".into(), ..usual() }, "GET"),
        (template::Config { key_header: None, ..usual() }, "key"),
        (template::Config { accepted: vec![302], ..usual() }, "accepted"),
        (template::Config { repeated: vec![200], ..usual() }, "repeated"),
    ] {
        let error = build(config).err().map(|error| error.0).unwrap_or_default();
        assert!(error.contains(why), "{why}: {error:?}");
    }
}

#[test]
fn its_nature_follows_from_the_template() {
    let usual = build(template()).unwrap().capability();
    assert_eq!((usual.wire, usual.recovery), (Wire::Content, Recovery::Key { window_ms: 86_400_000 }));
    let bytes = build(template::Config { window: None, ..with_body(&format!("{{{WHOLE}}}")) }).unwrap().capability();
    assert_eq!((bytes.wire, bytes.recovery), (Wire::Mime, Recovery::None));
}

#[tokio::test]
async fn without_an_id_to_look_for_the_status_counts_but_a_page_does_not() {
    for (act, meaning) in [
        (Act::Honest, Meaning::Accepted),
        (Act::TakeThenEmpty, Meaning::Accepted),
        (Act::Portal, Meaning::Unknown),
        (Act::TakeThenHuge, Meaning::Unknown),
    ] {
        let sink = Sink::open().await.unwrap();
        sink.script(&[act]);
        let url = format!("{}/other/send", sink.url());
        let config = template::Config { url, id_pointer: None, ..template() };
        let transport = template::transport(setting(sink.url()), config).unwrap();
        assert_eq!(attempt(&*transport, 1).await.meaning, meaning, "{act:?}");
    }
}
