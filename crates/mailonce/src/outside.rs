//! The ways out that an operator configured, checked and built before anything starts.

use anyhow::{Context as _, bail};
use mailonce_core::{email::OnUnknown, port::transport::Transport, problem::nearest, time::parse_span};
use mailonce_engine::ways::{Outside, Routing, Rule};
use mailonce_transport::{
    fetch::HttpsFetch,
    names::Resolver,
    sandbox::SandboxFaults,
    smtp::{Security, Smtp, SmtpConfig},
};
use std::{collections::BTreeSet, path::Path, sync::Arc};

use crate::config::{Config, TransportFile};

/// The kinds of transport there are.
const KINDS: [&str; 10] =
    ["sandbox", "smtp", "resend", "postmark", "mailgun", "sendgrid", "ses", "usesend", "brevo", "http"];
/// A longer time to give up would outlast the memory of a key.
const GIVE_UP_AT_MOST_MS: i64 = 7 * 86_400_000;

/// What the engine is wired to.
pub fn outside(config: &Config) -> anyhow::Result<Outside> {
    let mut transports: Vec<Arc<dyn Transport>> = vec![Arc::new(SandboxFaults::default())];
    let mut names: BTreeSet<&str> = BTreeSet::from(["sandbox", "sandbox-faults"]);
    for file in &config.transports {
        if file.kind != "sandbox" && !names.insert(&file.name) {
            bail!("there are two transports named `{}`", file.name);
        }
        transports.extend(transport(file).with_context(|| format!("transport `{}`", file.name))?);
    }
    let usual = Outside::default();
    let defaults = &config.defaults;
    let give_up = defaults.give_up_after.as_deref().map(|text| span("defaults.give_up_after", text)).transpose()?;
    Ok(Outside {
        routing: routing(config, &names)?,
        transports,
        on_unknown: match defaults.on_unknown.as_deref() {
            Some(word) => OnUnknown::parse(word).context("defaults.on_unknown is `hold` or `resend`")?,
            None => usual.on_unknown,
        },
        in_flight: defaults.in_flight.unwrap_or(usual.in_flight).clamp(1, 10_000),
        per_domain: defaults.per_domain.map(|most| most.max(1)),
        max_attempts: defaults.max_attempts.unwrap_or(usual.max_attempts).clamp(1, 100),
        max_age_ms: give_up.unwrap_or(usual.max_age_ms).clamp(1_000, GIVE_UP_AT_MOST_MS),
        // A service asks unless it is told not to; `dev` tells it so.
        verify_domains: defaults.verify_domains.unwrap_or(true),
        bounce_domain: config.domains.first().cloned(),
        names: Arc::new(Resolver::system()),
        fetch: Arc::new(HttpsFetch::new(&[".amazonaws.com"])?),
    })
}

fn routing(config: &Config, names: &BTreeSet<&str>) -> anyhow::Result<Routing> {
    let known = |list: &[String]| {
        for name in list {
            if !names.contains(name.as_str()) {
                let hint = nearest(name, names.iter().copied()).map(|near| format!("; did you mean `{near}`?"));
                bail!("routing names the transport `{name}`, which is not configured{}", hint.unwrap_or_default());
            }
        }
        Ok(())
    };
    let file = &config.routing;
    // One transport that is configured is meant to be used.
    let first = config.transports.first().map(|file| file.name.clone());
    let default = file.default.clone().unwrap_or_else(|| first.into_iter().collect());
    known(&default)?;
    let mut rules = Vec::new();
    for rule in &file.rules {
        known(&rule.to)?;
        if rule.to.is_empty() {
            bail!("a rule of the routing names no transport in `to`");
        }
        if !rule.weights.is_empty() && rule.weights.len() != rule.to.len() {
            bail!("a rule of the routing has {} weights for {} transports", rule.weights.len(), rule.to.len());
        }
        rules.push(Rule {
            from_domain: rule.from_domain.clone(),
            tag: rule.tag.clone(),
            to: rule.to.clone(),
            weights: rule.weights.clone(),
        });
    }
    Ok(Routing { rules, default })
}

fn transport(file: &TransportFile) -> anyhow::Result<Option<Arc<dyn Transport>>> {
    match file.kind.as_str() {
        "sandbox" => Ok(None),
        "smtp" => smtp(file).map(Some),
        other => {
            let hint = nearest(other, KINDS).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            bail!("there is no kind `{other}`{hint} Known are {}.", KINDS.join(", "))
        }
    }
}

/// What must be said.
fn need<'a>(field: &str, value: Option<&'a String>) -> anyhow::Result<&'a str> {
    value.map(String::as_str).filter(|text| !text.is_empty()).with_context(|| format!("`{field}` is missing"))
}

/// A secret said in the file, or in a file of its own.
fn secret(field: &str, value: Option<&String>, file: Option<&Path>) -> anyhow::Result<Option<String>> {
    match (value, file) {
        (Some(_), Some(_)) => bail!("`{field}` and `{field}_file` are both given"),
        (Some(text), None) => Ok(Some(text.clone())),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
            Ok(Some(text.trim_end().to_owned()))
        }
        (None, None) => Ok(None),
    }
}

/// A span such as `30s`, in milliseconds.
fn span(field: &str, text: &str) -> anyhow::Result<i64> {
    parse_span(text).with_context(|| format!("{field} is a span such as `30s` or `24h`, not `{text}`"))
}

fn smtp(file: &TransportFile) -> anyhow::Result<Arc<dyn Transport>> {
    let host = need("host", file.host.as_ref())?;
    let tls = match file.tls.as_deref() {
        None | Some("starttls") => Security::Starttls,
        Some("tls") => Security::Tls,
        Some("none") => Security::None,
        Some(other) => bail!("tls is `none`, `starttls` or `tls`, not `{other}`"),
    };
    let usual_port = if tls == Security::Tls { 465 } else { 587 };
    let mut config = SmtpConfig::new(&file.name, host, file.port.unwrap_or(usual_port));
    config.tls = tls;
    config.username.clone_from(&file.username);
    config.password = secret("password", file.password.as_ref(), file.password_file.as_deref())?;
    config.account.clone_from(&file.account);
    if let Some(hello) = &file.hello {
        config.hello.clone_from(hello);
    }
    if let Some(connections) = file.connections {
        config.connections = connections.clamp(1, 1_000);
    }
    Ok(Arc::new(Smtp::new(config)?))
}
