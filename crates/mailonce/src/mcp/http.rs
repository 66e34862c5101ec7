//! `/mcp`: checks the API key, reads one message and answers it as JSON, or as a stream if a tool waits and the
//! caller wants to hear about it. The listener checks Host and Origin first.

use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use mailonce_core::{
    outbound::email::Channel,
    problem::{Code, Problem},
};
use serde_json::{Value, json};

use super::{ToolContext, dispatch};
use crate::{
    http::{app::App, extract, oauth_urls},
    mcp::{
        json_rpc::{self, IncomingMessage, REJECTED, RpcError},
        progress::{self, RunningCall},
        protocol_revision::{self, Revision},
        tools,
    },
};

/// The largest message in bytes. An email without attachments is far smaller.
pub(super) const MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// An HTTP error whose body is a JSON-RPC error.
struct McpHttpError {
    status: u16,
    id: Value,
    fault: RpcError,
    retry_after: Option<i64>,
}

impl McpHttpError {
    fn new(status: u16, message: &str) -> Self {
        Self { status, id: Value::Null, fault: RpcError::new(REJECTED, message.to_owned()), retry_after: None }
    }

    fn from_rpc_error(fault: RpcError, id: Value) -> Self {
        Self { status: fault.http_status(), id, fault, retry_after: None }
    }
}

impl From<Problem> for McpHttpError {
    fn from(problem: Problem) -> Self {
        let code = problem.code;
        let data = json!({ "code": code.as_str(), "next": problem.next_step(), "retry": code.retry().as_str() });
        Self {
            status: code.status(),
            id: Value::Null,
            retry_after: problem.extensions.get("retry_after").and_then(Value::as_i64),
            fault: RpcError::new(REJECTED, problem.detail).with_data(data),
        }
    }
}

impl IntoResponse for McpHttpError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.fault.to_message(&self.id))).into_response();
        let headers = response.headers_mut();
        if status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// The response to a request that the listener rejected.
pub(crate) fn rejection_response(problem: Problem) -> Response {
    McpHttpError::from(problem).into_response()
}

/// Handles one message.
pub(crate) async fn serve(State(app): State<App>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    // Boxed: otherwise every connection would reserve the memory of this large future.
    match Box::pin(handle(&app, &parts, body)).await {
        Ok(response) => response,
        Err(error) => {
            let mut response = error.into_response();
            if response.status() == StatusCode::UNAUTHORIZED {
                let has_credential = parts.headers.contains_key(header::AUTHORIZATION);
                let challenge = oauth_urls::challenge(&app, has_credential);
                response.headers_mut().extend(challenge.map(|value| (header::WWW_AUTHENTICATE, value)));
            }
            response
        }
    }
}

async fn handle(app: &App, parts: &Parts, body: Body) -> Result<Response, McpHttpError> {
    if parts.method != Method::POST {
        return Err(McpHttpError::new(
            405,
            "this endpoint has no event stream: POST one message and read the response",
        ));
    }
    let missing = || Problem::new(Code::Unauthorized, "the Authorization header with a Bearer key is missing");
    let credential = extract::bearer(&parts.headers);
    let authenticated = extract::authenticate(app, &parts.extensions, credential, Channel::Mcp).await?;
    let mut caller = authenticated.ok_or_else(missing)?;
    check_accept(&parts.headers)?;
    extract::check_media_type(&parts.headers)?;
    let body = extract::read_body(body, MESSAGE_BYTES).await?;
    let request = match json_rpc::parse(&body).map_err(|fault| McpHttpError::from_rpc_error(fault, Value::Null))? {
        IncomingMessage::Request(request) => request,
        IncomingMessage::Notification => {
            protocol_revision::header_revision(&parts.headers)
                .map_err(|fault| McpHttpError::from_rpc_error(fault, Value::Null))?;
            return Ok(StatusCode::ACCEPTED.into_response());
        }
    };
    let revision = protocol_revision::detect(&request, &parts.headers)
        .map_err(|fault| McpHttpError::from_rpc_error(fault, request.id.clone()))?;
    caller.call =
        protocol_revision::call_trace(&request.params, extract::call_trace(&parts.headers).unwrap_or_default());
    let Some(token) = progress::token(&request, &parts.headers) else {
        let outcome = dispatch(&ToolContext { app, caller: &caller }, revision, &request).await;
        return json_response(outcome, revision, request.id);
    };
    let (id, wait_s) = (request.id.clone(), tools::wait_seconds(&request.params));
    let app = app.clone();
    let call: RunningCall<_> =
        Box::pin(async move { dispatch(&ToolContext { app: &app, caller: &caller }, revision, &request).await });
    match progress::wait_briefly(call).await {
        Ok(outcome) => json_response(outcome, revision, id),
        Err(call) => Ok(progress::stream(token, wait_s, Box::pin(async move { rpc_message(call.await, &id) }))),
    }
}

fn rpc_message(outcome: Result<Value, RpcError>, id: &Value) -> Value {
    outcome.map_or_else(|fault| fault.to_message(id), |result| json_rpc::result_message(id, &result))
}

fn json_response(outcome: Result<Value, RpcError>, revision: Revision, id: Value) -> Result<Response, McpHttpError> {
    match outcome {
        Err(fault) if revision == Revision::Stateless => Err(McpHttpError::from_rpc_error(fault, id)),
        outcome => Ok(Json(rpc_message(outcome, &id)).into_response()),
    }
}

fn check_accept(headers: &HeaderMap) -> Result<(), McpHttpError> {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).peekable();
    if accepted.peek().is_none() {
        return Ok(());
    }
    let is_json = |kind: &str| {
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        matches!(kind.as_str(), "application/json" | "application/*" | "*/*")
    };
    if accepted.flat_map(|value| value.split(',')).any(is_json) {
        return Ok(());
    }
    Err(McpHttpError::new(406, "the Accept header must allow application/json"))
}
