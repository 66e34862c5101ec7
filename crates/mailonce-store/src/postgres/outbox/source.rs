//! The table of the Debezium outbox router that an outbox reads: which tables are accepted, and which rows are new.
//!
//! The outbox remembers the id of every row that it has read, never a position: ids and sequence numbers are taken at the
//! insert and become visible at the commit, so a lower one may appear later.

use mailonce_core::{outbox::OutboxError, ports::outbox_database::Result};
use tokio_postgres::Transaction;

use super::{
    read,
    schema::{OutboxSchema, failed},
};

/// A table to read, and which of its rows.
#[derive(Clone, Debug)]
pub struct NewOutboxTable {
    /// Its name, with or without its schema.
    pub table: String,
    /// The values of its column `type` whose rows are emails.
    pub types: Vec<String>,
    /// Whether to send the rows that the table has already.
    pub includes_existing: bool,
    /// Whether an operator says that rows stay, although the table is empty after inserts and deletes.
    pub rows_stay: bool,
}

/// A table that was found.
struct FoundTable {
    oid: u32,
    schema: String,
    name: String,
}

impl FoundTable {
    fn quoted(&self) -> String {
        let quote = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        format!("{}.{}", quote(&self.schema), quote(&self.name))
    }
}

fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(OutboxError::UnreadableTable(why.into()))
}

impl OutboxSchema {
    /// Makes the outbox read a table, in one transaction. The same table again may add types. Rows that the table has
    /// already are skipped unless they are asked for. Returns how many were skipped.
    pub async fn read_table(&mut self, new: &NewOutboxTable) -> Result<u64> {
        let schema = self.schema.clone();
        let tx = self.client.transaction().await.map_err(|error| failed(&error))?;
        let table = find_table(&tx, &new.table).await?;
        check_columns(&tx, &table).await?;
        let known = known_types(&tx, &schema, &table).await?;
        if known.is_none() && !new.rows_stay {
            check_that_rows_stay(&tx, &table).await?;
        }
        let save = format!(
            "INSERT INTO \"{schema}\".source AS s (table_schema, table_name, types, seen_inserts, seen_deletes, seen_rows)
             SELECT $1, $2, $3, coalesce(max(t.n_tup_ins), 0), coalesce(max(t.n_tup_del), 0), (SELECT count(*) FROM {})
               FROM pg_stat_all_tables t WHERE t.relid = $4
             ON CONFLICT (only_row) DO UPDATE
             SET types = ARRAY(SELECT DISTINCT unnest(s.types || excluded.types) ORDER BY 1)",
            table.quoted()
        );
        tx.execute(&save, &[&table.schema, &table.name, &new.types, &table.oid])
            .await
            .map_err(|error| failed(&error))?;
        let mut skipped = 0;
        if !new.includes_existing {
            let skip = format!(
                "INSERT INTO \"{schema}\".collected (id) SELECT id FROM {}
                  WHERE type::text = ANY ($1) AND type::text <> ALL ($2) ON CONFLICT DO NOTHING",
                table.quoted()
            );
            let known = known.unwrap_or_default();
            skipped = tx.execute(&skip, &[&new.types, &known]).await.map_err(|error| failed(&error))?;
        }
        tx.commit().await.map_err(|error| failed(&error))?;
        Ok(skipped)
    }
}

async fn find_table(tx: &Transaction<'_>, name: &str) -> Result<FoundTable> {
    let sql = "SELECT c.oid, n.nspname::text, c.relname::text, c.relkind::text
                 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)";
    let found = tx.query_opt(sql, &[&name]).await.map_err(|error| failed(&error))?;
    let Some(row) = found else { return refuse(format!("there is no table {name}")) };
    if read::<&str>(&row, 3)? != "r" {
        return refuse(format!("{name} is a view, a partitioned table or a foreign table"));
    }
    Ok(FoundTable { oid: read(&row, 0)?, schema: read(&row, 1)?, name: read(&row, 2)? })
}

/// Refuses a table without the columns of the router that are read, or whose ids may repeat.
async fn check_columns(tx: &Transaction<'_>, table: &FoundTable) -> Result<()> {
    let sql = "SELECT a.attname::text, format_type(a.atttypid, NULL),
                      EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique
                               AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum)
                 FROM pg_attribute a WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped";
    let mut columns = std::collections::BTreeMap::new();
    for row in tx.query(sql, &[&table.oid]).await.map_err(|error| failed(&error))? {
        columns.insert(read::<String>(&row, 0)?, (read::<String>(&row, 1)?, read::<bool>(&row, 2)?));
    }
    for (name, accepted) in [("id", &["uuid"][..]), ("type", &["text", "character varying"]), ("payload", &["jsonb"])] {
        match columns.get(name) {
            Some((found, _)) if accepted.contains(&found.as_str()) => {}
            Some((found, _)) => {
                let expected = accepted.join(" or ");
                return refuse(format!(
                    "its column {name} is {found} and must be {expected}; a trigger can convert it"
                ));
            }
            None => return refuse(format!("it has no column {name}")),
        }
    }
    if columns.get("id").is_some_and(|(_, is_unique)| *is_unique) {
        return Ok(());
    }
    refuse("its column id has no primary key or unique index, so rows could have the same id")
}

/// The types that the outbox reads from this table already. Refuses when it reads another table.
async fn known_types(tx: &Transaction<'_>, schema: &str, table: &FoundTable) -> Result<Option<Vec<String>>> {
    let sql = format!("SELECT table_schema, table_name, types FROM \"{schema}\".source FOR UPDATE");
    let Some(row) = tx.query_opt(&sql, &[]).await.map_err(|error| failed(&error))? else { return Ok(None) };
    let (known_schema, known_name): (String, String) = (read(&row, 0)?, read(&row, 1)?);
    if (&known_schema, &known_name) != (&table.schema, &table.name) {
        return refuse(format!("the outbox reads {known_schema}.{known_name}; use another --schema for another table"));
    }
    read(&row, 2).map(Some)
}

/// Refuses an empty table from which as many rows were deleted as were inserted.
async fn check_that_rows_stay(tx: &Transaction<'_>, table: &FoundTable) -> Result<()> {
    let sql = format!(
        "SELECT n_tup_ins, n_tup_del FROM pg_stat_all_tables
          WHERE relid = $1 AND n_tup_ins > 0 AND n_tup_del >= n_tup_ins AND NOT EXISTS (SELECT 1 FROM {})",
        table.quoted()
    );
    let Some(row) = tx.query_opt(&sql, &[&table.oid]).await.map_err(|error| failed(&error))? else { return Ok(()) };
    let (inserted, deleted): (i64, i64) = (read(&row, 0)?, read(&row, 1)?);
    refuse(format!(
        "it is empty although {inserted} rows were inserted and {deleted} deleted. An application that deletes a row in the \
         transaction that inserts it, as is usual with Debezium, leaves nothing to read"
    ))
}
