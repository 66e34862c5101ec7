//! Pages of past events.

use crate::{
    access::caller::Caller,
    events::{Events, tail::EventSelection},
    runtime::problems::unavailable,
};
use mailonce_core::{
    events::event::{Event, EventCursor},
    limits,
    problem::{Code, Problem},
};

/// Refuses to read on after a number when events after it were deleted. `page` is what follows it.
pub(crate) fn check_no_gap(after: u64, page: &[Event]) -> Result<(), Problem> {
    match page.first() {
        Some(first) if first.seq > after + 1 => Err(Problem::new(
            Code::CursorReset,
            "events after this cursor were deleted by the team's `retention.events`; `after=0` reads from the oldest \
             event that is kept",
        )),
        _ => Ok(()),
    }
}

impl Events {
    /// The selected events after a cursor, in order, and the cursor to continue from. It may lie past the last event
    /// returned.
    pub async fn events(
        &self,
        caller: &Caller,
        after: Option<EventCursor>,
        limit: usize,
        selection: &EventSelection,
    ) -> Result<(Vec<Event>, Option<EventCursor>), Problem> {
        let epoch = self.ctx.epoch();
        let (team, begin, is_cursor) = (caller.team.id, self.ctx.seq_of(after)?, after.is_some());
        let (mut after, mut found) = (begin, Vec::new());
        while found.len() < limit && after - begin < limits::SCAN_ROWS as u64 {
            let page_size =
                (limit - found.len()).max(if selection.matches_all() && caller.inbox_restriction.is_none() {
                    1
                } else {
                    limits::EVENT_ROWS
                });
            let page = self.ctx.store.events(team, after, page_size).await.map_err(unavailable)?;
            let Some(last) = page.last() else { break };
            if after == begin && is_cursor {
                check_no_gap(begin, &page)?;
            } else if after > begin && check_no_gap(after, &page).is_err() {
                // Deleted since the page before was read. The next call is refused.
                break;
            }
            let (page_end, is_full) = (last.seq, page.len() == page_size);
            for event in page.into_iter().filter(|event| selection.matches_event(event)) {
                if found.len() < limit && self.access.may_see_event(caller, &event).await? {
                    found.push(event);
                }
            }
            after = if found.len() == limit { found.last().map_or(page_end, |event| event.seq) } else { page_end };
            if !is_full {
                break;
            }
        }
        if after == begin {
            self.check_event_seq(team, begin).await?;
        }
        self.ctx.check_epoch(epoch)?;
        Ok((found, (after > begin).then_some(EventCursor { epoch, seq: after })))
    }
}
