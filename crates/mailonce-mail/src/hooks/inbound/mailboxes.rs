//! Parses mailboxes in JSON: `{name, email}` objects with various field names, or header text.

use mailonce_core::address::NamedAddress;
use serde_json::Value;

use crate::hooks::json;

/// Parses one object. `None` without an address.
fn mailbox_from_object(value: &Value) -> Option<NamedAddress> {
    let address = json::first_str_at(value, &["/Email", "/email", "/address"])?;
    let name = json::first_str_at(value, &["/Name", "/name"]);
    Some(NamedAddress { name: name.map(str::to_owned), address: address.to_owned() })
}

/// Parses an object, header text, or an array of either.
pub(crate) fn from_json(value: Option<&Value>) -> Vec<NamedAddress> {
    match value {
        Some(Value::Array(all)) => all.iter().flat_map(|one| from_json(Some(one))).collect(),
        Some(Value::String(text)) => from_header(text),
        Some(object @ Value::Object(_)) => mailbox_from_object(object).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Parses the mailboxes in a header's text.
pub(crate) fn from_header(text: &str) -> Vec<NamedAddress> {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    crate::parse::parse(format!("To: {plain}\r\n\r\n").as_bytes()).to
}

/// The addresses of several lists of mailboxes.
pub(crate) fn addresses<'a>(lists: impl IntoIterator<Item = &'a Vec<NamedAddress>>) -> Vec<String> {
    lists.into_iter().flatten().map(|mailbox| mailbox.address.clone()).collect()
}
