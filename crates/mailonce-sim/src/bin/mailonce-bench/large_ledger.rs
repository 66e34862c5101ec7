//! Lists and searches in a ledger with many emails, as the dashboard asks for them: pages at both ends of the list, pages
//! of a filter, and words that many or few emails contain.

use crate::args::{Args, Figure};
use crate::figures::ensure_only_status;
use crate::growth::short_count;
use crate::large_ledger_emails::{LargeLedger, MARKED_WORDS, MARKER, search_word, user_address};
use crate::results::{FigureSample, NamedSamples};
use anyhow::{Context as _, Result, ensure};
use mailonce_sim::harness::child_processes::{ChildProcesses, sleep};
use mailonce_sim::harness::http;
use mailonce_sim::harness::postgres::TemporaryDatabase;
use mailonce_sim::harness::server::{API_KEY, ServerProcess, ServerSetup};
use mailonce_sim::load::{Histogram, LoadDuration, SteadyLoad, run_steady};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long filling, handing off and indexing may each take.
const FILL_TIMEOUT: Duration = Duration::from_hours(2);
/// How often the end of the handoff and of indexing is looked for.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Batches in flight while the ledger is filled.
const FILL_CONNECTIONS: usize = 4;
/// How often each query runs. Ten more come first and are not counted.
const RUNS: u64 = 100;
const WARM_UP_RUNS: u64 = 10;

/// What each page of a query must contain. Without this check, a wrong answer could pass as a fast one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedPage {
    Rows,
    NoRows,
    /// A page of a scan that found nothing yet may be empty.
    Any,
}

/// A query that is measured.
struct PageQuery {
    /// The end of the row's name.
    name: &'static str,
    /// The path of the n-th run.
    path: Box<dyn Fn(u64) -> String>,
    expected: ExpectedPage,
}

impl PageQuery {
    fn new(name: &'static str, expected: ExpectedPage, path: impl Fn(u64) -> String + 'static) -> Self {
        Self { name, path: Box::new(path), expected }
    }

    /// Measures the page over one connection, one request after another.
    fn measure(&self, server: &ServerProcess) -> Result<FigureSample> {
        let mut stream = http::connect(server.at)?;
        let mut latency = Histogram::default();
        for run in 0..WARM_UP_RUNS + RUNS {
            let path = (self.path)(run);
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {API_KEY}\r\n\r\n");
            let started = Instant::now();
            let reply = http::exchange_on(&mut stream, request.as_bytes()).with_context(|| path.clone())?;
            if run >= WARM_UP_RUNS {
                latency.record(started.elapsed());
            }
            ensure!(reply.status == 200, "GET {path}: expected 200, got {}: {}", reply.status, reply.body);
            let rows = reply.body["data"].as_array().map_or(0, Vec::len);
            let right = match self.expected {
                ExpectedPage::Rows => rows > 0,
                ExpectedPage::NoRows => rows == 0,
                ExpectedPage::Any => true,
            };
            ensure!(right, "GET {path}: got {rows} rows, expected {:?}", self.expected);
        }
        Ok(FigureSample { rss_mb: server.rss_mb(), ..FigureSample::from_latency(&latency, None) })
    }
}

/// The list and search figures of one store.
pub(crate) struct LargeLedgerBench<'a> {
    pub(crate) args: &'a Args,
    pub(crate) children: &'a ChildProcesses,
    pub(crate) binary: &'a Path,
    pub(crate) work: &'a Path,
    /// The figure of the lists, if they are measured.
    pub(crate) list: Option<Figure>,
    /// The figure of the searches, if they are measured.
    pub(crate) search: Option<Figure>,
    /// The database of the ledger; `None` for SQLite.
    pub(crate) database: Option<TemporaryDatabase>,
}

impl LargeLedgerBench<'_> {
    /// Fills a ledger and measures all queries on it. Returns a row for each.
    pub(crate) fn measure(self) -> Result<NamedSamples> {
        let data = tempfile::Builder::new().prefix("ledger").tempdir_in(self.work)?;
        let env = [("MAILONCE_SEARCH_ENABLED", self.search.is_some().to_string().into())];
        let store = self.database.as_ref().map(|database| database.url.as_str());
        let setup = ServerSetup { binary: self.binary, data: data.path(), store, paused: false, env: &env };
        let server = setup.start(self.children)?;
        let ledger = self.fill(&server)?;
        let mut rows = Vec::new();
        for (figure, queries) in [(self.list, list_queries(&ledger)), (self.search, search_queries())] {
            let Some(figure) = figure else { continue };
            for query in queries {
                rows.push((row_name(figure, self.args.ledger_emails, query.name), query.measure(&server)));
            }
        }
        server.terminate()?;
        self.database.map_or(Ok(()), TemporaryDatabase::drop_database)?;
        Ok(rows)
    }

    /// Accepts the emails, and waits until they are handed off and can be found.
    fn fill(&self, server: &ServerProcess) -> Result<Arc<LargeLedger>> {
        let ledger = Arc::new(LargeLedger::new(self.args.ledger_emails));
        let until = LoadDuration::Count { count: ledger.batches(), timeout: FILL_TIMEOUT };
        let plan = SteadyLoad { to: server.at, connections: FILL_CONNECTIONS, threads: 1, duration: until };
        ensure_only_status(&run_steady(&plan, &ledger)?, 202).context("filling the ledger")?;
        for id in ledger.scheduled_ids() {
            let reply = http::post(server.at, &format!("/v1/emails/{id}/cancel"), None, &json!({}))?;
            ensure!(reply.status == 200, "cancelling an email: {} {}", reply.status, reply.body);
        }
        wait_until_sent(server, ledger.emails())?;
        if self.search.is_some() {
            wait_until_indexed(server)?;
        }
        if let Some(database) = &self.database {
            // The state in which autovacuum leaves the tables some time after a load.
            self.args.postgres()?.psql(&database.url, "VACUUM (ANALYZE)")?;
        }
        // What is still to be written must not be written during the figures.
        rustix::fs::sync();
        Ok(ledger)
    }
}

/// `list-1m-first`.
pub(crate) fn row_name(figure: Figure, emails: u64, query: &str) -> String {
    format!("{}-{query}", figure.name().replace("1m", &short_count(emails)))
}

/// Waits until no email is queued. All must have been accepted.
fn wait_until_sent(server: &ServerProcess, emails: u64) -> Result<()> {
    wait_until("the handoff", || {
        let stats = http::get(server.at, "/v1/stats?hours=24")?.body;
        let accepted = stats["accepted"].as_u64();
        ensure!(accepted == Some(emails), "{accepted:?} emails were accepted, expected {emails}");
        let open = |state: &str| stats["states"].get(state).and_then(Value::as_u64).unwrap_or(0);
        Ok(["queued", "leased", "sending"].into_iter().all(|state| open(state) == 0))
    })
}

/// Mail is indexed in the order in which it was accepted, so all of it can be found once the last email can.
fn wait_until_indexed(server: &ServerProcess) -> Result<()> {
    let last = json!({ "from": "agent@example.com", "to": "last@example.org", "subject": "Last", "text": MARKER });
    let reply = http::post(server.at, "/v1/emails", Some(MARKER), &last)?;
    ensure!(reply.status == 202, "the last email: {} {}", reply.status, reply.body);
    wait_until("indexing", || {
        let page = http::get(server.at, &format!("/v1/search?in=emails&q={MARKER}"))?.body;
        Ok(page["data"].as_array().is_some_and(|hits| !hits.is_empty()))
    })
}

fn wait_until(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + FILL_TIMEOUT;
    while !done()? {
        ensure!(Instant::now() < deadline, "{what} did not end within {} s", FILL_TIMEOUT.as_secs());
        sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// The pages of the list of emails, and what each page of the dashboard asks for besides.
fn list_queries(ledger: &LargeLedger) -> Vec<PageQuery> {
    let middle = ledger.middle_id();
    vec![
        PageQuery::new("first", ExpectedPage::Rows, |_| "/v1/emails?limit=100".to_owned()),
        PageQuery::new("deep", ExpectedPage::Rows, move |_| format!("/v1/emails?limit=100&cursor={middle}")),
        PageQuery::new("state", ExpectedPage::Rows, |_| "/v1/emails?limit=100&state=sent".to_owned()),
        PageQuery::new("rare-state", ExpectedPage::Rows, |_| "/v1/emails?limit=100&state=cancelled".to_owned()),
        PageQuery::new("no-state", ExpectedPage::NoRows, |_| "/v1/emails?limit=100&state=failed".to_owned()),
        PageQuery::new("recipient", ExpectedPage::Any, |run| format!("/v1/emails?limit=100&to={}", user_address(run))),
        PageQuery::new("needs-you", ExpectedPage::NoRows, |_| "/v1/stats?hours=0".to_owned()),
    ]
}

/// First pages of searches.
fn search_queries() -> Vec<PageQuery> {
    let search = |terms: &str| format!("/v1/search?in=emails&limit=50&q={terms}");
    let mut queries: Vec<PageQuery> = MARKED_WORDS
        .into_iter()
        .map(|(name, word)| PageQuery::new(name, ExpectedPage::Rows, move |_| search(word)))
        .collect();
    queries.extend([
        PageQuery::new("words", ExpectedPage::Rows, move |run| {
            search(&format!("{}%20{}", search_word(run), search_word(run + 1)))
        }),
        PageQuery::new("phrase", ExpectedPage::Rows, move |_| search("%22common%20half%22")),
        PageQuery::new("without", ExpectedPage::Rows, move |_| search("common%20-half")),
        PageQuery::new("missing", ExpectedPage::NoRows, move |run| search(&format!("missing{run}"))),
        PageQuery::new("recipient", ExpectedPage::Rows, move |run| search(&format!("to:{}", user_address(run)))),
        PageQuery::new("sender", ExpectedPage::Rows, move |run| {
            search(&format!("from:agent-{}@example.com", run % 40))
        }),
        PageQuery::new("state", ExpectedPage::Rows, move |_| search("state:sent%20common")),
    ]);
    queries
}

#[cfg(test)]
mod tests {
    use super::{list_queries, row_name, search_queries};
    use crate::args::Figure;
    use crate::large_ledger_emails::LargeLedger;

    #[test]
    fn rows_are_named_by_store_size_and_query() {
        assert_eq!(row_name(Figure::List1m, 1_000_000, "first"), "list-1m-first");
        assert_eq!(row_name(Figure::PgSearch1m, 20_000, "rare"), "pg-search-20k-rare");
    }

    #[test]
    fn queries_have_names_of_their_own_and_valid_paths() {
        for queries in [list_queries(&LargeLedger::new(10)), search_queries()] {
            let mut names: Vec<&str> = queries.iter().map(|query| query.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), queries.len());
            let paths = queries.iter().map(|query| (query.path)(7));
            assert!(paths.into_iter().all(|path| path.starts_with("/v1/") && !path.contains([' ', '"'])));
        }
    }
}
