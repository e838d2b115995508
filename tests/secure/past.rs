//! Known vulnerabilities and crashes of control planes, tried on the real server.
//! `docs/security-regressions.md` lists them, including those tested elsewhere.

use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::{Secret, secret};
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, Resource};
use prost_types::value::Kind;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::client::{self, Proof};
use crate::server::{MESH, Server, node};

/// The type URL of clusters.
const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// Timeout of each step on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

fn key(secret: &Secret) -> String {
    let Some(secret::Type::TlsCertificate(pair)) = &secret.r#type else {
        return String::new();
    };
    format!("{:?}", pair.private_key)
}

#[tokio::test]
async fn cve_2022_23635_null_tokens_and_list_metadata_are_harmless() -> Result<()> {
    let server = Server::start().await?;

    // {"alg":"ES256","kid":"one"} with the payloads null, [], "" and empty.
    for payload in ["bnVsbA", "W10", "IiI", ""] {
        let proof = Proof::Token(format!(
            "eyJhbGciOiJFUzI1NiIsImtpZCI6Im9uZSJ9.{payload}.AAAA"
        ));
        let error = server
            .secrets(&proof, "shop", "web", &["kubernetes://tls"])
            .await
            .unwrap_err();
        ensure!(error.code() == Code::Unauthenticated, "{error:?}");
    }

    let byte = prost_types::Value {
        kind: Some(Kind::StringValue("\u{1}".to_owned())),
    };
    let list = prost_types::Value {
        kind: Some(Kind::ListValue(prost_types::ListValue {
            values: vec![byte],
        })),
    };

    let names = [
        "LABELS",
        "ANNOTATIONS",
        "INSTANCE_IPS",
        "NAMESPACE",
        "PROXY_CONFIG",
        "ISTIO_VERSION",
        "NETWORK",
        "CLUSTER_ID",
        "SERVICE_ACCOUNT",
        "WORKLOAD_NAME",
        "INTERCEPTION_MODE",
        "GENERATOR",
        "DNS_CAPTURE",
        "HTTP10",
        "APP_CONTAINERS",
    ];

    for name in names {
        let mut odd = node("shop", "web");
        odd.metadata
            .as_mut()
            .unwrap()
            .fields
            .insert(name.to_owned(), list.clone());
        // The request succeeds or is rejected with a message.
        if let Err(error) = server.plain_resources(odd, CLUSTERS, &["*"]).await {
            let words = [Code::InvalidArgument, Code::Unimplemented];
            ensure!(words.contains(&error.code()), "{name}: {error:?}");
        }
    }

    ensure!(!server.output().contains("panicked"), "{}", server.output());
    ensure!(
        !server
            .plain_resources(node("shop", "web"), CLUSTERS, &["*"])
            .await?
            .is_empty()
    );

    Ok(())
}

#[tokio::test]
async fn cve_2021_34824_secrets_are_not_shared_between_namespaces() -> Result<()> {
    let server = Server::start().await?;
    let shop = Proof::Token(server.issuer.token(json!({})));
    let bank = Proof::Token(
        server
            .issuer
            .token(json!({"sub": "system:serviceaccount:bank:web"})),
    );

    let names = [
        "kubernetes://tls",
        "kubernetes://shop/tls",
        "kubernetes://bank/tls",
    ];

    // Alternate between the two, and repeat, so that a cached resource would be the other's.
    for (proof, own, other) in [
        (&shop, "shop", "bank"),
        (&bank, "bank", "shop"),
        (&shop, "shop", "bank"),
        (&bank, "bank", "shop"),
    ] {
        let secrets = server.secrets(proof, own, "web", &names).await?;
        let own = format!("KEY-OF-{}", own.to_uppercase());
        let other = format!("KEY-OF-{}", other.to_uppercase());
        let shown = |secret: &Secret| {
            String::from_utf8_lossy(&prost::Message::encode_to_vec(secret)).into_owned()
        };
        ensure!(
            secrets.iter().all(|secret| !shown(secret).contains(&other)),
            "{own} received {other}"
        );
        ensure!(
            secrets.iter().any(|secret| shown(secret).contains(&own)),
            "{own} did not arrive"
        );
    }

    Ok(())
}

#[tokio::test]
async fn cve_2026_31838_debug_and_configuration_types_hide_other_namespaces() -> Result<()> {
    let server = Server::start().await?;
    let proof = Proof::Token(server.issuer.token(json!({})));

    for kind in [
        "istio.io/debug",
        "istio.io/debug/syncz",
        "istio.io/debug/config_dump",
        "istio.io/connections",
        "istio.io/nds",
        "networking.istio.io/v1/VirtualService",
        "security.istio.io/v1/AuthorizationPolicy",
        "core/v1/Secret",
        "type.googleapis.com/istio.mcp.v1alpha1.Resource",
    ] {
        for names in [
            &["*"][..],
            &["shop/tls", "bank/tls", "config_dump?proxyID=web-1.bank"],
        ] {
            let plain = Endpoint::from_shared(format!("http://{}", server.plain()))?.connect_lazy();
            let secure = client::channel(server.secure, &server.root(), &proof);
            for (channel, proof) in [(plain, &Proof::Nothing), (secure, &proof)] {
                // The result is no response, a rejection, an empty response, or the error that the
                // proxy does not exist.
                let given = tokio::time::timeout(TIMEOUT, given(channel, proof, kind, names)).await;
                let mut given = given.with_context(|| {
                    format!("{kind} {names:?}: what is asked after it has no answer")
                })?;
                given.retain(|one| {
                    let value = one
                        .resource
                        .as_ref()
                        .map(|any| String::from_utf8_lossy(&any.value))
                        .unwrap_or_default();
                    !value.starts_with("Proxy not connected to this Pilot instance")
                });

                ensure!(given.is_empty(), "{kind} {names:?}: {given:?}");
            }
        }
    }

    Ok(())
}

/// The resources of a type that a stream receives before it ends, or before a later request gets
/// its response. Debug requests get their responses in any order.
async fn given(channel: Channel, proof: &Proof, kind: &str, names: &[&str]) -> Vec<Resource> {
    let ask = |kind: &str, names: &[&str]| DeltaDiscoveryRequest {
        type_url: kind.to_owned(),
        resource_names_subscribe: names.iter().map(ToString::to_string).collect(),
        ..DeltaDiscoveryRequest::default()
    };
    let first = DeltaDiscoveryRequest {
        node: Some(node("shop", "web")),
        ..ask(kind, names)
    };

    // The stream stays open until it is read to its end.
    let (asks, receiver) = tokio::sync::mpsc::channel(2);
    for request in [first, ask(CLUSTERS, &["*"])] {
        asks.send(request)
            .await
            .expect("the channel has room for both");
    }

    let requests = client::signed(ReceiverStream::new(receiver), proof);
    let opened = AggregatedDiscoveryServiceClient::new(channel)
        .delta_aggregated_resources(requests)
        .await;
    let Ok(mut answers) = opened.map(tonic::Response::into_inner) else {
        return Vec::new();
    };

    let is_question = kind.starts_with("istio.io/debug") || kind == "istio.io/connections";
    let mut given = Vec::new();
    let mut is_answered = !is_question;
    let mut is_later_answered = false;
    while !(is_answered && is_later_answered) {
        let Ok(Some(answer)) = answers.message().await else {
            break;
        };
        if answer.type_url == CLUSTERS {
            is_later_answered = true;
        } else {
            is_answered |= answer.type_url == kind;
            given.extend(answer.resources);
        }
    }

    given
}

/// An address of this machine other than loopback, if it has one.
pub(crate) fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    // Connecting a UDP socket sends nothing; it only selects the source address.
    socket.connect(("192.0.2.1", 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[tokio::test]
async fn ghsa_fgw5_hp8f_xfhc_keys_are_not_fetched_from_the_machine_itself() -> Result<()> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let hosts = [
        "127.0.0.1",
        "localhost",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "2130706433",
        "127.1",
    ];

    let rules = hosts
        .map(|host| format!("{{issuer: 'https://{host}', jwksUri: 'http://{host}:{port}/keys'}}"));
    let mesh = format!(
        "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {{name: inward, namespace: shop}}\n\
         spec: {{jwtRules: [{}, {{issuer: 'https://cloud', jwksUri: 'http://169.254.169.254/latest/meta-data'}}]}}\n",
        rules.join(", ")
    );
    let server = Server::with_mesh(&mesh).await?;

    // The server is ready once all URLs were tried: a connection from it would be waiting to be
    // accepted.
    let failures = server
        .output()
        .matches("failed to fetch the JWKS of a token issuer")
        .count();
    ensure!(
        failures > hosts.len(),
        "{failures} URLs were tried:\n{}",
        server.output()
    );

    let came = listener.accept();
    ensure!(
        came.as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::WouldBlock),
        "the server connected: {came:?}"
    );

    Ok(())
}

#[tokio::test]
async fn istio_57592_config_dumps_hide_keys_without_modifying_them() -> Result<()> {
    let server = Server::start().await?;
    let proof = Proof::Token(server.issuer.token(json!({})));
    let before = server
        .secrets(&proof, "shop", "web", &["kubernetes://tls"])
        .await?;
    ensure!(
        before.iter().any(|secret| key(secret).len() > 10),
        "the key was delivered"
    );

    // While a proxy has the secret, dump it in every way.
    let holding = server.resources(
        &proof,
        node("shop", "web"),
        "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        &["kubernetes://tls"],
    );

    let (held, dumps) = tokio::join!(holding, async {
        let mut dumps = Vec::new();
        for _ in 0..20 {
            dumps.push(server.page("config_dump?proxyID=web-1&types=sds").await?);
        }
        anyhow::Ok(dumps)
    });

    held?;

    for dump in dumps? {
        ensure!(
            !dump.contains("KEY-OF-SHOP") && !dump.contains("S0VZLU9GLVNIT1"),
            "{dump}"
        );
    }

    let after = server
        .secrets(&proof, "shop", "web", &["kubernetes://tls"])
        .await?;
    ensure!(after == before, "the secret is unchanged");

    Ok(())
}

/// Posts a body to the webhook port, and returns the status and the response.
async fn review(server: &Server, length: usize, body: &[u8]) -> Result<(u16, String)> {
    let mut stream = client::connection(server.https, &server.root(), &[b"http/1.1"]).await?;
    let head = format!(
        "POST /validate HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    drop(stream.write_all(head.as_bytes()).await);
    drop(stream.write_all(body).await);
    drop(stream.flush().await);
    let mut answer = Vec::new();
    tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer))
        .await?
        .ok();

    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .context("no answer")?;

    Ok((status, answer))
}

/// An AdmissionReview of a created object.
fn creation(object: &Value) -> Vec<u8> {
    let request = json!({
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "CREATE", "namespace": "shop", "object": object,
        "userInfo": {"username": "admin"}, "oldObject": null,
    });
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
        .to_string()
        .into_bytes()
}

#[tokio::test]
async fn cve_2022_24726_large_bodies_and_deep_expressions_are_harmless() -> Result<()> {
    let server = Server::start().await?;
    let (status, _) = review(&server, 7 << 20, b"{").await?;
    ensure!(status == 413, "a body of 7 MiB: {status}");
    let deep = "[".repeat(100_000);
    let (_, response) = review(&server, deep.len(), deep.as_bytes()).await?;
    ensure!(response.contains("could not decode body"), "{response}");

    for (levels, unit) in [
        (1_500, ("(", ")")),
        (200_000, ("(", ")")),
        (200_000, ("(", "){1}")),
        (200_000, ("(?:", ")*")),
    ] {
        let regex = format!("{}a{}", unit.0.repeat(levels), unit.1.repeat(levels));
        let route = json!({"match": {"safe_regex": {"regex": regex}}, "route": {"cluster": "x"}});
        let patch = json!({"applyTo": "HTTP_ROUTE", "patch": {"operation": "INSERT_FIRST", "value": route}});
        let filter = json!({
            "apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter", "metadata": {"name": "deep", "namespace": "shop"},
            "spec": {"configPatches": [patch]},
        });
        let routes = json!([{"match": [{"uri": {"regex": regex}}], "route": [{"destination": {"host": "a"}}]}]);
        let service = json!({
            "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "deep", "namespace": "shop"},
            "spec": {"hosts": ["a"], "http": routes},
        });
        for object in [&filter, &service] {
            let body = creation(object);
            let (status, response) = review(&server, body.len(), &body)
                .await
                .with_context(|| server.output())?;
            ensure!(status == 200, "{levels} of {unit:?}: {status}");
            ensure!(
                object["kind"] != "VirtualService" || response.contains("\"allowed\":false"),
                "{levels} of {unit:?}: {response}"
            );
        }

        // The object may exist all the same, if it was created while the webhook was not installed.
        std::fs::write(server.folder().join("mesh/deep.yaml"), filter.to_string())?;
        let clusters = server
            .plain_resources(node("shop", "web"), CLUSTERS, &["*"])
            .await;
        ensure!(clusters.is_ok(), "{levels} of {unit:?}: {clusters:?}");
    }

    Ok(())
}

/// A Gateway that refers to Secrets in its own namespace, and one in another namespace with
/// annotations that only the control plane may set.
fn annotated_gateways() -> String {
    let tls = "{mode: SIMPLE, credentialName: 'kubernetes-gateway://shop/tls'}";
    let spec = format!(
        "{{selector: {{istio: edge}}, servers: [{{port: {{number: 443, name: https, protocol: HTTPS}}, hosts: ['*'], tls: {tls}}}]}}"
    );
    let head = "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata:";
    format!(
        "{MESH}---\n{head} {{name: edge, namespace: shop}}\nspec: {spec}\n---\n{head} {{name: faked, namespace: bank, \
         annotations: {{internal.istio.io/service-account-name: web, internal.istio.io/parent-namespace: bank, \
         internal.istio.io/parents: ListenerSet/x.shop, internal.istio.io/gateway-semantics: gateway}}}}\nspec: {spec}\n"
    )
}

#[tokio::test]
async fn verify_sa_for_gateway_secrets_annotations_of_users_open_no_other_namespace() -> Result<()>
{
    let server = Server::with_mesh(&annotated_gateways()).await?;
    let gateway = |account: &str, namespace: &str| {
        let mut gateway = node(namespace, account);
        let label = prost_types::Value {
            kind: Some(Kind::StringValue("edge".to_owned())),
        };
        let labels = prost_types::Struct {
            fields: [("istio".to_owned(), label)].into(),
        };
        let labels = prost_types::Value {
            kind: Some(Kind::StructValue(labels)),
        };

        gateway
            .metadata
            .as_mut()
            .unwrap()
            .fields
            .insert("LABELS".to_owned(), labels);

        gateway
    };

    let kind = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
    let name = "kubernetes-gateway://shop/tls";

    for (namespace, account, given) in [
        ("shop", "web", 1),
        ("bank", "web", 0),
        ("bank", "other", 0),
        ("shop", "web", 1),
    ] {
        let subject = format!("system:serviceaccount:{namespace}:{account}");
        let proof = Proof::Token(server.issuer.token(json!({"sub": subject})));
        let secrets = server
            .resources(&proof, gateway(account, namespace), kind, &[name])
            .await?;
        ensure!(
            secrets.len() == given,
            "{subject} received {}",
            secrets.len()
        );
    }

    let plain = server
        .plain_resources(gateway("web", "shop"), kind, &[name])
        .await?;
    ensure!(
        plain.is_empty(),
        "clients without an identity get no secrets"
    );

    Ok(())
}
