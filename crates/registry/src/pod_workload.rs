//! The state of a pod in the registry, and its workload.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::identity::spiffe_id;
use super::instance::{Instance, InstanceKind};
use super::locality::{locality_of_labels, locality_of_node};
use super::mesh_inputs::MeshInputs;
use super::model::{Health, Labels, PodDnsName, TlsMode, Workload};
use super::workload_labels::WorkloadLocation;
use super::workload_name::workload_name_of_pod;
use navarch_api::kubernetes::{Node, Pod, PodPhase, Protocol};
use navarch_api::named_table::HasName;
use navarch_api::object::{NamespacedName, Object};
use navarch_api::shared_texts::{HasTexts, SharedTexts};

/// The label for whether a workload accepts Istio's mTLS.
pub(super) const TLS_MODE_LABEL: &str = "security.istio.io/tlsMode";

/// A pod as the registry keeps it.
#[derive(Clone, Debug)]
pub(super) struct PodState {
    pub object: Arc<Object<Pod>>,
    pub workload: Arc<Workload>,
}

impl PodState {
    /// From the pod and its node. `None` for failed pods, which are ignored.
    #[must_use]
    pub(super) fn new(
        object: &Arc<Object<Pod>>,
        node: Option<&Object<Node>>,
        mesh_inputs: &MeshInputs,
        texts: &mut SharedTexts,
    ) -> Option<Self> {
        if object.spec.phase == PodPhase::Failed {
            return None;
        }
        let mut workload = workload_of_pod(object, node, mesh_inputs);
        workload.share(texts);
        Some(Self {
            object: object.clone(),
            workload: Arc::new(workload),
        })
    }

    /// Whether two states are equal in everything that the registry uses.
    #[must_use]
    pub(super) fn same(&self, other: &Self) -> bool {
        let a = &self.object;
        let b = &other.object;
        self.workload == other.workload
            && (Arc::ptr_eq(a, b)
                || a.spec == b.spec
                    && a.meta.labels == b.meta.labels
                    && a.meta.deleting == b.meta.deleting)
    }

    /// The main address.
    #[must_use]
    pub(super) fn ip(&self) -> Option<IpAddr> {
        self.object.spec.pod_ips.first().copied()
    }

    /// The node that it runs on.
    #[must_use]
    pub(super) fn node(&self) -> Option<&Arc<str>> {
        self.object.spec.node.as_ref()
    }

    /// The pod's own labels.
    #[must_use]
    pub(super) fn labels(&self) -> &Labels {
        &self.object.meta.labels
    }

    /// Whether the pod is ready and may be selected by ServiceEntries and by address.
    #[must_use]
    pub(super) fn is_ready(&self) -> bool {
        let pod = &self.object;
        pod.spec.ready && !pod.spec.is_terminal() && !pod.meta.deleting && self.ip().is_some()
    }

    /// The pod as an instance for ServiceEntries; `None` unless it is ready.
    #[must_use]
    pub(super) fn instance(&self, mesh_inputs: &MeshInputs) -> Option<Instance> {
        let ip = self.ip().filter(|_| self.is_ready())?;
        let ips = &self.object.spec.pod_ips;
        let ips: &[IpAddr] = if mesh_inputs.settings.dual_stack {
            ips
        } else {
            &[ip]
        };

        let mut ports = BTreeMap::new();

        for port in self
            .object
            .spec
            .ports
            .iter()
            .filter(|port| port.protocol == Protocol::Tcp && !port.name.is_empty())
        {
            ports
                .entry(Arc::from(port.name.as_str()))
                .or_insert(port.port);
        }

        Some(Instance {
            name: self.object.meta.key(),
            kind: InstanceKind::Pod,
            addresses: ips.iter().map(|ip| Arc::from(ip.to_string())).collect(),
            workload: self.workload.clone(),
            ports,
            weight: 0,
            health: Health::Healthy,
            send_unhealthy: mesh_inputs.settings.send_unhealthy_endpoints
                || mesh_inputs.settings.auto_send_unhealthy_endpoints,
            only_by_dns: false,
        })
    }
}

impl HasName for PodState {
    fn name(&self) -> &NamespacedName {
        &self.object.meta.key
    }
}

impl HasTexts for Workload {
    fn share(&mut self, texts: &mut SharedTexts) {
        texts.share(&mut self.name);
        texts.share(&mut self.identity);
    }
}

impl TlsMode {
    /// The mode in the labels of a workload; `None` if the label is missing.
    #[must_use]
    pub(super) fn of_labels(labels: &Labels) -> Option<Self> {
        labels.get(TLS_MODE_LABEL).map(|mode| {
            if &**mode == "istio" {
                Self::Istio
            } else {
                Self::Disabled
            }
        })
    }
}

fn workload_of_pod(
    pod: &Object<Pod>,
    node: Option<&Object<Node>>,
    mesh_inputs: &MeshInputs,
) -> Workload {
    let meta = &pod.meta;
    let spec = &pod.spec;
    let locality = match locality_of_labels(&meta.labels) {
        Some(locality) => locality.into_owned(),
        None => node
            .map(|node| locality_of_node(&node.meta.labels))
            .unwrap_or_default(),
    };

    let network = mesh_inputs
        .finder
        .find(&meta.labels, spec.pod_ips.first().copied());
    let node = spec.node.as_deref().unwrap_or_default();
    let place = WorkloadLocation {
        cluster: &mesh_inputs.settings.cluster_id,
        locality: &locality,
        node,
        network: &network,
    };

    // The host name is only used within a subdomain, and defaults to the pod's name.
    let dns_name = spec.dns.as_ref().and_then(|dns| {
        let hostname = dns.hostname.as_ref().unwrap_or(&meta.key.name).clone();
        Some(Box::new(PodDnsName {
            hostname,
            subdomain: dns.subdomain.clone()?,
        }))
    });

    Workload {
        own_labels: meta.labels.clone(),
        namespace: meta.key.namespace.clone(),
        name: workload_name_of_pod(pod),
        identity: spiffe_id(
            &mesh_inputs.trust_domain,
            meta.key.namespace.as_str(),
            spec.service_account.as_str(),
        ),
        service_account: spec.service_account.clone(),
        location: mesh_inputs.locations.of(&place, &meta.labels),
        tls_mode: TlsMode::of_labels(&meta.labels).unwrap_or_default(),
        dns_name,
    }
}
