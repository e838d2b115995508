//! The overlay `grpc-simple`: a bootstrap file without an agent, for applications with xDS in their
//! gRPC library.
//!
//! Such applications have no mesh identity and connect to the control plane in plain text.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::super::context::Context;
use super::super::names::REWRITE_PROBES;
use super::super::pod;
use super::{Overlay, env, volumes};

/// The volume with the bootstrap file.
const VOLUME: &str = "grpc-io-proxyless-bootstrap";

/// The mount path of the volume.
const FOLDER: &str = "/var/lib/grpc/data/";

const FILE: &str = "/var/lib/grpc/data/bootstrap.json";

pub(super) fn build(context: &Context<'_>) -> Overlay {
    let application = |name: &str| Container {
        name: name.to_owned(),
        env: Some(vec![
            env::plain("GRPC_XDS_BOOTSTRAP", FILE),
            env::plain("GRPC_GO_LOG_VERBOSITY_LEVEL", "99"),
            env::plain("GRPC_GO_LOG_SEVERITY_LEVEL", "info"),
        ]),
        volume_mounts: Some(vec![volumes::mount(VOLUME, FOLDER)]),
        ..Container::default()
    };

    Overlay {
        annotations: BTreeMap::from([(REWRITE_PROBES.to_owned(), "false".to_owned())]),
        spec: PodSpec {
            init_containers: Some(vec![writer(context)]),
            containers: context
                .containers()
                .iter()
                .map(|container| application(pod::name(container)))
                .collect(),
            volumes: Some(vec![volumes::empty(VOLUME)]),
            ..PodSpec::default()
        },
        ..Overlay::default()
    }
}

/// The init container that writes the bootstrap file.
fn writer(context: &Context<'_>) -> Container {
    Container {
        name: "grpc-bootstrap-init".to_owned(),
        image: Some("busybox:1.28".to_owned()),
        volume_mounts: Some(vec![volumes::mount(VOLUME, FOLDER)]),
        env: Some(vec![
            env::field("INSTANCE_IP", "status.podIP"),
            env::field("POD_NAME", "metadata.name"),
            env::field("POD_NAMESPACE", "metadata.namespace"),
            env::plain(
                "ISTIO_NAMESPACE",
                format!("{}\n", context.values.global.istio_namespace),
            ),
        ]),
        command: Some(vec!["sh".to_owned(), "-c".to_owned(), SCRIPT.to_owned()]),
        ..Container::default()
    }
}

/// The shell script of the init container: the shell inserts name and address of the pod.
const SCRIPT: &str = r#"NODE_ID="sidecar~${INSTANCE_IP}~${POD_NAME}.${POD_NAMESPACE}~cluster.local"
SERVER_URI="dns:///istiod.${ISTIO_NAMESPACE}.svc:15010"
echo '
{
  "xds_servers": [
    {
      "server_uri": "'${SERVER_URI}'",
      "channel_creds": [{"type": "insecure"}],
      "server_features" : ["xds_v3"]
    }
  ],
  "node": {
    "id": "'${NODE_ID}'",
    "metadata": {
      "GENERATOR": "grpc"
    }
  }
}' > /var/lib/grpc/data/bootstrap.json"#;
