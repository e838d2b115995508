//! The webhook port (15017): HTTPS for API servers, or the same paths on the HTTP port for whoever ends TLS before it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::injector::InjectorSource;
use super::patient::{PATIENCE, Patient};
use super::{Config, Tasks, spawn};
use crate::admin::Readiness;
use crate::push::worker::PushHandle;
use crate::security::serving::ServingTls;
use crate::webhook::registration::{HookKind, Registration, Rollover, rollover};
use crate::webhook::{Limits, Metrics, Webhooks};

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Connections at once; more wait in the kernel's queue. API servers need a handful.
const CONNECTIONS: usize = 512;
/// Reviews at once on one connection.
const STREAMS: u32 = 100;
/// How long a caller may take for the headers of a request, and may then be silent.
const HEADERS: Duration = Duration::from_secs(30);
/// How often a silent HTTP/2 caller is asked whether it is there.
const PING: Duration = Duration::from_secs(30);
/// Bytes of the headers of a request.
const HEADER_BYTES: u32 = 64 << 10;
/// How long to wait after the system gives no connection, as when files run out.
const PAUSE: Duration = Duration::from_millis(100);
/// How long reviews under way may take at the end.
const FAREWELL: Duration = Duration::from_secs(5);

/// What flags and environment say of the webhooks.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// `INJECTION_WEBHOOK_CONFIG_NAME`: where empty, the configurations of webhooks that inject are left alone.
    pub injection: String,
    /// `VALIDATION_WEBHOOK_CONFIG_NAME`: where empty, the configurations of webhooks that validate are left alone.
    pub validation: String,
    /// The revision of this control plane, as configurations are labelled with it.
    pub revision: String,
    /// How long roots that are none of this control plane's are left in webhook configurations.
    pub grace: Duration,
}

impl Default for WebhookConfig {
    /// istiod's names, and ten minutes in which all replicas and API servers have seen a new root.
    fn default() -> Self {
        Self {
            injection: "istio-sidecar-injector".to_owned(),
            validation: "istio-istio-system".to_owned(),
            revision: "default".to_owned(),
            grace: Duration::from_mins(10),
        }
    }
}

/// The webhooks over the snapshot in force.
pub(super) fn start(
    config: &Config,
    client: Option<&kube::Client>,
    push: &PushHandle,
    metrics: Metrics,
    readiness: &Readiness,
    (stop, tasks): (&CancellationToken, &mut Tasks),
) -> Arc<Webhooks> {
    let injector = InjectorSource {
        settings: &config.injection,
        revision: &config.webhooks.revision,
        namespace: config.settings.system_namespace.as_str(),
        client,
        push,
        readiness,
        metrics: &metrics,
    };
    let injector = injector.start(stop, tasks);
    let (synced, objects, readiness) = (push.clone(), push.clone(), readiness.clone());
    let ready = Arc::new(move || synced.is_synced() && readiness.is_ready());
    let surroundings = Arc::new(move || objects.is_synced().then(|| objects.context().objects.clone()));
    Arc::new(Webhooks::new(ready, surroundings, injector, Limits::default(), metrics))
}

/// What the port is opened with.
pub(super) struct WebhookPort<'a> {
    /// The port.
    pub(super) listener: TcpListener,
    /// TLS of the server.
    pub(super) tls: ServingTls,
    /// The roots of its certificates.
    pub(super) roots: watch::Receiver<Arc<str>>,
    /// The client of the Kubernetes API, where it is used.
    pub(super) client: Option<&'a kube::Client>,
    /// What flags and environment say.
    pub(super) config: &'a WebhookConfig,
    /// The namespace of this control plane.
    pub(super) namespace: &'a str,
    /// What is served.
    pub(super) routes: Router,
    /// Whether all is read.
    pub(super) push: &'a PushHandle,
    /// What is counted.
    pub(super) metrics: Metrics,
}

impl WebhookPort<'_> {
    /// Serves, and tells the API server of it.
    pub(super) fn start(self, stop: &CancellationToken, tasks: &mut Tasks) {
        let mut registered = Vec::new();
        if let Some(client) = self.client {
            let kinds = [(HookKind::Mutating, &self.config.injection), (HookKind::Validating, &self.config.validation)];
            for (kind, _) in kinds.into_iter().filter(|(_, name)| !name.is_empty()) {
                registered.push(self.register(kind, client, stop, tasks));
            }
        }
        let (tls, follow) = rollover(self.tls, registered);
        let stopped = stop.clone();
        spawn("certificate of the webhooks", tasks, async move {
            super::until(&stopped, follow).await;
            Ok(())
        });
        let (listener, routes, stop) = (self.listener, self.routes, stop.clone());
        spawn("webhooks", tasks, async move {
            serve(listener, tls, routes, stop).await;
            Ok(())
        });
    }

    /// Keeps the webhook configurations of a kind, once all is read. Gives the roots that stand in them.
    fn register(
        &self,
        kind: HookKind,
        client: &kube::Client,
        stop: &CancellationToken,
        tasks: &mut Tasks,
    ) -> watch::Receiver<Arc<str>> {
        let (sender, receiver) = watch::channel(self.roots.borrow().clone());
        let registration = Registration {
            client: client.clone(),
            kind,
            revision: self.config.revision.clone(),
            namespace: self.namespace.to_owned(),
            roots: self.roots.clone(),
            grace: self.config.grace,
            metrics: self.metrics.clone(),
        };
        let (push, stop) = (self.push.clone(), stop.clone());
        spawn("webhook configurations", tasks, async move {
            if let Some(Ok(())) = super::until(&stop, push.wait_synced()).await {
                registration.run(sender, stop).await;
            } else {
                stop.cancelled().await;
            }
            Ok(())
        });
        receiver
    }
}

/// Serves until told to end.
async fn serve(listener: TcpListener, tls: Rollover, routes: Router, stop: CancellationToken) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = stop.cancelled() => break,
        };
        let Some((stream, peer, place)) = accepted else { continue };
        let (acceptor, routes) = (TlsAcceptor::from(tls.get()), routes.clone());
        let watcher = graceful.watcher();
        connections.spawn(async move {
            let _place = place;
            let stream = match timeout(HANDSHAKE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!(%peer, %error, "no TLS"),
                Err(_) => return tracing::debug!(%peer, "no TLS in time"),
            };
            let service = service_fn(move |request| super::http::answer(routes.clone(), peer, request));
            let builder = http_builder();
            let stream = TokioIo::new(Patient::new(stream, PATIENCE));
            let connection = builder.serve_connection(stream, service).into_owned();
            if let Err(error) = watcher.watch(connection).await {
                tracing::debug!(%peer, %error, "connection ended");
            }
        });
    }
    drop(timeout(FAREWELL, graceful.shutdown()).await);
}

/// Takes the next connection, when there is a place for it.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => {
            // Reviews are small, and somebody waits for each.
            drop(stream.set_nodelay(true));
            Some((stream, peer, place))
        }
        Err(error) => {
            tracing::warn!(%error, "no connection could be accepted");
            tokio::time::sleep(PAUSE).await;
            None
        }
    }
}

/// HTTP/1 and HTTP/2 with bounds.
fn http_builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS).max_buf_size(HEADER_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_BYTES)
        .keep_alive_interval(PING)
        .keep_alive_timeout(HEADERS);
    builder
}
