//! Istio's objects: errors and warnings as kubectl prints them.

use serde_json::{Value, json};

use crate::installed::Installed;

/// An object of Istio's networking group.
pub(crate) fn object(kind: &str, name: &str, spec: &Value) -> Value {
    let metadata = json!({ "name": name, "namespace": "default" });
    json!({ "apiVersion": "networking.istio.io/v1", "kind": kind, "metadata": metadata, "spec": spec })
}

/// An object that istiod's validation rejects, but no schema.
pub(crate) fn broken(name: &str) -> Value {
    object(
        "VirtualService",
        name,
        &json!({ "hosts": ["*.com", "a.com"], "http": [{ "route": [{ "destination": { "host": "a" } }] }] }),
    )
}

/// A valid object.
pub(crate) fn good(name: &str) -> Value {
    object(
        "VirtualService",
        name,
        &json!({ "hosts": [name], "http": [{ "route": [{ "destination": { "host": "a" } }] }] }),
    )
}

/// Applies valid and invalid objects, and checks kubectl's output.
pub(crate) fn is_judged(installed: &Installed) {
    let output = installed.apply(&broken("broken"));
    assert!(!output.succeeded, "{output:?}");

    for part in [
        "denied the request",
        "VirtualService default/broken",
        "spec.hosts[1]",
    ] {
        assert!(
            output.text.contains(part),
            "{part:?} is not in {}",
            output.text
        );
    }

    // Two webhooks are called for objects that name the revision, and both reject.
    let mut named = broken("named");
    named["metadata"]["labels"] = json!({ "istio.io/rev": "default" });
    assert!(installed.apply(&named).text.contains("denied the request"));

    let output = installed.apply(&good("good"));
    assert!(
        output.succeeded && !output.text.contains("Warning"),
        "{output:?}"
    );

    // Warnings about the object itself, about other objects, and about missing ones.
    let filter = json!({ "apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter", "metadata": { "name": "f", "namespace": "default" }, "spec": {} });
    let output = installed.apply(&filter);
    assert!(
        output.succeeded
            && output
                .text
                .contains("Warning: EnvoyFilter default/f: spec: "),
        "{output:?}"
    );

    let server =
        json!({ "port": { "number": 80, "name": "http", "protocol": "HTTP" }, "hosts": ["*"] });
    let output = installed.apply(&object(
        "Gateway",
        "lonely",
        &json!({ "selector": { "app": "nobody" }, "servers": [server] }),
    ));

    assert!(
        output.succeeded
            && output
                .text
                .contains("Warning: Gateway default/lonely: spec.selector: "),
        "{output:?}"
    );

    let spec = json!({ "hosts": ["b"], "gateways": ["nowhere"], "http": [{ "route": [{ "destination": { "host": "b", "subset": "v9" } }] }] });
    let output = installed.apply(&object("VirtualService", "around", &spec));
    assert!(
        output.succeeded
            && output.text.contains("spec.gateways[0]")
            && output.text.contains("destination.subset"),
        "{output:?}"
    );

    // A dry run is validated, too.
    assert!(!installed.try_out(&broken("tried")).succeeded);
    assert!(installed.try_out(&good("tried")).succeeded);

    // Deletions are not validated.
    assert!(
        installed
            .kubectl(
                &["delete", "envoyfilter,gateway,virtualservice", "--all"],
                ""
            )
            .succeeded
    );
}
