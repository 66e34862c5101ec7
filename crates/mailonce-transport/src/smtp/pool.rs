//! Connections that rest between mails. Open ones never outnumber the turns, because only the holder of a turn opens
//! one, and only when none rests.

use super::{session::Session, wire::Silence};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until, timeout},
};

/// Mails on one connection. Many servers close after a hundred.
const MAILS: u32 = 100;

/// The connections of one transport.
pub(super) struct Pool {
    resting: Mutex<Resting>,
    turns: Arc<Semaphore>,
    rest: Duration,
}

#[derive(Default)]
struct Resting {
    /// The one used last is at the end.
    sessions: Vec<(Instant, Session)>,
    /// Whether somebody closes those that rested too long.
    watched: bool,
}

/// The right to one connection.
pub(super) struct Turn {
    pool: Arc<Pool>,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    pub(super) fn new(connections: usize, rest: Duration) -> Arc<Self> {
        let turns = Arc::new(Semaphore::new(connections.clamp(1, Semaphore::MAX_PERMITS)));
        Arc::new(Self { resting: Mutex::default(), turns, rest })
    }

    /// Waits for the right to a connection.
    pub(super) async fn turn(self: &Arc<Self>, patience: Duration) -> Option<Turn> {
        let permit = timeout(patience, self.turns.clone().acquire_owned()).await.ok()?.ok()?;
        Some(Turn { pool: self.clone(), _permit: permit })
    }

    fn resting(&self) -> MutexGuard<'_, Resting> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out those that rested too long, and tells when the next one will have.
    fn tired(&self) -> (Vec<Session>, Option<Instant>) {
        let mut resting = self.resting();
        let (tired, fresh) = std::mem::take(&mut resting.sessions)
            .into_iter()
            .partition::<Vec<_>, _>(|(since, _)| since.elapsed() >= self.rest);
        let next = fresh.first().map(|(since, _)| *since + self.rest);
        resting.sessions = fresh;
        resting.watched = next.is_some();
        (tired.into_iter().map(|(_, session)| session).collect(), next)
    }
}

impl Turn {
    /// A connection that rested, is alive and was not spoken on. The others are closed on the way.
    pub(super) async fn rested(&self) -> Option<Session> {
        loop {
            let (since, mut session) = self.pool.resting().sessions.pop()?;
            if since.elapsed() < self.pool.rest && session.wire.silence().await == Silence::Kept {
                return Some(session);
            }
        }
    }

    /// Lets a connection rest, and gives the turn away.
    pub(super) fn give_back(self, session: Session) {
        if session.mails >= MAILS {
            return;
        }
        let mut resting = self.pool.resting();
        let now = Instant::now();
        resting.sessions.push((now, session));
        if !std::mem::replace(&mut resting.watched, true) {
            tokio::spawn(watch(Arc::downgrade(&self.pool), now + self.pool.rest));
        }
    }
}

/// Closes connections that rested too long, until none rests or the transport is gone.
async fn watch(pool: Weak<Pool>, mut next: Instant) {
    loop {
        sleep_until(next).await;
        let Some((tired, later)) = pool.upgrade().map(|pool| pool.tired()) else { return };
        for session in tired {
            session.quit().await;
        }
        let Some(later) = later else { return };
        next = later;
    }
}
