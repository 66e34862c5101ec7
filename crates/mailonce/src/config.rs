//! Configuration: flags and the environment override `mailonce.toml`, which overrides the defaults. Unknown fields are
//! errors.

use anyhow::{Context as _, bail};
use mailonce_core::problem::nearest_name;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use crate::{
    intake::smtp::{SmtpConfig, SmtpFile},
    secrets::{SecretsConfig, SecretsFile},
    server::{HttpFile, HttpOptions},
    typed_errors::{JsonTree, ShapeError},
};

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    data: Option<PathBuf>,
    store: Option<String>,
    store_file: Option<PathBuf>,
    handoff: Option<String>,
    http: Option<HttpFile>,
    smtp: Option<SmtpFile>,
    transports: Option<Vec<TransportFile>>,
    routing: Option<RoutingFile>,
    defaults: Option<DefaultsFile>,
    clock: Option<ClockFile>,
    webhooks: Option<WebhooksFile>,
    secrets: Option<SecretsFile>,
    search: Option<SearchFile>,
    compat: Option<CompatFile>,
    outboxes: Option<Vec<OutboxFile>>,
    oidc: Option<OidcFile>,
}

/// The section `[webhooks]`: webhooks to applications.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhooksFile {
    /// CIDR blocks in which endpoints are allowed although the addresses are not public.
    pub(crate) allow: Option<Vec<String>>,
    /// Certificate authorities trusted besides the public ones.
    pub(crate) ca_file: Option<PathBuf>,
}

/// One entry of `[[transports]]`. `engine_deps` checks which fields belong to which kind.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TransportFile {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) account: Option<String>,
    pub(crate) timeout: Option<String>,
    // smtp
    pub(crate) host: Option<String>,
    pub(crate) port: Option<u16>,
    pub(crate) tls: Option<String>,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) helo_name: Option<String>,
    pub(crate) max_connections: Option<usize>,
    pub(crate) ca_file: Option<PathBuf>,
    // providers
    pub(crate) base_url: Option<String>,
    pub(crate) api_key: Option<String>,
    pub(crate) api_key_file: Option<PathBuf>,
    pub(crate) domain: Option<String>,
    pub(crate) message_stream: Option<String>,
    pub(crate) activity_lookup: Option<bool>,
    pub(crate) access_key_id: Option<String>,
    pub(crate) secret_access_key: Option<String>,
    pub(crate) secret_access_key_file: Option<PathBuf>,
    pub(crate) session_token: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) configuration_set: Option<String>,
    // http
    pub(crate) url: Option<String>,
    pub(crate) method: Option<String>,
    pub(crate) headers: Option<BTreeMap<String, String>>,
    pub(crate) body: Option<String>,
    pub(crate) idempotency_header: Option<String>,
    pub(crate) idempotency_window: Option<String>,
    pub(crate) accepted_statuses: Option<Vec<u16>>,
    pub(crate) message_id_pointer: Option<String>,
    pub(crate) duplicate_statuses: Option<Vec<u16>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RoutingFile {
    pub(crate) default: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) rules: Vec<RoutingRuleFile>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RoutingRuleFile {
    pub(crate) from_domain: Option<String>,
    pub(crate) tag: Option<String>,
    pub(crate) transports: Vec<String>,
    #[serde(default)]
    pub(crate) weights: Vec<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DefaultsFile {
    pub(crate) on_unknown: Option<String>,
    pub(crate) verify_domains: Option<bool>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) give_up_after: Option<String>,
    pub(crate) max_in_flight: Option<usize>,
    pub(crate) max_in_flight_per_domain: Option<usize>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClockFile {
    trusted: Option<bool>,
}

/// The section `[compat]`: emails without a key through dialects.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompatFile {
    pub(crate) keyless: Option<String>,
    pub(crate) window: Option<String>,
}

/// The section `[oidc]`: the identity provider by which people sign in.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OidcFile {
    /// Its URL, exactly as it writes it.
    pub issuer: String,
    /// The id under which it knows this server.
    pub client_id: String,
    /// The file with the secret of this server. Without it the server is a public client.
    pub client_secret_file: Option<PathBuf>,
    /// The claim with the role.
    pub role_claim: Option<String>,
    /// The claim with the names of the teams.
    pub team_claim: Option<String>,
    /// The role of people whose claim names none.
    pub default_role: Option<String>,
    /// Further certificate authorities, for a provider with a private one.
    pub ca_file: Option<PathBuf>,
}

/// The section `[search]`: full-text search.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchFile {
    enabled: Option<bool>,
}

/// The schema of an outbox when the configuration or the command names none.
pub(crate) const OUTBOX_SCHEMA: &str = "mailonce_outbox";

/// An entry of `[[outboxes]]`: a schema in a database of the user.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutboxFile {
    pub(crate) name: String,
    pub(crate) database: Option<String>,
    pub(crate) database_file: Option<PathBuf>,
    pub(crate) schema: Option<String>,
    pub(crate) team: Option<String>,
}

/// Command-line flags, each with an environment variable of the same name.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// Data directory
    #[arg(long, env = "MAILONCE_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Address of the HTTP API
    #[arg(long, env = "MAILONCE_HTTP", value_name = "ADDR")]
    pub http: Option<String>,
    /// Address for inbound SMTP
    #[arg(long, env = "MAILONCE_SMTP", value_name = "ADDR")]
    pub smtp: Option<String>,
    /// `sqlite`, or a `postgres://…` URL
    #[arg(long, env = "MAILONCE_STORE", value_name = "STORE", hide_env_values = true)]
    pub store: Option<String>,
    /// Configuration file
    #[arg(long, env = "MAILONCE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Where the ledger is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreLocation {
    /// A file in the data directory.
    Sqlite,
    /// A PostgreSQL database.
    Postgres(String),
}

/// Whether hand-off runs when a server starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartHandoff {
    /// It runs, unless somebody stopped it or a restore stops it.
    Running,
    /// It runs, also if the tables of PostgreSQL were restored since the last start.
    RunningAfterRestore,
    /// The installation is stopped: emails are accepted and stay queued.
    Paused,
}

/// The merged configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Data directory.
    pub data: PathBuf,
    /// Where the ledger is stored.
    pub store: StoreLocation,
    /// The listen address of HTTP.
    pub http: SocketAddr,
    /// The URL under which clients reach the server, if it differs from the listen address.
    pub public_url: Option<String>,
    /// Further settings of the HTTP listener.
    pub http_options: HttpOptions,
    /// Whether hand-off runs when the server starts.
    pub handoff: StartHandoff,
    /// Whether the clock is trusted at startup, however long the server was down. None: only `dev` trusts it.
    pub clock_trusted: Option<bool>,
    /// The domains of `dev`, which are local without being configured. Empty otherwise.
    pub dev_domains: Vec<String>,
    /// Settings of the SMTP listener.
    pub smtp: SmtpConfig,
    /// How secrets are protected.
    pub secrets: SecretsConfig,
    /// Whether mail is indexed and can be searched.
    pub search_enabled: Option<bool>,
    pub(crate) transports: Vec<TransportFile>,
    pub(crate) routing: RoutingFile,
    pub(crate) defaults: DefaultsFile,
    pub(crate) webhooks: WebhooksFile,
    pub(crate) compat: CompatFile,
    pub(crate) outboxes: Vec<OutboxFile>,
    pub(crate) oidc: Option<OidcFile>,
}

impl Config {
    /// Merges flags, environment, file and defaults. `env` returns the value of an environment variable.
    pub fn load(flags: &Flags, env: impl Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let file = load_file(flags.config.as_deref()).unwrap_or_else(|| Ok(ConfigFile::default()))?;
        let mut http = file.http.unwrap_or_default();
        let secret_file = env("MAILONCE_STORE_FILE").map(PathBuf::from).or(file.store_file);
        let from_file = secret_file
            .map(|path| std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display())));
        let store = flags.store.clone().or(from_file.transpose()?.map(|url| url.trim().to_owned())).or(file.store);
        let listen = flags.http.clone().or_else(|| env("MAILONCE_HTTP_LISTEN")).or(http.listen.take());
        let listen = listen.unwrap_or_else(|| "127.0.0.1:6245".into());
        Ok(Self {
            data: flags.data.clone().or(file.data).unwrap_or_else(|| DEFAULT_DATA_DIR.into()),
            store: parse_store(store.as_deref().unwrap_or("sqlite"))?,
            http: listen
                .parse()
                .with_context(|| format!("http.listen `{listen}` is not an address such as 127.0.0.1:6245"))?,
            public_url: parse_public_url(env("MAILONCE_HTTP_PUBLIC_URL").or(http.public_url.take()))?,
            http_options: HttpOptions::load(http, &env)?,
            handoff: parse_handoff(env("MAILONCE_HANDOFF").or(file.handoff).as_deref())?,
            clock_trusted: parse_clock_trusted(env("MAILONCE_CLOCK_TRUSTED"))?
                .or(file.clock.unwrap_or_default().trusted),
            dev_domains: Vec::new(),
            smtp: SmtpConfig::load(file.smtp.unwrap_or_default(), flags.smtp.clone(), &env)?,
            secrets: SecretsConfig::load(file.secrets.unwrap_or_default(), &env)?,
            search_enabled: parse_search_enabled(env("MAILONCE_SEARCH_ENABLED"))?
                .or(file.search.unwrap_or_default().enabled),
            transports: file.transports.unwrap_or_default(),
            routing: file.routing.unwrap_or_default(),
            defaults: apply_defaults_env(file.defaults.unwrap_or_default(), &env)?,
            webhooks: apply_webhooks_env(file.webhooks.unwrap_or_default(), &env),
            compat: apply_compat_env(file.compat.unwrap_or_default(), &env),
            outboxes: file.outboxes.unwrap_or_default(),
            oidc: file.oidc,
        })
    }

    /// The transports of emails that match no routing rule, in failover order. Without `routing.default`, the first
    /// configured transport; with no transport at all, empty, which means the sandbox.
    pub fn default_transports(&self) -> Vec<String> {
        let first = || self.transports.first().map(|file| file.name.clone()).into_iter().collect();
        self.routing.default.clone().unwrap_or_else(first)
    }

    /// The URL of the API.
    pub fn url(&self) -> String {
        self.url_at(self.http)
    }

    /// The URL of the API for the bound address, which differs from the configured one if its port is 0.
    pub fn url_at(&self, address: SocketAddr) -> String {
        let scheme = if self.http_options.tls_files.is_some() { "https" } else { "http" };
        self.public_url.clone().unwrap_or_else(|| format!("{scheme}://{address}"))
    }
}

/// The URL under which others reach the server. Links in mail begin with it.
fn parse_public_url(text: Option<String>) -> anyhow::Result<Option<String>> {
    let Some(text) = text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()) else { return Ok(None) };
    let url = url::Url::parse(&text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let is_plain = |url: &url::Url| url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    anyhow::ensure!(
        url.as_ref().is_some_and(is_plain),
        "http.public_url `{text}` is not a URL such as https://mail.example.com"
    );
    Ok(Some(text))
}

/// Overrides the section `[defaults]` with environment variables.
fn apply_defaults_env(mut file: DefaultsFile, env: impl Fn(&str) -> Option<String>) -> anyhow::Result<DefaultsFile> {
    if let Some(text) = env("MAILONCE_DEFAULTS_ON_UNKNOWN") {
        file.on_unknown = Some(text);
    }
    if let Some(text) = env("MAILONCE_DEFAULTS_VERIFY_DOMAINS") {
        let verify = text
            .parse()
            .with_context(|| format!("MAILONCE_DEFAULTS_VERIFY_DOMAINS must be `true` or `false`, not `{text}`"));
        file.verify_domains = Some(verify?);
    }
    Ok(file)
}

/// Overrides the section `[webhooks]` with environment variables.
fn apply_webhooks_env(mut file: WebhooksFile, env: impl Fn(&str) -> Option<String>) -> WebhooksFile {
    if let Some(blocks) = env("MAILONCE_WEBHOOKS_ALLOW") {
        file.allow = Some(blocks.split(',').map(|block| block.trim().to_owned()).collect());
    }
    if let Some(path) = env("MAILONCE_WEBHOOKS_CA_FILE") {
        file.ca_file = Some(path.into());
    }
    file
}

/// Overrides the section `[compat]` with environment variables.
fn apply_compat_env(file: CompatFile, env: impl Fn(&str) -> Option<String>) -> CompatFile {
    CompatFile {
        keyless: env("MAILONCE_COMPAT_KEYLESS").or(file.keyless),
        window: env("MAILONCE_COMPAT_WINDOW").or(file.window),
    }
}

fn parse_search_enabled(text: Option<String>) -> anyhow::Result<Option<bool>> {
    text.map(|text| {
        text.parse().with_context(|| format!("MAILONCE_SEARCH_ENABLED must be `true` or `false`, not `{text}`"))
    })
    .transpose()
}

fn parse_clock_trusted(text: Option<String>) -> anyhow::Result<Option<bool>> {
    match text.as_deref() {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(other) => bail!("MAILONCE_CLOCK_TRUSTED is `{other}`; it must be `true` or `false`"),
    }
}

fn parse_handoff(text: Option<&str>) -> anyhow::Result<StartHandoff> {
    match text {
        None | Some("running") => Ok(StartHandoff::Running),
        Some("running_after_restore") => Ok(StartHandoff::RunningAfterRestore),
        Some("paused") => Ok(StartHandoff::Paused),
        Some(other) => bail!("handoff must be `running`, `running_after_restore` or `paused`, not `{other}`"),
    }
}

fn parse_store(text: &str) -> anyhow::Result<StoreLocation> {
    if text == "sqlite" {
        return Ok(StoreLocation::Sqlite);
    }
    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        return Ok(StoreLocation::Postgres(text.to_owned()));
    }
    bail!("store must be `sqlite` or a `postgres://…` URL")
}

/// The default data directory.
const DEFAULT_DATA_DIR: &str = "./mailonce-data";

/// The data directory of the configuration file, for commands that look for a running `dev` there. An unreadable file
/// is ignored, because these commands may not need it.
pub(crate) fn default_data_dir() -> PathBuf {
    let config_path = std::env::var_os("MAILONCE_CONFIG").map(PathBuf::from);
    let file = load_file(config_path.as_deref()).and_then(Result::ok);
    file.and_then(|file| file.data).unwrap_or_else(|| DEFAULT_DATA_DIR.into())
}

/// Reads the given file, else `mailonce.toml` in the current directory, if it exists.
fn load_file(config_path: Option<&Path>) -> Option<anyhow::Result<ConfigFile>> {
    let default_path = Path::new("mailonce.toml");
    config_path.or_else(|| default_path.exists().then_some(default_path)).map(read_file)
}

fn read_file(path: &Path) -> anyhow::Result<ConfigFile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let describe = |error: toml::de::Error| {
        anyhow::anyhow!("{}: {}", error_location(&text, &error), describe_error(&text, &error))
    };
    toml::from_str(&text).map_err(describe).with_context(|| format!("in {}", path.display()))
}

/// The line of an error.
fn error_location(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    format!("line {}", before.matches('\n').count() + 1)
}

/// The error message on one line. For an unknown field it suggests the nearest known name.
fn describe_error(text: &str, error: &toml::de::Error) -> String {
    let tree = toml::Deserializer::parse(text).and_then(JsonTree::deserialize);
    let Ok(Err(ShapeError::UnknownField { name, known })) = tree.map(ConfigFile::deserialize) else {
        return error.message().trim_end().replace('\n', ", ");
    };
    match nearest_name(&name, known.iter().copied()) {
        Some(nearest) => format!("unknown field `{name}`; did you mean `{nearest}`?"),
        None => format!("unknown field `{name}`; known fields are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(file: &str, env: &[(&str, &str)]) -> anyhow::Result<Config> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mailonce.toml");
        std::fs::write(&path, file).unwrap();
        let flags = Flags { config: Some(path), ..Flags::default() };
        let env: Vec<(String, String)> = env.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        Config::load(&flags, move |name| env.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone()))
    }

    #[test]
    fn defaults_file_and_environment_are_layered() {
        assert_eq!(load("", &[]).unwrap().http.port(), 6245);
        let file = "http.listen = \"127.0.0.1:7000\"\nstore = \"postgres://x/y\"\n";
        let config = load(file, &[]).unwrap();
        assert_eq!((config.http.port(), config.store), (7000, StoreLocation::Postgres("postgres://x/y".into())));
        assert_eq!(load(file, &[("MAILONCE_HTTP_LISTEN", "127.0.0.1:7001")]).unwrap().http.port(), 7001);
    }

    #[test]
    fn handoff_says_what_a_start_does() {
        assert_eq!(load("", &[]).unwrap().handoff, StartHandoff::Running);
        assert_eq!(load("handoff = \"paused\"", &[]).unwrap().handoff, StartHandoff::Paused);
        let once = load("", &[("MAILONCE_HANDOFF", "running_after_restore")]).unwrap();
        assert_eq!(once.handoff, StartHandoff::RunningAfterRestore);
        assert!(load("handoff = \"maybe\"", &[]).unwrap_err().to_string().contains("`running_after_restore`"));
    }

    #[test]
    fn unknown_fields_are_refused_with_the_nearest_name() {
        let text = |file: &str| format!("{:#}", load(file, &[]).unwrap_err());
        assert!(text("stor = \"sqlite\"").contains("did you mean `store`?"));
        assert!(text("http.lisen = \"x\"").contains("did you mean `listen`?"));
        assert!(text("smtp.hostnam = \"x\"").contains("did you mean `hostname`?"));
        assert!(text("smtp.listen = \"nowhere\"").contains("127.0.0.1:6225"));
        assert!(text("store = \"mysql://\"").contains("postgres://"));
        assert!(text("http.listen = \"nowhere\"").contains("127.0.0.1:6245"));
        assert!(text("[[transports]]\nname = \"x\"\nkind = \"smtp\"\nhots = \"y\"").contains("did you mean `host`?"));
    }

    #[test]
    fn a_configuration_error_names_its_line() {
        for (file, expected) in [
            ("data = 5", "line 1: invalid type: integer `5`"),
            ("store = \"sqlite\"\n\n[defaults]\nmax_attempts = \"many\"", "line 4: invalid type: string \"many\""),
            ("store = \"sqlite\"\nstor = 1", "line 2: unknown field `stor`"),
            ("store = ", "line 1: "),
        ] {
            let error = format!("{:#}", load(file, &[]).unwrap_err());
            assert!(error.contains(expected) && !error.contains('\n'), "{file}\n{error}");
        }
    }
}
