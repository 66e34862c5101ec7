//! The dependencies and settings of the engine.

use crate::{
    access::compat_settings::CompatSettings,
    handoff::transport_selector::{Routing, SANDBOX},
    outbox::config::OutboxConfig,
};
use mailonce_core::{
    handoff::action::HandoffRetryPolicy,
    outbound::email::OnUnknown,
    ports::{
        authenticator::Authenticator,
        event_formatter::{EventFormatter, NoDialects},
        mail_fetcher::MailFetcher,
        network::{DnsResolver, HttpFetcher, NoNetwork},
        transport::Transport,
        webhook_client::{NoWebhooks, WebhookClient},
    },
};
use std::sync::Arc;

/// How handoffs are attempted.
#[derive(Clone, Debug)]
pub struct HandoffSettings {
    /// What to do about an unknown outcome when the email doesn't say.
    pub on_unknown: OnUnknown,
    /// Maximum concurrent attempts per transport.
    pub max_in_flight: usize,
    /// Maximum concurrent attempts per recipient domain. No limit when `None`.
    pub max_in_flight_per_domain: Option<usize>,
    /// Maximum number of attempts.
    pub max_attempts: u32,
    /// How long a handoff is retried, in milliseconds.
    pub max_age_ms: i64,
}

impl Default for HandoffSettings {
    fn default() -> Self {
        Self {
            on_unknown: OnUnknown::Hold,
            max_in_flight: 64,
            max_in_flight_per_domain: None,
            max_attempts: 12,
            max_age_ms: 24 * 3_600_000,
        }
    }
}

/// The dependencies and settings of the engine.
pub struct EngineDeps {
    /// The configured transports.
    pub transports: Vec<Arc<dyn Transport>>,
    /// Which transport each email takes.
    pub routing: Routing,
    /// How handoffs are attempted.
    pub handoff: HandoffSettings,
    /// Whether senders need a verified domain.
    pub verify_domains: bool,
    /// The domain that receives bounces. Without one they go to the sender.
    pub bounce_domain: Option<String>,
    /// The DNS resolver.
    pub dns: Arc<dyn DnsResolver>,
    /// Fetches URLs that a provider's protocol requires, such as certificates.
    pub http_fetcher: Arc<dyn HttpFetcher>,
    /// Fetches mail that providers hold for us.
    pub mail_collector: Arc<dyn MailFetcher>,
    /// Sends webhooks to endpoints.
    pub webhook_sender: Arc<dyn WebhookClient>,
    /// Formats events for endpoints that expect the format of another service.
    pub event_formatter: Arc<dyn EventFormatter>,
    /// Domains of this installation, where any team may have inboxes.
    pub local_domains: Vec<String>,
    /// Local parts at those domains that only an operator may give to an inbox.
    pub reserved_names: Vec<String>,
    /// Verifies senders (SPF, DKIM, DMARC). Without one, no sender is verified.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    /// Whether email bodies are encrypted in the store.
    pub seal_bodies: bool,
    /// Whether mail is indexed and can be searched.
    pub search_enabled: bool,
    /// What happens to emails without a key through dialects where a team has no setting.
    pub compat: CompatSettings,
    /// The URL under which recipients reach this server. Without one, email has no unsubscribe links.
    pub public_url: Option<String>,
    /// The outboxes to drain.
    pub outboxes: Vec<OutboxConfig>,
}

/// Local parts that represent the domain itself: those of RFC 2142, and those to which certificate authorities write
/// before they issue a certificate for the domain.
pub const RESERVED_NAMES: [&str; 20] = [
    "abuse",
    "admin",
    "administrator",
    "ftp",
    "hostmaster",
    "info",
    "mailer-daemon",
    "marketing",
    "news",
    "noc",
    "postmaster",
    "root",
    "sales",
    "security",
    "ssladmin",
    "support",
    "usenet",
    "uucp",
    "webmaster",
    "www",
];

impl Default for EngineDeps {
    fn default() -> Self {
        Self {
            transports: Vec::new(),
            routing: Routing::default(),
            handoff: HandoffSettings::default(),
            verify_domains: false,
            bounce_domain: None,
            dns: Arc::new(NoNetwork),
            http_fetcher: Arc::new(NoNetwork),
            mail_collector: Arc::new(NoNetwork),
            webhook_sender: Arc::new(NoWebhooks),
            event_formatter: Arc::new(NoDialects),
            local_domains: Vec::new(),
            reserved_names: RESERVED_NAMES.iter().map(|name| (*name).to_owned()).collect(),
            authenticator: None,
            seal_bodies: false,
            search_enabled: true,
            compat: CompatSettings::default(),
            public_url: None,
            outboxes: Vec::new(),
        }
    }
}

impl EngineDeps {
    /// Whether email to inboxes of this installation is delivered locally. True when the sandbox is a default
    /// transport, or inboxes have a domain here.
    pub(crate) fn delivers_locally(&self) -> bool {
        let default = &self.routing.default;
        !self.local_domains.is_empty() || default.is_empty() || default.iter().any(|name| name == SANDBOX)
    }

    pub(crate) fn retry_policy(&self, jitter_seed: u64) -> HandoffRetryPolicy {
        let HandoffSettings { max_attempts, max_age_ms, .. } = self.handoff;
        HandoffRetryPolicy { max_attempts, max_age_ms, jitter_seed }
    }
}
