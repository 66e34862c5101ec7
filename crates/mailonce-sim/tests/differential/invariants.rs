//! What must hold of each installation by itself, as its API and its next hops show it.

use mailonce_core::time::Time;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use crate::{installation::Installation, node::NodeResponse, plan::PlannedEmail};

const REPORTED_WITHIN: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Escalations and orphaned transports, which are the owners of whatever has no due time.
struct Owners {
    escalated: BTreeSet<String>,
    orphaned: BTreeSet<String>,
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn handoffs(email: &Value) -> &[Value] {
    email["handoffs"].as_array().map_or(&[], Vec::as_slice)
}

/// Whether nothing will happen to an email before time passes.
pub(crate) fn is_quiet(email: &Value, wanted: &PlannedEmail, transports: &BTreeSet<&str>, now_ms: i64) -> bool {
    handoffs(email).iter().all(|handoff| {
        let has_transport = transports.contains(text(handoff, "transport"));
        let due_later = due_ms(handoff).is_none_or(|due| due > now_ms);
        let is_deferred = wanted.is_deferred()
            && handoff["recipients"].to_string().contains("deferred-")
            && handoff["attempts"].as_array().is_some_and(|attempts| !attempts.is_empty());
        match text(handoff, "state") {
            "queued" => is_deferred || !has_transport,
            "leased" | "sending" => is_deferred,
            "scheduled" | "unknown" => due_later || !has_transport,
            _ => true,
        }
    })
}

fn due_ms(handoff: &Value) -> Option<i64> {
    Time::parse(handoff["due_at"].as_str()?).map(|time| time.0)
}

/// Whether something of an email left, or may have.
pub(crate) fn has_left(email: &Value) -> bool {
    handoffs(email).iter().any(|handoff| matches!(text(handoff, "state"), "sending" | "sent" | "unknown"))
}

impl Installation {
    /// Whatever waits has an owner. People are asked and missing transports reported within some seconds.
    pub(crate) async fn check_owners(&self, emails: &[&Value]) -> Result<(), String> {
        let deadline = Instant::now() + REPORTED_WITHIN;
        loop {
            let owners = self.owners().await?;
            let checked = emails.iter().try_for_each(|email| self.check_owner(email, &owners));
            if checked.is_ok() || Instant::now() > deadline {
                return checked;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn owners(&self) -> Result<Owners, String> {
        let (mut escalated, mut from) = (BTreeSet::new(), String::new());
        loop {
            let page = self.nodes[0].get(&format!("/v1/escalations?limit=100{from}")).await;
            let open = page.rows().iter().filter(|row| text(row, "state") == "open");
            escalated.extend(open.filter_map(|row| row["about"]["email"].as_str()).map(str::to_owned));
            match page.body["next_cursor"].as_str() {
                Some(cursor) => from = format!("&cursor={cursor}"),
                None if page.status == 200 => break,
                None => return Err(format!("escalations were answered {page:?}")),
            }
        }
        let transports = self.nodes[0].get("/v1/transports").await;
        let orphaned = transports.body["orphaned"].as_array().map_or(&[][..], Vec::as_slice);
        let orphaned = orphaned.iter().map(|row| text(row, "name").to_owned()).collect();
        Ok(Owners { escalated, orphaned })
    }

    /// Whatever waits has a transport and a due time. If not, a person was asked or the transport is reported.
    fn check_owner(&self, email: &Value, owners: &Owners) -> Result<(), String> {
        let transports = self.transports();
        let asked = owners.escalated.contains(text(email, "id"));
        for handoff in handoffs(email) {
            let transport = text(handoff, "transport");
            let reported = owners.orphaned.contains(transport);
            let served = transports.contains(transport) && due_ms(handoff).is_some();
            let owned = match text(handoff, "state") {
                "queued" | "scheduled" => served || reported,
                "unknown" => served || reported || asked,
                "held" => asked,
                _ => true,
            };
            if !owned {
                return Err(format!("a handoff of {} has no owner: {handoff}", text(email, "id")));
            }
        }
        Ok(())
    }

    /// A retry shows what `GET` shows, on every node.
    pub(crate) async fn check_replay(&self, wanted: &PlannedEmail, email: &Value) -> Result<(), String> {
        for node in &self.nodes {
            let id = text(email, "id");
            let before = node.get(&format!("/v1/emails/{id}")).await;
            let replay = node.post("/v1/emails", wanted.key.as_deref(), &wanted.body).await;
            let after = node.get(&format!("/v1/emails/{id}")).await;
            let view = |answer: &NodeResponse| {
                [&answer.body["id"], &answer.body["state"], &answer.body["rev"]].map(Value::to_string)
            };
            let changed = view(&before) != view(&after);
            if replay.status != 200 || text(&replay.body, "id") != id || (!changed && view(&replay) != view(&after)) {
                return Err(format!("{id} is {:?} and its replay was answered {replay:?}", view(&after)));
            }
        }
        Ok(())
    }

    /// Each recipient got each email once at the most, and none whose time is still to come.
    pub(crate) fn check_copies(&self, emails: &[PlannedEmail], which: usize, now_ms: i64) -> Result<(), String> {
        let mut copies: BTreeMap<(String, String), usize> = BTreeMap::new();
        for copy in self.copies() {
            *copies.entry(copy).or_default() += 1;
        }
        for email in emails {
            let subject = text(&email.body, "subject");
            let allowed = if email.due_ms.is_some_and(|due| due > now_ms) { 0 } else { email.ids[which].len() };
            for recipient in &email.recipients {
                let got = copies.get(&(recipient.clone(), subject.to_owned())).copied().unwrap_or_default();
                if got > allowed {
                    return Err(format!("{recipient} got {got} copies of email {}, {allowed} allowed", email.number));
                }
            }
        }
        Ok(())
    }

    /// Recipient and subject of every mail that the next hops got.
    fn copies(&self) -> Vec<(String, String)> {
        let by_smtp = self.relay.mails().into_iter().chain(self.silent.mails()).map(|mail| {
            let text = String::from_utf8_lossy(&mail.bytes);
            let subject = text.lines().find_map(|line| line.strip_prefix("Subject: ")).unwrap_or_default();
            (mail.recipients[0].0.clone(), subject.to_owned())
        });
        let by_provider = self.provider.accepted_mail().into_iter().map(|mail| {
            // The recipient's name has the email's number, which the subject has, too.
            let number = mail.recipients[0].split('-').nth(1).unwrap_or_default().to_owned();
            (mail.recipients[0].clone(), format!("Email {number}"))
        });
        by_smtp.chain(by_provider).collect()
    }
}
