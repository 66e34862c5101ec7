//! One server in a client's file of JSON: put in or changed in its place, and every other byte stays as it is.

use anyhow::Context as _;
use serde::Serialize as _;
use serde_json::{Value, json, ser::PrettyFormatter, value::RawValue};
use std::{collections::BTreeMap, ops::Range};

/// Under this name clients know us.
const SERVER_NAME: &str = "mailonce";
const NOT_PLAIN_JSON: &str = "it holds more than plain JSON; add the server by hand";

/// The members of an object, as they stand in the text.
type Members<'a> = BTreeMap<String, &'a RawValue>;

/// The server of our name that a file has, in its list of servers.
pub(super) fn server_in(text: &str, list: &str) -> anyhow::Result<Option<Value>> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let file: Value = serde_json::from_str(text).context(NOT_PLAIN_JSON)?;
    Ok(file.get(list).and_then(|all| all.get(SERVER_NAME)).cloned())
}

/// The file with this server in its list.
pub(super) fn with_server(old: &str, list: &str, server: &Value) -> anyhow::Result<String> {
    let style = IndentStyle(indent_of(old));
    if old.trim().is_empty() {
        return Ok(format!("{}\n", style.pretty(&json!({ list: { SERVER_NAME: server } }), 0)?));
    }
    let file: Members<'_> = serde_json::from_str(old).context(NOT_PLAIN_JSON)?;
    let Some(servers) = file.get(list) else {
        let start = old.len() - old.trim_start().len();
        return style.insert_member(
            old,
            start..old.trim_end().len(),
            &file,
            list,
            (&json!({ SERVER_NAME: server }), 1),
        );
    };
    let all: Members<'_> = serde_json::from_str(servers.get())
        .with_context(|| format!("`{list}` is no object; add the server by hand"))?;
    match all.get(SERVER_NAME) {
        Some(there) if serde_json::from_str::<Value>(there.get())? == *server => Ok(old.to_owned()),
        Some(there) => Ok(replace_range(old, span(old, there), &style.pretty(server, 2)?)),
        None => style.insert_member(old, span(old, servers), &all, SERVER_NAME, (server, 2)),
    }
}

/// Where a value stands in the text that it was read from.
fn span(text: &str, value: &RawValue) -> Range<usize> {
    let start = value.get().as_ptr() as usize - text.as_ptr() as usize;
    start..start + value.get().len()
}

fn replace_range(text: &str, place: Range<usize>, with: &str) -> String {
    let (before, after) = (text.get(..place.start).unwrap_or_default(), text.get(place.end..).unwrap_or_default());
    format!("{before}{with}{after}")
}

/// What the first line that is moved in begins with.
fn indent_of(text: &str) -> String {
    let moved = text.lines().find(|line| line.starts_with([' ', '\t']) && !line.trim().is_empty());
    let indent = |line: &str| line.get(..line.len() - line.trim_start().len()).map(str::to_owned);
    moved.and_then(indent).unwrap_or_else(|| "  ".to_owned())
}

/// How a file is laid out.
struct IndentStyle(String);

impl IndentStyle {
    /// A value as it stands at a depth. Its first line begins where it is put.
    fn pretty(&self, value: &Value, depth: usize) -> anyhow::Result<String> {
        let mut bytes = Vec::new();
        let formatter = PrettyFormatter::with_indent(self.0.as_bytes());
        value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, formatter))?;
        Ok(String::from_utf8(bytes)?.replace('\n', &format!("\n{}", self.0.repeat(depth))))
    }

    /// Puts a member behind the last one of the object that stands at `place`.
    fn insert_member(
        &self,
        text: &str,
        place: Range<usize>,
        members: &Members<'_>,
        name: &str,
        (value, depth): (&Value, usize),
    ) -> anyhow::Result<String> {
        let line = format!("\n{}{}: {}", self.0.repeat(depth), json!(name), self.pretty(value, depth)?);
        Ok(match members.values().map(|value| span(text, value).end).max() {
            Some(end) => replace_range(text, end..end, &format!(",{line}")),
            None => replace_range(text, place, &format!("{{{line}\n{}}}", self.0.repeat(depth - 1))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Value {
        json!({ "args": ["mcp"], "command": "/bin/mailonce" })
    }

    #[test]
    fn a_server_is_put_in_and_every_other_byte_stays() {
        let old = "{\n\t\"theme\": \"dark\",\n\t\"mcpServers\": {\n\t\t\"zoo\": {\"command\":\"z\"},\n\t\t\"ant\": { \"args\" : [] }\n\t},\n\t\"a\": 1.50\n}\n";
        let new = with_server(old, "mcpServers", &server()).unwrap();
        let added = ",\n\t\t\"mailonce\": {\n\t\t\t\"args\": [\n\t\t\t\t\"mcp\"\n\t\t\t],\n\t\t\t\"command\": \"/bin/mailonce\"\n\t\t}";
        assert!(new.contains(added), "{new}");
        assert_eq!(new.replace(added, ""), old);
        assert_eq!(with_server(&new, "mcpServers", &server()).unwrap(), new);
        assert_eq!(server_in(&new, "mcpServers").unwrap(), Some(server()));
    }

    #[test]
    fn a_server_that_is_there_is_changed_in_its_place() {
        let old = r#"{"mcpServers":{"mailonce":{"command":"old"},"zoo":{}},"b":1,"a":2}"#;
        let new = with_server(old, "mcpServers", &json!({ "command": "new" })).unwrap();
        assert!(
            new.starts_with(r#"{"mcpServers":{"mailonce":{"#) && new.ends_with(r#"},"zoo":{}},"b":1,"a":2}"#),
            "{new}"
        );
        assert_eq!(server_in(&new, "mcpServers").unwrap(), Some(json!({ "command": "new" })));
    }

    #[test]
    fn files_without_a_list_or_without_anything_get_one() {
        for old in ["", " \n", "{}", "{ }\n", r#"{"a":{}}"#, r#"{"mcpServers":{}}"#, r#"{"mcpServers": {  }, "a": []}"#]
        {
            let new = with_server(old, "mcpServers", &server()).unwrap();
            assert_eq!(server_in(&new, "mcpServers").unwrap(), Some(server()), "{old:?} {new}");
            let other = serde_json::from_str::<Value>(&new).unwrap().as_object().unwrap().len();
            assert_eq!(other, if old.contains('a') { 2 } else { 1 }, "{new}");
        }
    }

    #[test]
    fn what_is_no_plain_json_is_left_to_people() {
        for old in ["{ // mine\n}", "[]", "{", r#"{"mcpServers":7}"#] {
            assert!(with_server(old, "mcpServers", &server()).is_err(), "{old}");
        }
    }
}
