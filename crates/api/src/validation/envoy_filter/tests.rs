//! Cases that are missing in istiod's recorded responses.

use serde_json::{Value, json};

use super::*;
use crate::typed::Typed;

/// The fields of errors and of warnings, without the warning that every EnvoyFilter has.
fn judge(spec: &Value) -> (Vec<String>, Vec<String>) {
    let filter = Typed::<EnvoyFilter>::from_proto_json(spec).unwrap().value;
    let verdict = filter.validate(&ObjectMeta::default());
    let fields = |problems: Vec<crate::validation::Problem>| {
        problems
            .into_iter()
            .map(|problem| problem.field)
            .filter(|field| field != "spec")
            .collect()
    };
    (fields(verdict.errors), fields(verdict.warnings))
}

/// The same of one patch.
fn judge_patch(patch: Value) -> (Vec<String>, Vec<String>) {
    let strip = |fields: Vec<String>| {
        fields
            .into_iter()
            .map(|field| {
                field
                    .trim_start_matches("spec.configPatches[0].")
                    .to_owned()
            })
            .collect()
    };
    let (errors, warnings) = judge(&json!({ "configPatches": [patch] }));
    (strip(errors), strip(warnings))
}

fn none() -> Vec<String> {
    Vec::new()
}

#[test]
fn values_must_be_envoys() {
    let cluster = |value: Value| {
        judge_patch(
            json!({ "applyTo": "CLUSTER", "patch": { "operation": "MERGE", "value": value } }),
        )
    };
    assert_eq!(
        cluster(json!({ "connect_timeout": "1s" })),
        (none(), none())
    );

    assert_eq!(
        cluster(json!({ "connectTimeout": "one" })),
        (vec!["patch.value".to_owned()], none())
    );
    assert_eq!(
        cluster(json!({ "colour": "red" })),
        (none(), vec!["patch.value".to_owned()])
    );

    let socket = |url: &str| json!({ "transport_socket": { "name": "tls", "typed_config": { "@type": url } } });
    assert_eq!(
        cluster(socket("type.googleapis.com/no.such.Type")),
        (vec!["patch.value".to_owned()], none())
    );
    let tls = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
    assert_eq!(cluster(socket(tls)), (none(), none()));
    assert_eq!(
        cluster(json!({ "transport_socket": { "name": "tls" } })),
        (none(), vec!["patch.value".to_owned()])
    );
}

#[test]
fn match_and_target_go_together() {
    let with = |apply_to: &str, matches: Value| {
        judge_patch(
            json!({ "applyTo": apply_to, "match": matches, "patch": { "operation": "REMOVE" } }),
        )
    };
    assert_eq!(
        with("CLUSTER", json!({ "listener": {} })),
        (vec!["match".to_owned()], none())
    );

    assert_eq!(
        with("HTTP_ROUTE", json!({ "cluster": {} })),
        (vec!["match".to_owned()], none())
    );
    assert_eq!(
        with("LISTENER", json!({ "cluster": {} })),
        (vec!["match".to_owned()], none())
    );

    assert_eq!(
        with("LISTENER", json!({ "cluster": {}, "listener": {} })),
        (vec!["match".to_owned()], none())
    );
    let filter = |filter: Value| json!({ "listener": { "filterChain": { "filter": filter } } });
    let at = |field: &str| vec![format!("match.listener.filterChain.filter{field}")];
    assert_eq!(
        with("NETWORK_FILTER", filter(json!({}))),
        (at(".name"), none())
    );

    assert_eq!(
        with("LISTENER", filter(json!({ "name": "x" }))),
        (none(), at(""))
    );
    assert_eq!(
        with(
            "NETWORK_FILTER",
            filter(json!({ "name": "envoy.tcp_proxy" }))
        ),
        (none(), at(".name"))
    );

    let sub = json!({ "name": "x", "subFilter": { "name": "y" } });
    assert_eq!(
        with("NETWORK_FILTER", filter(sub.clone())),
        (at(".subFilter"), none())
    );
    assert_eq!(with("HTTP_FILTER", filter(sub)), (at(".name"), none()));
}

#[test]
fn oversized_envoy_filters_are_rejected() {
    let patch = json!({ "applyTo": "CLUSTER", "patch": { "operation": "REMOVE" } });
    let many = vec![patch; MAX_PATCHES + 1];
    assert_eq!(
        judge(&json!({ "configPatches": many })).0,
        ["spec.configPatches"]
    );
    let large = json!({ "name": "x".repeat(MAX_VALUE_BYTES) });
    let large = json!({ "applyTo": "CLUSTER", "patch": { "operation": "MERGE", "value": large } });

    assert_eq!(
        judge(&json!({ "configPatches": [large] })).0,
        ["spec.configPatches"]
    );
    let version = |version: String| {
        let matches = json!({ "proxy": { "proxyVersion": version } });
        judge_patch(
            json!({ "applyTo": "CLUSTER", "match": matches, "patch": { "operation": "REMOVE" } }),
        )
    };

    let at = vec!["match.proxy.proxyVersion".to_owned()];
    assert_eq!(
        version("(".repeat(MAX_PROXY_VERSION + 1)),
        (none(), at.clone())
    );
    assert_eq!(version("(".to_owned()), (at, none()));
}
