//! Protocols that are recommended for sending a mail once, or for answering one once, as small models.
//!
//! Each is a list of [`Op`](ops::Op)s that every caller runs, with the faults it is played under. All but the
//! last must fail: the checker finds the shortest order of events that makes a second mail or loses one, and
//! `docs/protocols.md` shows it. The last one is our own marker under every fault at once, and must hold: a checker
//! that only ever finds fault would prove nothing.
//!
//! | file | what it holds |
//! |---|---|
//! | [`program`] | the ops, and what each does to the world |
//! | [`catalogue`] | the protocols |
//! | [`check`] | playing one to the end |
//! | [`page`] | the document |

pub mod catalogue;
pub mod check;
pub mod ops;
pub mod page;
