//! `pgbench` on a database of its own.

use crate::args::Args;
use crate::results::FigureSample;
use anyhow::{Context as _, Result};
use mailonce_sim::harness::postgres::run_for_output;
use std::path::Path;

/// Clients of `pgbench`.
const CLIENTS: &str = "16";

/// Key row and outbox row, as a hand-written outbox has them.
const SCHEMA: &str = "CREATE TABLE keys (team int NOT NULL, key bytea NOT NULL, digest bytea NOT NULL, \
    created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (team, key)); \
    CREATE TABLE outbox (id bigserial PRIMARY KEY, key bytea NOT NULL, payload text NOT NULL, \
    state text NOT NULL DEFAULT 'queued', created_at timestamptz NOT NULL DEFAULT now());";

/// One transaction; 31 × 32 letters are about the payload of the other figures.
const TRANSACTION: &str = r"\set n random(1, 9000000000000000000)
BEGIN;
INSERT INTO keys (team, key, digest) VALUES (1, sha256(:n::text::bytea), sha256(:n::text::bytea)) ON CONFLICT DO NOTHING;
INSERT INTO outbox (key, payload) VALUES (sha256(:n::text::bytea), repeat(md5(:n::text), 31));
COMMIT;
";

/// The results of side effects, as the advisory-lock recipe keeps them.
const LOCK_SCHEMA: &str = "CREATE TABLE effects (key text PRIMARY KEY, result jsonb, \
    created_at timestamptz NOT NULL DEFAULT now());";

/// The advisory-lock recipe: a lock for the key, a look whether it was done, the side effect, and its result.
const LOCK_TRANSACTION: &str = r"\set n random(1, 9000000000000000000)
BEGIN;
SELECT pg_advisory_xact_lock(hashtextextended('invoice-' || :n, 0));
SELECT result FROM effects WHERE key = 'invoice-' || :n;
INSERT INTO effects (key, result) VALUES ('invoice-' || :n, jsonb_build_object('number', 17));
COMMIT;
";

/// Transactions of two inserts a second, as `pgbench` counts them.
pub(crate) fn pgbench(args: &Args, work: &Path, name: &str) -> Result<FigureSample> {
    run_pgbench(args, work, name, (SCHEMA, TRANSACTION))
}

/// Side effects a second under the advisory-lock recipe, which holds its transaction open meanwhile.
pub(crate) fn advisory_lock(args: &Args, work: &Path, name: &str) -> Result<FigureSample> {
    run_pgbench(args, work, name, (LOCK_SCHEMA, LOCK_TRANSACTION))
}

fn run_pgbench(args: &Args, work: &Path, name: &str, (schema, transaction): (&str, &str)) -> Result<FigureSample> {
    let postgres = args.postgres()?;
    let database = postgres.create_database(name)?;
    postgres.psql(&database.url, schema)?;
    let script = work.join("pgbench.sql");
    std::fs::write(&script, transaction)?;
    let mut command = postgres.command("pgbench");
    command.args(["-n", "-M", "prepared", "-c", CLIENTS, "-j", "2", "-T"]);
    command.arg(args.measured_time().as_secs().to_string()).arg("-f").arg(&script).arg(&database.url);
    let text = run_for_output(command)?;
    let rate = number_after(&text, "tps = ").context("pgbench told no tps")?;
    database.drop_database()?;
    Ok(FigureSample { rate: Some(rate), ..FigureSample::default() })
}

fn number_after(text: &str, mark: &str) -> Option<f64> {
    text.split_once(mark)?.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_rate_is_found_in_what_pgbench_prints() {
        let text = "latency average = 3.5 ms\ntps = 4567.5 (without initial connection time)\n";
        assert_eq!(super::number_after(text, "tps = "), Some(4567.5));
    }
}
