//! Meshes of tests: objects as YAML, and the workloads of their pods.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use navarch_answers::client::Client;
use navarch_answers::node_message::NodeMessage;
use navarch_api::kubernetes::Pod;
use navarch_api::mesh::MeshConfig;
use navarch_api::object::Object;
use navarch_api::settings::Settings;
use navarch_push::context::PushContext;
use navarch_push::mesh_state::{Change, MeshState};
use navarch_push::testing;
use serde_json::Value;

use crate::workload::{Workload, WorkloadName};

/// A snapshot, and its workloads.
pub(crate) struct TestMesh {
    pub(crate) context: Arc<PushContext>,
    pub(crate) workloads: Vec<Workload>,
}

impl TestMesh {
    /// The mesh of these objects, with a mesh config on top of Istio's defaults. The label `app` of
    /// a pod is the name of its workload.
    pub(crate) fn new(mesh_config: &str, objects: &str) -> Self {
        let owner = |pod: &Object<Pod>| pod.meta.labels.get("app").unwrap().to_string();
        Self::with_owners(mesh_config, objects, &owner)
    }

    fn with_owners(
        mesh_config: &str,
        objects: &str,
        owner: &dyn Fn(&Object<Pod>) -> String,
    ) -> Self {
        let config = MeshConfig::istio_defaults().apply(mesh_config).unwrap();
        let mut changes = vec![Change::Mesh(Arc::new(config.value))];
        changes.extend(testing::changes(objects));
        let mut state = MeshState::new(Settings::default());
        state.apply(changes);
        let context = state.context();

        let mut workloads: BTreeMap<WorkloadName, Workload> = BTreeMap::new();
        for pod in context.objects.pods.iter() {
            let key = &pod.meta.key;
            let name = WorkloadName::new(key.namespace.as_str(), &owner(pod));
            let workload = workloads.entry(name.clone()).or_insert_with(|| Workload {
                name,
                pods: [].into(),
                all_pods: [].into(),
                client: client(pod),
            });
            workload.pods.insert(key.name.to_string());
            workload.all_pods.insert(key.name.to_string());
        }
        Self {
            context,
            workloads: workloads.into_values().collect(),
        }
    }

    /// Pods of namespace `shop`: the name of the workload, that of the pod, and its labels.
    pub(crate) fn of_pods(pods: &[(&str, &str, &str)]) -> Self {
        let mut objects = String::new();
        for (index, (_, pod, labels)) in pods.iter().enumerate() {
            let address = format!("10.1.0.{}", index + 1);
            objects.push_str(&format!(
                "---\napiVersion: v1\nkind: Pod\n\
                 metadata: {{ name: {pod}, namespace: shop, labels: {{ {labels} }} }}\n\
                 spec: {{ containers: [{{ name: app }}] }}\n\
                 status: {{ phase: Running, podIP: {address} }}\n"
            ));
        }
        let owner = |pod: &Object<Pod>| {
            let named = pods
                .iter()
                .find(|(_, name, _)| **name == *pod.meta.key.name);
            named.unwrap().0.to_owned()
        };
        Self::with_owners("", &objects, &owner)
    }

    /// A workload by `namespace/name`.
    pub(crate) fn workload(&self, name: &str) -> &Workload {
        let found = self
            .workloads
            .iter()
            .find(|one| one.name.to_string() == name);
        found.unwrap()
    }
}

fn client(pod: &Object<Pod>) -> Client {
    let ips: Vec<IpAddr> = pod.spec.pod_ips.iter().copied().collect();
    let labels = pod.meta.labels.iter();
    let message = NodeMessage {
        kind: "sidecar",
        namespace: pod.meta.key.namespace.as_str(),
        name: &pod.meta.key.name,
        ips: &ips,
        labels: labels
            .map(|(key, value)| (key.to_string(), Value::from(&**value)))
            .collect(),
        node: "n1",
        service_account: pod.spec.service_account.as_str(),
        locality: "",
        further: serde_json::Map::new(),
    };
    Client::fresh(message.proxy(&Settings::default()).unwrap())
}

/// Traces are sent to zipkin of the namespace `obs`.
pub(crate) const MESH_CONFIG: &str = "
extensionProviders:
- { name: zip, zipkin: { service: zipkin.obs.svc.cluster.local, port: 9411 } }
defaultProviders: { tracing: [zip] }
";

/// A workload `shop/web`, and services of three namespaces.
pub(crate) const MESH: &str = "
apiVersion: v1
kind: Service
metadata: { name: reviews, namespace: shop }
spec: { clusterIP: 10.96.0.10, selector: { app: reviews }, ports: [{ name: http, port: 9080 }] }
---
apiVersion: v1
kind: Service
metadata: { name: details, namespace: shop }
spec: { clusterIP: 10.96.0.11, selector: { app: details }, ports: [{ name: http, port: 9080 }] }
---
apiVersion: v1
kind: Service
metadata: { name: ratings, namespace: bank }
spec: { clusterIP: 10.96.0.12, selector: { app: ratings }, ports: [{ name: http, port: 9080 }] }
---
apiVersion: v1
kind: Service
metadata: { name: ledger, namespace: bank }
spec: { clusterIP: 10.96.0.13, selector: { app: ledger }, ports: [{ name: tcp, port: 7000 }] }
---
apiVersion: v1
kind: Service
metadata: { name: zipkin, namespace: obs }
spec: { clusterIP: 10.96.0.14, selector: { app: zipkin }, ports: [{ name: http, port: 9411 }] }
---
apiVersion: v1
kind: Pod
metadata: { name: web-1, namespace: shop, labels: { app: web, version: v1 } }
spec: { serviceAccountName: web, containers: [{ name: app }] }
status: { phase: Running, podIP: 10.0.0.1, conditions: [{ type: Ready, status: 'True' }] }
";
