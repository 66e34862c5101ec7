//! Inboxes: addresses a team reads. Disposable or permanent.

pub mod artifact;
pub mod message;
pub mod watch;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::{
    conversation::caps::ReplyCaps,
    id::{InboxId, TeamId},
    time::Time,
};

/// An address that a team reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbox {
    /// Its id.
    pub id: InboxId,
    /// Whose it is.
    pub team: TeamId,
    /// Grows with each change.
    pub rev: u32,
    /// The bare address in the form of [`crate::address::Address`]. No two inboxes of an installation ever share one,
    /// not even after the first was removed: who writes to an old address must not reach a stranger.
    pub address: String,
    /// Makes its creation repeatable: unique in its team.
    pub client_id: Option<String>,
    /// When it was made.
    pub created_at: Time,
    /// The number of its latest message; 0 before the first.
    pub latest_seq: u64,
    /// What may change.
    pub settings: InboxSettings,
}

/// What may change about an inbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxSettings {
    /// The agent it is for, as people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The name beside its address in mail that it sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// From then on it refuses mail. Its history stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// Whether it takes mail for every address of its domain that has no inbox.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub catch_all: bool,
    /// Registrable domains whose links are allowed. None: links are judged by their sender.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub link_domains: Vec<String>,
    /// How many answers are too many here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caps: Option<ReplyCaps>,
    /// Whether mail that only looks automatic may be answered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub answers_soft: bool,
    /// Whether its answers say that a machine wrote them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub says_automatic: bool,
    /// The caller's own words.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// When somebody changed it last; none since it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Time>,
}

impl Inbox {
    /// Whether it takes mail.
    pub fn is_open(&self, now: Time) -> bool {
        self.settings.expires_at.is_none_or(|at| now < at)
    }

    /// When it was made, or changed since.
    pub fn updated_at(&self) -> Time {
        self.settings.changed_at.unwrap_or(self.created_at)
    }

    /// The names under which it is found: its address, and its domain's catch-all when it is that.
    pub fn lookup_addresses(&self) -> Vec<String> {
        let catch_all = self.settings.catch_all.then(|| catch_all_address(self.domain()));
        std::iter::once(self.address.clone()).chain(catch_all).collect()
    }

    /// The domain of its address.
    pub fn domain(&self) -> &str {
        self.address.rsplit_once('@').map_or("", |(_, domain)| domain)
    }
}

/// The name under which a domain's catch-all inbox is found.
pub fn catch_all_address(domain: &str) -> String {
    format!("*@{domain}")
}

/// The addresses under which a recipient's inbox may be found, the closest first: as it is, without its plus tag, the
/// domain's catch-all. `recipient` is in the form of [`crate::address::Address`].
pub fn candidate_addresses(recipient: &str) -> Vec<String> {
    let Some((local, domain)) = recipient.rsplit_once('@') else { return Vec::new() };
    let mut places = vec![recipient.to_owned()];
    if let Some((front, _)) = local.split_once('+').filter(|(front, _)| !front.is_empty()) {
        places.push(format!("{front}@{domain}"));
    }
    places.push(catch_all_address(domain));
    places
}

/// The answer to a wish for an inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum CreateInboxResult {
    /// It was made.
    Created(Inbox),
    /// The team made it before under the same `client_id`.
    AlreadyExists(Inbox),
    /// The address, or the domain's catch-all, is or was somebody's.
    AddressTaken,
}

/// A change of an inbox as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxEdit {
    /// Whose it is.
    pub team: TeamId,
    /// Which.
    pub id: InboxId,
    /// The rev that was seen.
    pub rev: u32,
    /// Its address from now on. Its old one stays taken and reaches nobody.
    pub address: String,
    /// What it is from now on.
    pub settings: InboxSettings,
}

/// What a change makes of an inbox and of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxEditPlan {
    /// What it becomes.
    pub inbox: Inbox,
    /// Names that it takes. Each must be free, or have been its own.
    pub claimed_addresses: Vec<String>,
    /// The address it gives up, which reaches nobody from now on and stays taken.
    pub retired_address: Option<String>,
    /// The catch-all it gives up, which others may take.
    pub freed_catch_all: Option<String>,
}

impl InboxEdit {
    /// What it makes of the inbox that was seen.
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

/// The answer to a change of an inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum InboxChangeResult {
    /// What it became.
    Changed(Inbox),
    /// It changed since it was looked at; this is what it is.
    Stale(Inbox),
    /// The address, or the domain's catch-all, is or was somebody's.
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
