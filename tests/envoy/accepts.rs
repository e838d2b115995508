//! A stock Envoy takes all that Navarch makes for it: every parity case and every proxy of it, fed
//! to one process.

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
use super::deliberate::{REFUSED_HERE, deliberate};
use super::{input, secrets};

/// What Envoy says of files and folders that a case names and this machine lacks: that is of the
/// machine, not of what is sent.
const NOT_HERE: [&str; 3] = [
    "Invalid path: /",
    "unable to open file '/",
    "cannot bind '/",
];

/// How many proxies of the cases there are at the least that are no applications with gRPC.
const MIN_PROXIES: usize = 250;

/// Everything one proxy gets, by type and name.
pub(crate) type Snapshot = BTreeMap<(ResourceType, ResourceName), Bytes>;

/// Serves whatever snapshot is set, to whoever asks. A change of the mesh config tells that another
/// is set.
#[derive(Default)]
struct Replay(Mutex<Arc<Snapshot>>);

impl Translator for Replay {
    fn names(&self, kind: ResourceType, view: &View<'_>) -> Vec<ResourceName> {
        let _ = view.mesh();
        self.0
            .lock()
            .keys()
            .filter(|(of, _)| *of == kind)
            .map(|(_, name)| name.clone())
            .collect()
    }

    fn resource(&self, kind: ResourceType, name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
        let _ = view.mesh();
        if kind == ResourceType::Secret {
            return Some(secrets::secret(name.as_str()).encode_to_vec().into());
        }
        self.0.lock().get(&(kind, name.clone())).cloned()
    }
}

/// Takes no pushes.
struct Ignore;

impl Sink for Ignore {
    fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {}
}

/// The server that feeds Envoy.
pub(crate) struct Feeder {
    push: PushHandle,
    replay: Arc<Replay>,
    connections: Arc<Connections>,
    address: SocketAddr,
    drain: CancellationToken,
    turn: i32,
    /// What was refused when the last feed ended: it stands until an answer of its type is taken.
    stale: Vec<String>,
}

impl Feeder {
    /// A server, and an Envoy that gets all from it.
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

    /// Lets Envoy go.
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

    /// The extensions that the connected Envoy says it has.
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

    /// Feeds a snapshot, waits until Envoy has answered all of it, and gives what it refused.
    pub(crate) async fn feed(&mut self, snapshot: Snapshot) -> Result<Vec<String>> {
        // Nothing at all is always taken, and ends the errors of earlier answers.
        let is_nothing = snapshot.is_empty();
        let follow: Vec<(ResourceType, ResourceName)> = snapshot
            .keys()
            .filter(|(kind, _)| matches!(kind, ResourceType::Endpoint | ResourceType::Route))
            .cloned()
            .collect();
        *self.replay.0.lock() = Arc::new(snapshot);

        self.turn += 1;
        let mesh = MeshConfig {
            proxy_listen_port: self.turn,
            ..MeshConfig::istio_defaults()
        };
        self.push.change(vec![Change::Mesh(Arc::new(mesh))]).await?;

        // The look queues behind the push, so all collections are out when it returns.
        self.push.inspect(|_| ()).await?;
        let end = Instant::now() + Duration::from_secs(20);

        loop {
            let Some(info) = self.connections.list().into_iter().next() else {
                anyhow::bail!("Envoy is gone")
            };

            let all: Vec<String> = info
                .types
                .iter()
                .filter_map(|kind| {
                    Some(format!(
                        "{}: {}",
                        kind.kind.short_name(),
                        kind.rejected.as_ref()?.message
                    ))
                })
                .collect();

            let rejected: Vec<String> = all
                .iter()
                .filter(|text| !self.stale.contains(text))
                .cloned()
                .collect();

            // What follows from a refused cluster or listener is never asked for.
            let is_subscribed = |(kind, name): &(ResourceType, ResourceName)| {
                info.types
                    .iter()
                    .any(|watch| watch.kind == *kind && watch.names.contains(name))
            };
            let settled = info
                .types
                .iter()
                .all(|kind| kind.in_sync || (kind.rejected.is_some() && !is_nothing));

            if settled && (!rejected.is_empty() || follow.iter().all(is_subscribed)) {
                self.stale = all;
                return Ok(rejected);
            }

            ensure!(
                Instant::now() < end,
                "Envoy does not answer, or not ask for all of {follow:?}: {:?}",
                info.types
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// All that a proxy of a case gets when it has a stock Envoy's extensions.
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

/// All that a proxy gets in a mesh, and the remarks about what it does not get.
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

    for kind in [ResourceType::Cluster, ResourceType::Listener] {
        gather(
            &mut engine,
            id,
            kind,
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
        .filter(|((kind, _), _)| *kind == ResourceType::Cluster)
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
        .filter(|((kind, _), _)| *kind == ResourceType::Listener)
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
    kind: ResourceType,
    interest: Interest,
    into: &mut Snapshot,
) {
    engine.subscribe(id, kind, interest);
    let shown = engine.shown(id, kind);
    let resources = shown.iter().flat_map(|shown| shown.resources.iter());
    into.extend(resources.map(|resource| ((kind, resource.name.clone()), resource.body.clone())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_envoy_takes_every_parity_case() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;

    // Listeners of cases are at all addresses of the machine; other tests have these ports at some.
    let _ports = ports::take(&[8_080, 8_090, 9_080]).await?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parity");
    let filter = std::env::var("PARITY").unwrap_or_default();
    let (mut feeder, envoy) = Feeder::with_envoy().await?;
    let extensions = feeder.extensions().await?;
    let codec = Codec::new();
    let mut fed = BTreeSet::new();
    let mut refused = BTreeMap::new();
    let mut counted = envoy.stats().await?.rejected();

    for case in Case::all(&here.join("cases"))
        .iter()
        .filter(|case| case.name.contains(&filter))
    {
        // What applications with gRPC get is not for Envoy.
        for proxy in case.proxies.iter().filter(|proxy| !proxy.is_grpc()) {
            let snapshot = translate(case, proxy, &extensions, &codec)?;
            let mut rejections = feeder
                .feed(snapshot)
                .await
                .with_context(|| format!("{} {}", case.name, proxy.name))?;

            // A later answer of a type hides an earlier refusal from the stream's state, but not
            // from Envoy's counter.
            let count = envoy.stats().await?.rejected();
            if count > counted && rejections.is_empty() {
                let output = envoy.output();
                let logged = output
                    .lines()
                    .rev()
                    .find(|line| line.contains(" rejected: "))
                    .unwrap_or_default();
                rejections.push(format!(
                    "an update was rejected, and a later one of its type taken: {logged}"
                ));
            }

            counted = count;
            let line = format!("{} {} {REFUSED_HERE}", case.name, proxy.name);
            fed.insert(line.clone());
            if !rejections.is_empty() {
                refused.insert(line, rejections);
            }

            // Nothing of one case is left when the next one comes.
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
    let known = deliberate(&refused.keys().cloned().collect(), |line| {
        fed.contains(line)
    });

    let is_here = |rejection: &String| !NOT_HERE.iter().any(|text| rejection.contains(text));
    refused.retain(|line, rejections| !known.contains(line) && rejections.iter().any(is_here));
    ensure!(refused.is_empty(), "Envoy refuses: {refused:#?}");
    Ok(())
}
