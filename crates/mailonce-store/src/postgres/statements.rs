//! Runs statements, one at a time or pipelined.

use deadpool_postgres::{GenericClient, Transaction};
use std::{
    future::{Future as _, poll_fn},
    task::Poll,
};
use tokio_postgres::types::ToSql;

use super::error::TxResult;

/// Executes a statement that is prepared once per session.
pub(crate) async fn execute(
    client: &(impl GenericClient + ?Sized),
    sql: &str,
    params: &[&(dyn ToSql + Sync)],
) -> TxResult<u64> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.execute(&statement, params).await?)
}

/// Runs a query that is prepared once per session.
pub(crate) async fn query_rows(
    client: &(impl GenericClient + ?Sized),
    sql: &str,
    params: &[&(dyn ToSql + Sync)],
) -> TxResult<Vec<tokio_postgres::Row>> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query(&statement, params).await?)
}

/// A statement with its parameters.
pub(crate) type BoundStatement<'a> = (&'a str, &'a [&'a (dyn ToSql + Sync)]);

/// Pipelines statements: sends them without waiting for the results in between. The server runs them in this order,
/// and each sees what was committed when its predecessor ended.
pub(crate) async fn query_pipelined(
    tx: &Transaction<'_>,
    asked: &[BoundStatement<'_>],
) -> TxResult<Vec<Vec<tokio_postgres::Row>>> {
    let mut statements = Vec::with_capacity(asked.len());
    for (sql, _) in asked {
        statements.push(tx.prepare_cached(sql).await?);
    }
    let mut sent = Vec::with_capacity(asked.len());
    for (statement, (_, params)) in statements.iter().zip(asked) {
        let mut answer = Box::pin(tx.query(statement, params));
        // The first poll sends the query.
        let early = poll_fn(|cx| match answer.as_mut().poll(cx) {
            Poll::Ready(rows) => Poll::Ready(Some(rows)),
            Poll::Pending => Poll::Ready(None),
        });
        sent.push((early.await, answer));
    }
    let mut answers = Vec::with_capacity(asked.len());
    for (early, answer) in sent {
        answers.push(match early {
            Some(rows) => rows?,
            None => answer.await?,
        });
    }
    Ok(answers)
}
