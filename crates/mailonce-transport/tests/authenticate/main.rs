//! SPF, DKIM and DMARC against a local DNS server, without network access.

#[cfg(test)]
mod dkim;
#[cfg(test)]
mod dmarc;
#[cfg(test)]
mod header_block;
#[cfg(test)]
mod spf;
#[cfg(test)]
mod zone;
