//! The template for any other provider.

use mailonce_core::{
    handoff::{
        capabilities::{PayloadFormat, RecoveryMethod},
        reply::ReplyMeaning,
    },
    outbound::content::{EmailContent, RawContent},
    ports::transport::Transport,
};
use mailonce_sim::sink::http::{HttpSink, ScriptedResponse};
use mailonce_transport::http::{HttpTransportConfig, TransportConfigError, template};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::fixtures::{
    EMAIL, KEY, custom_provider_template, provider_setting, run_attempt, sample_content, sample_email_content,
    sample_mail,
};

fn build_template(config: template::TemplateConfig) -> Result<Arc<dyn Transport>, TransportConfigError> {
    template::transport(
        HttpTransportConfig::new("other"),
        template::TemplateConfig { url: "http://127.0.0.1:1/send".into(), ..config },
    )
}

fn with_body(body: &str) -> template::TemplateConfig {
    template::TemplateConfig { body: body.into(), ..custom_provider_template() }
}

fn filled_body(body: &str, content: &EmailContent) -> Value {
    serde_json::from_slice(&build_template(with_body(body)).unwrap().freeze(&sample_mail(content)).unwrap()).unwrap()
}

const REQUIRED_FIELDS: &str = r#""r":"{{recipients}}","m":"{{mime_base64}}""#;

#[test]
fn placeholders_become_values_of_their_own_type() {
    let body = r#"{"to": "{{to}}", "cc": ["{{cc}}"], "all": "To: {{to}} ({{id}})", "key": "{{ key }}", "n": 1,
        "from": {"email": "{{from_address}}", "name": "{{from_name}}"}, "html": "{{html}}", R}"#
        .replace('R', REQUIRED_FIELDS);
    let content = EmailContent::validate(RawContent { html: None, ..sample_content() }).unwrap();
    let body = filled_body(&body, &content);
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
    let content = EmailContent::validate(RawContent { subject: hostile.into(), ..sample_content() }).unwrap();
    let body = filled_body(&format!(r#"{{"subject":"Re: {{{{subject}}}}",{REQUIRED_FIELDS}}}"#), &content);
    assert_eq!(body["subject"], format!("Re: {hostile}"));
    assert_eq!(body.get("admin"), None);
}

#[test]
fn content_without_a_placeholder_is_unfit() {
    let content = sample_email_content();
    for (body, missing) in [
        (r#"{"x":"{{subject}}"}"#, "to"),
        (r#"{"x":"{{to}}"}"#, "cc"),
        (r#"{"x":"{{to}} {{cc}}"}"#, "bcc"),
        (r#"{"x":"{{recipients}}"}"#, "reply_to"),
        (r#"{"x":"{{recipients}} {{reply_to}} {{text}}"}"#, "html"),
        (r#"{"x":"{{recipients}} {{reply_to}} {{html}}"}"#, "attachments"),
    ] {
        let unfit = build_template(with_body(body)).unwrap().freeze(&sample_mail(&content)).unwrap_err();
        assert!(unfit.0.ends_with(missing), "{body}: {unfit}");
    }
}

#[test]
fn a_template_that_cannot_work_is_refused_at_once() {
    let usual = custom_provider_template;
    for (config, why) in [
        (with_body("{"), "not JSON"),
        (with_body(r#"{"x":"{{too}}"}"#), "too"),
        (template::TemplateConfig { method: "GET".into(), ..usual() }, "GET"),
        (template::TemplateConfig { key_header: None, ..usual() }, "key"),
        (template::TemplateConfig { accepted_statuses: vec![302], ..usual() }, "accepted"),
        (template::TemplateConfig { duplicate_statuses: vec![200], ..usual() }, "duplicate_statuses"),
    ] {
        let error = build_template(config).err().map(|error| error.0).unwrap_or_default();
        assert!(error.contains(why), "{why}: {error:?}");
    }
}

#[test]
fn capabilities_follow_from_the_template() {
    let usual = build_template(custom_provider_template()).unwrap().capabilities();
    assert_eq!(
        (usual.payload_format, usual.recovery),
        (PayloadFormat::Content, RecoveryMethod::IdempotencyKey { window_ms: 86_400_000 })
    );
    let bytes =
        build_template(template::TemplateConfig { key_window: None, ..with_body(&format!("{{{REQUIRED_FIELDS}}}")) })
            .unwrap()
            .capabilities();
    assert_eq!((bytes.payload_format, bytes.recovery), (PayloadFormat::Mime, RecoveryMethod::None));
}

#[tokio::test]
async fn without_an_id_to_look_for_the_status_counts_but_a_page_does_not() {
    for (act, meaning) in [
        (ScriptedResponse::Normal, ReplyMeaning::Accepted),
        (ScriptedResponse::AcceptThenEmpty, ReplyMeaning::Accepted),
        (ScriptedResponse::CaptivePortal, ReplyMeaning::Unknown),
        (ScriptedResponse::AcceptThenHuge, ReplyMeaning::Unknown),
    ] {
        let sink = HttpSink::start().await.unwrap();
        sink.queue_responses(&[act]);
        let url = format!("{}/other/send", sink.url());
        let config = template::TemplateConfig { url, id_pointer: None, ..custom_provider_template() };
        let transport = template::transport(provider_setting(sink.url()), config).unwrap();
        assert_eq!(run_attempt(&*transport, 1).await.meaning, meaning, "{act:?}");
    }
}
