//! Wrong turns that worlds must notice.

/// A wrong turn.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    /// Its name in the code.
    pub name: &'static str,
    /// What is wrong.
    pub what: &'static str,
}

/// All of them.
pub const ALL: &[Mutant] = &[];

/// The wrong turn with this name.
pub fn named(name: &str) -> Option<&'static Mutant> {
    ALL.iter().find(|mutant| mutant.name == name)
}
