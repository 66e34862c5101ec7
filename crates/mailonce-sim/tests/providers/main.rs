//! The providers of `mailonce-transport`, each against a sink with its vendor's wire format and scripted faults.

#[cfg(test)]
mod bodies;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod look_ups;
#[cfg(test)]
mod rare_replies;
#[cfg(test)]
mod reply_meanings;
#[cfg(test)]
mod templates;
