//! The providers of `mailonce-transport`, each against a sink with its vendor's wire format and scripted faults.

#[cfg(test)]
mod asking;
#[cfg(test)]
mod bodies;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod meanings;
#[cfg(test)]
mod templates;
#[cfg(test)]
mod verdicts;
#[cfg(test)]
mod world;
