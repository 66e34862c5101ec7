//! Arriving: the bytes, and a delivery for each recipient, in one commit.
//!
//! Nearly every arrival is new and for one recipient: an insert each for the delivery, its key and the bytes.

use mailonce_core::{
    delivery::{Arrival, Delivery, DeliveryState, NewDelivery, Received, Suppression, Target},
    id::{DeliveryId, NodeId, ordered_bits, tail_bits},
    port::{arrivals::Hint, store::Result},
    time::Time,
};
use rusqlite::params;
use std::sync::Arc;
use uuid::Uuid;

use super::{
    accept::no_team,
    delivery::{Kept, by_bits, one, tell, write},
    inbox,
    ledger::Ledger,
    rows::to_json,
    schema::told,
};

const KEEP: &str = "INSERT INTO deliveries (team, delivery, tail, rev, state, due_at, attempts, holder, raw, inbox, back, \
     received_at, suppressed, about) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) \
     ON CONFLICT DO NOTHING";
/// Binds a key that is free, or known no longer.
const BIND: &str = "INSERT INTO delivery_keys (team, hash, delivery, known_until) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT DO UPDATE SET delivery = ?3, known_until = ?4 WHERE known_until <= ?5";
const BOUND: &str = "SELECT delivery FROM delivery_keys WHERE team = ?1 AND hash = ?2";
const KEEP_BYTES: &str = "INSERT INTO raws (raw, bytes) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
const USE_BYTES: &str = "INSERT INTO raw_uses (raw, uses) VALUES (?1, ?2) \
     ON CONFLICT DO UPDATE SET uses = uses + ?2 - 1";

/// An arrival with everything worked out that does not need the ledger.
pub(super) struct Prepared {
    raw: Arc<[u8]>,
    reader: Option<NodeId>,
    parcels: Vec<Parcel>,
}

struct Parcel {
    new: NewDelivery,
    delivery: Delivery,
    about: String,
    back: Option<String>,
}

impl Prepared {
    pub(super) fn new(arrival: Arrival, now: Time) -> Result<Self> {
        let Arrival { raw, reader, parcels } = arrival;
        let prepare = |new: NewDelivery| Parcel::new(new, reader.is_some(), now);
        Ok(Self { raw, reader, parcels: parcels.into_iter().map(prepare).collect::<Result<_>>()? })
    }
}

impl Parcel {
    fn new(new: NewDelivery, reader: bool, now: Time) -> Result<Self> {
        let back = matches!(new.target, Target::Return { .. }).then(|| to_json(&new.target)).transpose()?;
        let about = to_json(&new.about)?;
        Ok(Self { delivery: Delivery::new(new.clone(), reader, now), new, about, back })
    }

    /// The same, refused, when its inbox is not there any more.
    fn without_inbox(&self, ledger: &Ledger<'_>, team: i64, now: Time) -> Result<Option<Self>> {
        let Some(inbox) = self.new.needs_inbox() else { return Ok(None) };
        if inbox::is_there(ledger.conn, team, inbox)? {
            return Ok(None);
        }
        let mut new = self.new.clone();
        new.refuse_inbox_gone();
        Self::new(new, false, now).map(Some)
    }
}

/// Keeps a mail for each recipient, unless the same delivery came before.
pub(super) fn receive(ledger: &mut Ledger<'_>, arrival: &Prepared, now: Time) -> Result<Vec<Received>> {
    let (mut raw, mut uses) = (None, 0);
    let mut answers = Vec::with_capacity(arrival.parcels.len());
    for parcel in &arrival.parcels {
        let (answer, kept) = receive_one(ledger, parcel, arrival.reader, raw, now)?;
        answers.push(answer);
        if kept && raw.is_none() {
            let bits = ordered_bits(parcel.new.id.0);
            // They are there when this call was made before and the row of its first delivery has gone since.
            uses += 1 - ledger.execute(KEEP_BYTES, params![bits, arrival.raw.as_ref()])? as i64;
            raw = Some(bits);
        }
        uses += i64::from(kept);
    }
    if uses > 1 {
        ledger.execute(USE_BYTES, params![raw, uses])?;
    }
    if uses > 0 && arrival.reader.is_none() {
        ledger.note_hint(Hint::Waiting);
    }
    Ok(answers)
}

/// Keeps one recipient's delivery. True beside the answer when it was kept now; its bytes are at `raw`, or will be
/// under its own bits.
fn receive_one(
    ledger: &mut Ledger<'_>,
    parcel: &Parcel,
    reader: Option<NodeId>,
    raw: Option<i64>,
    now: Time,
) -> Result<(Received, bool)> {
    let team = ledger.team_number(parcel.new.team).ok_or_else(|| no_team(parcel.new.team))?;
    let was_refused = parcel.new.refused.is_some();
    let gone = parcel.without_inbox(ledger, team, now)?;
    let Parcel { new, delivery, about, back } = gone.as_ref().unwrap_or(parcel);
    let (bits, tail) = (ordered_bits(new.id.0), tail_bits(new.id.0));
    let waits = delivery.state == DeliveryState::Waiting;
    let raw = waits.then_some(raw.unwrap_or(bits));
    let holder = reader.filter(|_| waits).map(|node| *node.0.as_bytes());
    let at = new.target.inbox().map(|id| *id.0.as_bytes());
    let Delivery { rev, attempts, .. } = delivery;
    let (state, due) = (delivery.state.word(), delivery.due.map(|at| at.0));
    let suppressed = delivery.suppressed.map(Suppression::word);
    let row = params![team, bits, tail, rev, state, due, attempts, holder, raw, at, back, now.0, suppressed, about];
    if ledger.execute(KEEP, row)? == 0 {
        // The very same one: this call was made before.
        let before = by_bits(ledger.conn, new.team, team, bits)?;
        return Ok((before.as_ref().map_or(delivery, |kept| &kept.delivery).answered(was_refused), false));
    }
    ledger.note_id(new.id.0);
    if !waits {
        tell(ledger, team, delivery, now)?;
        return Ok((Received::Refused(new.id), false));
    }
    let key = params![team, new.key, new.id.0.as_bytes(), new.known_until.0, now.0];
    if ledger.execute(BIND, key)? == 1 {
        return Ok((Received::Kept(new.id), true));
    }
    let of: [u8; 16] = ledger
        .conn
        .prepare_cached(BOUND)
        .and_then(|mut s| s.query_row(params![team, new.key], |row| row.get(0)))
        .map_err(told)?;
    let of = DeliveryId(Uuid::from_bytes(of));
    let first = one(ledger.conn, new.team, team, of)?;
    let message = first.and_then(|first| first.delivery.message);
    let delivery = Delivery::duplicate(new.clone(), of, message, now);
    write(ledger, team, &Kept { delivery: delivery.clone(), raw: None }, None)?;
    tell(ledger, team, &delivery, now)?;
    Ok((Received::Duplicate { id: new.id, of }, false))
}
