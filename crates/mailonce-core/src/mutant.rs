//! Wrong turns that rigs switch on, one at a time, to see that somebody notices. Nothing at all in a build without the
//! feature `failpoints`.

/// Whether a wrong turn is to be taken: `false`, known to the compiler, in a build without the feature.
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

    /// The wrong turn of a whole process, for rigs that start one.
    static PROCESS_MUTANT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("MAILONCE_MUTANT").ok());

    /// Whether this wrong turn is switched on, in this thread or for the whole process.
    pub fn is_on(name: &str) -> bool {
        THREAD_MUTANT.get().is_some_and(|on| on == name) || PROCESS_MUTANT.as_ref().is_some_and(|on| on == name)
    }

    /// Does something with a wrong turn switched on in this thread, and switches it off again.
    pub fn with<T>(name: Option<&'static str>, run: impl FnOnce() -> T) -> T {
        /// Switches back even when `run` panics.
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
pub use switch::{is_on, with};
