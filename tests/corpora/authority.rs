//! The CA's Secrets, and the directory of `--state-dir`.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::Secret;
use navarch::api::kubernetes::SecretBytes;
use navarch::security::ca::Bundle;
use navarch::security::ca::root_store::{
    PLUGGED_IN, RootStore, SELF_SIGNED, StoredRoots, secret_of,
};
use navarch::security::ca::rotation::{Origin, Phase, RootSet, RotationRules};
use serde_json::Value;

use crate::state::{committed, is_written_as, path};

const RULES: RotationRules = RotationRules {
    overlap: Duration::from_hours(1),
    longest: Duration::from_hours(24),
    renewed_at: None,
};

/// When the certificates in the files begin, 2026-11-23T10:00:00Z, and this many hours later.
fn time(hours: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_428_000) + Duration::from_hours(hours)
}

/// A Secret in a file.
fn secret(name: &str) -> Secret {
    serde_json::from_value(committed(name)).unwrap()
}

/// The texts in a Secret.
fn texts(secret: &Secret) -> BTreeMap<String, String> {
    let data = secret.data.clone().unwrap();
    data.into_iter()
        .map(|(name, bytes)| (name, String::from_utf8(bytes.0).unwrap()))
        .collect()
}

/// A self-signed CA.
fn bundle(certificate: &str, key: &str) -> Bundle {
    Bundle {
        certificate: certificate.to_owned(),
        key: SecretBytes::new(key.to_owned()),
        chain: String::new(),
        roots: certificate.to_owned(),
        revocations: String::new(),
    }
}

/// The CA of `istio-ca-secret`.
fn own_ca() -> Bundle {
    let texts = texts(&secret("ca-secret.istio.json"));
    bundle(&texts["ca-cert.pem"], &texts["ca-key.pem"])
}

#[test]
fn the_secret_of_a_self_signed_ca_has_the_layout_of_istio() {
    let set = RootSet::single(own_ca(), Origin::SelfSigned);
    let name = "ca-secret.istio.json";

    let written = secret_of(SELF_SIGNED, &set).unwrap();
    assert_eq!(serde_json::to_value(written).unwrap(), committed(name));

    let read = StoredRoots::from_secret(secret(name)).unwrap().unwrap();
    assert_eq!(read.set, set);
    read.set.authority(time(1)).unwrap();
}

#[test]
fn the_secret_of_a_rotation_is_read_and_written() {
    let name = "ca-rotation-secret.1.json";
    let texts = texts(&secret(name));
    let signer = bundle(&texts["ca-cert.pem"], &texts["ca-key.pem"]);
    let next = bundle(&texts["next-ca-cert.pem"], &texts["next-ca-key.pem"]);
    let begin = |set: &RootSet, bundle, hours| {
        let begun = set.begin(bundle, Origin::PluggedIn, &RULES, time(hours));
        begun.unwrap().unwrap()
    };

    let first = RootSet::single(own_ca(), Origin::PluggedIn);
    let switched = begin(&first, signer, 0).switch(&RULES, time(1));
    let set = begin(&switched.unwrap().unwrap(), next, 2);

    let written = secret_of(PLUGGED_IN, &set).unwrap();
    is_written_as(name, &serde_json::to_value(written).unwrap());

    let read = StoredRoots::from_secret(secret(name)).unwrap().unwrap();
    assert_eq!(read.set, set);
    assert_eq!(read.set.phase(), Phase::Distributing);
    read.set.authority(time(3)).unwrap();
}

#[test]
fn the_report_of_a_replica_is_an_annotation_of_the_secret() {
    let report = fs::read_to_string(path("ca-replica-report.1.json")).unwrap();
    let mut secret = secret("ca-rotation-secret.1.json");
    secret.metadata.annotations =
        Some([("replica.navarch.io/istiod-1".to_owned(), report.clone())].into());

    let read = StoredRoots::from_secret(secret).unwrap().unwrap();
    assert_eq!(
        read.reports,
        BTreeMap::from([("istiod-1".to_owned(), report)])
    );
}

#[tokio::test]
async fn the_state_directory_is_read_and_written() {
    let set = RootSet::single(own_ca(), Origin::SelfSigned);
    let name = "ca-state-dir.1.json";

    let folder = tempfile::tempdir().unwrap();
    let store = RootStore::Folder(folder.path().to_owned());
    store.save(&set, None).await.unwrap();
    let written = fs::read_to_string(folder.path().join("state.json")).unwrap();
    is_written_as(name, &serde_json::from_str::<Value>(&written).unwrap());

    let folder = tempfile::tempdir().unwrap();
    fs::copy(path(name), folder.path().join("state.json")).unwrap();
    let read = RootStore::Folder(folder.path().to_owned()).load().await;
    assert_eq!(read.unwrap().unwrap().set, set);
}
