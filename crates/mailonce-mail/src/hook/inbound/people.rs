//! People, as JSON has them: `{name, email}` objects in some spelling, or header text.

use mailonce_core::address::Mailbox;
use serde_json::Value;

use crate::hook::json;

/// One object. `None` without an address.
fn one(value: &Value) -> Option<Mailbox> {
    let address = json::first_text(value, &["/Email", "/email", "/address"])?;
    let name = json::first_text(value, &["/Name", "/name"]);
    Some(Mailbox { name: name.map(str::to_owned), address: address.to_owned() })
}

/// Objects, an array of them, header text, or an array of that.
pub(super) fn list(value: Option<&Value>) -> Vec<Mailbox> {
    match value {
        Some(Value::Array(all)) => all.iter().flat_map(|one| list(Some(one))).collect(),
        Some(Value::String(text)) => in_header(text),
        Some(object @ Value::Object(_)) => one(object).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// The people in a header's text.
pub(super) fn in_header(text: &str) -> Vec<Mailbox> {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    crate::parse::parse(format!("To: {plain}\r\n\r\n").as_bytes()).to
}

/// Their addresses.
pub(super) fn addresses<'a>(lists: impl IntoIterator<Item = &'a Vec<Mailbox>>) -> Vec<String> {
    lists.into_iter().flatten().map(|mailbox| mailbox.address.clone()).collect()
}
