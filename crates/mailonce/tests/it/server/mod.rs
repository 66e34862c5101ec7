//! The HTTP listener: TLS, refused requests, and large bodies.

mod large_bodies;
mod listener_checks;
mod tls;
