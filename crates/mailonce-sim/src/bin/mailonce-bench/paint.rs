//! First contentful paint of the dashboard, in Chromium.

use crate::args::Args;
use crate::figures::ensure_only_status;
use crate::mails;
use crate::results::{FigureSample, NamedSamples};
use anyhow::{Context as _, Result, ensure};
use mailonce_sim::harness::child_processes::ChildProcesses;
use mailonce_sim::harness::http;
use mailonce_sim::harness::postgres::run_for_output;
use mailonce_sim::harness::server::{API_KEY, ServerProcess, ServerSetup};
use mailonce_sim::load::{Histogram, LoadDuration, SteadyLoad, run_steady};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Batches of a hundred emails that the lists show.
const BATCHES: u64 = 10;
const BATCH_SIZE: usize = 100;
const FILL_TIMEOUT: Duration = Duration::from_mins(1);

/// The pages of one server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PaintBench<'a> {
    pub(crate) args: &'a Args,
    pub(crate) children: &'a ChildProcesses,
    pub(crate) binary: &'a Path,
    pub(crate) work: &'a Path,
}

impl PaintBench<'_> {
    /// Loads the pages several times. Returns a row for each.
    pub(crate) fn measure(&self) -> Result<NamedSamples> {
        let data = tempfile::Builder::new().prefix("data").tempdir_in(self.work)?;
        let setup = ServerSetup { binary: self.binary, data: data.path(), store: None, paused: false, env: &[] };
        let server = setup.start(self.children)?;
        fill(&server)?;
        let text = run_for_output(self.browser(&server)?)?;
        server.terminate()?;
        parse(&text)
    }

    fn browser(&self, server: &ServerProcess) -> Result<Command> {
        let mut command = Command::new("node");
        command.arg(&self.args.first_paint).env("MAILONCE_URL", format!("http://{}", server.at));
        command.env("MAILONCE_API_KEY", API_KEY).env("MAILONCE_SIGN_IN", sign_in_link(server)?);
        command.env_remove("SCREENSHOTS");
        Ok(command)
    }
}

fn fill(server: &ServerProcess) -> Result<()> {
    let until = LoadDuration::Count { count: BATCHES, timeout: FILL_TIMEOUT };
    let plan = SteadyLoad { to: server.at, connections: 1, threads: 1, duration: until };
    let batch = mails::batch(BATCH_SIZE);
    let caller = Arc::new(move |n: u64, out: &mut Vec<u8>| batch.write_numbered(n, out));
    ensure_only_status(&run_steady(&plan, &caller)?, 202).context("filling the lists")
}

/// A link that signs a new administrator in.
fn sign_in_link(server: &ServerProcess) -> Result<String> {
    let person = json!({ "name": "Bench", "role": "admin", "address": "bench@example.com" });
    let person = http::post(server.at, "/v1/people", None, &person)?;
    let id = person.body["id"].as_str().with_context(|| format!("no person: {}", person.body))?;
    let link = http::post(server.at, &format!("/v1/people/{id}/sign-in-links"), None, &json!({}))?;
    Ok(link.body["url"].as_str().with_context(|| format!("no sign-in link: {}", link.body))?.to_owned())
}

/// Reads the times of all loads by page: `{"home":[31.5,30.9]}`.
fn parse(text: &str) -> Result<NamedSamples> {
    let pages: BTreeMap<String, Vec<f64>> = serde_json::from_str(text).context("the times of the pages")?;
    let sample = |times: &[f64]| {
        ensure!(!times.is_empty(), "no load was measured");
        let mut latency = Histogram::default();
        times.iter().for_each(|ms| latency.record(Duration::from_secs_f64(ms / 1e3)));
        Ok(FigureSample::from_latency(&latency, None))
    };
    Ok(pages.iter().map(|(page, times)| (format!("paint-{page}"), sample(times))).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_become_a_row_of_each_page() {
        let rows = super::parse(r#"{"emails":[50,40,90],"home":[30.5]}"#).unwrap();
        let names: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["paint-emails", "paint-home"]);
        let emails = rows[0].1.as_ref().unwrap();
        let (half, worst) = (emails.p50_ms.unwrap(), emails.max_ms.unwrap());
        assert!((49.0..51.0).contains(&half) && (worst - 90.0).abs() < 0.1, "{half} {worst}");
        assert!(super::parse(r#"{"home":[]}"#).unwrap()[0].1.is_err());
        assert!(super::parse("Chromium is missing").is_err());
    }
}
