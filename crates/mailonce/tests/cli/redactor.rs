//! Replaces the parts of a command's output that differ in every run, such as ids, times, ports and secrets, so that
//! snapshots are stable. Columns of tables keep their width.

use std::collections::BTreeMap;

/// Remembers ids, so that an id looks the same in every snapshot.
#[derive(Default)]
pub(crate) struct Redactor {
    ids: BTreeMap<String, usize>,
}

impl Redactor {
    /// The text without what changes. `numbers` blots out every number.
    pub(crate) fn redact(&mut self, text: &str, places: &[(&str, &str)], numbers: bool) -> String {
        let mut text = text.to_owned();
        for (place, name) in places {
            text = text.replace(place, name);
        }
        let text = replace_matches(&text, match_uuid, |id| {
            let next = self.ids.len() + 1;
            let number = *self.ids.entry(id.to_owned()).or_insert(next);
            format!("00000000-0000-7000-8000-{number:012}")
        });
        let text = replace_matches(
            &text,
            |rest| match_mask(rest, "dddd-dd-ddTdd:dd:dd.dddZ"),
            |_| "2026-01-01T00:00:00.000Z".into(),
        );
        let text =
            replace_matches(&text, |rest| match_mask(rest, "dddd-dd-dd dd:dd:ddZ"), |_| "2026-01-01 00:00:00Z".into());
        let text = replace_matches(&text, match_port, |_| "127.0.0.1:PORT".into());
        let text =
            replace_matches(&text, match_secret, |word| format!("{}SECRET", word.split_inclusive('_').next().unwrap()));
        let text = replace_matches(&text, |rest| match_digits_before(rest, " ms"), |_| "N".into());
        // However large the disk of this machine is.
        let text = text.replace(" MiB free", " GiB free").replace(" TiB free", " GiB free");
        let text = replace_matches(&text, |rest| match_digits_before(rest, " GiB free"), |_| "N".into());
        let text = replace_matches(&text, match_message_id, |_| "<MESSAGE-ID@".into());
        let text = replace_matches(&text, match_preview_digest, |found| {
            format!("{}PREVIEW-DIGEST", &found[..found.len() - 64])
        });
        let text = replace_matches(&text, match_audit_hash, |found| format!("{}HASH", &found[..found.len() - 64]));
        let text = replace_matches(&text, match_ip_alias, |_| "ip/ALIAS".into());
        let text = replace_matches(&text, match_erased_alias, |_| "erased-ALIAS".into());
        let text = replace_matches(&text, match_sign_in_token, |_| "sign-in/TOKEN".into());
        let text = replace_matches(&text, match_nonce, |_| "mail NONCE".into());
        let text = replace_matches(&text, match_random_address, |_| "RANDOM@".into());
        if numbers { replace_matches(&text, match_digits, |_| "N".into()) } else { text }
    }
}

/// Replaces what a look at the rest finds, from left to right.
fn replace_matches(text: &str, find: impl Fn(&str) -> Option<usize>, mut with: impl FnMut(&str) -> String) -> String {
    let (mut out, mut rest, mut inside) = (String::new(), text, false);
    while let Some(next) = rest.chars().next() {
        if let Some(length) = find(rest).filter(|length| *length > 0 && !inside) {
            out.push_str(&with(&rest[..length]));
            rest = &rest[length..];
        } else {
            out.push(next);
            inside = next.is_ascii_alphanumeric();
            rest = &rest[next.len_utf8()..];
        }
    }
    out
}

/// A sign-in link, whose secret is redacted already.
fn match_sign_in_token(rest: &str) -> Option<usize> {
    let token = rest.strip_prefix("sign-in/")?;
    let end = token.find("SECRET")? + "SECRET".len();
    token[..end]
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        .then_some("sign-in/".len() + end)
}

/// What replaces the address of an erased person.
fn match_erased_alias(rest: &str) -> Option<usize> {
    let hex = rest.strip_prefix("erased-")?.bytes().take_while(u8::is_ascii_hexdigit).count();
    (hex == 32).then_some("erased-".len() + hex)
}

/// `d` is a digit, everything else itself.
fn match_mask(rest: &str, mask: &str) -> Option<usize> {
    let fits = rest.len() >= mask.len()
        && rest
            .bytes()
            .zip(mask.bytes())
            .all(|(byte, mask)| if mask == b'd' { byte.is_ascii_digit() } else { byte == mask });
    fits.then_some(mask.len())
}

fn match_uuid(rest: &str) -> Option<usize> {
    let bytes = rest.as_bytes().get(..36)?;
    let fits = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    bytes.iter().enumerate().all(fits).then_some(36)
}

fn match_digits(rest: &str) -> Option<usize> {
    let length = rest.bytes().take_while(u8::is_ascii_digit).count();
    (length > 0).then_some(length)
}

fn match_digits_before(rest: &str, end: &str) -> Option<usize> {
    let length = match_digits(rest)?;
    rest[length..].starts_with(end).then_some(length)
}

fn match_port(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix("127.0.0.1:")?;
    Some("127.0.0.1:".len() + match_digits(after)?)
}

fn match_secret(rest: &str) -> Option<usize> {
    let prefix = ["mo_", "whsec_", "lt_"].into_iter().find(|prefix| rest.starts_with(prefix))?;
    let length = rest[prefix.len()..].bytes().take_while(|b| b.is_ascii_alphanumeric() || b"+/=-_".contains(b)).count();
    (length >= 4).then_some(prefix.len() + length)
}

fn match_message_id(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix('<')?;
    let length = after.bytes().take_while(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b)).count();
    (length >= 16 && after[length..].starts_with('@')).then_some(length + 2)
}

/// The digest of what a person was shown, which covers the id of the email.
fn match_preview_digest(rest: &str) -> Option<usize> {
    let prefix = ["digest    ", "digest   ", "\"digest\":\""].into_iter().find(|prefix| rest.starts_with(prefix))?;
    let length = rest[prefix.len()..].bytes().take_while(u8::is_ascii_hexdigit).count();
    (length == 64).then_some(prefix.len() + length)
}

/// A hash of the audit log, which covers ids and times. For people, the number of the head is before it.
fn match_audit_hash(rest: &str) -> Option<usize> {
    let json = ["\"hash\":\"", "\"prev\":\""].into_iter().find(|prefix| rest.starts_with(prefix)).map(str::len);
    let head = || {
        let number = rest.strip_prefix("head")?.trim_start_matches(' ');
        let hash = number.trim_start_matches(|digit: char| digit.is_ascii_digit()).strip_prefix(' ')?;
        Some(rest.len() - hash.len())
    };
    let prefix = json.or_else(head)?;
    let length = rest[prefix..].bytes().take_while(u8::is_ascii_hexdigit).count();
    (length == 64 && !rest[prefix..].starts_with("0000")).then_some(prefix + length)
}

/// What stands for an IP address in the audit log.
fn match_ip_alias(rest: &str) -> Option<usize> {
    let length = rest.strip_prefix("ip/")?.bytes().take_while(u8::is_ascii_hexdigit).count();
    (length == 32).then_some("ip/".len() + length)
}

/// The number of a fence.
fn match_nonce(rest: &str) -> Option<usize> {
    let length = rest.strip_prefix("mail ")?.bytes().take_while(u8::is_ascii_hexdigit).count();
    (length == 24).then_some("mail ".len() + length)
}

/// What stands before the @ of an address that nobody chose.
fn match_random_address(rest: &str) -> Option<usize> {
    let length = rest.bytes().take_while(|b| b.is_ascii_lowercase() || b.is_ascii_digit()).count();
    (length == 12 && rest[length..].starts_with("@mailonce.test")).then_some(length + 1)
}

#[test]
fn what_changes_is_replaced_and_nothing_else() {
    let mut plain = Redactor::default();
    let text =
        "01a1dd04-e2b4-7000-af60-cd6d40218a11 at 2026-11-15T18:01:30.123Z by 127.0.0.1:6245, 12 ms, key invoice-17";
    let seen = plain.redact(text, &[], false);
    assert_eq!(
        seen,
        "00000000-0000-7000-8000-000000000001 at 2026-01-01T00:00:00.000Z by 127.0.0.1:PORT, N ms, key invoice-17"
    );
    assert_eq!(plain.redact("x 17 mo_abcdefgh", &[], true), "x N mo_SECRET");
}
