//! Model checking: every order of events of small systems.

#[cfg(test)]
mod handover;
#[cfg(test)]
mod protocols;
