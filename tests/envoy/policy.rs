//! Policies at a real gateway: allowed clients, accepted tokens, external authorizers.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Result, ensure};
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use navarch_testkit::bookshop::{self, Bookshop, GATEWAY};
use navarch_testkit::client;
use navarch_testkit::envoy::{AdsProtocol, Envoy};
use navarch_testkit::navarch::Navarch;
use navarch_testkit::wait::{until_some, wanted};
use serde_json::{Value, json};

use super::ONE_AT_A_TIME;
use super::past::is_not_served;

/// The host of the shop.
pub(crate) const SHOP: &str = "shop.example.com";

/// The external authorizer of CUSTOM policies.
const JUDGE: SocketAddr = SocketAddr::new(
    std::net::IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 10, 61)),
    8061,
);

/// The sample mesh with a file of policies, and a gateway.
pub(crate) async fn open(policies: &str) -> Result<(Bookshop, Navarch, Envoy)> {
    open_with(policies, "").await
}

/// The same, with more lines of mesh config.
pub(crate) async fn open_with(policies: &str, config: &str) -> Result<(Bookshop, Navarch, Envoy)> {
    let shop = Bookshop::open(Path::new(env!("CARGO_MANIFEST_DIR"))).await?;
    shop.write("policies.yaml", policies)?;
    let mesh = format!(
        "{}\nextensionProviders:\n- name: judge\n  envoyExtAuthzHttp:\n    service: judge.example.com\n    port: 8061\n    \
         timeout: 2s\n    includeRequestHeadersInCheck: [x-name]\n    headersToUpstreamOnAllow: [x-judged]\n{config}",
        std::fs::read_to_string(shop.file(".mesh"))?
    );
    std::fs::write(shop.file(".mesh"), mesh)?;

    let navarch = Navarch::start(
        Path::new(env!("CARGO_BIN_EXE_navarch")),
        shop.folder(),
        &shop.flags(),
    )
    .await?;
    let mut gateway = bookshop::gateway(navarch.xds, AdsProtocol::Delta).await?;
    gateway.wait_ready().await?;

    gateway.ensure_no_update_rejected().await?;

    Ok((shop, navarch, gateway))
}

/// A policy of a kind that selects the gateway.
pub(crate) fn policy(kind: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: security.istio.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: istio-system}}\n\
         spec:\n  selector: {{matchLabels: {{istio: ingressgateway}}}}\n{spec}\n---\n"
    )
}

/// Repeats a request until it has the wanted status, and returns the response's body.
pub(crate) async fn until_status(
    status: u16,
    host: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> String {
    let what = format!("{host}{path} {headers:?} is answered with {status}");
    let reply = until_some(&what, async || {
        let reply = client::get(GATEWAY, host, path, headers).await;
        wanted(reply, |reply| {
            reply
                .as_ref()
                .is_ok_and(|reply| reply.status.as_u16() == status)
        })
    });
    reply.await.expect("the wanted response exists").body
}

/// A token issuer: its private key, and the key set for validation.
pub(crate) struct Issuer {
    /// The private key.
    key: EncodingKey,
    /// The set of keys.
    pub(crate) jwks: String,
}

impl Issuer {
    /// Creates a new key on the curve P-256.
    pub(crate) fn new() -> Result<Self> {
        let pair = rcgen::KeyPair::generate()?;
        let key = EncodingKey::from_ec_der(&pair.serialize_der());
        let point = pair.public_key_raw();
        let part = |from: usize| URL_SAFE_NO_PAD.encode(&point[from..from + 32]);
        let jwk = json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "kid": "k", "x": part(1), "y": part(33)});
        Ok(Self {
            key,
            jwks: json!({"keys": [jwk]}).to_string(),
        })
    }

    /// A token with these claims.
    pub(crate) fn token(&self, claims: &Value) -> Result<String> {
        let header = Header {
            kid: Some("k".to_owned()),
            ..Header::new(Algorithm::ES256)
        };
        Ok(format!(
            "Bearer {}",
            jsonwebtoken::encode(&header, claims, &self.key)?
        ))
    }
}

/// Claims that are valid for an hour.
pub(crate) fn claims(issuer: &str, group: &str) -> Value {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    json!({"iss": issuer, "sub": "ada", "exp": now + 3600, "group": group})
}

#[tokio::test]
async fn authorization_policies_allow_and_deny() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let deny = policy(
        "AuthorizationPolicy",
        "deny",
        "  action: DENY\n  rules:\n  - to: [{operation: {paths: [/reviews*], hosts: [SHOP.example.com, 'shop.example.com:*']}}]",
    );
    let (shop, _navarch, gateway) = open(&deny).await?;
    until_status(403, SHOP, "/reviews", &[]).await;

    until_status(200, SHOP, "/catalog", &[]).await;

    // CVE-2021-39155 and -39156: case, ports and fragments must not bypass the policy.
    for host in ["Shop.Example.COM", "shop.example.com:18080"] {
        let reply = client::get(GATEWAY, host, "/reviews", &[]).await;
        let denied = reply
            .as_ref()
            .map_or(true, |reply| reply.status.is_client_error());
        ensure!(denied, "{host}: {reply:?}");
    }
    is_not_served("/reviews#x").await?;

    let allow = policy(
        "AuthorizationPolicy",
        "allow",
        "  rules:\n  - to: [{operation: {paths: ['/catalog/{*}/page'], methods: [GET]}}]",
    );
    shop.write("policies.yaml", &allow)?;
    until_status(403, SHOP, "/catalog", &[]).await;
    until_status(200, SHOP, "/catalog/7/page", &[]).await;

    until_status(403, SHOP, "/catalog/7/8/page", &[]).await;
    shop.write("policies.yaml", "")?;
    until_status(200, SHOP, "/catalog", &[]).await;
    gateway.ensure_no_update_rejected().await?;

    Ok(())
}

#[tokio::test]
async fn tokens_are_required_and_their_claims_choose_routes() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let issuer = Issuer::new()?;
    let stranger = Issuer::new()?;
    let believed = policy(
        "RequestAuthentication",
        "tokens",
        &format!(
            "  jwtRules:\n  - issuer: https://issuer.example\n    jwks: '{}'\n  - issuer: https://lost.example\n    \
             jwksUri: http://127.0.0.1:1/keys",
            issuer.jwks
        ),
    );

    let required = policy(
        "AuthorizationPolicy",
        "required",
        "  rules:\n  - from: [{source: {requestPrincipals: ['*']}}]",
    );
    let (shop, _navarch, gateway) = open(&format!("{believed}{required}")).await?;
    let ada = issuer.token(&claims("https://issuer.example", "readers"))?;
    until_status(403, SHOP, "/catalog", &[]).await;

    until_status(200, SHOP, "/catalog", &[("authorization", &ada)]).await;
    let forged = stranger.token(&claims("https://issuer.example", "readers"))?;
    until_status(401, SHOP, "/catalog", &[("authorization", &forged)]).await;

    // CVE-2026-31837: if the keys cannot be fetched, no token is accepted.
    let lost = issuer.token(&claims("https://lost.example", "readers"))?;
    until_status(401, SHOP, "/catalog", &[("authorization", &lost)]).await;

    // CVE-2022-23635: a token whose payload is `null` is rejected, without a crash.
    let null = issuer.token(&Value::Null)?;
    until_status(401, SHOP, "/catalog", &[("authorization", &null)]).await;
    until_status(200, SHOP, "/catalog", &[("authorization", &ada)]).await;
    shop.edit(
        "gateway.yaml",
        "    - name: catalog\n",
        "    - name: readers\n      match:\n        - headers: {'@request.auth.claims.group': {exact: readers}}\n          uri: \
         {prefix: /claims}\n      route:\n        - destination:\n            host: reviews\n            subset: v2\n    - \
         name: catalog\n",
    )?;

    let other = issuer.token(&claims("https://issuer.example", "writers"))?;
    until_some("the claim selects the route", async || {
        wanted(
            until_status(200, SHOP, "/claims", &[("authorization", &ada)]).await,
            |body| body == "reviews v2",
        )
    })
    .await;
    let writers = until_status(200, SHOP, "/claims", &[("authorization", &other)]).await;
    ensure!(writers == "storefront", "{writers}");
    gateway.ensure_no_update_rejected().await?;

    Ok(())
}

#[tokio::test]
async fn an_extension_provider_decides() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let listener = tokio::net::TcpListener::bind(JUDGE).await?;
    let app = Router::new().fallback(|request: Request| async move {
        let name = request
            .headers()
            .get("x-name")
            .and_then(|name| name.to_str().ok());
        if name == Some("ada") {
            StatusCode::OK
        } else {
            StatusCode::UNAUTHORIZED
        }
    });

    let judge = tokio::spawn(async move { drop(axum::serve(listener, app).await) });
    let custom = policy(
        "AuthorizationPolicy",
        "custom",
        "  action: CUSTOM\n  provider: {name: judge}\n  rules:\n  - to: [{operation: {paths: [/catalog*]}}]",
    );
    let entry = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: judge, namespace: bookshop}\n\
                 spec:\n  hosts: [judge.example.com]\n  location: MESH_EXTERNAL\n  resolution: STATIC\n  \
                 ports: [{number: 8061, name: http, protocol: HTTP}]\n  endpoints: [{address: 127.0.10.61}]\n---\n";
    let (shop, _navarch, gateway) = open(&format!("{entry}{custom}")).await?;

    until_status(401, SHOP, "/catalog", &[("x-name", "eve")]).await;
    until_status(200, SHOP, "/catalog", &[("x-name", "ada")]).await;
    until_status(200, SHOP, "/", &[("x-name", "eve")]).await;
    judge.abort();
    until_status(403, SHOP, "/catalog", &[("x-name", "ada")]).await;

    // A provider that is not declared denies all requests that the rules match.
    shop.edit(
        "policies.yaml",
        "name: judge}\n  rules",
        "name: nobody}\n  rules",
    )?;
    until_status(403, SHOP, "/catalog", &[("x-name", "ada")]).await;
    until_status(200, SHOP, "/", &[]).await;

    gateway.ensure_no_update_rejected().await?;

    Ok(())
}
