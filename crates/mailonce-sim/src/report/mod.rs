//! Test results: [`summary`] is the format in which each test saves them, and [`page`] renders `docs/proof.md` from
//! them.

pub mod page;
pub mod summary;
