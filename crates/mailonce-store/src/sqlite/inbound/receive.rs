//! Receiving mail: commits the raw bytes and one delivery per recipient in one transaction.
//!
//! Nearly every mail is new and has one recipient. It takes three inserts: the delivery, its deduplication key, and the
//! bytes.

use mailonce_core::{
    id::{DeliveryId, NodeId, ordered_bits, random_bits},
    inbound::{
        delivery::{
            Delivery, DeliveryState, DeliverySuppression, DeliveryTarget, InboundMail, NewDelivery, ReceiveResult,
        },
        wake_up::InboundWakeUp,
    },
    ports::store::Result,
    time::Time,
};
use rusqlite::params;
use std::sync::Arc;
use uuid::Uuid;

use crate::sqlite::{
    inbound::deliveries::{DeliveryRow, by_bits, by_id, emit_event, update},
    inbox::inboxes,
    outbound::key_bindings::unknown_team_error,
    rows::to_json,
    schema::store_error,
    write_session::WriteSession,
};

const INSERT_DELIVERY: &str = "INSERT INTO deliveries (team, delivery, tail, rev, state, due_at, attempts, holder, raw, inbox, back, \
     received_at, suppressed, about) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) \
     ON CONFLICT DO NOTHING";
/// Binds a deduplication key that is free or has expired.
const BIND_KEY: &str = "INSERT INTO delivery_keys (team, hash, delivery, known_until) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT DO UPDATE SET delivery = ?3, known_until = ?4 WHERE known_until <= ?5";
const SELECT_KEY: &str = "SELECT delivery FROM delivery_keys WHERE team = ?1 AND hash = ?2";
const INSERT_RAW: &str = "INSERT INTO raws (raw, bytes) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
const ADD_RAW_USES: &str = "INSERT INTO raw_uses (raw, uses) VALUES (?1, ?2) \
     ON CONFLICT DO UPDATE SET uses = uses + ?2 - 1";

/// A received mail with everything computed in advance that does not need the database.
pub(crate) struct PreparedArrival {
    raw: Arc<[u8]>,
    reader: Option<NodeId>,
    deliveries: Vec<PreparedDelivery>,
}

struct PreparedDelivery {
    new: NewDelivery,
    delivery: Delivery,
    about: String,
    back: Option<String>,
}

impl PreparedArrival {
    pub(crate) fn new(arrival: InboundMail, now: Time) -> Result<Self> {
        let InboundMail { raw, leased_to: reader, deliveries: new_deliveries } = arrival;
        let prepare = |new: NewDelivery| PreparedDelivery::new(new, reader.is_some(), now);
        Ok(Self { raw, reader, deliveries: new_deliveries.into_iter().map(prepare).collect::<Result<_>>()? })
    }
}

impl PreparedDelivery {
    fn new(new: NewDelivery, reader: bool, now: Time) -> Result<Self> {
        let back = matches!(new.target, DeliveryTarget::Return { .. }).then(|| to_json(&new.target)).transpose()?;
        let about = to_json(&new.details)?;
        Ok(Self { delivery: Delivery::new(new.clone(), reader, now), new, about, back })
    }

    /// This delivery as a refused one, if its inbox no longer exists. `None` otherwise.
    fn refused_if_inbox_gone(&self, ledger: &WriteSession<'_>, team: i64, now: Time) -> Result<Option<Self>> {
        let Some(inbox) = self.new.required_inbox() else { return Ok(None) };
        if inboxes::exists(ledger.conn, team, inbox)? {
            return Ok(None);
        }
        let mut new = self.new.clone();
        new.refuse_missing_inbox();
        Self::new(new, false, now).map(Some)
    }
}

/// Stores one delivery per recipient. Records a delivery as a duplicate if its deduplication key is bound.
pub(crate) fn receive(
    ledger: &mut WriteSession<'_>,
    arrival: &PreparedArrival,
    now: Time,
) -> Result<Vec<ReceiveResult>> {
    let (mut raw, mut uses) = (None, 0);
    let mut answers = Vec::with_capacity(arrival.deliveries.len());
    for prepared in &arrival.deliveries {
        let (answer, kept) = receive_one(ledger, prepared, arrival.reader, raw, now)?;
        answers.push(answer);
        if kept && raw.is_none() {
            let bits = ordered_bits(prepared.new.id.0);
            // The bytes already exist if this call is a retry and the row of its first delivery was deleted since.
            uses += 1 - ledger.execute(INSERT_RAW, params![bits, arrival.raw.as_ref()])? as i64;
            raw = Some(bits);
        }
        uses += i64::from(kept);
    }
    if uses > 1 {
        ledger.execute(ADD_RAW_USES, params![raw, uses])?;
    }
    if uses > 0 && arrival.reader.is_none() {
        ledger.queue_wake_up(InboundWakeUp::DeliveryWaiting);
    }
    Ok(answers)
}

/// Stores one recipient's delivery. Returns true with the result if this call stored it. Its bytes are in the row
/// `raw`; if that is `None`, the caller inserts them under the ordered bits of this delivery.
fn receive_one(
    ledger: &mut WriteSession<'_>,
    prepared: &PreparedDelivery,
    reader: Option<NodeId>,
    raw: Option<i64>,
    now: Time,
) -> Result<(ReceiveResult, bool)> {
    let team = ledger.team_number(prepared.new.team).ok_or_else(|| unknown_team_error(prepared.new.team))?;
    let was_refused = prepared.new.suppression.is_some();
    let gone = prepared.refused_if_inbox_gone(ledger, team, now)?;
    let PreparedDelivery { new, delivery, about, back } = gone.as_ref().unwrap_or(prepared);
    let (bits, tail) = (ordered_bits(new.id.0), random_bits(new.id.0));
    let waits = delivery.state == DeliveryState::Waiting;
    let raw = waits.then_some(raw.unwrap_or(bits));
    let holder = reader.filter(|_| waits).map(|node| *node.0.as_bytes());
    let at = new.target.inbox().map(|id| *id.0.as_bytes());
    let Delivery { rev, attempts, .. } = delivery;
    let (state, due) = (delivery.state.as_str(), delivery.due_at.map(|at| at.0));
    let suppressed = delivery.suppressed.map(DeliverySuppression::as_str);
    let row = params![team, bits, tail, rev, state, due, attempts, holder, raw, at, back, now.0, suppressed, about];
    if ledger.execute(INSERT_DELIVERY, row)? == 0 {
        // The same id: this call is a retry.
        let before = by_bits(ledger.conn, new.team, team, bits)?;
        return Ok((before.as_ref().map_or(delivery, |kept| &kept.delivery).receive_result(was_refused), false));
    }
    ledger.reserve_id(new.id.0);
    if !waits {
        emit_event(ledger, team, delivery, now)?;
        return Ok((ReceiveResult::Refused(new.id), false));
    }
    let key = params![team, new.dedup_key, new.id.0.as_bytes(), new.dedup_until.0, now.0];
    if ledger.execute(BIND_KEY, key)? == 1 {
        return Ok((ReceiveResult::Stored(new.id), true));
    }
    let of: [u8; 16] = ledger
        .conn
        .prepare_cached(SELECT_KEY)
        .and_then(|mut s| s.query_row(params![team, new.dedup_key], |row| row.get(0)))
        .map_err(store_error)?;
    let of = DeliveryId(Uuid::from_bytes(of));
    let first = by_id(ledger.conn, new.team, team, of)?;
    let message = first.and_then(|first| first.delivery.message);
    let delivery = Delivery::duplicate(new.clone(), of, message, now);
    update(ledger, team, &DeliveryRow { delivery: delivery.clone(), raw: None }, None)?;
    emit_event(ledger, team, &delivery, now)?;
    Ok((ReceiveResult::Duplicate { id: new.id, original: of }, false))
}
