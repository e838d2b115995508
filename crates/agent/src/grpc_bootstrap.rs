//! The bootstrap of applications that use xDS themselves (proxyless gRPC), through the agent.

use serde_json::{Value, json};

use super::go_path;
use super::node::Node;

/// The name template of the listener for a server address of such an application.
const LISTENER_TEMPLATE: &str = "xds.istio.io/grpc/lds/inbound/%s";

/// The interval at which certificate files are read again.
const REFRESH: &str = "900s";

/// The bootstrap. `socket` is the agent's xDS socket, `certificates` the directory with the
/// workload's certificates, or empty.
#[must_use]
pub fn grpc_bootstrap(node: &Node, socket: &str, certificates: &str) -> Value {
    let mut metadata = node.metadata.clone();
    metadata.insert("GENERATOR".to_owned(), "grpc".into());
    let mut bootstrap = json!({
        "xds_servers": [{
            "server_uri": format!("unix:///{socket}"),
            "channel_creds": [{ "type": "insecure" }],
            "server_features": ["xds_v3"],
        }],
        "node": {
            "id": node.id,
            "metadata": metadata,
            "locality": node.locality.to_json(),
            // For parity with pilot-agent; gRPC ignores it.
            "UserAgentVersionType": null,
        },
        "server_listener_resource_name_template": LISTENER_TEMPLATE,
    });

    if let (Some(fields), false) = (bootstrap.as_object_mut(), certificates.is_empty()) {
        let file = |name: &str| go_path::join(certificates, name);
        fields.insert(
            "certificate_providers".to_owned(),
            json!({ "default": { "plugin_name": "file_watcher", "config": {
                "private_key_file": file("key.pem"),
                "certificate_file": file("cert-chain.pem"),
                "ca_certificate_file": file("root-cert.pem"),
                "refresh_interval": REFRESH,
            } } }),
        );
    }

    bootstrap
}
