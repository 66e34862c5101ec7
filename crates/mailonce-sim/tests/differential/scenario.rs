//! Runs the steps of a plan on all installations and compares them after each.

use mailonce_sim::harness::rng::SeededRng;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

use crate::{
    clock::TrueTime,
    installation::{Installation, InstallationConfig},
    invariants::{has_left, is_quiet},
    node::{DifferentialNode, NodeResponse},
    plan::{DatabaseFault, DifferentialPlan, PlannedCall, PlannedStep},
};

/// How long an installation may take to answer a call in spite of a failover, or to finish what is due.
const STEP_TIMEOUT: Duration = Duration::from_secs(90);
/// How long PostgreSQL counts a node as alive after its last heartbeat, and some more.
const HEARTBEAT_LAPSE: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Calls begin within this time while the database has a fault.
const CALL_SPREAD_MS: u64 = 1_500;
/// How often a cancel is repeated that came while a worker had the email.
const CANCEL_TRIES: usize = 40;

/// What a call came to, in words that are the same for all installations.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ComparableOutcome {
    /// 200 and 202 are the same while the database has a fault: an answer may be lost and the call repeated.
    status: u16,
    code: String,
    /// The email that the answer shows, and its guard.
    email: Option<usize>,
    guard: String,
}

/// What an installation shows of an email, in words that are the same for all.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ComparableEmail {
    state: String,
    guard: String,
    handoffs: Vec<String>,
}

pub(crate) struct Scenario {
    plan: DifferentialPlan,
    time: Arc<TrueTime>,
    installations: [Installation; 3],
    counts: BTreeMap<&'static str, usize>,
    /// When the nodes were configured, and how often time passed after their predecessors' heartbeats had lapsed.
    configured: Instant,
    passed: usize,
}

impl Scenario {
    /// Runs the steps of a seed. Panics with the violation, the step and the seed.
    pub(crate) async fn run(seed: u64, steps: usize) -> BTreeMap<&'static str, usize> {
        let (mut plan, time) = (DifferentialPlan::new(seed), TrueTime::new());
        let installations = Installation::all(&time, &plan.config, seed).await;
        let inboxes: Vec<String> = (0..3).map(|_| plan.new_inbox()).collect();
        let mut scenario =
            Self { plan, time, installations, counts: BTreeMap::new(), configured: Instant::now(), passed: 0 };
        for name in inboxes {
            scenario.create_inbox(&name).await;
        }
        for n in 0..steps {
            let step = scenario.plan.step(scenario.time.now_ms());
            let checked = Box::pin(scenario.step(step.clone())).await;
            checked.unwrap_or_else(|why| panic!("{why}\nin step {n} of seed {seed}: {step:?}"));
        }
        Box::pin(scenario.finish()).await.unwrap_or_else(|why| panic!("{why}\nat the end of seed {seed}"));
        scenario.counts
    }

    fn count(&mut self, what: &'static str, n: usize) {
        *self.counts.entry(what).or_default() += n;
    }

    async fn create_inbox(&self, name: &str) {
        for installation in &self.installations {
            let answer = call_until_final(&installation.nodes, 0, |node| {
                Box::pin(async move { node.post("/v1/inboxes", None, &json!({ "username": name })).await })
            });
            assert_eq!(answer.await.status, 201, "{installation}");
        }
    }

    async fn step(&mut self, step: PlannedStep) -> Result<(), String> {
        self.count("steps", 1);
        match step {
            PlannedStep::Calls(calls, fault) => {
                self.count("calls", calls.len());
                self.count(if fault == DatabaseFault::None { "groups" } else { "database faults" }, 1);
                self.run_calls(&calls, fault).await?;
            }
            PlannedStep::Incoming(incoming) => {
                self.count("incoming mails", 1);
                let mut receptions = Vec::new();
                for installation in &self.installations {
                    receptions
                        .push(installation.receive(&incoming).await.map_err(|why| format!("{installation}: {why}"))?);
                }
                self.ensure_equal(&receptions, "answer a mail differently")?;
                if let Some(deleted) = &incoming.deleted {
                    self.plan.inboxes.retain(|name| name != deleted);
                    let name = self.plan.new_inbox();
                    self.create_inbox(&name).await;
                }
            }
            PlannedStep::AdvanceTime(ms) => {
                self.time.advance(ms);
                self.passed += usize::from(self.configured.elapsed() > HEARTBEAT_LAPSE);
                for node in self.installations.iter().flat_map(|installation| &installation.nodes) {
                    node.engine.handoffs.run_orphan_round().await;
                }
            }
            PlannedStep::Restart(config) => {
                self.count("restarts", 1);
                for installation in &mut self.installations {
                    installation.restart(&config).await;
                }
                self.passed = 0;
                self.configured = Instant::now();
            }
        }
        self.check().await
    }

    fn ensure_equal<T: PartialEq + std::fmt::Debug>(&self, of_each: &[T], what: &str) -> Result<(), String> {
        if of_each.windows(2).all(|pair| pair[0] == pair[1]) {
            return Ok(());
        }
        let each = self.installations.iter().zip(of_each).map(|(one, value)| format!("\n  {one}: {value:?}"));
        Err(format!("the installations {what}:{}", each.collect::<String>()))
    }

    /// Makes calls at the same time on each installation, and compares what they came to.
    async fn run_calls(&mut self, calls: &[PlannedCall], fault: DatabaseFault) -> Result<(), String> {
        let seed = self.plan.rng.next();
        let mut answers: Vec<Vec<NodeResponse>> = Vec::new();
        for installation in &self.installations {
            let outage = installation.begin_fault(fault);
            answers.push(self.run_calls_on(installation, calls, fault, seed).await?);
            if let Some(outage) = outage {
                outage.await.map_err(|why| format!("the fault could not be caused: {why}"))?;
            }
        }
        for (n, call) in calls.iter().enumerate() {
            self.record_ids(*call, answers.iter().map(|of_one| &of_one[n]));
        }
        for (n, call) in calls.iter().enumerate() {
            let outcome = |which: usize| self.outcome(which, &answers[which][n], fault);
            let outcomes: Vec<ComparableOutcome> = (0..3).map(outcome).collect();
            self.ensure_equal(&outcomes, &format!("answer {call:?} differently"))?;
            self.check_expected(*call, &outcomes[0])?;
        }
        Ok(())
    }

    async fn run_calls_on(
        &self,
        installation: &Installation,
        calls: &[PlannedCall],
        fault: DatabaseFault,
        seed: u64,
    ) -> Result<Vec<NodeResponse>, String> {
        let (mut running, which) = (JoinSet::new(), self.index_of(installation));
        for (n, call) in calls.iter().copied().enumerate() {
            let email = &self.plan.emails[call.email()];
            let request = PreparedCall {
                call,
                key: email.key.clone(),
                body: email.body.clone(),
                id: email.ids[which].last().cloned().unwrap_or_default(),
            };
            let mut rng = SeededRng::derive(seed, &[n as u64]);
            let delay = if fault == DatabaseFault::None { 0 } else { rng.below(CALL_SPREAD_MS) };
            // A node whose clock is off forgets no key, and only a node with the transport accepts mail for it.
            let first = match call {
                PlannedCall::SendAfterExpiry(_) => 0,
                PlannedCall::Send(_) if email.transport == "keyed" => {
                    installation.nodes.iter().position(|node| node.transports.contains("keyed")).unwrap_or_default()
                }
                _ => rng.below(installation.nodes.len() as u64) as usize,
            };
            let may_move = !matches!(call, PlannedCall::SendAfterExpiry(_)) && email.transport != "keyed";
            let nodes = installation.nodes.clone();
            running.spawn(async move {
                tokio::time::sleep(Duration::from_millis(delay)).await;
                let nodes = if may_move { nodes } else { vec![Arc::clone(&nodes[first])] };
                let first = if may_move { first } else { 0 };
                (n, request.run(&nodes, first).await)
            });
        }
        let mut answers = vec![NodeResponse::default(); calls.len()];
        while let Some(done) = running.join_next().await {
            let (n, answer) = done.map_err(|why| format!("{installation}: a call panicked: {why}"))?;
            answers[n] = answer.map_err(|why| format!("{installation}: {why}"))?;
        }
        Ok(answers)
    }

    fn index_of(&self, installation: &Installation) -> usize {
        self.installations.iter().position(|one| std::ptr::eq(one, installation)).unwrap_or_default()
    }

    /// Remembers the ids that a call got.
    fn record_ids<'a>(&mut self, call: PlannedCall, answers: impl Iterator<Item = &'a NodeResponse>) {
        if !matches!(call, PlannedCall::Send(_) | PlannedCall::SendAfterExpiry(_)) {
            return;
        }
        for (which, answer) in answers.enumerate() {
            let id = answer.text("id");
            let known = self.plan.emails.iter().any(|email| email.ids[which].iter().any(|known| known == id));
            if matches!(answer.status, 200 | 202) && !known {
                self.plan.emails[call.email()].ids[which].push(id.to_owned());
            }
        }
        if let PlannedCall::SendAfterExpiry(n) = call {
            self.plan.emails[n].settled_ms = None;
            self.plan.emails[n].sent_at_ms = self.time.now_ms();
        }
    }

    fn outcome(&self, which: usize, answer: &NodeResponse, fault: DatabaseFault) -> ComparableOutcome {
        let id = answer.text("id");
        let owner = self.plan.emails.iter().position(|email| email.ids[which].iter().any(|known| known == id));
        let status = if fault != DatabaseFault::None && answer.status == 202 { 200 } else { answer.status };
        ComparableOutcome { status, code: answer.text("code").into(), email: owner, guard: answer.text("guard").into() }
    }

    /// What is known of a call's outcome without asking any installation.
    fn check_expected(&self, call: PlannedCall, outcome: &ComparableOutcome) -> Result<(), String> {
        let email = &self.plan.emails[call.email()];
        let fits = match call {
            PlannedCall::Retry(n) => outcome.status == 200 && outcome.email == Some(n),
            PlannedCall::SendAfterExpiry(n) => matches!(outcome.status, 200 | 202) && outcome.email == Some(n),
            PlannedCall::Mismatch(_) => {
                (outcome.status, outcome.code.as_str()) == (409, "mismatch") || outcome.status == 422
            }
            _ => outcome.status < 500 && outcome.status > 0,
        };
        if fits { Ok(()) } else { Err(format!("{call:?} came to {outcome:?}; the email: {email:?}")) }
    }

    /// Waits until nothing is due, then compares and checks everything.
    async fn check(&mut self) -> Result<(), String> {
        let mut shown: Vec<Vec<Option<Value>>> = Vec::new();
        for which in 0..3 {
            shown.push(
                self.wait_until_quiet(which).await.map_err(|why| format!("{}: {why}", self.installations[which]))?,
            );
        }
        let now_ms = self.time.now_ms();
        for (n, email) in self.plan.emails.iter_mut().enumerate() {
            let settled = shown[0][n].as_ref().is_some_and(|email| email["settled_at"].is_string());
            if settled {
                email.settled_ms.get_or_insert(now_ms);
            }
        }
        for n in 0..self.plan.emails.len() {
            self.resolve_unknown(n, &mut shown).await?;
            let email = &self.plan.emails[n];
            if email.transport == "keyed" && self.awaits_keyed_reply(n, &shown) {
                continue;
            }
            let views: Vec<Option<ComparableEmail>> =
                shown.iter().map(|emails| emails[n].as_ref().map(comparable_email)).collect();
            self.ensure_equal(&views, &format!("show email {n} differently ({email:?})"))?;
        }
        for (which, shown) in shown.iter().enumerate() {
            self.check_installation(which, shown)
                .await
                .map_err(|why| format!("{}: {why}", self.installations[which]))?;
        }
        Ok(())
    }

    /// Whether the provider's answer to an email is still missing somewhere: which email it is depends on the moment.
    fn awaits_keyed_reply(&self, n: usize, shown: &[Vec<Option<Value>>]) -> bool {
        let is_open = |email: &Value| matches!(email["state"].as_str(), Some("unknown" | "queued" | "sending"));
        shown.iter().any(|emails| emails[n].as_ref().is_some_and(is_open))
    }

    /// After a failover PostgreSQL may not know whether the relay took an email that the others sent. A person says so.
    async fn resolve_unknown(&mut self, n: usize, shown: &mut [Vec<Option<Value>>]) -> Result<(), String> {
        let [Some(memory), Some(postgres)] = [&shown[0][n], &shown[2][n]] else { return Ok(()) };
        let is_unknown = |email: &Value| handoff_states(email).iter().any(|state| state.ends_with("unknown"));
        if !is_unknown(postgres) || is_unknown(memory) {
            return Ok(());
        }
        let id = postgres["id"].as_str().unwrap_or_default().to_owned();
        let body = json!({ "as": "sent", "rev": postgres["rev"] });
        let node = &self.installations[2].nodes[0];
        let answer = node.post(&format!("/v1/emails/{id}/resolve"), None, &body).await;
        if answer.status != 200 {
            return Err(format!("resolving {id} was answered {answer:?}"));
        }
        self.count("unknown after a failover", 1);
        shown[2][n] = Some(self.installations[2].nodes[0].get(&format!("/v1/emails/{id}")).await.body);
        Ok(())
    }

    /// Waits until nothing is due on an installation. Returns what it shows of each email.
    async fn wait_until_quiet(&self, which: usize) -> Result<Vec<Option<Value>>, String> {
        let installation = &self.installations[which];
        let (deadline, transports) = (Instant::now() + STEP_TIMEOUT, installation.transports());
        let mut shown = Vec::new();
        for email in &self.plan.emails {
            let Some(id) = email.ids[which].last() else {
                shown.push(None);
                continue;
            };
            loop {
                let answer = installation.nodes[0].get(&format!("/v1/emails/{id}")).await;
                if answer.status == 200 && is_quiet(&answer.body, email, &transports, self.time.now_ms()) {
                    shown.push(Some(answer.body));
                    break;
                }
                if Instant::now() > deadline {
                    return Err(format!("email {} did not settle: {}", email.number, answer.body));
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
        Ok(shown)
    }

    async fn check_installation(&mut self, which: usize, shown: &[Option<Value>]) -> Result<(), String> {
        let now_ms = self.time.now_ms();
        let sample = self.plan.rng.next();
        let installation = &mut self.installations[which];
        installation.check_copies(&self.plan.emails, which, now_ms)?;
        for (n, node) in installation.nodes.iter().enumerate() {
            installation.readers[n].read_on(node).await?;
        }
        // A missing transport is noticed when time passes first, and reported when it is missing five minutes later.
        let all = self.passed > 1;
        let known = |wanted: &&str| all || installation.transports().contains(wanted);
        let waiting: Vec<&Value> = shown
            .iter()
            .zip(&self.plan.emails)
            .filter(|(_, wanted)| known(&wanted.transport))
            .filter_map(|(email, _)| email.as_ref())
            .collect();
        installation.check_owners(&waiting).await?;
        for (n, email) in shown.iter().enumerate() {
            let (Some(email), wanted) = (email, &self.plan.emails[n]) else { continue };
            let sampled = (n as u64 + sample).is_multiple_of(5);
            if sampled && wanted.surely_replays(now_ms) && installation.transports().contains(wanted.transport) {
                installation.check_replay(wanted, email).await?;
            }
        }
        Ok(())
    }

    /// Takes a transport away from every node for which an email waits: it is reported.
    async fn remove_transport(&mut self) -> Result<(), String> {
        let config = |has: bool| InstallationConfig { keyed: [has, false], offset_ms: 0 };
        self.plan.config = config(true);
        Box::pin(self.step(PlannedStep::Restart(config(true)))).await?;
        let number =
            self.plan.add_email(self.time.now_ms(), |email| email.transport == "keyed" && email.due_ms.is_some());
        Box::pin(self.step(PlannedStep::Calls(vec![PlannedCall::Send(number)], DatabaseFault::None))).await?;
        Box::pin(self.step(PlannedStep::Restart(config(false)))).await?;
        tokio::time::sleep(HEARTBEAT_LAPSE + POLL_INTERVAL).await;
        for _ in 0..2 {
            Box::pin(self.step(PlannedStep::AdvanceTime(11 * 60_000))).await?;
        }
        Ok(())
    }

    /// Gives every node every transport and the right time, and lets everything come to its end.
    async fn finish(&mut self) -> Result<(), String> {
        self.remove_transport().await?;
        let config = InstallationConfig { keyed: [true, true], offset_ms: 0 };
        self.plan.config = config.clone();
        Box::pin(self.step(PlannedStep::Restart(config))).await?;
        for _ in 0..3 {
            Box::pin(self.step(PlannedStep::AdvanceTime(61 * 60_000))).await?;
        }
        let mut resets = 0;
        for installation in &self.installations {
            for (reader, node) in installation.readers.iter().zip(&installation.nodes) {
                let violations = reader.check_against(node).await;
                if !violations.is_empty() {
                    return Err(format!("{installation}: {violations:?}"));
                }
                resets += reader.resets;
            }
        }
        self.count("cursor resets", resets);
        self.count("emails", self.plan.emails.len());
        Ok(())
    }
}

fn handoff_states(email: &Value) -> Vec<String> {
    let rows = email["handoffs"].as_array().map_or(&[][..], Vec::as_slice);
    let state = |row: &Value| {
        let state = row["state"].as_str().unwrap_or_default();
        // The relay defers a recipient again and again: whether a worker has it depends on the moment.
        let is_deferred = row["recipients"].to_string().contains("deferred-");
        let state = if is_deferred && matches!(state, "leased" | "sending") { "queued" } else { state };
        format!("{} by {}: {state}", row["recipients"], row["transport"])
    };
    rows.iter().map(state).collect()
}

fn comparable_email(email: &Value) -> ComparableEmail {
    let text = |name: &str| email[name].as_str().unwrap_or_default().to_owned();
    let handoffs = handoff_states(email);
    let deferred = handoffs.iter().any(|state| state.contains("deferred-") && state.ends_with("queued"));
    // An email with a deferred recipient is queued or sending, as the moment has it.
    let state = if deferred { "deferred".to_owned() } else { text("state") };
    ComparableEmail { state, guard: text("guard"), handoffs }
}

/// A call with everything that it needs.
struct PreparedCall {
    call: PlannedCall,
    key: Option<String>,
    body: Value,
    id: String,
}

impl PreparedCall {
    async fn run(self, nodes: &[Arc<DifferentialNode>], first: usize) -> Result<NodeResponse, String> {
        match self.call {
            PlannedCall::Send(_) | PlannedCall::SendAfterExpiry(_) | PlannedCall::Retry(_) => {
                let answer = self.send(nodes, first, &self.body).await;
                self.check_order(nodes, first, &answer).await?;
                Ok(answer)
            }
            PlannedCall::Mismatch(_) => {
                let mut body = self.body.clone();
                body["text"] = json!("Something else.");
                Ok(self.send(nodes, first, &body).await)
            }
            PlannedCall::Cancel(_) => self.cancel(nodes, first).await,
            PlannedCall::ResolveAsSent(_) => Ok(self.resolve(nodes, first).await),
        }
    }

    async fn send(&self, nodes: &[Arc<DifferentialNode>], first: usize, body: &Value) -> NodeResponse {
        let key = self.key.as_deref();
        call_until_final(nodes, first, |node| Box::pin(async move { node.post("/v1/emails", key, body).await })).await
    }

    /// Whatever a call shows, a later call on any node shows the same or something newer.
    async fn check_order(
        &self,
        nodes: &[Arc<DifferentialNode>],
        first: usize,
        answer: &NodeResponse,
    ) -> Result<(), String> {
        let (id, mut latest) = (answer.text("id").to_owned(), answer.body["rev"].as_u64().unwrap_or_default());
        if !matches!(answer.status, 200 | 202) {
            return Ok(());
        }
        for turn in 0..4 {
            let path = &format!("/v1/emails/{id}");
            let shown = if turn % 2 == 0 {
                call_until_final(nodes, first + turn, |node| Box::pin(async move { node.get(path).await })).await
            } else {
                self.send(nodes, first + turn, &self.body).await
            };
            let rev = shown.body["rev"].as_u64().unwrap_or_default();
            if shown.text("id") != id || rev < latest {
                return Err(format!("{id} had revision {latest} and was shown later as {shown:?}"));
            }
            latest = rev;
        }
        Ok(())
    }

    /// Cancels. A refusal means that something left or is in doubt, unless a worker has the email at the moment.
    async fn cancel(&self, nodes: &[Arc<DifferentialNode>], first: usize) -> Result<NodeResponse, String> {
        let path = &format!("/v1/emails/{}/cancel", self.id);
        let mut answer = NodeResponse::default();
        for _ in 0..CANCEL_TRIES {
            let body = &json!({});
            answer =
                call_until_final(nodes, first, |node| Box::pin(async move { node.post(path, None, body).await })).await;
            if answer.status != 409 {
                return Ok(answer);
            }
            let path = &format!("/v1/emails/{}", self.id);
            let email = call_until_final(nodes, first, |node| Box::pin(async move { node.get(path).await })).await;
            if has_left(&email.body) {
                return Ok(answer);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Err(format!("the cancel of {} was refused although nothing left: {answer:?}", self.id))
    }

    async fn resolve(&self, nodes: &[Arc<DifferentialNode>], first: usize) -> NodeResponse {
        let path = &format!("/v1/emails/{}", self.id);
        let email = call_until_final(nodes, first, |node| Box::pin(async move { node.get(path).await })).await;
        let body = &json!({ "as": "sent", "rev": email.body["rev"] });
        let (path, key) =
            (&format!("/v1/emails/{}/resolve", self.id), &format!("resolve-{}-{}", self.id, email.body["rev"]));
        let mut answer =
            call_until_final(nodes, first, |node| Box::pin(async move { node.post(path, Some(key), body).await }))
                .await;
        // The answer shows the email, whose revision depends on the installation.
        answer.body["id"] = json!(self.id);
        answer
    }
}

type ResponseFuture<'a> = std::pin::Pin<Box<dyn Future<Output = NodeResponse> + Send + 'a>>;

/// Repeats a call on one node after the other until it is answered with something else than 503.
async fn call_until_final<'a>(
    nodes: &'a [Arc<DifferentialNode>],
    first: usize,
    call: impl Fn(&'a DifferentialNode) -> ResponseFuture<'a>,
) -> NodeResponse {
    let deadline = Instant::now() + STEP_TIMEOUT;
    let mut n = first;
    loop {
        let answer = call(&nodes[n % nodes.len()]).await;
        if !matches!(answer.status, 0 | 503) || Instant::now() > deadline {
            return answer;
        }
        n += 1;
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
