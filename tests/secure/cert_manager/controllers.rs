//! cert-manager's own controllers approve and sign, with its own CRDs: the approver, the
//! ClusterIssuer and the CA issuer.
//!
//! Needs the program of `scripts/cert-manager`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use navarch::api::identity::Identity;
use navarch::pki::KeyType;
use navarch::security::ca::Bundle;
use navarch::security::ca::signer::{CheckedRequest, IssuedChain, SignerError};
use navarch_testkit::cluster::Cluster;
use navarch_testkit::skip::skip_test;
use navarch_testkit::wait::{until, until_some};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Manager, REQUESTS, as_navarch, by_service};
use crate::own_authority::{WEB, csr};

/// cert-manager's controllers, as a process.
struct Controllers {
    process: Child,
}

/// A company's authority, in the Secret of a ClusterIssuer.
struct Company {
    bundle: Bundle,
}

/// The folder with the program and the CRDs; `None` if it was not built.
fn built() -> Result<Option<PathBuf>> {
    let tools = navarch_testkit::envoy::program();
    let tools = tools.parent().and_then(Path::parent).context("tools")?;
    let folder = tools.join("cert-manager");
    if !folder.join("cert-manager-controllers").exists() {
        skip_test("no cert-manager: run scripts/cert-manager");
        return Ok(None);
    }
    Ok(Some(folder))
}

/// The CRDs as one text.
fn definitions(folder: &Path) -> Result<String> {
    let mut text = String::new();
    for file in std::fs::read_dir(folder.join("crds"))? {
        let path = file?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            text.push_str("\n---\n");
            text.push_str(&std::fs::read_to_string(path)?);
        }
    }
    Ok(text)
}

impl Controllers {
    fn start(folder: &Path, cluster: &Cluster) -> Result<Self> {
        let log = std::fs::File::create(cluster.folder().join("cert-manager.log"))?;
        let process = Command::new(folder.join("cert-manager-controllers"))
            .arg("--kubeconfig")
            .arg(cluster.admin_kubeconfig())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(Self { process })
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Company {
    fn new() -> Result<Self> {
        let day = Duration::from_secs(86_400);
        let bundle = Bundle::self_signed("company", KeyType::P256, day, SystemTime::now())?;
        Ok(Self { bundle })
    }

    /// Puts its certificate and key into the Secret of the ClusterIssuer.
    fn signs(&self, cluster: &Cluster) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": "company", "namespace": "cert-manager"},
            "data": {
                "tls.crt": STANDARD.encode(&self.bundle.certificate),
                "tls.key": STANDARD.encode(self.bundle.key.expose()),
            },
        });
        cluster.apply(&secret.to_string())?;
        Ok(())
    }

    fn roots(&self) -> &str {
        &self.bundle.roots
    }
}

/// Whether the ClusterIssuer has read its Secret.
async fn is_ready(cluster: &Cluster) -> bool {
    let path = "/apis/cert-manager.io/v1/clusterissuers/mesh";
    let issuer = cluster
        .call("GET", path, "application/json", &Value::Null)
        .await;
    issuer.is_ok_and(|issuer| {
        let conditions = issuer["status"]["conditions"].as_array();
        conditions
            .into_iter()
            .flatten()
            .any(|one| one["type"] == "Ready" && one["status"] == "True")
    })
}

#[tokio::test]
async fn the_controllers_of_cert_manager_sign() -> Result<()> {
    let Some(folder) = built()? else {
        return Ok(());
    };
    let cluster = Cluster::start().await?;
    let client = as_navarch(&cluster, &definitions(&folder)?).await?;
    cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: cert-manager}}")?;
    let first = Company::new()?;
    first.signs(&cluster)?;
    cluster.apply(
        "{apiVersion: cert-manager.io/v1, kind: ClusterIssuer, metadata: {name: mesh}, \
         spec: {ca: {secretName: company}}}",
    )?;
    let _controllers = Controllers::start(&folder, &cluster)?;
    until("the ClusterIssuer is ready", async || {
        is_ready(&cluster).await
    })
    .await;

    let (pinned, roots) = watch::channel(Arc::from(first.roots()));
    let manager = Manager::start(client, roots)?;
    let sign = async || -> Result<Result<IssuedChain, SignerError>> {
        let hour = Duration::from_secs(3600);
        let request = CheckedRequest::new(&csr(WEB)?, Identity::parse(WEB)?, hour, "")?;
        Ok(manager.external.sign(&request).await)
    };
    ensure!(*sign().await??.roots == *first.roots(), "the pinned root");
    by_service(&manager, first.roots()).await?;

    // Its next root is used once it is pinned, not because cert-manager says so.
    let second = Company::new()?;
    second.signs(&cluster)?;
    let unpinned = until_some("the new root signs", async || match sign().await {
        Ok(Err(error)) => Ok(error.to_string()),
        signed => Err(format!("{signed:?}")),
    })
    .await;
    ensure!(unpinned.contains("unusable certificate"), "{unpinned}");
    let both = format!("{}{}", first.roots(), second.roots());
    pinned.send(Arc::from(both.as_str()))?;
    let issued = until_some("proxies trust the new root", async || {
        sign()
            .await
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())
    })
    .await;
    ensure!(*issued.roots == *both, "both pinned roots");
    by_service(&manager, second.roots()).await?;

    until("requests are deleted", async || {
        let left = cluster
            .call("GET", REQUESTS, "application/json", &Value::Null)
            .await;
        left.is_ok_and(|left| left["items"] == json!([]))
    })
    .await;
    Ok(())
}
