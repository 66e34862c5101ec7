//! Inboxes as they are in the end, read by the public API alone and put into the words of a history.

use super::read::{Reader, list, millis, pages, text};
use crate::proof::history::{Artifact, Brought, Inbound, Kept, Message, Take};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One line about mail that comes in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MailDeed {
    /// A sender brought a mail.
    Brought(Brought),
    /// An agent took a code.
    Take(Take),
}

/// What a team is shown: `{inboxes, messages, artifacts, deliveries}`.
pub(super) fn fetch(reader: &mut Reader<'_>) -> Result<Map<String, Value>> {
    let inboxes = pages(reader, "/v1/inboxes?limit=100", "cursor")?;
    let (mut messages, mut artifacts, mut deliveries) = (Vec::new(), Vec::new(), Vec::new());
    for inbox in &inboxes {
        let id = text(&inbox["id"]);
        messages.extend(pages(reader, &format!("/v1/inboxes/{id}/messages?limit=100"), "cursor")?);
        deliveries.extend(pages(reader, &format!("/v1/deliveries?limit=100&inbox={id}"), "cursor")?);
    }
    for message in &messages {
        let page = reader.get(&format!("/v1/messages/{}/artifacts", text(&message["id"])))?;
        artifacts.extend_from_slice(list(&page["data"]));
    }
    // Mails that hold the same one show it each.
    artifacts.sort_by_key(|artifact| text(&artifact["id"]));
    artifacts.dedup_by_key(|artifact| text(&artifact["id"]));
    let parts = [("inboxes", inboxes), ("messages", messages), ("artifacts", artifacts), ("deliveries", deliveries)];
    Ok(parts.into_iter().map(|(name, rows)| (name.to_owned(), rows.into())).collect())
}

/// What the API showed, in the words of a history.
pub(super) fn shown(api: &Value) -> Inbound {
    let mut shown = Inbound::default();
    for (team, all) in api.as_object().into_iter().flatten() {
        let address = |id: &Value| {
            let inbox = list(&all["inboxes"]).iter().find(|inbox| inbox["id"] == *id);
            inbox.map(|inbox| text(&inbox["address"])).unwrap_or_default()
        };
        shown.messages.extend(list(&all["messages"]).iter().map(|row| Message {
            id: text(&row["id"]),
            team: team.clone(),
            inbox: address(&row["inbox_id"]),
            seq: seq(&row["cursor"]),
            message_id: text(&row["message_id"]),
            ..Message::default()
        }));
        shown.artifacts.extend(list(&all["artifacts"]).iter().map(|row| Artifact {
            id: text(&row["id"]),
            inbox: address(&row["inbox_id"]),
            sender: text(&row["sender"]),
            value: text(&row["value"]),
            found_at: millis(&row["found_at"]).unwrap_or_default(),
            consumed_for: row["consumed_for"].as_str().map(str::to_owned),
        }));
        shown.kept.extend(list(&all["deliveries"]).iter().map(|row| Kept {
            id: text(&row["id"]),
            state: text(&row["state"]),
            way: text(&row["intake"]),
            reason: text(&row["reason"]),
            of: row["duplicate_of"].as_str().map(str::to_owned),
            message: row["message_id"].as_str().map(str::to_owned),
        }));
    }
    shown
}

/// The number in a cursor, `epoch-seq`.
fn seq(cursor: &Value) -> u64 {
    cursor.as_str().and_then(|cursor| cursor.rsplit('-').next()?.parse().ok()).unwrap_or_default()
}
