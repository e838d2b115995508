//! The order of containers.

use serde_json::Value;

use super::super::names::{CORE_DUMP, INIT, PROXY, VALIDATION};
use super::super::pod::{self, List};

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The first place.
    First,
    /// The last place.
    Last,
}

/// Puts the containers of a pod in order.
///
/// A proxy among the containers comes last, so that commands which name no container reach the application, or first where
/// the application waits for it. A native sidecar comes before the pod's own init containers, so that these are in the mesh,
/// and behind what prepares it. Otherwise capture is set up last, so that init containers reach the network, and checked
/// first, so that none runs without it.
pub(super) fn order(pod: &mut Value, hold: bool) {
    if let Some(containers) = pod::containers_mut(pod, List::Containers) {
        put(containers, PROXY, if hold { End::First } else { End::Last });
    }
    let Some(init) = pod::containers_mut(pod, List::Init) else { return };
    if init.is_empty() {
        // Istio's template lays an empty list over a pod whose traffic is not captured; a Pod of Go leaves it out.
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

/// Puts the container of a name at an end; others of the same name go.
fn put(containers: &mut Vec<Value>, name: &str, end: End) {
    let Some(at) = containers.iter().rposition(|container| pod::name(container) == name) else { return };
    let container = containers.remove(at);
    containers.retain(|other| pod::name(other) != name);
    match end {
        End::First => containers.insert(0, container),
        End::Last => containers.push(container),
    }
}
