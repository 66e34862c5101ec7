//! Progress on stderr: a bar if the number of steps is known, else a spinner. Without a terminal, messages are printed
//! as lines.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

use crate::cli::printer::print_stderr;

/// Interval at which the spinner moves.
const TICK_INTERVAL: Duration = Duration::from_millis(120);

/// A progress bar or spinner that is cleared when it is dropped.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar with a number of steps.
    pub(crate) fn bar(message: &str, steps: u64) -> Self {
        Self::started(ProgressBar::new(steps), "{spinner} {bar:24} {pos}/{len}  {wide_msg}", message)
    }

    /// A spinner, for work of unknown length.
    pub(crate) fn spinner(message: &str) -> Self {
        Self::started(ProgressBar::new_spinner(), "{spinner} {elapsed}  {wide_msg}", message)
    }

    fn started(bar: ProgressBar, layout: &str, message: &str) -> Self {
        // An invalid layout leaves the default one.
        if let Ok(style) = ProgressStyle::with_template(layout) {
            bar.set_style(style);
        }
        bar.set_message(message.to_owned());
        bar.enable_steady_tick(TICK_INTERVAL);
        // Shows work that ends before the first tick.
        bar.tick();
        Self(bar)
    }

    /// Sets the message; prints it as a line if there is no terminal.
    pub(crate) fn set_message(&self, message: &str) {
        if self.0.is_hidden() {
            print_stderr(message);
        } else {
            self.0.set_message(message.to_owned());
        }
    }

    /// Prints a line above the bar.
    pub(crate) fn print_line(&self, message: &str) {
        self.0.suspend(|| print_stderr(message));
    }

    /// Adds one step.
    pub(crate) fn advance(&self) {
        self.0.inc(1);
    }

    /// Sets the number of finished steps.
    pub(crate) fn set_total(&self, steps: u64) {
        self.0.set_position(steps);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
