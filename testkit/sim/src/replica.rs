//! A replica of the control plane: the real one, over the simulated API server and connections.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::stream::unfold;
use navarch::admin::LogScopes;
use navarch::server::{Embedded, EmbeddedParts, SigningParts};
use navarch_api::identity::{Caller, Identity};
use navarch_xds::{Ads, ConnectionInfo};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::TcpConnectInfo;

use crate::api_server::ApiServer;
use crate::leaders;
use crate::link::{Condition, Link};
use crate::random::Random;
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
    name: String,
    story: Story,
    /// The way to the API server.
    link: Link,
    stop: CancellationToken,
    incoming: mpsc::UnboundedSender<(SimStream, Peer)>,
    /// The links of its connections.
    connections: Arc<Mutex<Vec<Link>>>,
    /// Whether its process has ended before it was ready.
    has_exited: Arc<AtomicBool>,
    random: Arc<Mutex<Random>>,
    parts: Arc<OnceLock<EmbeddedParts>>,
    signing: Arc<OnceLock<SigningParts>>,
}

/// The client of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// Its verified identity, if it has one.
    pub identity: Option<Identity>,
}

impl ConnectionInfo for Peer {}

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
        let replica = Self {
            name: name.to_owned(),
            story: story.clone(),
            link,
            stop: stop.clone(),
            incoming,
            connections: Arc::default(),
            has_exited: Arc::default(),
            random: Arc::new(Mutex::new(Random::new(
                seed,
                &format!("{name} connections"),
            ))),
            parts: Arc::default(),
            signing: Arc::default(),
        };
        tell!(story, name, "starts");
        replica.run(embedded, client);
        replica.serve(starts, connections);
        replica.keep_signing(signs);
        Ok(replica)
    }

    /// Runs the control plane.
    #[expect(clippy::disallowed_methods, reason = "a task of the simulation")]
    fn run(&self, embedded: Embedded, client: kube::Client) {
        let story = self.story.clone();
        let name = self.name.clone();
        let link = self.link.clone();
        let stop = self.stop.clone();
        let signing = self.signing.clone();
        let connections = self.connections.clone();
        let has_exited = self.has_exited.clone();
        drop(tokio::spawn(async move {
            let ended = embedded.run(client).await;
            if link.condition() == Condition::Dead {
                return;
            }
            match ended {
                Ok(()) => tell!(story, name, "has stopped"),
                // At shutdown, tasks may find others gone.
                Err(error) if stop.is_cancelled() => tell!(story, name, "has stopped: {error:#}"),
                // As the process of a pod, which its node starts again.
                Err(error) if signing.get().is_none() => {
                    tell!(story, name, "exits before it is ready: {error:#}");
                    link.set(Condition::Dead);
                    leaders::crashed(&name);
                    for link in connections.lock().drain(..) {
                        link.set(Condition::Cut);
                    }
                    stop.cancel();
                    has_exited.store(true, Ordering::Relaxed);
                }
                Err(error) => {
                    story.violated("no replica ends by itself", &format!("{name}: {error:#}"))
                }
            }
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
        let stop = self.stop.clone();
        drop(tokio::spawn(async move {
            let Ok(parts) = started.await else { return };
            let ads = parts.ads.clone();
            // Only set here.
            _ = slot.set(parts);

            let server = ads
                .server("grpc")
                .add_streams(Ads::NAME, move |mut request, call| {
                    let ads = ads.clone();
                    async move {
                        let peer = request.extensions().get::<Peer>().cloned();
                        if let Some(Peer { address, identity }) = peer {
                            request.extensions_mut().insert(TcpConnectInfo {
                                local_addr: None,
                                remote_addr: Some(SocketAddr::new(address, 40_000)),
                            });
                            if let Some(identity) = identity {
                                request.extensions_mut().insert(Caller {
                                    identities: vec![identity],
                                    ..Caller::default()
                                });
                            }
                        }
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
        let story = self.story.clone();
        let name = self.name.clone();
        drop(tokio::spawn(async move {
            if let Ok(parts) = signing.await {
                tell!(story, name, "is ready");
                // Only set here.
                _ = slot.set(parts);
            }
        }));
    }

    /// Its name, which is its identity in locks.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
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

    /// Whether its process has ended before it was ready: it must be started again.
    #[must_use]
    pub fn has_exited(&self) -> bool {
        self.has_exited.load(Ordering::Relaxed)
    }

    /// Whether it neither was stopped nor has crashed.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.stop.is_cancelled()
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

        let mut connections = self.connections.lock();
        connections.retain(|link| link.condition() == Condition::Up);
        connections.push(link.clone());
        Some((client, link))
    }

    /// Changes the condition of the link to the API server.
    pub fn set_link(&self, condition: Condition) {
        tell!(
            self.story,
            self.name,
            "link to the API server: {condition:?}"
        );
        self.link.set(condition);
    }

    /// Ends all links at once, as when the process is killed. `condition` is that of its
    /// connections: cut if the process dies, silent if the node does.
    #[expect(clippy::disallowed_methods, reason = "a task of the simulation")]
    pub fn crash(&self, condition: Condition) {
        tell!(
            self.story,
            self.name,
            "crashes; its connections are {condition:?}"
        );
        self.link.set(Condition::Dead);
        leaders::crashed(&self.name);
        let links = std::mem::take(&mut *self.connections.lock());
        for link in &links {
            link.set(condition);
        }
        drop(tokio::spawn(async move {
            sleep(KEEPALIVE).await;
            for link in links {
                link.set(Condition::Cut);
            }
        }));
        // Its tasks must not go on for ever; nothing that they do has an effect.
        self.stop.cancel();
    }

    /// Asks it to stop, as by SIGTERM.
    pub fn stop(&self) {
        tell!(self.story, self.name, "is asked to stop");
        self.stop.cancel();
    }
}
