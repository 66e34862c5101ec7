//! What rules may ask about a mail that goes out and only the ledger knows: new people, outside domains, first mails.
//! Looked up only for rules that ask.

use mailonce_core::{
    content::Content,
    email::{Email, EmailState},
    id::TeamId,
    port::store::{EmailQuery, StoreError},
    record::RecordKind,
    rule::{Direction, Field, Flag, Rule},
};

use crate::Engine;

/// Emails that are looked through for one from the same address. When none is among them it counts as the first:
/// then a person looks once too often.
const LOOKED_AT: usize = 1_000;
const PAGE: usize = 100;

fn was_meant(email: &Email) -> bool {
    !matches!(email.state(), EmailState::Held | EmailState::Cancelled)
}

impl Engine {
    /// What these rules ask about a mail.
    pub(crate) async fn outbound_flags(
        &self,
        team: TeamId,
        rules: &[Rule],
        content: &Content,
    ) -> Result<Vec<(Flag, bool)>, StoreError> {
        let outbound = rules.iter().filter(|rule| rule.about.enabled && rule.about.direction == Direction::Outbound);
        let asked: Vec<&Field> = outbound.flat_map(|rule| &rule.about.conditions).map(|one| &one.field).collect();
        let mut flags = Vec::new();
        for flag in Flag::ALL.iter().copied().filter(|flag| asked.contains(&&Field::Flag(*flag))) {
            let is = match flag {
                Flag::Attachments => !content.attachments.is_empty(),
                Flag::NewRecipient => self.has_new_recipient(team, content).await?,
                Flag::OutsideRecipient => self.has_outside_recipient(team, content).await?,
                Flag::First => self.is_first_from(team, content.from.bare().as_str()).await?,
            };
            flags.push((flag, is));
        }
        Ok(flags)
    }

    async fn has_new_recipient(&self, team: TeamId, content: &Content) -> Result<bool, StoreError> {
        for mailbox in [&content.to, &content.cc, &content.bcc].into_iter().flatten() {
            let to = Some(mailbox.bare().as_str().to_owned());
            let query = EmailQuery { to, limit: PAGE, ..EmailQuery::default() };
            if !self.store.emails(team, query).await?.rows.iter().any(was_meant) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether somebody is at a domain that is neither the sender's, nor this installation's, nor one of the team's.
    async fn has_outside_recipient(&self, team: TeamId, content: &Content) -> Result<bool, StoreError> {
        let from = content.from.bare();
        for mailbox in [&content.to, &content.cc, &content.bcc].into_iter().flatten() {
            let address = mailbox.bare();
            let domain = address.domain();
            if domain == from.domain() || self.inbound.domains.iter().any(|own| own == domain) {
                continue;
            }
            if self.store.record_named(team, RecordKind::Domain, domain).await?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn is_first_from(&self, team: TeamId, from: &str) -> Result<bool, StoreError> {
        let mut before = None;
        for _ in 0..LOOKED_AT / PAGE {
            let query = EmailQuery { before, limit: PAGE, ..EmailQuery::default() };
            let page = self.store.emails(team, query).await?;
            if page.rows.iter().any(|email| email.head.from == from && was_meant(email)) {
                return Ok(false);
            }
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        Ok(true)
    }
}
