//! EnvoyFilter: changes to what is generated for Envoy, in Envoy's own words.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::wire_enum::wire_enum;
use super::{PolicyTargetReference, WorkloadSelector};

/// `networking.istio.io/EnvoyFilter`: patches of the resources that proxies get.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyFilter {
    /// The workloads it is for; `None` is all of the namespace, or of the mesh in the root namespace.
    pub workload_selector: Option<WorkloadSelector>,
    /// The gateways and services it is for; instead of a selector.
    pub target_refs: Vec<PolicyTargetReference>,
    /// The patches, in the order in which they are made.
    pub config_patches: Vec<EnvoyConfigPatch>,
    /// Lower ones come first; 0 by default.
    pub priority: i32,
}

/// One patch.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyConfigPatch {
    /// What kind of thing it is made to.
    pub apply_to: ApplyTo,
    /// Which things of the kind; `None` is all.
    #[serde(rename = "match")]
    pub matches: Option<EnvoyConfigMatch>,
    /// What is done to them.
    pub patch: Option<EnvoyPatch>,
}

wire_enum! {
    /// What kind of thing a patch is made to.
    ApplyTo {
        /// Not said; refused.
        Invalid = 0, "INVALID";
        /// A listener.
        Listener = 1, "LISTENER";
        /// A filter chain of a listener.
        FilterChain = 2, "FILTER_CHAIN";
        /// A network filter of a filter chain.
        NetworkFilter = 3, "NETWORK_FILTER";
        /// An HTTP filter of a connection manager.
        HttpFilter = 4, "HTTP_FILTER";
        /// A route configuration.
        RouteConfiguration = 5, "ROUTE_CONFIGURATION";
        /// A virtual host of a route configuration.
        VirtualHost = 6, "VIRTUAL_HOST";
        /// A route of a virtual host.
        HttpRoute = 7, "HTTP_ROUTE";
        /// A cluster.
        Cluster = 8, "CLUSTER";
        /// The configuration of an extension, which filters name and proxies ask for (ECDS).
        ExtensionConfig = 9, "EXTENSION_CONFIG";
        /// The bootstrap, which the agent writes.
        Bootstrap = 10, "BOOTSTRAP";
        /// A listener filter of a listener.
        ListenerFilter = 11, "LISTENER_FILTER";
    }
}

wire_enum! {
    /// For whom a thing is generated, and which way traffic goes there.
    PatchContext {
        /// For anybody.
        Any = 0, "ANY";
        /// For a sidecar, traffic to its workload.
        SidecarInbound = 1, "SIDECAR_INBOUND";
        /// For a sidecar, traffic from its workload.
        SidecarOutbound = 2, "SIDECAR_OUTBOUND";
        /// For a gateway.
        Gateway = 3, "GATEWAY";
        /// For a waypoint.
        Waypoint = 4, "WAYPOINT";
    }
}

/// Which things are patched. At most one of the object matches may be set, the one that suits the kind of thing.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyConfigMatch {
    /// For whom they are generated.
    pub context: PatchContext,
    /// For which proxies.
    pub proxy: Option<ProxyMatch>,
    /// Which listeners and what of them.
    pub listener: Option<ListenerMatch>,
    /// Which route configurations and what of them.
    pub route_configuration: Option<RouteConfigurationMatch>,
    /// Which clusters.
    pub cluster: Option<ClusterMatch>,
    /// What of a waypoint.
    pub waypoint: Option<WaypointMatch>,
}

/// For which proxies a patch is.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyMatch {
    /// A regular expression that the version of the proxy's agent must match somewhere; empty is any version.
    pub proxy_version: String,
    /// Node metadata that the proxy must have.
    pub metadata: BTreeMap<String, String>,
}

/// Which clusters are patched. What is empty or 0 matches all.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterMatch {
    /// The port in the cluster's name.
    pub port_number: u32,
    /// The host of the service.
    pub service: String,
    /// The subset.
    pub subset: String,
    /// The whole name; with it, nothing else counts.
    pub name: String,
}

/// Which route configurations are patched. What is empty or 0 matches all.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteConfigurationMatch {
    /// The port that the routes are for.
    pub port_number: u32,
    /// On gateways, the name of the server's port.
    pub port_name: String,
    /// On gateways, `namespace/name` of the Gateway.
    pub gateway: String,
    /// Which virtual hosts.
    pub vhost: Option<VirtualHostMatch>,
    /// The name of the route configuration.
    pub name: String,
}

/// Which virtual hosts are patched.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualHostMatch {
    /// The name, `host:port`; empty is any.
    pub name: String,
    /// One of the domains; empty is any.
    pub domain_name: String,
    /// Which routes.
    pub route: Option<RouteMatch>,
}

/// Which routes are patched.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteMatch {
    /// The name; empty is any.
    pub name: String,
    /// What the route does.
    pub action: RouteMatchAction,
}

wire_enum! {
    /// What a route does.
    RouteMatchAction {
        /// Whatever.
        Any = 0, "ANY";
        /// It forwards.
        Route = 1, "ROUTE";
        /// It redirects.
        Redirect = 2, "REDIRECT";
        /// It answers itself.
        DirectResponse = 3, "DIRECT_RESPONSE";
    }
}

/// Which listeners are patched. What is empty or 0 matches all.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerMatch {
    /// The port of the listener; of a filter chain, where all ports share a listener.
    pub port_number: u32,
    /// Superseded, read by nothing.
    pub port_name: String,
    /// Which filter chains.
    pub filter_chain: Option<ListenerFilterChainMatch>,
    /// The name of a listener filter.
    pub listener_filter: String,
    /// The name of the listener.
    pub name: String,
}

/// Which filter chains are patched. What is empty or 0 matches all.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerFilterChainMatch {
    /// The name.
    pub name: String,
    /// One of the server names that it takes.
    pub sni: String,
    /// The transport that it takes: `raw_buffer` or `tls`.
    pub transport_protocol: String,
    /// The name of its transport socket. Read by nothing.
    pub transport_socket: String,
    /// Application protocols, joined by commas, all of which it takes.
    pub application_protocols: String,
    /// Which network filters.
    pub filter: Option<FilterMatch>,
    /// The destination port that it takes.
    pub destination_port: u32,
}

/// Which network filters are patched, or hold the HTTP filters that are.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FilterMatch {
    /// The name.
    pub name: String,
    /// Which filters within, for HTTP connection managers.
    pub sub_filter: Option<SubFilterMatch>,
}

/// Which HTTP filters are patched.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubFilterMatch {
    /// The name.
    pub name: String,
}

/// What of a waypoint is patched.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WaypointMatch {
    /// The service port.
    pub port_number: u32,
    /// Which route.
    pub route: Option<WaypointRouteMatch>,
    /// Which network filter.
    pub filter: Option<FilterMatch>,
}

/// Which route of a waypoint is patched.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WaypointRouteMatch {
    /// The name.
    pub name: String,
}

wire_enum! {
    /// What is done.
    PatchOperation {
        /// Not said; refused.
        Invalid = 0, "INVALID";
        /// The value is merged into the thing, lists are joined.
        Merge = 1, "MERGE";
        /// The value is added at the end.
        Add = 2, "ADD";
        /// The thing goes.
        Remove = 3, "REMOVE";
        /// The value is put before the thing; without a match, first.
        InsertBefore = 4, "INSERT_BEFORE";
        /// The value is put after the thing; without a match, last.
        InsertAfter = 5, "INSERT_AFTER";
        /// The value is put first.
        InsertFirst = 6, "INSERT_FIRST";
        /// The value takes the place of the thing.
        Replace = 7, "REPLACE";
        /// The value is merged into the thing, but its lists replace the thing's.
        MergeAndReplaceList = 8, "MERGE_AND_REPLACE_LIST";
    }
}

wire_enum! {
    /// Where among Istio's own filters one belongs; read by nothing.
    FilterClass {
        /// Not said.
        Unspecified = 0, "UNSPECIFIED";
        /// With those that say who the caller is.
        Authn = 1, "AUTHN";
        /// With those that say what the caller may.
        Authz = 2, "AUTHZ";
        /// With those that count.
        Stats = 3, "STATS";
    }
}

/// What is done to the things that match.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyPatch {
    /// What is done.
    pub operation: PatchOperation,
    /// The JSON of Envoy's message, whole or in part; of no use to `REMOVE`.
    pub value: Option<Map<String, Value>>,
    /// Where among Istio's own filters it belongs; read by nothing.
    pub filter_class: FilterClass,
}

impl ApplyTo {
    /// The full name of the message that a patch of this kind has as its value; `None` where nothing is said.
    #[must_use]
    pub fn message(self) -> Option<&'static str> {
        Some(match self {
            Self::Invalid => return None,
            Self::Listener => "envoy.config.listener.v3.Listener",
            Self::FilterChain => "envoy.config.listener.v3.FilterChain",
            Self::NetworkFilter => "envoy.config.listener.v3.Filter",
            Self::HttpFilter => "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter",
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
    /// Whether the value is merged into things.
    #[must_use]
    pub fn merges(self) -> bool {
        matches!(self, Self::Merge | Self::MergeAndReplaceList)
    }
}
