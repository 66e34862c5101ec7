//! The oracle: what makes a sink misbehave by a seed, write down what reached it, and tell of it by hooks.
//!
//! - [`mood`] decides what happens to each try, from a seed, the recipient and the number of the try alone.
//! - [`journal`] is the append-only log: a line for every mail that was taken, and for every one that was not.
//! - [`receiver`] takes the webhooks of a server and writes them down.
//! - [`callback`] tells a server by signed hooks what became of its mail: twice, late and in any order.
//!
//! The binary `mailonce-sink` is nothing but this in a process of its own, which is never killed.

pub mod callback;
pub mod journal;
pub mod mood;
pub mod receiver;

use anyhow::Result;
use callback::{Callbacks, Where};
use journal::{Journal, Line};
use mood::{Mood, Rates};
use receiver::NoticeLine;
use std::path::Path;

/// What the sinks of one process share.
#[derive(Debug)]
pub struct Oracle {
    /// How it feels.
    pub mood: Mood,
    journal: Journal,
    notices: Journal,
    callbacks: Callbacks,
}

impl Oracle {
    /// Opens the journal, and begins to call back on the runtime that this is called on.
    pub fn open(seed: u64, rates: Rates, log: &Path) -> Result<Self> {
        let journal = Journal::open(log)?;
        let notices = Journal::open(&log.with_file_name(receiver::LOG))?;
        Ok(Self { mood: Mood::new(seed, rates), journal, notices, callbacks: Callbacks::start(seed, rates) })
    }

    /// Writes down what reached it. What was taken is told of.
    pub fn note(&self, line: Line) {
        if line.taken && !line.email.is_empty() {
            self.callbacks.taken(&line);
        }
        self.journal.write(line);
    }

    /// Writes down a webhook.
    pub fn told(&self, notice: impl FnOnce() -> NoticeLine) {
        self.notices.append(notice);
    }

    /// From now on it calls back there.
    pub fn call_back(&self, to: Where) {
        self.callbacks.direct(to);
    }

    /// Lines that were written.
    pub fn count(&self) -> u64 {
        self.journal.count()
    }
}
