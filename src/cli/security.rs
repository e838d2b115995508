//! Istio's environment variables for identities and certificates.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;

use super::{environment, signers};
use crate::server::SecurityConfig;
use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;
use navarch_pki::KeyType;
use navarch_security::authenticate::{JwtRule, TrustedNetworks};

/// Reads the settings. `variable` returns the value of a variable; unset and empty variables have
/// the default.
///
/// # Errors
/// At the first variable with an invalid value.
pub(super) fn config(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<SecurityConfig> {
    let text = |name: &str| variable(name).filter(|value| !value.is_empty());
    let duration = |name: &str, default: Duration| {
        let set = environment::duration(text, name);
        set.map(|set| set.unwrap_or(default))
    };

    let mut config = SecurityConfig::default();
    if let Some(folder) = text("ROOT_CA_DIR") {
        config.plugged_in = PathBuf::from(folder);
    }

    if let Some(key_type) = text("NAVARCH_CA_KEY_TYPE") {
        config.key_type = key_type
            .parse()
            .map_err(anyhow::Error::msg)
            .context("NAVARCH_CA_KEY_TYPE")?;
    }

    config.root_lifetime = duration("CITADEL_SELF_SIGNED_CA_CERT_TTL", config.root_lifetime)?;
    config.root_check = duration(
        "CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL",
        config.root_check,
    )?;
    config.overlap = duration("NAVARCH_ROOT_OVERLAP", config.overlap)?;

    let percentile = "CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE";
    let percent = environment::parsed(text, percentile, "percentage", |percent| {
        percent
            .parse()
            .ok()
            .filter(|percent: &u32| (1..100).contains(percent))
    })?;
    if let Some(percent) = percent {
        config.root_grace = percent;
    }

    config.lifetimes.default = duration("DEFAULT_WORKLOAD_CERT_TTL", config.lifetimes.default)?;
    config.lifetimes.max = duration("MAX_WORKLOAD_CERT_TTL", config.lifetimes.max)?;
    config.trusted_nodes = trusted_nodes(&text("CA_TRUSTED_NODE_ACCOUNTS").unwrap_or_default())?;
    if let Some(rule) = text("JWT_RULE") {
        config.jwt_rule = Some(serde_json::from_str::<JwtRule>(&rule).context("JWT_RULE")?);
    }

    if let Some(audiences) = text("TOKEN_AUDIENCES") {
        config.audiences = audiences
            .split(',')
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
            .collect();
    }

    let trusted = text("TRUSTED_GATEWAY_CIDR").unwrap_or_default();
    config.trusted_gateways = TrustedNetworks::parse(&trusted).map_err(|part| {
        anyhow::anyhow!("TRUSTED_GATEWAY_CIDR: {part:?} is not a CIDR such as 10.0.0.0/8")
    })?;
    let namespaces = text("DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES").unwrap_or_default();
    let namespaces = namespaces
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    config.debug_namespaces = namespaces.map(Namespace::new).collect();

    config.custom_hosts = text("ISTIOD_CUSTOM_HOST").unwrap_or_default();
    config.revision = text("REVISION").unwrap_or_default();

    let flag = |name: &str, default: bool| environment::flag(text, name, default);
    config.signs = flag("ENABLE_CA_SERVER", true)?;
    if config.signs {
        config.signers = signers::config(&text)?;
    }

    let types = text("NAVARCH_WORKLOAD_KEY_TYPES").unwrap_or_default();
    config.key_types = key_types(&types).context("NAVARCH_WORKLOAD_KEY_TYPES")?;

    config.server_signer = server_signer(text("PILOT_CERT_PROVIDER").as_deref())?;
    config.streams.auth = flag("XDS_AUTH", true)?;
    config.streams.plain_auth = flag("XDS_AUTH_PLAINTEXT", false)?;

    config.streams.checks_identity = flag("PILOT_ENABLE_XDS_IDENTITY_CHECK", true)?;
    config.debug_by_namespace = flag("ENABLE_DEBUG_ENDPOINT_AUTH", true)?;
    config.plugged_in_secret = flag("USE_REMOTE_CERTS", false)?;
    config.publishes_revocations = flag("PILOT_ENABLE_CA_CRL", true)?;

    Ok(config)
}

/// `NAVARCH_WORKLOAD_KEY_TYPES`: comma-separated types of keys.
fn key_types(text: &str) -> anyhow::Result<BTreeSet<KeyType>> {
    let parts = text.split(',').map(str::trim);
    parts
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().map_err(anyhow::Error::msg))
        .collect()
}

/// `PILOT_CERT_PROVIDER`: its Kubernetes signer, if it has one.
fn server_signer(provider: Option<&str>) -> anyhow::Result<Option<String>> {
    match provider {
        None | Some("istiod") => Ok(None),
        Some("kubernetes") => anyhow::bail!(
            "PILOT_CERT_PROVIDER=kubernetes: Kubernetes no longer signs such certificates; use k8s.io/<signer>"
        ),
        Some(provider) => {
            let signer = provider.strip_prefix("k8s.io/");
            if signer.is_none() {
                tracing::warn!(
                    provider,
                    "unknown PILOT_CERT_PROVIDER; istiod's CA signs the server certificate"
                );
            }
            Ok(signer.map(str::to_owned))
        }
    }
}

/// The accounts of `CA_TRUSTED_NODE_ACCOUNTS`: comma-separated `namespace/name` pairs.
///
/// # Errors
/// If one is no such pair.
pub(super) fn trusted_nodes(text: &str) -> anyhow::Result<BTreeSet<NamespacedName>> {
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let read = |part: &str| {
        let (namespace, name) = part.split_once('/').with_context(|| {
            format!("CA_TRUSTED_NODE_ACCOUNTS: {part:?} is not namespace/service-account")
        })?;
        Ok(NamespacedName::new(namespace, name))
    };
    parts.map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signer_of_kubernetes_is_named_by_the_provider() {
        assert_eq!(
            server_signer(Some("k8s.io/clusterissuers.example/mesh"))
                .unwrap()
                .unwrap(),
            "clusterissuers.example/mesh"
        );
        for own in [None, Some("istiod"), Some("none"), Some("custom")] {
            assert_eq!(server_signer(own).unwrap(), None);
        }
        assert!(server_signer(Some("kubernetes")).is_err());
    }
}
