//! Senders that retry until they are acknowledged, and event readers that resume by cursor.

use crate::harness::{child_processes::sleep, http, rng::SeededRng};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

/// How long a reply may take before the sender retries.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two calls of a sender, or of a reader without new events.
const CALL_INTERVAL: Duration = Duration::from_millis(20);
/// One of this many calls repeats an acknowledged key.
const REPEAT_EVERY: u64 = 4;

/// What the clients observed.
#[derive(Debug, Default)]
pub struct ClientObservations {
    /// The email of each acknowledged key.
    pub acknowledged: BTreeMap<String, String>,
    /// The events of each reader: one list for each time it started over.
    pub events_read: Vec<Vec<(u64, String)>>,
    /// Broken invariants.
    pub violations: Vec<String>,
}

/// State that the clients share.
#[derive(Debug, Default)]
pub struct FailoverClients {
    observations: Mutex<ClientObservations>,
    /// Set to stop the senders.
    pub stop_senders: AtomicBool,
    /// Set to stop the readers.
    pub stop_readers: AtomicBool,
    /// Calls with a 503 or no reply.
    pub refused: AtomicU64,
    /// Repeats of acknowledged keys.
    pub repeated: AtomicU64,
    /// How often a reader had to start over.
    pub resets: AtomicU64,
}

impl FailoverClients {
    /// The observations so far.
    pub fn observations(&self) -> MutexGuard<'_, ClientObservations> {
        self.observations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of acknowledged keys so far.
    pub fn acknowledged(&self) -> usize {
        self.observations().acknowledged.len()
    }

    fn record_violation(&self, violation: String) {
        self.observations().violations.push(violation);
    }

    /// Sends one key after another, each until it is acknowledged.
    pub fn run_sender(&self, sender: u64, seed: u64, nodes: &[SocketAddr]) {
        let mut rng = SeededRng::derive(seed, &[sender]);
        let mut own: Vec<(String, String)> = Vec::new();
        for n in 0_u64.. {
            if self.stop_senders.load(Ordering::SeqCst) {
                return;
            }
            let key = format!("f{sender}-{n}");
            let id = self.call_until_final(&key, nodes, &mut rng, None);
            self.observations().acknowledged.insert(key.clone(), id.clone());
            own.push((key, id));
            if rng.below(REPEAT_EVERY) == 0 {
                let (key, id) = own[rng.below(own.len() as u64) as usize].clone();
                self.call_until_final(&key, nodes, &mut rng, Some(&id));
                self.repeated.fetch_add(1, Ordering::Relaxed);
            }
            sleep(CALL_INTERVAL);
        }
    }

    /// Sends a key until it is acknowledged. A repeat of an acknowledged key must return the same email.
    fn call_until_final(&self, key: &str, nodes: &[SocketAddr], rng: &mut SeededRng, known: Option<&str>) -> String {
        loop {
            let at = nodes[rng.below(nodes.len() as u64) as usize];
            let reply = http::post_within(CALL_TIMEOUT, at, "/v1/emails", Some(key), &mail(key));
            let Some((status, body)) = reply.ok().map(|reply| (reply.status, reply.body)) else {
                self.refused.fetch_add(1, Ordering::Relaxed);
                sleep(CALL_INTERVAL);
                continue;
            };
            let id = body["id"].as_str().unwrap_or_default();
            match (status, known) {
                (200 | 202, None) => return id.to_owned(),
                (200, Some(known)) if known == id => return id.to_owned(),
                (200 | 202, Some(known)) => {
                    self.record_violation(format!(
                        "{key} was acknowledged as {known} and answered {status} as {id} later"
                    ));
                    return id.to_owned();
                }
                (503, _) => {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    sleep(CALL_INTERVAL);
                }
                _ => {
                    self.record_violation(format!("{key} was answered {status}: {body}"));
                    return id.to_owned();
                }
            }
        }
    }

    /// Reads a node's events from the start, and starts over when the server asks for it.
    pub fn run_reader(&self, at: SocketAddr) {
        let (mut cursor, mut shown) = ("0".to_owned(), Vec::new());
        loop {
            let over = self.stop_readers.load(Ordering::SeqCst);
            let reply = http::get(at, &format!("/v1/events?limit=1000&after={cursor}"));
            let (status, body) = reply.map_or((0, Value::Null), |reply| (reply.status, reply.body));
            match status {
                200 => {
                    let rows = body["data"].as_array().map_or(&[][..], Vec::as_slice);
                    self.record_events(rows, &mut shown);
                    if let Some(next) = body["next_cursor"].as_str() {
                        next.clone_into(&mut cursor);
                        continue;
                    }
                    if over {
                        return self.observations().events_read.push(shown);
                    }
                }
                410 if cursor != "0" => {
                    self.resets.fetch_add(1, Ordering::Relaxed);
                    self.observations().events_read.push(std::mem::take(&mut shown));
                    "0".clone_into(&mut cursor);
                    continue;
                }
                0 | 410 | 503 => {}
                _ => self.record_violation(format!("events after {cursor} were answered {status}: {body}")),
            }
            sleep(CALL_INTERVAL);
        }
    }

    /// Records events in order: their numbers have no gaps.
    fn record_events(&self, rows: &[Value], shown: &mut Vec<(u64, String)>) {
        for row in rows {
            let (seq, id) = (row["seq"].as_u64().unwrap_or_default(), row["id"].as_str().unwrap_or_default());
            let expected = shown.last().map_or(1, |(last, _)| last + 1);
            if seq != expected {
                self.record_violation(format!("a reader was shown event {seq} where {expected} was next"));
            }
            shown.push((seq, id.to_owned()));
        }
    }
}

/// Checks the readers' events against the final ones: each must exist under its number.
pub fn check_readers(shown: &[Vec<(u64, String)>], events: &[(u64, String)]) -> Vec<String> {
    let there: BTreeSet<&(u64, String)> = events.iter().collect();
    let lost = |list: &Vec<(u64, String)>| {
        let lost: Vec<_> = list.iter().filter(|event| !there.contains(event)).collect();
        lost.first()
            .map(|(seq, id)| format!("a reader was shown event {seq} ({id}), which is lost; {} are", lost.len()))
    };
    shown.iter().filter_map(lost).collect()
}

/// The mail of a key. Its recipient identifies it at the sink.
fn mail(key: &str) -> Value {
    json!({
        "from": "agent@example.com",
        "to": format!("{key}@example.org"),
        "subject": format!("About {key}"),
        "text": format!("This is about {key}."),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_and_a_lost_event_are_noticed() {
        let (clients, mut shown) = (FailoverClients::default(), Vec::new());
        clients.record_events(&[json!({"seq": 1, "id": "a"}), json!({"seq": 3, "id": "c"})], &mut shown);
        assert_eq!(clients.observations().violations.len(), 1);
        let events = [(1, "a".to_owned()), (2, "b".to_owned())];
        assert_eq!(check_readers(&[shown], &events).len(), 1);
        assert!(check_readers(&[vec![(1, "a".to_owned())]], &events).is_empty());
    }
}
