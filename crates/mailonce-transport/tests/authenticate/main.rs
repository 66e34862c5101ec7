//! SPF, DKIM and DMARC over a name server of our own. Nothing leaves the machine.

mod dkim;
mod dmarc;
mod spf;
mod zone;
