//! The order of containers.

use serde_json::Value;

use super::super::names::{CORE_DUMP, INIT, PROXY, VALIDATION};
use super::super::pod::{self, List};

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The first position.
    First,
    /// The last position.
    Last,
}

/// Sorts the containers of a pod.
///
/// The proxy is the last container, so that commands without a container name reach the
/// application, or the first container if the application waits for the proxy. A native sidecar
/// precedes the pod's own init containers, which then use the mesh, and follows the init containers
/// of traffic capture. Otherwise `istio-init` is last, so that init containers reach the network,
/// and `istio-validation` is first, so that no init container runs without capture.
pub(super) fn order(pod: &mut Value, hold: bool) {
    if let Some(containers) = pod::containers_mut(pod, List::Containers) {
        put(containers, PROXY, if hold { End::First } else { End::Last });
    }

    let Some(init) = pod::containers_mut(pod, List::Init) else {
        return;
    };

    if init.is_empty() {
        // Istio's template merges an empty list into pods without capture; Go omits an empty list
        // in the JSON of a Pod.
        pod::member_map(pod::as_map(pod), "spec").remove(List::Init.field());
        return;
    }

    if pod::find(init, PROXY).is_some() {
        for name in [CORE_DUMP, PROXY, VALIDATION, INIT] {
            put(init, name, End::First);
        }
    } else {
        put(init, VALIDATION, End::First);
        put(init, INIT, End::Last);
        put(init, CORE_DUMP, End::Last);
    }
}

/// Moves the container with a name to one end; removes other containers of the same name.
fn put(containers: &mut Vec<Value>, name: &str, end: End) {
    let Some(at) = containers
        .iter()
        .rposition(|container| pod::name(container) == name)
    else {
        return;
    };
    let container = containers.remove(at);
    containers.retain(|other| pod::name(other) != name);
    match end {
        End::First => containers.insert(0, container),
        End::Last => containers.push(container),
    }
}
