//! Gates: calls of one kind that come together travel together, in one transaction.
//!
//! Nobody waits for company: a lane takes who stands there, and while it is under way the next ones gather. So a busy
//! inbox pays for one commit where many messages are filed, and a quiet one pays nothing for it.

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

/// Calls one transaction takes at most.
const MAX_BATCH_CALLS: usize = 64;
/// Bytes one transaction takes at most, unless a single call is larger.
const MAX_BATCH_BYTES: usize = 8 * 1024 * 1024;

/// A call that may travel with others.
pub(crate) trait BatchedCall: Sized + Send + Sync + 'static {
    type Answer: Send;

    /// About how many bytes it is on the wire.
    fn size(&self) -> usize;
    /// Where calls of its kind stand in line.
    fn batcher(ledger: &SharedState) -> &CallBatcher<Self>;
    /// Answers all of them, in their order, in one transaction.
    fn run_batch(ledger: &SharedState, together: &[Self]) -> impl Future<Output = TxResult<Vec<Self::Answer>>> + Send;
}

/// An answer, and whether the commit of its group was confirmed after it was decided.
type GroupedAnswer<T> = (Result<<T as BatchedCall>::Answer>, bool);

struct CallQueue<T: BatchedCall> {
    calls: VecDeque<(T, oneshot::Sender<GroupedAnswer<T>>)>,
    is_closed: bool,
}

/// A line in front of lanes.
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

    /// Stands in line and gives back the answer.
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

    /// Takes no more calls. Those in line are still answered.
    pub(crate) fn close(&self) {
        self.lock_queue().is_closed = true;
        self.arrived.notify_waiters();
        self.arrived.notify_one();
    }

    /// Who goes next. `None` when the line is closed and empty.
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

/// One lane, until its line is closed.
pub(crate) async fn run_batch_worker<T: BatchedCall>(ledger: Arc<SharedState>) {
    let gate = T::batcher(&ledger);
    loop {
        let arrived = gate.arrived.notified();
        let Some((calls, answers)) = gate.next_batch() else {
            return gate.arrived.notify_one();
        };
        if calls.is_empty() {
            arrived.await;
            // Callers that were answered together come back together: let them all get in line.
            tokio::task::yield_now().await;
            continue;
        }
        let (all, proven) = durability::observe(run_or_split_batch(&ledger, calls)).await;
        for (answer, answered) in all.into_iter().zip(answers) {
            // A caller that went away does not mind.
            answered.send((answer, proven)).ok();
        }
    }
}

async fn run_or_split_batch<T: BatchedCall>(ledger: &SharedState, mut calls: Vec<T>) -> Vec<Result<T::Answer>> {
    let count = calls.len();
    match call_until_final!(T::run_batch(ledger, &calls)) {
        Ok(answers) => answers.into_iter().map(Ok).collect(),
        // One call that the database cannot take must not spoil the others: each is answered alone.
        Err(TxError::Rejected(_)) if count > 1 => {
            let mut all = Vec::with_capacity(count);
            for call in mem::take(&mut calls) {
                let mut answers = Box::pin(run_or_split_batch(ledger, vec![call])).await;
                all.push(answers.pop().unwrap_or_else(|| Err(StoreError::CommitUnknown("the lane ended".into()))));
            }
            all
        }
        Err(trouble) => {
            let error = StoreError::from(trouble);
            (0..count).map(|_| Err(error.clone())).collect()
        }
    }
}
