//! Received mail, before it is a message: deliveries and their filing.

pub mod delivery;
pub mod filing;
#[cfg(feature = "failpoints")]
mod mutants;
pub mod provider_mail;
pub mod sender_auth;
pub mod wake_up;
