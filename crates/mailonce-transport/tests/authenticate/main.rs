//! SPF, DKIM and DMARC over a name server of our own. Nothing leaves the machine.

#[cfg(test)]
mod dkim;
#[cfg(test)]
mod dmarc;
#[cfg(test)]
mod spf;
#[cfg(test)]
mod zone;
