//! The HTTP listener: its settings, and what it does with a connection before the API sees a request.

mod config;

pub(crate) use config::HttpFile;
pub use config::HttpOptions;
