//! EnvoyFilter: patches to the generated Envoy configuration, in Envoy's own messages.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::wire_enum::wire_enum;
use super::{PolicyTargetReference, WorkloadSelector};

/// `networking.istio.io/EnvoyFilter`: patches to the resources that proxies receive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyFilter {
    /// Selects workloads; unset selects all workloads of the namespace, or of the mesh in the root
    /// namespace.
    pub workload_selector: Option<WorkloadSelector>,
    /// Gateways and services that the patches apply to. Mutually exclusive with
    /// `workload_selector`.
    pub target_refs: Vec<PolicyTargetReference>,
    /// The patches, in the order of application.
    pub config_patches: Vec<EnvoyConfigPatch>,
    /// Order among EnvoyFilters; a lower value applies first, the default is 0.
    pub priority: i32,
}

/// One patch and the configuration objects that it applies to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyConfigPatch {
    /// The kind of configuration object that the patch applies to.
    pub apply_to: ApplyTo,
    /// Conditions on the objects; unset selects all objects of the kind.
    #[serde(rename = "match")]
    pub matches: Option<EnvoyConfigMatch>,
    /// The operation and its value.
    pub patch: Option<EnvoyPatch>,
}

wire_enum! {
    /// The kind of configuration object that a patch applies to.
    ApplyTo {
        /// Unset; validation rejects it.
        Invalid = 0, "INVALID";
        /// A listener.
        Listener = 1, "LISTENER";
        /// A filter chain of a listener.
        FilterChain = 2, "FILTER_CHAIN";
        /// A network filter of a filter chain.
        NetworkFilter = 3, "NETWORK_FILTER";
        /// An HTTP filter of an HTTP connection manager.
        HttpFilter = 4, "HTTP_FILTER";
        /// A route configuration.
        RouteConfiguration = 5, "ROUTE_CONFIGURATION";
        /// A virtual host of a route configuration.
        VirtualHost = 6, "VIRTUAL_HOST";
        /// A route of a virtual host.
        HttpRoute = 7, "HTTP_ROUTE";
        /// A cluster.
        Cluster = 8, "CLUSTER";
        /// The configuration of an extension, which filters reference by name and proxies subscribe
        /// to (ECDS).
        ExtensionConfig = 9, "EXTENSION_CONFIG";
        /// The bootstrap, which the agent generates.
        Bootstrap = 10, "BOOTSTRAP";
        /// A listener filter of a listener.
        ListenerFilter = 11, "LISTENER_FILTER";
    }
}

wire_enum! {
    /// The kind of proxy and the traffic direction of an object.
    PatchContext {
        /// All proxies and directions.
        Any = 0, "ANY";
        /// Sidecars, inbound traffic.
        SidecarInbound = 1, "SIDECAR_INBOUND";
        /// Sidecars, outbound traffic.
        SidecarOutbound = 2, "SIDECAR_OUTBOUND";
        /// Gateways.
        Gateway = 3, "GATEWAY";
        /// Waypoints.
        Waypoint = 4, "WAYPOINT";
    }
}

/// Conditions on the patched objects. At most one object match may be set, and it must suit the
/// kind of object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyConfigMatch {
    /// The kind of proxy and the traffic direction.
    pub context: PatchContext,
    /// Conditions on the proxy.
    pub proxy: Option<ProxyMatch>,
    /// Conditions on listeners and their filter chains.
    pub listener: Option<ListenerMatch>,
    /// Conditions on route configurations and their virtual hosts.
    pub route_configuration: Option<RouteConfigurationMatch>,
    /// Conditions on clusters.
    pub cluster: Option<ClusterMatch>,
    /// Conditions on the ports, routes and filters of waypoints.
    pub waypoint: Option<WaypointMatch>,
}

/// Conditions on the proxies that a patch applies to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyMatch {
    /// Regular expression for the version of the proxy's agent; a partial match suffices, empty
    /// matches any version.
    pub proxy_version: String,
    /// Required node metadata of the proxy.
    pub metadata: BTreeMap<String, String>,
}

/// Conditions on clusters. Fields that are empty or 0 match all clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterMatch {
    /// The port in the cluster's name.
    pub port_number: u32,
    /// The hostname of the service.
    pub service: String,
    /// The subset of the service.
    pub subset: String,
    /// The full cluster name; when set, the other fields are ignored.
    pub name: String,
}

/// Conditions on route configurations. Fields that are empty or 0 match all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RouteConfigurationMatch {
    /// The port of the routes.
    pub port_number: u32,
    /// The name of the Gateway server's port; applies to gateways only.
    pub port_name: String,
    /// The Gateway as `namespace/name`; applies to gateways only.
    pub gateway: String,
    /// Conditions on virtual hosts.
    pub vhost: Option<VirtualHostMatch>,
    /// The route configuration's name.
    pub name: String,
}

/// Conditions on virtual hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualHostMatch {
    /// The virtual host's name, `host:port`; empty matches any.
    pub name: String,
    /// One of the virtual host's domains; empty matches any.
    pub domain_name: String,
    /// Conditions on routes.
    pub route: Option<RouteMatch>,
}

/// Conditions on routes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RouteMatch {
    /// The route's name; empty matches any.
    pub name: String,
    /// The route's action.
    pub action: RouteMatchAction,
}

wire_enum! {
    /// The action of a route.
    RouteMatchAction {
        /// Any action.
        Any = 0, "ANY";
        /// The route forwards the request.
        Route = 1, "ROUTE";
        /// The route answers with a redirect.
        Redirect = 2, "REDIRECT";
        /// The route answers with a fixed response.
        DirectResponse = 3, "DIRECT_RESPONSE";
    }
}

/// Conditions on listeners. Fields that are empty or 0 match all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerMatch {
    /// The port of the listener, or of a filter chain where all ports share one listener.
    pub port_number: u32,
    /// Deprecated and ignored.
    pub port_name: String,
    /// Conditions on filter chains.
    pub filter_chain: Option<ListenerFilterChainMatch>,
    /// The name of a listener filter.
    pub listener_filter: String,
    /// The listener's name.
    pub name: String,
}

/// Conditions on filter chains. Fields that are empty or 0 match all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerFilterChainMatch {
    /// The filter chain's name.
    pub name: String,
    /// One of the server names that the filter chain matches.
    pub sni: String,
    /// The transport protocol that the filter chain matches: `raw_buffer` or `tls`.
    pub transport_protocol: String,
    /// The name of the filter chain's transport socket, such as `envoy.transport_sockets.tls`; that
    /// of chains without one is `envoy.transport_sockets.raw_buffer`.
    pub transport_socket: String,
    /// Comma-separated application protocols; the filter chain must match all of them.
    pub application_protocols: String,
    /// Conditions on network filters.
    pub filter: Option<FilterMatch>,
    /// The destination port that the filter chain matches.
    pub destination_port: u32,
}

/// Conditions on the patched network filters, or on the network filters that contain the patched
/// HTTP filters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct FilterMatch {
    /// The network filter's name.
    pub name: String,
    /// Conditions on the HTTP filters of an HTTP connection manager.
    pub sub_filter: Option<SubFilterMatch>,
}

/// Conditions on HTTP filters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SubFilterMatch {
    /// The HTTP filter's name.
    pub name: String,
}

/// Conditions on the configuration of waypoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct WaypointMatch {
    /// The port of the service.
    pub port_number: u32,
    /// Conditions on routes.
    pub route: Option<WaypointRouteMatch>,
    /// Conditions on network filters.
    pub filter: Option<FilterMatch>,
}

/// Conditions on the routes of waypoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct WaypointRouteMatch {
    /// The route's name.
    pub name: String,
}

wire_enum! {
    /// The operation of a patch.
    PatchOperation {
        /// Unset; validation rejects it.
        Invalid = 0, "INVALID";
        /// Merges the value into the object and concatenates lists.
        Merge = 1, "MERGE";
        /// Adds the value at the end.
        Add = 2, "ADD";
        /// Removes the object.
        Remove = 3, "REMOVE";
        /// Inserts the value before the object, or at the start without a match.
        InsertBefore = 4, "INSERT_BEFORE";
        /// Inserts the value after the object, or at the end without a match.
        InsertAfter = 5, "INSERT_AFTER";
        /// Inserts the value at the start.
        InsertFirst = 6, "INSERT_FIRST";
        /// Replaces the object with the value.
        Replace = 7, "REPLACE";
        /// Merges the value into the object and replaces lists.
        MergeAndReplaceList = 8, "MERGE_AND_REPLACE_LIST";
    }
}

wire_enum! {
    /// The position of an inserted filter among Istio's filters; ignored.
    FilterClass {
        /// No position.
        Unspecified = 0, "UNSPECIFIED";
        /// Among the authentication filters.
        Authn = 1, "AUTHN";
        /// Among the authorization filters.
        Authz = 2, "AUTHZ";
        /// Among the statistics filters.
        Stats = 3, "STATS";
    }
}

/// The operation on the selected objects, and its value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyPatch {
    /// How the patch changes the generated configuration.
    pub operation: PatchOperation,
    /// Envoy's message as JSON, complete or partial; unused by `REMOVE`.
    pub value: Option<Map<String, Value>>,
    /// The position of an inserted filter among Istio's filters; ignored.
    pub filter_class: FilterClass,
}

impl ApplyTo {
    /// The full name of the protobuf message of the patch value; unset for `INVALID`.
    #[must_use]
    pub fn message(self) -> Option<&'static str> {
        Some(match self {
            Self::Invalid => return None,
            Self::Listener => "envoy.config.listener.v3.Listener",
            Self::FilterChain => "envoy.config.listener.v3.FilterChain",
            Self::NetworkFilter => "envoy.config.listener.v3.Filter",
            Self::HttpFilter => {
                "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter"
            }
            Self::RouteConfiguration => "envoy.config.route.v3.RouteConfiguration",
            Self::VirtualHost => "envoy.config.route.v3.VirtualHost",
            Self::HttpRoute => "envoy.config.route.v3.Route",
            Self::Cluster => "envoy.config.cluster.v3.Cluster",
            Self::ExtensionConfig => "envoy.config.core.v3.TypedExtensionConfig",
            Self::Bootstrap => "envoy.config.bootstrap.v3.Bootstrap",
            Self::ListenerFilter => "envoy.config.listener.v3.ListenerFilter",
        })
    }
}

impl PatchOperation {
    /// Whether the operation merges the value into objects.
    #[must_use]
    pub fn merges(self) -> bool {
        matches!(self, Self::Merge | Self::MergeAndReplaceList)
    }
}
