//! The filters and tests of templates. Each filter measures the text that it reads and makes, so that filters in a loop
//! cannot take more time or memory than a render is allowed.

use minijinja::{
    Environment, Error, ErrorKind, State, Value, filters as builtin, tests as builtin_tests, value::ValueKind,
};
use std::{
    borrow::Cow,
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{MAX_RENDERED_BYTES, too_long};

/// The names of filters.
pub(super) const FILTERS: [&str; 23] = [
    "abs",
    "capitalize",
    "count",
    "d",
    "default",
    "e",
    "escape",
    "first",
    "fixed",
    "float",
    "int",
    "items",
    "join",
    "last",
    "length",
    "lower",
    "replace",
    "round",
    "safe",
    "trim",
    "truncate",
    "upper",
    "urlencode",
];
/// The names of filters that always return a number.
pub(super) const NUMERIC_FILTERS: [&str; 6] = ["abs", "count", "float", "int", "length", "round"];
/// The names of tests.
pub(super) const TESTS: [&str; 10] =
    ["defined", "even", "false", "mapping", "none", "number", "odd", "sequence", "string", "undefined"];

/// Bytes that the filters of one part may read and make.
const MAX_FILTERED_BYTES: usize = 16 * 1024 * 1024;
/// Decimals that `fixed` writes at most.
const MAX_DECIMALS: usize = 10;

/// Counts the bytes that the filters of one template part read and make, and enforces their limits.
#[derive(Default)]
pub(super) struct FilterBudget {
    used: AtomicUsize,
    /// The longest text that a filter may make.
    max_text: usize,
}

impl FilterBudget {
    pub(super) fn new(max_text: usize) -> Self {
        Self { used: AtomicUsize::default(), max_text }
    }

    fn spend(&self, bytes: usize) -> Result<(), Error> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if bytes > MAX_RENDERED_BYTES || used > MAX_FILTERED_BYTES {
            return Err(Error::new(ErrorKind::InvalidOperation, too_long()));
        }
        Ok(())
    }

    /// Refuses a text that is so long that comparisons with it would take too long.
    fn check_length(&self, bytes: usize) -> Result<(), Error> {
        if bytes <= self.max_text {
            return Ok(());
        }
        let message = format!("a filter makes a text of more than {} KiB", self.max_text / 1024);
        Err(Error::new(ErrorKind::InvalidOperation, message))
    }

    /// Measures a text that a filter made.
    fn measured(&self, text: String) -> Result<String, Error> {
        self.spend(text.len())?;
        self.check_length(text.len())?;
        Ok(text)
    }
}

/// Registers a filter from text to text.
fn add_text_filter(
    env: &mut Environment<'_>,
    filter_budget: &Arc<FilterBudget>,
    name: &'static str,
    filter: fn(&str) -> String,
) {
    let filter_budget = Arc::clone(filter_budget);
    env.add_filter(name, move |text: Cow<'_, str>| {
        filter_budget.spend(text.len())?;
        filter_budget.measured(filter(&text))
    });
}

pub(super) fn register(env: &mut Environment<'_>, filter_budget: &Arc<FilterBudget>) {
    add_text_filter(env, filter_budget, "upper", str::to_uppercase);
    add_text_filter(env, filter_budget, "lower", str::to_lowercase);
    add_text_filter(env, filter_budget, "trim", |text| text.trim().to_owned());
    add_text_filter(env, filter_budget, "capitalize", capitalize);
    add_text_filter(env, filter_budget, "urlencode", urlencode);
    for name in ["d", "default"] {
        env.add_filter(name, default);
    }
    env.add_filter("fixed", fixed);
    env.add_filter("round", builtin::round);
    env.add_filter("abs", builtin::abs);
    env.add_filter("int", builtin::int);
    env.add_filter("float", builtin::float);
    env.add_filter("first", builtin::first);
    env.add_filter("items", builtin::items);
    add_measured_filters(env, filter_budget);
    env.add_test("defined", builtin_tests::is_defined);
    env.add_test("undefined", builtin_tests::is_undefined);
    env.add_test("none", builtin_tests::is_none);
    env.add_test("even", builtin_tests::is_even);
    env.add_test("odd", builtin_tests::is_odd);
    env.add_test("number", builtin_tests::is_number);
    env.add_test("string", builtin_tests::is_string);
    env.add_test("sequence", builtin_tests::is_sequence);
    env.add_test("mapping", builtin_tests::is_mapping);
    env.add_test("false", builtin_tests::is_false);
}

/// Filters with arguments whose cost depends on the length of a text or a list.
fn add_measured_filters(env: &mut Environment<'_>, filter_budget: &Arc<FilterBudget>) {
    for name in ["length", "count"] {
        let filter_budget = Arc::clone(filter_budget);
        env.add_filter(name, move |value: Value| {
            filter_budget.spend(value.as_str().map_or(0, str::len))?;
            builtin::length(&value)
        });
    }
    for name in ["e", "escape"] {
        let filter_budget = Arc::clone(filter_budget);
        env.add_filter(name, move |state: &mut State<'_, '_>, value: Value| {
            filter_budget.spend(value.as_str().map_or(0, str::len))?;
            let escaped = builtin::escape(state, &value)?;
            let bytes = escaped.as_str().map_or(0, str::len);
            filter_budget.spend(bytes)?;
            filter_budget.check_length(bytes)?;
            Ok::<_, Error>(escaped)
        });
    }
    let shared = Arc::clone(filter_budget);
    env.add_filter("safe", move |text: String| shared.measured(text).map(Value::from_safe_string));
    let shared = Arc::clone(filter_budget);
    env.add_filter("last", move |value: Value| {
        shared.spend(value.as_str().map_or(0, str::len))?;
        builtin::last(value)
    });
    let shared = Arc::clone(filter_budget);
    env.add_filter("truncate", move |text: Cow<'_, str>, chars: usize| {
        shared.spend(text.len())?;
        let cut = text.char_indices().nth(chars).map(|(end, _)| format!("{}…", text.get(..end).unwrap_or_default()));
        Ok::<_, Error>(cut.unwrap_or_else(|| text.into_owned()))
    });
    let shared = Arc::clone(filter_budget);
    env.add_filter("replace", move |text: Cow<'_, str>, from: Cow<'_, str>, to: Cow<'_, str>| {
        // Counted before it is made, because the result may be far longer than each of the three.
        shared.spend(text.len())?;
        let found = if from.is_empty() { text.len() + 1 } else { text.matches(&*from).count() };
        shared.spend(found.saturating_mul(to.len()))?;
        shared.measured(text.replace(&*from, &to))
    });
    let shared = Arc::clone(filter_budget);
    env.add_filter("join", move |list: Value, separator: Option<Cow<'_, str>>| {
        if list.is_undefined() {
            return Err(undefined(list));
        }
        let (separator, mut joined) = (separator.unwrap_or_default(), String::new());
        for (place, item) in list.try_iter()?.enumerate() {
            let item = Cow::<str>::try_from_value(&item)?;
            if place > 0 {
                joined.push_str(&separator);
            }
            joined.push_str(&item);
            shared.spend(item.len() + separator.len())?;
            shared.check_length(joined.len())?;
        }
        Ok(joined)
    });
}

/// The engine's error for an undefined value, which names the variable.
fn undefined(value: Value) -> Error {
    f64::try_from(value).err().unwrap_or_else(|| ErrorKind::UndefinedError.into())
}

/// Text of a value that may stand in a mail.
trait TextValue<'a>: Sized {
    fn try_from_value(value: &'a Value) -> Result<Self, Error>;
}

impl<'a> TextValue<'a> for Cow<'a, str> {
    fn try_from_value(value: &'a Value) -> Result<Self, Error> {
        match (value.as_str(), value.kind()) {
            (Some(text), _) => Ok(Cow::Borrowed(text)),
            (None, ValueKind::Number | ValueKind::Bool) => Ok(Cow::Owned(value.to_string())),
            (None, kind) => {
                Err(Error::new(ErrorKind::InvalidOperation, format!("a {kind} cannot be joined to a text")))
            }
        }
    }
}

/// The value, or the default where it is undefined or null.
fn default(value: &Value, default: Option<Value>) -> Value {
    if value.is_undefined() || value.is_none() { default.unwrap_or_else(|| Value::from("")) } else { value.clone() }
}

/// A number with a fixed number of decimals, such as `12.50`.
fn fixed(value: Value, decimals: Option<usize>) -> Result<String, Error> {
    let number = match value.as_str() {
        None => f64::try_from(value)?,
        Some(text) => {
            let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
            number.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "`fixed` needs a number"))?
        }
    };
    let decimals = decimals.unwrap_or(2);
    if decimals > MAX_DECIMALS {
        let message = format!("`fixed` writes at most {MAX_DECIMALS} decimals");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    Ok(format!("{number:.decimals$}"))
}

fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(chars.as_str().to_lowercase().chars()).collect())
}

/// Percent-encodes everything but the unreserved characters of RFC 3986.
fn urlencode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string never fails.
            write!(encoded, "%{byte:02X}").unwrap_or_default();
        }
    }
    encoded
}
