//! Next hops that log every accepted mail and inject faults, on command or by a seed ([`oracle`]).

pub mod certificate;
pub mod http;
pub mod oracle;
pub mod smtp;
