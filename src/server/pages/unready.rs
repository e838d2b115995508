//! Reports the reasons of `/ready` as an Event of the pod.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::admin::{self, AdminState};
use crate::server::{Config, Tasks, spawn};
use navarch_status::{Cluster, UnreadyEvents};

/// Writes an Event about missing readiness to this process' own pod, if the pod is known.
pub(in crate::server) fn report_unready(
    config: &Config,
    client: Option<&kube::Client>,
    state: &AdminState,
    stop: &CancellationToken,
    tasks: &mut Tasks,
) {
    let Some(client) = client.filter(|_| !config.pod.is_empty()) else {
        return;
    };
    let state = state.clone();
    let events = UnreadyEvents {
        cluster: Cluster(client.clone()),
        namespace: config.settings.system_namespace.as_str().to_owned(),
        pod: config.pod.to_string(),
        missing: Arc::new(move || admin::missing(&state)),
    };
    let work = events.run(stop.clone());
    spawn("readiness events", tasks, async move {
        work.await;
        Ok(())
    });
}
