use std::net::IpAddr;

use serde_json::{Value, json};

use super::*;

fn slice(body: Value) -> Result<EndpointSlice, FieldError> {
    let mut object = json!({ "metadata": { "name": "web-1", "labels": { "kubernetes.io/service-name": "web" } } });
    object
        .as_object_mut()
        .unwrap()
        .extend(body.as_object().unwrap().clone());
    let object: wire::EndpointSlice = serde_json::from_value(object).unwrap();
    Object::<EndpointSlice>::try_from(object).map(|object| object.spec)
}

#[test]
fn omitted_fields_get_the_api_servers_defaults() {
    let slice = slice(json!({
        "addressType": "IPv4",
        "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": false } }],
        "ports": [{ "port": 80 }, {}],
    }))
    .unwrap();
    let port = |port| EndpointPort {
        name: PortName::default(),
        port,
    };

    let expected = EndpointSlice {
        address_type: AddressType::Ipv4,
        service: Some("web".into()),
        endpoints: Box::new([Endpoint {
            addresses: [IpAddr::from([10, 0, 0, 1])].into_iter().collect(),
            conditions: EndpointConditions {
                ready: Some(false),
                serving: None,
                terminating: None,
            },
            pod: None,
        }]),
        ports: Box::new([port(Some(80)), port(None)]),
    };

    assert_eq!(slice, expected);
}

#[test]
fn slices_of_names_have_no_endpoints() {
    let slice =
        slice(json!({ "addressType": "FQDN", "endpoints": [{ "addresses": ["a.example.com"] }] }))
            .unwrap();
    assert_eq!(
        (slice.address_type, slice.endpoints.len()),
        (AddressType::Fqdn, 0)
    );
}

#[test]
fn errors_name_the_field() {
    let path = |body| slice(body).unwrap_err().path;
    assert_eq!(path(json!({ "addressType": "ipv4" })), "addressType");
    let endpoints = json!([{ "addresses": ["10.0.0.1"] }, { "addresses": ["10.0.0.1", "a"] }]);
    assert_eq!(
        path(json!({ "addressType": "IPv4", "endpoints": endpoints })),
        "endpoints[1].addresses[1]"
    );
    assert_eq!(
        path(json!({ "addressType": "IPv4", "ports": [{ "port": 0 }] })),
        "ports[0].port"
    );
}
