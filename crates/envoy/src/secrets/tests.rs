//! Access to secrets, and the effects of changing one.

use navarch_proto::envoy::config::core::v3::data_source::Specifier;

use super::*;
use crate::test_mesh::{TestMesh, networking};
use navarch_api::settings::Settings;

/// A Secret in flow style, its data as plain text.
fn secret_of(namespace: &str, name: &str, data: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: {namespace}}}\nstringData: {{{data}}}\n---\n"
    )
}

/// A Secret with a key pair and roots.
fn pair(namespace: &str, name: &str) -> String {
    secret_of(
        namespace,
        name,
        "tls.crt: CERT, tls.key: KEY-MATERIAL, ca.crt: ROOT, ca.crl: REVOKED",
    )
}

fn bytes(source: Option<&DataSource>) -> Option<&[u8]> {
    let Specifier::InlineBytes(bytes) = source?.specifier.as_ref()? else {
        panic!("not inline bytes")
    };
    Some(bytes)
}

/// Key and certificates of a secret.
fn key_and_chain(secret: &EnvoySecret) -> (&[u8], &[u8]) {
    let secret::Type::TlsCertificate(pair) = secret.r#type.as_ref().unwrap() else {
        panic!("no key pair")
    };
    (
        bytes(pair.private_key.as_ref()).unwrap(),
        bytes(pair.certificate_chain.as_ref()).unwrap(),
    )
}

/// Roots and revocations of a secret.
fn roots(secret: &EnvoySecret) -> (&[u8], Option<&[u8]>) {
    let secret::Type::ValidationContext(context) = secret.r#type.as_ref().unwrap() else {
        panic!("no roots")
    };
    (
        bytes(context.trusted_ca.as_ref()).unwrap(),
        bytes(context.crl.as_ref()),
    )
}

#[test]
fn a_proved_proxy_gets_the_secrets_of_its_namespace() {
    let generic = secret_of("edge", "old", "cert: C, key: K, cacert: R");
    let config_map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ca, namespace: shop}\ndata: {ca.crt: MAP}\n---\n";
    let mut mesh = TestMesh::new(&(pair("edge", "web") + &generic + config_map));
    let gateway = mesh.proved_gateway("edge", "gw");
    assert_eq!(
        key_and_chain(&mesh.secret(gateway, "kubernetes://web").unwrap()),
        (&b"KEY-MATERIAL"[..], &b"CERT"[..])
    );

    assert_eq!(
        key_and_chain(&mesh.secret(gateway, "kubernetes://edge/old").unwrap()),
        (&b"K"[..], &b"C"[..])
    );
    let with_crl = mesh.secret(gateway, "kubernetes://web-cacert").unwrap();
    assert_eq!(roots(&with_crl), (&b"ROOT"[..], Some(&b"REVOKED"[..])));
    assert_eq!(
        roots(&mesh.secret(gateway, "kubernetes://old-cacert").unwrap()),
        (&b"R"[..], None)
    );

    assert_eq!(
        roots(&mesh.secret(gateway, "configmap://shop/ca-cacert").unwrap()),
        (&b"MAP"[..], None)
    );
}

// CVE-2021-34824: a gateway in another namespace got a secret from the cache that a gateway of the
// secret's namespace had filled.
#[test]
fn cve_2021_34824_secrets_of_other_namespaces_are_never_served() {
    let mut mesh = TestMesh::new(&pair("edge", "web"));
    let owner = mesh.proved_gateway("edge", "gw");
    let stranger = mesh.proved_gateway("other", "gw");
    let plaintext = mesh.gateway("edge");

    for name in [
        "kubernetes://web",
        "kubernetes://edge/web",
        "kubernetes-gateway://edge/web",
    ] {
        let own = mesh.secret(owner, name);
        assert_eq!(own.is_some(), name.starts_with("kubernetes://"), "{name}");
        assert_eq!(mesh.secret(stranger, name), None, "{name}");
        assert_eq!(mesh.secret(plaintext, name), None, "{name}");
        assert_eq!(mesh.secret(owner, name), own, "{name}");
    }

    assert!(
        mesh.secret(stranger, "kubernetes://edge/web-cacert")
            .is_none()
    );
    let remarks = mesh.remarks().join("\n");
    assert!(
        remarks.contains(
            "secret kubernetes://edge/web is withheld: it is not in the proxy's namespace"
        ),
        "{remarks}"
    );

    assert!(
        remarks.contains("only proxies with a verified identity"),
        "{remarks}"
    );
    assert!(
        !remarks.contains("KEY-MATERIAL") && !remarks.contains("CERT"),
        "{remarks}"
    );
}

#[test]
fn secret_access_of_a_service_account_is_checked_and_revocable() {
    let settings = Settings {
        secret_readers: SecretReaders::Reviewed,
        ..Settings::default()
    };
    let mut mesh = TestMesh::with_settings(&pair("edge", "web"), settings);
    let gateway = mesh.proved_gateway("edge", "gw");
    let other = mesh.proved_gateway("edge", "other");
    assert_eq!(
        mesh.secret(gateway, "kubernetes://web"),
        None,
        "no access was reviewed yet"
    );

    assert_eq!(mesh.review("edge", "gw", Some(true)).published, 1);
    assert!(mesh.secret(gateway, "kubernetes://web").is_some());
    assert_eq!(
        mesh.secret(other, "kubernetes://web"),
        None,
        "another account of the namespace"
    );
    assert!(
        mesh.secret(other, "kubernetes://web-cacert").is_some(),
        "roots are public"
    );

    mesh.secret(gateway, "kubernetes://web");
    assert_eq!(mesh.review("edge", "gw", Some(false)).published, 1);
    assert_eq!(mesh.secret(gateway, "kubernetes://web"), None);
}

#[test]
fn a_rotated_secret_reaches_those_that_use_it_and_no_others() {
    let mut mesh =
        TestMesh::new(&(pair("edge", "web") + &pair("edge", "api") + &pair("other", "web")));
    let user = mesh.proved_gateway("edge", "gw");
    let twin = mesh.proved_gateway("edge", "gw");
    let third = mesh.proved_gateway("edge", "gw");
    let foreign = mesh.proved_gateway("other", "gw");
    mesh.secret(user, "kubernetes://web");
    mesh.secret(twin, "kubernetes://web");
    mesh.secret(third, "kubernetes://api");
    mesh.secret(foreign, "kubernetes://web");
    let stats = mesh.apply(&secret_of("edge", "web", "tls.crt: NEW, tls.key: NEWKEY"));
    assert_eq!((stats.published, stats.groups), (2, 1));
    assert_eq!(
        key_and_chain(&mesh.secret(user, "kubernetes://web").unwrap()).1,
        b"NEW"
    );
}

#[test]
fn missing_and_broken_secrets_say_so_and_recover() {
    let mut mesh = TestMesh::new(&secret_of("edge", "web", "tls.crt: CERT, tls.key: ''"));
    let gateway = mesh.proved_gateway("edge", "gw");
    assert_eq!(mesh.secret(gateway, "kubernetes://web"), None);
    assert_eq!(
        mesh.remarks().join("\n"),
        "secret kubernetes://web cannot be served: edge/web: tls.crt or tls.key is empty"
    );
    mesh.apply(&secret_of("edge", "web", "a: '1', b: '2', c: '3', d: '4'"));

    let remarks = mesh.remarks().join("\n");
    assert!(
        remarks.ends_with(
            "it has the keys a, b, c and 1 more instead of tls.crt and tls.key, or cert and key"
        ),
        "{remarks}"
    );

    mesh.apply(&pair("edge", "web"));
    assert!(mesh.secret(gateway, "kubernetes://web").is_some());
    assert!(mesh.remarks().join("\n").ends_with(
        "is served but is invalid: edge/web: no PEM certificate in the certificate chain"
    ));
    assert_eq!(mesh.secret(gateway, "kubernetes://none"), None);
    assert!(
        mesh.remarks()
            .join("\n")
            .contains("edge/none: object not found")
    );
}

#[test]
fn a_gateway_may_name_a_secret_beside_it_for_its_own_proxies_only() {
    let tls = "{mode: MUTUAL, credentialName: 'kubernetes-gateway://edge/web'}";
    let server = format!(
        "{{port: {{number: 443, name: https, protocol: HTTPS}}, hosts: ['*'], tls: {tls}}}"
    );
    let gateway = |namespace: &str| {
        networking(
            "Gateway",
            namespace,
            "gw",
            &format!("{{selector: {{app: gateway}}, servers: [{server}]}}"),
        )
    };

    let mut mesh = TestMesh::new(&(pair("edge", "web") + &gateway("edge") + &gateway("other")));
    let own = mesh.proved_gateway("edge", "gw");
    let other = mesh.proved_gateway("other", "gw");

    for name in [
        "kubernetes-gateway://edge/web",
        "kubernetes-gateway://edge/web-cacert",
    ] {
        assert!(mesh.secret(own, name).is_some(), "{name}");
        assert_eq!(
            mesh.secret(other, name),
            None,
            "{name}: its Gateway is of another namespace than the Secret"
        );
    }
}

#[test]
fn secrets_of_the_gateway_api_are_of_the_cluster_that_configures_the_mesh() {
    let tls = "{mode: MUTUAL, credentialName: 'kubernetes-gateway://edge/web'}";
    let spec = format!(
        "{{selector: {{app: gateway}}, servers: [{{port: {{number: 443, name: https, protocol: HTTPS}}, \
         hosts: ['*'], tls: {tls}}}]}}"
    );
    let mut mesh =
        TestMesh::new(&(pair("edge", "web") + &networking("Gateway", "edge", "gw", &spec)));
    mesh.reset_remote(
        "far",
        &secret_of(
            "edge",
            "web",
            "tls.crt: FAR, tls.key: FAR-KEY, ca.crt: FAR-ROOT",
        ),
    );
    let far = mesh.proved_gateway_in("far", "edge", "gw");

    let own = mesh.secret(far, "kubernetes://web").unwrap();
    assert_eq!(key_and_chain(&own).1, b"FAR");
    let of_gateway = mesh.secret(far, "kubernetes-gateway://edge/web").unwrap();
    assert_eq!(key_and_chain(&of_gateway).1, b"CERT");
    let of_gateway = mesh
        .secret(far, "kubernetes-gateway://edge/web-cacert")
        .unwrap();
    assert_eq!(roots(&of_gateway).0, b"ROOT");
}
