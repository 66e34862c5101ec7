//! Parses JSON bodies, and says what is wrong with a body that does not parse.

use crate::typed_errors::{JsonTree, ShapeError};
use mailonce_core::{
    json_limits,
    problem::{Cause, Code, Problem, nearest_name, shorten},
};
use serde::{
    Deserialize as _,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::value::RawValue;

/// Refuses oversized JSON structures before they are parsed, so that hostile bodies cost little.
fn check_json_limits(bytes: &[u8]) -> Result<(), Problem> {
    json_limits::check(bytes).map_err(|excess| Problem::new(Code::TooLarge, format!("the body {excess}")))
}

/// Parses a JSON object. Only a failure pays for the second parse that finds the path of the invalid field.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // Derived deserializers also accept an array in place of an object; the API does not.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return Err(Problem::new(Code::InvalidType, "expected a JSON object, found a list"));
    }
    check_json_limits(bytes)?;
    serde_json::from_slice(bytes).map_err(|error| json_problem::<T>(bytes, &error))
}

/// The items of a JSON array, not parsed yet.
pub(crate) fn parse_items(bytes: &[u8]) -> Result<Vec<&RawValue>, Problem> {
    check_json_limits(bytes)?;
    serde_json::from_slice(bytes).map_err(|error| json_problem::<Vec<IgnoredAny>>(bytes, &error))
}

/// The problem for a body that is not valid JSON, or has the wrong fields or types.
fn json_problem<T: DeserializeOwned>(bytes: &[u8], error: &serde_json::Error) -> Problem {
    let invalid_json = |error: &serde_json::Error| Problem::new(Code::InvalidJson, shorten(&error.to_string()));
    if !error.is_data() {
        return invalid_json(error);
    }
    let tree = match JsonTree::deserialize(&mut serde_json::Deserializer::from_slice(bytes)) {
        Ok(tree) => tree,
        Err(error) => return invalid_json(&error),
    };
    match serde_path_to_error::deserialize::<_, T>(tree) {
        Ok(_) => invalid_json(error),
        Err(error) => {
            let path = error.path().to_string();
            shape_problem(if path == "." { String::new() } else { path }, error.into_inner())
        }
    }
}

fn shape_problem(path: String, error: ShapeError) -> Problem {
    let detail = error.to_string();
    let (path, cause) = match error {
        ShapeError::UnknownField { name, known } => {
            let hint = nearest_name(&name, known.iter().copied())
                .map(|near| format!("; did you mean `{near}`?"))
                .unwrap_or_default();
            // Sometimes the path from serde already ends with the unknown field.
            let path = if path.ends_with(&name) && !path.is_empty() { path } else { join_path(&path, &name) };
            let detail = format!("there is no field `{}`{hint}", shorten(&name));
            return Problem::for_field(Code::UnknownField, shorten(&path), detail);
        }
        ShapeError::MissingField(name) => (join_path(&path, name), Some(Cause::MissingField)),
        ShapeError::Other(_) => (path, None),
    };
    let field = Some(path).filter(|path| !path.is_empty());
    Problem { field, cause, ..Problem::new(Code::InvalidType, detail) }
}

fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
