//! The properties of a service that its workloads depend on: its declaring object, ports and
//! selector.

use std::sync::Arc;

use super::selected::host_of;
use super::{networks, waypoint};
use navarch_api::istio::ServiceEntry;
use navarch_api::kubernetes::{Protocol, Service, TargetPort};
use navarch_api::mesh::Visibility;
use navarch_api::names::{ClusterId, Namespace, PortName};
use navarch_api::object::{Kind, NamespacedName, Object, ObjectMeta};
use navarch_push::cluster_ref::ClusterRef;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::{Labels, Resolution, ServiceKey};
use navarch_registry::visibility_in;

/// The object that declares a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Origin {
    Service(NamespacedName),
    ServiceEntry(NamespacedName),
}

/// The properties of a service that its workloads depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceFacts {
    /// Its namespace and host.
    pub(super) key: ServiceKey,
    /// The object that declares it.
    pub(super) origin: Origin,
    /// Its workload selector; empty selects none.
    pub(super) selector: Labels,
    /// Its ports in declared order.
    pub(super) ports: Vec<PortFacts>,
    pub(super) waypoint: Option<NamespacedName>,
}

/// A port of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PortFacts {
    /// The number that clients use.
    pub(super) number: u32,
    /// Its name; of several ports with the number, that of the last.
    pub(super) name: PortName,
    /// The target port; 0 if it is named.
    pub(super) target: u32,
    /// The name of the target port; empty if it is a number.
    pub(super) target_name: PortName,
    /// Whether it carries TCP.
    pub(super) is_tcp: bool,
}

/// The properties of a service; `None` if it does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FactsOf(pub(super) ServiceKey);

/// The properties of a Service in a remote cluster; `None` if it does not exist or is not
/// multi-cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RemoteServiceFacts(ClusterId, NamespacedName);

/// The properties of a Service in a cluster; `None` if it does not exist.
pub(super) fn facts_of_service(
    cluster_ref: &ClusterRef,
    service: &NamespacedName,
    view: &View<'_>,
) -> Option<Arc<ServiceFacts>> {
    match cluster_ref {
        ClusterRef::Config => {
            let facts = (*view.get(&FactsOf(key_of(service, view)))).clone();
            facts.filter(|facts| matches!(facts.origin, Origin::Service(_)))
        }
        ClusterRef::Remote(cluster) => {
            (*view.get(&RemoteServiceFacts(cluster.clone(), service.clone()))).clone()
        }
        ClusterRef::Unknown => None,
    }
}

/// The key of a Service, whether or not it exists.
fn key_of(service: &NamespacedName, view: &View<'_>) -> ServiceKey {
    let hostname = host_of(
        &service.name,
        &service.namespace,
        &view.mesh().settings.domain_suffix,
    );
    ServiceKey {
        namespace: service.namespace.clone(),
        hostname,
    }
}

/// The object that declares a service; of several the one with precedence: a Service, else the
/// oldest ServiceEntry, else a Service of remote clusters. Aliases, and services that are exported
/// to no namespace, are skipped. Ambient mode has no hosts in `clusterset.local`.
pub(super) fn origin(key: &ServiceKey, view: &View<'_>) -> Option<Origin> {
    let is_in_cluster_domain = key
        .hostname
        .as_str()
        .ends_with(&*view.mesh().settings.domain_suffix);
    let mut remote = None;

    for service in view
        .services_of(key)
        .iter()
        .filter(|service| service.resolution != Resolution::Alias)
    {
        let name = &service.origin.name;
        if service.origin.kind == Kind::Service {
            if !is_in_cluster_domain {
                continue;
            }
            if view.object::<Service>(name).is_some() {
                return Some(Origin::Service(name.clone()));
            }
            remote.get_or_insert(name);
        } else if visibility(&key.namespace, view) != Visibility::None {
            return Some(Origin::ServiceEntry(name.clone()));
        }
    }

    remote.map(|name| Origin::Service(name.clone()))
}

/// The visibility of the ServiceEntries of a namespace.
pub(super) fn visibility(namespace: &Namespace, view: &View<'_>) -> Visibility {
    *view.get(&VisibilityIn(namespace.clone()))
}

/// The visibility of the ServiceEntries of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct VisibilityIn(Namespace);

impl Query for VisibilityIn {
    type Value = Visibility;

    fn compute(&self, view: &View<'_>) -> Visibility {
        let policies = view.mesh().config.service_entry_visibility.as_ref();
        visibility_in(
            policies,
            view.namespace_labels(&self.0).unwrap_or(&Labels::default()),
        )
    }
}

impl Query for FactsOf {
    type Value = Option<Arc<ServiceFacts>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let key = self.0.clone();
        let origin = origin(&key, view)?;
        let waypoint = |meta: &ObjectMeta, visibility| {
            waypoint::of_service(&ClusterRef::Config, meta, visibility, view)
                .map(|waypoint| waypoint.name.clone())
        };
        let facts = match &origin {
            Origin::Service(name) => {
                let Some(service) = view.object::<Service>(name) else {
                    // Only remote clusters declare it; its workloads are selected there.
                    let parts = networks::remote_parts(view, &key);
                    let facts = facts_of_service(
                        &ClusterRef::Remote(parts.first()?.cluster.clone()),
                        name,
                        view,
                    )?;
                    return Some(Arc::new(ServiceFacts {
                        selector: Labels::default(),
                        ..(*facts).clone()
                    }));
                };

                let waypoint = waypoint(&service.meta, None);
                ServiceFacts {
                    selector: service.spec.selector.clone(),
                    ports: ports_of_service(service),
                    waypoint,
                    key,
                    origin,
                }
            }
            Origin::ServiceEntry(name) => {
                let entry = view.object::<ServiceEntry>(name)?;
                let selector = entry
                    .spec
                    .workload_selector
                    .iter()
                    .flat_map(|selector| &selector.labels);
                let visibility = visibility(&key.namespace, view);
                ServiceFacts {
                    selector: selector
                        .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
                        .collect(),
                    ports: ports_of_entry(&entry.spec),
                    waypoint: waypoint(&entry.meta, Some(visibility)),
                    key,
                    origin,
                }
            }
        };

        Some(Arc::new(facts))
    }
}

impl Query for RemoteServiceFacts {
    type Value = Option<Arc<ServiceFacts>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let Self(cluster, name) = self;
        let key = key_of(name, view);
        let service = networks::far_service(view, cluster, name)?;
        let waypoint = waypoint::of_service(
            &ClusterRef::Remote(cluster.clone()),
            &service.meta,
            None,
            view,
        );
        Some(Arc::new(ServiceFacts {
            selector: service.spec.selector.clone(),
            ports: ports_of_service(service),
            waypoint: waypoint.map(|waypoint| waypoint.name.clone()),
            key,
            origin: Origin::Service(name.clone()),
        }))
    }
}

fn ports_of_service(service: &Object<Service>) -> Vec<PortFacts> {
    let ports = &service.spec.ports;
    let port = |port: &navarch_api::kubernetes::ServicePort| {
        // As in Istio, names are kept by number.
        let named = ports
            .iter()
            .rfind(|other| other.port == port.port)
            .unwrap_or(port);
        let target = match port.target {
            TargetPort::Number(number) => u32::from(number),
            TargetPort::Name(_) => 0,
        };
        let target_name = match &named.target {
            TargetPort::Number(_) => PortName::default(),
            TargetPort::Name(name) => name.clone(),
        };

        let number = u32::from(port.port);
        let is_tcp = port.protocol == Protocol::Tcp;
        PortFacts {
            number,
            name: named.name.clone(),
            target,
            target_name,
            is_tcp,
        }
    };

    ports.iter().map(port).collect()
}

fn ports_of_entry(entry: &ServiceEntry) -> Vec<PortFacts> {
    let port = |port: &navarch_api::istio::ServicePort| {
        let named = entry
            .ports
            .iter()
            .rfind(|other| other.number == port.number)
            .unwrap_or(port);

        PortFacts {
            number: port.number,
            name: PortName::new(&named.name),
            target: if port.target_port == 0 {
                port.number
            } else {
                port.target_port
            },
            target_name: PortName::default(),
            is_tcp: true,
        }
    };

    entry.ports.iter().map(port).collect()
}
