//! The fields of objects that affect a resource (`navarch why proxy`).

use navarch_testkit::wait::{until_some, wanted};
use serde_json::{Value, json};

use crate::edited;
use crate::live::{run_command, sidecars, start};
use crate::proxy::Reaction;

/// Objects with fields that affect different resources.
const MORE: &str = r#"
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: partner, namespace: bookshop}
spec:
  hosts: [partner.example.com, other.example.com]
  ports: [{number: 9443, name: https, protocol: TLS}, {number: 9081, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 192.0.2.1}, {address: 192.0.2.2}]
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: tuned, namespace: bookshop}
spec:
  configPatches:
  - applyTo: CLUSTER
    match: {cluster: {service: catalog.bookshop.svc.cluster.local}}
    patch: {operation: MERGE, value: {connect_timeout: 7s}}
  - applyTo: CLUSTER
    match: {cluster: {service: partner.example.com}}
    patch: {operation: MERGE, value: {connect_timeout: 8s}}
"#;

/// The reported fields of an object.
fn field<'a>(why: &'a Value, object: &str) -> &'a Value {
    let all = why["resources"][0]["objects"]
        .as_array()
        .unwrap_or_else(|| panic!("{why}"));
    &all.iter()
        .find(|one| one["object"] == object)
        .unwrap_or_else(|| panic!("{object} in {why}"))["field"]
}

#[tokio::test(flavor = "multi_thread")]
async fn why_lists_exactly_the_fields_that_affect_a_resource() {
    let (folder, navarch) = start().await;
    let _sidecars = sidecars(&navarch, &[Reaction::Accept]).await;
    let routes = "  http:\n    - match: [{headers: {x-canary: {exact: \"1\"}}}]\n      route: [{destination: {host: reviews, subset: v2}}]\n";
    let never =
        "    - name: never\n      route: [{destination: {host: reviews, subset: v1}}]\n---\n";
    let text = edited(
        "reviews-routing.yaml",
        &[("  http:\n", routes), ("---\n", never)],
    );
    std::fs::write(folder.path().join("reviews-routing.yaml"), text).unwrap();

    std::fs::write(folder.path().join("more.yaml"), MORE).unwrap();
    let proxy = "web-0.bookshop";
    let cluster = |port: u32, subset: &str, host: &str| format!("outbound|{port}|{subset}|{host}");

    // The fields are unknown until the proxy has the latest version of the resource.
    let why = async |resource: String, kind: &str| {
        let words = ["why", "proxy", proxy, resource.as_str(), "--type", kind].map(str::to_owned);
        until_some("the fields are computed", async || {
            let response = run_command(&navarch, &words.each_ref().map(String::as_str))
                .await
                .0;
            wanted(response, |response| {
                !response.to_string().contains(r#""field":"unknown""#)
            })
        })
        .await
    };

    // The edit is applied once the server can compute the fields of its last object; until then the
    // response may be that of the previous version.
    let partner = cluster(9443, "", "partner.example.com");
    let response = until_some("the fields of the last object are computed", async || {
        let page = format!(
            "/debug/why/proxy?proxy={proxy}&resource={}&fields=1",
            partner.replace('|', "%7C")
        );
        let response: Value = serde_json::from_str(&navarch.page(&page).await.unwrap_or_default())
            .unwrap_or_default();
        wanted(response, |response| {
            response["resources"][0]["objects"][0]["field"]["fields"].is_array()
        })
    })
    .await;
    assert_eq!(
        field(&response, "ServiceEntry bookshop/partner"),
        &json!({"fields": ["spec.hosts[0]", "spec.ports[https]"]})
    );
    assert_eq!(
        field(&response, "EnvoyFilter bookshop/tuned"),
        &json!({"fields": ["spec.configPatches[1]"]})
    );

    let response = why(
        cluster(9080, "v2", "reviews.bookshop.svc.cluster.local"),
        "cds",
    )
    .await;
    let fields = [
        "spec.trafficPolicy.connectionPool",
        "spec.trafficPolicy.outlierDetection",
        "spec.subsets[v2]",
    ];

    assert_eq!(
        field(&response, "DestinationRule bookshop/reviews"),
        &json!({ "fields": fields })
    );
    assert_eq!(
        field(&response, "Service bookshop/reviews"),
        &json!({"fields": ["spec.ports[http]"]})
    );

    assert_eq!(
        field(&response, "EnvoyFilter bookshop/tuned"),
        "noEffect",
        "its patches select other clusters"
    );

    // The route behind a catch-all route has no effect.
    let response = why("9080".to_owned(), "rds").await;
    let fields = json!({ "fields": ["spec.hosts[0]", "spec.http[0]", "spec.http[split]"] });
    assert_eq!(field(&response, "VirtualService bookshop/reviews"), &fields);

    let text = {
        let address = navarch.monitoring.to_string();
        let resource = cluster(9080, "v2", "reviews.bookshop.svc.cluster.local");
        let ask = move || {
            crate::command_output(&["why", "proxy", proxy, &resource, "--address", &address]).0
        };
        tokio::task::spawn_blocking(ask).await.unwrap()
    };

    assert!(
        text.contains("  Service bookshop/reviews: spec.ports[http]\n"),
        "{text}"
    );
    assert!(
        text.contains("  EnvoyFilter bookshop/tuned: no effect\n"),
        "{text}"
    );

    // Without `fields` in the request, the server computes no fields.
    let page = navarch
        .page(&format!(
            "/debug/why/proxy?proxy={proxy}&resource=9080&type=rds"
        ))
        .await
        .unwrap();

    let page: Value = serde_json::from_str(&page).unwrap();
    assert_eq!(field(&page, "VirtualService bookshop/reviews"), "unasked");
}
