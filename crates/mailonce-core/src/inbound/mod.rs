//! Received mail, before it is a message: deliveries and their filing.

pub mod delivery;
pub mod filing;
