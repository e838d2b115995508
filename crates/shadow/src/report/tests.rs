use std::slice::from_ref;

use navarch_push::resource::ResourceType;
use serde_json::{Value, json};

use super::*;
use crate::comparison::compare;
use crate::subscriptions::ResourcesByType;

/// A cluster with a limit, and with the DestinationRule that sets it.
fn cluster(host: &str, rule: Option<&str>, limit: u32) -> Value {
    let config = rule.map(|name| {
        format!("/apis/networking.istio.io/v1/namespaces/shop/destination-rule/{name}")
    });
    json!({
        "name": format!("outbound|80||{host}"),
        "metadata": { "filterMetadata": { "istio": { "config": config } } },
        "circuitBreakers": { "thresholds": [{ "maxConnections": limit }] },
    })
}

fn clusters(all: Vec<Value>) -> ResourcesByType {
    ResourcesByType::from([(ResourceType::Cluster, all)])
}

/// The report on two proxies that get these clusters.
fn report(istiod: &[Value], navarch: &[Value]) -> Report {
    let mut builder = ReportBuilder::default();
    for proxy in ["web-1.shop", "web-2.shop"] {
        let found = compare(&clusters(istiod.to_vec()), &clusters(navarch.to_vec()));
        builder.add(proxy, found);
    }
    builder.finish(Vec::new())
}

#[test]
fn equal_resources_are_no_difference() {
    let same = [cluster("a", Some("rule"), 1)];
    let report = report(&same, &same);
    assert_eq!((report.compared, report.equal), (2, 2));
    assert!(report.groups.is_empty() && !report.is_unexplained());
}

#[test]
fn an_object_that_one_side_has_not_applied_is_one_group_over_all_proxies() {
    let istiod = [cluster("a", None, 1), cluster("b", None, 1)];
    let navarch = [cluster("a", Some("rule"), 9), cluster("b", Some("rule"), 9)];
    let report = report(&istiod, &navarch);
    let [group] = report.groups.as_slice() else {
        panic!("{report:?}")
    };

    assert_eq!(
        group.cause,
        "Navarch has applied DestinationRule shop/rule, istiod has not"
    );
    assert_eq!(group.proxies.len(), 2);
    assert_eq!(group.resources.len(), 2);
    assert!(report.is_unexplained());

    let text = report.to_string();
    assert!(text.contains("0 of 2 compared proxies"), "{text}");
    assert!(text.contains("DestinationRule shop/rule"), "{text}");
}

#[test]
fn a_field_that_differs_for_the_same_object_is_a_group_with_that_object() {
    let report = report(
        &[cluster("a", Some("rule"), 1)],
        &[cluster("a", Some("rule"), 9)],
    );
    let [group] = report.groups.as_slice() else {
        panic!("{report:?}")
    };
    assert_eq!(
        group.cause,
        "circuitBreakers.thresholds.maxConnections of clusters with different values"
    );
    assert!(group.objects.contains("DestinationRule shop/rule"));
    assert_eq!(
        group.examples,
        ["! outbound|80||a.circuitBreakers.thresholds[0].maxConnections: 1, got 9"]
    );
}

#[test]
fn documented_differences_come_last_and_are_not_unexplained() {
    let plain = json!({ "name": "c", "clusterType": { "typedConfig": {} } });
    let allowed = json!({
        "name": "c",
        "clusterType": { "typedConfig": { "allowInsecureClusterOptions": true } },
    });
    let only = report(from_ref(&plain), from_ref(&allowed));
    assert!(!only.is_unexplained());
    assert_eq!(only.groups.len(), 1);

    let both = report(
        &[plain, cluster("a", None, 1)],
        &[allowed, cluster("a", None, 2)],
    );
    let documented: Vec<_> = both.groups.iter().map(|group| group.documented).collect();
    assert_eq!(documented, [None, Some("dynamic-names-unchecked")]);
}

#[test]
fn a_report_has_who_could_not_be_compared_and_why() {
    let mut builder = ReportBuilder::default();
    builder.add_failure("web-1.shop", "istiod ended the stream".to_owned());
    let report = builder.finish(vec![NotCompared {
        proxy: "grpc.shop".to_owned(),
        reason: "is an application".to_owned(),
    }]);
    let text = report.to_string();
    assert!(
        text.contains("web-1.shop: istiod ended the stream"),
        "{text}"
    );
    assert!(text.contains("grpc.shop: is an application"), "{text}");
}

#[test]
fn texts_of_a_control_plane_add_no_lines() {
    let forged = "a\nforged";
    let mut builder = ReportBuilder::default();
    let found = compare(
        &clusters(vec![cluster(forged, Some(forged), 1)]),
        &clusters(vec![cluster(forged, None, 2)]),
    );
    builder.add(forged, found);
    builder.add_failure(forged, forged.to_owned());
    let report = builder.finish(vec![NotCompared {
        proxy: forged.to_owned(),
        reason: forged.to_owned(),
    }]);

    let text = report.to_string();
    assert!(
        !text.lines().any(|line| line.starts_with("forged")),
        "{text}"
    );
    for line in [
        "    proxies: a\\nforged",
        "    resources: clusters outbound|80||a\\nforged",
        "  a\\nforged: a\\nforged",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{text}");
    }
}
