//! Secrets from files, and from the CA over a real port.

use std::path::Path;
use std::time::SystemTime;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::*;

#[allow(clippy::disallowed_methods, reason = "a test may read the clock")]
pub(crate) fn clock() -> SystemTime {
    SystemTime::now()
}

pub(crate) fn config(folder: &Path) -> SecretsConfig {
    SecretsConfig {
        identity: "spiffe://cluster.local/ns/shop/sa/web".to_owned(),
        key: KeyKind::P256,
        key_format: KeyFormat::Pkcs8,
        lifetime: Duration::from_secs(3600),
        grace: Grace::default(),
        existing: CertificateFiles {
            chain: folder.join("certs/cert-chain.pem"),
            key: folder.join("certs/key.pem"),
            roots: folder.join("certs/root-cert.pem"),
        },
        system_roots: None,
        output: None,
        debounce: Duration::from_millis(20),
    }
}

/// Writes a certificate, its key, and the certificate as root into files.
pub(crate) fn put(folder: &Path, name: &str) -> (String, String) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let chain = made.cert.pem();
    let key = made.signing_key.serialize_pem();
    std::fs::create_dir_all(folder).unwrap();
    for (file, text) in [
        ("key.pem", &key),
        ("cert-chain.pem", &chain),
        ("root-cert.pem", &chain),
    ] {
        std::fs::write(folder.join(format!("{file}.new")), text).unwrap();
        std::fs::rename(folder.join(format!("{file}.new")), folder.join(file)).unwrap();
    }
    (chain, key)
}

/// The first value that satisfies a condition.
async fn until(watch: &mut SecretWatch, good: impl Fn(&Secret) -> bool) -> Arc<Secret> {
    let wait = watch.wait_for(|secret| secret.as_deref().is_some_and(&good));
    let found = tokio::time::timeout(Duration::from_secs(20), wait)
        .await
        .expect("in time")
        .unwrap();
    found.clone().unwrap()
}

#[tokio::test]
async fn mounted_certificates_are_served_and_followed() {
    let folder = tempfile::tempdir().unwrap();
    let certs = folder.path().join("certs");
    let (chain, _) = put(&certs, "first");
    let stop = CancellationToken::new();
    let (secrets, task) = Secrets::new(
        config(folder.path()),
        None,
        clock,
        AgentMetrics::default(),
        stop.clone(),
    );

    let running = TaskTracker::new();
    running.spawn(task.run());
    running.close();
    let mut certificate = secrets.watch("default").unwrap();
    let mut roots = secrets.watch("ROOTCA").unwrap();
    until(
        &mut certificate,
        |secret| matches!(secret, Secret::Certificate { chain: got, .. } if *got == chain),
    )
    .await;
    until(&mut roots, |_| true).await;
    let (chain, _) = put(&certs, "second");
    until(
        &mut certificate,
        |secret| matches!(secret, Secret::Certificate { chain: got, .. } if *got == chain),
    )
    .await;

    // An additional root from the proxy config is added to those in the file.
    let extra = rcgen::generate_simple_self_signed(["extra".to_owned()])
        .unwrap()
        .cert
        .pem();
    secrets.set_trust_bundle(vec![extra.clone()]);
    let merged = pem::merge([chain.as_bytes(), extra.as_bytes()]).unwrap();
    until(&mut roots, |secret| {
        *secret == Secret::Roots(merged.clone())
    })
    .await;
    stop.cancel();
    running.wait().await;
}

#[tokio::test]
async fn a_pair_that_does_not_match_is_not_served_and_file_resources_end_with_their_watchers() {
    let folder = tempfile::tempdir().unwrap();
    let one = folder.path().join("one");
    let other = folder.path().join("other");
    let (chain, _) = put(&one, "one");
    put(&other, "other");
    let stop = CancellationToken::new();
    let metrics = AgentMetrics::default();
    let (secrets, _task) = Secrets::new(
        config(folder.path()),
        None,
        clock,
        metrics.clone(),
        stop.clone(),
    );

    let name = |chain: &Path, key: &Path| {
        format!(
            "file-cert:{}~{}",
            chain.join("cert-chain.pem").display(),
            key.join("key.pem").display()
        )
    };

    let mut good = secrets.watch(&name(&one, &one)).unwrap();
    until(
        &mut good,
        |secret| matches!(secret, Secret::Certificate { chain: got, .. } if *got == chain),
    )
    .await;
    let bad = secrets.watch(&name(&one, &other)).unwrap();
    has_failed(&metrics, "num_file_secret_failures_total").await;

    assert!(!bad.has_changed().unwrap());
    assert_eq!(
        secrets.watch("kubernetes://tls").unwrap_err(),
        WatchError::Unknown("kubernetes://tls".to_owned())
    );
    drop((good, bad));
    eventually("no file is watched any longer", || {
        secrets.0.files.lock().is_empty()
    })
    .await;
    assert!(!format!("{secrets:?}").contains("PRIVATE"));
    stop.cancel();
}

#[tokio::test]
async fn certificate_files_created_later_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = AgentMetrics::default();
    let stop = CancellationToken::new();
    let (secrets, _task) = Secrets::new(config(folder.path()), None, clock, metrics.clone(), stop);
    let late = folder.path().join("late");
    let mut roots = secrets
        .watch(&format!(
            "file-root:{}",
            late.join("root-cert.pem").display()
        ))
        .unwrap();

    for failures in [
        "num_file_watcher_failures_total",
        "num_file_secret_failures_total",
    ] {
        has_failed(&metrics, failures).await;
    }

    let (chain, _) = put(&late, "late");
    until(&mut roots, |secret| {
        *secret == Secret::Roots(Bytes::from(chain.clone()))
    })
    .await;
}

/// Waits until a failure is counted.
async fn has_failed(metrics: &AgentMetrics, counter: &str) {
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    eventually(counter, || {
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text.contains(&format!("{counter} ")) && !text.contains(&format!("{counter} 0"))
    })
    .await;
}

/// Waits for a condition.
async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(
        tokio::time::timeout(Duration::from_secs(60), waiting)
            .await
            .is_ok(),
        "it never became true: {what}"
    );
}
