//! Adds or replaces one server entry in a client's JSON file, and keeps every other byte as it is.

use anyhow::Context as _;
use serde::Serialize as _;
use serde_json::{Value, json, ser::PrettyFormatter, value::RawValue};
use std::{collections::BTreeMap, ops::Range};

/// The name of our entry in the server list.
const SERVER_NAME: &str = "mailonce";
const NOT_PLAIN_JSON: &str = "the file is not plain JSON; add the server by hand";

/// The members of an object, as slices of the source text.
type Members<'a> = BTreeMap<String, &'a RawValue>;

/// The `mailonce` entry in the member `list` of a file.
pub(super) fn server_in(text: &str, list: &str) -> anyhow::Result<Option<Value>> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let file: Value = serde_json::from_str(text).context(NOT_PLAIN_JSON)?;
    Ok(file.get(list).and_then(|servers| servers.get(SERVER_NAME)).cloned())
}

/// The file with this entry in its member `list`.
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
    let entries: Members<'_> = serde_json::from_str(servers.get())
        .with_context(|| format!("`{list}` is not an object; add the server by hand"))?;
    match entries.get(SERVER_NAME) {
        Some(existing) if serde_json::from_str::<Value>(existing.get())? == *server => Ok(old.to_owned()),
        Some(existing) => Ok(replace_range(old, span(old, existing), &style.pretty(server, 2)?)),
        None => style.insert_member(old, span(old, servers), &entries, SERVER_NAME, (server, 2)),
    }
}

/// The byte range of a value in the text that it was parsed from.
fn span(text: &str, value: &RawValue) -> Range<usize> {
    let start = value.get().as_ptr() as usize - text.as_ptr() as usize;
    start..start + value.get().len()
}

fn replace_range(text: &str, range: Range<usize>, replacement: &str) -> String {
    let (before, after) = (text.get(..range.start).unwrap_or_default(), text.get(range.end..).unwrap_or_default());
    format!("{before}{replacement}{after}")
}

/// The whitespace at the start of the first indented line; two spaces if there is none.
fn indent_of(text: &str) -> String {
    let indented = text.lines().find(|line| line.starts_with([' ', '\t']) && !line.trim().is_empty());
    let indent = |line: &str| line.get(..line.len() - line.trim_start().len()).map(str::to_owned);
    indented.and_then(indent).unwrap_or_else(|| "  ".to_owned())
}

/// The indentation of one level.
struct IndentStyle(String);

impl IndentStyle {
    /// A value formatted for this depth. Its first line is not indented.
    fn pretty(&self, value: &Value, depth: usize) -> anyhow::Result<String> {
        let mut bytes = Vec::new();
        let formatter = PrettyFormatter::with_indent(self.0.as_bytes());
        value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, formatter))?;
        Ok(String::from_utf8(bytes)?.replace('\n', &format!("\n{}", self.0.repeat(depth))))
    }

    /// Inserts a member after the last one of the object at `object_range`.
    fn insert_member(
        &self,
        text: &str,
        object_range: Range<usize>,
        members: &Members<'_>,
        name: &str,
        (value, depth): (&Value, usize),
    ) -> anyhow::Result<String> {
        let line = format!("\n{}{}: {}", self.0.repeat(depth), json!(name), self.pretty(value, depth)?);
        Ok(match members.values().map(|value| span(text, value).end).max() {
            Some(end) => replace_range(text, end..end, &format!(",{line}")),
            None => replace_range(text, object_range, &format!("{{{line}\n{}}}", self.0.repeat(depth - 1))),
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
    fn adding_a_server_changes_no_other_byte() {
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
