//! Tests of `hooks`: realistic requests, signed here with each scheme's algorithm, and samples that the vendors
//! published with their own verifiers.

#[cfg(test)]
mod brevo;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod inbound;
#[cfg(test)]
mod mailgun;
#[cfg(test)]
mod others;
#[cfg(test)]
mod postmark;
#[cfg(test)]
#[path = "../python/mod.rs"]
mod python;
#[cfg(test)]
mod resend;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod sendgrid;
#[cfg(test)]
mod ses;
#[cfg(test)]
mod sns;
#[cfg(test)]
mod usesend;
