//! Rules: what a team wants done with some mail.

use mailonce_core::{delivery::Settle, inbox::Inbox, message::NewMessage, port::store::StoreError};
use mailonce_mail::parse::Parsed;

use crate::Engine;

impl Engine {
    /// Whether a rule refuses mail from this sender before it is taken.
    pub(crate) async fn is_blocked(&self, _: &Inbox, _: Option<&str>, _: &str) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Lets rules mark a message. `Some` when one of them refuses it.
    pub(crate) async fn run_rules(
        &self,
        _: &Inbox,
        _: &Parsed,
        _: &mut NewMessage,
    ) -> Result<Option<Settle>, StoreError> {
        Ok(None)
    }
}
