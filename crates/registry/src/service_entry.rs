//! The services that a ServiceEntry declares (Istio's
//! `serviceregistry/serviceentry/conversion.go`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::canonical_service::{
    CANONICAL_NAME_LABEL, CANONICAL_REVISION_LABEL, canonical_name, canonical_revision,
};
use super::export_to::visibility_in;
use super::kubernetes_service::UNSPECIFIED;
use super::mesh_inputs::MeshInputs;
use super::model::{
    ExportTo, KubernetesAttributes, Labels, Registry, Resolution, Service, ServiceKey, ServicePort,
};
use super::protocol::Protocol;
use super::traffic_distribution::traffic_distribution;
use navarch_api::istio::{Location, Resolution as DeclaredResolution, ServiceEntry};
use navarch_api::names::{Hostname, PortName};
use navarch_api::object::{Kind, Object, ObjectMeta, ObjectRef};
use navarch_api::validation::ServedLists;
use navarch_base::cidr::Cidr;
use navarch_base::small_map::SmallMap;

const CONNECT_ANNOTATION: &str = "istio.io/connect-strategy";
/// The label that disables address allocation for a ServiceEntry.
const AUTO_ALLOCATE_LABEL: &str = "networking.istio.io/enable-autoallocate-ip";

/// The addresses allocated to a host, IPv4 and IPv6.
type AllocatedPair = (Option<IpAddr>, Option<IpAddr>);

/// A port of a ServiceEntry with valid numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryPort {
    pub port: ServicePort,
    /// The port of the endpoints, if it differs.
    pub target: Option<u16>,
}

/// The services of a ServiceEntry, one for each host and address, in that order.
#[must_use]
pub(super) fn convert_service_entry(
    object: &Object<ServiceEntry>,
    namespace: Option<&ObjectMeta>,
    mesh_inputs: &MeshInputs,
) -> Vec<Service> {
    let template = template(object, namespace, mesh_inputs);
    let served = ServedLists::of(&object.spec, 0);
    let addresses = addresses(&object.spec, served.addresses);
    let allocated = allocated(object, mesh_inputs);
    let mut services = Vec::new();
    let mut seen = BTreeSet::new();

    for host in object.spec.hosts.iter().take(served.hosts) {
        let (auto_ipv4, auto_ipv6) = allocated.get(host.as_str()).copied().unwrap_or_default();

        for address in &addresses {
            if !seen.insert((host, address)) {
                continue;
            }

            let hostname = Hostname::new(host);
            services.push(Service {
                name: Arc::from(host.as_str()),
                key: ServiceKey {
                    namespace: object.meta.key.namespace.clone(),
                    hostname,
                },
                default_address: address.clone(),
                auto_ipv4,
                auto_ipv6,
                ..template.clone()
            });
        }
    }

    services
}

/// The fields that all services of a ServiceEntry share.
fn template(
    object: &Object<ServiceEntry>,
    namespace: Option<&ObjectMeta>,
    mesh_inputs: &MeshInputs,
) -> Service {
    let meta = &object.meta;
    let spec = &object.spec;
    let ports = entry_ports(spec);
    let resolution = resolution_of(spec.resolution);
    let renamed = ports
        .iter()
        .filter_map(|port| Some((port.port.port, port.target?)));
    let no_labels = Labels::new();

    let policies = mesh_inputs
        .visibility
        .as_ref()
        .filter(|visibility| visibility.apply_to_sidecars);
    let visibility = visibility_in(policies, namespace.map_or(&no_labels, |meta| &meta.labels));
    let export =
        |items: &[String]| ExportTo::parse(items.iter().map(String::as_str), &meta.key.namespace);
    let export_to = export(&spec.export_to).capped(
        visibility,
        &meta.key.namespace,
        &export(&mesh_inputs.default_export),
    );

    let mut accounts: Vec<Arc<str>> = spec
        .subject_alt_names
        .iter()
        .map(|name| Arc::from(name.as_str()))
        .collect();
    accounts.sort_unstable();
    accounts.dedup();

    let selector = spec
        .workload_selector
        .iter()
        .flat_map(|selector| &selector.labels);

    Service {
        key: ServiceKey {
            namespace: meta.key.namespace.clone(),
            hostname: Hostname::default(),
        },
        origin: ObjectRef {
            kind: Kind::ServiceEntry,
            name: meta.key(),
        },
        name: Arc::default(),
        registry: Registry::External,
        created: meta.created,
        labels: labels(object, mesh_inputs),
        passthrough_target_ports: match resolution {
            Resolution::Passthrough => renamed.collect(),
            Resolution::ClientSideLb
            | Resolution::DnsLb
            | Resolution::DnsRoundRobinLb
            | Resolution::Alias
            | Resolution::DynamicDns => SmallMap::default(),
        },
        ports: ports.into_iter().map(|port| port.port).collect(),
        resolution,
        mesh_external: spec.location == Location::MeshExternal,
        export_to,
        default_address: Arc::default(),
        cluster_vips: SmallMap::default(),
        auto_ipv4: None,
        auto_ipv6: None,
        selector: selector
            .map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str())))
            .collect(),
        service_accounts: accounts,
        aliases: Vec::new(),
        external_addresses: SmallMap::default(),
        external_ports: SmallMap::default(),
        races_connections: races_connections(meta),
        kubernetes: KubernetesAttributes {
            traffic_distribution: traffic_distribution(None, meta, namespace),
            ..KubernetesAttributes::default()
        },
    }
}

/// Whether connections to all addresses of a DNS response are tried in parallel.
fn races_connections(meta: &ObjectMeta) -> bool {
    let strategy = meta.annotations.get(CONNECT_ANNOTATION);
    strategy.is_some_and(|strategy| strategy.eq_ignore_ascii_case("RACE_FIRST_TCP_CONNECT"))
}

/// The labels of the services: those of the object and, if enabled, the canonical name and revision
/// of services outside the mesh.
fn labels(object: &Object<ServiceEntry>, mesh_inputs: &MeshInputs) -> Labels {
    let mut labels = object.meta.labels.clone();
    let external = object.spec.location == Location::MeshExternal;
    if external && mesh_inputs.settings.label_external_canonical_services {
        let name = canonical_name(&labels)
            .unwrap_or(&object.meta.key.name)
            .clone();
        let revision = canonical_revision(&labels)
            .cloned()
            .unwrap_or_else(|| Arc::from("latest"));
        labels.extend([
            (CANONICAL_NAME_LABEL.into(), name),
            (CANONICAL_REVISION_LABEL.into(), revision),
        ]);
    }
    labels
}

/// The ports. Ports with an invalid number are omitted (validation rejects them).
#[must_use]
pub(super) fn entry_ports(spec: &ServiceEntry) -> Vec<EntryPort> {
    let number = |number: u32| u16::try_from(number).ok().filter(|number| *number != 0);
    let ports = spec.ports.iter().filter_map(|port| {
        let protocol = Protocol::parse(&port.protocol);
        let service = ServicePort {
            name: PortName::new(&port.name),
            port: number(port.number)?,
            protocol,
        };
        Some(EntryPort {
            port: service,
            target: number(port.target_port),
        })
    });
    ports.collect()
}

/// How endpoints are found.
fn resolution_of(declared: DeclaredResolution) -> Resolution {
    match declared {
        DeclaredResolution::None => Resolution::Passthrough,
        DeclaredResolution::Static => Resolution::ClientSideLb,
        DeclaredResolution::Dns => Resolution::DnsLb,
        DeclaredResolution::DnsRoundRobin => Resolution::DnsRoundRobinLb,
        DeclaredResolution::DynamicDns => Resolution::DynamicDns,
    }
}

/// The addresses, each of which gets a service: `0.0.0.0` if none is declared, else the valid ones
/// of the first `most`.
fn addresses(spec: &ServiceEntry, most: usize) -> Vec<Arc<str>> {
    if spec.addresses.is_empty() {
        return vec![Arc::from(UNSPECIFIED)];
    }

    let address = |text: &String| {
        if text.parse::<IpAddr>().is_ok() {
            return Some(Arc::from(text.as_str()));
        }
        let range = Cidr::parse(text)?;
        // A range of one address is that address.
        Some(if range.is_single() {
            Arc::from(range.address.to_string())
        } else {
            Arc::from(text.as_str())
        })
    };

    spec.addresses
        .iter()
        .take(most)
        .filter_map(address)
        .collect()
}

/// The addresses that were allocated to hosts, the last of each family.
fn allocated<'a>(
    object: &'a Object<ServiceEntry>,
    mesh_inputs: &MeshInputs,
) -> BTreeMap<&'a str, AllocatedPair> {
    let spec = &object.spec;
    let opted_out = object
        .meta
        .labels
        .get(AUTO_ALLOCATE_LABEL)
        .is_some_and(|value| value.eq_ignore_ascii_case("false"));
    let allowed = mesh_inputs.settings.ip_autoallocate
        && spec.resolution != DeclaredResolution::None
        && spec.addresses.is_empty()
        && !opted_out;

    let mut found: BTreeMap<&str, AllocatedPair> = BTreeMap::new();

    for address in spec.allocated.iter().filter(|_| allowed) {
        let (v4, v6) = found.entry(&address.host).or_default();
        match address.value.parse() {
            Ok(ip @ IpAddr::V4(_)) => *v4 = Some(ip),
            Ok(ip @ IpAddr::V6(_)) => *v6 = Some(ip),
            Err(_) => {}
        }
    }

    found
}
