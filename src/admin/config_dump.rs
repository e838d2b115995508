//! `/debug/config_dump`: what a proxy was sent, in the shape of Envoy's admin dump.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use navarch_proto::json::{Codec, JsonError};
use serde_json::{Value, json};

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_envoy::routes::with_hosts;
use navarch_push::resource::{Collection, Resource, ResourceType};
use navarch_security::rules::Sight;
use navarch_xds::connections::ConnectionInfo;

/// The types that a dump has unless asked for others.
const DEFAULT: [ResourceType; 3] = [ResourceType::Cluster, ResourceType::Listener, ResourceType::Route];

/// The dump of the first proxy whose connection id contains `proxyID`: clusters, listeners and routes, endpoints with
/// `include_eds`, or the types that `types` lists by short name or URL.
pub(super) async fn config_dump(
    State(state): State<AdminState>,
    Extension(sight): Extension<Sight>,
    parameters: Parameters,
) -> Response {
    let Some(id) = parameters.get("proxyID").filter(|id| !id.is_empty()) else {
        return (StatusCode::BAD_REQUEST, "name the proxy: ?proxyID=<pod>.<namespace>\n").into_response();
    };
    let visible = |info: &ConnectionInfo| match &sight {
        Sight::Everything => true,
        Sight::Namespaces(namespaces) => namespaces.contains(&info.proxy.namespace),
        Sight::Nothing => false,
    };
    let mut known = state.connections.list().into_iter().filter(visible);
    let Some(info) = known.find(|info| info.id.contains(id.as_str())) else {
        return (StatusCode::NOT_FOUND, format!("no connected proxy has {id:?} in its id\n")).into_response();
    };
    let kinds = match kinds(&parameters) {
        Ok(kinds) => kinds,
        Err(unknown) => return (StatusCode::BAD_REQUEST, format!("unknown type {unknown:?}\n")).into_response(),
    };
    match dump(&info, &kinds) {
        Ok(value) => reply::json(&parameters, &value),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// The types that a request asks for.
fn kinds(parameters: &Parameters) -> Result<Vec<ResourceType>, String> {
    let Some(types) = parameters.get("types") else {
        let endpoints = parameters.contains_key("include_eds").then_some(ResourceType::Endpoint);
        return Ok(DEFAULT.into_iter().chain(endpoints).collect());
    };
    let one = |text: &str| {
        let short = ResourceType::ALL.into_iter().find(|kind| kind.short_name().eq_ignore_ascii_case(text));
        short.or_else(|| ResourceType::from_type_url(text)).ok_or_else(|| text.to_owned())
    };
    types.split(',').map(str::trim).filter(|text| !text.is_empty()).map(one).collect()
}

/// The dump of some types. Secrets are listed by name only.
fn dump(info: &ConnectionInfo, kinds: &[ResourceType]) -> Result<Value, JsonError> {
    let codec = Codec::new();
    let mut configs = Vec::new();
    for kind in kinds {
        match (kind, sent(info, *kind)) {
            (_, None) => {}
            (ResourceType::Route, Some(routes)) => {
                let hosts = sent(info, ResourceType::VirtualHost);
                configs.push(section(*kind, &whole_routes(routes, hosts), &codec)?);
            }
            (_, Some(sent)) => configs.push(section(*kind, sent, &codec)?),
        }
    }
    Ok(json!({ "configs": configs }))
}

/// What a proxy was sent of a type.
fn sent(info: &ConnectionInfo, kind: ResourceType) -> Option<&Arc<Collection>> {
    info.types.iter().find(|watch| watch.kind == kind).and_then(|watch| watch.resources.as_ref())
}

/// Route configurations with the virtual hosts that were sent one by one, as Envoy's own dump shows them.
fn whole_routes(routes: &Collection, hosts: Option<&Arc<Collection>>) -> Collection {
    let whole = |routes: &Arc<Resource>| {
        let hosts = hosts.into_iter().flat_map(|hosts| &hosts.resources);
        let body = with_hosts(&routes.name, &routes.body, hosts.map(|host| (&host.name, &host.body)));
        Arc::new(Resource { kind: routes.kind, name: routes.name.clone(), body, version: routes.version })
    };
    Collection::new(routes.kind, routes.resources.iter().map(whole).collect())
}

/// One type's section.
fn section(kind: ResourceType, sent: &Collection, codec: &Codec) -> Result<Value, JsonError> {
    let (section, list, field) = match kind {
        ResourceType::Cluster => ("ClustersConfigDump", "dynamicActiveClusters", "cluster"),
        ResourceType::Endpoint => ("EndpointsConfigDump", "dynamicEndpointConfigs", "endpointConfig"),
        ResourceType::Listener => ("ListenersConfigDump", "dynamicListeners", "listener"),
        ResourceType::Route => ("RoutesConfigDump", "dynamicRouteConfigs", "routeConfig"),
        ResourceType::VirtualHost => ("VirtualHostsDump", "virtualHosts", "virtualHost"),
        ResourceType::Secret => ("SecretsConfigDump", "dynamicActiveSecrets", "secret"),
        ResourceType::ExtensionConfig => ("EcdsConfigDump", "ecdsFilters", "ecdsFilter"),
        ResourceType::NameTable => ("NameTableDump", "nameTables", "nameTable"),
        ResourceType::ProxyConfig => ("ProxyConfigDump", "proxyConfigs", "proxyConfig"),
        ResourceType::ObjectStatus => ("ObjectStatusDump", "objectStatuses", "status"),
        ResourceType::Address => ("AddressesDump", "addresses", "address"),
        ResourceType::Workload => ("WorkloadsDump", "workloads", "workload"),
        ResourceType::Authorization => ("AuthorizationsDump", "authorizations", "authorization"),
    };
    let mut rows = Vec::with_capacity(sent.resources.len());
    for resource in &sent.resources {
        let version = resource.version.to_string();
        let row = match kind {
            ResourceType::Secret => json!({ "name": resource.name, "versionInfo": version }),
            ResourceType::Listener => {
                let listener = codec.any_to_json(kind.type_url(), &resource.body)?;
                json!({ "name": resource.name, "activeState": { "versionInfo": version, "listener": listener } })
            }
            ResourceType::Cluster
            | ResourceType::Endpoint
            | ResourceType::Route
            | ResourceType::VirtualHost
            | ResourceType::ExtensionConfig
            | ResourceType::NameTable
            | ResourceType::ProxyConfig
            | ResourceType::ObjectStatus
            | ResourceType::Address
            | ResourceType::Workload
            | ResourceType::Authorization => {
                json!({ "versionInfo": version, field: codec.any_to_json(kind.type_url(), &resource.body)? })
            }
        };
        rows.push(row);
    }
    Ok(json!({ "@type": format!("type.googleapis.com/envoy.admin.v3.{section}"), list: rows }))
}
