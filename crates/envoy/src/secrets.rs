//! Keys, certificates and roots for proxies (SDS over ADS), from Kubernetes Secrets and ConfigMaps.
//!
//! ```text
//! resource name ─▶ reference ─▶ may this proxy read it? ─no─▶ nothing, and a remark
//!                                       │yes
//!                                       ▼
//!                        Secret or ConfigMap ─▶ material ─▶ Envoy's Secret
//! ```
//!
//! Access is decided in every computation, from the verified identity of the stream and never from
//! node metadata, so that no result cached for one proxy can be sent to another. Secrets that a
//! proxy may not read are not read: it cannot find out whether they exist. Agrees with
//! `pilot/pkg/xds/sds.go` and `pilot/pkg/credentials/kube`.

mod private_key;

use std::sync::Arc;

use bytes::Bytes;
use navarch_proto::envoy::config::core::v3::{DataSource, data_source};
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret as EnvoySecret, secret,
};

use super::build::encode;
use super::credentials::reference::{self, Reference, Store};
use super::credentials::{Material, MaterialError, Roots, pem};
use super::gateway;
use navarch_api::kubernetes::{ConfigMap, Secret};
use navarch_api::names::{Namespace, ResourceName};
use navarch_api::object::{NamespacedName, Object};
use navarch_api::settings::SecretReaders;
use navarch_push::cluster_ref::ClusterRef;
use navarch_push::notice::Unavailable;
use navarch_push::view::View;

/// Why a proxy does not get a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Denial {
    /// The stream has no verified identity.
    #[error("only proxies with a verified identity get secrets: connect over TLS and authenticate")]
    Stranger,
    /// It is in another namespace.
    #[error(
        "it is not in the proxy's namespace, {0}; a reference across namespaces needs a Gateway of the Gateway API and a ReferenceGrant"
    )]
    OtherNamespace(Namespace),
    /// No Gateway that the proxy serves may refer to it.
    #[error(
        "no Gateway of the proxy may refer to it; a reference across namespaces needs a ReferenceGrant"
    )]
    Unverified,
    /// The API server does not allow the service account to list secrets.
    #[error("service account {0} is not authorized to list secrets in its namespace")]
    Unauthorised(NamespacedName),
    /// The proxy is in a cluster whose secrets are not read.
    #[error("the proxy is in cluster {0:?}, whose secrets this control plane does not read")]
    OtherCluster(String),
}

/// The secret of a resource name for the view's proxy; `None`, with a remark, if the proxy may not
/// read it or it does not exist.
pub(super) fn resource(name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
    let reference = match Reference::parse(name.as_str()) {
        Ok(reference) => reference,
        Err(error) => {
            view.remark(error.to_string());
            view.fail(Unavailable::Secret, name.as_str());
            return None;
        }
    };

    // Reserved names without a secret; the reason was reported where the name was generated.
    let reference = reference?;
    let key = match admit(&reference, name, view) {
        Ok(key) => key,
        Err(denial) => {
            view.remark(format!("secret {name} is withheld: {denial}"));
            view.fail(Unavailable::Secret, name.as_str());
            return None;
        }
    };

    match build(&reference, &key, name, view) {
        Ok(secret) => Some(encode(&secret)),
        Err(error) => {
            view.remark(format!("secret {name} cannot be served: {key}: {error}"));
            view.fail(Unavailable::Secret, name.as_str());
            None
        }
    }
}

/// The name of the referenced object, if the proxy may read it.
fn admit(
    reference: &Reference,
    name: &ResourceName,
    view: &View<'_>,
) -> Result<NamespacedName, Denial> {
    let proxy = view.proxy();
    let namespace = proxy.verified_namespace().ok_or(Denial::Stranger)?;
    check_cluster(view)?;
    let object = |of: &Namespace| NamespacedName::of(of.clone(), reference.name.clone());

    match &reference.store {
        // The read part of ConfigMaps is public, and clients must be able to read that of their
        // servers.
        Store::ConfigMap(of) => Ok(object(of)),
        Store::GatewaySecret(of) => {
            let verified = gateway::refers_to_secret(view, name.as_str());
            if verified {
                Ok(object(of))
            } else {
                Err(Denial::Unverified)
            }
        }
        Store::Secret(of) => {
            if of.as_ref().is_some_and(|of| *of != namespace) {
                return Err(Denial::OtherNamespace(namespace));
            }
            // Roots are public.
            if !reference.is_roots() {
                check_account(view)?;
            }
            Ok(object(&namespace))
        }
    }
}

/// Whether the proxy is in a cluster whose secrets are read.
fn check_cluster(view: &View<'_>) -> Result<(), Denial> {
    match view.proxy().proxy_cluster() {
        ClusterRef::Config | ClusterRef::Remote(_) => Ok(()),
        ClusterRef::Unknown => Err(Denial::OtherCluster(view.proxy().cluster_id().to_string())),
    }
}

/// Whether the proxy's service account may read secrets.
fn check_account(view: &View<'_>) -> Result<(), Denial> {
    match view.mesh().settings.secret_readers {
        SecretReaders::All => Ok(()),
        SecretReaders::Reviewed => {
            let account = view.proxy().identity().ok_or(Denial::Stranger)?.account();
            if view.may_read_secrets_in(&view.proxy().proxy_cluster(), &account) {
                Ok(())
            } else {
                Err(Denial::Unauthorised(account))
            }
        }
    }
}

/// Builds the secret.
fn build(
    reference: &Reference,
    key: &NamespacedName,
    name: &ResourceName,
    view: &View<'_>,
) -> Result<EnvoySecret, MaterialError> {
    let content = match &reference.store {
        Store::ConfigMap(_) => {
            let key = reference::without_suffix(key);
            let map = view
                .object::<ConfigMap>(&key)
                .ok_or(MaterialError::Missing)?;
            validation(Roots::of_config_map(&map.spec)?, name, view)
        }
        Store::Secret(_) | Store::GatewaySecret(_) if reference.is_roots() => {
            // A Secret whose own name has this suffix takes precedence.
            let without = reference::without_suffix(key);
            let secret =
                first_of(view, reference, [key, &without]).ok_or(MaterialError::Missing)?;
            validation(Roots::of_secret(&secret.spec)?, name, view)
        }
        Store::Secret(_) | Store::GatewaySecret(_) => {
            let secret = first_of(view, reference, [key]).ok_or(MaterialError::Missing)?;
            let material = Material::of_secret(&secret.spec)?;
            if let Err(fault) = pem::check_pair(&material.certificates, &material.key) {
                view.remark(format!(
                    "secret {name} is served but is invalid: {key}: {fault}"
                ));
            }
            secret::Type::TlsCertificate(private_key::certificate(material, view))
        }
    };

    Ok(EnvoySecret {
        name: name.to_string(),
        r#type: Some(content),
    })
}

/// The first existing Secret of these names: in the proxy's own cluster, else in the one that
/// configures the mesh. The Gateway API references only Secrets of the latter: Gateway and grants
/// are there, and conditions are about its Secrets.
fn first_of<const N: usize>(
    view: &View<'_>,
    reference: &Reference,
    names: [&NamespacedName; N],
) -> Option<Arc<Object<Secret>>> {
    let cluster_ref = view.proxy().proxy_cluster();
    let reads_home = cluster_ref != ClusterRef::Config
        && matches!(reference.store, Store::Secret(_))
        && view.mesh().settings.clusters.remote_credentials;
    let homes = reads_home
        .then_some(cluster_ref)
        .into_iter()
        .chain([ClusterRef::Config]);
    homes.into_iter().find_map(|cluster_ref| {
        names
            .into_iter()
            .find_map(|name| view.object_in::<Secret>(&cluster_ref, name).cloned())
    })
}

/// The validation context with roots and revocations.
fn validation(roots: Roots, name: &ResourceName, view: &View<'_>) -> secret::Type {
    if let Err(fault) = pem::check_certificates(&roots.certificates, "the CA certificates") {
        view.remark(format!("secret {name} is served but is invalid: {fault}"));
    }
    if let Some(Err(fault)) = roots.revocations.as_deref().map(pem::check_revocations) {
        view.remark(format!("secret {name} is served but is invalid: {fault}"));
    }

    secret::Type::ValidationContext(CertificateValidationContext {
        trusted_ca: Some(inline(roots.certificates)),
        crl: roots.revocations.map(inline),
        ..CertificateValidationContext::default()
    })
}

fn inline(bytes: Bytes) -> DataSource {
    DataSource {
        specifier: Some(data_source::Specifier::InlineBytes(bytes)),
        ..DataSource::default()
    }
}

#[cfg(test)]
mod tests;
