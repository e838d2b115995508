//! The resource types to which a simulated proxy subscribes.

/// A resource type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceType {
    /// CDS.
    Clusters,
    /// EDS.
    Endpoints,
    /// LDS.
    Listeners,
    /// RDS.
    Routes,
    /// VHDS.
    VirtualHosts,
}

impl ResourceType {
    /// All types, by index.
    pub(crate) const ALL: [Self; 5] = [
        Self::Clusters,
        Self::Endpoints,
        Self::Listeners,
        Self::Routes,
        Self::VirtualHosts,
    ];

    /// The index of the type.
    pub(crate) fn index(self) -> usize {
        self as usize
    }

    pub(crate) fn type_url(self) -> &'static str {
        match self {
            Self::Clusters => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listeners => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Routes => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            Self::VirtualHosts => "type.googleapis.com/envoy.config.route.v3.VirtualHost",
        }
    }

    /// The type with a type URL; `None` for types to which proxies do not subscribe.
    pub(crate) fn of(type_url: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|resource_type| resource_type.type_url().as_bytes() == type_url)
    }

    /// The short name in reports.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Clusters => "clusters",
            Self::Endpoints => "endpoints",
            Self::Listeners => "listeners",
            Self::Routes => "routes",
            Self::VirtualHosts => "virtual hosts",
        }
    }
}
