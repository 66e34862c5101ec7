//! The `http` section of the configuration. The environment overrides the file, and the file overrides the defaults.

use anyhow::{Context as _, bail};
use mailonce_core::limits;
use serde::Deserialize;
use std::path::PathBuf;

use super::{
    body_memory::{BodyLimits, DEFAULT_BODY_MEMORY},
    cross_origin::AllowedOrigin,
    host_check::Host,
};
use crate::client_address::TrustedProxies;

/// The default limit of open connections per address.
const CONNECTIONS_PER_ADDRESS: u32 = 256;

/// The `http` section as written in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpFile {
    pub(crate) listen: Option<String>,
    pub(crate) public_url: Option<String>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    hosts: Option<Vec<String>>,
    allowed_origins: Option<Vec<String>>,
    connections_per_address: Option<u32>,
    body_memory: Option<usize>,
    body_memory_per_address: Option<usize>,
    trusted_proxies: Option<Vec<String>>,
}

/// Settings of the HTTP listener.
#[derive(Clone, Debug, Default)]
pub struct HttpOptions {
    /// The certificate and its key, as PEM files. If set, the listener accepts only TLS.
    pub tls_files: Option<(PathBuf, PathBuf)>,
    /// Hosts that are allowed besides the public URL, loopback and the server's own addresses.
    pub(crate) hosts: Vec<Host>,
    /// Origins of web pages that may call `/mcp`.
    pub(crate) allowed_origins: Vec<AllowedOrigin>,
    /// Open connections per address. None: no limit.
    pub(crate) connections_per_address: Option<u32>,
    /// Limits of the memory for request bodies.
    pub(crate) body_memory: BodyLimits,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: TrustedProxies,
}

impl HttpOptions {
    /// Merges the environment and the file.
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
        let hosts = list("MAILONCE_HTTP_HOSTS").or(file.hosts).unwrap_or_default();
        let origins = list("MAILONCE_HTTP_ALLOWED_ORIGINS").or(file.allowed_origins).unwrap_or_default();
        let connections = parse_number(env, "MAILONCE_HTTP_CONNECTIONS_PER_ADDRESS")?;
        let connections = connections.or(file.connections_per_address).unwrap_or(CONNECTIONS_PER_ADDRESS);
        let total = parse_number(env, "MAILONCE_HTTP_BODY_MEMORY")?.or(file.body_memory).unwrap_or(DEFAULT_BODY_MEMORY);
        if total < limits::BODY_BYTES {
            bail!("http.body_memory must be at least {} bytes, the size of one body", limits::BODY_BYTES);
        }
        let share = parse_number(env, "MAILONCE_HTTP_BODY_MEMORY_PER_ADDRESS")?.or(file.body_memory_per_address);
        let share = share.unwrap_or(total / 4).max(limits::BODY_BYTES);
        Ok(Self {
            tls_files,
            hosts: hosts.iter().map(|text| parse_host(text)).collect::<anyhow::Result<_>>()?,
            allowed_origins: origins.iter().map(|text| parse_origin(text)).collect::<anyhow::Result<_>>()?,
            connections_per_address: (connections > 0).then_some(connections),
            body_memory: BodyLimits { total, per_address: Some(share) },
            trusted_proxies: TrustedProxies::parse(&trusted_proxies)?,
        })
    }
}

/// Parses a number from an environment variable.
fn parse_number<T: std::str::FromStr>(env: &impl Fn(&str) -> Option<String>, name: &str) -> anyhow::Result<Option<T>> {
    let Some(text) = env(name) else { return Ok(None) };
    text.parse().map(Some).map_err(|_not| anyhow::anyhow!("{name} must be a number, not `{text}`"))
}

/// Parses a host without scheme and port.
fn parse_host(text: &str) -> anyhow::Result<Host> {
    Host::parse(text).with_context(|| {
        format!("http.hosts: `{text}` is not a host such as `mailonce` or `mail.example.com`, without scheme and port")
    })
}

/// Parses the origin of a web page.
fn parse_origin(text: &str) -> anyhow::Result<AllowedOrigin> {
    AllowedOrigin::parse(text).with_context(|| {
        format!("http.allowed_origins: `{text}` is not an origin such as `https://app.example.com`, without a path")
    })
}

/// Splits a comma-separated environment variable.
fn comma_separated(text: &str) -> Vec<String> {
    text.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(file: &str, env: &[(&str, &str)]) -> Result<HttpOptions, String> {
        let file: HttpFile = toml::from_str(file).map_err(|error| error.to_string())?;
        let env = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        HttpOptions::load(file, &env).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn the_environment_comes_before_the_file() {
        let file = "hosts = [\"a\"]\ntls_cert = \"c\"\ntls_key = \"k\"\nconnections_per_address = 0";
        let options = load(file, &[]).unwrap();
        assert_eq!((options.hosts, options.connections_per_address), (vec![Host::parse("a").unwrap()], None));
        assert_eq!(options.tls_files, Some(("c".into(), "k".into())));
        let env = [("MAILONCE_HTTP_HOSTS", "B, [::2]"), ("MAILONCE_HTTP_CONNECTIONS_PER_ADDRESS", "7")];
        let options = load(file, &env).unwrap();
        assert_eq!(options.hosts, ["b", "::2"].map(|host| Host::parse(host).unwrap()));
        assert_eq!(options.connections_per_address, Some(7));
        assert_eq!(load("", &[]).unwrap().connections_per_address, Some(CONNECTIONS_PER_ADDRESS));
        assert_eq!(load("", &[]).unwrap().body_memory, BodyLimits::default());
        let (file, env) = ("body_memory = 100000000", [("MAILONCE_HTTP_BODY_MEMORY_PER_ADDRESS", "50000000")]);
        let expected = BodyLimits { total: 100_000_000, per_address: Some(50_000_000) };
        assert_eq!(load(file, &env).unwrap().body_memory, expected);
    }

    #[test]
    fn mistakes_are_named() {
        for (file, expected) in [
            ("hosts = [\"http://mailonce\"]", "`http://mailonce` is not a host"),
            ("hosts = [\"mailonce:8080\"]", "without scheme and port"),
            ("hosts = [\"*\"]", "`*` is not a host"),
            ("allowed_origins = [\"*\"]", "`*` is not an origin"),
            ("allowed_origins = [\"https://app.example.com/page\"]", "without a path"),
            ("tls_cert = \"c\"", "set both or neither"),
            ("body_memory = 1000", "the size of one body"),
            ("trusted_proxies = [\"proxy\"]", "http.trusted_proxies"),
        ] {
            let error = load(file, &[]).unwrap_err();
            assert!(error.contains(expected), "{file}: {error}");
        }
    }
}
