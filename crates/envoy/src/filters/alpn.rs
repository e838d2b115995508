//! The ALPN protocols that clients offer for HTTP over the mesh's mutual TLS, by which servers
//! recognize HTTP on ports without a declared protocol: Istio's filter `istio.alpn`, and what stands
//! in for it at Envoys without it.
//!
//! The stand-in is Envoy's filter that sets filter state: like Istio's it sets the object that
//! replaces the ALPN protocols of upstream TLS. Istio's filter asks the cluster for the HTTP version
//! of a request; the stand-in reads it from the cluster's metadata. Only clusters with the mesh's
//! mutual TLS have this metadata: requests to others, with TLS of users among them, are not changed.

use navarch_proto::envoy::config::core::v3::substitution_format_string::Format;
use navarch_proto::envoy::config::core::v3::{DataSource, SubstitutionFormatString, data_source};
use navarch_proto::envoy::extensions::filters::common::set_filter_state::v3::FilterStateValue;
use navarch_proto::envoy::extensions::filters::common::set_filter_state::v3::filter_state_value::{
    Key, Value,
};
use navarch_proto::envoy::extensions::filters::http::set_filter_state::v3::Config as SetFilterState;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use navarch_proto::istio::envoy::config::filter::http::alpn::v2alpha1::{
    FilterConfig, filter_config,
};

use super::http::filter;
use navarch_push::proxy::ProxyKind;
use navarch_push::view::View;

/// The extension of Istio's filter. The stand-in has the same name, so that EnvoyFilters find it.
const ISTIO_FILTER: &str = "istio.alpn";
/// The extensions of the stand-in.
const STAND_IN: [&str; 2] = [
    "envoy.filters.http.set_filter_state",
    "envoy.built_in_formatters.cel",
];
/// The filter state that replaces the ALPN protocols of upstream TLS.
const OBJECT: &str = "envoy.network.application_protocols";
/// The member of a cluster's metadata `istio` with its HTTP version.
pub(crate) const METADATA: &str = "alpn";
/// The protocols for HTTP/1.0, HTTP/1.1 and HTTP/2.
const HTTP10: [&str; 3] = ["istio-http/1.0", "istio", "http/1.0"];
const HTTP11: [&str; 3] = ["istio-http/1.1", "istio", "http/1.1"];
const HTTP2: [&str; 3] = ["istio-h2", "istio", "h2"];

/// The HTTP version of requests to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamVersion {
    Http1,
    Http2,
    /// The version of the client's request.
    OfClient,
}

impl UpstreamVersion {
    /// The value in the cluster's metadata.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Http1 => "http/1.1",
            Self::Http2 => "h2",
            Self::OfClient => "client",
        }
    }
}

/// The filter of clients: upstream TLS offers the protocol of the request, with Istio's names and
/// standard ones. `None` if it is disabled, or if the proxy supports neither form.
pub(crate) fn offered(view: &View<'_>) -> Option<HttpFilter> {
    if !view.mesh().settings.alpn_filter {
        return None;
    }
    if view.proxy().supports(ISTIO_FILTER) {
        return Some(filter(ISTIO_FILTER, &istio_config()));
    }
    if STAND_IN.iter().all(|name| view.proxy().supports(name)) {
        return Some(filter(ISTIO_FILTER, &stand_in()));
    }

    view.remark(format!(
        "this Envoy supports neither {ISTIO_FILTER} nor {}: servers handle its HTTP to ports without \
         a declared protocol as TCP, so their policies for HTTP do not apply; declare the protocol",
        STAND_IN.join(" with ")
    ));
    None
}

/// Whether clusters of the proxy need the metadata for the stand-in.
pub(crate) fn is_stood_in(view: &View<'_>) -> bool {
    let proxy = view.proxy();
    matches!(proxy.kind(), ProxyKind::Sidecar | ProxyKind::Router)
        && view.mesh().settings.alpn_filter
        && !proxy.supports(ISTIO_FILTER)
        && STAND_IN.iter().all(|name| proxy.supports(name))
}

/// The configuration of Istio's filter.
fn istio_config() -> FilterConfig {
    let offer = |protocol: filter_config::Protocol, names: [&str; 3]| filter_config::AlpnOverride {
        upstream_protocol: protocol.into(),
        alpn_override: names.map(str::to_owned).to_vec(),
    };
    FilterConfig {
        alpn_override: vec![
            offer(filter_config::Protocol::Http10, HTTP10),
            offer(filter_config::Protocol::Http11, HTTP11),
            offer(filter_config::Protocol::Http2, HTTP2),
        ],
    }
}

/// The configuration of the stand-in. Envoy's upstream version for a client's HTTP/1.0 is HTTP/1.1,
/// and for HTTP/3 HTTP/2. Without the metadata the expression has no value, and nothing is set. The
/// object is not shared with upstream connections: those through a tunnel have ALPN protocols of
/// their own.
fn stand_in() -> SetFilterState {
    let version = format!("xds.cluster_metadata.filter_metadata['istio']['{METADATA}']");
    let expression = format!(
        "{version} == '{}' || {version} == '{}' && request.protocol in ['HTTP/2', 'HTTP/3'] ? '{}' : '{}'",
        UpstreamVersion::Http2.as_str(),
        UpstreamVersion::OfClient.as_str(),
        HTTP2.join(","),
        HTTP11.join(","),
    );

    let format = SubstitutionFormatString {
        omit_empty_values: true,
        format: Some(Format::TextFormatSource(DataSource {
            specifier: Some(data_source::Specifier::InlineString(format!(
                "%CEL({expression})%"
            ))),
            ..DataSource::default()
        })),
        ..SubstitutionFormatString::default()
    };
    SetFilterState {
        on_request_headers: vec![FilterStateValue {
            key: Some(Key::ObjectKey(OBJECT.to_owned())),
            value: Some(Value::FormatString(format)),
            skip_if_empty: true,
            ..FilterStateValue::default()
        }],
        ..SetFilterState::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use navarch_proto::envoy::config::cluster::v3::Cluster;
    use navarch_proto::envoy::config::listener::v3::filter::ConfigType::TypedConfig;
    use navarch_proto::envoy::config::listener::v3::{FilterChain, Listener};
    use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
    use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_filter;
    use prost::Message;
    use prost_types::value::Kind;

    use super::*;
    use crate::test_mesh::{TestMesh, networking};
    use navarch_api::settings::Settings;
    use navarch_push::engine::ProxyId;
    use navarch_push::resource::ResourceType;

    /// Services with ports of every kind of protocol, and rules that change them.
    fn world() -> String {
        let ports = "{name: http, port: 80}, {name: grpc, port: 81}, {name: main, port: 82}, {name: tcp, port: 83}";
        let service = |name: &str| {
            format!(
                "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\n\
                 spec: {{clusterIP: 10.96.0.1, ports: [{ports}]}}\n---\n"
            )
        };
        let rule = |name: &str, policy: &str| {
            let spec = format!("{{host: {name}, trafficPolicy: {{{policy}}}}}");
            networking("DestinationRule", "shop", name, &spec)
        };
        let outside = "{hosts: [out.example], location: MESH_EXTERNAL, resolution: DNS, \
                       ports: [{number: 80, name: http, protocol: HTTP}]}";
        let patch = "{configPatches: [{applyTo: CLUSTER, \
                     match: {cluster: {service: patched.shop.svc.cluster.local, portNumber: 80}}, \
                     patch: {operation: MERGE, value: {typed_extension_protocol_options: \
                     {envoy.extensions.upstreams.http.v3.HttpProtocolOptions: \
                     {'@type': type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions, \
                     explicit_http_config: {http2_protocol_options: {}}}}}}}]}";

        let deprecated = "{configPatches: [{applyTo: CLUSTER, \
                          match: {cluster: {service: older.shop.svc.cluster.local}}, \
                          patch: {operation: MERGE, value: {http2_protocol_options: {}}}}]}";

        service("plain")
            + &service("older")
            + &networking("EnvoyFilter", "shop", "deprecated", deprecated)
                .replace("networking.istio.io/v1", "networking.istio.io/v1alpha3")
            + &service("upgraded")
            + &rule(
                "upgraded",
                "connectionPool: {http: {h2UpgradePolicy: UPGRADE}}",
            )
            + &service("follows")
            + &rule(
                "follows",
                "connectionPool: {http: {useClientProtocol: true}}",
            )
            + &service("mesh")
            + &rule("mesh", "tls: {mode: ISTIO_MUTUAL}")
            + &service("simple")
            + &rule("simple", "tls: {mode: SIMPLE}")
            + &service("mutual")
            + &rule(
                "mutual",
                "tls: {mode: MUTUAL, clientCertificate: /c, privateKey: /k, caCertificates: /r}",
            )
            + &service("off")
            + &rule("off", "tls: {mode: DISABLE}")
            + &service("patched")
            + &networking("EnvoyFilter", "shop", "http2", patch)
                .replace("networking.istio.io/v1", "networking.istio.io/v1alpha3")
            + &networking("ServiceEntry", "shop", "outside", outside)
    }

    /// The HTTP versions in the metadata of clusters, as `service:port`.
    fn versions(mesh: &mut TestMesh, proxy: ProxyId) -> BTreeMap<String, String> {
        let names = mesh.all_names(proxy, ResourceType::Cluster);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let clusters: BTreeMap<String, Cluster> = mesh.named(proxy, ResourceType::Cluster, &names);
        let version = |(name, cluster): (String, Cluster)| {
            let metadata = cluster.metadata?;
            let value = metadata
                .filter_metadata
                .get("istio")?
                .fields
                .get(METADATA)?;
            let Some(Kind::StringValue(version)) = &value.kind else {
                panic!("{value:?}")
            };
            let mut parts = name.split('|');
            let port = parts.nth(1)?;
            let service = parts.nth(1)?.split('.').next()?;
            Some((format!("{service}:{port}"), version.clone()))
        };
        clusters.into_iter().filter_map(version).collect()
    }

    /// The ALPN filters of all connection managers, by listener.
    fn filters(mesh: &mut TestMesh, proxy: ProxyId) -> BTreeMap<String, HttpFilter> {
        let names = mesh.all_names(proxy, ResourceType::Listener);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let listeners: BTreeMap<String, Listener> =
            mesh.named(proxy, ResourceType::Listener, &names);
        let of_chain = |chain: &FilterChain| {
            let last = chain.filters.last()?;
            let Some(TypedConfig(config)) = &last.config_type else {
                return None;
            };
            let manager = HttpConnectionManager::decode(config.value.as_slice()).ok()?;
            manager
                .http_filters
                .into_iter()
                .find(|filter| filter.name == ISTIO_FILTER)
        };
        listeners
            .into_iter()
            .filter_map(|(name, listener)| {
                let chains = listener.filter_chains.iter();
                let found = chains.chain(&listener.default_filter_chain);
                Some((name, found.filter_map(of_chain).next()?))
            })
            .collect()
    }

    fn type_of(filter: &HttpFilter) -> &str {
        let Some(http_filter::ConfigType::TypedConfig(config)) = &filter.config_type else {
            panic!("no configuration")
        };
        config.type_url.rsplit('.').next().unwrap()
    }

    #[test]
    fn an_envoy_without_istios_filter_gets_a_stand_in_and_the_versions_of_clusters() {
        let mut mesh = TestMesh::new(&world());
        let stock = mesh.with_extensions("sidecar", "shop", &STAND_IN);
        let of_stock = filters(&mut mesh, stock);
        assert!(of_stock.contains_key("0.0.0.0_80"), "{of_stock:?}");
        assert!(
            !of_stock.contains_key("virtualInbound"),
            "only clients offer"
        );
        assert!(of_stock.values().all(|filter| type_of(filter) == "Config"));

        let istio = mesh.sidecar("shop", "web");
        let of_istio = filters(&mut mesh, istio);
        assert!(
            of_istio
                .values()
                .all(|filter| type_of(filter) == "FilterConfig")
        );
        assert!(of_istio.keys().eq(of_stock.keys()), "in the same places");
        assert_eq!(versions(&mut mesh, istio), BTreeMap::new());

        let by_protocol = ["http/1.1", "h2", "client", "http/1.1"];
        let services = [
            ("plain", by_protocol),
            ("mesh", by_protocol),
            ("upgraded", ["h2", "h2", "client", "h2"]),
            ("follows", ["client"; 4]),
            ("patched", ["h2", "h2", "client", "http/1.1"]),
            // Envoy ignores the deprecated fields where the extension has options.
            ("older", ["h2", "h2", "client", "h2"]),
        ];
        let mut expected = BTreeMap::new();
        for (service, versions) in services {
            for (port, version) in (80..).zip(versions) {
                expected.insert(format!("{service}:{port}"), version);
            }
        }

        let found = versions(&mut mesh, stock);
        let found: BTreeMap<String, &str> = found
            .iter()
            .map(|(name, version)| (name.clone(), version.as_str()))
            .collect();
        assert_eq!(found, expected);

        let router = mesh.with_extensions("router", "shop", &STAND_IN);
        let of_router = versions(&mut mesh, router);
        assert_eq!(of_router["plain:81"], "h2");
        assert_eq!(of_router["plain:82"], "http/1.1", "gateways detect nothing");
        assert!(!of_router.contains_key("simple:80"));
    }

    #[test]
    fn the_replacement_filter_is_switched_off_with_the_filter_and_its_absence_reported() {
        let settings = Settings {
            alpn_filter: false,
            ..Settings::default()
        };
        let mut mesh = TestMesh::with_settings(&world(), settings);
        let stock = mesh.with_extensions("sidecar", "shop", &STAND_IN);
        assert_eq!(filters(&mut mesh, stock), BTreeMap::new());
        assert_eq!(versions(&mut mesh, stock), BTreeMap::new());
        assert_eq!(mesh.remarks(), []);

        let mut mesh = TestMesh::new(&world());
        let poor = mesh.with_extensions("sidecar", "shop", &["envoy.filters.http.router"]);
        assert_eq!(filters(&mut mesh, poor), BTreeMap::new());
        assert_eq!(versions(&mut mesh, poor), BTreeMap::new());
        let remarks = mesh.remarks().join("\n");
        assert!(remarks.contains("handle its HTTP"), "{remarks}");
    }

    #[test]
    fn the_replacement_filter_uses_the_version_of_cluster_and_request() {
        let state = stand_in();
        let [value] = state.on_request_headers.as_slice() else {
            panic!("{state:?}")
        };
        let Some(Value::FormatString(format)) = &value.value else {
            panic!("{value:?}")
        };
        let Some(Format::TextFormatSource(source)) = &format.format else {
            panic!("{format:?}")
        };
        let expected = "%CEL(xds.cluster_metadata.filter_metadata['istio']['alpn'] == 'h2' \
            || xds.cluster_metadata.filter_metadata['istio']['alpn'] == 'client' \
            && request.protocol in ['HTTP/2', 'HTTP/3'] \
            ? 'istio-h2,istio,h2' : 'istio-http/1.1,istio,http/1.1')%";
        assert_eq!(
            source.specifier,
            Some(data_source::Specifier::InlineString(expected.to_owned()))
        );
        assert!(format.omit_empty_values && value.skip_if_empty);
    }
}
