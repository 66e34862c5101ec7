//! Gates: calls of one kind that come together travel together, in one transaction.
//!
//! Nobody waits for company: a lane takes who stands there, and while it is under way the next ones gather. So a busy
//! inbox pays for one commit where many messages are filed, and a quiet one pays nothing for it.

use mailonce_core::port::store::{Result, StoreError};
use std::{
    collections::VecDeque,
    future::Future,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{Notify, oneshot};

use super::{
    Ledger, durability,
    trouble::{Tried, Trouble, insist},
};

/// Calls one transaction takes at most.
const TOGETHER: usize = 64;
/// Bytes one transaction takes at most, unless a single call is larger.
const TOGETHER_BYTES: usize = 8 * 1024 * 1024;

/// A call that may travel with others.
pub(super) trait Traveller: Sized + Send + Sync + 'static {
    type Answer: Send;

    /// About how many bytes it is on the wire.
    fn size(&self) -> usize;
    /// Where calls of its kind stand in line.
    fn gate(ledger: &Ledger) -> &Gate<Self>;
    /// Answers all of them, in their order, in one transaction.
    fn travel(ledger: &Ledger, together: &[Self]) -> impl Future<Output = Tried<Vec<Self::Answer>>> + Send;
}

/// An answer, and whether the commit of its group was confirmed after it was decided.
type Answered<T> = (Result<<T as Traveller>::Answer>, bool);

struct Line<T: Traveller> {
    waiting: VecDeque<(T, oneshot::Sender<Answered<T>>)>,
    closed: bool,
}

/// A line in front of lanes.
pub(super) struct Gate<T: Traveller> {
    line: Mutex<Line<T>>,
    arrived: Notify,
}

impl<T: Traveller> Default for Gate<T> {
    fn default() -> Self {
        Self { line: Mutex::new(Line { waiting: VecDeque::new(), closed: false }), arrived: Notify::new() }
    }
}

impl<T: Traveller> Gate<T> {
    fn line(&self) -> MutexGuard<'_, Line<T>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stands in line and gives back the answer.
    pub(super) async fn pass(&self, call: T) -> Result<T::Answer> {
        let answered = self.join(call)?;
        let (answer, proven) =
            answered.await.unwrap_or_else(|_gone| (Err(StoreError::Unknown("the lane ended".into())), false));
        if proven {
            durability::note_proven();
        }
        answer
    }

    fn join(&self, call: T) -> Result<oneshot::Receiver<Answered<T>>> {
        let (answer, answered) = oneshot::channel();
        let mut line = self.line();
        if line.closed {
            return Err(StoreError::Unreachable("the store is closed".into()));
        }
        line.waiting.push_back((call, answer));
        drop(line);
        self.arrived.notify_one();
        Ok(answered)
    }

    /// Takes no more calls. Those in line are still answered.
    pub(super) fn close(&self) {
        self.line().closed = true;
        self.arrived.notify_waiters();
        self.arrived.notify_one();
    }

    /// Who goes next. `None` when the line is closed and empty.
    fn take(&self) -> Option<(Vec<T>, Vec<oneshot::Sender<Answered<T>>>)> {
        let mut line = self.line();
        if line.closed && line.waiting.is_empty() {
            return None;
        }
        let (mut calls, mut answers, mut bytes) = (Vec::new(), Vec::new(), 0);
        while let Some((call, answer)) = line.waiting.pop_front() {
            bytes += call.size();
            if calls.len() == TOGETHER || (bytes > TOGETHER_BYTES && !calls.is_empty()) {
                line.waiting.push_front((call, answer));
                break;
            }
            calls.push(call);
            answers.push(answer);
        }
        let more = !line.waiting.is_empty();
        drop(line);
        if more {
            self.arrived.notify_one();
        }
        Some((calls, answers))
    }
}

/// One lane, until its line is closed.
pub(super) async fn lane<T: Traveller>(ledger: Arc<Ledger>) {
    let gate = T::gate(&ledger);
    loop {
        let arrived = gate.arrived.notified();
        let Some((calls, answers)) = gate.take() else {
            return gate.arrived.notify_one();
        };
        if calls.is_empty() {
            arrived.await;
            // Callers that were answered together come back together: let them all get in line.
            tokio::task::yield_now().await;
            continue;
        }
        let (all, proven) = durability::observe(answer_all(&ledger, calls)).await;
        for (answer, answered) in all.into_iter().zip(answers) {
            // A caller that went away does not mind.
            answered.send((answer, proven)).ok();
        }
    }
}

async fn answer_all<T: Traveller>(ledger: &Ledger, mut calls: Vec<T>) -> Vec<Result<T::Answer>> {
    let count = calls.len();
    match insist!(T::travel(ledger, &calls)) {
        Ok(answers) => answers.into_iter().map(Ok).collect(),
        // One call that the database cannot take must not spoil the others: each is answered alone.
        Err(Trouble::Refused(_)) if count > 1 => {
            let mut all = Vec::with_capacity(count);
            for call in mem::take(&mut calls) {
                let mut answers = Box::pin(answer_all(ledger, vec![call])).await;
                all.push(answers.pop().unwrap_or_else(|| Err(StoreError::Unknown("the lane ended".into()))));
            }
            all
        }
        Err(trouble) => {
            let error = StoreError::from(trouble);
            (0..count).map(|_| Err(error.clone())).collect()
        }
    }
}
