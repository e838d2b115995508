//! `istioctl bug-report`: the files that it collects from a control plane.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use navarch_testkit::istio;
use navarch_testkit::mesh;
use serde_json::Value;

use super::{PROXIES, Tool, count_proxies};

/// The pages that it requests from every istiod. If one of them fails, it stores none.
const PAGES: [&str; 20] = [
    "debug/adsz",
    "debug/ambientz",
    "debug/authorizationz",
    "debug/cachez",
    "debug/clusterz",
    "debug/configz",
    "debug/endpointShardz",
    "debug/endpointz",
    "debug/inject",
    "debug/instancesz",
    "debug/krtz",
    "debug/mcsz",
    "debug/mesh",
    "debug/networkz",
    "debug/push_status",
    "debug/registryz",
    "debug/resourcesz",
    "debug/syncz",
    "debug/telemetryz",
    "metrics",
];

/// Collects a report of the control plane's namespace only.
fn collect(tool: &Tool<'_>, folder: &Path) -> Result<()> {
    let work = folder.join("work").display().to_string();
    let out = folder.display().to_string();

    // With a start time, it keeps only log lines whose time and level it can parse.
    let begin = (jiff::Timestamp::now() - jiff::SignedDuration::from_hours(24))
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string();
    let words = [
        "bug-report",
        "--include",
        mesh::NAMESPACE,
        "--timeout",
        "60s",
        "--start-time",
        &begin,
    ];

    let small = [
        "--skip-analyze",
        "--skip-netstat",
        "--skip-coredumps",
        "--skip-cluster-dump",
    ];

    let places = ["--dir", &work, "--output-dir", &out];
    let all = [&words[..], &small, &places].concat();
    istio::printed(
        &tool
            .program
            .on(&tool.kubeconfig, &all)?
            .current_dir(folder)
            .output()?,
    )?;

    let unpacked = Command::new("tar")
        .args(["-xzmf", "bug-report.tar.gz"])
        .current_dir(folder)
        .status()?;
    ensure!(unpacked.success(), "the archive cannot be read");

    Ok(())
}

/// The archive has the log and all debug pages of the control plane's pod, and the versions.
pub(super) fn all_pages_are_collected(tool: &Tool<'_>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    collect(tool, folder.path())?;
    let read = |path: &str| {
        std::fs::read_to_string(folder.path().join(path)).with_context(|| {
            let log =
                std::fs::read_to_string(folder.path().join("bug-report.log")).unwrap_or_default();
            format!("the report has no {path}: {log}")
        })
    };

    let of_pod = format!("istio/{}/{}", mesh::NAMESPACE, tool.istiod);

    for page in PAGES {
        let shown = read(&format!("{of_pod}/{page}"))?;
        let is_readable = page == "metrics" || serde_json::from_str::<Value>(&shown).is_ok();
        ensure!(is_readable || page == "debug/inject", "{page}: {shown}");
    }

    let proxies: Value = serde_json::from_str(&read(&format!("{of_pod}/debug/syncz"))?)?;
    ensure!(count_proxies(&proxies) == PROXIES, "{proxies}");
    let log = read(&format!("{of_pod}/discovery.log"))?;
    ensure!(log.contains("started") && log.contains("INFO"), "{log}");
    let versions = read("versions")?;
    let version = tool
        .version
        .split_once('-')
        .map_or(tool.version.as_str(), |(version, _)| version);

    ensure!(
        versions.contains("Revision default:") && versions.contains(version),
        "{versions}"
    );

    Ok(())
}
