//! One node: an engine over a store with its own clock and transports, its background loops, and the HTTP handlers.

use axum::{
    Router,
    body::Body,
    http::{Method, Request},
};
use http_body_util::BodyExt as _;
use mailonce::api;
use mailonce_core::{
    access::team::{ApiKeyDetails, ApiKeyScope},
    ports::{store::Store, transport::Transport},
};
use mailonce_engine::{Engine, EngineDeps, HandoffSettings, handoff::transport_selector::Routing};
use serde_json::Value;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, watch},
    task::JoinSet,
};
use tower::ServiceExt as _;

use crate::clock::{OffsetClock, SeededEntropy};

/// The domain of the inboxes.
pub(crate) const DOMAIN: &str = "agents.test";
const API_KEY: &str = "differential-key-0123456789";
/// How long a call may take. PostgreSQL without its standby lets calls wait.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// An answer to a call. Status 0 when there was none in time.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeResponse {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl NodeResponse {
    pub(crate) fn text(&self, name: &str) -> &str {
        self.body[name].as_str().unwrap_or_default()
    }

    pub(crate) fn rows(&self) -> &[Value] {
        self.body["data"].as_array().map_or(&[], Vec::as_slice)
    }
}

pub(crate) struct DifferentialNode {
    pub(crate) engine: Arc<Engine>,
    /// The names of its transports.
    pub(crate) transports: BTreeSet<String>,
    router: Router,
    stop: watch::Sender<bool>,
    loops: Mutex<JoinSet<()>>,
}

impl DifferentialNode {
    pub(crate) async fn start(
        store: Arc<dyn Store>,
        clock: OffsetClock,
        transports: Vec<Arc<dyn Transport>>,
        seed: u64,
    ) -> Self {
        let names = transports.iter().map(|transport| transport.name().to_owned()).collect();
        let outside = EngineDeps {
            transports,
            routing: Routing { rules: Vec::new(), default: vec!["relay".into()] },
            handoff: HandoffSettings { max_attempts: 100, ..HandoffSettings::default() },
            local_domains: vec![DOMAIN.into()],
            bounce_domain: Some(DOMAIN.into()),
            ..EngineDeps::default()
        };
        let engine = Engine::new(store, Arc::new(clock), Arc::new(SeededEntropy::new(seed)), outside).await.unwrap();
        engine.ctx.confirm_time();
        engine.inboxes.load_inbox_domains().await.unwrap();
        engine.handoffs.heartbeat_and_recover().await.unwrap();
        let about = ApiKeyDetails::unrestricted("differential", ApiKeyScope::ALL.to_vec());
        engine.access.ensure_api_key("default", about, Some(API_KEY.into())).await.unwrap();
        let router = api::router(Arc::clone(&engine), false);
        let (stop, stopped) = watch::channel(false);
        let mut loops = JoinSet::new();
        loops.spawn(Arc::clone(&engine.handoffs).run_handoff(stopped.clone()));
        loops.spawn(Arc::clone(&engine).run_maintenance(stopped.clone()));
        loops.spawn(Arc::clone(&engine.inbound).run_inbound_worker(stopped.clone()));
        loops.spawn(Arc::clone(&engine.events).run_notifier(stopped));
        Self { engine, transports: names, router, stop, loops: Mutex::new(loops) }
    }

    /// Lets its loops finish what they are doing. The store stays open.
    pub(crate) async fn stop(&self) -> Arc<dyn Store> {
        self.stop.send_replace(true);
        let mut loops = self.loops.lock().await;
        while loops.join_next().await.is_some() {}
        Arc::clone(self.engine.ctx.store())
    }

    pub(crate) async fn get(&self, path: &str) -> NodeResponse {
        self.call(Method::GET, path, None, None).await
    }

    pub(crate) async fn post(&self, path: &str, key: Option<&str>, body: &Value) -> NodeResponse {
        self.call(Method::POST, path, key, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> NodeResponse {
        self.call(Method::DELETE, path, None, None).await
    }

    async fn call(&self, method: Method, path: &str, key: Option<&str>, body: Option<&Value>) -> NodeResponse {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header("authorization", format!("Bearer {API_KEY}"));
        request = request.header("content-type", "application/json");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(body.map_or_else(Body::empty, |body| Body::from(body.to_string()))).unwrap();
        let answer = async {
            let (head, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            NodeResponse { status: head.status.as_u16(), body: serde_json::from_slice(&bytes).unwrap_or_default() }
        };
        tokio::time::timeout(CALL_TIMEOUT, answer).await.unwrap_or_default()
    }
}
