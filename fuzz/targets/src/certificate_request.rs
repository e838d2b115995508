//! Requests to IstioCertificateService: their encoded bytes, and the fields beside the CSR.
//!
//! The first line of an input is the metadata as JSON with the lifetime as `validity`, the rest is
//! the CSR.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use navarch::api::decode::{Format, Outcome, decode_documents};
use navarch::api::identity::{Caller, Identity, PodOfCaller};
use navarch::api::names::{ClusterId, TrustDomain};
use navarch::api::object::NamespacedName;
use navarch::pki::KeyType;
use navarch::security::authenticate::{MeshSnapshot, SnapshotProvider};
use navarch::security::ca::service::{CertificateService, CertificateServiceConfig};
use navarch::security::ca::{Authority, Bundle, Metrics, in_force};
use navarch::store::Objects;
use navarch_proto::istio::v1::auth::IstioCertificateRequest;
use navarch_proto::istio::v1::auth::istio_certificate_service_server::IstioCertificateService as _;
use prometheus_client::registry::Registry;
use prost::Message as _;
use prost_types::{Struct, Value as ProtoValue, value::Kind};
use serde_json::Value;

/// A ztunnel and a workload on the same node.
const WORLD: &str = r"
{apiVersion: v1, kind: Pod, metadata: {name: ztunnel-1, namespace: istio-system, uid: u1}, spec: {serviceAccountName: ztunnel, nodeName: n, containers: [{name: a}]}, status: {phase: Running}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: shop, uid: u2}, spec: {serviceAccountName: web, nodeName: n, containers: [{name: a}]}, status: {phase: Running}}
---
{apiVersion: v1, kind: Pod, metadata: {name: far-1, namespace: shop, uid: u3}, spec: {serviceAccountName: evil, nodeName: other, containers: [{name: a}]}, status: {phase: Running}}
";
/// The callers, and the identities for which each may get a certificate.
const CALLERS: [(&str, &str, &[&str]); 2] = [
    (
        "spiffe://cluster.local/ns/shop/sa/web",
        "web-1",
        &["ns/shop/sa/web"],
    ),
    (
        "spiffe://cluster.local/ns/istio-system/sa/ztunnel",
        "ztunnel-1",
        &["ns/shop/sa/web", "ns/istio-system/sa/ztunnel"],
    ),
];

/// The objects of the mesh.
struct World(Objects);

impl SnapshotProvider for World {
    fn snapshot(&self) -> MeshSnapshot {
        MeshSnapshot {
            objects: self.0.clone(),
            remotes: Default::default(),
            trust_domain: TrustDomain::new("cluster.local"),
            aliases: Vec::new(),
            cluster: ClusterId::new("Kubernetes"),
        }
    }
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

/// Requests one certificate as each caller.
///
/// # Panics
/// If a caller gets a certificate for an identity that it may not have.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (beside, csr) = text.split_once('\n').unwrap_or((&text, ""));
    let read = serde_json::from_str(beside).unwrap_or(Value::Null);
    let from_text = IstioCertificateRequest {
        csr: csr.to_owned(),
        validity_duration: read
            .get("validity")
            .and_then(Value::as_i64)
            .unwrap_or_default(),
        metadata: match proto(&read, 0).kind {
            Some(Kind::StructValue(metadata)) => Some(metadata),
            _ => None,
        },
    };

    let mut requests = vec![from_text];
    requests.extend(IstioCertificateRequest::decode(data));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");

    for request in requests {
        for (identity, pod, may) in CALLERS {
            let service = service();
            let caller = Caller {
                identities: vec![Identity::parse(identity).expect("the identity is valid")],
                pod: Some(PodOfCaller {
                    name: pod.into(),
                    uid: if pod == "web-1" { "u2" } else { "u1" }.into(),
                    cluster: None,
                }),
                ..Caller::default()
            };

            let mut grpc_request = tonic::Request::new(request.clone());
            grpc_request.extensions_mut().insert(caller);
            let Ok(answer) = runtime.block_on(service.create_certificate(grpc_request)) else {
                continue;
            };

            let chain = answer.into_inner().cert_chain;
            let leaf = der(chain
                .first()
                .expect("a chain begins with the leaf certificate"));
            let has = |text: &str| leaf.windows(text.len()).any(|part| part == text.as_bytes());
            assert!(
                may.iter().any(|one| has(one)),
                "{identity} got something else"
            );
            assert!(!has("evil"), "the certificate has no name from the request");
        }
    }
}

/// A new service.
fn service() -> CertificateService {
    let mut objects = Objects::default();

    for decoded in decode_documents(WORLD, Format::Yaml) {
        let Outcome::Read { object, .. } = decoded.outcome else {
            panic!("the object is valid")
        };
        objects.put_any(object);
    }

    let day = Duration::from_secs(86_400);
    let bundle = Bundle::self_signed("cluster.local", KeyType::P256, 10 * day, now())
        .expect("random numbers are available");
    let (_, authority) =
        in_force(Authority::new(&bundle, now()).expect("a new CA certificate is valid"));
    let trusted_nodes = [NamespacedName::new("istio-system", "ztunnel")].into();
    let metrics = Metrics::register(&mut Registry::default(), now);
    let config = CertificateServiceConfig {
        trusted_nodes,
        ..CertificateServiceConfig::default()
    };

    CertificateService::new(authority, Arc::new(World(objects)), config, now, metrics)
}

/// JSON as a protobuf `Value`.
fn proto(value: &Value, depth: usize) -> ProtoValue {
    let kind = match value {
        _ if depth > 32 => Kind::NullValue(0),
        Value::Null => Kind::NullValue(0),
        Value::Bool(truth) => Kind::BoolValue(*truth),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(values) => Kind::ListValue(prost_types::ListValue {
            values: values.iter().map(|value| proto(value, depth + 1)).collect(),
        }),
        Value::Object(object) => Kind::StructValue(Struct {
            fields: object
                .iter()
                .map(|(name, value)| (name.clone(), proto(value, depth + 1)))
                .collect(),
        }),
    };
    ProtoValue { kind: Some(kind) }
}

/// The DER form of a PEM certificate.
fn der(pem: &str) -> Vec<u8> {
    use base64::Engine as _;
    let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    base64::prelude::BASE64_STANDARD
        .decode(body)
        .expect("the certificate is PEM")
}
