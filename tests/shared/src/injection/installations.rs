//! Random installations.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// Values of an installation.
pub fn values() -> impl Strategy<Value = Value> {
    let cni = prop_oneof![
        2 => Just(json!({})),
        1 => Just(json!({ "pilot": { "cni": { "enabled": true, "provider": "default" } } })),
        1 => Just(json!({ "pilot": { "cni": { "enabled": true, "provider": "multus" } } })),
    ];
    let global = some_values();
    (cni, global).prop_map(|(mut values, global)| {
        values["global"] = Value::Object(global);
        values
    })
}

/// Some of the global values.
fn some_values() -> impl Strategy<Value = Map<String, Value>> {
    let table = vec![
        ("network", json!("n2")),
        ("multiCluster", json!({ "clusterName": "c1" })),
        ("imagePullPolicy", json!("Always")),
        ("imagePullSecrets", json!(["s"])),
        ("mountMtlsCerts", json!(true)),
        ("logAsJson", json!(true)),
        ("caName", json!("GkeWorkloadCertificate")),
        (
            "proxy",
            json!({ "excludeOutboundPorts": "25", "holdApplicationUntilProxyStarts": true }),
        ),
    ];

    vec(select(table), 0..4).prop_map(|entries| {
        entries
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    })
}
