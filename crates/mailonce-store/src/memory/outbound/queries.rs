//! Queries for emails, keys and due handoffs.

use mailonce_core::{
    handoff::HandoffState,
    id::{EmailId, TeamId},
    key::KeyHash,
    limits, mutant,
    outbound::{
        email::{Email, Guard},
        email_query::{EmailDetail, EmailQuery, EmailStats, ResultPage},
        key_binding::{KeyBinding, KeyView},
        suppressed_call::SuppressedCall,
    },
    time::Time,
};

use crate::memory::{
    Tables,
    outbound::tables::{KeyTarget, OutboundTables},
};

impl OutboundTables {
    /// Emails of a team, newest first.
    pub(crate) fn list_emails(&self, team: TeamId, query: &EmailQuery) -> ResultPage<Email> {
        if let Some(key) = query.key {
            return self.list_by_key(team, key, query);
        }
        let mut page = ResultPage { rows: Vec::new(), next: None };
        let team_emails = self.emails.values().rev().filter(|email| email.team == team);
        let older = team_emails.filter(|email| query.before.is_none_or(|before| email.id < before));
        for (looked, email) in older.enumerate() {
            if page.rows.len() == query.limit || looked == limits::SCAN_ROWS {
                return page;
            }
            if query.matches(email) {
                page.rows.push(email.clone());
            }
            page.next = Some(email.id);
        }
        page.next = None;
        page
    }

    /// The number of a team's emails with ids in the range `from..to`.
    pub(crate) fn count_emails(&self, team: TeamId, from: EmailId, to: EmailId) -> u64 {
        let within = |email: &&Email| email.team == team && from <= email.id && email.id < to;
        self.emails.values().filter(within).count() as u64
    }

    /// Statistics of a team's emails with ids in the range `from..to`.
    pub(crate) fn email_stats(&self, team: TeamId, from: EmailId, to: EmailId) -> EmailStats {
        let mut stats = EmailStats::default();
        for email in self.emails.range(from..to).map(|(_, email)| email).filter(|email| email.team == team) {
            stats.accepted += 1;
            stats.duplicates += email.suppressed;
            for handoff in &email.handoffs {
                *stats.handoffs.entry(handoff.state).or_default() += 1;
            }
        }
        stats
    }

    /// The one email that a key is bound to, or was bound to last, until the key is swept.
    pub(crate) fn list_by_key(&self, team: TeamId, key: KeyHash, query: &EmailQuery) -> ResultPage<Email> {
        let email = match self.keys.get(&(team, key)).and_then(|row| row.target.as_ref()) {
            Some(KeyTarget::Email(id)) => self.emails.get(id),
            Some(KeyTarget::Operation { .. }) | None => None,
        };
        let wanted = |email: &&Email| query.matches(email) && query.before.is_none_or(|before| email.id < before);
        ResultPage { rows: email.filter(wanted).cloned().into_iter().collect(), next: None }
    }

    /// The state of a key, also after it was forgotten, until its tombstone expires.
    pub(crate) fn key_view(&self, team: TeamId, key: KeyHash, now: Time) -> Option<KeyView> {
        let row = self.keys.get(&(team, key)).filter(|row| row.bind_number > 0)?;
        let bound = self.key_binding(team, key, now);
        let forgotten_at = match (&bound, &row.target) {
            (Some(_), _) => None,
            (None, Some(KeyTarget::Email(id))) => self.emails.get(id).and_then(Email::expires_at),
            (None, Some(KeyTarget::Operation { expires_at, .. })) => Some(*expires_at),
            (None, None) => row.forgotten_at,
        };
        let expires_at = match (&bound, &row.target) {
            (Some(KeyBinding::Email(email)), _) => email.expires_at(),
            (Some(_), Some(KeyTarget::Operation { expires_at, .. })) => Some(*expires_at),
            _ => None,
        };
        let suppressed = match &bound {
            Some(KeyBinding::Email(email)) => self.suppressed_calls(email.id),
            _ => Vec::new(),
        };
        Some(KeyView {
            bind_number: row.bind_number,
            binding: bound,
            expires_at,
            forgotten_at,
            suppressed_calls: suppressed,
        })
    }

    /// The suppressed calls of an email, newest first.
    pub(crate) fn suppressed_calls(&self, id: EmailId) -> Vec<SuppressedCall> {
        self.suppressed.get(&id).map(|calls| calls.iter().rev().cloned().collect()).unwrap_or_default()
    }

    /// Handoffs of a transport that are due at `now`, in order.
    pub(crate) fn due_handoffs(
        &self,
        transport: &str,
        max: usize,
        scheduled_by: Option<Time>,
        now: Time,
    ) -> Vec<(Time, EmailId, u16)> {
        let mut due: Vec<(Time, EmailId, u16)> = self
            .emails
            .values()
            .flat_map(|email| email.handoffs.iter().map(move |handoff| (email.id, handoff)))
            .filter(|(_, handoff)| handoff.transport == transport)
            .filter(|(_, handoff)| matches!(handoff.state, HandoffState::Queued | HandoffState::Scheduled))
            .filter(|(_, handoff)| handoff.is_due(scheduled_by, now) || mutant!("leased-before-due"))
            .filter_map(|(id, handoff)| Some((handoff.due_at?, id, handoff.number)))
            .collect();
        due.sort_unstable();
        due.truncate(max);
        due
    }
    /// Emails with a held or unknown handoff, ordered by team and id.
    pub(crate) fn held_or_unknown_emails(&self, after: Option<(TeamId, EmailId)>, limit: usize) -> Vec<Email> {
        let is_stuck = |email: &&Email| {
            let stuck = |state: HandoffState| matches!(state, HandoffState::Held | HandoffState::Unknown);
            email.handoffs.iter().any(|handoff| stuck(handoff.state))
        };
        self.emails_by_team(is_stuck, after, limit)
    }

    /// Emails that wait for room in a budget, ordered by team and id.
    pub(crate) fn emails_held_by_budget(&self, after: Option<(TeamId, EmailId)>, limit: usize) -> Vec<Email> {
        self.emails_by_team(|email: &&Email| email.holds.contains(Guard::Budget), after, limit)
    }

    fn emails_by_team(
        &self,
        is_wanted: impl Fn(&&Email) -> bool,
        after: Option<(TeamId, EmailId)>,
        limit: usize,
    ) -> Vec<Email> {
        let mut emails: Vec<Email> = self.emails.values().filter(is_wanted).cloned().collect();
        emails.sort_by_key(|email| (email.team, email.id));
        let behind = |email: &Email| after.is_none_or(|after| (email.team, email.id) > after);
        emails.into_iter().filter(behind).take(limit).collect()
    }
}

impl Tables {
    /// Everything about one email.
    pub(crate) fn email_detail(&self, team: TeamId, id: EmailId) -> Option<EmailDetail> {
        let email = self.outbound.email_of_team(team, id)?;
        Some(EmailDetail {
            email,
            body: self.outbound.bodies.get(&id).cloned(),
            attempts: self.handoffs.attempts.get(&id).cloned().unwrap_or_default(),
            evidence: self.handoffs.evidence.get(&id).cloned().unwrap_or_default(),
            suppressed_calls: self.outbound.suppressed_calls(id),
        })
    }
}
