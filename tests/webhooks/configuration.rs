//! Objects of Istio's: what kubectl shows of refusals and warnings.

use serde_json::{Value, json};

use crate::installed::Installed;

/// An object of Istio's networking group.
pub(crate) fn object(kind: &str, name: &str, spec: &Value) -> Value {
    let metadata = json!({ "name": name, "namespace": "default" });
    json!({ "apiVersion": "networking.istio.io/v1", "kind": kind, "metadata": metadata, "spec": spec })
}

/// An object that istiod's validation refuses, and no schema.
pub(crate) fn broken(name: &str) -> Value {
    object(
        "VirtualService",
        name,
        &json!({ "hosts": ["*.com", "a.com"], "http": [{ "route": [{ "destination": { "host": "a" } }] }] }),
    )
}

/// An object that nothing is wrong with.
pub(crate) fn good(name: &str) -> Value {
    object(
        "VirtualService",
        name,
        &json!({ "hosts": [name], "http": [{ "route": [{ "destination": { "host": "a" } }] }] }),
    )
}

/// Applies good and broken objects, and reads what is said.
pub(crate) fn is_judged(installed: &Installed) {
    let said = installed.apply(&broken("broken"));
    assert!(!said.well, "{said:?}");
    for part in ["denied the request", "VirtualService default/broken", "spec.hosts[1]"] {
        assert!(said.text.contains(part), "{part:?} is not in {}", said.text);
    }
    // Two webhooks are asked about objects that name the revision, and either refuses.
    let mut named = broken("named");
    named["metadata"]["labels"] = json!({ "istio.io/rev": "default" });
    assert!(installed.apply(&named).text.contains("denied the request"));

    let said = installed.apply(&good("good"));
    assert!(said.well && !said.text.contains("Warning"), "{said:?}");
    // Warnings: of the object alone, of those around it, and of what it does not have.
    let filter = json!({ "apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter", "metadata": { "name": "f", "namespace": "default" }, "spec": {} });
    let said = installed.apply(&filter);
    assert!(said.well && said.text.contains("Warning: EnvoyFilter default/f: spec: "), "{said:?}");
    let server = json!({ "port": { "number": 80, "name": "http", "protocol": "HTTP" }, "hosts": ["*"] });
    let said =
        installed.apply(&object("Gateway", "lonely", &json!({ "selector": { "app": "nobody" }, "servers": [server] })));
    assert!(said.well && said.text.contains("Warning: Gateway default/lonely: spec.selector: "), "{said:?}");
    let spec = json!({ "hosts": ["b"], "gateways": ["nowhere"], "http": [{ "route": [{ "destination": { "host": "b", "subset": "v9" } }] }] });
    let said = installed.apply(&object("VirtualService", "around", &spec));
    assert!(
        said.well && said.text.contains("spec.gateways[0]") && said.text.contains("destination.subset"),
        "{said:?}"
    );
    // A dry run is judged alike.
    assert!(!installed.try_out(&broken("tried")).well);
    assert!(installed.try_out(&good("tried")).well);
    // What is only deleted is not judged.
    assert!(installed.kubectl(&["delete", "envoyfilter,gateway,virtualservice", "--all"], "").well);
}
