//! Asking people: questions are opened for what is stuck, told by mail where a team wants that, done when they were
//! decided, and closed when time or the world has answered them.

use mailonce_core::{
    content::{Content, RawContent},
    conversation::escalation::{Decided, Decision, Escalation, EscalationState, Matter, Reason},
    email::{Channel, Email, EmailState},
    handoff::{Handoff, State},
    id::{ApiKeyId, EmailId, TeamId},
    key::Key,
    message::MessageState,
    port::store::{Once, StoreError},
    problem::Problem,
    record::{Created, Record, RecordKind},
    team::{AboutApiKey, ApiKey, Scope},
    time::Time,
};
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

use crate::{
    Caller, Engine,
    records::Made,
    send::{SendRequest, name},
    settings::Notify,
    unavailable,
};

/// Stuck emails, and questions, that are looked at in one round.
const AT_ONCE: usize = 200;
/// Characters of an email that the mail about a question shows.
const NOTICE_CHARS: usize = 20_000;

/// Where the rounds stand, so that each goes on where the last one ended.
#[derive(Default)]
pub(crate) struct Rounds(Mutex<Place>);

#[derive(Clone, Copy, Default)]
struct Place {
    stuck: Option<(TeamId, EmailId)>,
    team: Option<TeamId>,
    before: Option<Uuid>,
}

impl Rounds {
    fn place(&self) -> Place {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn go_on(&self, change: impl FnOnce(&mut Place)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Why a person must be asked about an email; `None` while nobody must.
fn reason_of(email: &Email) -> Option<Reason> {
    match email.state() {
        EmailState::Held => email.guard.and_then(Reason::of),
        // While something more is tried by itself, nobody is asked.
        EmailState::Unknown => {
            let given_up = |handoff: &Handoff| handoff.due_at.is_none() || handoff.work.orphaned.is_some();
            let unknown = email.handoffs.iter().filter(|handoff| handoff.state == State::Unknown);
            unknown.into_iter().any(given_up).then_some(Reason::Unknown)
        }
        _ => None,
    }
}

/// The preview as far as it fits into a notice. What is cut off is said to be.
fn cut(shown: &str) -> String {
    match shown.char_indices().nth(NOTICE_CHARS) {
        Some((end, _)) => {
            format!("{}\n[…] The email is longer than this notice. Read all of it before you decide.", &shown[..end])
        }
        None => shown.to_owned(),
    }
}

impl Engine {
    /// Asks a person; what could not be asked is asked in the next round, where it can be found again.
    pub(crate) async fn ask(&self, team: TeamId, escalation: Escalation) {
        if let Err(error) = self.open_escalation(team, escalation).await {
            tracing::warn!(%error, "asking a person");
        }
    }

    /// Asks a person about an email that is held or unknown. Nothing for any other.
    pub(crate) async fn ask_about(&self, email: &Email) {
        // On the heap: of all the emails that are accepted, few are asked about.
        if reason_of(email).is_some()
            && let Err(error) = Box::pin(self.question_about(email)).await
        {
            tracing::warn!(%error, email = %email.id, "asking a person about an email");
        }
    }

    async fn question_about(&self, email: &Email) -> Result<(), StoreError> {
        let Some(reason) = reason_of(email) else { return Ok(()) };
        let about = self.matter_of(email, reason).await?;
        let escalation = Escalation::open(reason, about, email.head.caller);
        let known = self.store.record_named(email.team, RecordKind::Escalation, &escalation.name()).await?;
        if known.is_none() {
            self.open_escalation(email.team, escalation).await?;
        }
        Ok(())
    }

    async fn matter_of(&self, email: &Email, reason: Reason) -> Result<Matter, StoreError> {
        let answered = match email.head.answers {
            Some(message) => self.store.message(email.team, message).await?,
            None => None,
        };
        let attempts = email.handoffs.iter().map(|handoff| handoff.attempts).sum();
        Ok(Matter {
            email: Some(email.id),
            attempts: (reason == Reason::Unknown).then_some(attempts),
            message: email.head.answers,
            thread: email.head.thread,
            inbox: answered.map(|message| message.inbox),
            question: None,
            entity: None,
            rule: email.head.held_by.clone().filter(|_| reason == Reason::Approval),
            ..Matter::default()
        })
    }

    /// The question that was asked about an email, if there is one.
    pub async fn question_of(&self, caller: &Caller, id: EmailId) -> Result<Option<Uuid>, Problem> {
        let email = self.email(caller, id).await?;
        let Some(reason) = reason_of(&email) else { return Ok(None) };
        let about = self.matter_of(&email, reason).await.map_err(unavailable)?;
        let name = Escalation::open(reason, about, email.head.caller).name();
        let found = self.store.record_named(email.team, RecordKind::Escalation, &name).await.map_err(unavailable)?;
        Ok(found.map(|record| record.id))
    }

    /// Opens a question, or finds it.
    pub(crate) async fn open_escalation(
        &self,
        team: TeamId,
        mut escalation: Escalation,
    ) -> Result<Made<Record>, StoreError> {
        let now = self.now();
        let name = escalation.name();
        let settings = self.settings_of(team).await?;
        // Only what is surely unsent may be given up by time.
        let may_expire = escalation.reason.choices().contains(&Decision::Edit);
        escalation.expiry = settings.expire_ms.filter(|_| may_expire).map(|ms| (now.plus(ms), Decision::Reject));
        let about = serde_json::to_string(&escalation).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let kind = RecordKind::Escalation;
        let record = Record { team, kind, id: self.new_id(now), name, rev: 1, created_at: now, about };
        match self.store.create_record(record, None).await? {
            Once::Done(Created::Made(record)) => {
                if let Some(notify) = &settings.notify {
                    self.tell(&record, &escalation, notify).await;
                }
                Ok(Made { thing: record, first: true })
            }
            Once::Done(Created::Taken(record)) => Ok(Made { thing: record, first: false }),
            // No key was given.
            Once::Repeated(_) | Once::Mismatch(_) => Err(StoreError::Corrupt("a question under a key".into())),
        }
    }

    /// One round: asks what must be asked, does what was decided, and closes what has answered itself.
    pub async fn tend_questions(&self) {
        if let Err(error) = self.ask_about_stuck().await {
            tracing::warn!(%error, "looking for emails that are stuck");
        }
        if let Err(error) = self.tend_open().await {
            tracing::warn!(%error, "looking after questions for people");
        }
    }

    async fn ask_about_stuck(&self) -> Result<(), StoreError> {
        let emails = self.store.stuck(self.rounds.place().stuck, AT_ONCE).await?;
        for email in &emails {
            self.question_about(email).await?;
        }
        let last = emails.last().filter(|_| emails.len() == AT_ONCE);
        self.rounds.go_on(|place| place.stuck = last.map(|email| (email.team, email.id)));
        Ok(())
    }

    async fn tend_open(&self) -> Result<(), StoreError> {
        let mut teams: Vec<TeamId> = self.store.teams().await?.iter().map(|team| team.id).collect();
        teams.sort_unstable();
        let mut left = AT_ONCE;
        let Place { team: from, mut before, .. } = self.rounds.place();
        for team in teams.into_iter().filter(|team| from.is_none_or(|from| *team >= from)) {
            while left > 0 {
                let page = self.store.records(team, RecordKind::Escalation, before, left).await?;
                for record in &page.rows {
                    self.tend(record).await?;
                }
                left -= page.rows.len().min(left);
                before = page.next;
                if before.is_none() {
                    break;
                }
            }
            if left == 0 {
                self.rounds.go_on(|place| (place.team, place.before) = (Some(team), before));
                return Ok(());
            }
        }
        self.rounds.go_on(|place| (place.team, place.before) = (None, None));
        Ok(())
    }

    /// Does what is to be done about one question by now.
    pub(crate) async fn tend(&self, record: &Record) -> Result<(), StoreError> {
        let Ok(mut escalation) = serde_json::from_str::<Escalation>(&record.about) else {
            tracing::error!(id = %record.id, "an escalation cannot be read");
            return Ok(());
        };
        if escalation.is_undone() {
            return self.finish(record).await;
        }
        if escalation.state != EscalationState::Open {
            return Ok(());
        }
        let (now, due_by) = (self.now(), self.time.earlier());
        if self.is_moot(record, &escalation).await? {
            escalation.state = EscalationState::Moot;
        } else if let Some((_, decision)) = escalation.expiry.filter(|(at, _)| due_by.is_some_and(|by| *at <= by)) {
            escalation.decide(Decided { decision, at: now, by: None, reason: None, edit: None, shown: None });
        } else {
            return Ok(());
        }
        self.rewrite(record, &escalation).await?;
        match self.store.record(record.team, record.kind, record.id).await? {
            Some(record) => self.finish(&record).await,
            None => Ok(()),
        }
    }

    /// Writes what a question became, unless somebody was faster.
    async fn rewrite(&self, record: &Record, escalation: &Escalation) -> Result<(), StoreError> {
        let about = serde_json::to_string(escalation).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let _raced = self.store.change_record(record.edit(about), None, self.now()).await?;
        Ok(())
    }

    /// Whether the world has answered a question.
    pub(crate) async fn is_moot(&self, record: &Record, escalation: &Escalation) -> Result<bool, StoreError> {
        let about = &escalation.about;
        match (escalation.reason, about.email, about.message) {
            (Reason::Asked | Reason::Loop, _, _) => Ok(false),
            (Reason::Orphaned, _, _) => {
                Ok(self.orphaned_since(record.team, about.transport.as_deref()).await? != about.since)
            }
            (Reason::Unanswered, _, Some(message)) => {
                let found = self.store.message(record.team, message).await?;
                Ok(found.is_none_or(|message| message.state == MessageState::Answered))
            }
            (reason, Some(email), _) => match self.store.email(record.team, email).await? {
                Some(email) if reason_of(&email) == Some(reason) => {
                    let now_about = self.matter_of(&email, reason).await?;
                    Ok(now_about.attempts != about.attempts)
                }
                // While something is tried again by itself, the doubt is the same.
                Some(email) => Ok(email.state() != EmailState::Unknown || reason != Reason::Unknown),
                None => Ok(true),
            },
            _ => Ok(false),
        }
    }

    /// Closes the question about an email that its sender let go.
    pub(crate) async fn close_moot(&self, email: &Email) {
        let closed = async {
            let Some(reason) = email.guard.and_then(Reason::of) else { return Ok(()) };
            let about = self.matter_of(email, reason).await?;
            let name = Escalation::open(reason, about, None).name();
            match self.store.record_named(email.team, RecordKind::Escalation, &name).await? {
                Some(record) => self.tend(&record).await,
                None => Ok(()),
            }
        };
        if let Err(error) = closed.await {
            tracing::warn!(%error, email = %email.id, "closing a question that answered itself");
        }
    }

    /// Tells people by mail, once for each question.
    async fn tell(&self, record: &Record, escalation: &Escalation, notify: &Notify) {
        if let Err(why) = self.send_notice(record, escalation, notify).await {
            tracing::warn!(why, escalation = %record.id, "people could not be told of a question");
        }
    }

    /// What people are told of a question: why it is asked, about what, and how to answer.
    async fn notice_text(&self, record: &Record, escalation: &Escalation) -> Result<String, StoreError> {
        let (about, id) = (&escalation.about, record.id);
        let why = about.question.clone().unwrap_or_else(|| why_asked(escalation.reason).to_owned());
        let mut lines = vec![why, String::new()];
        let mut bound = String::new();
        if let Some(id) = about.email
            && let Some(detail) = self.store.email_detail(record.team, id).await?
        {
            lines.push(format!("Email:    {id}"));
            match detail.body.as_deref().and_then(|body| self.bodies.unpack(body)) {
                Some(content) => {
                    let preview = self.preview(&detail.email, &content).await?;
                    lines.push(cut(&preview.shown()));
                    bound = format!(" --digest {}", preview.digest(id));
                }
                None => lines.push(format!("Subject:  {}", detail.email.head.subject)),
            }
        }
        lines.extend(about.transport.as_ref().map(|name| format!("Transport: {name}")));
        lines.extend(about.rule.as_ref().map(|rule| format!("Rule:    {}", rule.name)));
        lines.extend(about.thread.map(|id| format!("Thread:  {id}")));
        lines.extend([String::new(), "Read it:".into(), format!("  mailonce escalations show {id}")]);
        lines.push("Decide, one of:".into());
        let choices = escalation.reason.choices().iter();
        lines.extend(choices.map(|choice| {
            let words = if *choice == Decision::Edit { " --text \"…\"" } else { "" };
            format!("  mailonce escalations resolve {id} --as {}{words}{bound}", choice.word())
        }));
        Ok(lines.join("\n"))
    }

    async fn send_notice(&self, record: &Record, escalation: &Escalation, notify: &Notify) -> Result<(), String> {
        let text = self.notice_text(record, escalation).await.map_err(|error| error.to_string())?;
        let raw = RawContent {
            from: notify.from.clone(),
            to: notify.to.clone(),
            subject: format!("mailonce asks: {}", escalation.reason.word()),
            text: Some(text),
            ..RawContent::default()
        };
        let content = Content::check(raw).map_err(|faults| format!("{faults:?}"))?;
        let from = content.from.bare();
        self.check_sender(record.team, from.as_str()).await.map_err(|problem| problem.detail)?;
        let mac = self.secret.mac("escalation-notice", &[record.team.0.as_bytes(), record.id.as_bytes()]);
        let key = Key::parse(&crate::hex(&mac)).map_err(|error| error.to_string())?;
        let request = SendRequest::plain(content, Some(key));
        let teams = self.store.teams().await.map_err(|error| error.to_string())?;
        let team = teams.into_iter().find(|team| team.id == record.team).ok_or("the team is gone")?;
        let now = self.now();
        let caller = Caller {
            key: Arc::new(nobody(record.team, now)),
            team: Arc::new(team),
            channel: Channel::Http,
            call: None,
            ties: None,
        };
        let mut wish = self.wish(&caller, &name(&caller, request, None), now);
        wish.head.caller = None;
        let _known = self.store.accept(wish, now).await.map_err(|error| error.to_string())?;
        self.ways.wake();
        Ok(())
    }
}

/// Why a person is asked, in a sentence.
fn why_asked(reason: Reason) -> &'static str {
    match reason {
        Reason::LooksDuplicate => "An email is held: it looks like one that was sent a moment ago.",
        Reason::Overlaps => "An email is held: some of its recipients got the same intent before.",
        Reason::Cap => "An answer is held: the thread, or the person, got too many of late.",
        Reason::Approval => "An email is held: a rule wants a person to look at it first.",
        Reason::Unknown => "Nobody can tell whether an email arrived, and nothing more is tried by itself.",
        Reason::Loop => "An answer to a machine, or to one of your own agents, was refused.",
        Reason::Orphaned => {
            "Mail waits for a transport that no node has. Bring the transport back, or reroute the mail."
        }
        Reason::Unanswered => "A message was offered to agents again and again, and none answered it.",
        Reason::Asked => "An agent asks.",
    }
}

/// A credential that is nobody's, for mail that mailonce sends by itself.
fn nobody(team: TeamId, now: Time) -> ApiKey {
    ApiKey {
        id: ApiKeyId(Uuid::nil()),
        team,
        hash: [0; 32],
        about: AboutApiKey {
            name: "mailonce".into(),
            hint: String::new(),
            scopes: vec![Scope::Send],
            senders: Vec::new(),
            inboxes: Vec::new(),
            rate_per_s: None,
            expires_at: None,
            allow_ips: Vec::new(),
        },
        created_at: now,
        revoked_at: None,
        last_used_at: None,
    }
}
