//! `demo storm`: many callers at one key, the process killed in their midst and started again, one mail in the end.
//!
//! It starts a mailonce of its own on a ledger of its own and a next hop that counts, so that nothing of it is staged:
//! the calls go over sockets, the kill is a kill -9, and the mail goes out by SMTP.

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
    emails, exit,
    progress::Progress,
    prove::sink::{CountingSink, MARKER_PREFIX},
};
use crate::cli::{
    error::CliError,
    printer::{Printer, display_text, field_text},
};
use crate::{entropy::random_name, wiring};

/// How long anything of it may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
/// The pause before a caller asks again.
const RETRY_DELAY: Duration = Duration::from_millis(50);

#[derive(Debug, Subcommand)]
pub(crate) enum DemoVerb {
    /// Many callers ask at one key, the process is killed in their midst: one mail
    Storm(StormArgs),
}

/// How large the storm is.
#[derive(Debug, Args)]
pub(crate) struct StormArgs {
    /// Callers, a third of them before the kill, a third in its midst and a third after it
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(6..=1000))]
    callers: u32,
    /// Its ledger is made in the folder `storm` below this one
    #[arg(long, env = "MAILONCE_DATA", value_name = "DIR", default_value = "./mailonce-data")]
    data: PathBuf,
}

/// What came of it.
struct StormResult {
    callers: u32,
    /// Callers that had an answer when the process was killed.
    answered_before_kill: usize,
    /// From the kill until it served again.
    downtime: Duration,
    /// Calls in all, those that got no answer too.
    calls: u32,
    ids: BTreeSet<String>,
    /// Mails that reached the next hop.
    delivered: u32,
    email: Value,
}

/// See the module's words.
pub(super) async fn demo(out: &Printer, verb: DemoVerb) -> anyhow::Result<ExitCode> {
    let DemoVerb::Storm(args) = verb;
    let data = args.data.join("storm");
    let storm = storm(&data, args.callers).await?;
    let page = storm.write_timeline_page(&data)?;
    storm.show(out, &data, &page);
    Ok(if storm.is_exactly_once() { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

async fn storm(data: &Path, callers: u32) -> anyhow::Result<StormResult> {
    let progress = Progress::bar("answers", u64::from(callers));
    let sink = CountingSink::listen(([127, 0, 0, 1], 0).into()).await?;
    progress
        .print_line(&format!("a mailonce of its own starts in {}", data.strip_prefix(".").unwrap_or(data).display()));
    let mut house = DemoServer::new(data, sink.address().port())?;
    // Nothing leaves before the kill: whoever crashes between accept and hand-off finds the mail in the ledger.
    house.start("paused").await?;
    let marker = marker();
    let crowd = StormClients::new(house.reach.clone(), &marker, progress);
    let third = callers / 3;
    crowd.progress.print_line(&format!("{third} callers ask at once, under one key, and have an answer"));
    let mut asking = JoinSet::new();
    crowd.spawn_clients(&mut asking, third).wait().await;
    crowd.wait_for_answers(third as usize).await?;
    // The kill comes with their calls, so none of them can have been answered and all of them are under way.
    crowd.spawn_clients(&mut asking, third).wait().await;
    house.kill().await?;
    let (before, killed) = (*crowd.answers.borrow(), Instant::now());
    crowd
        .progress
        .print_line(&format!("{third} more ask, and kill -9 falls among them: {before} of {callers} have an answer"));
    crowd.progress.print_line(&format!("{} more ask while nobody is there", callers - 2 * third));
    crowd.spawn_clients(&mut asking, callers - 2 * third).wait().await;
    house.start("running").await?;
    let away = killed.elapsed();
    crowd.progress.print_line(&format!("it is back after {} ms; everybody asks again", away.as_millis()));
    let (mut ids, mut calls) = (BTreeSet::new(), 0);
    while let Some(asked) = asking.join_next().await {
        let (id, tries) = asked.context("a caller ended")??;
        ids.insert(id);
        calls += tries;
    }
    crowd.progress.print_line("all have an answer; the mail goes out");
    let email = wait_until_settled(&house.reach, ids.first().context("nobody got an answer")?).await?;
    sink.wait_for_mails(&BTreeMap::from([(marker.clone(), 1)]), Duration::from_millis(500), STEP_TIMEOUT).await;
    let mails = sink.counts_by_marker().get(&marker).copied().unwrap_or(0);
    house.stop().await?;
    Ok(StormResult { callers, answered_before_kill: before, downtime: away, calls, ids, delivered: mails, email })
}

/// Something that only mails of this run hold.
fn marker() -> String {
    format!("{MARKER_PREFIX}{}-demo", random_name())
}

/// Waits until an email needs nothing more.
async fn wait_until_settled(reach: &ServerArgs, id: &str) -> anyhow::Result<Value> {
    let end = Instant::now() + STEP_TIMEOUT;
    loop {
        let email = CliClient::find(reach)?.get(&format!("/v1/emails/{id}")).await?;
        let under_way = matches!(email["state"].as_str(), Some("queued" | "sending" | "scheduled"));
        if !under_way || Instant::now() > end {
            return Ok(email);
        }
        sleep(RETRY_DELAY).await;
    }
}

/// Callers that want the same thing.
struct StormClients {
    reach: ServerArgs,
    body: Arc<Value>,
    /// How many have an answer.
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

    /// Lets so many callers begin at the same moment, which is when whoever called waits too. Each gives the id it was
    /// told, and how often it asked.
    fn spawn_clients(&self, asking: &mut JoinSet<anyhow::Result<(String, u32)>>, callers: u32) -> Arc<Barrier> {
        let begin = Arc::new(Barrier::new(callers as usize + 1));
        for _ in 0..callers {
            let (reach, body, answers) = (self.reach.clone(), Arc::clone(&self.body), self.answers.clone());
            let (start, progress) = (Arc::clone(&begin), Arc::clone(&self.progress));
            asking.spawn(async move {
                start.wait().await;
                let told = call_until_final(&reach, &body).await;
                answers.send_modify(|answers| *answers += 1);
                progress.advance();
                told
            });
        }
        begin
    }

    async fn wait_for_answers(&self, count: usize) -> anyhow::Result<()> {
        let mut answers = self.answers.subscribe();
        let waiting = answers.wait_for(|answers| *answers >= count);
        tokio::time::timeout(STEP_TIMEOUT, waiting)
            .await
            .context("nobody gets an answer")?
            .context("the callers left")?;
        Ok(())
    }
}

/// Asks until there is an answer, as an agent does.
async fn call_until_final(reach: &ServerArgs, body: &Value) -> anyhow::Result<(String, u32)> {
    let end = Instant::now() + STEP_TIMEOUT;
    let mut tries = 0;
    loop {
        tries += 1;
        let asked = async { CliClient::find(reach)?.call(Method::POST, "/v1/emails", None, Some(body)).await };
        match asked.await {
            Ok((_, answer)) => return Ok((answer["id"].as_str().unwrap_or_default().to_owned(), tries)),
            Err(error) if Instant::now() > end => return Err(error),
            Err(_) => sleep(RETRY_DELAY).await,
        }
    }
}

/// The mailonce of the storm.
struct DemoServer {
    reach: ServerArgs,
    config: PathBuf,
    log: PathBuf,
    child: Option<Child>,
}

impl DemoServer {
    /// A folder with a configuration that hands mail to a port of this machine.
    fn new(data: &Path, relay: u16) -> anyhow::Result<Self> {
        wiring::create_private_dir(data).with_context(|| format!("making {}", data.display()))?;
        let config = data.join("storm.toml");
        let relay = format!(
            "[[transports]]\nname = \"counter\"\nkind = \"smtp\"\nhost = \"127.0.0.1\"\nport = {relay}\ntls = \"none\"\n"
        );
        std::fs::write(&config, relay).with_context(|| format!("writing {}", config.display()))?;
        let reach = ServerArgs { url: None, api_key: None, data: data.to_owned(), ca_file: None };
        Ok(Self { reach, config, log: data.join("storm.log"), child: None })
    }

    /// Starts it, and waits until it serves.
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
        self.child = Some(command.spawn().context("starting it")?);
        let end = Instant::now() + STEP_TIMEOUT;
        while !self.is_serving().await {
            let ended = self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)));
            if ended || Instant::now() > end {
                let said = std::fs::read_to_string(&self.log).unwrap_or_default();
                let next = "see that nothing else uses this folder, or choose another --data";
                return Err(
                    CliError::new("not_started", format!("its mailonce did not start: {}", said.trim()), next).into()
                );
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

    /// Ends it as a power cut would.
    async fn kill(&mut self) -> anyhow::Result<()> {
        match self.child.take() {
            Some(mut child) => child.kill().await.context("killing it"),
            None => Ok(()),
        }
    }

    /// Asks it to end, and waits.
    async fn stop(&mut self) -> anyhow::Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        if let Some(id) = child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())) {
            rustix::process::kill_process(id, rustix::process::Signal::TERM).context("stopping it")?;
        }
        tokio::time::timeout(STEP_TIMEOUT, child.wait()).await.context("it does not stop")?.context("stopping it")?;
        Ok(())
    }
}

impl StormResult {
    /// Whether it went as promised.
    fn is_exactly_once(&self) -> bool {
        self.ids.len() == 1 && self.delivered == 1
    }

    fn verdict(&self) -> String {
        let (callers, calls, emails, mails) = (self.callers, self.calls, self.ids.len(), self.delivered);
        format!("{callers} callers, {calls} calls, {emails} email, {mails} mail")
    }

    /// Leaves the timeline as a page in the ledger's folder, for a browser and without a key. Its address.
    fn write_timeline_page(&self, data: &Path) -> anyhow::Result<String> {
        let row = |fact: &Value| {
            format!(
                "<tr><td>{}</td><td>{}</td></tr>\n",
                escape_html(&field_text(fact, "at")),
                escape_html(&display_text(&fact["what"]))
            )
        };
        let rows: String = self.email["timeline"].as_array().into_iter().flatten().map(row).collect();
        let page = include_str!("storm.html")
            .replace("{verdict}", &escape_html(&self.verdict()))
            .replace("{id}", &escape_html(&display_text(&self.email["id"])))
            .replace("{rows}", &rows);
        let file = data.join("timeline.html");
        std::fs::write(&file, page).with_context(|| format!("writing {}", file.display()))?;
        let whole = std::fs::canonicalize(&file).with_context(|| format!("finding {}", file.display()))?;
        Ok(format!("file://{}", whole.display().to_string().replace('%', "%25").replace(' ', "%20")))
    }

    fn show(&self, out: &Printer, data: &Path, page: &str) {
        let id = self.ids.first().cloned().unwrap_or_default();
        let place = data.strip_prefix(".").unwrap_or(data).display().to_string();
        if out.is_json() {
            return out.print_json(&json!({
                "held": self.is_exactly_once(),
                "callers": self.callers,
                "calls": self.calls,
                "answered_before_kill": self.answered_before_kill,
                "away_ms": self.downtime.as_millis() as u64,
                "emails": self.ids.len(),
                "mails": self.delivered,
                "email": id,
                "state": self.email["state"],
                "data": place,
                "timeline": page,
            }));
        }
        let verdict = self.verdict();
        out.print_line("");
        out.print_line(&if self.is_exactly_once() { out.green(&verdict) } else { out.red(&verdict) });
        out.print_line("");
        emails::timeline(out, &self.email);
        out.print_line("");
        out.print_line(&format!("Its timeline: {page}"));
        out.print_line("Its ledger stays. To look around in it, start it and ask in another terminal:");
        out.print_line(&format!("  mailonce dev --data {place} --http 127.0.0.1:0 --smtp off"));
        out.print_line(&format!("  mailonce emails show --data {place} {id}"));
    }
}

/// Text as a page has it.
fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
