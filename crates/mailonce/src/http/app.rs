//! The state that all HTTP handlers share.

use crate::{http::problem::ApiError, intake::smtp::SmtpMetrics, oidc::OidcProvider, server::FailureLimit};
use axum::response::Response;
use mailonce_engine::Engine;
use std::{ops::Deref, sync::Arc};
/// The state that every handler receives. It is one pointer, because axum clones it for each request.
#[derive(Clone)]
pub struct App(pub(crate) Arc<AppState>);

impl Deref for App {
    type Target = AppState;

    fn deref(&self) -> &AppState {
        &self.0
    }
}

/// The state that all handlers of a process share.
pub struct AppState {
    /// The engine, which executes every call.
    pub engine: Arc<Engine>,
    /// Metrics of the SMTP listener, if it runs.
    pub smtp_metrics: Option<Arc<SmtpMetrics>>,
    /// The public URL of this installation.
    pub public_url: Arc<str>,
    /// Counts invalid API keys per client address, to block guessing.
    pub auth_failures: FailureLimit,
    /// The identity provider, if one is configured.
    pub oidc: Option<Arc<OidcProvider>>,
}

/// Options for [`router_with_options`].
#[derive(Default)]
pub struct RouterOptions {
    /// Metrics of the SMTP listener, if it runs.
    pub smtp_metrics: Option<Arc<SmtpMetrics>>,
    /// The public URL of this installation.
    pub public_url: String,
    /// Counts invalid API keys per client address, to block guessing.
    pub auth_failures: FailureLimit,
    /// The identity provider, if one is configured.
    pub oidc: Option<Arc<OidcProvider>>,
}

/// The result of every handler.
pub(crate) type ApiResult = Result<Response, ApiError>;
