//! A translator that reads everything in a view, each part into its own resource: it detects
//! changes of facts for which the engine did not recompute.

use std::fmt::Debug;

use bytes::Bytes;
use navarch::api::istio::{
    AuthorizationPolicy, DestinationRule, EnvoyFilter, Gateway, PeerAuthentication, ProxyConfig,
    RequestAuthentication, ServiceEntry, Sidecar, Telemetry, TrafficExtension, VirtualService,
    WasmPlugin, WorkloadEntry, WorkloadGroup,
};
use navarch::api::kubernetes::Ingress;
use navarch::api::names::{Hostname, Namespace, NetworkId, ResourceName};
use navarch::api::object::Object;
use navarch::push::resource::ResourceType;
use navarch::push::view::{Translator, View};
use navarch::registry::model::ServiceKey;
use navarch::store::Stored;

use crate::universe::NAMESPACES;

/// Prints everything in the view.
pub(crate) struct Probe;

impl Translator for Probe {
    fn names(&self, resource_type: ResourceType, view: &View<'_>) -> Vec<ResourceName> {
        let services = || {
            view.all_services()
                .map(|service| format!("{}/{}", service.key.namespace, service.key.hostname))
        };
        let names: Vec<String> = match resource_type {
            ResourceType::Cluster => services().collect(),
            ResourceType::Listener => {
                let fixed =
                    ["labels", "targets", "locality", "mesh", "networks"].map(str::to_owned);
                NAMESPACES
                    .iter()
                    .map(|namespace| format!("list {namespace}"))
                    .chain(fixed)
                    .collect()
            }
            _ => vec!["all".to_owned()],
        };

        names.into_iter().map(ResourceName::new).collect()
    }

    fn resource(
        &self,
        resource_type: ResourceType,
        name: &ResourceName,
        view: &View<'_>,
    ) -> Option<Bytes> {
        // Field number 0 is invalid in protobuf, so decoding these bytes fails.
        let text = match resource_type {
            ResourceType::Cluster => of_service(view, &key(name)?)?,
            ResourceType::Endpoint => of_endpoints(view, &key(name)?)?,
            ResourceType::Listener => of_proxy(view, name.as_str()),
            ResourceType::Route => of_namespace(view, name.as_str().strip_prefix("list ")?),
            _ => everything(view),
        };
        Some(Bytes::from(format!("\u{7f}{text}")))
    }
}

fn key(name: &ResourceName) -> Option<ServiceKey> {
    name.as_str()
        .split_once('/')
        .map(|(namespace, host)| ServiceKey::new(namespace, host))
}

fn of_service(view: &View<'_>, key: &ServiceKey) -> Option<String> {
    let service = view.service(key)?;
    let others = view.services_of(key);
    let homes = view.namespaces_of_host(&key.hostname);
    let selects = view.proxy().selected_by(&service.selector);
    let own = view.proxy().namespace_among([key.namespace.clone()]);
    Some(format!(
        "{service:#?}\n{others:#?}\n{homes:?}\n{selects} {own:?}"
    ))
}

fn of_endpoints(view: &View<'_>, key: &ServiceKey) -> Option<String> {
    let locality = view.proxy().locality();
    Some(format!("{locality:?}\n{:#?}", view.endpoints(key)?))
}

fn of_proxy(view: &View<'_>, what: &str) -> String {
    let proxy = view.proxy();
    match what {
        "labels" => format!("{:#?}", proxy.labels()),
        "targets" => format!("{:#?}", proxy.targets()),
        "locality" => format!("{:#?}", proxy.locality()),
        "mesh" => format!("{:#?}", view.mesh()),
        "networks" => format!(
            "{:#?} {:#?}",
            view.networks(),
            view.network_gateways(&NetworkId::new("n1"))
        ),
        list => of_namespace(view, list.strip_prefix("list ").unwrap_or_default()),
    }
}

fn of_namespace(view: &View<'_>, namespace: &str) -> String {
    let namespace = Namespace::new(namespace);
    [
        format!("{:?}", view.namespace_labels(&namespace)),
        print(view.list::<VirtualService>(&namespace)),
        print(view.list::<DestinationRule>(&namespace)),
        print(view.list::<Gateway>(&namespace)),
        print(view.list::<Sidecar>(&namespace)),
        print(view.list::<PeerAuthentication>(&namespace)),
        print(view.list::<EnvoyFilter>(&namespace)),
        print(view.list::<ProxyConfig>(&namespace)),
        print(view.list::<WorkloadGroup>(&namespace)),
        print(view.list::<AuthorizationPolicy>(&namespace)),
        print(view.list::<RequestAuthentication>(&namespace)),
        print(view.list::<Telemetry>(&namespace)),
        print(view.list::<WasmPlugin>(&namespace)),
        print(view.list::<TrafficExtension>(&namespace)),
        print(view.list::<Ingress>(&namespace)),
    ]
    .join("\n")
}

fn everything(view: &View<'_>) -> String {
    let homes = view.namespaces_of_host(&Hostname::new("ext.example.com"));
    [
        print(view.list_all::<ServiceEntry>()),
        print(view.list_all::<WorkloadEntry>()),
        format!("{homes:?}\n{:#?}", view.all_services().collect::<Vec<_>>()),
    ]
    .join("\n")
}

/// Prints objects without the fields that change when an equal object is written again.
fn print<'a, T: Stored + Debug>(
    objects: impl Iterator<Item = &'a std::sync::Arc<Object<T>>>,
) -> String {
    let print = |object: &std::sync::Arc<Object<T>>| {
        let meta = &object.meta;
        format!(
            "{} {:?} {:?} {:?}\n{:#?}",
            meta.key(),
            meta.labels,
            meta.annotations,
            meta.created,
            object.spec
        )
    };
    objects.map(print).collect::<Vec<_>>().join("\n")
}
