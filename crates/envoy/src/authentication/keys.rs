//! The source of an issuer's keys in Envoy: sent by the control plane, or fetched by Envoy
//! (`PILOT_JWT_ENABLE_REMOTE_JWKS`).
//!
//! With a user name and password in the address the control plane fetches in any case: Envoy would
//! send them in `Host`, and show them to everybody who may read its configuration.

use navarch_proto::envoy::config::core::v3::data_source::Specifier;
use navarch_proto::envoy::config::core::v3::http_uri::HttpUpstreamType;
use navarch_proto::envoy::config::core::v3::{DataSource, HttpUri};
use navarch_proto::envoy::extensions::filters::http::jwt_authn::v3::RemoteJwks;
use navarch_proto::envoy::extensions::filters::http::jwt_authn::v3::jwt_provider::JwksSourceSpecifier;

use crate::filters::provider;
use crate::names::OutboundCluster;
use navarch_api::duration::Duration;
use navarch_api::istio::JwtRule;
use navarch_api::key_set::KeySet;
use navarch_api::key_source::KeySource;
use navarch_api::names::Hostname;
use navarch_api::settings::KeyFetching;
use navarch_push::view::View;

/// A key set that verifies nothing, since Envoy rejects one without a key.
///
/// Its key is a point on the curve P-256 that was not derived from a private key: its x is the
/// SHA-256 of `navarch: nobody has the key of this point 0` (0 is the first number that results in
/// a point), its y the smaller of the two. A signature for it would require breaking the curve.
const NO_KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","x":"rkhpANiY5T-ItSDbmi2cZrsckltJzu6zllb-88gcORs","y":"DQW0zXEeN8oYJdUnRMhRYnvRDJi7U_EenTfRArpzUp8"}]}"#;

/// Default timeout of fetching.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long Envoy uses keys that it fetched itself.
const CACHED: prost_types::Duration = prost_types::Duration {
    seconds: 300,
    nanos: 0,
};

/// The source of a rule's keys.
pub(super) fn source(view: &View<'_>, rule: &JwtRule) -> JwksSourceSpecifier {
    let fetching = view.mesh().settings.key_fetching;
    let address = Address::of(&rule.jwks_uri);
    let has_credentials = address.as_ref().is_some_and(|at| at.has_credentials);
    if rule.jwks_uri.is_empty() || fetching == KeyFetching::ControlPlane || has_credentials {
        return local(view, rule);
    }

    let known = address
        .as_ref()
        .and_then(|at| provider::cluster(view, "jwks", &at.host, u32::from(at.port)));
    match (known, fetching, address) {
        (Some(known), _, _) => remote(rule, known.cluster),
        (None, KeyFetching::Proxy, Some(at)) => remote(
            rule,
            OutboundCluster::new(at.port, "", &Hostname::new(&at.host)).to_string(),
        ),
        (None, KeyFetching::Hybrid | KeyFetching::ControlPlane | KeyFetching::Proxy, _) => local(
            view,
            &JwtRule {
                jwks: String::new(),
                ..rule.clone()
            },
        ),
    }
}

/// The host of a JWKS URI that Envoy may fetch itself.
pub(super) fn host(uri: &str) -> Option<String> {
    Address::of(uri)
        .filter(|address| !address.has_credentials)
        .map(|address| address.host)
}

/// Keys that are inline in the rule, or were fetched for it.
fn local(view: &View<'_>, rule: &JwtRule) -> JwksSourceSpecifier {
    let fetched = |source: KeySource| view.keys(&source).map(|keys| keys.to_string());
    let keys = match rule.jwks.as_str() {
        "" => rule
            .key_source()
            .and_then(fetched)
            .unwrap_or_else(|| NO_KEYS.to_owned()),
        // Validation says what is wrong with keys in the rule.
        given => KeySet::parse(given).map_or_else(|_| NO_KEYS.to_owned(), |set| set.text),
    };
    JwksSourceSpecifier::LocalJwks(DataSource {
        specifier: Some(Specifier::InlineString(keys)),
        ..DataSource::default()
    })
}

/// Keys that Envoy fetches from a cluster.
fn remote(rule: &JwtRule, cluster: String) -> JwksSourceSpecifier {
    JwksSourceSpecifier::RemoteJwks(RemoteJwks {
        http_uri: Some(HttpUri {
            uri: rule.jwks_uri.clone(),
            timeout: Some(rule.timeout.unwrap_or(DEFAULT_TIMEOUT).to_proto()),
            http_upstream_type: Some(HttpUpstreamType::Cluster(cluster)),
        }),
        cache_duration: Some(CACHED),
        ..RemoteJwks::default()
    })
}

/// Host and port of a URI.
struct Address {
    host: String,
    /// The port; by default that of the scheme.
    port: u16,
    /// Whether the URI has a user name or password.
    has_credentials: bool,
}

impl Address {
    /// Parses a URI; `None` for schemes other than HTTP and HTTPS.
    fn of(uri: &str) -> Option<Self> {
        let (scheme, rest) = uri.split_once("://")?;
        let default = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let authority = rest.split(['/', '?', '#']).next()?;
        let (credentials, server) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (host, port) = match server.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            Some(_) | None => (server, default),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');

        (!host.is_empty()).then(|| Self {
            host: host.to_owned(),
            port,
            has_credentials: !credentials.is_empty(),
        })
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use sha2::{Digest, Sha256};

    use navarch_api::settings::Settings;
    use navarch_proto::envoy::config::listener::v3::Listener;
    use navarch_push::resource::ResourceType;
    use prost::Message as _;

    use super::*;
    use crate::test_mesh::TestMesh;

    /// The inbound listener of a sidecar that fetches the keys of this address itself, if it may.
    fn inbound_listener(jwks_uri: &str) -> String {
        let settings = Settings {
            key_fetching: KeyFetching::Proxy,
            ..Settings::default()
        };
        let policy = format!(
            "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\n\
             metadata: {{name: tokens, namespace: shop}}\n\
             spec: {{jwtRules: [{{issuer: issuer, jwksUri: '{jwks_uri}'}}]}}\n"
        );
        let mut mesh = TestMesh::with_settings(&policy, settings);
        let sidecar = mesh.sidecar("shop", "web");

        let name = "virtualInbound";
        let listeners = mesh.named::<Listener>(sidecar, ResourceType::Listener, &[name]);
        let encoded = listeners[name].encode_to_vec();
        String::from_utf8_lossy(&encoded).into_owned()
    }

    #[test]
    fn keys_with_a_password_in_their_address_are_fetched_by_the_control_plane() {
        let fetched_by_proxy = inbound_listener("https://keys.example/jwks");
        assert!(fetched_by_proxy.contains("https://keys.example/jwks"));
        assert!(!fetched_by_proxy.contains(NO_KEYS));

        // The control plane has not fetched them yet.
        let fetched_by_control_plane = inbound_listener("https://user:secret@keys.example/jwks");
        assert!(fetched_by_control_plane.contains(NO_KEYS));
        assert!(!fetched_by_control_plane.contains("secret"));
    }

    #[test]
    fn the_placeholder_key_is_the_hash_of_its_label() {
        let label = "navarch: nobody has the key of this point 0";
        let x = URL_SAFE_NO_PAD.encode(Sha256::digest(label));
        assert!(NO_KEYS.contains(&format!("\"x\":\"{x}\"")));
    }

    #[test]
    fn cve_2026_31837_placeholder_keys_have_no_private_part() {
        let set: serde_json::Value = serde_json::from_str(NO_KEYS).unwrap();
        let keys = set["keys"].as_array().unwrap();
        assert_eq!(keys.len(), 1);
        let members: Vec<&str> = keys[0]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            members,
            ["alg", "crv", "kty", "x", "y"],
            "a point, and nothing to sign with"
        );
    }

    #[test]
    fn addresses_have_a_port() {
        let parts = |uri: &str| Address::of(uri).map(|at| (at.host, at.port));
        assert_eq!(
            parts("https://keys.example/a?b"),
            Some(("keys.example".to_owned(), 443))
        );
        assert_eq!(
            parts("http://u:p@keys.example:8080"),
            Some(("keys.example".to_owned(), 8080))
        );
        assert_eq!(parts("http://[::1]/x"), Some(("::1".to_owned(), 80)));
        assert_eq!(parts("ftp://keys.example"), None);
        assert_eq!(parts("http:///x"), None);
    }
}
