//! The ways in that listen.

pub mod smtp;
