//! The escalation worker. It opens escalations for stuck emails and notifies people by email where a team configured
//! that. It carries out decisions, and closes escalations that expired or became moot.

use crate::{
    access::{caller::Caller, settings::EscalationNotification},
    conversation::Escalations,
    outbound::keyed_send::{SendRequest, identify_send},
    runtime::{escalation_hook::EscalateToPeople, problems::unavailable, records::CreateOutcome},
};
use async_trait::async_trait;
use mailonce_core::{
    claims::Claim,
    conversation::escalation::{
        Decision, DecisionRecord, Escalation, EscalationReason, EscalationState, EscalationSubject,
    },
    handoff::{Handoff, HandoffState},
    id::{EmailId, TeamId},
    inbox::message::MessageState,
    key::Key,
    operation::IdempotentResult,
    outbound::{
        content::{EmailContent, RawContent},
        email::{Channel, Email, EmailState},
    },
    ports::store::StoreError,
    problem::Problem,
    record::{CreateRecordResult, Record, RecordKind},
};
use std::sync::{Mutex, PoisonError};
use uuid::Uuid;

/// Stuck emails, and escalations, that one round examines.
const BATCH_SIZE: usize = 200;
/// Longest preview in a notification email, in characters.
const MAX_PREVIEW_CHARS: usize = 20_000;

/// The scan position after the last round, where the next round resumes.
#[derive(Default)]
pub(crate) struct EscalationProgress(Mutex<EscalationScanPosition>);

#[derive(Clone, Copy, Default)]
struct EscalationScanPosition {
    stuck: Option<(TeamId, EmailId)>,
    team: Option<TeamId>,
    before: Option<Uuid>,
}

impl EscalationProgress {
    fn position(&self) -> EscalationScanPosition {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn advance(&self, change: impl FnOnce(&mut EscalationScanPosition)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Why an email needs a person's decision, most important first. Each hold is a question of its own.
fn escalation_reasons(email: &Email) -> Vec<EscalationReason> {
    match email.state() {
        EmailState::Held => email.holds.iter().filter_map(EscalationReason::for_guard).collect(),
        // No escalation while an automatic retry or look-up is still due.
        EmailState::Unknown => {
            let given_up =
                |handoff: &Handoff| handoff.due_at.is_none() || handoff.progress.transport_missing_since.is_some();
            let unknown = email.handoffs.iter().filter(|handoff| handoff.state == HandoffState::Unknown);
            unknown.into_iter().any(given_up).then_some(EscalationReason::Unknown).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// The preview, truncated to fit into a notification. A truncated preview says so.
fn truncate_preview(preview: &str) -> String {
    match preview.char_indices().nth(MAX_PREVIEW_CHARS) {
        Some((end, _)) => {
            format!("{}\n[…] The email is longer than this notice. Read all of it before you decide.", &preview[..end])
        }
        None => preview.to_owned(),
    }
}

impl Escalations {
    /// Opens an escalation and only logs a failure. The next round retries for stuck emails.
    pub(crate) async fn open_escalation_or_log(&self, team: TeamId, escalation: Escalation) {
        if let Err(error) = self.open_escalation(team, escalation).await {
            tracing::warn!(%error, "cannot open an escalation");
        }
    }

    /// Opens the escalations of an email that is held or unknown. Does nothing for other emails.
    pub(crate) async fn escalate_if_stuck(&self, email: &Email) {
        // Boxed to keep the future of every accept small; few emails get here.
        if !escalation_reasons(email).is_empty()
            && let Err(error) = Box::pin(self.ensure_escalations(email)).await
        {
            tracing::warn!(%error, email = %email.id, "cannot open an escalation for an email");
        }
    }

    async fn ensure_escalations(&self, email: &Email) -> Result<(), StoreError> {
        for reason in escalation_reasons(email) {
            match self.find_escalation(email, reason).await? {
                None => {
                    let about = self.escalation_subject(email, reason).await?;
                    self.open_escalation(email.team, Escalation::open(reason, about, email.head.caller)).await?;
                }
                Some(record) if reason == EscalationReason::Budget => self.reopen_escalation(&record).await?,
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Asks again about a budget that had room in the meantime, and has none now.
    async fn reopen_escalation(&self, record: &Record) -> Result<(), StoreError> {
        let Ok(mut escalation) = serde_json::from_str::<Escalation>(&record.json) else { return Ok(()) };
        if escalation.state == EscalationState::Open || escalation.has_pending_decision() {
            return Ok(());
        }
        escalation.reopen(self.ctx.now());
        self.save_escalation(record, &escalation).await?;
        self.track_question(record, &escalation);
        Ok(())
    }

    /// The record of the escalation about an email with this reason.
    async fn find_escalation(&self, email: &Email, reason: EscalationReason) -> Result<Option<Record>, StoreError> {
        let about = self.escalation_subject(email, reason).await?;
        let name = Escalation::open(reason, about, None).dedup_name();
        self.ctx.store.record_by_name(email.team, RecordKind::Escalation, &name).await
    }

    async fn escalation_subject(
        &self,
        email: &Email,
        reason: EscalationReason,
    ) -> Result<EscalationSubject, StoreError> {
        let answered = match email.head.answers {
            Some(message) => self.ctx.store.message(email.team, message).await?,
            None => None,
        };
        let attempts = email.handoffs.iter().map(|handoff| handoff.attempts).sum();
        Ok(EscalationSubject {
            email: Some(email.id),
            attempts: (reason == EscalationReason::Unknown).then_some(attempts),
            message: email.head.answers,
            thread: email.head.thread,
            inbox: answered.map(|message| message.inbox),
            question: None,
            entity: None,
            rule: email.head.held_by.clone().filter(|_| reason == EscalationReason::Approval),
            ..EscalationSubject::default()
        })
    }

    /// The id of the most important escalation about an email, if there is one.
    pub async fn escalation_of_email(&self, caller: &Caller, id: EmailId) -> Result<Option<Uuid>, Problem> {
        let email = self.outbound.email(caller, id).await?;
        let Some(reason) = escalation_reasons(&email).first().copied() else { return Ok(None) };
        let found = self.find_escalation(&email, reason).await.map_err(unavailable)?;
        Ok(found.map(|record| record.id))
    }

    /// Opens an escalation, or returns the existing one with the same deduplication name.
    pub(crate) async fn open_escalation(
        &self,
        team: TeamId,
        mut escalation: Escalation,
    ) -> Result<CreateOutcome<Record>, StoreError> {
        let now = self.ctx.now();
        let name = escalation.dedup_name();
        let settings = self.access.settings_of(team).await?;
        // Only a held email is surely unsent, so only its escalation may expire into a rejection.
        // What a budget holds leaves by itself, so nobody has to decide in time.
        let may_expire = escalation.reason.allowed_decisions().contains(&Decision::Edit)
            && escalation.reason != EscalationReason::Budget;
        escalation.expiry = settings.expire_ms.filter(|_| may_expire).map(|ms| (now.plus(ms), Decision::Reject));
        let json = serde_json::to_string(&escalation).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let kind = RecordKind::Escalation;
        let record = Record { team, kind, id: self.ctx.new_id(now), name, rev: 1, created_at: now, json };
        match self.ctx.store.create_record(record, None).await? {
            IdempotentResult::Done(CreateRecordResult::Created(record)) => {
                if let Some(notify) = &settings.notify {
                    self.notify_people(&record, &escalation, notify).await;
                }
                Ok(CreateOutcome { value: record, is_new: true })
            }
            IdempotentResult::Done(CreateRecordResult::NameTaken(record)) => {
                Ok(CreateOutcome { value: record, is_new: false })
            }
            // Unreachable: the call carries no idempotency key.
            IdempotentResult::Replayed(_) | IdempotentResult::KeyMismatch(_) => {
                Err(StoreError::Corrupt("the store replayed an escalation that has no idempotency key".into()))
            }
        }
    }

    /// One round: opens missing escalations, carries out pending decisions and closes moot or expired escalations.
    pub async fn run_escalation_round(&self) {
        if let Err(error) = self.escalate_stuck_emails().await {
            tracing::warn!(%error, "cannot scan for stuck emails");
        }
        if let Err(error) = self.review_open_escalations().await {
            tracing::warn!(%error, "cannot review open escalations");
        }
    }

    async fn escalate_stuck_emails(&self) -> Result<(), StoreError> {
        let emails =
            self.ctx.store.held_or_unknown_emails(self.escalation_progress.position().stuck, BATCH_SIZE).await?;
        for email in &emails {
            self.ensure_escalations(email).await?;
        }
        let last = emails.last().filter(|_| emails.len() == BATCH_SIZE);
        self.escalation_progress.advance(|position| position.stuck = last.map(|email| (email.team, email.id)));
        Ok(())
    }

    async fn review_open_escalations(&self) -> Result<(), StoreError> {
        let mut teams: Vec<TeamId> = self.ctx.store.teams().await?.iter().map(|team| team.id).collect();
        teams.sort_unstable();
        let mut left = BATCH_SIZE;
        let EscalationScanPosition { team: from, mut before, .. } = self.escalation_progress.position();
        for team in teams.into_iter().filter(|team| from.is_none_or(|from| *team >= from)) {
            while left > 0 {
                let page = self.ctx.store.records(team, RecordKind::Escalation, before, left).await?;
                for record in &page.rows {
                    self.review_escalation(record).await?;
                }
                left -= page.rows.len().min(left);
                before = page.next;
                if before.is_none() {
                    break;
                }
            }
            if left == 0 {
                self.escalation_progress.advance(|position| (position.team, position.before) = (Some(team), before));
                return Ok(());
            }
        }
        self.escalation_progress.advance(|position| (position.team, position.before) = (None, None));
        Ok(())
    }

    /// Carries out a pending decision of one escalation, or closes it when it is moot or expired.
    pub(crate) async fn review_escalation(&self, record: &Record) -> Result<(), StoreError> {
        let Ok(mut escalation) = serde_json::from_str::<Escalation>(&record.json) else {
            tracing::error!(id = %record.id, "an escalation cannot be decoded");
            return Ok(());
        };
        if escalation.has_pending_decision() {
            return self.complete_decision(record).await;
        }
        if escalation.state != EscalationState::Open {
            return Ok(());
        }
        let (now, due_by) = (self.ctx.now(), self.ctx.time.earlier_time());
        if self.is_moot(record, &escalation).await? {
            escalation.state = EscalationState::Moot;
        } else if let Some((_, decision)) = escalation.expiry.filter(|(at, _)| due_by.is_some_and(|by| *at <= by)) {
            escalation.decide(DecisionRecord {
                decision,
                at: now,
                by: None,
                person: None,
                reason: None,
                edit: None,
                shown: None,
            });
        } else {
            self.track_question(record, &escalation);
            return Ok(());
        }
        self.save_escalation(record, &escalation).await?;
        match self.ctx.store.record(record.team, record.kind, record.id).await? {
            Some(record) => self.complete_decision(&record).await,
            None => Ok(()),
        }
    }

    /// Saves an escalation. A concurrent change wins.
    async fn save_escalation(&self, record: &Record, escalation: &Escalation) -> Result<(), StoreError> {
        let json = serde_json::to_string(escalation).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let _raced = self.ctx.store.change_record(record.edit(json), None, self.ctx.now()).await?;
        Ok(())
    }

    /// Whether the situation that an escalation is about no longer exists.
    pub(crate) async fn is_moot(&self, record: &Record, escalation: &Escalation) -> Result<bool, StoreError> {
        let about = &escalation.about;
        match (escalation.reason, about.email, about.message) {
            (EscalationReason::Asked | EscalationReason::Loop, _, _) => Ok(false),
            (EscalationReason::ClaimUnknown, _, _) => {
                let Some(id) = about.claim else { return Ok(true) };
                let claim = self.ctx.store.claim(record.team, id).await?.map(|(claim, _)| claim);
                let is_same = |claim: Claim| claim.needs_decision() && about.attempts == Some(claim.times_unknown);
                Ok(!claim.is_some_and(is_same))
            }
            (EscalationReason::Orphaned, _, _) => {
                Ok(self.handoffs.orphaned_since(record.team, about.transport.as_deref()).await? != about.since)
            }
            (EscalationReason::Unanswered, _, Some(message)) => {
                let found = self.ctx.store.message(record.team, message).await?;
                Ok(found.is_none_or(|message| message.state == MessageState::Answered))
            }
            (reason, Some(email), _) => match self.ctx.store.email(record.team, email).await? {
                Some(email) if escalation_reasons(&email).contains(&reason) => {
                    let now_about = self.escalation_subject(&email, reason).await?;
                    Ok(now_about.attempts != about.attempts)
                }
                // During an automatic retry the outcome is still unknown, so the escalation stays open.
                Some(email) => Ok(email.state() != EmailState::Unknown || reason != EscalationReason::Unknown),
                None => Ok(true),
            },
            _ => Ok(false),
        }
    }

    /// Closes the escalations about holds that an email no longer has.
    pub(crate) async fn close_moot_escalation(&self, email: &Email) {
        let closed = async {
            for reason in EscalationReason::ALL.iter().copied().filter(|reason| reason.hold().is_some()) {
                if let Some(record) = self.find_escalation(email, reason).await? {
                    self.review_escalation(&record).await?;
                }
            }
            Ok::<(), StoreError>(())
        };
        if let Err(error) = closed.await {
            tracing::warn!(%error, email = %email.id, "cannot close a moot escalation");
        }
    }

    /// Notifies people by email, once for each escalation.
    async fn notify_people(&self, record: &Record, escalation: &Escalation, notify: &EscalationNotification) {
        if let Err(why) = self.send_escalation_email(record, escalation, notify).await {
            tracing::warn!(why, escalation = %record.id, "cannot notify people of an escalation");
        }
    }

    /// The text of a notification: the reason, the subject, and the commands to decide.
    async fn escalation_email_text(&self, record: &Record, escalation: &Escalation) -> Result<String, StoreError> {
        let (about, id) = (&escalation.about, record.id);
        let why = about.question.clone().unwrap_or_else(|| reason_sentence(escalation.reason).to_owned());
        let mut lines = vec![why, String::new()];
        let mut digest_flag = String::new();
        if let Some(id) = about.email
            && let Some(detail) = self.ctx.store.email_detail(record.team, id).await?
        {
            lines.push(format!("Email:    {id}"));
            match detail.body.as_deref().and_then(|body| self.ctx.packer.unpack(body)) {
                Some(content) => {
                    let preview = self.preview(&detail.email, content).await?;
                    lines.push(truncate_preview(&preview.to_plain_text()));
                    digest_flag = format!(" --digest {}", preview.digest(id));
                }
                None => lines.push(format!("Subject:  {}", detail.email.head.subject)),
            }
        }
        lines.extend(about.transport.as_ref().map(|name| format!("Transport: {name}")));
        lines.extend(about.rule.as_ref().map(|rule| format!("Rule:    {}", rule.name)));
        lines.extend(about.thread.map(|id| format!("Thread:  {id}")));
        lines.extend([String::new(), "Read it:".into(), format!("  mailonce escalations show {id}")]);
        lines.push("Decide, one of:".into());
        let choices = escalation.reason.allowed_decisions().iter();
        lines.extend(choices.map(|choice| {
            let text_flag = if *choice == Decision::Edit { " --text \"…\"" } else { "" };
            format!("  mailonce escalations resolve {id} --as {}{text_flag}{digest_flag}", choice.as_str())
        }));
        Ok(lines.join("\n"))
    }

    async fn send_escalation_email(
        &self,
        record: &Record,
        escalation: &Escalation,
        notify: &EscalationNotification,
    ) -> Result<(), String> {
        let text = self.escalation_email_text(record, escalation).await.map_err(|error| error.to_string())?;
        let raw = RawContent {
            from: notify.from.clone(),
            to: notify.to.clone(),
            subject: format!("mailonce asks: {}", escalation.reason.as_str()),
            text: Some(text),
            ..RawContent::default()
        };
        let content = EmailContent::validate(raw).map_err(|faults| format!("{faults:?}"))?;
        let from = content.from.to_address();
        self.access.domains.check_sender(record.team, from.as_str()).await.map_err(|problem| problem.detail)?;
        let mac = self.ctx.secret.mac("escalation-notice", &[record.team.0.as_bytes(), record.id.as_bytes()]);
        let key = Key::parse(&crate::runtime::hex::hex(&mac)).map_err(|error| error.to_string())?;
        let request = SendRequest::new(content, Some(key));
        let teams = self.ctx.store.teams().await.map_err(|error| error.to_string())?;
        let team = teams.into_iter().find(|team| team.id == record.team).ok_or("the team is gone")?;
        let now = self.ctx.now();
        let caller = Caller::of_system(team, Channel::Http, now);
        let new_email = self.outbound.build_email(&caller, &identify_send(&caller, request, None), now);
        let _known = self.ctx.store.accept(new_email, now).await.map_err(|error| error.to_string())?;
        self.ctx.transports.wake_all();
        Ok(())
    }
}

/// The reason of an escalation as a sentence for people.
fn reason_sentence(reason: EscalationReason) -> &'static str {
    match reason {
        EscalationReason::LooksDuplicate => "An email is held: it looks like a recently sent email.",
        EscalationReason::Overlaps => {
            "An email is held: some of its recipients already received an email with the same intent."
        }
        EscalationReason::Cap => "A reply is held: the thread or the recipient has reached its reply limit.",
        EscalationReason::Budget => {
            "An email is held: a budget is used up. It leaves by itself when there is room, or now if you release it."
        }
        EscalationReason::Approval => "An email is held: a rule requires approval by a person.",
        EscalationReason::Unknown => "It is unknown whether an email was sent, and no automatic retry is left.",
        EscalationReason::Loop => "A reply to an automatic message, or to one of your own agents, was refused.",
        EscalationReason::Orphaned => {
            "Emails wait for a transport that no node has. Configure the transport again, or reroute the emails."
        }
        EscalationReason::Unanswered => "A message was offered to agents repeatedly, and none answered it.",
        EscalationReason::Asked => "An agent asks a question.",
        EscalationReason::ClaimUnknown => "The holder of a claim was lost after it began.",
    }
}

#[async_trait]
impl EscalateToPeople for Escalations {
    async fn escalate_if_stuck(&self, email: &Email) {
        Self::escalate_if_stuck(self, email).await;
    }

    async fn close_moot_escalation(&self, email: &Email) {
        Self::close_moot_escalation(self, email).await;
    }

    async fn ensure_open(&self, team: TeamId, escalation: Escalation) -> Result<(), StoreError> {
        self.open_escalation(team, escalation).await.map(drop)
    }

    async fn review_escalation(&self, record: &Record) -> Result<(), StoreError> {
        Self::review_escalation(self, record).await
    }
}
