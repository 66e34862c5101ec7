//! Allow and block lists: from whom mail is accepted and to whom it may be sent, for a team or for one inbox.
//!
//! The list of the inbox takes precedence over that of the team. Within a list an address takes precedence over a
//! domain. Where an allow list has entries, all others are refused.

use serde::{Deserialize, Serialize};

use crate::{address::Address, id::InboxId, string_enum::string_enum, time::Time};

string_enum! {
    /// Which mail a list applies to.
    ListDirection {
        /// Sent email.
        Send = "send",
        /// Received mail that replies to none of our emails.
        Receive = "receive",
        /// Received mail that replies to one of our emails.
        Reply = "reply",
    }
}

string_enum! {
    /// The type of a list.
    ListType {
        /// Only these are allowed.
        Allow = "allow",
        /// These are blocked.
        Block = "block",
    }
}

/// The identity of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListName {
    /// The inbox, by id and address. `None`: the whole team.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox: Option<(InboxId, String)>,
    /// Which mail it applies to.
    pub direction: ListDirection,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: ListType,
}

/// An entry of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEntry {
    /// The list.
    pub list: ListName,
    /// An address or a domain, lower-cased.
    pub entry: String,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was created.
    pub created_at: Time,
    /// For allow lists of received mail: whether the sender must be authenticated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_auth: bool,
}

impl ListName {
    /// The record name of an entry, unique in its team.
    pub fn record_name(&self, entry: &str) -> String {
        let scope = self.inbox.as_ref().map_or_else(|| "team".to_owned(), |(id, _)| id.to_string());
        format!("{scope}/{}/{}/{entry}", self.direction.as_str(), self.kind.as_str())
    }
}

impl ListEntry {
    /// Whether it is an address rather than a domain.
    pub fn is_address(&self) -> bool {
        self.entry.contains('@')
    }

    fn matches(&self, address: &str, authenticated: bool) -> bool {
        if self.require_auth && !authenticated {
            return false;
        }
        if self.is_address() {
            return self.entry == address;
        }
        address.rsplit_once('@').is_some_and(|(_, domain)| domain == self.entry)
    }
}

/// Normalizes an address or a domain. `None` when it is neither.
pub fn normalize_entry(text: &str) -> Option<String> {
    let text = text.trim();
    if text.contains('@') {
        return Address::parse(text).ok().map(|address| address.as_str().to_owned());
    }
    let address = Address::parse(&format!("x@{text}")).ok()?;
    Some(address.domain().to_owned())
}

/// Why the lists refuse mail from or to an address; `None` when they do not. Senders get the text. Refused received
/// mail stores only `DeliverySuppression::Blocked`. `authenticated`: whether the sender is authenticated.
pub fn list_refusal(
    entries: &[ListEntry],
    direction: ListDirection,
    is_inbox: impl Fn(&(InboxId, String)) -> bool,
    (address, authenticated): (&str, bool),
) -> Option<String> {
    for narrow in [true, false] {
        let here = |entry: &&ListEntry| {
            entry.list.direction == direction
                && match &entry.list.inbox {
                    Some(inbox) => narrow && is_inbox(inbox),
                    None => !narrow,
                }
        };
        let here: Vec<&ListEntry> = entries.iter().filter(here).collect();
        for by_address in [true, false] {
            let named =
                here.iter().filter(|entry| entry.is_address() == by_address && entry.matches(address, authenticated));
            let mut kinds = named.map(|entry| entry.list.kind);
            if kinds.clone().any(|kind| kind == ListType::Block) {
                return Some(format!("{address} is on the {} block list", direction.as_str()));
            }
            if kinds.next().is_some() {
                return None;
            }
        }
        if here.iter().any(|entry| entry.list.kind == ListType::Allow) {
            return Some(format!("{address} is not on the {} allow list", direction.as_str()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn entry(inbox: Option<u128>, kind: ListType, entry: &str) -> ListEntry {
        let inbox = inbox.map(|id| (InboxId(Uuid::from_u128(id)), format!("i{id}@x.test")));
        let list = ListName { inbox, direction: ListDirection::Receive, kind };
        ListEntry { list, entry: entry.into(), reason: None, created_at: Time(0), require_auth: false }
    }

    fn passes(entries: &[ListEntry], inbox: u128, address: &str) -> bool {
        let is_inbox = |(id, _): &(InboxId, String)| id.0.as_u128() == inbox;
        list_refusal(entries, ListDirection::Receive, is_inbox, (address, false)).is_none()
    }

    #[test]
    fn without_lists_everybody_passes() {
        assert!(passes(&[], 1, "ann@a.test"));
        assert!(
            list_refusal(&[entry(None, ListType::Block, "a.test")], ListDirection::Send, |_| true, ("x@a.test", true))
                .is_none()
        );
    }

    #[test]
    fn an_address_counts_more_than_its_domain() {
        let lists = [entry(None, ListType::Block, "a.test"), entry(None, ListType::Allow, "ann@a.test")];
        assert!(passes(&lists, 1, "ann@a.test"));
        assert!(!passes(&lists, 1, "bob@a.test"));
        // The allow list has an entry, so all others are refused.
        assert!(!passes(&lists, 1, "cy@c.test"));
    }

    #[test]
    fn the_list_of_an_inbox_comes_before_that_of_the_team() {
        let lists = [entry(None, ListType::Block, "a.test"), entry(Some(1), ListType::Allow, "a.test")];
        assert!(passes(&lists, 1, "ann@a.test"));
        assert!(!passes(&lists, 2, "ann@a.test"));
        assert!(passes(&lists, 2, "bob@b.test"));
        assert!(!passes(&lists, 1, "bob@b.test"));
    }

    #[test]
    fn an_entry_may_want_proof_of_the_sender() {
        let lists = [ListEntry { require_auth: true, ..entry(None, ListType::Allow, "a.test") }];
        let passes = |authenticated| {
            list_refusal(&lists, ListDirection::Receive, |_| true, ("ann@a.test", authenticated)).is_none()
        };
        assert!(passes(true) && !passes(false));
    }

    #[test]
    fn entries_are_addresses_or_domains() {
        assert_eq!(normalize_entry(" Ann@A.test ").as_deref(), Some("ann@a.test"));
        assert_eq!(normalize_entry("A.Test").as_deref(), Some("a.test"));
        for bad in ["", "@", "a b", "a@b@c", "@a.test"] {
            assert_eq!(normalize_entry(bad), None, "{bad}");
        }
    }
}
