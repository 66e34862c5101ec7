//! Failpoints: named points at which the test harness stops the process. Compiled out of a build without the feature
//! `failpoints`.
//!
//! A failpoint belongs between two steps that can be distinguished after a crash. Its name must be in [`POINTS`],
//! otherwise the code that uses it does not compile. The crash test checks its table against the same list.

/// All failpoints, in the order in which an email reaches them.
pub const POINTS: [&str; 82] = [
    // Opening the ledger.
    "sqlite-migrating",
    "sqlite-migrated",
    "postgres-migrating",
    "postgres-migrated",
    "heartbeat",
    "recovered",
    // An API call.
    "api-before-send",
    "api-after-send",
    "api-before-batch",
    "api-after-batch",
    "api-before-change",
    "api-after-change",
    "api-before-resolve",
    "api-after-resolve",
    // The writer thread of SQLite.
    "sqlite-before-begin",
    "sqlite-after-begin",
    "sqlite-before-commit",
    "sqlite-after-commit",
    "sqlite-answering",
    // PostgreSQL: accept batches, locked transactions and the event sequencer.
    "postgres-before-round",
    "postgres-after-round",
    "postgres-locked",
    "postgres-before-commit",
    "postgres-after-commit",
    "postgres-numbering",
    "postgres-numbered",
    // A handoff.
    "captured",
    "before-lease",
    "after-lease",
    "approach",
    "smtp-envelope",
    "smtp-body",
    "http-connected",
    "before-marker",
    "after-marker",
    "smtp-before-dot",
    "smtp-after-dot",
    "smtp-after-answer",
    "http-before-request",
    "http-after-answer",
    "after-answer",
    "after-settle",
    // Unknown outcomes, and events from providers.
    "repeat",
    "before-look-up",
    "after-look-up",
    "hook-before-note",
    "hook-after-note",
    // Webhook notices.
    "notice-leased",
    "notice-posting",
    "notice-answered",
    "notice-settled",
    // Receiving mail: session, storage and acknowledgement.
    "mail-session",
    "mail-data",
    "hook-received",
    "mail-before-commit",
    "mail-after-commit",
    "mail-before-250",
    "hook-before-answer",
    // Processing mail: filing, events, and consuming a code.
    "mail-leased",
    "mail-parsed",
    "before-filing",
    "after-filing",
    "mail-told",
    "before-consume",
    "after-consume",
    "before-reply",
    "after-reply",
    // Claims.
    "claim-before-acquire",
    "claim-after-acquire",
    "claim-before-action",
    "claim-after-action",
    "claim-lapsed",
    // Draining an outbox.
    "outbox-leased",
    "outbox-accepted",
    "outbox-marked",
    "outbox-replay-recorded",
    // Erasing a person.
    "erasure-before-save",
    "erasure-after-save",
    "erasure-before-overwrite",
    "erasure-after-overwrite",
    // Maintenance.
    "before-sweep",
    "after-sweep",
];

/// Passes a failpoint.
#[cfg(feature = "failpoints")]
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {{
        const { assert!($crate::failpoint::is_known($name), "this point is not in the list") };
        $crate::failpoint::reach($name);
    }};
}

/// Passes a failpoint: does nothing in this build.
#[cfg(not(feature = "failpoints"))]
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {
        const { assert!($crate::failpoint::is_known($name), "this point is not in the list") }
    };
}

/// Whether a failpoint is in the list.
pub const fn is_known(name: &str) -> bool {
    let mut at = 0;
    while at < POINTS.len() {
        if bytes_equal(POINTS[at].as_bytes(), name.as_bytes()) {
            return true;
        }
        at += 1;
    }
    false
}

/// Compares bytes, because `==` is not available in constants.
const fn bytes_equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Stops or kills the process as the environment asks. `MAILONCE_FAILPOINT=name:kill:3` kills it when the point is
/// reached for the third time; `stop` sends SIGSTOP to itself. It reports this on stderr first.
///
/// It blocks its thread, even under an async runtime, because nothing may run here before the signal is handled.
#[cfg(feature = "failpoints")]
pub fn reach(name: &str) {
    use rustix::process::{Signal, getpid, kill_process};
    use std::sync::atomic::{AtomicU64, Ordering};
    static REACHED: AtomicU64 = AtomicU64::new(0);
    let Some(trigger) = TRIGGER.as_ref().filter(|trigger| trigger.point == name) else { return };
    if REACHED.fetch_add(1, Ordering::SeqCst) + 1 != trigger.nth_hit {
        return;
    }
    eprintln!("failpoint {name} {}", if trigger.sends_stop { "stop" } else { "kill" });
    let mut seen = std::time::Instant::now();
    let sent = kill_process(getpid(), if trigger.sends_stop { Signal::STOP } else { Signal::KILL });
    // Another thread may handle the signal, a moment later.
    while sent.is_ok() && seen.elapsed() < STOP_DETECTION_GAP {
        seen = std::time::Instant::now();
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
}

/// The failpoint that the environment asks for.
#[cfg(feature = "failpoints")]
struct FailpointTrigger {
    point: String,
    sends_stop: bool,
    nth_hit: u64,
}

#[cfg(feature = "failpoints")]
static TRIGGER: std::sync::LazyLock<Option<FailpointTrigger>> = std::sync::LazyLock::new(|| {
    let text = std::env::var("MAILONCE_FAILPOINT").ok()?;
    let mut parts = text.split(':');
    let point = parts.next()?.to_owned();
    let stop = parts.next()? == "stop";
    Some(FailpointTrigger { point, sends_stop: stop, nth_hit: parts.next().and_then(|n| n.parse().ok()).unwrap_or(1) })
});

/// A gap by which the process detects that it was stopped. The test harness stops it for longer.
#[cfg(feature = "failpoints")]
const STOP_DETECTION_GAP: std::time::Duration = std::time::Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::{POINTS, is_known};
    use std::collections::BTreeSet;

    #[test]
    fn every_point_has_a_name_of_its_own() {
        assert_eq!(POINTS.iter().collect::<BTreeSet<_>>().len(), POINTS.len());
        assert!(POINTS.iter().all(|name| is_known(name)));
        assert!(!is_known("after-marke") && !is_known("after-markers") && !is_known(""));
    }
}
