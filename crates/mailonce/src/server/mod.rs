//! The HTTP listener: its settings, and the checks and limits that apply before a request reaches the API.

mod address_limits;
pub(crate) mod body_memory;
pub(crate) mod checked_body;
mod config;
mod cross_origin;
pub(crate) mod host_check;
mod large_bodies;
mod listener;
pub(crate) mod min_rate;
mod secure_headers;

pub use {address_limits::FailureLimit, config::HttpOptions};
pub(crate) use {
    address_limits::MAX_FAILURES,
    config::HttpFile,
    listener::{HttpListener, read_certificate},
};
