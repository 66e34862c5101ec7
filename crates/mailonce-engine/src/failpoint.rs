//! Named points at which a rig may end a process, real or simulated. Nothing at all in a build without the feature.
//!
//! The points themselves, and what a real process does there, are the core's. Here a simulated process, which is one
//! future among others on a thread, may end instead.

/// Passes a named point.
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {
        const { assert!(mailonce_core::failpoint::is_known($name), "this point is not in the list") };
        #[cfg(feature = "failpoints")]
        $crate::failpoint::reach($name).await;
    };
}

#[cfg(feature = "failpoints")]
thread_local! {
    static HOOK: std::cell::RefCell<Option<FailpointHook>> = const { std::cell::RefCell::new(None) };
}

/// Asked at each point; true when whoever came there ends there.
#[cfg(feature = "failpoints")]
pub type FailpointHook = Box<dyn Fn(&str) -> bool>;

/// Lets this thread's points ask a hook instead of the environment, or no longer.
#[cfg(feature = "failpoints")]
pub fn set_hook(hook: Option<FailpointHook>) {
    HOOK.with(|place| *place.borrow_mut() = hook);
}

/// Whether this thread runs a simulated world. A world runs on one thread, because a run must be repeatable.
#[cfg(feature = "failpoints")]
pub fn is_simulated() -> bool {
    HOOK.with(|hook| hook.borrow().is_some())
}

/// Ends whoever came here when the hook says so; without one the process does what its environment says.
#[cfg(feature = "failpoints")]
pub async fn reach(name: &str) {
    match HOOK.with(|hook| hook.borrow().as_ref().map(|ends| ends(name))) {
        None => mailonce_core::failpoint::reach(name),
        Some(false) => {}
        Some(true) => std::future::pending().await,
    }
}
