//! Wake-ups for calls that wait for mail.

use crate::id::InboxId;

/// A wake-up for waiters. A lost one only delays them, because they also poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboundWakeUp {
    /// A message was filed in an inbox.
    MessageFiled(InboxId),
    /// A delivery is due for processing.
    DeliveryWaiting,
}
