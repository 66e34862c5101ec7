//! The SMTP client against a sink that misbehaves at every step, and against a server that nobody here wrote.

#[cfg(test)]
mod bytes;
#[cfg(test)]
mod foreign;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod phases;
#[cfg(test)]
mod pool;
#[cfg(test)]
mod security;
#[cfg(test)]
mod setting;
