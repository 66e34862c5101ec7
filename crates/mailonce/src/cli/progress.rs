//! Signs of life on stderr while something takes long: a bar where the end is known, a wheel where it is not. Only a
//! terminal gets them; elsewhere the steps are lines.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

use crate::cli::printer::print_stderr;

/// How often a sign moves by itself.
const TICK_INTERVAL: Duration = Duration::from_millis(120);

/// A sign that is cleared when it is dropped.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar of so many steps.
    pub(crate) fn bar(what: &str, steps: u64) -> Self {
        Self::started(ProgressBar::new(steps), "{spinner} {bar:24} {pos}/{len}  {wide_msg}", what)
    }

    /// A wheel, for what has no known end.
    pub(crate) fn spinner(what: &str) -> Self {
        Self::started(ProgressBar::new_spinner(), "{spinner} {elapsed}  {wide_msg}", what)
    }

    fn started(bar: ProgressBar, layout: &str, what: &str) -> Self {
        // A layout that cannot be read leaves the usual one.
        if let Ok(style) = ProgressStyle::with_template(layout) {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(TICK_INTERVAL);
        // Also what is done within a beat is seen.
        bar.tick();
        Self(bar)
    }

    /// What is done now. A line where there is no bar.
    pub(crate) fn set_message(&self, what: &str) {
        if self.0.is_hidden() {
            print_stderr(what);
        } else {
            self.0.set_message(what.to_owned());
        }
    }

    /// A line that stays.
    pub(crate) fn print_line(&self, what: &str) {
        self.0.suspend(|| print_stderr(what));
    }

    /// One step further.
    pub(crate) fn advance(&self) {
        self.0.inc(1);
    }

    /// So many steps in all.
    pub(crate) fn set_total(&self, steps: u64) {
        self.0.set_position(steps);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
