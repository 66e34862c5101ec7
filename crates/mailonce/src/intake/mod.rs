//! The ways in that listen.

mod engine_receiver;
pub mod smtp;

pub use engine_receiver::EngineReceiver;
