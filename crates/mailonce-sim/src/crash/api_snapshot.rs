//! The ledger as it is in the end, read by the public API alone and put into the words of a history.

use crate::crash::inbox_snapshot;
use crate::crash::operations::content_hash;
use crate::crash::recording_client::TeamCredential;
use crate::harness::http::{self, HttpReply};
use crate::proof::history::{Attempt, Email, Event, Evidence, Handoff};
use anyhow::{Context as _, Result, ensure};
use mailonce_core::time::Time;
use serde_json::{Map, Value};
use std::net::{SocketAddr, TcpStream};

/// Everything that a server shows to its teams.
#[derive(Debug, Clone, Default)]
pub struct ApiSnapshot {
    /// The emails.
    pub emails: Vec<Email>,
    /// The events, each team's in order.
    pub events: Vec<Event>,
    /// When each attempt began and ended, in milliseconds since 1970, with its email.
    pub attempts: Vec<(String, i64, Option<i64>)>,
}

/// A reader of one team, on one connection.
pub(super) struct ApiReader<'a> {
    team: &'a TeamCredential,
    stream: TcpStream,
}

impl<'a> ApiReader<'a> {
    fn new(at: SocketAddr, team: &'a TeamCredential) -> Result<Self> {
        Ok(Self { team, stream: http::connect(at)? })
    }

    pub(super) fn get(&mut self, path: &str) -> Result<Value> {
        let credential = &self.team.credential;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {credential}\r\n\r\n");
        let HttpReply { status, body, .. } = http::exchange_on(&mut self.stream, request.as_bytes())?;
        ensure!(status == 200, "GET {path} was answered {status}: {body}");
        Ok(body)
    }
}

/// The rows of every page.
pub(super) fn fetch_all_pages(reader: &mut ApiReader<'_>, path: &str, from: &str) -> Result<Vec<Value>> {
    let (mut rows, mut next) = (Vec::new(), String::new());
    loop {
        let mut page = reader.get(&format!("{path}{next}"))?;
        let data = page["data"].as_array_mut().context("a page without data")?;
        rows.append(data);
        match page["next_cursor"].as_str() {
            Some(cursor) => next = format!("&{from}={cursor}"),
            None => return Ok(rows),
        }
    }
}

/// The emails of a team in a state: id and rev.
pub fn emails_in_state(at: SocketAddr, team: &TeamCredential, state: &str) -> Result<Vec<(String, u64)>> {
    let page = ApiReader::new(at, team)?.get(&format!("/v1/emails?state={state}&limit=100"))?;
    let rows = page["data"].as_array().context("a page without data")?;
    Ok(rows.iter().map(|row| (json_string(&row["id"]), row["rev"].as_u64().unwrap_or_default())).collect())
}

/// The deliveries of a team in a state: `waiting` for those that nobody has read yet, `dead` for those given up.
pub fn deliveries_in_state(at: SocketAddr, team: &TeamCredential, state: &str) -> Result<Vec<String>> {
    let (mut reader, mut ids) = (ApiReader::new(at, team)?, Vec::new());
    // A credential of an agent sees the deliveries of one inbox at a time.
    for inbox in fetch_all_pages(&mut reader, "/v1/inboxes?limit=100", "cursor")? {
        let page =
            reader.get(&format!("/v1/deliveries?state={state}&limit=100&inbox={}", json_string(&inbox["id"])))?;
        ids.extend(json_array(&page["data"]).iter().map(|row| json_string(&row["id"])));
    }
    Ok(ids)
}

/// A team's events, in order.
pub fn events(at: SocketAddr, team: &TeamCredential) -> Result<Vec<Event>> {
    let rows = fetch_all_pages(&mut ApiReader::new(at, team)?, "/v1/events?limit=1000", "after")?;
    Ok(rows.iter().map(|row| to_event(&team.name, row)).collect())
}

/// Everything that these teams are shown, in the words of the API: `{team: {emails, events, transports}}`.
pub fn fetch_everything(at: SocketAddr, teams: &[TeamCredential]) -> Result<Value> {
    let mut all = Map::new();
    for team in teams {
        let mut reader = ApiReader::new(at, team)?;
        let rows = fetch_all_pages(&mut reader, "/v1/emails?limit=100", "cursor")?;
        let detail = |row: &Value| reader.get(&format!("/v1/emails/{}", json_string(&row["id"])));
        let emails = rows.iter().map(detail).collect::<Result<Vec<Value>>>()?;
        let events = fetch_all_pages(&mut reader, "/v1/events?limit=1000", "after")?;
        let transports = reader.get("/v1/transports")?["data"].take();
        let mut shown = inbox_snapshot::fetch(&mut reader)?;
        shown.extend([("emails".to_owned(), emails.into()), ("events".to_owned(), events.into())]);
        shown.insert("transports".to_owned(), transports);
        all.insert(team.name.clone(), shown.into());
    }
    Ok(Value::Object(all))
}

impl ApiSnapshot {
    /// What the API showed, in the words of a history.
    pub fn from_api(api: &Value) -> Self {
        let mut shown = Self::default();
        for (team, all) in api.as_object().into_iter().flatten() {
            let keyed = json_array(&all["transports"]).iter().filter(|way| way["recovery"] == "key");
            let keyed: Vec<String> = keyed.map(|way| json_string(&way["name"])).collect();
            json_array(&all["emails"]).iter().for_each(|detail| shown.add(team, detail, &keyed));
            shown.events.extend(json_array(&all["events"]).iter().map(|row| to_event(team, row)));
        }
        shown
    }

    fn add(&mut self, team: &str, detail: &Value, keyed: &[String]) {
        let mut email = to_email(team, detail);
        // Where a key is taken, the repeat has told by now.
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
    let said = detail["text"].as_str().map(|words| content_hash(&json_string(&detail["subject"]), words));
    Email {
        id: json_string(&detail["id"]),
        team: team.to_owned(),
        key: json_string(&detail["key"]),
        bind: 0,
        to: json_strings(&detail["to"]),
        body: said,
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
