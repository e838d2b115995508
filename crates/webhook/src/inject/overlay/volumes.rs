//! Volumes of injected pods, and their mounts in proxy containers.

use k8s_openapi::api::core::v1::{
    CSIVolumeSource, ClusterTrustBundleProjection, ConfigMapVolumeSource, DownwardAPIVolumeFile,
    DownwardAPIVolumeSource, EmptyDirVolumeSource, ObjectFieldSelector, ProjectedVolumeSource,
    SecretVolumeSource, ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::context::Context;
use super::super::error::InjectError;

/// The annotation with the ConfigMap of the user's bootstrap file.
pub(super) const BOOTSTRAP_OVERRIDE: &str = "sidecar.istio.io/bootstrapOverride";

/// The annotation with the user's volumes, as JSON by name.
pub(super) const USER_VOLUME: &str = "sidecar.istio.io/userVolume";

/// The annotation with the user's volume mounts, as JSON by name.
pub(super) const USER_VOLUME_MOUNT: &str = "sidecar.istio.io/userVolumeMount";

/// The CA whose certificates a CSI driver mounts.
const GKE_CA: &str = "GkeWorkloadCertificate";

/// The lifetime of a service account token, in seconds.
const TOKEN_SECONDS: i64 = 43200;

/// A volume without a source.
pub(super) fn unsourced(name: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        ..Volume::default()
    }
}

/// An `emptyDir` volume.
pub(super) fn empty(name: &str) -> Volume {
    Volume {
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..unsourced(name)
    }
}

pub(super) fn memory(name: &str) -> Volume {
    let source = EmptyDirVolumeSource {
        medium: Some("Memory".to_owned()),
        size_limit: None,
    };
    Volume {
        empty_dir: Some(source),
        ..unsourced(name)
    }
}

fn config_map(name: &str, config_map: &str, optional: Option<bool>) -> Volume {
    let source = ConfigMapVolumeSource {
        name: config_map.to_owned(),
        optional,
        ..ConfigMapVolumeSource::default()
    };
    Volume {
        config_map: Some(source),
        ..unsourced(name)
    }
}

/// A volume from an optional secret.
fn secret(name: &str, secret: String) -> Volume {
    let source = SecretVolumeSource {
        optional: Some(true),
        secret_name: Some(secret),
        ..SecretVolumeSource::default()
    };
    Volume {
        secret: Some(source),
        ..unsourced(name)
    }
}

pub(super) fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    }
}

fn read_only(name: &str, path: &str) -> VolumeMount {
    VolumeMount {
        read_only: Some(true),
        ..mount(name, path)
    }
}

/// The mounts of every proxy, in the order of the chart's templates; the CRL requires the control
/// plane's own CA.
pub(super) fn mounts_of_proxy(
    context: &Context<'_>,
    revoked: Option<VolumeMount>,
) -> Vec<VolumeMount> {
    let mut mounts = vec![
        mount("workload-socket", "/var/run/secrets/workload-spiffe-uds"),
        mount("credential-socket", "/var/run/secrets/credential-uds"),
        certificates_mount(context),
    ];
    if trusts_own_ca(context) {
        mounts.push(mount("istiod-ca-cert", "/var/run/secrets/istio"));
        mounts.extend(revoked);
    }
    mounts.push(mount("istio-data", "/var/lib/istio/data"));
    mounts.extend(bootstrap_mount(context));
    mounts.push(mount("istio-envoy", "/etc/istio/proxy"));
    mounts.push(mount("istio-token", "/var/run/secrets/tokens"));
    mounts.extend(mtls_certificates_mount(context));
    mounts.push(mount("istio-podinfo", "/etc/istio/pod"));
    mounts
}

/// Whether a CSI driver mounts the certificates.
pub(super) fn has_gke_certificates(context: &Context<'_>) -> bool {
    context.values.global.ca_name.as_str() == GKE_CA
}

/// The volume of the pod's certificates, `plain` without a CSI driver.
pub(super) fn certificates(context: &Context<'_>, plain: Volume) -> Volume {
    if !has_gke_certificates(context) {
        return plain;
    }
    let driver = "workloadcertificates.security.cloud.google.com".to_owned();
    let source = CSIVolumeSource {
        driver,
        ..CSIVolumeSource::default()
    };
    Volume {
        csi: Some(source),
        ..unsourced("gke-workload-certificate")
    }
}

/// The mount of the pod's certificates.
pub(super) fn certificates_mount(context: &Context<'_>) -> VolumeMount {
    let path = "/var/run/secrets/workload-spiffe-credentials";
    if has_gke_certificates(context) {
        read_only("gke-workload-certificate", path)
    } else {
        mount("workload-certs", path)
    }
}

/// The volume of the user's bootstrap file.
pub(super) fn bootstrap(context: &Context<'_>) -> Option<Volume> {
    let name = context.annotation(BOOTSTRAP_OVERRIDE)?;
    Some(config_map("custom-bootstrap-volume", name, None))
}

pub(super) fn bootstrap_mount(context: &Context<'_>) -> Option<VolumeMount> {
    context.annotation(BOOTSTRAP_OVERRIDE)?;
    Some(mount(
        "custom-bootstrap-volume",
        "/etc/istio/custom-bootstrap",
    ))
}

/// The volumes of every agent: its data, the downward API, and the service account token.
pub(super) fn agent(context: &Context<'_>) -> [Volume; 3] {
    let file = |name: &str| DownwardAPIVolumeFile {
        path: name.to_owned(),
        field_ref: Some(ObjectFieldSelector {
            api_version: None,
            field_path: format!("metadata.{name}"),
        }),
        ..DownwardAPIVolumeFile::default()
    };

    let items = Some(vec![file("labels"), file("annotations")]);
    let podinfo = DownwardAPIVolumeSource {
        default_mode: None,
        items,
    };
    let token = ServiceAccountTokenProjection {
        audience: Some(context.values.global.sds.token.aud.to_string()),
        expiration_seconds: Some(TOKEN_SECONDS),
        path: "istio-token".to_owned(),
    };
    let token = VolumeProjection {
        service_account_token: Some(token),
        ..VolumeProjection::default()
    };

    [
        empty("istio-data"),
        Volume {
            downward_api: Some(podinfo),
            ..unsourced("istio-podinfo")
        },
        Volume {
            projected: Some(projected(token)),
            ..unsourced("istio-token")
        },
    ]
}

/// A projected source with a single projection.
fn projected(source: VolumeProjection) -> ProjectedVolumeSource {
    ProjectedVolumeSource {
        default_mode: None,
        sources: Some(vec![source]),
    }
}

/// Whether certificates are verified with the control plane's own CA.
pub(super) fn trusts_own_ca(context: &Context<'_>) -> bool {
    context.values.global.pilot_cert_provider.as_str() == "istiod"
}

/// The volume of the control plane's root certificates.
pub(super) fn roots(context: &Context<'_>) -> Option<Volume> {
    if !trusts_own_ca(context) {
        return None;
    }

    let name = &context.values.global.trust_bundle_name;

    if !context.values.pilot.uses_trust_bundles() {
        return Some(config_map(
            "istiod-ca-cert",
            name.or("istio-ca-root-cert"),
            None,
        ));
    }

    let bundle = ClusterTrustBundleProjection {
        name: Some(format!("istio.io:istiod-ca:{}", name.or("root-cert"))),
        path: "root-cert.pem".to_owned(),
        ..ClusterTrustBundleProjection::default()
    };
    let source = VolumeProjection {
        cluster_trust_bundle: Some(bundle),
        ..VolumeProjection::default()
    };

    Some(Volume {
        projected: Some(projected(source)),
        ..unsourced("istiod-ca-cert")
    })
}

/// The volume of the certificate revocation list.
pub(super) fn revoked(context: &Context<'_>) -> Volume {
    let name = &context.values.pilot.crl_config_map_name;
    config_map("istio-ca-crl", name.or("istio-ca-crl"), Some(true))
}

/// The volume of certificates from the service account's secret.
pub(super) fn mtls_certificates(context: &Context<'_>) -> Option<Volume> {
    let account = match context.service_account() {
        "" => "default",
        account => account,
    };
    context
        .values
        .global
        .mount_mtls_certs
        .then(|| secret("istio-certs", format!("istio.{account}")))
}

/// The mount of certificates from the service account's secret.
pub(super) fn mtls_certificates_mount(context: &Context<'_>) -> Option<VolumeMount> {
    context
        .values
        .global
        .mount_mtls_certs
        .then(|| read_only("istio-certs", "/etc/certs/"))
}

/// The directory of the CA certificates that verify Lightstep's collector.
fn lightstep_folder<'a>(context: &Context<'a>) -> Option<&'a str> {
    if context.values.global.proxy.tracer.as_str() != "lightstep" {
        return None;
    }
    let tls = context
        .proxy_config()
        .tracing
        .as_ref()?
        .tls_settings
        .as_ref()?;
    let file = tls.ca_certificates.as_str();
    file.get(..file.rfind('/').map_or(0, |slash| slash + 1))
}

pub(super) fn lightstep(context: &Context<'_>) -> Option<Volume> {
    lightstep_folder(context).map(|_| secret("lightstep-certs", "lightstep.cacert".to_owned()))
}

pub(super) fn lightstep_mount(context: &Context<'_>) -> Option<VolumeMount> {
    lightstep_folder(context).map(|folder| read_only("lightstep-certs", folder))
}

/// The user's volumes.
///
/// # Errors
/// When the annotation is not a JSON object of volumes.
pub(super) fn of_user(context: &Context<'_>) -> Result<Vec<Volume>, InjectError> {
    typed_entries(context, USER_VOLUME)
}

/// The user's volume mounts.
///
/// # Errors
/// When the annotation is not a JSON object of mounts.
pub(super) fn mounts_of_user(context: &Context<'_>) -> Result<Vec<VolumeMount>, InjectError> {
    typed_entries(context, USER_VOLUME_MOUNT)
}

/// The entries of a JSON annotation, each with its key as name unless the entry has a name. Typed
/// decoding drops unknown fields.
fn typed_entries<T: DeserializeOwned>(
    context: &Context<'_>,
    annotation: &str,
) -> Result<Vec<T>, InjectError> {
    let entries = json_entries(context, annotation)?.into_iter();
    let typed = entries.map(|(name, mut value)| {
        if let Value::Object(fields) = &mut value {
            fields.entry("name").or_insert(Value::String(name));
        }
        serde_json::from_value(value)
            .map_err(|error| bad_json(context, annotation, &error.to_string()))
    });
    typed.collect()
}

/// The entries of an annotation that contains a JSON object or list; empty if the annotation is
/// absent.
///
/// # Errors
/// When the annotation contains anything else.
pub(super) fn json_entries(
    context: &Context<'_>,
    annotation: &str,
) -> Result<Vec<(String, Value)>, InjectError> {
    let Some(text) = context.annotation(annotation) else {
        return Ok(Vec::new());
    };

    match serde_json::from_str(text) {
        Ok(Value::Null) => Ok(Vec::new()),
        Ok(Value::Object(fields)) => Ok(fields.into_iter().collect()),
        Ok(Value::Array(items)) => Ok(items
            .into_iter()
            .enumerate()
            .map(|(at, item)| (at.to_string(), item))
            .collect()),
        Ok(Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            Err(bad_json(context, annotation, "it is not a JSON object"))
        }
        Err(error) => Err(bad_json(
            context,
            annotation,
            &format!("it is not JSON: {error}"),
        )),
    }
}

/// The error for an annotation with invalid JSON.
fn bad_json(context: &Context<'_>, annotation: &str, reason: &str) -> InjectError {
    let value = context
        .annotation(annotation)
        .unwrap_or_default()
        .chars()
        .take(120)
        .collect();
    InjectError::Annotation {
        name: annotation.to_owned(),
        value,
        reason: reason.to_owned(),
    }
}
