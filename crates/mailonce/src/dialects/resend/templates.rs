//! The Resend routes for templates. They are native templates: `alias` is the native name, every version is published
//! at once, and `{{{NAME}}}` is translated to the native syntax and back.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    outbound::template::{Template, TemplateSource, TemplateUse, TemplateVariable, name_error},
    problem::{Code, Problem},
};
use mailonce_engine::Caller;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use uuid::Uuid;

use super::{
    DialectPath, DialectQuery, OnePathParam, PageParams, ResendRequest, ResendRequestBody, ResendResult,
    deleted_response, json, list_response, object_response,
};
use crate::{
    dialects::{field_problem, resend::errors::missing_field},
    http::{app::App, json::UnsupportedField},
};

/// The most copies of one template.
const MAX_COPIES: usize = 100;
/// How many templates are read at a time for a list.
const READ_PAGE: usize = 100;

/// The template of a send.
#[derive(Deserialize)]
pub(super) struct TemplateUseBody {
    id: String,
    #[serde(default)]
    variables: Option<Map<String, Value>>,
}

impl From<TemplateUseBody> for TemplateUse {
    fn from(body: TemplateUseBody) -> Self {
        Self { name: body.id, version: None, variables: body.variables.unwrap_or_default() }
    }
}

#[derive(Deserialize)]
struct VariableBody {
    key: String,
    #[serde(default)]
    fallback_value: Option<Value>,
}

/// A template to create, or fields to change.
#[derive(Deserialize)]
struct WordingBody {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    alias: Option<String>,
    #[serde(default)]
    subject: Option<String>,
    #[serde(default)]
    html: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    from: UnsupportedField,
    #[serde(default)]
    reply_to: UnsupportedField,
    #[serde(default)]
    variables: Option<Vec<VariableBody>>,
}

impl WordingBody {
    /// Sender and reply address would silently be lost, so they are refused.
    fn check(&self) -> Result<(), Problem> {
        let unsupported = [("from", self.from.is_given()), ("reply_to", self.reply_to.is_given())];
        match unsupported.into_iter().find(|(_, given)| *given) {
            Some((field, _)) => {
                Err(field_problem(field, format!("Templates do not store `{field}`; send it with each email.")))
            }
            None => Ok(()),
        }
    }

    /// The alias. An empty one is the same as none.
    fn alias(&self) -> Option<&str> {
        self.alias.as_deref().filter(|alias| !alias.is_empty())
    }

    fn apply(&self, source: &mut TemplateSource) {
        let native_tags = NativeTags::of(source);
        let part = |text: &String| Some(to_native(text, &native_tags)).filter(|text| !text.is_empty());
        if let Some(subject) = &self.subject {
            source.subject = to_native(subject, &native_tags);
        }
        if let Some(html) = &self.html {
            source.html = part(html);
        }
        if let Some(text) = &self.text {
            source.text = part(text);
        }
        if let Some(variables) = &self.variables {
            let declared = |body: &VariableBody| {
                let default = body.fallback_value.clone().filter(|value| !value.is_null());
                (body.key.clone(), TemplateVariable { default })
            };
            source.variables = variables.iter().map(declared).collect();
        }
    }
}

/// The native name of a new template: its alias, or its name in lower case with `-` between the words.
fn native_name(name: Option<&str>, alias: Option<&str>) -> Result<String, Problem> {
    if let Some(alias) = alias {
        return match name_error(alias) {
            None => Ok(alias.to_owned()),
            Some(rule) => Err(field_problem("alias", format!("The `alias` {rule}."))),
        };
    }
    let name = name.ok_or_else(|| missing_field("name"))?;
    let words = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    let slug = words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-");
    match name_error(&slug) {
        None => Ok(slug),
        Some(_) => Err(field_problem("name", "The `name` needs letters or digits; or send an `alias`.")),
    }
}

#[derive(Serialize)]
struct TemplateVariableBody {
    key: String,
    #[serde(rename = "type")]
    kind: &'static str,
    fallback_value: Option<Value>,
    created_at: String,
    updated_at: String,
}

#[derive(Serialize)]
struct TemplateBody {
    object: &'static str,
    id: String,
    name: String,
    alias: String,
    subject: String,
    html: Option<String>,
    text: Option<String>,
    status: &'static str,
    variables: Vec<TemplateVariableBody>,
    from: Option<String>,
    reply_to: Option<Vec<String>>,
    published_at: String,
    created_at: String,
    updated_at: String,
    has_unpublished_versions: bool,
    current_version_id: String,
}

impl From<Template> for TemplateBody {
    fn from(template: Template) -> Self {
        let (created_at, updated_at) = (template.created_at.to_string(), template.updated_at.to_string());
        let variable = |(key, variable): (String, TemplateVariable)| TemplateVariableBody {
            key,
            kind: if variable.default.as_ref().is_some_and(Value::is_number) { "number" } else { "string" },
            fallback_value: variable.default,
            created_at: updated_at.clone(),
            updated_at: updated_at.clone(),
        };
        let source = template.source;
        Self {
            object: "template",
            id: template.id.to_string(),
            name: template.name.clone(),
            alias: template.name,
            subject: to_resend(&source.subject),
            html: source.html.as_deref().map(to_resend),
            text: source.text.as_deref().map(to_resend),
            status: "published",
            variables: source.variables.into_iter().map(variable).collect(),
            from: None,
            reply_to: None,
            published_at: updated_at.clone(),
            created_at,
            current_version_id: format!("{}.{}", template.id, template.version),
            has_unpublished_versions: false,
            updated_at,
        }
    }
}

/// A template in a list, without its wording.
#[derive(Serialize)]
struct TemplateListItem {
    id: Uuid,
    name: String,
    alias: String,
    status: &'static str,
    published_at: String,
    created_at: String,
    updated_at: String,
}

impl From<Template> for TemplateListItem {
    fn from(template: Template) -> Self {
        Self {
            id: template.id,
            name: template.name.clone(),
            alias: template.name,
            status: "published",
            published_at: template.updated_at.to_string(),
            created_at: template.created_at.to_string(),
            updated_at: template.updated_at.to_string(),
        }
    }
}

fn with_dialect_message(problem: Problem) -> Problem {
    match problem.code {
        Code::NotFound => Problem::new(Code::NotFound, "Template not found"),
        _ => problem,
    }
}

async fn find_template(app: &App, caller: &Caller, name: &str) -> Result<Template, Problem> {
    app.engine.outbound.templates.template(caller, name, None).await.map_err(with_dialect_message)
}

/// `POST /templates`.
pub(super) async fn create(State(app): State<App>, auth: ResendRequest, body: ResendRequestBody) -> ResendResult {
    let wording: WordingBody = body.parse()?;
    wording.check()?;
    let name = native_name(wording.name.as_deref(), wording.alias())?;
    if wording.html.is_none() && wording.text.is_none() {
        return Err(missing_field("html").into());
    }
    let mut source = TemplateSource { variables: BTreeMap::new(), ..TemplateSource::default() };
    wording.apply(&mut source);
    let keyed_call = auth.keyed_call("templates", "", &body.canonical()?);
    let created = app.engine.outbound.templates.create_template(&auth.caller, name, source, keyed_call).await?;
    Ok(object_response("template", created.value.id))
}

/// `GET /templates`.
pub(super) async fn list(
    State(app): State<App>,
    auth: ResendRequest,
    DialectQuery(query, ..): PageParams,
) -> ResendResult {
    let page = query.parse()?;
    let (mut all, mut before): (Vec<TemplateListItem>, Option<Uuid>) = Default::default();
    loop {
        let read = app.engine.outbound.templates.templates(&auth.caller, before, READ_PAGE).await?;
        all.extend(read.rows.into_iter().map(TemplateListItem::from));
        before = read.next;
        if before.is_none() {
            break;
        }
    }
    Ok(list_response(page.slice_newest_first(all, |template| template.id), |template| template))
}

/// `GET /templates/{id}`.
pub(super) async fn read(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
) -> ResendResult {
    let template = find_template(&app, &auth.caller, &name).await?;
    Ok(json(StatusCode::OK, &TemplateBody::from(template)))
}

/// `PATCH /templates/{id}`.
pub(super) async fn change(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
    body: ResendRequestBody,
) -> ResendResult {
    let wording: WordingBody = body.parse()?;
    wording.check()?;
    if wording.name.is_some() || wording.alias().is_some() {
        let template = find_template(&app, &auth.caller, &name).await?;
        if native_name(wording.name.as_deref(), wording.alias())? != template.name {
            return Err(field_problem("alias", "A template keeps its `name` and `alias`; duplicate it instead.").into());
        }
    }
    let apply = |source: &mut TemplateSource| wording.apply(source);
    let changed = app.engine.outbound.templates.change_template(&auth.caller, &name, None, apply).await;
    Ok(object_response("template", changed.map_err(with_dialect_message)?.id))
}

/// `POST /templates/{id}/publish`. A version is published as soon as it exists.
pub(super) async fn publish(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
    _: ResendRequestBody,
) -> ResendResult {
    Ok(object_response("template", find_template(&app, &auth.caller, &name).await?.id))
}

/// `POST /templates/{id}/duplicate`.
pub(super) async fn duplicate(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
    body: ResendRequestBody,
) -> ResendResult {
    let template = find_template(&app, &auth.caller, &name).await?;
    let keyed_call = auth.keyed_call("template copies", &template.id.to_string(), &body.canonical()?);
    for copy in 1..=MAX_COPIES {
        let suffix = if copy == 1 { "-copy".to_owned() } else { format!("-copy-{copy}") };
        let copied = (format!("{}{suffix}", template.name), template.source.clone());
        match app.engine.outbound.templates.create_template(&auth.caller, copied.0, copied.1, keyed_call.clone()).await
        {
            Err(problem) if problem.code == Code::NameTaken => {}
            created => return Ok(object_response("template", created?.value.id)),
        }
    }
    Err(field_problem("id", format!("This template has {MAX_COPIES} copies already.")).into())
}

/// `DELETE /templates/{id}`.
pub(super) async fn remove(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
) -> ResendResult {
    let removed = app.engine.outbound.templates.remove_template(&auth.caller, &name, None).await;
    Ok(deleted_response("template", removed.map_err(with_dialect_message)?.id))
}

fn is_variable(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(is_word) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// The pairs of signs around a native tag.
const TAGS: [(&str, &str); 3] = [("{{", "}}"), ("{%", "%}"), ("{#", "#}")];

/// The wording that a template has. A tag of it that Resend does not know is shown as it is, so it stays a tag when it
/// is sent back.
#[derive(Default)]
struct NativeTags(String);

impl NativeTags {
    fn of(source: &TemplateSource) -> Self {
        let parts = [Some(&source.subject), source.text.as_ref(), source.html.as_ref()];
        Self(parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join("\n"))
    }

    /// The native tag that a text begins with, such as `{{ x }}` or `{% if %}`, if the template has the same one.
    fn at_start<'a>(&self, text: &'a str) -> Option<&'a str> {
        let (open, close) = TAGS.into_iter().find(|(open, _)| text.starts_with(open))?;
        let end = text.get(open.len()..)?.find(close)? + open.len() + close.len();
        text.get(..end).filter(|tag| self.0.contains(tag))
    }
}

/// Translates Resend's syntax: `{{{NAME}}}` is a variable, and everything else is text, except for native tags.
fn to_native(text: &str, native_tags: &NativeTags) -> String {
    let (mut native, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(place) = rest.find('{') {
        let (before, found) = rest.split_at(place);
        native.push_str(before);
        let variable = found.strip_prefix("{{{").and_then(|inner| inner.split_once("}}}"));
        if let Some((name, after)) = variable.filter(|(name, _)| is_variable(name.trim())) {
            native.extend(["{{ ", name.trim(), " }}"]);
            rest = after;
        } else if let Some(tag) = native_tags.at_start(found) {
            native.push_str(tag);
            rest = found.get(tag.len()..).unwrap_or_default();
        } else if let Some((sign, _)) = TAGS.into_iter().find(|(sign, _)| found.starts_with(sign)) {
            native.extend(["{{ \"", sign, "\" }}"]);
            rest = found.get(2..).unwrap_or_default();
        } else {
            native.push('{');
            rest = found.get(1..).unwrap_or_default();
        }
    }
    native + rest
}

/// Translates the native syntax back. Native tags that Resend does not know are shown as they are.
fn to_resend(text: &str) -> String {
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, (tag, after))) = rest.split_once("{{ ").and_then(|(a, b)| Some((a, b.split_once(" }}")?))) {
        shown.push_str(before);
        match tag {
            name if is_variable(name) => shown.extend(["{{{", name, "}}}"]),
            "\"{{\"" | "\"{%\"" | "\"{#\"" => shown.push_str(tag.trim_matches('"')),
            other => shown.extend(["{{ ", other, " }}"]),
        }
        rest = after;
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_translated_and_everything_else_is_text() {
        for (resend, native) in [
            ("Hi {{{NAME}}}!", "Hi {{ NAME }}!"),
            ("{{{ a_1 }}}{{{B}}}", "{{ a_1 }}{{ B }}"),
            ("p{color:red} {x} {", "p{color:red} {x} {"),
            ("{{ x }}{% if %}{# #}", "{{ \"{{\" }} x }}{{ \"{%\" }} if %}{{ \"{#\" }} #}"),
            ("{{{not a name}}}", "{{ \"{{\" }}{not a name}}}"),
            ("{{{OPEN", "{{ \"{{\" }}{OPEN"),
        ] {
            assert_eq!(to_native(resend, &NativeTags::default()), native);
            assert_eq!(to_resend(native), resend.replace("{{{ a_1 }}}", "{{{a_1}}}"));
        }
    }

    #[test]
    fn what_a_native_template_shows_can_be_sent_back() {
        let native =
            "{% if user.vip %}{# note #}Dear {{ user.name|upper }}, {{ order }} {{ \"{{\" }} raw }}{% endif %}";
        let source = TemplateSource { html: Some(native.into()), ..TemplateSource::default() };
        let native_tags = NativeTags::of(&source);
        assert_eq!(to_native(&to_resend(native), &native_tags), native);
        let corrected = to_resend(native).replace("Dear", "Hello {{ user.mail }}");
        let expected = native.replace("Dear", "Hello {{ \"{{\" }} user.mail }}");
        assert_eq!(to_native(&corrected, &native_tags), expected, "tags that the template does not have are text");
    }

    #[test]
    fn a_name_becomes_an_alias() {
        assert_eq!(native_name(Some("Order Confirmation!"), None).unwrap(), "order-confirmation");
        assert_eq!(native_name(Some("x"), Some("my-alias")).unwrap(), "my-alias");
        for (name, alias) in [(Some("é"), None), (None, None), (Some("x"), Some("a b"))] {
            assert!(native_name(name, alias).is_err());
        }
    }
}
