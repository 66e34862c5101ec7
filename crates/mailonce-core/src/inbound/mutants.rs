//! Mutants of filed messages. Compiled only with the feature `failpoints`; see [`crate::mutant`].

use crate::{inbound::filing::FilingWrites, mutant::is_on};

/// Alters what filing a message writes.
pub(super) fn alter_filing(mut writes: FilingWrites) -> FilingWrites {
    if is_on("message-untold") {
        writes.events.remove(0);
    }
    if is_on("message-told-twice") {
        writes.events.insert(0, writes.events[0].clone());
    }
    if is_on("inbox-number-stands") {
        writes.message.seq = (writes.message.seq - 1).max(1);
    }
    writes
}
