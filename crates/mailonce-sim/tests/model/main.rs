//! Models, played to the end: small worlds in which every order of events is tried.

#[cfg(test)]
mod handover;
#[cfg(test)]
mod protocols;
