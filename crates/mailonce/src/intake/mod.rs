//! Intakes that listen for mail: the SMTP listener.

mod engine_receiver;
pub mod smtp;

pub use engine_receiver::EngineReceiver;
