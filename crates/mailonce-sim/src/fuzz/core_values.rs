//! Parsers of the core. A parsed value is within its bounds, and a formatted value parses to the same.

use mailonce_core::{
    address::{Address, NamedAddress},
    events::event::EventCursor,
    id::EmailId,
    intent::Intent,
    key::Key,
    limits,
    outbound::{digest::Digest, schedule::Schedule},
    time::{Time, format_span, parse_span},
    ttl::{MAX_MS, MIN_MS, Ttl},
};

use super::{FuzzResult, InputOutcome, as_utf8, ensure_holds};

/// `Idempotency-Key`.
pub fn key(bytes: &[u8]) -> FuzzResult {
    let Some(Ok(key)) = as_utf8(bytes).map(Key::parse) else { return Ok(InputOutcome::Rejected) };
    let plain = key.as_str();
    ensure_holds((1..=limits::KEY_CHARS).contains(&plain.len()), "a key out of bounds")?;
    ensure_holds(plain.bytes().all(|byte| (0x20..=0x7e).contains(&byte)), "a key that cannot be printed")?;
    let quoted = format!("\"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""));
    ensure_holds(Key::parse(&quoted).is_ok_and(|again| again == key), "the quoted form is another key")?;
    Ok(InputOutcome::Accepted)
}

/// Ids.
pub fn id(bytes: &[u8]) -> FuzzResult {
    let Some(Ok(id)) = as_utf8(bytes).map(str::parse::<EmailId>) else { return Ok(InputOutcome::Rejected) };
    ensure_holds(id.to_string().parse::<EmailId>().is_ok_and(|again| again == id), "an id that is not read again")?;
    Ok(InputOutcome::Accepted)
}

/// Cursors of events.
pub fn cursor(bytes: &[u8]) -> FuzzResult {
    let Some(Some(Some(cursor))) = as_utf8(bytes).map(EventCursor::parse) else { return Ok(InputOutcome::Rejected) };
    ensure_holds(EventCursor::parse(&cursor.to_string()) == Some(Some(cursor)), "a cursor that is not read again")?;
    Ok(InputOutcome::Accepted)
}

/// Durations, instants and retention times.
pub fn span(bytes: &[u8]) -> FuzzResult {
    let Some(text) = as_utf8(bytes) else { return Ok(InputOutcome::Rejected) };
    let mut came = InputOutcome::Rejected;
    if let Some(ms) = parse_span(text) {
        came = InputOutcome::Accepted;
        ensure_holds(ms >= 0 && parse_span(&format_span(ms)) == Some(ms), "a span that is not read again")?;
    }
    if let Some(at) = Time::parse(text) {
        ensure_holds(Time::parse(&at.to_string()) == Some(at), "an instant that is not read again")?;
    }
    for ttl in [Ttl::parse(text), Ttl::scheduled(text)].into_iter().flatten() {
        ensure_holds((MIN_MS..=MAX_MS).contains(&ttl.0), "a memory out of bounds")?;
    }
    Ok(came)
}

/// `scheduled_at`.
pub fn schedule(bytes: &[u8]) -> FuzzResult {
    let Some(Ok(schedule)) = as_utf8(bytes).map(Schedule::parse) else { return Ok(InputOutcome::Rejected) };
    let now = Time(1_794_736_800_000);
    let due = schedule.due_at(now);
    ensure_holds(
        !schedule.is_within_limit(now) || due.since(now) <= limits::SCHEDULE_AHEAD_MS,
        "a time too far ahead",
    )?;
    if let Schedule::In { words, .. } = &schedule {
        ensure_holds(Schedule::parse(words).as_ref() == Ok(&schedule), "other words, other span")?;
    }
    Ok(InputOutcome::Accepted)
}

/// Addresses, with and without a name.
pub fn address(bytes: &[u8]) -> FuzzResult {
    let Some(text) = as_utf8(bytes) else { return Ok(InputOutcome::Rejected) };
    if let Ok(address) = Address::parse(text) {
        let plain = address.as_str();
        ensure_holds(plain.len() <= limits::ADDRESS_OCTETS, "an address too long")?;
        ensure_holds(!plain.contains(|c: char| c.is_control() || c.is_whitespace()), "an address with a space")?;
        ensure_holds(address.domain().is_ascii(), "a domain that is no A-label")?;
        ensure_holds(Address::parse(plain).as_ref() == Ok(&address), "an address that is not read again")?;
    }
    let Ok(mailbox) = NamedAddress::parse(text) else { return Ok(InputOutcome::Rejected) };
    let name = mailbox.name.as_deref().unwrap_or_default();
    ensure_holds(!name.contains(char::is_control), "a name with a control character")?;
    ensure_holds(name.chars().count() <= limits::NAME_CHARS, "a name too long")?;
    ensure_holds(Address::parse(&mailbox.address) == Ok(mailbox.to_address()), "a mailbox that is no address")?;
    Ok(InputOutcome::Accepted)
}

/// Intents, and the canonical JSON behind their keys.
pub fn intent(bytes: &[u8]) -> FuzzResult {
    let Ok(intent) = serde_json::from_slice::<Intent>(bytes) else { return Ok(InputOutcome::Rejected) };
    if intent.validate().is_err() {
        return Ok(InputOutcome::Rejected);
    }
    let to: Vec<Address> = ["b@x.example", "a@x.example"].iter().filter_map(|to| Address::parse(to).ok()).collect();
    let turned: Vec<Address> = to.iter().rev().cloned().collect();
    let key = intent.derive_key(&to);
    ensure_holds(key == intent.derive_key(&turned), "another order, another key")?;
    ensure_holds(Key::parse(&key).is_ok_and(|again| again.as_str() == key), "a derived key that is none")?;
    let again = serde_json::to_vec(&intent).map_err(|error| error.to_string())?;
    let again: Intent = serde_json::from_slice(&again).map_err(|error| error.to_string())?;
    ensure_holds(again.derive_key(&to) == key, "an intent that is not read again")?;
    Ok(InputOutcome::Accepted)
}

/// Stored digests.
pub fn digest(bytes: &[u8]) -> FuzzResult {
    let Some(digest) = Digest::from_bytes(bytes) else { return Ok(InputOutcome::Rejected) };
    ensure_holds(digest.to_bytes() == bytes, "a digest that is not written again")?;
    ensure_holds(digest.differences(&digest).is_empty(), "a digest that differs from itself")?;
    Ok(InputOutcome::Accepted)
}
