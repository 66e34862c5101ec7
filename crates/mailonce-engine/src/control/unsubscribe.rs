//! Unsubscribing with one click (RFC 8058), for email with tags that the team names.
//!
//! The link is signed and holds all that is needed, so it works as long as the install secret does, also after the email
//! is deleted, and without a sign-in. An unsubscribed address stays reachable for other email, such as receipts.

use crate::control::{
    Control,
    suppressions::{SuppressionDetails, SuppressionScope},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use mailonce_core::{
    address::Address,
    id::TeamId,
    outbound::content::EmailContent,
    ports::store::StoreError,
    problem::{Code, Problem},
};
use std::collections::BTreeMap;
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

const LINK_HEADER: &str = "List-Unsubscribe";
const ONE_CLICK_HEADER: &str = "List-Unsubscribe-Post";
/// The length of a signature in a token.
const MAC_BYTES: usize = 16;
const TEAM_BYTES: usize = 16;

/// Whether an email has one of the tags. An entry is the name of a tag, or `name=value`.
pub(crate) fn has_unsubscribe_tag(entries: &[String], tags: &BTreeMap<String, Option<String>>) -> bool {
    let has_tag = |entry: &String| match entry.split_once('=') {
        Some((name, value)) => tags.get(name).is_some_and(|given| given.as_deref() == Some(value)),
        None => tags.contains_key(entry),
    };
    entries.iter().any(has_tag)
}

impl Control {
    /// Adds the unsubscribe headers to an email that needs them: one with a tag that the team names and with a single
    /// recipient, because the link names the recipient. A link of the caller is kept. Returns whether they were added.
    pub(crate) async fn add_unsubscribe_headers(
        &self,
        team: TeamId,
        content: &mut EmailContent,
    ) -> Result<bool, StoreError> {
        let Some(base) = self.ctx.deps.public_url.as_deref().filter(|_| !content.tags.is_empty()) else {
            return Ok(false);
        };
        let settings = self.access.settings_of(team).await?;
        let recipients = content.to.len() + content.cc.len() + content.bcc.len();
        let has_own = content.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(LINK_HEADER));
        if recipients != 1 || has_own || !has_unsubscribe_tag(&settings.unsubscribe_tags, &content.tags) {
            return Ok(false);
        }
        let Some(recipient) = content.to.iter().chain(&content.cc).chain(&content.bcc).next() else { return Ok(false) };
        let token = self.unsubscribe_token(team, recipient.to_address().as_str());
        // A caller's own header about another link would contradict ours.
        content.headers.retain(|(name, _)| !name.eq_ignore_ascii_case(ONE_CLICK_HEADER));
        content.headers.push((LINK_HEADER.to_owned(), format!("<{}/u/{token}>", base.trim_end_matches('/'))));
        content.headers.push((ONE_CLICK_HEADER.to_owned(), "List-Unsubscribe=One-Click".to_owned()));
        Ok(true)
    }

    fn unsubscribe_token(&self, team: TeamId, address: &str) -> String {
        let mac = self.unsubscribe_mac(team, address);
        URL_SAFE_NO_PAD.encode([team.0.as_bytes().as_slice(), &mac, address.as_bytes()].concat())
    }

    fn unsubscribe_mac(&self, team: TeamId, address: &str) -> [u8; MAC_BYTES] {
        let mac = self.ctx.secret.mac("unsubscribe", &[team.0.as_bytes(), address.as_bytes()]);
        let mut bytes = [0; MAC_BYTES];
        bytes.copy_from_slice(&mac[..MAC_BYTES]);
        bytes
    }

    /// The team and the address of a token. Checked without a look at the store.
    pub fn read_unsubscribe_token(&self, token: &str) -> Result<(TeamId, Address), Problem> {
        let unknown = || Problem::new(Code::NotFound, "this unsubscribe link is not one of this server");
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_not_base64| unknown())?;
        let (team, rest) = bytes.split_at_checked(TEAM_BYTES).ok_or_else(unknown)?;
        let (mac, address) = rest.split_at_checked(MAC_BYTES).ok_or_else(unknown)?;
        let team = TeamId(Uuid::from_slice(team).map_err(|_length| unknown())?);
        let address = std::str::from_utf8(address).map_err(|_not_text| unknown())?;
        if !bool::from(self.unsubscribe_mac(team, address).ct_eq(mac)) {
            return Err(unknown());
        }
        Ok((team, Address::parse(address).map_err(|_invalid| unknown())?))
    }

    /// Unsubscribes the address of a token. A repeated call changes nothing.
    pub async fn unsubscribe(&self, token: &str) -> Result<(), Problem> {
        let (team, address) = self.read_unsubscribe_token(token)?;
        let details = SuppressionDetails {
            scope: SuppressionScope::Unsubscribable,
            ..SuppressionDetails::manual(Some("unsubscribed".into()))
        };
        self.suppress_by_report(team, &address, details).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_tag_or_a_tag_with_its_value() {
        let tags = BTreeMap::from([("news".to_owned(), None), ("category".to_owned(), Some("offers".to_owned()))]);
        for (entry, expected) in [
            ("news", true),
            ("category", true),
            ("category=offers", true),
            ("category=receipts", false),
            ("news=", false),
            ("offers", false),
        ] {
            assert_eq!(has_unsubscribe_tag(&[entry.to_owned()], &tags), expected, "{entry}");
        }
        assert!(!has_unsubscribe_tag(&[], &tags));
    }
}
