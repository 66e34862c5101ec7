//! Teams, API keys and what a team owns.

pub mod access;
pub mod domains;
pub mod kek;
pub mod open_keys;
pub(crate) mod proofs;
pub mod settings;
pub mod sources;
pub mod ties;
pub(crate) mod vault;
