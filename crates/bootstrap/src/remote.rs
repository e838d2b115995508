//! Remote servers of the bootstrap: TLS and keepalive.

use serde_json::{Map, Value, json};

use super::BootstrapInput;
use navarch_api::istio::{ClientTlsMode, ClientTlsSettings, TcpKeepalive};

/// The protocols that a connection offers by ALPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alpn {
    /// No protocols.
    None,
    Http2,
}

/// The transport socket for TLS to a server; `None` for plain text. `name` is the SNI within the
/// mesh.
pub(super) fn transport_socket(
    input: &BootstrapInput<'_>,
    tls: Option<&ClientTlsSettings>,
    name: &str,
    alpn: Alpn,
) -> Option<Value> {
    let tls = tls?;
    let given = |key: &str, setting: &str| match input.node.text(key) {
        "" => setting.to_owned(),
        path => path.to_owned(),
    };
    let root = match given("TLS_CLIENT_ROOT_CERT", &tls.ca_certificates).as_str() {
        "" => None,
        path => Some(file_secret(&format!("file-root:{path}"))),
    };
    let (certificate, root, protocols) = match tls.mode {
        ClientTlsMode::Disable => return None,
        ClientTlsMode::Simple => (None, root, json!(["h2"])),
        ClientTlsMode::Mutual => {
            let chain = given("TLS_CLIENT_CERT_CHAIN", &tls.client_certificate);
            let key = given("TLS_CLIENT_KEY", &tls.private_key);
            let there = !chain.is_empty() && !key.is_empty();
            (
                there.then(|| file_secret(&format!("file-cert:{chain}~{key}"))),
                root,
                json!(["h2"]),
            )
        }
        ClientTlsMode::IstioMutual => (
            Some(workload_secret("default")),
            Some(workload_secret("ROOTCA")),
            json!(["istio", "h2"]),
        ),
    };

    let in_mesh = tls.mode == ClientTlsMode::IstioMutual && tls.sni.is_empty();
    let mut common = Map::new();
    if alpn == Alpn::Http2 {
        common.insert("alpn_protocols".to_owned(), protocols);
    }

    if let Some(certificate) = certificate {
        common.insert(
            "tls_certificate_sds_secret_configs".to_owned(),
            json!([certificate]),
        );
    }

    common.insert(
        "combined_validation_context".to_owned(),
        validation(tls, root),
    );
    let mut context = json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": common,
    });

    let sni = if in_mesh { name } else { &tls.sni };
    if let (Some(context), false) = (context.as_object_mut(), sni.is_empty()) {
        context.insert("sni".to_owned(), sni.into());
    }

    Some(json!({ "name": "envoy.transport_sockets.tls", "typed_config": context }))
}

/// The validation context for the server's certificate.
fn validation(tls: &ClientTlsSettings, root: Option<Value>) -> Value {
    let mut own = Map::new();
    if !tls.subject_alt_names.is_empty() {
        let names: Vec<_> = tls
            .subject_alt_names
            .iter()
            .map(|name| json!({ "exact": name }))
            .collect();
        own.insert("match_subject_alt_names".to_owned(), names.into());
    }
    let mut context = json!({ "default_validation_context": own });
    if let (Some(context), Some(root)) = (context.as_object_mut(), root) {
        context.insert("validation_context_sds_secret_config".to_owned(), root);
    }
    context
}

/// An SDS secret that the agent reads from files.
fn file_secret(name: &str) -> Value {
    json!({ "name": name, "sds_config": sds() })
}

/// An SDS secret of the workload's identity. Envoy starts without waiting for the secret.
fn workload_secret(name: &str) -> Value {
    let mut source = sds();
    if let Some(source) = source.as_object_mut() {
        source.insert("initial_fetch_timeout".to_owned(), "0s".into());
    }
    json!({ "name": name, "sds_config": source })
}

/// A config source for the agent's SDS server.
pub(super) fn sds() -> Value {
    json!({
        "api_config_source": {
            "api_type": "GRPC",
            "grpc_services": [{ "envoy_grpc": { "cluster_name": "sds-grpc" } }],
            "set_node_on_first_message_only": true,
            "transport_api_version": "V3",
        },
        "resource_api_version": "V3",
    })
}

/// Envoy's options for TCP keepalive.
pub(super) fn keepalive(keepalive: &TcpKeepalive) -> Value {
    let seconds =
        |span: Option<navarch_api::duration::Duration>| span.map_or(0, |span| span.as_secs());
    let values = [
        ("keepalive_probes", i64::from(keepalive.probes)),
        ("keepalive_time", seconds(keepalive.time)),
        ("keepalive_interval", seconds(keepalive.interval)),
    ];
    let set = values.into_iter().filter(|(_, value)| *value > 0);
    let set: Map<String, Value> = set
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect();
    json!({ "tcp_keepalive": set })
}
