//! Reports the reasons of `/ready` as an Event of the pod.

use std::sync::Arc;

use crate::admin::{self, AdminState};
use crate::server::Config;
use crate::server::boot::Boot;
use navarch_status::{Cluster, UnreadyEvents};

/// Writes an Event about missing readiness to this process' own pod, if the pod is known.
pub(super) fn report_unready(
    config: &Config,
    client: Option<&kube::Client>,
    state: &AdminState,
    boot: &mut Boot,
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
    boot.spawn("readiness events", events.run(boot.stop.clone()));
}
