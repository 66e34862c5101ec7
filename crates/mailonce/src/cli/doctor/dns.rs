//! DNS: the records that sending domains need, and the MX records of inbox domains.

use mailonce_core::ports::network::DnsResolver as _;
use mailonce_engine::access::domains::{Domain, is_same_dns_value};
use mailonce_transport::dns::Resolver;
use serde_json::Value;

use super::DoctorCheck;
use crate::config::Config;

/// A record that a sending domain needs.
#[derive(Clone, Debug)]
pub(super) struct ExpectedRecord {
    /// `ownership`, `dkim`, `spf` or `dmarc`.
    purpose: String,
    name: String,
    value: String,
}

impl ExpectedRecord {
    /// The records of a domain in the ledger.
    pub(super) fn of_domain(domain: &Domain) -> Vec<Self> {
        let one = |entry: &mailonce_engine::access::domains::DnsEntry| Self {
            purpose: entry.purpose.to_owned(),
            name: entry.name.clone(),
            value: entry.value.clone(),
        };
        domain.records.iter().map(one).collect()
    }

    /// The records of a domain as the API returns them.
    pub(super) fn from_json(domain: &Value) -> Vec<Self> {
        let part = |record: &Value, name: &str| record[name].as_str().unwrap_or_default().to_owned();
        let one = |record: &Value| Self {
            purpose: part(record, "purpose"),
            name: part(record, "name"),
            value: part(record, "value"),
        };
        domain["records"].as_array().into_iter().flatten().map(one).collect()
    }
}

/// Looks up every record. Stops at the first one if the resolver does not answer.
pub(super) async fn check_records(
    resolver: &Resolver,
    config: &Config,
    expected: &[ExpectedRecord],
) -> Vec<DoctorCheck> {
    let inboxes = &config.smtp.domains;
    if expected.is_empty() && inboxes.is_empty() {
        let found = "no domain is configured";
        let next = "to send from your domain: POST /v1/domains; to receive mail: smtp.domains (docs/domains.md)";
        return vec![DoctorCheck::ok("dns", found).with_next_step(next)];
    }
    let mut checks = Vec::new();
    for record in expected {
        match resolver.lookup_txt(&record.name).await {
            Ok(found) => checks.push(check_published_record(record, &found)),
            Err(why) => return resolver_unavailable(checks, &why),
        }
    }
    for domain in inboxes {
        match resolver.lookup_mx(domain).await {
            Ok(found) => checks.push(check_mx(domain, config.smtp.hostname(), &found)),
            Err(why) => return resolver_unavailable(checks, &why),
        }
    }
    checks
}

fn resolver_unavailable(mut checks: Vec<DoctorCheck>, why: &str) -> Vec<DoctorCheck> {
    let next = "check /etc/resolv.conf, or pass a resolver with --dns ADDR";
    checks.push(DoctorCheck::warn("dns", format!("the DNS resolver does not answer: {why}"), next));
    checks
}

fn check_published_record(record: &ExpectedRecord, found: &[String]) -> DoctorCheck {
    let ExpectedRecord { purpose, name, value } = record;
    let publish = format!("publish TXT {name} \"{value}\"");
    let begins = |word: &str| found.iter().filter(|text| text.trim_start().to_lowercase().starts_with(word)).count();
    match purpose.as_str() {
        "spf" => match begins("v=spf1") {
            0 => DoctorCheck::warn(
                "spf",
                format!("{name} has no SPF record, so no server is authorized to send for it"),
                publish,
            ),
            1 => DoctorCheck::ok("spf", format!("{name} has an SPF record")),
            many => {
                let found = format!("{name} has {many} SPF records, and receivers ignore more than one");
                DoctorCheck::fail("spf", found, "merge them into one record")
            }
        },
        "dmarc" => match begins("v=dmarc1") {
            0 => DoctorCheck::warn(
                "dmarc",
                format!("{name} is missing, so receivers have no policy for forged mail"),
                publish,
            ),
            _ => DoctorCheck::ok("dmarc", format!("{name} has a DMARC policy")),
        },
        _ => {
            let word = if purpose == "dkim" { "dkim" } else { "ownership" };
            if found.iter().any(|text| is_same_dns_value(text, value)) {
                DoctorCheck::ok(word, format!("{name} is published"))
            } else if found.is_empty() {
                DoctorCheck::fail(word, format!("{name} is missing"), publish)
            } else {
                DoctorCheck::fail(word, format!("{name} has another value"), publish)
            }
        }
    }
}

/// Whether the MX of an inbox domain is this server.
fn check_mx(domain: &str, host: &str, found: &[String]) -> DoctorCheck {
    let hosts: Vec<&str> = found.iter().filter_map(|record| record.split_once(' ')).map(|(_, host)| host).collect();
    let publish = format!("publish MX {domain} \"10 {host}\"");
    if hosts.iter().any(|known| known.trim_end_matches('.').eq_ignore_ascii_case(host)) {
        return DoctorCheck::ok("mx", format!("mail for {domain} goes to {host}"));
    }
    if hosts.is_empty() {
        return DoctorCheck::fail("mx", format!("{domain} has no MX record, so it receives no mail"), publish);
    }
    let others = hosts.join(", ");
    DoctorCheck::warn(
        "mx",
        format!("mail for {domain} goes to {others}, not to {host}"),
        format!("{publish}, unless those hosts forward it"),
    )
}

#[cfg(test)]
mod tests {
    use super::{super::CheckLevel, *};

    fn wanted(purpose: &str, value: &str) -> ExpectedRecord {
        ExpectedRecord { purpose: purpose.into(), name: "x.test".into(), value: value.into() }
    }

    #[test]
    fn each_record_is_judged_by_what_it_is_for() {
        let key = "v=DKIM1; k=rsa; p=MIIB";
        for (purpose, value, found, level) in [
            ("dkim", key, &["v=DKIM1;p=MIIB"][..], CheckLevel::Ok),
            ("dkim", key, &["v=DKIM1;p=OTHER"], CheckLevel::Fail),
            ("dkim", key, &[], CheckLevel::Fail),
            ("ownership", "mailonce-domain=1", &["mailonce-domain=1"], CheckLevel::Ok),
            ("ownership", "mailonce-domain=1", &["google-site=1"], CheckLevel::Fail),
            ("spf", "v=spf1 ~all", &["v=spf1 include:x ~all", "other"], CheckLevel::Ok),
            ("spf", "v=spf1 ~all", &["v=spf1 a", "v=spf1 mx"], CheckLevel::Fail),
            ("spf", "v=spf1 ~all", &["other"], CheckLevel::Warn),
            ("dmarc", "v=DMARC1; p=none", &["v=DMARC1; p=reject"], CheckLevel::Ok),
            ("dmarc", "v=DMARC1; p=none", &[], CheckLevel::Warn),
        ] {
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            let check = check_published_record(&wanted(purpose, value), &found);
            assert_eq!(check.level, level, "{purpose} {found:?}");
            assert!(check.level == CheckLevel::Ok || !check.next_step.is_empty(), "{check:?}");
        }
    }

    #[test]
    fn an_exchanger_must_be_us() {
        let level = |found: &[&str]| {
            check_mx("a.test", "mx.a.test", &found.iter().map(ToString::to_string).collect::<Vec<_>>()).level
        };
        assert_eq!(level(&["10 MX.a.test"]), CheckLevel::Ok);
        assert_eq!(level(&["10 other.test"]), CheckLevel::Warn);
        assert_eq!(level(&[]), CheckLevel::Fail);
    }
}
