//! Templates: wording that a team stores once, and fills in with variables for each email.
//!
//! A template has numbered versions. Versions never change, so an email can always say which wording it was sent with.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use uuid::Uuid;

use crate::{id::TeamId, limits, problem::FieldError, time::Time};

/// A variable that a template declares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TemplateVariable {
    /// The value when a send gives none. A variable without a default is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
}

/// What a version of a template says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TemplateSource {
    /// The template of the subject.
    pub subject: String,
    /// The template of the plain text body. Without it, the text is derived from the HTML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The template of the HTML body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// The variables that it declares or uses, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, TemplateVariable>,
}

impl TemplateSource {
    /// Checks sizes and names. Whether it compiles is checked by the template engine.
    pub fn validate(&self) -> Result<(), Vec<FieldError>> {
        let mut faults = Vec::new();
        let mut fault = |path: &str, message: &str| faults.push(FieldError::new(path, message));
        if self.text.is_none() && self.html.is_none() {
            fault("html", "is missing, and so is text: a template needs a body");
        }
        if self.subject.chars().any(char::is_control) {
            fault("subject", "must be one line without control characters");
        }
        for (path, part) in [("text", &self.text), ("html", &self.html)] {
            if part.as_ref().is_some_and(|part| part.contains('\0')) {
                fault(path, "contains NUL");
            }
        }
        if self.variables.len() > limits::TEMPLATE_VARIABLES {
            fault("variables", &format!("must be at most {}", limits::TEMPLATE_VARIABLES));
        }
        for name in self.variables.keys().filter(|name| !is_variable_name(name)) {
            let path = format!("variables.{}", crate::problem::shorten(name));
            fault(&path, "must be a name of 1 to 100 letters, digits and underscores that begins with no digit");
        }
        let bytes = self.size();
        if bytes > limits::TEMPLATE_BYTES {
            let most = limits::TEMPLATE_BYTES / 1024;
            fault("html", &format!("is too long: the template has {bytes} bytes, and at most {most} KiB are allowed"));
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// The bytes of subject, bodies and variables together.
    fn size(&self) -> usize {
        let part = |part: &Option<String>| part.as_ref().map_or(0, String::len);
        let variables = serde_json::to_vec(&self.variables).map_or(usize::MAX, |json| json.len());
        self.subject.len().saturating_add(part(&self.text)).saturating_add(part(&self.html)).saturating_add(variables)
    }
}

/// A version of a template.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// Its team.
    pub team: TeamId,
    /// The id of the template, the same for every version.
    pub id: Uuid,
    /// Its name, unique in the team.
    pub name: String,
    /// The number of this version, from 1.
    pub version: u32,
    /// When the template was created.
    pub created_at: Time,
    /// When this version was created.
    pub updated_at: Time,
    /// What it says.
    pub source: TemplateSource,
}

/// How a caller names a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateKey {
    /// By its name.
    Name(String),
    /// By its id.
    Id(Uuid),
}

impl TemplateKey {
    /// Reads a name or an id. No name has the form of an id.
    pub fn parse(text: &str) -> Self {
        Uuid::try_parse(text).map_or_else(|_not_an_id| Self::Name(text.to_owned()), Self::Id)
    }

    /// Whether it is the key of this template.
    pub fn matches(&self, name: &str, id: Uuid) -> bool {
        match self {
            Self::Name(wanted) => wanted == name,
            Self::Id(wanted) => *wanted == id,
        }
    }
}

/// The result of creating a template.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum CreateTemplateResult {
    /// It was created.
    Created(Template),
    /// This template has the name. Nothing was created.
    NameTaken(Template),
    /// The team has as many templates as it may have.
    TooMany,
}

/// The result of adding a version to a template.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum AddVersionResult {
    /// The new version.
    Added(Template),
    /// Another version was added since the caller read it; this is the newest.
    Stale(Template),
    /// The template has as many versions as it may have.
    TooMany,
    /// No such template in this team.
    Missing,
}

impl AddVersionResult {
    /// Decides about a version that a caller adds after it read `seen`. `newest` is the newest version in the store and
    /// `count` the number of versions.
    pub fn decide(newest: Template, count: usize, (seen, source): (u32, TemplateSource), now: Time) -> Self {
        if newest.version != seen {
            // The same wording again is a retry whose answer was lost.
            let is_retry = newest.version == seen + 1 && newest.source == source;
            return if is_retry { Self::Added(newest) } else { Self::Stale(newest) };
        }
        if count >= limits::TEMPLATE_VERSIONS {
            return Self::TooMany;
        }
        Self::Added(Template { version: newest.version + 1, updated_at: now, source, ..newest })
    }
}

/// A page of templates in their newest version, newest template first.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplatePage {
    /// The templates.
    pub rows: Vec<Template>,
    /// The cursor of the next page; `None` at the end.
    pub next: Option<Uuid>,
}

impl TemplatePage {
    /// A page of at most `limit` rows, from a query that read one row more.
    pub fn from_rows(mut rows: Vec<Template>, limit: usize) -> Self {
        let more = rows.len() > limit;
        rows.truncate(limit);
        Self { next: rows.last().filter(|_| more).map(|row| row.id), rows }
    }
}

/// The template that an email is written with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TemplateUse {
    /// Its name, or its id, as the caller gave it.
    pub name: String,
    /// The version: the requested one, then the one that was rendered. The newest by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The values of its variables. A variable that is null counts as absent.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub variables: Map<String, Value>,
}

impl TemplateUse {
    pub(crate) fn validate(mut self, faults: &mut Vec<FieldError>) -> Self {
        if let Some(message) = name_error(&self.name).filter(|_| Uuid::try_parse(&self.name).is_err()) {
            faults.push(FieldError::new("template.name", message));
        }
        match check_variables(std::mem::take(&mut self.variables)) {
            Ok(variables) => self.variables = variables,
            Err(message) => faults.push(FieldError::new("template.variables", message)),
        }
        self
    }
}

/// Leaves out null values, which count as absent. The error is what is wrong with the values.
pub fn check_variables(mut variables: Map<String, Value>) -> Result<Map<String, Value>, String> {
    variables.retain(|_, value| !value.is_null());
    let bytes = serde_json::to_vec(&variables).map_or(usize::MAX, |json| json.len());
    if bytes > limits::TEMPLATE_BYTES {
        return Err(format!("are larger than {} KiB of JSON", limits::TEMPLATE_BYTES / 1024));
    }
    Ok(variables)
}

/// The template and version that an email was written with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateRef {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: u32,
}

/// What is wrong with the name of a template, or `None`. Names are safe in a path and never look like an id.
pub fn name_error(name: &str) -> Option<&'static str> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let is_valid = (1..=limits::TEMPLATE_NAME_CHARS).contains(&name.len())
        && name.bytes().all(allowed)
        && !name.starts_with('.')
        && Uuid::try_parse(name).is_err();
    (!is_valid).then_some(
        "must have 1 to 128 characters: letters, digits, `-`, `_` and `.`, such as `order-confirmation`, and not the form of an id",
    )
}

/// Whether templates can use a variable of this name.
fn is_variable_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.len() <= 100
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(version: u32, subject: &str) -> Template {
        let source = TemplateSource { subject: subject.into(), text: Some("x".into()), ..TemplateSource::default() };
        Template {
            team: TeamId(Uuid::nil()),
            id: Uuid::from_u128(1),
            name: "welcome".into(),
            version,
            created_at: Time(1),
            updated_at: Time(1),
            source,
        }
    }

    #[test]
    fn a_name_is_safe_in_a_path_and_is_no_id() {
        for good in ["a", "order-confirmation", "Welcome_2.fr"] {
            assert_eq!(name_error(good), None, "{good}");
        }
        let long = "n".repeat(129);
        for bad in ["", ".", "..", "a/b", "a b", "é", &long, "0197a3c2-7d3e-7c11-9b1e-2f6d3a4b5c6d"] {
            assert!(name_error(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn a_version_follows_the_one_that_was_read() {
        let add = |newest: Template, count, seen, subject: &str| {
            AddVersionResult::decide(newest, count, (seen, template(1, subject).source), Time(9))
        };
        let AddVersionResult::Added(added) = add(template(1, "a"), 1, 1, "b") else { panic!("not added") };
        assert_eq!((added.version, added.updated_at, added.created_at), (2, Time(9), Time(1)));
        assert_eq!(add(template(2, "b"), 2, 1, "b"), AddVersionResult::Added(template(2, "b")));
        assert_eq!(add(template(2, "b"), 2, 1, "c"), AddVersionResult::Stale(template(2, "b")));
        assert_eq!(add(template(100, "a"), limits::TEMPLATE_VERSIONS, 100, "b"), AddVersionResult::TooMany);
    }

    #[test]
    fn a_template_has_a_body_and_a_limit() {
        let source = |html: Option<String>, variable: &str| TemplateSource {
            subject: "s".into(),
            text: None,
            html,
            variables: BTreeMap::from([(variable.to_owned(), TemplateVariable::default())]),
        };
        let path = |source: TemplateSource| source.validate().unwrap_err()[0].path.clone();
        assert_eq!(source(Some("x".into()), "name").validate(), Ok(()));
        assert_eq!(path(source(None, "name")), "html");
        assert_eq!(path(source(Some("x".repeat(limits::TEMPLATE_BYTES)), "name")), "html");
        assert_eq!(path(source(Some("x".into()), "first name")), "variables.first name");
        let two_lines = TemplateSource { subject: "a\nb".into(), ..source(Some("x".into()), "name") };
        assert_eq!(path(two_lines), "subject");
    }
}
