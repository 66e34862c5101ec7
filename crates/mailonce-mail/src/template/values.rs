//! The values of variables. Fuel counts instructions, but one comparison may read a whole list or a long text, so what
//! comparisons read is bounded here: lists and maps count each item that is read, and long texts leave less fuel.

use minijinja::{
    Value,
    value::{Enumerator, Object, ObjectExt as _, ObjectRepr, Serde},
};
use serde_json::Map;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::FUEL;

/// Items of lists and maps that a render may read, in all parts together.
const MAX_READS: usize = 4_000_000;
/// Bytes that the comparisons of one part may read. One takes at least four instructions.
const MAX_COMPARED_BYTES: u64 = 1 << 30;
const STEPS_PER_COMPARISON: u64 = 4;
/// Texts up to this length leave all the fuel.
const SHORT_TEXT_BYTES: usize = 32 * 1024;
/// The length of a text that a filter may always make.
const FILTERED_TEXT_BYTES: usize = 64 * 1024;

/// Counts the items that a template read, and enforces their limit.
#[derive(Debug, Default)]
pub(super) struct ReadCounter(AtomicUsize);

impl ReadCounter {
    /// Counts one item. Returns false if it is one too many.
    fn count(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) < MAX_READS
    }

    pub(super) fn is_exceeded(&self) -> bool {
        self.0.load(Ordering::Relaxed) > MAX_READS
    }
}

/// The length of the longest text that a filter may make, given the longest text among the variables.
pub(super) fn max_filtered_text(longest: usize) -> usize {
    (2 * longest).max(FILTERED_TEXT_BYTES)
}

/// The fuel of a part, given the longest text among the variables. Filters can make a text twice as long.
pub(super) fn fuel(longest: usize) -> u64 {
    let comparisons = MAX_COMPARED_BYTES / (2 * longest).max(SHORT_TEXT_BYTES) as u64;
    FUEL.min(comparisons.saturating_mul(STEPS_PER_COMPARISON))
}

/// The length of the longest text in a value.
pub(super) fn longest_text(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::String(text) => text.len(),
        serde_json::Value::Array(items) => items.iter().map(longest_text).max().unwrap_or_default(),
        serde_json::Value::Object(members) => {
            members.iter().map(|(name, value)| name.len().max(longest_text(value))).max().unwrap_or_default()
        }
        _ => 0,
    }
}

/// The value of a variable, whose items are counted when they are read.
pub(super) fn counted(value: &serde_json::Value, reads: &Arc<ReadCounter>) -> Value {
    match value {
        serde_json::Value::Array(items) => {
            let items = items.iter().map(|item| counted(item, reads)).collect();
            Value::from_object(CountedList { items, reads: Arc::clone(reads) })
        }
        serde_json::Value::Object(members) => Value::from_object(CountedMap::new(members, reads)),
        scalar => Value::from(Serde(scalar)),
    }
}

#[derive(Debug)]
struct CountedList {
    items: Vec<Value>,
    reads: Arc<ReadCounter>,
}

impl Object for CountedList {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.items.get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.mapped_enumerator(|list| Box::new(list.items.iter().take_while(|_| list.reads.count()).cloned()))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.items.len())
    }
}

#[derive(Debug)]
struct CountedMap {
    members: BTreeMap<String, Value>,
    reads: Arc<ReadCounter>,
}

impl CountedMap {
    fn new(members: &Map<String, serde_json::Value>, reads: &Arc<ReadCounter>) -> Self {
        let member = |(name, value): (&String, &serde_json::Value)| (name.clone(), counted(value, reads));
        Self { members: members.iter().map(member).collect(), reads: Arc::clone(reads) }
    }
}

impl Object for CountedMap {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.members.get(key.as_str()?).cloned()
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.members.get(key).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.mapped_enumerator(|map| {
            Box::new(map.members.keys().take_while(|_| map.reads.count()).map(|name| Value::from(name.as_str())))
        })
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.members.len())
    }
}
