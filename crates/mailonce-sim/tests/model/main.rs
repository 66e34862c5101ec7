//! Models, played to the end: small worlds in which every order of events is tried.

mod handover;
mod protocols;
