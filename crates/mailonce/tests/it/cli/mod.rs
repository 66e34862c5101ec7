//! The command line, as the real binary.

mod admin;
mod conversation;
mod once;
mod prove;
mod run_server;
mod send;
mod tls;
