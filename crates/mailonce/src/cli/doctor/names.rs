//! DNS: what sending domains must publish, what helps their mail, and where mail for inboxes goes.

use mailonce_core::port::net::Names as _;
use mailonce_engine::domains::{Domain, says_the_same};
use mailonce_transport::names::Resolver;
use serde_json::Value;

use super::Check;
use crate::config::Config;

/// A record that a sending domain wants to see published.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// `ownership`, `dkim`, `spf` or `dmarc`.
    purpose: String,
    name: String,
    value: String,
}

impl Wanted {
    /// The records of a domain in the ledger.
    pub(super) fn of(domain: &Domain) -> Vec<Self> {
        let one = |entry: &mailonce_engine::domains::DnsEntry| Self {
            purpose: entry.purpose.to_owned(),
            name: entry.name.clone(),
            value: entry.value.clone(),
        };
        domain.records.iter().map(one).collect()
    }

    /// The records of a domain as the API tells them.
    pub(super) fn read(domain: &Value) -> Vec<Self> {
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
pub(super) async fn records(resolver: &Resolver, config: &Config, wanted: &[Wanted]) -> Vec<Check> {
    let inboxes = &config.smtp.domains;
    if wanted.is_empty() && inboxes.is_empty() {
        let found = "no domain is configured, so there is nothing to look up";
        let next = "to send as yourself: POST /v1/domains; to receive: smtp.domains (docs/domains.md)";
        return vec![Check::ok("dns", found).and(next)];
    }
    let mut checks = Vec::new();
    for record in wanted {
        match resolver.txt(&record.name).await {
            Ok(found) => checks.push(judge(record, &found)),
            Err(why) => return silent(checks, &why),
        }
    }
    for domain in inboxes {
        match resolver.mx(domain).await {
            Ok(found) => checks.push(receives(domain, config.smtp.hostname(), &found)),
            Err(why) => return silent(checks, &why),
        }
    }
    checks
}

fn silent(mut checks: Vec<Check>, why: &str) -> Vec<Check> {
    let next = "look at /etc/resolv.conf, or name a resolver by --dns ADDR";
    checks.push(Check::warn("dns", format!("nobody could be asked: {why}"), next));
    checks
}

fn judge(record: &Wanted, found: &[String]) -> Check {
    let Wanted { purpose, name, value } = record;
    let publish = format!("publish TXT {name} \"{value}\"");
    let begins = |word: &str| found.iter().filter(|text| text.trim_start().to_lowercase().starts_with(word)).count();
    match purpose.as_str() {
        "spf" => match begins("v=spf1") {
            0 => Check::warn("spf", format!("{name} names no host that may send for it"), publish),
            1 => Check::ok("spf", format!("{name} has a policy")),
            many => {
                let found = format!("{name} has {many} SPF records, which receivers count as none");
                Check::fail("spf", found, "make one record of them")
            }
        },
        "dmarc" => match begins("v=dmarc1") {
            0 => Check::warn(
                "dmarc",
                format!("{name} is missing: receivers are not told what to do with forgeries"),
                publish,
            ),
            _ => Check::ok("dmarc", format!("{name} has a policy")),
        },
        _ => {
            let word = if purpose == "dkim" { "dkim" } else { "ownership" };
            if found.iter().any(|text| says_the_same(text, value)) {
                Check::ok(word, format!("{name} is published"))
            } else if found.is_empty() {
                Check::fail(word, format!("{name} is missing"), publish)
            } else {
                Check::fail(word, format!("{name} says something else"), publish)
            }
        }
    }
}

/// Whether mail for a domain of inboxes comes here.
fn receives(domain: &str, host: &str, found: &[String]) -> Check {
    let hosts: Vec<&str> = found.iter().filter_map(|record| record.split_once(' ')).map(|(_, host)| host).collect();
    let publish = format!("publish MX {domain} \"10 {host}\"");
    if hosts.iter().any(|known| known.trim_end_matches('.').eq_ignore_ascii_case(host)) {
        return Check::ok("mx", format!("mail for {domain} comes to {host}"));
    }
    if hosts.is_empty() {
        return Check::fail("mx", format!("mail for {domain} reaches nobody: it has no MX"), publish);
    }
    let others = hosts.join(", ");
    Check::warn(
        "mx",
        format!("mail for {domain} goes to {others}, not to {host}"),
        format!("{publish}, unless they pass it on"),
    )
}

#[cfg(test)]
mod tests {
    use super::{super::Level, *};

    fn wanted(purpose: &str, value: &str) -> Wanted {
        Wanted { purpose: purpose.into(), name: "x.test".into(), value: value.into() }
    }

    #[test]
    fn each_record_is_judged_by_what_it_is_for() {
        let key = "v=DKIM1; k=rsa; p=MIIB";
        for (purpose, value, found, level) in [
            ("dkim", key, &["v=DKIM1;p=MIIB"][..], Level::Ok),
            ("dkim", key, &["v=DKIM1;p=OTHER"], Level::Fail),
            ("dkim", key, &[], Level::Fail),
            ("ownership", "mailonce-domain=1", &["mailonce-domain=1"], Level::Ok),
            ("ownership", "mailonce-domain=1", &["google-site=1"], Level::Fail),
            ("spf", "v=spf1 ~all", &["v=spf1 include:x ~all", "other"], Level::Ok),
            ("spf", "v=spf1 ~all", &["v=spf1 a", "v=spf1 mx"], Level::Fail),
            ("spf", "v=spf1 ~all", &["other"], Level::Warn),
            ("dmarc", "v=DMARC1; p=none", &["v=DMARC1; p=reject"], Level::Ok),
            ("dmarc", "v=DMARC1; p=none", &[], Level::Warn),
        ] {
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            let check = judge(&wanted(purpose, value), &found);
            assert_eq!(check.level, level, "{purpose} {found:?}");
            assert!(check.level == Level::Ok || !check.next.is_empty(), "{check:?}");
        }
    }

    #[test]
    fn an_exchanger_must_be_us() {
        let level = |found: &[&str]| {
            receives("a.test", "mx.a.test", &found.iter().map(ToString::to_string).collect::<Vec<_>>()).level
        };
        assert_eq!(level(&["10 MX.a.test"]), Level::Ok);
        assert_eq!(level(&["10 other.test"]), Level::Warn);
        assert_eq!(level(&[]), Level::Fail);
    }
}
