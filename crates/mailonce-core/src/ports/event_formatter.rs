//! Formats events for endpoints that expect the webhook format of another service (a dialect).

use crate::events::formatted_event::{FormattedEvent, NoticeContext};

/// Formats events for dialects.
pub trait EventFormatter: Send + Sync + 'static {
    /// Formats an event in the endpoint's dialect. `None` when the dialect has no such event, or the endpoint does not
    /// want it.
    fn format_event(&self, telling: &NoticeContext<'_>) -> Option<FormattedEvent>;
}

/// Formats nothing: no dialect is supported.
#[derive(Clone, Copy, Debug)]
pub struct NoDialects;

impl EventFormatter for NoDialects {
    fn format_event(&self, _: &NoticeContext<'_>) -> Option<FormattedEvent> {
        None
    }
}
