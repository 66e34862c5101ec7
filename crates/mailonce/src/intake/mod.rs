//! The ways in that listen.

mod reception;
pub mod smtp;

pub use reception::EngineReceiver;
