//! Tells people of questions: by email and through notification targets, each with a link of its own.
//!
//! A notification is no email of a team: stops, budgets and rules do not apply to it, and its link is in no list, event or
//! log. An attempt is recorded before it is made, so that nodes do not make the same one.

use mailonce_core::{
    access::{
        person::Person,
        team::{ApiKeyScope, Team},
    },
    conversation::{
        approval_link::{Addressee, ApprovalLink, Notification},
        escalation::{Escalation, EscalationState},
    },
    id::TeamId,
    limits,
    operation::IdempotentResult,
    problem::Problem,
    record::{Record, RecordChangeResult, RecordKind},
    time::Time,
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinSet};
use uuid::Uuid;

use crate::{
    access::{people::PersonView, settings::ApprovalEmails},
    conversation::{
        Escalations,
        approval_links::{LINK_MS, link_caller, link_expiry, preview_digest},
        escalations::EscalationView,
        notification_order::notification_of,
        notification_progress::OpenQuestion,
    },
    runtime::{problems::unavailable, records},
};

/// How often new questions and due attempts are looked for.
const INTERVAL: Duration = Duration::from_secs(1);
/// The pauses after failed attempts, in milliseconds. After the last one a notification is given up.
const RETRY_MS: [i64; 7] = [10_000, 30_000, 120_000, 600_000, 1_800_000, 3_600_000, 7_200_000];
/// How long questions are collected after an email to the same person, in milliseconds. They come in one email.
const DIGEST_MS: i64 = 5 * 60_000;
/// When a person is tried again for whom no email can be made, in milliseconds.
const OBSTACLE_MS: i64 = 60_000;
/// Notices that a recipient gets in one round, and so questions in one email.
const MAX_NOTICES: usize = 50;
/// Pages of questions that one scan reads.
const MAX_SCAN_PAGES: usize = 100;

/// Somebody who is told of questions.
enum Recipient {
    /// A place such as a Slack channel.
    Target(Record),
    /// A person who may decide.
    Person {
        view: PersonView,
        /// The sender of the email.
        from: String,
    },
}

impl Recipient {
    fn addressee(&self) -> Addressee {
        match self {
            Self::Target(record) => Addressee::Target(record.id),
            Self::Person { view, .. } => Addressee::Person(view.id),
        }
    }

    /// When a question is due for this recipient. `None`: it was asked before the recipient was there.
    fn due_at(&self, asked_at: Time, delay_ms: i64) -> Option<Time> {
        let created_at = match self {
            Self::Target(record) => record.created_at,
            Self::Person { view, .. } => view.created_at,
        };
        (created_at <= asked_at).then(|| asked_at.plus(delay_ms))
    }

    /// Whether a link that was made then no longer works, because the person signed out everywhere.
    fn has_ended(&self, record: &Record, link: &ApprovalLink) -> bool {
        let is_over = |person: &Person| person.has_signed_out_since(link.sign_outs, record.created_at);
        matches!(self, Self::Person { view, .. } if is_over(&view.person))
    }
}

/// A question whose recipient is to be told now.
pub(super) struct DueNotice {
    /// The record of the link.
    pub(super) record: Record,
    /// The link.
    pub(super) link: ApprovalLink,
    /// The question.
    pub(super) view: EscalationView,
}

impl Escalations {
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
        if let Err(problem) = self.remove_old_links(team.id).await {
            tracing::warn!(why = problem.detail, team = %team.id, "cannot remove old approval links");
        }
        let (settings, now) = (self.access.settings_of(team.id).await.map_err(unavailable)?, self.ctx.now());
        let emails = settings.approval_emails.as_ref();
        let quiet_hours = emails.and_then(|emails| emails.quiet_hours);
        if quiet_hours.is_some_and(|hours| hours.contains(now, &settings.calendar_zone())) {
            return Ok(());
        }
        let targets = self.targets_of(team.id).await.map_err(unavailable)?;
        if targets.is_empty() && emails.is_none() {
            return Ok(());
        }
        let questions = self.open_questions(team.id).await?;
        if questions.is_empty() {
            return Ok(());
        }
        let next_after_ms = emails.and_then(|emails| emails.next_after_ms).unwrap_or(0);
        let (mut place, mut person_before) = (0, None);
        for recipient in self.recipients(team.id, targets, emails).await? {
            let is_person = matches!(recipient, Recipient::Person { .. });
            let delay_ms = if is_person { next_after_ms.saturating_mul(place) } else { 0 };
            let is_due = |question: &&OpenQuestion| {
                recipient.due_at(question.asked_at, delay_ms).is_some_and(|at| at <= now)
                    && !self.notifications.is_paused(**question, recipient.addressee(), now)
            };
            let mut due: Vec<OpenQuestion> = questions.iter().filter(is_due).copied().collect();
            // The next person is told instead.
            if !due.is_empty() && self.is_own_inbox(&recipient).await? {
                continue;
            }
            if let (true, Some(before)) = (delay_ms > 0, person_before) {
                due = self.due_after(team.id, (before, next_after_ms), recipient.addressee(), due).await?;
            }
            if is_person {
                (place, person_before) = (place + 1, Some(recipient.addressee()));
            }
            self.notify(team, &recipient, &due).await?;
        }
        Ok(())
    }

    /// The notification targets, and the people who may decide and have an address, in the order in which they are told.
    async fn recipients(
        &self,
        team: TeamId,
        targets: Vec<Record>,
        emails: Option<&ApprovalEmails>,
    ) -> Result<Vec<Recipient>, Problem> {
        let mut recipients: Vec<Recipient> = targets.into_iter().map(Recipient::Target).collect();
        let Some(emails) = emails else { return Ok(recipients) };
        let mut people = self.access.people_of(team).await?;
        people.retain(|view| view.person.address.is_some() && view.person.scopes().contains(&ApiKeyScope::Approve));
        people.sort_by_key(|view| (view.created_at, view.id));
        recipients.extend(people.into_iter().map(|view| Recipient::Person { view, from: emails.from.clone() }));
        Ok(recipients)
    }

    /// Whether mail to a person arrives in an inbox of this installation, where an agent could read the link.
    async fn is_own_inbox(&self, recipient: &Recipient) -> Result<bool, Problem> {
        let Recipient::Person { view, .. } = recipient else { return Ok(false) };
        let Some(address) = view.person.address.as_deref() else { return Ok(false) };
        let is_inbox = self.access.inbox_of_address(address).await.map_err(unavailable)?.is_some();
        if is_inbox {
            self.report_obstacle(view, "their address is an inbox, where an agent could read the link");
        }
        Ok(is_inbox)
    }

    /// Logs why a person is not told, once.
    fn report_obstacle(&self, view: &PersonView, why: &str) {
        if self.notifications.is_new_obstacle(view.id, why) {
            tracing::warn!(why, person = %view.id, "cannot tell a person of questions by email");
        }
    }

    /// The open questions whose links have not expired, oldest first.
    async fn open_questions(&self, team: TeamId) -> Result<Vec<OpenQuestion>, Problem> {
        let now = self.ctx.now();
        let oldest = now.plus(-LINK_MS);
        let from = self.notifications.scan_start(team, oldest);
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
        Ok(self.notifications.end_scan(team, &open, (oldest, now)))
    }

    /// Tells the notification round of a question that is open, which it may not find by itself.
    pub(super) fn track_question(&self, record: &Record, escalation: &Escalation) {
        let question = OpenQuestion { id: record.id, asked_at: escalation.asked_at(record.created_at) };
        if question.asked_at > self.ctx.now().plus(-LINK_MS) {
            self.notifications.track(record.team, question);
        }
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
            self.notifications.pause(asked, addressee, notification.due_at);
            return Ok(None);
        }
        let view = self.escalation(&link_caller(team.clone(), asked.id, addressee, now), asked.id).await?;
        if view.escalation.state != EscalationState::Open {
            self.notifications.forget(team.id, asked.id);
            return Ok(None);
        }
        let (record, link) = match known {
            // The token of a link stays that of what was shown, so another content gets another link.
            // An expired one may be removed at any time.
            Some((link, record))
                if link.digest == preview_digest(&view)
                    && !recipient.has_ended(&record, &link)
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
                    let Some(notice) = self.begin_attempt(notice).await? else { continue };
                    let outcome = self.post_question(target, &notice).await;
                    self.end_attempt(&notice, outcome).await?;
                }
                Ok(())
            }
            Recipient::Person { view, from } => {
                if due.is_empty() || self.notifications.is_collecting(view.id, self.ctx.now()) {
                    return Ok(());
                }
                let notices = self.due_notices(team, due, recipient).await;
                self.tell_person(team.id, view, from, notices).await
            }
        }
    }

    /// Tells a person of questions in one email.
    async fn tell_person(
        &self,
        team: TeamId,
        view: &PersonView,
        from: &str,
        due: Vec<DueNotice>,
    ) -> Result<(), Problem> {
        if due.is_empty() {
            return Ok(());
        }
        let now = self.ctx.now();
        // What no attempt could mend, such as a missing transport, must not use up the attempts.
        if let Err(why) = self.email_of_questions(team, view, from, &due).await {
            self.report_obstacle(view, &why);
            self.notifications.collect_until(view.id, now.plus(OBSTACLE_MS), now);
            return Ok(());
        }
        let mut notices = Vec::with_capacity(due.len());
        for notice in due {
            notices.extend(self.begin_attempt(notice).await?);
        }
        if notices.is_empty() {
            return Ok(());
        }
        let outcome = self.email_questions(team, view, from, &notices).await;
        let retry_at = notices.iter().filter_map(|notice| notice.link.notification.as_ref()?.due_at).min();
        // After a failure, questions are collected until the next attempt.
        let until = retry_at.filter(|_| outcome.is_err()).unwrap_or(now.plus(DIGEST_MS));
        self.notifications.collect_until(view.id, until, now);
        for notice in &notices {
            self.end_attempt(notice, outcome.clone()).await?;
        }
        Ok(())
    }

    /// Records an attempt. Whoever records it makes it: `None` when another node was faster.
    async fn begin_attempt(&self, notice: DueNotice) -> Result<Option<DueNotice>, Problem> {
        let attempts = notice.link.notification.as_ref().map_or(0, |notification| notification.attempts);
        let pause = RETRY_MS.get(attempts as usize);
        let due_at = pause.map(|ms| self.ctx.now().plus(*ms));
        self.save_notification(notice, Notification { attempts: attempts + 1, due_at, sent_at: None }).await
    }

    /// Records how an attempt ended. One that failed is made again when its pause is over.
    async fn end_attempt(&self, notice: &DueNotice, outcome: Result<(), String>) -> Result<(), Problem> {
        let (escalation, addressee) = (notice.link.escalation, notice.link.addressee);
        if let Err(why) = outcome {
            tracing::warn!(why, %escalation, addressee = %addressee.id(), "cannot notify of an escalation");
            return Ok(());
        }
        let attempts = notice.link.notification.as_ref().map_or(0, |notification| notification.attempts);
        let sent = Notification { attempts, due_at: None, sent_at: Some(self.ctx.now()) };
        let DueNotice { record, link, view } = notice;
        let notice = DueNotice { record: record.clone(), link: link.clone(), view: view.clone() };
        self.save_notification(notice, sent).await?;
        Ok(())
    }

    /// Saves how far an addressee was told. `None` when another node was faster.
    async fn save_notification(
        &self,
        notice: DueNotice,
        notification: Notification,
    ) -> Result<Option<DueNotice>, Problem> {
        let DueNotice { record, link, view } = notice;
        let link = ApprovalLink { notification: Some(notification), ..link };
        let changed = self.ctx.store.change_record(record.edit(records::encode(&link)?), None, self.ctx.now()).await;
        match changed.map_err(unavailable)? {
            IdempotentResult::Done(RecordChangeResult::Changed(record)) => Ok(Some(DueNotice { record, link, view })),
            _ => Ok(None),
        }
    }

    /// The URL of a link.
    pub(super) fn link_url(&self, record: Uuid) -> Result<String, String> {
        let public_url = self.ctx.deps.public_url.as_ref();
        let public_url = public_url.ok_or("http.public_url is not set, so there is no address for the link")?;
        Ok(format!("{public_url}/a/{}", self.link_token(record)))
    }
}
