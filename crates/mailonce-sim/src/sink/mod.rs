//! Next hops that remember every mail they took and misbehave as they are told, or by a seed ([`oracle`]).

pub mod certificate;
pub mod http;
pub mod oracle;
pub mod smtp;
