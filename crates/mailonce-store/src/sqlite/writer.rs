//! The one writer: a thread that takes every verb that waits, runs them in one transaction, commits once, and only
//! then answers. Accepts go first; the others get a share of every commit, so that none starves.

use mailonce_core::port::store::{Gauges, Result, StoreError};
use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::ledger::Ledger;

/// Accepts in one commit, and other verbs beside them.
const ACCEPTS_PER_COMMIT: usize = 512;
const OTHERS_PER_COMMIT: usize = 128;
/// Verbs that may wait. The next caller waits outside.
const WAITING: usize = 16_384;

/// A verb that ran, and whom to answer once the fate of its commit is known.
trait Reply: Send {
    /// Tells listeners what the verb accepted. Called after the commit, for the whole group before anybody is answered.
    fn publish(&self, ledger: &Ledger<'_>);

    /// Sends the answer.
    fn send(self: Box<Self>, commit: &Result<()>);
}

struct Answered<T, P> {
    answer: Result<T>,
    publish: P,
    tell: oneshot::Sender<Result<T>>,
}

impl<T: Send, P: Fn(&T, &Ledger<'_>) + Send> Reply for Answered<T, P> {
    fn publish(&self, ledger: &Ledger<'_>) {
        self.answer.iter().for_each(|answer| (self.publish)(answer, ledger));
    }

    fn send(self: Box<Self>, commit: &Result<()>) {
        // The caller may have gone; what was committed stays committed.
        drop(self.tell.send(commit.clone().and(self.answer)));
    }
}

/// Runs a verb inside the transaction. An error fails the whole group.
type Verb = Box<dyn FnOnce(&mut Ledger<'_>) -> Result<Box<dyn Reply>> + Send>;

struct Waiting {
    verb: Verb,
    _place: OwnedSemaphorePermit,
}

#[derive(Default)]
struct Queues {
    accepts: VecDeque<Waiting>,
    others: VecDeque<Waiting>,
    /// Whether the writer sleeps: only then it has to be woken, and waking costs a call to the kernel.
    sleeps: bool,
    closed: bool,
    /// Why the writer stopped for good.
    broken: Option<StoreError>,
}

/// The way to the writer.
pub(super) struct Writer {
    queues: Mutex<Queues>,
    ready: Condvar,
    places: Arc<Semaphore>,
    gauges: Mutex<Gauges>,
}

/// Which verbs go first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Accept,
    Other,
}

impl Writer {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            queues: Mutex::default(),
            ready: Condvar::new(),
            places: Arc::new(Semaphore::new(WAITING)),
            gauges: Mutex::default(),
        })
    }

    /// Has a verb run and committed. The answer comes after the commit, never before.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        turn: Turn,
        verb: impl FnOnce(&mut Ledger<'_>) -> Result<T> + Send + 'static,
        publish: impl Fn(&T, &Ledger<'_>) + Send + 'static,
    ) -> Result<T> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_closed| closed())?;
        let (tell, told) = oneshot::channel();
        let verb: Verb = Box::new(move |ledger| {
            // An accept checks everything before its first write, so it needs no way back of its own; the other
            // verbs get a savepoint, and their errors stay their own.
            let answer = if turn == Turn::Accept { Ok(verb(ledger)?) } else { ledger.in_savepoint(verb) };
            if let Err(error @ StoreError::Corrupt(_)) = answer {
                return Err(error);
            }
            Ok(Box::new(Answered { answer, publish, tell }))
        });
        let sleeps = {
            let mut queues = self.lock();
            if let Some(broken) = &queues.broken {
                return Err(broken.clone());
            }
            if queues.closed {
                return Err(closed());
            }
            let queue = if turn == Turn::Accept { &mut queues.accepts } else { &mut queues.others };
            queue.push_back(Waiting { verb, _place: place });
            queues.sleeps
        };
        if sleeps {
            self.ready.notify_one();
        }
        match told.await {
            Ok(answer) => answer,
            // The verb was dropped with its group: its error is what broke the group, or the writer is gone.
            Err(_dropped) => Err(self.lock().broken.clone().unwrap_or_else(|| {
                StoreError::Unreachable("the group of this call was rolled back; nothing was written".into())
            })),
        }
    }

    pub(super) fn gauges(&self) -> Gauges {
        self.gauges.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets the writer finish what waits and end.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_all();
    }

    /// Why it takes no verb any more, if so.
    pub(super) fn broken(&self) -> Option<StoreError> {
        self.lock().broken.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes no verb any more.
    pub(super) fn give_up(&self, error: StoreError) {
        tracing::error!(%error, "the writer stops");
        let mut queues = self.lock();
        queues.broken = Some(error);
        queues.accepts.clear();
        queues.others.clear();
    }

    /// The life of the thread: take, run, commit, answer.
    pub(super) fn work(&self, mut ledger: Ledger<'_>) {
        while let Some(group) = self.take() {
            let size = group.len();
            let began = Instant::now();
            let (replies, fate) = commit_group(&mut ledger, group);
            self.count(size, began.elapsed().as_micros() as u64);
            let broken = fate.clone().err().filter(|error| matches!(error, StoreError::Corrupt(_)));
            let ends = broken.is_some();
            broken.into_iter().for_each(|error| self.give_up(error));
            if fate.is_ok() {
                replies.iter().for_each(|reply| reply.publish(&ledger));
                ledger.publish();
            }
            for reply in replies {
                reply.send(&fate);
                mailonce_core::failpoint!("sqlite-answering");
            }
            if ends {
                return;
            }
            if let Err(error @ StoreError::Corrupt(_)) = ledger.checkpoint_leftovers() {
                return self.give_up(error);
            }
        }
    }

    fn take(&self) -> Option<Vec<Waiting>> {
        let mut queues = self.lock();
        while queues.accepts.is_empty() && queues.others.is_empty() {
            if queues.closed {
                return None;
            }
            queues.sleeps = true;
            queues = self.ready.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
        queues.sleeps = false;
        let accepts = queues.accepts.len().min(ACCEPTS_PER_COMMIT);
        let mut group: Vec<Waiting> = queues.accepts.drain(..accepts).collect();
        let others = queues.others.len().min(OTHERS_PER_COMMIT);
        group.extend(queues.others.drain(..others));
        Some(group)
    }

    fn count(&self, size: usize, us: u64) {
        let mut gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        gauges.commits += 1;
        gauges.verbs += size as u64;
        gauges.commit_us += us;
        bump(&mut gauges.batch_sizes, size as u64);
        bump(&mut gauges.commit_ms, us.div_ceil(1000));
    }
}

/// Counts a value into buckets of 1, 2, 4, 8 … and more.
fn bump(buckets: &mut [u64; 12], value: u64) {
    let bucket = (64 - value.saturating_sub(1).leading_zeros()).min(11) as usize;
    if let Some(count) = buckets.get_mut(bucket) {
        *count += 1;
    }
}

/// Runs a group in one transaction. When one verb cannot be run the whole group is rolled back, so that no answer
/// is given that was not committed.
fn commit_group(ledger: &mut Ledger<'_>, group: Vec<Waiting>) -> (Vec<Box<dyn Reply>>, Result<()>) {
    mailonce_core::failpoint!("sqlite-before-begin");
    if let Err(error) = ledger.begin() {
        return (Vec::new(), Err(error));
    }
    mailonce_core::failpoint!("sqlite-after-begin");
    let mut replies = Vec::with_capacity(group.len());
    for waiting in group {
        match (waiting.verb)(ledger) {
            Ok(reply) => replies.push(reply),
            Err(error) => {
                tracing::error!(%error, "a verb failed; its group is rolled back");
                ledger.rollback();
                return (replies, Err(error));
            }
        }
    }
    mailonce_core::failpoint!("sqlite-before-commit");
    let fate = ledger.commit();
    mailonce_core::failpoint!("sqlite-after-commit");
    (replies, fate)
}

fn closed() -> StoreError {
    StoreError::Unreachable("the ledger is closing".into())
}
