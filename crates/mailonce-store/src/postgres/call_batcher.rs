//! Group commit: calls of one kind that arrive together share one transaction.
//!
//! No call waits for a batch to fill: a free worker takes what is queued, up to a limit, and later calls queue while its
//! transaction runs. Many calls thus share a commit under load, and a single call has no added delay.

use mailonce_core::ports::store::{Result, StoreError};
use std::{
    collections::VecDeque,
    future::Future,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{Notify, oneshot};

use super::{SharedState, durability};
use crate::postgres::error::{TxError, TxResult, call_until_final};

/// The maximum number of calls in one transaction.
const MAX_BATCH_CALLS: usize = 64;
/// The maximum number of bytes in one transaction, unless a single call is larger.
const MAX_BATCH_BYTES: usize = 8 * 1024 * 1024;

/// A call that can share a transaction with others.
pub(crate) trait BatchedCall: Sized + Send + Sync + 'static {
    type Answer: Send;

    /// Its approximate size on the wire in bytes.
    fn size(&self) -> usize;
    /// The queue of calls of this kind.
    fn batcher(ledger: &SharedState) -> &CallBatcher<Self>;
    /// Runs all calls in one transaction. Returns their answers in the same order.
    fn run_batch(ledger: &SharedState, together: &[Self]) -> impl Future<Output = TxResult<Vec<Self::Answer>>> + Send;
}

/// An answer, and whether a confirmed commit after it proves it durable, so that it need not wait for the standby.
type GroupedAnswer<T> = (Result<<T as BatchedCall>::Answer>, bool);

struct CallQueue<T: BatchedCall> {
    calls: VecDeque<(T, oneshot::Sender<GroupedAnswer<T>>)>,
    is_closed: bool,
}

/// A queue of calls that batch workers drain.
pub(crate) struct CallBatcher<T: BatchedCall> {
    queue: Mutex<CallQueue<T>>,
    arrived: Notify,
}

impl<T: BatchedCall> Default for CallBatcher<T> {
    fn default() -> Self {
        Self { queue: Mutex::new(CallQueue { calls: VecDeque::new(), is_closed: false }), arrived: Notify::new() }
    }
}

impl<T: BatchedCall> CallBatcher<T> {
    fn lock_queue(&self) -> MutexGuard<'_, CallQueue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a call and returns its answer.
    pub(crate) async fn submit(&self, call: T) -> Result<T::Answer> {
        let answered = self.enqueue(call)?;
        let (answer, proven) =
            answered.await.unwrap_or_else(|_gone| (Err(StoreError::CommitUnknown("the lane ended".into())), false));
        if proven {
            durability::mark_proven();
        }
        answer
    }

    fn enqueue(&self, call: T) -> Result<oneshot::Receiver<GroupedAnswer<T>>> {
        let (answer, answered) = oneshot::channel();
        let mut line = self.lock_queue();
        if line.is_closed {
            return Err(StoreError::Unreachable("the store is closed".into()));
        }
        line.calls.push_back((call, answer));
        drop(line);
        self.arrived.notify_one();
        Ok(answered)
    }

    /// Rejects new calls. Queued calls are still answered.
    pub(crate) fn close(&self) {
        self.lock_queue().is_closed = true;
        self.arrived.notify_waiters();
        self.arrived.notify_one();
    }

    /// Takes the next batch. `None` when the queue is closed and empty.
    fn next_batch(&self) -> Option<(Vec<T>, Vec<oneshot::Sender<GroupedAnswer<T>>>)> {
        let mut line = self.lock_queue();
        if line.is_closed && line.calls.is_empty() {
            return None;
        }
        let (mut calls, mut answers, mut bytes) = (Vec::new(), Vec::new(), 0);
        while let Some((call, answer)) = line.calls.pop_front() {
            bytes += call.size();
            if calls.len() == MAX_BATCH_CALLS || (bytes > MAX_BATCH_BYTES && !calls.is_empty()) {
                line.calls.push_front((call, answer));
                break;
            }
            calls.push(call);
            answers.push(answer);
        }
        let more = !line.calls.is_empty();
        drop(line);
        if more {
            self.arrived.notify_one();
        }
        Some((calls, answers))
    }
}

/// A batch worker. It runs until its queue is closed and empty.
pub(crate) async fn run_batch_worker<T: BatchedCall>(ledger: Arc<SharedState>) {
    let gate = T::batcher(&ledger);
    loop {
        let arrived = gate.arrived.notified();
        let Some((calls, answers)) = gate.next_batch() else {
            return gate.arrived.notify_one();
        };
        if calls.is_empty() {
            arrived.await;
            // Callers that were answered together often call again together: let them all queue first.
            tokio::task::yield_now().await;
            continue;
        }
        let (all, proven) = durability::observe(run_or_split_batch(&ledger, calls)).await;
        for (answer, answered) in all.into_iter().zip(answers) {
            // The caller may have gone away meanwhile.
            answered.send((answer, proven)).ok();
        }
    }
}

async fn run_or_split_batch<T: BatchedCall>(ledger: &SharedState, mut calls: Vec<T>) -> Vec<Result<T::Answer>> {
    let count = calls.len();
    match call_until_final!(T::run_batch(ledger, &calls)) {
        Ok(answers) => answers.into_iter().map(Ok).collect(),
        // One call that the database rejects must not fail the others: run each alone.
        Err(TxError::Rejected(_)) if count > 1 => {
            let mut all = Vec::with_capacity(count);
            for call in mem::take(&mut calls) {
                let mut answers = Box::pin(run_or_split_batch(ledger, vec![call])).await;
                all.push(answers.pop().unwrap_or_else(|| Err(StoreError::CommitUnknown("the lane ended".into()))));
            }
            all
        }
        Err(error) => {
            let error = StoreError::from(error);
            (0..count).map(|_| Err(error.clone())).collect()
        }
    }
}
