//! The endpoints of a ServiceEntry: listed, selected, or the host itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::instance::Instance;
use super::location::Location;
use super::mesh_inputs::MeshInputs;
use super::model::{Discoverability, Endpoint, Health, Resolution, Service, TlsMode, Workload};
use super::service_entry::{EntryPort, entry_ports};
use super::workload_entry::{UNIX_PREFIX, instance_of_endpoint};
use navarch_api::istio::{Resolution as DeclaredResolution, ServiceEntry};
use navarch_api::names::{Hostname, PortName};
use navarch_api::object::{NamespacedName, Object, ObjectMeta};
use navarch_api::validation::ServedLists;

/// The endpoints of a ServiceEntry, in the order in which they are declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EntryEndpoints {
    /// The same for each of its services.
    Listed(Vec<Arc<Endpoint>>),
    /// Each service's own host, to be resolved by DNS.
    OwnHost(Arc<Workload>, Vec<HostPort>),
}

/// A port of a service whose endpoint is its own host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPort {
    /// The name of the service port.
    name: PortName,
    /// The number of the service port.
    number: u16,
    /// The port to connect to.
    target: u16,
}

impl EntryEndpoints {
    #[must_use]
    pub(super) fn of_host(&self, host: &Hostname) -> Vec<Arc<Endpoint>> {
        match self {
            Self::Listed(endpoints) => endpoints.clone(),
            Self::OwnHost(workload, ports) => {
                let endpoint = |port: &HostPort| Endpoint {
                    addresses: vec![Arc::from(host.as_str())],
                    port_name: port.name.clone(),
                    legacy_port_key: port.number,
                    port: port.target,
                    workload: workload.clone(),
                    health: Health::Unknown,
                    send_unhealthy: false,
                    weight: 0,
                    discoverability: Discoverability::Mesh,
                };
                ports.iter().map(|port| Arc::new(endpoint(port))).collect()
            }
        }
    }

    /// The listed endpoints; empty if each service's own host is the endpoint.
    #[must_use]
    pub(super) fn listed(&self) -> &[Arc<Endpoint>] {
        match self {
            Self::Listed(endpoints) => endpoints,
            Self::OwnHost(..) => &[],
        }
    }
}

/// The endpoints that a ServiceEntry without selector declares.
#[must_use]
pub(super) fn declared_endpoints(
    object: &Object<ServiceEntry>,
    mesh_inputs: &MeshInputs,
) -> EntryEndpoints {
    let meta = &object.meta;
    let spec = &object.spec;
    let ports = entry_ports(spec);
    let by_dns = matches!(
        spec.resolution,
        DeclaredResolution::Dns | DeclaredResolution::DnsRoundRobin
    );

    if spec.endpoints.is_empty() && by_dns {
        let workload = Workload {
            namespace: meta.key.namespace.clone(),
            name: meta.key.name.clone(),
            location: Arc::new(Location {
                cluster: mesh_inputs.settings.cluster_id.clone(),
                ..Location::default()
            }),
            tls_mode: TlsMode::Disabled,
            ..Workload::default()
        };

        let port = |port: EntryPort| HostPort {
            target: port.target.unwrap_or(port.port.port),
            name: port.port.name,
            number: port.port.port,
        };
        return EntryEndpoints::OwnHost(Arc::new(workload), ports.into_iter().map(port).collect());
    }

    let instance = |(index, endpoint)| {
        // Endpoints have no name, so they are numbered, as in Istio.
        let name = Arc::from(format!("{}-{index}", meta.key.name));
        let meta = ObjectMeta {
            key: NamespacedName::of(meta.key.namespace.clone(), name),
            ..ObjectMeta::default()
        };
        instance_of_endpoint(endpoint, &meta, mesh_inputs)
    };

    let served = ServedLists::of(spec, spec.endpoints.len()).endpoints;
    let instances = spec.endpoints.iter().take(served).enumerate().map(instance);
    EntryEndpoints::Listed(
        instances
            .flat_map(|instance| bind(&instance, &ports))
            .collect(),
    )
}

/// The endpoints of a ServiceEntry that selects these workloads, and the number of workloads beyond
/// the limit, which are omitted.
#[must_use]
pub(super) fn selected_endpoints(
    spec: &ServiceEntry,
    mut instances: Vec<Arc<Instance>>,
) -> (EntryEndpoints, usize) {
    let ports = entry_ports(spec);
    let by_dns = matches!(
        spec.resolution,
        DeclaredResolution::Dns | DeclaredResolution::DnsRoundRobin
    );
    instances.retain(|instance| by_dns || !instance.only_by_dns);
    instances.sort_by(|a, b| {
        (a.kind, &a.name, &a.workload.location.cluster).cmp(&(
            b.kind,
            &b.name,
            &b.workload.location.cluster,
        ))
    });

    let served = ServedLists::of(spec, instances.len()).endpoints;
    let left_out = instances.len() - served;
    let endpoints = instances
        .iter()
        .take(served)
        .flat_map(|instance| bind(instance, &ports));

    (EntryEndpoints::Listed(endpoints.collect()), left_out)
}

/// One endpoint per port. A socket has no port; otherwise the workload's port of that name precedes
/// the target port.
fn bind(instance: &Instance, ports: &[EntryPort]) -> Vec<Arc<Endpoint>> {
    let socket = match instance.addresses.as_slice() {
        [address] => address.strip_prefix(UNIX_PREFIX),
        _ => None,
    };
    let endpoint = |EntryPort { port, target }: &EntryPort| {
        let own = instance
            .ports
            .get(port.name.as_str())
            .copied()
            .filter(|number| *number > 0);
        let number = own.or(*target).unwrap_or(port.port);
        let mut endpoint = instance.endpoint(&port.name, port.port, number);
        if let Some(path) = socket {
            endpoint.addresses = vec![Arc::from(path)];
            endpoint.port = 0;
        }
        Arc::new(endpoint)
    };

    ports.iter().map(endpoint).collect()
}

/// The endpoints of all services of one key, each with those of its ServiceEntry, the oldest
/// ServiceEntry first.
///
/// Of endpoints that are resolved by DNS round robin, only one per port is used.
#[must_use]
pub(super) fn merge_endpoints<'a>(
    declared: impl IntoIterator<Item = (&'a Service, &'a EntryEndpoints)>,
) -> Vec<Arc<Endpoint>> {
    let mut merged: Vec<Arc<Endpoint>> = Vec::new();
    let mut ports = BTreeSet::new();
    for (service, endpoints) in declared {
        for endpoint in endpoints.of_host(&service.key.hostname) {
            let is_first = ports.insert(endpoint.legacy_port_key);
            if is_first || service.resolution != Resolution::DnsRoundRobinLb {
                merged.push(endpoint);
            }
        }
    }
    merged
}
