//! Two nodes whose clusters become one mesh: a link between them, CAs with a common root, and the
//! Secrets with which a control plane reads the other cluster.
//!
//! Through the link a node only reaches the other's own address, so pods communicate through a
//! gateway only.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use serde_json::{Value, json};

use crate::mesh::NAMESPACE;
use crate::node::Node;

/// The device of the link in both nodes.
const DEVICE: &str = "wire";
/// The port of the nodes' API servers.
const API_PORT: &str = "6443";
/// The service account with which a control plane reads another cluster.
const READER: &str = "istio-reader-service-account";
/// Timeout for the token of a service account.
const TOKEN: Duration = Duration::from_secs(20);

/// Connects two nodes by a link to each other's address, with SNAT of their pods to the node's
/// address.
///
/// # Errors
/// If a node is not running, or the kernel rejects the link.
pub fn wire(one: &Node, other: &Node) -> Result<()> {
    let arguments = [
        "link",
        "add",
        DEVICE,
        "netns",
        &one.pid()?,
        "type",
        "veth",
        "peer",
        "name",
        DEVICE,
        "netns",
    ];

    one.run_in_network("ip", &[&arguments[..], &[&other.pid()?]].concat())?;

    for (here, there) in [(one, other), (other, one)] {
        let own = here.address()?.to_string();
        let far = there.address()?.to_string();
        here.run_in_network("ip", &["link", "set", DEVICE, "up"])?;
        here.run_in_network(
            "ip",
            &[
                "route",
                "add",
                &format!("{far}/32"),
                "dev",
                DEVICE,
                "src",
                &own,
            ],
        )?;

        let source = [
            "POSTROUTING",
            "--out-interface",
            DEVICE,
            "--jump",
            "SNAT",
            "--to-source",
            &own,
        ];

        here.run_in_network(
            "iptables",
            &[&["--wait", "--table", "nat", "--append"], &source[..]].concat(),
        )?;
    }

    Ok(())
}

/// The traffic to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Traffic to the other's API server is dropped silently.
    Api,
    /// All traffic to the other node is dropped.
    Everything,
}

/// Cuts the link for `node`, or restores it.
///
/// # Errors
/// If the node is not running, or the traffic to restore was not cut.
pub fn cut(node: &Node, what: Cut, mended: bool) -> Result<()> {
    let change = if mended { "--delete" } else { "--insert" };
    let mut arguments = vec![
        "--wait",
        "--table",
        "mangle",
        change,
        "POSTROUTING",
        "--out-interface",
        DEVICE,
    ];
    if what == Cut::Api {
        arguments.extend(["--protocol", "tcp", "--dport", API_PORT]);
    }
    arguments.extend(["--jump", "DROP"]);
    node.run_in_network("iptables", &arguments)
}

/// The Secret `cacerts` for each of several clusters: an intermediate CA each, with a common root.
///
/// # Errors
/// If a key cannot be generated.
pub fn authorities(count: usize) -> Result<Vec<Value>> {
    let params = |name: &str| {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::OrganizationName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        params
    };

    let root = CertifiedIssuer::self_signed(params("root"), KeyPair::generate()?)?;
    let secrets = (0..count).map(|number| {
        let key = KeyPair::generate()?;
        let certificate = params(&format!("cluster {number}"))
            .signed_by(&key, &root)?
            .pem();

        Ok(json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "cacerts", "namespace": NAMESPACE},
            "stringData": {
                "root-cert.pem": root.pem(),
                "cert-chain.pem": format!("{certificate}{}", root.pem()),
                "ca-cert.pem": certificate,
                "ca-key.pem": key.serialize_pem(),
            },
        }))
    });

    secrets.collect()
}

/// The Secret with which another control plane reads the cluster of a node, in the format of
/// `istioctl create-remote-secret`. The token is that of a Secret `token`, which is created if it
/// is missing.
///
/// # Errors
/// If the cluster issues no token.
pub async fn remote_secret(node: &Node, cluster: &str, token: &str) -> Result<Value> {
    let config = kubeconfig(node, token).await?;
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name(cluster),
            "namespace": NAMESPACE,
            "labels": {"istio/multiCluster": "true"},
            "annotations": {"networking.istio.io/cluster": cluster},
        },
        "stringData": {cluster: config.to_string()},
    }))
}

/// The name of the Secret for reading a cluster.
#[must_use]
pub fn secret_name(cluster: &str) -> String {
    format!("istio-remote-secret-{cluster}")
}

/// A kubeconfig for the reader's service account of a node, with the token of a Secret.
async fn kubeconfig(node: &Node, token: &str) -> Result<Value> {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": {"name": token, "namespace": NAMESPACE, "annotations": {"kubernetes.io/service-account.name": READER}},
    });

    node.apply(&secret.to_string())?;
    let end = tokio::time::Instant::now() + TOKEN;
    let field = |name: &str| {
        let template = format!("--output=jsonpath={{.data.{name}}}");
        node.kubectl(&["--namespace", NAMESPACE, "get", "secret", token, &template])
    };

    while field("token")?.is_empty() {
        ensure!(
            tokio::time::Instant::now() < end,
            "the service account {READER} got no token"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    let template = "--template={{.data.token | base64decode}}";
    let bearer = node.kubectl(&[
        "--namespace",
        NAMESPACE,
        "get",
        "secret",
        token,
        "--output=go-template",
        template,
    ])?;

    let authority = field("ca\\.crt").context("the token has no CA of its cluster")?;
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "there", "cluster": {
            "server": format!("https://{}:{API_PORT}", node.address()?),
            "certificate-authority-data": authority,
        }}],
        "users": [{"name": "there", "user": {"token": bearer}}],
        "contexts": [{"name": "there", "context": {"cluster": "there", "user": "there"}}],
        "current-context": "there",
    }))
}
