//! `demo storm`: many clients send the same email, the server is killed and restarted, and one email is delivered.
//!
//! Nothing is simulated. The demo starts its own server on its own ledger and an SMTP sink that counts. Requests go
//! over sockets, the server is killed with SIGKILL, and the email leaves by SMTP.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::IsTerminal as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{Barrier, watch},
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    ServerArgs,
    client::CliClient,
    exit,
    progress::Progress,
    prove::sink::{CountingSink, MARKER_PREFIX},
};
use crate::cli::printer::{Printer, display_text};
use crate::entropy::{random_name, wall_time};
use server::DemoServer;

mod server;
mod timeline_page;

/// Timeout of each step.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
/// Delay before a client retries.
const RETRY_DELAY: Duration = Duration::from_millis(50);

#[derive(Debug, Subcommand)]
pub(crate) enum DemoVerb {
    /// Send one email from many clients, kill the server halfway, and count what is delivered
    Storm(StormArgs),
}

/// Size and place of the demo.
#[derive(Debug, Args)]
pub(crate) struct StormArgs {
    /// Number of clients: a third calls before the kill, a third during it, a third after it
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(6..=1000))]
    callers: u32,
    /// The demo keeps its ledger in the folder `storm` of this directory
    #[arg(long, env = "MAILONCE_DATA", value_name = "DIR", default_value = "./mailonce-data")]
    data: PathBuf,
}

/// What the demo observed.
struct StormResult {
    callers: u32,
    /// Clients that had an answer when the server was killed.
    answered_before_kill: usize,
    /// From the kill until the server answered again.
    downtime: Duration,
    /// Requests of all clients, also those without an answer.
    calls: u32,
    ids: BTreeSet<String>,
    /// Emails that reached the sink.
    delivered: u32,
    /// The email as the API shows it. Its timeline also has the kill and the restart.
    email: Value,
}

/// Runs `demo`.
pub(super) async fn demo(out: &Printer, verb: DemoVerb) -> anyhow::Result<ExitCode> {
    let DemoVerb::Storm(args) = verb;
    let data = args.data.join("storm");
    let (mut server, storm) = storm(&data, args.callers).await?;
    let page = timeline_page::write(&storm, &data)?;
    storm.show(out, &data, &page);
    if !out.is_json() && std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
        show_dashboard(out, &server, &storm).await?;
    }
    server.stop().await?;
    Ok(if storm.is_exactly_once() { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

/// Prints a link to the email's page, and keeps the server until the person has seen it.
async fn show_dashboard(out: &Printer, server: &DemoServer, storm: &StormResult) -> anyhow::Result<()> {
    let id = display_text(&storm.email["id"]);
    out.print_line("");
    out.print_line(&format!(
        "See it in the dashboard (the link works once): {}?next=/emails/{id}",
        server.sign_in_link()?
    ));
    out.print_line("Press Enter to stop the server of the demo.");
    // Ctrl-C ends both: the terminal sends it to the server, too.
    let waiting = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    waiting.await.context("waiting at the terminal")?.context("reading from the terminal")?;
    Ok(())
}

/// Runs the demo. Its server is still running afterwards.
async fn storm(data: &Path, callers: u32) -> anyhow::Result<(DemoServer, StormResult)> {
    let progress = Progress::bar("clients answered", u64::from(callers));
    let sink = CountingSink::listen(([127, 0, 0, 1], 0).into()).await?;
    progress.print_line(&format!("{callers} clients send the same email; the server is killed halfway."));
    let mut server = DemoServer::new(data, sink.address().port())?;
    // Hand-off is paused until the kill, so that the crash falls between accept and delivery.
    server.start("paused").await?;
    let marker = marker();
    let clients = StormClients::new(server.server.clone(), &marker, progress);
    let third = callers / 3;
    let mut tasks = JoinSet::new();
    clients.spawn_clients(&mut tasks, third).wait().await;
    clients.wait_for_answers(third as usize).await?;
    // These requests are sent at the moment of the kill, so they are in flight when the server dies.
    clients.spawn_clients(&mut tasks, third).wait().await;
    server.kill().await?;
    let (answered, killed, killed_at) = (*clients.answers.borrow(), Instant::now(), wall_time());
    clients.progress.print_line(&format!("  {answered} clients answered, then kill -9"));
    clients.spawn_clients(&mut tasks, callers - 2 * third).wait().await;
    clients.progress.print_line(&format!("  {} clients retry while the server is down", callers as usize - answered));
    let restarted_at = wall_time();
    server.start("running").await?;
    let downtime = killed.elapsed();
    let (mut ids, mut calls) = (BTreeSet::new(), 0);
    while let Some(ended) = tasks.join_next().await {
        let (id, tries) = ended.context("a client ended")??;
        ids.insert(id);
        calls += tries;
    }
    let back = format!("  server back after {} ms, all {callers} clients answered", downtime.as_millis());
    clients.progress.print_line(&back);
    let mut email = wait_until_final(&server.server, ids.first().context("no client got an answer")?).await?;
    sink.wait_for_mails(&BTreeMap::from([(marker.clone(), 1)]), Duration::from_millis(500), STEP_TIMEOUT).await;
    let delivered = sink.counts_by_marker().get(&marker).copied().unwrap_or(0);
    let kill = [(killed_at, "the server is killed (kill -9)"), (restarted_at, "the server starts again")];
    add_to_timeline(&mut email, &kill.map(|(at, what)| json!({ "at": at.to_string(), "description": what })));
    Ok((server, StormResult { callers, answered_before_kill: answered, downtime, calls, ids, delivered, email }))
}

/// Adds entries that the ledger cannot know. Times have one format, so that they sort as text.
fn add_to_timeline(email: &mut Value, entries: &[Value]) {
    let Some(timeline) = email["timeline"].as_array_mut() else { return };
    timeline.extend_from_slice(entries);
    timeline.sort_by_key(|entry| display_text(&entry["at"]));
}

/// What an entry says, and how many times when it repeats.
fn describe_run(first: &Value, count: usize) -> String {
    let description = display_text(&first["description"]);
    if count > 1 { format!("{description}, {count} times") } else { description }
}

/// The time of day of a timeline entry, with milliseconds: the whole demo takes about a second.
fn time_of_day(entry: &Value) -> String {
    let at = display_text(&entry["at"]);
    at.split_once('T').map_or_else(|| at.clone(), |(_, time)| time.to_owned())
}

/// A string that only the emails of this run contain.
fn marker() -> String {
    format!("{MARKER_PREFIX}{}-demo", random_name())
}

/// Waits until the state of an email is final.
async fn wait_until_final(server: &ServerArgs, id: &str) -> anyhow::Result<Value> {
    let end = Instant::now() + STEP_TIMEOUT;
    loop {
        let email = CliClient::find(server)?.get(&format!("/v1/emails/{id}")).await?;
        let in_flight = matches!(email["state"].as_str(), Some("queued" | "sending" | "scheduled"));
        if !in_flight || Instant::now() > end {
            return Ok(email);
        }
        sleep(RETRY_DELAY).await;
    }
}

/// Clients that send the same email.
struct StormClients {
    server: ServerArgs,
    body: Arc<Value>,
    /// Number of clients that have an answer.
    answers: watch::Sender<usize>,
    progress: Arc<Progress>,
}

impl StormClients {
    fn new(server: ServerArgs, marker: &str, progress: Progress) -> Self {
        let order = marker.trim_start_matches(MARKER_PREFIX).trim_end_matches("-demo");
        let body = json!({
            "from": "shop@mailonce.test",
            "to": "ada@example.com",
            "subject": format!("Your order {order}"),
            "text": format!("Thank you for your order.\n\n{marker}"),
            "intent": { "type": "order.confirmation", "entity": format!("order_{order}") },
        });
        Self { server, body: Arc::new(body), answers: watch::Sender::new(0), progress: Arc::new(progress) }
    }

    /// Spawns clients that start together, once the returned barrier is waited on. Each returns the id it received and
    /// the number of its requests.
    fn spawn_clients(&self, tasks: &mut JoinSet<anyhow::Result<(String, u32)>>, callers: u32) -> Arc<Barrier> {
        let barrier = Arc::new(Barrier::new(callers as usize + 1));
        for _ in 0..callers {
            let (server, body, answers) = (self.server.clone(), Arc::clone(&self.body), self.answers.clone());
            let (start, progress) = (Arc::clone(&barrier), Arc::clone(&self.progress));
            tasks.spawn(async move {
                start.wait().await;
                let result = call_until_final(&server, &body).await;
                answers.send_modify(|answers| *answers += 1);
                progress.advance();
                result
            });
        }
        barrier
    }

    async fn wait_for_answers(&self, count: usize) -> anyhow::Result<()> {
        let mut answers = self.answers.subscribe();
        let waiting = answers.wait_for(|answers| *answers >= count);
        tokio::time::timeout(STEP_TIMEOUT, waiting)
            .await
            .context("no client gets an answer")?
            .context("the clients ended")?;
        Ok(())
    }
}

/// Retries until there is an answer, as an agent does.
async fn call_until_final(server: &ServerArgs, body: &Value) -> anyhow::Result<(String, u32)> {
    let end = Instant::now() + STEP_TIMEOUT;
    let mut tries = 0;
    loop {
        tries += 1;
        let request = async { CliClient::find(server)?.call(Method::POST, "/v1/emails", None, Some(body)).await };
        match request.await {
            Ok((_, answer)) => return Ok((answer["id"].as_str().unwrap_or_default().to_owned(), tries)),
            Err(error) if Instant::now() > end => return Err(error),
            Err(_) => sleep(RETRY_DELAY).await,
        }
    }
}

impl StormResult {
    /// Whether one email was accepted and one delivered.
    fn is_exactly_once(&self) -> bool {
        self.ids.len() == 1 && self.delivered == 1
    }

    fn verdict(&self) -> String {
        let emails = |count: usize| if count == 1 { "1 email".to_owned() } else { format!("{count} emails") };
        let (accepted, delivered) = (emails(self.ids.len()), emails(self.delivered as usize));
        format!("Result: {} requests, {accepted} accepted, {delivered} delivered.", self.calls)
    }

    fn show(&self, out: &Printer, data: &Path, page: &str) {
        let id = self.ids.first().cloned().unwrap_or_default();
        let folder = data.strip_prefix(".").unwrap_or(data).display().to_string();
        if out.is_json() {
            return out.print_json(&json!({
                "exactly_once": self.is_exactly_once(),
                "callers": self.callers,
                "calls": self.calls,
                "answered_before_kill": self.answered_before_kill,
                "downtime_ms": self.downtime.as_millis() as u64,
                "emails": self.ids.len(),
                "delivered": self.delivered,
                "email": id,
                "state": self.email["state"],
                "data_dir": folder,
                "timeline": page,
            }));
        }
        let verdict = self.verdict();
        out.print_line(&if self.is_exactly_once() { out.green(&verdict) } else { out.red(&verdict) });
        out.print_line("");
        let timeline = self.email["timeline"].as_array().map(Vec::as_slice).unwrap_or_default();
        let runs = timeline.chunk_by(|one, other| one["description"] == other["description"]);
        let row = |run: &[Value]| run.first().map(|first| vec![time_of_day(first), describe_run(first, run.len())]);
        out.print_table(&["time", "what happened to the email"], runs.filter_map(row).collect());
        out.print_line("");
        out.print_line(&format!("Timeline as a page: {page}"));
        out.print_line(
            "The ledger of the demo is kept. To look into it, start a server on it and use another terminal:",
        );
        out.print_line(&format!("  mailonce dev --data {folder} --http 127.0.0.1:0 --smtp off"));
        out.print_line(&format!("  mailonce emails show --data {folder} {id}"));
    }
}
