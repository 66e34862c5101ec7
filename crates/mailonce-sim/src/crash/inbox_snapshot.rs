//! The inboxes at the end of a round, read through the public API and converted into a history for the checker.

use crate::crash::api_snapshot::{json_array, json_millis, json_string};
use crate::harness::api_reader::ApiReader;
use crate::proof::history::{Artifact, ConsumeTry, DeliveryTry, InboundHistory, Message, ShownDelivery};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A recorded operation on received mail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum InboundRecord {
    /// A sender delivered a mail.
    Delivery(DeliveryTry),
    /// An agent consumed a code.
    Consume(ConsumeTry),
}

/// What the API shows to a team: `{inboxes, messages, artifacts, deliveries}`.
pub(super) fn fetch(reader: &mut ApiReader<'_>) -> Result<Map<String, Value>> {
    let inboxes = reader.get_all_pages("/v1/inboxes?limit=100", "cursor")?;
    let (mut messages, mut artifacts, mut deliveries) = (Vec::new(), Vec::new(), Vec::new());
    for inbox in &inboxes {
        let id = json_string(&inbox["id"]);
        messages.extend(reader.get_all_pages(&format!("/v1/inboxes/{id}/messages?limit=100"), "cursor")?);
        deliveries.extend(reader.get_all_pages(&format!("/v1/deliveries?limit=100&inbox={id}"), "cursor")?);
    }
    for message in &messages {
        let page = reader.get(&format!("/v1/messages/{}/artifacts", json_string(&message["id"])))?;
        artifacts.extend_from_slice(json_array(&page["data"]));
    }
    // Each message that holds an artifact lists it.
    artifacts.sort_by_key(|artifact| json_string(&artifact["id"]));
    artifacts.dedup_by_key(|artifact| json_string(&artifact["id"]));
    let parts = [("inboxes", inboxes), ("messages", messages), ("artifacts", artifacts), ("deliveries", deliveries)];
    Ok(parts.into_iter().map(|(name, rows)| (name.to_owned(), rows.into())).collect())
}

/// Converts the API's JSON into the types of the checker.
pub(super) fn to_history(api: &Value) -> InboundHistory {
    let mut shown = InboundHistory::default();
    for (team, all) in api.as_object().into_iter().flatten() {
        let address = |id: &Value| {
            let inbox = json_array(&all["inboxes"]).iter().find(|inbox| inbox["id"] == *id);
            inbox.map(|inbox| json_string(&inbox["address"])).unwrap_or_default()
        };
        shown.messages.extend(json_array(&all["messages"]).iter().map(|row| Message {
            id: json_string(&row["id"]),
            team: team.clone(),
            inbox: address(&row["inbox_id"]),
            seq: cursor_seq(&row["cursor"]),
            message_id: json_string(&row["message_id"]),
            ..Message::default()
        }));
        shown.artifacts.extend(json_array(&all["artifacts"]).iter().map(|row| Artifact {
            id: json_string(&row["id"]),
            inbox: address(&row["inbox_id"]),
            sender: json_string(&row["sender"]),
            value: json_string(&row["value"]),
            found_at: json_millis(&row["found_at"]).unwrap_or_default(),
            consumed_for: row["consumed_for"].as_str().map(str::to_owned),
        }));
        shown.deliveries.extend(json_array(&all["deliveries"]).iter().map(|row| ShownDelivery {
            id: json_string(&row["id"]),
            state: json_string(&row["state"]),
            channel: json_string(&row["intake"]),
            reason: json_string(&row["reason"]),
            of: row["duplicate_of"].as_str().map(str::to_owned),
            message: row["message_id"].as_str().map(str::to_owned),
        }));
    }
    shown
}

/// The number in a cursor, `epoch-seq`.
fn cursor_seq(cursor: &Value) -> u64 {
    cursor.as_str().and_then(|cursor| cursor.rsplit('-').next()?.parse().ok()).unwrap_or_default()
}
