//! Hearing: this node's own hints at once, those of the other nodes by LISTEN and NOTIFY.
//!
//! A NOTIFY travels with the commit of what it tells of. Commits that carry one stand in one line for the whole
//! server, from before they are written to the disk until they are there, replicas included: they do not share a flush.
//! So only filing, a receive that nobody reads at once and a replay carry one, and of filings that travel together one
//! commit carries all of theirs. A hint may be lost, whenever the session that listens is; who waits looks for itself
//! now and then.

use mailonce_core::{
    id::InboxId,
    ports::inbound_store::{InboundWakeUp, InboundWakeUpHandler},
};
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

/// How long a node that could not listen waits before it tries again.
const RELISTEN_PAUSE: Duration = Duration::from_millis(500);

const LISTEN: &str = "LISTEN mailonce";
const BACKEND_PID: &str = "SELECT pg_backend_pid()";
/// Sends letters with the commit. Equal ones are sent once.
pub(crate) const NOTIFY: &str = "SELECT pg_notify('mailonce', letter) FROM unnest($1::text[]) AS w (letter)";

/// Who hears of what happened on this node and on the others.
#[derive(Default)]
pub(crate) struct WakeUpBus {
    subscribers: RwLock<Vec<InboundWakeUpHandler>>,
    /// The server's name for the session that listens; 0 while none does. Letters are signed with it, so that a node
    /// need not hear twice what it told itself.
    listen_session_pid: AtomicI32,
}

impl WakeUpBus {
    /// One more who hears. Whether this node hears of the others.
    pub(crate) fn subscribe(&self, hearer: InboundWakeUpHandler) -> bool {
        self.subscribers.write().unwrap_or_else(PoisonError::into_inner).push(hearer);
        self.listen_session_pid.load(Ordering::SeqCst) != 0
    }

    /// Tells who hears on this node.
    pub(crate) fn notify_local(&self, hints: &[InboundWakeUp]) {
        let hearers = self.subscribers.read().unwrap_or_else(PoisonError::into_inner);
        for hint in hints {
            hearers.iter().for_each(|hearer| hearer(*hint));
        }
    }

    /// Hints as they travel to the other nodes.
    pub(crate) fn encode(&self, hints: &[InboundWakeUp]) -> Vec<String> {
        let from = self.listen_session_pid.load(Ordering::SeqCst);
        let letter = |hint: &InboundWakeUp| match hint {
            InboundWakeUp::MessageFiled(inbox) => format!("{from} filed {inbox}"),
            InboundWakeUp::DeliveryWaiting => format!("{from} waiting"),
        };
        hints.iter().map(letter).collect()
    }

    /// Tells of another node's letter. One that cannot be read is of a newer version, and is let pass.
    fn deliver_remote(&self, letter: &str) {
        let mut words = letter.split(' ');
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

/// A session that listens, for as long as its driver runs.
pub(crate) struct ListenSession {
    _client: Client,
    driver: JoinHandle<()>,
}

impl SharedState {
    /// Opens a session that listens.
    pub(crate) async fn open_listen_session(&self) -> TxResult<ListenSession> {
        let ears = self.wake_up_bus.clone();
        let (client, driver) =
            self.connections.open_listener(Arc::new(move |letter: &str| ears.deliver_remote(letter))).await?;
        client.batch_execute(LISTEN).await?;
        self.wake_up_bus
            .listen_session_pid
            .store(client.query_one(BACKEND_PID, &[]).await?.try_get(0)?, Ordering::SeqCst);
        Ok(ListenSession { _client: client, driver })
    }
}

/// Listens until the store closes, on one session after the other.
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
                Err(trouble) => tracing::warn!("other nodes cannot be heard: {trouble:?}"),
            }
            tokio::select! {
                () = tokio::time::sleep(RELISTEN_PAUSE) => {}
                _ = closing.wait_for(|closing| *closing) => return,
            }
        }
        // Whatever came meanwhile was not heard.
        ledger.wake_up_bus.notify_local(&[InboundWakeUp::DeliveryWaiting]);
    }
}
