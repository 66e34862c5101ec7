//! The SMTP listener: receives mail and answers `250` only after the mail is committed. It offers neither
//! authentication nor relaying.
//!
//! | file | what it holds |
//! |---|---|
//! | `session` | the SMTP state machine without a socket: bytes in, replies and requests for work out |
//! | `command`, `data_reader`, `reply` | parses a command line; reads the data of a mail; the replies |
//! | `connection` | runs a session over a socket, with timeouts and a mail receiver |
//! | `listener`, `network_limits` | accepts connections; rate and connection limits per network |
//! | `spool` | keeps large mails on disk while they are received |
//! | `mail_receiver` | the trait that accepts received mail |
//! | `config`, `settings` | the `smtp` section of the configuration; the resulting settings |
//! | `metrics` | counters |

mod command;
mod config;
mod connection;
mod data_reader;
mod listener;
mod mail_receiver;
mod metrics;
mod network_limits;
mod reply;
mod session;
mod settings;
mod spool;
#[cfg(test)]
mod tests;

pub use crate::tls::Tls;
pub use config::SmtpConfig;
pub(crate) use config::SmtpFile;
pub use connection::ByteStream;
pub use listener::{SmtpListener, run};
pub use mail_receiver::{MailReceiver, NotAccepted, ReceivedMail, RecipientStatus};
pub use metrics::{Reason, SmtpMetrics};
pub use settings::{NetworkLimits, SmtpSettings, SmtpTimeouts};
pub use spool::{SpoolDir, SpoolFiles};
