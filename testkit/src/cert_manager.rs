//! cert-manager's own controllers, with its own CRDs: the approver, the ClusterIssuer and the CA
//! issuer, behind which a company's authority signs.

use std::path::PathBuf;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::envoy;
use crate::guard::Guard;
use crate::process::Process;
use crate::skip::skip_test;
use crate::wait::until;

/// The ClusterIssuer that signs, by kind and name.
pub const ISSUER: &str = "ClusterIssuer/mesh";
/// The ClusterIssuer, which signs with the key in the Secret `company`.
const ISSUER_OBJECT: &str = "{apiVersion: cert-manager.io/v1, kind: ClusterIssuer, \
     metadata: {name: mesh}, spec: {ca: {secretName: company}}}";
/// The API path of the ClusterIssuer.
const ISSUER_PATH: &str = "/apis/cert-manager.io/v1/clusterissuers/mesh";

/// The program of the controllers, and the CRDs, in one folder.
#[derive(Debug)]
pub struct CertManager {
    folder: PathBuf,
}

/// The running controllers. Dropping it stops them.
#[derive(Debug)]
pub struct Controllers {
    process: Option<Process>,
    guard: Option<Guard>,
}

/// A company's authority, for the Secret of the ClusterIssuer.
#[derive(Debug)]
pub struct Company {
    root: String,
    key: String,
}

impl CertManager {
    /// The program; `None` if `scripts/cert-manager` has not built it.
    #[must_use]
    pub fn find() -> Option<Self> {
        let folder = envoy::tools().join("cert-manager");
        if !folder.join("cert-manager-controllers").exists() {
            skip_test("no cert-manager: run scripts/cert-manager");
            return None;
        }
        Some(Self { folder })
    }

    /// The CRDs as one text.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn definitions(&self) -> Result<String> {
        let mut text = String::new();
        for file in std::fs::read_dir(self.folder.join("crds"))? {
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

    /// Starts the controllers on a cluster that has the definitions, and waits until the
    /// ClusterIssuer [`ISSUER`] signs for the company.
    ///
    /// # Errors
    /// If they cannot be started, or an object is rejected.
    pub async fn start(&self, cluster: &Cluster, company: &Company) -> Result<Controllers> {
        cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: cert-manager}}")?;
        company.signs(cluster)?;
        cluster.apply(ISSUER_OBJECT)?;

        let kubeconfig = cluster.admin_kubeconfig().display().to_string();
        let process = Process::start(
            "cert-manager",
            &self.folder.join("cert-manager-controllers"),
            &["--kubeconfig".to_owned(), kubeconfig],
            &cluster.folder().join("cert-manager.log"),
        )?;
        let guard = Guard::over(&[process.pid()], None)?;
        let controllers = Controllers {
            process: Some(process),
            guard: Some(guard),
        };

        until("the ClusterIssuer is ready", async || {
            is_ready(cluster).await
        })
        .await;
        Ok(controllers)
    }
}

impl Company {
    /// An authority with a new key.
    ///
    /// # Errors
    /// If the key cannot be made.
    pub fn new() -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
            .distinguished_name
            .push(DnType::OrganizationName, "company");
        Ok(Self {
            root: params.self_signed(&key)?.pem(),
            key: key.serialize_pem(),
        })
    }

    /// Puts its certificate and key into the Secret of the ClusterIssuer.
    ///
    /// # Errors
    /// If the API server rejects it.
    pub fn signs(&self, cluster: &Cluster) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": "company", "namespace": "cert-manager"},
            "data": {
                "tls.crt": STANDARD.encode(&self.root),
                "tls.key": STANDARD.encode(&self.key),
            },
        });
        cluster.apply(&secret.to_string())?;
        Ok(())
    }

    /// Its root, in PEM.
    #[must_use]
    pub fn root(&self) -> &str {
        &self.root
    }
}

/// Whether the ClusterIssuer has read its Secret.
async fn is_ready(cluster: &Cluster) -> bool {
    let issuer = cluster
        .call("GET", ISSUER_PATH, "application/json", &Value::Null)
        .await;
    issuer.is_ok_and(|issuer| {
        let conditions = issuer
            .pointer("/status/conditions")
            .and_then(Value::as_array);
        conditions
            .into_iter()
            .flatten()
            .any(|one| one["type"] == "Ready" && one["status"] == "True")
    })
}

impl Drop for Controllers {
    fn drop(&mut self) {
        drop(self.process.take());

        // The PID may be reused from now on.
        if let Some(guard) = self.guard.take() {
            guard.release();
        }
    }
}
