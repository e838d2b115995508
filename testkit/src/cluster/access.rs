//! Access to a test cluster: kubeconfigs, clients and kubectl.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use super::{ADMIN_TOKEN, Cluster};

/// A client for a kubeconfig.
pub(super) async fn client_of(file: &Path) -> Result<kube::Client> {
    let kubeconfig = Kubeconfig::read_from(file)?;
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

impl Cluster {
    /// The kubeconfig of the administrator.
    #[must_use]
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.folder().join("admin.kubeconfig")
    }

    /// Writes the kubeconfig of the administrator.
    pub(super) fn write_admin_kubeconfig(&self) -> Result<()> {
        self.write_kubeconfig(
            &self.admin_kubeconfig(),
            &format!("https://{}", self.address),
            ADMIN_TOKEN,
        )
    }

    /// Writes a kubeconfig with a token; `server` is the API server or a proxy in front of it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_kubeconfig(&self, path: &Path, server: &str, token: &str) -> Result<()> {
        // As data: kubeconfigs of remote clusters may name no files.
        let certificate = std::fs::read(self.folder().join("certificates/apiserver.crt"))?;
        let certificate = BASE64_STANDARD.encode(certificate);
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority-data": certificate}}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
            "current-context": "test",
        });
        // JSON is YAML. Renamed atomically, so that readers never see a part of it.
        let draft = path.with_extension("draft");
        std::fs::write(&draft, serde_json::to_string_pretty(&config)?)?;
        std::fs::rename(&draft, path)?;
        Ok(())
    }

    /// A kubeconfig of the administrator, through a proxy in front of the API server.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn admin_kubeconfig_through(&self, address: std::net::SocketAddr) -> Result<PathBuf> {
        let path = self
            .folder()
            .join(format!("admin-through-{}.kubeconfig", address.port()));
        self.write_kubeconfig(&path, &format!("https://{address}"), ADMIN_TOKEN)?;
        Ok(path)
    }

    /// The kubeconfig of an existing service account. Its token is valid for an hour.
    ///
    /// # Errors
    /// If the token request fails.
    pub async fn kubeconfig_of(&self, namespace: &str, service_account: &str) -> Result<PathBuf> {
        let path =
            format!("/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token");
        let ask = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
        let answer = self.call("POST", &path, "application/json", &ask).await?;
        let token = answer
            .pointer("/status/token")
            .and_then(Value::as_str)
            .context("no token was returned")?;
        let file = self
            .folder()
            .join(format!("{namespace}.{service_account}.kubeconfig"));
        self.write_kubeconfig(&file, &format!("https://{}", self.address), token)?;
        Ok(file)
    }

    /// A client of the administrator. Its connections belong to the runtime that it is created in.
    ///
    /// # Errors
    /// If the kubeconfig cannot be read.
    pub async fn client(&self) -> Result<kube::Client> {
        client_of(&self.admin_kubeconfig()).await
    }

    /// Calls the API as the administrator.
    ///
    /// # Errors
    /// If the API server rejects the request or does not respond.
    pub async fn call(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<Value> {
        let body = if body.is_null() {
            Vec::new()
        } else {
            serde_json::to_vec(body)?
        };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .body(body)?;
        self.client()
            .await?
            .request(request)
            .await
            .with_context(|| format!("{method} {path}"))
    }

    /// Runs kubectl as the administrator with a text on its standard input. Returns its output.
    ///
    /// # Errors
    /// If kubectl fails, with its error output.
    pub fn kubectl(&self, args: &[&str], input: &str) -> Result<String> {
        let mut command = Command::new(self.program("kubectl"));
        command
            .arg("--kubeconfig")
            .arg(self.admin_kubeconfig())
            .args(args);
        command
            .env("HOME", self.folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());

        let mut child = command.spawn().context("cannot start kubectl")?;

        // kubectl may end before it has read everything; its output has the reason.
        drop(
            child
                .stdin
                .take()
                .context("kubectl has no stdin")?
                .write_all(input.as_bytes()),
        );

        let output = child.wait_with_output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "kubectl {}: {stderr}",
            args.join(" ")
        );

        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// `kubectl apply --server-side` with a text of YAML documents.
    ///
    /// # Errors
    /// If the API server rejects one of them.
    pub fn apply(&self, yaml: &str) -> Result<String> {
        self.kubectl(
            &["apply", "--server-side", "--force-conflicts", "-f", "-"],
            yaml,
        )
    }

    /// Waits until the API server serves the kinds of all its CRDs, for 30 s at most.
    ///
    /// # Errors
    /// If one of them is not served by then.
    pub fn wait_for_crds(&self) -> Result<()> {
        self.kubectl(
            &[
                "wait",
                "--for=condition=Established",
                "--timeout=30s",
                "crd",
                "--all",
            ],
            "",
        )?;
        Ok(())
    }

    /// Installs the CRDs of Istio's kinds from a checkout (`navarch crds`).
    ///
    /// # Errors
    /// If they are rejected or not served soon.
    pub fn apply_crds(&self, root: &Path) -> Result<()> {
        let file = root.join("deploy/charts/navarch/crds/istio.yaml");
        self.apply(&std::fs::read_to_string(&file).with_context(|| file.display().to_string())?)?;
        self.wait_for_crds()
    }

    /// Installs CRDs of Istio's kinds without validation.
    ///
    /// # Errors
    /// If they are rejected or not served soon.
    pub fn apply_permissive_crds(&self) -> Result<()> {
        self.apply(&super::crds::permissive())?;
        self.wait_for_crds()
    }
}
