use serde_json::json;

use super::*;

fn answers(resource_type: ResourceType, resource: &Value) -> ResourcesByType {
    ResourcesByType::from([(resource_type, vec![resource.clone()])])
}

/// The ids of the documented differences between two resources, and the texts of all others.
fn compared(
    resource_type: ResourceType,
    istiod: &Value,
    navarch: &Value,
) -> (Vec<&'static str>, Vec<String>) {
    let mut ids = Vec::new();
    let mut others = Vec::new();
    for found in compare(
        &answers(resource_type, istiod),
        &answers(resource_type, navarch),
    ) {
        match found.documented {
            Some(documented) => ids.push(documented.id),
            None => others.push(found.difference.to_string()),
        }
    }
    ids.dedup();
    (ids, others)
}

#[test]
fn a_route_without_an_action_is_documented_and_hides_no_other_difference() {
    let routes = |routes: Value| {
        let host = json!({ "name": "a", "routes": routes });
        json!({ "name": "80", "virtualHosts": [host] })
    };
    let broken = json!({ "match": { "prefix": "/old" } });
    let to = |cluster: &str| json!({ "match": {}, "route": { "cluster": cluster } });

    let istiod = routes(json!([broken, to("a")]));
    let same = compared(ResourceType::Route, &istiod, &routes(json!([to("a")])));
    assert_eq!(same, (vec!["route-without-action"], Vec::new()));

    let (ids, others) = compared(ResourceType::Route, &istiod, &routes(json!([to("b")])));
    assert_eq!(ids, ["route-without-action"]);
    assert_eq!(
        others,
        [r#"! 80.virtualHosts[0].routes[0].route.cluster: "a", got "b""#]
    );
}

#[test]
fn unchecked_names_of_a_dynamic_cluster_are_documented_in_navarch_alone() {
    let plain = json!({ "name": "c", "clusterType": { "typedConfig": {} } });
    let allowed = json!({
        "name": "c",
        "clusterType": { "typedConfig": { "allowInsecureClusterOptions": true } },
    });
    assert_eq!(
        compared(ResourceType::Cluster, &plain, &allowed),
        (vec!["dynamic-names-unchecked"], Vec::new())
    );

    let (ids, others) = compared(ResourceType::Cluster, &allowed, &plain);
    assert_eq!(ids, Vec::<&str>::new());
    assert_eq!(others.len(), 1, "{others:?}");
}

#[test]
fn a_filter_after_the_router_is_documented() {
    let listener = |names: &[&str]| {
        let filters: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
        json!({ "name": "l", "filterChains": [{ "httpFilters": filters }] })
    };
    let router = "envoy.filters.http.router";
    assert_eq!(
        compared(
            ResourceType::Listener,
            &listener(&["a", router, "lua"]),
            &listener(&["a", router])
        ),
        (vec!["filter-after-router"], Vec::new())
    );

    let (ids, others) = compared(
        ResourceType::Listener,
        &listener(&["a", "lua", router]),
        &listener(&["a", router]),
    );
    assert_eq!(ids, Vec::<&str>::new());
    assert!(!others.is_empty());
}

#[test]
fn keys_of_token_issuers_are_documented() {
    let listener = |keys: &str| {
        let provider = json!({ "issuer": "a", "localJwks": { "inlineString": keys } });
        json!({ "name": "l", "providers": { "origins-0": provider } })
    };
    assert_eq!(
        compared(ResourceType::Listener, &listener("A"), &listener("B")),
        (vec!["token-keys"], Vec::new())
    );
}

#[test]
fn endpoints_have_the_objects_of_their_cluster() {
    let config = "/apis/networking.istio.io/v1/namespaces/a/destination-rule/rule";
    let cluster = json!({
        "name": "outbound|80|v1|b",
        "metadata": { "filterMetadata": { "istio": { "config": config } } },
    });
    let navarch = ResourcesByType::from([
        (ResourceType::Cluster, vec![cluster]),
        (
            ResourceType::Endpoint,
            vec![json!({ "clusterName": "outbound|80|v1|b" })],
        ),
    ]);

    let found = compare(&ResourcesByType::new(), &navarch);
    assert_eq!(found.len(), 2);
    for one in &found {
        let objects: Vec<_> = one.difference.objects.only_navarch.iter().collect();
        assert_eq!(
            objects,
            ["DestinationRule a/rule"],
            "{:?}",
            one.resource_type
        );
    }
}

#[test]
fn keys_of_secrets_are_in_no_difference() {
    let secret = |key: &str| {
        json!({
            "name": "kubernetes://a",
            "tlsCertificate": { "privateKey": { "inlineBytes": key } },
        })
    };
    let (_, others) = compared(ResourceType::Secret, &secret("KEY-A"), &secret("KEY-B"));
    assert_eq!(others.len(), 1, "{others:?}");
    assert!(
        others
            .iter()
            .all(|text| text.contains("sha256:") && !text.contains("KEY-"))
    );
}

#[test]
fn a_credential_of_an_image_differs_by_its_digest() {
    let plugin = |credential: &str| {
        let variables = json!({ "ISTIO_META_WASM_IMAGE_PULL_SECRET": credential });
        json!({
            "name": "wasm",
            "config": { "vmConfig": { "environmentVariables": { "keyValues": variables } } },
        })
    };
    let (_, others) = compared(
        ResourceType::ExtensionConfig,
        &plugin("TOP-SECRET"),
        &plugin("OTHER-SECRET"),
    );
    assert_eq!(others.len(), 1, "{others:?}");
    assert!(!others.concat().contains("-SECRET"), "{others:?}");
}
