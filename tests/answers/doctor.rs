//! `navarch doctor` with several replicas that report faults.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use axum::Json;
use axum::extract::Query;
use axum::routing::get;
use jiff::{SignedDuration, Timestamp};
use navarch_answers::doctor::{Check, Health};
use navarch_testkit::client;
use navarch_testkit::navarch::Navarch;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::live::sidecars;
use crate::proxy::Reaction;
use crate::{command_output as text_of, json as json_output};

/// The report of a healthy replica.
fn healthy_report() -> Health {
    Health {
        version: "0.1.0".to_owned(),
        configuration: "c".to_owned(),
        roots: vec!["r".to_owned()],
        ..Health::default()
    }
}

/// A fake replica with this report, and a clock that is ahead by so much. It stops when dropped.
struct Replica {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts one.
async fn replica(health: Health, ahead: i64) -> Replica {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let say = move |Query(query): Query<Value>| {
        let mut health = health.clone();
        assert_eq!(
            query,
            json!({ "whole": "true" }),
            "the doctor requests the whole report"
        );
        health.now = (Timestamp::now() + SignedDuration::from_secs(ahead)).to_string();
        async move { Json(health) }
    };
    let routes = axum::Router::new().route("/debug/doctor", get(say));
    Replica {
        address,
        task: tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() }),
    }
}

/// The doctor's report on the replicas, and the exit code.
async fn examined(replicas: &[Replica]) -> (Value, i32) {
    let mut words = vec!["doctor".to_owned()];
    words.extend(
        replicas
            .iter()
            .map(|replica| format!("--address={}", replica.address)),
    );
    spawn_blocking(move || json_output(&words.iter().map(String::as_str).collect::<Vec<_>>()))
        .await
        .unwrap()
}

/// The findings on one replica.
fn findings(all: &Value, at: usize) -> Vec<String> {
    let found = all[at]["health"]["findings"].as_array().unwrap();
    found
        .iter()
        .map(|one| one["what"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_compared_with_each_other_and_with_this_machines_clock() {
    let (all, code) = examined(&[
        replica(healthy_report(), 0).await,
        replica(healthy_report(), 2).await,
    ])
    .await;
    assert_eq!(
        (code, findings(&all, 0).len(), findings(&all, 1).len()),
        (0, 0, 0),
        "{all}"
    );

    let late = replica(healthy_report(), -120).await;
    let (all, code) = examined(&[replica(healthy_report(), 0).await, late]).await;
    assert_eq!((code, findings(&all, 0).len()), (3, 0), "{all}");
    let what = &findings(&all, 1)[0];
    assert!(
        what.contains("s behind this machine's") && what.starts_with("the clock of 127.0.0.1:"),
        "{what}"
    );

    assert_eq!(
        all[1]["health"]["findings"][0]["docs"],
        Check::Clocks.docs()
    );

    let newer = Health {
        version: "0.2.0".to_owned(),
        ..healthy_report()
    };
    let (all, code) =
        examined(&[replica(healthy_report(), 0).await, replica(newer, 0).await]).await;
    assert!(
        code == 0 && findings(&all, 1)[0].starts_with("its version is 0.2.0, that of 127.0.0.1:"),
        "{all}"
    );

    let others = Health {
        roots: vec!["s".to_owned()],
        ..healthy_report()
    };
    let (all, code) =
        examined(&[replica(healthy_report(), 0).await, replica(others, 0).await]).await;
    assert!(
        code == 3 && findings(&all, 1)[0].starts_with("its trusted roots differ from those of"),
        "{all}"
    );

    let stale = Health {
        configuration: "d".to_owned(),
        ..healthy_report()
    };
    let (all, code) =
        examined(&[replica(healthy_report(), 0).await, replica(stale, 0).await]).await;
    assert!(
        code == 3
            && findings(&all, 1)[0].starts_with("its configuration has differed from that of"),
        "{all}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_certificates_and_limits_with_links() {
    let folder = crate::bookshop();
    let flags = [
        "--registries=".to_owned(),
        "--secure-grpc-addr=127.0.0.1:0".to_owned(),
    ];
    let navarch = Navarch::start(
        Path::new(env!("CARGO_BIN_EXE_navarch")),
        folder.path(),
        &flags,
    )
    .await
    .unwrap();
    let _sidecars = sidecars(&navarch, &[Reaction::Accept]).await;
    let words = [
        "doctor".to_owned(),
        format!("--address={}", navarch.monitoring),
    ];
    let ask = {
        let words = words.clone();
        move || json_output(&words.each_ref().map(String::as_str))
    };
    let (all, code) = spawn_blocking(ask.clone()).await.unwrap();
    let health = &all[0]["health"];
    let roles: Vec<_> = health["certificates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["role"])
        .collect();

    assert_eq!(
        (code, roles),
        (
            0,
            vec![&json!("root"), &json!("server certificate (15012, 15017)")]
        ),
        "{all}"
    );

    assert!(
        health["certificates"][0]["days"].as_i64().unwrap() > 3600,
        "{health}"
    );
    assert_eq!(health["certificates"][1]["days"], 9, "{health}");
    assert_eq!(health["roots"].as_array().unwrap().len(), 1);
    let digest = health["configuration"].as_str().unwrap().to_owned();
    assert_eq!(digest.len(), 64);

    // The page polls often, so its request leaves out the expensive parts.
    let page = client::get(navarch.monitoring, "localhost", "/debug/doctor", &[])
        .await
        .unwrap();
    let page: Value = serde_json::from_str(&page.body).unwrap();
    assert_eq!(page["configuration"], "");

    // An edit changes the digest of the configuration; the finding on the invalid file names the
    // page that explains it.
    std::fs::write(
        folder.path().join("more.yaml"),
        "kind: VirtualService\napiVersion: networking.istio.io/v1\n",
    )
    .unwrap();
    let text = crate::edited(
        "reviews-routing.yaml",
        &[("weight: 90", "weight: 80"), ("weight: 10", "weight: 20")],
    );
    std::fs::write(folder.path().join("reviews-routing.yaml"), text).unwrap();

    let end = std::time::Instant::now() + Duration::from_secs(20);
    let health = loop {
        let (all, code) = spawn_blocking(ask.clone()).await.unwrap();
        if code == 3 && all[0]["health"]["configuration"] != digest.as_str() {
            break all[0]["health"].clone();
        }
        assert!(std::time::Instant::now() < end, "{all}");
    };

    let anchors = Check::ALL.map(Check::docs);

    for finding in health["findings"].as_array().unwrap() {
        assert!(
            anchors.iter().any(|docs| finding["docs"] == docs.as_str()),
            "{finding}"
        );
        assert_ne!(finding["next"], "", "{finding}");
    }

    let (text, _) = spawn_blocking(move || text_of(&words.each_ref().map(String::as_str)))
        .await
        .unwrap();
    assert!(
        text.contains("         see:  docs/doctor.md#input-that-is-not-accepted\n"),
        "{text}"
    );
}
