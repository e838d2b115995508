//! Encoded resources: the output of translators, shared by streams.

pub mod resources;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use self::resources::Resources;
use navarch_api::mcp;
use navarch_api::names::ResourceName;
use navarch_api::object::Kind;
use navarch_base::resource_version::Version;

/// The xDS types that Navarch serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceType {
    /// CDS.
    Cluster,
    /// EDS.
    Endpoint,
    /// LDS.
    Listener,
    /// RDS.
    Route,
    /// VHDS: virtual hosts on their own, named `<route configuration>/<virtual host>`.
    VirtualHost,
    /// SDS.
    Secret,
    /// ECDS.
    ExtensionConfig,
    /// NDS, Istio's DNS table.
    NameTable,
    /// PCDS: proxy config for the agent of a proxy, which contains the trusted roots.
    ProxyConfig,
    /// Envoy's bootstrap, for agents that request it before they start Envoy.
    Bootstrap,
    /// The locality of the asking proxy, for agents whose machine does not know it.
    Locality,
    /// Statuses of Gateway API objects, as JSON: for the control plane itself, not served to
    /// clients.
    ObjectStatus,
    /// Workloads and services by address, for ztunnel.
    Address,
    /// The workloads of `Address` only.
    Workload,
    /// Authorization policies, for ztunnel.
    Authorization,
    /// Istio's objects of a kind as users wrote them, for other control planes (MCP over xDS).
    Object(Kind),
}

/// One resource, encoded once and shared by every proxy that receives it.
pub struct Resource {
    /// Decides the type URL of the `Any` around `body`.
    pub resource_type: ResourceType,
    /// The name used in subscriptions.
    pub name: ResourceName,
    /// The encoded message, without the `Any` around it.
    pub body: Bytes,
    /// Hash of the body: equal content has an equal version, also after a restart and on every
    /// replica.
    pub version: Version,
}

/// All resources of one type for one proxy: sorted by name, each at most once.
#[derive(PartialEq, Eq)]
pub struct Collection {
    /// The type under which proxies subscribe to the collection.
    pub resource_type: ResourceType,
    /// Sorted by name.
    pub resources: Resources,
    /// The requested names without a resource, for types that are requested by address; `None` for
    /// wildcard subscriptions and other types.
    pub unknown: Option<Arc<BTreeSet<ResourceName>>>,
}

impl ResourceType {
    /// All types in the order in which they are pushed.
    pub const ALL: [Self; 30] = [
        Self::Cluster,
        Self::Endpoint,
        Self::Listener,
        Self::Route,
        Self::VirtualHost,
        Self::Secret,
        Self::ExtensionConfig,
        Self::NameTable,
        Self::ProxyConfig,
        Self::Bootstrap,
        Self::Locality,
        Self::ObjectStatus,
        Self::Address,
        Self::Workload,
        Self::Authorization,
        Self::Object(Kind::AuthorizationPolicy),
        Self::Object(Kind::DestinationRule),
        Self::Object(Kind::EnvoyFilter),
        Self::Object(Kind::Gateway),
        Self::Object(Kind::PeerAuthentication),
        Self::Object(Kind::ProxyConfig),
        Self::Object(Kind::RequestAuthentication),
        Self::Object(Kind::ServiceEntry),
        Self::Object(Kind::Sidecar),
        Self::Object(Kind::Telemetry),
        Self::Object(Kind::TrafficExtension),
        Self::Object(Kind::VirtualService),
        Self::Object(Kind::WasmPlugin),
        Self::Object(Kind::WorkloadEntry),
        Self::Object(Kind::WorkloadGroup),
    ];

    /// The type URL on the wire; empty for types that are not served to clients.
    #[must_use]
    pub fn type_url(self) -> &'static str {
        match self {
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoint => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            Self::VirtualHost => "type.googleapis.com/envoy.config.route.v3.VirtualHost",
            Self::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            Self::ExtensionConfig => {
                "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
            }
            Self::NameTable => "type.googleapis.com/istio.networking.nds.v1.NameTable",
            Self::ProxyConfig => "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig",
            Self::Bootstrap => "type.googleapis.com/envoy.config.bootstrap.v3.Bootstrap",
            Self::Locality => "type.googleapis.com/envoy.config.core.v3.Locality",
            Self::ObjectStatus => "",
            Self::Address => "type.googleapis.com/istio.workload.Address",
            Self::Workload => "type.googleapis.com/istio.workload.Workload",
            Self::Authorization => "type.googleapis.com/istio.security.Authorization",
            Self::Object(kind) => mcp::type_url(kind),
        }
    }

    /// The type URL of one resource: the URL of the type, except for objects, which have a common
    /// envelope.
    #[must_use]
    pub fn resource_url(self) -> &'static str {
        if matches!(self, Self::Object(_)) {
            mcp::RESOURCE_URL
        } else {
            self.type_url()
        }
    }

    /// The type of this URL, if served.
    #[must_use]
    pub fn from_type_url(url: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|resource_type| !url.is_empty() && resource_type.type_url() == url)
    }

    /// Istio's short name, as in `cds`; that of [`Self::Locality`], which Istio lacks, is Navarch's
    /// own. Istio uses the same name for [`Self::Workload`] and [`Self::Address`]; objects of all
    /// kinds share one.
    #[must_use]
    pub fn short_name(self) -> &'static str {
        match self {
            Self::Cluster => "cds",
            Self::Endpoint => "eds",
            Self::Listener => "lds",
            Self::Route => "rds",
            Self::VirtualHost => "vhds",
            Self::Secret => "sds",
            Self::ExtensionConfig => "ecds",
            Self::NameTable => "nds",
            Self::ProxyConfig => "pcds",
            Self::Bootstrap => "bds",
            Self::Locality => "locality",
            Self::ObjectStatus => "status",
            Self::Address => "wds",
            Self::Workload => "wlds",
            Self::Authorization => "wads",
            Self::Object(_) => "mcp",
        }
    }

    /// Whether a client that requests no names gets all resources.
    #[must_use]
    pub fn is_wildcard_by_default(self) -> bool {
        match self {
            Self::Cluster
            | Self::Listener
            | Self::VirtualHost
            | Self::NameTable
            | Self::ProxyConfig
            | Self::Bootstrap
            | Self::Locality
            | Self::Address
            | Self::Workload
            | Self::Authorization
            | Self::Object(_) => true,
            Self::Endpoint
            | Self::Route
            | Self::Secret
            | Self::ExtensionConfig
            | Self::ObjectStatus => false,
        }
    }

    /// Whether the type contains workloads and services by address: such a resource is also found
    /// by other names than its own, and a requested name can match several.
    #[must_use]
    pub fn is_by_address(self) -> bool {
        matches!(self, Self::Address | Self::Workload)
    }

    /// Whether the type is for ztunnel, in ambient mode only.
    #[must_use]
    pub fn is_ambient(self) -> bool {
        matches!(self, Self::Address | Self::Workload | Self::Authorization)
    }
}

impl Collection {
    /// A collection for a subscription by name, or for a wildcard subscription.
    #[must_use]
    pub fn new(resource_type: ResourceType, resources: Resources) -> Self {
        Self {
            resource_type,
            resources,
            unknown: None,
        }
    }
}

impl Resource {
    /// Wraps an encoded message. Costs one hash of the body.
    #[must_use]
    pub fn new(resource_type: ResourceType, name: ResourceName, body: Bytes) -> Self {
        let version = Version::of(&body);
        Self {
            resource_type,
            name,
            body,
            version,
        }
    }
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version
            && self.name == other.name
            && self.resource_type == other.resource_type
    }
}

impl Eq for Resource {}

// Bodies can contain private keys (SDS): they are not shown.
impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} @{} ({} bytes)",
            self.resource_type.short_name(),
            self.name,
            self.version,
            self.body.len()
        )
    }
}

impl fmt::Debug for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} × {}",
            self.resources.len(),
            self.resource_type.short_name()
        )
    }
}
