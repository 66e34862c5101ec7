//! Mutants: deliberate bugs that the test harness enables one at a time, to verify that a test detects each. Compiled
//! out of a build without the feature `failpoints`.
//!
//! A mutant that changes a finished decision is in the `mutants.rs` of its domain. One that changes a single condition
//! is a `mutant!` at that condition. Every mutant is listed in `mailonce-sim/src/world/mutants/list.rs`. One that a store or a transport can show belongs to the simulated world, not here.

/// Whether a mutant is enabled. A constant `false` in a build without the feature.
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {{
        #[cfg(feature = "failpoints")]
        let taken = $crate::mutant::is_on($name);
        #[cfg(not(feature = "failpoints"))]
        let taken = false;
        taken
    }};
}

#[cfg(feature = "failpoints")]
mod switch {
    use std::cell::Cell;
    use std::sync::LazyLock;

    thread_local! {
        static THREAD_MUTANT: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// The mutant of the whole process, for test harnesses that start one.
    static PROCESS_MUTANT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("MAILONCE_MUTANT").ok());

    /// Whether this mutant is enabled, in this thread or for the whole process.
    pub fn is_on(name: &str) -> bool {
        THREAD_MUTANT.get().is_some_and(|on| on == name) || PROCESS_MUTANT.as_ref().is_some_and(|on| on == name)
    }

    /// Whether any mutant is enabled.
    pub fn is_any_on() -> bool {
        THREAD_MUTANT.get().is_some() || PROCESS_MUTANT.is_some()
    }

    /// Runs a closure with a mutant enabled in this thread, and disables it again.
    pub fn with<T>(name: Option<&'static str>, run: impl FnOnce() -> T) -> T {
        /// Restores the previous mutant even when `run` panics.
        struct RestoreOnDrop(Option<&'static str>);
        impl Drop for RestoreOnDrop {
            fn drop(&mut self) {
                THREAD_MUTANT.set(self.0);
            }
        }
        let _back = RestoreOnDrop(THREAD_MUTANT.replace(name));
        run()
    }
}

#[cfg(feature = "failpoints")]
pub use switch::{is_any_on, is_on, with};
