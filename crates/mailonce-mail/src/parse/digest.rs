//! A digest of a mail's content, to detect duplicates. Trace fields and re-encoding in transit do not change it.

use mailonce_core::address::NamedAddress;
use sha2::{Digest as _, Sha256};

use super::ParsedMail;

/// The version of the digest algorithm. Any change to the input needs a new version.
const VERSION: &str = "m1";

/// The digest of a mail's content: `m1_` and 64 hexadecimal digits.
pub fn digest(mail: &ParsedMail) -> String {
    let mut hash = Sha256::new();
    for list in [&mail.from, &mail.to, &mail.cc] {
        hash_number(&mut hash, list.len());
        list.iter().for_each(|mailbox| hash_text(&mut hash, NamedAddress::to_address(mailbox).as_str()));
    }
    hash_text(&mut hash, &mail.subject);
    hash_text(&mut hash, &mail.date.map(|date| date.0.to_string()).unwrap_or_default());
    for body in [&mail.text, &mail.html] {
        hash_text(&mut hash, &body.as_deref().map(normalize_body).unwrap_or_default());
    }
    hash_number(&mut hash, mail.attachments.len());
    for attachment in &mail.attachments {
        hash_text(&mut hash, attachment.filename.as_deref().unwrap_or_default());
        hash_text(&mut hash, &attachment.content_type);
        hash.update(attachment.sha256);
    }
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or_default();
    let digits = hash.finalize().into_iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect::<String>();
    format!("{VERSION}_{digits}")
}

fn hash_number(hash: &mut Sha256, number: usize) {
    hash.update((number as u64).to_be_bytes());
}

fn hash_text(hash: &mut Sha256, text: &str) {
    hash_number(hash, text.len());
    hash.update(text);
}

/// Removes trailing whitespace and trailing empty lines, which hops may change.
fn normalize_body(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_end().to_owned()
}
