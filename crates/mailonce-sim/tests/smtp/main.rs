//! The SMTP client against a sink with faults at every step, and against an independent server.

#[cfg(test)]
mod bytes;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod independent_server;
#[cfg(test)]
mod phases;
#[cfg(test)]
mod pool;
#[cfg(test)]
mod security;
