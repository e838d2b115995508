//! Objects of Istio's kinds as control planes exchange them: MCP over xDS.
//!
//! A type is requested by group, version and kind (`networking.istio.io/v1/VirtualService`). A
//! resource is an `istio.mcp.v1alpha1.Resource`: the object's metadata, and its spec as a message.

use bytes::Bytes;
use jiff::Timestamp;
use navarch_proto::any::TYPE_URL_PREFIX;
use navarch_proto::istio::mcp::v1alpha1::{Metadata, Resource};
use prost::Message;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::any_object::AnyObject;
use super::decode::{Outcome, Subject, decode_value};
use super::envoy_json::codec;
use super::field_error::FieldError;
use super::object::{Kind, Object};
use navarch_base::digest;

/// The type URL of a resource of these types, for all kinds.
pub const RESOURCE_URL: &str = "type.googleapis.com/istio.mcp.v1alpha1.Resource";

/// The type of the mesh config, which istiod's clients request but do not require.
pub const MESH_CONFIG_URL: &str = "core/v1alpha1/MeshConfig";

/// The kinds that are served over MCP, each with its type URL and the protobuf message of its spec.
const TYPES: [(Kind, &str, &str); 15] = [
    (
        Kind::AuthorizationPolicy,
        "security.istio.io/v1/AuthorizationPolicy",
        "istio.security.v1beta1.AuthorizationPolicy",
    ),
    (
        Kind::DestinationRule,
        "networking.istio.io/v1/DestinationRule",
        "istio.networking.v1alpha3.DestinationRule",
    ),
    (
        Kind::EnvoyFilter,
        "networking.istio.io/v1alpha3/EnvoyFilter",
        "istio.networking.v1alpha3.EnvoyFilter",
    ),
    (
        Kind::Gateway,
        "networking.istio.io/v1/Gateway",
        "istio.networking.v1alpha3.Gateway",
    ),
    (
        Kind::PeerAuthentication,
        "security.istio.io/v1/PeerAuthentication",
        "istio.security.v1beta1.PeerAuthentication",
    ),
    (
        Kind::ProxyConfig,
        "networking.istio.io/v1beta1/ProxyConfig",
        "istio.networking.v1beta1.ProxyConfig",
    ),
    (
        Kind::RequestAuthentication,
        "security.istio.io/v1/RequestAuthentication",
        "istio.security.v1beta1.RequestAuthentication",
    ),
    (
        Kind::ServiceEntry,
        "networking.istio.io/v1/ServiceEntry",
        "istio.networking.v1alpha3.ServiceEntry",
    ),
    (
        Kind::Sidecar,
        "networking.istio.io/v1/Sidecar",
        "istio.networking.v1alpha3.Sidecar",
    ),
    (
        Kind::Telemetry,
        "telemetry.istio.io/v1/Telemetry",
        "istio.telemetry.v1alpha1.Telemetry",
    ),
    (
        Kind::TrafficExtension,
        "extensions.istio.io/v1alpha1/TrafficExtension",
        "istio.extensions.v1alpha1.TrafficExtension",
    ),
    (
        Kind::VirtualService,
        "networking.istio.io/v1/VirtualService",
        "istio.networking.v1alpha3.VirtualService",
    ),
    (
        Kind::WasmPlugin,
        "extensions.istio.io/v1alpha1/WasmPlugin",
        "istio.extensions.v1alpha1.WasmPlugin",
    ),
    (
        Kind::WorkloadEntry,
        "networking.istio.io/v1/WorkloadEntry",
        "istio.networking.v1alpha3.WorkloadEntry",
    ),
    (
        Kind::WorkloadGroup,
        "networking.istio.io/v1/WorkloadGroup",
        "istio.networking.v1alpha3.WorkloadGroup",
    ),
];

/// The kinds that are served over MCP.
pub fn kinds() -> impl Iterator<Item = Kind> {
    TYPES.iter().map(|(kind, ..)| *kind)
}

/// The type URL of a kind; empty for kinds that are not served.
#[must_use]
pub fn type_url(kind: Kind) -> &'static str {
    TYPES
        .iter()
        .find(|(known, ..)| *known == kind)
        .map_or("", |(_, url, _)| url)
}

/// The kind that a type requests.
#[must_use]
pub fn kind_of(type_url: &str) -> Option<Kind> {
    TYPES
        .iter()
        .find(|(_, url, _)| *url == type_url)
        .map(|(kind, ..)| *kind)
}

/// The full name of the message of a kind's spec.
fn message_of(kind: Kind) -> &'static str {
    TYPES
        .iter()
        .find(|(known, ..)| *known == kind)
        .map_or("", |(.., message)| message)
}

/// Encodes an object as a resource. Its version is the hash of its content: equal content has the
/// same version on every replica.
///
/// # Errors
/// When the kind is not served, or the object has a field that the message of its kind lacks.
pub fn encode(object: &AnyObject) -> Result<Bytes, FieldError> {
    let kind = object.kind();
    let spec = spec_of(object)
        .ok_or_else(|| FieldError::new("kind", format!("{kind} is not served over xDS")))?;
    let message = message_of(kind);
    let value = codec()
        .from_json(message, &spec)
        .map_err(|error| FieldError::new("spec", error.to_string()))?;
    let meta = object.meta();

    let texts = |map: &super::text_map::TextMap| {
        map.iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect()
    };

    let mut metadata = Metadata {
        name: format!("{}/{}", meta.key.namespace, meta.key.name),
        create_time: meta.created.map(|created| prost_types::Timestamp {
            seconds: created.as_second(),
            nanos: created.subsec_nanosecond(),
        }),
        version: String::new(),
        labels: texts(&meta.labels),
        annotations: texts(&meta.annotations),
    };

    let body = prost_types::Any {
        type_url: format!("{TYPE_URL_PREFIX}{message}"),
        value,
    };
    let mut resource = Resource {
        metadata: Some(metadata.clone()),
        body: Some(body),
    };
    metadata.version = digest::sha256_hex(resource.encode_to_vec())
        .get(..16)
        .expect("a SHA-256 has 64 hexadecimal digits")
        .to_owned();

    resource.metadata = Some(metadata);
    Ok(resource.encode_to_vec().into())
}

/// Decodes the object of a resource, with the same checks as an object of a file. Its version is
/// the server's.
#[must_use]
pub fn decode(kind: Kind, resource: &[u8]) -> (Subject, Outcome) {
    let mut subject = Subject {
        api_version: api_version(kind).to_owned(),
        kind: kind.as_str().to_owned(),
        ..Subject::default()
    };
    let rejected = |subject, field: &str, reason: String| {
        (subject, Outcome::Rejected(FieldError::new(field, reason)))
    };

    let resource = match Resource::decode(resource) {
        Ok(resource) => resource,
        Err(error) => return rejected(subject, "", format!("is not a {RESOURCE_URL}: {error}")),
    };
    let metadata = resource.metadata.unwrap_or_default();
    let Some((namespace, name)) = metadata.name.split_once('/') else {
        let reason = format!(
            "must be namespace/name, is {}",
            navarch_base::go_text::quoted(&metadata.name)
        );
        return rejected(subject, "metadata.name", reason);
    };

    subject.namespace = namespace.to_owned();
    subject.name = name.to_owned();
    let body = resource.body.unwrap_or_default();
    let message = message_of(kind);
    if body.type_url.rsplit('/').next() != Some(message) {
        let reason = format!(
            "must be a {message}, is a {}",
            navarch_base::go_text::quoted(&body.type_url)
        );
        return rejected(subject, "body", reason);
    }

    let spec = match codec().to_json(message, &body.value) {
        Ok(spec) => spec,
        Err(error) => return rejected(subject, "body", error.to_string()),
    };
    let mut meta = Map::from_iter([
        ("namespace".to_owned(), json!(namespace)),
        ("name".to_owned(), json!(name)),
        ("resourceVersion".to_owned(), json!(metadata.version)),
        ("labels".to_owned(), json!(metadata.labels)),
        ("annotations".to_owned(), json!(metadata.annotations)),
    ]);

    let created = metadata
        .create_time
        .and_then(|at| Timestamp::new(at.seconds, at.nanos).ok());

    // Go's zero time means unset.
    if let Some(created) = created.filter(|created| created.as_second() > 0) {
        meta.insert("creationTimestamp".to_owned(), json!(created.to_string()));
    }

    decode_value(&json!({
        "apiVersion": api_version(kind), "kind": kind.as_str(), "metadata": meta, "spec": spec,
    }))
}

/// Group and version of a kind's type.
fn api_version(kind: Kind) -> &'static str {
    type_url(kind)
        .rsplit_once('/')
        .map_or("", |(api_version, _)| api_version)
}

/// The spec of an object as JSON; `None` for kinds that are not served.
fn spec_of(object: &AnyObject) -> Option<Value> {
    fn json<T: Serialize>(object: &Object<T>) -> Option<Value> {
        serde_json::to_value(&object.spec).ok()
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "only some kinds are served")]
    match object {
        AnyObject::AuthorizationPolicy(object) => json(object),
        AnyObject::DestinationRule(object) => json(object),
        AnyObject::EnvoyFilter(object) => json(object),
        AnyObject::Gateway(object) => json(object),
        AnyObject::PeerAuthentication(object) => json(object),
        AnyObject::ProxyConfig(object) => json(object),
        AnyObject::RequestAuthentication(object) => json(object),
        AnyObject::ServiceEntry(object) => json(object),
        AnyObject::Sidecar(object) => json(object),
        AnyObject::Telemetry(object) => json(object),
        AnyObject::TrafficExtension(object) => json(object),
        AnyObject::VirtualService(object) => json(object),
        AnyObject::WasmPlugin(object) => json(object),
        AnyObject::WorkloadEntry(object) => json(object),
        AnyObject::WorkloadGroup(object) => json(object),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::decode::{Format, decode_documents};

    /// An object of the kind that no case has.
    const GROUP: &str = "apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\nmetadata: {name: vms, namespace: shop}\n\
        spec: {metadata: {labels: {app: web}}, template: {serviceAccount: vm, ports: {http: 8080}},\n\
        probe: {periodSeconds: 5, httpGet: {path: /live, port: 8080, httpHeaders: [{name: a, value: b}]}}}\n";

    /// Objects with the fields that the istiod of the cases does not know.
    const NEWEST: &str = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: web, namespace: shop}\n\
        spec: {host: web, trafficPolicy: {outlierDetection: {failurePercentageThreshold: 40},\n\
        tls: {mode: SIMPLE, caCertCredentialName: ca}, loadBalancer: {backendUtilization: {weightUpdatePeriod: 1s}}}}\n---\n\
        apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: edge, namespace: shop}\n\
        spec: {servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: ['*'],\n\
        tls: {mode: SIMPLE, credentialName: web, ecdhCurves: [X25519], alpnProtocols: [h2]}}]}\n---\n\
        apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: tls, namespace: shop}\n\
        spec: {configPatches: [{applyTo: FILTER_CHAIN, patch: {operation: REMOVE},\n\
        match: {listener: {filterChain: {transportSocket: envoy.transport_sockets.tls}}}}]}\n---\n\
        apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {name: tokens, namespace: shop}\n\
        spec: {jwtRules: [{issuer: https://issuer.example, presence: REQUIRED}]}\n";

    /// All files of input of the cases that istiod answered.
    fn inputs(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
        {
            let name = entry.file_name().unwrap().to_string_lossy().into_owned();
            if entry.is_dir() {
                inputs(&entry, found);
            } else if name.starts_with("input") && name.ends_with(".yaml") {
                found.push(entry);
            }
        }
    }

    #[test]
    fn every_object_round_trips() {
        let mut files = Vec::new();
        inputs(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/cases"),
            &mut files,
        );
        let mut texts: Vec<_> = files
            .iter()
            .map(|file| std::fs::read_to_string(file).unwrap())
            .collect();
        texts.extend([GROUP, NEWEST].map(str::to_owned));

        for decoded in decode_documents(NEWEST, Format::Yaml) {
            assert!(
                matches!(&decoded.outcome, Outcome::Read { unknown_fields, .. } if unknown_fields.is_empty()),
                "{:?}",
                decoded.outcome
            );
        }

        let mut seen = BTreeMap::new();
        for decoded in texts
            .iter()
            .flat_map(|text| decode_documents(text, Format::Yaml))
        {
            let Outcome::Read { object, .. } = decoded.outcome else {
                continue;
            };
            // Statuses, which hold allocated addresses, are not served.
            let has_status = matches!(
                &object,
                AnyObject::ServiceEntry(entry) if !entry.spec.allocated.is_empty()
            );
            if type_url(object.kind()).is_empty() || has_status {
                continue;
            }
            let encoded =
                encode(&object).unwrap_or_else(|error| panic!("{}: {error:?}", decoded.subject));
            let (subject, outcome) = super::decode(object.kind(), &encoded);
            let Outcome::Read {
                object: back,
                unknown_fields,
            } = outcome
            else {
                panic!("{subject}: {outcome:?}")
            };
            assert!(back.same_content(&object), "{back:#?}\n{object:#?}");
            assert_eq!(
                (encode(&back).unwrap(), unknown_fields),
                (encoded, Vec::new())
            );
            *seen.entry(object.kind()).or_insert(0) += 1;
        }

        let missing: Vec<Kind> = kinds().filter(|kind| !seen.contains_key(kind)).collect();
        assert!(
            missing.is_empty() && seen[&Kind::VirtualService] > 50,
            "{missing:?} of {seen:?}"
        );
    }

    #[test]
    fn resources_of_another_kind_are_rejected_with_name_and_field() {
        let metadata = Metadata {
            name: "shop/reviews".to_owned(),
            ..Metadata::default()
        };
        let with = |metadata: Metadata, message: &str, value: &[u8]| {
            let body = prost_types::Any {
                type_url: format!("{TYPE_URL_PREFIX}{message}"),
                value: value.to_vec(),
            };
            Resource {
                metadata: Some(metadata),
                body: Some(body),
            }
            .encode_to_vec()
        };

        let route = "istio.networking.v1alpha3.VirtualService";
        let nameless = Metadata {
            name: "reviews".to_owned(),
            ..Metadata::default()
        };

        for (bytes, subject, field) in [
            (b"\xff".to_vec(), "VirtualService", ""),
            (
                with(nameless, route, b""),
                "VirtualService",
                "metadata.name",
            ),
            (
                with(metadata.clone(), "istio.networking.v1alpha3.Gateway", b""),
                "VirtualService shop/reviews",
                "body",
            ),
            (
                with(metadata, route, b"\xff"),
                "VirtualService shop/reviews",
                "body",
            ),
        ] {
            let (named, outcome) = super::decode(Kind::VirtualService, &bytes);
            let Outcome::Rejected(error) = outcome else {
                panic!("{outcome:?}")
            };
            assert_eq!(
                (named.to_string().as_str(), error.path.as_str()),
                (subject, field),
                "{}",
                error.reason
            );
        }
    }
}
