//! The room as others see it: any letter keeps the rules of mail, and another language reads what was written.

#[cfg(test)]
mod letters;
#[cfg(test)]
mod others;
#[cfg(test)]
mod properties;
#[cfg(test)]
#[path = "../python/mod.rs"]
mod python;
