//! Finds a team's emails by their Message-ID. The id is an HMAC and cannot be reversed, so a cache of recently used ids
//! is tried first, then the latest 10,000 emails.

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

/// Most Message-IDs in the cache. A full cache is cleared.
const CACHE_CAPACITY: usize = 65_536;

/// The emails of recently used Message-IDs. A Message-ID is an HMAC, so the email cannot be derived from it.
#[derive(Default)]
pub(crate) struct MessageIdCache(Mutex<HashMap<(TeamId, String), EmailId>>);

impl MessageIdCache {
    pub(crate) fn get(&self, team: TeamId, message_id: &str) -> Option<EmailId> {
        let ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ids.get(&(team, message_id.to_owned())).copied()
    }

    fn insert(&self, team: TeamId, message_id: &str, id: EmailId) {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ids.len() >= CACHE_CAPACITY {
            ids.clear();
        }
        ids.insert((team, message_id.to_owned()), id);
    }
}

/// How many of a team's latest emails are scanned for a Message-ID.
const TEAM_SCAN_LIMIT: usize = 10_000;
/// Emails per page of that scan.
const PAGE_SIZE: usize = 500;

/// Characters before the `@` in a Message-ID that mailonce generates.
const OWN_ID_LENGTH: usize = 28;

/// Whether mailonce may have generated a Message-ID. Others need no scan.
pub(crate) fn has_own_message_id_form(message_id: &str) -> bool {
    let local = message_id.trim_start_matches('<').split('@').next().unwrap_or_default();
    local.len() == OWN_ID_LENGTH && local.bytes().all(|byte| byte.is_ascii_lowercase() || (b'2'..=b'7').contains(&byte))
}

/// Whether a Message-ID can belong to an email from this address, because both have the same domain.
pub(crate) fn is_same_domain(message_id: &str, from: &str) -> bool {
    let domain = |text: &str| text.rsplit_once('@').map(|(_, domain)| domain.trim_end_matches('>').to_owned());
    domain(from)
        .is_none_or(|domain_of_sender| domain(message_id).is_some_and(|domain_of_id| domain_of_id == domain_of_sender))
}

impl Outbound {
    /// The email of a team with this Message-ID, from the cache or by a scan of the latest emails. `None` for a
    /// Message-ID that mailonce cannot have generated.
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
        let has_id =
            |email: &Email| is_same_domain(message_id, &email.head.from) && self.cache_message_id(email) == message_id;
        let mut before = None;
        for _ in 0..TEAM_SCAN_LIMIT / PAGE_SIZE {
            let query = EmailQuery { before, limit: PAGE_SIZE, ..EmailQuery::default() };
            let page = self.ctx.store.emails(team, query).await?;
            before = page.next;
            if let Some(email) = page.rows.into_iter().find(has_id) {
                return Ok(Some(email));
            }
            if before.is_none() {
                break;
            }
        }
        Ok(None)
    }

    /// The Message-ID of an email. Caches it, so that the email is found by it later.
    pub fn cache_message_id(&self, email: &Email) -> String {
        let message_id = self.ctx.message_id(email);
        self.message_ids.insert(email.team, &message_id, email.id);
        message_id
    }

    /// Caches which email has a Message-ID.
    pub fn remember_message_id(&self, team: TeamId, message_id: &str, id: EmailId) {
        self.message_ids.insert(team, message_id, id);
    }

    pub(crate) async fn cached_email_by_message_id(
        &self,
        caller: &Caller,
        inbox: &Inbox,
        message_id: &str,
    ) -> Result<Option<Email>, Problem> {
        let Some(id) = self.message_ids.get(caller.team.id, message_id) else { return Ok(None) };
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
