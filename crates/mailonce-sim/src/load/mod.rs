//! A load generator cheap enough to share its cores with the server it measures.
//!
//! Requests are byte templates with number slots, a connection has one buffer each way, and a reply is parsed only as
//! far as needed. Nothing is allocated per request, and each request is one write.
//!
//! - [`run_steady`] keeps a fixed number of connections busy for a window of time, or for a number of requests.
//! - [`run_burst`] opens many connections first and then writes one request on all of them at once.

mod burst;
mod connection;
mod histogram;
mod request;
mod response;
mod stats;
mod steady;
mod threads;

pub use burst::{BurstPlan, run_burst};
pub use histogram::Histogram;
pub use request::{NUMBER_PLACEHOLDER, RequestTemplate};
pub use response::LoadResponse;
pub(crate) use response::parse_complete;
pub use stats::LoadStats;
pub use steady::{LoadDuration, SteadyLoad, run_steady};

/// A kind of request: writes the n-th request and inspects its reply.
///
/// Every `Fn(u64, &mut Vec<u8>)` is one that ignores replies.
pub trait RequestGenerator: Send + Sync + 'static {
    /// Appends the n-th request, head and body, to an empty buffer.
    fn write_request(&self, n: u64, out: &mut Vec<u8>);

    /// Inspects the reply to the n-th request. It runs inside the measured loop, so it must be cheap.
    fn on_response(&self, n: u64, answer: &LoadResponse<'_>) {
        let _ = (n, answer);
    }
}

impl<F: Fn(u64, &mut Vec<u8>) + Send + Sync + 'static> RequestGenerator for F {
    fn write_request(&self, n: u64, out: &mut Vec<u8>) {
        self(n, out);
    }
}
