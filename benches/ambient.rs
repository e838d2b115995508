//! The cost of ambient mode on the push thread: sending 70,000 workloads to 100 ztunnels, changing
//! a pod, adding a pod, and a burst of pod events under many policies. `NAVARCH_BENCH_PODS` sets
//! another number of pods.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a bench may read the clock and the environment, print, and panic"
)]

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use navarch::ambient::AmbientTranslator;
use navarch::api::decode::{Format, Outcome, decode_documents};
use navarch::api::settings::Settings;
use navarch::envoy::EnvoyTranslator;
use navarch::push::engine::{Engine, Interest, ProxyId, PushCause, PushStats, Sink};
use navarch::push::mesh_state::{Change, MeshState};
use navarch::push::proxy::{Locality, Proxy};
use navarch::push::resource::{Collection, ResourceType};
use serde_json::json;

/// The default number of pods.
const PODS: usize = 70_000;
const PODS_PER_NAMESPACE: usize = 500;
const PODS_PER_SERVICE: usize = 10;
const PODS_PER_NODE: usize = 100;
/// Clients.
const ZTUNNELS: usize = 100;
/// AuthorizationPolicies in one namespace, each of which selects one workload.
const POLICIES: usize = 500;
/// Pods that change in one batch.
const BURST: usize = 1000;

/// Discards pushes.
struct Discard;

impl Sink for Discard {
    fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {}
}

/// Mesh state and engine.
struct Plane {
    state: MeshState,
    /// Computes resources from the mesh state.
    engine: Engine,
}

impl Plane {
    /// Applies objects, and returns the engine's statistics and the duration.
    fn put(&mut self, yaml: &str) -> (PushStats, Duration) {
        let changes = changes(yaml);
        let begun = Instant::now();
        let facts = self.state.apply(changes);
        let stats = self.engine.apply(self.state.context(), facts);
        (stats, begun.elapsed())
    }

    /// Connects a ztunnel that subscribes to all workloads and policies.
    fn ztunnel(&mut self) -> ProxyId {
        let metadata = json!({ "NODE_NAME": "n-0", "INSTANCE_IPS": "10.0.0.1" });
        let id = "ztunnel~10.0.0.1~ztunnel-1.istio-system~istio-system.svc.cluster.local";
        let proxy = Proxy::parse(id, metadata, Locality::default()).expect("the node id is valid");
        let id = self.engine.connect(Arc::new(proxy), Arc::new(Discard));
        for resource_type in [ResourceType::Address, ResourceType::Authorization] {
            self.engine.subscribe(
                id,
                resource_type,
                Interest {
                    wildcard: true,
                    ..Interest::default()
                },
            );
        }
        id
    }
}

/// Decodes the objects of a YAML text.
fn changes(yaml: &str) -> Vec<Change> {
    let object = |decoded: navarch::api::decode::Decoded| match decoded.outcome {
        Outcome::Read { object, .. } => Change::Put(object),
        other @ (Outcome::Ignored | Outcome::Rejected(_)) => panic!("{other:?}"),
    };
    decode_documents(yaml, Format::Json)
        .into_iter()
        .map(object)
        .collect()
}

fn pod(number: usize, ready: bool) -> String {
    let namespace = number / PODS_PER_NAMESPACE;
    let service = number % PODS_PER_NAMESPACE / PODS_PER_SERVICE;
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("s{service}-5f6b7c8d9-{number:05}"), "namespace": format!("ns{namespace}"),
            "labels": { "app": format!("s{service}"), "version": "v1", "pod-template-hash": "5f6b7c8d9" },
            "annotations": { "ambient.istio.io/redirection": "enabled" },
        },
        "spec": { "nodeName": format!("n-{}", number / PODS_PER_NODE), "serviceAccountName": format!("s{service}"), "containers": [] },
        "status": {
            "phase": "Running", "podIP": format!("10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255),
            "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }],
        },
    })
    .to_string()
}

/// All other objects of a mesh with this number of pods.
fn state(pods: usize) -> String {
    let mut text = String::new();
    let mut add = |object: serde_json::Value| {
        writeln!(text, "{object}").expect("writing to memory cannot fail")
    };

    for node in 0..=pods / PODS_PER_NODE {
        let labels = json!({ "topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": format!("z{}", node % 3) });
        add(
            json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": format!("n-{node}"), "labels": labels } }),
        );
    }

    for namespace in 0..=pods / PODS_PER_NAMESPACE {
        let labels = json!({ "istio.io/dataplane-mode": "ambient" });
        add(
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": format!("ns{namespace}"), "labels": labels } }),
        );

        for service in 0..PODS_PER_NAMESPACE / PODS_PER_SERVICE {
            add(json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": { "name": format!("s{service}"), "namespace": format!("ns{namespace}") },
                "spec": {
                    "clusterIP": format!("11.{}.{}.{service}", namespace >> 8, namespace & 255),
                    "selector": { "app": format!("s{service}") },
                    "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }],
                },
            }));
        }
    }

    text
}

/// The resident memory of this process, in bytes.
fn memory() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok())
        .unwrap_or_default()
        * 4096
}

/// Prints a measurement.
fn say(what: &str, took: Duration, more: &str) {
    println!(
        "{what:<44} {:>10.3} ms  {more}",
        took.as_secs_f64() * 1000.0
    );
}

fn main() {
    let pods = std::env::var("NAVARCH_BENCH_PODS")
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(PODS);
    let mut world_of = MeshState::new(Settings {
        ambient: true,
        ..Settings::default()
    });

    let engine = Engine::new(
        world_of.context(),
        Arc::new(AmbientTranslator(EnvoyTranslator)),
    );
    world_of.apply(changes(&state(pods)));
    let mut plane = Plane {
        state: world_of,
        engine,
    };
    plane.put("");

    let before = memory();
    let (_, took) = plane.put(
        &(0..pods)
            .map(|number| pod(number, true))
            .collect::<Vec<_>>()
            .join("\n"),
    );

    let read = memory();
    say(
        "pods processed",
        took,
        &format!("{} bytes each", (read.saturating_sub(before)) / pods),
    );
    let begun = Instant::now();
    let first = plane.ztunnel();

    let took = begun.elapsed();
    let shown = plane
        .engine
        .published(first, ResourceType::Address)
        .expect("it subscribes");
    let bytes: usize = shown
        .resources
        .iter()
        .map(|resource| resource.body.len())
        .sum();

    let each = memory().saturating_sub(read) / pods;
    let more = format!(
        "{} resources, {bytes} bytes; {each} bytes of memory each",
        shown.resources.len()
    );
    say("first ztunnel synced", took, &more);
    let begun = Instant::now();
    for _ in 1..ZTUNNELS {
        plane.ztunnel();
    }

    say("99 more", begun.elapsed(), "");
    let (stats, took) = plane.put(&pod(4711 % pods, false));
    say("a pod becomes unready, to 100", took, &format!("{stats:?}"));
    let (stats, took) = plane.put(&pod(pods, true));
    say("a pod added, to 100", took, &format!("{stats:?}"));

    let policies: Vec<String> = (0..POLICIES).map(policy).collect();
    let (stats, took) = plane.put(&policies.join("\n"));
    say("500 policies in one namespace", took, &format!("{stats:?}"));
    let burst: Vec<String> = (0..BURST.min(pods))
        .map(|number| pod(number, false))
        .collect();
    let (stats, took) = plane.put(&burst.join("\n"));
    say("1,000 pods change at once", took, &format!("{stats:?}"));
}

/// A policy for some pods in the first namespace.
fn policy(number: usize) -> String {
    json!({
        "apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
        "metadata": { "name": format!("p{number}"), "namespace": "ns0" },
        "spec": {
            "selector": { "matchLabels": { "app": format!("s{}", number % (PODS_PER_NAMESPACE / PODS_PER_SERVICE)) } },
            "rules": [{ "from": [{ "source": { "namespaces": [format!("ns{number}")] } }] }],
        },
    })
    .to_string()
}
