//! Rules: conditions on inbound or outbound mail, and actions for mail that matches.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    control::rule::{
        ConditionOperator, MatchMode, RuleAction, RuleActionKind, RuleCondition, RuleDefinition, RuleDirection,
        RuleField, RuleMode,
    },
    problem::{Code, Problem},
};
use mailonce_engine::control::rules::RuleView;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    api::pagination::{PageQuery, created_response},
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        json::{check_text, object, object_or_null, objects, objects_or_null},
        params::{PathParam, QueryParams},
    },
};

/// Priority of a rule that is created without one.
const DEFAULT_PRIORITY: i32 = 100;

/// One value, or a list of values.
#[derive(Clone, Deserialize, Serialize, ToSchema)]
#[serde(untagged, expecting = "has a type that this field does not accept")]
pub(crate) enum ConditionValues {
    One(ConditionValue),
    Several(Vec<ConditionValue>),
}

/// A text. Booleans and whole numbers are accepted and stored as text.
#[derive(Clone, Deserialize, Serialize, ToSchema)]
#[serde(untagged, expecting = "has a type that this field does not accept")]
pub(crate) enum ConditionValue {
    Text(String),
    Flag(bool),
    Whole(i64),
}

impl From<ConditionValue> for String {
    fn from(value: ConditionValue) -> Self {
        match value {
            ConditionValue::Text(text) => text,
            ConditionValue::Flag(flag) => flag.to_string(),
            ConditionValue::Whole(number) => number.to_string(),
        }
    }
}

/// A condition of a rule.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConditionBody {
    /// What to compare.
    ///
    /// `from.address from.domain from.tld recipient.address recipient.domain subject header.NAME auth.dmarc`. Outbound
    /// rules also have `recipient.is_new recipient.is_outside has_attachments is_first`, compared with `true` or
    /// `false`.
    field: String,
    /// How to compare: `is is_not contains in_list`.
    operator: String,
    /// A text, or a list of texts with `in_list`. Responses always return text.
    value: ConditionValues,
}

/// When a rule matches.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleMatchBody {
    /// How conditions are combined: `all` (default) or `any`.
    #[serde(default)]
    operator: Option<String>,
    #[serde(deserialize_with = "objects")]
    conditions: Vec<ConditionBody>,
    /// `true`: match only inbound mail with an authenticated sender. Mail that fails authentication never matches a
    /// condition on `from`, unless the rule has the action `block`.
    #[serde(default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    require_auth: Option<bool>,
}

/// What to do with mail that matches.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleActionBody {
    /// `block folder label skip_agent mark_read` for inbound mail; `block approve approve_new_recipients` for outbound
    /// mail.
    #[serde(rename = "type")]
    kind: String,
    /// Name of the folder or label.
    #[serde(default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
}

/// A rule to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRuleBody {
    name: String,
    /// `inbound` (default) or `outbound`.
    #[serde(default)]
    direction: Option<String>,
    /// Rules with a smaller number are evaluated first; 100 by default.
    #[serde(default)]
    priority: Option<i32>,
    #[serde(default)]
    enabled: Option<bool>,
    /// `enforce` (default) or `observe`: record what the rule would do, and do nothing.
    #[serde(default)]
    mode: Option<String>,
    #[serde(rename = "match", deserialize_with = "object")]
    matching: RuleMatchBody,
    #[serde(deserialize_with = "objects")]
    actions: Vec<RuleActionBody>,
}

/// Fields of a rule to change. Absent fields keep their value.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RulePatchBody {
    /// The `rev` that you read; the call is refused if the object has changed since.
    rev: u32,
    #[serde(default)]
    priority: Option<i32>,
    #[serde(default)]
    enabled: Option<bool>,
    /// `enforce` or `observe`.
    #[serde(default)]
    mode: Option<String>,
    #[serde(default, rename = "match", deserialize_with = "object_or_null")]
    matching: Option<RuleMatchBody>,
    #[serde(default, deserialize_with = "objects_or_null")]
    actions: Option<Vec<RuleActionBody>>,
}

/// A rule.
#[derive(Serialize, ToSchema)]
pub(crate) struct RuleBody {
    id: String,
    name: String,
    rev: u32,
    created_at: String,
    direction: &'static str,
    priority: i32,
    enabled: bool,
    /// `enforce`, or `observe`: what it would do is recorded, and nothing is done.
    mode: &'static str,
    #[serde(rename = "match")]
    matching: RuleMatchBody,
    actions: Vec<RuleActionBody>,
}

impl From<RuleView> for RuleBody {
    fn from(rule: RuleView) -> Self {
        let RuleDefinition {
            direction,
            priority,
            enabled,
            mode,
            match_mode: together,
            conditions,
            actions,
            require_auth,
        } = rule.about;
        Self {
            id: rule.id.to_string(),
            name: rule.name,
            rev: rule.rev,
            created_at: rule.created_at.to_string(),
            direction: direction.as_str(),
            priority,
            enabled,
            mode: mode.as_str(),
            matching: RuleMatchBody {
                operator: Some(together.as_str().to_owned()),
                conditions: conditions.into_iter().map(condition_body).collect(),
                require_auth: require_auth.then_some(true),
            },
            actions: actions
                .into_iter()
                .map(|action| RuleActionBody { kind: action.kind.as_str().to_owned(), value: action.value })
                .collect(),
        }
    }
}

fn condition_body(condition: RuleCondition) -> ConditionBody {
    let RuleCondition { field, operator, mut values } = condition;
    let value = match operator {
        ConditionOperator::InList => ConditionValues::Several(values.into_iter().map(ConditionValue::Text).collect()),
        _ => ConditionValues::One(ConditionValue::Text(values.pop().unwrap_or_default())),
    };
    ConditionBody { field: field.into(), operator: operator.as_str().to_owned(), value }
}

/// A page of rules, newest first. Rules are evaluated in the order of their priority.
#[derive(Serialize, ToSchema)]
pub(crate) struct RulePage {
    data: Vec<RuleBody>,
    next_cursor: Option<String>,
}

fn parse_match(body: RuleMatchBody) -> Result<(MatchMode, Vec<RuleCondition>, bool), Problem> {
    let mode = match body.operator.as_deref() {
        None => MatchMode::All,
        Some(word) => {
            MatchMode::parse(word).ok_or_else(|| Problem::invalid_field("match.operator", "must be all or any"))?
        }
    };
    let condition = |(at, condition): (usize, ConditionBody)| {
        let path = |field: &str| format!("match.conditions[{at}].{field}");
        let field = RuleField::try_from(condition.field).map_err(|why| Problem::invalid_field(path("field"), why))?;
        let invalid = || Problem::invalid_field(path("operator"), "must be is, is_not, contains or in_list");
        let operator = ConditionOperator::parse(&condition.operator).ok_or_else(invalid)?;
        let values = match (condition.value, operator) {
            (ConditionValues::One(_), ConditionOperator::InList) => {
                return Err(Problem::invalid_field(path("value"), "must be a list of texts with in_list"));
            }
            (ConditionValues::Several(values), ConditionOperator::InList) => {
                values.into_iter().map(String::from).collect()
            }
            (ConditionValues::One(value), _) => vec![value.into()],
            (ConditionValues::Several(_), _) => {
                return Err(Problem::invalid_field(path("value"), "must be one text; lists are for in_list"));
            }
        };
        Ok(RuleCondition { field, operator, values })
    };
    let conditions = body.conditions.into_iter().enumerate().map(condition).collect::<Result<_, Problem>>()?;
    Ok((mode, conditions, body.require_auth.unwrap_or(false)))
}

fn parse_actions(bodies: Vec<RuleActionBody>) -> Result<Vec<RuleAction>, Problem> {
    let action = |(at, body): (usize, RuleActionBody)| {
        let invalid = || {
            let expected = "must be block, folder, label, skip_agent, mark_read, approve or approve_new_recipients";
            Problem::invalid_field(format!("actions[{at}].type"), expected)
        };
        Ok(RuleAction { kind: RuleActionKind::parse(&body.kind).ok_or_else(invalid)?, value: body.value })
    };
    bodies.into_iter().enumerate().map(action).collect()
}

fn parse_mode(word: Option<&str>) -> Result<Option<RuleMode>, Problem> {
    let parse =
        |word| RuleMode::parse(word).ok_or_else(|| Problem::invalid_field("mode", "must be enforce or observe"));
    word.map(parse).transpose()
}

fn rule_id(text: &str) -> Result<Uuid, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no rule {text}")))
}

/// Create a rule.
#[utoipa::path(post, path = "/v1/rules", operation_id = "create_rule", tag = "rules", request_body = NewRuleBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 201, description = "Created", body = RuleBody), (status = 200, description = "Created before with this idempotency key", body = RuleBody),
        (status = 409, description = "The name is taken", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn create(State(app): State<App>, auth: AuthedRequest, body: RawBody) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let NewRuleBody { name, direction, priority, enabled, mode, matching, actions } = body.parse()?;
    let keyed_call = auth.keyed_call("rules", "", &body.canonical()?);
    check_text("name", &name)?;
    if name.trim().is_empty() {
        return Err(Problem::invalid_field("name", "must not be empty").into());
    }
    let direction = match direction.as_deref() {
        None => RuleDirection::Inbound,
        Some(word) => RuleDirection::parse(word)
            .ok_or_else(|| Problem::invalid_field("direction", "must be inbound or outbound"))?,
    };
    let (together, conditions, require_auth) = parse_match(matching)?;
    let (priority, enabled) = (priority.unwrap_or(DEFAULT_PRIORITY), enabled.unwrap_or(true));
    let definition = RuleDefinition {
        direction,
        priority,
        enabled,
        mode: parse_mode(mode.as_deref())?.unwrap_or(RuleMode::Enforce),
        match_mode: together,
        conditions,
        actions: parse_actions(actions)?,
        require_auth,
    };
    let rule = app.engine.control.create_rule(&auth.caller, name, &definition, keyed_call).await?;
    Ok(created_response(rule.is_new, Json(RuleBody::from(rule.value))))
}

/// List rules, newest first.
#[utoipa::path(get, path = "/v1/rules", operation_id = "list_rules", tag = "rules", params(PageQuery),
    responses((status = 200, description = "A page of results", body = RulePage)))]
pub(crate) async fn list(State(app): State<App>, auth: AuthedRequest, query: QueryParams<PageQuery>) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let (before, limit) = query.0.parse()?;
    let page = app.engine.control.rules(&auth.caller, before, limit).await?;
    let data = page.rows.into_iter().map(RuleBody::from).collect();
    Ok(Json(RulePage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// Read one rule.
#[utoipa::path(get, path = "/v1/rules/{id}", operation_id = "read_rule", tag = "rules", params(("id" = String, Path)),
    responses((status = 200, description = "The rule", body = RuleBody)))]
pub(crate) async fn read(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let rule = app.engine.control.rule(&auth.caller, rule_id(&id)?).await?;
    Ok(Json(RuleBody::from(rule)).into_response())
}

/// Change a rule.
#[utoipa::path(patch, path = "/v1/rules/{id}", operation_id = "update_rule", tag = "rules", params(("id" = String, Path)), request_body = RulePatchBody,
    responses((status = 200, description = "The updated rule", body = RuleBody),
        (status = 409, description = "The object changed since you read it", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn change(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let mut rule = app.engine.control.rule_for_update(&auth.caller, rule_id(&id)?).await?;
    let RulePatchBody { rev, priority, enabled, mode, matching, actions } = body.parse()?;
    if let Some(matching) = matching {
        (rule.about.match_mode, rule.about.conditions, rule.about.require_auth) = parse_match(matching)?;
    }
    if let Some(actions) = actions {
        rule.about.actions = parse_actions(actions)?;
    }
    rule.about.priority = priority.unwrap_or(rule.about.priority);
    rule.about.mode = parse_mode(mode.as_deref())?.unwrap_or(rule.about.mode);
    rule.about.enabled = enabled.unwrap_or(rule.about.enabled);
    let rule = app.engine.control.change_rule(&auth.caller, rule.id, rev, &rule.about).await?;
    Ok(Json(RuleBody::from(rule)).into_response())
}

/// Remove a rule.
#[utoipa::path(delete, path = "/v1/rules/{id}", operation_id = "delete_rule", tag = "rules", params(("id" = String, Path)),
    responses((status = 200, description = "The removed object", body = RuleBody)))]
pub(crate) async fn remove(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let rule = app.engine.control.remove_rule(&auth.caller, rule_id(&id)?).await?;
    Ok(Json(RuleBody::from(rule)).into_response())
}
