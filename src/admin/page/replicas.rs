//! `/debug/view/replicas`: this replica of the control plane with its connected proxies, and the
//! other replicas.
//!
//! Each replica has information about its own proxies only. The others are known by their pods at
//! the API server.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::proxies::kind_of;
use crate::admin::reply::{self, Parameters};
use crate::admin::state::AdminState;
use navarch_api::kubernetes::{Pod, PodPhase};
use navarch_push::context::PushContext;
use navarch_store::Stored as _;

/// The label of control planes and its value, by which istioctl and the commands of `navarch` find
/// them.
const APP_LABEL: (&str, &str) = ("app", "istiod");
/// The label with the revision of a control plane.
const REVISION_LABEL: &str = "istio.io/rev";
/// Maximum number of other replicas shown.
const MAX_REPLICAS: usize = 50;

/// This replica, and the others.
pub(in crate::admin) async fn replicas(
    State(state): State<AdminState>,
    parameters: Parameters,
) -> Response {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for info in state.connections.list() {
        *kinds.entry(kind_of(&info).to_owned()).or_default() += 1;
    }
    let mut answer = others(&state.push.context(), &state.pod);
    if let Some(answer) = answer.as_object_mut() {
        answer.insert("pod".to_owned(), json!(&*state.pod));
        answer.insert("proxies".to_owned(), json!(kinds.values().sum::<usize>()));
        answer.insert("kinds".to_owned(), json!(kinds));
    }
    reply::json(&parameters, &answer)
}

/// The other replicas by their pods. They are known if this one is among the pods that are read.
fn others(context: &PushContext, own: &str) -> Value {
    let namespace = &context.mesh.settings.system_namespace;
    let is_replica = |pod: &&std::sync::Arc<navarch_api::object::Object<Pod>>| {
        let is_app = pod
            .meta
            .labels
            .get(APP_LABEL.0)
            .is_some_and(|app| **app == *APP_LABEL.1);
        is_app && matches!(pod.spec.phase, PodPhase::Pending | PodPhase::Running)
    };

    let all: Vec<_> = Pod::table(&context.objects)
        .in_namespace(namespace)
        .filter(is_replica)
        .collect();
    let is_known = !own.is_empty() && all.iter().any(|pod| *pod.meta.key.name == *own);
    let others: Vec<_> = all
        .into_iter()
        .filter(|pod| *pod.meta.key.name != *own)
        .collect();
    let rows = others.iter().take(MAX_REPLICAS).map(|pod| {
        json!({
            "pod": &*pod.meta.key.name, "ready": pod.spec.ready,
            "revision": pod.meta.labels.get(REVISION_LABEL).map(|revision| &**revision),
        })
    });

    json!({ "namespace": namespace, "known": is_known, "total": others.len(), "others": rows.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_push::testing::mesh_of;

    #[test]
    fn others_are_the_control_planes_of_the_namespace_that_still_run() {
        let pod = |name: &str, namespace: &str, app: &str, phase: &str| {
            format!(
                "apiVersion: v1\nkind: Pod\n\
                 metadata: {{name: {name}, namespace: {namespace}, labels: {{app: {app}, istio.io/rev: canary}}}}\n\
                 status: {{phase: {phase}, conditions: [{{type: Ready, status: 'True'}}]}}\n"
            )
        };

        let pods = [
            pod("istiod-a", "istio-system", "istiod", "Running"),
            pod("istiod-b", "istio-system", "istiod", "Running"),
            pod("istiod-c", "istio-system", "istiod", "Failed"),
            pod("istiod-d", "shop", "istiod", "Running"),
            pod("gateway", "istio-system", "gateway", "Running"),
        ];
        let mesh_state = mesh_of(&pods.join("---\n"));

        let other = json!({ "pod": "istiod-b", "ready": true, "revision": "canary" });
        let known =
            json!({ "namespace": "istio-system", "known": true, "total": 1, "others": [other] });
        assert_eq!(others(&mesh_state.context(), "istiod-a"), known);
        assert_eq!(others(&mesh_state.context(), "")["known"], false);
        assert_eq!(others(&mesh_state.context(), "")["total"], 2);
    }
}
