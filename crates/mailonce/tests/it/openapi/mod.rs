//! The OpenAPI document.

mod document;
mod properties;
