//! A replica of the control plane: the real one, over the simulated API server and connections.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::stream::unfold;
use navarch::admin::LogScopes;
use navarch::server::{Embedded, EmbeddedParts, SigningParts};
use navarch_api::identity::{Caller, Identity};
use navarch_proto::istio::v1::auth::istio_certificate_service_server::{
    IstioCertificateService, IstioCertificateServiceServer,
};
use navarch_proto::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
use navarch_xds::{Ads, ConnectionInfo};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::TcpConnectInfo;
use tonic::{Request, Response, Status};

use crate::api_server::ApiServer;
use crate::leaders;
use crate::link::{Condition, Link};
use crate::random::Random;
use crate::replica_pod::{self, Life};
use crate::story::Story;
use crate::stream::{SimStream, connect};
use crate::tell;

/// The namespace of the control plane.
pub const SYSTEM_NAMESPACE: &str = "istio-system";

/// After this time the agents of proxies notice a connection without an answer: the interval and
/// the timeout of their HTTP/2 keepalive.
const KEEPALIVE: Duration = Duration::from_secs(40);

/// At rest no stream ends because of its age.
const FLAGS: [&str; 1] = ["--keepaliveMaxServerConnectionAge=24h"];

/// A running replica.
#[derive(Debug)]
pub struct Replica {
    process: Arc<Process>,
    incoming: mpsc::UnboundedSender<(SimStream, Peer)>,
    random: Arc<Mutex<Random>>,
    parts: Arc<OnceLock<EmbeddedParts>>,
    signing: Arc<OnceLock<SigningParts>>,
}

/// The process of a replica, as its surroundings see it.
#[derive(Debug)]
struct Process {
    name: String,
    story: Story,
    /// The way to the API server.
    link: Link,
    stop: CancellationToken,
    /// The links of its connections.
    connections: Mutex<Vec<Link>>,
    /// The condition of its connections since it has crashed.
    crashed: OnceLock<Condition>,
}

impl Process {
    /// The control plane has ended.
    fn ended(&self, outcome: anyhow::Result<()>) {
        if self.link.condition() == Condition::Dead {
            return;
        }

        match outcome {
            Ok(()) => tell!(self.story, self.name, "has stopped"),
            // At shutdown, tasks may find others gone.
            Err(error) if self.stop.is_cancelled() => {
                tell!(self.story, self.name, "has stopped: {error:#}");
            }
            Err(error) => {
                let text = format!("{}: {error:#}", self.name);
                self.story.violated("no replica ends by itself", &text);
            }
        }
    }

    /// Ends the way to the API server and all tasks at once. Returns the links of its connections.
    fn kill(&self) -> Vec<Link> {
        self.link.set(Condition::Dead);
        leaders::crashed(&self.name);
        // Its tasks must not go on for ever; nothing that they do has an effect.
        self.stop.cancel();
        std::mem::take(&mut *self.connections.lock())
    }
}

/// The client of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The address that the control plane sees.
    pub address: IpAddr,
    /// Its verified identity, if it has one.
    pub identity: Option<Identity>,
}

impl ConnectionInfo for Peer {}

/// The CA of a replica.
#[derive(Clone, Debug)]
struct Certificates {
    /// Set once it can sign.
    signing: Arc<OnceLock<SigningParts>>,
}

#[tonic::async_trait]
impl IstioCertificateService for Certificates {
    async fn create_certificate(
        &self,
        mut request: Request<IstioCertificateRequest>,
    ) -> Result<Response<IstioCertificateResponse>, Status> {
        authenticate(request.extensions_mut());
        match self.signing.get() {
            Some(parts) => parts.certificates.create_certificate(request).await,
            None => Err(Status::unavailable("the CA has not started")),
        }
    }
}

/// Adds what authentication finds to the extensions of a request.
fn authenticate(extensions: &mut http::Extensions) {
    let Some(Peer { address, identity }) = extensions.get::<Peer>().cloned() else {
        return;
    };
    extensions.insert(TcpConnectInfo {
        local_addr: None,
        remote_addr: Some(SocketAddr::new(address, 40_000)),
    });
    if let Some(identity) = identity {
        extensions.insert(Caller {
            identities: vec![identity],
            ..Caller::default()
        });
    }
}

impl Replica {
    /// Starts a replica. `name` is that of its pod: no other incarnation had it.
    ///
    /// # Errors
    /// If its settings are invalid.
    pub fn start(
        name: &str,
        server: &ApiServer,
        settings: &BTreeMap<String, String>,
        seed: u64,
        story: &Story,
    ) -> anyhow::Result<Self> {
        let mut variables = settings.clone();
        variables.insert("POD_NAME".to_owned(), name.to_owned());
        variables.insert("POD_NAMESPACE".to_owned(), SYSTEM_NAMESPACE.to_owned());
        variables.insert("CLUSTER_ID".to_owned(), "Kubernetes".to_owned());
        let scopes = LogScopes::new(&[], "info".to_owned(), |_| Ok(()));
        let flags = FLAGS.map(str::to_owned);
        let config = navarch::cli::discovery_config(flags, variables, scopes)?;

        let link = Link::default();
        let client = server.client(name, &link, seed);
        let stop = CancellationToken::new();
        let (started, starts) = oneshot::channel();
        let (signing, signs) = oneshot::channel();
        let embedded = Embedded {
            config,
            stop: stop.clone(),
            started,
            signing,
        };

        let (incoming, connections) = mpsc::unbounded_channel();
        let purpose = format!("{name} connections");
        let replica = Self {
            process: Arc::new(Process {
                name: name.to_owned(),
                story: story.clone(),
                link,
                stop,
                connections: Mutex::default(),
                crashed: OnceLock::new(),
            }),
            incoming,
            random: Arc::new(Mutex::new(Random::new(seed, &purpose))),
            parts: Arc::default(),
            signing: Arc::default(),
        };

        tell!(story, name, "starts");
        replica.run(embedded, client);
        replica.serve(starts, connections);
        replica.keep_signing(signs);
        replica.keep_pod(server);
        Ok(replica)
    }

    /// Runs the control plane.
    #[expect(clippy::disallowed_methods, reason = "a task of the simulation")]
    fn run(&self, embedded: Embedded, client: kube::Client) {
        let process = self.process.clone();
        drop(tokio::spawn(async move {
            let ended = embedded.run(client).await;
            process.ended(ended);
        }));
    }

    /// Serves connections as soon as the control plane can.
    #[expect(clippy::disallowed_methods, reason = "a task of the simulation")]
    fn serve(
        &self,
        started: oneshot::Receiver<EmbeddedParts>,
        connections: mpsc::UnboundedReceiver<(SimStream, Peer)>,
    ) {
        let slot = self.parts.clone();
        let signing = self.signing.clone();
        let stop = self.process.stop.clone();
        drop(tokio::spawn(async move {
            let Ok(parts) = started.await else {
                return;
            };
            let ads = parts.ads.clone();
            // Only set here.
            _ = slot.set(parts);

            let certificates = Certificates { signing };
            let server = ads
                .server("grpc")
                .add_service(IstioCertificateServiceServer::new(certificates))
                .add_streams(Ads::NAME, move |mut request, call| {
                    let ads = ads.clone();
                    async move {
                        authenticate(request.extensions_mut());
                        ads.start(request, &call)
                    }
                });
            let connections = unfold(connections, |mut connections| async move {
                let next = connections.recv().await?;
                Some((next, connections))
            });
            server.serve(connections, stop.cancelled()).await;
        }));
    }

    /// Keeps the parts of the CA once it has started.
    #[expect(clippy::disallowed_methods, reason = "a task of the simulation")]
    fn keep_signing(&self, signing: oneshot::Receiver<SigningParts>) {
        let slot = self.signing.clone();
        let story = self.process.story.clone();
        let name = self.process.name.clone();
        drop(tokio::spawn(async move {
            if let Ok(parts) = signing.await {
                tell!(story, name, "is ready");
                // Only set here.
                _ = slot.set(parts);
            }
        }));
    }

    /// Keeps its pod.
    #[expect(clippy::disallowed_methods, reason = "a task of the simulation")]
    fn keep_pod(&self, server: &ApiServer) {
        let process = self.process.clone();
        let parts = self.parts.clone();
        let life = move || match process.crashed.get() {
            Some(connections) => Life::Crashed(*connections),
            None if process.stop.is_cancelled() => Life::Stops,
            None => Life::Runs(parts.get().is_some_and(|parts| parts.push.is_synced())),
        };
        let kept = replica_pod::keep(server.clone(), self.name().to_owned(), life);
        drop(tokio::spawn(kept));
    }

    /// Its name, which is its identity in locks.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.process.name
    }

    /// Its parts, once it can serve.
    #[must_use]
    pub fn parts(&self) -> Option<&EmbeddedParts> {
        self.parts.get()
    }

    /// The parts of its CA, once everything is read.
    #[must_use]
    pub fn signing(&self) -> Option<&SigningParts> {
        self.signing.get()
    }

    /// Whether it answers proxies.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.parts().is_some_and(|parts| parts.push.is_synced())
    }

    /// Whether it neither was stopped nor has crashed.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.process.stop.is_cancelled()
    }

    /// Whether it runs and its requests reach the API server.
    pub(crate) fn reaches_server(&self) -> bool {
        self.is_running() && self.process.link.condition() == Condition::Up
    }

    /// Opens a connection; returns the client's end and its link.
    #[must_use]
    pub fn connect(&self, peer: Peer) -> Option<(SimStream, Link)> {
        if !self.is_running() {
            return None;
        }
        let link = Link::default();
        let (client, server) = connect(&link, &self.random);
        self.incoming.send((server, peer)).ok()?;

        let mut connections = self.process.connections.lock();
        connections.retain(|link| link.condition() == Condition::Up && link.is_shared());
        connections.push(link.clone());
        Some((client, link))
    }

    /// Changes the condition of the link to the API server.
    pub fn set_link(&self, condition: Condition) {
        tell!(
            self.process.story,
            self.process.name,
            "link to the API server: {condition:?}"
        );
        self.process.link.set(condition);
    }

    /// Ends all links at once, as when the process is killed. `condition` is that of its
    /// connections: cut if the process dies, silent if the node does.
    #[expect(clippy::disallowed_methods, reason = "a task of the simulation")]
    pub fn crash(&self, condition: Condition) {
        tell!(
            self.process.story,
            self.process.name,
            "crashes; its connections are {condition:?}"
        );
        // It crashes once.
        _ = self.process.crashed.set(condition);
        let links = self.process.kill();
        for link in &links {
            link.set(condition);
        }

        drop(tokio::spawn(async move {
            sleep(KEEPALIVE).await;
            for link in links {
                link.set(Condition::Cut);
            }
        }));
    }

    /// Asks it to stop, as by SIGTERM.
    pub fn stop(&self) {
        tell!(self.process.story, self.process.name, "is asked to stop");
        self.process.stop.cancel();
    }
}
