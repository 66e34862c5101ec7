//! Facts about an outgoing email that rules can test and that need the store: new recipients, recipients outside the
//! team's domains, the first email of a sender. A fact is looked up only if an enabled rule uses it.

use crate::control::Control;
use mailonce_core::{
    control::{
        contact::ContactHash,
        erasure::alias_of,
        rule::{Rule, RuleDirection, RuleField, RuleFlag},
    },
    id::TeamId,
    outbound::{
        content::EmailContent,
        email::{Email, EmailState},
        email_query::EmailQuery,
    },
    ports::store::StoreError,
    record::RecordKind,
};

/// How many emails are searched for one from the same sender. Without a match the email counts as the first. That is
/// the safe side: at worst a person approves once too often.
const SCAN_LIMIT: usize = 1_000;
/// How many emails are read per query.
const PAGE_SIZE: usize = 100;

fn was_sent(email: &Email) -> bool {
    matches!(
        email.state(),
        EmailState::Sent | EmailState::Delivered | EmailState::Bounced | EmailState::Complained | EmailState::Unknown
    )
}

/// Whether an email left, or may leave without a person's decision.
fn may_have_left(email: &Email) -> bool {
    !matches!(email.state(), EmailState::Held | EmailState::Cancelled | EmailState::Failed)
}

impl Control {
    /// The flags that these rules test, with their values for an email.
    pub(crate) async fn outbound_flags(
        &self,
        team: TeamId,
        rules: &[Rule],
        content: &EmailContent,
    ) -> Result<Vec<(RuleFlag, bool)>, StoreError> {
        let outbound =
            rules.iter().filter(|rule| rule.definition.enabled && rule.definition.direction == RuleDirection::Outbound);
        let fields: Vec<&RuleField> =
            outbound.flat_map(|rule| &rule.definition.conditions).map(|condition| &condition.field).collect();
        let mut flags = Vec::new();
        for flag in RuleFlag::ALL.iter().copied().filter(|flag| fields.contains(&&RuleField::Flag(*flag))) {
            let is_set = match flag {
                RuleFlag::Attachments => !content.attachments.is_empty(),
                RuleFlag::NewRecipient => self.has_new_recipient(team, content).await?,
                RuleFlag::OutsideRecipient => self.has_outside_recipient(team, content).await?,
                RuleFlag::First => self.is_first_email_of_sender(team, content.from.to_address().as_str()).await?,
            };
            flags.push((flag, is_set));
        }
        Ok(flags)
    }

    pub(crate) async fn has_new_recipient(&self, team: TeamId, content: &EmailContent) -> Result<bool, StoreError> {
        let recipients = [&content.to, &content.cc, &content.bcc].into_iter().flatten();
        let addresses: Vec<String> = recipients.map(|mailbox| mailbox.to_address().into()).collect();
        Ok(self.new_recipients(team, &addresses).await?.contains(&true))
    }

    /// For each of these addresses, whether the team never mailed it. Email that waits does not count as mailed: it may
    /// be cancelled.
    pub(crate) async fn new_recipients(&self, team: TeamId, addresses: &[String]) -> Result<Vec<bool>, StoreError> {
        let hash = |address: &String| ContactHash::of(&self.ctx.secret, team, address);
        let known = self.ctx.store.known_contacts(team, addresses.iter().map(hash).collect()).await?;
        let mut are_new: Vec<bool> = known.into_iter().map(|is_known| !is_known).collect();
        // The sandbox writes no markers, and so no contacts.
        if self.ctx.transports.is_sandbox_only() {
            for (address, is_new) in addresses.iter().zip(&mut are_new).filter(|(_, is_new)| **is_new) {
                *is_new = !self.was_mailed(team, address).await?;
            }
        }
        Ok(are_new)
    }

    /// Whether an email to this address was sent. Those from before an erasure of the person have the alias instead.
    async fn was_mailed(&self, team: TeamId, address: &str) -> Result<bool, StoreError> {
        for to in [address.to_owned(), alias_of(&self.ctx.secret, team, address)] {
            let query = EmailQuery { to: Some(to), limit: PAGE_SIZE, ..EmailQuery::default() };
            if self.ctx.store.emails(team, query).await?.rows.iter().any(was_sent) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a recipient's domain is neither the sender's, nor this installation's, nor one of the team's.
    async fn has_outside_recipient(&self, team: TeamId, content: &EmailContent) -> Result<bool, StoreError> {
        let from = content.from.to_address();
        for mailbox in [&content.to, &content.cc, &content.bcc].into_iter().flatten() {
            let address = mailbox.to_address();
            let domain = address.domain();
            if domain == from.domain() || self.ctx.inbound.local_domains.iter().any(|own| own == domain) {
                continue;
            }
            if self.ctx.store.record_by_name(team, RecordKind::Domain, domain).await?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn is_first_email_of_sender(&self, team: TeamId, from: &str) -> Result<bool, StoreError> {
        let mut before = None;
        for _ in 0..SCAN_LIMIT / PAGE_SIZE {
            let query = EmailQuery { before, limit: PAGE_SIZE, ..EmailQuery::default() };
            let page = self.ctx.store.emails(team, query).await?;
            if page.rows.iter().any(|email| email.head.from == from && may_have_left(email)) {
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
