//! Named points at which a rig may stop the process. Nothing at all in a build without the feature.

/// Passes a named point.
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::failpoint::reach($name).await;
    };
}

#[cfg(feature = "failpoints")]
thread_local! {
    static HOOK: std::cell::RefCell<Option<Hook>> = const { std::cell::RefCell::new(None) };
}

/// Asked at each point; true when whoever came there ends there.
#[cfg(feature = "failpoints")]
pub type Hook = Box<dyn Fn(&str) -> bool>;

/// Lets this thread's points ask a hook instead of the environment, or no longer.
#[cfg(feature = "failpoints")]
pub fn hook(hook: Option<Hook>) {
    HOOK.with(|place| *place.borrow_mut() = hook);
}

/// Stops, kills or delays the process when the environment says so: `MAILONCE_FAILPOINT=name:kill:3` kills it when the
/// point is reached for the third time; `stop` sends SIGSTOP to itself.
#[cfg(feature = "failpoints")]
pub async fn reach(name: &str) {
    match HOOK.with(|hook| hook.borrow().as_ref().map(|ends| ends(name))) {
        None => obey_environment(name).await,
        Some(false) => {}
        Some(true) => std::future::pending().await,
    }
}

#[cfg(feature = "failpoints")]
async fn obey_environment(name: &str) {
    use std::sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    };
    static WISH: LazyLock<Option<(String, String, u64)>> = LazyLock::new(|| {
        let text = std::env::var("MAILONCE_FAILPOINT").ok()?;
        let mut parts = text.split(':');
        Some((
            parts.next()?.to_owned(),
            parts.next()?.to_owned(),
            parts.next().and_then(|n| n.parse().ok()).unwrap_or(1),
        ))
    });
    static REACHED: AtomicU64 = AtomicU64::new(0);
    let Some((wanted, what, time)) = WISH.as_ref() else { return };
    if wanted != name || REACHED.fetch_add(1, Ordering::SeqCst) + 1 != *time {
        return;
    }
    let signal = if what == "stop" { rustix::process::Signal::STOP } else { rustix::process::Signal::KILL };
    let mut seen = std::time::Instant::now();
    rustix::process::kill_process(rustix::process::getpid(), signal).ok();
    // Some other thread may be the one that takes the signal, a moment later: nothing goes on here before.
    loop {
        let now = std::time::Instant::now();
        if now.duration_since(seen) > SLEPT {
            return;
        }
        seen = now;
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// A pause by which a process notices that it was stopped. Rigs stop it for longer.
#[cfg(feature = "failpoints")]
const SLEPT: std::time::Duration = std::time::Duration::from_millis(500);
