//! Navarch with a real Kubernetes API server: applied objects reach a real Envoy, despite all kinds
//! of failures.
//!
//! Needs the programs of `make tools`. The tests share one cluster and fixed loopback ports, so
//! they run one after the other.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::print_stdout,
    clippy::type_complexity,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may fail loudly, print, spawn and read its switches from the environment"
)]

mod analyze;
mod chaos;
mod crashes;
mod edge;
mod follows;
mod led;
mod migrate;
mod remote;
mod replicas;
mod scope;
mod shares;
mod unready;
mod waits;
mod weather;

use std::path::Path;

use anyhow::Result;
use navarch_testkit::bookshop;
use navarch_testkit::cluster::Cluster;
use navarch_testkit::ports::{self, Taken};
use navarch_tests::client;
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// The cluster that all tests share; locked by each test while it runs.
static CLUSTER: Mutex<Option<Cluster>> = Mutex::const_new(None);
/// The ports of the sample, reserved while this program runs.
static PORTS: OnceCell<Taken> = OnceCell::const_new();

/// The program under test.
fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_navarch"))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The cluster, while the guard is locked. It has Istio's CRDs and no objects of other tests.
async fn cluster() -> Result<MutexGuard<'static, Option<Cluster>>> {
    let mut guard = CLUSTER.lock().await;
    PORTS
        .get_or_try_init(async || ports::take(&bookshop::kubernetes::ports()).await)
        .await?;

    if guard.is_none() {
        let cluster = Cluster::start().await?;
        cluster.apply_crds(root())?;
        *guard = Some(cluster);
    }

    let cluster = guard.as_ref().unwrap();
    let writer = cluster.writer().await?;

    for name in [
        "virtualservices",
        "destinationrules",
        "gateways",
        "serviceentries",
        "sidecars",
    ] {
        let path = format!("/apis/networking.istio.io/v1/{name}");
        for object in writer.get(&path).await?["items"].as_array().unwrap() {
            writer.delete(object).await?;
        }
    }

    for name in ["services", "pods", "configmaps"] {
        for object in writer.get(&format!("/api/v1/{name}")).await?["items"]
            .as_array()
            .unwrap()
        {
            let kind = match name {
                "services" => "Service",
                "pods" => "Pod",
                _ => "ConfigMap",
            };
            let namespace = object["metadata"]["namespace"].as_str().unwrap();
            if namespace != "default" && !namespace.starts_with("kube-") {
                let object =
                    json!({"apiVersion": "v1", "kind": kind, "metadata": object["metadata"]});
                writer.delete(&object).await?;
            }
        }
    }

    for object in writer
        .get("/apis/discovery.k8s.io/v1/endpointslices")
        .await?["items"]
        .as_array()
        .unwrap()
    {
        if object["metadata"]["namespace"] != "default" {
            let object = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": object["metadata"]});
            writer.delete(&object).await?;
        }
    }

    Ok(guard)
}
