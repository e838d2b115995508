//! References to certificates and roots: conditions, listeners and secrets must agree.

use std::collections::{BTreeMap, BTreeSet};

use navarch_proto::envoy::config::core::v3::transport_socket::ConfigType;
use navarch_proto::envoy::config::listener::v3::{FilterChain, Listener};
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::DownstreamTlsContext;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use prost::Message;

use super::tests::{condition, object, status_of};
use crate::test_mesh::TestMesh;
use navarch_api::object::Kind;
use navarch_push::engine::ProxyId;
use navarch_push::resource::ResourceType;

/// The listeners with certificates and roots of the Gateway's own namespace.
const OWN: [&str; 2] = ["own", "team"];
/// The listeners that also have a certificate of their own namespace.
const SHARED: [&str; 2] = ["first", "second"];
/// All Secrets of the world.
const SECRETS: [&str; 6] = [
    "edge/own",
    "certs/pair",
    "certs/other",
    "certs/ca",
    "team/own",
    "shop/pair",
];

/// A key pair that is its own root.
fn pair() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// A listener for the host `<name>.example` that terminates TLS with these members.
fn listener(name: &str, port: u16, tls: &str) -> String {
    format!(
        "{{name: {name}, port: {port}, protocol: HTTPS, hostname: {name}.example, tls: {{{tls}}}}}"
    )
}

/// The member with references to certificates, as `namespace/name`.
fn certificates(references: &[&str]) -> String {
    let reference = |reference: &&str| {
        let (namespace, name) = reference.split_once('/').unwrap();
        format!("{{name: {name}, namespace: {namespace}}}")
    };
    let references: Vec<String> = references.iter().map(reference).collect();
    format!("certificateRefs: [{}]", references.join(", "))
}

/// A Gateway and a ListenerSet with references of every kind, their pods, and what they reference.
fn world() -> String {
    let (certificate, key) = pair();
    let data = serde_json::json!({ "tls.crt": certificate, "tls.key": key, "ca.crt": certificate });
    let mut yaml = String::new();

    for secret in SECRETS {
        let (namespace, name) = secret.split_once('/').unwrap();
        yaml += &format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
             stringData: {data}\n---\n"
        );
    }

    yaml += &format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: roots, namespace: certs}}\ndata: {}\n---\n",
        serde_json::json!({ "ca.crt": certificate })
    );

    let mutual = "options: {gateway.istio.io/tls-terminate-mode: MUTUAL}, ";
    let of_gateway = [
        listener("own", 8443, &certificates(&["edge/own"])),
        listener("pair", 8443, &certificates(&["certs/pair"])),
        listener("other", 8443, &certificates(&["certs/other"])),
        listener("first", 8443, &certificates(&["edge/own", "certs/pair"])),
        listener("second", 8443, &certificates(&["certs/pair", "edge/own"])),
        listener(
            "mutual",
            8443,
            &(mutual.to_owned() + &certificates(&["certs/pair"])),
        ),
        listener("roots", 9443, &certificates(&["edge/own"])),
        listener("map", 9444, &certificates(&["edge/own"])),
    ];
    let validation = |port: u16, kind: &str, name: &str| {
        format!(
            "{{port: {port}, tls: {{validation: {{caCertificateRefs: \
             [{{group: '', kind: {kind}, name: {name}, namespace: certs}}]}}}}}}"
        )
    };
    let frontend = [
        validation(9443, "Secret", "ca"),
        validation(9444, "ConfigMap", "roots"),
    ];
    yaml += &object(
        "Gateway",
        "edge",
        "web",
        &format!(
            "{{gatewayClassName: istio, allowedListeners: {{namespaces: {{from: All}}}}, \
             tls: {{frontend: {{default: {{}}, perPort: [{}]}}}}, listeners: [{}]}}",
            frontend.join(", "),
            of_gateway.join(", ")
        ),
    );

    let of_set = [
        listener("team", 8443, &certificates(&["team/own"])),
        listener("team-pair", 8443, &certificates(&["certs/pair"])),
        listener("team-edge", 8443, &certificates(&["edge/own"])),
    ];
    yaml += &object(
        "ListenerSet",
        "team",
        "set",
        &format!(
            "{{parentRef: {{name: web, namespace: edge}}, listeners: [{}]}}",
            of_set.join(", ")
        ),
    );

    let ports = |of: &str| {
        [8443, 9443, 9444]
            .map(|port| format!("{{name: https-{port}, port: {port}{of}}}"))
            .join(", ")
    };

    yaml += &format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web-istio, namespace: edge}}\n\
         spec: {{clusterIP: 10.96.0.1, selector: {{app: gateway}}, ports: [{}]}}\n---\n",
        ports("")
    );
    for pod in 1..=2 {
        yaml += &format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: gateway-{pod}, namespace: edge, labels: {{app: gateway}}}}\n\
             spec: {{serviceAccountName: web-istio}}\n\
             status: {{phase: Running, podIP: 10.244.0.{pod}, podIPs: [{{ip: 10.244.0.{pod}}}], \
             conditions: [{{type: Ready, status: 'True'}}]}}\n---\n"
        );
    }
    yaml
}

/// A grant in a namespace, its members in flow style.
fn grant(namespace: &str, from: &str, to: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1beta1\nkind: ReferenceGrant\n\
         metadata: {{name: g, namespace: {namespace}}}\nspec: {{from: [{from}], to: [{to}]}}\n---\n"
    )
}

/// A member `from`.
fn from(kind: &str, namespace: &str) -> String {
    format!("{{group: gateway.networking.k8s.io, kind: {kind}, namespace: {namespace}}}")
}

/// A member `to`; an empty name means all.
fn to(kind: &str, name: &str) -> String {
    match name {
        "" => format!("{{group: '', kind: {kind}}}"),
        name => format!("{{group: '', kind: {kind}, name: {name}}}"),
    }
}

/// The listeners that conditions call usable.
fn programmed(mesh: &TestMesh, proxy: ProxyId) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for subject in ["Gateway/edge/web", "ListenerSet/team/set"] {
        let status = status_of(mesh, proxy, subject);
        for listener in status["listeners"].as_array().unwrap() {
            let is_true = |kind: &str| {
                let conditions = listener["conditions"].as_array().unwrap();
                conditions
                    .iter()
                    .any(|found| found["type"] == kind && found["status"] == "True")
            };
            let verdicts = ["Accepted", "Programmed", "ResolvedRefs"].map(is_true);
            assert!(
                verdicts.iter().all(|verdict| *verdict == verdicts[1]),
                "{listener}"
            );
            if verdicts[1] {
                names.insert(listener["name"].as_str().unwrap().to_owned());
            }
        }
    }

    names
}

/// The secrets that each listener needs, by the name of the listener.
fn sent(mesh: &mut TestMesh, proxy: ProxyId) -> BTreeMap<String, BTreeSet<String>> {
    let names = mesh.all_names(proxy, ResourceType::Listener);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let listeners: BTreeMap<String, Listener> = mesh.named(proxy, ResourceType::Listener, &names);
    listeners
        .values()
        .flat_map(|listener| &listener.filter_chains)
        .filter_map(|chain| {
            let host = chain.filter_chain_match.as_ref()?.server_names.first()?;
            let name = host.strip_suffix(".example")?.to_owned();
            Some((name, secrets_of(chain)))
        })
        .collect()
}

/// The secrets that a filter chain needs.
fn secrets_of(chain: &FilterChain) -> BTreeSet<String> {
    let socket = chain.transport_socket.as_ref().unwrap();
    let Some(ConfigType::TypedConfig(config)) = &socket.config_type else {
        panic!("no TLS")
    };
    let common = DownstreamTlsContext::decode(config.value.as_slice())
        .unwrap()
        .common_tls_context
        .unwrap();
    let roots = match common.validation_context_type {
        Some(ValidationContextType::CombinedValidationContext(combined)) => {
            combined.validation_context_sds_secret_config
        }
        _ => None,
    };
    let all = common.tls_certificate_sds_secret_configs.iter();
    all.chain(&roots)
        .map(|secret| secret.name.clone())
        .collect()
}

/// Checks that conditions, listeners and secrets agree, and that these listeners are usable.
fn assert_usable(mesh: &mut TestMesh, proxies: [ProxyId; 2], usable: &[&str], why: &str) {
    let [own, stranger] = proxies;
    let expected: BTreeSet<String> = usable
        .iter()
        .chain(&OWN)
        .chain(&SHARED)
        .map(|&name| name.to_owned())
        .collect();
    assert_eq!(programmed(mesh, own), expected, "{why}: conditions");

    let sent = sent(mesh, own);
    let chains: BTreeSet<String> = sent.keys().cloned().collect();
    assert_eq!(chains, expected, "{why}: listeners");

    let needed: BTreeSet<String> = sent.into_values().flatten().collect();
    for name in &needed {
        assert!(
            mesh.secret(own, name).is_some(),
            "{why}: {name} is withheld"
        );
    }

    // Nothing else is served but the roots beside such a certificate, as by istiod, and nothing to
    // proxies of another identity.
    for name in SECRETS.map(|secret| format!("kubernetes-gateway://{secret}")) {
        let roots = format!("{name}-cacert");
        let is_served = mesh.secret(own, &name).is_some();
        assert_eq!(is_served, needed.contains(&name), "{why}: {name}");
        assert!(
            is_served || needed.contains(&roots) || mesh.secret(own, &roots).is_none(),
            "{why}: {roots}"
        );
        for name in [name, roots] {
            assert_eq!(mesh.secret(stranger, &name), None, "{why}: {name}");
        }
    }
}

#[test]
fn conditions_listeners_and_secrets_agree_on_every_grant() {
    let mut mesh = TestMesh::new(&world());
    let own = mesh.proved_gateway("edge", "web-istio");
    let proxies = [own, mesh.proved_gateway("edge", "another")];
    assert_usable(&mut mesh, proxies, &[], "no grant");

    let secrets = to("Secret", "");
    let gateway = from("Gateway", "edge");
    let set = from("ListenerSet", "team");

    for (why, yaml, usable) in [
        (
            "all Secrets for the Gateway",
            grant("certs", &gateway, &secrets),
            &["pair", "other", "mutual", "roots"][..],
        ),
        (
            "narrowed to one",
            grant("certs", &gateway, &to("Secret", "pair")),
            &["pair", "mutual"],
        ),
        (
            "another one",
            grant("certs", &gateway, &to("Secret", "other")),
            &["other"],
        ),
        (
            "roots, by the name with the suffix",
            grant("certs", &gateway, &to("Secret", "ca-cacert")),
            &["roots"],
        ),
        (
            "ConfigMaps",
            grant("certs", &gateway, &to("ConfigMap", "")),
            &["map"],
        ),
        (
            "the ListenerSet",
            grant("certs", &set, &to("Secret", "pair")),
            &["team-pair"],
        ),
        (
            "both",
            grant("certs", &format!("{gateway}, {set}"), &secrets),
            &["pair", "other", "mutual", "roots", "team-pair"],
        ),
        (
            "a name of nothing",
            grant("certs", &gateway, &to("Secret", "none")),
            &[],
        ),
        (
            "another referrer",
            grant("certs", &from("HTTPRoute", "edge"), &secrets),
            &[],
        ),
        (
            "another referrer's namespace",
            grant("certs", &from("Gateway", "shop"), &secrets),
            &[],
        ),
        (
            "the kinds exchanged",
            grant(
                "certs",
                &format!(
                    "{}, {}",
                    from("Gateway", "team"),
                    from("ListenerSet", "edge")
                ),
                &secrets,
            ),
            &[],
        ),
        (
            "another referent",
            grant("certs", &gateway, &to("Service", "")),
            &[],
        ),
    ] {
        mesh.apply(&yaml);
        assert_usable(&mut mesh, proxies, usable, why);
    }

    // A grant is about its own namespace, and ends with its object.
    mesh.apply(&grant("shop", &gateway, &secrets));
    assert_usable(&mut mesh, proxies, &[], "another referent's namespace");
    mesh.apply(&grant("certs", &gateway, &secrets));
    let usable = ["pair", "other", "mutual", "roots"];
    assert_usable(&mut mesh, proxies, &usable, "again");
    mesh.remove(Kind::ReferenceGrant, "certs", "g");
    assert_usable(&mut mesh, proxies, &[], "removed");
}

#[test]
fn a_client_certificate_of_another_namespace_is_not_disclosed_without_a_grant() {
    let gateway = |secret: &str| {
        let spec = format!(
            "{{gatewayClassName: istio, listeners: [{{name: http, port: 80, protocol: HTTP}}], \
             tls: {{backend: {{clientCertificateRef: {{name: {secret}, namespace: certs}}}}}}}}"
        );
        object("Gateway", "edge", "web", &spec)
    };
    let mut mesh = TestMesh::new(&world());
    let proxy = mesh.proved_gateway("edge", "web-istio");
    let resolved = |mesh: &mut TestMesh, secret: &str| {
        mesh.apply(&gateway(secret));
        condition(
            &status_of(mesh, proxy, "Gateway/edge/web")["conditions"],
            "ResolvedRefs",
        )
    };

    for secret in ["pair", "none"] {
        assert_eq!(resolved(&mut mesh, secret), "False RefNotPermitted");
    }
    mesh.apply(&grant("certs", &from("Gateway", "edge"), &to("Secret", "")));
    assert_eq!(resolved(&mut mesh, "pair"), "True ResolvedRefs");
    assert_eq!(
        resolved(&mut mesh, "none"),
        "False InvalidClientCertificateRef"
    );
}
