//! Approval links that reach an inbox, such as in a forwarded notification. They end before the mail is filed: whoever
//! reads the inbox could decide in the name of the addressee.
//!
//! A link is found wherever its token is, also behind a redirect of another mail system. Nothing but a token of this
//! server has an effect.

use mailonce_core::{
    conversation::approval_link::ApprovalLink,
    operation::IdempotentResult,
    ports::store::StoreError,
    record::{RecordChangeResult, RecordKind},
};
use mailonce_mail::parse::ParsedMail;
use std::collections::BTreeSet;
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

use crate::runtime::{context::Context, hex::hex, records};

/// A token has this many digits of an id, a hyphen, and the digits of a hash.
const ID_DIGITS: usize = 32;
const HASH_DIGITS: usize = 64;
/// How many bytes of a mail are looked at beside its decoded bodies: an attached mail is in its bytes alone.
const MAX_RAW_BYTES: usize = 1 << 20;
/// How many of them are checked. A notification has at most 50 links, each once in every form of its text.
const MAX_TOKENS: usize = 1_000;
/// How often a withdrawal is tried while the record of the link changes.
const MAX_CONFLICT_RETRIES: usize = 10;

/// Everything in a mail that may be the token of an approval link.
pub(crate) fn possible_tokens_in(raw: &[u8], parsed: &ParsedMail) -> BTreeSet<String> {
    let raw = String::from_utf8_lossy(&raw[..raw.len().min(MAX_RAW_BYTES)]).replace("=\r\n", "");
    let bodies = [Some(parsed.subject.as_str()), parsed.text.as_deref(), parsed.html.as_deref()];
    let texts = bodies.into_iter().flatten().chain([raw.as_str()]);
    texts.flat_map(possible_tokens).map(str::to_owned).take(MAX_TOKENS).collect()
}

/// The parts of a text that have the form of a token.
fn possible_tokens(text: &str) -> impl Iterator<Item = &str> {
    let is_hexadecimal = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    text.match_indices('-').filter_map(move |(hyphen, _)| {
        let token = text.get(hyphen.checked_sub(ID_DIGITS)?..=hyphen + HASH_DIGITS)?;
        let (id, hash) = token.split_once('-')?;
        (id.len() == ID_DIGITS && is_hexadecimal(id) && is_hexadecimal(hash)).then_some(token)
    })
}

impl Context {
    /// The token of an approval link, derived from the id of its record.
    pub(super) fn approval_link_token(&self, id: Uuid) -> String {
        format!("{}-{}", id.simple(), hex(&self.secret.mac("approval-link", &[id.as_bytes()])))
    }

    /// The id of the link of a token that this server made.
    pub(super) fn verified_link_id(&self, token: &str) -> Option<Uuid> {
        let (id, _) = token.split_once('-')?;
        let id = Uuid::try_parse(id).ok()?;
        let is_right: bool = token.as_bytes().ct_eq(self.approval_link_token(id).as_bytes()).into();
        is_right.then_some(id)
    }

    /// Ends the approval links of those tokens that this server made.
    pub(crate) async fn withdraw_approval_links(&self, possible_tokens: &BTreeSet<String>) -> Result<(), StoreError> {
        for id in possible_tokens.iter().filter_map(|token| self.verified_link_id(token)) {
            self.withdraw_approval_link(id).await?;
        }
        Ok(())
    }

    async fn withdraw_approval_link(&self, id: Uuid) -> Result<(), StoreError> {
        for _ in 0..MAX_CONFLICT_RETRIES {
            let record = self.store.record_of_any_team(RecordKind::ApprovalLink, id).await?;
            let Some(record) = record else { return Ok(()) };
            // A record that cannot be read decides nothing.
            let Ok(link) = records::decode::<ApprovalLink>(&record) else { return Ok(()) };
            if link.withdrawn {
                return Ok(());
            }
            let escalation = link.escalation;
            let Ok(json) = records::encode(&link.withdraw()) else { return Ok(()) };
            let changed = self.store.change_record(record.edit(json), None, self.now()).await?;
            if !matches!(changed, IdempotentResult::Done(RecordChangeResult::Stale(_))) {
                tracing::warn!(%escalation, "an approval link reached an inbox and was withdrawn");
                return Ok(());
            }
        }
        Err(StoreError::Unreachable("an approval link that reached an inbox changes too often".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_wherever_they_are() {
        let token = format!("{}-{}", "0123456789abcdef".repeat(2), "fedcba9876543210".repeat(4));
        for text in [
            token.clone(),
            format!("> https://mail.example.com/a/{token}\n"),
            format!("<a href=\"https://safe.example/?url=https%3A%2F%2Fmail.example.com%2Fa%2F{token}&x=1\">"),
            format!("ä-{token}-ä"),
            format!("--{token}{token}"),
        ] {
            assert!(possible_tokens(&text).any(|found| found == token), "{text}");
        }
        for text in [
            "-",
            "",
            &token[1..],
            &token[..token.len() - 1],
            &token.replace('-', "_"),
            &token.replace('a', "ä"),
            &"-".repeat(200),
        ] {
            assert_eq!(possible_tokens(text).next(), None, "{text}");
        }
    }
}
