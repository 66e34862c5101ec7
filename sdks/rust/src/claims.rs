//! Runs any side effect once: one caller runs it, all others get its result. Uses the claims of the server.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use std::{any::Any, fmt, pin::Pin, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::{
    call::{Call, Caller, Idempotency, Parts, at, random_key},
    error::{Error, Retry},
    key::check_key,
    wire::Intent,
};

/// Default lease of a claim in seconds.
const DEFAULT_LEASE_S: u32 = 60;
/// Pauses between two calls while another caller has the claim.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(2);
const MAX_LABEL_CHARS: usize = 128;
const MAX_REASON_CHARS: usize = 1_000;

/// What an error of the function means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterError {
    /// It is final, and later callers get the same error.
    Failed,
    /// Nothing happened, and the next caller may run it.
    Retry,
    /// It may have happened.
    Unknown,
}

/// What happens to a claim whose holder was lost after it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnknown {
    /// The claim waits for evidence or for a person.
    Hold,
    /// The claim is freed once, 10 minutes after the lease ended.
    Retry,
}

/// A claim whose holder was lost after it began.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownClaim {
    /// Its id.
    pub id: String,
    /// The idempotency key that the lost holder passed to the other system.
    pub downstream_key: Option<String>,
}

/// A key or an intent.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimKey(Result<String, Value>);

impl From<&str> for ClaimKey {
    fn from(key: &str) -> Self {
        Self(Ok(key.to_owned()))
    }
}

impl From<String> for ClaimKey {
    fn from(key: String) -> Self {
        Self(Ok(key))
    }
}

impl From<Intent> for ClaimKey {
    fn from(intent: Intent) -> Self {
        Self(Err(json!(intent)))
    }
}

impl ClaimKey {
    /// An intent as JSON. Its period may be `{"every": "day"}`, which the server computes.
    pub fn intent(intent: Value) -> Self {
        Self(Err(intent))
    }
}

#[derive(Deserialize)]
struct Won {
    id: String,
    key: String,
    token: String,
    fence: u64,
    downstream_key: String,
    may_repeat: bool,
    period: Option<String>,
    state: String,
}

type Finding = Pin<Box<dyn Future<Output = Result<Option<Value>, String>> + Send>>;
type Verify = Arc<dyn Fn(UnknownClaim) -> Finding + Send + Sync>;

/// A function to run once, made by [`Client::once`](crate::Client::once).
#[derive(Clone)]
#[must_use = "nothing runs before `run`"]
pub struct OnceCall {
    caller: Arc<Caller>,
    key: ClaimKey,
    body: Map<String, Value>,
    lease_s: u32,
    wait: Option<Duration>,
    verify: Option<Verify>,
}

impl fmt::Debug for OnceCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceCall").field("key", &self.key).finish_non_exhaustive()
    }
}

impl OnceCall {
    pub(crate) fn new(caller: &Arc<Caller>, key: ClaimKey) -> Self {
        let (caller, lease_s) = (Arc::clone(caller), DEFAULT_LEASE_S);
        Self { caller, key, body: Map::new(), lease_s, wait: None, verify: None }
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.body.insert(name.to_owned(), value.into());
        self
    }

    /// Seconds after which this process counts as lost, 1 to 3,600; 60 by default. The lease is renewed meanwhile.
    pub fn lease_s(self, lease_s: u32) -> Self {
        Self { lease_s, ..self }
    }

    /// While another caller runs it, waits this long for its result.
    pub fn wait(self, most: Duration) -> Self {
        Self { wait: Some(most), ..self }
    }

    /// A hash of the content of the side effect. Another hash under the same key is `key_mismatch`.
    pub fn fingerprint(self, fingerprint: impl Into<String>) -> Self {
        self.with("fingerprint", fingerprint.into())
    }

    /// A label that other callers see while it runs.
    pub fn label(self, label: impl Into<String>) -> Self {
        self.with("label", label.into())
    }

    /// What happens if this process is lost; [`OnUnknown::Hold`] by default.
    pub fn on_unknown(self, policy: OnUnknown) -> Self {
        self.with("on_unknown", if policy == OnUnknown::Retry { "retry" } else { "hold" })
    }

    /// How long the result is remembered, such as `90d`; 35 days by default.
    pub fn ttl(self, ttl: impl Into<String>) -> Self {
        self.with("ttl", ttl.into())
    }

    /// The side effect begins with [`OnceRun::begin`]. A run that is lost or fails before that is free again.
    pub fn begin_later(self) -> Self {
        self.with("begin", "later")
    }

    /// Looks up the side effect after a holder was lost: returns its result, or `None` if it did not happen.
    pub fn verify<R: Serialize, E: fmt::Display, F: Future<Output = Result<Option<R>, E>> + Send + 'static>(
        self,
        look_up: impl Fn(UnknownClaim) -> F + Send + Sync + 'static,
    ) -> Self {
        let verify = move |claim| {
            let found = look_up(claim);
            Box::pin(async move {
                let found = found.await.map_err(|error| error.to_string())?;
                found.map(serde_json::to_value).transpose().map_err(|error| error.to_string())
            }) as Finding
        };
        Self { verify: Some(Arc::new(verify)), ..self }
    }

    /// Runs `work` once, no matter who calls and how often, and returns its result to every caller. `busy` while another
    /// caller runs it, `unknown` after a caller was lost half-way, `claim_failed` if it failed for good.
    ///
    /// An error of `work` is final, unless the claim has not begun. An [`Error`] whose call may still succeed leaves
    /// the claim unknown.
    pub async fn run<T, E>(self, work: impl AsyncFnOnce(OnceRun) -> Result<T, E>) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<Error> + fmt::Display + 'static,
    {
        self.run_or(work, |error: &E, run| {
            let unsettled =
                (error as &dyn Any).downcast_ref::<Error>().is_some_and(|error| error.retry != Retry::Never);
            match (run.is_begun(), unsettled) {
                (false, _) => AfterError::Retry,
                (true, true) => AfterError::Unknown,
                (true, false) => AfterError::Failed,
            }
        })
        .await
    }

    /// Like [`run`](Self::run); `after` decides what an error of `work` means.
    pub async fn run_or<T, E>(
        self,
        work: impl AsyncFnOnce(OnceRun) -> Result<T, E>,
        after: impl FnOnce(&E, &OnceRun) -> AfterError,
    ) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<Error> + fmt::Display,
    {
        let answer = match self.acquire().await {
            Err(error) if error.code == "unknown" => return Ok(read_result(self.settle(&error).await?)?),
            answer => answer?,
        };
        if answer.get("token").is_none() {
            return Ok(read_result(stored_result(&answer)?)?);
        }
        let (run, _renewing) = self.start(answer)?;
        if run.may_repeat
            && let Some(result) = self.check_repeat(&run).await?
        {
            return Ok(read_result(result)?);
        }
        match work(run.clone()).await {
            Ok(result) => {
                run.record(&result).await?;
                Ok(result)
            }
            Err(error) => {
                let means = after(&error, &run);
                if means != AfterError::Unknown {
                    // The caller's own error is the one to return. A failure that is not recorded becomes unknown.
                    let _unrecorded = run.fail(means == AfterError::Retry, &error.to_string()).await;
                }
                Err(error)
            }
        }
    }

    /// The claim, or the stored result of a finished one.
    async fn acquire(&self) -> Result<Value, Error> {
        let mut body = self.body.clone();
        match &self.key.0 {
            Ok(key) => {
                check_key(key)?;
                body.insert("key".into(), json!(key));
            }
            Err(intent) => drop(body.insert("intent".into(), intent.clone())),
        }
        // The holder makes repeats of this very call safe. A random idempotency key would be the key of the claim.
        body.insert("holder".into(), json!(random_key()?));
        body.insert("lease_s".into(), json!(self.lease_s));
        let until = self.wait.map(|most| Instant::now() + most);
        let mut pause = FIRST_PAUSE;
        loop {
            let parts = Parts::post("/v1/claims".to_owned(), Idempotency::Inherent).body(&body);
            let error = match Call::<Value>::new(&self.caller, parts).await {
                Err(error) if error.code == "busy" => error,
                answer => return answer,
            };
            let hint = error.details.get("retry_after").and_then(Value::as_u64).map_or(MAX_PAUSE, Duration::from_secs);
            if until.is_none_or(|until| Instant::now() + pause.min(hint) > until) {
                return Err(error);
            }
            keep_period(&mut body, &error);
            sleep(pause.min(hint)).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    fn start(&self, answer: Value) -> Result<(OnceRun, Renewing), Error> {
        let unreadable = |error| Error::no_answer(format!("the claim cannot be read: {error}"), None);
        let won: Won = serde_json::from_value(answer).map_err(unreadable)?;
        let (say, lost) = watch::channel(false);
        let (begun, _) = watch::channel(won.state != "claimed");
        let run = OnceRun {
            id: won.id,
            key: won.key,
            fence: won.fence,
            downstream_key: won.downstream_key,
            may_repeat: won.may_repeat,
            period: won.period,
            token: won.token,
            begun,
            lost,
            options: Arc::new(self.clone()),
        };
        let renewing = Renewing(tokio::spawn(renew(run.clone(), self.lease_s, say)));
        Ok((run, renewing))
    }

    /// Looks up what a lost holder did. Only finding it ends the claim, because not finding it may be too early.
    async fn settle(&self, error: &Error) -> Result<Value, Error> {
        let text = |name: &str| error.details.get(name).and_then(Value::as_str).map(str::to_owned);
        let claim = UnknownClaim { id: text("id").unwrap_or_default(), downstream_key: text("downstream_key") };
        let id = claim.id.clone();
        if let Some(verify) = &self.verify {
            let found = verify(claim).await.map_err(|why| look_up_failed(&id, &why))?;
            if let Some(result) = found {
                return record_found(&self.caller, &id, result).await;
            }
            report(&self.caller, &id, "evidence", &json!({ "says": "not_found" })).await?;
        }
        Err(unknown(&id, error.detail.clone()).with_details(error.details.clone()))
    }

    /// Before a run that may be a repeat: the result of an earlier holder, if `verify` finds it.
    async fn check_repeat(&self, run: &OnceRun) -> Result<Option<Value>, Error> {
        let Some(verify) = &self.verify else { return Ok(None) };
        let claim = UnknownClaim { id: run.id.clone(), downstream_key: Some(run.downstream_key.clone()) };
        match verify(claim).await {
            Ok(None) => Ok(None),
            Ok(Some(result)) => record_found(&self.caller, &run.id, result).await.map(Some),
            Err(why) => {
                // This run did not begin, so the next caller may look again.
                let _unrecorded = run.fail(true, &why).await;
                Err(look_up_failed(&run.id, &why))
            }
        }
    }
}

/// The claim that a function runs under.
#[derive(Clone)]
#[non_exhaustive]
pub struct OnceRun {
    /// Id of the claim.
    pub id: String,
    /// Key of the claim.
    pub key: String,
    /// Fencing number; grows with each holder of the claim.
    pub fence: u64,
    /// Pass it to the other system as its idempotency key: it is the same for every holder of this claim.
    pub downstream_key: String,
    /// Whether an earlier holder may have performed the side effect.
    pub may_repeat: bool,
    /// The period, if the intent has one.
    pub period: Option<String>,
    token: String,
    begun: watch::Sender<bool>,
    lost: watch::Receiver<bool>,
    options: Arc<OnceCall>,
}

impl fmt::Debug for OnceRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceRun").field("key", &self.key).field("fence", &self.fence).finish_non_exhaustive()
    }
}

impl OnceRun {
    /// Whether the side effect may have begun.
    pub fn is_begun(&self) -> bool {
        *self.begun.borrow()
    }

    /// Whether the claim is lost: a person resolved it, or another caller holds it.
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Completes when the claim is lost; for a `select!` with the work.
    pub async fn lost(&self) {
        let mut lost = self.lost.clone();
        if lost.wait_for(|lost| *lost).await.is_err() {
            // Renewing has stopped, so a loss is not noticed any more.
            std::future::pending::<()>().await;
        }
    }

    /// Begins the side effect of a claim with [`OnceCall::begin_later`]. Fails if another caller has it by now.
    pub async fn begin(&self) -> Result<(), Error> {
        self.report("begin", json!({})).await?;
        self.begun.send_replace(true);
        Ok(())
    }

    /// Runs a part of the function once. If the run is repeated, a finished step returns its stored result. A step has a
    /// [`OnceCall::ttl`] of its own, 35 days by default, because it ends before its run.
    pub fn step(&self, name: &str) -> OnceCall {
        let OnceCall { caller, body, lease_s, wait, .. } = &*self.options;
        let label: String = format!("{} {name}", self.key).chars().take(MAX_LABEL_CHARS).collect();
        let step = OnceCall::new(caller, step_key(&self.key, name).into()).lease_s(*lease_s).label(label);
        let step = match body.get("on_unknown") {
            Some(policy) => step.with("on_unknown", policy.clone()),
            None => step,
        };
        OnceCall { wait: *wait, ..step }
    }

    async fn report(&self, verb: &str, mut body: Value) -> Result<(), Error> {
        body["token"] = json!(self.token);
        report(&self.options.caller, &self.id, verb, &body).await
    }

    async fn fail(&self, retryable: bool, reason: &str) -> Result<(), Error> {
        let reason: String = reason.chars().take(MAX_REASON_CHARS).collect();
        self.report("fail", json!({ "retryable": retryable, "reason": reason })).await
    }

    /// Stores the result for every later caller.
    async fn record(&self, result: &impl Serialize) -> Result<(), Error> {
        let written = serde_json::to_value(result);
        let fact = json!({ "token": self.token });
        let recorded = report_fact(&self.options.caller, (&self.id, "complete"), fact, written.as_ref().ok());
        recorded.await.map_err(|cause| {
            let detail = format!("the function of claim {} ended well, but its result could not be stored", self.id);
            let next = "Do not run it again: it happened. The claim is unknown once its lease has ended; \
                        `verify` or a person settles it.";
            Error::local("not_recorded", detail, next).caused_by(cause)
        })?;
        written.map(drop).map_err(|error| {
            let detail = format!("it happened, but its result cannot be written as JSON: {error}");
            Error::local("invalid_result", detail, "Do not run it again. Return what serde_json can write.")
        })
    }
}

/// Keeps the period of the first response. Computed again after the period changed, it would be another run.
fn keep_period(body: &mut Map<String, Value>, busy: &Error) {
    let computed =
        body.get_mut("intent").and_then(|intent| intent.get_mut("period")).filter(|period| period.is_object());
    if let (Some(computed), Some(named @ Value::String(_))) = (computed, busy.details.get("period")) {
        *computed = named.clone();
    }
}

/// Renews the lease until it is dropped.
struct Renewing(JoinHandle<()>);

impl Drop for Renewing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Renews the lease. It continues after an outage, because a holder that returns keeps its claim.
async fn renew(run: OnceRun, lease_s: u32, say: watch::Sender<bool>) {
    let third = Duration::from_secs(lease_s.into()) / 3;
    let (caller, body) = (&run.options.caller, json!({ "token": run.token, "lease_s": lease_s }));
    let limit = third.max(Duration::from_secs(1));
    let mut idle = third;
    loop {
        sleep(idle).await;
        idle = match report_call(caller, &run.id, "renew", &body).timeout(limit).max_retries(0).await {
            Ok(()) => third,
            Err(error) if error.retry == Retry::Never => {
                say.send_replace(true);
                return std::future::pending().await;
            }
            // There is time for another try before the lease ends.
            Err(_) => third / 4,
        };
    }
}

fn report_call(caller: &Arc<Caller>, id: &str, verb: &str, body: &Value) -> Call<()> {
    let path = at(id).map(|id| format!("/v1/claims/{id}/{verb}"));
    let parts = path.and_then(|path| Parts::post(path, Idempotency::Inherent).body(body));
    Call::reading(caller, parts, |_| Some(()))
}

async fn report(caller: &Arc<Caller>, id: &str, verb: &str, body: &Value) -> Result<(), Error> {
    report_call(caller, id, verb, body).await
}

/// Reports that it happened, without the result if the server cannot store it.
async fn report_fact(
    caller: &Arc<Caller>,
    (id, verb): (&str, &str),
    fact: Value,
    result: Option<&Value>,
) -> Result<(), Error> {
    let Some(result) = result else { return report(caller, id, verb, &fact).await };
    let mut with_result = fact.clone();
    with_result["result"] = result.clone();
    match report(caller, id, verb, &with_result).await {
        Err(error) if matches!(error.status, 400 | 413 | 422) => report(caller, id, verb, &fact).await,
        reported => reported,
    }
}

async fn record_found(caller: &Arc<Caller>, id: &str, result: Value) -> Result<Value, Error> {
    report_fact(caller, (id, "evidence"), json!({ "says": "done" }), Some(&result)).await?;
    Ok(result)
}

/// The key of a step: the same in every SDK. Vectors: sdks/contract/steps.json.
pub fn step_key(parent: &str, name: &str) -> String {
    let digest = Sha256::new().chain_update(parent).chain_update([0]).chain_update(name).finalize();
    digest.iter().fold("s1_".to_owned(), |key, byte| format!("{key}{byte:02x}"))
}

/// The stored result of a finished claim.
fn stored_result(claim: &Value) -> Result<Value, Error> {
    let text = |name: &str| claim[name].as_str().unwrap_or_default();
    let (id, state, reason) = (text("id"), text("state"), text("reason"));
    match state {
        "completed" if claim["result_omitted"] == true => Err(Error::local(
            "result_omitted",
            format!("claim {id} is completed, but its result was too large to store"),
            "Do not run it again: it happened. Read its result from the other system.",
        )),
        "completed" => Ok(claim["result"].clone()),
        _ => {
            let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            let next = "Use another key, or a higher version of the intent, to do it again on purpose.";
            let error = Error::local(&format!("claim_{state}"), format!("claim {id} is {state}{why}"), next);
            Err(error.with_details(claim.as_object().cloned().unwrap_or_default()))
        }
    }
}

fn read_result<T: DeserializeOwned>(result: Value) -> Result<T, Error> {
    serde_json::from_value(result).map_err(|error| {
        let detail = format!("it happened, but its stored result has another type: {error}");
        Error::local("invalid_result", detail, "Do not run it again. Read the result with GET /v1/claims?key=.")
    })
}

fn unknown(id: &str, detail: impl Into<String>) -> Error {
    let next = format!(
        "Do not do it again: it may have happened. Pass verify to look it up, or ask a person: mailonce claims resolve {id}"
    );
    Error::local("unknown", detail, next).with_status(409).with_retry(Retry::Later)
}

fn look_up_failed(id: &str, why: &str) -> Error {
    unknown(id, format!("the look-up of claim {id} failed: {why}"))
}
