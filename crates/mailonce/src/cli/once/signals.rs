//! The signals that ask `once` to end.
//!
//! They are caught before the claim is made: a process that ends between its claim and its command would hold up other
//! callers until its lease ends, or leave the claim unknown although nothing ran. While the command runs, they are passed on
//! to it.

use rustix::process::Signal;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc::{self, UnboundedReceiver},
};

/// The signals that are passed on to the command, and their numbers.
pub(super) const FORWARDED: [(SignalKind, Signal); 5] = [
    (SignalKind::terminate(), Signal::TERM),
    (SignalKind::interrupt(), Signal::INT),
    (SignalKind::hangup(), Signal::HUP),
    (SignalKind::quit(), Signal::QUIT),
    (SignalKind::user_defined1(), Signal::USR1),
];

/// The signals that arrive from now on.
pub(super) struct CaughtSignals {
    queue: UnboundedReceiver<Signal>,
    /// The first one that ends this process, until it is passed on.
    first: Option<Signal>,
    /// Those that this process was started to ignore, such as SIGHUP under `nohup`. They do not end it.
    ignored: u64,
}

impl CaughtSignals {
    /// Catches the signals for the rest of the process.
    pub(super) fn catch() -> Self {
        let ignored = ignored_signals();
        let (sender, queue) = mpsc::unbounded_channel();
        for (kind, number) in FORWARDED {
            let Ok(mut received) = signal(kind) else { continue };
            let sender = sender.clone();
            tokio::spawn(async move { while received.recv().await.is_some() && sender.send(number).is_ok() {} });
        }
        Self { queue, first: None, ignored }
    }

    fn record(&mut self, signal: Signal) {
        let bit = 1_u64.checked_shl(signal.as_raw().unsigned_abs().saturating_sub(1)).unwrap_or(0);
        if self.first.is_none() && self.ignored & bit == 0 {
            self.first = Some(signal);
        }
    }

    /// The first signal that ends this process, if one has arrived.
    pub(super) fn first(&mut self) -> Option<Signal> {
        while let Ok(signal) = self.queue.try_recv() {
            self.record(signal);
        }
        self.first
    }

    /// Waits for the first signal that ends this process.
    pub(super) async fn wait_for_first(&mut self) -> Signal {
        loop {
            if let Some(signal) = self.first {
                return signal;
            }
            match self.queue.recv().await {
                Some(signal) => self.record(signal),
                None => std::future::pending().await,
            }
        }
    }

    /// The next signal to pass on to the command.
    pub(super) async fn next(&mut self) -> Option<Signal> {
        match self.first.take() {
            Some(signal) => Some(signal),
            None => self.queue.recv().await,
        }
    }
}

/// A bit for each signal that this process was started to ignore. None where the system does not tell.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// The exit code of a process that this signal ended, as shells report it.
pub(super) fn exit_code_of(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX)
}
