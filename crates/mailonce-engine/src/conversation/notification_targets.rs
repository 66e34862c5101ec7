//! Notification targets: places such as a Slack channel to which questions for people are posted, each with a link.
//!
//! A notification is no email of a team: stops, budgets and rules do not apply to it, and its link is in no list, event or
//! log. An attempt is recorded before it is made, so that nodes do not make the same one. After a crash it is made again,
//! with the same id and the same link.

use mailonce_core::{
    access::team::{ApiKeyScope, Team},
    conversation::{
        approval_link::{Addressee, ApprovalLink, Notification, NotificationTarget, TargetKind},
        escalation::{Escalation, EscalationState},
    },
    events::webhook::OutgoingWebhook,
    id::TeamId,
    limits,
    operation::IdempotentResult,
    ports::store::StoreError,
    problem::{Code, Problem},
    record::{CreateRecordResult, Record, RecordChangeResult, RecordKind},
    time::Time,
};
use serde_json::{Value, json};
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{sync::watch, task::JoinSet};
use uuid::Uuid;

use crate::{
    access::caller::Caller,
    conversation::{
        Escalations,
        approval_links::{LINK_MS, link_caller},
        escalations::EscalationView,
    },
    events::endpoints::secret_text,
    runtime::{
        problems::unavailable,
        records::{self, CursorPage},
        vault::SecretLocation,
    },
};

/// Targets of a team.
const MAX_TARGETS: usize = 20;
/// How long a target may take to answer. Shorter than the first pause, so that no other attempt is made meanwhile.
const POST_TIMEOUT: Duration = Duration::from_secs(5);
/// How many notifications are remembered that need no further attempt.
const MAX_SETTLED: usize = 10_000;
/// How often new questions and due attempts are looked for.
const INTERVAL: Duration = Duration::from_secs(1);
/// The pauses after failed attempts, in milliseconds. After the last one a notification is given up.
const RETRY_MS: [i64; 7] = [10_000, 30_000, 120_000, 600_000, 1_800_000, 3_600_000, 7_200_000];
/// Longest texts of a card, in characters.
const MAX_CARD_CHARS: usize = 300;

/// What this process knows about notifications.
#[derive(Default)]
pub(crate) struct NotificationProgress {
    /// Teams that are being notified.
    running: Arc<Mutex<HashSet<TeamId>>>,
    /// Questions and targets that need no further attempt.
    settled: Mutex<HashSet<(Uuid, Uuid)>>,
}

/// Marks a team as being notified until it is dropped.
struct RunningTeam {
    team: TeamId,
    running: Arc<Mutex<HashSet<TeamId>>>,
}

impl Drop for RunningTeam {
    fn drop(&mut self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.team);
    }
}

impl NotificationProgress {
    /// `None` when the team is being notified already.
    fn start(&self, team: TeamId) -> Option<RunningTeam> {
        let is_free = self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(team);
        is_free.then(|| RunningTeam { team, running: Arc::clone(&self.running) })
    }

    fn is_settled(&self, escalation: Uuid, target: Uuid) -> bool {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner).contains(&(escalation, target))
    }

    fn settle(&self, escalation: Uuid, target: Uuid) {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        if settled.len() >= MAX_SETTLED {
            settled.clear();
        }
        settled.insert((escalation, target));
    }
}

/// A target.
#[derive(Clone, Debug)]
pub struct TargetView {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// What it understands.
    pub kind: TargetKind,
    /// When it was created.
    pub created_at: Time,
}

/// A new target, with the secret that signs its requests.
#[derive(Clone, Debug)]
pub struct NewTarget {
    /// The target.
    pub target: TargetView,
    /// The secret, in the form of Standard Webhooks.
    pub secret: String,
}

impl TargetView {
    fn of(record: &Record) -> Result<Self, Problem> {
        let NotificationTarget { kind, .. } = records::decode(record)?;
        Ok(Self { id: record.id, name: record.name.clone(), kind, created_at: record.created_at })
    }
}

fn require_target_access(caller: &Caller) -> Result<(), Problem> {
    caller.require_scope(ApiKeyScope::Admin)?;
    caller.require_unrestricted_key()
}

fn target_not_found(id: Uuid) -> Problem {
    Problem::new(Code::NotFound, format!("there is no notification target {id}"))
}

fn url_location(team: TeamId, record: Uuid) -> SecretLocation {
    SecretLocation { team, record, purpose: "notification-target" }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_CARD_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// What is asked, in two lines: for a held email the recipients and the subject.
fn describe(view: &EscalationView) -> String {
    let about = &view.escalation.about;
    match (&view.email, &about.question) {
        (Some((email, _)), _) => shorten(&format!("To {}: {}", email.head.to.join(", "), email.head.subject)),
        (None, Some(question)) => shorten(question),
        (None, None) => String::new(),
    }
}

/// The message of a Slack webhook.
fn slack_card(title: &str, description: &str, url: &str) -> Value {
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let (title, description) = (escape(title), escape(description));
    let button = json!({ "type": "button", "text": { "type": "plain_text", "text": "Look and decide" }, "url": url });
    json!({
        "text": format!("{title}: {description}"),
        "blocks": [
            { "type": "section", "text": { "type": "mrkdwn", "text": format!("*{title}*\n{description}") } },
            { "type": "actions", "elements": [button] },
        ],
    })
}

impl Escalations {
    /// Creates a target. Its URL is never shown again.
    pub async fn create_notification_target(
        &self,
        caller: &Caller,
        (name, kind, url): (String, TargetKind, String),
    ) -> Result<NewTarget, Problem> {
        require_target_access(caller)?;
        if !url.starts_with("https://") {
            return Err(Problem::invalid_field("url", "must begin with https://"));
        }
        self.ctx.deps.webhook_sender.check_url(&url).map_err(|why| Problem::invalid_field("url", why))?;
        let team = caller.team.id;
        if self.targets_of(team).await.map_err(unavailable)?.len() >= MAX_TARGETS {
            let detail = format!("is one too many: a team can have at most {MAX_TARGETS} notification targets");
            return Err(Problem::invalid_field("name", detail));
        }
        let now = self.ctx.now();
        let id = self.ctx.new_id(now);
        let sealed_url = self.ctx.seal_secret(url_location(team, id), url.as_bytes());
        let sealed_url = sealed_url.ok_or_else(|| Problem::new(Code::Internal, "the URL cannot be sealed"))?;
        let json = records::encode(&NotificationTarget { kind, sealed_url })?;
        let record = Record { team, kind: RecordKind::NotificationTarget, id, name, rev: 1, created_at: now, json };
        match self.ctx.store.create_record(record, None).await.map_err(unavailable)? {
            IdempotentResult::Done(CreateRecordResult::Created(record)) => {
                Ok(NewTarget { target: TargetView::of(&record)?, secret: secret_text(&self.target_secret(id)) })
            }
            IdempotentResult::Done(CreateRecordResult::NameTaken(record)) => {
                let detail = format!("the notification target {} already exists", record.name);
                Err(Problem::for_field(Code::NameTaken, "name", detail).with_extension("id", record.id.to_string()))
            }
            // Impossible without an idempotency key.
            IdempotentResult::Replayed(_) | IdempotentResult::KeyMismatch(_) => Err(target_not_found(id)),
        }
    }

    fn target_secret(&self, id: Uuid) -> [u8; 32] {
        self.ctx.secret.mac("notification-target", &[id.as_bytes()])
    }

    /// The targets of the caller's team, newest first.
    pub async fn notification_targets(
        &self,
        caller: &Caller,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<CursorPage<TargetView>, Problem> {
        require_target_access(caller)?;
        self.ctx.team_records(caller, RecordKind::NotificationTarget, before, limit, TargetView::of).await
    }

    /// Removes a target. Links that were posted there no longer work.
    pub async fn remove_notification_target(&self, caller: &Caller, id: Uuid) -> Result<TargetView, Problem> {
        require_target_access(caller)?;
        let kind = RecordKind::NotificationTarget;
        let removed = self.ctx.store.remove_record(caller.team.id, kind, id).await.map_err(unavailable)?;
        TargetView::of(&removed.ok_or_else(|| target_not_found(id))?)
    }

    /// Posts a test message to a target.
    pub async fn test_notification_target(&self, caller: &Caller, id: Uuid) -> Result<Result<u16, String>, Problem> {
        require_target_access(caller)?;
        let record = self.ctx.team_record(caller, RecordKind::NotificationTarget, id).await?;
        let target: NotificationTarget = records::decode(&record)?;
        let (title, description) = ("A test of mailonce", "Questions for people will look like this.");
        let url = self.ctx.deps.public_url.clone().unwrap_or_default();
        let body = match target.kind {
            TargetKind::Slack => slack_card(title, description, &url),
            TargetKind::Webhook => json!({ "type": "notification_target.test", "url": url }),
        };
        Ok(self.post_to_target(&record, &target, self.ctx.new_id(self.ctx.now()), &body).await)
    }

    /// Posts to a target. Returns the status of the response, or why there is none.
    async fn post_to_target(
        &self,
        record: &Record,
        target: &NotificationTarget,
        id: Uuid,
        body: &Value,
    ) -> Result<u16, String> {
        let url = self.ctx.open_secret(url_location(record.team, record.id), &target.sealed_url);
        let Some(url) = url.and_then(|bytes| String::from_utf8(bytes).ok()) else {
            return Err("the URL of the target cannot be decrypted".into());
        };
        let post = OutgoingWebhook {
            url,
            id: id.to_string(),
            timestamp_s: self.ctx.now().0.div_euclid(1_000),
            secrets: vec![self.target_secret(record.id).to_vec()],
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
        };
        let sending = tokio::time::timeout(POST_TIMEOUT, self.ctx.deps.webhook_sender.post(post));
        let Ok(result) = sending.await else {
            return Err(format!("no response within {} s", POST_TIMEOUT.as_secs()));
        };
        result.response.map(|response| response.status).map_err(|(_, why)| why)
    }

    async fn targets_of(&self, team: TeamId) -> Result<Vec<Record>, StoreError> {
        Ok(self.ctx.store.records(team, RecordKind::NotificationTarget, None, limits::PAGE_ROWS).await?.rows)
    }

    /// Posts new questions to the targets until `stop` changes.
    pub async fn run_notifications(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut rounds = tokio::time::interval(INTERVAL);
        rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !*stop.borrow() {
            tokio::select! {
                biased;
                _ = stop.changed() => {}
                // The slow target of one team must not delay the questions of another.
                _ = rounds.tick() => self.notify_teams().await.detach_all(),
            }
        }
    }

    /// One round: notifies every target of every open question that it was not told about.
    pub async fn run_notification_round(self: &Arc<Self>) {
        self.notify_teams().await.join_all().await;
    }

    /// Starts a task for every team that has none running.
    async fn notify_teams(self: &Arc<Self>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let teams = self.ctx.store.teams().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read the teams to notify");
            Vec::new()
        });
        for team in teams {
            let Some(running) = self.notifications.start(team.id) else { continue };
            let service = Arc::clone(self);
            tasks.spawn(async move {
                if let Err(problem) = service.notify_team(&team).await {
                    tracing::warn!(why = problem.detail, team = %team.id, "cannot notify people of escalations");
                }
                drop(running);
            });
        }
        tasks
    }

    async fn notify_team(&self, team: &Team) -> Result<(), Problem> {
        let targets = self.targets_of(team.id).await.map_err(unavailable)?;
        if targets.is_empty() {
            return Ok(());
        }
        let (oldest, mut before) = (self.ctx.now().plus(-LINK_MS), None);
        loop {
            let page = self.ctx.store.records(team.id, RecordKind::Escalation, before, limits::PAGE_ROWS).await;
            let page = page.map_err(unavailable)?;
            for asked in page.rows.iter().filter(|asked| asked.created_at > oldest) {
                // What is wrong with one question must not keep people from the others.
                if let Err(problem) = self.notify_targets(team, asked, &targets).await {
                    tracing::warn!(why = problem.detail, escalation = %asked.id, "cannot notify people of an escalation");
                }
            }
            before = page.next.filter(|_| page.rows.last().is_some_and(|last| last.created_at > oldest));
            if before.is_none() {
                return Ok(());
            }
        }
    }

    async fn notify_targets(&self, team: &Team, asked: &Record, targets: &[Record]) -> Result<(), Problem> {
        if records::decode::<Escalation>(asked)?.state != EscalationState::Open {
            return Ok(());
        }
        // A target hears of what is asked after it was created.
        for target in targets.iter().filter(|target| target.created_at <= asked.created_at) {
            if !self.notifications.is_settled(asked.id, target.id) {
                self.notify_target(team, asked, target).await?;
            }
        }
        Ok(())
    }

    async fn notify_target(&self, team: &Team, asked: &Record, target: &Record) -> Result<(), Problem> {
        let (addressee, now) = (Addressee::Target(target.id), self.ctx.now());
        let name = ApprovalLink::record_name(asked.id, addressee);
        let known = self.ctx.store.record_by_name(team.id, RecordKind::ApprovalLink, &name).await;
        let record = if let Some(record) = known.map_err(unavailable)? {
            record
        } else {
            let reader = link_caller(team.clone(), target.id, addressee, now);
            let view = self.escalation(&reader, asked.id).await?;
            let notification = Notification { attempts: 0, due_at: Some(now), sent_at: None };
            self.store_link(team.id, &view, addressee, Some(notification)).await?
        };
        let link: ApprovalLink = records::decode(&record)?;
        let Some(notification) = link.notification.clone().filter(|_| now < link.expires_at) else { return Ok(()) };
        let Some(due_at) = notification.due_at else {
            self.notifications.settle(asked.id, target.id);
            return Ok(());
        };
        if now < due_at {
            return Ok(());
        }
        // Whoever records the attempt makes it.
        let pause = RETRY_MS.get(notification.attempts as usize);
        let attempt =
            Notification { attempts: notification.attempts + 1, due_at: pause.map(|ms| now.plus(*ms)), sent_at: None };
        let Some(record) = self.save_notification(&record, &link, attempt.clone()).await? else { return Ok(()) };
        let reader = link_caller(team.clone(), target.id, addressee, now);
        let view = self.escalation(&reader, asked.id).await?;
        let posted = self.post_question(target, &record, &view, &link).await;
        match posted {
            Ok(status) if (200..300).contains(&status) => {
                let sent = Notification { due_at: None, sent_at: Some(self.ctx.now()), ..attempt };
                self.save_notification(&record, &link, sent).await?;
            }
            Ok(status) => tracing::warn!(status, target = %target.id, "a notification target refused a question"),
            Err(why) => tracing::warn!(why, target = %target.id, "cannot reach a notification target"),
        }
        Ok(())
    }

    /// Saves how far an addressee was told. `None` when another node was faster.
    async fn save_notification(
        &self,
        record: &Record,
        link: &ApprovalLink,
        notification: Notification,
    ) -> Result<Option<Record>, Problem> {
        let json = records::encode(&ApprovalLink { notification: Some(notification), ..link.clone() })?;
        let changed = self.ctx.store.change_record(record.edit(json), None, self.ctx.now()).await;
        match changed.map_err(unavailable)? {
            IdempotentResult::Done(RecordChangeResult::Changed(record)) => Ok(Some(record)),
            _ => Ok(None),
        }
    }

    async fn post_question(
        &self,
        target: &Record,
        record: &Record,
        view: &EscalationView,
        link: &ApprovalLink,
    ) -> Result<u16, String> {
        let settings: NotificationTarget = records::decode(target).map_err(|problem| problem.detail)?;
        let Some(public_url) = &self.ctx.deps.public_url else {
            return Err("http.public_url is not set, so there is no address for the link".into());
        };
        let url = format!("{public_url}/a/{}", self.link_token(record.id));
        let (title, description) = (view.escalation.reason.question(), describe(view));
        let body = match settings.kind {
            TargetKind::Slack => slack_card(title, &description, &url),
            TargetKind::Webhook => json!({
                "type": "approval.requested",
                "escalation": view.id,
                "reason": view.escalation.reason,
                "title": title,
                "description": description,
                "url": url,
                "expires_at": link.expires_at.to_string(),
            }),
        };
        self.post_to_target(target, &settings, record.id, &body).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_cannot_be_made_to_link_elsewhere() {
        let card =
            slack_card("Approve?", "To a@b.test: <https://evil.test|Look and decide> & more", "https://own.test/a/1");
        let text = card["blocks"][0]["text"]["text"].as_str().unwrap();
        assert!(!text.contains('<') && text.contains("&lt;https://evil.test"), "{text}");
        assert_eq!(card["blocks"][1]["elements"][0]["url"], "https://own.test/a/1");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shorten("short"), "short");
        assert_eq!(shorten(&"ä".repeat(400)).chars().count(), MAX_CARD_CHARS + 1);
    }
}
