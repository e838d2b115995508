//! PEM files: CA bundles from Secrets and mounted directories, and certificates that gateways
//! serve.
//!
//! An input has up to five parts, separated by lines `=====`: certificate, key, chain, roots,
//! revocation lists.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use navarch::api::identity::Identity;
use navarch::api::kubernetes::SecretBytes;
use navarch::api::names::ResourceName;
use navarch::api::settings::Settings;
use navarch::envoy::EnvoyTranslator;
use navarch::push::engine::{Engine, Interest, PushCause, Sink};
use navarch::push::mesh_state::{Change, MeshState};
use navarch::push::proxy::{Locality, Proxy};
use navarch::push::resource::{Collection, ResourceType};
use navarch::security::ca::{Authority, Bundle, RootBundle, Subject};
use navarch::webhook::verdict::validate;
use serde_json::json;

/// Discards pushes.
struct Ignore;

impl Sink for Ignore {
    fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {}
}

/// Loads one bundle as CA and as a gateway's Secret.
///
/// # Panics
/// If an accepted CA cannot sign a certificate, or a translator panics.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut parts = text.split("=====\n").map(str::to_owned);
    let mut next = || parts.next().unwrap_or_default();
    let certificate = next();
    let key = next();
    let chain = next();
    let roots = next();
    let revocations = next();

    let _ = RootBundle::new(&roots);
    serve(&certificate, &key, &roots, &revocations);
    let bundle = Bundle {
        certificate,
        key: SecretBytes::new(key),
        chain,
        roots,
        revocations,
    };

    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    if let Ok(authority) = Authority::new(&bundle, now) {
        let identity = Identity::parse("spiffe://cluster.local/ns/shop/sa/web")
            .expect("the identity is valid");
        let issued = authority.issue(&Subject::Workload(identity), Duration::from_secs(60), now);
        assert!(
            issued.is_ok_and(|(chain, _)| !chain.is_empty()),
            "an accepted CA signs"
        );
    }
}

/// Lets a gateway subscribe to them as its own credentials.
fn serve(certificate: &str, key: &str, roots: &str, revocations: &str) {
    let strings =
        json!({ "tls.crt": certificate, "tls.key": key, "ca.crt": roots, "ca.crl": revocations });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "tls", "namespace": "default" }, "stringData": strings,
    });
    let Some(secret) = validate(&secret).object else {
        return;
    };

    let mut state = MeshState::new(Settings::default());
    state.apply([Change::Put(secret)]);
    let mut engine = Engine::new(state.context(), Arc::new(EnvoyTranslator));
    let metadata =
        json!({ "NAMESPACE": "default", "CLUSTER_ID": "Kubernetes", "SERVICE_ACCOUNT": "default" });
    let node = "router~10.1.0.1~a-0.default~default.svc.cluster.local";
    let Ok(mut proxy) = Proxy::parse(node, metadata, Locality::default()) else {
        return;
    };

    proxy.identity = Identity::parse("spiffe://cluster.local/ns/default/sa/default").ok();
    let id = engine.connect(Arc::new(proxy), Arc::new(Ignore));
    let names = ["kubernetes://tls", "kubernetes://tls-cacert"]
        .map(ResourceName::new)
        .into();
    engine.subscribe(
        id,
        ResourceType::Secret,
        Interest {
            wildcard: false,
            names: Arc::new(names),
        },
    );

    let faults = engine.faults();
    assert!(faults.is_empty(), "translators panicked: {faults:?}");
}
