//! Transports in use: routing, limits on concurrent attempts, and circuit breakers.

use mailonce_core::{
    handoff::{
        capabilities::{HandoffSplit, RecoveryMethod, TransportCapabilities},
        envelope::Envelope,
        lease::TransportAccount,
        reply::{AttemptPhase, ReplyMeaning, TransportReply},
    },
    mutant,
    outbound::{content::EmailContent, email::Channel, test_recipient::TestRecipient},
    ports::transport::Transport,
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::Notify as Wakeup;

use crate::runtime::inbound_runtime::InboxDomains;

/// The backlog of one missing transport, over all teams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanedTransport {
    /// The transport's name.
    pub name: String,
    /// Handoffs that are due or scheduled.
    pub waiting: u64,
    /// Handoffs whose outcome is unknown.
    pub unknown: u64,
}

/// The built-in transport that captures mail in the store's own commit. Nothing leaves the machine.
pub const SANDBOX: &str = "sandbox";

/// The name of the transport that delivers to inboxes of this installation.
pub const LOCAL_TRANSPORT: &str = "local";
/// The sandbox transport for addresses that fail on purpose.
pub const SANDBOX_FAULTS: &str = "sandbox-faults";
/// The domain of those addresses.
pub const SANDBOX_FAULTS_DOMAIN: &str = "sandbox.mailonce.test";

/// Consecutive faults that open a breaker.
const FAULTS_TO_OPEN: u32 = 3;
/// How long a breaker stays open before it lets one attempt probe the transport, in milliseconds.
const BREAKER_OPEN_MS: i64 = 5_000;

/// The routing configuration.
#[derive(Clone, Debug, Default)]
pub struct Routing {
    /// The first rule that matches decides.
    pub rules: Vec<RoutingRule>,
    /// Transports in failover order. Empty means the sandbox.
    pub default: Vec<String>,
}

/// A route for some emails.
#[derive(Clone, Debug, Default)]
pub struct RoutingRule {
    /// Matches emails from this sender domain.
    pub from_domain: Option<String>,
    /// Matches emails with this tag.
    pub tag: Option<String>,
    /// Transports in failover order.
    pub to: Vec<String>,
    /// How often each transport is tried first. Without weights it is always the first one.
    pub weights: Vec<u32>,
}

impl RoutingRule {
    fn matches(&self, content: &EmailContent) -> bool {
        let domain = content.from.domain();
        self.from_domain.as_ref().is_none_or(|wanted| wanted == domain)
            && self.tag.as_ref().is_none_or(|wanted| content.tags.contains_key(wanted))
    }

    /// The transport to try first, drawn by weight if there are weights.
    fn pick_first(&self, random: u64) -> Option<&String> {
        let total: u64 = self.weights.iter().map(|weight| u64::from(*weight)).sum();
        let mut drawn = random.checked_rem(total).unwrap_or(0);
        for (transport, weight) in self.to.iter().zip(&self.weights) {
            if drawn < u64::from(*weight) {
                return Some(transport);
            }
            drawn -= u64::from(*weight);
        }
        self.to.first()
    }
}

/// A transport with its breaker and its running attempts.
pub struct OutboundRoute {
    pub(crate) transport: Arc<dyn Transport>,
    breaker: Mutex<Breaker>,
    in_flight: AtomicUsize,
    domains: Mutex<HashMap<String, usize>>,
    pub(crate) wake: Wakeup,
}

#[derive(Debug, Default)]
struct Breaker {
    faults: u32,
    /// Open until this time of the boot clock.
    open_until: Option<i64>,
    probing: bool,
    reason: String,
    /// Whether the transport has answered since the start. A state that was published before a restart may be
    /// outdated.
    has_answered_since_start: bool,
}

/// The status of a transport, for people and metrics.
#[derive(Clone, Debug)]
pub struct TransportStatus {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: &'static str,
    /// The account at the provider.
    pub account: String,
    /// How unknown outcomes are recovered: `key`, `look_up` or `none`.
    pub recovery: &'static str,
    /// `closed`, `open` or `half_open`.
    pub breaker: &'static str,
    /// The last error, while the breaker is not closed.
    pub breaker_reason: Option<String>,
    /// Running attempts.
    pub in_flight: usize,
}

impl OutboundRoute {
    fn new(transport: Arc<dyn Transport>) -> Self {
        Self {
            transport,
            breaker: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            domains: Mutex::default(),
            wake: Wakeup::new(),
        }
    }

    pub(crate) fn capability(&self) -> TransportCapabilities {
        self.transport.capabilities()
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many attempts may start now: none while the breaker is open, one to probe the transport when it is half
    /// open.
    pub(crate) fn free_slots(&self, limit: usize, boot_ms: i64) -> usize {
        let limit = limit.min(self.capability().max_concurrency.max(1));
        let free = limit.saturating_sub(self.in_flight.load(Ordering::Relaxed));
        let breaker = self.breaker();
        match breaker.open_until {
            Some(until) if boot_ms < until || breaker.probing => 0,
            Some(_) if mutant!("breaker-never-tries") => 0,
            Some(_) => free.min(1),
            None => free,
        }
    }

    /// Whether the breaker is closed or lets a probe through.
    pub(crate) fn is_available(&self, boot_ms: i64) -> bool {
        let breaker = self.breaker();
        breaker.open_until.is_none_or(|until| boot_ms >= until && !breaker.probing)
    }

    /// Counts an attempt as running until the guard is dropped.
    pub(crate) fn begin_attempt(self: &Arc<Self>, domain: Option<String>) -> InFlightGuard {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        {
            let mut breaker = self.breaker();
            breaker.probing = breaker.open_until.is_some();
        }
        if let Some(domain) = &domain {
            *self.domains().entry(domain.clone()).or_default() += 1;
        }
        InFlightGuard { route: Arc::clone(self), domain }
    }

    fn domains(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.domains.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The domains that are at their limit, and how many more attempts may start even if all are for one other domain.
    pub(crate) fn domain_limits(&self, limit: usize) -> (Vec<String>, usize) {
        let domains = self.domains();
        let full = domains.iter().filter(|(_, count)| **count >= limit).map(|(domain, _)| domain.clone()).collect();
        let busiest = domains.values().copied().filter(|count| *count < limit).max().unwrap_or(0);
        (full, limit - busiest)
    }

    /// Updates the breaker from a reply. Returns true when it opened or closed, or when this is the first answer since
    /// the start.
    pub(crate) fn record_reply(&self, reply: &TransportReply, boot_ms: i64) -> bool {
        let mut breaker = self.breaker();
        breaker.probing = false;
        if reply.meaning != ReplyMeaning::Fault {
            // A missing answer after the point of no return proves nothing about the transport.
            if reply.meaning != ReplyMeaning::Unknown {
                let changed = breaker.open_until.is_some() || !breaker.has_answered_since_start;
                *breaker = Breaker { has_answered_since_start: true, ..Breaker::default() };
                return changed;
            }
            return false;
        }
        breaker.faults += 1;
        breaker.reason.clone_from(&reply.text);
        let refused_log_in = matches!(reply.phase, AttemptPhase::Login) || matches!(reply.code, Some(401..=403));
        if breaker.open_until.is_some() || refused_log_in || breaker.faults >= FAULTS_TO_OPEN {
            let opened = breaker.open_until.is_none();
            breaker.open_until = Some(boot_ms + BREAKER_OPEN_MS);
            return opened;
        }
        false
    }

    /// The current status.
    pub fn status(&self, boot_ms: i64) -> TransportStatus {
        let breaker = self.breaker();
        TransportStatus {
            name: self.transport.name().to_owned(),
            kind: self.transport.kind(),
            account: self.transport.account().to_owned(),
            recovery: match self.capability().recovery {
                RecoveryMethod::IdempotencyKey { .. } => "key",
                RecoveryMethod::LookUp { .. } => "look_up",
                RecoveryMethod::None => "none",
            },
            breaker: match breaker.open_until {
                None => "closed",
                Some(until) if boot_ms < until => "open",
                Some(_) => "half_open",
            },
            breaker_reason: breaker.open_until.map(|_| breaker.reason.clone()),
            in_flight: self.in_flight.load(Ordering::Relaxed),
        }
    }
}

/// A running attempt.
pub(crate) struct InFlightGuard {
    route: Arc<OutboundRoute>,
    domain: Option<String>,
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.route.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.route.breaker().probing = false;
        if let Some(domain) = &self.domain {
            let mut domains = self.route.domains();
            if let Some(count) = domains.get_mut(domain) {
                *count -= 1;
                if *count == 0 {
                    domains.remove(domain);
                }
            }
        }
        self.route.wake.notify_one();
    }
}

/// Whether a transport is an internal part of the sandbox, which callers can't name.
pub(crate) fn is_sandbox_internal(name: &str) -> bool {
    name == SANDBOX_FAULTS || name == LOCAL_TRANSPORT
}

/// All transports and their routing.
pub struct TransportSelector {
    /// Wakes the loop that releases the email of ended stops.
    pub(crate) release_wakeup: Wakeup,
    routes: BTreeMap<String, Arc<OutboundRoute>>,
    routing: Routing,
    /// The domains of this installation's inboxes.
    inbox_domains: Arc<InboxDomains>,
    /// Wakes the sandbox's capture loop.
    pub(crate) sandbox: Wakeup,
}

impl TransportSelector {
    pub(crate) fn new(transports: &[Arc<dyn Transport>], routing: Routing, inbox_domains: Arc<InboxDomains>) -> Self {
        let by_name = |t: &Arc<dyn Transport>| (t.name().to_owned(), Arc::new(OutboundRoute::new(Arc::clone(t))));
        Self {
            release_wakeup: Wakeup::new(),
            routes: transports.iter().map(by_name).collect(),
            routing,
            inbox_domains,
            sandbox: Wakeup::new(),
        }
    }

    /// All transports except the sandbox.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<OutboundRoute>> {
        self.routes.values()
    }

    /// The transport with this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<OutboundRoute>> {
        self.routes.get(name)
    }

    /// The names that a caller may use.
    pub(crate) fn selectable_names(&self) -> Vec<&str> {
        std::iter::once(SANDBOX)
            .chain(self.routes.keys().map(String::as_str).filter(|name| !is_sandbox_internal(name)))
            .collect()
    }

    /// Whether every email goes to the sandbox, as in development.
    pub(crate) fn is_sandbox_only(&self) -> bool {
        self.routes.keys().all(|name| is_sandbox_internal(name))
    }

    /// All transports with their accounts, as they are published to the store. Without the sandbox, which every
    /// process has.
    pub(crate) fn accounts(&self) -> Vec<TransportAccount> {
        let account = |(name, route): (&String, &Arc<OutboundRoute>)| TransportAccount {
            name: name.clone(),
            account: route.transport.account().to_owned(),
        };
        self.routes.iter().map(account).collect()
    }

    /// All names of transports in this process, including the parts of the sandbox.
    pub(crate) fn all_names(&self) -> Vec<String> {
        std::iter::once(SANDBOX.to_owned()).chain(self.routes.keys().cloned()).collect()
    }

    /// Wakes the loops of all transports, because a handoff became due.
    pub(crate) fn wake_all(&self) {
        self.sandbox.notify_one();
        self.routes.values().for_each(|route| route.wake.notify_one());
    }

    /// Wakes the loop of one transport, because a handoff became due there.
    pub(crate) fn wake_one(&self, name: &str) {
        match self.get(name) {
            Some(route) => route.wake.notify_one(),
            None => self.sandbox.notify_one(),
        }
    }

    /// The transport that an email tries first. Mail to the test addresses of a dialect stays in the sandbox.
    pub(crate) fn select(&self, content: &EmailContent, channel: Channel, random: u64) -> &str {
        if content.recipients().iter().all(|to| TestRecipient::is_simulated(channel, to)) {
            return SANDBOX_FAULTS;
        }
        let rule = self.routing.rules.iter().find(|rule| rule.matches(content));
        let first = rule.map_or_else(|| self.routing.default.first(), |rule| rule.pick_first(random));
        first.map_or(SANDBOX, String::as_str)
    }

    /// Whether some route has another transport than this one that is available now.
    pub(crate) fn has_alternative(&self, name: &str, boot_ms: i64) -> bool {
        let orders = self.routing.rules.iter().map(|rule| &rule.to).chain([&self.routing.default]);
        let with = orders.into_iter().filter(|order| order.iter().any(|one| one == name));
        let mut others = with.flatten().filter(|other| other.as_str() != name).filter_map(|other| self.get(other));
        others.any(|route| route.is_available(boot_ms))
    }

    /// The next available transport for an email, in failover order.
    pub(crate) fn select_alternative(
        &self,
        name: &str,
        content: &EmailContent,
        boot_ms: i64,
    ) -> Option<Arc<OutboundRoute>> {
        let rule = self.routing.rules.iter().find(|rule| rule.matches(content));
        let order = rule.map_or(&self.routing.default, |rule| &rule.to);
        let others = order.iter().filter(|other| other.as_str() != name).filter_map(|other| self.get(other));
        others.into_iter().find(|route| route.is_available(boot_ms)).cloned()
    }

    /// The envelopes of an email for a transport.
    pub(crate) fn envelopes(&self, name: &str, content: &EmailContent) -> Vec<Envelope> {
        let all = content.recipients();
        let envelope = |transport: &str, to: &[&str]| Envelope {
            transport: transport.to_owned(),
            recipients: to.iter().map(|to| (*to).to_owned()).collect(),
        };
        let split = self.get(name).map_or(HandoffSplit::PerRecipient, |route| route.capability().split);
        if split == HandoffSplit::PerEmail {
            return vec![envelope(name, &all)];
        }
        let transport_for = |to: &str| if name == SANDBOX { self.sandbox_transport(to) } else { name };
        all.into_iter().map(|to| envelope(transport_for(to), &[to])).collect()
    }

    /// Which part of the sandbox takes mail for a recipient.
    fn sandbox_transport(&self, to: &str) -> &'static str {
        let domain = to.rsplit_once('@').map_or("", |(_, domain)| domain);
        if domain == SANDBOX_FAULTS_DOMAIN && self.get(SANDBOX_FAULTS).is_some() {
            SANDBOX_FAULTS
        } else if self.inbox_domains.contains(domain) && self.get(LOCAL_TRANSPORT).is_some() {
            LOCAL_TRANSPORT
        } else {
            SANDBOX
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use mailonce_core::{
        address::NamedAddress,
        handoff::{
            capabilities::PayloadFormat,
            transport_request::{FrozenEnvelope, LookUpRequest, LookUpResult, OutboundMail, UnsupportedMail},
        },
        outbound::content::RawContent,
        ports::transport::PreparedHandoff,
    };

    struct NamedTransport(&'static str, HandoffSplit);

    #[async_trait]
    impl Transport for NamedTransport {
        fn name(&self) -> &str {
            self.0
        }

        fn kind(&self) -> &'static str {
            "test"
        }

        fn account(&self) -> &str {
            self.0
        }

        fn capabilities(&self) -> TransportCapabilities {
            let (wire, recovery) = (PayloadFormat::Content, RecoveryMethod::None);
            TransportCapabilities {
                split: self.1,
                payload_format: wire,
                recovery,
                timeout_ms: 1_000,
                max_concurrency: 4,
            }
        }

        fn freeze(&self, _: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
            Ok(Vec::new())
        }

        async fn prepare(&self, _: FrozenEnvelope) -> Result<Box<dyn PreparedHandoff>, TransportReply> {
            Err(TransportReply::new(ReplyMeaning::Fault, AttemptPhase::Connect, None, "connection refused"))
        }

        async fn look_up(&self, _: LookUpRequest) -> LookUpResult {
            LookUpResult::NotFound
        }
    }

    fn mail(from: &str, tag: Option<&str>) -> EmailContent {
        EmailContent::validate(RawContent {
            from: from.into(),
            to: vec!["a@example.com".into(), "unknown@sandbox.mailonce.test".into()],
            text: Some("t".into()),
            tags: tag.map(|tag| (tag.to_owned(), None)).into_iter().collect(),
            ..RawContent::default()
        })
        .unwrap()
    }

    fn selector() -> TransportSelector {
        let rule = |from: Option<&str>, tag: Option<&str>, to: &[&str], weights: &[u32]| RoutingRule {
            from_domain: from.map(str::to_owned),
            tag: tag.map(str::to_owned),
            to: to.iter().map(ToString::to_string).collect(),
            weights: weights.to_vec(),
        };
        let routing = Routing {
            rules: vec![
                rule(Some("bulk.test"), None, &["api", "relay"], &[3, 1]),
                rule(None, Some("urgent"), &["relay"], &[]),
            ],
            default: vec!["api".into(), "relay".into()],
        };
        let all: Vec<Arc<dyn Transport>> = vec![
            Arc::new(NamedTransport("api", HandoffSplit::PerEmail)),
            Arc::new(NamedTransport("relay", HandoffSplit::PerRecipient)),
            Arc::new(NamedTransport(SANDBOX_FAULTS, HandoffSplit::PerRecipient)),
        ];
        TransportSelector::new(&all, routing, Arc::default())
    }

    #[test]
    fn the_first_matching_rule_decides_and_weights_draw_the_transport() {
        let selector = selector();
        assert_eq!(selector.select(&mail("a@x.test", None), Channel::Http, 7), "api");
        assert_eq!(selector.select(&mail("a@x.test", Some("urgent")), Channel::Http, 7), "relay");
        let bulk = mail("a@bulk.test", Some("urgent"));
        let drawn = (0..8).filter(|chance| selector.select(&bulk, Channel::Http, *chance) == "api");
        assert_eq!(drawn.count(), 6, "three of four");
        assert_eq!(selector.select(&bulk, Channel::Http, 3), "relay");
        let other = |name| selector.select_alternative(name, &bulk, 0).map(|route| route.transport.name().to_owned());
        assert_eq!(
            (other("api"), other("relay")),
            (Some("relay".into()), Some("api".into())),
            "the other is for fail-over"
        );
        assert_eq!(
            TransportSelector::new(&[], Routing::default(), Arc::default()).select(
                &mail("a@x.test", None),
                Channel::Http,
                0
            ),
            SANDBOX
        );
    }

    #[test]
    fn test_addresses_of_a_dialect_never_reach_a_next_hop() {
        let selector = selector();
        let to = |recipients: &[&str]| EmailContent {
            to: recipients.iter().filter_map(|to| NamedAddress::parse(to).ok()).collect(),
            ..mail("a@x.test", None)
        };
        let test = to(&["delivered@resend.dev", "bounced+1@resend.dev"]);
        assert_eq!(selector.select(&test, Channel::Resend, 7), SANDBOX_FAULTS);
        assert_eq!(selector.select(&test, Channel::Http, 7), "api");
        assert_eq!(selector.select(&test, Channel::Agentmail, 7), "api");
        assert_eq!(selector.select(&to(&["delivered@resend.dev", "a@example.com"]), Channel::Resend, 7), "api");
        let envelopes = selector.envelopes(SANDBOX_FAULTS, &test);
        assert!(envelopes.len() == 2 && envelopes.iter().all(|one| one.transport == SANDBOX_FAULTS), "{envelopes:?}");
    }

    #[test]
    fn an_email_is_split_into_envelopes_by_transport() {
        let selector = selector();
        let envelopes = |name: &str| -> Vec<(String, usize)> {
            let all = selector.envelopes(name, &mail("a@x.test", None));
            all.into_iter().map(|envelope| (envelope.transport, envelope.recipients.len())).collect()
        };
        assert_eq!(envelopes("api"), [("api".to_owned(), 2)]);
        assert_eq!(envelopes("relay"), [("relay".to_owned(), 1), ("relay".to_owned(), 1)]);
        assert_eq!(envelopes(SANDBOX), [(SANDBOX.to_owned(), 1), (SANDBOX_FAULTS.to_owned(), 1)]);
    }

    #[test]
    fn a_breaker_opens_rests_tries_one_and_closes() {
        let selector = selector();
        let route = Arc::clone(selector.get("api").unwrap());
        let fault = TransportReply::new(ReplyMeaning::Fault, AttemptPhase::Connect, None, "refused");
        assert!(!route.record_reply(&fault, 0) && !route.record_reply(&fault, 0));
        assert_eq!(route.free_slots(64, 0), 4, "two faults are not enough");
        assert!(route.record_reply(&fault, 0), "the third opens it");
        assert_eq!((route.free_slots(64, BREAKER_OPEN_MS - 1), route.status(0).breaker), (0, "open"));
        assert_eq!(selector.select_alternative("api", &mail("a@x.test", None), 0).unwrap().transport.name(), "relay");
        assert_eq!((route.free_slots(64, BREAKER_OPEN_MS), route.status(BREAKER_OPEN_MS).breaker), (1, "half_open"));
        let probe = route.begin_attempt(None);
        assert_eq!(route.free_slots(64, BREAKER_OPEN_MS), 0, "one at a time");
        assert!(
            route.record_reply(
                &TransportReply::new(ReplyMeaning::Refused, AttemptPhase::Final, Some(422), "no"),
                BREAKER_OPEN_MS
            ),
            "any answer closes it"
        );
        drop(probe);
        assert_eq!((route.free_slots(64, BREAKER_OPEN_MS), route.status(BREAKER_OPEN_MS).breaker_reason), (4, None));
        let revoked = TransportReply::new(ReplyMeaning::Fault, AttemptPhase::Final, Some(401), "revoked");
        assert!(route.record_reply(&revoked, BREAKER_OPEN_MS), "a refused log-in opens it at once");
    }
}
