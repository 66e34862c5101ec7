//! DNS: what sending domains must publish, what helps their mail, and where mail for inboxes goes.

use mailonce_core::ports::network::DnsResolver as _;
use mailonce_engine::access::domains::{Domain, is_same_dns_value};
use mailonce_transport::names::Resolver;
use serde_json::Value;

use super::DoctorCheck;
use crate::config::Config;

/// A record that a sending domain wants to see published.
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

    /// The records of a domain as the API tells them.
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

/// Looks all of it up. When nobody can be asked, that is said once.
pub(super) async fn check_records(resolver: &Resolver, config: &Config, wanted: &[ExpectedRecord]) -> Vec<DoctorCheck> {
    let inboxes = &config.smtp.domains;
    if wanted.is_empty() && inboxes.is_empty() {
        let found = "no domain is configured, so there is nothing to look up";
        let next = "to send as yourself: POST /v1/domains; to receive: smtp.domains (docs/domains.md)";
        return vec![DoctorCheck::ok("dns", found).with_next_step(next)];
    }
    let mut checks = Vec::new();
    for record in wanted {
        match resolver.lookup_txt(&record.name).await {
            Ok(found) => checks.push(check_record(record, &found)),
            Err(why) => return resolver_unavailable(checks, &why),
        }
    }
    for domain in inboxes {
        match resolver.mx(domain).await {
            Ok(found) => checks.push(check_mx(domain, config.smtp.hostname(), &found)),
            Err(why) => return resolver_unavailable(checks, &why),
        }
    }
    checks
}

fn resolver_unavailable(mut checks: Vec<DoctorCheck>, why: &str) -> Vec<DoctorCheck> {
    let next = "look at /etc/resolv.conf, or name a resolver by --dns ADDR";
    checks.push(DoctorCheck::warn("dns", format!("nobody could be asked: {why}"), next));
    checks
}

fn check_record(record: &ExpectedRecord, found: &[String]) -> DoctorCheck {
    let ExpectedRecord { purpose, name, value } = record;
    let publish = format!("publish TXT {name} \"{value}\"");
    let begins = |word: &str| found.iter().filter(|text| text.trim_start().to_lowercase().starts_with(word)).count();
    match purpose.as_str() {
        "spf" => match begins("v=spf1") {
            0 => DoctorCheck::warn("spf", format!("{name} names no host that may send for it"), publish),
            1 => DoctorCheck::ok("spf", format!("{name} has a policy")),
            many => {
                let found = format!("{name} has {many} SPF records, which receivers count as none");
                DoctorCheck::fail("spf", found, "make one record of them")
            }
        },
        "dmarc" => match begins("v=dmarc1") {
            0 => DoctorCheck::warn(
                "dmarc",
                format!("{name} is missing: receivers are not told what to do with forgeries"),
                publish,
            ),
            _ => DoctorCheck::ok("dmarc", format!("{name} has a policy")),
        },
        _ => {
            let word = if purpose == "dkim" { "dkim" } else { "ownership" };
            if found.iter().any(|text| is_same_dns_value(text, value)) {
                DoctorCheck::ok(word, format!("{name} is published"))
            } else if found.is_empty() {
                DoctorCheck::fail(word, format!("{name} is missing"), publish)
            } else {
                DoctorCheck::fail(word, format!("{name} says something else"), publish)
            }
        }
    }
}

/// Whether mail for a domain of inboxes comes here.
fn check_mx(domain: &str, host: &str, found: &[String]) -> DoctorCheck {
    let hosts: Vec<&str> = found.iter().filter_map(|record| record.split_once(' ')).map(|(_, host)| host).collect();
    let publish = format!("publish MX {domain} \"10 {host}\"");
    if hosts.iter().any(|known| known.trim_end_matches('.').eq_ignore_ascii_case(host)) {
        return DoctorCheck::ok("mx", format!("mail for {domain} comes to {host}"));
    }
    if hosts.is_empty() {
        return DoctorCheck::fail("mx", format!("mail for {domain} reaches nobody: it has no MX"), publish);
    }
    let others = hosts.join(", ");
    DoctorCheck::warn(
        "mx",
        format!("mail for {domain} goes to {others}, not to {host}"),
        format!("{publish}, unless they pass it on"),
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
            let check = check_record(&wanted(purpose, value), &found);
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
