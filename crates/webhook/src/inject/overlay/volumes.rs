//! Volumes of injected pods, and where proxies mount them.

use k8s_openapi::api::core::v1::{
    CSIVolumeSource, ClusterTrustBundleProjection, ConfigMapVolumeSource, DownwardAPIVolumeFile,
    DownwardAPIVolumeSource, EmptyDirVolumeSource, ObjectFieldSelector, ProjectedVolumeSource, SecretVolumeSource,
    ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::context::Context;
use super::super::error::InjectError;

/// The ConfigMap with a bootstrap file of the user's.
pub(super) const BOOTSTRAP_OVERRIDE: &str = "sidecar.istio.io/bootstrapOverride";

/// The user's own volumes, JSON by name.
pub(super) const USER_VOLUME: &str = "sidecar.istio.io/userVolume";

/// The user's own mounts, JSON by name.
pub(super) const USER_VOLUME_MOUNT: &str = "sidecar.istio.io/userVolumeMount";

/// The CA whose certificates a driver mounts.
const GKE_CA: &str = "GkeWorkloadCertificate";

/// How long a token holds, in seconds.
const TOKEN_SECONDS: i64 = 43200;

/// A volume without a source of its own.
pub(super) fn unsourced(name: &str) -> Volume {
    Volume { name: name.to_owned(), ..Volume::default() }
}

/// A volume that begins empty.
pub(super) fn empty(name: &str) -> Volume {
    Volume { empty_dir: Some(EmptyDirVolumeSource::default()), ..unsourced(name) }
}

pub(super) fn memory(name: &str) -> Volume {
    let source = EmptyDirVolumeSource { medium: Some("Memory".to_owned()), size_limit: None };
    Volume { empty_dir: Some(source), ..unsourced(name) }
}

/// A volume from a ConfigMap.
fn config_map(name: &str, config_map: &str, optional: Option<bool>) -> Volume {
    let source = ConfigMapVolumeSource { name: config_map.to_owned(), optional, ..ConfigMapVolumeSource::default() };
    Volume { config_map: Some(source), ..unsourced(name) }
}

/// A volume from a secret that need not be there.
fn secret(name: &str, secret: String) -> Volume {
    let source =
        SecretVolumeSource { optional: Some(true), secret_name: Some(secret), ..SecretVolumeSource::default() };
    Volume { secret: Some(source), ..unsourced(name) }
}

pub(super) fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() }
}

/// A mount that cannot be written to.
fn read_only(name: &str, path: &str) -> VolumeMount {
    VolumeMount { read_only: Some(true), ..mount(name, path) }
}

/// What every proxy mounts, in the order of the chart's templates; revoked certificates are seen where our CA is trusted.
pub(super) fn mounts_of_proxy(context: &Context<'_>, revoked: Option<VolumeMount>) -> Vec<VolumeMount> {
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

/// Whether certificates come by a driver.
pub(super) fn has_gke_certificates(context: &Context<'_>) -> bool {
    context.values.global.ca_name.as_str() == GKE_CA
}

/// The volume of the pod's certificates, `plain` where no driver brings them.
pub(super) fn certificates(context: &Context<'_>, plain: Volume) -> Volume {
    if !has_gke_certificates(context) {
        return plain;
    }
    let driver = "workloadcertificates.security.cloud.google.com".to_owned();
    let source = CSIVolumeSource { driver, ..CSIVolumeSource::default() };
    Volume { csi: Some(source), ..unsourced("gke-workload-certificate") }
}

/// Where they are mounted.
pub(super) fn certificates_mount(context: &Context<'_>) -> VolumeMount {
    let path = "/var/run/secrets/workload-spiffe-credentials";
    if has_gke_certificates(context) {
        read_only("gke-workload-certificate", path)
    } else {
        mount("workload-certs", path)
    }
}

/// The volume of a bootstrap file of the user's.
pub(super) fn bootstrap(context: &Context<'_>) -> Option<Volume> {
    let name = context.annotation(BOOTSTRAP_OVERRIDE)?;
    Some(config_map("custom-bootstrap-volume", name, None))
}

pub(super) fn bootstrap_mount(context: &Context<'_>) -> Option<VolumeMount> {
    context.annotation(BOOTSTRAP_OVERRIDE)?;
    Some(mount("custom-bootstrap-volume", "/etc/istio/custom-bootstrap"))
}

/// Volumes that every agent needs: its data, what the pod is, and the token that proves it.
pub(super) fn agent(context: &Context<'_>) -> [Volume; 3] {
    let file = |name: &str| DownwardAPIVolumeFile {
        path: name.to_owned(),
        field_ref: Some(ObjectFieldSelector { api_version: None, field_path: format!("metadata.{name}") }),
        ..DownwardAPIVolumeFile::default()
    };
    let items = Some(vec![file("labels"), file("annotations")]);
    let podinfo = DownwardAPIVolumeSource { default_mode: None, items };
    let token = ServiceAccountTokenProjection {
        audience: Some(context.values.global.sds.token.aud.to_string()),
        expiration_seconds: Some(TOKEN_SECONDS),
        path: "istio-token".to_owned(),
    };
    let token = VolumeProjection { service_account_token: Some(token), ..VolumeProjection::default() };
    [
        empty("istio-data"),
        Volume { downward_api: Some(podinfo), ..unsourced("istio-podinfo") },
        Volume { projected: Some(projected(token)), ..unsourced("istio-token") },
    ]
}

/// A source that projects one thing.
fn projected(source: VolumeProjection) -> ProjectedVolumeSource {
    ProjectedVolumeSource { default_mode: None, sources: Some(vec![source]) }
}

/// Whether the control plane's own CA is trusted.
pub(super) fn trusts_own_ca(context: &Context<'_>) -> bool {
    context.values.global.pilot_cert_provider.as_str() == "istiod"
}

/// The volume of the control plane's roots.
pub(super) fn roots(context: &Context<'_>) -> Option<Volume> {
    if !trusts_own_ca(context) {
        return None;
    }
    let name = &context.values.global.trust_bundle_name;
    if !context.values.pilot.uses_trust_bundles() {
        return Some(config_map("istiod-ca-cert", name.or("istio-ca-root-cert"), None));
    }
    let bundle = ClusterTrustBundleProjection {
        name: Some(format!("istio.io:istiod-ca:{}", name.or("root-cert"))),
        path: "root-cert.pem".to_owned(),
        ..ClusterTrustBundleProjection::default()
    };
    let source = VolumeProjection { cluster_trust_bundle: Some(bundle), ..VolumeProjection::default() };
    Some(Volume { projected: Some(projected(source)), ..unsourced("istiod-ca-cert") })
}

/// The volume of revoked certificates.
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
    context.values.global.mount_mtls_certs.then(|| secret("istio-certs", format!("istio.{account}")))
}

/// Where they are mounted.
pub(super) fn mtls_certificates_mount(context: &Context<'_>) -> Option<VolumeMount> {
    context.values.global.mount_mtls_certs.then(|| read_only("istio-certs", "/etc/certs/"))
}

/// The folder of the roots that Lightstep's collector is checked against.
fn lightstep_folder<'a>(context: &Context<'a>) -> Option<&'a str> {
    if context.values.global.proxy.tracer.as_str() != "lightstep" {
        return None;
    }
    let tls = context.proxy_config().tracing.as_ref()?.tls_settings.as_ref()?;
    let file = tls.ca_certificates.as_str();
    file.get(..file.rfind('/').map_or(0, |slash| slash + 1))
}

pub(super) fn lightstep(context: &Context<'_>) -> Option<Volume> {
    lightstep_folder(context).map(|_| secret("lightstep-certs", "lightstep.cacert".to_owned()))
}

pub(super) fn lightstep_mount(context: &Context<'_>) -> Option<VolumeMount> {
    lightstep_folder(context).map(|folder| read_only("lightstep-certs", folder))
}

/// The user's own volumes.
///
/// # Errors
/// When the annotation holds no JSON object of volumes.
pub(super) fn of_user(context: &Context<'_>) -> Result<Vec<Volume>, InjectError> {
    typed_entries(context, USER_VOLUME)
}

/// The user's own mounts.
///
/// # Errors
/// When the annotation holds no JSON object of mounts.
pub(super) fn mounts_of_user(context: &Context<'_>) -> Result<Vec<VolumeMount>, InjectError> {
    typed_entries(context, USER_VOLUME_MOUNT)
}

/// The entries of an annotation that holds JSON, each with its key as name unless it has one of its own. Reading them as
/// their type leaves out whatever else they hold.
fn typed_entries<T: DeserializeOwned>(context: &Context<'_>, annotation: &str) -> Result<Vec<T>, InjectError> {
    let entries = json_entries(context, annotation)?.into_iter();
    let typed = entries.map(|(name, mut value)| {
        if let Value::Object(fields) = &mut value {
            fields.entry("name").or_insert(Value::String(name));
        }
        serde_json::from_value(value).map_err(|error| bad_json(context, annotation, &error.to_string()))
    });
    typed.collect()
}

/// The entries of an annotation that holds a JSON object or list; none where it is absent.
///
/// # Errors
/// When it holds something else.
pub(super) fn json_entries(context: &Context<'_>, annotation: &str) -> Result<Vec<(String, Value)>, InjectError> {
    let Some(text) = context.annotation(annotation) else { return Ok(Vec::new()) };
    match serde_json::from_str(text) {
        Ok(Value::Null) => Ok(Vec::new()),
        Ok(Value::Object(fields)) => Ok(fields.into_iter().collect()),
        Ok(Value::Array(items)) => Ok(items.into_iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect()),
        Ok(Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            Err(bad_json(context, annotation, "it is not a JSON object"))
        }
        Err(error) => Err(bad_json(context, annotation, &format!("it is not JSON: {error}"))),
    }
}

/// Says that an annotation's JSON is not what it must be.
fn bad_json(context: &Context<'_>, annotation: &str, reason: &str) -> InjectError {
    let value = context.annotation(annotation).unwrap_or_default().chars().take(120).collect();
    InjectError::Annotation { name: annotation.to_owned(), value, reason: reason.to_owned() }
}
