//! The Resend routes for the suppression list: addresses that receive no email.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    address::Address,
    limits,
    problem::{Code, Problem},
};
use mailonce_engine::control::suppressions::{SuppressionDetails, SuppressionView};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use uuid::Uuid;

use super::{
    DialectPath, DialectQuery, OnePathParam, PageQuery, ResendDialect, ResendRequest, ResendRequestBody, ResendResult,
    deleted_response, json, list_response, object_response,
};
use crate::{
    dialects::{
        field_problem,
        pagination::{PagePosition, PageRows},
        resend::errors::missing_field,
    },
    http::app::App,
};

/// Maximum number of addresses in one batch.
const MAX_BATCH: usize = 100;
/// The origins of Resend.
const ORIGINS: [&str; 3] = ["bounce", "complaint", "manual"];

#[derive(Serialize)]
struct SuppressionBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<&'static str>,
    id: String,
    email: String,
    origin: &'static str,
    source_id: Option<String>,
    created_at: String,
}

impl From<&SuppressionView> for SuppressionBody {
    fn from(view: &SuppressionView) -> Self {
        Self {
            object: None,
            id: view.id.to_string(),
            email: view.address.clone(),
            origin: origin(view),
            source_id: view.details.email.map(|email| email.to_string()),
            created_at: view.created_at.to_string(),
        }
    }
}

fn origin(view: &SuppressionView) -> &'static str {
    match view.details.reason.as_str() {
        "bounced" => "bounce",
        "complained" => "complaint",
        _ => "manual",
    }
}

fn missing() -> Problem {
    Problem::new(Code::NotFound, "Suppression not found")
}

fn with_dialect_message(problem: Problem) -> Problem {
    if problem.code == Code::NotFound { missing() } else { problem }
}

fn parse_email(text: &str) -> Result<Address, Problem> {
    Address::parse(text).map_err(|_invalid| {
        field_problem(
            "email",
            "Invalid `email` field. The email address needs to follow the `email@example.com` format.",
        )
    })
}

/// Finds a suppression by its id or its address.
async fn find(app: &App, auth: &ResendRequest, name: &str) -> Result<SuppressionView, Problem> {
    let Ok(id) = Uuid::try_parse(name) else {
        let address = parse_email(name)?;
        return app.engine.control.read_suppression(&auth.caller, &address).await.map_err(with_dialect_message);
    };
    // The newest entry that is not newer than the id is the entry itself, if it exists.
    let before = Uuid::from_u128(id.as_u128().saturating_add(1));
    let page = app.engine.control.suppressions(&auth.caller, Some(before), 1).await?;
    page.rows.into_iter().find(|view| view.id == id).ok_or_else(missing)
}

async fn remove_one(app: &App, auth: &ResendRequest, name: &str) -> Result<SuppressionView, Problem> {
    remove_found(app, auth, &find(app, auth, name).await?).await
}

async fn remove_found(app: &App, auth: &ResendRequest, view: &SuppressionView) -> Result<SuppressionView, Problem> {
    // The entry of a person who was erased has an alias in the place of the address and stays.
    let address = Address::parse(&view.address).map_err(|_alias| missing())?;
    app.engine.control.remove_suppression(&auth.caller, &address).await.map_err(with_dialect_message)
}

#[derive(Deserialize)]
struct NewSuppressionBody {
    #[serde(default)]
    email: Option<String>,
}

/// `POST /suppressions`. An address that is already on the list keeps its entry.
pub(super) async fn add(State(app): State<App>, auth: ResendRequest, body: ResendRequestBody) -> ResendResult {
    let keyed_call = auth.keyed_call("suppressions", "", &body.canonical()?);
    let email = body.parse::<NewSuppressionBody>()?.email.ok_or_else(|| missing_field("email"))?;
    let (address, details) = (parse_email(&email)?, SuppressionDetails::manual(None));
    let added = app.engine.control.suppress(&auth.caller, &address, details, keyed_call).await?;
    Ok(object_response("suppression", added.value.id))
}

#[derive(Deserialize)]
pub(super) struct SuppressionsQuery {
    limit: Option<String>,
    after: Option<String>,
    before: Option<String>,
    origin: Option<String>,
}

/// `GET /suppressions`, newest first.
pub(super) async fn list(
    State(app): State<App>,
    auth: ResendRequest,
    DialectQuery(query, ..): DialectQuery<SuppressionsQuery, ResendDialect>,
) -> ResendResult {
    let SuppressionsQuery { limit, after, before, origin: wanted } = query;
    if wanted.as_deref().is_some_and(|wanted| !ORIGINS.contains(&wanted)) {
        let text = format!("The `origin` must be one of `{}`.", ORIGINS.join("`, `"));
        return Err(Problem::invalid_query("origin", text).into());
    }
    let page = PageQuery { limit, after, before }.parse()?;
    let mut cursor = match page.position {
        PagePosition::After(id) => Some(id),
        PagePosition::First | PagePosition::Before(_) => None,
    };
    let mut rows = Vec::new();
    loop {
        let found = app.engine.control.suppressions(&auth.caller, cursor, limits::PAGE_ROWS).await?;
        rows.extend(
            found.rows.into_iter().filter(|view| wanted.as_deref().is_none_or(|wanted| wanted == origin(view))),
        );
        cursor = found.next;
        let has_page = match page.position {
            // The rows just newer than the cursor come last, so all newer ones are read.
            PagePosition::Before(id) => rows.last().is_some_and(|view| view.id <= id),
            PagePosition::First | PagePosition::After(_) => rows.len() > page.limit,
        };
        if cursor.is_none() || has_page {
            break;
        }
        if rows.len() > limits::SCAN_ROWS {
            let text = "Too many suppressions are newer than this one; start with the newest and page with `after`.";
            return Err(Problem::invalid_query("before", text).into());
        }
    }
    let rows: PageRows<_> = page.slice_newest_first(rows, |view| view.id);
    Ok(list_response(rows, |view| SuppressionBody::from(&view)))
}

/// `GET /suppressions/{id or email}`.
pub(super) async fn read(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
) -> ResendResult {
    let view = find(&app, &auth, &name).await?;
    Ok(json(StatusCode::OK, &SuppressionBody { object: Some("suppression"), ..SuppressionBody::from(&view) }))
}

/// `DELETE /suppressions/{id or email}`.
pub(super) async fn remove(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
) -> ResendResult {
    Ok(deleted_response("suppression", remove_one(&app, &auth, &name).await?.id))
}

#[derive(Deserialize)]
struct BatchBody {
    #[serde(default)]
    emails: Option<Vec<String>>,
    #[serde(default)]
    ids: Option<Vec<String>>,
}

#[derive(Serialize)]
struct BatchItemBody {
    object: &'static str,
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<bool>,
}

#[derive(Serialize)]
struct BatchResultBody {
    data: Vec<BatchItemBody>,
}

fn check_batch(field: &str, names: &[String]) -> Result<(), Problem> {
    if names.is_empty() || names.len() > MAX_BATCH {
        return Err(field_problem(field, format!("The `{field}` field must hold 1 to {MAX_BATCH} entries.")));
    }
    Ok(())
}

/// `POST /suppressions/batch/add`. Every address is checked before the first is added.
pub(super) async fn add_batch(State(app): State<App>, auth: ResendRequest, body: ResendRequestBody) -> ResendResult {
    let emails = body.parse::<BatchBody>()?.emails.ok_or_else(|| missing_field("emails"))?;
    check_batch("emails", &emails)?;
    let addresses = emails.iter().map(|email| parse_email(email)).collect::<Result<Vec<_>, _>>()?;
    let mut data = Vec::with_capacity(addresses.len());
    for address in &addresses {
        let details = SuppressionDetails::manual(None);
        let added = app.engine.control.suppress(&auth.caller, address, details, None).await?;
        data.push(BatchItemBody { object: "suppression", id: added.value.id.to_string(), deleted: None });
    }
    Ok(json(StatusCode::OK, &BatchResultBody { data }))
}

/// `POST /suppressions/batch/remove`. Every entry is looked up before the first is removed.
pub(super) async fn remove_batch(State(app): State<App>, auth: ResendRequest, body: ResendRequestBody) -> ResendResult {
    let BatchBody { emails, ids } = body.parse()?;
    let (field, names) = match (emails, ids) {
        (Some(emails), None) => ("emails", emails),
        (None, Some(ids)) => ("ids", ids),
        _ => return Err(field_problem("emails", "Use one of `emails` and `ids`.").into()),
    };
    check_batch(field, &names)?;
    let mut found = Vec::with_capacity(names.len());
    for name in &names {
        found.push(find(&app, &auth, name).await?);
    }
    let (mut data, mut removed) = (Vec::with_capacity(found.len()), BTreeSet::new());
    for view in &found {
        // An entry may be named twice, by its id or in other letters.
        if removed.insert(view.id) {
            remove_found(&app, &auth, view).await?;
        }
        data.push(BatchItemBody { object: "suppression", id: view.id.to_string(), deleted: Some(true) });
    }
    Ok(json(StatusCode::OK, &BatchResultBody { data }))
}
