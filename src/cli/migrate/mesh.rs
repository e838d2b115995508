//! The mesh that a migration is about: its objects, from a cluster or files, and its settings.

use std::path::Path;

use anyhow::{Context as _, bail};
use futures_util::StreamExt as _;
use futures_util::stream;
use navarch_analysis::{Kind, live};
use navarch_answers::STACK;
use navarch_api::mesh::MeshConfig;
use navarch_api::names::Namespace;
use navarch_kubernetes::InWords;
use navarch_migration::installation::{mesh_config, revision, tags, variables};
use navarch_migration::{MeshSettings, Objects, Plan, plan};

use super::super::analyze::live::{ListedKind, MAX_CONCURRENT_LISTS, list};
use super::super::environment::{self, Variables};
use super::super::progress::Progress;
use super::super::reading;
use super::super::security::trusted_nodes;
use super::MeshFlags;

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

/// The objects of a cluster or of files, and the settings by which verdicts are computed.
pub(super) struct Mesh {
    pub(super) objects: Objects,
    settings: MeshSettings,
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
    /// If one of its kinds cannot be read: verdicts depend on all of them.
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

    /// Plans the migration of namespaces.
    ///
    /// # Errors
    /// If a namespace does not exist.
    pub(super) fn plan(&self, namespaces: &[String]) -> anyhow::Result<Plan> {
        // Translation is deeply recursive.
        let made = std::thread::scope(|scope| {
            let make = || {
                let progress = Progress::begin("reading policies and routes");
                let mut show = |title: &str| progress.set_text(format!("comparing: {title}"));
                plan(&self.objects, &self.settings, namespaces, &mut show)
            };
            let thread = std::thread::Builder::new()
                .name("migration plan".to_owned())
                .stack_size(STACK)
                .spawn_scoped(scope, make)
                .context("failed to start the planning thread")?;
            let made = thread.join();
            made.map_err(|_| anyhow::anyhow!("the planning thread panicked; see the log above"))
        })?;
        Ok(made?)
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
                "failed to read {name}: {}. Verdicts depend on all objects of the mesh: request \
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
