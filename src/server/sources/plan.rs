//! Selects the sources by flags, mesh config and environment.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use super::SourcesConfig;
use navarch_api::mesh::MeshConfig;
use navarch_api::names::Namespace;
use navarch_base::regular_file;
use navarch_net::backoff::Backoff;
use navarch_source::{KubernetesScope, ReadKinds, SourceAddress, XdsServer};

/// Maximum number of attempts to read the mesh config at start; after that, it has no config
/// sources.
const MAX_ATTEMPTS: u32 = 5;
/// Delays between attempts.
const RETRY_DELAY: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(4));

/// The selected sources, in order of precedence.
pub(in crate::server) struct Plan {
    pub(super) sources: Vec<Planned>,
    /// The client of the Kubernetes API, if it is used.
    pub(in crate::server) client: Option<kube::Client>,
}

/// One source of objects.
pub(super) enum Planned {
    Files(PathBuf),
    Kubernetes(ReadKinds),
    /// Another control plane.
    Xds(Box<XdsServer>),
    /// The services of Istio's own tests.
    Mock,
}

impl Plan {
    /// Selects the sources: those of the flags; otherwise the directory, with the services of a
    /// cluster if enabled; otherwise those of the mesh config (`configSources`), with the services
    /// of the local cluster; otherwise the Kubernetes API. The services of Istio's own tests come
    /// last if enabled.
    pub(in crate::server) async fn make(
        config: &SourcesConfig,
        namespace: &Namespace,
    ) -> anyhow::Result<Self> {
        let mut plan = Self::configured(config, namespace).await?;
        if config.mock_registry {
            plan.sources.push(Planned::Mock);
        }

        Ok(plan)
    }

    /// The Kubernetes API of this client as the only source.
    pub(in crate::server) fn of_client(client: kube::Client) -> Self {
        Self {
            sources: vec![Planned::Kubernetes(ReadKinds::All)],
            client: Some(client),
        }
    }

    /// All selected sources but the services of Istio's own tests.
    async fn configured(config: &SourcesConfig, namespace: &Namespace) -> anyhow::Result<Self> {
        let addresses = match (&config.addresses[..], &config.mesh_config) {
            ([], Some(file)) => addresses_in_file(file)?,
            (flags, _) => flags.to_vec(),
        };
        if addresses.is_empty()
            && let Some(directory) = &config.config_dir
        {
            let mut plan = Self {
                sources: vec![Planned::Files(directory.clone())],
                client: None,
            };
            if config.kubernetes_registry {
                plan.client = Some(
                    navarch_kubernetes::client(config.kubeconfig.as_deref(), config.rate).await?,
                );
                plan.sources.push(Planned::Kubernetes(ReadKinds::Native));
            }
            return Ok(plan);
        }

        let without_cluster =
            !addresses.is_empty() && !addresses.contains(&SourceAddress::Kubernetes);
        if without_cluster && (!config.addresses.is_empty() || !config.kubernetes_registry) {
            return Ok(Self {
                sources: addresses.into_iter().map(Planned::from).collect(),
                client: None,
            });
        }

        let client = navarch_kubernetes::client(config.kubeconfig.as_deref(), config.rate).await?;
        let mesh_file = config
            .mesh_config
            .as_ref()
            .filter(|file| regular_file::may_exist(file));
        let addresses = match (addresses.is_empty(), mesh_file) {
            (true, None) => {
                addresses_in_map(&client, namespace, &map_name(&config.scope.revision)).await?
            }
            (true, Some(_)) | (false, _) => addresses,
        };

        let all = if config.kubernetes_registry {
            ReadKinds::All
        } else {
            ReadKinds::Configuration
        };

        let planned = |address| match address {
            SourceAddress::Kubernetes => Planned::Kubernetes(all),
            other @ (SourceAddress::Files(_) | SourceAddress::Xds(_)) => Planned::from(other),
        };
        let mut sources: Vec<_> = addresses.into_iter().map(planned).collect();
        if sources.is_empty() {
            sources.push(Planned::Kubernetes(all));
        } else if config.kubernetes_registry
            && !sources
                .iter()
                .any(|source| matches!(source, Planned::Kubernetes(_)))
        {
            sources.push(Planned::Kubernetes(ReadKinds::Native));
        }
        Ok(Self {
            sources,
            client: Some(client),
        })
    }

    /// Whether Istio's configuration comes from the Kubernetes API.
    pub(in crate::server) fn configures_by_kubernetes(&self) -> bool {
        let configures = |source: &Planned| match source {
            Planned::Kubernetes(ReadKinds::All | ReadKinds::Configuration) => true,
            Planned::Kubernetes(ReadKinds::Native | ReadKinds::Remote(_))
            | Planned::Files(_)
            | Planned::Xds(_)
            | Planned::Mock => false,
        };
        self.sources.iter().any(configures)
    }

    /// The objects of the Kubernetes API to read; `None` if it is not used.
    pub(in crate::server) fn scope(&self, config: &SourcesConfig) -> Option<KubernetesScope> {
        let kinds = self.sources.iter().find_map(|source| match source {
            Planned::Kubernetes(kinds) => Some(*kinds),
            Planned::Files(_) | Planned::Xds(_) | Planned::Mock => None,
        })?;
        Some(KubernetesScope {
            kinds,
            ..config.scope.clone()
        })
    }

    /// A short description of the sources.
    pub(in crate::server) fn describe(&self) -> String {
        let names: Vec<_> = self
            .sources
            .iter()
            .map(|source| source.name().to_string())
            .collect();
        names.join(", ")
    }
}

impl From<SourceAddress> for Planned {
    fn from(address: SourceAddress) -> Self {
        match address {
            SourceAddress::Files(path) => Self::Files(path),
            SourceAddress::Kubernetes => Self::Kubernetes(ReadKinds::All),
            SourceAddress::Xds(server) => Self::Xds(server),
        }
    }
}

impl Planned {
    /// The name of the source in problems.
    pub(super) fn name(&self) -> Arc<str> {
        match self {
            Self::Files(path) => Arc::from(format!("fs://{}", path.display())),
            Self::Kubernetes(_) => Arc::from("k8s://"),
            Self::Xds(server) => Arc::from(format!("xds://{}", server.address)),
            Self::Mock => Arc::from("mock://"),
        }
    }
}

/// The config sources in a mesh config file; none if there is no file. An invalid file has none;
/// the error is reported when its source reads it.
///
/// # Errors
/// When the file cannot be read. Without its sources others would be read instead, until a restart.
fn addresses_in_file(file: &Path) -> anyhow::Result<Vec<SourceAddress>> {
    match regular_file::read_text(file) {
        Ok(text) => addresses_in(&text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => {
            Err(error).with_context(|| format!("failed to read the mesh config {}", file.display()))
        }
    }
}

/// The config sources in a mesh config.
fn addresses_in(text: &str) -> anyhow::Result<Vec<SourceAddress>> {
    let config = MeshConfig::istio_defaults()
        .apply(text)
        .map(|typed| typed.value);
    let sources = config
        .map(|config| config.config_sources)
        .unwrap_or_default();
    let addresses: Result<_, _> = sources.iter().map(SourceAddress::of).collect();
    addresses.context("configSources of the mesh config")
}

/// The config sources in the mesh config of a ConfigMap.
async fn addresses_in_map(
    client: &kube::Client,
    namespace: &Namespace,
    name: &str,
) -> anyhow::Result<Vec<SourceAddress>> {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
    let mut backoff = RETRY_DELAY;

    for _ in 0..MAX_ATTEMPTS {
        let request = http::Request::get(&path).body(Vec::new())?;
        match client.request::<serde_json::Value>(request).await {
            Ok(map) => {
                let text = map
                    .pointer("/data/mesh")
                    .and_then(serde_json::Value::as_str);
                return addresses_in(text.unwrap_or_default());
            }
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
            Err(error) => {
                tracing::warn!(%error, ns = %namespace, name, "failed to read the mesh config");
                tokio::time::sleep(backoff.next_delay()).await;
            }
        }
    }

    // It may become readable later; its mesh settings are applied then.
    Ok(Vec::new())
}

/// The ConfigMap of the mesh config of a revision.
pub(super) fn map_name(revision: &str) -> String {
    match revision {
        "" | "default" => "istio".to_owned(),
        revision => format!("istio-{revision}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn flags_come_before_the_directory_and_mesh_config() {
        let config_dir = Some(PathBuf::from("/a"));
        let mut config = SourcesConfig {
            config_dir,
            kubernetes_registry: false,
            ..SourcesConfig::default()
        };
        let namespace = Namespace::new("istio-system");
        assert_eq!(
            Plan::make(&config, &namespace).await.unwrap().describe(),
            "fs:///a"
        );

        config.addresses = vec![
            SourceAddress::Files(PathBuf::from("/b")),
            SourceAddress::Files(PathBuf::from("/c")),
        ];
        assert_eq!(
            Plan::make(&config, &namespace).await.unwrap().describe(),
            "fs:///b, fs:///c"
        );

        assert!(
            Plan::make(&config, &namespace)
                .await
                .unwrap()
                .client
                .is_none(),
            "nothing is left to ask it for"
        );

        config.mock_registry = true;
        assert_eq!(
            Plan::make(&config, &namespace).await.unwrap().describe(),
            "fs:///b, fs:///c, mock://"
        );

        let nowhere = Plan::make(&SourcesConfig::default(), &namespace)
            .await
            .err()
            .unwrap()
            .to_string();
        assert!(nowhere.contains("--kubeconfig"), "{nowhere}");
    }

    #[test]
    fn a_mesh_config_that_cannot_be_read_does_not_count_as_one_without_sources() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(
            path("mesh"),
            "configSources: [{address: 'fs:///objects'}]\n",
        )
        .unwrap();
        std::fs::write(path("binary"), b"\xff").unwrap();
        std::os::unix::fs::symlink("loop", path("loop")).unwrap();

        assert_eq!(
            addresses_in_file(&path("mesh")).unwrap(),
            [SourceAddress::Files(PathBuf::from("/objects"))]
        );
        assert!(addresses_in_file(&path("none")).unwrap().is_empty());
        for name in ["binary", "loop"] {
            let error = addresses_in_file(&path(name)).unwrap_err().to_string();
            assert!(error.ends_with(name), "{error}");
        }
    }
}
