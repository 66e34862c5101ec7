//! The `smtp` section of the configuration. The environment overrides the file, and the file overrides the defaults.

use anyhow::{Context as _, bail, ensure};
use mailonce_core::{address::Address, limits, time::parse_span};
use serde::Deserialize;
use std::{net::SocketAddr, ops::RangeInclusive, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use super::settings::{NETWORK_SHARE_DIVISOR, NetworkLimits, SmtpSettings, SmtpTimeouts};
use crate::tls::Tls;

/// The host name if neither `hostname` nor `domains` is set.
const DEFAULT_HOSTNAME: &str = "mailonce.test";
/// The smallest allowed value of `max_size`.
const MIN_MAX_SIZE: usize = 64 * 1024;

/// The `smtp` section of the configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SmtpFile {
    listen: Option<String>,
    domains: Option<Vec<String>>,
    reserved: Option<Vec<String>>,
    hostname: Option<String>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    max_size: Option<usize>,
    max_recipients: Option<usize>,
    max_connections: Option<usize>,
    max_memory: Option<usize>,
    max_spool: Option<usize>,
    per_ip_connections: Option<u32>,
    per_ip_connections_per_minute: Option<u32>,
    per_ip_mails_per_minute: Option<u32>,
    per_ip_memory: Option<usize>,
    per_ip_spool: Option<usize>,
    command_timeout: Option<String>,
    data_timeout: Option<String>,
    session_timeout: Option<String>,
    verify_senders: Option<bool>,
}

/// The merged configuration of the SMTP listener.
#[derive(Clone, Debug)]
pub struct SmtpConfig {
    /// The listen address; `None` if it is `off`.
    pub listen: Option<SocketAddr>,
    /// The local domains, as A-labels.
    pub domains: Vec<String>,
    /// Local parts that only an operator may use for an inbox; `None` for the default list.
    pub reserved: Option<Vec<String>>,
    /// The PEM files of the certificate and its key.
    pub tls_files: Option<(PathBuf, PathBuf)>,
    /// Whether senders are authenticated by SPF, DKIM and DMARC. `dev` never queries DNS.
    pub verify_senders: bool,
    settings: SmtpSettings,
}

impl SmtpConfig {
    /// The host name in the greeting.
    pub(crate) fn hostname(&self) -> &str {
        &self.settings.hostname
    }

    /// Merges the flag, the environment and the file.
    pub(crate) fn load(
        mut file: SmtpFile,
        flag: Option<String>,
        env: &impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Self> {
        apply_env(&mut file, env)?;
        let listen = flag.or(file.listen.take()).unwrap_or_else(|| "127.0.0.1:6225".to_owned());
        let domains: Result<Vec<_>, _> =
            file.domains.take().unwrap_or_default().iter().map(|name| parse_domain(name)).collect();
        let domains = domains?;
        let tls_files = match (file.tls_cert.take(), file.tls_key.take()) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => bail!("smtp.tls_cert and smtp.tls_key belong together: set both or neither"),
        };
        let hostname = file.hostname.take().or_else(|| domains.first().cloned());
        let hostname =
            parse_domain(&hostname.unwrap_or_else(|| DEFAULT_HOSTNAME.to_owned())).context("smtp.hostname")?;
        Ok(Self {
            listen: match listen.as_str() {
                "off" => None,
                address => Some(address.parse().with_context(|| {
                    format!("smtp.listen `{address}` is not `off` or an address such as 127.0.0.1:6225")
                })?),
            },
            domains,
            reserved: file.reserved.take(),
            tls_files,
            verify_senders: file.verify_senders.unwrap_or(true),
            settings: build_settings(&hostname, &file)?,
        })
    }

    /// The settings of the listener. Reads the certificate. If none is configured, `allow_self_signed` decides whether
    /// a self-signed one is created.
    pub fn settings(&self, allow_self_signed: bool) -> anyhow::Result<SmtpSettings> {
        let tls = match &self.tls_files {
            Some((certificate, key)) => Some(Tls::from_files(certificate, key).context("smtp.tls_cert, smtp.tls_key")?),
            None if allow_self_signed => Some(Tls::self_signed(&self.settings.hostname)?),
            None => None,
        };
        Ok(SmtpSettings { tls: tls.map(Arc::new), ..self.settings.clone() })
    }
}

/// Overrides the file section with environment variables.
fn apply_env(file: &mut SmtpFile, env: &impl Fn(&str) -> Option<String>) -> anyhow::Result<()> {
    let env_value = |name: &str| env(&format!("MAILONCE_SMTP_{}", name.to_ascii_uppercase()));
    override_from_env(&mut file.listen, "listen", &env_value)?;
    let list =
        |text: String| text.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
    file.domains = env_value("domains").map(list).or(file.domains.take());
    file.reserved = env_value("reserved").map(list).or(file.reserved.take());
    override_from_env(&mut file.hostname, "hostname", &env_value)?;
    override_from_env(&mut file.tls_cert, "tls_cert", &env_value)?;
    override_from_env(&mut file.tls_key, "tls_key", &env_value)?;
    override_from_env(&mut file.max_size, "max_size", &env_value)?;
    override_from_env(&mut file.max_recipients, "max_recipients", &env_value)?;
    override_from_env(&mut file.max_connections, "max_connections", &env_value)?;
    override_from_env(&mut file.max_memory, "max_memory", &env_value)?;
    override_from_env(&mut file.max_spool, "max_spool", &env_value)?;
    override_from_env(&mut file.per_ip_connections, "per_ip_connections", &env_value)?;
    override_from_env(&mut file.per_ip_connections_per_minute, "per_ip_connections_per_minute", &env_value)?;
    override_from_env(&mut file.per_ip_mails_per_minute, "per_ip_mails_per_minute", &env_value)?;
    override_from_env(&mut file.per_ip_memory, "per_ip_memory", &env_value)?;
    override_from_env(&mut file.per_ip_spool, "per_ip_spool", &env_value)?;
    override_from_env(&mut file.command_timeout, "command_timeout", &env_value)?;
    override_from_env(&mut file.data_timeout, "data_timeout", &env_value)?;
    override_from_env(&mut file.session_timeout, "session_timeout", &env_value)?;
    override_from_env(&mut file.verify_senders, "verify_senders", &env_value)
}

fn override_from_env<T: FromStr>(
    field: &mut Option<T>,
    name: &str,
    env_value: &impl Fn(&str) -> Option<String>,
) -> anyhow::Result<()> {
    if let Some(text) = env_value(name) {
        let Ok(value) = text.parse() else {
            bail!("MAILONCE_SMTP_{} has the invalid value `{text}`", name.to_ascii_uppercase())
        };
        *field = Some(value);
    }
    Ok(())
}

fn build_settings(hostname: &str, file: &SmtpFile) -> anyhow::Result<SmtpSettings> {
    let defaults = SmtpSettings::new(hostname);
    let max_size = file.max_size.unwrap_or(defaults.max_size);
    ensure!(
        (MIN_MAX_SIZE..=limits::INBOUND_MAIL_BYTES).contains(&max_size),
        "smtp.max_size must be from {MIN_MAX_SIZE} to {} octets, not {max_size}",
        limits::INBOUND_MAIL_BYTES
    );
    let max_memory = file.max_memory.unwrap_or(defaults.max_memory);
    ensure!(
        max_memory >= 2 * max_size,
        "smtp.max_memory must have room for two mails: at least {} octets",
        2 * max_size
    );
    let max_spool = file.max_spool.unwrap_or(defaults.max_spool);
    ensure!(
        max_spool >= NETWORK_SHARE_DIVISOR * max_size,
        "smtp.max_spool must be at least {} octets, so that a network's share of it has room for one mail",
        NETWORK_SHARE_DIVISOR * max_size
    );
    let max_recipients = file.max_recipients.unwrap_or(defaults.max_recipients);
    ensure!((1..=1_000).contains(&max_recipients), "smtp.max_recipients must be from 1 to 1000, not {max_recipients}");
    let max_connections = file.max_connections.unwrap_or(defaults.max_connections);
    ensure!(
        (1..=1_000_000).contains(&max_connections),
        "smtp.max_connections must be from 1 to 1000000, not {max_connections}"
    );
    let largest = [max_memory, max_spool].map(|total| largest_share(total, max_size));
    let configured = network_limits(file, max_size, largest)?;
    let default_timeouts = SmtpTimeouts::default();
    Ok(SmtpSettings {
        max_size,
        max_memory,
        max_spool,
        max_recipients,
        max_connections,
        per_ip: zero_as_unlimited(NetworkLimits {
            connections: configured.connections.or(defaults.per_ip.connections),
            connections_per_minute: configured.connections_per_minute.or(defaults.per_ip.connections_per_minute),
            mails_per_minute: configured.mails_per_minute.or(defaults.per_ip.mails_per_minute),
            memory: configured.memory.or(Some(largest[0])),
            spool: configured.spool.or(Some(largest[1])),
        }),
        // Configured limits also apply to loopback; the default limits do not.
        per_ip_loopback: zero_as_unlimited(configured),
        timeouts: SmtpTimeouts {
            command: parse_duration("command_timeout", file.command_timeout.as_deref(), default_timeouts.command)?,
            data: parse_duration("data_timeout", file.data_timeout.as_deref(), default_timeouts.data)?,
            session: parse_duration("session_timeout", file.session_timeout.as_deref(), default_timeouts.session)?,
            ..default_timeouts
        },
        ..defaults
    })
}

/// The configured limits per network. A share of memory or spool must have room for one mail and leave room for other
/// networks.
fn network_limits(file: &SmtpFile, max_size: usize, [memory, spool]: [usize; 2]) -> anyhow::Result<NetworkLimits> {
    Ok(NetworkLimits {
        connections: file.per_ip_connections,
        connections_per_minute: file.per_ip_connections_per_minute,
        mails_per_minute: file.per_ip_mails_per_minute,
        memory: check_share("per_ip_memory", file.per_ip_memory, max_size..=memory)?,
        spool: check_share("per_ip_spool", file.per_ip_spool, max_size..=spool)?,
    })
}

/// The largest share of one network: a quarter, or the size of one mail if that is more.
fn largest_share(total: usize, max_size: usize) -> usize {
    (total / NETWORK_SHARE_DIVISOR).max(max_size)
}

fn check_share(name: &str, share: Option<usize>, range: RangeInclusive<usize>) -> anyhow::Result<Option<usize>> {
    ensure!(
        share.is_none_or(|octets| octets == 0 || range.contains(&octets)),
        "smtp.{name} must be from {} to {} octets, or 0 for no limit",
        range.start(),
        range.end()
    );
    Ok(share)
}

/// Replaces 0 by `None`, which means no limit.
fn zero_as_unlimited(per_ip: NetworkLimits) -> NetworkLimits {
    let count = |limit: Option<u32>| limit.filter(|limit| *limit > 0);
    let octets = |limit: Option<usize>| limit.filter(|limit| *limit > 0);
    NetworkLimits {
        connections: count(per_ip.connections),
        connections_per_minute: count(per_ip.connections_per_minute),
        mails_per_minute: count(per_ip.mails_per_minute),
        memory: octets(per_ip.memory),
        spool: octets(per_ip.spool),
    }
}

fn parse_duration(name: &str, text: Option<&str>, default: Duration) -> anyhow::Result<Duration> {
    let Some(text) = text else { return Ok(default) };
    let ms = parse_span(text).filter(|ms| (1_000..=86_400_000).contains(ms));
    let ms = ms.with_context(|| format!("smtp.{name} must be a duration such as 5m, from 1s to 1d, not `{text}`"))?;
    Ok(Duration::from_millis(ms.unsigned_abs()))
}

/// Parses a domain and converts it to A-labels, with the rules for the domain of an address.
fn parse_domain(name: &str) -> anyhow::Result<String> {
    let address = Address::parse(&format!("postmaster@{name}"));
    address.map(|address| address.domain().to_owned()).with_context(|| format!("`{name}` is not a domain"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(file: &str, env: &[(&str, &str)]) -> Result<SmtpConfig, String> {
        let file: SmtpFile = toml::from_str(file).map_err(|error| error.to_string())?;
        let env = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        SmtpConfig::load(file, None, &env).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn an_empty_configuration_is_safe() {
        let config = load("", &[]).unwrap();
        assert_eq!(config.listen, Some("127.0.0.1:6225".parse().unwrap()));
        let settings = config.settings(false).unwrap();
        assert_eq!((settings.hostname.as_str(), settings.max_size), ("mailonce.test", limits::INBOUND_MAIL_BYTES));
        assert_eq!((settings.per_ip, settings.per_ip_loopback), (NetworkLimits::REMOTE, NetworkLimits::default()));
        assert_eq!(settings.timeouts, SmtpTimeouts::default());
        assert!(config.verify_senders);
        assert!(settings.tls.is_none() && config.settings(true).unwrap().tls.is_some());
    }

    #[test]
    fn file_and_environment_are_layered() {
        let file = "listen = \"127.0.0.1:2525\"\ndomains = [\"Agents.Example.com\", \"müller.de\"]\nmax_size = 100000\n\
                    per_ip_connections = 7\nper_ip_mails_per_minute = 0\nsession_timeout = \"10m\"\n";
        let config = load(file, &[]).unwrap();
        assert_eq!(config.domains, ["agents.example.com", "xn--mller-kva.de"]);
        assert_eq!(config.settings.hostname, "agents.example.com");
        let settings = &config.settings;
        assert_eq!((settings.max_size, settings.timeouts.session), (100_000, Duration::from_mins(10)));
        let loopback = NetworkLimits { connections: Some(7), ..NetworkLimits::default() };
        assert_eq!(settings.per_ip_loopback, loopback);
        let shares = NetworkLimits { memory: Some(64 << 20), spool: Some(256 << 20), ..loopback };
        assert_eq!(settings.per_ip, NetworkLimits { connections_per_minute: Some(300), ..shares });
        let env = [
            ("MAILONCE_SMTP_LISTEN", "off"),
            ("MAILONCE_SMTP_HOSTNAME", "mx.example.com"),
            ("MAILONCE_SMTP_DOMAINS", "a.test, b.test"),
            ("MAILONCE_SMTP_MAX_SIZE", "200000"),
            ("MAILONCE_SMTP_PER_IP_CONNECTIONS", "0"),
            ("MAILONCE_SMTP_COMMAND_TIMEOUT", "30s"),
            ("MAILONCE_SMTP_VERIFY_SENDERS", "false"),
        ];
        let config = load(file, &env).unwrap();
        assert_eq!((config.listen, config.domains.join(" ")), (None, "a.test b.test".to_owned()));
        assert_eq!((config.settings.hostname.as_str(), config.settings.max_size), ("mx.example.com", 200_000));
        assert_eq!(config.settings.per_ip_loopback, NetworkLimits::default());
        assert_eq!(config.settings.timeouts.command, Duration::from_secs(30));
        assert!(!config.verify_senders);
    }

    #[test]
    fn a_network_has_a_quarter_unless_something_else_is_said() {
        let shares = |file: &str| {
            let settings = load(file, &[]).unwrap().settings;
            let of = |per_ip: NetworkLimits| (per_ip.memory, per_ip.spool);
            (of(settings.per_ip), of(settings.per_ip_loopback))
        };
        let small = "max_size = 1000000\nmax_spool = 8000000\nmax_memory = 2000000\n";
        assert_eq!(shares(small), ((Some(1_000_000), Some(2_000_000)), (None, None)), "or one mail");
        let given = format!("{small}per_ip_memory = 0\nper_ip_spool = 1500000\n");
        assert_eq!(shares(&given), ((None, Some(1_500_000)), (None, Some(1_500_000))));
    }

    #[test]
    fn what_is_wrong_is_said_before_anything_starts() {
        for (file, expected) in [
            ("listen = \"nowhere\"", "127.0.0.1:6225"),
            ("domains = [\"no domain\"]", "`no domain` is not a domain"),
            ("hostname = \"a b\"", "smtp.hostname"),
            ("tls_cert = \"c.pem\"", "belong together"),
            ("max_size = 1", "smtp.max_size"),
            ("max_size = 999999999", "smtp.max_size"),
            ("max_memory = 1", "two mails"),
            ("max_spool = 100000000", "smtp.max_spool must be at least 146800640 octets"),
            (
                "per_ip_spool = 300000000",
                "smtp.per_ip_spool must be from 36700160 to 268435456 octets, or 0 for no limit",
            ),
            ("per_ip_memory = 1", "smtp.per_ip_memory must be from 36700160 to 67108864 octets, or 0"),
            ("max_recipients = 0", "smtp.max_recipients must be from 1 to 1000, not 0"),
            ("max_connections = 0", "smtp.max_connections must be from 1"),
            ("data_timeout = \"soon\"", "smtp.data_timeout"),
            ("data_timeout = \"0s\"", "smtp.data_timeout"),
            ("max_siz = 1", "unknown field `max_siz`"),
        ] {
            let error = load(file, &[]).err().unwrap_or_else(|| panic!("accepted: {file}"));
            assert!(error.contains(expected), "{file}\n{error}");
        }
        let error = load("", &[("MAILONCE_SMTP_MAX_SIZE", "big")]).unwrap_err();
        assert!(error.contains("MAILONCE_SMTP_MAX_SIZE has the invalid value `big`"));
        let lost = load("tls_cert = \"/nowhere/c.pem\"\ntls_key = \"/nowhere/k.pem\"", &[]).unwrap();
        assert!(
            format!("{:#}", lost.settings(true).unwrap_err()).contains("/nowhere/c.pem"),
            "never a silent fallback"
        );
    }
}
