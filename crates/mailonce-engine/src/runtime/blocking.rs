//! Work that may take long, on threads apart from the requests.

use sha2::Digest as _;
use tokio::task::JoinError;

/// Does something apart from the requests.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    #[cfg(feature = "failpoints")]
    if crate::failpoint::is_simulated() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await
}

/// Mails above this size are hashed, packed and parsed on another thread. Below, it takes about a millisecond.
const BLOCKING_ABOVE_BYTES: usize = 256 * 1024;

/// Runs work over so many octets: on another thread if they are many.
pub(crate) async fn run_blocking_if_large<T: Send + 'static>(
    octets: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    if octets > BLOCKING_ABOVE_BYTES { run_blocking(work).await } else { Ok(work()) }
}
