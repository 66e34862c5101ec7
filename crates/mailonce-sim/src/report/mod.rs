//! What rigs found, written down and told: [`summary`] is the form in which every rig leaves its figures,
//! [`page`] makes `docs/proof.md` of them. Nobody types a figure.

pub mod page;
pub mod summary;
