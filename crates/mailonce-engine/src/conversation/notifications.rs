//! Tells people of questions: by email and through notification targets, each with a link of its own.
//!
//! A notification is no email of a team: stops, budgets and rules do not apply to it, and its link is in no list, event or
//! log. An attempt is recorded before it is made, so that nodes do not make the same one.

use mailonce_core::{
    access::team::{ApiKeyScope, Team},
    conversation::{
        approval_link::{Addressee, ApprovalLink, Notification},
        escalation::{Escalation, EscalationState},
    },
    id::{PersonId, TeamId},
    limits,
    operation::IdempotentResult,
    problem::Problem,
    record::{Record, RecordChangeResult, RecordKind},
    time::Time,
};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::watch, task::JoinSet};
use uuid::Uuid;

use crate::{
    access::{people::PersonView, settings::ApprovalEmails},
    conversation::{
        Escalations,
        approval_links::{LINK_MS, link_caller},
        escalations::EscalationView,
    },
    runtime::{problems::unavailable, records},
};

/// How many notifications are remembered that need no further attempt.
const MAX_SETTLED: usize = 10_000;
/// How often new questions and due attempts are looked for.
const INTERVAL: Duration = Duration::from_secs(1);
/// The pauses after failed attempts, in milliseconds. After the last one a notification is given up.
const RETRY_MS: [i64; 7] = [10_000, 30_000, 120_000, 600_000, 1_800_000, 3_600_000, 7_200_000];
/// How long questions are collected after an email to the same person, in milliseconds. They come in one email.
const DIGEST_MS: i64 = 5 * 60_000;
/// Questions in one email.
const MAX_DIGEST: usize = 50;

/// What this process knows about notifications.
#[derive(Default)]
pub(crate) struct NotificationProgress {
    /// Teams that are being notified.
    running: Arc<Mutex<HashSet<TeamId>>>,
    /// Questions and addressees that need no further attempt.
    settled: Mutex<HashSet<(Uuid, Uuid)>>,
    /// When people got their last email.
    emailed: Mutex<HashMap<PersonId, Time>>,
}

/// Marks a team as being notified until it is dropped.
struct RunningTeam {
    team: TeamId,
    running: Arc<Mutex<HashSet<TeamId>>>,
}

impl Drop for RunningTeam {
    fn drop(&mut self) {
        lock(&self.running).remove(&self.team);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NotificationProgress {
    /// `None` when the team is being notified already.
    fn start(&self, team: TeamId) -> Option<RunningTeam> {
        let is_free = lock(&self.running).insert(team);
        is_free.then(|| RunningTeam { team, running: Arc::clone(&self.running) })
    }

    fn is_settled(&self, escalation: Uuid, addressee: Addressee) -> bool {
        lock(&self.settled).contains(&(escalation, addressee.id()))
    }

    fn settle(&self, escalation: Uuid, addressee: Addressee) {
        let mut settled = lock(&self.settled);
        if settled.len() >= MAX_SETTLED {
            settled.clear();
        }
        settled.insert((escalation, addressee.id()));
    }

    /// Whether a person got an email so recently that further questions are collected.
    fn is_collecting(&self, person: PersonId, now: Time) -> bool {
        lock(&self.emailed).get(&person).is_some_and(|at| now.since(*at) < DIGEST_MS)
    }

    fn record_email(&self, person: PersonId, now: Time) {
        let mut emailed = lock(&self.emailed);
        emailed.retain(|_, at| now.since(*at) < DIGEST_MS);
        emailed.insert(person, now);
    }
}

/// Somebody who is told of questions.
enum Recipient {
    /// A place such as a Slack channel.
    Target(Record),
    /// A person who may decide.
    Person {
        view: PersonView,
        /// The sender of the email.
        from: String,
        /// How long after the question.
        delay_ms: i64,
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
    fn due_at(&self, asked_at: Time) -> Option<Time> {
        let (created_at, delay_ms) = match self {
            Self::Target(record) => (record.created_at, 0),
            Self::Person { view, delay_ms, .. } => (view.created_at, *delay_ms),
        };
        (created_at <= asked_at).then(|| asked_at.plus(delay_ms))
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
        let settings = self.access.settings_of(team.id).await.map_err(unavailable)?;
        let emails = settings.approval_emails.as_ref();
        let quiet_hours = emails.and_then(|emails| emails.quiet_hours);
        if quiet_hours.is_some_and(|hours| hours.contains(self.ctx.now(), &settings.calendar_zone())) {
            return Ok(());
        }
        let recipients = self.recipients(team.id, emails).await?;
        if recipients.is_empty() {
            return Ok(());
        }
        let questions = self.open_questions(team.id).await?;
        for recipient in &recipients {
            let mut due = Vec::new();
            for asked in &questions {
                // What is wrong with one question must not keep people from the others.
                match self.due_notice(team, asked, recipient).await {
                    Ok(notice) => due.extend(notice),
                    Err(problem) => {
                        tracing::warn!(why = problem.detail, escalation = %asked.id, "cannot notify people of an escalation");
                    }
                }
            }
            self.tell(team, recipient, due).await?;
        }
        Ok(())
    }

    /// The notification targets, and the people who may decide and have an address, in the order in which they are told.
    async fn recipients(&self, team: TeamId, emails: Option<&ApprovalEmails>) -> Result<Vec<Recipient>, Problem> {
        let targets = self.targets_of(team).await.map_err(unavailable)?;
        let mut recipients: Vec<Recipient> = targets.into_iter().map(Recipient::Target).collect();
        let Some(emails) = emails else { return Ok(recipients) };
        let mut people = self.access.people_of(team).await?;
        people.retain(|view| {
            let may_decide = view.person.scopes().contains(&ApiKeyScope::Approve);
            may_decide && view.person.address.as_deref().is_some_and(|address| !self.is_own_inbox(address))
        });
        people.sort_by_key(|view| (view.created_at, view.id));
        let delay = |place: usize| emails.next_after_ms.unwrap_or(0).saturating_mul(place as i64);
        recipients.extend(people.into_iter().enumerate().map(|(place, view)| Recipient::Person {
            view,
            from: emails.from.clone(),
            delay_ms: delay(place),
        }));
        Ok(recipients)
    }

    /// Whether mail to an address arrives in an inbox of this installation, where an agent could read the link.
    fn is_own_inbox(&self, address: &str) -> bool {
        address.rsplit_once('@').is_some_and(|(_, domain)| self.ctx.inbound.inbox_domains.contains(domain))
    }

    /// The open questions whose links have not expired, oldest first.
    async fn open_questions(&self, team: TeamId) -> Result<Vec<Record>, Problem> {
        let (oldest, mut before, mut open) = (self.ctx.now().plus(-LINK_MS), None, Vec::new());
        loop {
            let page = self.ctx.store.records(team, RecordKind::Escalation, before, limits::PAGE_ROWS).await;
            let page = page.map_err(unavailable)?;
            let is_last_recent = page.rows.last().is_some_and(|last| last.created_at > oldest);
            for asked in page.rows.into_iter().filter(|asked| asked.created_at > oldest) {
                match records::decode::<Escalation>(&asked) {
                    Ok(escalation) if escalation.state == EscalationState::Open => open.push(asked),
                    Ok(_) => {}
                    Err(problem) => {
                        tracing::warn!(why = problem.detail, escalation = %asked.id, "cannot read an escalation")
                    }
                }
            }
            before = page.next.filter(|_| is_last_recent);
            if before.is_none() {
                open.reverse();
                return Ok(open);
            }
        }
    }

    /// The notice about a question, if its recipient is to be told now.
    async fn due_notice(
        &self,
        team: &Team,
        asked: &Record,
        recipient: &Recipient,
    ) -> Result<Option<DueNotice>, Problem> {
        let (addressee, now) = (recipient.addressee(), self.ctx.now());
        if self.notifications.is_settled(asked.id, addressee)
            || recipient.due_at(asked.created_at).is_none_or(|at| now < at)
        {
            return Ok(None);
        }
        let name = ApprovalLink::record_name(asked.id, addressee);
        let known =
            self.ctx.store.record_by_name(team.id, RecordKind::ApprovalLink, &name).await.map_err(unavailable)?;
        let view = self.escalation(&link_caller(team.clone(), asked.id, addressee, now), asked.id).await?;
        let record = if let Some(record) = known {
            record
        } else {
            let notification = Notification { attempts: 0, due_at: Some(now), sent_at: None };
            self.store_link(team.id, &view, addressee, Some(notification)).await?
        };
        let link: ApprovalLink = records::decode(&record)?;
        let Some(notification) = link.notification.as_ref().filter(|_| now < link.expires_at) else { return Ok(None) };
        match notification.due_at {
            Some(due_at) if due_at <= now => Ok(Some(DueNotice { record, link, view })),
            Some(_) => Ok(None),
            None => {
                self.notifications.settle(asked.id, addressee);
                Ok(None)
            }
        }
    }

    /// Tells a recipient of questions: a person in one email, a target in a post for each.
    async fn tell(&self, team: &Team, recipient: &Recipient, mut due: Vec<DueNotice>) -> Result<(), Problem> {
        match recipient {
            Recipient::Target(target) => {
                for notice in due {
                    let Some(notice) = self.begin_attempt(notice).await? else { continue };
                    let told = self.post_question(target, &notice).await;
                    self.end_attempt(&notice, told).await?;
                }
            }
            Recipient::Person { view, from, .. } => {
                let now = self.ctx.now();
                due.truncate(MAX_DIGEST);
                if due.is_empty() || self.notifications.is_collecting(view.id, now) {
                    return Ok(());
                }
                let mut notices = Vec::with_capacity(due.len());
                for notice in due {
                    notices.extend(self.begin_attempt(notice).await?);
                }
                if notices.is_empty() {
                    return Ok(());
                }
                self.notifications.record_email(view.id, now);
                let told = self.email_questions(team.id, view, from, &notices).await;
                for notice in &notices {
                    self.end_attempt(notice, told.clone()).await?;
                }
            }
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
    async fn end_attempt(&self, notice: &DueNotice, told: Result<(), String>) -> Result<(), Problem> {
        let (escalation, addressee) = (notice.link.escalation, notice.link.addressee);
        if let Err(why) = told {
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
