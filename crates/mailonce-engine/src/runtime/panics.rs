//! Restarts background loops that panic.

use crate::runtime::context::Context;
use std::{
    any::Any,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};
use tokio::sync::watch;

/// The delay before a panicked loop restarts.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Runs a worker to its end. The error is the panic message.
pub(crate) async fn catch_panic<F: Future>(worker: F) -> Result<F::Output, String> {
    let mut worker = pin!(worker);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| worker.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(payload) => Poll::Ready(Err(panic_message(payload.as_ref()))),
    })
    .await
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

impl Context {
    /// Runs a loop until it ends, and restarts it after a panic. The process then leases under a new node id, so that
    /// the leases of the panicked loop are recovered like those of a dead node.
    pub async fn restart_on_panic<T, F: Future<Output = ()>>(
        self: Arc<Self>,
        what: &'static str,
        mut stop: watch::Receiver<bool>,
        service: Arc<T>,
        begin: impl Fn(Arc<T>, watch::Receiver<bool>) -> F,
    ) {
        while let Err(why) = catch_panic(Box::pin(begin(Arc::clone(&service), stop.clone()))).await {
            tracing::error!(why, what, "a background loop panicked and restarts");
            self.metrics.record_panic(what);
            self.lease_identities.replace(&self.lease_identities.current(), &*self.entropy);
            tokio::select! {
                biased;
                () = tokio::time::sleep(RESTART_DELAY) => {}
                _ = stop.changed() => {}
            }
        }
    }
}
