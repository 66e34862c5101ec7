//! Mail-loop protection: recognizes mail that this installation sent itself, and finds the email that a received mail
//! answers.

use crate::{inbound::Inbound, outbound::message_ids::has_own_message_id_form};
use mailonce_core::{
    address::Address,
    conversation::thread::ThreadQuery,
    id::TeamId,
    inbox::Inbox,
    outbound::{email::Email, email_query::EmailQuery},
    ports::store::StoreError,
};
use mailonce_mail::{compose::LOOP_HEADER, parse::ParsedMail, thread};
use subtle::ConstantTimeEq as _;

/// How many emails are searched for the one that a received mail answers.
const EMAIL_SCAN_LIMIT: usize = 100;
/// Emails older than this are not searched, in milliseconds.
const MAX_ANSWERED_AGE_MS: i64 = 60 * 86_400_000;
/// How many of an inbox's latest threads are searched when no email to the sender matches.
const THREAD_SCAN_LIMIT: usize = 50;
/// How many of the latest emails of each such thread are searched.
const EMAILS_PER_THREAD: usize = 5;

impl Inbound {
    /// Why a mail counts as our own: it carries our loop header, its sender is an inbox of the team, or its Message-ID
    /// is that of an email we sent.
    pub(crate) async fn loop_reason(
        &self,
        inbox: &Inbox,
        parsed: &ParsedMail,
    ) -> Result<Option<&'static str>, StoreError> {
        let team = inbox.team;
        if self.has_our_loop_mark(team, parsed) {
            return Ok(Some("loop_mark"));
        }
        for from in parsed.from.iter().chain(&parsed.sender).take(2) {
            if self.inboxes.is_inbox_address(team, &from.address).await? {
                return Ok(Some("address"));
            }
        }
        let Some(message_id) = parsed.message_id.as_deref() else { return Ok(None) };
        Ok(self.outbound.email_by_message_id(team, message_id).await?.map(|_| "message_id"))
    }

    fn has_our_loop_mark(&self, team: TeamId, parsed: &ParsedMail) -> bool {
        let mark = self.ctx.loop_mark(team);
        let fields = parsed.headers.0.iter().filter(|field| field.name.eq_ignore_ascii_case(LOOP_HEADER));
        fields.into_iter().any(|field| bool::from(field.value.trim().as_bytes().ct_eq(mark.as_bytes())))
    }

    /// The email of ours that a mail answers: one to its sender, or one in the inbox's latest threads. The threads are
    /// searched because an automatic responder may use a new address each time, which must not start a new thread.
    pub(crate) async fn find_answered_email(
        &self,
        inbox: &Inbox,
        parsed: &ParsedMail,
    ) -> Result<Option<Email>, StoreError> {
        let ids: Vec<String> = thread::ancestors(parsed).into_iter().filter(|id| has_own_message_id_form(id)).collect();
        if ids.is_empty() {
            return Ok(None);
        }
        let from = parsed.from.first().and_then(|from| Address::parse(&from.address).ok());
        let to_sender = match from {
            Some(from) => self.find_email_to(inbox.team, from.as_str(), &ids).await?,
            None => None,
        };
        match to_sender {
            Some(email) => Ok(Some(email)),
            None => self.find_email_in_latest_threads(inbox, &ids).await,
        }
    }

    async fn find_email_in_latest_threads(&self, inbox: &Inbox, ids: &[String]) -> Result<Option<Email>, StoreError> {
        let query = ThreadQuery { inbox: Some(inbox.id), limit: THREAD_SCAN_LIMIT, ..ThreadQuery::default() };
        for thread in self.ctx.store.threads(inbox.team, query).await?.into_iter().filter(|one| one.details.emails > 0)
        {
            let emails = self.ctx.store.thread_emails(inbox.team, thread.id, None, EMAIL_SCAN_LIMIT).await?;
            for id in emails.into_iter().rev().take(EMAILS_PER_THREAD) {
                let email = self.ctx.store.email(inbox.team, id).await?;
                let answered = email.filter(|email| ids.contains(&self.ctx.message_id(email)));
                if answered.is_some() {
                    return Ok(answered);
                }
            }
        }
        Ok(None)
    }

    /// The latest email to an address whose Message-ID is among these.
    async fn find_email_to(&self, team: TeamId, to: &str, ids: &[String]) -> Result<Option<Email>, StoreError> {
        let since = Some(self.ctx.now().plus(-MAX_ANSWERED_AGE_MS));
        let query = EmailQuery { to: Some(to.to_owned()), since, limit: EMAIL_SCAN_LIMIT, ..EmailQuery::default() };
        let page = self.ctx.store.emails(team, query).await?;
        Ok(page.rows.into_iter().find(|email| ids.contains(&self.ctx.message_id(email))))
    }
}
