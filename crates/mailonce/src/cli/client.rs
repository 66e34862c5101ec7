//! The command line's way to a server: one small HTTP client.

use anyhow::{Context as _, bail};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Method, Request, body::Bytes, header};
use hyper_util::{client::legacy::Client as Http, rt::TokioExecutor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{path::Path, time::Duration};

use super::{Reach, exit};

/// Bytes of an answer that are read.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;
const ANSWER_TIME: Duration = Duration::from_secs(90);

/// What a running `dev` leaves in its data directory.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct DevFile {
    pub(crate) url: String,
    pub(crate) api_key: String,
    /// Where its SMTP listener is.
    #[serde(default)]
    pub(crate) smtp: Option<String>,
}

/// The name of that file.
pub(crate) const DEV_FILE: &str = "dev.json";

/// A server and the credential for it.
pub(crate) struct Client {
    url: String,
    api_key: String,
}

/// A problem that the server told us.
#[derive(Debug)]
pub(crate) struct Told(pub(crate) Value);

impl Told {
    /// The exit code for it.
    pub(crate) fn exit_code(&self) -> u8 {
        match self.0["code"].as_str().unwrap_or_default() {
            "key_mismatch" => exit::MISMATCH,
            "use_resolve" => exit::UNKNOWN,
            _ if self.0["status"].as_u64().is_some_and(|status| (400..500).contains(&status)) => exit::USAGE,
            _ => exit::FAILED,
        }
    }
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let part = |name: &str| self.0[name].as_str().unwrap_or_default().to_owned();
        write!(f, "{}: {}\n  next: {}", part("code"), part("detail"), part("next"))
    }
}

impl std::error::Error for Told {}

impl Client {
    /// Finds the server: flags, environment, else a running `dev`.
    pub(crate) fn find(reach: &Reach) -> anyhow::Result<Self> {
        let dev = || read_dev_file(&reach.data);
        let (url, api_key) = match (&reach.url, &reach.api_key) {
            (Some(url), Some(key)) => (url.clone(), key.clone()),
            (Some(url), None) => {
                (url.clone(), dev().context("no API key: set MAILONCE_API_KEY or pass --api-key")?.api_key)
            }
            (None, Some(key)) => (dev().map_or_else(|_| "http://127.0.0.1:6245".into(), |dev| dev.url), key.clone()),
            (None, None) => {
                let dev =
                    dev().context("no server: start `mailonce dev` here, or set MAILONCE_URL and MAILONCE_API_KEY")?;
                (dev.url, dev.api_key)
            }
        };
        if !url.starts_with("http://") {
            bail!("the command line speaks plain http:// in this version; put a local proxy in front of {url}");
        }
        Ok(Self { url: url.trim_end_matches('/').to_owned(), api_key })
    }

    /// Asks, and gives back the status and the JSON of the answer. Problems become errors.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> anyhow::Result<(u16, Value)> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header(header::AUTHORIZATION, format!("Bearer {}", self.api_key))
            .header(header::USER_AGENT, concat!("mailonce-cli/", env!("CARGO_PKG_VERSION")));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let bytes = body.map(Value::to_string).unwrap_or_default();
        let request = request.body(Full::new(Bytes::from(bytes))).context("this call cannot be written")?;
        let client = Http::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let asking = async {
            let response = client.request(request).await.with_context(|| format!("no answer from {}", self.url))?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), ANSWER_BYTES).collect().await;
            let body = body.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?.to_bytes();
            Ok::<_, anyhow::Error>((status, body))
        };
        let (status, body) = tokio::time::timeout(ANSWER_TIME, asking).await.context("no answer in time")??;
        let value: Value = match body.is_empty() && status < 300 {
            true => Value::Null,
            false => serde_json::from_slice(&body).with_context(|| format!("status {status} without JSON"))?,
        };
        if status >= 400 { Err(Told(value).into()) } else { Ok((status, value)) }
    }

    /// Asks without a body.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        Ok(self.ask(Method::GET, path, None, None).await?.1)
    }
}

pub(crate) fn read_dev_file(data: &Path) -> anyhow::Result<DevFile> {
    let path = data.join(DEV_FILE);
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
}

/// A path segment or query value, escaped.
pub(crate) fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
