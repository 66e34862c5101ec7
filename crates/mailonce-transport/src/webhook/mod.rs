//! Webhooks to applications: one signed POST for each attempt, over a connection of its own.

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

/// From the look-up to the last byte of the answer.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes of an answer's body that are read.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;
/// Characters of a header of the answer that are kept.
const MAX_HEADER_CHARS: usize = 64;
const USER_AGENT: &str = concat!("mailonce/", env!("CARGO_PKG_VERSION"));

/// Tells receivers by HTTP.
#[derive(Clone, Debug)]
pub struct HttpWebhookSender {
    egress: EgressPolicy,
    tls_config: Arc<ClientConfig>,
    timeout: Duration,
}

impl HttpWebhookSender {
    /// Within a reach; `extra_roots` are trusted besides the usual authorities.
    pub fn new(reach: EgressPolicy, extra_roots: &[CertificateDer<'static>]) -> Result<Self, rustls::Error> {
        Ok(Self { egress: reach, tls_config: dial::tls_client_config(extra_roots)?, timeout: WEBHOOK_TIMEOUT })
    }

    async fn send(&self, post: &OutgoingWebhook) -> Result<HttpResponse, (WebhookError, String)> {
        let place = self.egress.check_url(&post.url).map_err(|why| (WebhookError::Blocked, why))?;
        let request = build_request(&place, post).map_err(|error| (WebhookError::Blocked, error.to_string()))?;
        let stream = self.egress.open_tcp(&place, self.timeout).await.map_err(dial_failure)?;
        let answer = if place.is_https {
            let stream =
                dial::open_tls(stream, &place.host, &self.tls_config, self.timeout).await.map_err(dial_failure)?;
            send_once(stream, request, MAX_RESPONSE_BYTES).await
        } else {
            send_once(stream, request, MAX_RESPONSE_BYTES).await
        };
        answer.map_err(|why| (WebhookError::Broken, why))
    }
}

#[async_trait]
impl WebhookClient for HttpWebhookSender {
    fn check_url(&self, url: &str) -> Result<(), String> {
        self.egress.check_url(url).map(drop)
    }

    async fn post(&self, post: OutgoingWebhook) -> WebhookResult {
        let began = Instant::now();
        let answer = match tokio::time::timeout(self.timeout, self.send(&post)).await {
            Ok(answer) => answer.map(|answer| to_reply(&answer)),
            Err(_elapsed) => {
                Err((WebhookError::Timeout, format!("there was no answer within {} s", self.timeout.as_secs())))
            }
        };
        WebhookResult { response: answer, latency_ms: began.elapsed().as_millis() as u32 }
    }
}

/// The request: ours above the team's own headers, whatever these say.
fn build_request(place: &TargetUrl, post: &OutgoingWebhook) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
    let (at, signed) = (post.timestamp_s.to_string(), sign::signatures(post));
    let mut request = Request::post(&place.path_and_query)
        .header(header::HOST, &place.authority)
        .header(header::CONNECTION, "close")
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, USER_AGENT);
    for (id_name, at_name, signature_name) in
        [("webhook-id", "webhook-timestamp", "webhook-signature"), ("svix-id", "svix-timestamp", "svix-signature")]
    {
        request = request.header(id_name, &post.id).header(at_name, &at).header(signature_name, &signed);
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
    // Which addresses of a network answer, and how, is not for tenants to find out.
    let text = match &error {
        DialError::Refused(..) => "nobody took the connection".to_owned(),
        _ => error.to_string(),
    };
    (class, text)
}

fn to_reply(answer: &HttpResponse) -> WebhookResponse {
    let header = |name: &str| {
        let value = answer.headers.get(name).and_then(|value| value.to_str().ok());
        value.map(|value| value.trim().chars().take(MAX_HEADER_CHARS).collect::<String>())
    };
    let kept = answer.body.get(..limits::WEBHOOK_RESPONSE_BYTES).unwrap_or(&answer.body);
    WebhookResponse {
        status: answer.status,
        retry_after: header("retry-after"),
        delivery_directive: header("webhook-delivery"),
        excerpt: String::from_utf8_lossy(kept).into_owned(),
    }
}
