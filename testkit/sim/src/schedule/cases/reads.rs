//! What the control plane reads, and to whom it shows it.

use std::time::Duration;

use super::{ANCHOR, Version, at, create, put, stop, virtual_service};
use crate::api_server::Fault;
use crate::link::Condition;
use crate::schedule::{Action, Schedule};
use crate::world::{Edit, ObjectKey, Slot};

/// A user deletes an object while the API server is out of reach, and the history is gone: only a
/// new list tells it.
pub(super) fn deletion_while_away() -> Schedule {
    let cut = Action::Link {
        replica: 0,
        condition: Condition::Cut,
        // The history is compacted.
        lasts: Duration::from_secs(10),
    };
    let delete = Edit::Delete(ObjectKey {
        slot: Slot::VirtualService,
        number: 0,
    });

    Schedule {
        replicas: 1,
        events: vec![
            at(20, virtual_service(0, ANCHOR, Version::Plain)),
            at(40, cut),
            at(43, Action::Edit(delete)),
            at(80, create(Slot::Namespace, 0)),
        ],
    }
}

/// Lists break off when a replica starts. Objects that come first in them are the newest, so that a
/// watch from their versions does not report the others.
pub(super) fn lists_break_off() -> Schedule {
    /// The first two names in each namespace, in the reverse order of lists: the namespaces of these
    /// numbers are shop, bank and edge.
    const NUMBERS: [u64; 6] = [3, 0, 5, 2, 4, 1];
    const KINDS: [Slot; 5] = [
        Slot::Service,
        Slot::Endpoints,
        Slot::DestinationRule,
        Slot::AuthorizationPolicy,
        Slot::PeerAuthentication,
    ];

    let breaks = Fault::BreakLists {
        lasts: Duration::from_secs(10),
    };
    let mut events = vec![
        at(60, stop(0, 1)),
        at(60, Action::Api(breaks)),
        at(80, create(Slot::Namespace, 0)),
    ];
    for (seconds, number) in (20..).zip(NUMBERS) {
        for slot in KINDS {
            let object = ObjectKey { slot, number };
            let content = number;
            events.push(at(seconds, Action::Edit(Edit::Put { object, content })));
        }
    }
    Schedule::of(1, events)
}

/// A user edits the labels of a pod alone, which is no new generation.
pub(super) fn labels_edited() -> Schedule {
    let pod = |tls_mode: &'static str| {
        put(Slot::Pod, 0, move |object| {
            let text = object.to_string();
            text.contains(&format!(r#""security.istio.io/tlsMode":"{tls_mode}""#))
                && text.contains(r#""serviceAccountName":"default""#)
                && text.contains(r#""status":"True""#)
        })
    };
    let endpoints = put(Slot::Endpoints, 0, |object| {
        object.to_string().contains(r#""name":"pod-0""#)
    });
    let service = put(Slot::Service, 0, |object| {
        let text = object.to_string();
        !text.contains("exportTo") && !text.contains("None")
    });

    Schedule {
        replicas: 1,
        events: vec![
            at(20, service),
            at(21, pod("disabled")),
            at(22, endpoints),
            at(40, pod("istio")),
            at(60, create(Slot::Namespace, 0)),
        ],
    }
}

/// A namespace has a DestinationRule of its own for a service that all see.
pub(super) fn private_rule() -> Schedule {
    let service = put(Slot::Service, 1, |object| {
        !object.to_string().contains("exportTo")
    });
    let rule = put(Slot::DestinationRule, 1, |object| {
        object.to_string().contains(r#""exportTo":["."]"#)
    });
    Schedule {
        replicas: 1,
        events: vec![
            at(20, service),
            at(30, rule),
            at(40, create(Slot::Namespace, 0)),
        ],
    }
}
