//! Idle connections between mails. The permits limit the open connections: only a permit holder opens one, and only if
//! no idle connection is left.

use super::session::RelaySession;
use crate::smtp::connection::RelayState;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until, timeout},
};

/// Maximum number of mails per connection. Many servers close after a hundred.
const MAX_MAILS_PER_CONNECTION: u32 = 100;

/// The connections of one transport.
pub(super) struct RelayPool {
    idle: Mutex<IdleSessions>,
    permits: Arc<Semaphore>,
    idle_timeout: Duration,
}

#[derive(Default)]
struct IdleSessions {
    /// Sorted by last use, the most recent at the end.
    sessions: Vec<IdleSession>,
    /// Whether a task is running that closes expired sessions.
    has_reaper: bool,
}

struct IdleSession {
    since: Instant,
    session: RelaySession,
}

/// The right to use one connection.
pub(super) struct PoolPermit {
    pool: Arc<RelayPool>,
    _permit: OwnedSemaphorePermit,
}

impl RelayPool {
    pub(super) fn new(max_connections: usize, idle_timeout: Duration) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(max_connections.clamp(1, Semaphore::MAX_PERMITS)));
        Arc::new(Self { idle: Mutex::default(), permits, idle_timeout })
    }

    /// Waits for a permit.
    pub(super) async fn acquire(self: &Arc<Self>, max_wait: Duration) -> Option<PoolPermit> {
        let permit = timeout(max_wait, self.permits.clone().acquire_owned()).await.ok()?.ok()?;
        Some(PoolPermit { pool: self.clone(), _permit: permit })
    }

    fn lock_idle(&self) -> MutexGuard<'_, IdleSessions> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the expired sessions. Also returns when the next one expires.
    fn take_expired(&self) -> (Vec<RelaySession>, Option<Instant>) {
        let mut idle = self.lock_idle();
        let (expired, fresh) = std::mem::take(&mut idle.sessions)
            .into_iter()
            .partition::<Vec<_>, _>(|idle| idle.since.elapsed() >= self.idle_timeout);
        let next = fresh.first().map(|idle| idle.since + self.idle_timeout);
        idle.sessions = fresh;
        idle.has_reaper = next.is_some();
        (expired.into_iter().map(|idle| idle.session).collect(), next)
    }
}

impl PoolPermit {
    /// An idle connection that is still usable. Expired, closed or out-of-sync ones are dropped on the way.
    pub(super) async fn take_idle(&self) -> Option<RelaySession> {
        loop {
            let IdleSession { since, mut session } = self.pool.lock_idle().sessions.pop()?;
            if since.elapsed() < self.pool.idle_timeout && session.connection.relay_state().await == RelayState::Silent
            {
                return Some(session);
            }
        }
    }

    /// Returns a connection to the pool and releases the permit.
    pub(super) fn release(self, session: RelaySession) {
        if session.mails_started >= MAX_MAILS_PER_CONNECTION {
            return;
        }
        let mut idle = self.pool.lock_idle();
        let now = Instant::now();
        idle.sessions.push(IdleSession { since: now, session });
        if !std::mem::replace(&mut idle.has_reaper, true) {
            tokio::spawn(close_expired(Arc::downgrade(&self.pool), now + self.pool.idle_timeout));
        }
    }
}

/// Closes expired connections until none is idle or the transport is dropped.
async fn close_expired(pool: Weak<RelayPool>, mut next: Instant) {
    loop {
        sleep_until(next).await;
        let Some((expired, later)) = pool.upgrade().map(|pool| pool.take_expired()) else { return };
        for session in expired {
            session.quit().await;
        }
        let Some(later) = later else { return };
        next = later;
    }
}
