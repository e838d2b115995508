//! Whether an edit leaves whom an object reaches as it was.

use navarch_api::any_object::AnyObject;

/// Whether the proxies that `after` reaches are those that `before` reaches, in any state of the
/// mesh: the fields by which proxies select the object are equal. Then the previous version, while
/// it is served, shows whom the rejected one would reach.
///
/// Only those kinds can be compared so whose other fields are read by all proxies that select the
/// object; for others, such as ServiceEntries, it is always false.
#[must_use]
pub fn keeps_reach(before: &AnyObject, after: &AnyObject) -> bool {
    let old = before.meta();
    let new = after.meta();
    if old.labels != new.labels || old.annotations != new.annotations {
        return false;
    }

    match (before, after) {
        (AnyObject::VirtualService(old), AnyObject::VirtualService(new)) => {
            let old = &old.spec;
            let new = &new.spec;
            old.hosts == new.hosts && old.gateways == new.gateways && old.export_to == new.export_to
        }
        (AnyObject::DestinationRule(old), AnyObject::DestinationRule(new)) => {
            let old = &old.spec;
            let new = &new.spec;
            old.host == new.host
                && old.workload_selector == new.workload_selector
                && old.export_to == new.export_to
        }
        (AnyObject::Gateway(old), AnyObject::Gateway(new)) => {
            old.spec.selector == new.spec.selector
        }
        (AnyObject::Telemetry(old), AnyObject::Telemetry(new)) => {
            let old = &old.spec;
            let new = &new.spec;
            old.selector == new.selector
                && old.target_ref == new.target_ref
                && old.target_refs == new.target_refs
        }
        (AnyObject::HttpRoute(old), AnyObject::HttpRoute(new)) => {
            let old = &old.spec;
            let new = &new.spec;
            old.parent_refs == new.parent_refs
                && old.use_default_gateways == new.use_default_gateways
                && old.hostnames == new.hostnames
        }
        (AnyObject::GrpcRoute(old), AnyObject::GrpcRoute(new)) => {
            let old = &old.spec;
            let new = &new.spec;
            old.parent_refs == new.parent_refs
                && old.use_default_gateways == new.use_default_gateways
                && old.hostnames == new.hostnames
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, spec: &str) -> AnyObject {
        let yaml = format!(
            "apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{name: o, namespace: shop}}\nspec: {spec}\n"
        );
        navarch_api::testing::object(&yaml)
    }

    #[test]
    fn only_an_edit_of_other_fields_than_those_that_select_keeps_the_reach() {
        let rule = |spec: &str| object("VirtualService", spec);
        let to = |host: &str| format!("http: [{{route: [{{destination: {{host: {host}}}}}]}}]");
        let before = rule(&format!("{{hosts: [a], exportTo: ['.'], {}}}", to("a")));

        let routed = rule(&format!("{{hosts: [a], exportTo: ['.'], {}}}", to("b")));
        assert!(keeps_reach(&before, &routed));
        for widened in [
            format!("{{hosts: [a], {}}}", to("b")),
            format!("{{hosts: [a, c], exportTo: ['.'], {}}}", to("b")),
            format!(
                "{{hosts: [a], gateways: [edge], exportTo: ['.'], {}}}",
                to("b")
            ),
        ] {
            assert!(!keeps_reach(&before, &rule(&widened)), "{widened}");
        }

        let subsets = |name: &str, export_to: &str| {
            let spec = format!("{{host: a, exportTo: [{export_to}], subsets: [{{name: {name}}}]}}");
            object("DestinationRule", &spec)
        };
        assert!(keeps_reach(&subsets("v1", "'.'"), &subsets("v2", "'.'")));
        assert!(!keeps_reach(&subsets("v1", "'.'"), &subsets("v2", "'*'")));

        let entry = |address: &str| {
            let spec = format!(
                "{{hosts: [a.example], ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: STATIC, endpoints: [{{address: {address}}}]}}"
            );
            object("ServiceEntry", &spec)
        };
        assert!(!keeps_reach(&entry("10.0.0.1"), &entry("10.0.0.2")));
    }
}
