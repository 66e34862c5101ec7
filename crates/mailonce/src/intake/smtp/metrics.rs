//! What the listener counts, for whoever shows figures.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $word:literal),* $(,)?) => {
        /// Why something was not taken. A closed set, so that it can be a label.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reason { $($(#[$doc])* $variant),* }

        impl Reason {
            /// Every one of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word for it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }
        }
    };
}

reasons! {
    /// Not a command, or not a well-formed one.
    Syntax = "syntax",
    /// A command that is not for now.
    Sequence = "sequence",
    /// A command or parameter that is not offered.
    NotOffered = "not_offered",
    /// An address that is none.
    Address = "address",
    /// Nobody by that name.
    Unknown = "unknown",
    /// An inbox whose time is over.
    Expired = "expired",
    /// A recipient that was accepted and takes no mail any more when the mail comes.
    Gone = "gone",
    /// A rule refuses the sender.
    Blocked = "blocked",
    /// A domain that is not ours.
    Elsewhere = "elsewhere",
    /// More recipients than one mail may have.
    Recipients = "recipients",
    /// A mail that is too large.
    Size = "size",
    /// A line that does not end as lines do.
    LineEnd = "line_end",
    /// Bytes where none may be: after STARTTLS, or after a DATA that was refused.
    OutOfTurn = "out_of_turn",
    /// More errors or commands than one connection may have.
    Patience = "patience",
    /// A network that comes too often.
    Rate = "rate",
    /// More connections than there is room for.
    Busy = "busy",
    /// More bytes than there is room for.
    Memory = "memory",
    /// More bytes than there is room for on disk.
    Disk = "disk",
    /// More bytes under way than one network may have.
    Share = "share",
    /// The mail could not be kept, or nobody could tell whether it would be.
    Trouble = "trouble",
    /// Silence.
    Timeout = "timeout",
    /// TLS that failed.
    Tls = "tls",
    /// We stop.
    Stopping = "stopping",
}

/// Counters that only grow, and how many sessions are open.
#[derive(Debug, Default)]
pub struct SmtpMetrics {
    connections: AtomicU64,
    open: AtomicU64,
    accepted: AtomicU64,
    accepted_octets: AtomicU64,
    refused: [AtomicU64; Reason::ALL.len()],
}

impl SmtpMetrics {
    /// Connections so far, those that were turned away included.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Sessions that are open now.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Mails taken so far.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Octets of the mails taken so far.
    pub fn accepted_octets(&self) -> u64 {
        self.accepted_octets.load(Ordering::Relaxed)
    }

    /// Refusals for this reason so far.
    pub fn refused(&self, reason: Reason) -> u64 {
        self.refused[reason as usize].load(Ordering::Relaxed)
    }

    /// Every figure in the text form of Prometheus.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let mut single = |name: &str, kind: &str, help: &str, suffix: &str, value: u64| {
            let name = format!("mailonce_smtp_{name}");
            // Writing to a String cannot fail.
            writeln!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}\n{name}{suffix} {value}").ok();
        };
        single("connections", "counter", "Connections to the SMTP listener", "_total", self.connections());
        single("sessions", "gauge", "SMTP sessions that are open", "", self.open());
        single("mails", "counter", "Mails taken by SMTP", "_total", self.accepted());
        single("octets", "counter", "Octets of the mails taken by SMTP", "_total", self.accepted_octets());
        text.push_str("# HELP mailonce_smtp_refused What the SMTP listener did not take, by reason.\n");
        text.push_str("# TYPE mailonce_smtp_refused counter\n");
        for reason in Reason::ALL {
            let count = self.refused(*reason);
            writeln!(text, "mailonce_smtp_refused_total{{reason=\"{}\"}} {count}", reason.as_str()).ok();
        }
        text
    }

    pub(super) fn record_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// A session is open until what this returns is dropped.
    pub(super) fn track_session(self: &Arc<Self>) -> OpenSession {
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenSession(Arc::clone(self))
    }

    pub(super) fn record_accepted(&self, octets: usize) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.accepted_octets.fetch_add(octets as u64, Ordering::Relaxed);
    }

    pub(super) fn record_refusal(&self, reason: Reason) {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// A session that is open.
pub(super) struct OpenSession(Arc<SmtpMetrics>);

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_shown() {
        let tally = Arc::new(SmtpMetrics::default());
        let open = tally.track_session();
        tally.record_connection();
        tally.record_accepted(7);
        tally.record_refusal(Reason::Size);
        let shown = tally.render();
        for line in [
            "mailonce_smtp_connections_total 1",
            "mailonce_smtp_sessions 1",
            "mailonce_smtp_mails_total 1",
            "mailonce_smtp_octets_total 7",
            "mailonce_smtp_refused_total{reason=\"size\"} 1",
            "mailonce_smtp_refused_total{reason=\"rate\"} 0",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line} in {shown}");
        }
        drop(open);
        assert!(tally.render().contains("mailonce_smtp_sessions 0"));
    }
}
