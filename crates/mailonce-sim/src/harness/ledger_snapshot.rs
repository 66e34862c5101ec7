//! What the server shows of its ledger, read by the public API alone.

use super::http;
use crate::proof::history::{Email, Event};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::net::SocketAddr;

/// What the judge calls the one team of a rig.
pub const TEAM: &str = "rig";

/// Emails and events as they are shown.
#[derive(Debug, Clone, Default)]
pub struct LedgerSnapshot {
    /// The emails.
    pub emails: Vec<Email>,
    /// The events in the order in which they were given.
    pub events: Vec<Event>,
}

impl LedgerSnapshot {
    /// Reads all there is.
    pub fn read(at: SocketAddr) -> Result<Self> {
        let (mut emails, mut from) = (Vec::new(), String::new());
        loop {
            let page = get_page(at, &format!("/v1/emails?limit=100{from}"))?;
            emails.extend(parse_rows(&page, parse_email)?);
            match page["next_cursor"].as_str() {
                Some(cursor) => from = format!("&cursor={cursor}"),
                None => break,
            }
        }
        let (mut events, mut after) = (Vec::new(), "0".to_owned());
        loop {
            let page = get_page(at, &format!("/v1/events?limit=1000&after={after}"))?;
            events.extend(parse_rows(&page, parse_event)?);
            match page["next_cursor"].as_str() {
                Some(cursor) => cursor.clone_into(&mut after),
                None => return Ok(Self { emails, events }),
            }
        }
    }

    /// How many emails the events tell of.
    pub fn emails_with_accept_event(&self) -> usize {
        let born = |told: &&Event| matches!(told.kind.as_str(), "email.accepted" | "email.held");
        self.events.iter().filter(born).count()
    }
}

fn get_page(at: SocketAddr, path: &str) -> Result<Value> {
    let reply = http::get(at, path)?;
    ensure!(reply.status == 200, "GET {path} answered {}: {}", reply.status, reply.body);
    Ok(reply.body)
}

fn parse_rows<T>(page: &Value, read: impl Fn(&Value) -> Option<T>) -> Result<Vec<T>> {
    let data = page["data"].as_array().context("a page without data")?;
    data.iter().map(|value| read(value).with_context(|| format!("a row that lacks something: {value}"))).collect()
}

fn parse_email(value: &Value) -> Option<Email> {
    Some(Email {
        id: json_string(&value["id"])?,
        team: TEAM.to_owned(),
        key: json_string(&value["key"])?,
        to: value["to"].as_array()?.iter().map(json_string).collect::<Option<_>>()?,
        ..Email::default()
    })
}

fn parse_event(value: &Value) -> Option<Event> {
    Some(Event {
        team: TEAM.to_owned(),
        seq: value["seq"].as_u64()?,
        id: json_string(&value["id"])?,
        kind: json_string(&value["type"])?,
        about: json_string(&value["about"]["id"])?,
        ..Event::default()
    })
}

fn json_string(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}
