//! A case with a real API server: its objects are applied, and read again as a control plane reads
//! them.
//!
//! The server sets the creation time itself, in whole seconds. So objects are applied in the order
//! of the times in the case, then of their names, which is the order of istiod's rules of
//! precedence; and where times in the case differ, the test waits for the next second.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use navarch::ambient::AmbientTranslator;
use navarch::api::object::{Kind, ObjectRef};
use navarch::api::yaml::{self, Schema};
use navarch::envoy::EnvoyTranslator;
use navarch::push::mesh_state::Change;
use navarch::push::worker::{self, Debounce, PushHandle};
use navarch::source::{
    Batch, IDLE_TIMEOUT, KubernetesScope, KubernetesSource, KubernetesSourceConfig, MeshMapSource,
    MeshMapSourceConfig, SourceEvent,
};
use navarch_proto::json::Codec;
use navarch_testkit::cluster::{Cluster, ClusterConfig, Writer};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::case::Case;
use super::input;
use super::run::{Answers, answers, text};

/// Namespaces that every API server has.
const OWN: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// An API server with Istio's CRDs.
pub(crate) struct Server {
    cluster: Cluster,
    writer: Writer,
}

impl Server {
    /// Starts one with Navarch's CRDs.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        // The address ranges of the cases' services.
        let flags = vec!["--service-cluster-ip-range=10.96.0.0/14,fd00:10:96::/112".to_owned()];
        let config = ClusterConfig {
            api_server_flags: flags,
            ..ClusterConfig::default()
        };
        let cluster = Cluster::start_with(config).await?;
        cluster.apply_crds(Path::new(env!("CARGO_MANIFEST_DIR")))?;
        let writer = cluster.writer().await?;
        Ok(Self { cluster, writer })
    }

    /// The resources of each proxy of a case, or the reason why the case cannot run. Removes
    /// everything afterwards.
    pub(crate) async fn run(
        &self,
        case: &Case,
        codec: &Codec,
    ) -> Result<BTreeMap<String, Answers>, String> {
        let mut objects = objects(case)?;
        objects.sort_by_cached_key(order);
        let outcome = self.apply_and_ask(case, &objects, codec).await;
        for object in objects.iter().rev() {
            if object["kind"] == "Namespace"
                && OWN.iter().any(|own| object["metadata"]["name"] == *own)
            {
                continue;
            }
            self.writer
                .delete(object)
                .await
                .map_err(|error| format!("{error:#}"))?;
        }
        outcome
    }

    /// Applies the objects, reads them, connects the proxies.
    async fn apply_and_ask(
        &self,
        case: &Case,
        objects: &[Value],
        codec: &Codec,
    ) -> Result<BTreeMap<String, Answers>, String> {
        let mut before = None;

        for object in objects {
            let created = object["metadata"]["creationTimestamp"].as_str();
            if before.is_some() && before != created {
                tokio::time::sleep(Duration::from_millis(1050)).await;
            }
            before = created;
            self.writer
                .put(object)
                .await
                .map_err(|error| format!("{error:#}"))?;
        }

        let settings = input::settings(case)?;
        let (push, _) = worker::start(
            settings,
            Debounce::default(),
            Arc::new(AmbientTranslator(EnvoyTranslator)),
        )
        .map_err(text)?;
        let read = self.read(&push).await?;

        let got = answers(&push, case, codec).await;
        read.abort_all_and_wait().await;
        got
    }

    /// Reads mesh config and objects until both are synced, and keeps reading.
    async fn read(&self, push: &PushHandle) -> Result<Readers, String> {
        let client = self.cluster.client().await.map_err(text)?;
        let (to_mesh, mesh) = mpsc::channel(16);
        let (to_objects, objects) = mpsc::channel(16);
        let maps = MeshMapSource::new(MeshMapSourceConfig {
            client: client.clone(),
            namespace: navarch::api::names::Namespace::new("istio-system"),
            names: vec!["istio".to_owned()],
            base: navarch::api::mesh::MeshConfig::istio_defaults(),
            idle_timeout: IDLE_TIMEOUT,
        });

        let scope = KubernetesScope::default();
        let source = KubernetesSource::new(KubernetesSourceConfig {
            client,
            scope,
            idle_timeout: IDLE_TIMEOUT,
        });
        let readers = Readers(vec![
            tokio::spawn(maps.run(to_mesh)),
            tokio::spawn(source.run(to_objects)),
        ]);

        for mut events in [mesh, objects] {
            while let Some(batch) = events.recv().await {
                let synced = batch.contains(&SourceEvent::FullSync);
                push.change(changes(batch)?).await.map_err(text)?;
                if synced {
                    break;
                }
            }
        }

        push.full_sync().await.map_err(text)?;
        Ok(readers)
    }
}

/// The reading tasks.
struct Readers(Vec<tokio::task::JoinHandle<Result<(), navarch::source::SourceError>>>);

impl Readers {
    async fn abort_all_and_wait(self) {
        for task in self.0 {
            task.abort();
            drop(task.await);
        }
    }
}

/// The objects of a case as the server accepts them, and the ConfigMap of its mesh config.
fn objects(case: &Case) -> Result<Vec<Value>, String> {
    let input = case
        .file("input.yaml")
        .ok_or("the case has no input.yaml")?;
    let documents =
        yaml::documents(&input).map(|document| yaml::parse(document.text, Schema::V1_2));
    let mut objects = documents
        .collect::<Result<Vec<Value>, _>>()
        .map_err(|error| error.reason.to_string())?;
    objects.retain(|object| !object.is_null());

    let owners = objects.iter_mut().filter_map(|object| {
        object
            .pointer_mut("/metadata/ownerReferences")?
            .as_array_mut()
    });
    for owner in owners
        .flatten()
        .filter(|owner| owner["uid"].as_str().is_none_or(str::is_empty))
    {
        // The server requires a uid in owner references.
        owner["uid"] = "1d9c8a52-2f0b-4c53-8a34-0a4f6a4d2c11".into();
    }
    let mut data = serde_json::Map::new();

    for (key, file) in [("mesh", "mesh.yaml"), ("meshNetworks", "networks.yaml")] {
        data.extend(
            case.file(file)
                .map(|text| (key.to_owned(), Value::from(text))),
        );
    }

    objects.push(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio", "namespace": "istio-system"}, "data": data,
    }));
    Ok(objects)
}

/// Sort key: namespaces first, then by time, then by name.
fn order(object: &Value) -> (bool, String, String, String) {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let time = text("/metadata/creationTimestamp");
    (
        object["kind"] != "Namespace",
        time,
        text("/metadata/name"),
        text("/metadata/namespace"),
    )
}

/// The changes in a batch of events; a problem is an error.
fn changes(batch: Batch) -> Result<Vec<Change>, String> {
    let mut changes = Vec::new();

    for event in batch {
        match event {
            SourceEvent::Added(object) | SourceEvent::Updated(object)
                if !is_own(&object.object_ref()) =>
            {
                changes.push(Change::Put(object));
            }
            SourceEvent::Deleted(name) => changes.push(Change::Removed(name)),
            SourceEvent::MeshConfig(config) => changes.push(Change::Mesh(config)),
            SourceEvent::MeshNetworks(networks) => changes.push(Change::Networks(networks)),
            SourceEvent::Problems { .. }
            | SourceEvent::Added(_)
            | SourceEvent::Updated(_)
            | SourceEvent::Keys(..)
            | SourceEvent::FullSync => {}
        }
    }

    Ok(changes)
}

/// Whether the server has created the object itself.
fn is_own(object: &ObjectRef) -> bool {
    object.kind == Kind::Service && &*object.name.name == "kubernetes"
}
