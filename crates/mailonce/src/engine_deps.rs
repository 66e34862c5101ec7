//! Builds the engine's dependencies from the configuration: transports, routing, DNS, webhooks. Every mistake in the
//! configuration is reported before anything starts.

use anyhow::{Context as _, bail, ensure};
use mailonce_core::{
    outbound::{
        content_guard::{IdenticalMode, MAX_IDENTICAL_WINDOW_MS},
        email::OnUnknown,
    },
    ports::{
        authenticator::{Authenticator, TrustLoopback},
        transport::Transport,
    },
    problem::nearest_name,
    time::parse_span,
};
use mailonce_engine::{
    EngineDeps, HandoffSettings,
    access::compat_settings::CompatSettings,
    handoff::transport_selector::{Routing, RoutingRule},
    outbox::config::OutboxConfig,
};
use mailonce_store::postgres::outbox::PostgresOutbox;
use mailonce_transport::{
    authenticate::DnsSenderAuthenticator,
    collect::HttpMailCollector,
    dial::AddressFilter,
    dns::Resolver,
    egress::{Cidr, EgressPolicy},
    fetch::AllowlistFetcher,
    http::{HttpTransportConfig, Secret, brevo, mailgun, postmark, resend, sendgrid, ses, template, usesend},
    sandbox::SandboxFaultTransport,
    smtp::{RelayConfig, SmtpTransport, TlsMode},
    webhook::HttpWebhookSender,
};
use std::{collections::BTreeSet, fmt::Display, ops::RangeInclusive, path::Path, sync::Arc, time::Duration};

use crate::{
    config::{CompatFile, Config, DefaultsFile, OUTBOX_SCHEMA, OutboxFile, TransportFile},
    tls::load_ca_file,
    wall_clock::WallClock,
};

/// All values of `kind` in `[[transports]]`.
pub(crate) const KINDS: [&str; 10] =
    ["sandbox", "smtp", "resend", "postmark", "mailgun", "sendgrid", "ses", "usesend", "brevo", "http"];
/// The maximum of `defaults.give_up_after`. A longer time would outlast the memory of an idempotency key.
const MAX_GIVE_UP_MS: i64 = 7 * 86_400_000;

/// Builds the dependencies of the engine.
pub fn engine_deps(config: &Config) -> anyhow::Result<EngineDeps> {
    let mut transports: Vec<Arc<dyn Transport>> = vec![Arc::new(SandboxFaultTransport::default())];
    let mut names: BTreeSet<&str> = BTreeSet::from(["local", "sandbox", "sandbox-faults"]);
    for file in &config.transports {
        if file.kind != "sandbox" && !names.insert(&file.name) {
            bail!("two transports are named `{}`; each needs its own name", file.name);
        }
        transports.extend(transport(file).with_context(|| format!("transport `{}`", file.name))?);
    }
    let engine_defaults = EngineDeps::default();
    let resolver = Resolver::system();
    Ok(EngineDeps {
        routing: routing(config, &names)?,
        transports,
        handoff: handoff_settings(&config.defaults)?,
        // On by default. `dev` turns it off.
        verify_domains: config.defaults.verify_domains.unwrap_or(true),
        bounce_domain: config.smtp.domains.first().cloned(),
        local_domains: config
            .smtp
            .domains
            .iter()
            .chain(&config.dev_domains)
            .map(|name| name.to_ascii_lowercase())
            .collect(),
        reserved_names: config.smtp.reserved.as_ref().map_or(engine_defaults.reserved_names, |names| {
            names.iter().map(|name| name.to_ascii_lowercase()).collect()
        }),
        authenticator: authenticator(config, &resolver)?,
        dns: Arc::new(resolver),
        mail_collector: Arc::new(collector(config)?),
        http_fetcher: Arc::new(AllowlistFetcher::new(&[".amazonaws.com"])?),
        webhook_sender: Arc::new(webhooks(config)?),
        event_formatter: Arc::new(crate::dialects::DialectEventFormatter),
        seal_bodies: config.secrets.seal_bodies,
        // `dev` indexes mail; a server does when it is told to.
        compat: compat_settings(&config.compat)?,
        search_enabled: config.search_enabled.unwrap_or(!config.dev_domains.is_empty()),
        // Nobody but this machine reaches `dev`, and nobody else gets its mail.
        public_url: config.public_url.clone().or_else(|| (!config.dev_domains.is_empty()).then(|| config.url())),
        outboxes: outboxes(&config.outboxes)?,
    })
}

/// The outboxes to drain, from `[[outboxes]]`. None is connected yet.
fn outboxes(files: &[OutboxFile]) -> anyhow::Result<Vec<OutboxConfig>> {
    let mut names = BTreeSet::new();
    let outbox = |file: &OutboxFile| {
        let OutboxFile { name, database, database_file, schema, team } = file;
        ensure!(!name.is_empty() && name.len() <= 64, "an outbox needs a name of 1 to 64 characters");
        ensure!(names.insert(name.clone()), "two outboxes are named `{name}`; each needs its own name");
        let url = match (database, database_file) {
            (Some(url), None) => url.clone(),
            (None, Some(path)) => std::fs::read_to_string(path)
                .with_context(|| format!("outbox `{name}`: reading {}", path.display()))?
                .trim()
                .to_owned(),
            _ => bail!("outbox `{name}` needs `database` or `database_file`, and not both"),
        };
        let schema = schema.as_deref().unwrap_or(OUTBOX_SCHEMA);
        let database = PostgresOutbox::new(&url, schema).with_context(|| format!("outbox `{name}`"))?;
        Ok(OutboxConfig {
            name: name.clone(),
            team: team.clone(),
            database: Arc::new(database),
            parse_payload: crate::api::parse_send,
        })
    };
    files.iter().map(outbox).collect()
}

/// How handoffs are attempted, from `[defaults]`.
fn handoff_settings(file: &DefaultsFile) -> anyhow::Result<HandoffSettings> {
    let usual = HandoffSettings::default();
    let max_in_flight = check_range("defaults.max_in_flight", file.max_in_flight, 1..=10_000)?;
    let per_domain = check_range("defaults.max_in_flight_per_domain", file.max_in_flight_per_domain, 1..=10_000)?;
    let max_attempts = check_range("defaults.max_attempts", file.max_attempts, 1..=100)?;
    let max_age_ms = file.give_up_after.as_deref().map(parse_give_up_after).transpose()?;
    Ok(HandoffSettings {
        on_unknown: match file.on_unknown.as_deref() {
            Some(text) => OnUnknown::parse(text).context("defaults.on_unknown must be `hold` or `resend`")?,
            None => usual.on_unknown,
        },
        max_in_flight: max_in_flight.unwrap_or(usual.max_in_flight),
        max_in_flight_per_domain: per_domain,
        max_attempts: max_attempts.unwrap_or(usual.max_attempts),
        max_age_ms: max_age_ms.unwrap_or(usual.max_age_ms),
    })
}

/// The authenticator for senders of received mail. `dev` uses no DNS and trusts loopback.
fn authenticator(config: &Config, resolver: &Resolver) -> anyhow::Result<Option<Arc<dyn Authenticator>>> {
    if !config.dev_domains.is_empty() {
        return Ok(Some(Arc::new(TrustLoopback)));
    }
    if !config.smtp.verify_senders {
        return Ok(None);
    }
    let check = DnsSenderAuthenticator::new(resolver)
        .map_err(|why| anyhow::anyhow!("the DNS resolver cannot be used: {why}"))?;
    Ok(Some(Arc::new(check)))
}

/// The collector that polls providers for mail. A team may set the API's address, so the egress policy of webhook
/// endpoints applies.
fn collector(config: &Config) -> anyhow::Result<HttpMailCollector> {
    let egress = dial_guard(config)?;
    Ok(HttpMailCollector::new(Some(AddressFilter::new(move |ip| egress.allows(ip))), !config.dev_domains.is_empty()))
}

/// The egress policy for addresses that a team can set.
fn dial_guard(config: &Config) -> anyhow::Result<EgressPolicy> {
    let blocks = config.webhooks.allow.iter().flatten().map(|block| block.parse::<Cidr>().context("webhooks.allow"));
    Ok(EgressPolicy::new(blocks.collect::<anyhow::Result<_>>()?, !config.dev_domains.is_empty()))
}

/// The sender of webhooks, with its egress policy and trusted certificates.
fn webhooks(config: &Config) -> anyhow::Result<HttpWebhookSender> {
    let egress = dial_guard(config)?;
    let roots = load_ca_file(config.webhooks.ca_file.as_deref()).context("webhooks.ca_file")?;
    Ok(HttpWebhookSender::new(egress, &roots)?)
}

fn routing(config: &Config, names: &BTreeSet<&str>) -> anyhow::Result<Routing> {
    let check_names = |list: &[String]| {
        for name in list {
            if !names.contains(name.as_str()) {
                let hint =
                    nearest_name(name, names.iter().copied()).map(|nearest| format!("; did you mean `{nearest}`?"));
                bail!("routing uses the transport `{name}`, which is not configured{}", hint.unwrap_or_default());
            }
        }
        Ok(())
    };
    let file = &config.routing;
    let default = config.default_transports();
    check_names(&default)?;
    let mut rules = Vec::new();
    for rule in &file.rules {
        check_names(&rule.transports)?;
        if rule.transports.is_empty() {
            bail!("a routing rule names no transport in `transports`");
        }
        if !rule.weights.is_empty() && rule.weights.len() != rule.transports.len() {
            bail!("a routing rule has {} weights for {} transports", rule.weights.len(), rule.transports.len());
        }
        rules.push(RoutingRule {
            from_domain: rule.from_domain.clone(),
            tag: rule.tag.clone(),
            to: rule.transports.clone(),
            weights: rule.weights.clone(),
        });
    }
    Ok(Routing { rules, default })
}

fn transport(file: &TransportFile) -> anyhow::Result<Option<Arc<dyn Transport>>> {
    let key = || {
        let key = secret("api_key", file.api_key.as_ref(), file.api_key_file.as_deref())?;
        key.filter(|key| !key.is_empty()).map(Secret::new).context("`api_key` or `api_key_file` is missing")
    };
    check_fields(file)?;
    Ok(Some(match file.kind.as_str() {
        "sandbox" => return Ok(None),
        "smtp" => smtp(file)?,
        "resend" => resend::transport(provider_config(file)?, key()?)?,
        "usesend" => usesend::transport(provider_config(file)?, key()?)?,
        "brevo" => brevo::transport(provider_config(file)?, key()?)?,
        "postmark" => {
            let config = postmark::PostmarkConfig { server_token: key()?, message_stream: file.message_stream.clone() };
            postmark::transport(provider_config(file)?, config)?
        }
        "mailgun" => {
            let domain = require("domain", file.domain.as_ref())?.to_owned();
            mailgun::transport(provider_config(file)?, mailgun::MailgunConfig { api_key: key()?, domain })?
        }
        "sendgrid" => {
            let config =
                sendgrid::SendGridConfig { api_key: key()?, can_read_activity: file.activity_lookup.unwrap_or(false) };
            sendgrid::transport(provider_config(file)?, config)?
        }
        "ses" => ses(file)?,
        "http" => http_template(file)?,
        other => {
            let hint =
                nearest_name(other, KINDS).map(|nearest| format!("; did you mean `{nearest}`?")).unwrap_or_default();
            bail!("unknown kind `{other}`{hint} (known kinds: {})", KINDS.join(", "))
        }
    }))
}

/// Rejects a field that belongs to another kind of transport, because ignoring it would hide a mistake.
fn check_fields(file: &TransportFile) -> anyhow::Result<()> {
    const SMTP: &[&str] = &["smtp"];
    const KEYED: &[&str] = &["resend", "usesend", "brevo", "postmark", "mailgun", "sendgrid"];
    const PROVIDERS: &[&str] = &["resend", "usesend", "brevo", "postmark", "mailgun", "sendgrid", "ses"];
    let fields: [(&str, bool, &[&str]); 29] = [
        ("host", file.host.is_some(), SMTP),
        ("port", file.port.is_some(), SMTP),
        ("tls", file.tls.is_some(), SMTP),
        ("username", file.username.is_some(), SMTP),
        ("password", file.password.is_some(), SMTP),
        ("password_file", file.password_file.is_some(), SMTP),
        ("helo_name", file.helo_name.is_some(), SMTP),
        ("max_connections", file.max_connections.is_some(), SMTP),
        ("base_url", file.base_url.is_some(), PROVIDERS),
        ("api_key", file.api_key.is_some(), KEYED),
        ("api_key_file", file.api_key_file.is_some(), KEYED),
        ("domain", file.domain.is_some(), &["mailgun"]),
        ("message_stream", file.message_stream.is_some(), &["postmark"]),
        ("activity_lookup", file.activity_lookup.is_some(), &["sendgrid"]),
        ("access_key_id", file.access_key_id.is_some(), &["ses"]),
        ("secret_access_key", file.secret_access_key.is_some(), &["ses"]),
        ("secret_access_key_file", file.secret_access_key_file.is_some(), &["ses"]),
        ("session_token", file.session_token.is_some(), &["ses"]),
        ("region", file.region.is_some(), &["ses"]),
        ("configuration_set", file.configuration_set.is_some(), &["ses"]),
        ("url", file.url.is_some(), &["http"]),
        ("method", file.method.is_some(), &["http"]),
        ("headers", file.headers.is_some(), &["http"]),
        ("body", file.body.is_some(), &["http"]),
        ("idempotency_header", file.idempotency_header.is_some(), &["http"]),
        ("idempotency_window", file.idempotency_window.is_some(), &["http"]),
        ("accepted_statuses", file.accepted_statuses.is_some(), &["http"]),
        ("message_id_pointer", file.message_id_pointer.is_some(), &["http"]),
        ("duplicate_statuses", file.duplicate_statuses.is_some(), &["http"]),
    ];
    match fields.iter().find(|(_, is_set, kinds)| *is_set && !kinds.contains(&file.kind.as_str())) {
        Some((field, _, kinds)) if KINDS.contains(&file.kind.as_str()) => {
            bail!("`{field}` belongs to the kind {}, not to `{}`", kinds.join(", "), file.kind)
        }
        _ => Ok(()),
    }
}

/// The value of a required field.
fn require<'a>(field: &str, value: Option<&'a String>) -> anyhow::Result<&'a str> {
    value.map(String::as_str).filter(|text| !text.is_empty()).with_context(|| format!("`{field}` is missing"))
}

/// A secret from the configuration, or from a file that the configuration names.
fn secret(field: &str, value: Option<&String>, file: Option<&Path>) -> anyhow::Result<Option<String>> {
    match (value, file) {
        (Some(_), Some(_)) => bail!("`{field}` and `{field}_file` are both given; set only one"),
        (Some(text), None) => Ok(Some(text.clone())),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
            Ok(Some(text.trim_end().to_owned()))
        }
        (None, None) => Ok(None),
    }
}

/// Parses a duration such as `30s`, in milliseconds.
fn parse_duration_ms(field: &str, text: &str) -> anyhow::Result<i64> {
    parse_span(text).with_context(|| format!("{field} must be a duration such as `30s` or `24h`, not `{text}`"))
}

/// Rejects a number out of bounds. Silently clamping it would surprise the operator later.
fn check_range<T: PartialOrd + Display>(
    field: &str,
    value: Option<T>,
    bounds: RangeInclusive<T>,
) -> anyhow::Result<Option<T>> {
    if let Some(value) = value.as_ref().filter(|value| !bounds.contains(value)) {
        bail!("{field} must be from {} to {}, not {value}", bounds.start(), bounds.end());
    }
    Ok(value)
}

/// What happens to emails without a key through dialects where a team has no setting.
fn compat_settings(file: &CompatFile) -> anyhow::Result<CompatSettings> {
    let mode = |text: &str| {
        let words = "compat.keyless must be `replay`, `hold` or `send`";
        IdenticalMode::parse(text).with_context(|| format!("{words}, not `{text}`"))
    };
    let window = |text: &str| {
        let ms = parse_duration_ms("compat.window", text)?;
        ensure!((60_000..=MAX_IDENTICAL_WINDOW_MS).contains(&ms), "compat.window must be from 1m to 1h, not `{text}`");
        Ok(ms)
    };
    Ok(CompatSettings {
        keyless: file.keyless.as_deref().map(mode).transpose()?,
        window_ms: file.window.as_deref().map(window).transpose()?,
    })
}

fn parse_give_up_after(text: &str) -> anyhow::Result<i64> {
    let ms = parse_duration_ms("defaults.give_up_after", text)?;
    ensure!((1_000..=MAX_GIVE_UP_MS).contains(&ms), "defaults.give_up_after must be from 1s to 7d, not `{text}`");
    Ok(ms)
}

/// The settings that all provider transports share.
fn provider_config(file: &TransportFile) -> anyhow::Result<HttpTransportConfig> {
    let mut setting = HttpTransportConfig::new(&file.name);
    setting.base_url.clone_from(&file.base_url);
    setting.account.clone_from(&file.account);
    if let Some(timeout) = timeout(file)? {
        setting.timeout = timeout;
    }
    setting.extra_roots = load_ca_file(file.ca_file.as_deref())?;
    Ok(setting)
}

fn timeout(file: &TransportFile) -> anyhow::Result<Option<Duration>> {
    let Some(text) = file.timeout.as_deref() else { return Ok(None) };
    let ms = parse_duration_ms("timeout", text)?;
    ensure!((1_000..=600_000).contains(&ms), "timeout must be from 1s to 10m, not `{text}`");
    Ok(Some(Duration::from_millis(ms.unsigned_abs())))
}

fn ses(file: &TransportFile) -> anyhow::Result<Arc<dyn Transport>> {
    let secret_key =
        secret("secret_access_key", file.secret_access_key.as_ref(), file.secret_access_key_file.as_deref())?;
    let config = ses::SesConfig {
        access_key_id: require("access_key_id", file.access_key_id.as_ref())?.to_owned(),
        secret_access_key: Secret::new(secret_key.context("`secret_access_key` is missing")?),
        session_token: file.session_token.clone().map(Secret::new),
        region: require("region", file.region.as_ref())?.to_owned(),
        configuration_set: file.configuration_set.clone(),
        clock: Arc::new(WallClock::default()),
    };
    Ok(ses::transport(provider_config(file)?, config)?)
}

/// A provider without a built-in transport, described by an HTTP request template.
fn http_template(file: &TransportFile) -> anyhow::Result<Arc<dyn Transport>> {
    let window =
        file.idempotency_window.as_deref().map(|text| parse_duration_ms("idempotency_window", text)).transpose()?;
    let headers = file.headers.clone().unwrap_or_default();
    let config = template::TemplateConfig {
        url: require("url", file.url.as_ref())?.to_owned(),
        method: file.method.clone().unwrap_or_else(|| "POST".into()),
        headers: headers.into_iter().map(|(name, value)| (name, Secret::new(value))).collect(),
        body: require("body", file.body.as_ref())?.to_owned(),
        key_header: file.idempotency_header.clone(),
        key_window: window.map(|ms| Duration::from_millis(ms.max(0) as u64)),
        accepted_statuses: file.accepted_statuses.clone().unwrap_or_else(|| vec![200, 201, 202]),
        id_pointer: file.message_id_pointer.clone(),
        duplicate_statuses: file.duplicate_statuses.clone().unwrap_or_default(),
    };
    Ok(template::transport(provider_config(file)?, config)?)
}

fn smtp(file: &TransportFile) -> anyhow::Result<Arc<dyn Transport>> {
    let host = require("host", file.host.as_ref())?;
    let tls = match file.tls.as_deref() {
        None | Some("starttls") => TlsMode::Starttls,
        Some("tls") => TlsMode::Tls,
        Some("none") => TlsMode::None,
        Some(other) => bail!("tls must be `none`, `starttls` or `tls`, not `{other}`"),
    };
    let usual_port = if tls == TlsMode::Tls { 465 } else { 587 };
    let mut config = RelayConfig::new(&file.name, host, file.port.unwrap_or(usual_port));
    config.tls = tls;
    config.username.clone_from(&file.username);
    config.password = secret("password", file.password.as_ref(), file.password_file.as_deref())?;
    config.account.clone_from(&file.account);
    if let Some(helo_name) = &file.helo_name {
        config.ehlo_name.clone_from(helo_name);
    }
    if let Some(connections) = check_range("max_connections", file.max_connections, 1..=1_000)? {
        config.max_connections = connections;
    }
    if let Some(timeout) = timeout(file)? {
        config.timeouts.final_reply = timeout;
    }
    config.extra_roots = load_ca_file(file.ca_file.as_deref())?;
    Ok(Arc::new(SmtpTransport::new(config)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Flags;

    fn built(file: &str) -> Result<EngineDeps, String> {
        built_with_env(file, |_| None)
    }

    fn built_with_env(file: &str, env: impl Fn(&str) -> Option<String>) -> Result<EngineDeps, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mailonce.toml");
        std::fs::write(&path, file).unwrap();
        let flags = Flags { config: Some(path), ..Flags::default() };
        let config = Config::load(&flags, env).map_err(|error| format!("{error:#}"))?;
        engine_deps(&config).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn sends_without_a_key_follow_the_file_and_the_environment() {
        let compat = |deps: Result<EngineDeps, String>| {
            let CompatSettings { keyless, window_ms } = deps.unwrap().compat;
            (keyless, window_ms)
        };
        let file = "[compat]\nkeyless = \"hold\"\nwindow = \"5m\"";
        assert_eq!(compat(built("")), (None, None));
        assert_eq!(compat(built(file)), (Some(IdenticalMode::Hold), Some(300_000)));
        let env = |name: &str| match name {
            "MAILONCE_COMPAT_KEYLESS" => Some("send".to_owned()),
            "MAILONCE_COMPAT_WINDOW" => Some("1h".to_owned()),
            _ => None,
        };
        assert_eq!(compat(built_with_env(file, env)), (Some(IdenticalMode::Send), Some(3_600_000)));
        for (wrong, expected) in [
            ("keyless = \"never\"", "compat.keyless must be `replay`, `hold` or `send`"),
            ("window = \"59s\"", "compat.window must be from 1m to 1h, not `59s`"),
            ("windows = \"5m\"", "windows"),
        ] {
            let error = built(&format!("[compat]\n{wrong}")).err().unwrap_or_default();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn transport_configuration_errors_are_reported_at_startup() {
        let one = |fields: &str| format!("[[transports]]\nname = \"out\"\n{fields}\n");
        let relay = one("kind = \"smtp\"\nhost = \"h\"");
        for (file, expected) in [
            (one("kind = \"smpt\""), "did you mean `smtp`?"),
            (one("kind = \"smtp\""), "`host` is missing"),
            (one("kind = \"smtp\"\nhost = \"h\"\ntls = \"yes\""), "`none`, `starttls` or `tls`"),
            (one("kind = \"smtp\"\nhost = \"h\"\nbase_url = \"https://x.test\""), "`base_url` belongs to"),
            (one("kind = \"resend\""), "`api_key` or `api_key_file` is missing"),
            (one("kind = \"resend\"\napi_key = \"k\"\napi_key_file = \"f\""), "are both given"),
            (one("kind = \"mailgun\"\napi_key = \"k\""), "`domain` is missing"),
            (one("kind = \"ses\"\nregion = \"eu-west-1\""), "is missing"),
            (one("kind = \"http\"\nurl = \"https://x.test\""), "`body` is missing"),
            (one("kind = \"postmark\"\napi_key = \"k\"\ntimeout = \"soon\""), "must be a duration such as"),
            (format!("{relay}{relay}"), "two transports are named `out`"),
            (format!("{relay}[routing]\ndefault = [\"oot\"]"), "did you mean `out`?"),
            (
                format!("{relay}[[routing.rules]]\ntransports = [\"out\"]\nweights = [1, 2]"),
                "2 weights for 1 transports",
            ),
            (format!("{relay}[[routing.rules]]\ntransports = []"), "names no transport"),
            ("webhooks.allow = [\"10.0.0.0/99\"]".to_owned(), "webhooks.allow"),
            ("[defaults]\non_unknown = \"guess\"".to_owned(), "`hold` or `resend`"),
            ("[defaults]\nmax_attempts = 101".to_owned(), "defaults.max_attempts must be from 1 to 100, not 101"),
            ("[defaults]\nmax_attempts = 0".to_owned(), "defaults.max_attempts must be from 1 to 100, not 0"),
            ("[defaults]\ngive_up_after = \"8d\"".to_owned(), "defaults.give_up_after must be from 1s to 7d, not `8d`"),
            ("[defaults]\nmax_in_flight = 0".to_owned(), "defaults.max_in_flight must be from 1 to 10000, not 0"),
            (
                "[defaults]\nmax_in_flight_per_domain = 0".to_owned(),
                "defaults.max_in_flight_per_domain must be from 1 to 10000, not 0",
            ),
            (
                one("kind = \"smtp\"\nhost = \"h\"\nmax_connections = 0"),
                "max_connections must be from 1 to 1000, not 0",
            ),
            (one("kind = \"smtp\"\nhost = \"h\"\ntimeout = \"11m\""), "timeout must be from 1s to 10m, not `11m`"),
        ] {
            let error = built(&file).err().unwrap_or_else(|| panic!("accepted: {file}"));
            assert!(error.contains(expected), "{file}\n{error}");
        }
    }

    #[test]
    fn senders_are_checked_unless_that_is_switched_off_or_it_is_dev() {
        assert!(built("").unwrap().authenticator.is_some());
        assert!(built("[smtp]\nverify_senders = false").unwrap().authenticator.is_none());
        let mut dev = Config::load(&Flags::default(), |_| None).unwrap();
        dev.dev_domains.push("mailonce.test".to_owned());
        assert!(engine_deps(&dev).unwrap().authenticator.is_some(), "dev trusts loopback");
    }

    #[test]
    fn one_transport_that_is_configured_is_used() {
        let deps = built("[[transports]]\nname = \"out\"\nkind = \"smtp\"\nhost = \"h\"").unwrap();
        assert_eq!(deps.routing.default, ["out"]);
        assert!(built("").unwrap().routing.default.is_empty(), "the sandbox");
    }
}
