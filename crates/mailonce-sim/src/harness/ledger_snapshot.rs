//! The emails and events of a server, read through the public API.

use super::api_reader::ApiReader;
use super::server::API_KEY;
use crate::proof::history::{Email, Event};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::net::SocketAddr;

/// The name of the only team in the history.
pub const TEAM: &str = "rig";

/// Emails and events.
#[derive(Debug, Clone, Default)]
pub struct LedgerSnapshot {
    /// The emails.
    pub emails: Vec<Email>,
    /// The events in order.
    pub events: Vec<Event>,
}

impl LedgerSnapshot {
    /// Reads every email and event.
    pub fn read(at: SocketAddr) -> Result<Self> {
        let mut reader = ApiReader::new(at, API_KEY)?;
        let emails = parse_rows(&reader.get_all_pages("/v1/emails?limit=100", "cursor")?, parse_email)?;
        let events = parse_rows(&reader.get_all_pages("/v1/events?limit=1000", "after")?, parse_event)?;
        Ok(Self { emails, events })
    }

    /// The number of emails whose accept event is there.
    pub fn emails_with_accept_event(&self) -> usize {
        let is_accept = |event: &&Event| matches!(event.kind.as_str(), "email.accepted" | "email.held");
        self.events.iter().filter(is_accept).count()
    }
}

fn parse_rows<T>(rows: &[Value], parse: impl Fn(&Value) -> Option<T>) -> Result<Vec<T>> {
    rows.iter().map(|row| parse(row).with_context(|| format!("a row without a required field: {row}"))).collect()
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
