//! The agent of a simulated proxy: the real xDS proxy, the real secret cache and the real SDS
//! server, between the simulated Envoy and the replicas.
//!
//! ```text
//!  Proxy (Envoy) ◀─SimStream─▶ ads ◀─SimStream─▶ replica: xDS
//!                ◀─SimStream─▶ sds ── secrets ◀─SimStream─▶ replica: CA
//! ```
//!
//! Connections have no TLS, and the peer's identity is given; everything else of both is real.

mod envoy_secrets;
mod tap;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use navarch_agent::ads::{self, AdsConfig, EnvoyStreams, MAX_RESPONSE_BYTES, OpenConnections};
use navarch_agent::metrics::AgentMetrics;
use navarch_agent::sds::{self, SdsConfig};
use navarch_agent::secrets::{
    CaClient, CertificateFiles, Grace, KeyFormat, KeyKind, Secret, Secrets, SecretsConfig,
    SecretsTask,
};
use navarch_agent::upstream::{Transport, Upstream, UpstreamConfig};
use navarch_net::grpc_target::{Io, Keepalive};
use navarch_pki::pem;
use navarch_security::authenticate::certificate_expiry;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::envoy_secrets::{Connections, EnvoySecrets};
use self::tap::Tap;
use crate::host;
use crate::link::{Condition, Link};
use crate::proxy::{Protocol, Replicas, Spec};
use crate::random::Random;
use crate::replica::{Peer, Replica};
use crate::story::Story;
use crate::stream::{SimStream, connect};
use crate::tell;

/// The lifetime of its certificates: several are renewed in each simulation, and all expire while
/// no replica runs for a quarter of an hour.
const LIFETIME: Duration = Duration::from_mins(10);
/// Within this time a certificate that is due is renewed, if a replica can sign all the while: the
/// longest delay between attempts is 60 s, and one lasts up to 15 s.
const RENEWAL_TIME: Duration = Duration::from_secs(100);
/// Within this time Envoy has what its agent has.
const SDS_TIME: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The agent of a proxy. Clones are one agent.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    envoy: EnvoySecrets,
    way: Arc<Way>,
    /// The connections of Envoy to it.
    connections: mpsc::UnboundedSender<io::Result<SimStream>>,
    /// Ends it with the last clone.
    _stop: Arc<DropGuard>,
}

/// The way of an agent to the replicas.
#[derive(Debug)]
struct Way {
    name: String,
    peer: Peer,
    replicas: Replicas,
    random: Arc<Mutex<Random>>,
    story: Story,
    /// The link of the last stream of resources, and when it was opened.
    stream: Mutex<Option<(Link, Instant)>>,
}

/// What an agent connects for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Resources,
    Certificates,
}

impl Agent {
    /// Starts the agent of a proxy, which has an identity.
    #[expect(clippy::disallowed_methods, reason = "tasks of the simulation")]
    pub(crate) fn start(
        spec: &Spec,
        peer: Peer,
        replicas: &Replicas,
        seed: u64,
        story: &Story,
    ) -> Self {
        let way = Arc::new(Way {
            name: format!("agent of {}", spec.name),
            peer,
            replicas: replicas.clone(),
            random: Arc::new(Mutex::new(Random::new(
                seed,
                &format!("agent {}", spec.name),
            ))),
            story: story.clone(),
            stream: Mutex::default(),
        });
        let stop = CancellationToken::new();
        let (secrets, task) = secrets(&way, &stop);

        let config = AdsConfig {
            upstream: way.upstream(Purpose::Resources),
            names: None,
            trust: Some(secrets.clone()),
            health: None,
            mesh_metrics: None,
            modules: None,
            side_by_side: false,
            envoys: EnvoyStreams::default(),
            connections: OpenConnections::default(),
            max_response: MAX_RESPONSE_BYTES,
            metrics: AgentMetrics::default(),
        };
        let (connections, incoming) = mpsc::unbounded_channel();
        let incoming = UnboundedReceiverStream::new(incoming);
        let serving = ads::serve_connections(incoming, config, stop.clone());

        drop(tokio::spawn(async move {
            // Connections of the simulation are always accepted.
            _ = serving.await;
        }));
        drop(tokio::spawn(task.run()));
        let envoy = EnvoySecrets::new();
        serve_secrets(&way, &secrets, &envoy, spec.protocol, &stop);
        let watched = watch(way.clone(), secrets.clone(), envoy.clone());
        drop(tokio::spawn(
            stop.clone().run_until_cancelled_owned(watched),
        ));

        Self {
            envoy,
            way,
            connections,
            _stop: Arc::new(stop.drop_guard()),
        }
    }

    /// A connection of Envoy to its agent.
    pub(crate) fn connect(&self) -> Option<(SimStream, Link)> {
        let link = Link::default();
        let (envoys, agents) = connect(&link, &self.way.random);
        self.connections.send(Ok(agents)).ok()?;
        Some((envoys, link))
    }

    /// Makes the connection to the control plane half-open; it breaks after this time.
    #[expect(clippy::disallowed_methods, reason = "a task of the simulation")]
    pub(crate) fn silence(&self, time: Duration) {
        let Some((link, _)) = self.way.stream.lock().clone() else {
            return;
        };
        link.set(Condition::Silent);
        drop(tokio::spawn(async move {
            sleep(time).await;
            link.set(Condition::Cut);
        }));
    }

    /// How long its stream of resources has been connected; `None` if it is not.
    pub(crate) fn connected_for(&self) -> Option<Duration> {
        let stream = self.way.stream.lock();
        let (link, since) = stream.as_ref()?;
        (link.condition() == Condition::Up).then(|| since.elapsed())
    }

    /// Envoy restarts.
    pub(crate) fn restart_envoy(&self) {
        self.envoy.restart();
    }

    /// Whether Envoy trusts these roots (PEM): without a certificate it has none, and gets roots and
    /// certificate together.
    pub(crate) fn trusts(&self, roots: &str) -> bool {
        let held = self.envoy.held().roots;
        held.is_none_or(|held| contains(&held, roots.as_bytes()))
    }

    /// The root that signed the certificate of Envoy (PEM), if it has one that has not ended. It is
    /// the first of the roots that come with the certificate.
    pub(crate) fn live_root(&self) -> Option<String> {
        let chain = self.envoy.held().chain?;
        let lives = ends(&chain)? > host::wall_clock();
        let issuers = pem::certificates(issuers(&chain)?.as_bytes(), "the issuers").ok()?;
        let root = issuers.first().map(|root| pem::encode(root));
        root.filter(|_| lives)
    }

    /// The end of the certificate that Envoy has; `None` if it has none.
    pub(crate) fn certificate_ends(&self) -> Option<SystemTime> {
        ends(&self.envoy.held().chain?)
    }
}

/// Serves an Envoy its secrets.
#[expect(clippy::disallowed_methods, reason = "tasks of the simulation")]
fn serve_secrets(
    way: &Arc<Way>,
    secrets: &Secrets,
    envoy: &EnvoySecrets,
    protocol: Protocol,
    stop: &CancellationToken,
) {
    let (opened, incoming) = mpsc::unbounded_channel();
    let incoming = UnboundedReceiverStream::new(incoming);
    let config = SdsConfig::default();
    let serving = sds::serve_connections(incoming, secrets.clone(), config, stop.clone());
    drop(tokio::spawn(async move {
        // Connections of the simulation are always accepted.
        _ = serving.await;
    }));

    let connections = Connections {
        name: way.name.clone(),
        protocol,
        opened,
        random: way.random.clone(),
        story: way.story.clone(),
    };
    let running = envoy.clone().run(connections);
    drop(tokio::spawn(
        stop.clone().run_until_cancelled_owned(running),
    ));
}

/// The secret cache of an agent.
fn secrets(way: &Arc<Way>, stop: &CancellationToken) -> (Secrets, SecretsTask) {
    let identity = way.peer.identity.as_ref();
    let nowhere = PathBuf::from("/nonexistent/certificate");
    let config = SecretsConfig {
        identity: identity.map(ToString::to_string).unwrap_or_default(),
        key: KeyKind::P256,
        key_format: KeyFormat::Pkcs8,
        lifetime: LIFETIME,
        // Its random numbers come from the library that makes keys, and are others in each run.
        grace: Grace {
            jitter: 0.0,
            ..Grace::default()
        },
        existing: CertificateFiles {
            chain: nowhere.clone(),
            key: nowhere.clone(),
            roots: nowhere,
        },
        system_roots: None,
        output: None,
        debounce: Duration::from_millis(100),
    };
    let ca = CaClient::new(way.upstream(Purpose::Certificates), String::new());
    let metrics = AgentMetrics::default();
    Secrets::new(config, Some(ca), host::wall_clock, metrics, stop.clone())
}

impl Way {
    /// Connects to the replicas for a purpose.
    fn upstream(self: &Arc<Self>, purpose: Purpose) -> Upstream {
        let config = UpstreamConfig {
            address: "istiod.istio-system.svc:15012".to_owned(),
            transport: Transport::Plain,
            token: None,
            cluster: "Kubernetes".to_owned(),
            headers: BTreeMap::new(),
            keepalive: Keepalive::default(),
        };
        let way = self.clone();
        Upstream::new(config).over(move || {
            let opened = way.open(purpose);
            Box::pin(std::future::ready(opened))
        })
    }

    /// Opens a connection to one of the replicas that are ready for it.
    fn open(&self, purpose: Purpose) -> io::Result<Box<dyn Io>> {
        let ready: Vec<Arc<Replica>> = self
            .replicas
            .lock()
            .iter()
            .filter(|replica| is_ready(replica, purpose))
            .cloned()
            .collect();
        let index = self.random.lock().index(ready.len());
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let replica = ready.get(index).ok_or_else(refused)?;
        let (stream, link) = replica.connect(self.peer.clone()).ok_or_else(refused)?;

        tell!(
            self.story,
            self.name,
            "connects to {} for {purpose:?}",
            replica.name()
        );
        if purpose == Purpose::Resources {
            *self.stream.lock() = Some((link, Instant::now()));
        }
        Ok(Box::new(Tap::new(stream, &self.name, &self.story)))
    }

    /// Whether a replica can sign.
    fn can_be_signed(&self) -> bool {
        let replicas = self.replicas.lock();
        let mut replicas = replicas.iter();
        replicas.any(|replica| is_ready(replica, Purpose::Certificates))
    }
}

/// Whether a replica is ready for connections.
fn is_ready(replica: &Replica, purpose: Purpose) -> bool {
    let signs = replica.signing().is_some() || purpose == Purpose::Resources;
    replica.is_running() && replica.is_synced() && signs
}

/// Watches the certificate: it is renewed in time while a replica can sign, its roots are there when
/// it is, and Envoy has both soon after.
async fn watch(way: Arc<Way>, secrets: Secrets, envoy: EnvoySecrets) {
    let mut certificate = secrets.certificate();
    // The first one is due at once.
    let mut due = Instant::now();
    let mut signed_since = None;
    let mut is_late = false;
    let mut same_since = Instant::now();
    let mut envoy_is_late = false;

    loop {
        tokio::select! {
            Ok(()) = certificate.changed() => {
                let current = certificate.borrow_and_update().clone();
                if let Some(Secret::Certificate { chain, .. }) = current.as_deref() {
                    check_roots(&way, &secrets, chain);
                    let left = ends(chain).and_then(|ends| ends.duration_since(host::wall_clock()).ok());
                    due = Instant::now() + left.unwrap_or_default() / 2;
                    is_late = false;
                    tell!(way.story, way.name, "has a new certificate");
                }
            }
            () = sleep(LOOK_INTERVAL) => {}
        }

        let now = Instant::now();
        signed_since = match way.can_be_signed() {
            true => Some(signed_since.unwrap_or(now)),
            false => None,
        };
        let waits_since = signed_since.map(|since| since.max(due));
        let waits =
            waits_since.is_some_and(|since| now.saturating_duration_since(since) > RENEWAL_TIME);
        if waits && !is_late {
            is_late = true;
            way.story
                .violated("certificates are renewed in time", &way.name);
        }

        if has_secrets_of(&envoy, &secrets) {
            same_since = now;
            envoy_is_late = false;
        } else if now - same_since > SDS_TIME && !envoy_is_late {
            envoy_is_late = true;
            way.story
                .violated("Envoy has the secrets of its agent", &way.name);
        }
    }
}

/// Whether an Envoy has what its agent has.
fn has_secrets_of(envoy: &EnvoySecrets, secrets: &Secrets) -> bool {
    let held = envoy.held();
    let is_same = |name: &str, held: Option<Vec<u8>>| {
        let current = secrets.watch(name).ok();
        let current = current.and_then(|watch| watch.borrow().clone());
        let bytes = match current.as_deref() {
            Some(Secret::Certificate { chain, .. }) => Some(&**chain),
            Some(Secret::Roots(roots)) => Some(&**roots),
            None => None,
        };
        bytes == held.as_deref()
    };
    is_same("default", held.chain) && is_same("ROOTCA", held.roots)
}

/// The roots that come with a certificate are those that Envoy has.
fn check_roots(way: &Way, secrets: &Secrets, chain: &[u8]) {
    let Some(issuers) = issuers(chain) else {
        return;
    };
    let roots = roots(secrets).unwrap_or_default();
    if !contains(&roots, issuers.as_bytes()) {
        let what = "roots are there before certificates of them";
        way.story.violated(what, &way.name);
    }
}

/// What follows the first certificate of a chain (PEM).
fn issuers(chain: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(chain);
    let (_, issuers) = text.split_once("-----END CERTIFICATE-----")?;
    Some(issuers.to_owned())
}

/// The roots that an agent has.
fn roots(secrets: &Secrets) -> Option<Bytes> {
    let watch = secrets.watch("ROOTCA").ok()?;
    let current = watch.borrow().clone()?;
    match &*current {
        Secret::Roots(roots) => Some(roots.clone()),
        Secret::Certificate { .. } => None,
    }
}

/// Whether roots contain all of some others, each in PEM.
pub(crate) fn contains(roots: &[u8], others: &[u8]) -> bool {
    let Ok(roots) = pem::certificates(roots, "the roots") else {
        return false;
    };
    let others = pem::certificates(others, "the roots");
    others.is_ok_and(|others| others.iter().all(|other| roots.contains(other)))
}

/// When the first certificate of a chain ends.
fn ends(chain: &[u8]) -> Option<SystemTime> {
    let chain = pem::certificates(chain, "the chain").ok()?;
    certificate_expiry(chain.first()?).map(SystemTime::from)
}
