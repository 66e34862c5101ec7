//! New deliveries as columns, and the statement that writes them.

use mailonce_core::{
    id::NodeId,
    inbound::delivery::{Delivery, DeliverySuppression, DeliveryTarget},
};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::postgres::{error::TxResult, row::write_json};

/// Returns the inserted rows. Rows that already existed are missing from the result.
pub(crate) const INSERT_DELIVERIES: &str = "
    INSERT INTO deliveries (team, id, rev, attempts, received_at, due, holder, inbox, source, raw, message, repeats,
                            state, suppressed, about, target)
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::int[], $5::bigint[], $6::bigint[], $7::uuid[],
                         $8::uuid[], $9::uuid[], $10::uuid[], $11::uuid[], $12::uuid[], $13::text[], $14::text[],
                         $15::text[], $16::text[])
    ON CONFLICT DO NOTHING RETURNING id";

/// A delivery to insert, with the node that leases it and the id of its raw bytes.
pub(crate) struct NewDeliveryRow {
    pub delivery: Delivery,
    pub holder: Option<NodeId>,
    pub raw: Option<Uuid>,
}

/// The parameters of [`INSERT_DELIVERIES`], one vector per column.
#[derive(Default)]
pub(crate) struct DeliveryColumns {
    team: Vec<Uuid>,
    id: Vec<Uuid>,
    rev: Vec<i32>,
    attempts: Vec<i32>,
    received_at: Vec<i64>,
    due: Vec<Option<i64>>,
    references: ReferenceColumns,
    state: Vec<&'static str>,
    suppressed: Vec<Option<&'static str>>,
    about: Vec<String>,
    target: Vec<Option<String>>,
}

/// The columns of the ids that a delivery refers to.
#[derive(Default)]
struct ReferenceColumns {
    holder: Vec<Option<Uuid>>,
    inbox: Vec<Option<Uuid>>,
    source: Vec<Option<Uuid>>,
    raw: Vec<Option<Uuid>>,
    message: Vec<Option<Uuid>>,
    repeats: Vec<Option<Uuid>>,
}

impl DeliveryColumns {
    pub(crate) fn of(fresh: &[NewDeliveryRow]) -> TxResult<Self> {
        let mut columns = Self::default();
        for NewDeliveryRow { delivery, holder, raw } in fresh {
            columns.team.push(delivery.team.0);
            columns.id.push(delivery.id.0);
            columns.rev.push(delivery.rev as i32);
            columns.attempts.push(delivery.attempts as i32);
            columns.received_at.push(delivery.received_at.0);
            columns.due.push(delivery.due_at.map(|at| at.0));
            columns.references.holder.push(holder.map(|node| node.0));
            columns.references.inbox.push(delivery.target.inbox().map(|id| id.0));
            columns.references.source.push(delivery.details.source.map(|id| id.0));
            columns.references.raw.push(*raw);
            columns.references.message.push(delivery.message.map(|id| id.0));
            columns.references.repeats.push(delivery.duplicate_of.map(|id| id.0));
            columns.state.push(delivery.state.as_str());
            columns.suppressed.push(delivery.suppressed.map(DeliverySuppression::as_str));
            columns.about.push(write_json(&delivery.details)?);
            columns.target.push(match delivery.target {
                DeliveryTarget::Inbox(_) => None,
                other => Some(write_json(&other)?),
            });
        }
        Ok(columns)
    }

    pub(crate) fn params(&self) -> [&(dyn ToSql + Sync); 16] {
        [
            &self.team,
            &self.id,
            &self.rev,
            &self.attempts,
            &self.received_at,
            &self.due,
            &self.references.holder,
            &self.references.inbox,
            &self.references.source,
            &self.references.raw,
            &self.references.message,
            &self.references.repeats,
            &self.state,
            &self.suppressed,
            &self.about,
            &self.target,
        ]
    }
}
