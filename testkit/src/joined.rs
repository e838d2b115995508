//! Two nodes whose clusters are to be one mesh: a wire between them, a CA of one root for each, and the Secrets by which a control
//! plane reads the other cluster.
//!
//! Over the wire a node reaches the other's own address and nothing else there, so pods meet through a gateway alone.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};

use crate::mesh::NAMESPACE;
use crate::node::Node;

/// The device of the wire in either node.
const DEVICE: &str = "wire";
/// Where API servers of nodes listen.
const API_PORT: &str = "6443";
/// As whom a control plane reads another's cluster.
const READER: &str = "istio-reader-service-account";
/// How long the token of a service account may take.
const TOKEN: Duration = Duration::from_secs(20);

/// Joins two nodes by a wire over which either reaches the other's address, with its own as that of all its pods.
///
/// # Errors
/// When a node does not run, or the kernel refuses.
pub fn wire(one: &Node, other: &Node) -> Result<()> {
    let arguments = ["link", "add", DEVICE, "netns", &one.pid()?, "type", "veth", "peer", "name", DEVICE, "netns"];
    one.run_in_network("ip", &[&arguments[..], &[&other.pid()?]].concat())?;
    for (here, there) in [(one, other), (other, one)] {
        let (own, far) = (here.address()?.to_string(), there.address()?.to_string());
        here.run_in_network("ip", &["link", "set", DEVICE, "up"])?;
        here.run_in_network("ip", &["route", "add", &format!("{far}/32"), "dev", DEVICE, "src", &own])?;
        let source = ["POSTROUTING", "--out-interface", DEVICE, "--jump", "SNAT", "--to-source", &own];
        here.run_in_network("iptables", &[&["--wait", "--table", "nat", "--append"], &source[..]].concat())?;
    }
    Ok(())
}

/// What of the wire is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// What goes to the other's API server: it is lost, without a word.
    Api,
    /// All that goes to the other.
    Everything,
}

/// Cuts the wire as `node` sees it, or mends it.
///
/// # Errors
/// When the node does not run, or what is to be mended was not cut.
pub fn cut(node: &Node, what: Cut, mended: bool) -> Result<()> {
    let change = if mended { "--delete" } else { "--insert" };
    let mut arguments = vec!["--wait", "--table", "mangle", change, "POSTROUTING", "--out-interface", DEVICE];
    if what == Cut::Api {
        arguments.extend(["--protocol", "tcp", "--dport", API_PORT]);
    }
    arguments.extend(["--jump", "DROP"]);
    node.run_in_network("iptables", &arguments)
}

/// The Secret `cacerts` for each of a number of clusters: an intermediate CA each, of one root.
///
/// # Errors
/// When a key cannot be made.
pub fn authorities(count: usize) -> Result<Vec<Value>> {
    let params = |name: &str| {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::OrganizationName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        params
    };
    let root = CertifiedIssuer::self_signed(params("root"), KeyPair::generate()?)?;
    let secrets = (0..count).map(|number| {
        let key = KeyPair::generate()?;
        let certificate = params(&format!("cluster {number}")).signed_by(&key, &root)?.pem();
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

/// The Secret by which a control plane elsewhere reads the cluster of a node, as `istioctl create-remote-secret` makes it. The
/// token is that of a Secret `token`, which is made where it is not there.
///
/// # Errors
/// When the cluster gives no token.
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

/// The name of the Secret by which a cluster is read.
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
        ensure!(tokio::time::Instant::now() < end, "the service account {READER} got no token");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let template = "--template={{.data.token | base64decode}}";
    let bearer = node.kubectl(&["--namespace", NAMESPACE, "get", "secret", token, "--output=go-template", template])?;
    let authority = field("ca\\.crt").context("the token comes without the CA of its cluster")?;
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
