//! The cluster of a kubeconfig, and the flags of all commands that read one.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::discovery::duration;

/// Which cluster.
#[derive(Args, Clone, Debug)]
pub(super) struct KubeconfigFlags {
    /// Kubeconfig of the cluster; by default $KUBECONFIG, or ~/.kube/config
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; the current one if unset
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
}

/// Where the control plane of the cluster is.
#[derive(Args, Clone, Debug)]
pub(super) struct IstioNamespaceFlag {
    /// Namespace of the control plane
    #[arg(
        short = 'i',
        long = "istioNamespace",
        alias = "istio-namespace",
        global = true,
        value_name = "NAMESPACE",
        default_value = "istio-system"
    )]
    pub(super) istio_namespace: String,
}

/// How long reading the cluster may take.
#[derive(Args, Clone, Debug)]
pub(super) struct ReadTimeoutFlag {
    /// Timeout for reading the cluster
    #[arg(
        long,
        global = true,
        value_name = "DURATION",
        default_value = "30s",
        value_parser = duration
    )]
    timeout: Duration,
}

/// A client for a kubeconfig's cluster. No request is sent yet.
pub(super) struct ClusterClient {
    pub(super) client: kube::Client,
    /// The description of the cluster in messages.
    pub(super) name: String,
    /// The name of the cluster in the kubeconfig.
    pub(super) cluster: String,
    /// The namespace of the context.
    pub(super) namespace: String,
}

impl KubeconfigFlags {
    /// Whether a flag names a cluster.
    pub(super) fn is_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    /// The same kubeconfig with another context.
    pub(super) fn with_context(&self, context: &str) -> Self {
        Self {
            kubeconfig: self.kubeconfig.clone(),
            context: Some(context.to_owned()),
        }
    }

    /// A client for the cluster that the flags name, or else that of kubectl's defaults.
    ///
    /// # Errors
    /// If the kubeconfig is invalid, or there is none: `advice` is what to do then.
    pub(super) async fn required(&self, advice: &'static str) -> anyhow::Result<ClusterClient> {
        self.open(true, advice).await?.context(advice)
    }

    /// As [`Self::required`], but `None` without a kubeconfig that a flag names, unless other flags
    /// require one.
    ///
    /// # Errors
    /// As [`Self::required`].
    pub(super) async fn optional(
        &self,
        is_required: bool,
        advice: &'static str,
    ) -> anyhow::Result<Option<ClusterClient>> {
        self.open(is_required || self.is_given(), advice).await
    }

    async fn open(
        &self,
        is_required: bool,
        advice: &'static str,
    ) -> anyhow::Result<Option<ClusterClient>> {
        let Some(file) = self.read(is_required, advice)? else {
            return Ok(None);
        };

        let context = self
            .context
            .clone()
            .or_else(|| file.current_context.clone())
            .filter(|name| !name.is_empty());
        let Some(context) = context else {
            if is_required {
                bail!(
                    "the kubeconfig has no current context: set --context (see `kubectl config get-contexts`)"
                );
            }
            return Ok(None);
        };

        client_of(file, context).await.map(Some)
    }

    /// The given kubeconfig, or that of kubectl's defaults; `None` if it does not exist.
    fn read(&self, is_required: bool, advice: &'static str) -> anyhow::Result<Option<Kubeconfig>> {
        if let Some(path) = &self.kubeconfig {
            let read = Kubeconfig::read_from(path);
            return read
                .map(Some)
                .with_context(|| format!("--kubeconfig {}", path.display()));
        }

        match Kubeconfig::from_env().context("KUBECONFIG")? {
            Some(file) => Ok(Some(file)),
            None => match Kubeconfig::read() {
                Ok(file) => Ok(Some(file)),
                Err(error) if is_missing(&error) && !is_required => Ok(None),
                Err(error) => Err(error).context(advice),
            },
        }
    }
}

/// Whether kubectl's default locations have no kubeconfig.
fn is_missing(error: &KubeconfigError) -> bool {
    matches!(error, KubeconfigError::FindPath)
        || matches!(error, KubeconfigError::ReadConfig(error, _) if error.kind() == ErrorKind::NotFound)
}

/// A client for the cluster of a context.
async fn client_of(file: Kubeconfig, context: String) -> anyhow::Result<ClusterClient> {
    let named = file
        .contexts
        .iter()
        .find(|named| named.name == context)
        .and_then(|named| named.context.as_ref());
    let cluster = named.map(|named| named.cluster.clone()).unwrap_or_default();

    let options = KubeConfigOptions {
        context: Some(context.clone()),
        ..KubeConfigOptions::default()
    };
    let config = kube::Config::from_custom_kubeconfig(file, &options).await;
    let config = config.with_context(|| {
        format!("failed to use context {context:?} (see `kubectl config get-contexts`)")
    })?;
    let name = format!("context {context:?}, {}", config.cluster_url);

    let namespace = config.default_namespace.clone();
    let client = navarch_kubernetes::client_of(config, None).with_context(|| name.clone())?;
    Ok(ClusterClient {
        client,
        name,
        cluster,
        namespace,
    })
}

impl ReadTimeoutFlag {
    /// What reading a cluster returns in time.
    ///
    /// # Errors
    /// As `reading`. If it takes too long: `cluster` is then said not to have responded.
    pub(super) async fn limit<T>(
        &self,
        cluster: &str,
        reading: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let timeout = self.timeout;
        tokio::time::timeout(timeout, reading)
            .await
            .with_context(|| {
                format!("{cluster} did not respond within {timeout:?}: increase --timeout")
            })?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_kubeconfig_is_an_error_only_if_required() {
        let missing = Kubeconfig::read_from("/nowhere/kubeconfig").unwrap_err();
        assert!(is_missing(&missing) && is_missing(&KubeconfigError::FindPath));
        assert!(!is_missing(&KubeconfigError::CurrentContextNotSet));

        let flags = KubeconfigFlags {
            kubeconfig: Some(PathBuf::from("/nowhere/kubeconfig")),
            context: None,
        };
        let error = flags.read(false, "").unwrap_err();
        assert!(error.to_string().contains("--kubeconfig /nowhere"));
    }

    #[tokio::test]
    async fn reading_ends_at_the_timeout() {
        let flag = ReadTimeoutFlag {
            timeout: Duration::from_millis(20),
        };
        let error = flag
            .limit("east", std::future::pending::<anyhow::Result<()>>())
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "east did not respond within 20ms: increase --timeout"
        );
        assert_eq!(flag.limit("east", async { Ok(1) }).await.unwrap(), 1);
    }
}
