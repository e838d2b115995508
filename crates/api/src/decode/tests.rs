use serde_json::json;

use super::*;
use crate::object::{Kind, ObjectRef};

/// A VirtualService as YAML.
fn virtual_service(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata:\n  name: {name}\n  namespace: shop\nspec:\n{spec}\n"
    )
}

/// The outcome for each document, in brief.
fn brief(text: &str) -> Vec<String> {
    let brief = |decoded: Decoded| match decoded.outcome {
        Outcome::Read {
            object,
            unknown_fields,
        } => {
            let unknown: String = unknown_fields
                .iter()
                .map(|field| format!(" ?{field}"))
                .collect();
            format!("{} {}{unknown}", decoded.line, object.object_ref())
        }
        Outcome::Ignored => format!("{} ignored {}", decoded.line, decoded.subject),
        Outcome::Rejected(error) => {
            format!("{} rejected {}: {error}", decoded.line, decoded.subject)
        }
    };

    decode_documents(text, Format::Yaml)
        .into_iter()
        .map(brief)
        .collect()
}

/// The only object of a text.
fn object(text: &str) -> AnyObject {
    let decoded = decode_documents(text, Format::Yaml);
    match <[Decoded; 1]>::try_from(decoded).unwrap() {
        [
            Decoded {
                outcome: Outcome::Read { object, .. },
                ..
            },
        ] => object,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_broken_document_does_not_affect_the_others() {
    let text = [
        virtual_service("one", "  hosts: [a]"),
        virtual_service("two", "  hosts: [a"),
        virtual_service("three", "  hosts: 7"),
        "just text\n".to_owned(),
        virtual_service("four", "  hosts: [b]"),
    ]
    .join("---\n");
    let brief = brief(&text);
    assert_eq!(brief.len(), 5, "{brief:#?}");
    assert_eq!(brief[0], "1 VirtualService shop/one");
    assert!(
        brief[1].starts_with("15 rejected VirtualService shop/two: :")
            || brief[1].contains("rejected VirtualService shop/two"),
        "{brief:#?}"
    );

    assert!(
        brief[2].starts_with("23 rejected VirtualService shop/three: spec.hosts: invalid type"),
        "{brief:#?}"
    );
    assert!(brief[3].starts_with("25 rejected document: "), "{brief:#?}");
    assert_eq!(brief[4], "27 VirtualService shop/four");
}

#[test]
fn unknown_fields_are_reported_and_unknown_kinds_ignored() {
    let text = format!(
        "{}---\n{}",
        virtual_service("one", "  hots: [a]\n  http: [{rout: []}]"),
        "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: x}\nspec: {}\n",
    );

    assert_eq!(
        brief(&text),
        [
            "1 VirtualService shop/one ?spec.hots ?spec.http[0].rout",
            "10 ignored Thing x"
        ]
    );

    let service =
        "apiVersion: v1\nkind: Service\nmetadata: {name: a, colour: x}\nspec: {prots: []}\n";
    assert_eq!(
        brief(service),
        ["1 Service default/a ?metadata.colour ?spec.prots"]
    );
    let entry = "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: a, colour: x}\nextra: 1\n";
    assert_eq!(
        brief(entry),
        ["1 Sidecar default/a ?extra ?metadata.colour"]
    );
}

#[test]
fn every_served_version_is_read_and_no_other() {
    let with = |version: &str| {
        virtual_service("one", "  hosts: [a]").replace("/v1\n", &format!("/{version}\n"))
    };
    for version in ["v1", "v1beta1", "v1alpha3"] {
        assert_eq!(brief(&with(version)), ["1 VirtualService shop/one"]);
    }
    assert!(
        brief(&with("v9"))[0].starts_with("1 rejected VirtualService shop/one: apiVersion: \"v9\"")
    );
}

#[test]
fn lists_become_their_items() {
    let text = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: a}\n\
                - apiVersion: v1\n  kind: Service\n  metadata: {name: b}\n  spec:\n    ports:\n    - port: 0\n";
    assert_eq!(
        brief(text),
        [
            "1 Namespace a",
            "12 rejected Service default/b: spec.ports[0].port: 0 is not a port number, it must be between 1 and 65535",
        ]
    );
    let typed = "apiVersion: v1\nkind: ServiceList\nitems:\n- metadata: {name: b}\n";
    assert_eq!(brief(typed), ["1 Service default/b"]);
}

#[test]
fn namespaces_are_dropped_or_defaulted_by_kind() {
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, namespace: shop}\n";
    assert_eq!(brief(node), ["1 Node n1"]);
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: []}\n";
    assert_eq!(brief(pod), ["1 Pod default/p"]);
}

#[test]
fn names_are_checked() {
    let reason = |metadata: &str| {
        let text = format!("apiVersion: v1\nkind: Service\nmetadata: {metadata}\n");
        match decode_documents(&text, Format::Yaml).remove(0).outcome {
            Outcome::Rejected(error) => error.path,
            Outcome::Read { .. } | Outcome::Ignored => String::new(),
        }
    };

    assert_eq!(reason("{name: a.b-c.1}"), "");

    for name in ["A", "a_b", "a/b", "-a", "a..b", "", "a-", "\"\""] {
        assert_eq!(
            reason(&format!("{{name: {name}}}")),
            "metadata.name",
            "{name}"
        );
    }

    assert_eq!(reason("{name: a, namespace: a.b}"), "metadata.namespace");
    assert_eq!(reason("{name: a, labels: [x]}"), "metadata.labels");
    assert_eq!(reason("null"), "metadata.name");
}

#[test]
fn the_version_is_the_hash_of_the_content() {
    let version = |text: &str| object(text).meta().resource_version.to_string();
    let one = version(
        "apiVersion: v1\nkind: Service\nmetadata: {name: a, resourceVersion: '7'}\nspec: {type: NodePort}\n",
    );
    let same = "# words\nkind: Service\napiVersion: v1\nspec:\n  type: 'NodePort'\nmetadata: {resourceVersion: '7', name: a}\n";
    assert_eq!(one, version(same));
    assert_eq!(one.len(), 64);
    assert_ne!(one, version(&same.replace("NodePort", "ClusterIP")));
    let value = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "a", "resourceVersion": "7" } });
    let (_, Outcome::Read { object, .. }) = decode_value(&value) else {
        panic!()
    };
    assert_eq!(&*object.meta().resource_version, "7");
}

#[test]
fn different_values_have_different_hashes() {
    let values = [
        json!(null),
        json!(true),
        json!(1),
        json!("1"),
        json!([1]),
        json!([]),
        json!([[], []]),
        json!([[[]]]),
        json!({}),
        json!({ "a": 1 }),
        json!({ "a": "1" }),
        json!(["a", 1]),
        json!("ab"),
        json!(["a", "b"]),
        json!(["ab"]),
    ];

    let hashes: std::collections::BTreeSet<_> = values.iter().map(content_hash).collect();
    assert_eq!(hashes.len(), values.len());
}

#[test]
fn json_is_read_value_by_value() {
    let text = "{\"apiVersion\": \"v1\", \"kind\": \"Namespace\", \"metadata\": {\"name\": \"a\"}}\n\n\
                {\"apiVersion\": \"v1\", \"kind\": \"Service\", \"metadata\": {\"name\": \"b\"},\n\"spec\": {\"type\": 5}}\n{";
    let decoded = decode_documents(text, Format::Json);
    let lines: Vec<_> = decoded.iter().map(|decoded| decoded.line).collect();
    assert_eq!(lines, [1, 4, 5]);
    assert!(matches!(decoded[0].outcome, Outcome::Read { .. }));
    assert!(matches!(&decoded[1].outcome, Outcome::Rejected(error) if error.path == "spec.type"));
    assert!(matches!(decoded[2].outcome, Outcome::Rejected(_)));
}

#[test]
fn a_subject_names_the_object() {
    let decoded = decode_documents(&virtual_service("two", "  hosts: [a"), Format::Yaml).remove(0);
    let expected = ObjectRef {
        kind: Kind::VirtualService,
        name: crate::object::NamespacedName::new("shop", "two"),
    };
    assert_eq!(decoded.subject.object_ref(), Some(expected));
}

#[test]
fn nulls_are_absence() {
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: a, creationTimestamp: null, labels: null}\n\
                spec: {ports: null, selector: null, type: null}\nstatus: {loadBalancer: null}\n";
    assert_eq!(brief(text), ["1 Service default/a"]);
    let text = virtual_service("one", "  hosts: [a]\n  http: null\n  tls: [{match: null}]");
    assert_eq!(brief(&text), ["1 VirtualService shop/one"]);
}

#[test]
fn yaml_booleans_are_strings_in_string_fields() {
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: n, labels: {mesh: on}}\nspec: {ports: [{name: y, port: 1}]}\n";
    let AnyObject::Service(service) = object(text) else {
        panic!()
    };
    assert_eq!(service.meta.labels["mesh"], "on".into());
    assert_eq!(service.spec.ports[0].name, "y");
    assert_eq!(&*service.meta.key.name, "n");
    let early = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {publishNotReadyAddresses: yes}\n";
    let AnyObject::Service(early) = object(early) else {
        panic!()
    };
    assert!(early.spec.publish_not_ready_addresses);
}

/// Decodes a text and checks that each error has one of its lines.
fn assert_lines_exist(text: &str, format: Format) {
    let last = 1 + text.matches('\n').count();
    for decoded in decode_documents(text, format) {
        assert!(
            (1..=last).contains(&decoded.line),
            "{decoded:?} in {text:?}"
        );
    }
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[a-z0-9:\\-\\[\\]{}&*!|>'\"#%@,. \n\t]{0,200}") {
        assert_lines_exist(&text, Format::Yaml);
        assert_lines_exist(&text, Format::Json);
    }

    #[test]
    fn no_damage_to_an_object_makes_it_panic(at in 0_usize..400, cut in 0_usize..20, put in "[a-z:\\[{&*\n -]{0,8}") {
        let spec = "  hosts: [a]\n  http:\n  - route:\n    - destination: {host: b, port: {number: 80}}\n      weight: 100";
        let whole = virtual_service("one", spec);
        let start = at.min(whole.len());
        let damaged = format!("{}{put}{}", &whole[..start], &whole[(start + cut).min(whole.len())..]);
        assert_lines_exist(&damaged, Format::Yaml);
    }
}
