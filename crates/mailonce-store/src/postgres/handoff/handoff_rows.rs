//! Reads rows that name handoffs, and the emails of such rows.

use deadpool_postgres::Transaction;
use mailonce_core::id::{EmailId, TeamId};
use std::collections::BTreeSet;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::postgres::{
    error::TxResult,
    locked_tx::read_email_rows,
    row::read_emails,
    unit_of_work::{EmailRef, UnitOfWork},
};

/// Reads the team, email and handoff number in the first columns of a row.
pub(crate) fn read_handoff_ref(row: &Row) -> TxResult<(EmailRef, u16)> {
    let scoped = (TeamId(row.try_get::<_, Uuid>(0)?), EmailId(row.try_get::<_, Uuid>(1)?));
    Ok((scoped, row.try_get::<_, i32>(2)? as u16))
}

/// Reads the current state of emails that are already locked.
pub(crate) async fn load_locked_emails(tx: &Transaction<'_>, held: &BTreeSet<EmailRef>) -> TxResult<UnitOfWork> {
    let emails = read_emails(&read_email_rows(tx, held).await?, 0)?;
    Ok(UnitOfWork { emails: emails.into_iter().map(|email| (email.id, email)).collect(), ..UnitOfWork::default() })
}
