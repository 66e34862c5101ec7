//! The `template` argument: stored wording in the place of subject, text and HTML.

use mailonce_core::{outbound::template::TemplateUse, problem::Problem};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::invalid_argument;

/// A template as a tool call names it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TemplateArg {
    name: String,
    #[serde(default)]
    version: Option<u32>,
    /// An object, or its JSON as a string. Strict schemas have no objects with free members, so the schema asks for the
    /// string.
    #[serde(default)]
    variables: Value,
}

impl TemplateArg {
    pub(super) fn parse(self) -> Result<TemplateUse, Problem> {
        let variables = match self.variables {
            Value::Null => Map::new(),
            Value::Object(variables) => variables,
            Value::String(text) if text.trim().is_empty() => Map::new(),
            Value::String(text) => serde_json::from_str(&text).map_err(|_not_an_object| invalid_variables())?,
            _ => return Err(invalid_variables()),
        };
        // A strict schema makes a model fill in a version.
        Ok(TemplateUse { name: self.name, version: self.version.filter(|version| *version > 0), variables })
    }
}

/// Whether a template names nothing and has no variables: what a model under a strict schema fills in for none.
pub(super) fn is_empty(template: &Value) -> bool {
    let is_blank = |field: &str| match template.get(field) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => matches!(text.trim(), "" | "{}"),
        Some(Value::Object(members)) => members.is_empty(),
        Some(_) => false,
    };
    template.is_object() && is_blank("name") && is_blank("variables")
}

fn invalid_variables() -> Problem {
    invalid_argument("template.variables", "must be a JSON object, such as {\"name\": \"Ada\"}")
}

/// The JSON schema of the argument.
pub(super) fn schema() -> Map<String, Value> {
    let properties = json!({
        "name": { "type": "string" },
        "version": { "type": ["integer", "null"] },
        "variables": { "type": ["string", "null"], "description": "JSON object" },
    });
    super::object([
        ("type", json!(["object", "null"])),
        ("properties", properties),
        ("required", json!(["name", "version", "variables"])),
        ("additionalProperties", json!(false)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_an_object_or_its_json() {
        let parse = |value: Value| serde_json::from_value::<TemplateArg>(value).unwrap().parse();
        let expected = json!({ "name": "Ada" }).as_object().unwrap().clone();
        for variables in [json!({ "name": "Ada" }), json!("{\"name\":\"Ada\"}")] {
            let used = parse(json!({ "name": "welcome", "version": 0, "variables": variables })).unwrap();
            assert_eq!((used.version, used.variables), (None, expected.clone()));
        }
        for empty in [Value::Null, json!(""), json!({})] {
            assert!(parse(json!({ "name": "welcome", "variables": empty })).unwrap().variables.is_empty());
        }
        for wrong in [json!(7), json!("Ada"), json!("[1]"), json!(["Ada"])] {
            assert_eq!(
                parse(json!({ "name": "w", "variables": wrong })).unwrap_err().field.unwrap(),
                "template.variables"
            );
        }
    }
}
