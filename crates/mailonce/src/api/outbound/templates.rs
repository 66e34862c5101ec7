//! Templates: stored wording of emails, in versions.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    outbound::template::{Template, TemplateSource, TemplateVariable},
    problem::Problem,
};
use mailonce_engine::outbound::templates::{RenderedTemplate, TemplateCheck, TemplateError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::pagination::{PageQuery, created_response},
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        json::{OrderedMap, StrictObject},
        params::{PathParam, QueryParams},
    },
};

/// A variable of a template.
#[derive(Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TemplateVariableBody {
    /// The value when a send gives none. A variable without a default is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    default: Option<Value>,
}

/// Variables as a request declares them.
type VariableBodies = OrderedMap<StrictObject<TemplateVariableBody>>;

fn parse_variables(bodies: VariableBodies) -> BTreeMap<String, TemplateVariable> {
    let variable = |StrictObject(body): StrictObject<TemplateVariableBody>| TemplateVariable { default: body.default };
    bodies.0.into_iter().map(|(name, body)| (name, variable(body))).collect()
}

/// A template to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTemplateBody {
    /// Letters, digits, `-`, `_` and `.`, such as `order-confirmation`.
    name: String,
    /// Subject, such as `Order {{ order_id }}`.
    subject: String,
    /// Plain text body. Derived from `html` when absent.
    #[serde(default)]
    text: Option<String>,
    /// HTML body. Values are escaped.
    #[serde(default)]
    html: Option<String>,
    /// Default values, by variable. Variables that the template uses are added.
    #[serde(default)]
    #[schema(value_type = Option<BTreeMap<String, TemplateVariableBody>>)]
    variables: Option<VariableBodies>,
}

/// Fields of a template to change. Absent fields keep their value; an empty `text` or `html` is removed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TemplatePatchBody {
    /// The version that you read; the call is refused if there is a newer one.
    #[serde(default)]
    version: Option<u32>,
    #[serde(default)]
    subject: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    html: Option<String>,
    /// Replaces all default values.
    #[serde(default)]
    #[schema(value_type = Option<BTreeMap<String, TemplateVariableBody>>)]
    variables: Option<VariableBodies>,
}

/// Wording that replaces that of a template.
#[derive(Clone)]
struct WordingChange {
    subject: Option<String>,
    text: Option<String>,
    html: Option<String>,
    variables: Option<BTreeMap<String, TemplateVariable>>,
}

impl WordingChange {
    fn apply(&self, source: &mut TemplateSource) {
        let part = |new: &Option<String>, old: &mut Option<String>| {
            if let Some(new) = new {
                *old = Some(new.clone()).filter(|text| !text.is_empty());
            }
        };
        part(&self.text, &mut source.text);
        part(&self.html, &mut source.html);
        if let Some(subject) = &self.subject {
            source.subject.clone_from(subject);
        }
        if let Some(variables) = &self.variables {
            source.variables.clone_from(variables);
        }
    }
}

/// Variables to render a template with.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PreviewBody {
    /// The version; the newest by default.
    #[serde(default)]
    version: Option<u32>,
    /// Values, by variable.
    #[serde(default)]
    #[schema(value_type = Option<BTreeMap<String, Value>>)]
    variables: Option<Map<String, Value>>,
}

/// What to check. Absent wording is that of the template.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ValidateBody {
    /// The version; the newest by default.
    #[serde(default)]
    version: Option<u32>,
    #[serde(default)]
    subject: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    html: Option<String>,
    /// Values, by variable. Without them, only the syntax is checked.
    #[serde(default)]
    #[schema(value_type = Option<BTreeMap<String, Value>>)]
    variables: Option<Map<String, Value>>,
}

/// A version of a template.
#[derive(Serialize, ToSchema)]
pub(crate) struct TemplateBody {
    id: String,
    name: String,
    /// From 1. Each change adds a version.
    version: u32,
    subject: String,
    text: Option<String>,
    html: Option<String>,
    /// The variables that it uses or declares. Those without a default are required.
    variables: BTreeMap<String, TemplateVariableBody>,
    created_at: String,
    /// When this version was created.
    updated_at: String,
}

impl From<Template> for TemplateBody {
    fn from(template: Template) -> Self {
        let Template { id, name, version, created_at, updated_at, source, .. } = template;
        Self {
            id: id.to_string(),
            name,
            version,
            subject: source.subject,
            text: source.text,
            html: source.html,
            variables: variable_bodies(source.variables),
            created_at: created_at.to_string(),
            updated_at: updated_at.to_string(),
        }
    }
}

fn variable_bodies(variables: BTreeMap<String, TemplateVariable>) -> BTreeMap<String, TemplateVariableBody> {
    variables.into_iter().map(|(name, TemplateVariable { default })| (name, TemplateVariableBody { default })).collect()
}

/// A template with the list of its versions.
#[derive(Serialize, ToSchema)]
pub(crate) struct TemplateDetailBody {
    #[serde(flatten)]
    template: TemplateBody,
    /// All versions, newest first.
    versions: Vec<TemplateVersionBody>,
}

/// The number of a version.
#[derive(Serialize, ToSchema)]
pub(crate) struct TemplateVersionBody {
    version: u32,
    created_at: String,
}

/// A page of templates in their newest version, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct TemplatePage {
    data: Vec<TemplateBody>,
    next_cursor: Option<String>,
}

/// What an email with the template says.
#[derive(Serialize, ToSchema)]
pub(crate) struct TemplatePreviewBody {
    name: String,
    version: u32,
    subject: String,
    text: Option<String>,
    html: Option<String>,
}

/// What a validation found.
#[derive(Serialize, ToSchema)]
pub(crate) struct TemplateCheckBody {
    /// Whether the template can be rendered; without `variables` in the call, whether it compiles.
    valid: bool,
    errors: Vec<TemplateErrorBody>,
    /// The variables that it uses or declares.
    variables: BTreeMap<String, TemplateVariableBody>,
    /// Variables without a default that the call gives no value for. A template may do without them in an `if`.
    missing: Vec<String>,
    /// Variables of the call that the template does not use.
    unused: Vec<String>,
}

/// An error in a template.
#[derive(Serialize, ToSchema)]
pub(crate) struct TemplateErrorBody {
    /// `subject`, `text` or `html`.
    part: &'static str,
    line: Option<usize>,
    variable: Option<String>,
    message: String,
}

impl From<TemplateCheck> for TemplateCheckBody {
    fn from(check: TemplateCheck) -> Self {
        let error = |error: TemplateError| TemplateErrorBody {
            part: error.part.as_str(),
            line: error.line,
            variable: error.variable,
            message: error.message,
        };
        Self {
            valid: check.errors.is_empty(),
            errors: check.errors.into_iter().map(error).collect(),
            variables: variable_bodies(check.variables),
            missing: check.missing,
            unused: check.unused,
        }
    }
}

/// The version of a template.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct VersionQuery {
    /// Number of a version.
    version: Option<String>,
}

impl VersionQuery {
    fn parse(&self) -> Result<Option<u32>, Problem> {
        let parse = |text: &String| text.parse().ok().filter(|version| *version > 0);
        let invalid = || Problem::invalid_query("version", "version must be the number of a version, from 1");
        self.version.as_ref().map(|text| parse(text).ok_or_else(invalid)).transpose()
    }
}

/// Create a template.
///
/// Templates use the syntax of Jinja: `{{ name }}`, `{% if %}`, `{% for %}`, `{% set %}` and filters.
#[utoipa::path(post, path = "/v1/templates", operation_id = "create_template", tag = "templates", request_body = NewTemplateBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 201, description = "Created in version 1", body = TemplateBody),
        (status = 200, description = "Created before with this idempotency key", body = TemplateBody),
        (status = 409, description = "The name is taken", body = crate::http::problem::ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The template does not compile", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn create(State(app): State<App>, auth: AuthedRequest, body: RawBody) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let NewTemplateBody { name, subject, text, html, variables } = body.parse()?;
    let keyed_call = auth.keyed_call("templates", "", &body.canonical()?);
    let part = |text: Option<String>| text.filter(|text| !text.is_empty());
    let variables = parse_variables(variables.unwrap_or_default());
    let source = TemplateSource { subject, text: part(text), html: part(html), variables };
    let created = app.engine.outbound.templates.create_template(&auth.caller, name, source, keyed_call).await?;
    Ok(created_response(created.is_new, Json(TemplateBody::from(created.value))))
}

/// List templates, newest first.
#[utoipa::path(get, path = "/v1/templates", operation_id = "list_templates", tag = "templates", params(PageQuery),
    responses((status = 200, description = "A page of results", body = TemplatePage)))]
pub(crate) async fn list(State(app): State<App>, auth: AuthedRequest, query: QueryParams<PageQuery>) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let (before, limit) = query.0.parse()?;
    let page = app.engine.outbound.templates.templates(&auth.caller, before, limit).await?;
    let data = page.rows.into_iter().map(TemplateBody::from).collect();
    Ok(Json(TemplatePage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// Read a template by its name or id, in its newest version or in another one.
#[utoipa::path(get, path = "/v1/templates/{name}", operation_id = "read_template", tag = "templates", params(("name" = String, Path), VersionQuery),
    responses((status = 200, description = "The template", body = TemplateDetailBody)))]
pub(crate) async fn read(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(name): PathParam,
    query: QueryParams<VersionQuery>,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let template = app.engine.outbound.templates.template(&auth.caller, &name, query.0.parse()?).await?;
    let versions = app.engine.outbound.templates.template_versions(&auth.caller, template.id).await?;
    let version =
        |(version, at): (u32, mailonce_core::time::Time)| TemplateVersionBody { version, created_at: at.to_string() };
    let versions = versions.into_iter().map(version).collect();
    Ok(Json(TemplateDetailBody { template: template.into(), versions }).into_response())
}

/// Change a template, which adds a version.
///
/// Emails that were sent keep their wording. A call that changes nothing adds no version.
#[utoipa::path(patch, path = "/v1/templates/{name}", operation_id = "update_template", tag = "templates", params(("name" = String, Path)), request_body = TemplatePatchBody,
    responses((status = 200, description = "The new version", body = TemplateBody),
        (status = 409, description = "The object changed since you read it", body = crate::http::problem::ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The template does not compile", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn change(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(name): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let TemplatePatchBody { version, subject, text, html, variables } = body.parse()?;
    let change = WordingChange { subject, text, html, variables: variables.map(parse_variables) };
    let apply = |source: &mut TemplateSource| change.apply(source);
    let template = app.engine.outbound.templates.change_template(&auth.caller, &name, version, apply).await?;
    Ok(Json(TemplateBody::from(template)).into_response())
}

/// Remove a template with all its versions, or one old version.
#[utoipa::path(delete, path = "/v1/templates/{name}", operation_id = "delete_template", tag = "templates", params(("name" = String, Path), VersionQuery),
    responses((status = 200, description = "The removed object", body = TemplateBody)))]
pub(crate) async fn remove(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(name): PathParam,
    query: QueryParams<VersionQuery>,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let template = app.engine.outbound.templates.remove_template(&auth.caller, &name, query.0.parse()?).await?;
    Ok(Json(TemplateBody::from(template)).into_response())
}

/// Show what an email with this template would say. Nothing is stored or sent.
#[utoipa::path(post, path = "/v1/templates/{name}/preview", operation_id = "preview_template", tag = "templates", params(("name" = String, Path)), request_body = Option<PreviewBody>,
    responses((status = 200, description = "The rendered email", body = TemplatePreviewBody),
        (status = 422, description = "The template cannot be rendered with these variables", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn preview(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(name): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let PreviewBody { version, variables } = body.parse_or_empty()?;
    let wanted = (name.as_str(), version);
    let (template, rendered) =
        app.engine.outbound.templates.preview_template(&auth.caller, wanted, variables.unwrap_or_default()).await?;
    let RenderedTemplate { subject, text, html } = rendered;
    let body = TemplatePreviewBody { name: template.name, version: template.version, subject, text, html };
    Ok(Json(body).into_response())
}

/// Check a template, or changes that you have not saved yet. Nothing is stored or sent.
///
/// Errors are part of the answer, so the status is `200` for an invalid template too.
#[utoipa::path(post, path = "/v1/templates/{name}/validate", operation_id = "validate_template", tag = "templates", params(("name" = String, Path)), request_body = Option<ValidateBody>,
    responses((status = 200, description = "What was found", body = TemplateCheckBody)))]
pub(crate) async fn validate(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(name): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let ValidateBody { version, subject, text, html, variables } = body.parse_or_empty()?;
    let change = WordingChange { subject, text, html, variables: None };
    let apply = |source: &mut TemplateSource| change.apply(source);
    let wanted = (name.as_str(), version);
    let check = app.engine.outbound.templates.validate_template(&auth.caller, wanted, apply, variables).await?;
    Ok(Json(TemplateCheckBody::from(check)).into_response())
}
