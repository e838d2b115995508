//! A stock Envoy accepts every resource that Navarch generates: all proxies of all parity cases,
//! sent to one Envoy process.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use navarch::api::mesh::MeshConfig;
use navarch::api::names::ResourceName;
use navarch::api::settings::Settings;
use navarch::envoy::EnvoyTranslator;
use navarch::push::engine::{Engine, Interest, ProxyId, PushCause, Sink};
use navarch::push::mesh_state::{Change, MeshState};
use navarch::push::proxy::{Locality, Proxy};
use navarch::push::resource::{Collection, ResourceType};
use navarch::push::view::{Translator, View};
use navarch::push::worker::{self, Debounce, PushHandle};
use navarch::xds::connections::Connections;
use navarch::xds::metrics::Metrics;
use navarch::xds::{Ads, AdsParts};
use navarch_proto::json::Codec;
use navarch_testkit::envoy::{AdsProtocol, Envoy, EnvoyConfig};
use navarch_testkit::ports;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use prost::Message;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ONE_AT_A_TIME;
use super::case::{Case, CaseProxy};
use super::deliberate::{REJECTED_HERE, deliberate};
use super::{input, secrets};

/// Envoy's errors about files and directories that a case names and this machine lacks. They depend
/// on the machine, not on the resource.
const NOT_HERE: [&str; 3] = [
    "Invalid path: /",
    "unable to open file '/",
    "cannot bind '/",
];

/// The minimum number of proxies in the cases, without proxyless gRPC applications.
const MIN_PROXIES: usize = 250;

/// Everything one proxy gets, by type and name.
pub(crate) type Snapshot = BTreeMap<(ResourceType, ResourceName), Bytes>;

/// Serves the current snapshot to all clients. A change of the mesh config signals a new snapshot:
/// `proxy_listen_port` is its number. All types of one push are of one snapshot, even if the next
/// one is already set.
#[derive(Default)]
struct Replay(Mutex<BTreeMap<i32, Arc<Snapshot>>>);

impl Replay {
    /// The snapshot that a view's mesh config signals; the first one is empty.
    fn snapshot(&self, view: &View<'_>) -> Arc<Snapshot> {
        let number = view.mesh().config.proxy_listen_port;
        self.0.lock().get(&number).cloned().unwrap_or_default()
    }

    /// Sets the snapshot with this number.
    fn set(&self, number: i32, snapshot: Snapshot) {
        self.0.lock().insert(number, Arc::new(snapshot));
    }

    /// Removes the snapshots before this number.
    fn remove_before(&self, number: i32) {
        self.0.lock().retain(|other, _| *other >= number);
    }
}

impl Translator for Replay {
    fn names(&self, resource_type: ResourceType, view: &View<'_>) -> Vec<ResourceName> {
        self.snapshot(view)
            .keys()
            .filter(|(of, _)| *of == resource_type)
            .map(|(_, name)| name.clone())
            .collect()
    }

    fn resource(
        &self,
        resource_type: ResourceType,
        name: &ResourceName,
        view: &View<'_>,
    ) -> Option<Bytes> {
        // The query depends on the mesh config whatever the type is.
        let snapshot = self.snapshot(view);
        if resource_type == ResourceType::Secret {
            return Some(secrets::secret(name.as_str()).encode_to_vec().into());
        }
        snapshot.get(&(resource_type, name.clone())).cloned()
    }
}

/// Discards pushes.
struct Ignore;

impl Sink for Ignore {
    fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {}
}

/// The server for Envoy.
pub(crate) struct Feeder {
    push: PushHandle,
    replay: Arc<Replay>,
    connections: Arc<Connections>,
    address: SocketAddr,
    drain: CancellationToken,
    turn: i32,
    /// Resources that were rejected at the end of the last feed: the error remains until a response
    /// of that type is accepted.
    stale: Vec<String>,
}

impl Feeder {
    /// Starts a server, and an Envoy that connects to it.
    pub(crate) async fn with_envoy() -> Result<(Self, Envoy)> {
        let feeder = Self::start().await?;
        let config = EnvoyConfig {
            kind: "sidecar".to_owned(),
            pod: "taster-1".to_owned(),
            namespace: "default".to_owned(),
            ip: "127.0.20.9".to_owned(),
            metadata: serde_json::json!({}),
            xds: feeder.address,
            protocol: AdsProtocol::Delta,
            sds: Some(secrets::serve().await?),
            token: None,
        };
        let envoy = Envoy::start(&config).await?;
        Ok((feeder, envoy))
    }

    /// Ends Envoy's streams.
    pub(crate) fn end(&self) {
        self.drain.cancel();
    }

    async fn start() -> Result<Self> {
        let replay = Arc::new(Replay::default());
        let (push, _) = worker::start(Settings::default(), Debounce::default(), replay.clone())?;
        push.full_sync().await?;
        push.wait_synced().await?;
        let drain = CancellationToken::new();
        let metrics = Metrics::register(&mut Registry::default());
        let ads = Ads::new(AdsParts::new(
            push.clone(),
            metrics,
            jiff::Timestamp::now(),
            drain.clone(),
        ));

        let connections = ads.connections();
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let address = listener.local_addr()?;
        tokio::spawn(ads.serve(listener));

        Ok(Self {
            push,
            replay,
            connections,
            address,
            drain,
            turn: 0,
            stale: Vec::new(),
        })
    }

    /// The extensions in the connected Envoy's node.
    pub(crate) async fn extensions(&self) -> Result<Arc<BTreeSet<Arc<str>>>> {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(info) = self.connections.list().into_iter().next() {
                return info
                    .proxy
                    .extensions
                    .clone()
                    .context("Envoy lists its extensions");
            }
            ensure!(Instant::now() < end, "Envoy does not connect");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Sends a snapshot, waits until Envoy has responded to all of it, and returns the rejected
    /// resources.
    pub(crate) async fn feed(&mut self, snapshot: Snapshot) -> Result<Vec<String>> {
        // The empty snapshot is always accepted, and clears the errors of earlier responses.
        let is_nothing = snapshot.is_empty();
        let follow: Vec<(ResourceType, ResourceName)> = snapshot
            .keys()
            .filter(|(resource_type, _)| {
                matches!(resource_type, ResourceType::Endpoint | ResourceType::Route)
            })
            .cloned()
            .collect();

        self.turn += 1;
        self.replay.set(self.turn, snapshot);
        let mesh = MeshConfig {
            proxy_listen_port: self.turn,
            ..MeshConfig::istio_defaults()
        };
        self.push.change(vec![Change::Mesh(Arc::new(mesh))]).await?;

        let end = Instant::now() + Duration::from_secs(20);
        let revision = self.pushed(end).await?;
        self.replay.remove_before(self.turn);

        loop {
            // Before the state is read: what is sent in between shows in it as unanswered.
            let mut is_unsent = false;
            self.connections
                .each_with_changes_since(revision, |progress| {
                    is_unsent |= progress.unsent.is_some();
                });

            let Some(info) = self.connections.list().into_iter().next() else {
                anyhow::bail!("Envoy has disconnected")
            };

            let all: Vec<String> = info
                .types
                .iter()
                .filter_map(|watch| {
                    Some(format!(
                        "{}: {}",
                        watch.resource_type.short_name(),
                        watch.rejected.as_ref()?.message
                    ))
                })
                .collect();

            let rejected: Vec<String> = all
                .iter()
                .filter(|text| !self.stale.contains(text))
                .cloned()
                .collect();

            // Envoy does not subscribe to the resources of a rejected cluster or listener.
            let is_subscribed = |(resource_type, name): &(ResourceType, ResourceName)| {
                info.types.iter().any(|watch| {
                    watch.resource_type == *resource_type && watch.names.contains(name)
                })
            };

            let settled = !is_unsent
                && info
                    .types
                    .iter()
                    .all(|watch| watch.in_sync || (watch.rejected.is_some() && !is_nothing));

            if settled && (!rejected.is_empty() || follow.iter().all(is_subscribed)) {
                self.stale = all;
                return Ok(rejected);
            }

            ensure!(
                Instant::now() < end,
                "Envoy does not respond, or did not subscribe to all of {follow:?}: {:?}",
                info.types
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until the current snapshot is pushed, and returns its revision. The push thread may
    /// look for more changes before it pushes.
    async fn pushed(&self, end: Instant) -> Result<u64> {
        let number = self.turn;
        loop {
            let pushed = self.push.inspect(move |inspect| {
                let context = inspect.engine.context();
                (context.mesh.config.proxy_listen_port == number).then(|| inspect.engine.revision())
            });

            if let Some(revision) = pushed.await? {
                return Ok(revision);
            }

            ensure!(Instant::now() < end, "snapshot {number} is not pushed");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// The resources of a proxy of a case, with a stock Envoy's extensions.
fn translate(
    case: &Case,
    proxy: &CaseProxy,
    extensions: &Arc<BTreeSet<Arc<str>>>,
    codec: &Codec,
) -> Result<Snapshot> {
    let (settings, changes) = input::read(case).map_err(anyhow::Error::msg)?;
    let mut node = Proxy::parse(
        &proxy.node_id(),
        proxy.metadata(),
        Locality::parse(proxy.locality()),
    )?;
    node.extensions = Some(extensions.clone());
    Ok(all_of(settings, changes, node, codec)?.0)
}

/// All resources of a proxy in a mesh, and the remarks about omitted ones.
pub(crate) fn all_of(
    settings: Settings,
    changes: Vec<Change>,
    proxy: Proxy,
    codec: &Codec,
) -> Result<(Snapshot, Vec<String>)> {
    let mut mesh_state = MeshState::new(settings);
    mesh_state.apply(changes);
    let mut engine = Engine::new(mesh_state.context(), Arc::new(EnvoyTranslator));
    let id = engine.connect(Arc::new(proxy), Arc::new(Ignore));
    let mut snapshot = Snapshot::new();

    for resource_type in [ResourceType::Cluster, ResourceType::Listener] {
        gather(
            &mut engine,
            id,
            resource_type,
            Interest {
                wildcard: true,
                ..Interest::default()
            },
            &mut snapshot,
        );
    }

    let mut clusters = BTreeSet::new();
    for ((_, name), body) in snapshot
        .iter()
        .filter(|((resource_type, _), _)| *resource_type == ResourceType::Cluster)
    {
        let cluster = codec.any_to_json(ResourceType::Cluster.type_url(), body)?;
        if cluster.get("type").is_some_and(|kind| kind == "EDS") {
            clusters.insert(name.clone());
        }
    }

    let endpoints = Interest {
        wildcard: false,
        names: Arc::new(clusters),
    };
    let mut routes = BTreeSet::new();
    for ((_, _), body) in snapshot
        .iter()
        .filter(|((resource_type, _), _)| *resource_type == ResourceType::Listener)
    {
        let listener = codec
            .any_to_json(ResourceType::Listener.type_url(), body)?
            .to_string();
        let named = listener
            .split("\"routeConfigName\":\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next());
        routes.extend(named.map(ResourceName::new));
    }

    let routes = Interest {
        wildcard: false,
        names: Arc::new(routes),
    };
    gather(
        &mut engine,
        id,
        ResourceType::Endpoint,
        endpoints,
        &mut snapshot,
    );

    gather(&mut engine, id, ResourceType::Route, routes, &mut snapshot);
    let remarks = engine
        .remarks()
        .into_iter()
        .map(|remark| remark.text.to_string())
        .collect();

    Ok((snapshot, remarks))
}

fn gather(
    engine: &mut Engine,
    id: ProxyId,
    resource_type: ResourceType,
    interest: Interest,
    into: &mut Snapshot,
) {
    engine.subscribe(id, resource_type, interest);
    let shown = engine.published(id, resource_type);
    let resources = shown.iter().flat_map(|shown| shown.resources.iter());
    into.extend(resources.map(|resource| {
        (
            (resource_type, resource.name.clone()),
            resource.body.clone(),
        )
    }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_envoy_accepts_every_parity_case() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;

    // Listeners of cases bind all addresses of the machine; other tests use these ports on some
    // addresses.
    let _ports = ports::take(&[8_080, 8_090, 9_080]).await?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parity");
    let filter = std::env::var("PARITY").unwrap_or_default();
    let (mut feeder, envoy) = Feeder::with_envoy().await?;
    let extensions = feeder.extensions().await?;
    let codec = Codec::new();
    let mut fed = BTreeSet::new();
    let mut rejected = BTreeMap::new();
    let mut counted = envoy.stats().await?.rejected();

    for case in Case::all(&here.join("cases"))
        .iter()
        .filter(|case| case.name.contains(&filter))
    {
        // Resources of proxyless gRPC applications are not for Envoy.
        for proxy in case.proxies.iter().filter(|proxy| !proxy.is_grpc()) {
            let snapshot = translate(case, proxy, &extensions, &codec)?;
            let mut rejections = feeder
                .feed(snapshot)
                .await
                .with_context(|| format!("{} {}", case.name, proxy.name))?;

            // A later response of a type hides an earlier rejection in the stream's state, but not
            // in Envoy's counter.
            let count = envoy.stats().await?.rejected();
            if count > counted && rejections.is_empty() {
                let output = envoy.output();
                let logged = output
                    .lines()
                    .rev()
                    .find(|line| line.contains(" rejected: "))
                    .unwrap_or_default();
                rejections.push(format!(
                    "an update was rejected, and a later one of its type accepted: {logged}"
                ));
            }

            counted = count;
            let line = format!("{} {} {REJECTED_HERE}", case.name, proxy.name);
            fed.insert(line.clone());
            if !rejections.is_empty() {
                rejected.insert(line, rejections);
            }

            // Remove all resources before the next case.
            feeder.feed(Snapshot::new()).await?;
        }
    }

    feeder.end();
    let least = if filter.is_empty() { MIN_PROXIES } else { 1 };
    ensure!(
        fed.len() >= least,
        "PARITY={filter:?}: {} proxies were fed",
        fed.len()
    );
    let known = deliberate(&rejected.keys().cloned().collect(), |line| {
        fed.contains(line)
    });

    let is_here = |rejection: &String| !NOT_HERE.iter().any(|text| rejection.contains(text));
    rejected.retain(|line, rejections| !known.contains(line) && rejections.iter().any(is_here));
    ensure!(rejected.is_empty(), "Envoy rejects: {rejected:#?}");
    Ok(())
}
