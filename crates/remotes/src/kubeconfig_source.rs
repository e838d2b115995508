//! Where the kubeconfigs of remote clusters are.

use std::path::PathBuf;

use tokio::sync::mpsc;

use super::{Parts, configs};
use navarch_base::error_chain::chain;
use navarch_kubernetes::ApiRate;

/// The source of kubeconfigs.
pub(super) enum KubeconfigSource {
    /// Files.
    Directory(PathBuf),
    /// Secrets of the cluster that configures the mesh.
    Secrets(kube::Client, String),
    /// Secrets of the cluster that the process runs in.
    LocalSecrets(String, Option<ApiRate>),
}

impl KubeconfigSource {
    /// The source of kubeconfigs, if there is one.
    pub(super) fn of(parts: &Parts) -> Option<Self> {
        let config = &parts.config;
        if let Some(directory) = &config.directory {
            return Some(Self::Directory(directory.clone()));
        }

        let client = parts.client.as_ref()?;
        let own = parts.namespace.as_str();
        let namespace = config.namespace.as_deref().unwrap_or(own).to_owned();
        let local = config.local_secrets && config.external;
        Some(if local {
            Self::LocalSecrets(namespace, config.rate)
        } else {
            Self::Secrets(client.clone(), namespace)
        })
    }

    /// Sends kubeconfigs until the receiver is closed.
    pub(super) async fn follow(self, events: mpsc::Sender<configs::ConfigEvent>) {
        let ended = match self {
            Self::Directory(directory) => configs::follow_directory(directory, events).await,
            Self::Secrets(client, namespace) => {
                configs::follow_secrets(client, &namespace, events).await
            }
            Self::LocalSecrets(namespace, rate) => {
                match navarch_kubernetes::client(None, rate).await {
                    Ok(client) => configs::follow_secrets(client, &namespace, events).await,
                    Err(error) => {
                        tracing::error!(
                            error = chain(&error),
                            "LOCAL_CLUSTER_SECRET_WATCHER: failed to create a client for the local cluster"
                        );
                        events
                            .send(configs::ConfigEvent::Synced)
                            .await
                            .map_err(|_| configs::Closed)
                    }
                }
            }
        };

        if ended.is_ok() {
            // It must not end before shutdown.
            std::future::pending().await
        }
    }
}
