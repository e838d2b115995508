//! Bootstraps of proxies, with and without patches.

use std::sync::Arc;

use navarch_push::resource::ResourceType;
use serde_json::json;

use super::*;
use crate::test_mesh::{TestMesh, networking};

/// The bootstrap of a proxy as JSON.
fn bootstrap(mesh: &mut TestMesh, namespace: &str, metadata: &Value) -> Option<Value> {
    let proxy = mesh.with_metadata("sidecar", namespace, "web", metadata);
    let mut found = mesh.named::<Bootstrap>(proxy, ResourceType::Bootstrap, &[""]);
    let bytes = found.remove("")?.encode_to_vec();
    Some(codec().to_json(&type_url::<Bootstrap>(), &bytes).unwrap())
}

/// An EnvoyFilter of namespace `shop` with one patch.
fn filter(operation: &str, value: &str) -> String {
    let spec = format!(
        "{{configPatches: [{{applyTo: BOOTSTRAP, patch: {{operation: {operation}, value: {value}}}}}]}}"
    );
    networking("EnvoyFilter", "shop", "more", &spec)
        .replace("networking.istio.io/v1", "networking.istio.io/v1alpha3")
}

#[test]
fn the_bootstrap_has_the_node_and_the_settings_of_the_request() {
    let mut mesh = TestMesh::new("");
    let settings = Settings {
        envoy_status_port: 25021,
        delta: false,
        ..Settings::default()
    };
    let metadata = json!({
        "PROXY_CONFIG": { "proxyAdminPort": 25000, "configPath": "./etc/istio/proxy", "statusPort": 15020 },
        "APP": "web",
        SETTINGS_KEY: settings,
    });
    let made = bootstrap(&mut mesh, "shop", &metadata).unwrap();

    let id = made["node"]["id"].as_str().unwrap();
    assert!(id.starts_with("sidecar~10.244.0.1~web-1.shop~"), "{id}");
    assert_eq!(made["node"]["metadata"]["APP"], "web");
    assert_eq!(made["node"]["metadata"].get(SETTINGS_KEY), None);
    let admin = &made["admin"]["address"]["socketAddress"];
    assert_eq!(admin["portValue"], 25000);
    assert_eq!(made["dynamicResources"]["adsConfig"]["apiType"], "GRPC");
    let listeners = made["staticResources"]["listeners"].as_array().unwrap();
    assert!(
        listeners.iter().any(|one| one["name"] == "0.0.0.0_25021"),
        "{listeners:?}"
    );
}

#[test]
fn patches_are_merged_into_the_bootstraps_of_the_proxies_that_they_apply_to() {
    let cluster = "{staticResources: {clusters: [{name: tracer, type: STATIC, connectTimeout: 1s}]}, \
        statsFlushInterval: 7s}";
    let mut mesh = TestMesh::new(&filter("MERGE", cluster));

    let names = |made: &Value| {
        let clusters = made["staticResources"]["clusters"].as_array().unwrap();
        let names = clusters.iter().map(|one| one["name"].clone());
        names.collect::<Vec<_>>()
    };
    let patched = bootstrap(&mut mesh, "shop", &json!({})).unwrap();
    assert_eq!(names(&patched).last().unwrap(), "tracer");
    assert!(names(&patched).contains(&json!("xds-grpc")));
    assert_eq!(patched["statsFlushInterval"], "7s");

    let other = bootstrap(&mut mesh, "bank", &json!({})).unwrap();
    assert!(!names(&other).contains(&json!("tracer")), "{other}");
}

#[test]
fn other_operations_and_invalid_settings_are_reported() {
    let value = "{statsFlushInterval: 7s}";
    let mut mesh = TestMesh::new(&filter("ADD", value));
    let made = bootstrap(&mut mesh, "shop", &json!({})).unwrap();
    assert_eq!(made.get("statsFlushInterval"), None);
    let has = |remarks: &[Arc<str>], text: &str| remarks.iter().any(|one| one.contains(text));
    let remarks = mesh.remarks();
    assert!(has(&remarks, "only MERGE applies"), "{remarks:?}");

    let wrong = json!({ SETTINGS_KEY: { "delta": "perhaps" } });
    assert_eq!(bootstrap(&mut mesh, "bank", &wrong), None);
    let remarks = mesh.remarks();
    assert!(has(&remarks, "NAVARCH_BOOTSTRAP"), "{remarks:?}");
}

#[test]
fn proxies_without_envoy_have_none() {
    let mut mesh = TestMesh::new("");
    let proxy = mesh.with_metadata("ztunnel", "shop", "ztunnel", &json!({}));
    let names = mesh.all_names(proxy, ResourceType::Bootstrap);
    assert_eq!(names, Vec::<String>::new());
}

#[test]
fn a_node_that_asks_for_a_large_bootstrap_gets_none() {
    let mut mesh = TestMesh::new("");
    let patterns = |count: usize| {
        let rules = vec!["{pod_ip}"; count].join(",");
        json!({ "ANNOTATIONS": { "sidecar.istio.io/statsInclusionPrefixes": rules } })
    };
    assert!(bootstrap(&mut mesh, "shop", &patterns(100)).is_some());

    let too_large = [
        patterns(5_000),
        json!({ "PROXY_CONFIG": {
            "proxyStatsMatcher": { "inclusionSuffixes": vec!["{pod_ip}{pod_ip}"; 2_000] },
        } }),
        json!({ "APP": "a".repeat(70_000) }),
    ];
    for metadata in too_large {
        assert_eq!(bootstrap(&mut mesh, "shop", &metadata), None);
    }

    let remarks = mesh.remarks();
    let has = |text: &str| remarks.iter().any(|remark| remark.contains(text));
    assert!(
        has("bytes of stats tags and matchers, more than"),
        "{remarks:?}"
    );
    assert!(has("bytes of metadata, more than 65536"), "{remarks:?}");
}

#[test]
fn the_size_of_stats_grows_with_the_addresses() {
    let text = "{pod_ip}".to_owned();
    let rule = ("sidecar.istio.io/statsInclusionRegexps".to_owned(), text);
    let node = Node {
        annotations: BTreeMap::from([rule]),
        ..Node::default()
    };

    let size = |count: usize| {
        navarch_bootstrap::stats_size(&BootstrapInput {
            node: &node,
            addresses: &Addresses(vec!["10.0.0.1".parse().unwrap(); count]),
            config: &ProxyConfig::istio_defaults(),
            settings: &Settings::default(),
        })
    };
    assert_eq!(size(64), 64 * size(1));
}
