//! The HTTP listener: its settings, and what it does with a connection before the API sees a request.

mod config;
mod listener;

pub use config::HttpOptions;
pub(crate) use {
    config::HttpFile,
    listener::{HttpListener, read_certificate},
};
