//! The mesh that a command is about: all of its objects, from a cluster or files, and the settings
//! of its control plane.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use futures_util::StreamExt as _;
use futures_util::stream;
use navarch_analysis::{Kind, live};
use navarch_api::mesh::MeshConfig;
use navarch_api::names::Namespace;
use navarch_kubernetes::InWords;
use navarch_migration::installation::{mesh_config, revision, tags, variables};
use navarch_migration::{MeshSettings, Objects};

use super::analyze::live::{ListedKind, MAX_CONCURRENT_LISTS, list};
use super::environment::{self, Variables};
use super::kubeconfig::{IstioNamespaceFlag, KubeconfigFlags, ReadTimeoutFlag};
use super::progress::Progress;
use super::reading;
use super::security::trusted_nodes;
use super::shadow::variable;

/// The advice if there is no kubeconfig.
const ADVICE: &str = "name a kubeconfig by --kubeconfig, or a dump of the objects by --from";
/// The kinds that no analyzer reads.
const OTHERS: [ListedKind; 7] = [
    listed("apps", &["v1"], "StatefulSet", "statefulsets"),
    listed("apps", &["v1"], "DaemonSet", "daemonsets"),
    listed(
        "discovery.k8s.io",
        &["v1"],
        "EndpointSlice",
        "endpointslices",
    ),
    listed(
        "gateway.networking.k8s.io",
        &["v1", "v1beta1"],
        "GatewayClass",
        "gatewayclasses",
    ),
    listed(
        "gateway.networking.k8s.io",
        &["v1", "v1beta1"],
        "ReferenceGrant",
        "referencegrants",
    ),
    listed(
        "gateway.networking.k8s.io",
        &["v1", "v1alpha3", "v1alpha2"],
        "TLSRoute",
        "tlsroutes",
    ),
    listed(
        "gateway.networking.k8s.io",
        &["v1", "v1alpha2"],
        "TCPRoute",
        "tcproutes",
    ),
];

const fn listed(
    group: &'static str,
    versions: &'static [&'static str],
    kind: &'static str,
    plural: &'static str,
) -> ListedKind {
    ListedKind {
        group,
        versions,
        kind,
        plural,
        fields: None,
    }
}

/// Which mesh, and how its control plane is set.
#[derive(Args, Debug)]
pub(super) struct MeshFlags {
    #[command(flatten)]
    kubeconfig: KubeconfigFlags,
    #[command(flatten)]
    system: IstioNamespaceFlag,
    /// Revision of the control plane (label istio.io/rev)
    #[arg(long, global = true, value_name = "NAME")]
    revision: Option<String>,
    /// File with the mesh config: key mesh of the ConfigMap istio; if unset, that of the control
    /// plane
    #[arg(
        long = "meshConfigFile",
        alias = "mesh-config-file",
        global = true,
        value_name = "FILE"
    )]
    mesh_config: Option<PathBuf>,
    /// Environment variable of the control plane, as NAME=VALUE; can be repeated. Those of its
    /// Deployment are read
    #[arg(long = "env", global = true, value_name = "NAME=VALUE", value_parser = variable)]
    variables: Vec<(String, String)>,
    /// Domain of the cluster
    #[arg(
        long,
        global = true,
        value_name = "DOMAIN",
        default_value = "cluster.local"
    )]
    domain: String,
    #[command(flatten)]
    timeout: ReadTimeoutFlag,
}

/// The objects of a cluster or of files, and the settings by which Navarch translates them.
pub(super) struct Mesh {
    pub(super) objects: Objects,
    pub(super) settings: MeshSettings,
    /// `None` for files.
    client: Option<kube::Client>,
}

impl Mesh {
    /// The mesh of files.
    ///
    /// # Errors
    /// If they cannot be read, or have no objects.
    pub(super) fn of_files(path: &Path, flags: &MeshFlags) -> anyhow::Result<Self> {
        let mut objects = Objects::default();
        reading::read_objects(path, |object| objects.add(object))?;
        if objects.is_empty() {
            bail!(
                "{} has no objects: dump them with `kubectl get -o yaml`",
                path.display()
            );
        }
        Ok(Self {
            settings: settings(&objects, flags)?,
            objects,
            client: None,
        })
    }

    /// The mesh of the kubeconfig's cluster.
    ///
    /// # Errors
    /// If one of its kinds cannot be read: answers depend on all of them.
    pub(super) async fn of_cluster(flags: &MeshFlags) -> anyhow::Result<Self> {
        let opened = flags.kubeconfig.required(ADVICE).await?;
        let _progress = Progress::begin("reading the objects of the mesh");
        let reading = read(&opened.client, &flags.system.istio_namespace);
        let objects = flags.timeout.limit(&opened.name, reading).await?;
        Ok(Self {
            settings: settings(&objects, flags)?,
            objects,
            client: Some(opened.client),
        })
    }

    /// The client of the cluster.
    ///
    /// # Errors
    /// If the mesh is one of files.
    pub(super) fn client(&self) -> anyhow::Result<&kube::Client> {
        self.client.as_ref().context(ADVICE)
    }
}

/// Reads the objects of a cluster whose control plane is in the namespace `system`.
async fn read(client: &kube::Client, system: &str) -> anyhow::Result<Objects> {
    let is_needed = |kind: &Kind| {
        !matches!(
            kind,
            Kind::Secret | Kind::ValidatingWebhookConfiguration | Kind::CustomResourceDefinition
        )
    };
    let analyzed = live::kinds().filter(is_needed).map(|kind| {
        // Components of ambient mode and clients may be in Kubernetes' own namespaces.
        let listed = ListedKind {
            fields: None,
            ..ListedKind::from(kind)
        };
        (listed, live::only_namespace(kind, system))
    });
    let others = OTHERS.into_iter().map(|listed| (listed, None));

    let lists = analyzed.chain(others).map(|(listed, namespace)| {
        let client = client.clone();
        async move {
            let name = listed.name();
            (name, list(client, listed, namespace).await)
        }
    });
    let mut lists = stream::iter(lists).buffered(MAX_CONCURRENT_LISTS);
    let mut objects = Objects::default();
    while let Some((name, listed)) = lists.next().await {
        let listed = listed.map_err(|error| {
            anyhow::anyhow!(
                "failed to read {name}: {}. The answer depends on all objects of the mesh: request \
                 the verb list for {name}",
                InWords(&error)
            )
        })?;
        listed.into_iter().for_each(|object| objects.add(object));
    }
    Ok(objects)
}

/// The settings of the control plane: its variables, its mesh config, and what selects its objects.
fn settings(objects: &Objects, flags: &MeshFlags) -> anyhow::Result<MeshSettings> {
    let namespace = flags.system.istio_namespace.as_str();
    let requested = flags.revision.as_deref();
    let requested = requested.map(|name| revision(objects, namespace, name));
    let mut known = variables(objects, namespace, requested);
    known.extend(flags.variables.iter().cloned());
    let known = Variables::new(known);

    let mut settings = environment::settings(|name| known.get(name))?;
    settings.discover_configuration = true;
    settings.domain_suffix.clone_from(&flags.domain);
    settings.system_namespace = Namespace::new(namespace);
    if let Some(revision) = requested {
        settings.clusters.revision = revision.to_owned();
    }

    let own = Some(settings.clusters.revision.as_str());
    let own = own.filter(|name| !matches!(*name, "" | "default"));
    let mesh = mesh(mesh_config(objects, namespace, own), flags)?;
    let accounts = known.get("CA_TRUSTED_NODE_ACCOUNTS").unwrap_or_default();
    let trusted = trusted_nodes(&accounts)?.into_iter();
    let namespaces = trusted.map(|account| account.namespace.as_str().to_owned());
    Ok(MeshSettings {
        tags: tags(objects, namespace, &settings.clusters.revision),
        ztunnel_namespaces: namespaces.chain([namespace.to_owned()]).collect(),
        settings,
        mesh,
    })
}

/// The mesh config of the file that a flag names, else the one of the control plane.
fn mesh(of_control_plane: Option<&str>, flags: &MeshFlags) -> anyhow::Result<MeshConfig> {
    let defaults = MeshConfig::istio_defaults();
    let applied = match (&flags.mesh_config, of_control_plane) {
        (Some(file), _) => defaults
            .apply(&reading::read(file)?)
            .with_context(|| file.display().to_string())?,
        (None, Some(text)) => defaults.apply(text).with_context(|| {
            format!(
                "the mesh config in namespace {} is invalid",
                flags.system.istio_namespace
            )
        })?,
        (None, None) => return Ok(defaults),
    };
    Ok(applied.value)
}
