//! Tells people of questions: by email and through notification targets, each with a link of its own.
//!
//! A notification is no email of a team: stops, budgets and rules do not apply to it, and its link is in no list, event or
//! log. An attempt is recorded before it is made, so that nodes do not make the same one.

use mailonce_core::{
    access::team::Team,
    conversation::{
        approval_link::{ApprovalLink, Notification},
        escalation::{Escalation, EscalationState},
    },
    id::TeamId,
    limits,
    problem::Problem,
    record::{Record, RecordKind},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
};

use crate::{
    access::people::PersonView,
    conversation::{
        Escalations, Notifications,
        approval_emails::attempt_limit_ms,
        approval_links::{APPROVAL_LINK_MS, link_caller, link_expiry, preview_digest},
        notification_attempts::DueNotice,
        notification_order::notification_of,
        notification_progress::OpenQuestion,
        notification_recipients::{DueRecipient, Recipient},
        notification_targets::POST_LIMIT_MS,
    },
    runtime::{problems::unavailable, records},
};

/// How often new questions and due attempts are looked for.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long questions are collected after an email to the same person, in milliseconds. They come in one email.
const DIGEST_MS: i64 = 5 * 60_000;
/// How long to wait before the next try when no email to a person can be made, in milliseconds.
const UNREACHABLE_RETRY_MS: i64 = 60_000;
/// Notices that a recipient gets in one round, and so questions in one email.
const MAX_NOTICES: usize = 50;
/// Emails to people of a team that are sent at the same time. Relays limit connections.
const MAX_CONCURRENT_EMAILS: usize = 8;
/// Pages of questions that one scan reads.
const MAX_SCAN_PAGES: usize = 100;

impl Escalations {
    /// Adds an open question to the next notification round, which may not find it by itself.
    pub(super) fn track_question(&self, record: &Record, escalation: &Escalation) {
        let question = OpenQuestion { id: record.id, asked_at: escalation.asked_at(record.created_at) };
        if question.asked_at > self.ctx.now().plus(-APPROVAL_LINK_MS) {
            self.notification_progress.track(record.team, question);
        }
    }
}

impl Notifications {
    /// Tells people of new questions until `stop` changes.
    pub async fn run_notifications(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut rounds = tokio::time::interval(INTERVAL);
        rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !*stop.borrow() {
            tokio::select! {
                biased;
                _ = stop.changed() => {}
                // What is slow for one team must not delay the questions of another.
                _ = rounds.tick() => self.notify_teams().await.detach_all(),
            }
        }
    }

    /// One round: tells everybody of every open question that they were not told about.
    pub async fn run_notification_round(self: &Arc<Self>) {
        self.notify_teams().await.join_all().await;
    }

    /// Starts a task for every team whose questions no task is reading.
    async fn notify_teams(self: &Arc<Self>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let teams = self.ctx.store.teams().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read the teams to notify");
            Vec::new()
        });
        for team in teams {
            let Some(running) = self.progress.start(team.id.0) else { continue };
            let service = Arc::clone(self);
            tasks.spawn(async move {
                let due = service.due_questions(&team).await;
                // The next round begins while recipients are being told.
                drop(running);
                match due {
                    Ok(due) => service.notify_recipients(team, due).await,
                    Err(problem) => {
                        tracing::warn!(why = problem.detail, team = %team.id, "cannot notify people of escalations");
                    }
                }
            });
        }
        tasks
    }

    /// Tells everybody at the same time: a slow target or relay must not delay the others.
    async fn notify_recipients(self: &Arc<Self>, team: Team, due: Vec<DueRecipient>) {
        let (team, slots) = (Arc::new(team), Arc::new(Semaphore::new(MAX_CONCURRENT_EMAILS)));
        let mut tasks = JoinSet::new();
        for DueRecipient { recipient, questions, running } in due {
            let (service, team, slots) = (Arc::clone(self), Arc::clone(&team), Arc::clone(&slots));
            tasks.spawn(async move {
                let _slot = match recipient {
                    Recipient::Person { .. } => slots.acquire().await.ok(),
                    Recipient::Target(_) => None,
                };
                if let Err(problem) = service.notify(&team, &recipient, &questions).await {
                    tracing::warn!(why = problem.detail, team = %team.id, "cannot notify people of escalations");
                }
                drop(running);
            });
        }
        while let Some(told) = tasks.join_next().await {
            if let Err(error) = told {
                tracing::error!(%error, "a notification failed");
            }
        }
    }

    /// The recipients whom no task is telling, with the questions that are due for them.
    async fn due_questions(&self, team: &Team) -> Result<Vec<DueRecipient>, Problem> {
        if let Err(problem) = self.remove_old_links(team.id).await {
            tracing::warn!(why = problem.detail, team = %team.id, "cannot remove old approval links");
        }
        let (settings, now) = (self.access.settings_of(team.id).await.map_err(unavailable)?, self.ctx.now());
        let emails = settings.approval_emails.as_ref();
        let quiet_hours = emails.and_then(|emails| emails.quiet_hours);
        if quiet_hours.is_some_and(|hours| hours.contains(now, &settings.calendar_zone())) {
            return Ok(Vec::new());
        }
        let targets = self.targets_of(team.id).await.map_err(unavailable)?;
        if targets.is_empty() && emails.is_none() {
            return Ok(Vec::new());
        }
        let questions = self.open_questions(team.id).await?;
        if questions.is_empty() {
            return Ok(Vec::new());
        }
        let recipients = self.recipients(team.id, targets, emails).await?;
        let next_after_ms = emails.and_then(|emails| emails.next_after_ms).unwrap_or(0);
        self.due_recipients(team.id, recipients, (&questions, next_after_ms)).await
    }

    /// The open questions whose links have not expired, oldest first.
    async fn open_questions(&self, team: TeamId) -> Result<Vec<OpenQuestion>, Problem> {
        let now = self.ctx.now();
        let oldest = now.plus(-APPROVAL_LINK_MS);
        let from = self.progress.scan_start(team, oldest);
        let (mut before, mut open) = (None, Vec::new());
        for _ in 0..MAX_SCAN_PAGES {
            let page = self.ctx.store.records(team, RecordKind::Escalation, before, limits::PAGE_ROWS).await;
            let page = page.map_err(unavailable)?;
            let is_last_recent = page.rows.last().is_some_and(|last| last.created_at > from);
            for asked in page.rows {
                match records::decode::<Escalation>(&asked) {
                    Ok(escalation) if escalation.state == EscalationState::Open => {
                        open.push(OpenQuestion { id: asked.id, asked_at: escalation.asked_at(asked.created_at) });
                    }
                    Ok(_) => {}
                    Err(problem) => {
                        tracing::warn!(why = problem.detail, escalation = %asked.id, "cannot read an escalation")
                    }
                }
            }
            before = page.next.filter(|_| is_last_recent);
            if before.is_none() {
                break;
            }
        }
        Ok(self.progress.end_scan(team, &open, (oldest, now)))
    }

    /// The notice about a question, if its recipient is to be told now.
    async fn due_notice(
        &self,
        team: &Team,
        asked: OpenQuestion,
        recipient: &Recipient,
    ) -> Result<Option<DueNotice>, Problem> {
        let (addressee, now) = (recipient.addressee(), self.ctx.now());
        let name = ApprovalLink::record_name(asked.id, addressee);
        let known =
            self.ctx.store.record_by_name(team.id, RecordKind::ApprovalLink, &name).await.map_err(unavailable)?;
        let known = match known {
            Some(record) => Some((records::decode::<ApprovalLink>(&record)?, record)),
            None => None,
        };
        // Nothing is rendered for an attempt that is not due.
        let notification = known.as_ref().and_then(|(link, _)| notification_of(link, asked));
        if let Some(notification) = notification.filter(|outcome| outcome.due_at.is_none_or(|due_at| now < due_at)) {
            self.progress.pause(asked, addressee, notification.due_at);
            return Ok(None);
        }
        let view = self.escalations.escalation(&link_caller(team.clone(), asked.id, addressee, now), asked.id).await?;
        if view.escalation.state != EscalationState::Open {
            self.progress.forget(team.id, asked.id);
            return Ok(None);
        }
        let (record, link) = match known {
            // The token of a link stays that of what was shown, so another content gets another link.
            // An expired one may be removed at any time.
            Some((link, record))
                if link.digest == preview_digest(&view)
                    && !recipient.has_ended(&record, &link)
                    && !link.withdrawn
                    && now < link.expires_at =>
            {
                let link = match notification_of(&link, asked) {
                    Some(_) => link,
                    None => ApprovalLink {
                        expires_at: link_expiry(&view, now),
                        notification: Some(Notification::due(now)),
                        ..link
                    },
                };
                (record, link)
            }
            replaced => {
                if let Some((_, record)) = replaced {
                    let removed = self.ctx.store.remove_record(team.id, record.kind, record.id).await;
                    removed.map_err(unavailable)?;
                }
                let record = self.store_link(team.id, &view, addressee, Some(Notification::due(now))).await?;
                (record.clone(), records::decode(&record)?)
            }
        };
        // Another node may have stored the link, and may be telling the recipient.
        let is_due = link.notification.as_ref().and_then(|outcome| outcome.due_at).is_some_and(|due_at| due_at <= now);
        Ok(is_due.then_some(DueNotice { record, link, view }))
    }

    /// The first of the due notices, as many as one round sends.
    async fn due_notices(&self, team: &Team, due: &[OpenQuestion], recipient: &Recipient) -> Vec<DueNotice> {
        let mut notices = Vec::new();
        for asked in due {
            if notices.len() >= MAX_NOTICES {
                break;
            }
            // What is wrong with one question must not keep people from the others.
            match self.due_notice(team, *asked, recipient).await {
                Ok(notice) => notices.extend(notice),
                Err(problem) => {
                    tracing::warn!(why = problem.detail, escalation = %asked.id, "cannot notify people of an escalation");
                }
            }
        }
        notices
    }

    /// Tells a recipient of questions: a person in one email, a target in a post for each.
    async fn notify(&self, team: &Team, recipient: &Recipient, due: &[OpenQuestion]) -> Result<(), Problem> {
        match recipient {
            Recipient::Target(target) => {
                for notice in self.due_notices(team, due, recipient).await {
                    let Some(notice) = self.escalations.begin_attempt(notice, POST_LIMIT_MS).await? else { continue };
                    let outcome = self.post_question(target, &notice).await;
                    self.escalations.end_attempt(&notice, &outcome).await?;
                }
                Ok(())
            }
            Recipient::Person { view, from } => {
                if due.is_empty() || self.progress.is_collecting(view.id, self.ctx.now()) {
                    return Ok(());
                }
                let notices = self.due_notices(team, due, recipient).await;
                self.email_questions_to(team.id, view, from, notices).await
            }
        }
    }

    /// Sends a person all due questions in one email.
    async fn email_questions_to(
        &self,
        team: TeamId,
        view: &PersonView,
        from: &str,
        due: Vec<DueNotice>,
    ) -> Result<(), Problem> {
        if due.is_empty() {
            return Ok(());
        }
        // What no attempt could mend, such as a missing transport, must not use up the attempts.
        let route = match self.email_of_questions(team, view, from, &due).await {
            Ok((_, route)) => route,
            Err(why) => {
                self.log_unreachable_person(view, &why);
                let now = self.ctx.now();
                self.progress.collect_until(view.id, now.plus(UNREACHABLE_RETRY_MS), now);
                return Ok(());
            }
        };
        let mut notices = Vec::with_capacity(due.len());
        for notice in due {
            notices.extend(self.escalations.begin_attempt(notice, attempt_limit_ms(&route)).await?);
        }
        if notices.is_empty() {
            return Ok(());
        }
        let outcome = self.email_questions(team, view, from, (&route, &notices)).await;
        let now = self.ctx.now();
        // After a failure, questions are collected until the next attempt.
        let retry_at = notices.iter().filter_map(|notice| notice.retry_at(now)).min();
        let until = retry_at.filter(|_| outcome.is_err()).unwrap_or(now.plus(DIGEST_MS));
        self.progress.collect_until(view.id, until, now);
        for notice in &notices {
            self.escalations.end_attempt(notice, &outcome).await?;
        }
        Ok(())
    }

    /// The URL of a link.
    pub(super) fn link_url(&self, record: uuid::Uuid) -> Result<String, String> {
        let public_url = self.ctx.deps.public_url.as_ref();
        let public_url = public_url.ok_or("http.public_url is not set, so there is no address for the link")?;
        Ok(format!("{public_url}/a/{}", self.link_token(record)))
    }
}
