//! Compares the status of a response with those that the OpenAPI document declares for its operation.

use serde_json::Value;

use crate::call::TestResponse;

/// Fails if a call of `/v1` was answered with a status that the document does not declare. A client that was generated
/// from the document cannot handle one.
#[track_caller]
pub(crate) fn expect_declared_status(method: &str, path: &str, response: &TestResponse) {
    let Some(operation) = operation(method, path) else { return };
    let declared = operation["responses"].get(response.status.to_string());
    assert!(declared.is_some(), "{method} {path}: {} is not declared: {}", response.status, response.text);
}

/// The operation of a call. Of two paths that match, the one with fewer parameters has it, as in the router.
fn operation(method: &str, path: &str) -> Option<&'static Value> {
    let paths = mailonce::api::openapi()["paths"].as_object()?;
    let matching = paths.iter().filter(|(template, _)| template.starts_with("/v1/") && matches(template, path));
    let (_, methods) = matching.min_by_key(|(template, _)| template.matches('{').count())?;
    methods.get(method.to_ascii_lowercase())
}

fn matches(template: &str, path: &str) -> bool {
    let is_parameter = |segment: &str| segment.starts_with('{');
    let fits = |(wanted, given): (&str, &str)| is_parameter(wanted) || wanted == given;
    template.split('/').count() == path.split('/').count() && template.split('/').zip(path.split('/')).all(fits)
}
