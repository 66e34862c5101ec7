//! Budgets: how many emails or recipients may be sent in a period.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    address::Address,
    control::{
        budget::{AtLimit, Budget, BudgetMeasure, BudgetScope},
        budget_period::BudgetPeriod,
    },
    problem::{Code, Problem},
};
use mailonce_engine::control::budgets::BudgetView;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    api::{
        inbox::inboxes::find_inbox,
        pagination::{PageQuery, created_response},
    },
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        json::{check_required_text, object},
        params::{PathParam, QueryParams},
    },
};

/// The word for a budget that counts each recipient or domain on its own.
const ANY: &str = "any";

/// Which emails count. Set exactly one field.
#[derive(Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BudgetScopeBody {
    /// `true`: every email of the team.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    team: Option<bool>,
    /// Emails from this inbox, by id or address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inbox: Option<String>,
    /// Emails that are sent with this API key, by id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    api_key: Option<String>,
    /// Emails to this address; `any`: to any address, each counted on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recipient: Option<String>,
    /// Emails to addresses at this domain; `any`: at any domain, each counted on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recipient_domain: Option<String>,
}

/// A budget to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewBudgetBody {
    name: String,
    #[serde(deserialize_with = "object")]
    scope: BudgetScopeBody,
    /// What counts: `mails`, `recipients`, or `new_recipients`: those that the team never mailed.
    measure: String,
    /// The period: `minute`, `hour`, `day` or `month`, in the team's `time_zone`.
    per: String,
    /// How much may be sent in one period; 0 to 1,000,000,000.
    limit: u64,
    /// What happens to an email beyond the limit: `refuse` (default) answers `429 quota_exceeded`; `hold` accepts it,
    /// asks a person and releases it when there is room; `flag` sends it and flags it with the guard `budget`.
    #[serde(default)]
    at_limit: Option<String>,
    #[serde(default)]
    enabled: Option<bool>,
}

/// Fields of a budget to change. Absent fields keep their value.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BudgetPatchBody {
    /// The `rev` that you read; the call is refused if the object has changed since.
    rev: u32,
    #[serde(default)]
    limit: Option<u64>,
    /// `refuse`, `hold` or `flag`.
    #[serde(default)]
    at_limit: Option<String>,
    #[serde(default)]
    enabled: Option<bool>,
}

/// A budget and its usage.
#[derive(Serialize, ToSchema)]
pub(crate) struct BudgetBody {
    id: String,
    name: String,
    rev: u32,
    created_at: String,
    scope: BudgetScopeBody,
    measure: &'static str,
    per: &'static str,
    limit: u64,
    at_limit: &'static str,
    enabled: bool,
    /// Amount used in the current period; null if each recipient or domain is counted on its own.
    used: Option<u64>,
    /// Amount left in the current period; null if each recipient or domain is counted on its own.
    remaining: Option<u64>,
    /// When the current period ends.
    resets_at: String,
}

impl From<BudgetView> for BudgetBody {
    fn from(view: BudgetView) -> Self {
        let Budget { scope, measure, per, limit, at_limit, enabled } = view.budget;
        let scope = match scope {
            BudgetScope::Team => BudgetScopeBody { team: Some(true), ..BudgetScopeBody::default() },
            BudgetScope::Inbox(id) => BudgetScopeBody { inbox: Some(id.to_string()), ..BudgetScopeBody::default() },
            BudgetScope::ApiKey(id) => BudgetScopeBody { api_key: Some(id.to_string()), ..BudgetScopeBody::default() },
            BudgetScope::Recipient(only) => {
                BudgetScopeBody { recipient: Some(only.unwrap_or_else(|| ANY.into())), ..BudgetScopeBody::default() }
            }
            BudgetScope::RecipientDomain(only) => BudgetScopeBody {
                recipient_domain: Some(only.unwrap_or_else(|| ANY.into())),
                ..BudgetScopeBody::default()
            },
        };
        Self {
            id: view.id.to_string(),
            name: view.name,
            rev: view.rev,
            created_at: view.created_at.to_string(),
            scope,
            measure: measure.as_str(),
            per: per.as_str(),
            limit,
            at_limit: at_limit.as_str(),
            enabled,
            used: view.used,
            remaining: view.used.map(|used| limit.saturating_sub(used)),
            resets_at: view.resets_at.to_string(),
        }
    }
}

/// A page of budgets, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct BudgetPage {
    data: Vec<BudgetBody>,
    next_cursor: Option<String>,
}

async fn parse_scope(app: &App, auth: &AuthedRequest, body: BudgetScopeBody) -> Result<BudgetScope, Problem> {
    match (body.team, body.inbox, body.api_key, body.recipient, body.recipient_domain) {
        (Some(true), None, None, None, None) => Ok(BudgetScope::Team),
        (None, Some(inbox), None, None, None) => Ok(BudgetScope::Inbox(find_inbox(app, auth, &inbox).await?.id)),
        (None, None, None, Some(recipient), None) => Ok(BudgetScope::Recipient(parse_recipient(&recipient)?)),
        (None, None, None, None, Some(domain)) => Ok(BudgetScope::RecipientDomain(parse_domain(&domain)?)),
        (None, None, Some(key), None, None) => {
            let id = key
                .parse()
                .map_err(|_not_an_id| Problem::invalid_field("scope.api_key", "must be the id of an API key"))?;
            Ok(BudgetScope::ApiKey(id))
        }
        _ => Err(Problem::invalid_field(
            "scope",
            "must be one of {\"team\": true}, {\"inbox\": ID}, {\"api_key\": ID}, {\"recipient\": \"any\" or an address} and \
             {\"recipient_domain\": \"any\" or a domain}",
        )),
    }
}

/// An address, or `None` for `any`.
fn parse_recipient(text: &str) -> Result<Option<String>, Problem> {
    if text == ANY {
        return Ok(None);
    }
    let address = Address::parse(text).map_err(|error| Problem::invalid_field("scope.recipient", error.to_string()))?;
    Ok(Some(address.as_str().to_ascii_lowercase()))
}

/// A domain, or `None` for `any`.
fn parse_domain(text: &str) -> Result<Option<String>, Problem> {
    if text == ANY {
        return Ok(None);
    }
    let fault = |_| Problem::invalid_field("scope.recipient_domain", "must be a domain, such as example.com, or any");
    let address = Address::parse(&format!("any@{text}")).map_err(fault)?;
    Ok(Some(address.domain().to_ascii_lowercase()))
}

fn parse_at_limit(word: &str) -> Result<AtLimit, Problem> {
    AtLimit::parse(word).ok_or_else(|| Problem::invalid_field("at_limit", "must be hold, refuse or flag"))
}

fn budget_id(text: &str) -> Result<Uuid, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no budget {text}")))
}

/// Create a budget.
#[utoipa::path(post, path = "/v1/budgets", operation_id = "create_budget", tag = "budgets", request_body = NewBudgetBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 201, description = "Created; it counts from now on", body = BudgetBody),
        (status = 200, description = "Created before with this idempotency key", body = BudgetBody),
        (status = 409, description = "The name is taken", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn create(State(app): State<App>, auth: AuthedRequest, body: RawBody) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let NewBudgetBody { name, scope: scope_body, measure, per, limit, at_limit, enabled } = body.parse()?;
    let keyed_call = auth.keyed_call("budgets", "", &body.canonical()?);
    check_required_text("name", &name)?;
    let measure = BudgetMeasure::parse(&measure)
        .ok_or_else(|| Problem::invalid_field("measure", "must be mails, recipients or new_recipients"))?;
    let per =
        BudgetPeriod::parse(&per).ok_or_else(|| Problem::invalid_field("per", "must be minute, hour, day or month"))?;
    let at_limit = at_limit.as_deref().map_or(Ok(AtLimit::Refuse), parse_at_limit)?;
    let scope = parse_scope(&app, &auth, scope_body).await?;
    let budget = Budget { scope, measure, per, limit, at_limit, enabled: enabled.unwrap_or(true) };
    let created = app.engine.budgets.create_budget(&auth.caller, name, &budget, keyed_call).await?;
    Ok(created_response(created.is_new, Json(BudgetBody::from(created.value))))
}

/// List budgets, newest first.
#[utoipa::path(get, path = "/v1/budgets", operation_id = "list_budgets", tag = "budgets", params(PageQuery),
    responses((status = 200, description = "A page of results", body = BudgetPage)))]
pub(crate) async fn list(State(app): State<App>, auth: AuthedRequest, query: QueryParams<PageQuery>) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let (before, limit) = query.0.parse()?;
    let page = app.engine.budgets.budgets(&auth.caller, before, limit).await?;
    let data = page.rows.into_iter().map(BudgetBody::from).collect();
    Ok(Json(BudgetPage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// Read one budget.
#[utoipa::path(get, path = "/v1/budgets/{id}", operation_id = "read_budget", tag = "budgets", params(("id" = String, Path)),
    responses((status = 200, description = "The budget", body = BudgetBody)))]
pub(crate) async fn read(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let budget = app.engine.budgets.budget(&auth.caller, budget_id(&id)?).await?;
    Ok(Json(BudgetBody::from(budget)).into_response())
}

/// Change the limit of a budget, or enable or disable it.
///
/// The usage of the current period is kept.
#[utoipa::path(patch, path = "/v1/budgets/{id}", operation_id = "update_budget", tag = "budgets", params(("id" = String, Path)), request_body = BudgetPatchBody,
    responses((status = 200, description = "The updated budget", body = BudgetBody),
        (status = 409, description = "The object changed since you read it", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn change(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let BudgetPatchBody { rev, limit, at_limit, enabled } = body.parse()?;
    let at_limit = at_limit.as_deref().map(parse_at_limit).transpose()?;
    let apply = |budget: &mut Budget| {
        budget.limit = limit.unwrap_or(budget.limit);
        budget.at_limit = at_limit.unwrap_or(budget.at_limit);
        budget.enabled = enabled.unwrap_or(budget.enabled);
    };
    let budget = app.engine.budgets.change_budget(&auth.caller, (budget_id(&id)?, rev), apply).await?;
    Ok(Json(BudgetBody::from(budget)).into_response())
}

/// Remove a budget.
#[utoipa::path(delete, path = "/v1/budgets/{id}", operation_id = "delete_budget", tag = "budgets", params(("id" = String, Path)),
    responses((status = 200, description = "The removed object", body = BudgetBody)))]
pub(crate) async fn remove(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let budget = app.engine.budgets.remove_budget(&auth.caller, budget_id(&id)?).await?;
    Ok(Json(BudgetBody::from(budget)).into_response())
}
