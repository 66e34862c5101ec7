//! Metrics for operators. Label values come from closed sets, never from addresses, keys or ids.

use mailonce_core::{
    control::stop::StopKind,
    conversation::approval_link::Notification,
    events::{
        endpoint::{EndpointGauge, EndpointState},
        notice::{WebhookError, WebhookVerdict},
    },
    handoff::{lease::Backlog, reply::ReplyMeaning},
    inbound::{
        delivery::{DeliveryOutcome, DeliverySuppression, Intake, NewDelivery, ReceiveResult},
        provider_mail::{FetchError, FetchedMail, MailListPage},
    },
    inbox::message::FileMessageResult,
    installation::{Gauges, RecoveryCounts},
    outbound::{email::Channel, suppressed_call::SuppressedReason},
    outbox::RowOutcome,
    time::Time,
};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};
use std::{collections::BTreeMap, fmt::Write as _};

use crate::{
    handoff::transport_selector::{OrphanedTransport, TransportStatus},
    runtime::time::ClockState,
};

/// A replay this soon after the first call counts as a race between the two.
const RACE_WINDOW_MS: i64 = 100;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChannelLabels {
    channel: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DeduplicationLabels {
    channel: &'static str,
    reason: &'static str,
}

/// Transports are named in the configuration, so their number is bounded.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandoffLabels {
    transport: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResolutionLabels {
    by: &'static str,
}

/// Providers and outcomes are closed sets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProviderEventLabels {
    provider: &'static str,
    outcome: &'static str,
}

/// Providers, requests and outcomes are closed sets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CollectLabels {
    provider: &'static str,
    operation: &'static str,
    outcome: &'static str,
}

fn withheld_label(error: &FetchError) -> &'static str {
    match error {
        FetchError::Temporary { .. } => "retry",
        FetchError::NotFound(_) => "gone",
        FetchError::Permanent(_) => "failed",
    }
}

/// Intakes, outcomes and reasons are closed sets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DeliveryLabels {
    intake: &'static str,
    outcome: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FilingLabels {
    intake: &'static str,
    layer: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ArtifactLabels {
    outcome: &'static str,
}

/// Outcomes are a closed set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NoticeLabels {
    outcome: &'static str,
}

/// Outcomes are a closed set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutboxLabels {
    outcome: &'static str,
}

/// Outcomes are a closed set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ApprovalNotificationLabels {
    outcome: &'static str,
}

/// Labels of the panic counter. `worker` is one of a fixed set of names, so the number of time series is bounded.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PanicLabels {
    worker: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RecoveryLabels {
    kind: &'static str,
}

/// Metrics of sends and of the keys they use.
struct SendMetrics {
    attempted: Family<ChannelLabels, Counter>,
    deduplicated: Family<DeduplicationLabels, Counter>,
    mismatches: Counter,
    accepted: Counter,
    keyless: Counter,
    key_races: Counter,
    hit_age: Histogram,
    ttl: Histogram,
}

impl Default for SendMetrics {
    fn default() -> Self {
        Self {
            attempted: Family::default(),
            deduplicated: Family::default(),
            mismatches: Counter::default(),
            accepted: Counter::default(),
            keyless: Counter::default(),
            key_races: Counter::default(),
            hit_age: Histogram::new([0.0001, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.8, 0.9, 1.0]),
            ttl: Histogram::new([3_600.0, 86_400.0, 604_800.0, 1_209_600.0, 3_024_000.0, 7_776_000.0, 34_560_000.0]),
        }
    }
}

/// Metrics of handoffs, and of what providers report about them.
#[derive(Default)]
struct HandoffMetrics {
    captured: Counter,
    attempts: Family<HandoffLabels, Counter>,
    resolved: Family<ResolutionLabels, Counter>,
    stale_markers: Counter,
    provider_deduplicated: Counter,
    provider_events: Family<ProviderEventLabels, Counter>,
}

/// Metrics of received mail.
#[derive(Default)]
struct InboundMetrics {
    collected: Family<CollectLabels, Counter>,
    deliveries: Family<DeliveryLabels, Counter>,
    filed: Family<FilingLabels, Counter>,
    artifacts: Family<ArtifactLabels, Counter>,
}

/// All metrics and their registry.
pub struct Metrics {
    registry: Registry,
    sends: SendMetrics,
    handoffs: HandoffMetrics,
    inbound: InboundMetrics,
    notice_attempts: Family<NoticeLabels, Counter>,
    approval_notifications: Family<ApprovalNotificationLabels, Counter>,
    panics: Family<PanicLabels, Counter>,
    recovered: Family<RecoveryLabels, Counter>,
    search_indexed: Counter,
    outbox_rows: Family<OutboxLabels, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            registry: Registry::default(),
            sends: SendMetrics::default(),
            handoffs: HandoffMetrics::default(),
            inbound: InboundMetrics::default(),
            notice_attempts: Family::default(),
            approval_notifications: Family::default(),
            panics: Family::default(),
            recovered: Family::default(),
            search_indexed: Counter::default(),
            outbox_rows: Family::default(),
        };
        Self { registry: metrics.build_registry(), ..metrics }
    }
}

impl Metrics {
    /// Registers every metric under its name.
    fn build_registry(&self) -> Registry {
        let (metrics, mut registry) = (self, Registry::with_prefix("mailonce"));
        registry.register("send_requests", "Send requests", metrics.sends.attempted.clone());
        registry.register(
            "send_deduplicated",
            "Sends answered with an earlier email",
            metrics.sends.deduplicated.clone(),
        );
        registry.register(
            "key_mismatches",
            "Sends refused because their key is bound to a different email",
            metrics.sends.mismatches.clone(),
        );
        registry.register("send_accepted", "Emails accepted", metrics.sends.accepted.clone());
        registry.register("search_indexed", "Emails and messages made searchable", metrics.search_indexed.clone());
        registry.register("send_keyless", "Emails accepted without a key", metrics.sends.keyless.clone());
        registry.register("handoff_captured", "Envelopes captured by the sandbox", metrics.handoffs.captured.clone());
        registry.register("handoff_attempts", "Attempts by transport and result", metrics.handoffs.attempts.clone());
        registry.register(
            "handoff_resolved",
            "Unknown outcomes that were resolved, by method",
            metrics.handoffs.resolved.clone(),
        );
        registry.register(
            "handoff_stale_markers",
            "Attempts that stopped at the marker because the handoff was cancelled or taken over",
            metrics.handoffs.stale_markers.clone(),
        );
        registry.register(
            "hook_reports",
            "Provider events by provider and outcome",
            metrics.handoffs.provider_events.clone(),
        );
        registry.register(
            "provider_deduplicated",
            "Retries with the same key that the next hop recognized as duplicates",
            metrics.handoffs.provider_deduplicated.clone(),
        );
        registry.register(
            "provider_fetches",
            "Requests to providers that hold received mail, by outcome",
            metrics.inbound.collected.clone(),
        );
        registry.register(
            "inbound_deliveries",
            "Received deliveries by intake, outcome and reason",
            metrics.inbound.deliveries.clone(),
        );
        registry.register(
            "inbound_messages",
            "Processed deliveries by intake, layer and reason",
            metrics.inbound.filed.clone(),
        );
        registry.register("artifacts", "Codes and links by outcome", metrics.inbound.artifacts.clone());
        registry.register("notice_attempts", "Webhook attempts by outcome", metrics.notice_attempts.clone());
        let approvals = metrics.approval_notifications.clone();
        registry.register("approval_notifications", "Attempts to tell somebody of a question", approvals);
        registry.register("outbox_rows", "Rows of outboxes that were tried", metrics.outbox_rows.clone());
        registry.register("worker_panics", "Workers and loops that panicked", metrics.panics.clone());
        registry.register("recovered_work", "Work taken over from dead nodes, by kind", metrics.recovered.clone());
        registry.register(
            "key_concurrent_replays",
            "Replays within 100 ms of the first call, from concurrent callers",
            metrics.sends.key_races.clone(),
        );
        registry.register("key_hit_age_ratio", "Age of a key at a hit, over its ttl", metrics.sends.hit_age.clone());
        registry.register_with_unit("key_ttl", "Requested ttl of keys", Unit::Seconds, metrics.sends.ttl.clone());
        registry
    }

    pub(crate) fn record_provider_event(&self, provider: &'static str, outcome: &'static str) {
        self.handoffs.provider_events.get_or_create(&ProviderEventLabels { provider, outcome }).inc();
    }

    /// Counts a row of an outbox by what happened to it.
    pub(crate) fn record_outbox_row(&self, outcome: &RowOutcome) {
        let outcome = match outcome {
            RowOutcome::Done(_) | RowOutcome::Offered(_) => "done",
            RowOutcome::Parked(_) => "parked",
            RowOutcome::Retry { .. } => "retry",
        };
        self.outbox_rows.get_or_create(&OutboxLabels { outcome }).inc();
    }

    /// Counts an attempt to tell somebody of a question that ended so.
    pub(crate) fn record_approval_notification(&self, notification: &Notification) {
        let outcome = match (notification.sent_at, notification.due_at) {
            (Some(_), _) => "sent",
            (None, Some(_)) => "retry",
            (None, None) => "given_up",
        };
        self.approval_notifications.get_or_create(&ApprovalNotificationLabels { outcome }).inc();
    }

    /// Counts a panic of a worker or a loop.
    pub(crate) fn record_panic(&self, worker: &'static str) {
        self.panics.get_or_create(&PanicLabels { worker }).inc();
    }

    /// Counts work that was recovered from dead nodes.
    pub(crate) fn record_recovered(&self, recovered: &RecoveryCounts) {
        let RecoveryCounts { queued, unknown, deliveries, notices } = *recovered;
        let all = [("queued", queued), ("unknown", unknown), ("deliveries", deliveries), ("notices", notices)];
        for (kind, count) in all {
            self.recovered.get_or_create(&RecoveryLabels { kind }).inc_by(count as u64);
        }
    }

    pub(crate) fn record_fetch(&self, provider: &'static str, result: &Result<FetchedMail, FetchError>) {
        let outcome = result.as_ref().map_or_else(withheld_label, |_| "fetched");
        self.inbound.collected.get_or_create(&CollectLabels { provider, operation: "fetch", outcome }).inc();
    }

    pub(crate) fn record_poll(&self, provider: &'static str, result: &Result<MailListPage, FetchError>) {
        let outcome = result.as_ref().map_or_else(withheld_label, |_| "fetched");
        self.inbound.collected.get_or_create(&CollectLabels { provider, operation: "list", outcome }).inc();
    }

    /// Counts the results of one arrival's deliveries. Both slices have the same order.
    pub(crate) fn record_deliveries(&self, intake: Intake, deliveries: &[NewDelivery], received: &[ReceiveResult]) {
        for (delivery, received) in deliveries.iter().zip(received) {
            let (outcome, reason) = match received {
                ReceiveResult::Stored(_) => ("accepted", "new"),
                ReceiveResult::Duplicate { .. } => ("duplicate", DeliverySuppression::SameDelivery.as_str()),
                // Only the store refuses a delivery that passed the earlier checks: its inbox was removed before the
                // commit.
                ReceiveResult::Refused(_) => {
                    ("refused", delivery.suppression.unwrap_or(DeliverySuppression::UnknownInbox).as_str())
                }
            };
            self.inbound.deliveries.get_or_create(&DeliveryLabels { intake: intake.as_str(), outcome, reason }).inc();
        }
    }

    pub(crate) fn record_filed(&self, intake: Intake, filed: &FileMessageResult) {
        let (layer, reason) = match filed {
            FileMessageResult::New(..) => ("message", "new"),
            FileMessageResult::Duplicate(_, why) => ("message", why.as_str()),
            FileMessageResult::AlreadyFinished | FileMessageResult::Missing => ("delivery", "already_processed"),
        };
        self.inbound.filed.get_or_create(&FilingLabels { intake: intake.as_str(), layer, reason }).inc();
    }

    pub(crate) fn record_delivery_outcome(&self, intake: Intake, outcome: &DeliveryOutcome) {
        let reason = match outcome {
            DeliveryOutcome::Done => "done",
            DeliveryOutcome::Refused(why) => why.as_str(),
            DeliveryOutcome::Retry(..) => "retry",
            DeliveryOutcome::Dead(_) => "dead",
        };
        self.inbound.filed.get_or_create(&FilingLabels { intake: intake.as_str(), layer: "delivery", reason }).inc();
    }

    pub(crate) fn record_artifact(&self, outcome: &'static str) {
        self.inbound.artifacts.get_or_create(&ArtifactLabels { outcome }).inc();
    }

    pub(crate) fn record_send_attempt(&self, channel: Channel) {
        self.sends.attempted.get_or_create(&ChannelLabels { channel: channel.as_str() }).inc();
    }

    pub(crate) fn record_deduplicated(&self, channel: Channel, reason: SuppressedReason) {
        if reason == SuppressedReason::Mismatch {
            self.sends.mismatches.inc();
        } else {
            self.sends
                .deduplicated
                .get_or_create(&DeduplicationLabels { channel: channel.as_str(), reason: reason.as_str() })
                .inc();
        }
    }

    pub(crate) fn record_accepted(&self, ttl_ms: i64, keyed: bool) {
        self.sends.accepted.inc();
        if keyed {
            self.sends.ttl.observe(ttl_ms as f64 / 1000.0);
        } else {
            self.sends.keyless.inc();
        }
    }

    /// How many emails this process accepted.
    pub(crate) fn accepted_count(&self) -> u64 {
        self.sends.accepted.get()
    }

    pub(crate) fn record_indexed(&self, count: u64) {
        self.search_indexed.inc_by(count);
    }

    pub(crate) fn record_key_hit(&self, age_ms: i64, ttl_ms: i64) {
        if age_ms < RACE_WINDOW_MS {
            self.sends.key_races.inc();
        }
        self.sends.hit_age.observe(age_ms.max(0) as f64 / ttl_ms.max(1) as f64);
    }

    pub(crate) fn record_captured(&self, count: usize) {
        self.handoffs.captured.inc_by(count as u64);
    }

    pub(crate) fn record_handoff_attempt(&self, transport: &str, meaning: ReplyMeaning) {
        let label = HandoffLabels { transport: transport.to_owned(), result: meaning.as_str() };
        self.handoffs.attempts.get_or_create(&label).inc();
    }

    pub(crate) fn record_resolved(&self, by: &'static str) {
        self.handoffs.resolved.get_or_create(&ResolutionLabels { by }).inc();
    }

    pub(crate) fn record_provider_deduplicated(&self) {
        self.handoffs.provider_deduplicated.inc();
    }

    pub(crate) fn record_stale_marker(&self) {
        self.handoffs.stale_markers.inc();
    }

    pub(crate) fn record_notice_attempt(&self, verdict: WebhookVerdict, error: Option<WebhookError>) {
        let outcome = match verdict {
            WebhookVerdict::Delivered => "delivered",
            WebhookVerdict::Dropped => "dropped",
            WebhookVerdict::Gone => "gone",
            WebhookVerdict::Retry(_) => error.map_or("status", WebhookError::as_str),
        };
        self.notice_attempts.get_or_create(&NoticeLabels { outcome }).inc();
    }

    /// Renders all metrics in the Prometheus text format, including the store's, without the final `# EOF`.
    pub(crate) fn render(
        &self,
        gauges: &Gauges,
        backlog: &Backlog,
        (transports, orphaned): (&[TransportStatus], &[OrphanedTransport]),
        now: Time,
    ) -> String {
        let mut text = String::new();
        // Writing to a `String` can't fail.
        encode(&mut text, &self.registry).ok();
        let end = text.trim_end().trim_end_matches("# EOF").len();
        text.truncate(end);
        render_store_metrics(&mut text, gauges);
        render_queue_metrics(&mut text, backlog, now);
        render_transport_metrics(&mut text, transports);
        render_orphan_metrics(&mut text, orphaned);
        text
    }
}

/// Metrics that the store counts itself.
fn render_store_metrics(text: &mut String, gauges: &Gauges) {
    let mut single = |name: &str, kind: &str, help: &str, suffix: &str, value: f64| {
        writeln!(
            text,
            "# HELP mailonce_{name} {help}.\n# TYPE mailonce_{name} {kind}\nmailonce_{name}{suffix} {value}"
        )
        .ok();
    };
    single("keys", "gauge", "Keys in the store, approximately", "", gauges.keys as f64);
    single(
        "key_contention",
        "counter",
        "Accepts that waited in the store for another of the same scope",
        "_total",
        gauges.contended_accepts as f64,
    );
    render_histogram(
        text,
        "commit_batch_size",
        "Operations in one commit",
        &gauges.batch_sizes,
        gauges.operations as f64,
        1.0,
    );
    render_histogram(
        text,
        "commit_seconds",
        "Duration of one commit",
        &gauges.commit_ms,
        gauges.commit_us as f64 / 1e6,
        0.001,
    );
}

/// The hand-off queues.
fn render_queue_metrics(text: &mut String, backlog: &Backlog, now: Time) {
    writeln!(
        text,
        "# HELP mailonce_handoff_queue_depth Handoffs that wait, by transport.\n# TYPE mailonce_handoff_queue_depth gauge"
    )
    .ok();
    for (transport, count) in &backlog.waiting {
        writeln!(text, "mailonce_handoff_queue_depth{{transport=\"{transport}\"}} {count}").ok();
    }
    let age = backlog.oldest_due_at.map_or(0, |oldest| now.since(oldest).max(0)) as f64 / 1000.0;
    for (name, help, value) in [
        ("handoff_queue_oldest_seconds", "How long the oldest waiting handoff has been due", age),
        ("handoff_unknown", "Handoffs whose outcome is unknown", backlog.unknown as f64),
    ] {
        writeln!(text, "# HELP mailonce_{name} {help}.\n# TYPE mailonce_{name} gauge\nmailonce_{name} {value}").ok();
    }
}

/// The clocks of this node and its database.
pub(crate) fn render_clock_metrics(text: &mut String, clock: ClockState) {
    let ahead = clock.ahead_of_database_ms.map(|ms| ms as f64 / 1000.0);
    for (name, help, value) in [
        (
            "clock_trusted",
            "Whether schedules, policies and expiries may be decided by this node's clock",
            Some(f64::from(u8::from(clock.is_trusted))),
        ),
        (
            "clock_confirmed",
            "Whether this node may delete expired keys",
            Some(f64::from(u8::from(clock.is_trusted && clock.confirmed_by.is_some()))),
        ),
        ("clock_ahead_of_database_seconds", "How far this node's clock is ahead of the database's", ahead),
    ] {
        let Some(value) = value else { continue };
        writeln!(text, "# HELP mailonce_{name} {help}.\n# TYPE mailonce_{name} gauge\nmailonce_{name} {value}").ok();
    }
}

/// The circuit breakers and running attempts of transports. Their names come from the configuration.
fn render_transport_metrics(text: &mut String, transports: &[TransportStatus]) {
    writeln!(
        text,
        "# HELP mailonce_breaker_open Whether the circuit breaker is not closed.\n# TYPE mailonce_breaker_open gauge"
    )
    .ok();
    for transport in transports {
        let open = u8::from(transport.breaker != "closed");
        writeln!(text, "mailonce_breaker_open{{transport=\"{}\"}} {open}", transport.name).ok();
    }
    writeln!(
        text,
        "# HELP mailonce_handoff_in_flight Running attempts, by transport.\n# TYPE mailonce_handoff_in_flight gauge"
    )
    .ok();
    for transport in transports {
        writeln!(text, "mailonce_handoff_in_flight{{transport=\"{}\"}} {}", transport.name, transport.in_flight).ok();
    }
}

/// The backlogs of missing transports. Their names come from an earlier configuration.
fn render_orphan_metrics(text: &mut String, orphaned: &[OrphanedTransport]) {
    writeln!(
        text,
        "# HELP mailonce_handoff_orphaned Handoffs that wait or are unknown at a transport that no node has.\n\
         # TYPE mailonce_handoff_orphaned gauge"
    )
    .ok();
    for transport in orphaned {
        writeln!(
            text,
            "mailonce_handoff_orphaned{{transport=\"{}\"}} {}",
            transport.name,
            transport.waiting + transport.unknown
        )
        .ok();
    }
}

/// Webhook endpoints and their notices, over all teams.
pub(crate) fn render_endpoint_metrics(text: &mut String, gauges: &[EndpointGauge]) {
    let sum = |value_of: fn(&EndpointGauge) -> u64| gauges.iter().map(value_of).sum::<u64>();
    let live = gauges.iter().filter(|gauge| gauge.state == EndpointState::Enabled);
    for (name, help, value) in [
        (
            "notice_lag_events",
            "Events that the slowest enabled endpoint has not processed yet",
            live.map(|g| g.lag).max(),
        ),
        ("notice_pending", "Pending notices", Some(sum(|gauge| gauge.pending))),
        ("notice_dead", "Dead notices", Some(sum(|gauge| gauge.dead))),
    ] {
        let value = value.unwrap_or(0);
        writeln!(text, "# HELP mailonce_{name} {help}.\n# TYPE mailonce_{name} gauge\nmailonce_{name} {value}").ok();
    }
    writeln!(text, "# HELP mailonce_endpoints Endpoints by state.\n# TYPE mailonce_endpoints gauge").ok();
    for state in EndpointState::ALL {
        let count = gauges.iter().filter(|gauge| gauge.state == *state).count();
        writeln!(text, "mailonce_endpoints{{state=\"{}\"}} {count}", state.as_str()).ok();
    }
}

/// The stops that are in force, over all teams.
pub(crate) fn render_stop_metrics(text: &mut String, counts: &BTreeMap<StopKind, u64>) {
    writeln!(text, "# HELP mailonce_stops Stops that keep email from leaving.\n# TYPE mailonce_stops gauge").ok();
    for kind in StopKind::ALL {
        let count = counts.get(kind).copied().unwrap_or_default();
        writeln!(text, "mailonce_stops{{scope=\"{}\"}} {count}", kind.as_str()).ok();
    }
}

fn render_histogram(text: &mut String, name: &str, help: &str, buckets: &[u64; 12], sum: f64, unit: f64) {
    writeln!(text, "# HELP mailonce_{name} {help}.\n# TYPE mailonce_{name} histogram").ok();
    let mut cumulative = 0;
    for (power, count) in buckets.iter().enumerate() {
        cumulative += count;
        let bound = if power == 11 { "+Inf".to_owned() } else { ((1_u64 << power) as f64 * unit).to_string() };
        writeln!(text, "mailonce_{name}_bucket{{le=\"{bound}\"}} {cumulative}").ok();
    }
    writeln!(text, "mailonce_{name}_sum {sum}\nmailonce_{name}_count {cumulative}").ok();
}
