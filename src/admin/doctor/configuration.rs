//! A digest of the effective configuration, by which replicas compare theirs.

use std::fmt::{Debug, Write as _};

use navarch_api::gateway_api as gateway;
use navarch_api::istio as kinds;
use navarch_base::digest::sha256_hex;
use navarch_push::context::PushContext;
use navarch_store::Stored;

/// The digest of the mesh config and of the objects of Istio and the Gateway API, independent of
/// their order and history. Walks over all objects.
pub(super) fn digest(context: &PushContext) -> String {
    let mut all = vec![sha256_hex(format!("{:?}", context.mesh.config))];
    add::<kinds::DestinationRule>(context, &mut all);
    add::<kinds::EnvoyFilter>(context, &mut all);
    add::<kinds::Gateway>(context, &mut all);
    add::<kinds::ProxyConfig>(context, &mut all);
    add::<kinds::ServiceEntry>(context, &mut all);
    add::<kinds::Sidecar>(context, &mut all);
    add::<kinds::VirtualService>(context, &mut all);

    add::<kinds::WorkloadEntry>(context, &mut all);
    add::<kinds::AuthorizationPolicy>(context, &mut all);
    add::<kinds::PeerAuthentication>(context, &mut all);
    add::<kinds::RequestAuthentication>(context, &mut all);
    add::<kinds::Telemetry>(context, &mut all);
    add::<kinds::TrafficExtension>(context, &mut all);
    add::<kinds::WasmPlugin>(context, &mut all);
    add::<gateway::GatewayClass>(context, &mut all);

    add::<gateway::KubernetesGateway>(context, &mut all);
    add::<gateway::HttpRoute>(context, &mut all);
    add::<gateway::GrpcRoute>(context, &mut all);
    add::<gateway::TlsRoute>(context, &mut all);
    add::<gateway::TcpRoute>(context, &mut all);
    add::<gateway::ReferenceGrant>(context, &mut all);
    add::<gateway::BackendTlsPolicy>(context, &mut all);
    add::<gateway::ListenerSet>(context, &mut all);

    all.sort_unstable();
    sha256_hex(all.concat())
}

/// Adds the digests of the objects of one kind.
fn add<T: Stored + Debug>(context: &PushContext, all: &mut Vec<String>) {
    let mut text = String::new();
    for object in T::table(&context.objects).iter() {
        text.clear();
        // Writing to a `String` never fails.
        _ = write!(
            text,
            "{} {:?} {:?} {:?}",
            T::KIND,
            object.meta.key,
            object.meta.labels,
            object.spec
        );
        all.push(sha256_hex(&text));
    }
}
