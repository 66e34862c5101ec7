//! `once`: runs a command once, however many machines, timers and people start it.
//!
//! The claim begins right before the command starts, and is completed with the command's output and exit code after it.
//! Whoever calls later gets that output and exit code. If this process is killed half-way, the command and its children are
//! killed with it, and the claim is `unknown` once its lease has ended. If it is killed before the claim has begun, surely
//! nothing ran, and the claim is free once its lease has ended.
//!
//! | file | what it holds |
//! |---|---|
//! | `claim_client` | the calls to the server, with retries |
//! | `child` | the command: its process group, its signals, its output |
//! | `supervisor` | the process that starts the command and kills its group when this process dies |
//! | `signals` | signals before the command starts, and for the command |
//! | `recorded_run` | output and exit code as the claim stores them |

mod child;
mod claim_client;
mod recorded_run;
mod signals;
mod supervisor;

use clap::Args;
use mailonce_core::hex::format_hash;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::{ffi::OsString, os::unix::ffi::OsStrExt as _, process::ExitCode, time::Duration};

use super::{
    ServerArgs, UsageError,
    client::{CliClient, MissingSetting},
};
use crate::{cli::printer::print_stderr, entropy::fresh_secret};
use claim_client::{ACQUIRE_TIMEOUT, ClaimAnswer, ClaimClient, RECORD_TIMEOUT};
use recorded_run::RecordedRun;
use rustix::process::Signal;
use signals::{CaughtSignals, exit_code_of};

pub(crate) use supervisor::supervise;

/// Exit codes of `once` itself. Everything else is the exit code of the command.
mod exit {
    /// There is no result: nobody knows whether the command ran, the claim failed for good, or a person abandoned it.
    pub(super) const UNKNOWN: u8 = 120;
    /// Another caller is running it.
    pub(super) const BUSY: u8 = 121;
    /// The key was used for another command.
    pub(super) const MISMATCH: u8 = 122;
    /// A stop covers it.
    pub(super) const STOPPED: u8 = 123;
    /// Wrong usage.
    pub(super) const USAGE: u8 = 124;
    /// The server did not answer.
    pub(super) const NO_SERVER: u8 = 125;
    /// There is no such command, as in a shell.
    pub(super) const NO_COMMAND: u8 = 127;
}

/// The exit code of wrong usage. Other commands have another one.
pub(crate) const USAGE_EXIT: u8 = exit::USAGE;

/// How often a busy claim is asked for again with `--wait`, in seconds, unless the server says sooner.
const WAIT_POLL_S: u64 = 2;
/// How long the answer about the claim is waited for after a signal. The call may have made the claim.
const SIGNAL_GRACE: Duration = Duration::from_secs(2);

/// A command to run once.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: that of the command, also when it ran before, or
 120  there is no result: its caller was lost and nobody knows whether it ran (see --verify), the claim failed for
      good, or a person abandoned it
 121  another caller is running it (see --wait)
 122  the key was used for another command
 123  a stop covers it
 124  wrong usage
 125  the server did not answer; this call ran nothing
 127  there is no such command, or it cannot be started
A signal before the command starts ends this process with 128 and its number, and nothing runs.")]
pub(crate) struct OnceArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Key of the run; every caller with the same key gets the same run
    #[arg(long, required_unless_present_all = ["kind", "entity"], conflicts_with_all = ["kind", "entity", "period"])]
    key: Option<String>,
    /// Type of the work, such as report.daily; with --entity instead of --key
    #[arg(long = "type", value_name = "TYPE", requires = "entity")]
    kind: Option<String>,
    /// What the work is about, such as customer_17
    #[arg(long, requires = "kind")]
    entity: Option<String>,
    /// Once per day, week or month, by the server's clock
    #[arg(long, value_parser = ["day", "week", "month"])]
    period: Option<String>,
    /// Time zone of the period, such as Europe/Berlin; UTC by default
    #[arg(long, value_name = "ZONE", requires = "period")]
    tz: Option<String>,
    /// A call less than this many seconds before a boundary counts for the coming period; 60 by default
    #[arg(long, value_name = "SECONDS", requires = "period")]
    grace: Option<u32>,
    /// How long the run is remembered: transactional, notification or a duration such as 90d; 35d by default
    #[arg(long)]
    ttl: Option<String>,
    /// If this process is lost half-way: hold (ask a person) or retry (once, after 10 minutes)
    #[arg(long, value_parser = ["hold", "retry"], default_value = "hold")]
    on_unknown: String,
    /// Exit codes after which the next caller may run the command again, such as 75 or 1,75
    #[arg(long, value_name = "CODES", value_delimiter = ',')]
    retry_exit: Vec<u8>,
    /// Shell command that looks up whether the work was done, if that is unknown: exit code 0 says so.
    /// It gets MAILONCE_DOWNSTREAM_KEY and MAILONCE_CLAIM_ID
    #[arg(long, value_name = "CMD")]
    verify: Option<String>,
    /// If another caller is running the command, wait for its end
    #[arg(long)]
    wait: bool,
    /// Seconds after which this process counts as lost; the lease is renewed three times as often
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    lease: u32,
    /// What the run contains, if that is not the command line; another one under the same key is refused
    #[arg(long, value_name = "TEXT")]
    fingerprint: Option<String>,
    /// Command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Why `once` ends with an exit code of its own instead of the command's.
struct OnceError {
    exit: u8,
    message: String,
}

impl OnceError {
    fn new(exit: u8, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    fn from_setting(error: &anyhow::Error) -> Self {
        let is_usage = error.downcast_ref::<UsageError>().is_some();
        let has_no_server = error.downcast_ref::<MissingSetting>().is_some();
        Self::new(if is_usage && !has_no_server { exit::USAGE } else { exit::NO_SERVER }, format!("{error:#}"))
    }

    fn interrupted(signal: Signal) -> Self {
        let message = format!("signal {} came before the command started; nothing ran", signal.as_raw());
        Self::new(exit_code_of(signal), message)
    }

    /// The end that an answer other than a claim leads to.
    fn from_answer(answer: &Value) -> Self {
        let part = |name: &str| answer[name].as_str().unwrap_or_default();
        let exit = match (part("code"), answer["status"].as_u64()) {
            ("busy", _) => exit::BUSY,
            ("unknown", _) => exit::UNKNOWN,
            ("key_mismatch", _) => exit::MISMATCH,
            ("stopped", _) => exit::STOPPED,
            (_, Some(400..500)) => exit::USAGE,
            _ => exit::NO_SERVER,
        };
        Self::new(exit, format!("{}: {}\n  next: {}", part("code"), part("detail"), part("next")))
    }
}

/// Runs a command once.
pub(super) async fn once(args: OnceArgs) -> ExitCode {
    match run(args).await {
        Ok(code) => ExitCode::from(code),
        Err(OnceError { exit, message }) => {
            print_stderr(&format!("mailonce once: {message}"));
            ExitCode::from(exit)
        }
    }
}

async fn run(args: OnceArgs) -> Result<u8, OnceError> {
    // A typing error must not use up the key.
    child::check_command(&args.command).map_err(|why| OnceError::new(exit::NO_COMMAND, why))?;
    let client = CliClient::find(&args.server).map_err(|error| OnceError::from_setting(&error))?;
    let client = ClaimClient::new(client);
    let mut request = args.request();
    let mut signals = CaughtSignals::catch();
    loop {
        let ClaimAnswer { status, body } = call_before_start(&client, "/v1/claims", &request, &mut signals).await?;
        if let Some(signal) = signals.first().filter(|_| status != 201) {
            return Err(OnceError::interrupted(signal));
        }
        match (status, body["code"].as_str()) {
            (201, _) => return perform(&args, &client, &body, signals).await,
            (200, _) => return replay(&body),
            (409, Some("busy")) if args.wait => {
                reuse_first_period(&mut request, &body);
                let hint = body["retry_after"].as_u64().unwrap_or(WAIT_POLL_S);
                let pause = Duration::from_secs(hint.clamp(1, WAIT_POLL_S));
                if let Ok(signal) = tokio::time::timeout(pause, signals.wait_for_first()).await {
                    return Err(OnceError::interrupted(signal));
                }
            }
            (409, Some("unknown")) => return look_up_lost_work(&args, &client, &body, &mut signals).await,
            _ => return Err(OnceError::from_answer(&body)),
        }
    }
}

/// Asks for the claim, or begins it. After a signal the answer is waited for a little longer: the claim may be this
/// caller's by now, and must be given back.
async fn call_before_start(
    client: &ClaimClient,
    path: &str,
    request: &Value,
    signals: &mut CaughtSignals,
) -> Result<ClaimAnswer, OnceError> {
    let answer = client.post(path, request, ACQUIRE_TIMEOUT);
    tokio::pin!(answer);
    let answer = tokio::select! {
        answer = &mut answer => answer,
        signal = signals.wait_for_first() => {
            let number = signal.as_raw();
            print_stderr(&format!("mailonce once: signal {number}; waiting for the server, to give the claim back"));
            let late = |_late| Err("the server did not answer in time".to_owned());
            tokio::time::timeout(SIGNAL_GRACE, answer).await.unwrap_or_else(late)
        }
    };
    answer.map_err(|why| OnceError::new(exit::NO_SERVER, why))
}

impl OnceArgs {
    /// The body of the claim. The random holder makes a retry of this very call safe.
    fn request(&self) -> Value {
        let mut body = json!({
            "holder": format_hash(&fresh_secret()),
            "label": format!("mailonce once, process {}", std::process::id()),
            "fingerprint": self.fingerprint.clone().unwrap_or_else(|| command_digest(&self.command)),
            "lease_s": self.lease,
            "on_unknown": self.on_unknown,
            // If the answer is lost, or this process, the claim is free after its lease instead of unknown.
            "begin": "later",
        });
        match (&self.key, &self.kind, &self.entity) {
            (None, Some(kind), Some(entity)) => body["intent"] = json!({ "type": kind, "entity": entity }),
            (key, ..) => body["key"] = json!(key),
        }
        if let Some(every) = &self.period {
            let zone = self.tz.as_deref().unwrap_or("UTC");
            body["intent"]["period"] = json!({ "every": every, "time_zone": zone });
            if let Some(grace) = self.grace {
                body["intent"]["period"]["grace_s"] = json!(grace);
            }
        }
        if let Some(ttl) = &self.ttl {
            body["ttl"] = json!(ttl);
        }
        body
    }
}

/// Sets the period of a retry to that of the first answer. Computed again after a boundary, it would be another run.
fn reuse_first_period(request: &mut Value, answer: &Value) {
    if let (Some(period), Some(named)) = (request.pointer_mut("/intent/period"), answer["period"].as_str()) {
        *period = json!(named);
    }
}

/// A hash of the command line.
fn command_digest(command: &[OsString]) -> String {
    let mut hash = Sha256::new();
    for part in command {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    format_hash(&hash.finalize().into())
}

fn text(body: &Value, name: &str) -> String {
    body[name].as_str().unwrap_or_default().to_owned()
}

/// Runs the command of a claim that this caller has, and reports its end.
async fn perform(
    args: &OnceArgs,
    client: &ClaimClient,
    won: &Value,
    mut signals: CaughtSignals,
) -> Result<u8, OnceError> {
    let (id, token) = (text(won, "id"), text(won, "token"));
    let renewals = tokio::spawn(client.clone().renew_until_dropped(id.clone(), token.clone(), args.lease));
    let may_repeat = won["may_repeat"] == true;
    if may_repeat && args.verify.is_some() {
        match look_up(args, won, &mut signals).await {
            LookUpOutcome::Done => {
                renewals.abort();
                return report_evidence(client, &id, true).await;
            }
            LookUpOutcome::NotFound => {}
            LookUpOutcome::Failed(why) => {
                renewals.abort();
                give_back(client, won, &why).await;
                return Err(OnceError::new(exit::UNKNOWN, why));
            }
        }
    }
    if let Err(error) = begin(client, won, &mut signals).await {
        renewals.abort();
        return Err(error);
    }
    let env = [
        ("MAILONCE_CLAIM_ID", id.clone()),
        ("MAILONCE_DOWNSTREAM_KEY", text(won, "downstream_key")),
        ("MAILONCE_MAY_REPEAT", if may_repeat { "1" } else { "0" }.to_owned()),
    ];
    let ran = match signals.first() {
        Some(signal) => Err(child::RunError::Interrupted(signal)),
        None => child::run(&args.command, &env, signals).await,
    };
    renewals.abort();
    let (verb, body, code) = end_of_run(args, &token, ran)?;
    match client.post(&format!("/v1/claims/{id}/{verb}"), &body, RECORD_TIMEOUT).await {
        Ok(ClaimAnswer { status: 200, .. }) => {}
        Ok(answer) => print_stderr(&format!("mailonce once: {}", OnceError::from_answer(&answer.body).message)),
        Err(why) => print_stderr(&format!(
            "mailonce once: the end of the command could not be recorded: {why}\n  next: resolve claim {id} by hand"
        )),
    }
    Ok(code)
}

/// Begins the claim, unless a signal has come: then nothing starts. Repeated under the same token after a lost answer, the
/// call has the same effect.
async fn begin(client: &ClaimClient, won: &Value, signals: &mut CaughtSignals) -> Result<(), OnceError> {
    if signals.first().is_some() {
        return Ok(());
    }
    let path = format!("/v1/claims/{}/begin", text(won, "id"));
    let answer = call_before_start(client, &path, &json!({ "token": text(won, "token") }), signals).await?;
    let refusal = OnceError::from_answer(&answer.body);
    match (answer.status, answer.body["code"].as_str()) {
        (200, _) => Ok(()),
        // The lease ended before, so another caller has the claim or has ended it.
        (_, Some("stale_token" | "claim_ended")) => Err(OnceError::new(exit::BUSY, refusal.message)),
        _ => {
            give_back(client, won, "it could not begin").await;
            Err(refusal)
        }
    }
}

/// Lets the next caller run the command, because nothing ran.
async fn give_back(client: &ClaimClient, won: &Value, reason: &str) {
    let body = json!({ "token": text(won, "token"), "retryable": true, "reason": reason });
    let path = format!("/v1/claims/{}/fail", text(won, "id"));
    if let Err(error) = client.post(&path, &body, RECORD_TIMEOUT).await {
        print_stderr(&format!("mailonce once: the claim could not be given back: {error}"));
    }
}

/// What is reported about a run: the verb, its body, and the exit code.
fn end_of_run(
    args: &OnceArgs,
    token: &str,
    ran: Result<RecordedRun, child::RunError>,
) -> Result<(&'static str, Value, u8), OnceError> {
    let give_back = |reason: String| ("fail", json!({ "token": token, "retryable": true, "reason": reason }));
    let (verb, body, code) = match ran {
        Ok(run) if args.retry_exit.contains(&run.exit_code) => {
            let (verb, body) = give_back(format!("exit code {}", run.exit_code));
            (verb, body, run.exit_code)
        }
        Ok(run) => ("complete", json!({ "token": token, "result": run.to_result() }), run.exit_code),
        Err(child::RunError::NotStarted(error)) => {
            let reason = format!("the command could not be started: {error}");
            print_stderr(&format!("mailonce once: {reason}"));
            let (verb, body) = give_back(reason);
            (verb, body, exit::NO_COMMAND)
        }
        Err(child::RunError::Interrupted(signal)) => {
            let OnceError { exit, message } = OnceError::interrupted(signal);
            print_stderr(&format!("mailonce once: {message}"));
            let (verb, body) = give_back(message);
            (verb, body, exit)
        }
        // It ran, so that the claim must not be free again. Nothing is reported, and it becomes unknown.
        Err(child::RunError::Lost(error)) => {
            let detail = format!("the command ran, and its end was lost: {error}");
            return Err(OnceError::new(exit::UNKNOWN, detail));
        }
    };
    Ok((verb, body, code))
}

/// Prints what an earlier run printed, and returns its exit code.
fn replay(claim: &Value) -> Result<u8, OnceError> {
    match claim["state"].as_str() {
        Some("completed") => {
            // A person or a look-up may have completed the claim: then there is no output, and the work is done.
            let run = RecordedRun::from_result(&claim["result"]).unwrap_or_default();
            run.print();
            Ok(run.exit_code)
        }
        state => {
            let state = state.unwrap_or("in no known state");
            let reason = claim["reason"].as_str().map_or_else(String::new, |reason| format!(": {reason}"));
            Err(OnceError::new(exit::UNKNOWN, format!("claim {} is {state}{reason}", text(claim, "id"))))
        }
    }
}

/// Looks up whether the work of a lost caller was done, if there is a command for that.
async fn look_up_lost_work(
    args: &OnceArgs,
    client: &ClaimClient,
    problem: &Value,
    signals: &mut CaughtSignals,
) -> Result<u8, OnceError> {
    if args.verify.is_none() {
        return Err(OnceError::from_answer(problem));
    }
    let id = text(problem, "id");
    match look_up(args, problem, signals).await {
        LookUpOutcome::Done => return report_evidence(client, &id, true).await,
        LookUpOutcome::NotFound => drop(report_evidence(client, &id, false).await?),
        LookUpOutcome::Failed(why) => print_stderr(&format!("mailonce once: {why}")),
    }
    Err(OnceError::from_answer(problem))
}

/// What `--verify` says about the work of a lost caller.
enum LookUpOutcome {
    Done,
    NotFound,
    /// It could not say.
    Failed(String),
}

/// Runs the look-up: exit code 0 means done, 1 not done. Anything else, such as a missing program, says nothing.
/// It gets the key that every run of the claim passes to the other system.
async fn look_up(args: &OnceArgs, claim: &Value, signals: &mut CaughtSignals) -> LookUpOutcome {
    let Some(verify) = &args.verify else { return LookUpOutcome::Failed("there is no --verify".into()) };
    let mut shell = tokio::process::Command::new("/bin/sh");
    shell.arg("-c").arg(verify).env("MAILONCE_CLAIM_ID", text(claim, "id"));
    shell.env("MAILONCE_DOWNSTREAM_KEY", text(claim, "downstream_key"));
    // What it prints is not output of the command.
    shell.stdin(std::process::Stdio::null()).stdout(std::io::stderr()).kill_on_drop(true);
    let status = tokio::select! {
        status = shell.status() => status,
        signal = signals.wait_for_first() => {
            let number = signal.as_raw();
            return LookUpOutcome::Failed(format!("signal {number} ended the look-up of --verify, which says nothing"));
        }
    };
    match status.map(|status| status.code()) {
        Ok(Some(0)) => LookUpOutcome::Done,
        Ok(Some(1)) => LookUpOutcome::NotFound,
        Ok(code) => {
            let how = code.map_or_else(|| "was killed".to_owned(), |code| format!("ended with exit code {code}"));
            LookUpOutcome::Failed(format!(
                "the look-up of --verify {how}, which says nothing; 0 means done and 1 not done"
            ))
        }
        Err(error) => LookUpOutcome::Failed(format!("the look-up of --verify could not be started: {error}")),
    }
}

async fn report_evidence(client: &ClaimClient, id: &str, done: bool) -> Result<u8, OnceError> {
    let body = json!({ "says": if done { "done" } else { "not_found" } });
    let answer = client.post(&format!("/v1/claims/{id}/evidence"), &body, RECORD_TIMEOUT).await;
    match answer.map_err(|why| OnceError::new(exit::NO_SERVER, why))? {
        ClaimAnswer { status: 200, .. } => Ok(0),
        answer => Err(OnceError::from_answer(&answer.body)),
    }
}
