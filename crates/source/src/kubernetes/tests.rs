//! The conformance suite of all sources, with a real API server.

use std::collections::BTreeSet;

use navarch_testkit::cluster::{Cluster, Writer};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use super::*;
use crate::conformance::{SourceUnderTest, suite};
use navarch_api::decode::decode_stored;
use navarch_api::object::ObjectRef;

suite!(api_server, ApiServer);

/// The API server that all tests share.
static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();

/// Locked by each test while it runs: all see the same objects.
static TURN: Mutex<()> = Mutex::const_new(());

/// An API server with a source. Only objects that the test has put count.
struct ApiServer {
    /// Writes objects.
    writer: Writer,
    /// The source's events about objects that the test has put.
    events: mpsc::Receiver<Batch>,
    /// The objects that the test has put.
    ours: Arc<parking_lot::Mutex<BTreeSet<ObjectRef>>>,
    /// Ends the source when dropped.
    _running: JoinSet<()>,
    /// Excludes other tests.
    _turn: MutexGuard<'static, ()>,
}

/// A running API server with Istio's CRDs.
async fn cluster() -> &'static Cluster {
    let start = || async {
        let cluster = Cluster::start().await.unwrap();
        cluster.apply_permissive_crds().unwrap();
        cluster
    };
    CLUSTER.get_or_init(start).await
}

/// Deletes the objects of tests.
async fn clean(writer: &Writer) {
    for path in [
        "/apis/networking.istio.io/v1/virtualservices",
        "/api/v1/namespaces",
    ] {
        for mut object in writer.get(path).await.unwrap()["items"]
            .as_array()
            .unwrap()
            .clone()
        {
            let name = object["metadata"]["name"].as_str().unwrap();
            if name == "default" || name.starts_with("kube-") {
                continue;
            }
            let (kind, version) = if path.ends_with("namespaces") {
                ("Namespace", "v1")
            } else {
                ("VirtualService", "networking.istio.io/v1")
            };
            object["kind"] = json!(kind);
            object["apiVersion"] = json!(version);
            writer.delete(&object).await.unwrap();
        }
    }
}

/// Puts an object. The API server may still reject objects in a namespace while an earlier one of
/// the same name is being deleted.
async fn put(writer: &Writer, object: &Value) {
    let end = tokio::time::Instant::now() + Duration::from_secs(30);
    while let Err(error) = writer.put(object).await {
        let is_late = format!("{error:?}").contains("NamespaceTerminating")
            && tokio::time::Instant::now() < end;
        assert!(is_late, "{error:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn reference(object: &Value) -> ObjectRef {
    decode_stored(object).subject.object_ref().unwrap()
}

/// The part of a batch about objects that the test has put.
fn about(batch: Batch, ours: &BTreeSet<ObjectRef>) -> Batch {
    let is_ours = |event: &SourceEvent| match event {
        SourceEvent::Added(object) | SourceEvent::Updated(object) => {
            ours.contains(&object.object_ref())
        }
        SourceEvent::Deleted(name) => ours.contains(name),
        SourceEvent::MeshConfig(_)
        | SourceEvent::MeshNetworks(_)
        | SourceEvent::Keys(..)
        | SourceEvent::Problems { .. }
        | SourceEvent::FullSync => true,
    };
    batch.into_iter().filter(is_ours).collect()
}

impl SourceUnderTest for ApiServer {
    async fn start(objects: &[Value]) -> Self {
        let turn = TURN.lock().await;
        let cluster = cluster().await;
        let writer = cluster.writer().await.unwrap();
        clean(&writer).await;
        let ours: Arc<parking_lot::Mutex<BTreeSet<ObjectRef>>> = Arc::default();

        for object in objects {
            ours.lock().insert(reference(object));
            put(&writer, object).await;
        }

        let client = cluster.client().await.unwrap();
        let config = KubernetesSourceConfig {
            client,
            scope: KubernetesScope::default(),
            idle_timeout: IDLE_TIMEOUT,
        };
        let (sender, mut all) = mpsc::channel(64);
        let (to_test, events) = mpsc::channel(64);

        let mut running = JoinSet::new();
        running.spawn(async move { KubernetesSource::new(config).run(sender).await.unwrap() });
        let known = ours.clone();
        running.spawn(async move {
            while let Some(batch) = all.recv().await {
                let batch = about(batch, &known.lock());
                if !batch.is_empty() && to_test.send(batch).await.is_err() {
                    return;
                }
            }
        });

        Self {
            writer,
            events,
            ours,
            _running: running,
            _turn: turn,
        }
    }

    async fn put(&mut self, object: &Value) {
        self.ours.lock().insert(reference(object));
        put(&self.writer, object).await;
    }

    async fn delete(&mut self, object: &Value) {
        self.writer.delete(object).await.unwrap();
    }

    fn events(&mut self) -> &mut mpsc::Receiver<Batch> {
        &mut self.events
    }
}
