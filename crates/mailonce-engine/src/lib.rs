//! The engine: everything between a request and its commit. It opens no sockets and contains no SQL.
//!
//! Each domain folder holds one to four service structs, such as [`outbound::Outbound`]. [`Engine`] builds the services
//! over a shared [`runtime::context::Context`]. A service holds references to the services that it needs, and there is
//! no cycle among them. The engine reaches the outside only through the ports of `mailonce_core` (store, clock,
//! transports, DNS, webhooks).
//!
//! ## [`outbound`]: accepting emails under idempotency keys
//!
//! | file | what it holds |
//! |---|---|
//! | [`send`](outbound::send) | accepts an email or a batch, or replays the receipt of an earlier call |
//! | [`keyed_send`](outbound::keyed_send) | a send request with its idempotency key and digest |
//! | [`send_receipt`](outbound::send_receipt) | the answer to a send |
//! | [`email_commands`](outbound::email_commands) | cancel, reschedule and resend |
//! | [`idempotency_keys`](outbound::idempotency_keys) | inspect, extend and forget keys |
//! | [`queries`](outbound::queries) | lists and counts of emails |
//! | [`simulate`](outbound::simulate) | what a send would do, without writing |
//! | [`message_ids`](outbound::message_ids) | finds sent emails by their Message-ID |
//! | [`templates`](outbound::templates) | stored wording, rendered before any guard sees the email |
//! | [`drafts`](outbound::drafts) | create, read and change drafts |
//! | [`draft_send_cycles`](outbound::draft_send_cycles) | sends each draft at most once, under concurrent calls |
//! | `content_guard` | finds emails that look like a recently sent one |
//! | `reply_terms` | the conditions under which a reply is accepted, and the problems when it is refused |
//! | `replay_cache` | recent keys and their emails, in memory |
//! | `suppressed_calls` | replayed calls, counted in memory and written in batches |
//!
//! ## [`handoff`]: handing accepted emails to transports, once each
//!
//! | file | what it holds |
//! |---|---|
//! | `worker` | leases due handoffs of one transport, sends them and records the outcome |
//! | [`transport_selector`](handoff::transport_selector) | routing, concurrency limits and circuit breakers |
//! | `freeze` | the bytes that every attempt sends |
//! | [`unknown`](handoff::unknown) | recovery from attempts whose outcome is unknown |
//! | [`orphans`](handoff::orphans) | handoffs whose transport no node has any more |
//! | [`reroute`](handoff::reroute) | an operator moves waiting handoffs to another transport |
//! | `breaker` | reports to teams that a circuit breaker opened or closed |
//! | `panics` | requeues the work of a worker that panicked |
//! | `upkeep` | the background loops: heartbeats, recovery of dead nodes, sandbox capture, workers |
//!
//! ## [`inbound`]: receiving mail and provider events
//!
//! | file | what it holds |
//! |---|---|
//! | [`receive`](inbound::receive) | stores a delivery for each recipient of a mail |
//! | [`hooks`](inbound::hooks), `hook_mail` | verifies webhooks of providers; they carry events or mail |
//! | [`collect`](inbound::collect) | fetches mail that a provider only announced |
//! | `poll` | lists mail at providers, in case a webhook was lost |
//! | `worker` | parses stored deliveries and files them as messages |
//! | `bounces` | reads bounces as evidence for their handoff |
//! | `loop_guard` | recognizes our own mail when it comes back |
//! | [`local`](inbound::local) | the transport that delivers to inboxes of this installation |
//!
//! ## [`inbox`]: inboxes and what agents read from them
//!
//! | file | what it holds |
//! |---|---|
//! | [`inboxes`](inbox::inboxes) | create, find, change and remove inboxes |
//! | [`messages`](inbox::messages), [`team_messages`](inbox::team_messages) | received messages |
//! | `parties`, `reply_recipients` | senders and recipients of a message, and the recipients of a reply |
//! | [`wait`](inbox::wait) | long polling for a message |
//! | [`artifacts`](inbox::artifacts) | codes and links found in messages, and watches for them |
//! | [`take`](inbox::take), `implicit_watch` | taking a new code or link, and waiting for it |
//! | [`labels`](inbox::labels) | labels that callers add to messages and emails |
//! | `deletion` | deletes messages and threads on request |
//!
//! ## [`conversation`]: threads, replies and questions for people
//!
//! | file | what it holds |
//! |---|---|
//! | [`reply`](conversation::reply), `quote` | replies and forwards, and the text that they quote |
//! | [`threads`](conversation::threads) | threads, and the lease under which one agent works on a thread |
//! | [`work_queue`](conversation::work_queue) | leases unanswered messages to agents, with their threads |
//! | [`mailbox_reader`](conversation::mailbox_reader) | received and sent mail of an inbox in one list |
//! | [`links`](conversation::links) | signed, short-lived links to attachments and raw mail |
//! | [`escalations`](conversation::escalations), `escalation_worker` | questions for a person |
//! | `decisions` | carries out what a person decided, once |
//! | [`approval_links`](conversation::approval_links), `approval_emails` | links that decide a question, and their emails |
//! | `exposed_links` | ends approval links that reach an inbox |
//! | [`notification_targets`](conversation::notification_targets) | where cards with questions are posted |
//! | `notifications`, `notification_recipients`, `notification_attempts` | who is told about a question, and when |
//! | `notification_order`, `notification_progress` | the order of people, and what was told already |
//! | [`notification_state`](conversation::notification_state) | how far a question was told, for administrators |
//! | [`preview`](conversation::preview) | exactly what would be sent, for the person who approves it |
//! | `diff`, `word_diff` | line and word differences between two emails or parts |
//!
//! ## [`events`]: events, webhook endpoints and notices
//!
//! | file | what it holds |
//! |---|---|
//! | [`endpoints`](events::endpoints) | webhook endpoints of a team |
//! | [`notices`](events::notices) | webhook deliveries: list, inspect, retry |
//! | [`notifier`](events::notifier) | the worker that sends webhooks |
//! | [`queries`](events::queries) | pages of past events |
//! | [`tail`](events::tail) | the live stream of a team's events |
//! | [`event_view`](events::event_view), `event_format` | how clients see events, also in other formats |
//!
//! ## [`control`]: what a team limits
//!
//! | file | what it holds |
//! |---|---|
//! | [`rules`](control::rules), `outbound_rule_facts` | rules for inbound and outbound mail |
//! | [`lists`](control::lists) | allow and block lists |
//! | [`budgets`](control::budgets) | limits on emails or recipients per period |
//! | [`erasures`](control::erasures), `erasure_steps` | removes a person's address, names and mail |
//! | [`suppressions`](control::suppressions) | addresses that a team doesn't send to |
//! | [`stops`](control::stops) | switches that keep email from leaving |
//! | [`audit`](control::audit) | who changed what |
//! | [`policy_trace`](control::policy_trace) | what each check decided about an email |
//! | `retention` | deletes bodies, received mail and events early |
//! | [`unsubscribe`](control::unsubscribe) | links with which a recipient unsubscribes |
//! | `record_cache` | rules, lists and budgets in memory |
//!
//! ## [`search`]: full-text search
//!
//! | file | what it holds |
//! |---|---|
//! | [`search`] | runs the query of a caller over the mail that the caller may see |
//! | [`indexer`](search::indexer) | the worker that makes new mail searchable |
//! | `documents` | makes documents of emails and messages, with codes masked |
//!
//! ## [`claims`]: the once-only right to any other side effect
//!
//! | file | what it holds |
//! |---|---|
//! | [`requests`](claims::requests) | acquiring a claim, commands and facts about it, lists |
//! | `tokens` | tokens of holders and keys for other systems |
//! | `worker` | the loop that notices ended leases, opens escalations and forgets old claims |
//!
//! ## [`outbox`]: emails from the user's own database
//!
//! | file | what it holds |
//! |---|---|
//! | `drainer` | the loop of one outbox: leases rows, accepts each under its key, marks it |
//! | [`queries`](outbox::queries) | the state of the outboxes of a team, dead letters and their replay |
//! | [`config`](outbox::config) | which databases have an outbox |
//!
//! ## [`access`]: teams, API keys and what a team owns
//!
//! | file | what it holds |
//! |---|---|
//! | [`caller`](access::caller) | the API key, team and channel of a call |
//! | [`api_keys`](access::api_keys) | authentication, rate limits, new teams and keys |
//! | [`active_keys`](access::active_keys) | ends open streams and waits when their key is revoked |
//! | [`api_key_names`](access::api_key_names) | display names of API keys |
//! | [`people`](access::people), [`sessions`](access::sessions) | people of a team, sign-in links and sessions |
//! | [`external_sign_in`](access::external_sign_in) | sign-in with an identity provider |
//! | [`connections`](access::connections), `oauth_clients`, `oauth_tokens` | clients that people connected over OAuth |
//! | [`compat_settings`](access::compat_settings) | settings of the dialects |
//! | [`inbox_restriction`](access::inbox_restriction) | API keys that are restricted to some inboxes |
//! | [`domains`](access::domains), `sending_domains` | sending domains: DNS records, verification, DKIM signatures |
//! | [`sources`](access::sources), `source_credentials` | providers that send us events and mail |
//! | [`collection_config`](access::collection_config), `poll_cursor` | how mail is fetched from a source, and how far |
//! | [`settings`](access::settings) | settings of a team |
//! | [`kek`](access::kek) | encryption of the install secret |
//!
//! ## [`runtime`]: what the services share
//!
//! | file | what it holds |
//! |---|---|
//! | [`context`](runtime::context) | the context of all services: store, time, ids, transports, metrics |
//! | [`time`](runtime::time) | ledger time, and what is decided by which clock |
//! | [`metrics`](runtime::metrics) | metrics for Prometheus |
//! | [`records`](runtime::records), `keyed_call` | named records, and calls with an idempotency key |
//! | `problems` | problems that several services return |
//! | `heartbeat`, `lease_identity` | the node id under which this process leases, and its heartbeats |
//! | `epoch` | cursors, and the epoch that invalidates them after a restore |
//! | `derived_ids` | Message-IDs, provider keys and return paths, derived from the install secret |
//! | `pack`, `vault`, `sealed_answers` | encoding and encryption of bodies, secrets and stored answers |
//! | `escalation_hook` | lets sending and the hand-off open and close escalations |
//! | `inbound_runtime`, `fetch_limiter` | waiting calls and queues of received mail, and limits on fetches |
//! | `team_round` | a round of background work, in which no team keeps the others waiting |
//! | `blocking`, `panics`, `hex` | blocking work, recovery from panics, hexadecimal text |
//!
//! Two files have no folder: `deps` holds [`EngineDeps`], and `upkeep` runs the maintenance loop.

pub mod access;
pub mod claims;
pub mod control;
pub mod conversation;
pub mod events;
#[doc(hidden)]
pub mod failpoint;
pub mod handoff;
pub mod inbound;
pub mod inbox;
pub mod outbound;
pub mod outbox;
pub mod runtime;
pub mod search;

mod deps;
mod upkeep;

use mailonce_core::{
    handoff::lease::Backlog,
    id::IdGenerator,
    installation::InstallationInfo,
    ports::{
        Clock, Entropy,
        store::{SharedEmailSubscriber, SharedLedgerClock, Store, StoreError, StoreHooks},
        transport::Transport,
    },
    time::Time,
};
use std::sync::{Arc, Mutex, Weak, atomic::Ordering};
use tokio::sync::Notify;

pub use crate::{
    access::caller::Caller,
    deps::{EngineDeps, HandoffSettings, RESERVED_NAMES},
    handoff::transport_selector::SANDBOX,
    runtime::{keyed_call::KeyedCall, problems::unavailable},
};
use crate::{
    access::{Access, Connections, People, Sources},
    claims::Claims,
    control::{Budgets, Control, Erasures},
    conversation::{Conversations, Escalations, Notifications},
    events::{EventWakeUps, Events},
    handoff::{Handoffs, transport_selector::TransportSelector},
    inbound::{Inbound, local::LocalTransport},
    inbox::{Artifacts, Inboxes},
    outbound::{Drafts, Outbound, replay_cache::ReplayCache},
    outbox::Outboxes,
    runtime::{
        context::Context,
        escalation_hook::EscalationHook,
        inbound_runtime::InboundRuntime,
        lease_identity::OwnNodeIds,
        metrics::{Metrics, render_clock_metrics, render_endpoint_metrics, render_stop_metrics},
        pack::Packer,
        time::{BootInterval, Timekeeper},
    },
    search::Search,
};

/// The engine: the services of all domains over a shared context.
pub struct Engine {
    /// The shared context: store, time, transports, metrics.
    pub ctx: Arc<Context>,
    /// Teams, API keys, domains, settings.
    pub access: Arc<Access>,
    /// People and their sessions.
    pub people: Arc<People>,
    /// Clients that people connected over OAuth.
    pub connections: Arc<Connections>,
    /// Providers that send events and mail.
    pub sources: Arc<Sources>,
    /// Rules, lists, stops, suppressions, the audit log.
    pub control: Arc<Control>,
    /// Budgets.
    pub budgets: Arc<Budgets>,
    /// Erasing people.
    pub erasures: Arc<Erasures>,
    /// Inboxes, messages, labels.
    pub inboxes: Arc<Inboxes>,
    /// Codes and links in messages, watches, waiting for messages.
    pub artifacts: Arc<Artifacts>,
    /// Events, endpoints, notices.
    pub events: Arc<Events>,
    /// Sending, idempotency keys, email commands.
    pub outbound: Arc<Outbound>,
    /// Drafts.
    pub drafts: Arc<Drafts>,
    /// The hand-off to transports.
    pub handoffs: Arc<Handoffs>,
    /// Received mail and provider events.
    pub inbound: Arc<Inbound>,
    /// Questions for people, and their decisions.
    pub escalations: Arc<Escalations>,
    /// Telling people about questions.
    pub notifications: Arc<Notifications>,
    /// Threads, replies, the work queue, mailboxes.
    pub conversations: Arc<Conversations>,
    /// The once-only right to any other side effect.
    pub claims: Arc<Claims>,
    /// Outboxes in databases of users.
    pub outboxes: Arc<Outboxes>,
    /// Full-text search.
    pub search: Arc<Search>,
}

impl Engine {
    /// Creates an engine over its ports.
    pub async fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        deps: EngineDeps,
    ) -> Result<Arc<Self>, StoreError> {
        let replay_cache = Arc::new(ReplayCache::default());
        let inbound = Arc::new(InboundRuntime::new(deps.local_domains.clone(), deps.authenticator.clone()));
        let event_wake_ups = EventWakeUps::default();
        let (install, time) = read_installation(&*store, clock).await?;
        let (inbound_hook, events_hook) = (Arc::clone(&inbound), event_wake_ups.clone());
        let coverage = store.attach(StoreHooks {
            clock: Some(Arc::clone(&time) as SharedLedgerClock),
            emails: Some(Arc::clone(&replay_cache) as SharedEmailSubscriber),
            inbound: Some(Box::new(move |wake_up| inbound_hook.on_wake_up(wake_up))),
            events: Some(Box::new(move |team| events_hook.on_event(team))),
        });
        inbound.has_push_wake_ups.store(coverage.inbound, Ordering::Relaxed);
        event_wake_ups.set_push_wake_ups(coverage.events);
        let local = Arc::new(LocalTransport::default());
        let mut transports = deps.transports.clone();
        if deps.delivers_locally() {
            transports.push(Arc::clone(&local) as Arc<dyn Transport>);
        }
        let ctx = Arc::new(Context {
            store,
            time,
            lease_identities: OwnNodeIds::new(&*entropy),
            transports: TransportSelector::new(&transports, deps.routing.clone(), Arc::clone(&inbound.inbox_domains)),
            packer: Arc::new(Packer::new(&install.secret, Arc::clone(&entropy), deps.seal_bodies)),
            deps,
            unknown_wakeup: Notify::new(),
            entropy,
            secret: install.secret,
            initial_epoch: install.epoch,
            ids: Mutex::new(IdGenerator::starting_above(install.last_id)),
            is_single_node: coverage.emails,
            inbound,
            escalation_hook: EscalationHook::default(),
            metrics: Metrics::default(),
        });
        let engine = Arc::new(Self::over(ctx, replay_cache, event_wake_ups));
        local.attach_inbound(&engine.inbound);
        let escalations: Weak<Escalations> = Arc::downgrade(&engine.escalations);
        engine.ctx.escalation_hook.attach(escalations);
        Ok(engine)
    }

    /// Builds the services in the order of their dependencies.
    fn over(ctx: Arc<Context>, replay_cache: Arc<ReplayCache>, event_wake_ups: EventWakeUps) -> Self {
        let access = Arc::new(Access::new(Arc::clone(&ctx)));
        let people = Arc::new(People::new(Arc::clone(&ctx), Arc::clone(&access)));
        let connections = Arc::new(Connections::new(Arc::clone(&ctx), Arc::clone(&access)));
        let sources = Arc::new(Sources::new(Arc::clone(&ctx)));
        let control = Arc::new(Control::new(Arc::clone(&ctx), Arc::clone(&access)));
        let budgets = Arc::new(Budgets::new(Arc::clone(&ctx), Arc::clone(&access), Arc::clone(&control)));
        let erasures = Arc::new(Erasures::new(Arc::clone(&ctx), Arc::clone(&control)));
        let inboxes = Arc::new(Inboxes::new(Arc::clone(&ctx), Arc::clone(&access)));
        let artifacts = Arc::new(Artifacts::new(&ctx, &access, &inboxes));
        let search = Arc::new(Search::new(Arc::clone(&ctx), Arc::clone(&inboxes), event_wake_ups.search_wakeup()));
        let events = Arc::new(Events::new(Arc::clone(&ctx), Arc::clone(&access), event_wake_ups));
        let handoffs = Arc::new(Handoffs::new(Arc::clone(&ctx), Arc::clone(&access), Arc::clone(&control)));
        let outbound = Arc::new(Outbound::new(
            Arc::clone(&ctx),
            Arc::clone(&access),
            Arc::clone(&control),
            Arc::clone(&budgets),
            replay_cache,
        ));
        let drafts = Arc::new(Drafts::new(Arc::clone(&ctx), Arc::clone(&inboxes), Arc::clone(&outbound)));
        let inbound = Arc::new(Inbound::new(&ctx, &sources, &control, &inboxes, &outbound));
        let claims = Arc::new(Claims::new(Arc::clone(&ctx), Arc::clone(&access)));
        let outboxes = Arc::new(Outboxes::new(&ctx, &outbound, &claims));
        let escalations = Arc::new(Escalations::new(
            Arc::clone(&ctx),
            Arc::clone(&access),
            Arc::clone(&budgets),
            Arc::clone(&inboxes),
            Arc::clone(&handoffs),
            Arc::clone(&outbound),
        ));
        let notifications = Arc::new(Notifications::new(&ctx, &access, &escalations));
        let conversations = Arc::new(Conversations {
            ctx: Arc::clone(&ctx),
            access: Arc::clone(&access),
            budgets: Arc::clone(&budgets),
            inboxes: Arc::clone(&inboxes),
            handoffs: Arc::clone(&handoffs),
            outbound: Arc::clone(&outbound),
            drafts: Arc::clone(&drafts),
            escalations: Arc::clone(&escalations),
        });
        Self {
            ctx,
            access,
            people,
            connections,
            sources,
            control,
            budgets,
            erasures,
            inboxes,
            artifacts,
            events,
            outbound,
            drafts,
            handoffs,
            inbound,
            escalations,
            notifications,
            conversations,
            claims,
            outboxes,
            search,
        }
    }

    /// All metrics in the Prometheus text format, followed by `more`: metrics of other crates in the same format.
    pub async fn render_metrics(&self, more: &str) -> String {
        let backlog = self.ctx.store.backlog().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read the hand-off backlog");
            Backlog::default()
        });
        let endpoints = self.ctx.store.endpoint_gauges().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read the state of endpoints");
            Vec::new()
        });
        let mut text = self.ctx.metrics.render(
            &self.ctx.store.gauges(),
            &backlog,
            (&self.ctx.transport_statuses(), &self.handoffs.orphaned_transports()),
            self.ctx.now(),
        );
        render_clock_metrics(&mut text, self.ctx.clock_state());
        render_endpoint_metrics(&mut text, &endpoints);
        match self.control.stops.counts().await {
            Ok(counts) => render_stop_metrics(&mut text, &counts),
            Err(error) => tracing::warn!(%error, "cannot count the stops"),
        }
        text.push_str(more);
        text.push_str("# EOF\n");
        text
    }
}

/// Reads the installation, and starts the clock from the latest time that the ledger knows.
async fn read_installation(
    store: &dyn Store,
    clock: Arc<dyn Clock>,
) -> Result<(InstallationInfo, Arc<Timekeeper>), StoreError> {
    let before = clock.boot_clock_ms();
    let install = store.installation().await?;
    let reading = BootInterval { before, after: clock.boot_clock_ms() };
    // Ids contain the time of acceptance, which may be later than the last heartbeat.
    let last = install.last_heartbeat_at.max(Some(Time(install.last_id >> 12)).filter(|time| time.0 > 0));
    let time = Arc::new(Timekeeper::new(clock, last, install.database_clock, reading));
    Ok((install, time))
}
