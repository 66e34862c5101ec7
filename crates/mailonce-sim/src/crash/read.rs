//! The ledger as it is in the end, read by the public API alone and put into the words of a history.

use super::client::Team;
use super::deed::meaning;
use super::inbound;
use crate::proof::history::{Attempt, Email, Event, Evidence, Handoff};
use crate::rig::http::{self, Reply};
use anyhow::{Context as _, Result, ensure};
use mailonce_core::time::Time;
use serde_json::{Map, Value};
use std::net::{SocketAddr, TcpStream};

/// Everything that a server shows to its teams.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    /// The emails.
    pub emails: Vec<Email>,
    /// The events, each team's in order.
    pub events: Vec<Event>,
    /// When each attempt began and ended, in milliseconds since 1970, with its email.
    pub attempts: Vec<(String, i64, Option<i64>)>,
}

/// A reader of one team, on one connection.
pub(super) struct Reader<'a> {
    team: &'a Team,
    stream: TcpStream,
}

impl<'a> Reader<'a> {
    fn new(at: SocketAddr, team: &'a Team) -> Result<Self> {
        Ok(Self { team, stream: http::connect(at)? })
    }

    pub(super) fn get(&mut self, path: &str) -> Result<Value> {
        let credential = &self.team.credential;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {credential}\r\n\r\n");
        let Reply { status, body, .. } = http::converse(&mut self.stream, request.as_bytes())?;
        ensure!(status == 200, "GET {path} was answered {status}: {body}");
        Ok(body)
    }
}

/// The rows of every page.
pub(super) fn pages(reader: &mut Reader<'_>, path: &str, from: &str) -> Result<Vec<Value>> {
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
pub fn in_state(at: SocketAddr, team: &Team, state: &str) -> Result<Vec<(String, u64)>> {
    let page = Reader::new(at, team)?.get(&format!("/v1/emails?state={state}&limit=100"))?;
    let rows = page["data"].as_array().context("a page without data")?;
    Ok(rows.iter().map(|row| (text(&row["id"]), row["rev"].as_u64().unwrap_or_default())).collect())
}

/// The deliveries of a team in a state: `waiting` for those that nobody has read yet, `dead` for those given up.
pub fn deliveries(at: SocketAddr, team: &Team, state: &str) -> Result<Vec<String>> {
    let (mut reader, mut ids) = (Reader::new(at, team)?, Vec::new());
    // A credential of an agent sees the deliveries of one inbox at a time.
    for inbox in pages(&mut reader, "/v1/inboxes?limit=100", "cursor")? {
        let page = reader.get(&format!("/v1/deliveries?state={state}&limit=100&inbox={}", text(&inbox["id"])))?;
        ids.extend(list(&page["data"]).iter().map(|row| text(&row["id"])));
    }
    Ok(ids)
}

/// A team's events, in order.
pub fn events(at: SocketAddr, team: &Team) -> Result<Vec<Event>> {
    let rows = pages(&mut Reader::new(at, team)?, "/v1/events?limit=1000", "after")?;
    Ok(rows.iter().map(|row| event(&team.name, row)).collect())
}

/// Everything that these teams are shown, in the words of the API: `{team: {emails, events, transports}}`.
pub fn fetch(at: SocketAddr, teams: &[Team]) -> Result<Value> {
    let mut all = Map::new();
    for team in teams {
        let mut reader = Reader::new(at, team)?;
        let rows = pages(&mut reader, "/v1/emails?limit=100", "cursor")?;
        let detail = |row: &Value| reader.get(&format!("/v1/emails/{}", text(&row["id"])));
        let emails = rows.iter().map(detail).collect::<Result<Vec<Value>>>()?;
        let events = pages(&mut reader, "/v1/events?limit=1000", "after")?;
        let transports = reader.get("/v1/transports")?["data"].take();
        let mut shown = inbound::fetch(&mut reader)?;
        shown.extend([("emails".to_owned(), emails.into()), ("events".to_owned(), events.into())]);
        shown.insert("transports".to_owned(), transports);
        all.insert(team.name.clone(), shown.into());
    }
    Ok(Value::Object(all))
}

impl Shown {
    /// What the API showed, in the words of a history.
    pub fn of(api: &Value) -> Self {
        let mut shown = Self::default();
        for (team, all) in api.as_object().into_iter().flatten() {
            let keyed = list(&all["transports"]).iter().filter(|way| way["recovery"] == "key");
            let keyed: Vec<String> = keyed.map(|way| text(&way["name"])).collect();
            list(&all["emails"]).iter().for_each(|detail| shown.add(team, detail, &keyed));
            shown.events.extend(list(&all["events"]).iter().map(|row| event(team, row)));
        }
        shown
    }

    fn add(&mut self, team: &str, detail: &Value, keyed: &[String]) {
        let mut email = email(team, detail);
        // Where a key is taken, the repeat has told by now.
        for handoff in &mut email.handoffs {
            handoff.decidable = keyed.contains(&handoff.transport);
        }
        for attempt in list(&detail["handoffs"]).iter().flat_map(|handoff| list(&handoff["attempts"])) {
            let times = (millis(&attempt["at"]).unwrap_or_default(), millis(&attempt["ended_at"]));
            self.attempts.push((email.id.clone(), times.0, times.1));
        }
        self.emails.push(email);
    }
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn texts(value: &Value) -> Vec<String> {
    list(value).iter().map(text).collect()
}

pub(super) fn millis(value: &Value) -> Option<i64> {
    Time::parse(value.as_str()?).map(|time| time.0)
}

fn email(team: &str, detail: &Value) -> Email {
    let facts = list(&detail["evidence"]);
    let said = detail["text"].as_str().map(|words| meaning(&text(&detail["subject"]), words));
    Email {
        id: text(&detail["id"]),
        team: team.to_owned(),
        key: text(&detail["key"]),
        bind: 0,
        to: texts(&detail["to"]),
        body: said,
        message_id: text(&detail["message_id"]),
        state: text(&detail["state"]),
        rev: detail["rev"].as_u64().unwrap_or_default() as u32,
        resend: detail["on_unknown"] == "resend",
        handoffs: list(&detail["handoffs"]).iter().map(|one| handoff(one, facts)).collect(),
        ..Email::default()
    }
}

fn handoff(one: &Value, facts: &[Value]) -> Handoff {
    let number = one["number"].as_u64().unwrap_or_default();
    let own = facts.iter().filter(|fact| fact["handoff"].as_u64() == Some(number));
    Handoff {
        number: number as u16,
        transport: text(&one["transport"]),
        to: texts(&one["recipients"]),
        state: text(&one["state"]),
        may_duplicate: one["may_duplicate"] == true,
        later: false,
        attempts: list(&one["attempts"]).iter().map(attempt).collect(),
        evidence: own.map(fact).collect(),
        ..Handoff::default()
    }
}

fn fact(one: &Value) -> Evidence {
    let at_ms = millis(&one["at"]);
    Evidence { source: text(&one["source"]), says: text(&one["says"]), at_ms, ..Evidence::default() }
}

fn attempt(one: &Value) -> Attempt {
    let number = one["number"].as_u64().unwrap_or_default() as u32;
    let (at_ms, ended_ms) = (millis(&one["at"]), millis(&one["ended_at"]));
    Attempt { number, fence: None, outcome: text(&one["outcome"]), at_ms, ended_ms }
}

fn event(team: &str, row: &Value) -> Event {
    Event {
        at: 0,
        team: team.to_owned(),
        seq: row["seq"].as_u64().unwrap_or_default(),
        id: text(&row["id"]),
        kind: text(&row["type"]),
        about: text(&row["about"]["id"]),
        rev: row["about"]["rev"].as_u64().unwrap_or_default() as u32,
    }
}
