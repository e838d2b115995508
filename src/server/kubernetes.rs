//! The way to the Kubernetes API.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// How long it may take to connect.
const CONNECT: Duration = Duration::from_secs(10);

/// A client by a kubeconfig, or else of the cluster that this process runs in. Nothing is sent yet.
///
/// # Errors
/// When the file cannot be read, or without one this is no pod of a cluster.
pub(super) async fn client(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Client> {
    let mut config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("--kubeconfig {}", path.display()))?;
            let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
            config.with_context(|| format!("--kubeconfig {}", path.display()))?
        }
        None => kube::Config::incluster().context(
            "this is no pod of a cluster: give --kubeconfig FILE, or --config-dir DIR to take the configuration from files",
        )?,
    };
    config.connect_timeout = Some(CONNECT);
    // Who asks knows better how long to wait, and whether to ask again.
    config.default_retry = false;
    kube::Client::try_from(config).context("the Kubernetes API cannot be used")
}
