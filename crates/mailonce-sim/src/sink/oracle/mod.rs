//! The oracle: injects faults into a sink by a seed, logs what reached it, and reports it by webhooks.
//!
//! - [`behavior`] decides about each attempt, from the seed, the recipient and the number of the attempt only.
//! - [`sink_log`] is the append-only log: a line for every mail, accepted or not.
//! - [`webhook_receiver`] receives and logs the webhooks of a server.
//! - [`provider_webhooks`] reports mails to a server by signed webhooks: repeated, late and in any order.
//!
//! The binary `mailonce-sink` runs it in a process of its own, which is never killed.

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
    /// The fault behavior.
    pub behavior: SinkBehavior,
    log: SinkLog,
    webhook_log: SinkLog,
    webhooks: ProviderWebhooks,
}

impl SinkOracle {
    /// Opens the log, and sends webhooks on the current runtime.
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

    /// Logs a mail, and reports it if it was accepted.
    pub fn log_arrival(&self, line: SinkLogLine) {
        if line.taken && !line.email.is_empty() {
            self.webhooks.schedule_events(&line);
        }
        self.log.write(line);
    }

    /// Logs a webhook.
    pub fn log_webhook(&self, notice: impl FnOnce() -> WebhookLogLine) {
        self.webhook_log.append(notice);
    }

    /// Sets where webhooks are sent.
    pub fn set_hook_target(&self, to: HookTarget) {
        self.webhooks.set_target(to);
    }

    /// The number of log lines.
    pub fn logged_count(&self) -> u64 {
        self.log.count()
    }
}
