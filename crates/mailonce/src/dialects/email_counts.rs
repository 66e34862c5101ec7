//! Counts of sent emails by their state, for the metrics of the dialects. Nothing is tracked in mails, so there are no
//! opens and clicks.

use mailonce_core::{
    limits,
    outbound::{
        email::{Email, EmailState},
        email_query::EmailQuery,
        test_recipient::TestRecipient,
    },
    problem::Problem,
    time::Time,
};
use mailonce_engine::{Caller, Engine};

/// The length of a day in milliseconds.
pub(super) const DAY_MS: i64 = 86_400_000;

/// How many emails of a set reached which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EmailCounts {
    /// Emails that the next hop accepted, whatever happened later.
    pub(super) sent: u64,
    pub(super) delivered: u64,
    pub(super) bounced: u64,
    pub(super) complained: u64,
    pub(super) failed: u64,
    /// Emails whose outcome is unknown.
    pub(super) delayed: u64,
    /// Emails to a test address that simulates a suppressed recipient.
    pub(super) suppressed: u64,
}

impl EmailCounts {
    /// Counts one email.
    pub(super) fn add(&mut self, email: &Email) {
        let state = email.state();
        let is_sent =
            matches!(state, EmailState::Sent | EmailState::Delivered | EmailState::Bounced | EmailState::Complained);
        self.sent += u64::from(is_sent);
        // A complaint comes from a recipient, so that mail was delivered.
        self.delivered += u64::from(matches!(state, EmailState::Delivered | EmailState::Complained));
        self.bounced += u64::from(state == EmailState::Bounced);
        self.complained += u64::from(state == EmailState::Complained);
        self.suppressed += u64::from(is_suppressed(email));
        self.failed += u64::from(state == EmailState::Failed && !is_suppressed(email));
        self.delayed += u64::from(state == EmailState::Unknown);
    }

    /// The counts of a set of emails.
    pub(super) fn of<'a>(emails: impl IntoIterator<Item = &'a Email>) -> Self {
        let mut counts = Self::default();
        emails.into_iter().for_each(|email| counts.add(email));
        counts
    }
}

/// Whether an email was refused because its test address simulates a suppressed recipient.
pub(super) fn is_suppressed(email: &Email) -> bool {
    let is_simulated = |to: &String| {
        TestRecipient::is_simulated(email.head.channel, to)
            && TestRecipient::parse(to) == Some(TestRecipient::Suppressed)
    };
    email.state() == EmailState::Failed && email.head.to.iter().any(is_simulated)
}

/// A part over a whole, or 0 of nothing.
pub(super) fn rate(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// All emails of a query, newest first. Fails if there are too many to count.
pub(super) async fn emails_to_count(
    engine: &Engine,
    caller: &Caller,
    mut query: EmailQuery,
) -> Result<Vec<Email>, Problem> {
    query.limit = limits::PAGE_ROWS;
    let mut all = Vec::new();
    loop {
        let page = engine.outbound.emails(caller, query.clone()).await?;
        all.extend(page.rows);
        query.before = page.next;
        if page.next.is_none() {
            return Ok(all);
        }
        if all.len() > limits::SCAN_ROWS {
            let text = format!("More than {} emails are in this range; ask for a shorter one.", limits::SCAN_ROWS);
            return Err(Problem::invalid_query("start_date", text));
        }
    }
}

/// The query for all emails accepted in a range.
pub(super) fn range_query(since: Time, until: Time) -> EmailQuery {
    EmailQuery { since: Some(since), until: Some(until), ..EmailQuery::default() }
}
