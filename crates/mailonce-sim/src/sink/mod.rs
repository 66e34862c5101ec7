//! Next hops that remember every mail they took and misbehave as they are told.

pub mod certificate;
pub mod http;
pub mod smtp;
