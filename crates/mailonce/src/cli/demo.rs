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
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
    sync::Arc,
    time::Duration,
};
use tokio::{
    process::{Child, Command},
    sync::{Barrier, watch},
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    ServerArgs,
    client::{CliClient, DEV_FILE},
    exit,
    progress::Progress,
    prove::sink::{CountingSink, MARKER_PREFIX},
};
use crate::cli::{
    error::CliError,
    printer::{Printer, display_text},
};
use crate::{
    entropy::{random_name, wall_time},
    http::html::escape_html,
    private_file,
};

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
    let storm = storm(&data, args.callers).await?;
    let page = storm.write_timeline_page(&data)?;
    storm.show(out, &data, &page);
    Ok(if storm.is_exactly_once() { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

async fn storm(data: &Path, callers: u32) -> anyhow::Result<StormResult> {
    let progress = Progress::bar("clients answered", u64::from(callers));
    let sink = CountingSink::listen(([127, 0, 0, 1], 0).into()).await?;
    progress.print_line(&format!("{callers} clients send the same email; the server is killed halfway."));
    let mut server = DemoServer::new(data, sink.address().port())?;
    // Hand-off is paused until the kill, so that the crash falls between accept and delivery.
    server.start("paused").await?;
    let marker = marker();
    let clients = StormClients::new(server.reach.clone(), &marker, progress);
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
    let mut email = wait_until_final(&server.reach, ids.first().context("no client got an answer")?).await?;
    sink.wait_for_mails(&BTreeMap::from([(marker.clone(), 1)]), Duration::from_millis(500), STEP_TIMEOUT).await;
    let delivered = sink.counts_by_marker().get(&marker).copied().unwrap_or(0);
    server.stop().await?;
    let kill = [(killed_at, "the server is killed (kill -9)"), (restarted_at, "the server starts again")];
    add_to_timeline(&mut email, &kill.map(|(at, what)| json!({ "at": at.to_string(), "description": what })));
    Ok(StormResult { callers, answered_before_kill: answered, downtime, calls, ids, delivered, email })
}

/// Adds entries that the ledger cannot know, and merges repeated ones. Times have one format, so that they sort as text.
fn add_to_timeline(email: &mut Value, entries: &[Value]) {
    let Some(timeline) = email["timeline"].as_array_mut() else { return };
    timeline.extend_from_slice(entries);
    timeline.sort_by_key(|entry| display_text(&entry["at"]));
    let runs = timeline.chunk_by(|one, other| one["description"] == other["description"]);
    let merge = |run: &[Value]| {
        let mut entry = run.first().cloned()?;
        if run.len() > 1 {
            entry["description"] = json!(format!("{}, {} times", display_text(&entry["description"]), run.len()));
        }
        Some(entry)
    };
    *timeline = runs.filter_map(merge).collect();
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
async fn wait_until_final(reach: &ServerArgs, id: &str) -> anyhow::Result<Value> {
    let end = Instant::now() + STEP_TIMEOUT;
    loop {
        let email = CliClient::find(reach)?.get(&format!("/v1/emails/{id}")).await?;
        let in_flight = matches!(email["state"].as_str(), Some("queued" | "sending" | "scheduled"));
        if !in_flight || Instant::now() > end {
            return Ok(email);
        }
        sleep(RETRY_DELAY).await;
    }
}

/// Clients that send the same email.
struct StormClients {
    reach: ServerArgs,
    body: Arc<Value>,
    /// Number of clients that have an answer.
    answers: watch::Sender<usize>,
    progress: Arc<Progress>,
}

impl StormClients {
    fn new(reach: ServerArgs, marker: &str, progress: Progress) -> Self {
        let order = marker.trim_start_matches(MARKER_PREFIX).trim_end_matches("-demo");
        let body = json!({
            "from": "shop@mailonce.test",
            "to": "ada@example.com",
            "subject": format!("Your order {order}"),
            "text": format!("Thank you for your order.\n\n{marker}"),
            "intent": { "type": "order.confirmation", "entity": format!("order_{order}") },
        });
        Self { reach, body: Arc::new(body), answers: watch::Sender::new(0), progress: Arc::new(progress) }
    }

    /// Spawns clients that start together, once the returned barrier is waited on. Each returns the id it received and
    /// the number of its requests.
    fn spawn_clients(&self, tasks: &mut JoinSet<anyhow::Result<(String, u32)>>, callers: u32) -> Arc<Barrier> {
        let barrier = Arc::new(Barrier::new(callers as usize + 1));
        for _ in 0..callers {
            let (reach, body, answers) = (self.reach.clone(), Arc::clone(&self.body), self.answers.clone());
            let (start, progress) = (Arc::clone(&barrier), Arc::clone(&self.progress));
            tasks.spawn(async move {
                start.wait().await;
                let result = call_until_final(&reach, &body).await;
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
async fn call_until_final(reach: &ServerArgs, body: &Value) -> anyhow::Result<(String, u32)> {
    let end = Instant::now() + STEP_TIMEOUT;
    let mut tries = 0;
    loop {
        tries += 1;
        let request = async { CliClient::find(reach)?.call(Method::POST, "/v1/emails", None, Some(body)).await };
        match request.await {
            Ok((_, answer)) => return Ok((answer["id"].as_str().unwrap_or_default().to_owned(), tries)),
            Err(error) if Instant::now() > end => return Err(error),
            Err(_) => sleep(RETRY_DELAY).await,
        }
    }
}

/// The server of the demo.
struct DemoServer {
    reach: ServerArgs,
    config: PathBuf,
    log: PathBuf,
    child: Option<Child>,
}

impl DemoServer {
    /// Prepares the data directory, with a configuration that sends mail to a local port.
    fn new(data: &Path, relay: u16) -> anyhow::Result<Self> {
        private_file::create_dir(data).with_context(|| format!("creating {}", data.display()))?;
        let config = data.join("storm.toml");
        let relay = format!(
            "[[transports]]\nname = \"counter\"\nkind = \"smtp\"\nhost = \"127.0.0.1\"\nport = {relay}\ntls = \"none\"\n"
        );
        std::fs::write(&config, relay).with_context(|| format!("writing {}", config.display()))?;
        let reach = ServerArgs { url: None, api_key: None, data: data.to_owned(), ca_file: None };
        Ok(Self { reach, config, log: data.join("storm.log"), child: None })
    }

    /// Starts the server, and waits until it answers.
    async fn start(&mut self, handoff: &str) -> anyhow::Result<()> {
        let file = self.reach.data.join(DEV_FILE);
        if file.exists() {
            std::fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
        }
        let log = std::fs::File::create(&self.log).with_context(|| format!("writing {}", self.log.display()))?;
        let mut command = Command::new(std::env::current_exe().context("finding this program")?);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MAILONCE_")) {
            command.env_remove(name);
        }
        command.args(["dev", "--http", "127.0.0.1:0", "--smtp", "off", "--config"]).arg(&self.config);
        command.arg("--data").arg(&self.reach.data).env("MAILONCE_HANDOFF", handoff).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().context("starting the server")?);
        let end = Instant::now() + STEP_TIMEOUT;
        while !self.is_serving().await {
            let ended = self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)));
            if ended || Instant::now() > end {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                let next = "check that no other process uses this folder, or choose another --data";
                let detail = format!("the server of the demo did not start: {}", log.trim());
                return Err(CliError::new("not_started", detail, next).into());
            }
            sleep(RETRY_DELAY).await;
        }
        Ok(())
    }

    async fn is_serving(&self) -> bool {
        match CliClient::find(&self.reach) {
            Ok(client) => client.get("/v1/emails?limit=1").await.is_ok(),
            Err(_) => false,
        }
    }

    /// Kills the server with SIGKILL.
    async fn kill(&mut self) -> anyhow::Result<()> {
        match self.child.take() {
            Some(mut child) => child.kill().await.context("killing the server"),
            None => Ok(()),
        }
    }

    /// Stops the server with SIGTERM, and waits until it has ended.
    async fn stop(&mut self) -> anyhow::Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        if let Some(id) = child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())) {
            rustix::process::kill_process(id, rustix::process::Signal::TERM).context("stopping the server")?;
        }
        tokio::time::timeout(STEP_TIMEOUT, child.wait())
            .await
            .context("the server does not stop")?
            .context("stopping the server")?;
        Ok(())
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

    /// Writes the timeline as an HTML page into the data directory, and returns its `file://` URL.
    fn write_timeline_page(&self, data: &Path) -> anyhow::Result<String> {
        let row = |entry: &Value| {
            format!(
                "<tr><td>{}</td><td>{}</td></tr>\n",
                escape_html(&time_of_day(entry)),
                escape_html(&display_text(&entry["description"]))
            )
        };
        let rows: String = self.email["timeline"].as_array().into_iter().flatten().map(row).collect();
        let page = include_str!("storm.html")
            .replace("{verdict}", &escape_html(&self.verdict()))
            .replace("{id}", &escape_html(&display_text(&self.email["id"])))
            .replace("{rows}", &rows);
        let file = data.join("timeline.html");
        std::fs::write(&file, page).with_context(|| format!("writing {}", file.display()))?;
        let path = std::fs::canonicalize(&file).with_context(|| format!("finding {}", file.display()))?;
        Ok(format!("file://{}", path.display().to_string().replace('%', "%25").replace(' ', "%20")))
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
        let row = |entry: &Value| vec![time_of_day(entry), display_text(&entry["description"])];
        out.print_table(&["time", "what happened to the email"], timeline.iter().map(row).collect());
        out.print_line("");
        out.print_line(&format!("Timeline as a page: {page}"));
        out.print_line(
            "The ledger of the demo is kept. To look into it, start a server on it and use another terminal:",
        );
        out.print_line(&format!("  mailonce dev --data {folder} --http 127.0.0.1:0 --smtp off"));
        out.print_line(&format!("  mailonce emails show --data {folder} {id}"));
    }
}
