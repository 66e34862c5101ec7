//! What mailonce is compared with: the usual pattern of Redis lock, PostgreSQL insert and Redis result
//! (`bench/seed-pattern`), and Redis by itself.

use crate::args::Args;
use crate::figures::measure_steady;
use crate::mails;
use crate::results::FigureSample;
use anyhow::{Context as _, Result, ensure};
use mailonce_sim::harness::child_processes::ChildProcesses;
use mailonce_sim::harness::postgres::run_for_output;
use mailonce_sim::harness::server::ServerProcess;
use std::path::Path;
use std::process::Command;

/// A send by Redis lock, PostgreSQL insert and Redis result, in Node.
pub(crate) fn seeds(args: &Args, children: &ChildProcesses, work: &Path, name: &str) -> Result<FigureSample> {
    let redis = args.redis.as_deref().context("no Redis: MAILONCE_TEST_REDIS is not set")?;
    ensure!(args.seed_pattern.join("node_modules").is_dir(), "run `npm ci` in bench/seed-pattern first");
    let database = args.postgres()?.create_database(name)?;
    flush(redis)?;
    let server = ServerProcess::start(children, &work.join("seeds.log"), |at| {
        let mut command = Command::new("node");
        command.arg("server.js").current_dir(&args.seed_pattern).env("NODE_ENV", "production");
        command.env("PORT", at.port().to_string()).env("REDIS_URL", redis).env("DATABASE_URL", &database.url);
        Ok(command)
    })?;
    let sample = measure_steady(args, server.at, mails::seeds(), 202)?;
    let rss_mb = server.rss_mb();
    server.terminate()?;
    database.drop_database()?;
    Ok(FigureSample { rss_mb, ..sample })
}

/// `SET … NX EX` alone, by Redis' own load generator.
pub(crate) fn redis(args: &Args) -> Result<FigureSample> {
    let redis = args.redis.as_deref().context("no Redis: MAILONCE_TEST_REDIS is not set")?;
    flush(redis)?;
    let (host, port) = address(redis).context("MAILONCE_TEST_REDIS is not redis://host:port")?;
    let requests = if args.quick { "100000" } else { "250000" };
    let mut command = Command::new("redis-benchmark");
    command.args(["-h", host, "-p", port, "-c", &args.connections.to_string(), "-n", requests, "--csv"]);
    command.args(["-r", "1000000000000", "SET", "key:__rand_int__", "claimed", "NX", "EX", "3600"]);
    parse(&run_for_output(command)?).context("redis-benchmark told no figures")
}

fn flush(url: &str) -> Result<()> {
    let mut command = Command::new("redis-cli");
    command.args(["-u", url, "flushall"]);
    run_for_output(command).map(drop)
}

fn address(url: &str) -> Option<(&str, &str)> {
    url.strip_prefix("redis://")?.trim_end_matches('/').rsplit_once(':')
}

/// Reads the comma-separated table: a line of names and a line of figures.
fn parse(table: &str) -> Option<FigureSample> {
    let mut lines = table.lines().rev().filter(|line| line.starts_with('"'));
    let (figures, names) = (lines.next()?, lines.next()?);
    // The first column is the command itself, which may hold commas of its own; so columns count from the end.
    let columns = names.split(',').count();
    let figure = |name: &str| -> Option<f64> {
        let from_end = columns - 1 - names.split(',').position(|column| column.trim_matches('"') == name)?;
        figures.rsplit(',').nth(from_end)?.trim_matches('"').parse().ok()
    };
    Some(FigureSample {
        rate: Some(figure("rps")?),
        p50_ms: figure("p50_latency_ms"),
        p99_ms: figure("p99_latency_ms"),
        max_ms: figure("max_latency_ms"),
        ..FigureSample::default()
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn figures_are_found_in_what_redis_benchmark_prints() {
        let table = "\"test\",\"rps\",\"avg_latency_ms\",\"p50_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
            \"SET key:__rand_int__ claimed NX EX 3600\",\"25000.50\",\"9.5\",\"9.1\",\"20.2\",\"31.0\"\n";
        let sample = super::parse(table).unwrap();
        assert_eq!((sample.rate, sample.p50_ms), (Some(25_000.5), Some(9.1)));
        assert_eq!((sample.p99_ms, sample.max_ms), (Some(20.2), Some(31.0)));
        assert!(super::parse("Could not connect").is_none());
    }
}
