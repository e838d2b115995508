//! Injection of objects in files: pods, and objects with a pod template.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::error::InjectError;
use super::injector::Injector;
use super::pod;
use super::request::{InjectRequest, InjectionOutcome, SkipReason};
use super::workload::Workload;

/// The maximum nesting of lists.
const MAX_LISTS: usize = 8;

/// The result for one object that contains a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The object, such as `Deployment shop/web`.
    pub object: String,
    /// Why the object was not injected; `None` if it was injected.
    pub skipped: Option<SkipReason>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// Why injecting an object failed.
#[derive(Debug, thiserror::Error)]
#[error("{object}: {source}")]
pub struct OfflineError {
    /// The object, such as `Deployment shop/web`.
    pub object: String,
    /// The error of the injection.
    #[source]
    pub source: Box<InjectError>,
}

/// Injects an object, or the objects of a list. Objects without a pod are not changed.
///
/// # Errors
/// At the first pod that is rejected.
pub fn inject_object(
    injector: &Injector,
    object: &mut Value,
    namespace: &str,
    notes: &mut Vec<Note>,
) -> Result<(), OfflineError> {
    inject_within(injector, object, namespace, notes, 0)
}

/// Injects an object at a nesting level of lists.
fn inject_within(
    injector: &Injector,
    object: &mut Value,
    namespace: &str,
    notes: &mut Vec<Note>,
    depth: usize,
) -> Result<(), OfflineError> {
    let kind = object
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();

    if kind.ends_with("List") && depth < MAX_LISTS {
        let items = object
            .get_mut("items")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten();
        for item in items {
            inject_within(injector, item, namespace, notes, depth + 1)?;
        }
        return Ok(());
    }

    let Some(path) = template_path(&kind) else {
        return Ok(());
    };

    let namespace = match pod::meta(object, "namespace") {
        "" => namespace.to_owned(),
        own => own.to_owned(),
    };
    let named = format!("{kind} {namespace}/{}", pod::meta(object, "name"));
    let workload = (kind != "Pod").then(|| Workload {
        name: pod::meta(object, "name").to_owned(),
        namespace: namespace.clone(),
        api_version: object
            .get("apiVersion")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        kind: kind.clone(),
    });

    let Some(template) = object.pointer_mut(path) else {
        return Ok(());
    };

    let pod = Value::Object(
        ["metadata", "spec"]
            .into_iter()
            .filter_map(|part| Some((part.to_owned(), template.get(part)?.clone())))
            .collect(),
    );

    let request = InjectRequest {
        pod: &pod,
        namespace: &namespace,
        namespace_annotations: None,
        parameters: &BTreeMap::new(),
    };

    let fault = |source| OfflineError {
        object: named.clone(),
        source: Box::new(source),
    };
    let (injection, injected) = injector
        .inject_as(&request, workload.as_ref())
        .map_err(fault)?;
    let skipped = match injection.outcome {
        InjectionOutcome::Skipped(reason) => Some(reason),
        InjectionOutcome::Injected(_) => None,
    };

    if let Some(Value::Object(parts)) = injected {
        put(template, parts);
    }

    notes.push(Note {
        object: named,
        skipped,
        warnings: injection.warnings,
    });

    Ok(())
}

/// Replaces parts of a pod template with the parts of an injected pod.
fn put(template: &mut Value, parts: Map<String, Value>) {
    for (name, part) in parts {
        if matches!(name.as_str(), "metadata" | "spec") {
            pod::as_map(template).insert(name, part);
        }
    }
}

/// The path of the pod template in objects of a kind.
fn template_path(kind: &str) -> Option<&'static str> {
    match kind {
        "Pod" => Some(""),
        // DeploymentConfig is a kind of OpenShift.
        "Deployment"
        | "DaemonSet"
        | "ReplicaSet"
        | "StatefulSet"
        | "Job"
        | "ReplicationController"
        | "DeploymentConfig" => Some("/spec/template"),
        "CronJob" => Some("/spec/jobTemplate/spec/template"),
        _ => None,
    }
}
