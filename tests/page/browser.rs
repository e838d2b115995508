//! The dashboard in a real browser, with data from real Envoys.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use navarch_testkit::bookshop;
use navarch_testkit::envoy::AdsProtocol;
use navarch_testkit::navarch::Navarch;
use navarch_testkit::skip::skip;
use serde_json::json;

use crate::proxy::{Reaction, connect};
use crate::{packages, root, start};

/// Timeout in seconds of the whole browser test.
const TIMEOUT: &str = "240";

/// The directory of the browser driver; skips the test if it is missing.
pub(crate) fn browser() -> Option<PathBuf> {
    let packages = packages();
    if packages.is_none() {
        skip("scripts/web could not install the packages of web/");
    } else if !Path::new("/usr/bin/chromium").exists() {
        skip("chromium is missing: run scripts/web --tools as root");
        return None;
    }
    packages
}

#[tokio::test(flavor = "multi_thread")]
async fn every_view_works_in_a_browser_by_keyboard_on_a_phone_and_in_the_dark() {
    let Some(packages) = browser() else { return };
    let (folder, navarch) = start().await;
    let mut gateway = bookshop::gateway(navarch.xds, AdsProtocol::Delta)
        .await
        .unwrap();
    let mut sidecar = bookshop::sidecar(navarch.xds, AdsProtocol::StateOfTheWorld)
        .await
        .unwrap();

    gateway.wait_ready().await.unwrap();
    sidecar.wait_ready().await.unwrap();
    let rejects = Reaction::Reject(
        "canary",
        "Didn't find a registered implementation for name: 'canary'",
    );
    let mut others = Vec::new();
    for (n, reaction) in [
        Reaction::Accept,
        Reaction::Accept,
        Reaction::Ignore,
        rejects,
    ]
    .into_iter()
    .enumerate()
    {
        let pod = format!("web-{n}");
        let ip = format!("10.7.0.{}", n + 1);
        others.push(
            connect(
                navarch.xds,
                &pod,
                "bookshop",
                &ip,
                &[("app", "web")],
                reaction,
            )
            .await,
        );
    }

    drive("drive.js", &packages, folder.path(), &navarch).await;
}

/// Runs a script of `web/test` in a browser, on the dashboard of a control plane whose mesh is in
/// `folder`.
pub(crate) async fn drive(script: &str, packages: &Path, folder: &Path, navarch: &Navarch) {
    drive_at(script, packages, folder, navarch.monitoring, &|| {
        navarch.output()
    })
    .await;
}

/// Like [`drive`], for a dashboard at an address; `output` is the log of its server.
pub(crate) async fn drive_at(
    script: &str,
    packages: &Path,
    folder: &Path,
    page: SocketAddr,
    output: &(dyn Fn() -> String + Sync),
) {
    let server_output = output;

    // The directory for pictures: a given one, or a temporary one.
    let pictures =
        std::env::var_os("NAVARCH_PICTURES").map_or_else(|| folder.join("pictures"), Into::into);
    std::fs::create_dir_all(&pictures).unwrap();
    let scene = json!({
        "page": format!("http://{page}/"), "modules": packages, "pictures": pictures,
        "mesh": folder.join("mesh"), "profile": folder.join("browser"),
    });

    let drive = root().join("web/test").join(script);
    let run = tokio::task::spawn_blocking(move || {
        Command::new("timeout")
            .args(["-k", "5", TIMEOUT, "node"])
            .arg(drive)
            .arg(scene.to_string())
            .output()
    });

    let output = tokio::time::timeout(Duration::from_secs(300), run)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{stdout}\n{log}\n{}",
        server_output()
    );

    assert!(stdout.contains("all views work"), "{stdout}");
}
