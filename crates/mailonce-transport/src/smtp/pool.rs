//! Connections that rest between mails. Open ones never outnumber the turns, because only the holder of a turn opens
//! one, and only when none rests.

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

/// Mails on one connection. Many servers close after a hundred.
const MAX_MAILS_PER_CONNECTION: u32 = 100;

/// The connections of one transport.
pub(super) struct RelayPool {
    idle: Mutex<IdleSessions>,
    permits: Arc<Semaphore>,
    idle_timeout: Duration,
}

#[derive(Default)]
struct IdleSessions {
    /// The one used last is at the end.
    sessions: Vec<(Instant, RelaySession)>,
    /// Whether somebody closes those that rested too long.
    has_reaper: bool,
}

/// The right to one connection.
pub(super) struct PoolPermit {
    pool: Arc<RelayPool>,
    _permit: OwnedSemaphorePermit,
}

impl RelayPool {
    pub(super) fn new(connections: usize, rest: Duration) -> Arc<Self> {
        let turns = Arc::new(Semaphore::new(connections.clamp(1, Semaphore::MAX_PERMITS)));
        Arc::new(Self { idle: Mutex::default(), permits: turns, idle_timeout: rest })
    }

    /// Waits for the right to a connection.
    pub(super) async fn acquire(self: &Arc<Self>, patience: Duration) -> Option<PoolPermit> {
        let permit = timeout(patience, self.permits.clone().acquire_owned()).await.ok()?.ok()?;
        Some(PoolPermit { pool: self.clone(), _permit: permit })
    }

    fn lock_idle(&self) -> MutexGuard<'_, IdleSessions> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out those that rested too long, and tells when the next one will have.
    fn take_expired(&self) -> (Vec<RelaySession>, Option<Instant>) {
        let mut resting = self.lock_idle();
        let (tired, fresh) = std::mem::take(&mut resting.sessions)
            .into_iter()
            .partition::<Vec<_>, _>(|(since, _)| since.elapsed() >= self.idle_timeout);
        let next = fresh.first().map(|(since, _)| *since + self.idle_timeout);
        resting.sessions = fresh;
        resting.has_reaper = next.is_some();
        (tired.into_iter().map(|(_, session)| session).collect(), next)
    }
}

impl PoolPermit {
    /// A connection that rested, is alive and was not spoken on. The others are closed on the way.
    pub(super) async fn take_idle(&self) -> Option<RelaySession> {
        loop {
            let (since, mut session) = self.pool.lock_idle().sessions.pop()?;
            if since.elapsed() < self.pool.idle_timeout && session.connection.relay_state().await == RelayState::Silent
            {
                return Some(session);
            }
        }
    }

    /// Lets a connection rest, and gives the turn away.
    pub(super) fn release(self, session: RelaySession) {
        if session.mails_started >= MAX_MAILS_PER_CONNECTION {
            return;
        }
        let mut resting = self.pool.lock_idle();
        let now = Instant::now();
        resting.sessions.push((now, session));
        if !std::mem::replace(&mut resting.has_reaper, true) {
            tokio::spawn(close_expired(Arc::downgrade(&self.pool), now + self.pool.idle_timeout));
        }
    }
}

/// Closes connections that rested too long, until none rests or the transport is gone.
async fn close_expired(pool: Weak<RelayPool>, mut next: Instant) {
    loop {
        sleep_until(next).await;
        let Some((tired, later)) = pool.upgrade().map(|pool| pool.take_expired()) else { return };
        for session in tired {
            session.quit().await;
        }
        let Some(later) = later else { return };
        next = later;
    }
}
