//! Builds test requests and checks their responses.

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, Method, Request, header, request::Builder},
};
use http_body_util::BodyExt as _;
use serde_json::Value;

/// A request that is being built.
pub(crate) struct TestRequest {
    builder: Builder,
    body: Body,
    anonymous: bool,
}

impl TestRequest {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes()).unwrap();
        Self { builder: Request::builder().method(method).uri(path), body: Body::empty(), anonymous: false }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.builder = self.builder.header(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        self
    }

    /// Adds an idempotency key.
    pub(crate) fn key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    /// Uses this API key instead of the world's own.
    pub(crate) fn bearer(self, secret: &str) -> Self {
        self.header("authorization", &format!("Bearer {secret}"))
    }

    /// Sends no API key.
    pub(crate) fn anonymous(mut self) -> Self {
        self.anonymous = true;
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.json_bytes(body.to_string())
    }

    /// Sets these bytes as a JSON body.
    pub(crate) fn json_bytes(self, body: impl Into<Bytes>) -> Self {
        let mut call = self.header("content-type", "application/json");
        call.body = Body::from(body.into());
        call
    }

    /// Sets these bytes as the body, without a content type.
    pub(crate) fn raw_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = Body::from(body.into());
        self
    }

    /// Builds the request. Adds `secret` as the API key unless one is set or the request is anonymous.
    pub(crate) fn build(self, secret: &str) -> Request<Body> {
        let mut request = self.builder.body(self.body).unwrap();
        if !self.anonymous && !request.headers().contains_key(header::AUTHORIZATION) {
            let value = HeaderValue::from_str(&format!("Bearer {secret}")).unwrap();
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        request
    }
}

pub(crate) fn get(path: &str) -> TestRequest {
    TestRequest::new("GET", path)
}

pub(crate) fn post(path: &str) -> TestRequest {
    TestRequest::new("POST", path)
}

pub(crate) fn patch(path: &str) -> TestRequest {
    TestRequest::new("PATCH", path)
}

pub(crate) fn delete(path: &str) -> TestRequest {
    TestRequest::new("DELETE", path)
}

/// A response whose body has been read.
#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    /// The parsed body, or null when the text is not JSON.
    pub(crate) body: Value,
}

impl TestResponse {
    pub(crate) async fn from_response(response: axum::response::Response) -> Self {
        let (head, body) = response.into_parts();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        let body = serde_json::from_str(&text).unwrap_or_default();
        Self { status: head.status.as_u16(), headers: head.headers, text, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// All values of a header.
    pub(crate) fn headers(&self, name: &str) -> Vec<&str> {
        self.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    }

    /// Whether the response is marked as a replay.
    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Fails unless the response has this status.
    #[track_caller]
    pub(crate) fn expect_status(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }

    /// Fails unless the response is a complete problem with this status and code.
    #[track_caller]
    pub(crate) fn expect_problem(self, status: u16, code: &str) -> Self {
        assert_eq!((self.status, self["code"].as_str()), (status, Some(code)), "{}", self.text);
        self.expect_problem_format();
        self
    }

    /// Fails unless the problem names this field.
    #[track_caller]
    pub(crate) fn expect_field(self, field: &str) -> Self {
        assert_eq!(self["field"], field, "{}", self.text);
        self
    }

    /// Fails unless the response is a problem that meets RFC 9457 and our own contract.
    #[track_caller]
    pub(crate) fn expect_problem_format(&self) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.text);
        for member in ["type", "title", "code", "detail", "retry", "next"] {
            assert!(self[member].as_str().is_some_and(|text| !text.is_empty()), "no {member} in {}", self.text);
        }
        assert_eq!(self["status"], self.status, "{}", self.text);
        assert!(["never", "same", "later"].contains(&self["retry"].as_str().unwrap()), "{}", self.text);
        let page = format!("/docs/errors/{}", self["code"].as_str().unwrap());
        assert_eq!(self["type"], page, "{}", self.text);
    }

    /// A field that must be a string.
    #[track_caller]
    pub(crate) fn string_field(&self, member: &str) -> String {
        self[member].as_str().unwrap_or_else(|| panic!("no {member} in {}", self.text)).to_owned()
    }

    /// The rows of a list response.
    #[track_caller]
    pub(crate) fn rows(&self) -> Vec<Value> {
        self["data"].as_array().unwrap_or_else(|| panic!("no data in {}", self.text)).clone()
    }

    /// The ids of the rows of a list response.
    #[track_caller]
    pub(crate) fn ids(&self) -> Vec<String> {
        self.rows().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    }
}

impl std::ops::Index<&str> for TestResponse {
    type Output = Value;

    fn index(&self, member: &str) -> &Value {
        &self.body[member]
    }
}
