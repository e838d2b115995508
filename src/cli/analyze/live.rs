//! Reads the objects of clusters to analyze.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use futures_util::StreamExt as _;
use futures_util::stream;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt as _};
use navarch_analysis::analyzer::{self, Findings};
use navarch_analysis::{Kind, Mesh, Resource, live};
use navarch_api::mesh::MeshNetworks;
use navarch_kubernetes::InWords;
use serde_json::Value;

use super::super::kubeconfig::{ClusterClient, KubeconfigFlags, ReadTimeoutFlag};
use super::revision::Revision;
use crate::server::remote_kubeconfig;

/// Number of objects per list request.
const LIST_PAGE_SIZE: u32 = 500;
/// Maximum number of kinds that are read concurrently.
pub(in crate::cli) const MAX_CONCURRENT_LISTS: usize = 8;
/// The label of Secrets with kubeconfigs of other clusters.
const REMOTE_SECRET_LABEL: &str = "istio/multiCluster=true";
/// The advice if there is no kubeconfig.
const KUBECONFIG_ADVICE: &str = "name a kubeconfig by --kubeconfig, or files and --use-kube=false";

/// Which clusters are read.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("kubeconfig", |flag| flag.short('c')))]
pub(super) struct LiveFlags {
    #[command(flatten)]
    kubeconfig: KubeconfigFlags,
    /// Contexts of the kubeconfig for other clusters of the mesh; can be repeated. If unset, they
    /// are read from the Secrets of the cluster
    #[arg(long = "remote-contexts", value_name = "NAME")]
    remote_contexts: Vec<String>,
    /// Revision or tag whose objects are read; `default` if unset. Objects without a revision are
    /// always read
    #[arg(short = 'r', long, value_name = "NAME")]
    revision: Option<String>,
    #[command(flatten)]
    timeout: ReadTimeoutFlag,
}

/// The content of clusters.
#[derive(Debug)]
pub(super) struct Live {
    /// Objects; of duplicates, the first one takes precedence.
    pub(super) objects: Vec<Arc<Resource>>,
    pub(super) mesh: Mesh,
    /// Why kinds could not be read.
    pub(super) missing: BTreeMap<Kind, String>,
    /// Other missing information.
    pub(super) gaps: Vec<String>,
    /// Whether the mesh has other clusters.
    pub(super) is_one_of_several: bool,
}

/// The namespaces of an analysis.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnalyzedNamespaces<'a> {
    /// The reported namespace; empty for all.
    pub(super) reported: &'a str,
    /// The namespace of the control plane.
    pub(super) system: &'a str,
}

impl LiveFlags {
    /// Whether a flag selects a cluster.
    pub(super) fn is_given(&self) -> bool {
        let Self {
            kubeconfig,
            remote_contexts,
            revision,
            timeout: _,
        } = self;
        kubeconfig.is_given() || !remote_contexts.is_empty() || revision.is_some()
    }

    /// The cluster of the kubeconfig.
    ///
    /// # Errors
    /// If there is no kubeconfig.
    pub(super) async fn open(&self) -> anyhow::Result<ClusterClient> {
        self.kubeconfig.required(KUBECONFIG_ADVICE).await
    }

    /// Reads the objects of these kinds of a cluster and of its remote clusters.
    ///
    /// # Errors
    /// If the cluster does not respond in time, or the namespace does not exist.
    pub(super) async fn read(
        &self,
        opened: &ClusterClient,
        kinds: &BTreeSet<Kind>,
        namespaces: AnalyzedNamespaces<'_>,
    ) -> anyhow::Result<Live> {
        let reading = async {
            check(opened, namespaces.reported).await?;
            let mut live = Live {
                objects: Vec::new(),
                mesh: Mesh {
                    system_namespace: namespaces.system.to_owned(),
                    ..Mesh::default()
                },
                missing: BTreeMap::new(),
                gaps: Vec::new(),
                is_one_of_several: false,
            };

            let revision = Revision::find(
                &opened.client,
                namespaces.system,
                self.revision.as_deref().unwrap_or("default"),
            )
            .await;
            live.read_mesh(&opened.client, &revision.name).await;
            live.read_objects(&opened.client, None, kinds, &revision)
                .await?;

            for (cluster, client) in self.remotes(opened, &mut live).await? {
                live.is_one_of_several = true;
                let cluster: Arc<str> = Arc::from(cluster);
                if let Err(error) = live
                    .read_objects(&client, Some(&cluster), kinds, &revision)
                    .await
                {
                    live.gaps
                        .push(format!("remote cluster {cluster} is skipped: {error:#}"));
                }
            }

            Ok(live)
        };

        let clusters = format!("{} and its remote clusters", opened.name);
        self.timeout.limit(&clusters, reading).await
    }

    /// The other clusters of the mesh.
    async fn remotes(
        &self,
        opened: &ClusterClient,
        live: &mut Live,
    ) -> anyhow::Result<Vec<(String, kube::Client)>> {
        let mut remotes = Vec::new();

        if !self.remote_contexts.is_empty() {
            for context in &self.remote_contexts {
                let named = self.kubeconfig.with_context(context);
                let opened = named.required(KUBECONFIG_ADVICE).await?;
                remotes.push((opened.cluster, opened.client));
            }
            return Ok(remotes);
        }

        let secrets = Api::<Secret>::namespaced(opened.client.clone(), &live.mesh.system_namespace);
        let listed = match secrets
            .list(&ListParams::default().labels(REMOTE_SECRET_LABEL))
            .await
        {
            Ok(listed) => listed,
            Err(error) => {
                let reason = InWords(&error);
                live.gaps.push(format!(
                    "failed to find remote clusters: {reason}. Set --remote-contexts"
                ));
                return Ok(remotes);
            }
        };

        for secret in listed {
            let name = format!(
                "Secret {}/{}",
                secret.namespace().unwrap_or_default(),
                secret.name_any()
            );

            for (key, content) in secret.data.into_iter().flatten() {
                // The Secret is not trusted: its kubeconfig must not run programs or read files
                // here.
                let made = match remote_kubeconfig::cluster_of(&content.0) {
                    Ok(cluster) => remote_kubeconfig::client(&content.0, &BTreeSet::new(), None)
                        .await
                        .map(|client| (cluster.unwrap_or_else(|| key.clone()), client)),
                    Err(error) => Err(error),
                };

                match made {
                    Ok(remote) => remotes.push(remote),
                    Err(error) => live.gaps.push(format!(
                        "the remote cluster of key {key} in {name} is skipped: {error}. Set its context with --remote-contexts"
                    )),
                }
            }
        }

        Ok(remotes)
    }
}

/// Checks that the reported namespace exists.
async fn check(opened: &ClusterClient, namespace: &str) -> anyhow::Result<()> {
    if namespace.is_empty() {
        return Ok(());
    }

    match Api::<Namespace>::all(opened.client.clone())
        .get_opt(namespace)
        .await
    {
        Ok(None) => bail!(
            "{}: namespace {namespace:?} not found: set another with -n, or all with -A",
            opened.name
        ),
        // Without the right to read it, the namespace may still exist.
        Ok(Some(_)) | Err(kube::Error::Api(_)) => Ok(()),
        Err(error) => Err(error).with_context(|| {
            format!(
                "{} does not respond: try kubectl get namespaces",
                opened.name
            )
        }),
    }
}

impl Live {
    /// Reads the mesh settings: the ConfigMap of the revision, or else that of the default
    /// revision.
    async fn read_mesh(&mut self, client: &kube::Client, revision: &str) {
        let maps = Api::<ConfigMap>::namespaced(client.clone(), &self.mesh.system_namespace);
        let names = [format!("istio-{revision}"), "istio".to_owned()];
        let is_default = revision.is_empty() || revision == "default";

        for name in names.iter().skip(usize::from(is_default)) {
            let place = format!("ConfigMap {}/{name}", self.mesh.system_namespace);
            let data = match maps.get_opt(name).await {
                Ok(Some(map)) => map.data.unwrap_or_default(),
                Ok(None) => continue,
                Err(error) => {
                    let reason = InWords(&error);
                    self.gaps.push(format!(
                        "failed to read {place}; using the default mesh config: {reason}"
                    ));
                    return;
                }
            };

            if let Some(text) = data.get("mesh") {
                match self.mesh.config.apply(text) {
                    Ok(config) => self.mesh.config = config.value,
                    Err(error) => self.gaps.push(format!("{place}: mesh: {error}")),
                }
            }

            if let Some(text) = data.get("meshNetworks") {
                match MeshNetworks::parse(text) {
                    Ok(networks) => self.mesh.networks = networks.value,
                    Err(error) => self.gaps.push(format!("{place}: meshNetworks: {error}")),
                }
            }
            return;
        }
    }

    /// Reads the objects of a cluster. If a kind may not be read, it is missing; for a remote
    /// cluster it is a gap.
    async fn read_objects(
        &mut self,
        client: &kube::Client,
        cluster: Option<&Arc<str>>,
        kinds: &BTreeSet<Kind>,
        revision: &Revision,
    ) -> anyhow::Result<()> {
        let kinds = live::kinds().filter(|kind| kinds.contains(kind));
        let kinds: Vec<_> = kinds
            .filter(|kind| cluster.is_none() || live::is_read_remotely(*kind))
            .collect();
        let system = self.mesh.system_namespace.clone();
        let lists = kinds.into_iter().map(|kind| {
            let client = client.clone();
            let namespace = live::only_namespace(kind, &system);
            async move { (kind, list(client, kind.into(), namespace).await) }
        });
        let mut lists = stream::iter(lists).buffered(MAX_CONCURRENT_LISTS);

        while let Some((kind, listed)) = lists.next().await {
            let listed = match listed {
                Ok(listed) => listed,
                Err(kube::Error::Api(status)) => {
                    let reason = InWords(&kube::Error::Api(status)).to_string();
                    match cluster {
                        Some(cluster) => {
                            self.gaps.push(format!(
                                "failed to read {} of remote cluster {cluster}: {reason}",
                                name(kind)
                            ));
                        }
                        None => drop(self.missing.insert(kind, reason)),
                    }
                    continue;
                }
                Err(error) => return Err(error).context("the API server does not respond"),
            };

            self.take(kind, cluster, listed, revision);
        }

        Ok(())
    }

    /// Adds the objects of a kind that belong to a revision.
    fn take(
        &mut self,
        kind: Kind,
        cluster: Option<&Arc<str>>,
        listed: Vec<Value>,
        revision: &Revision,
    ) {
        // Configuration applies to the whole mesh, whichever cluster it is in.
        let cluster = cluster.filter(|_| kind.is_of_runtime());

        for object in listed {
            let mut other = None;
            let is_wanted = live::is_analyzed(kind, &object, |word| {
                other = (!revision.is_named(word)).then(|| word.to_owned());
                other.is_none()
            });
            if is_wanted {
                self.objects.push(Arc::new(Resource::of_cluster(
                    kind,
                    cluster.cloned(),
                    object,
                )));
            } else if let (Some(word), Some(reason)) = (other, &revision.unknown) {
                let gap = format!(
                    "objects of {word} are skipped, because it is unknown whether it is a tag of the revision: {reason}"
                );
                if !self.gaps.contains(&gap) {
                    self.gaps.push(gap);
                }
            }
        }
    }

    /// Warnings about everything that could not be analyzed.
    pub(super) fn warnings(&self, findings: &Findings) -> Vec<String> {
        let mut warnings = self.gaps.clone();
        for (kind, reason) in &self.missing {
            let reads = |name: &&&str| {
                analyzer::all().any(|one| one.name == **name && one.inputs.contains(kind))
            };
            let skipped: Vec<_> = findings.skipped.iter().filter(reads).copied().collect();
            if !skipped.is_empty() {
                let name = name(*kind);
                let skipped = skipped.join(", ");
                warnings.push(format!(
                    "failed to read {name}: {reason}. Analyzers that read them are skipped: {skipped}. Request the verb list for \
                     {name}, or select other analyzers with --analyzer"
                ));
            }
        }
        warnings
    }
}

/// A kind in the notation of kubectl.
fn name(kind: Kind) -> String {
    ListedKind::from(kind).name()
}

/// A kind as a server lists it.
#[derive(Clone, Debug)]
pub(in crate::cli) struct ListedKind {
    pub(in crate::cli) group: &'static str,
    /// The versions to read, the best first.
    pub(in crate::cli) versions: &'static [&'static str],
    pub(in crate::cli) kind: &'static str,
    pub(in crate::cli) plural: &'static str,
    /// The field selector.
    pub(in crate::cli) fields: Option<String>,
}

impl ListedKind {
    /// The kind in the notation of kubectl.
    pub(in crate::cli) fn name(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }
}

impl From<Kind> for ListedKind {
    fn from(kind: Kind) -> Self {
        Self {
            group: kind.group(),
            versions: kind.versions(),
            kind: kind.as_str(),
            plural: kind.plural(),
            fields: live::field_selector(kind),
        }
    }
}

/// The objects of a kind, in the best version that the server supports; empty if the kind is not
/// defined.
pub(in crate::cli) async fn list(
    client: kube::Client,
    kind: ListedKind,
    namespace: Option<&str>,
) -> kube::Result<Vec<Value>> {
    for version in kind.versions {
        let name = GroupVersionKind::gvk(kind.group, version, kind.kind);
        let resource = ApiResource::from_gvk_with_plural(&name, kind.plural);
        let objects = match namespace {
            Some(namespace) => {
                Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource)
            }
            None => Api::all_with(client.clone(), &resource),
        };

        match pages(&objects, kind.fields.as_deref()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
            Ok(objects) => {
                let api_version = Value::from(resource.api_version);
                return Ok(objects
                    .into_iter()
                    .map(|object| value(object, kind.kind, &api_version))
                    .collect());
            }
        }
    }

    Ok(Vec::new())
}

/// All objects, read page by page.
async fn pages(
    objects: &Api<DynamicObject>,
    fields: Option<&str>,
) -> kube::Result<Vec<DynamicObject>> {
    let mut parameters = ListParams::default().limit(LIST_PAGE_SIZE);
    parameters.field_selector = fields.map(str::to_owned);
    let mut all = Vec::new();
    loop {
        let page = objects.list(&parameters).await?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(all),
        }
    }
}

/// An object in the format of a file: objects of a list do not contain their kind.
fn value(mut object: DynamicObject, kind: &str, api_version: &Value) -> Value {
    object.metadata.managed_fields = None;
    let mut value = serde_json::to_value(&object).unwrap_or_default();
    if let Some(members) = value.as_object_mut() {
        members.insert("apiVersion".to_owned(), api_version.clone());
        members.insert("kind".to_owned(), Value::from(kind));
    }
    value
}
