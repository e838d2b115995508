//! A cluster under construction: messages that Envoy packs or nests are encoded at the end.

use navarch_proto::any;
use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, CommonLbConfig, CustomClusterType, DiscoveryType, EdsClusterConfig,
};
use navarch_proto::envoy::config::endpoint::v3::{ClusterLoadAssignment, LocalityLbEndpoints};
use navarch_proto::envoy::extensions::clusters::dynamic_forward_proxy::v3::ClusterConfig as DynamicConfig;

use super::http::HttpOptions;
use super::metadata::ClusterMetadata;
use crate::build::ads_source;

/// A cluster being built.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClusterBuilder {
    /// All fields without special treatment.
    pub(super) cluster: Cluster,
    /// How the proxy finds endpoints.
    pub(super) discovery: Discovery,
    /// Inline endpoints of the cluster.
    pub(super) endpoints: Vec<LocalityLbEndpoints>,
    /// HTTP protocol options of the upstream.
    pub(super) http: HttpOptions,
    /// Metadata for metrics and other parts of Istio.
    pub(super) metadata: ClusterMetadata,
}

/// How the proxy finds endpoints.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Discovery {
    /// Inline in the cluster.
    Static,
    /// By DNS, all addresses.
    StrictDns,
    /// By DNS, one address.
    LogicalDns,
    Eds,
    /// The original destination.
    OriginalDst,
    /// By DNS of the host of each request.
    Dynamic(Box<DynamicConfig>),
}

impl ClusterBuilder {
    /// An empty cluster of this name.
    pub(super) fn new(name: &str, discovery: Discovery) -> Self {
        let cluster = Cluster {
            name: name.to_owned(),
            alt_stat_name: stat_name(name),
            ..Cluster::default()
        };
        Self {
            cluster,
            discovery,
            endpoints: Vec::new(),
            http: HttpOptions::default(),
            metadata: ClusterMetadata::default(),
        }
    }

    /// The common settings of all load balancing policies.
    pub(super) fn common_lb(&mut self) -> &mut CommonLbConfig {
        self.cluster.common_lb_config.get_or_insert_default()
    }

    /// Whether each request contains its host.
    pub(super) fn is_dynamic(&self) -> bool {
        matches!(self.discovery, Discovery::Dynamic(_))
    }

    pub(super) fn finish(self) -> Cluster {
        let Self {
            mut cluster,
            mut discovery,
            endpoints,
            http,
            metadata,
        } = self;

        if let Discovery::Dynamic(config) = &mut discovery
            && http.leaves_names_unchecked()
        {
            // Envoy rejects the cluster unless this is explicitly allowed; istiod allows it only
            // with TLS.
            config.allow_insecure_cluster_options = true;
        }

        if discovery == Discovery::Eds {
            cluster.eds_cluster_config = Some(EdsClusterConfig {
                eds_config: Some(ads_source()),
                service_name: cluster.name.clone(),
            });
        }

        if !endpoints.is_empty() {
            cluster.load_assignment = Some(ClusterLoadAssignment {
                cluster_name: cluster.name.clone(),
                endpoints,
                ..ClusterLoadAssignment::default()
            });
        }

        cluster.cluster_discovery_type = Some(discovery.into_wire());

        if let Some(options) = http.into_wire() {
            cluster
                .typed_extension_protocol_options
                .insert(super::http::OPTIONS_KEY.to_owned(), options);
        }

        cluster.metadata = metadata.into_wire();
        cluster
    }
}

impl Discovery {
    /// The Envoy message.
    fn into_wire(self) -> ClusterDiscoveryType {
        let plain = |kind: DiscoveryType| ClusterDiscoveryType::Type(kind.into());
        match self {
            Self::Static => plain(DiscoveryType::Static),
            Self::StrictDns => plain(DiscoveryType::StrictDns),
            Self::LogicalDns => plain(DiscoveryType::LogicalDns),
            Self::Eds => plain(DiscoveryType::Eds),
            Self::OriginalDst => plain(DiscoveryType::OriginalDst),
            Self::Dynamic(config) => ClusterDiscoveryType::ClusterType(CustomClusterType {
                name: "envoy.clusters.dynamic_forward_proxy".to_owned(),
                typed_config: Some(any::pack(&*config)),
            }),
        }
    }
}

/// The stat name of a cluster. The delimiter marks its end, since the name may contain dots.
pub(crate) fn stat_name(name: &str) -> String {
    format!("{name};")
}
