//! Webhooks to applications: one signed POST per attempt, each over its own connection.

mod sign;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, header};
use mailonce_core::{
    events::{
        notice::WebhookError,
        webhook::{OutgoingWebhook, WebhookResponse, WebhookResult},
    },
    limits,
    ports::webhook_client::WebhookClient,
};
use rustls::{ClientConfig, pki_types::CertificateDer};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

use crate::{
    dial::{self, DialError},
    egress::{EgressPolicy, TargetUrl},
    http_exchange::{HttpResponse, send_once},
};

/// The timeout from name resolution to the last byte of the response.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(15);
/// How many bytes of a response body are read.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;
/// How many characters of a response header are stored.
const MAX_HEADER_CHARS: usize = 64;
const USER_AGENT: &str = concat!("mailonce/", env!("CARGO_PKG_VERSION"));

/// Sends webhooks over HTTP.
#[derive(Clone, Debug)]
pub struct HttpWebhookSender {
    egress: EgressPolicy,
    tls_config: Arc<ClientConfig>,
    timeout: Duration,
}

impl HttpWebhookSender {
    /// `egress` limits which URLs may be called; `extra_roots` are trusted besides the public authorities.
    pub fn new(egress: EgressPolicy, extra_roots: &[CertificateDer<'static>]) -> Result<Self, rustls::Error> {
        Ok(Self { egress, tls_config: dial::tls_client_config(extra_roots)?, timeout: WEBHOOK_TIMEOUT })
    }

    async fn send(&self, post: &OutgoingWebhook) -> Result<HttpResponse, (WebhookError, String)> {
        let target = self.egress.check_url(&post.url).map_err(|why| (WebhookError::Blocked, why))?;
        let request = build_request(&target, post).map_err(|error| (WebhookError::Blocked, error.to_string()))?;
        let stream = self.egress.open_tcp(&target, self.timeout).await.map_err(dial_failure)?;
        let response = if target.is_https {
            let stream =
                dial::open_tls(stream, &target.host, &self.tls_config, self.timeout).await.map_err(dial_failure)?;
            send_once(stream, request, MAX_RESPONSE_BYTES).await
        } else {
            send_once(stream, request, MAX_RESPONSE_BYTES).await
        };
        response.map_err(|why| (WebhookError::Broken, why))
    }
}

#[async_trait]
impl WebhookClient for HttpWebhookSender {
    fn check_url(&self, url: &str) -> Result<(), String> {
        self.egress.check_url(url).map(drop)
    }

    async fn post(&self, post: OutgoingWebhook) -> WebhookResult {
        let started = Instant::now();
        let response = match tokio::time::timeout(self.timeout, self.send(&post)).await {
            Ok(response) => response.map(|response| to_reply(&response)),
            Err(_elapsed) => Err((WebhookError::Timeout, format!("no response within {} s", self.timeout.as_secs()))),
        };
        WebhookResult { response, latency_ms: started.elapsed().as_millis() as u32 }
    }
}

/// Builds the signed request. Our headers come first, then the headers that the team configured.
fn build_request(target: &TargetUrl, post: &OutgoingWebhook) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
    let (timestamp, signatures) = (post.timestamp_s.to_string(), sign::signatures(post));
    let mut request = Request::post(&target.path_and_query)
        .header(header::HOST, &target.authority)
        .header(header::CONNECTION, "close")
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, USER_AGENT);
    for (id_name, at_name, signature_name) in
        [("webhook-id", "webhook-timestamp", "webhook-signature"), ("svix-id", "svix-timestamp", "svix-signature")]
    {
        request = request.header(id_name, &post.id).header(at_name, &timestamp).header(signature_name, &signatures);
    }
    for (name, value) in &post.headers {
        request = request.header(name, value);
    }
    request.body(Full::from(post.body.clone()))
}

fn dial_failure(error: DialError) -> (WebhookError, String) {
    let class = match &error {
        DialError::Unresolved { .. } => WebhookError::Name,
        DialError::Forbidden(_) => WebhookError::Blocked,
        DialError::Refused(..) => WebhookError::Connect,
        DialError::TimedOut(_) => WebhookError::Timeout,
        DialError::ServerName(_) | DialError::Tls(..) => WebhookError::Tls,
    };
    // The address and the system error stay hidden: with them a tenant could scan the operator's network.
    let text = match &error {
        DialError::Refused(..) => "the connection could not be opened".to_owned(),
        _ => error.to_string(),
    };
    (class, text)
}

fn to_reply(response: &HttpResponse) -> WebhookResponse {
    let header = |name: &str| {
        let value = response.headers.get(name).and_then(|value| value.to_str().ok());
        value.map(|value| value.trim().chars().take(MAX_HEADER_CHARS).collect::<String>())
    };
    let excerpt = response.body.get(..limits::WEBHOOK_RESPONSE_BYTES).unwrap_or(&response.body);
    WebhookResponse {
        status: response.status,
        retry_after: header("retry-after"),
        delivery_directive: header("webhook-delivery"),
        excerpt: String::from_utf8_lossy(excerpt).into_owned(),
    }
}
