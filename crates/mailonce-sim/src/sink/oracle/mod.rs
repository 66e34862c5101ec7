//! The oracle: what makes a sink misbehave by a seed, write down what reached it, and tell of it by hooks.
//!
//! - [`mood`] decides what happens to each try, from a seed, the recipient and the number of the try alone.
//! - [`journal`] is the append-only log: a line for every mail that was taken, and for every one that was not.
//! - [`receiver`] takes the webhooks of a server and writes them down.
//! - [`callback`] tells a server by signed hooks what became of its mail: twice, late and in any order.
//!
//! The binary `mailonce-sink` is nothing but this in a process of its own, which is never killed.

pub mod behavior;
pub mod provider_webhooks;
pub mod sink_log;
pub mod webhook_receiver;
use anyhow::Result;
use behavior::{FaultRates, SinkBehavior};
use provider_webhooks::{HookTarget, ProviderWebhooks};
use sink_log::{SinkLog, SinkLogLine};
use std::path::Path;
use webhook_receiver::WebhookLogLine;

/// What the sinks of one process share.
#[derive(Debug)]
pub struct SinkOracle {
    /// How it feels.
    pub behavior: SinkBehavior,
    log: SinkLog,
    webhook_log: SinkLog,
    webhooks: ProviderWebhooks,
}

impl SinkOracle {
    /// Opens the journal, and begins to call back on the runtime that this is called on.
    pub fn open(seed: u64, rates: FaultRates, log: &Path) -> Result<Self> {
        let journal = SinkLog::open(log)?;
        let notices = SinkLog::open(&log.with_file_name(webhook_receiver::WEBHOOK_LOG_FILE))?;
        Ok(Self {
            behavior: SinkBehavior::new(seed, rates),
            log: journal,
            webhook_log: notices,
            webhooks: ProviderWebhooks::start(seed, rates),
        })
    }

    /// Writes down what reached it. What was taken is told of.
    pub fn log_arrival(&self, line: SinkLogLine) {
        if line.taken && !line.email.is_empty() {
            self.webhooks.schedule_events(&line);
        }
        self.log.write(line);
    }

    /// Writes down a webhook.
    pub fn log_webhook(&self, notice: impl FnOnce() -> WebhookLogLine) {
        self.webhook_log.append(notice);
    }

    /// From now on it calls back there.
    pub fn set_hook_target(&self, to: HookTarget) {
        self.webhooks.set_target(to);
    }

    /// Lines that were written.
    pub fn logged_count(&self) -> u64 {
        self.log.count()
    }
}
