//! Counters of the SMTP listener, in Prometheus format.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $word:literal),* $(,)?) => {
        /// Why something was refused. A closed set, so that it can be a metric label.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reason { $($(#[$doc])* $variant),* }

        impl Reason {
            /// All reasons.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The value of the metric label.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }
        }
    };
}

reasons! {
    /// An unknown or malformed command.
    Syntax = "syntax",
    /// A command that is not allowed in this state.
    Sequence = "sequence",
    /// A command or parameter that is not offered.
    NotOffered = "not_offered",
    /// An invalid address.
    Address = "address",
    /// An unknown recipient.
    Unknown = "unknown",
    /// An expired inbox.
    Expired = "expired",
    /// A recipient that was accepted at RCPT, but no longer when the mail was committed.
    Gone = "recipient_gone",
    /// A rule blocks the sender.
    Blocked = "blocked",
    /// A domain that is not local.
    Elsewhere = "relay_denied",
    /// Too many recipients in one mail.
    Recipients = "recipients",
    /// A mail that is too large.
    Size = "size",
    /// A line that does not end in CR LF.
    LineEnd = "bad_line_end",
    /// Bytes sent too early: after STARTTLS, or after a refused DATA.
    OutOfTurn = "unexpected_input",
    /// Too many errors or commands on one connection.
    Patience = "too_many_errors",
    /// A network exceeded its rate or connection limit.
    Rate = "rate",
    /// Too many connections in total.
    Busy = "connection_limit",
    /// No memory left for the mail.
    Memory = "memory",
    /// No disk space left for the mail.
    Disk = "disk",
    /// The network has used up its share of memory or disk space.
    Share = "network_share",
    /// A temporary error of the server: the mail could not be committed, or the recipient could not be checked.
    Trouble = "temporary_error",
    /// The client was silent or too slow.
    Timeout = "timeout",
    /// The TLS handshake failed.
    Tls = "tls",
    /// The server is shutting down.
    Stopping = "stopping",
}

/// Counters of the listener, and a gauge of open sessions.
#[derive(Debug, Default)]
pub struct SmtpMetrics {
    connections: AtomicU64,
    open: AtomicU64,
    accepted: AtomicU64,
    accepted_octets: AtomicU64,
    refused: [AtomicU64; Reason::ALL.len()],
}

impl SmtpMetrics {
    /// Connections so far, including rejected ones.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Open sessions.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Mails accepted so far.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Octets of the mails accepted so far.
    pub fn accepted_octets(&self) -> u64 {
        self.accepted_octets.load(Ordering::Relaxed)
    }

    /// Refusals for this reason so far.
    pub fn refused(&self, reason: Reason) -> u64 {
        self.refused[reason as usize].load(Ordering::Relaxed)
    }

    /// All metrics in the Prometheus text format.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let mut write_metric = |name: &str, kind: &str, help: &str, suffix: &str, value: u64| {
            let name = format!("mailonce_smtp_{name}");
            // Writing to a String cannot fail.
            writeln!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}\n{name}{suffix} {value}").ok();
        };
        write_metric("connections", "counter", "Connections to the SMTP listener", "_total", self.connections());
        write_metric("sessions", "gauge", "Open SMTP sessions", "", self.open());
        write_metric("mails", "counter", "Mails accepted by SMTP", "_total", self.accepted());
        write_metric("bytes", "counter", "Bytes of the mails accepted by SMTP", "_total", self.accepted_octets());
        text.push_str("# HELP mailonce_smtp_refused Refusals of the SMTP listener, by reason.\n");
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

    /// Counts an open session until the returned guard is dropped.
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

/// A guard that counts one open session until it is dropped.
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
        let metrics = Arc::new(SmtpMetrics::default());
        let open = metrics.track_session();
        metrics.record_connection();
        metrics.record_accepted(7);
        metrics.record_refusal(Reason::Size);
        let shown = metrics.render();
        for line in [
            "mailonce_smtp_connections_total 1",
            "mailonce_smtp_sessions 1",
            "mailonce_smtp_mails_total 1",
            "mailonce_smtp_bytes_total 7",
            "mailonce_smtp_refused_total{reason=\"size\"} 1",
            "mailonce_smtp_refused_total{reason=\"rate\"} 0",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line} in {shown}");
        }
        drop(open);
        assert!(metrics.render().contains("mailonce_smtp_sessions 0"));
    }
}
