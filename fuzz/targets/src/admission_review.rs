//! Bodies posted to `/validate` and `/inject`, by an API server or any other client.
//!
//! The cluster contains a few objects, so that checks across objects have some to look at.

use std::sync::Arc;

use navarch::api::decode::{Format, Outcome, decode_documents};
use navarch::api::mesh::MeshConfig;
use navarch::store::Objects;
use navarch::webhook::inject::{Injector, InjectorInputs};
use navarch::webhook::{inject_review, validate_review};
use serde_json::Value;

/// The objects in the cluster.
const WORLD: &str = r"
{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop, labels: {app: reviews}}, spec: {containers: []}}
---
{apiVersion: v1, kind: Service, metadata: {name: reviews, namespace: shop}, spec: {selector: {app: reviews}, ports: [{port: 80}]}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: other, namespace: shop}
spec: {hosts: [reviews], http: [{route: [{destination: {host: reviews}}]}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec: {host: reviews, subsets: [{name: v1, labels: {version: v1}}]}
";

/// Posts one body.
///
/// # Panics
/// If a webhook panics, or its response is not an AdmissionReview.
pub fn run(data: &[u8]) {
    let mut objects = Objects::default();

    for decoded in decode_documents(WORLD, Format::Yaml) {
        if let Outcome::Read { object, .. } = decoded.outcome {
            objects.put_any(object);
        }
    }

    let inputs = InjectorInputs::new(Arc::new(MeshConfig::istio_defaults()));
    let injector = Injector::new(&inputs);
    let injector = injector.expect("the default configuration is valid");

    for answer in [
        validate_review(data, Some(&objects)),
        validate_review(data, None),
        inject_review(data, "/inject/cluster/c/net/n", &injector, Some(&objects)),
    ] {
        let answer: Value = serde_json::from_slice(&answer.expect("responses can be encoded"))
            .expect("responses are JSON");
        assert!(
            answer
                .pointer("/response/allowed")
                .is_some_and(Value::is_boolean),
            "{answer}"
        );
        let warnings = answer
            .pointer("/response/warnings")
            .and_then(Value::as_array);
        assert!(
            warnings.is_none_or(|warnings| warnings.len() <= 20),
            "{answer}"
        );
    }
}
