//! The load generator, and the real binary with disk faults and refused starts.

#[cfg(test)]
mod faults;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod load;
#[cfg(test)]
mod refusals;
