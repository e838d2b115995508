//! `navarch shadow` beside a running control plane, which is Navarch in istiod's place.

mod istiod;
mod worlds;

use std::path::Path;

use navarch_testkit::navarch::Navarch;
use navarch_testkit::process::Process;
use navarch_testkit::wait::until;
use serde_json::Value;
use tokio::task::spawn_blocking;

use crate::live::{sidecars, start};
use crate::proxy::{Reaction, Sidecar};
use crate::{bookshop, command_output, edited, json};

/// The only DestinationRule of the sample mesh.
const RULE: &str = "DestinationRule bookshop/reviews";
/// The file that has it, with the VirtualService before it.
const ROUTING: &str = "reviews-routing.yaml";

/// Connects two sidecars, and waits until the debug pages list them.
async fn connected(navarch: &Navarch) -> Vec<Sidecar> {
    let all = sidecars(navarch, &[Reaction::Accept, Reaction::Accept]).await;
    until("two sidecars are listed", async || {
        let page = navarch.page("/debug/adsz").await.unwrap();
        let page: Value = serde_json::from_str(&page).unwrap();
        page["totalClients"] == 2
    })
    .await;
    all
}

/// The arguments of a comparison with the objects of a directory.
fn arguments(navarch: &Navarch, objects: &Path) -> Vec<String> {
    let flags = [
        ("--address", navarch.monitoring.to_string()),
        ("--xds-address", navarch.xds.to_string()),
        ("--config-dir", objects.display().to_string()),
        ("--settle", "100ms".to_owned()),
    ];
    let flags = flags
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"));
    std::iter::once("shadow".to_owned()).chain(flags).collect()
}

/// The report on a comparison with the objects of a directory, and the exit code.
async fn shadow(navarch: &Navarch, objects: &Path) -> (Value, i32) {
    let arguments = arguments(navarch, objects);
    spawn_blocking(move || json(&arguments.iter().map(String::as_str).collect::<Vec<_>>()))
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_of_the_same_objects_finds_no_difference_and_changes_nothing() {
    let (folder, navarch) = start().await;
    let _sidecars = connected(&navarch).await;

    let (report, code) = shadow(&navarch, folder.path()).await;
    assert_eq!(code, 0, "{report}");
    assert_eq!(report["compared"], 2, "{report}");
    assert_eq!(report["equal"], 2, "{report}");
    assert_eq!(report["groups"], Value::Array(Vec::new()), "{report}");

    // Its streams have ended, those of the sidecars have not.
    until("only the sidecars are connected", async || {
        let page = navarch.page("/debug/adsz").await.unwrap();
        let page: Value = serde_json::from_str(&page).unwrap();
        page["totalClients"] == 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_rule_that_one_side_lacks_is_found_and_named() {
    let (folder, navarch) = start().await;
    let text = edited(ROUTING, &[]);
    let (before, _) = text
        .split_once("---\napiVersion: networking.istio.io/v1\nkind: DestinationRule")
        .unwrap();
    std::fs::write(folder.path().join(ROUTING), before).unwrap();
    navarch.reload().unwrap();
    until("the rule is removed", async || {
        !navarch
            .page("/debug/configz")
            .await
            .unwrap()
            .contains("DestinationRule")
    })
    .await;
    let _sidecars = connected(&navarch).await;

    let complete = bookshop();
    let (report, code) = shadow(&navarch, complete.path()).await;
    assert_eq!(code, 1, "{report}");
    assert_eq!(report["equal"], 0, "{report}");

    let cause = format!("Navarch has applied {RULE}, istiod has not");
    let groups = report["groups"].as_array().unwrap();
    let group = groups.iter().find(|group| group["cause"] == cause.as_str());
    let group = group.unwrap_or_else(|| panic!("no {cause:?} in {report}"));
    assert_eq!(group["documented"], Value::Null, "{report}");
    assert_eq!(group["proxies"].as_array().unwrap().len(), 2, "{report}");
    let resources = group["resources"].to_string();
    assert!(
        resources.contains("clusters outbound|9080|v1|reviews.bookshop.svc.cluster.local"),
        "{report}"
    );

    // No difference has another cause: the routes to its subsets are the VirtualService's.
    assert_eq!(groups.len(), 1, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_that_does_not_respond_is_an_error_with_the_next_step() {
    let arguments = [
        "shadow",
        "--address",
        "127.0.0.1:1",
        "--config-dir",
        env!("CARGO_MANIFEST_DIR"),
    ];
    let (text, code) = spawn_blocking(move || command_output(&arguments))
        .await
        .unwrap();
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("forward port 15014"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_difference_is_reported_when_it_appears_and_when_it_ends() {
    let (_folder, navarch) = start().await;
    let _sidecars = connected(&navarch).await;
    let objects = bookshop();
    let mut arguments = arguments(&navarch, objects.path());
    arguments.extend(["--watch", "--interval=200ms", "-ojson"].map(str::to_owned));
    let log = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_navarch"));
    let shadow = Process::start("shadow", program, &arguments, &log.path().join("log")).unwrap();
    until("the first report has no difference", async || {
        shadow.output().contains("\"equal\": 2")
    })
    .await;

    let complete = edited(ROUTING, &[]);
    let (without_rule, _) = complete
        .split_once("---\napiVersion: networking.istio.io/v1\nkind: DestinationRule")
        .unwrap();
    let file = objects.path().join(ROUTING);
    std::fs::write(&file, without_rule).unwrap();
    let cause = format!("istiod has applied {RULE}, Navarch has not");
    until("the difference appears", async || {
        let output = shadow.output();
        output.contains("\"appeared\": [\n") && output.contains(&cause)
    })
    .await;

    std::fs::write(&file, &complete).unwrap();
    until("the difference ends", async || {
        let output = shadow.output();
        // Named once when it appeared, and once when it ends.
        output.contains("\"ended\": [\n") && output.matches(&cause).count() == 2
    })
    .await;
}
