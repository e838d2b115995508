//! What led around policies of other control planes, tried at a real gateway.
//! `docs/security-regressions.md` has the list.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use navarch_testkit::bookshop::GATEWAY;
use navarch_testkit::client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::ONE_AT_A_TIME;
use super::policy::{Issuer, SHOP, claims, open, open_with, policy, until_status};

/// Denies the reviews.
const DENY_REVIEWS: &str =
    "  action: DENY\n  rules:\n  - to: [{operation: {paths: [/reviews, /reviews/*]}}]";

/// Other forms of `/reviews` by RFC 3986 and with backslashes.
const FORMS: [&str; 5] = [
    "/./reviews",
    "/x/../reviews",
    "/x/%2e%2e/reviews",
    "/x\\..\\reviews",
    "/catalog/../reviews/7",
];

/// Forms that are others only where slashes are merged and decoded.
const FORMS_OF_SLASHES: [&str; 7] = [
    "//reviews",
    "///reviews//7",
    "/%2freviews",
    "/%2Freviews",
    "/%5creviews",
    "/x%2f..%2freviews",
    "/x%5C..%5Creviews",
];

/// The status of the answer to a request for a path as it is written: clients change some.
async fn status_of(path: &str) -> Result<u16> {
    let exchange = async {
        let mut stream = TcpStream::connect(GATEWAY).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {SHOP}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        anyhow::Ok(String::from_utf8_lossy(&answer).into_owned())
    };

    let answer = tokio::time::timeout(Duration::from_secs(10), exchange)
        .await
        .context("no answer in ten seconds")??;
    let status = answer
        .split(' ')
        .nth(1)
        .with_context(|| format!("an answer without a status: {answer}"))?;
    Ok(status.parse()?)
}

/// Fails if a path is neither denied nor rejected: by the policy, or by Envoy as malformed.
pub(crate) async fn is_not_served(path: &str) -> Result<()> {
    let status = status_of(path).await?;
    ensure!([400, 403].contains(&status), "{path}: {status}");
    Ok(())
}

/// The status of the answer to a request with several values of `x-role`, each in its own line.
async fn status_of_roles(roles: &[&str]) -> Result<u16> {
    let headers: Vec<(&str, &str)> = roles.iter().map(|role| ("x-role", *role)).collect();
    let reply = client::get(GATEWAY, SHOP, "/catalog", &headers).await?;
    Ok(reply.status.as_u16())
}

#[tokio::test]
async fn cve_2021_31920_paths_are_normalized_before_policies_look() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let deny = policy("AuthorizationPolicy", "deny", DENY_REVIEWS);
    let (_shop, _navarch, gateway) = open(&deny).await?;
    until_status(403, SHOP, "/reviews", &[]).await;

    for path in FORMS {
        is_not_served(path).await?;
    }

    // Slashes are merged and decoded only where the mesh config says so, as by istiod.
    for path in FORMS_OF_SLASHES {
        let status = status_of(path).await?;
        ensure!(status == 200, "{path}: {status}");
    }

    gateway.ensure_no_update_rejected().await?;
    Ok(())
}

#[tokio::test]
async fn cve_2021_29492_slashes_are_decoded_and_merged_before_policies_look() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let deny = policy("AuthorizationPolicy", "deny", DENY_REVIEWS);
    let normalization = "pathNormalization:\n  normalization: DECODE_AND_MERGE_SLASHES\n";
    let (_shop, _navarch, gateway) = open_with(&deny, normalization).await?;
    until_status(403, SHOP, "/reviews", &[]).await;

    for path in FORMS.into_iter().chain(FORMS_OF_SLASHES) {
        is_not_served(path).await?;
    }

    let status = status_of("/catalog%2f7").await?;
    ensure!(status == 200, "others are let in: {status}");
    gateway.ensure_no_update_rejected().await?;
    Ok(())
}

#[tokio::test]
async fn cve_2020_8595_queries_and_fragments_lead_around_no_exact_path() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let issuer = Issuer::new()?;
    let stranger = Issuer::new()?;
    let believed = policy(
        "RequestAuthentication",
        "tokens",
        &format!(
            "  jwtRules:\n  - issuer: https://issuer.example\n    jwks: '{}'",
            issuer.jwks
        ),
    );
    let required = policy(
        "AuthorizationPolicy",
        "required",
        "  action: DENY\n  rules:\n  - from: [{source: {notRequestPrincipals: ['*']}}]\n    \
         to: [{operation: {paths: [/catalog]}}]",
    );

    let (_shop, _navarch, gateway) = open(&format!("{believed}{required}")).await?;
    until_status(403, SHOP, "/catalog", &[]).await;
    until_status(200, SHOP, "/", &[]).await;

    for path in [
        "/catalog?",
        "/catalog?page=1",
        "/catalog#top",
        "/catalog?page=1#top",
        "/catalog#top?page=1",
    ] {
        is_not_served(path).await?;
    }

    let own = issuer.token(&claims("https://issuer.example", "readers"))?;
    until_status(200, SHOP, "/catalog?page=1", &[("authorization", &own)]).await;

    // A token must be valid whatever the path is.
    let forged = stranger.token(&claims("https://issuer.example", "readers"))?;
    for path in ["/catalog?page=1", "/?page=1"] {
        until_status(401, SHOP, path, &[("authorization", &forged)]).await;
    }

    gateway.ensure_no_update_rejected().await?;
    Ok(())
}

#[tokio::test]
async fn cve_2026_26308_each_value_of_a_header_counts() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let deny = policy(
        "AuthorizationPolicy",
        "deny",
        "  action: DENY\n  rules:\n  - when: [{key: 'request.headers[x-role]', values: [guest, 'bot-*']}]",
    );
    let (shop, _navarch, gateway) = open(&deny).await?;
    until_status(403, SHOP, "/catalog", &[("x-role", "guest")]).await;

    for roles in [
        ["guest", "admin"],
        ["admin", "guest"],
        ["guest", "guest"],
        ["admin", "bot-7"],
    ] {
        let status = status_of_roles(&roles).await?;
        ensure!(status == 403, "denied: {roles:?}: {status}");
    }
    let status = status_of_roles(&["admin", "editor"]).await?;
    ensure!(status == 200, "others are let in: {status}");

    let allow = policy(
        "AuthorizationPolicy",
        "allow",
        "  rules:\n  - when: [{key: 'request.headers[x-role]', notValues: [guest]}]",
    );
    shop.write("policies.yaml", &allow)?;
    until_status(200, SHOP, "/catalog", &[("x-role", "bot-7")]).await;

    for roles in [["guest", "admin"], ["admin", "guest"], ["guest", "guest"]] {
        let status = status_of_roles(&roles).await?;
        ensure!(status == 403, "not allowed: {roles:?}: {status}");
    }

    gateway.ensure_no_update_rejected().await?;
    Ok(())
}
