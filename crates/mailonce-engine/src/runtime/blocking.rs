//! CPU work that would block the async threads runs on a thread pool of its own.

use tokio::task::JoinError;

/// Runs work on the blocking thread pool.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    #[cfg(feature = "failpoints")]
    if crate::failpoint::is_simulated() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await
}

/// Mails above this size are hashed, packed and parsed on another thread. Below, it takes about a millisecond.
pub(crate) const BLOCKING_ABOVE_BYTES: usize = 256 * 1024;

/// Runs work over this many bytes: on the blocking thread pool if they are many, else in place.
pub(crate) async fn run_blocking_if_large<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    if bytes > BLOCKING_ABOVE_BYTES { run_blocking(work).await } else { Ok(work()) }
}
