//! Notification targets: places such as a Slack channel to which questions for people are posted, each with a link.
//!
//! A post may be repeated after a crash, with the same id and the same link.

use mailonce_core::{
    access::team::ApiKeyScope,
    conversation::approval_link::{NotificationTarget, TargetKind},
    events::webhook::OutgoingWebhook,
    id::TeamId,
    limits,
    operation::IdempotentResult,
    ports::store::StoreError,
    problem::{Code, Problem},
    record::{CreateRecordResult, Record, RecordKind},
    time::Time,
};
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

use crate::{
    access::caller::Caller,
    conversation::{
        Notifications,
        escalations::{EscalationView, is_forbidden_in_question},
        notification_attempts::DueNotice,
    },
    events::endpoints::secret_text,
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
        records::{self, CreateOutcome, CursorPage},
        vault::SecretLocation,
    },
};

/// Targets of a team.
const MAX_TARGETS: usize = 20;
/// How long a target may take to answer, in milliseconds.
pub(super) const POST_LIMIT_MS: i64 = 5_000;
const POST_TIMEOUT: Duration = Duration::from_millis(POST_LIMIT_MS as u64);
/// Longest texts of a card, in characters.
const MAX_CARD_CHARS: usize = 300;

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
pub(super) fn describe(view: &EscalationView) -> String {
    let about = &view.escalation.about;
    match (&view.email, &about.question) {
        (Some((email, _)), _) => shorten(&format!("To {}: {}", email.head.to.join(", "), email.head.subject)),
        (None, Some(question)) => shorten(&without_control_characters(question)),
        (None, None) => String::new(),
    }
}

/// A question as it can be put into an email. Otherwise one question could keep people from all others.
fn without_control_characters(question: &str) -> String {
    question.chars().map(|c| if is_forbidden_in_question(c) { ' ' } else { c }).collect()
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

impl Notifications {
    /// Creates a target, or finds the one that an earlier call with the same key created. Its URL is never shown again.
    pub async fn create_notification_target(
        &self,
        caller: &Caller,
        (name, kind, url): (String, TargetKind, String),
        keyed_call: Option<KeyedCall>,
    ) -> Result<CreateOutcome<NewTarget>, Problem> {
        require_target_access(caller)?;
        let keyed_call = keyed_call.as_ref();
        if !url.starts_with("https://") {
            return Err(Problem::invalid_field("url", "must begin with https://"));
        }
        self.ctx.deps.webhook_sender.check_url(&url).map_err(|why| Problem::invalid_field("url", why))?;
        let team = caller.team.id;
        let is_repeat = self.ctx.is_repeated_call(caller, keyed_call).await?;
        if !is_repeat && self.targets_of(team).await.map_err(unavailable)?.len() >= MAX_TARGETS {
            let detail = format!("is one too many: a team can have at most {MAX_TARGETS} notification targets");
            return Err(Problem::invalid_field("name", detail));
        }
        let now = self.ctx.now();
        let id = self.ctx.new_id(now);
        let sealed_url = self.ctx.seal_secret(url_location(team, id), url.as_bytes());
        let sealed_url = sealed_url.ok_or_else(|| Problem::new(Code::Internal, "the URL cannot be sealed"))?;
        let json = records::encode(&NotificationTarget { kind, sealed_url })?;
        let record = Record { team, kind: RecordKind::NotificationTarget, id, name, rev: 1, created_at: now, json };
        let operation = operation(caller, keyed_call, id.as_bytes().to_vec(), now);
        match self.ctx.store.create_record(record, operation).await.map_err(unavailable)? {
            IdempotentResult::Done(CreateRecordResult::Created(record)) => {
                Ok(CreateOutcome { value: self.new_target(&record)?, is_new: true })
            }
            IdempotentResult::Done(CreateRecordResult::NameTaken(record)) => {
                let detail = format!("the notification target {} already exists", record.name);
                Err(Problem::for_field(Code::NameTaken, "name", detail).with_extension("id", record.id.to_string()))
            }
            IdempotentResult::Replayed(answer) => {
                let id = Uuid::from_slice(&answer).map_err(|_bytes| target_not_found(id))?;
                let record = self.ctx.team_record(caller, RecordKind::NotificationTarget, id).await?;
                Ok(CreateOutcome { value: self.new_target(&record)?, is_new: false })
            }
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    fn new_target(&self, record: &Record) -> Result<NewTarget, Problem> {
        Ok(NewTarget { target: TargetView::of(record)?, secret: secret_text(&self.target_secret(record.id)) })
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

    /// Posts a test message to a target, unless an earlier call with the same key did. Returns what the target answered.
    pub async fn test_notification_target(
        &self,
        caller: &Caller,
        id: Uuid,
        keyed_call: Option<KeyedCall>,
    ) -> Result<Result<u16, String>, Problem> {
        require_target_access(caller)?;
        let keyed_call = keyed_call.as_ref();
        let is_repeat = self.ctx.is_repeated_call(caller, keyed_call).await?;
        let answer = if is_repeat { Err(String::new()) } else { self.post_test(caller, id).await? };
        let sealed = self.ctx.seal_answer(keyed_call, &answer);
        let now = self.ctx.now();
        let Some(operation) = operation(caller, keyed_call, sealed, now) else { return Ok(answer) };
        match self.ctx.store.bind_operation(operation, now).await.map_err(unavailable)? {
            IdempotentResult::Done(()) => Ok(answer),
            IdempotentResult::Replayed(first) => self.ctx.open_answer(keyed_call, &first),
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    async fn post_test(&self, caller: &Caller, id: Uuid) -> Result<Result<u16, String>, Problem> {
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

    pub(super) async fn targets_of(&self, team: TeamId) -> Result<Vec<Record>, StoreError> {
        Ok(self.ctx.store.records(team, RecordKind::NotificationTarget, None, limits::PAGE_ROWS).await?.rows)
    }

    /// Posts a question to a target. Fails unless the target accepts it.
    pub(super) async fn post_question(&self, target: &Record, notice: &DueNotice) -> Result<(), String> {
        let DueNotice { record, link, view } = notice;
        let settings: NotificationTarget = records::decode(target).map_err(|problem| problem.detail)?;
        let url = self.link_url(record.id)?;
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
        match self.post_to_target(target, &settings, record.id, &body).await? {
            200..300 => Ok(()),
            status => Err(format!("the target answered {status}")),
        }
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
    fn a_question_cannot_break_an_email() {
        assert_eq!(without_control_characters("a\0b\u{1b}[0m\n\tc"), "a b [0m\n\tc");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shorten("short"), "short");
        assert_eq!(shorten(&"ä".repeat(400)).chars().count(), MAX_CARD_CHARS + 1);
    }
}
