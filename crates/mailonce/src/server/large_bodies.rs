//! Threads for requests with large bodies.
//!
//! An email with attachments can be 35 MB of JSON and base64. Checking, decoding and packing it takes up to a second,
//! during which the connection's thread could serve no other connection. So requests with large bodies, on any route,
//! run on separate threads. There are as many of these threads as cores: large requests wait for each other, and small
//! requests do not wait for them.

use axum::{
    BoxError, Router,
    body::{Bytes, HttpBody},
    extract::Request,
    response::{IntoResponse as _, Response},
};
use mailonce_core::problem::{Code, Problem};
use std::{convert::Infallible, io, num::NonZero, thread};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinSet,
};

use crate::http::problem::ApiError;

/// Bodies up to this size are handled on the connection's thread. That takes about a millisecond.
const SMALL_BODY_MAX: u64 = 128 * 1024;

/// The threads for large bodies. They end when this is dropped.
#[derive(Debug)]
pub(super) struct LargeBodyThreads(Option<Runtime>);

impl LargeBodyThreads {
    pub(super) fn open() -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let runtime =
            Builder::new_multi_thread().worker_threads(cores).thread_name("large-body").enable_all().build()?;
        Ok(Self(Some(runtime)))
    }

    /// Handles a request: on the current thread, or on one of these if its body is large or of unknown size.
    pub(super) async fn answer<B>(&self, router: Router, request: Request<B>) -> Result<Response, Infallible>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let is_small = request.body().size_hint().upper().is_some_and(|bytes| bytes <= SMALL_BODY_MAX);
        let Some(runtime) = self.0.as_ref().filter(|_| !is_small) else {
            return crate::http::router::handle_request(router, request).await;
        };
        // Dropping the set aborts the task, so that a request ends when its client disconnects.
        let mut task = JoinSet::new();
        task.spawn_on(crate::http::router::handle_request(router, request), runtime.handle());
        match task.join_next().await {
            Some(Ok(answer)) => answer,
            Some(Err(_)) | None => {
                Ok(ApiError(Problem::new(Code::Unavailable, "the server is shutting down")).into_response())
            }
        }
    }
}

impl Drop for LargeBodyThreads {
    fn drop(&mut self) {
        // Dropping a runtime blocks, which panics inside another runtime.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{body::Body, routing::post};
    use std::{
        pin::Pin,
        sync::Arc,
        task::{Context, Poll},
        time::Duration,
    };

    /// An empty body of unknown size, like one with chunked encoding.
    struct UnsizedBody;

    impl HttpBody for UnsizedBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
            Poll::Ready(None)
        }
    }

    fn thread_name() -> String {
        thread::current().name().unwrap_or_default().to_owned()
    }

    async fn handled_by(large: &LargeBodyThreads, body: Body) -> String {
        let router = Router::new().route("/", post(|_: Bytes| async { thread_name() }));
        let request = Request::post("/").body(body).unwrap();
        let answer = large.answer(router, request).await.unwrap();
        let name = axum::body::to_bytes(answer.into_body(), 100).await.unwrap();
        String::from_utf8(name.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn large_bodies_are_handled_apart_and_small_ones_where_they_came() {
        let large = LargeBodyThreads::open().unwrap();
        let current_thread = thread_name();
        assert_eq!(handled_by(&large, Body::empty()).await, current_thread);
        assert_eq!(handled_by(&large, Body::from(vec![0; SMALL_BODY_MAX as usize])).await, current_thread);
        assert_eq!(handled_by(&large, Body::from(vec![0; SMALL_BODY_MAX as usize + 1])).await, "large-body");
        assert_eq!(handled_by(&large, Body::new(UnsizedBody)).await, "large-body");
    }

    #[tokio::test]
    async fn a_caller_that_hangs_up_ends_its_request() {
        let large = LargeBodyThreads::open().unwrap();
        let running = Arc::new(());
        let held = Arc::clone(&running);
        let handler = move |_: Bytes| async move {
            std::future::pending::<()>().await;
            drop(held);
        };
        let request = Request::post("/").body(Body::new(UnsizedBody)).unwrap();
        let answer = large.answer(Router::new().route("/", post(handler)), request);
        assert!(tokio::time::timeout(Duration::from_millis(50), answer).await.is_err());
        let ended = async {
            while Arc::strong_count(&running) > 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the handler still runs");
    }
}
