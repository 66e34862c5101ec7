//! The load generator, tried on what is known to behave or to misbehave; and with them the real binary.

#[cfg(test)]
mod faults;
#[cfg(test)]
mod load;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod setting;
