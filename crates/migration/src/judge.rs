//! The verdicts on requests in a mesh: the proxies of its pods, each with the resources that it
//! would get, and walks through them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use navarch_answers::client::Client;
use navarch_answers::mirror::Mirror;
use navarch_answers::node_message::NodeMessage;
use navarch_answers::received::ReadResources;
use navarch_answers::why_not::{Origin, Others, ProxySnapshot, Request, why_not};
use navarch_api::mesh::MeshConfig;
use navarch_api::revision::Revision;
use navarch_api::settings::Settings;
use navarch_push::context::PushContext;
use navarch_push::proxy::{Proxy, ProxyKind};
use serde_json::{Map, Value};

use super::objects::{Objects, POD, WORKLOAD_ENTRY, items, members, name, namespace, text};
use super::pods::{DataPlane, Owner, is_alive, owner, proxies};
use super::requests::RequestKind;
use super::snapshot::Snapshot;
use super::verdict::Verdict;

/// How variables begin that the agent of a sidecar sends as node metadata.
const META: &str = "ISTIO_META_";
/// The variable with the proxy config of a sidecar.
const PROXY_CONFIG: &str = "PROXY_CONFIG";

/// The settings of the mesh that are not objects.
#[derive(Clone, Debug)]
pub struct MeshSettings {
    /// Those of the control plane.
    pub settings: Settings,
    /// The mesh config of the control plane.
    pub mesh: MeshConfig,
    /// The tags of the control plane's revision, which [`Settings`] has.
    pub tags: BTreeSet<String>,
    /// The namespaces in which the control plane trusts ztunnel: its own one, and those of
    /// `CA_TRUSTED_NODE_ACCOUNTS`.
    pub ztunnel_namespaces: BTreeSet<String>,
}

impl MeshSettings {
    /// The trust domain of identities.
    pub(crate) fn trust_domain(&self) -> &str {
        &self.mesh.trust_domain
    }

    /// The namespace whose policies apply to all.
    pub(crate) fn root(&self) -> &str {
        &self.mesh.root_namespace
    }

    /// The revision of the control plane, which selects objects.
    pub(crate) fn revision(&self) -> Revision<'_> {
        Revision {
            name: &self.settings.clusters.revision,
            tags: &self.tags,
        }
    }

    /// The domain of services.
    pub(crate) fn domain(&self) -> &str {
        &self.settings.domain_suffix
    }
}

/// A mesh at one moment.
pub(crate) struct Judge {
    context: Arc<PushContext>,
    proxies: Vec<ProxySnapshot>,
    /// Indexes of `proxies` by address. ztunnels have none.
    by_address: BTreeMap<IpAddr, usize>,
    /// One pod for each data plane of a workload.
    origins: BTreeMap<Owner, BTreeMap<DataPlane, Origin>>,
    /// The addresses of workloads outside of Kubernetes, whose proxies are not known.
    entries: BTreeSet<String>,
    /// The decoded resources of the proxies.
    read: RefCell<ReadResources>,
    /// Why objects could not be read.
    pub(crate) problems: Vec<String>,
}

impl Judge {
    /// The mesh of these objects.
    pub(crate) fn of(objects: &Objects, settings: &MeshSettings) -> Self {
        let Snapshot { context, problems } = Snapshot::of(objects, settings);

        let pods = objects.of(POD).map(|(_, pod)| pod);
        let pods: Vec<&Value> = pods.filter(|pod| is_alive(pod)).collect();
        let proxied = pods.iter().filter_map(|pod| proxy_of(pod, settings));
        let ztunnels = ztunnels(&pods, settings);
        let clients: Vec<Client> = proxied.chain(ztunnels).map(Client::fresh).collect();

        let mirror = Mirror::of(&context, clients);
        let proxies: Vec<ProxySnapshot> = mirror
            .clients()
            .enumerate()
            .map(|(index, client)| ProxySnapshot {
                proxy: client.proxy.clone(),
                had: mirror.had(index),
            })
            .collect();
        let by_address = proxies
            .iter()
            .enumerate()
            .filter(|(_, place)| place.proxy.kind != ProxyKind::Ztunnel)
            .flat_map(|(index, place)| place.proxy.ips.iter().map(move |ip| (*ip, index)))
            .collect();

        let mut judge = Self {
            context,
            proxies,
            by_address,
            origins: BTreeMap::new(),
            entries: BTreeSet::new(),
            read: RefCell::default(),
            problems,
        };
        for pod in pods {
            judge.add_origin(pod, settings);
        }
        let addresses = objects.of(WORKLOAD_ENTRY);
        judge.entries = addresses
            .map(|(_, entry)| text(entry, "/spec/address").to_owned())
            .collect();
        judge
    }

    /// Adds a pod as a source, unless its workload has one with the same data plane.
    fn add_origin(&mut self, pod: &Value, settings: &MeshSettings) {
        let plane = DataPlane::of(pod);
        let origin = match plane {
            DataPlane::Sidecar | DataPlane::Gateway => {
                let pod_name = format!("{}.{}", name(pod), namespace(pod));
                let place = self
                    .proxies
                    .iter()
                    .find(|place| *place.proxy.name == *pod_name);
                place.cloned().map(Origin::Proxy)
            }
            DataPlane::Ambient => {
                node(pod, "sidecar", settings).map(|proxy| Origin::Ambient(Arc::new(proxy)))
            }
            DataPlane::Outside => {
                node(pod, "sidecar", settings).map(|proxy| Origin::Outside(Arc::new(proxy)))
            }
            DataPlane::Waypoint | DataPlane::Ztunnel => None,
        };
        if let Some(origin) = origin {
            let of_owner = self.origins.entry(owner(pod)).or_default();
            of_owner.entry(plane).or_insert(origin);
        }
    }

    /// The verdicts on a request, by the data planes of the pods of its source.
    pub(crate) fn verdicts(&self, kind: &RequestKind) -> Vec<Verdict> {
        let request = Request {
            host: kind.host.clone(),
            port: kind.port,
            method: kind.method.clone(),
            path: kind.path.clone(),
            headers: kind.headers.clone(),
            claims: kind.claims.clone(),
            to_all: true,
        };
        let at = |ip: IpAddr| {
            let index = self.by_address.get(&ip)?;
            self.proxies.get(*index).cloned()
        };
        let of_kind = |kind: ProxyKind| -> Vec<ProxySnapshot> {
            let all = self.proxies.iter();
            all.filter(|place| place.proxy.kind == kind)
                .cloned()
                .collect()
        };
        let waypoints = || of_kind(ProxyKind::Waypoint);
        let ztunnels = || of_kind(ProxyKind::Ztunnel);
        let others = Others {
            at: &at,
            waypoints: &waypoints,
            ztunnels: &ztunnels,
            read: &self.read,
        };

        let origins = self.origins.get(&kind.source).into_iter();
        origins
            .flat_map(BTreeMap::values)
            .map(|origin| {
                let answer = why_not(&self.context, origin, &request, others);
                self.at_known_workloads(Verdict::of(answer))
            })
            .collect()
    }

    /// The verdict, unless it depends on the proxy of a workload outside of Kubernetes.
    fn at_known_workloads(&self, verdict: Verdict) -> Verdict {
        let Verdict::Passes { destinations } = &verdict else {
            return verdict;
        };
        let entry = self.entries.iter().find(|entry| {
            destinations.keys().any(|address| {
                address
                    .rsplit_once(':')
                    .is_some_and(|(host, _)| host == *entry)
            })
        });
        match entry {
            Some(entry) => Verdict::NotJudged {
                reason: format!("whether the WorkloadEntry at {entry} allows it"),
            },
            None => verdict,
        }
    }
}

/// The proxy of a pod; `None` if it has none, or no address.
pub(crate) fn proxy_of(pod: &Value, settings: &MeshSettings) -> Option<Proxy> {
    let kind = match DataPlane::of(pod) {
        DataPlane::Sidecar => "sidecar",
        DataPlane::Gateway => "router",
        DataPlane::Waypoint => "waypoint",
        DataPlane::Ambient | DataPlane::Outside | DataPlane::Ztunnel => return None,
    };
    node(pod, kind, settings)
}

/// The proxy that the agent of a pod would connect.
fn node(pod: &Value, kind: &str, settings: &MeshSettings) -> Option<Proxy> {
    let listed = items(pod, "/status/podIPs").map(|ip| text(ip, "/ip"));
    let mut ips: Vec<IpAddr> = listed.filter_map(|ip| ip.parse().ok()).collect();
    if ips.is_empty() {
        ips.extend(text(pod, "/status/podIP").parse::<IpAddr>().ok());
    }
    let account = match text(pod, "/spec/serviceAccountName") {
        "" => "default",
        account => account,
    };

    let message = NodeMessage {
        kind,
        namespace: namespace(pod),
        name: name(pod),
        ips: &ips,
        labels: members(pod, "/metadata/labels")
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        node: text(pod, "/spec/nodeName"),
        service_account: account,
        locality: "",
        further: variables(pod),
    };
    message.proxy(&settings.settings)
}

/// The node metadata in the variables of a pod's proxy.
fn variables(pod: &Value) -> Map<String, Value> {
    let mut metadata = Map::new();
    for variable in proxies(pod).flat_map(|container| items(container, "/env")) {
        let value = text(variable, "/value");
        let key = text(variable, "/name");
        if let Some(key) = key.strip_prefix(META) {
            metadata.insert(key.to_owned(), Value::from(value));
        } else if key == PROXY_CONFIG
            && let Ok(config @ Value::Object(_)) = serde_json::from_str(value)
        {
            for (key, value) in members(&config, "/proxyMetadata") {
                if let Some(key) = key.strip_prefix(META) {
                    metadata.insert(key.to_owned(), value.clone());
                }
            }
            metadata.insert(PROXY_CONFIG.to_owned(), config);
        }
    }
    metadata
}

/// A ztunnel for each node with pods in ambient mode.
fn ztunnels(pods: &[&Value], settings: &MeshSettings) -> Vec<Proxy> {
    let nodes: BTreeSet<&str> = pods
        .iter()
        .filter(|pod| DataPlane::of(pod) == DataPlane::Ambient)
        .map(|pod| text(pod, "/spec/nodeName"))
        .filter(|node| !node.is_empty())
        .collect();
    let trusted: BTreeMap<&str, &str> = pods
        .iter()
        .filter(|pod| DataPlane::of(pod) == DataPlane::Ztunnel)
        .filter(|pod| settings.ztunnel_namespaces.contains(namespace(pod)))
        .map(|pod| (text(pod, "/spec/nodeName"), namespace(pod)))
        .collect();

    let system = settings.settings.system_namespace.as_str();
    let of_node = |node| {
        let message = NodeMessage {
            kind: "ztunnel",
            namespace: trusted.get(node).copied().unwrap_or(system),
            name: "ztunnel",
            ips: &[IpAddr::from(Ipv4Addr::LOCALHOST)],
            labels: Map::new(),
            node,
            service_account: "ztunnel",
            locality: "",
            further: Map::new(),
        };
        message.proxy(&settings.settings)
    };
    nodes.into_iter().filter_map(of_node).collect()
}
