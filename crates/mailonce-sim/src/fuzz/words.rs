//! Readers of the core. What is read must be within its bounds, and what is written must be read again as the same.

use mailonce_core::{
    address::{Address, Mailbox},
    digest::Digest,
    event::Cursor,
    id::EmailId,
    intent::Intent,
    key::Key,
    limits,
    schedule::Schedule,
    time::{Time, parse_span, show_span},
    ttl::{LONGEST, SHORTEST, Ttl},
};

use super::{Came, Check, holds, text};

/// `Idempotency-Key`.
pub fn key(bytes: &[u8]) -> Check {
    let Some(Ok(key)) = text(bytes).map(Key::parse) else { return Ok(Came::Short) };
    let plain = key.as_str();
    holds((1..=limits::KEY_CHARS).contains(&plain.len()), "a key out of bounds")?;
    holds(plain.bytes().all(|byte| (0x20..=0x7e).contains(&byte)), "a key that cannot be printed")?;
    let quoted = format!("\"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""));
    holds(Key::parse(&quoted).is_ok_and(|again| again == key), "the quoted form is another key")?;
    Ok(Came::Through)
}

/// Ids.
pub fn id(bytes: &[u8]) -> Check {
    let Some(Ok(id)) = text(bytes).map(str::parse::<EmailId>) else { return Ok(Came::Short) };
    holds(id.to_string().parse::<EmailId>().is_ok_and(|again| again == id), "an id that is not read again")?;
    Ok(Came::Through)
}

/// Cursors of events.
pub fn cursor(bytes: &[u8]) -> Check {
    let Some(Some(Some(cursor))) = text(bytes).map(Cursor::parse) else { return Ok(Came::Short) };
    holds(Cursor::parse(&cursor.to_string()) == Some(Some(cursor)), "a cursor that is not read again")?;
    Ok(Came::Through)
}

/// Spans, instants and memories.
pub fn span(bytes: &[u8]) -> Check {
    let Some(text) = text(bytes) else { return Ok(Came::Short) };
    let mut came = Came::Short;
    if let Some(ms) = parse_span(text) {
        came = Came::Through;
        holds(ms >= 0 && parse_span(&show_span(ms)) == Some(ms), "a span that is not read again")?;
    }
    if let Some(at) = Time::parse(text) {
        holds(Time::parse(&at.to_string()) == Some(at), "an instant that is not read again")?;
    }
    for ttl in [Ttl::parse(text), Ttl::scheduled(text)].into_iter().flatten() {
        holds((SHORTEST..=LONGEST).contains(&ttl.0), "a memory out of bounds")?;
    }
    Ok(came)
}

/// `scheduled_at`.
pub fn schedule(bytes: &[u8]) -> Check {
    let Some(Ok(schedule)) = text(bytes).map(Schedule::parse) else { return Ok(Came::Short) };
    let now = Time(1_794_736_800_000);
    let due = schedule.due(now);
    holds(!schedule.fits(now) || due.since(now) <= limits::SCHEDULE_AHEAD_MS, "a time too far ahead")?;
    if let Schedule::In { words, .. } = &schedule {
        holds(Schedule::parse(words).as_ref() == Ok(&schedule), "other words, other span")?;
    }
    Ok(Came::Through)
}

/// Addresses, bare and with a name.
pub fn address(bytes: &[u8]) -> Check {
    let Some(text) = text(bytes) else { return Ok(Came::Short) };
    if let Ok(address) = Address::parse(text) {
        let plain = address.as_str();
        holds(plain.len() <= limits::ADDRESS_OCTETS, "an address too long")?;
        holds(!plain.contains(|c: char| c.is_control() || c.is_whitespace()), "an address with a space")?;
        holds(address.domain().is_ascii(), "a domain that is no A-label")?;
        holds(Address::parse(plain).as_ref() == Ok(&address), "an address that is not read again")?;
    }
    let Ok(mailbox) = Mailbox::parse(text) else { return Ok(Came::Short) };
    let name = mailbox.name.as_deref().unwrap_or_default();
    holds(!name.contains(char::is_control), "a name with a control character")?;
    holds(name.chars().count() <= limits::NAME_CHARS, "a name too long")?;
    holds(Address::parse(&mailbox.address) == Ok(mailbox.bare()), "a mailbox that is no address")?;
    Ok(Came::Through)
}

/// Intents, and the canonical JSON behind their keys.
pub fn intent(bytes: &[u8]) -> Check {
    let Ok(intent) = serde_json::from_slice::<Intent>(bytes) else { return Ok(Came::Short) };
    if intent.check().is_err() {
        return Ok(Came::Short);
    }
    let to: Vec<Address> = ["b@x.example", "a@x.example"].iter().filter_map(|to| Address::parse(to).ok()).collect();
    let turned: Vec<Address> = to.iter().rev().cloned().collect();
    let key = intent.key(&to);
    holds(key == intent.key(&turned), "another order, another key")?;
    holds(Key::parse(&key).is_ok_and(|again| again.as_str() == key), "a derived key that is none")?;
    let again = serde_json::to_vec(&intent).map_err(|error| error.to_string())?;
    let again: Intent = serde_json::from_slice(&again).map_err(|error| error.to_string())?;
    holds(again.key(&to) == key, "an intent that is not read again")?;
    Ok(Came::Through)
}

/// Stored digests.
pub fn digest(bytes: &[u8]) -> Check {
    let Some(digest) = Digest::from_bytes(bytes) else { return Ok(Came::Short) };
    holds(digest.to_bytes() == bytes, "a digest that is not written again")?;
    holds(digest.differences(&digest).is_empty(), "a digest that differs from itself")?;
    Ok(Came::Through)
}
