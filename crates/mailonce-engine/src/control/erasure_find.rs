//! The first stage of an erasure after a restore: finds the address that an alias stands for.
//!
//! Each step searches one page, so that a large team delays nobody and a new process continues where another one ended.

use crate::control::{
    Erasures,
    erasure_steps::{BATCH, parse_message_cursor},
};
use mailonce_core::{
    address::NamedAddress,
    control::erasure::{Erasure, ErasureStage, alias_of},
    id::{DeliveryId, EmailId, TeamId},
    inbound::delivery::DeliveryQuery,
    inbox::message::{MessagePosition, MessageQuery},
    outbound::email_query::EmailQuery,
    ports::store::StoreError,
    record::{Record, RecordKind},
};
use serde_json::{Value, json};
use uuid::Uuid;

/// The stages whose rows are searched, in this order. Their names begin the cursor.
const SEARCHED: [ErasureStage; 4] =
    [ErasureStage::Emails, ErasureStage::Deliveries, ErasureStage::Messages, ErasureStage::Records];

/// A page of rows to search.
struct SearchPage {
    /// What the rows contain.
    values: Vec<Value>,
    /// Where the next page of the same kind begins. `None` after the last one.
    next: Option<String>,
}

impl Erasures {
    /// Searches one page of the team's mail or records for the address that the alias stands for. Finds it, or saves
    /// where the next step continues. After the last page there is nothing to erase.
    pub(super) async fn find_erased_address(&self, team: TeamId, erasure: &mut Erasure) -> Result<(), StoreError> {
        let cursor = erasure.cursor.take().unwrap_or_default();
        let (name, position) = cursor.split_once(' ').unwrap_or_default();
        let stage = ErasureStage::parse(name).unwrap_or(ErasureStage::Emails);
        let page = match stage {
            ErasureStage::Deliveries => self.deliveries_to_search(team, position).await?,
            ErasureStage::Messages => self.messages_to_search(team, position).await?,
            ErasureStage::Records => self.records_to_search(team, position).await?,
            _ => self.emails_to_search(team, position).await?,
        };
        let is_wanted = |address: &str| alias_of(&self.ctx.secret, team, address) == erasure.alias;
        let found = page.values.iter().find_map(|value| find_address(value, &is_wanted));
        if found.is_some() {
            erasure.address = found;
            erasure.stage = ErasureStage::Emails;
            return Ok(());
        }
        let next_stage = SEARCHED.into_iter().skip_while(|searched| *searched != stage).nth(1);
        erasure.cursor = match (page.next, next_stage) {
            (Some(position), _) => Some(format!("{} {position}", stage.as_str())),
            (None, Some(next)) => Some(format!("{} -", next.as_str())),
            (None, None) => None,
        };
        if erasure.cursor.is_none() {
            erasure.stage = ErasureStage::Storage;
        }
        Ok(())
    }

    async fn emails_to_search(&self, team: TeamId, position: &str) -> Result<SearchPage, StoreError> {
        let before = position.parse().ok().map(EmailId);
        let query = EmailQuery { before, limit: BATCH, ..EmailQuery::default() };
        let page = self.ctx.store.emails(team, query).await?;
        let values = page.rows.iter().map(|email| json!(&*email.head)).collect();
        Ok(SearchPage { values, next: page.next.map(|id| id.to_string()) })
    }

    async fn deliveries_to_search(&self, team: TeamId, position: &str) -> Result<SearchPage, StoreError> {
        let before = position.parse().ok().map(DeliveryId);
        let query = DeliveryQuery { before, limit: BATCH, ..DeliveryQuery::default() };
        let page = self.ctx.store.deliveries(team, query).await?;
        let values = page.iter().map(|delivery| json!(&*delivery.details)).collect();
        let last = page.last().filter(|_| page.len() == BATCH);
        Ok(SearchPage { values, next: last.map(|delivery| delivery.id.to_string()) })
    }

    async fn messages_to_search(&self, team: TeamId, position: &str) -> Result<SearchPage, StoreError> {
        let (inbox, before) = match parse_message_cursor(position) {
            Some(place) => place,
            None => match self.ctx.store.inboxes(team, None, 1).await?.first() {
                Some(inbox) => (inbox.id, u64::MAX),
                None => return Ok(SearchPage { values: Vec::new(), next: None }),
            },
        };
        let position = MessagePosition::Before(before);
        let query = MessageQuery { position, limit: BATCH, ..MessageQuery::default() };
        let page = self.ctx.store.messages(team, inbox, query).await?;
        let values = page.rows.iter().map(|message| json!(&*message.head)).collect();
        let next = if let Some(seq) = page.next {
            Some(format!("{inbox} {seq}"))
        } else {
            let older = self.ctx.store.inboxes(team, Some(inbox), 1).await?;
            older.first().map(|inbox| format!("{} {}", inbox.id, u64::MAX))
        };
        Ok(SearchPage { values, next })
    }

    async fn records_to_search(&self, team: TeamId, position: &str) -> Result<SearchPage, StoreError> {
        let (kind, before) = match position.split_once(' ') {
            Some((kind, id)) => (RecordKind::parse(kind), id.parse::<Uuid>().ok()),
            None => (RecordKind::ALL.first().copied(), None),
        };
        let Some(kind) = kind else { return Ok(SearchPage { values: Vec::new(), next: None }) };
        let (mut values, mut next) = (Vec::new(), None);
        if kind != RecordKind::Erasure {
            let page = self.ctx.store.records(team, kind, before, BATCH).await?;
            values = page.rows.iter().map(|record| self.record_value(record)).collect();
            next = page.next.map(|id| format!("{} {id}", kind.as_str()));
        }
        if next.is_none() {
            let next_kind = RecordKind::ALL.iter().skip_while(|other| **other != kind).nth(1);
            next = next_kind.map(|kind| format!("{} -", kind.as_str()));
        }
        Ok(SearchPage { values, next })
    }

    fn record_value(&self, record: &Record) -> Value {
        let json = self.ctx.packer.unpack_text(&record.json).unwrap_or_default();
        json!([record.name, serde_json::from_str::<Value>(&json).unwrap_or_default()])
    }
}

/// The first address in a value that `is_wanted`.
fn find_address(value: &Value, is_wanted: &impl Fn(&str) -> bool) -> Option<String> {
    match value {
        Value::String(text) => {
            let whole = NamedAddress::parse(text).ok().map(|named| named.to_address().as_str().to_owned());
            let is_separator = |c: char| c.is_whitespace() || "<>,;:\"'()[]/".contains(c);
            let words = text.split(is_separator).filter(|word| word.contains('@'));
            let words = words.map(|word| word.trim_matches('.').to_ascii_lowercase());
            whole.into_iter().chain(words).find(|address| is_wanted(address))
        }
        Value::Array(items) => items.iter().find_map(|item| find_address(item, is_wanted)),
        Value::Object(fields) => fields.values().find_map(|inner| find_address(inner, is_wanted)),
        _ => None,
    }
}
