//! What has gone wrong in control planes before, tried again: one test for each row.
//!
//! | what happened | what is tried, and where |
//! | --- | --- |
//! | CVE-2022-23635: a token whose payload is `null`, metadata that is a list of one byte | [`a_token_of_null_and_metadata_of_lists_hurt_nobody`]; `tests/envoy/policy.rs`; fuzz targets `jwt`, `node_metadata` |
//! | CVE-2021-34824: secrets of other namespaces through the cache | [`what_one_namespace_was_given_is_not_given_to_another`] |
//! | CVE-2020-16844: DENY of TCP by the end of a principal | `tests/walks/past.rs` `tcp_is_denied_by_the_end_of_a_principal` |
//! | CVE-2021-39155, -39156: hosts with ports or in upper case, paths with fragments | `tests/envoy/policy.rs` `authorization_policies_let_in_and_refuse` |
//! | CVE-2026-39350: dots in names of service accounts | `tests/walks/past.rs` `dots_in_service_accounts_are_dots` |
//! | CVE-2026-31837: keys that cannot be fetched, keys baked in | `tests/envoy/policy.rs` `tokens_are_required_and_their_claims_choose_routes` |
//! | CVE-2026-31838: debug and configuration types without identity or across namespaces | [`debug_and_configuration_types_are_not_served`], [`strangers_from_elsewhere_see_no_debug_page`] |
//! | CVE-2021-31921: AUTO_PASSTHROUGH that reaches services it was not meant for | `tests/walks/past.rs` `gateways_pass_on_to_their_hosts_alone` |
//! | GHSA-fgw5-hp8f-xfhc: `jwksUri` that leads to the machine itself | [`keys_are_not_fetched_from_the_machine_itself`] |
//! | CVE-2023-44487, CVE-2023-45288: rapid reset, CONTINUATION floods | `floods.rs` `floods_end_their_connection_and_nothing_else` |
//! | huge headers, slow loris | `floods.rs` `huge_headers_are_refused_on_every_port`, `who_is_slow_is_cut_on_every_port` |
//! | upgrades to h2c | `tests/secure.rs` `old_tls_and_upgrades_to_http2_are_refused` |
//! | ISTIO-SECURITY-2026-006: expressions in EnvoyFilters that explode | `tests/walks/past.rs` `expressions_that_explode_hurt_nobody` |
//! | istio #57592: configuration dumps that alter cached secrets | [`a_dump_shows_no_key_and_alters_none`] |
//! | istio #60110: routes of TCP and TLS without a destination | `tests/walks/past.rs` `routes_without_a_destination_are_told_of` |

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Result, ensure};
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::{Secret, secret};
use navarch_testkit::client as web;
use prost_types::value::Kind;
use serde_json::json;
use tonic::Code;

use crate::client::Proof;
use crate::server::{Server, node};

/// The type of clusters.
const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// The key of a secret.
fn key(secret: &Secret) -> String {
    let Some(secret::Type::TlsCertificate(pair)) = &secret.r#type else { return String::new() };
    format!("{:?}", pair.private_key)
}

#[tokio::test]
async fn a_token_of_null_and_metadata_of_lists_hurt_nobody() -> Result<()> {
    let server = Server::start().await?;
    // {"alg":"ES256","kid":"one"} and null, [], "" and nothing.
    for payload in ["bnVsbA", "W10", "IiI", ""] {
        let proof = Proof::Token(format!("eyJhbGciOiJFUzI1NiIsImtpZCI6Im9uZSJ9.{payload}.AAAA"));
        let refused = server.secrets(&proof, "shop", "web", &["kubernetes://tls"]).await.unwrap_err();
        ensure!(refused.code() == Code::Unauthenticated, "{refused:?}");
    }
    let byte = prost_types::Value { kind: Some(Kind::StringValue("\u{1}".to_owned())) };
    let list = prost_types::Value { kind: Some(Kind::ListValue(prost_types::ListValue { values: vec![byte] })) };
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
        odd.metadata.as_mut().unwrap().fields.insert(name.to_owned(), list.clone());
        // It is served or refused in words.
        if let Err(refused) = server.plain_resources(odd, CLUSTERS, &["*"]).await {
            let words = [Code::InvalidArgument, Code::Unimplemented];
            ensure!(words.contains(&refused.code()), "{name}: {refused:?}");
        }
    }
    ensure!(!server.output().contains("panicked"), "{}", server.output());
    ensure!(!server.plain_resources(node("shop", "web"), CLUSTERS, &["*"]).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn what_one_namespace_was_given_is_not_given_to_another() -> Result<()> {
    let server = Server::start().await?;
    let shop = Proof::Token(server.issuer.token(json!({})));
    let bank = Proof::Token(server.issuer.token(json!({"sub": "system:serviceaccount:bank:web"})));
    let names = ["kubernetes://tls", "kubernetes://shop/tls", "kubernetes://bank/tls"];
    // Each after the other, and again, so that whatever is kept was made for the other.
    for (proof, own, other) in
        [(&shop, "shop", "bank"), (&bank, "bank", "shop"), (&shop, "shop", "bank"), (&bank, "bank", "shop")]
    {
        let secrets = server.secrets(proof, own, "web", &names).await?;
        let (own, other) = (format!("KEY-OF-{}", own.to_uppercase()), format!("KEY-OF-{}", other.to_uppercase()));
        let shown = |secret: &Secret| String::from_utf8_lossy(&prost::Message::encode_to_vec(secret)).into_owned();
        ensure!(secrets.iter().all(|secret| !shown(secret).contains(&other)), "{own} was given {other}");
        ensure!(secrets.iter().any(|secret| shown(secret).contains(&own)), "{own} was not given");
    }
    Ok(())
}

#[tokio::test]
async fn debug_and_configuration_types_are_not_served() -> Result<()> {
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
        for names in [&["*"][..], &["shop/tls", "bank/tls", "config_dump?proxyID=web-1.bank"]] {
            let wait = Duration::from_secs(2);
            let plain = tokio::time::timeout(wait, server.plain_resources(node("shop", "web"), kind, names)).await;
            let proven = server.resources(&proof, node("shop", "web"), kind, names);
            let proven = tokio::time::timeout(wait, proven).await;
            for answer in [plain, proven] {
                // Silence, a refusal, or an answer without anything.
                let given = answer.ok().and_then(Result::ok).unwrap_or_default();
                ensure!(given.is_empty(), "{kind} {names:?}: {given:?}");
            }
        }
    }
    Ok(())
}

/// An address of this machine that is not its loopback, where it has one.
pub(crate) fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    // Nothing is sent: it only tells by which address it would go.
    socket.connect(("192.0.2.1", 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[tokio::test]
async fn strangers_from_elsewhere_see_no_debug_page() -> Result<()> {
    let Some(own) = own_address() else {
        println!("skipped: this machine has no address but its loopback");
        return Ok(());
    };
    let server = Server::at(IpAddr::from([0, 0, 0, 0])).await?;
    let [http, monitoring] = server.web().map(|address| SocketAddr::new(own, address.port()));
    let (shop, operator) = (
        server.issuer.token(json!({})),
        server.issuer.token(json!({"sub": "system:serviceaccount:istio-system:istiod"})),
    );
    let pages = ["syncz", "adsz", "registryz", "configz", "push_status", "endpointz", "mesh", "connections", "list"];
    for page in pages {
        for (address, token, wanted) in [
            (http, None, &[401, 404][..]),
            (monitoring, None, &[401, 404]),
            (http, Some("nonsense"), &[401, 404]),
            (http, Some(shop.as_str()), &[403, 404]),
            (http, Some(operator.as_str()), &[200, 404]),
        ] {
            let bearer = token.map(|token| format!("Bearer {token}"));
            let headers: Vec<(&str, &str)> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
            let reply = web::get(address, "navarch", &format!("/debug/{page}"), &headers).await?;
            ensure!(wanted.contains(&reply.status.as_u16()), "{page} {address} {token:?}: {reply:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn keys_are_not_fetched_from_the_machine_itself() -> Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let hosts = ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433", "127.1"];
    let rules = hosts.map(|host| format!("{{issuer: 'https://{host}', jwksUri: 'http://{host}:{port}/keys'}}"));
    let mesh = format!(
        "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {{name: inward, namespace: shop}}\n\
         spec: {{jwtRules: [{}, {{issuer: 'https://cloud', jwksUri: 'http://169.254.169.254/latest/meta-data'}}]}}\n",
        rules.join(", ")
    );
    let server = Server::with_mesh(&mesh).await?;
    // It is ready when all places were tried. Somebody may have come by another way meanwhile: nobody may at all.
    let came = tokio::time::timeout(Duration::from_secs(1), listener.accept()).await;
    ensure!(came.is_err(), "somebody came: {came:?}");
    ensure!(server.output().contains("keys of a token issuer cannot be fetched"), "{}", server.output());
    Ok(())
}

#[tokio::test]
async fn a_dump_shows_no_key_and_alters_none() -> Result<()> {
    let server = Server::start().await?;
    let proof = Proof::Token(server.issuer.token(json!({})));
    let before = server.secrets(&proof, "shop", "web", &["kubernetes://tls"]).await?;
    ensure!(before.iter().any(|secret| key(secret).len() > 10), "a key was given");
    // While somebody has the secret, it is dumped in every way.
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
        ensure!(!dump.contains("KEY-OF-SHOP") && !dump.contains("S0VZLU9GLVNIT1"), "{dump}");
    }
    let after = server.secrets(&proof, "shop", "web", &["kubernetes://tls"]).await?;
    ensure!(after == before, "the secret is as it was");
    Ok(())
}
