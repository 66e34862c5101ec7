//! Who is told of questions, and which questions are due for whom.

use mailonce_core::{
    access::{person::Person, team::ApiKeyScope},
    conversation::approval_link::{Addressee, ApprovalLink},
    id::TeamId,
    problem::Problem,
    record::Record,
    time::Time,
};

use crate::{
    access::{people::PersonView, settings::ApprovalEmails},
    conversation::{
        Notifications,
        notification_progress::{OpenQuestion, RunningGuard},
    },
    runtime::problems::unavailable,
};

/// Somebody who is told of questions.
pub(super) enum Recipient {
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
    pub(super) fn addressee(&self) -> Addressee {
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
    pub(super) fn has_ended(&self, record: &Record, link: &ApprovalLink) -> bool {
        let is_over = |person: &Person| person.has_signed_out_since(link.sign_outs, record.created_at);
        matches!(self, Self::Person { view, .. } if is_over(&view.person))
    }
}

/// Somebody to whom questions are due.
pub(super) struct DueRecipient {
    /// Who.
    pub(super) recipient: Recipient,
    /// The questions, oldest first.
    pub(super) questions: Vec<OpenQuestion>,
    /// Keeps other rounds from telling the same recipient.
    pub(super) running: RunningGuard,
}

impl Notifications {
    /// Those whom no task is telling, with the questions that are due for them.
    pub(super) async fn due_recipients(
        &self,
        team: TeamId,
        recipients: Vec<Recipient>,
        (questions, next_after_ms): (&[OpenQuestion], i64),
    ) -> Result<Vec<DueRecipient>, Problem> {
        let (mut place, mut person_before, now) = (0, None, self.ctx.now());
        let mut found = Vec::new();
        for recipient in recipients {
            let addressee = recipient.addressee();
            let is_person = matches!(recipient, Recipient::Person { .. });
            let delay_ms = if is_person { next_after_ms.saturating_mul(place) } else { 0 };
            let is_due = |question: &&OpenQuestion| {
                recipient.due_at(question.asked_at, delay_ms).is_some_and(|at| at <= now)
                    && !self.progress.is_paused(**question, addressee, now)
            };
            let running = self.progress.start(addressee.id());
            let mut due: Vec<OpenQuestion> = questions.iter().filter(is_due).copied().collect();
            // The next person is told instead.
            if running.is_some() && !due.is_empty() && self.is_own_inbox(&recipient).await? {
                continue;
            }
            let before = person_before;
            if is_person {
                (place, person_before) = (place + 1, Some(addressee));
            }
            let Some(running) = running else { continue };
            if let (true, Some(before)) = (delay_ms > 0, before) {
                due = self.due_after(team, (before, next_after_ms), addressee, due).await?;
            }
            if !due.is_empty() {
                found.push(DueRecipient { recipient, questions: due, running });
            }
        }
        Ok(found)
    }

    /// The notification targets, and the people who may decide and have an address, in the order in which they are told.
    pub(super) async fn recipients(
        &self,
        team: TeamId,
        targets: Vec<Record>,
        emails: Option<&ApprovalEmails>,
    ) -> Result<Vec<Recipient>, Problem> {
        let mut recipients: Vec<Recipient> = targets.into_iter().map(Recipient::Target).collect();
        let Some(from) = emails.and_then(|emails| emails.from.as_ref()) else { return Ok(recipients) };
        let mut people = self.access.people_of(team).await?;
        people.retain(|view| view.person.address.is_some() && view.person.scopes().contains(&ApiKeyScope::Approve));
        people.sort_by_key(|view| (view.created_at, view.id));
        recipients.extend(people.into_iter().map(|view| Recipient::Person { view, from: from.clone() }));
        Ok(recipients)
    }

    /// Whether mail to a person arrives in an inbox of this installation, where an agent could read the link.
    async fn is_own_inbox(&self, recipient: &Recipient) -> Result<bool, Problem> {
        let Recipient::Person { view, .. } = recipient else { return Ok(false) };
        let Some(address) = view.person.address.as_deref() else { return Ok(false) };
        let is_inbox = self.access.inbox_of_address(address).await.map_err(unavailable)?.is_some();
        if is_inbox {
            self.log_unreachable_person(view, "their address is an inbox, where an agent could read the link");
        }
        Ok(is_inbox)
    }

    /// Logs why a person cannot be notified by email, once for each reason.
    pub(super) fn log_unreachable_person(&self, view: &PersonView, why: &str) {
        if self.progress.is_new_unreachable_reason(view.id, why) {
            tracing::warn!(why, person = %view.id, "cannot tell a person of questions by email");
        }
    }
}
