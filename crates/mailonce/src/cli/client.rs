//! The server and its API key, from flags, the environment or the file of a running `dev`. Calls go through the SDK.

use anyhow::Context as _;
use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

use super::{ServerArgs, UsageError, exit};
use crate::{
    cli::http_client::{ApiServer, NoAnswer, RESPONSE_TIMEOUT},
    private_file,
};

/// A person waits for the answer, so that a command gives up sooner than a program would.
const MAX_RETRIES: u32 = 4;

/// The file that a running `dev` keeps in its data directory.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct DevFile {
    pub(crate) url: String,
    pub(crate) api_key: String,
    /// The API key for models: it can send, read and reply, but not decide.
    #[serde(default)]
    pub(crate) agent_key: Option<String>,
    /// Address of its SMTP listener.
    #[serde(default)]
    pub(crate) smtp: Option<String>,
}

/// Name of that file.
pub(crate) const DEV_FILE: &str = "dev.json";
/// File in which `dev` keeps its API key between runs.
pub(crate) const DEV_KEY_FILE: &str = "dev.key";
/// File in which `dev` keeps the API key for models.
pub(crate) const AGENT_KEY_FILE: &str = "agent.key";
/// URL of a server that was not named.
pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:6245";

/// A server and its API key.
pub(crate) struct CliClient {
    pub(crate) server: ApiServer,
    pub(crate) api_key: String,
}

/// A problem document of the server.
#[derive(Debug)]
pub(crate) struct ServerProblem(pub(crate) Value);

impl ServerProblem {
    /// The exit code of the problem.
    pub(crate) fn exit_code(&self) -> u8 {
        match self.0["code"].as_str().unwrap_or_default() {
            "key_mismatch" => exit::MISMATCH,
            "use_resolve" => exit::UNKNOWN,
            // The user typed something invalid.
            "invalid_field" => exit::USAGE,
            _ => match self.0["status"].as_u64() {
                // The request is valid, but refused.
                Some(403 | 408 | 409 | 422 | 429) => exit::FAILED,
                Some(400..500) => exit::USAGE,
                _ => exit::FAILED,
            },
        }
    }
}

impl std::fmt::Display for ServerProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let part = |name: &str| self.0[name].as_str().unwrap_or_default().to_owned();
        write!(f, "{}: {}\n  next: {}", part("code"), part("detail"), part("next"))
    }
}

impl std::error::Error for ServerProblem {}

/// What a command needs to find its server, and did not get.
#[derive(Clone, Copy, Debug)]
pub(super) enum MissingSetting {
    Server,
    ApiKey,
}

impl MissingSetting {
    /// Its error code, what is missing, and how to set it.
    pub(super) fn texts(self) -> [&'static str; 3] {
        match self {
            Self::Server => {
                ["no_server", "no server", "start `mailonce dev` here, or set MAILONCE_URL and MAILONCE_API_KEY"]
            }
            Self::ApiKey => ["no_api_key", "no API key", "set MAILONCE_API_KEY or pass --api-key"],
        }
    }
}

impl std::fmt::Display for MissingSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [_, what, next] = self.texts();
        write!(f, "{what}: {next}")
    }
}

impl CliClient {
    /// Finds the server: flags and environment, else a running `dev`.
    pub(crate) fn find(server: &ServerArgs) -> anyhow::Result<Self> {
        Self::resolve(server, read_dev_file)
    }

    /// Finds the server for a model. From a running `dev` a model gets the key for agents, never the admin key.
    pub(crate) fn for_model(server: &ServerArgs) -> anyhow::Result<Self> {
        Self::resolve(server, |data| {
            let dev = read_dev_file(data)?;
            let key = dev.agent_key.context("this `mailonce dev` has no API key for agents: restart it")?;
            Ok(DevFile { api_key: key, agent_key: None, ..dev })
        })
    }

    fn resolve(server: &ServerArgs, dev: impl Fn(&Path) -> anyhow::Result<DevFile>) -> anyhow::Result<Self> {
        let dev = || dev(&server.data);
        let (url, api_key) = match (&server.url, &server.api_key) {
            (Some(url), Some(key)) => (url.clone(), key.clone()),
            (Some(url), None) => {
                let dev = dev().context(MissingSetting::ApiKey)?;
                (url.clone(), dev.key_for(url)?)
            }
            // A planted file must not redirect the user's API key to another server.
            (None, Some(key)) => {
                let dev = dev().ok().filter(|dev| dev.owns_key(key) || dev.is_on_this_machine());
                (dev.map_or_else(|| DEFAULT_URL.into(), |dev| dev.url), key.clone())
            }
            (None, None) => {
                let dev = dev().context(MissingSetting::Server)?;
                (dev.url, dev.api_key)
            }
        };
        Ok(Self { server: ApiServer::new(&url, server.ca_file.as_deref())?, api_key })
    }

    /// Calls the API with retries, and returns the status and the JSON of the response. Problems become errors. A POST
    /// without an idempotency key gets a random one, so that its retries are safe; an email without one is sent once.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> anyhow::Result<(u16, Value)> {
        let mut call = self.sdk().build()?.request_with_status(method, path, body).timeout(RESPONSE_TIMEOUT);
        if let Some(key) = key {
            call = call.idempotency_key(key);
        }
        call.await.map_err(|error| self.to_error(error))
    }

    /// A builder of the SDK client for this server.
    pub(super) fn sdk(&self) -> mailonce_sdk::Builder {
        mailonce_sdk::Client::builder()
            .server_url(self.server.0.clone())
            .api_key(&self.api_key)
            .max_retries(MAX_RETRIES)
    }

    /// Converts an error of the SDK.
    pub(super) fn to_error(&self, error: mailonce_sdk::Error) -> anyhow::Error {
        match error.status {
            // A proxy in between does not answer with RFC 9457 problems.
            1.. if error.details.contains_key("code") => ServerProblem(Value::Object(error.details.clone())).into(),
            status @ 1.. => anyhow::anyhow!("{} answered HTTP {status} without a reason", self.server.url()),
            0 if error.code == "invalid_key" => UsageError(format!("{}: {}", error.code, error.detail)).into(),
            0 => anyhow::Error::new(error).context(NoAnswer::of(self.server.url())),
        }
    }

    /// Calls GET.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        Ok(self.call(Method::GET, path, None, None).await?.1)
    }
}

pub(crate) fn read_dev_file(data: &Path) -> anyhow::Result<DevFile> {
    let path = data.join(DEV_FILE);
    let text = private_file::read(&path)?.with_context(|| format!("there is no {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
}

impl DevFile {
    /// Whether the key belongs to this `dev`.
    fn owns_key(&self, key: &str) -> bool {
        self.api_key == key || self.agent_key.as_deref() == Some(key)
    }

    /// Whether the server is on this machine, so that a key does not leave it.
    fn is_on_this_machine(&self) -> bool {
        let host = url::Url::parse(&self.url).ok().and_then(|url| url.host().map(|host| host.to_owned()));
        match host {
            Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
            Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
            Some(url::Host::Domain(name)) => name == "localhost",
            None => false,
        }
    }

    /// The API key, if the URL is that of this `dev`.
    fn key_for(self, url: &str) -> anyhow::Result<String> {
        let normalize = |url: &str| url.trim_end_matches('/').to_ascii_lowercase();
        if normalize(&self.url) == normalize(url) {
            return Ok(self.api_key);
        }
        let wrong = format!("the API key of `mailonce dev` belongs to {}, not to {url}: pass --api-key", self.url);
        Err(UsageError(wrong).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::problem::Code;

    /// A folder with the file of a `dev`, of which the URL and the key are known.
    fn folder_with_dev_file() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let dev = r#"{"url":"http://evil.example","api_key":"mo_planted"}"#;
        private_file::write(&folder.path().join(DEV_FILE), dev.as_bytes()).unwrap();
        folder
    }

    fn found(data: &Path, url: Option<&str>, key: Option<&str>) -> anyhow::Result<(String, String)> {
        let (url, api_key) = (url.map(str::to_owned), key.map(str::to_owned));
        let client = CliClient::find(&ServerArgs { url, api_key, data: data.to_owned(), ca_file: None })?;
        Ok((client.server.url().to_owned(), client.api_key))
    }

    #[test]
    fn an_api_key_goes_only_where_it_belongs() {
        let folder = folder_with_dev_file();
        let data = folder.path();
        let own = found(data, None, Some("mo_real")).unwrap();
        assert_eq!(own, (DEFAULT_URL.to_owned(), "mo_real".to_owned()), "a planted file sent the key elsewhere");
        assert!(found(data, Some("https://mail.example.com"), None).is_err(), "the key of dev went to another server");
        assert_eq!(found(data, Some("http://evil.example/"), None).unwrap().1, "mo_planted");
        assert_eq!(found(data, None, None).unwrap().1, "mo_planted");
        let here = r#"{"url":"http://127.0.0.1:7000","api_key":"mo_dev"}"#;
        private_file::write(&data.join(DEV_FILE), here.as_bytes()).unwrap();
        assert_eq!(found(data, None, Some("mo_other")).unwrap().0, "http://127.0.0.1:7000");
        // As version control leaves files.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(data.join(DEV_FILE), open).unwrap();
        assert_eq!(found(data, None, Some("mo_real")).unwrap().0, DEFAULT_URL);
        assert!(found(data, None, None).is_err());
    }

    #[test]
    fn only_what_was_typed_wrongly_is_wrong_usage() {
        let exit_of = |code: Code| {
            ServerProblem(serde_json::json!({ "code": code.as_str(), "status": code.status() })).exit_code()
        };
        for code in [
            Code::Automatic,
            Code::Itself,
            Code::BlockedByRule,
            Code::RecipientSuppressed,
            Code::WrongScope,
            Code::SenderNotAllowed,
            Code::SenderNotVerified,
            Code::RateLimited,
            Code::TooLate,
            Code::Unavailable,
        ] {
            assert_eq!(exit_of(code), exit::FAILED, "{}", code.as_str());
        }
        for code in [Code::InvalidField, Code::InvalidType, Code::InvalidQuery, Code::InvalidKey, Code::NotFound] {
            assert_eq!(exit_of(code), exit::USAGE, "{}", code.as_str());
        }
        assert_eq!((exit_of(Code::KeyMismatch), exit_of(Code::UseResolve)), (exit::MISMATCH, exit::UNKNOWN));
    }
}
