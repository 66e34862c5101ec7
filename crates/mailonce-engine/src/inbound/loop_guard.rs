//! Our own mail when it comes round, and the email of ours that a mail answers.

use mailonce_core::{
    address::Address,
    conversation::thread::ThreadQuery,
    id::TeamId,
    inbox::{self, Inbox},
    outbound::{email::Email, email_query::EmailQuery},
    ports::store::StoreError,
};
use mailonce_mail::{compose::LOOP_HEADER, parse::ParsedMail, thread};
use subtle::ConstantTimeEq as _;

use crate::Engine;

/// The latest emails of a team that are looked through for a Message-ID, and how many at a time.
const TEAM_SCAN_LIMIT: usize = 10_000;
const PAGE_SIZE: usize = 500;
/// Emails that are looked through for the one that a mail answers.
const EMAIL_SCAN_LIMIT: usize = 100;
/// Emails older than this are not looked for, in milliseconds.
const MAX_ANSWERED_AGE_MS: i64 = 60 * 86_400_000;
/// Threads of an inbox, and emails of each, that are looked through when the sender is not known: the latest.
const THREAD_SCAN_LIMIT: usize = 50;
const EMAILS_PER_THREAD: usize = 5;
/// Letters of a Message-ID of ours before its `@`.
const OWN_ID_LENGTH: usize = 28;

/// Whether a Message-ID has the form of ours, so that it is worth to look for it.
pub(crate) fn has_own_message_id_form(message_id: &str) -> bool {
    let local = message_id.trim_start_matches('<').split('@').next().unwrap_or_default();
    local.len() == OWN_ID_LENGTH && local.bytes().all(|byte| byte.is_ascii_lowercase() || (b'2'..=b'7').contains(&byte))
}

/// Whether a Message-ID can be that of an email from this address: it ends with the same domain.
fn is_same_domain(message_id: &str, from: &str) -> bool {
    let domain = |text: &str| text.rsplit_once('@').map(|(_, domain)| domain.trim_end_matches('>').to_owned());
    domain(from).is_none_or(|of| domain(message_id).is_some_and(|named| named == of))
}

impl Engine {
    /// Why a mail counts as our own: its sender is an inbox of the team, it carries our mark, or it is a mail of ours.
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
            if self.is_inbox_address(team, &from.address).await? {
                return Ok(Some("address"));
            }
        }
        let Some(message_id) = parsed.message_id.as_deref() else { return Ok(None) };
        Ok(self.email_by_message_id(team, message_id).await?.map(|_| "message_id"))
    }

    fn has_our_loop_mark(&self, team: TeamId, parsed: &ParsedMail) -> bool {
        let mark = self.loop_mark(team);
        let fields = parsed.headers.0.iter().filter(|field| field.name.eq_ignore_ascii_case(LOOP_HEADER));
        fields.into_iter().any(|field| bool::from(field.value.trim().as_bytes().ct_eq(mark.as_bytes())))
    }

    /// Whether an address is or was that of an inbox of a team, its plus tag apart.
    pub(crate) async fn is_inbox_address(&self, team: TeamId, address: &str) -> Result<bool, StoreError> {
        let Ok(address) = Address::parse(address) else { return Ok(false) };
        let mut places = inbox::candidate_addresses(address.as_str());
        // A catch-all takes mail for addresses that are nobody's; that makes them not ours.
        places.pop();
        Ok(self.store.team_by_address(&places).await? == Some(team))
    }

    /// The email of ours that a mail answers: one to its sender, or one of the latest threads. A robot may write from
    /// another address each time, and must not begin a conversation anew by that.
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
        for thread in self.store.threads(inbox.team, query).await?.into_iter().filter(|one| one.details.emails > 0) {
            let emails = self.store.thread_emails(inbox.team, thread.id, None, EMAIL_SCAN_LIMIT).await?;
            for id in emails.into_iter().rev().take(EMAILS_PER_THREAD) {
                let email = self.store.email(inbox.team, id).await?;
                let answered = email.filter(|email| ids.contains(&self.message_id(email)));
                if answered.is_some() {
                    return Ok(answered);
                }
            }
        }
        Ok(None)
    }

    /// The latest email to an address whose Message-ID is among these.
    async fn find_email_to(&self, team: TeamId, to: &str, ids: &[String]) -> Result<Option<Email>, StoreError> {
        let since = Some(self.now().plus(-MAX_ANSWERED_AGE_MS));
        let query = EmailQuery { to: Some(to.to_owned()), since, limit: EMAIL_SCAN_LIMIT, ..EmailQuery::default() };
        let page = self.store.emails(team, query).await?;
        Ok(page.rows.into_iter().find(|email| ids.contains(&self.message_id(email))))
    }

    /// The email of a team that has this Message-ID, whoever it went to. It follows from a secret and cannot be read
    /// backwards, so the latest are looked through; for one that has not the form of ours, none.
    pub(crate) async fn email_by_message_id(
        &self,
        team: TeamId,
        message_id: &str,
    ) -> Result<Option<Email>, StoreError> {
        if !has_own_message_id_form(message_id) {
            return Ok(None);
        }
        if let Some(id) = self.message_ids.get(team, message_id)
            && let Some(email) = self.store.email(team, id).await?
        {
            return Ok(Some(email));
        }
        let named =
            |email: &Email| is_same_domain(message_id, &email.head.from) && self.cache_message_id(email) == message_id;
        let mut before = None;
        for _ in 0..TEAM_SCAN_LIMIT / PAGE_SIZE {
            let query = EmailQuery { before, limit: PAGE_SIZE, ..EmailQuery::default() };
            let page = self.store.emails(team, query).await?;
            before = page.next;
            if let Some(email) = page.rows.into_iter().find(named) {
                return Ok(Some(email));
            }
            if before.is_none() {
                break;
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::{id::EmailId, key::InstallSecret};
    use uuid::Uuid;

    #[test]
    fn our_own_message_ids_have_their_form() {
        let (team, id) = (TeamId(Uuid::from_u128(1)), EmailId(Uuid::from_u128(2)));
        assert!(has_own_message_id_form(&InstallSecret([3; 32]).message_id(team, id, None, "x.test")));
        for other in ["<CAF=abc123@mail.gmail.com>", "<>", "", "<0193a1b2-c3d4-7e5f-8a6b-0c1d@x.test>"] {
            assert!(!has_own_message_id_form(other), "{other}");
        }
    }

    #[test]
    fn a_message_id_names_no_email_from_another_domain() {
        assert!(is_same_domain("<x@a.test>", "me@a.test"));
        assert!(!is_same_domain("<x@a.test>", "me@b.test"));
        assert!(!is_same_domain("<x@a.test>", "me@sub.a.test"));
    }
}
