//! The rigs, tried on servers that are known to behave or to misbehave.

#[cfg(test)]
mod load;
