//! The set-based writes of filing: messages, Message-IDs, artifacts, message numbers and finished deliveries.

use deadpool_postgres::Transaction;
use mailonce_core::{inbound::filing::FiledArtifact, time::Time};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::sweep::RESWEEP_INBOXES;
use crate::postgres::inbound::{
    deliveries::{DeliveryUpdates, release_raws},
    filing_batch::FilingBatch,
    wake_ups::NOTIFY,
};
use crate::postgres::{
    error::{TxResult, first_error},
    events::pending_events::write_events,
    row::write_json,
    statements::{BoundStatement, execute, query_pipelined},
};

const SAVE_INBOX_SEQS: &str = "
    UPDATE inboxes i SET seq = w.seq FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS w (team, id, seq)
     WHERE i.team = w.team AND i.id = w.id AND i.seq < w.seq";
const INSERT_MESSAGE_IDS: &str = "
    INSERT INTO thread_names (team, inbox, name, thread)
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bytea[], $4::uuid[])";
const INSERT_MESSAGES: &str = "
    INSERT INTO messages (team, inbox, seq, id, rev, thread, delivery, received_at, state, name, content, head, marks)
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::uuid[], $5::int[], $6::uuid[], $7::uuid[],
                         $8::bigint[], $9::text[], $10::bytea[], $11::bytea[], $12::text[], $13::text[])";
const INSERT_ARTIFACTS: &str = "
    INSERT INTO artifacts (team, id, inbox, message, seq, found_at, rev, authenticated, kind, hash, sender, found)
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::bigint[], $6::bigint[], $7::int[],
                         $8::boolean[], $9::text[], $10::bytea[], $11::bytea[], $12::text[])";
const CHANGE_ARTIFACTS: &str = "
    UPDATE artifacts a SET seq = w.seq, rev = w.rev, authenticated = w.authenticated
      FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::int[], $5::boolean[]) AS w (team, id, seq, rev, authenticated)
     WHERE a.team = w.team AND a.id = w.id";

impl FilingBatch {
    /// Writes all changes and sends the notifications in `letters`. The caller commits. Other transactions wait for
    /// the inbox's row lock meanwhile, so the statements are sent together.
    pub(crate) async fn write(&self, tx: &Transaction<'_>, letters: &[String], now: Time) -> TxResult<()> {
        let mut changed = DeliveryUpdates::default();
        for (delivery, _) in self.finished_deliveries() {
            changed.add(delivery, None);
        }
        let written = tokio::join!(
            self.write_messages(tx, letters),
            self.conversation_changes.write(tx),
            self.write_artifacts(tx),
            changed.write(tx),
            write_events(tx, &self.events)
        );
        first_error(written.into())?;
        self.resweep_inboxes(tx, now).await?;
        let free = self.finished_deliveries().filter(|(delivery, _)| !delivery.needs_raw_bytes());
        release_raws(tx, free.filter_map(|(_, raw)| *raw)).await
    }

    /// Schedules another sweep of inboxes that were removed before their deliveries finished.
    async fn resweep_inboxes(&self, tx: &Transaction<'_>, now: Time) -> TxResult<()> {
        if self.missing_inboxes.is_empty() {
            return Ok(());
        }
        let (teams, ids): (Vec<Uuid>, Vec<Uuid>) = self.missing_inboxes.iter().map(|(team, id)| (team.0, id.0)).unzip();
        execute(tx, RESWEEP_INBOXES, &[&teams, &ids, &now.0]).await.map(drop)
    }

    async fn write_messages(&self, tx: &Transaction<'_>, letters: &[String]) -> TxResult<()> {
        if self.messages.is_empty() {
            return Ok(());
        }
        let all = || self.messages.iter().map(|(message, _, _)| message);
        let team: Vec<Uuid> = all().map(|m| m.team.0).collect();
        let inbox: Vec<Uuid> = all().map(|m| m.inbox.0).collect();
        let seq: Vec<i64> = all().map(|m| m.seq as i64).collect();
        let id: Vec<Uuid> = all().map(|m| m.id.0).collect();
        let rev: Vec<i32> = all().map(|m| m.rev as i32).collect();
        let thread: Vec<Uuid> = all().map(|m| m.thread.0).collect();
        let delivery: Vec<Uuid> = all().map(|m| m.delivery.0).collect();
        let received_at: Vec<i64> = all().map(|m| m.received_at.0).collect();
        let state: Vec<&str> = all().map(|m| m.state.as_str()).collect();
        let name: Vec<Option<&[u8]>> = self.messages.iter().map(|(_, name, _)| name.as_ref().map(|n| &n[..])).collect();
        let content: Vec<&[u8]> = self.messages.iter().map(|(_, _, content)| content.as_slice()).collect();
        let head = all().map(|m| write_json(&m.head)).collect::<TxResult<Vec<String>>>()?;
        let marks = all().map(|m| write_json(&m.annotations)).collect::<TxResult<Vec<String>>>()?;
        let message: [&(dyn ToSql + Sync); 13] =
            [&team, &inbox, &seq, &id, &rev, &thread, &delivery, &received_at, &state, &name, &content, &head, &marks];
        let (row_team, row): (Vec<Uuid>, Vec<Uuid>) = self.inboxes.keys().map(|(team, id)| (team.0, id.0)).unzip();
        let number: Vec<i64> = self.inboxes.values().map(|seq| *seq as i64).collect();
        let (name_team, name_inbox): (Vec<Uuid>, Vec<Uuid>) =
            self.new_message_ids.iter().map(|(team, inbox, _, _)| (team.0, inbox.0)).unzip();
        let hash: Vec<&[u8]> = self.new_message_ids.iter().map(|(_, _, name, _)| name.as_slice()).collect();
        let of: Vec<Uuid> = self.new_message_ids.iter().map(|(_, _, _, thread)| thread.0).collect();
        let asked: [BoundStatement<'_>; 4] = [
            (INSERT_MESSAGES, &message),
            (SAVE_INBOX_SEQS, &[&row_team, &row, &number]),
            (INSERT_MESSAGE_IDS, &[&name_team, &name_inbox, &hash, &of]),
            (NOTIFY, &[&letters]),
        ];
        query_pipelined(tx, &asked).await.map(drop)
    }

    async fn write_artifacts(&self, tx: &Transaction<'_>) -> TxResult<()> {
        let (new, known): (Vec<&FiledArtifact>, Vec<_>) = self.artifacts.values().partition(|filed| filed.is_new);
        if !new.is_empty() {
            let columns = ArtifactColumns::of(&new);
            let inbox: Vec<Uuid> = new.iter().map(|filed| filed.artifact.inbox.0).collect();
            let message: Vec<Uuid> = new.iter().map(|filed| filed.artifact.message.0).collect();
            let found_at: Vec<i64> = new.iter().map(|filed| filed.artifact.found_at.0).collect();
            let kind: Vec<&str> = new.iter().map(|filed| filed.artifact.kind.as_str()).collect();
            let hash: Vec<&[u8]> = new.iter().map(|filed| filed.hash.as_slice()).collect();
            let sender: Vec<&[u8]> = new.iter().map(|filed| filed.artifact.sender.as_bytes()).collect();
            let found =
                new.iter().map(|filed| write_json(&filed.artifact.extracted)).collect::<TxResult<Vec<String>>>()?;
            let ArtifactColumns { team, id, seq, rev, authenticated } = &columns;
            let params: [&(dyn ToSql + Sync); 12] =
                [team, id, &inbox, &message, seq, &found_at, rev, authenticated, &kind, &hash, &sender, &found];
            execute(tx, INSERT_ARTIFACTS, &params).await?;
        }
        if !known.is_empty() {
            let ArtifactColumns { team, id, seq, rev, authenticated } = &ArtifactColumns::of(&known);
            execute(tx, CHANGE_ARTIFACTS, &[team, id, seq, rev, authenticated]).await?;
        }
        Ok(())
    }
}

/// The columns that inserts and updates of artifacts share.
struct ArtifactColumns {
    team: Vec<Uuid>,
    id: Vec<Uuid>,
    seq: Vec<i64>,
    rev: Vec<i32>,
    authenticated: Vec<bool>,
}

impl ArtifactColumns {
    fn of(filed: &[&FiledArtifact]) -> Self {
        let all = || filed.iter().map(|filed| &filed.artifact);
        Self {
            team: all().map(|artifact| artifact.team.0).collect(),
            id: all().map(|artifact| artifact.id.0).collect(),
            seq: all().map(|artifact| artifact.seq as i64).collect(),
            rev: all().map(|artifact| artifact.rev as i32).collect(),
            authenticated: all().map(|artifact| artifact.authenticated).collect(),
        }
    }
}
