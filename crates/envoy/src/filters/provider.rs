//! Extension providers of mesh config, and the clusters of their services.

use navarch_proto::envoy::config::core::v3::{GrpcService, HttpUri, grpc_service, http_uri};

use crate::names::OutboundCluster;
use navarch_api::duration::Duration;
use navarch_api::mesh::ExtensionProvider;
use navarch_api::names::Hostname;
use navarch_push::notice::Unavailable;
use navarch_push::view::View;
use navarch_registry::model::ServiceKey;

/// The service of a provider, and its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderCluster {
    /// The service's host.
    pub host: String,
    /// The outbound cluster, such as `outbound|4317||collector.observe.svc.cluster.local`.
    pub cluster: String,
}

impl ProviderCluster {
    /// The gRPC service of the cluster.
    #[must_use]
    pub fn grpc_service(&self) -> GrpcService {
        let envoy = grpc_service::EnvoyGrpc {
            cluster_name: self.cluster.clone(),
            authority: self.host.clone(),
            ..grpc_service::EnvoyGrpc::default()
        };
        GrpcService {
            target_specifier: Some(grpc_service::TargetSpecifier::EnvoyGrpc(envoy)),
            ..GrpcService::default()
        }
    }
}

/// The provider of this name, case-insensitively.
#[must_use]
pub fn find<'a>(providers: &'a [ExtensionProvider], name: &str) -> Option<&'a ExtensionProvider> {
    providers
        .iter()
        .find(|provider| provider.name.eq_ignore_ascii_case(name))
}

/// Finds the cluster of a provider's service: `host`, which only one namespace may declare, or
/// `namespace/host`. `None` if there is no such service, or more than one, which is counted for
/// this kind of provider, under Istio's name.
#[must_use]
pub fn cluster(
    view: &View<'_>,
    kind: &'static str,
    service: &str,
    port: u32,
) -> Option<ProviderCluster> {
    let found = known_cluster(view, service, port);
    if found.is_none() {
        view.fail(Unavailable::Provider(kind), service);
    }
    found
}

/// The cluster of a service, if it exists.
fn known_cluster(view: &View<'_>, service: &str, port: u32) -> Option<ProviderCluster> {
    if service.is_empty() {
        return None;
    }

    let host = match service.split('/').collect::<Vec<&str>>().as_slice() {
        &[namespace, host] => view
            .service(&ServiceKey::new(namespace, host))?
            .key
            .hostname
            .clone(),
        _ => {
            let host = Hostname::new(service);
            view.namespaces_of_host(&host)
                .filter(|namespaces| namespaces.len() == 1)?;
            host
        }
    };

    let port = u16::try_from(port).unwrap_or_default();
    Some(ProviderCluster {
        cluster: OutboundCluster::new(port, "", &host).to_string(),
        host: host.to_string(),
    })
}

/// The URI of an HTTP service.
#[must_use]
pub fn http_uri(uri: String, cluster: &str, timeout: Option<Duration>) -> HttpUri {
    HttpUri {
        uri,
        timeout: timeout.map(Duration::to_proto),
        http_upstream_type: Some(http_uri::HttpUpstreamType::Cluster(cluster.to_owned())),
    }
}
