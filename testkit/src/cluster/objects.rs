//! Writes and deletes objects in a test cluster as the administrator, without kubectl's 100 ms.

#![allow(
    clippy::indexing_slicing,
    reason = "indexing JSON with a missing key gives null"
)]

use anyhow::{Context, Result};
use http::StatusCode;
use serde_json::{Value, json};

use super::Cluster;
use super::access::client_of;

/// The field manager of the test.
const MANAGER: &str = "navarch-test";

/// A stateless client of the administrator: created once in a runtime, used for many objects.
#[derive(Clone)]
pub struct Writer {
    client: kube::Client,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Writer")
    }
}

impl Cluster {
    /// A writer whose connections belong to the runtime that it is created in.
    ///
    /// # Errors
    /// As [`Cluster::client`].
    pub async fn writer(&self) -> Result<Writer> {
        Ok(Writer {
            client: self.client().await?,
        })
    }
}

impl Writer {
    /// A writer for any API server, with a kubeconfig that may write there.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn of_kubeconfig(file: &std::path::Path) -> Result<Self> {
        Ok(Self {
            client: client_of(file).await?,
        })
    }

    /// Writes an object with server-side apply, status included: unset fields are removed. A
    /// missing namespace is created.
    ///
    /// # Errors
    /// If the API server rejects it.
    pub async fn put(&self, object: &Value) -> Result<()> {
        let path = path_of(object)?;
        let mut main = object.clone();
        let status = main
            .as_object_mut()
            .and_then(|members| members.remove("status"));

        if let Some(metadata) = main.get_mut("metadata").and_then(Value::as_object_mut) {
            // The server sets these.
            for key in [
                "creationTimestamp",
                "resourceVersion",
                "uid",
                "generation",
                "managedFields",
            ] {
                metadata.remove(key);
            }
        }

        match self.patch(&path, &main).await {
            Err(kube::Error::Api(status))
                if status.code == 404 && !namespace_of(object).is_empty() =>
            {
                self.patch(
                    &format!("/api/v1/namespaces/{}", namespace_of(object)),
                    &namespace(object),
                )
                .await?;
                self.patch(&path, &main).await
            }
            outcome => outcome,
        }
        .with_context(|| format!("PATCH {path}"))?;

        match status {
            Some(Value::Null) | None => Ok(()),
            Some(status) => self.apply_status(&main, status).await,
        }
    }

    /// Writes the status of an existing object in one request.
    ///
    /// # Errors
    /// If the API server rejects it.
    pub async fn put_status(&self, object: &Value) -> Result<()> {
        self.apply_status(object, object["status"].clone()).await
    }

    async fn apply_status(&self, object: &Value, status: Value) -> Result<()> {
        let path = path_of(object)?;
        let object = json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": object["metadata"], "status": status});
        self.patch(&format!("{path}/status"), &object)
            .await
            .with_context(|| format!("PATCH {path}/status"))?;
        Ok(())
    }

    /// Deletes an object at once, if it exists. Namespaces are finalized, as no controller empties
    /// them.
    ///
    /// # Errors
    /// If the API server rejects the request.
    pub async fn delete(&self, object: &Value) -> Result<()> {
        let path = path_of(object)?;
        let request =
            http::Request::delete(format!("{path}?gracePeriodSeconds=0")).body(Vec::new())?;
        match self.client.request::<Value>(request).await {
            Err(kube::Error::Api(status)) if status.code == StatusCode::NOT_FOUND.as_u16() => {
                return Ok(());
            }
            outcome => outcome.with_context(|| format!("DELETE {path}"))?,
        };

        if object["kind"] == "Namespace" {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": object["metadata"]["name"]}, "spec": {"finalizers": []}});
            let request = http::Request::put(format!("{path}/finalize"))
                .header("content-type", "application/json");
            match self
                .client
                .request::<Value>(request.body(serde_json::to_vec(&object)?)?)
                .await
            {
                // A namespace controller was faster.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                outcome => drop(outcome.with_context(|| format!("PUT {path}/finalize"))?),
            }
        }

        Ok(())
    }

    /// Sends a GET request for a path.
    ///
    /// # Errors
    /// If the API server rejects the request.
    pub async fn get(&self, path: &str) -> Result<Value> {
        let request = http::Request::get(path).body(Vec::new())?;
        self.client
            .request(request)
            .await
            .with_context(|| format!("GET {path}"))
    }

    /// Sends one server-side apply.
    async fn patch(&self, path: &str, object: &Value) -> kube::Result<Value> {
        let path = format!("{path}?fieldManager={MANAGER}&force=true");
        let request =
            http::Request::patch(path).header("content-type", "application/apply-patch+yaml");
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        self.client
            .request(request.body(body).map_err(kube::Error::HttpError)?)
            .await
    }
}

/// The namespace of an object; empty if it has none.
fn namespace_of(object: &Value) -> &str {
    object
        .pointer("/metadata/namespace")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn namespace(object: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace_of(object)}})
}

/// The API path of an object.
fn path_of(object: &Value) -> Result<String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let version = text("/apiVersion").context("no apiVersion")?;
    let kind = text("/kind").context("no kind")?;
    let name = text("/metadata/name").context("no name")?;
    let root = if version.contains('/') { "apis" } else { "api" };
    let namespace = match (namespace_of(object), kind) {
        (
            _,
            "Namespace"
            | "Node"
            | "GatewayClass"
            | "IngressClass"
            | "CustomResourceDefinition"
            | "ClusterRole"
            | "ClusterRoleBinding"
            | "MutatingWebhookConfiguration"
            | "ValidatingWebhookConfiguration",
        ) => String::new(),
        ("", _) => "namespaces/default/".to_owned(),
        (namespace, _) => format!("namespaces/{namespace}/"),
    };

    Ok(format!(
        "/{root}/{version}/{namespace}{}/{name}",
        plural(kind)
    ))
}

/// The plural of a kind, as in API paths.
#[must_use]
pub fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    match lower.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ if lower.ends_with('s') => format!("{lower}es"),
        _ => format!("{lower}s"),
    }
}
