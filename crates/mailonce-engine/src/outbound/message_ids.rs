//! Finds sent emails by their Message-ID. Ids are derived from a secret, so recent ones are cached and others scanned.

use crate::{access::caller::Caller, outbound::Outbound, runtime::problems::unavailable};
use mailonce_core::{
    id::{EmailId, TeamId},
    inbox::Inbox,
    outbound::{email::Email, email_query::EmailQuery},
    ports::store::StoreError,
    problem::Problem,
};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};
/// Message-IDs of emails that are kept at hand.
const CACHE_CAPACITY: usize = 65_536;

/// Emails by their Message-IDs, as far as this process has seen them: those follow from a secret and cannot be read
/// backwards.
#[derive(Default)]
pub(crate) struct MessageIdCache(Mutex<HashMap<(TeamId, String), EmailId>>);

impl MessageIdCache {
    pub(crate) fn get(&self, team: TeamId, message_id: &str) -> Option<EmailId> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.get(&(team, message_id.to_owned())).copied()
    }

    fn insert(&self, team: TeamId, message_id: &str, id: EmailId) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= CACHE_CAPACITY {
            names.clear();
        }
        names.insert((team, message_id.to_owned()), id);
    }
}

/// The latest emails of a team that are looked through for a Message-ID, and how many at a time.
const TEAM_SCAN_LIMIT: usize = 10_000;
/// Emails read at a time.
const PAGE_SIZE: usize = 500;

/// Letters of a Message-ID of ours before its `@`.
const OWN_ID_LENGTH: usize = 28;

/// Whether a Message-ID has the form of ours, so that it is worth to look for it.
pub(crate) fn has_own_message_id_form(message_id: &str) -> bool {
    let local = message_id.trim_start_matches('<').split('@').next().unwrap_or_default();
    local.len() == OWN_ID_LENGTH && local.bytes().all(|byte| byte.is_ascii_lowercase() || (b'2'..=b'7').contains(&byte))
}

/// Whether a Message-ID can be that of an email from this address: it ends with the same domain.
pub(crate) fn is_same_domain(message_id: &str, from: &str) -> bool {
    let domain = |text: &str| text.rsplit_once('@').map(|(_, domain)| domain.trim_end_matches('>').to_owned());
    domain(from).is_none_or(|of| domain(message_id).is_some_and(|named| named == of))
}

impl Outbound {
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
            && let Some(email) = self.ctx.store.email(team, id).await?
        {
            return Ok(Some(email));
        }
        let named =
            |email: &Email| is_same_domain(message_id, &email.head.from) && self.cache_message_id(email) == message_id;
        let mut before = None;
        for _ in 0..TEAM_SCAN_LIMIT / PAGE_SIZE {
            let query = EmailQuery { before, limit: PAGE_SIZE, ..EmailQuery::default() };
            let page = self.ctx.store.emails(team, query).await?;
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

    /// The Message-ID of an email, kept at hand so that the email is found by it again.
    pub fn cache_message_id(&self, email: &Email) -> String {
        let message_id = self.ctx.message_id(email);
        self.message_ids.insert(email.team, &message_id, email.id);
        message_id
    }

    /// Keeps at hand which email has a Message-ID.
    pub fn remember_message_id(&self, team: TeamId, message_id: &str, id: EmailId) {
        self.message_ids.insert(team, message_id, id);
    }

    pub(crate) async fn cached_email_by_message_id(
        &self,
        caller: &Caller,
        inbox: &Inbox,
        name: &str,
    ) -> Result<Option<Email>, Problem> {
        let Some(id) = self.message_ids.get(caller.team.id, name) else { return Ok(None) };
        let email = self.ctx.store.email(caller.team.id, id).await.map_err(unavailable)?;
        Ok(email.filter(|email| email.head.from == inbox.address))
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
