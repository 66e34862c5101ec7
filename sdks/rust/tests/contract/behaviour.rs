//! Plays sdks/contract/behaviour.json: what tests see in the double is what they would see in earnest. `network_faults` plays the
//! same against a real server.

use mailonce_sdk::Client;
use serde_json::{Map, Value};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::play::{error_shown, lacks, make};

/// Puts what was kept into the place of `{name}`.
fn filled(value: &Value, kept: &Map<String, Value>) -> Value {
    let mut text = value.to_string();
    for (name, value) in kept {
        text = text.replace(&format!("{{{name}}}"), value.as_str().unwrap_or_default());
    }
    serde_json::from_str(&text).unwrap()
}

fn picked<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(value, |inner, name| match (inner.as_array(), name.parse::<i64>()) {
        (Some(items), Ok(place)) if place < 0 => &items[items.len() - place.unsigned_abs() as usize],
        (Some(items), Ok(place)) => &items[place as usize],
        _ => &inner[name],
    })
}

/// Tells every story, and fails where it goes on differently.
pub(crate) async fn tell(mo: &Client, receive: impl Fn(&Value)) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../contract/behaviour.json");
    let stories: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for story in stories.as_array().unwrap() {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        let mut kept = Map::from_iter([("run".to_owned(), Value::from(format!("r{since:x}")))]);
        for step in story["steps"].as_array().unwrap() {
            let step = filled(step, &kept);
            if !step["receive"].is_null() {
                receive(&step["receive"]);
                continue;
            }
            let said = format!("{}: {}", story["name"], step["call"]);
            match make(mo, step["call"].as_str().unwrap(), &step["args"]).await {
                Ok(result) => {
                    assert!(step["error"].is_null(), "{said} went well: {result}");
                    if let Some(wanted) = step.get("result") {
                        assert_eq!(lacks(wanted, &result, "result"), None, "{said}");
                    }
                    for (name, path) in step["keep"].as_object().into_iter().flatten() {
                        kept.insert(name.clone(), picked(&result, path.as_str().unwrap()).clone());
                    }
                }
                Err(error) => {
                    assert!(!step["error"].is_null(), "{said}: {error:?}");
                    assert_eq!(lacks(&step["error"], &error_shown(&error), "error"), None, "{said}");
                }
            }
        }
    }
}
