//! Inboxes: addresses at which a team receives mail, disposable or permanent.

pub mod artifact;
pub mod message;
pub mod progress;
pub mod watch;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::{
    control::erasure::AddressEraser,
    conversation::caps::ReplyCaps,
    id::{InboxId, TeamId},
    time::Time,
};

/// An address at which a team receives mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbox {
    /// Its id.
    pub id: InboxId,
    /// Its team.
    pub team: TeamId,
    /// The revision. Each change increases it.
    pub rev: u32,
    /// The bare address, normalized like [`crate::address::Address`]. Addresses are never reused in an installation,
    /// not even after an inbox was removed: mail to an old address must not reach another owner.
    pub address: String,
    /// Makes its creation idempotent. Unique in its team.
    pub client_id: Option<String>,
    /// When it was created.
    pub created_at: Time,
    /// The number of its latest message; 0 before the first.
    pub latest_seq: u64,
    /// Its editable settings.
    pub settings: InboxSettings,
}

/// The editable settings of an inbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxSettings {
    /// The display name of its agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The display name in mail that it sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it expires. From then on it refuses mail; its history stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// Whether it receives mail for every address of its domain that has no inbox.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub catch_all: bool,
    /// Registrable domains whose links are allowed. When empty, links are judged by their sender.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_link_domains: Vec<String>,
    /// The limits on its replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caps: Option<ReplyCaps>,
    /// Whether replies to mail that only looks automatic are allowed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reply_to_likely_automatic: bool,
    /// Whether its replies are marked as automatic.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mark_auto_submitted: bool,
    /// How long it keeps mail, if not as long as its team.
    #[serde(default, skip_serializing_if = "InboxRetention::is_empty")]
    pub retention: InboxRetention,
    /// The caller's metadata.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// When it was last changed. `None` when it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Time>,
}

/// How long an inbox keeps mail. It can shorten what its team set, and never lengthen it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxRetention {
    /// The bytes of received mail, in milliseconds. `None`: as long as the team keeps them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_ms: Option<i64>,
}

impl InboxRetention {
    /// Whether it sets nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// How long the bytes of received mail are kept in a team that keeps them for `team_ms`: the shorter time of both.
    /// `None`: for ever.
    pub fn shortest_raw_ms(self, team_ms: Option<i64>) -> Option<i64> {
        self.raw_ms.into_iter().chain(team_ms).min()
    }
}

impl InboxSettings {
    /// Replaces a person's address in names and metadata. Returns whether it was in one.
    pub fn redact(&mut self, eraser: &AddressEraser) -> bool {
        let names = self.agent.iter_mut().chain(&mut self.name);
        eraser.redact_all(names.chain(self.metadata.values_mut()))
    }
}

impl Inbox {
    /// Whether it accepts mail.
    pub fn is_open(&self, now: Time) -> bool {
        self.settings.expires_at.is_none_or(|at| now < at)
    }

    /// When it was created or last changed.
    pub fn updated_at(&self) -> Time {
        self.settings.changed_at.unwrap_or(self.created_at)
    }

    /// The addresses under which it is found: its own, and that of its domain's catch-all if it is one.
    pub fn lookup_addresses(&self) -> Vec<String> {
        let catch_all = self.settings.catch_all.then(|| catch_all_address(self.domain()));
        std::iter::once(self.address.clone()).chain(catch_all).collect()
    }

    /// The domain of its address.
    pub fn domain(&self) -> &str {
        self.address.rsplit_once('@').map_or("", |(_, domain)| domain)
    }
}

/// The address under which a domain's catch-all inbox is found.
pub fn catch_all_address(domain: &str) -> String {
    format!("*@{domain}")
}

/// The addresses under which a recipient's inbox may be found, the closest first: exact, without the plus tag, the
/// domain's catch-all. `recipient` is normalized like [`crate::address::Address`].
pub fn candidate_addresses(recipient: &str) -> Vec<String> {
    let Some((local, domain)) = recipient.rsplit_once('@') else { return Vec::new() };
    let mut places = vec![recipient.to_owned()];
    if let Some((front, _)) = local.split_once('+').filter(|(front, _)| !front.is_empty()) {
        places.push(format!("{front}@{domain}"));
    }
    places.push(catch_all_address(domain));
    places
}

/// The result of creating an inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum CreateInboxResult {
    /// It was created.
    Created(Inbox),
    /// The team created it before with the same `client_id`.
    AlreadyExists(Inbox),
    /// The address, or the domain's catch-all, is or was taken.
    AddressTaken,
}

/// A change of an inbox, based on a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxEdit {
    /// Its team.
    pub team: TeamId,
    /// The inbox.
    pub id: InboxId,
    /// The revision that the caller saw.
    pub rev: u32,
    /// The new address. The old one stays reserved and receives no mail.
    pub address: String,
    /// The new settings.
    pub settings: InboxSettings,
}

/// The effect of a change on an inbox and its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxEditPlan {
    /// The inbox after the change.
    pub inbox: Inbox,
    /// The addresses that it takes. Each must be free, or have been its own.
    pub claimed_addresses: Vec<String>,
    /// The address that it gives up. It stays reserved and receives no mail.
    pub retired_address: Option<String>,
    /// The catch-all that it gives up. Other inboxes may take it.
    pub freed_catch_all: Option<String>,
}

impl InboxEdit {
    /// The effect of this change on the inbox.
    pub fn plan_for(self, inbox: &Inbox) -> InboxEditPlan {
        let (before, retired) = (inbox.lookup_addresses(), inbox.address.clone());
        let edited = Inbox { rev: inbox.rev + 1, address: self.address, settings: self.settings, ..inbox.clone() };
        let after = edited.lookup_addresses();
        let gone = |name: &String| !after.contains(name);
        InboxEditPlan {
            claimed_addresses: after.iter().filter(|name| !before.contains(name)).cloned().collect(),
            retired_address: Some(retired).filter(gone),
            freed_catch_all: before.get(1).cloned().filter(gone),
            inbox: edited,
        }
    }
}

/// The result of changing an inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum InboxChangeResult {
    /// The inbox after the change.
    Changed(Inbox),
    /// It changed since the caller read it; this is its current state.
    Stale(Inbox),
    /// The address, or the domain's catch-all, is or was taken.
    AddressTaken,
    /// No such inbox in this team.
    Missing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipient_is_looked_for_as_it_is_then_without_its_tag_then_at_its_domain() {
        assert_eq!(candidate_addresses("a+x+y@d.test"), ["a+x+y@d.test", "a@d.test", "*@d.test"]);
        assert_eq!(candidate_addresses("a@d.test"), ["a@d.test", "*@d.test"]);
        assert_eq!(candidate_addresses("+x@d.test"), ["+x@d.test", "*@d.test"]);
        assert!(candidate_addresses("nobody").is_empty());
    }

    #[test]
    fn an_inbox_keeps_mail_no_longer_than_its_team() {
        for (own, team, kept) in [
            (None, None, None),
            (Some(2), None, Some(2)),
            (None, Some(3), Some(3)),
            (Some(2), Some(3), Some(2)),
            (Some(4), Some(3), Some(3)),
        ] {
            assert_eq!(InboxRetention { raw_ms: own }.shortest_raw_ms(team), kept, "{own:?} {team:?}");
        }
    }

    #[test]
    fn a_change_takes_retires_and_frees_names() {
        let about = |catch_all| InboxSettings { catch_all, ..InboxSettings::default() };
        let inbox = Inbox {
            id: InboxId(uuid::Uuid::from_u128(1)),
            team: TeamId(uuid::Uuid::from_u128(2)),
            rev: 3,
            address: "a@d.test".into(),
            client_id: None,
            created_at: Time(0),
            latest_seq: 5,
            settings: about(true),
        };
        let edit = |address: &str, catch_all| {
            let address = address.to_owned();
            InboxEdit { team: inbox.team, id: inbox.id, rev: 3, address, settings: about(catch_all) }.plan_for(&inbox)
        };
        let (retired, freed) = (Some("a@d.test".to_owned()), Some("*@d.test".to_owned()));
        let moved = edit("b@e.test", true);
        assert_eq!(moved.claimed_addresses, ["b@e.test", "*@e.test"]);
        assert_eq!((moved.retired_address, moved.freed_catch_all), (retired.clone(), freed.clone()));
        assert_eq!((moved.inbox.rev, moved.inbox.latest_seq), (4, 5));
        let renamed = edit("b@d.test", true);
        assert_eq!(
            (renamed.claimed_addresses, renamed.retired_address, renamed.freed_catch_all),
            (vec!["b@d.test".into()], retired, None)
        );
        let closed = edit("a@d.test", false);
        assert_eq!((closed.claimed_addresses, closed.retired_address, closed.freed_catch_all), (vec![], None, freed));
    }
}
