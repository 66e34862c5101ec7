//! A request of the AgentMail dialect: the caller, the route and the body.

use axum::{extract::Request, http::Method};
use mailonce_core::{
    inbox::Inbox,
    key::Key,
    problem::{Code, Problem},
};
use mailonce_engine::{Caller, Engine, KeyedCall};
use serde::de::DeserializeOwned;
use std::{ops::Deref, sync::Arc};

use super::{
    contract::{AgentMail, ROOT},
    query::AgentMailQuery,
};
use crate::{
    dialects::{DialectContract as _, DialectError},
    http::{
        app::App,
        extract::{self, RawBody, authenticate, bearer, call_trace, idempotency_key, percent_decode},
    },
};

/// What handlers need to read emails on behalf of a caller, and to build links.
pub(super) struct RequestContext {
    pub(super) engine: Arc<Engine>,
    pub(super) caller: Caller,
    /// The public base URL of the server, for links.
    pub(super) base_url: String,
}

impl RequestContext {
    /// The download URL for a link token.
    pub(super) fn link_url(&self, token: &str) -> String {
        format!("{}{ROOT}/downloads/{token}", self.base_url)
    }
}

/// One authenticated request with its body.
pub(super) struct AgentMailRequest {
    context: RequestContext,
    /// The idempotency key, if the request has one.
    pub(super) key: Option<Key>,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: AgentMailQuery,
    body: RawBody,
}

impl Deref for AgentMailRequest {
    type Target = RequestContext;

    fn deref(&self) -> &RequestContext {
        &self.context
    }
}

impl AgentMailRequest {
    /// Authenticates before it reads the body, so that the server reads no body of an unauthenticated client.
    pub(super) async fn from_request(app: App, request: Request) -> Result<Self, DialectError<AgentMail>> {
        let credential = bearer(request.headers());
        let found = authenticate(&app, request.extensions(), credential, AgentMail::CHANNEL).await?;
        let Some(mut caller) = found else { return Err(DialectError::from_response(AgentMail::unauthorized())) };
        caller.call = call_trace(request.headers())?;
        let key = idempotency_key(request.headers())?;
        let method = request.method().clone();
        let path = request.uri().path().trim_start_matches("/compat/agentmail").to_owned();
        let query = AgentMailQuery::parse(request.uri().query().unwrap_or_default());
        let base = app.public_url.trim_end_matches('/').to_owned();
        let body = RawBody::read(request).await?;
        let context = RequestContext { engine: Arc::clone(&app.engine), caller, base_url: base };
        Ok(Self { context, key, method, path, query, body })
    }

    pub(super) fn is_method(&self, method: &Method) -> bool {
        self.method == method
    }

    /// Parses the body. An empty one counts as `{}`.
    pub(super) fn parse<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        self.body.parse_or_empty()
    }

    /// The idempotency key and payload digest of a call other than a send; `None` without a key.
    pub(super) fn keyed_call(&self, operation: &str) -> Result<Option<KeyedCall>, Problem> {
        Ok(extract::keyed_call(self.key.as_ref(), operation, &self.path, &self.body.canonical()?))
    }

    /// The id of the team, which is also the id of its only pod.
    pub(super) fn pod_id(&self) -> String {
        self.caller.team.id.to_string()
    }

    /// Finds the inbox of a path, by address or by id.
    pub(super) async fn inbox(&self, name: &str) -> Result<Inbox, Problem> {
        if name.contains('@') {
            return self.engine.inboxes.inbox_by_address(&self.caller, name).await;
        }
        let missing = |_not_an_id| Problem::new(Code::NotFound, format!("there is no inbox {name}"));
        self.engine.inboxes.inbox(&self.caller, name.parse().map_err(missing)?).await
    }
}

/// The segments of a path below the base path, each percent-decoded. A slash inside an id may be literal or encoded,
/// so an id with a literal slash spans several segments.
pub(super) fn path_segments(path: &str) -> Result<Vec<String>, Problem> {
    let rest = path.strip_prefix(ROOT).unwrap_or_default().trim_matches('/');
    if rest.is_empty() {
        return Ok(Vec::new());
    }
    rest.split('/').map(decode_segment).collect()
}

fn decode_segment(segment: &str) -> Result<String, Problem> {
    let invalid = |_bytes| Problem::new(Code::NotFound, format!("`{segment}` is not valid UTF-8"));
    String::from_utf8(percent_decode(segment)).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_as_they_are_or_encoded() {
        let segments = |path: &str| path_segments(&format!("{ROOT}{path}")).unwrap();
        assert_eq!(segments("/inboxes/a@x.test/messages"), ["inboxes", "a@x.test", "messages"]);
        assert_eq!(
            segments("/inboxes/a%40x.test/messages/%3Ca%2Fb%40c%3E"),
            ["inboxes", "a@x.test", "messages", "<a/b@c>"]
        );
        assert_eq!(segments("/inboxes/a@x.test/messages/%3Ca/b@c%3E/reply")[3..], ["<a", "b@c>", "reply"]);
        assert!(segments("").is_empty() && segments("/").is_empty());
        assert_eq!(segments("/%zz/%4"), ["%zz", "%4"]);
        assert!(path_segments(&format!("{ROOT}/%ff")).is_err());
    }
}
