//! Plans over several control planes, each of which has only its own proxies.

use std::path::Path;

use navarch_testkit::navarch::Navarch;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::live::{run_command, start};
use crate::proxy::{Reaction, Sidecar, connect};
use crate::{edited, json as json_output};

/// Sidecars of a workload, connected to this control plane.
async fn connected(navarch: &Navarch, names: &[&str], at: u8) -> Vec<Sidecar> {
    let mut all = Vec::new();

    for (n, name) in names.iter().enumerate() {
        let ip = format!("10.7.{at}.{}", n + 1);
        all.push(
            connect(
                navarch.xds,
                name,
                "bookshop",
                &ip,
                &[("app", "web")],
                Reaction::Accept,
            )
            .await,
        );
    }

    for name in names {
        let words = ["why", "push", &format!("{name}.bookshop")].map(str::to_owned);
        navarch_testkit::wait::until("it has its resources", async || {
            run_command(navarch, &words.each_ref().map(String::as_str))
                .await
                .0["pushes"]
                .as_array()
                .is_some_and(|all| all.len() >= 4)
        })
        .await;
    }

    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_counts_the_proxies_of_all_replicas_and_each_resource_once() {
    let (folder, one) = start().await;
    let flags = ["--registries=".to_owned()];
    let other = Navarch::start(
        Path::new(env!("CARGO_BIN_EXE_navarch")),
        folder.path(),
        &flags,
    )
    .await
    .unwrap();
    let _of_one = connected(&one, &["web-0", "web-1", "web-2"], 1).await;
    let _of_other = connected(&other, &["api-0", "api-1"], 2).await;
    let change = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    let text = edited(
        "reviews-routing.yaml",
        &[
            ("weight: 90", "weight: 50"),
            ("weight: 10\n", "weight: 50\n"),
        ],
    );

    std::fs::write(change.path(), text).unwrap();
    let plan = async |addresses: &[String]| -> (Value, i32) {
        let mut words = vec![
            "plan".to_owned(),
            "-f".to_owned(),
            change.path().display().to_string(),
        ];
        words.extend(
            addresses
                .iter()
                .map(|address| format!("--address={address}")),
        );
        spawn_blocking(move || json_output(&words.iter().map(String::as_str).collect::<Vec<_>>()))
            .await
            .unwrap()
    };

    let one = one.monitoring.to_string();
    let other = other.monitoring.to_string();
    let (alone, code) = plan(std::slice::from_ref(&one)).await;
    assert_eq!(
        (code, &alone["proxies"], &alone["reached"], &alone["asked"]),
        (0, &json!(3), &json!(3), &Value::Null)
    );
    let (all, code) = plan(&[one.clone(), other.clone()]).await;

    assert_eq!(
        (code, &all["proxies"], &all["reached"]),
        (0, &json!(5), &json!(5)),
        "{all}"
    );
    assert_eq!(all["asked"], json!([one, other]));
    assert_eq!(
        all["types"],
        json!({"rds": {"added": 0, "changed": 1, "removed": 0, "proxies": 5}}),
        "{all}"
    );

    let resources = all["resources"].as_array().unwrap();
    assert_eq!(
        (resources.len(), &resources[0]["proxies"]),
        (1, &json!(5)),
        "the change is the same for all proxies: {all}"
    );

    assert!(
        resources[0]["diff"]
            .as_str()
            .unwrap()
            .contains("weight: 50"),
        "{all}"
    );

    let workloads: Vec<_> = all["workloads"].as_object().unwrap().keys().collect();
    assert_eq!(
        workloads,
        [
            "bookshop/api-0",
            "bookshop/api-1",
            "bookshop/web-0",
            "bookshop/web-1",
            "bookshop/web-2"
        ]
    );

    let twice = |plan: &Value| plan["bytes"].as_u64().unwrap();
    assert_eq!(
        twice(&all) * 3,
        twice(&alone) * 5,
        "the bytes of the replicas add up: {all} {alone}"
    );
    let [of_one, of_all] = [&alone, &all].map(|plan| plan["traffic"].as_array().unwrap().len());
    assert_eq!(of_one, of_all, "a request is listed once: {all}");

    let (partial, code) = plan(&[one, "127.0.0.1:1".to_owned()]).await;
    assert_eq!((code, &partial["reached"]), (1, &json!(3)), "{partial}");
    assert!(
        partial["more"]
            .to_string()
            .contains("127.0.0.1:1 does not respond"),
        "{partial}"
    );
}
