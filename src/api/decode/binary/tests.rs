//! What is read of messages.

use bytes::Bytes;
use prost::Message;
use serde_json::json;

use super::envelope::{RawExtension, wrapped};
use super::*;
use crate::api::decode::decode_watch_event;

/// An event of a watch as a server sends it.
fn event(kind: &str, object: &impl Message) -> Vec<u8> {
    let object = Some(RawExtension { raw: Bytes::from(wrapped(object)) });
    envelope::WatchEvent { kind: kind.to_owned(), object }.encode_to_vec()
}

/// The metadata of an object.
fn meta() -> Option<metadata::ObjectMeta> {
    Some(metadata::ObjectMeta {
        name: "a".to_owned(),
        namespace: "shop".to_owned(),
        resource_version: "7".to_owned(),
        creation_timestamp: Some(metadata::Time { seconds: 1_767_225_600 }),
        labels: [("app".to_owned(), "a".to_owned())].into(),
        annotations: [("kubectl.kubernetes.io/last-applied-configuration".to_owned(), "{}".to_owned())].into(),
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
    let port = pod::Port { name: "http".to_owned(), container_port: 8080, protocol: "TCP".to_owned() };
    let pod = pod::Pod {
        metadata: meta(),
        spec: Some(pod::Spec {
            containers: vec![pod::Container { name: "app".to_owned(), ports: vec![port], ..Default::default() }],
            service_account_name: "a".to_owned(),
            node_name: "node-1".to_owned(),
            ..Default::default()
        }),
        status: Some(pod::Status {
            phase: "Running".to_owned(),
            conditions: vec![pod::Condition { kind: "Ready".to_owned(), status: "True".to_owned() }],
            pod_ips: vec![pod::Address { ip: "10.0.0.1".to_owned() }],
            ..Default::default()
        }),
    };
    let text = json!({
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
    let by_text = decode_watch_event(Kind::Pod, text.as_bytes()).unwrap();
    assert_eq!(decode_binary_event(Kind::Pod, &event("ADDED", &pod)).unwrap(), by_text);
    let gone = decode_binary_event(Kind::Pod, &event("DELETED", &pod)).unwrap();
    let WatchEvent::Gone { name, version } = gone else { panic!("it is gone: {gone:?}") };
    assert_eq!((name.to_string(), version), ("shop/a".to_owned(), "7".to_owned()));
}

#[test]
fn what_is_no_event_is_refused() {
    let contents = [&b""[..], b"k8s\0\x12", b"{}", b"k8s\0\x12\xff\xff\xff\xff\x0f", b"k8s\0\x08\x01"];
    let frames = contents.map(|content| {
        let object = Some(RawExtension { raw: Bytes::copy_from_slice(content) });
        envelope::WatchEvent { kind: "ADDED".to_owned(), object }.encode_to_vec()
    });
    for frame in frames.iter().map(Vec::as_slice).chain(contents) {
        assert!(decode_binary_event(Kind::Pod, frame).is_err(), "{frame:?}");
    }
    let phase = Some(pod::Status { phase: "Lost".to_owned(), ..Default::default() });
    let odd = event("ADDED", &pod::Pod { metadata: meta(), spec: None, status: phase });
    let Ok(WatchEvent::Put(odd)) = decode_binary_event(Kind::Pod, &odd) else { panic!("the watch goes on") };
    assert_eq!((odd.subject.name.as_str(), odd.version.as_str()), ("a", "7"));
    assert!(matches!(odd.outcome, Outcome::Rejected(error) if error.path == "status.phase"));
    assert!(matches!(decode_binary_event(Kind::Pod, &event("MOVED", &pod::Pod::default())), Err(BinaryError::Foreign)));
}
