//! Serves one request through a router, and turns panics into error responses.

use crate::http::problem::ApiError;
use axum::{
    BoxError, Router,
    body::{Bytes, HttpBody},
    extract::Request,
    response::{IntoResponse as _, Response},
};
use mailonce_core::problem::{Code, Problem};
use std::{
    convert::Infallible,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
};
use tower::ServiceExt as _;
/// Serves one request. A panic in a handler becomes a `500` and does not affect other requests.
pub(crate) async fn handle_request<B>(router: Router, request: Request<B>) -> Result<Response, Infallible>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut response = pin!(router.oneshot(request));
    poll_fn(|cx| {
        let step = catch_unwind(AssertUnwindSafe(|| response.as_mut().poll(cx)));
        step.unwrap_or_else(|_panic| Poll::Ready(Ok(panic_response())))
    })
    .await
}

fn panic_response() -> Response {
    tracing::error!("a handler panicked");
    ApiError(Problem::new(Code::Internal, "the request handler panicked")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{body::Body, routing::get};

    #[tokio::test]
    async fn a_handler_that_panics_is_our_fault_and_the_next_call_is_answered() {
        async fn broken(request: Request) -> &'static str {
            assert!(request.uri().query().is_none(), "a fault of ours");
            "well"
        }
        let router = Router::new().route("/", get(broken));
        for (path, status) in [("/?x", 500), ("/", 200)] {
            let request = Request::builder().uri(path).body(Body::empty()).unwrap();
            let response = handle_request(router.clone(), request).await.unwrap();
            assert_eq!(response.status().as_u16(), status, "{path}");
        }
    }
}
