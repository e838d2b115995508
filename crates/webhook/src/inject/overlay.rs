//! Navarch's built-in overlays, with the names of Istio's templates.

mod args;
mod env;
mod gateway;
mod grpc_agent;
mod grpc_simple;
mod init;
mod meta;
mod proxy;
mod resources;
mod sidecar;
mod volumes;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Map, Value};

use super::context::Context;
use super::error::InjectError;
use super::pod;

/// A built-in template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Builtin {
    /// A proxy in addition to the application.
    Sidecar,
    /// A proxy as the pod's application.
    Gateway,
    /// An agent for applications with native xDS support.
    GrpcAgent,
    /// A bootstrap file for applications with native xDS support, without an agent.
    GrpcSimple,
}

impl Builtin {
    /// All built-in templates.
    pub(super) const ALL: [Self; 4] = [
        Self::Sidecar,
        Self::Gateway,
        Self::GrpcAgent,
        Self::GrpcSimple,
    ];

    /// Looks up a template by name.
    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|builtin| builtin.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sidecar => "sidecar",
            Self::Gateway => "gateway",
            Self::GrpcAgent => "grpc-agent",
            Self::GrpcSimple => "grpc-simple",
        }
    }

    /// Builds the overlay for a pod.
    ///
    /// # Errors
    /// When an annotation is not valid JSON.
    pub(super) fn build(self, context: &Context<'_>) -> Result<Value, InjectError> {
        let overlay = match self {
            Self::Sidecar => sidecar::build(context)?,
            Self::Gateway => gateway::build(context),
            Self::GrpcAgent => grpc_agent::build(context)?,
            Self::GrpcSimple => grpc_simple::build(context),
        };
        overlay.into_value()
    }
}

/// The additions to a pod.
#[derive(Debug, Default)]
struct Overlay {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    spec: PodSpec,
    /// Volumes without a source, which Kubernetes defaults to an empty directory: a source that the
    /// pod sets for one of these volumes is kept.
    unsourced: Vec<&'static str>,
}

impl Overlay {
    /// Converts the overlay to JSON.
    fn into_value(self) -> Result<Value, InjectError> {
        let texts = |map: BTreeMap<String, String>| {
            Value::Object(
                map.into_iter()
                    .map(|(key, value)| (key, Value::String(value)))
                    .collect(),
            )
        };

        let metadata = [
            ("labels", texts(self.labels)),
            ("annotations", texts(self.annotations)),
        ];
        let metadata: Map<_, _> = metadata
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect();

        let mut spec = serde_json::to_value(self.spec)
            .map_err(|error| InjectError::Merge(error.to_string()))?;
        for volume in spec
            .get_mut("volumes")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if self.unsourced.contains(&pod::name(volume)) {
                pod::as_map(volume).insert("emptyDir".to_owned(), Value::Null);
            }
            if let Some(source) = volume.get_mut("configMap").and_then(Value::as_object_mut)
                && source.get("name").is_some_and(|name| name == "")
            {
                // The API server reports the missing name.
                source.remove("name");
            }
        }

        let overlay = [("metadata", Value::Object(metadata)), ("spec", spec)];
        Ok(Value::Object(
            overlay
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
        ))
    }
}
