//! An Event of the control plane's pod explains why it is not ready.

use std::sync::Arc;

use navarch::status::UnreadyEvents;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{Deployed, NAMESPACE, until};

/// A pod of a control plane.
const POD: &str = "istiod-unready";

pub(crate) async fn an_unready_control_plane_writes_an_event_of_its_pod(deployed: &Deployed) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": POD, "namespace": NAMESPACE },
        "spec": {
            "serviceAccountName": "istiod", "automountServiceAccountToken": false,
            "containers": [{ "name": "discovery", "image": "navarch" }],
        },
    });

    deployed.cluster.apply(&pod.to_string()).unwrap();
    let missing = Arc::new(|| Some("the mesh config has no line 3".to_owned()));
    let cluster = deployed.as_navarch().await;
    let events = UnreadyEvents {
        cluster,
        namespace: NAMESPACE.to_owned(),
        pod: POD.to_owned(),
        missing,
    };

    let stop = CancellationToken::new();
    let task = tokio::spawn(events.run(stop.clone()));
    let described = || {
        deployed
            .cluster
            .kubectl(&["--namespace", NAMESPACE, "describe", "pod", POD], "")
            .unwrap()
    };

    until("the pod has the Event", async || {
        described().contains("NotReady")
    })
    .await;
    let description = described();
    assert!(
        description.contains("Warning") && description.contains("the mesh config has no line 3"),
        "{description}"
    );
    stop.cancel();
    task.await.unwrap();

    deployed
        .cluster
        .kubectl(
            &["--namespace", NAMESPACE, "delete", "pod", POD, "--force"],
            "",
        )
        .unwrap();
}
