//! `/debug/config_dump`, `edsz`, `ecdsz`, `ndsz`: the resources sent to a proxy, in the format of
//! Envoy's admin dump.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use navarch_proto::any::pack;
use navarch_proto::envoy::admin::v3 as dump;
use navarch_proto::json::{Codec, JsonError};
use prost_types::Any;
use serde_json::{Map, Value};

use super::proxies;
use super::redact::{extension, secret};
use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_envoy::routes::with_hosts;
use navarch_push::proxy::ProxyKind;
use navarch_push::resource::{Collection, Resource, ResourceType};
use navarch_security::rules::Visibility;
use navarch_xds::connections::ConnectionInfo;

/// The dump of the first proxy whose connection id contains `proxyID`: everything but endpoints,
/// which `include_eds` adds, as in Envoy's own dump; or the resources of the types in `types`, by
/// short name or URL.
pub(super) async fn config_dump(
    State(state): State<AdminState>,
    Extension(visibility): Extension<Visibility>,
    parameters: Parameters,
) -> Response {
    let types = parameters
        .get("types")
        .map(String::as_str)
        .filter(|types| !types.is_empty());
    answer(&state, &visibility, &parameters, types)
}

/// The endpoints of one proxy.
pub(super) async fn edsz(
    State(state): State<AdminState>,
    Extension(visibility): Extension<Visibility>,
    parameters: Parameters,
) -> Response {
    answer(&state, &visibility, &parameters, Some("eds"))
}

/// The extension configs of one proxy.
pub(super) async fn ecdsz(
    State(state): State<AdminState>,
    Extension(visibility): Extension<Visibility>,
    parameters: Parameters,
) -> Response {
    answer(&state, &visibility, &parameters, Some("ecds"))
}

/// The name table of one proxy.
pub(super) async fn ndsz(
    State(state): State<AdminState>,
    Extension(visibility): Extension<Visibility>,
    parameters: Parameters,
) -> Response {
    answer(&state, &visibility, &parameters, Some("nds"))
}

/// The dump of the requested proxy.
fn answer(
    state: &AdminState,
    visibility: &Visibility,
    parameters: &Parameters,
    types: Option<&str>,
) -> Response {
    let info = match proxies::named(state, visibility, parameters) {
        Ok(info) => info,
        Err(missing) => return missing.into_response(),
    };
    let configs = match types.map(resource_types) {
        None if info.proxy.kind == ProxyKind::Ztunnel => resources(&info, ResourceType::Address),
        None => whole(&info, parameters.contains_key("include_eds")),
        Some(Ok(types)) => types
            .into_iter()
            .flat_map(|resource_type| resources(&info, resource_type))
            .collect(),
        Some(Err(unknown)) => {
            return (
                StatusCode::BAD_REQUEST,
                format!("unknown type {unknown:?}\n"),
            )
                .into_response();
        }
    };

    match json(&configs) {
        Ok(value) => reply::json(parameters, &value),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// The requested types.
pub(super) fn resource_types(text: &str) -> Result<Vec<ResourceType>, String> {
    let one = |text: &str| {
        let mut all = ResourceType::ALL
            .into_iter()
            .filter(|resource_type| *resource_type != ResourceType::ObjectStatus);
        let short = all.find(|resource_type| resource_type.short_name().eq_ignore_ascii_case(text));
        short
            .or_else(|| ResourceType::from_type_url(text))
            .ok_or_else(|| text.to_owned())
    };

    let types: Result<Vec<_>, _> = text
        .split(',')
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(one)
        .collect();

    let mut types = types?;

    // Istio has one short name for both.
    if types.contains(&ResourceType::Address) {
        types.push(ResourceType::Workload);
    }

    types.sort_unstable();
    types.dedup();
    Ok(types)
}

/// Messages as `ConfigDump`'s JSON.
pub(super) fn json(configs: &[Any]) -> Result<Value, JsonError> {
    let mut dump = Map::new();
    if !configs.is_empty() {
        let codec = Codec::new();
        let all: Result<Vec<Value>, JsonError> = configs
            .iter()
            .map(|config| codec.any_to_json(&config.type_url, &config.value))
            .collect();
        dump.insert("configs".to_owned(), Value::Array(all?));
    }
    Ok(Value::Object(dump))
}

/// The sections of a dump, in Envoy's order. Bootstrap and scoped routes are known to the proxy
/// only: they are empty.
pub(super) fn whole(info: &ConnectionInfo, with_endpoints: bool) -> Vec<Any> {
    let mut sections = vec![pack(&dump::BootstrapConfigDump::default()), clusters(info)];

    if with_endpoints {
        let one =
            |(version_info, endpoint_config)| dump::endpoints_config_dump::DynamicEndpointConfig {
                version_info,
                endpoint_config: Some(endpoint_config),
                ..Default::default()
            };
        let dynamic_endpoint_configs = versioned(info, ResourceType::Endpoint).map(one).collect();
        sections.push(pack(&dump::EndpointsConfigDump {
            dynamic_endpoint_configs,
            ..Default::default()
        }));
    }

    sections.extend([
        listeners(info),
        pack(&dump::ScopedRoutesConfigDump::default()),
        routes(info),
    ]);
    sections.extend([secrets(info), extensions(info)]);

    sections
}

fn clusters(info: &ConnectionInfo) -> Any {
    let one = |(version_info, cluster)| dump::clusters_config_dump::DynamicCluster {
        version_info,
        cluster: Some(cluster),
        ..Default::default()
    };
    let dynamic_active_clusters = versioned(info, ResourceType::Cluster).map(one).collect();
    let version_info = version(info, ResourceType::Cluster);
    pack(&dump::ClustersConfigDump {
        version_info,
        dynamic_active_clusters,
        ..Default::default()
    })
}

fn listeners(info: &ConnectionInfo) -> Any {
    use dump::listeners_config_dump::{DynamicListener, DynamicListenerState};

    let one = |resource: &Arc<Resource>| {
        let state = DynamicListenerState {
            version_info: resource.version.to_string(),
            listener: Some(any(resource)),
            ..Default::default()
        };
        DynamicListener {
            name: resource.name.to_string(),
            active_state: Some(state),
            ..Default::default()
        }
    };

    let listeners = sent(info, ResourceType::Listener)
        .into_iter()
        .flat_map(|all| &all.resources);
    let version_info = version(info, ResourceType::Listener);
    let dynamic_listeners = listeners.map(one).collect();

    pack(&dump::ListenersConfigDump {
        version_info,
        dynamic_listeners,
        ..Default::default()
    })
}

fn routes(info: &ConnectionInfo) -> Any {
    let one = |(version_info, route_config)| dump::routes_config_dump::DynamicRouteConfig {
        version_info,
        route_config: Some(route_config),
        ..Default::default()
    };
    let dynamic_route_configs = versioned(info, ResourceType::Route).map(one).collect();
    pack(&dump::RoutesConfigDump {
        dynamic_route_configs,
        ..Default::default()
    })
}

fn secrets(info: &ConnectionInfo) -> Any {
    use dump::secrets_config_dump::DynamicSecret;
    let one = |resource: &Arc<Resource>| DynamicSecret {
        name: resource.name.to_string(),
        version_info: resource.version.to_string(),
        secret: Some(any(resource)),
        ..Default::default()
    };
    let all = sent(info, ResourceType::Secret)
        .into_iter()
        .flat_map(|all| &all.resources)
        .map(one);
    pack(&dump::SecretsConfigDump {
        dynamic_active_secrets: all.collect(),
        ..Default::default()
    })
}

fn extensions(info: &ConnectionInfo) -> Any {
    let one = |(version_info, filter)| dump::ecds_config_dump::EcdsFilterConfig {
        version_info,
        ecds_filter: Some(filter),
        ..Default::default()
    };
    let ecds_filters = versioned(info, ResourceType::ExtensionConfig)
        .map(one)
        .collect();
    pack(&dump::EcdsConfigDump { ecds_filters })
}

/// The version of the last response of a type; empty if there is none.
fn version(info: &ConnectionInfo, resource_type: ResourceType) -> String {
    let watch = info
        .types
        .iter()
        .find(|watch| watch.resource_type == resource_type);
    watch
        .and_then(|watch| watch.sent.as_ref())
        .map_or_else(String::new, |sent| sent.version.to_string())
}

/// The resources of a type that a proxy was sent, each with its version.
fn versioned(
    info: &ConnectionInfo,
    resource_type: ResourceType,
) -> impl Iterator<Item = (String, Any)> {
    let versions = sent(info, resource_type)
        .into_iter()
        .flat_map(|all| &all.resources);
    versions
        .map(|resource| resource.version.to_string())
        .zip(resources(info, resource_type))
}

/// The resources of a type that a proxy was sent, without secrets.
pub(super) fn resources(info: &ConnectionInfo, resource_type: ResourceType) -> Vec<Any> {
    let Some(all) = sent(info, resource_type) else {
        return Vec::new();
    };
    if resource_type == ResourceType::Route {
        let hosts = sent(info, ResourceType::VirtualHost);
        return all
            .resources
            .iter()
            .map(|routes| any(&full_routes(routes, hosts)))
            .collect();
    }
    all.resources.iter().map(|resource| any(resource)).collect()
}

/// The collection of a type that a proxy was sent.
pub(super) fn sent(info: &ConnectionInfo, resource_type: ResourceType) -> Option<&Arc<Collection>> {
    info.types
        .iter()
        .find(|watch| watch.resource_type == resource_type)
        .and_then(|watch| watch.resources.as_ref())
}

/// A route configuration with the virtual hosts that were sent separately, as in Envoy's own dump.
fn full_routes(routes: &Arc<Resource>, hosts: Option<&Arc<Collection>>) -> Arc<Resource> {
    let hosts = hosts.into_iter().flat_map(|hosts| &hosts.resources);
    let body = with_hosts(
        &routes.name,
        &routes.body,
        hosts.map(|host| (&host.name, &host.body)),
    );
    Arc::new(Resource {
        resource_type: routes.resource_type,
        name: routes.name.clone(),
        body,
        version: routes.version,
    })
}

/// A resource without secrets.
fn any(resource: &Resource) -> Any {
    let type_url = resource.resource_type.resource_url().to_owned();

    match resource.resource_type {
        ResourceType::Secret => Any {
            type_url,
            value: secret(&resource.name, &resource.body),
        },
        ResourceType::ExtensionConfig => extension(Any {
            type_url,
            value: resource.body.to_vec(),
        }),
        ResourceType::Cluster
        | ResourceType::Endpoint
        | ResourceType::Listener
        | ResourceType::Route
        | ResourceType::VirtualHost
        | ResourceType::NameTable
        | ResourceType::ProxyConfig
        | ResourceType::Bootstrap
        | ResourceType::Locality
        | ResourceType::ObjectStatus
        | ResourceType::Address
        | ResourceType::Workload
        | ResourceType::Authorization
        | ResourceType::Object(_) => Any {
            type_url,
            value: resource.body.to_vec(),
        },
    }
}
