//! The clusters of services that encoded resources name: in fields, and within the code and the
//! configuration of extensions.

use std::collections::BTreeSet;
use std::ops::Bound;

/// What the names of clusters of services begin with.
const PREFIX: &[u8] = b"outbound|";

/// Texts that begin with the names of clusters.
///
/// In the binary encoding the byte after a text can look like a further character of it. So the texts
/// may be longer than the names, and a cluster counts as named if a text begins with its name: with
/// `outbound|80||a.example2` also `outbound|80||a.example`. That errs towards more names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedClusters(BTreeSet<String>);

impl NamedClusters {
    /// The clusters that an encoded resource names.
    pub(crate) fn in_bytes(encoded: &[u8]) -> Self {
        let starts = encoded
            .windows(PREFIX.len())
            .enumerate()
            .filter(|(_, bytes)| *bytes == PREFIX);
        let text = |(start, _): (usize, &[u8])| {
            let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"|.-_*".contains(byte);
            let bytes = encoded.iter().skip(start).take_while(is_part);
            bytes.map(|byte| char::from(*byte)).collect()
        };
        Self(starts.map(text).collect())
    }

    /// Adds the clusters that others name.
    pub(crate) fn extend(&mut self, others: &Self) {
        self.0.extend(others.0.iter().cloned());
    }

    /// All texts in which a cluster may be named, sorted.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Whether a cluster is named.
    pub(crate) fn contains(&self, cluster: &str) -> bool {
        // Texts that begin with a name are in order right after it.
        let from = (Bound::Included(cluster), Bound::Unbounded);
        let mut from_name = self.0.range::<str, _>(from);
        from_name
            .next()
            .is_some_and(|text| text.starts_with(cluster))
    }
}

#[cfg(test)]
mod tests {
    use navarch_proto::envoy::config::core::v3::GrpcService;
    use navarch_proto::envoy::config::core::v3::grpc_service::{EnvoyGrpc, TargetSpecifier};
    use navarch_proto::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
    use navarch_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::ClusterSpecifier;
    use prost::Message;

    use super::*;

    const DB: &str = "outbound|5432||db.shop.svc.cluster.local";

    #[test]
    fn a_name_is_found_whatever_field_comes_next() {
        // The tags of fields 5 to 15 are characters of names.
        for seconds in [1, 48, 97] {
            let proxy = TcpProxy {
                stat_prefix: "p".to_owned(),
                cluster_specifier: Some(ClusterSpecifier::Cluster(DB.to_owned())),
                idle_timeout: Some(prost_types::Duration { seconds, nanos: 0 }),
                ..TcpProxy::default()
            };
            let named = NamedClusters::in_bytes(&proxy.encode_to_vec());
            assert!(named.contains(DB), "{named:?}");
            assert!(!named.contains("outbound|5433||db.shop.svc.cluster.local"));
            assert!(!named.contains("outbound|5432|v1|db.shop.svc.cluster.local"));
        }
    }

    #[test]
    fn names_are_found_in_services_and_in_code() {
        let target = EnvoyGrpc {
            cluster_name: "outbound|4317||otel.obs.svc.cluster.local".to_owned(),
            ..EnvoyGrpc::default()
        };
        let service = GrpcService {
            target_specifier: Some(TargetSpecifier::EnvoyGrpc(target)),
            ..GrpcService::default()
        };
        let mut named = NamedClusters::in_bytes(&service.encode_to_vec());
        named.extend(&NamedClusters::in_bytes(
            b"handle:httpCall(\"outbound|81||log.obs.svc.cluster.local\", {})",
        ));
        assert!(named.contains("outbound|4317||otel.obs.svc.cluster.local"));
        assert!(named.contains("outbound|81||log.obs.svc.cluster.local"));
        assert!(!named.contains("outbound|80||log.obs.svc.cluster.local"));
        assert!(!NamedClusters::in_bytes(b"inbound|80||").contains("outbound|80||a.example"));
    }
}
