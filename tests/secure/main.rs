//! The TLS port, used by unauthenticated clients, proxies and openssl: access, the content of
//! certificates, and the delivery of secrets.
//!
//! Needs `openssl` as an independent check of certificates and requests.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::print_stdout,
    clippy::type_complexity,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may fail loudly, print, spawn and read its switches from the environment"
)]

mod agent;
mod api_server;
mod authority_away;
mod cert_manager;
mod compliance;
mod config_source;
mod control_z;
mod dashboards;
mod debug_members;
mod floods;
mod grpc;
mod guarded;
mod istioctl;
mod istiod;
mod metric_names;
mod mtls;
mod openssl;
mod own_authority;
mod past;
mod plugin;
mod ports;
mod profiles;
mod reflection;
mod registration;
mod rotation;
mod source_events;
mod spire;
mod tools;
mod waypoint;

use std::time::Duration;

use anyhow::{Result, ensure};
use navarch_tests::{bare_mesh, client, hbone, issuer, panels, pod, server, web, workload_sds};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Code;

use client::Proof;
use server::Server;

#[tokio::test]
async fn an_openssl_request_gets_a_certificate_that_openssl_accepts() -> Result<()> {
    let server = Server::start().await?;
    let token = Proof::Token(server.issuer.token(json!({})));

    for (key, good) in [
        (&["ec", "-pkeyopt", "ec_paramgen_curve:P-256"][..], true),
        (&["rsa:2048"][..], true),
        (&["rsa:1024"][..], false),
    ] {
        let csr = openssl::request(server.folder(), key)?;
        let answer = server.certificate(&token, &csr, 3600).await;
        if !good {
            assert_eq!(answer.unwrap_err().code(), Code::InvalidArgument, "{key:?}");
            continue;
        }
        let chain = answer?.cert_chain;
        ensure!(chain.len() == 2, "leaf and root: {chain:?}");
        ensure!(
            chain[1] == server.root(),
            "the root is the last certificate"
        );
        let text = openssl::verified(server.folder(), &chain[0], &chain[1])?;
        ensure!(
            text.contains("URI:spiffe://cluster.local/ns/shop/sa/web"),
            "{text}"
        );
        ensure!(
            !text.contains("evil.example"),
            "the certificate has no names from the request: {text}"
        );
    }

    ensure!(server.certificate(&Proof::Nothing, "", 0).await.is_err());
    let metrics = server.metrics().await?;

    for line in [
        "citadel_server_csr_count 4",
        "citadel_server_success_cert_issuance_count 2",
        "citadel_server_csr_parsing_err_count 1",
        "citadel_server_authentication_failure_count 1",
        "citadel_server_root_cert_expiry_seconds 315",
    ] {
        ensure!(metrics.contains(&format!("\n{line}")), "{line}: {metrics}");
    }

    Ok(())
}

#[tokio::test]
async fn checks_can_be_stricter_or_laxer_without_exposing_secrets() -> Result<()> {
    let strict = Server::with_variables(server::MESH, "XDS_AUTH_PLAINTEXT=true").await?;
    let rejected = strict
        .plain_secrets("shop", "web", &["kubernetes://tls"])
        .await
        .unwrap_err();
    ensure!(rejected.code() == Code::Unauthenticated, "{rejected:?}");
    let lax = Server::with_variables(server::MESH, "PILOT_ENABLE_XDS_IDENTITY_CHECK=false").await?;
    let token = Proof::Token(lax.issuer.token(json!({})));

    for namespace in ["shop", "bank"] {
        let secrets = lax
            .secrets(&token, namespace, "web", &["kubernetes://tls"])
            .await?;
        ensure!(
            secrets.is_empty(),
            "unauthenticated clients get no secrets: {}",
            secrets.len()
        );
    }

    let rejected = lax
        .secrets(&Proof::Nothing, "shop", "web", &["kubernetes://tls"])
        .await
        .unwrap_err();
    ensure!(rejected.code() == Code::Unauthenticated, "{rejected:?}");

    Ok(())
}

#[tokio::test]
async fn unauthenticated_clients_and_bad_tokens_are_rejected_with_a_reason() -> Result<()> {
    let server = Server::start().await?;
    let csr = openssl::request(
        server.folder(),
        &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
    )?;

    for (proof, reason) in [
        (Proof::Nothing, "neither a certificate nor a token"),
        (Proof::Token("nonsense".into()), "not a JWT"),
        (
            Proof::Token(server.issuer.token(json!({"exp": 1_600_000_000}))),
            "expired",
        ),
        (
            Proof::Token(server.issuer.token(json!({"aud": "somebody-else"}))),
            "another audience",
        ),
        (
            Proof::Token(server.issuer.token(json!({"iss": "https://evil.example"}))),
            "another issuer",
        ),
        (
            Proof::Token(server.issuer.token(json!({"sub": "alice"}))),
            "not a service account",
        ),
    ] {
        let rejected = server.certificate(&proof, &csr, 0).await.unwrap_err();
        ensure!(
            rejected.code() == Code::Unauthenticated && rejected.message().contains(reason),
            "{rejected:?}"
        );
        let rejected = server
            .secrets(&proof, "shop", "web", &["kubernetes://tls"])
            .await
            .unwrap_err();
        ensure!(rejected.code() == Code::Unauthenticated, "{rejected:?}");
    }

    let good = Proof::Token(server.issuer.token(json!({})));
    let too_long = server
        .certificate(&good, &csr, 366 * 24 * 3600)
        .await
        .unwrap_err();
    ensure!(too_long.code() == Code::InvalidArgument, "{too_long:?}");
    let log = server.output();
    ensure!(log.contains("caller rejected"), "{log}");

    ensure!(
        !log.contains("BEGIN") && !log.contains("KEY-OF-SHOP"),
        "no key material in the log"
    );

    Ok(())
}

#[tokio::test]
async fn a_proxy_gets_the_secrets_of_its_own_namespace_by_token_or_certificate() -> Result<()> {
    let server = Server::start().await?;
    let token = Proof::Token(server.issuer.token(json!({})));
    let certificate = server.prove_by_certificate(&token).await?;
    for proof in [&token, &certificate] {
        let secrets = server
            .secrets(
                proof,
                "shop",
                "web",
                &["kubernetes://tls", "kubernetes://bank/tls"],
            )
            .await?;

        ensure!(
            secrets.len() == 1 && secrets[0].name == "kubernetes://tls",
            "{}",
            secrets.len()
        );

        // The namespace and account of the node must be those of the authenticated identity.
        for (namespace, account) in [("bank", "web"), ("shop", "admin")] {
            let denied = server
                .secrets(proof, namespace, account, &["kubernetes://tls"])
                .await
                .unwrap_err();
            ensure!(denied.code() == Code::PermissionDenied, "{denied:?}");
        }
    }

    // Plain-text clients have no identity, so they get no secrets.
    let secrets = server
        .plain_secrets(
            "shop",
            "web",
            &["kubernetes://tls", "kubernetes://tls-cacert"],
        )
        .await?;

    ensure!(secrets.is_empty(), "{}", secrets.len());
    let pages = [
        "config_dump?proxyID=web-1&types=sds",
        "push_status",
        "adsz",
        "syncz",
        "configz",
    ];

    for page in pages {
        let shown = server.page(page).await?;
        ensure!(
            !shown.contains("KEY-OF-SHOP") && !shown.contains("S0VZLU9GLVNIT1"),
            "{page} contains a key"
        );
    }

    Ok(())
}

#[tokio::test]
async fn the_root_outlives_the_process() -> Result<()> {
    let server = Server::start().await?;
    let root = server.root();
    let token = Proof::Token(server.issuer.token(json!({})));
    let certificate = server.prove_by_certificate(&token).await?;
    let server = server.restart().await?;
    ensure!(server.root() == root);
    let secrets = server
        .secrets(&certificate, "shop", "web", &["kubernetes://tls"])
        .await?;
    ensure!(
        secrets.len() == 1,
        "a certificate from before the restart is accepted"
    );
    Ok(())
}

#[tokio::test]
async fn old_tls_is_rejected() -> Result<()> {
    let server = Server::start().await?;
    for version in ["-tls1", "-tls1_1"] {
        ensure!(!openssl::connects(server.secure, version)?, "{version}");
    }
    for version in ["-tls1_2", "-tls1_3"] {
        ensure!(openssl::connects(server.secure, version)?, "{version}");
    }
    Ok(())
}

#[tokio::test]
async fn cve_2022_41721_upgrades_to_http2_are_rejected() -> Result<()> {
    let server = Server::start().await?;
    let mut stream = tokio::net::TcpStream::connect(server.plain()).await?;
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    // A reset connection is a rejection, too.
    drop(tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await?);
    ensure!(
        !String::from_utf8_lossy(&answer).contains("101"),
        "{answer:?}"
    );
    Ok(())
}
