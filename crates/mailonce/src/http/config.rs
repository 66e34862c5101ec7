//! The `http` part of the configuration: environment over file over defaults.

use anyhow::bail;
use serde::Deserialize;
use std::path::PathBuf;

use crate::client_address::TrustedProxies;

/// The `http` part as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpFile {
    pub(crate) listen: Option<String>,
    pub(crate) public_url: Option<String>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    trusted_proxies: Option<Vec<String>>,
}

/// How the HTTP listener treats its callers.
#[derive(Clone, Debug, Default)]
pub struct HttpOptions {
    /// The certificate and its key, as PEM. With them the listener speaks TLS alone.
    pub tls_files: Option<(PathBuf, PathBuf)>,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: TrustedProxies,
}

impl HttpOptions {
    /// Puts the environment and the file together.
    pub(crate) fn load(file: HttpFile, env: &impl Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let path = |name: &str| env(name).map(PathBuf::from);
        let certificate = path("MAILONCE_HTTP_TLS_CERT").or(file.tls_cert);
        let tls_files = match (certificate, path("MAILONCE_HTTP_TLS_KEY").or(file.tls_key)) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => bail!("http.tls_cert and http.tls_key belong together: set both or neither"),
        };
        let list = |name: &str| env(name).map(|text| comma_separated(&text));
        let trusted_proxies = list("MAILONCE_HTTP_TRUSTED_PROXIES").or(file.trusted_proxies).unwrap_or_default();
        Ok(Self { tls_files, trusted_proxies: TrustedProxies::parse(&trusted_proxies)? })
    }
}

/// The items of a list in a variable of the environment.
fn comma_separated(text: &str) -> Vec<String> {
    text.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect()
}
