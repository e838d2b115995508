//! Decoding of binary events.

use bytes::Bytes;
use prost::Message;
use serde_json::json;

use super::envelope::{RawExtension, wrapped};
use super::*;
use crate::decode::decode_watch_event;

/// Decodes an event, also with the direct decoder, which must return the same if it accepts the
/// event; it does not report errors in unused fields.
fn decode(kind: Kind, frame: &[u8]) -> Result<WatchEvent, BinaryError> {
    let slowly = decode_slowly(kind, frame);
    if let (Some(direct), Ok(slowly)) = (
        direct::event(kind, frame, &mut SharedTexts::default()),
        &slowly,
    ) {
        assert_eq!(direct, *slowly);
    }
    slowly
}

/// Asserts that two events are equal, except that the one decoded from text also keeps the object's
/// own version.
fn assert_say_the_same(one: &WatchEvent, other: &WatchEvent) {
    let (WatchEvent::Put(one), WatchEvent::Put(other)) = (one, other) else {
        panic!("{one:?} {other:?}")
    };
    let (Outcome::Read { object: a, .. }, Outcome::Read { object: b, .. }) =
        (&one.outcome, &other.outcome)
    else {
        panic!("{one:?} {other:?}")
    };
    assert!(
        one.version == other.version && a.same_content(b),
        "{a:?} {b:?}"
    );
}

/// Whether the direct decoder accepts an event.
fn is_direct(kind: Kind, frame: &[u8]) -> bool {
    direct::event(kind, frame, &mut SharedTexts::default()).is_some()
}

/// A watch event in the form of an API server.
fn event(kind: &str, object: &impl Message) -> Vec<u8> {
    let object = Some(RawExtension {
        raw: Bytes::from(wrapped(object)),
    });
    envelope::WatchEvent {
        kind: kind.to_owned(),
        object,
    }
    .encode_to_vec()
}

fn meta() -> Option<metadata::ObjectMeta> {
    Some(metadata::ObjectMeta {
        name: "a".to_owned(),
        namespace: "shop".to_owned(),
        resource_version: "7".to_owned(),
        creation_timestamp: Some(metadata::Time {
            seconds: 1_767_225_600,
        }),
        labels: [("app".to_owned(), "a".to_owned())].into(),
        annotations: [(
            "kubectl.kubernetes.io/last-applied-configuration".to_owned(),
            "{}".to_owned(),
        )]
        .into(),
        owner_references: vec![metadata::OwnerReference {
            kind: "ReplicaSet".to_owned(),
            name: "a-1".to_owned(),
            controller: Some(true),
        }],
        ..Default::default()
    })
}

#[test]
fn a_pod_reads_as_its_text_does() {
    let port = pod::Port {
        name: "http".to_owned(),
        container_port: 8080,
        protocol: "TCP".to_owned(),
    };

    let pod = pod::Pod {
        metadata: meta(),
        spec: Some(pod::Spec {
            containers: vec![pod::Container {
                name: "app".to_owned(),
                ports: vec![port],
                ..Default::default()
            }],
            service_account_name: "a".to_owned(),
            node_name: "node-1".to_owned(),
            ..Default::default()
        }),
        status: Some(pod::Status {
            phase: "Running".to_owned(),
            conditions: vec![pod::Condition {
                kind: "Ready".to_owned(),
                status: "True".to_owned(),
            }],
            pod_ips: vec![pod::Address {
                ip: "10.0.0.1".to_owned(),
            }],
            ..Default::default()
        }),
    };

    let text = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "a", "namespace": "shop", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "a"}, "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a-1", "uid": "u", "controller": true}],
        },
        "spec": {
            "containers": [{"name": "app", "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]}],
            "serviceAccountName": "a", "nodeName": "node-1",
        },
        "status": {
            "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "podIPs": [{"ip": "10.0.0.1"}],
        },
    });

    let text = format!(r#"{{"type": "ADDED", "object": {text}}}"#);
    let by_text =
        decode_watch_event(Kind::Pod, text.as_bytes(), &mut SharedTexts::default()).unwrap();
    assert_say_the_same(&decode(Kind::Pod, &event("ADDED", &pod)).unwrap(), &by_text);
    assert!(is_direct(Kind::Pod, &event("ADDED", &pod)));
    let gone = decode(Kind::Pod, &event("DELETED", &pod)).unwrap();
    let WatchEvent::Gone { name, version } = gone else {
        panic!("the object was deleted: {gone:?}")
    };

    assert_eq!(
        (name.to_string(), version),
        ("shop/a".to_owned(), "7".to_owned())
    );
}

#[test]
fn invalid_watch_events_are_rejected() {
    let contents = [
        &b""[..],
        b"k8s\0\x12",
        b"{}",
        b"k8s\0\x12\xff\xff\xff\xff\x0f",
        b"k8s\0\x08\x01",
    ];

    let frames = contents.map(|content| {
        let object = Some(RawExtension {
            raw: Bytes::copy_from_slice(content),
        });
        envelope::WatchEvent {
            kind: "ADDED".to_owned(),
            object,
        }
        .encode_to_vec()
    });

    for frame in frames.iter().map(Vec::as_slice).chain(contents) {
        assert!(decode(Kind::Pod, frame).is_err(), "{frame:?}");
    }

    let phase = Some(pod::Status {
        phase: "Lost".to_owned(),
        ..Default::default()
    });
    let odd = event(
        "ADDED",
        &pod::Pod {
            metadata: meta(),
            spec: None,
            status: phase,
        },
    );

    let Ok(WatchEvent::Put(odd)) = decode(Kind::Pod, &odd) else {
        panic!("the watch continues")
    };

    assert_eq!(
        (odd.subject.name.as_str(), odd.version.as_str()),
        ("a", "7")
    );
    assert!(matches!(odd.outcome, Outcome::Rejected(error) if error.path == "status.phase"));
    assert!(matches!(
        decode(Kind::Pod, &event("MOVED", &pod::Pod::default())),
        Err(BinaryError::Foreign)
    ));
}

#[test]
fn slices_are_read_directly_as_they_are_slowly() {
    let target = |kind: &str| {
        let namespace = "shop".to_owned();
        let name = "a-1".to_owned();
        Some(endpoint_slice::Target {
            kind: kind.to_owned(),
            namespace,
            name,
        })
    };

    let conditions = endpoint_slice::Conditions {
        ready: Some(true),
        serving: None,
        terminating: Some(false),
    };

    let endpoint = |address: &str, target| endpoint_slice::Endpoint {
        addresses: vec![address.to_owned()],
        conditions: Some(conditions.clone()),
        target,
    };
    let port = |name: &str, port| endpoint_slice::Port {
        name: Some(name.to_owned()),
        port,
    };

    let mut slice = endpoint_slice::EndpointSlice {
        metadata: meta(),
        endpoints: vec![
            endpoint("10.0.0.1", target("Pod")),
            endpoint("fd00::1", target("Node")),
            endpoint("10.0.0.2", None),
        ],
        ports: vec![port("http", Some(8080)), port("", None)],
        address_type: "IPv4".to_owned(),
    };

    slice.metadata.iter_mut().for_each(|meta| {
        meta.labels
            .insert("kubernetes.io/service-name".to_owned(), "a".to_owned());
    });
    let frame = event("MODIFIED", &slice);
    let Ok(WatchEvent::Put(read)) = decode(Kind::EndpointSlice, &frame) else {
        panic!("it is there")
    };

    let Outcome::Read {
        object: AnyObject::EndpointSlice(read),
        ..
    } = read.outcome
    else {
        panic!("it is read")
    };

    assert_eq!(
        read.spec.endpoints[0]
            .pod
            .as_ref()
            .map(ToString::to_string)
            .as_deref(),
        Some("shop/a-1")
    );

    assert_eq!(
        (
            read.spec.endpoints[1].pod.clone(),
            read.spec.service.as_deref()
        ),
        (None, Some("a"))
    );

    assert!(is_direct(Kind::EndpointSlice, &frame));
    slice.endpoints.push(endpoint("nowhere", None));
    let odd = event("MODIFIED", &slice);
    assert!(!is_direct(Kind::EndpointSlice, &odd) && decode(Kind::EndpointSlice, &odd).is_ok());
}

#[test]
fn services_are_read_directly_as_they_are_slowly() {
    let target = |kind, number, name: &str| {
        Some(service::NumberOrName {
            kind,
            number,
            name: name.to_owned(),
        })
    };

    let port = |name: &str, target| service::Port {
        name: name.to_owned(),
        port: 80,
        protocol: "TCP".to_owned(),
        target,
        app_protocol: "http2".to_owned(),
        ..Default::default()
    };

    let spec = service::Spec {
        ports: vec![
            port("a", target(0, 8080, "")),
            port("b", target(1, 0, "http")),
            port("c", target(0, 0, "")),
            service::Port {
                node_port: 30_000,
                app_protocol: String::new(),
                ..port("", None)
            },
        ],
        selector: [
            ("b".to_owned(), "2".to_owned()),
            ("app".to_owned(), "a".to_owned()),
        ]
        .into(),
        kind: "NodePort".to_owned(),
        cluster_ip: "10.0.0.1".to_owned(),
        cluster_ips: vec!["10.0.0.1".to_owned(), "fd00::1".to_owned()],
        ip_families: vec!["IPv4".to_owned(), "IPv6".to_owned()],
        external_ips: vec!["192.0.2.1".to_owned()],
        internal_traffic_policy: "Local".to_owned(),
        traffic_distribution: "PreferClose".to_owned(),
        publish_not_ready_addresses: true,
        ..Default::default()
    };

    let frame = |spec: &service::Spec, status| {
        event(
            "ADDED",
            &service::Service {
                metadata: meta(),
                spec: Some(spec.clone()),
                status,
            },
        )
    };

    let of_name = service::Spec {
        kind: "ExternalName".to_owned(),
        external_name: "b".to_owned(),
        ..Default::default()
    };

    let unbalanced = || {
        Some(service::Status {
            load_balancer: Some(service::Balancer {
                ingress: Vec::new(),
            }),
        })
    };

    for good in [
        frame(&spec, None),
        frame(&spec, unbalanced()),
        frame(&of_name, None),
    ] {
        let Ok(WatchEvent::Put(read)) = decode(Kind::Service, &good) else {
            panic!("it is there")
        };
        assert!(matches!(read.outcome, Outcome::Read { .. }), "{read:?}");
        assert!(is_direct(Kind::Service, &good));
    }

    let ingress = service::Ingress {
        ip: "203.0.113.1".to_owned(),
        ..Default::default()
    };
    let balanced = Some(service::Status {
        load_balancer: Some(service::Balancer {
            ingress: vec![ingress],
        }),
    });

    let odd = service::Spec {
        kind: "Odd".to_owned(),
        ..spec.clone()
    };
    for slow in [frame(&spec, balanced), frame(&odd, None)] {
        assert!(!is_direct(Kind::Service, &slow) && decode(Kind::Service, &slow).is_ok());
    }
}

#[test]
fn no_cut_or_changed_byte_makes_a_difference() {
    let port = pod::Port {
        name: "http".to_owned(),
        container_port: 8080,
        protocol: "TCP".to_owned(),
    };

    let container = pod::Container {
        ports: vec![port],
        restart_policy: "Always".to_owned(),
        ..Default::default()
    };

    let pod = pod::Pod {
        metadata: meta(),
        spec: Some(pod::Spec {
            containers: vec![container.clone()],
            init_containers: vec![container],
            subdomain: "sub".to_owned(),
            hostname: "host".to_owned(),
            service_account: "old".to_owned(),
            ..Default::default()
        }),
        status: Some(pod::Status {
            pod_ip: "10.0.0.1".to_owned(),
            phase: "Running".to_owned(),
            ..Default::default()
        }),
    };

    let frame = event("ADDED", &pod);
    assert!(is_direct(Kind::Pod, &frame));

    for at in 0..frame.len() {
        _ = decode(Kind::Pod, &frame[..at]);
        for change in [0x01, 0x02, 0x08, 0x80] {
            let mut changed = frame.clone();
            changed[at] ^= change;
            _ = decode(Kind::Pod, &changed);
        }
    }
}

#[test]
fn a_node_reads_as_its_text_does() {
    let address = |kind: &str, address: &str| node::Address {
        kind: kind.to_owned(),
        address: address.to_owned(),
    };
    let node = node::Node {
        metadata: meta(),
        status: Some(node::Status {
            addresses: vec![address("InternalIP", "10.0.0.1"), address("Hostname", "n")],
            node_info: Some(node::SystemInfo {
                kubelet_version: "v1.36.3".to_owned(),
            }),
        }),
    };

    let text = json!({"type": "ADDED", "object": {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "a", "namespace": "shop", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "a"}, "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a-1", "uid": "u", "controller": true}],
        },
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n"}],
            "nodeInfo": {"kubeletVersion": "v1.36.3"},
        },
    }})

    .to_string();
    let by_text =
        decode_watch_event(Kind::Node, text.as_bytes(), &mut SharedTexts::default()).unwrap();
    let (WatchEvent::Put(by_text), WatchEvent::Put(binary)) =
        (by_text, decode(Kind::Node, &event("ADDED", &node)).unwrap())
    else {
        panic!("it is there");
    };

    let spec = |outcome| {
        let Outcome::Read {
            object: AnyObject::Node(read),
            ..
        } = outcome
        else {
            panic!("it is read")
        };
        read.spec.clone()
    };

    let binary = spec(binary.outcome);
    let by_text = spec(by_text.outcome);
    assert_eq!(binary, by_text);
    assert_eq!(
        (binary.addresses.len(), &*binary.kubelet_version),
        (2, "v1.36.3")
    );
}
