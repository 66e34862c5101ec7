//! The ledger at the end of a round, read through the public API and converted into a history for the checker.

use crate::crash::inbox_snapshot;
use crate::crash::operations::content_hash;
use crate::crash::recording_client::TeamCredential;
use crate::harness::api_reader::ApiReader;
use crate::proof::history::{Attempt, Email, Event, Evidence, Handoff};
use anyhow::{Context as _, Result};
use mailonce_core::time::Time;
use serde_json::{Map, Value};
use std::net::SocketAddr;

/// Everything that the API shows to the teams.
#[derive(Debug, Clone, Default)]
pub struct ApiSnapshot {
    /// The emails.
    pub emails: Vec<Email>,
    /// The events, in order for each team.
    pub events: Vec<Event>,
    /// Start and end of each attempt in milliseconds since 1970, with the id of its email.
    pub attempts: Vec<(String, i64, Option<i64>)>,
}

/// The id and revision of a team's emails in a state.
pub fn emails_in_state(at: SocketAddr, team: &TeamCredential, state: &str) -> Result<Vec<(String, u64)>> {
    let page = ApiReader::new(at, &team.credential)?.get(&format!("/v1/emails?state={state}&limit=100"))?;
    let rows = page["data"].as_array().context("a page without data")?;
    Ok(rows.iter().map(|row| (json_string(&row["id"]), row["rev"].as_u64().unwrap_or_default())).collect())
}

/// The ids of a team's deliveries in a state: `waiting` to be parsed, or `dead` after too many failures.
pub fn deliveries_in_state(at: SocketAddr, team: &TeamCredential, state: &str) -> Result<Vec<String>> {
    let (mut reader, mut ids) = (ApiReader::new(at, &team.credential)?, Vec::new());
    // An agent's credential may list the deliveries of one inbox at a time only.
    for inbox in reader.get_all_pages("/v1/inboxes?limit=100", "cursor")? {
        let page =
            reader.get(&format!("/v1/deliveries?state={state}&limit=100&inbox={}", json_string(&inbox["id"])))?;
        ids.extend(json_array(&page["data"]).iter().map(|row| json_string(&row["id"])));
    }
    Ok(ids)
}

/// A team's events, in order.
pub fn events(at: SocketAddr, team: &TeamCredential) -> Result<Vec<Event>> {
    let rows = ApiReader::new(at, &team.credential)?.get_all_pages("/v1/events?limit=1000", "after")?;
    Ok(rows.iter().map(|row| to_event(&team.name, row)).collect())
}

/// Everything that the API shows to these teams, as JSON: `{team: {emails, events, transports}}`.
pub fn fetch_everything(at: SocketAddr, teams: &[TeamCredential]) -> Result<Value> {
    let mut all = Map::new();
    for team in teams {
        let mut reader = ApiReader::new(at, &team.credential)?;
        let rows = reader.get_all_pages("/v1/emails?limit=100", "cursor")?;
        let detail = |row: &Value| reader.get(&format!("/v1/emails/{}", json_string(&row["id"])));
        let emails = rows.iter().map(detail).collect::<Result<Vec<Value>>>()?;
        let events = reader.get_all_pages("/v1/events?limit=1000", "after")?;
        let transports = reader.get("/v1/transports")?["data"].take();
        let mut shown = inbox_snapshot::fetch(&mut reader)?;
        shown.extend([("emails".to_owned(), emails.into()), ("events".to_owned(), events.into())]);
        shown.insert("transports".to_owned(), transports);
        all.insert(team.name.clone(), shown.into());
    }
    Ok(Value::Object(all))
}

impl ApiSnapshot {
    /// Converts the API's JSON into the types of the checker.
    pub fn from_api(api: &Value) -> Self {
        let mut shown = Self::default();
        for (team, all) in api.as_object().into_iter().flatten() {
            let keyed =
                json_array(&all["transports"]).iter().filter(|transport| transport["unknown_recovery"] == "key");
            let keyed: Vec<String> = keyed.map(|transport| json_string(&transport["name"])).collect();
            json_array(&all["emails"]).iter().for_each(|detail| shown.add(team, detail, &keyed));
            shown.events.extend(json_array(&all["events"]).iter().map(|row| to_event(team, row)));
        }
        shown
    }

    fn add(&mut self, team: &str, detail: &Value, keyed: &[String]) {
        let mut email = to_email(team, detail);
        // With a provider that takes idempotency keys, a repeat has decided the outcome by now.
        for handoff in &mut email.handoffs {
            handoff.decidable = keyed.contains(&handoff.transport);
        }
        for attempt in json_array(&detail["handoffs"]).iter().flat_map(|handoff| json_array(&handoff["attempts"])) {
            let times = (json_millis(&attempt["at"]).unwrap_or_default(), json_millis(&attempt["ended_at"]));
            self.attempts.push((email.id.clone(), times.0, times.1));
        }
        self.emails.push(email);
    }
}

pub(super) fn json_string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn json_array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn json_strings(value: &Value) -> Vec<String> {
    json_array(value).iter().map(json_string).collect()
}

pub(super) fn json_millis(value: &Value) -> Option<i64> {
    Time::parse(value.as_str()?).map(|time| time.0)
}

fn to_email(team: &str, detail: &Value) -> Email {
    let facts = json_array(&detail["evidence"]);
    let body = detail["text"].as_str().map(|words| content_hash(&json_string(&detail["subject"]), words));
    Email {
        id: json_string(&detail["id"]),
        team: team.to_owned(),
        key: json_string(&detail["key"]),
        bind: 0,
        to: json_strings(&detail["to"]),
        body,
        message_id: json_string(&detail["message_id"]),
        state: json_string(&detail["state"]),
        rev: detail["rev"].as_u64().unwrap_or_default() as u32,
        resend: detail["on_unknown"] == "resend",
        handoffs: json_array(&detail["handoffs"]).iter().map(|one| to_handoff(one, facts)).collect(),
        ..Email::default()
    }
}

fn to_handoff(one: &Value, facts: &[Value]) -> Handoff {
    let number = one["number"].as_u64().unwrap_or_default();
    let own = facts.iter().filter(|fact| fact["handoff"].as_u64() == Some(number));
    Handoff {
        number: number as u16,
        transport: json_string(&one["transport"]),
        to: json_strings(&one["recipients"]),
        state: json_string(&one["state"]),
        may_duplicate: one["may_duplicate"] == true,
        later: false,
        attempts: json_array(&one["attempts"]).iter().map(to_attempt).collect(),
        evidence: own.map(to_evidence).collect(),
        ..Handoff::default()
    }
}

fn to_evidence(one: &Value) -> Evidence {
    let at_ms = json_millis(&one["at"]);
    Evidence { source: json_string(&one["source"]), says: json_string(&one["says"]), at_ms, ..Evidence::default() }
}

fn to_attempt(one: &Value) -> Attempt {
    let number = one["number"].as_u64().unwrap_or_default() as u32;
    let (at_ms, ended_ms) = (json_millis(&one["at"]), json_millis(&one["ended_at"]));
    Attempt { number, fence: None, outcome: json_string(&one["outcome"]), at_ms, ended_ms }
}

fn to_event(team: &str, row: &Value) -> Event {
    Event {
        at: 0,
        team: team.to_owned(),
        seq: row["seq"].as_u64().unwrap_or_default(),
        id: json_string(&row["id"]),
        kind: json_string(&row["type"]),
        about: json_string(&row["about"]["id"]),
        rev: row["about"]["rev"].as_u64().unwrap_or_default() as u32,
    }
}
