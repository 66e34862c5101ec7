//! The writer thread: takes all queued jobs, runs them in one transaction, commits once, and only then replies.
//!
//! Accepts run first. The other jobs get a share of every commit, so that none starves.

use mailonce_core::{
    access::call_origin::CallOrigin,
    installation::Gauges,
    ports::store::{Result, StoreError},
};
use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::sqlite::write_session::WriteSession;

/// Maximum number of accepts and of other jobs in one commit.
const ACCEPTS_PER_COMMIT: usize = 512;
const OTHERS_PER_COMMIT: usize = 128;
/// Maximum number of queued jobs. Further callers wait for a permit.
const MAX_QUEUED: usize = 16_384;

/// The reply of a job that ran. It is sent when the result of the commit is known.
trait PendingReply: Send {
    /// Publishes the job's result, such as an accepted email, to subscribers and readers. Called after the commit, for
    /// the whole group before any reply is sent.
    fn publish(&self, ledger: &WriteSession<'_>);

    /// Sends the job's result to its caller, or the commit's error.
    fn send(self: Box<Self>, commit: &Result<()>);
}

struct VerbReply<T, P> {
    answer: Result<T>,
    publish: P,
    reply_to: oneshot::Sender<Result<T>>,
}

impl<T: Send, P: Fn(&T, &WriteSession<'_>) + Send> PendingReply for VerbReply<T, P> {
    fn publish(&self, ledger: &WriteSession<'_>) {
        self.answer.iter().for_each(|answer| (self.publish)(answer, ledger));
    }

    fn send(self: Box<Self>, commit: &Result<()>) {
        // The caller may have been cancelled. The commit is valid regardless.
        drop(self.reply_to.send(commit.clone().and(self.answer)));
    }
}

/// Runs inside the group's transaction. An error fails the whole group.
type WriteJob = Box<dyn FnOnce(&mut WriteSession<'_>) -> Result<Box<dyn PendingReply>> + Send>;

struct QueuedJob {
    verb: WriteJob,
    _permit: OwnedSemaphorePermit,
}

#[derive(Default)]
struct Queues {
    accepts: VecDeque<QueuedJob>,
    others: VecDeque<QueuedJob>,
    /// Jobs on the file itself, with the callers who wait for them.
    file_jobs: Vec<(FileJob, oneshot::Sender<Result<()>>)>,
    /// Whether the writer thread sleeps. Callers wake it only then, because waking costs a system call.
    is_asleep: bool,
    is_closed: bool,
    /// The error that stopped the writer permanently.
    failure: Option<StoreError>,
}

/// The queues in front of the writer thread.
pub(crate) struct Writer {
    queues: Mutex<Queues>,
    ready: Condvar,
    permits: Arc<Semaphore>,
    gauges: Mutex<Gauges>,
}

/// A job on the file itself, outside of a transaction. Other jobs wait meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileJob {
    /// Rewrites the whole file, so that it holds nothing but the current rows. Pages that were split or moved before have
    /// copies of old rows, which nothing else finds.
    Rewrite,
    /// Empties the log. Fails soon while somebody reads.
    TruncateLog,
}

/// Which queue a job goes to. Accepts run before all others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    Accept,
    Other,
}

impl Writer {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            queues: Mutex::default(),
            ready: Condvar::new(),
            permits: Arc::new(Semaphore::new(MAX_QUEUED)),
            gauges: Mutex::default(),
        })
    }

    /// Queues a job and waits until it is committed. Returns only after the commit.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        turn: Priority,
        verb: impl FnOnce(&mut WriteSession<'_>) -> Result<T> + Send + 'static,
        publish: impl Fn(&T, &WriteSession<'_>) + Send + 'static,
    ) -> Result<T> {
        let place = Arc::clone(&self.permits).acquire_owned().await.map_err(|_closed| closing_error())?;
        let (tell, told) = oneshot::channel();
        let origin = if turn == Priority::Accept { None } else { CallOrigin::current() };
        let verb: WriteJob = Box::new(move |ledger| {
            // An accept checks everything before its first write, so it needs no savepoint. The other jobs run in
            // a savepoint, so that their errors do not affect the rest of the group.
            let answer = if turn == Priority::Accept {
                Ok(verb(ledger)?)
            } else {
                CallOrigin::run(origin, || ledger.in_savepoint(verb))
            };
            if let Err(error @ StoreError::Corrupt(_)) = answer {
                return Err(error);
            }
            Ok(Box::new(VerbReply { answer, publish, reply_to: tell }))
        });
        let sleeps = {
            let mut queues = self.lock();
            if let Some(broken) = &queues.failure {
                return Err(broken.clone());
            }
            if queues.is_closed {
                return Err(closing_error());
            }
            let queue = if turn == Priority::Accept { &mut queues.accepts } else { &mut queues.others };
            queue.push_back(QueuedJob { verb, _permit: place });
            queues.is_asleep
        };
        if sleeps {
            self.ready.notify_one();
        }
        match told.await {
            Ok(answer) => answer,
            // The job was dropped: its group was rolled back, or the writer has failed.
            Err(_dropped) => Err(self.lock().failure.clone().unwrap_or_else(|| {
                StoreError::Unreachable("the group of this call was rolled back; nothing was written".into())
            })),
        }
    }

    /// Runs a job on the file itself. Callers who wait for the same job share it.
    pub(crate) async fn run_file_job(&self, job: FileJob) -> Result<()> {
        let (tell, told) = oneshot::channel();
        {
            let mut queues = self.lock();
            if let Some(broken) = &queues.failure {
                return Err(broken.clone());
            }
            if queues.is_closed {
                return Err(closing_error());
            }
            queues.file_jobs.push((job, tell));
        }
        self.ready.notify_one();
        told.await.unwrap_or_else(|_dropped| Err(closing_error()))
    }

    pub(crate) fn gauges(&self) -> Gauges {
        self.gauges.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets the writer thread finish the queued jobs and exit.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.ready.notify_all();
    }

    /// The error after which the writer accepts no more jobs, if there was one.
    pub(crate) fn failure(&self) -> Option<StoreError> {
        self.lock().failure.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the writer permanently: drops the queued jobs and rejects new ones.
    pub(crate) fn fail(&self, error: StoreError) {
        tracing::error!(%error, "the writer stops");
        let mut queues = self.lock();
        queues.failure = Some(error);
        queues.accepts.clear();
        queues.others.clear();
        queues.file_jobs.clear();
    }

    /// The loop of the writer thread: take a group, run it, commit, reply.
    pub(crate) fn run_loop(&self, mut ledger: WriteSession<'_>) {
        while let Some(group) = self.next_group() {
            self.run_file_jobs(&ledger);
            let size = group.len();
            if size == 0 {
                continue;
            }
            let began = Instant::now();
            let (replies, commit_result) = commit_group(&mut ledger, group);
            self.record_commit(size, began.elapsed().as_micros() as u64);
            let broken = commit_result.clone().err().filter(|error| matches!(error, StoreError::Corrupt(_)));
            let ends = broken.is_some();
            broken.into_iter().for_each(|error| self.fail(error));
            if commit_result.is_ok() {
                replies.iter().for_each(|reply| reply.publish(&ledger));
                ledger.notify_subscribers();
            }
            for reply in replies {
                reply.send(&commit_result);
                mailonce_core::failpoint!("sqlite-answering");
            }
            if ends {
                return;
            }
            if let Err(error @ StoreError::Corrupt(_)) = ledger.checkpoint_leftovers() {
                return self.fail(error);
            }
        }
    }

    fn run_file_jobs(&self, ledger: &WriteSession<'_>) {
        let mut waiting = std::mem::take(&mut self.lock().file_jobs);
        for job in [FileJob::Rewrite, FileJob::TruncateLog] {
            let callers: Vec<_> = waiting.extract_if(.., |(wanted, _)| *wanted == job).collect();
            if callers.is_empty() {
                continue;
            }
            let result = match job {
                FileJob::Rewrite => ledger.rewrite_file(),
                FileJob::TruncateLog => ledger.truncate_log(),
            };
            callers.into_iter().for_each(|(_, tell)| drop(tell.send(result.clone())));
        }
    }

    fn next_group(&self) -> Option<Vec<QueuedJob>> {
        let mut queues = self.lock();
        while queues.accepts.is_empty() && queues.others.is_empty() && queues.file_jobs.is_empty() {
            if queues.is_closed {
                return None;
            }
            queues.is_asleep = true;
            queues = self.ready.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
        queues.is_asleep = false;
        let accepts = queues.accepts.len().min(ACCEPTS_PER_COMMIT);
        let mut group: Vec<QueuedJob> = queues.accepts.drain(..accepts).collect();
        let others = queues.others.len().min(OTHERS_PER_COMMIT);
        group.extend(queues.others.drain(..others));
        Some(group)
    }

    fn record_commit(&self, size: usize, us: u64) {
        let mut gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        gauges.commits += 1;
        gauges.operations += size as u64;
        gauges.commit_us += us;
        count_in_bucket(&mut gauges.batch_sizes, size as u64);
        count_in_bucket(&mut gauges.commit_ms, us.div_ceil(1000));
    }
}

/// Counts a value in a histogram with the upper bounds 1, 2, 4, 8 … and a last, unbounded bucket.
fn count_in_bucket(buckets: &mut [u64; 12], value: u64) {
    let bucket = (64 - value.saturating_sub(1).leading_zeros()).min(11) as usize;
    if let Some(count) = buckets.get_mut(bucket) {
        *count += 1;
    }
}

/// Runs a group in one transaction. If one job returns an error, the whole group is rolled back, so that no caller
/// receives a result that was not committed.
fn commit_group(ledger: &mut WriteSession<'_>, group: Vec<QueuedJob>) -> (Vec<Box<dyn PendingReply>>, Result<()>) {
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
    let commit_result = ledger.commit();
    mailonce_core::failpoint!("sqlite-after-commit");
    (replies, commit_result)
}

fn closing_error() -> StoreError {
    StoreError::Unreachable("the ledger is closing".into())
}
