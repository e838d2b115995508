//! WorkloadEntries, and the endpoints within ServiceEntries, which have the same form.

use std::net::IpAddr;
use std::sync::Arc;

use super::identity::spiffe_id;
use super::instance::{Instance, InstanceKind};
use super::locality::locality_of_labels;
use super::mesh_inputs::MeshInputs;
use super::model::{Health, Labels, TlsMode, Workload};
use super::workload_labels::WorkloadLocation;
use super::workload_name::workload_name_of_entry;
use navarch_api::istio::WorkloadEntry;
use navarch_api::names::{NetworkId, ServiceAccount};
use navarch_api::object::{Object, ObjectMeta};
use navarch_api::settings::Settings;

/// The annotation of WorkloadEntries whose health is checked.
const HEALTH_ANNOTATION: &str = "proxy.istio.io/health-checks-enabled";
/// The prefix of the address of a Unix socket.
pub(super) const UNIX_PREFIX: &str = "unix://";

/// A WorkloadEntry as an instance. Labels of the metadata override those of the spec.
#[must_use]
pub(super) fn instance_of_entry(
    object: &Object<WorkloadEntry>,
    mesh_inputs: &MeshInputs,
) -> Instance {
    let mut labels = labels_of_spec(&object.spec);
    labels.extend(
        object
            .meta
            .labels
            .iter()
            .map(|(key, value)| (key.clone(), value.clone())),
    );
    build(&object.spec, &object.meta, &labels, mesh_inputs)
}

/// Whether a WorkloadEntry is used: with health checks, only once it is healthy.
#[must_use]
pub(super) fn counts(object: &Object<WorkloadEntry>, settings: &Settings) -> bool {
    let checked = object.meta.annotations.get(HEALTH_ANNOTATION);
    let checked =
        checked.is_some_and(|value| matches!(&**value, "1" | "t" | "T" | "true" | "TRUE" | "True"));
    !settings.workload_entry_health_checks || !checked || object.spec.healthy
}

/// An endpoint within a ServiceEntry; `meta` has its name.
#[must_use]
pub(super) fn instance_of_endpoint(
    endpoint: &WorkloadEntry,
    meta: &ObjectMeta,
    mesh_inputs: &MeshInputs,
) -> Instance {
    build(endpoint, meta, &labels_of_spec(endpoint), mesh_inputs)
}

fn labels_of_spec(spec: &WorkloadEntry) -> Labels {
    spec.labels
        .iter()
        .map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str())))
        .collect()
}

fn build(
    spec: &WorkloadEntry,
    meta: &ObjectMeta,
    labels: &Labels,
    mesh_inputs: &MeshInputs,
) -> Instance {
    let locality = match &*spec.locality {
        "" => locality_of_labels(labels)
            .map(|locality| locality.into_owned())
            .unwrap_or_default(),
        locality => locality.to_owned(),
    };

    let network = NetworkId::new(&spec.network);
    let place = WorkloadLocation {
        cluster: &mesh_inputs.settings.cluster_id,
        locality: &locality,
        node: "",
        network: &network,
    };

    let identity = match &*spec.service_account {
        "" => Arc::from(""),
        account => spiffe_id(
            &mesh_inputs.trust_domain,
            meta.key.namespace.as_str(),
            account,
        ),
    };

    // A workload with a ServiceAccount is assumed to have a sidecar, unless its label sets the TLS
    // mode.
    let assumed = if spec.service_account.is_empty() {
        TlsMode::Disabled
    } else {
        TlsMode::Istio
    };

    let workload = Workload {
        own_labels: labels.clone(),
        namespace: meta.key.namespace.clone(),
        name: workload_name_of_entry(meta),
        identity,
        service_account: ServiceAccount::new(&spec.service_account),
        location: mesh_inputs.locations.of(&place, labels),
        tls_mode: TlsMode::of_labels(labels).unwrap_or(assumed),
        dns_name: None,
    };

    let address = &*spec.address;
    let port = |(name, number): (&String, &u32)| {
        Some((Arc::from(name.as_str()), u16::try_from(*number).ok()?))
    };
    Instance {
        name: meta.key(),
        kind: InstanceKind::WorkloadEntry,
        addresses: vec![Arc::from(address)],
        workload: Arc::new(workload),
        ports: spec.ports.iter().filter_map(port).collect(),
        weight: spec.weight,
        health: Health::Unknown,
        send_unhealthy: false,
        only_by_dns: !address.is_empty() && address.parse::<IpAddr>().is_err(),
    }
}
