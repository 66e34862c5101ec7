//! Webhooks to applications: one signed POST for each attempt, over a connection of its own.

mod sign;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, header};
use mailonce_core::{
    limits,
    notice::Trouble,
    port::notify::{Notify, Post, Reply, Told},
};
use rustls::{ClientConfig, pki_types::CertificateDer};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

use crate::{
    dial::{self, DialError},
    exchange::{Answer, exchange},
    guard::{Place, Reach},
};

/// From the look-up to the last byte of the answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// Bytes of an answer's body that are read.
const READ_BYTES: usize = 64 * 1024;
/// Characters of a header of the answer that are kept.
const HEADER_CHARS: usize = 64;
const AGENT: &str = concat!("mailonce/", env!("CARGO_PKG_VERSION"));

/// Tells receivers by HTTP.
#[derive(Clone, Debug)]
pub struct Webhooks {
    reach: Reach,
    trust: Arc<ClientConfig>,
    patience: Duration,
}

impl Webhooks {
    /// Within a reach; `extra_roots` are trusted besides the usual authorities.
    pub fn new(reach: Reach, extra_roots: &[CertificateDer<'static>]) -> Result<Self, rustls::Error> {
        Ok(Self { reach, trust: dial::trust(extra_roots)?, patience: PATIENCE })
    }

    async fn ask(&self, post: &Post) -> Result<Answer, (Trouble, String)> {
        let place = self.reach.place(&post.url).map_err(|why| (Trouble::Blocked, why))?;
        let request = request(&place, post).map_err(|error| (Trouble::Blocked, error.to_string()))?;
        let stream = self.reach.open(&place, self.patience).await.map_err(unheard)?;
        let answer = if place.https {
            let stream = dial::secure(stream, &place.host, &self.trust, self.patience).await.map_err(unheard)?;
            exchange(stream, request, READ_BYTES).await
        } else {
            exchange(stream, request, READ_BYTES).await
        };
        answer.map_err(|why| (Trouble::Broken, why))
    }
}

#[async_trait]
impl Notify for Webhooks {
    fn check(&self, url: &str) -> Result<(), String> {
        self.reach.place(url).map(drop)
    }

    async fn post(&self, post: Post) -> Told {
        let began = Instant::now();
        let answer = match tokio::time::timeout(self.patience, self.ask(&post)).await {
            Ok(answer) => answer.map(|answer| reply(&answer)),
            Err(_elapsed) => {
                Err((Trouble::Timeout, format!("there was no answer within {} s", self.patience.as_secs())))
            }
        };
        Told { answer, ms: began.elapsed().as_millis() as u32 }
    }
}

/// The request: ours above the team's own headers, whatever these say.
fn request(place: &Place, post: &Post) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
    let (at, signed) = (post.at.to_string(), sign::signatures(post));
    let mut request = Request::post(&place.target)
        .header(header::HOST, &place.authority)
        .header(header::CONNECTION, "close")
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, AGENT);
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

fn unheard(error: DialError) -> (Trouble, String) {
    let class = match &error {
        DialError::Name { .. } => Trouble::Name,
        DialError::Forbidden(_) => Trouble::Blocked,
        DialError::Refused(..) => Trouble::Connect,
        DialError::Late(_) => Trouble::Timeout,
        DialError::ServerName(_) | DialError::Tls(..) => Trouble::Tls,
    };
    // Which addresses of a network answer, and how, is not for tenants to find out.
    let text = match &error {
        DialError::Refused(..) => "nobody took the connection".to_owned(),
        _ => error.to_string(),
    };
    (class, text)
}

fn reply(answer: &Answer) -> Reply {
    let header = |name: &str| {
        let value = answer.headers.get(name).and_then(|value| value.to_str().ok());
        value.map(|value| value.trim().chars().take(HEADER_CHARS).collect::<String>())
    };
    let kept = answer.body.get(..limits::ANSWER_BYTES).unwrap_or(&answer.body);
    Reply {
        status: answer.status,
        retry_after: header("retry-after"),
        wish: header("webhook-delivery"),
        excerpt: String::from_utf8_lossy(kept).into_owned(),
    }
}
