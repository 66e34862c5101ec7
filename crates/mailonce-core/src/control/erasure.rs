//! Erasure: a person's address, names and mail are removed, and what keeps "once" and "do not mail" true stays as
//! keyed hashes.
//!
//! An erased address is replaced by an alias, an HMAC under the installation's secret. The same address has the same
//! alias in a team, so a suppression or a rule still applies to it, and nobody can compute the address from it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    address::NamedAddress,
    id::{ApiKeyId, ClaimId, EmailId, TeamId},
    key::InstallSecret,
    string_enum::string_enum,
    time::Time,
};

/// The domain of aliases. RFC 2606 reserves `.invalid`, so no mail can be sent there.
const ALIAS_DOMAIN: &str = "erased.invalid";
/// The longest reason of an erasure, in characters.
pub const MAX_REASON_CHARS: usize = 1_000;
/// How many emails in doubt, and how many claims, an erasure keeps by id. If there are more, it looks for them again.
pub const MAX_OPEN_EMAILS: usize = 1_000;

/// The alias of an address in a team.
pub fn alias_of(secret: &InstallSecret, team: TeamId, address: &str) -> String {
    let mac = secret.mac("erased-address", &[team.0.as_bytes(), address.to_ascii_lowercase().as_bytes()]);
    let half = mac.iter().take(16).fold(0_u128, |number, byte| (number << 8) | u128::from(*byte));
    format!("erased-{half:032x}@{ALIAS_DOMAIN}")
}

/// Whether an address is an alias.
pub fn is_alias(address: &str) -> bool {
    address.starts_with("erased-") && address.rsplit_once('@').is_some_and(|(_, domain)| domain == ALIAS_DOMAIN)
}

/// Replaces one email address by its alias wherever the data of a team contains it.
#[derive(Clone, Debug)]
pub struct AddressEraser {
    /// The team.
    pub team: TeamId,
    /// The secret under which digests are hashed.
    pub secret: InstallSecret,
    /// The address in lower case, and the same as part of a URL.
    forms: [String; 2],
    alias: String,
}

impl AddressEraser {
    /// Erases this address.
    pub fn new(secret: &InstallSecret, team: TeamId, address: &str) -> Self {
        let address = address.to_ascii_lowercase();
        let alias = alias_of(secret, team, &address);
        Self { team, secret: secret.clone(), forms: [address.clone(), address.replace('@', "%40")], alias }
    }

    /// The address, in lower case.
    pub fn address(&self) -> &str {
        &self.forms[0]
    }

    /// The spellings of the address that are searched for, in lower case.
    pub fn spellings(&self) -> &[String; 2] {
        &self.forms
    }

    /// What replaces the address.
    pub fn alias(&self) -> &str {
        &self.alias
    }

    /// Whether this is the address, with or without a display name.
    pub fn is_person(&self, text: &str) -> bool {
        text.eq_ignore_ascii_case(self.address())
            || NamedAddress::parse(text).is_ok_and(|named| named.to_address().as_str() == self.address())
    }

    /// Whether a text names the address. Unlike [`Self::redact`] this counts no address that merely ends like it, such
    /// as `mary-ann@example.com`.
    pub fn is_in(&self, text: &str) -> bool {
        self.find(&text.to_ascii_lowercase(), 0, true).is_some()
    }

    /// Whether a text may name the address: also where the words before it are joined to it by hyphens, which could be
    /// another address.
    pub fn may_be_in(&self, text: &str) -> bool {
        self.find(&text.to_ascii_lowercase(), 0, false).is_some()
    }

    /// Whether a value names the address.
    pub fn is_in_value(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.is_in(text),
            Value::Array(items) => items.iter().any(|item| self.is_in_value(item)),
            Value::Object(fields) => fields.iter().any(|(name, inner)| self.is_in(name) || self.is_in_value(inner)),
            _ => false,
        }
    }

    /// Whether something that is stored as JSON names the address.
    pub fn is_in_json_of(&self, stored: &impl Serialize) -> bool {
        serde_json::to_value(stored).is_ok_and(|value| self.is_in_value(&value))
    }

    /// The text with the alias in the place of the address. `None` when the text does not contain it.
    pub fn redact(&self, text: &str) -> Option<String> {
        if self.is_person(text) {
            return Some(self.alias.clone());
        }
        let lower = text.to_ascii_lowercase();
        // Another address may end like this one.
        let is_strict = NamedAddress::parse(text).is_ok();
        let (mut redacted, mut from) = (String::new(), 0);
        while let Some((start, end)) = self.find(&lower, from, is_strict) {
            redacted.push_str(&text[from..start]);
            redacted.push_str(&self.alias);
            from = end;
        }
        (from > 0).then(|| redacted + &text[from..])
    }

    /// The same for texts in their places. Returns whether one of them contained it.
    pub fn redact_all<'a>(&self, texts: impl Iterator<Item = &'a mut String>) -> bool {
        texts.filter_map(|text| self.redact(text).map(|redacted| *text = redacted)).count() > 0
    }

    /// The same for every string in a JSON value. Returns whether something was replaced.
    pub fn redact_value(&self, value: &mut Value) -> bool {
        match value {
            Value::String(text) => match self.redact(text) {
                Some(redacted) => {
                    *text = redacted;
                    true
                }
                None => false,
            },
            Value::Array(items) => {
                items.iter_mut().filter_map(|item| self.redact_value(item).then_some(())).count() > 0
            }
            Value::Object(fields) => {
                let names: Vec<String> = fields.keys().filter(|name| self.redact(name).is_some()).cloned().collect();
                for name in &names {
                    if let (Some(inner), Some(redacted)) = (fields.remove(name), self.redact(name)) {
                        fields.insert(redacted, inner);
                    }
                }
                let inner = fields.values_mut().filter_map(|inner| self.redact_value(inner).then_some(())).count();
                inner + names.len() > 0
            }
            _ => false,
        }
    }

    /// The same for JSON as text. Text that is no JSON is redacted as text.
    pub fn redact_json(&self, json: &str) -> Option<String> {
        match serde_json::from_str::<Value>(json) {
            Ok(mut value) => self.redact_value(&mut value).then(|| value.to_string()),
            Err(_) => self.redact(json),
        }
    }

    /// The first place of the address at or after `from`, in lower-case text.
    fn find(&self, lower: &str, from: usize, is_strict: bool) -> Option<(usize, usize)> {
        self.forms.iter().filter_map(|form| find_whole(lower, form, from, is_strict)).min()
    }
}

/// The first place where `form` is not a part of a longer address. A hyphen before it may separate words, as in
/// `welcome-ann@example.com`, unless `is_strict`.
fn find_whole(lower: &str, form: &str, mut from: usize, is_strict: bool) -> Option<(usize, usize)> {
    while let Some(at) = lower.get(from..)?.find(form) {
        let (start, end) = (from + at, from + at + form.len());
        let mut before = lower[..start].chars().rev();
        let mut after = lower[end..].chars();
        let is_longer_local = match before.next() {
            Some('.' | '_' | '+') => true,
            // An apostrophe inside a name, and not a quotation mark.
            Some('\'') => before.next().is_some_and(char::is_alphanumeric),
            // These also separate words in a text.
            Some('-' | '!' | '#' | '$' | '&' | '*' | '=' | '?' | '^' | '`' | '{' | '|' | '}' | '~') => is_strict,
            Some(c) => c.is_alphanumeric(),
            None => false,
        };
        let is_longer_domain = match after.next() {
            Some('.') => after.next().is_some_and(char::is_alphanumeric),
            Some(c) => c.is_alphanumeric() || c == '-',
            None => false,
        };
        if !is_longer_local && !is_longer_domain {
            return Some((start, end));
        }
        from = end;
    }
    None
}

string_enum! {
    /// What an erasure is working on. The stages run in this order.
    ErasureStage {
        /// Finds the address by its alias. Only after a restore, which knows nothing but the alias.
        Find = "find",
        /// Cancels waiting emails to the person and erases the emails that name the person.
        Emails = "emails",
        /// Removes arrivals from the person.
        Deliveries = "deliveries",
        /// Erases received messages that name the person.
        Messages = "messages",
        /// Erases claims that name the person.
        Claims = "claims",
        /// Erases drafts, suppressions, rules and other records.
        Records = "records",
        /// Waits until emails in doubt have settled and claims have ended, and erases them.
        Waiting = "waiting",
        /// Erases the data of events.
        Events = "events",
        /// Erases names in the audit log.
        Names = "names",
        /// Overwrites what was freed.
        Storage = "storage",
        /// Nothing is left to do.
        Done = "done",
    }
}

impl ErasureStage {
    /// The next stage.
    #[must_use]
    pub fn next(self) -> Self {
        let place = Self::ALL.iter().position(|stage| *stage == self).unwrap_or_default();
        Self::ALL.get(place + 1).copied().unwrap_or(Self::Done)
    }
}

/// What an erasure did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ErasureCounts {
    /// Waiting emails that were cancelled.
    pub cancelled: u64,
    /// Emails that were erased.
    pub emails: u64,
    /// Received messages that were erased.
    pub messages: u64,
    /// Arrivals without a message that were removed.
    pub deliveries: u64,
    /// Claims that were erased.
    pub claims: u64,
    /// Drafts that were removed.
    pub drafts: u64,
    /// Suppressions, list entries, rules, other records and API keys, endpoints, inboxes and stops that now have the
    /// alias.
    pub records: u64,
    /// Events whose data was erased.
    pub events: u64,
    /// Names that were removed from the audit log.
    pub audit_names: u64,
}

/// An erasure, as its record stores it. There is one per team and person, so the records are the journal that a restore
/// applies again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erasure {
    /// The alias of the address.
    pub alias: String,
    /// The address, only while it is needed to find what must be erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was requested last. Later mail is new data and stays.
    pub requested_at: Time,
    /// Who requested it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ApiKeyId>,
    /// What it is working on.
    pub stage: ErasureStage,
    /// Where the stage continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Emails in doubt, which are erased when they have settled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<EmailId>,
    /// Claims that have not ended, which are erased when they have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open_claims: Vec<ClaimId>,
    /// Whether there are more emails in doubt than `open` has, or more claims than `open_claims` has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_more_open: bool,
    /// What it did so far.
    #[serde(default)]
    pub counts: ErasureCounts,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_at: Option<Time>,
}

impl Erasure {
    /// A new erasure.
    pub fn new(eraser: &AddressEraser, reason: Option<String>, by: Option<ApiKeyId>, now: Time) -> Self {
        Self {
            alias: eraser.alias().to_owned(),
            address: Some(eraser.address().to_owned()),
            reason,
            requested_at: now,
            by,
            stage: ErasureStage::Emails,
            cursor: None,
            open: Vec::new(),
            open_claims: Vec::new(),
            has_more_open: false,
            counts: ErasureCounts::default(),
            done_at: None,
        }
    }

    /// An erasure that a ledger from an older backup does not know, or knows only from an earlier request. Its first stage
    /// finds the address.
    pub fn from_journal(alias: String, requested_at: Time, before: Option<Self>) -> Self {
        let counts = before.map(|before| before.counts).unwrap_or_default();
        Self {
            alias,
            address: None,
            reason: None,
            requested_at,
            by: None,
            stage: ErasureStage::Find,
            cursor: None,
            open: Vec::new(),
            open_claims: Vec::new(),
            has_more_open: false,
            counts,
            done_at: None,
        }
    }

    /// Whether a restore requested it and email to the person may still be queued.
    pub fn may_have_restored_email(&self) -> bool {
        self.by.is_none() && matches!(self.stage, ErasureStage::Find | ErasureStage::Emails)
    }

    /// Whether it is not done yet.
    pub fn is_running(&self) -> bool {
        self.stage != ErasureStage::Done
    }

    /// Continues with the next stage.
    pub fn next_stage(&mut self, now: Time) {
        self.stage = self.stage.next();
        self.cursor = None;
        if self.stage == ErasureStage::Storage {
            // From here on nothing is searched for, and the record must not keep the address.
            self.address = None;
        }
        if self.stage == ErasureStage::Done {
            self.done_at = Some(now);
        }
    }
}

/// What the erasure of one email must keep besides its head, so that its keys are found and released in time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErasedEmail {
    /// The recipients' keys that it may have bound.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shadow_keys: Vec<crate::key::KeyHash>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use serde_json::json;
    use uuid::Uuid;

    fn eraser() -> AddressEraser {
        AddressEraser::new(&InstallSecret([7; 32]), TeamId(Uuid::from_u128(1)), "Ann@Example.com")
    }

    #[test]
    fn addresses_that_end_alike_are_other_people() {
        let secret = InstallSecret([7; 32]);
        let eraser = AddressEraser::new(&secret, TeamId(Uuid::nil()), "brien@example.com");
        for other in
            ["o'brien@example.com", "O'Brien <o'brien@example.com>", "mary-brien@example.com", "x=brien@example.com"]
        {
            assert_eq!(eraser.redact(other), None, "{other}");
        }
        for own in
            ["'brien@example.com'", "mail=brien@example.com&x=1", "Brien <brien@example.com>", "(brien@example.com)"]
        {
            assert!(eraser.redact(own).is_some_and(|text| !text.contains("brien")), "{own}");
        }
    }

    #[test]
    fn the_address_is_found_in_text_and_in_no_longer_address() {
        let eraser = eraser();
        let alias = eraser.alias().to_owned();
        for (text, redacted) in [
            ("ann@example.com", Some(alias.clone())),
            ("ANN@EXAMPLE.COM", Some(alias.clone())),
            ("Ann Lee <ann@example.com>", Some(alias.clone())),
            ("550 <ann@example.com> no such user", Some(format!("550 <{alias}> no such user"))),
            ("Write to ann@example.com.", Some(format!("Write to {alias}."))),
            ("welcome-ann@example.com today", Some(format!("welcome-{alias} today"))),
            ("see https://x.test/u?to=ann%40example.com&n=1", Some(format!("see https://x.test/u?to={alias}&n=1"))),
            ("a ann@example.com b ann@example.com", Some(format!("a {alias} b {alias}"))),
            ("team/send/block/ann@example.com", Some(format!("team/send/block/{alias}"))),
            ("joann@example.com", None),
            ("mary-ann@example.com", None),
            ("hi jo.ann@example.com", None),
            ("hi ann@example.com.au", None),
            ("hi ann@example.community", None),
            ("ann at example.com", None),
        ] {
            assert_eq!(eraser.redact(text), redacted, "{text}");
        }
        assert!(eraser.is_in("Ask Ann <ANN@example.com>, please") && !eraser.is_in("Ask mary-ann@example.com"));
    }

    #[test]
    fn every_string_of_a_value_is_redacted() {
        let eraser = eraser();
        let mut value =
            json!({ "to": ["ann@example.com", "bob@example.com"], "ann@example.com": { "n": 1 }, "x": null });
        assert!(eraser.redact_value(&mut value));
        assert_eq!(value, json!({ "to": [eraser.alias(), "bob@example.com"], eraser.alias(): { "n": 1 }, "x": null }));
        assert!(!eraser.redact_value(&mut value), "a second time there is nothing left");
    }

    #[test]
    fn an_alias_is_an_address_of_its_team_alone() {
        let (one, two) = (TeamId(Uuid::from_u128(1)), TeamId(Uuid::from_u128(2)));
        let secret = InstallSecret([7; 32]);
        let alias = alias_of(&secret, one, "ann@example.com");
        assert!(is_alias(&alias) && Address::parse(&alias).is_ok(), "{alias}");
        assert_eq!(alias, alias_of(&secret, one, "ANN@example.com"));
        assert_ne!(alias, alias_of(&secret, two, "ann@example.com"));
        assert_ne!(alias, alias_of(&InstallSecret([8; 32]), one, "ann@example.com"));
    }

    #[test]
    fn the_address_leaves_the_record_before_the_storage_is_overwritten() {
        let mut erasure = Erasure::new(&eraser(), None, None, Time(1));
        while erasure.is_running() {
            assert_eq!(erasure.address.is_none(), erasure.stage >= ErasureStage::Storage, "{:?}", erasure.stage);
            erasure.next_stage(Time(2));
        }
        assert_eq!(erasure.done_at, Some(Time(2)));
        let restored = Erasure::from_journal(erasure.alias.clone(), Time(1), Some(erasure));
        assert_eq!((restored.stage, restored.address), (ErasureStage::Find, None), "only the alias is known");
    }
}
