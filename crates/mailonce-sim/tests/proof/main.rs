//! The judge itself: an honest history is acquitted, and every forged one is convicted of what was forged.
//!
//! For each rule of each promise there is a forgery; `every_rule_convicts_somebody` counts them.

#[cfg(test)]
mod accepts;
#[cfg(test)]
mod copies;
#[cfg(test)]
mod events;
#[cfg(test)]
mod honest;
#[cfg(test)]
mod inbound;
#[cfg(test)]
mod settled;
#[cfg(test)]
mod talk;
