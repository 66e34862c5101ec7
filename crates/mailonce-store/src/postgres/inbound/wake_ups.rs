//! Wake-ups: delivered directly on this node, and by `LISTEN` and `NOTIFY` from other nodes.
//!
//! A notification is sent when its transaction commits. PostgreSQL serializes commits that contain a `NOTIFY` with a
//! lock. The lock is held until the commit is flushed and replicated, so such commits cannot share a flush. So only
//! three calls notify: filing, a replay, and a receive whose delivery no worker leases at once. A batch of filings
//! needs one such commit.
//!
//! Wake-ups may be lost together with the `LISTEN` session, so waiters also poll.

use mailonce_core::{id::InboxId, inbound::wake_up::InboundWakeUp, ports::inbound_store::InboundWakeUpHandler};
use std::{
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};
use tokio::{sync::watch, task::JoinHandle};
use tokio_postgres::Client;

use crate::postgres::{SharedState, error::TxResult};

/// The pause before a node tries again to open its `LISTEN` session.
const RELISTEN_PAUSE: Duration = Duration::from_millis(500);

const LISTEN: &str = "LISTEN mailonce";
const BACKEND_PID: &str = "SELECT pg_backend_pid()";
/// Sends notifications with the commit. PostgreSQL sends equal ones once.
pub(crate) const NOTIFY: &str = "SELECT pg_notify('mailonce', letter) FROM unnest($1::text[]) AS w (letter)";

/// Distributes wake-ups from this node and from the others to the subscribers on this node.
#[derive(Default)]
pub(crate) struct WakeUpBus {
    subscribers: RwLock<Vec<InboundWakeUpHandler>>,
    /// The backend pid of the `LISTEN` session; 0 while there is none. Notifications carry it, so that a node can
    /// ignore its own.
    listen_session_pid: AtomicI32,
}

impl WakeUpBus {
    /// Adds a subscriber, if there is one. Returns whether this node currently receives wake-ups from other nodes.
    pub(crate) fn subscribe(&self, handler: Option<InboundWakeUpHandler>) -> bool {
        self.subscribers.write().unwrap_or_else(PoisonError::into_inner).extend(handler);
        self.listen_session_pid.load(Ordering::SeqCst) != 0
    }

    /// Calls the subscribers on this node.
    pub(crate) fn notify_local(&self, hints: &[InboundWakeUp]) {
        let handlers = self.subscribers.read().unwrap_or_else(PoisonError::into_inner);
        for hint in hints {
            handlers.iter().for_each(|handler| handler(*hint));
        }
    }

    /// Encodes wake-ups as notification payloads for other nodes.
    pub(crate) fn encode(&self, hints: &[InboundWakeUp]) -> Vec<String> {
        let from = self.listen_session_pid.load(Ordering::SeqCst);
        let payload = |hint: &InboundWakeUp| match hint {
            InboundWakeUp::MessageFiled(inbox) => format!("{from} filed {inbox}"),
            InboundWakeUp::DeliveryWaiting => format!("{from} waiting"),
        };
        hints.iter().map(payload).collect()
    }

    /// Delivers a notification from another node. A payload that cannot be parsed is from a newer version and is
    /// ignored.
    fn deliver_remote(&self, payload: &str) {
        let mut words = payload.split(' ');
        let from = words.next().and_then(|word| word.parse::<i32>().ok());
        let hint = match (words.next(), words.next().map(str::parse::<uuid::Uuid>)) {
            (Some("filed"), Some(Ok(inbox))) => InboundWakeUp::MessageFiled(InboxId(inbox)),
            (Some("waiting"), None) => InboundWakeUp::DeliveryWaiting,
            _ => return,
        };
        if from.is_some_and(|from| from != self.listen_session_pid.load(Ordering::SeqCst)) {
            self.notify_local(&[hint]);
        }
    }
}

/// A `LISTEN` session, alive while its driver runs.
pub(crate) struct ListenSession {
    _client: Client,
    driver: JoinHandle<()>,
}

impl SharedState {
    /// Opens a `LISTEN` session.
    pub(crate) async fn open_listen_session(&self) -> TxResult<ListenSession> {
        let bus = self.wake_up_bus.clone();
        let (client, driver) =
            self.connections.open_listener(Arc::new(move |payload: &str| bus.deliver_remote(payload))).await?;
        client.batch_execute(LISTEN).await?;
        self.wake_up_bus
            .listen_session_pid
            .store(client.query_one(BACKEND_PID, &[]).await?.try_get(0)?, Ordering::SeqCst);
        Ok(ListenSession { _client: client, driver })
    }
}

/// Listens until the store closes, and reopens the session when it is lost.
pub(crate) async fn run_listener(
    ledger: Arc<SharedState>,
    mut listening: ListenSession,
    mut closing: watch::Receiver<bool>,
) {
    loop {
        tokio::select! {
            _ = &mut listening.driver => {}
            _ = closing.wait_for(|closing| *closing) => return,
        }
        ledger.wake_up_bus.listen_session_pid.store(0, Ordering::SeqCst);
        tracing::warn!("the session that hears of other nodes was lost");
        loop {
            match ledger.open_listen_session().await {
                Ok(again) => {
                    listening = again;
                    break;
                }
                Err(error) => tracing::warn!("other nodes cannot be heard: {error:?}"),
            }
            tokio::select! {
                () = tokio::time::sleep(RELISTEN_PAUSE) => {}
                _ = closing.wait_for(|closing| *closing) => return,
            }
        }
        // Wake-ups may have been lost meanwhile.
        ledger.wake_up_bus.notify_local(&[InboundWakeUp::DeliveryWaiting]);
    }
}
