//! Every object in the project's test data survives encoding and decoding.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::*;
use crate::decode::{Format, Outcome, decode_documents, decode_value};

/// All YAML files below a directory.
fn yaml_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            yaml_files(&path, found);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            found.push(path);
        }
    }
}

fn is_read_back(object: &AnyObject) {
    let written = encode_value(object).unwrap();
    // Through text, as it is stored.
    let read = serde_json::from_str(&written.to_string()).unwrap();
    match decode_value(&read).1 {
        Outcome::Read { object: read, .. } => assert_eq!(read, *object, "{written}"),
        other @ (Outcome::Ignored | Outcome::Rejected(_)) => panic!("{other:?}: {written}"),
    }
}

#[test]
fn encoded_objects_decode_to_the_same() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for directory in ["tests", "deploy/samples"] {
        yaml_files(&root.join(directory), &mut files);
    }

    let mut count = 0;
    let mut kinds = BTreeSet::new();

    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else {
            continue;
        };
        for decoded in decode_documents(&text, Format::Yaml) {
            if let Outcome::Read { object, .. } = decoded.outcome {
                kinds.insert(object.kind());
                is_read_back(&object);
                count += 1;
            }
        }
    }

    assert!(count > 1000, "{count} objects");
    let missing: BTreeSet<Kind> = Kind::ALL
        .into_iter()
        .filter(|kind| !kinds.contains(kind))
        .collect();
    let in_no_file = [
        Kind::WorkloadGroup,
        Kind::TcpRoute,
        Kind::XBackendTrafficPolicy,
        Kind::XBackend,
    ];
    assert_eq!(missing, BTreeSet::from(in_no_file));
}

#[test]
fn fields_written_by_controllers_are_encoded() {
    let texts = [
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-1","namespace":"shop","generateName":"web-","generation":7,
            "creationTimestamp":"2026-01-02T03:04:05Z","uid":"6f1b3c1e-0d1c-4c7b-9b5e-3f7f6a2d9e10","resourceVersion":"12",
            "deletionTimestamp":"2026-02-02T03:04:05Z","labels":{"a":"b"},"annotations":{"c":"d"},
            "ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"u","controller":true}]},
            "spec":{"nodeName":"n","hostNetwork":true,"serviceAccountName":"web","hostname":"h","subdomain":"s",
            "containers":[{"name":"c","ports":[{"name":"http","containerPort":80},{"containerPort":53,"protocol":"UDP"}]}]},
            "status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}],"podIPs":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}]}}"#,
        r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"},"status":{"nodeInfo":{"kubeletVersion":"v1.33.1"},
            "addresses":[{"type":"InternalIP","address":"10.0.0.1"},{"type":"ExternalDNS","address":"x.example"}]}}"#,
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"a":"b"},"binaryData":{"c":"//79"}}"#,
        r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"type":"kubernetes.io/tls","data":{"tls.key":"//79"}}"#,
        r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"s"},"imagePullSecrets":[{"name":"a"}],"secrets":[{"name":"b"}]}"#,
        r#"{"apiVersion":"networking.k8s.io/v1","kind":"IngressClass","metadata":{"name":"i"},"spec":{"controller":"istio.io/ingress-controller"}}"#,
        r#"{"apiVersion":"networking.istio.io/v1","kind":"WorkloadEntry","metadata":{"name":"w"},"spec":{"address":"1.2.3.4"},
            "status":{"conditions":[{"type":"Healthy","status":"True"}]}}"#,
        r#"{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"w"},"spec":{"hosts":["a.example"]},
            "status":{"addresses":[{"host":"a.example","value":"240.240.0.1"}]}}"#,
        r#"{"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway","metadata":{"name":"g"},"spec":{"gatewayClassName":"istio"},
            "status":{"addresses":[{"type":"Hostname","value":"a.example"}],"conditions":[{"type":"Programmed","status":"True"}]}}"#,
        r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"type":"LoadBalancer","clusterIP":"10.1.0.1",
            "ipFamilies":["IPv4","IPv6"],"externalTrafficPolicy":"Local","trafficDistribution":"PreferClose","sessionAffinity":"ClientIP",
            "externalIPs":["203.0.113.9"],"ports":[{"port":80,"targetPort":"http","nodePort":30080,"appProtocol":"h2c"}]},
            "status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.1","ports":[{"port":80,"protocol":"TCP","error":"e"}]},{"hostname":"a"}]}}}"#,
    ];

    for text in texts {
        match decode_value(&serde_json::from_str(text).unwrap()).1 {
            Outcome::Read { object, .. } => is_read_back(&object),
            other @ (Outcome::Ignored | Outcome::Rejected(_)) => panic!("{other:?}: {text}"),
        }
    }
}
