//! A mesh from a directory: recorded, edited, replayed; and corrupt records.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tempfile::TempDir;

use crate::proxy::Reaction;
use crate::{
    bookshop, command_output, edit, record_contains, replayed, segments, sidecars, start, text,
};

/// Adds a Secret with a certificate, its key and a password, as kubectl stores it, and a Gateway
/// with the certificate. Returns the texts that must not be recorded.
fn add_secret(folder: &Path) -> Vec<String> {
    let pair = rcgen::generate_simple_self_signed(vec!["shop.example".to_owned()]).unwrap();
    let chain = pair.cert.pem();
    let key = pair.signing_key.serialize_pem();
    let [chain, key_data] = [&chain, &key].map(|text| BASE64_STANDARD.encode(text));
    let secret = serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": { "name": "shop-tls", "namespace": "bookshop", "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": format!("{{\"data\":{{\"tls.key\":\"{key_data}\"}}}}"),
            "note": "the password is hunter2hunter2",
        } },
        "data": { "tls.crt": chain, "tls.key": key_data, "alice-password": BASE64_STANDARD.encode("hunter2hunter2") },
    });

    let gateway = serde_json::json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": { "name": "secure", "namespace": "bookshop" },
        "spec": { "gatewayClassName": "istio", "listeners": [{
            "name": "https", "port": 18443, "protocol": "HTTPS",
            "tls": { "certificateRefs": [{ "name": "shop-tls" }] },
        }] },
    });

    std::fs::write(folder.join("secret.json"), secret.to_string()).unwrap();
    std::fs::write(folder.join("secure-gateway.json"), gateway.to_string()).unwrap();
    let lines = key
        .lines()
        .filter(|line| !line.starts_with('-'))
        .map(str::to_owned);
    let others = [
        key_data.clone(),
        "hunter2".to_owned(),
        BASE64_STANDARD.encode("hunter2hunter2"),
        "PRIVATE KEY".to_owned(),
        "alice-password".to_owned(),
    ];

    lines.chain(others).collect()
}

/// Adds a RequestAuthentication whose JWKS has a symmetric key, which it returns.
fn add_symmetric_key(folder: &Path) -> String {
    let key = BASE64_STANDARD.encode("hunter3hunter3");
    let jwks = serde_json::json!({ "keys": [{ "kty": "oct", "kid": "a", "k": key }] });
    let object = serde_json::json!({
        "apiVersion": "security.istio.io/v1", "kind": "RequestAuthentication",
        "metadata": { "name": "tokens", "namespace": "bookshop" },
        "spec": { "jwtRules": [{ "issuer": "shop.example", "jwks": jwks.to_string() }] },
    });
    std::fs::write(folder.join("tokens.json"), object.to_string()).unwrap();
    key
}

/// A record of a mesh with edits, and the values that it must not contain.
async fn recorded() -> (TempDir, Vec<String>) {
    let folder = bookshop();
    let record = tempfile::tempdir().unwrap();
    let hidden = add_secret(folder.path());
    let navarch = start(folder.path(), record.path(), &[]).await;
    let rejects = Reaction::Reject("v2|reviews", "no such weight");
    let mut proxies = sidecars(
        &navarch,
        &[
            Reaction::Accept,
            Reaction::Accept,
            Reaction::Accept,
            rejects,
        ],
    )
    .await;
    record_contains(record.path(), "{\"took\":", 4).await;

    for weight in [70, 60, 50] {
        let before = text(record.path()).matches("{\"push\":").count();
        edit(folder.path(), weight, 10);
        record_contains(record.path(), "{\"push\":", before + 1).await;
    }

    proxies.remove(0);
    record_contains(record.path(), "{\"gone\":", 1).await;
    let before = text(record.path()).matches("{\"removed\":").count();
    std::fs::remove_file(folder.path().join("payments.yaml")).unwrap();
    record_contains(record.path(), "{\"removed\":", before + 1).await;
    assert!(navarch.stop().await.unwrap());

    (record, hidden)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_mesh_of_a_directory_is_replayed_identically() {
    let (record, hidden) = recorded().await;
    let written = text(record.path());
    for hidden in &hidden {
        assert!(!written.contains(hidden.as_str()), "{hidden}");
    }

    assert!(
        written.contains("shop-tls"),
        "the Secret itself is recorded"
    );
    let (all, code) = replayed(record.path());
    assert_eq!((code, &all["same"]), (0, &true.into()), "{all:#}");
    assert!(all["pushes"].as_u64().unwrap() > 15, "{}", all["pushes"]);
    let (words, code) = command_output(&["replay", record.path().to_str().unwrap()]);
    assert_eq!(code, 0, "{words}");

    for wanted in [
        "VirtualService bookshop/reviews",
        "web-1.bookshop connects",
        "subscribes to all of cds",
        "    rds: 0 added, 1 changed, 0 removed",
        "(9080) to web-",
        "NACK of cds by web-3.bookshop: no such weight",
        "ACK of cds by web-",
        "web-0.bookshop gone",
        "(gone)",
        "all match the recording",
    ] {
        assert!(words.contains(wanted), "{wanted} in {words}");
    }

    // Replay only until a step.
    let at = all["steps"][3]["at"].as_str().unwrap();
    let (some, code) = command_output(&["replay", record.path().to_str().unwrap(), "--until", at]);
    assert!(
        code == 0 && some.len() < words.len() / 2 && !some.contains("gone"),
        "{some}"
    );

    // The bundle contains the record unchanged.
    let bundle = record.path().join("bundle.tar.gz");
    let arguments = [
        "support-bundle",
        "--address",
        "127.0.0.1:1",
        "--file",
        bundle.to_str().unwrap(),
        "--record",
    ];

    let (words, code) =
        command_output(&[&arguments[..], &[record.path().to_str().unwrap()]].concat());
    assert_eq!(code, 1, "no control plane: {words}");
    assert!(
        words.contains("record/record-0000000001.jsonl")
            && words.contains("missing: 127.0.0.1:1/version"),
        "{words}"
    );

    let unpacked = tempfile::tempdir().unwrap();
    let tar = std::process::Command::new("tar")
        .arg("xzf")
        .arg(&bundle)
        .arg("-C")
        .arg(unpacked.path())
        .status();

    assert!(tar.unwrap().success());
    let (again, code) = replayed(&unpacked.path().join("navarch-support/record"));
    assert_eq!((code, &again["pushes"]), (0, &all["pushes"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_recording_is_reported_with_its_position() {
    let (record, _) = recorded().await;
    let [file] = segments(record.path()).try_into().unwrap();
    let whole = std::fs::read_to_string(&file).unwrap();
    let replay = || command_output(&["replay", record.path().to_str().unwrap()]);

    // Another weight than the recorded push has.
    let edited = whole.replacen("\"weight\":60", "\"weight\":61", 1);
    assert_ne!(edited, whole);
    std::fs::write(&file, edited).unwrap();
    let (words, code) = replay();
    assert_eq!(code, 3, "{words}");
    let differs = words
        .lines()
        .find(|line| line.contains("DIFFERS"))
        .unwrap_or_else(|| panic!("{words}"));

    assert!(
        differs.contains("record-0000000001.jsonl at byte") && differs.contains("of rds"),
        "{differs}"
    );

    // The process was killed during a write.
    std::fs::write(&file, &whole[..whole.len() - 20]).unwrap();
    let (words, code) = replay();
    assert!(
        code == 0 && words.contains("note: ") && words.contains("the lines before it are used"),
        "{code} {words}"
    );

    // A line in the middle is corrupt: the rest of the file is ignored.
    let middle = whole.match_indices("{\"push\":").last().unwrap().0;
    std::fs::write(
        &file,
        format!("{}nonsense{}", &whole[..middle], &whole[middle..]),
    )
    .unwrap();
    let (words, code) = replay();

    let place = format!("record-0000000001.jsonl at byte {middle}: ");
    assert!(
        code == 1 && words.contains(&place) && words.contains("is skipped"),
        "{code} {words}"
    );
    let empty = tempfile::tempdir().unwrap();
    let (words, code) = command_output(&["replay", empty.path().to_str().unwrap()]);
    assert!(
        code == 1 && words.contains("no recording in"),
        "{code} {words}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_support_bundle_contains_the_debug_pages_of_a_running_control_plane() {
    let folder = bookshop();
    let record = tempfile::tempdir().unwrap();
    let mut hidden = add_secret(folder.path());
    hidden.push(add_symmetric_key(folder.path()));
    let navarch = start(folder.path(), record.path(), &[]).await;
    let bundle = record.path().join("bundle.tar.gz");
    let address = navarch.monitoring.to_string();
    let path = bundle.to_str().unwrap().to_owned();
    let packed =
        move || command_output(&["support-bundle", "--address", &address, "--file", &path]);
    let (words, code) = tokio::task::spawn_blocking(packed).await.unwrap();
    assert_eq!(code, 0, "{words}");
    assert!(words.contains("note: configz.json"), "{words}");

    let listed = std::process::Command::new("tar")
        .arg("xzOf")
        .arg(&bundle)
        .output()
        .unwrap();
    let all = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        all.contains("navarch_record_active 1") && all.contains("bookshop"),
        "{all}"
    );

    for hidden in hidden {
        assert!(!all.contains(&hidden), "{hidden}");
    }
}
