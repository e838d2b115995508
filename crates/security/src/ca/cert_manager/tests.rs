//! Verdicts, issuers, what is created and what is deleted.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use jiff::SignedDuration;
use navarch_api::identity::Identity;
use rcgen::{CertificateParams, DistinguishedName, KeyPair, SanType};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::super::registration::held_server::HeldServer;
use super::super::registration::objects::DELETE_TIMEOUT;
use super::memory::{MAX_AGE, MAX_OBJECTS};
use super::*;

const WEB: &str = "spiffe://cluster.local/ns/shop/sa/web";

fn verdict(status: Value) -> Verdict {
    let object = json!({
        "apiVersion": "cert-manager.io/v1",
        "kind": "CertificateRequest",
        "metadata": {"name": "navarch-1"},
        "status": status,
    });
    Verdict::of(&serde_json::from_value(object).unwrap())
}

#[test]
fn a_denial_counts_before_a_certificate() {
    let certificate = STANDARD.encode("PEM");
    let ready = json!({"type": "Ready", "status": "True", "reason": "Issued"});
    let denied = json!({"type": "Denied", "status": "True", "reason": "policy.cert-manager.io", "message": "no"});
    let failed =
        json!({"type": "Ready", "status": "False", "reason": "Failed", "message": "no key"});
    let pending = json!({"type": "Ready", "status": "False", "reason": "Pending"});

    assert_eq!(verdict(json!({})), Verdict::Pending);
    assert_eq!(
        verdict(json!({"conditions": [pending], "certificate": certificate})),
        Verdict::Pending
    );
    assert_eq!(
        verdict(json!({"conditions": [ready], "certificate": certificate})),
        Verdict::Signed("PEM".to_owned())
    );
    assert_eq!(
        verdict(json!({"conditions": [ready, denied], "certificate": certificate})),
        Verdict::Denied("policy.cert-manager.io: no".to_owned())
    );
    assert_eq!(
        verdict(json!({"conditions": [failed]})),
        Verdict::Failed("Failed: no key".to_owned())
    );
}

#[test]
fn an_issuer_has_a_kind_and_a_name() {
    let parsed: IssuerReference = "ClusterIssuer/mesh".parse().unwrap();
    assert_eq!(
        (&*parsed.kind, &*parsed.group, &*parsed.name),
        ("ClusterIssuer", "cert-manager.io", "mesh")
    );
    let parsed: IssuerReference = "AWSPCAIssuer.awspca.cert-manager.io/mesh".parse().unwrap();
    assert_eq!(
        (&*parsed.kind, &*parsed.group),
        ("AWSPCAIssuer", "awspca.cert-manager.io")
    );
    for wrong in ["", "mesh", "/mesh", "Issuer/", "Issuer/../x", "Issuer./x"] {
        assert!(wrong.parse::<IssuerReference>().is_err(), "{wrong}");
    }
}

/// An object at an age, in minutes.
fn object(name: &str, age: i64) -> DynamicObject {
    let created = now() - SignedDuration::from_mins(age);
    let object = json!({
        "apiVersion": "cert-manager.io/v1",
        "kind": "CertificateRequest",
        "metadata": {"name": name, "creationTimestamp": created.to_string()},
    });
    serde_json::from_value(object).unwrap()
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn clock() -> SystemTime {
    now().into()
}

#[test]
fn old_and_left_objects_are_due_unless_someone_waits() {
    let memory = Memory::default();
    let _verdict = memory.wait_for("navarch-awaited");
    for (name, age) in [
        ("navarch-awaited", 11),
        ("navarch-old", 11),
        ("navarch-young", 9),
        ("navarch-left", 0),
        ("other-old", 11),
    ] {
        memory.see(&object(name, age));
    }
    memory.leave("navarch-left", now());
    memory.leave("navarch-unseen", now());
    let left = ["navarch-left", "navarch-unseen"];
    assert_eq!(
        memory.due(now()),
        ["navarch-left", "navarch-old", "navarch-unseen"]
    );

    // An object whose caller has gone is remembered since its creation.
    memory.give_up("navarch-awaited");
    assert_eq!(memory.due(now()).len(), 4);

    memory.forget("navarch-old");
    memory.forget("navarch-awaited");
    memory.see(&object("navarch-left", 0));
    assert_eq!(memory.due(now()), left);

    memory.begin_list();
    assert_eq!(memory.due(now() + 2 * MAX_AGE), left);
}

#[test]
fn only_own_objects_fill_the_memory_and_all_are_found_in_the_end() {
    let memory = Memory::default();
    for number in 0..=MAX_OBJECTS {
        memory.see(&object(&format!("other-{number}"), 11));
    }
    assert!(!memory.is_full() && !memory.needs_list());

    for number in 0..=MAX_OBJECTS {
        memory.see(&object(&format!("navarch-{number}"), 11));
    }
    assert!(memory.is_full() && !memory.needs_list());

    let due = memory.due(now());
    assert_eq!(due.len(), MAX_OBJECTS);
    due.iter().for_each(|name| memory.forget(name));
    assert!(!memory.is_full() && memory.needs_list());
    memory.begin_list();
    assert!(!memory.needs_list());
}

/// A client of an API server. Its watch does not run.
fn manager(server: &HeldServer) -> CertManager {
    let config = CertManagerConfig {
        namespace: None,
        issuer: "ClusterIssuer/mesh".parse().unwrap(),
    };
    let client = kube::Client::new(server.clone(), "default");
    let (_sender, roots) = watch::channel(Arc::from(""));
    let namespace = Namespace::new("istio-system");
    CertManager::start(client, config, &namespace, roots, 8, clock).0
}

/// A request with these names that names a signer.
fn request(names: &[&str], signer: &str) -> CheckedRequest {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let uri = |name: &&str| SanType::URI((*name).try_into().unwrap());
    params.subject_alt_names = names.iter().map(uri).collect();
    let csr = params.serialize_request(&KeyPair::generate().unwrap());
    let pem = csr.unwrap().pem().unwrap();
    let hour = Duration::from_secs(3600);
    CheckedRequest::new(&pem, Identity::parse(WEB).unwrap(), hour, signer).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_object_is_deleted_whenever_the_caller_gives_up() {
    let server = HeldServer::new();
    let manager = manager(&server);
    let request = request(&[WEB], "");

    // While it is created.
    tokio::select! {
        signed = manager.sign(&request) => panic!("{signed:?}"),
        () = server.until_called("POST", 1) => {}
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.called("DELETE"), [""; 0]);
    server.creations.add_permits(1);
    server.until_called("DELETE", 1).await;
    assert_eq!(server.called("DELETE"), [server.name()]);
    assert_eq!(manager.memory.due(now()), [""; 0]);

    // While it is signed. A failed deletion is left to the sweep.
    server.creations.add_permits(1);
    server.deletions.lock().push_back(500);
    tokio::select! {
        signed = manager.sign(&request) => panic!("{signed:?}"),
        () = tokio::time::sleep(Duration::from_secs(30)) => {}
    }
    server.until_called("DELETE", 2).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(manager.memory.due(now()), [server.name()]);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_creation_is_left_to_the_sweep() {
    let server = HeldServer::new();
    let manager = manager(&server);
    server.deletions.lock().push_back(404);

    let error = manager.sign(&request(&[WEB], "")).await.unwrap_err();
    assert!(matches!(error, SignerError::Unavailable(_)), "{error}");
    server.until_called("DELETE", 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(manager.memory.due(now()), [server.name()]);
}

#[tokio::test(start_paused = true)]
async fn a_sweep_deletes_several_at_once_and_tries_again() {
    let server = HeldServer::new();
    let manager = manager(&server);
    for number in 0..40 {
        manager
            .memory
            .see(&object(&format!("navarch-{number}"), 11));
    }

    // One is not answered, one fails, one is missing.
    server.deletions.lock().extend([0, 500, 404]);
    let list = Notify::new();
    let sweep = sweep::sweep(&manager.objects, &manager.memory, &list, clock);
    let begun = Instant::now();
    tokio::select! {
        () = sweep => unreachable!("it does not return"),
        () = server.until_called("DELETE", 40) => {}
    }
    assert!(begun.elapsed() < DELETE_TIMEOUT, "{:?}", begun.elapsed());

    let before = manager.memory.due(now()).len();
    assert_eq!(before, 39, "the missing one is forgotten");
    let names = server.called("DELETE");
    names[2..]
        .iter()
        .for_each(|name| manager.memory.forget(name));
    let sweep = sweep::sweep(&manager.objects, &manager.memory, &list, clock);
    tokio::select! {
        () = sweep => unreachable!("it does not return"),
        () = server.until_called("DELETE", 42) => {}
    }
    assert_eq!(
        BTreeSet::from_iter(&server.called("DELETE")[40..]),
        BTreeSet::from_iter(&names[..2])
    );
}

#[tokio::test]
async fn a_named_signer_and_a_request_without_names_are_rejected() {
    let server = HeldServer::new();
    let manager = manager(&server);

    for (names, signer, part) in [
        (
            &[WEB][..],
            "blue\n",
            "the signer \"blue\\n\" cannot be used",
        ),
        (&[], "", "no subject alternative name"),
    ] {
        let error = manager.sign(&request(names, signer)).await.unwrap_err();
        assert!(matches!(error, SignerError::Request(_)), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(server.called("POST"), [""; 0]);
}
