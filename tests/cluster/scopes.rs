//! `navarch scope` reads the metrics of real pods: what a client calls is counted and nothing else,
//! the configuration in force cuts none of it, and the page shows it as used.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use navarch_testkit::bookshop::pods;
use navarch_testkit::client;
use navarch_testkit::mesh::{Mesh, counted};
use navarch_testkit::wait::{until_some_within, wanted};
use serde_json::{Value, json};

use crate::asked::{Dashboard, run_navarch};
use crate::watched::SHOPPER;

/// Timeout until agents have counted calls: Envoy logs them within seconds.
const TIMEOUT: Duration = Duration::from_secs(60);
/// A workload that calls nothing.
const SILENT: &str = "reviews-v1";

/// What the shopper calls.
struct Hosts {
    called: BTreeSet<String>,
}

/// The host of a service of the bookshop.
fn host(service: &str) -> String {
    format!("{service}.{}.svc.cluster.local", pods::NAMESPACE)
}

/// The name of a workload of the bookshop in evidence.
fn workload(name: &str) -> String {
    format!("{}/{name}", pods::NAMESPACE)
}

/// The part of a list that is about a workload of the bookshop.
fn part_of<'a>(found: &'a Value, name: &str) -> Result<&'a Value> {
    let workload = workload(name);
    let mut parts = found["workloads"].as_array().into_iter().flatten();
    parts
        .find(|part| part["workload"] == workload)
        .with_context(|| format!("{workload} is not looked at: {}", found["workloads"]))
}

/// The evidence about the shopper.
fn evidence(found: &Value) -> &Value {
    &found["evidence"]["workloads"][workload(SHOPPER)]
}

/// The requests of the shopper that its proxy has counted, by host.
fn requests(found: &Value) -> impl Iterator<Item = (&String, u64)> {
    let calls = evidence(found)["calls"].as_object().into_iter().flatten();
    let counts = calls.map(|(host, calls)| (host, calls["requests"].as_u64().unwrap_or(0)));
    counts.filter(|(_, requests)| *requests > 0)
}

impl Hosts {
    /// The shopper's arguments name what it calls: `load PORT RATE SERVICE:PORT/HOST/PATH…`.
    fn of_running(mesh: &Mesh) -> Result<Self> {
        let pod = mesh.node.get(pods::NAMESPACE, &["pod", SHOPPER])?;
        let containers = pod["spec"]["containers"].as_array().context("a list")?;
        let app = containers
            .iter()
            .find(|container| container["name"] == "app")
            .context("the shopper has an application")?;
        let words = app["args"].as_array().context("arguments")?.iter();
        let targets = words.filter_map(|word| word.as_str()?.split_once(':'));
        let called: BTreeSet<String> = targets.map(|(service, _)| host(service)).collect();
        ensure!(!called.is_empty(), "the shopper calls services: {app}");
        Ok(Self { called })
    }

    /// The suggestions, once the shopper's proxy has counted requests to all that it calls.
    async fn suggestions(&self, mesh: &Mesh) -> Value {
        let what = "navarch scope reads requests to each service that the shopper calls";
        until_some_within(TIMEOUT, what, async || {
            let arguments = ["scope", "suggest", "-n", pods::NAMESPACE];
            let (found, code) =
                run_navarch(mesh, &arguments).map_err(|error| format!("{error:#}"))?;
            let is_complete = |found: &Value| {
                let counted: BTreeSet<&String> = requests(found).map(|(host, _)| host).collect();
                code == 0 && self.called.iter().all(|host| counted.contains(host))
            };
            wanted(found, is_complete).map_err(|found| {
                let seen = part_of(&found, SHOPPER);
                seen.map_or_else(|error| format!("{error:#}"), Value::to_string)
            })
        })
        .await
    }

    /// Checks that nothing else was counted, no request twice, and that all pods were read.
    async fn check_counts(&self, mesh: &Mesh, found: &Value) -> Result<()> {
        let known: BTreeSet<&String> = self.called.iter().collect();
        let named: BTreeSet<&String> = requests(found).map(|(host, _)| host).collect();
        ensure!(
            named == known,
            "the evidence names other services than the shopper calls: {}",
            evidence(found)
        );

        let sum: u64 = requests(found).map(|(_, requests)| requests).sum();
        let counts = mesh.address(pods::NAMESPACE, SHOPPER, pods::COUNTS_PORT)?;
        let sent = counted(counts).await?.asked;
        ensure!(
            sum <= sent,
            "{sum} requests are counted of {sent} that were sent"
        );

        let texts = found["workloads"].to_string();
        ensure!(
            !texts.contains("could not be read"),
            "all pods are read: {texts}"
        );
        Ok(())
    }

    /// Checks that a workload without calls gets no Sidecar, and why.
    fn check_silent(found: &Value) -> Result<()> {
        let silent = part_of(found, SILENT)?;
        ensure!(
            silent["sidecar"].is_null()
                && silent["against"].to_string().contains("counted no calls"),
            "{SILENT} calls nothing: {silent}"
        );
        Ok(())
    }

    /// `navarch scope diff` with former evidence: the configuration in force cuts nothing, and
    /// refuses nothing that the shopper calls.
    fn check_differences(mesh: &Mesh, former: &Path) -> Result<()> {
        let former = former.display().to_string();
        let arguments = [
            "scope",
            "diff",
            "-n",
            pods::NAMESPACE,
            "--evidence",
            &former,
        ];
        let (found, code) = run_navarch(mesh, &arguments)?;
        ensure!(code == 0, "{code}: {}", found["workloads"]);
        for one in found["workloads"].as_array().context("a list")? {
            ensure!(one["cut"] == json!([]), "calls would be cut: {one}");
        }

        let shopper = part_of(&found, SHOPPER)?;
        for list in ["gone", "denied", "refused"] {
            ensure!(
                shopper[list] == json!([]),
                "the shopper's requests succeed: {shopper}"
            );
        }
        Ok(())
    }

    /// Checks that the control plane returns the evidence as edges that are used.
    async fn check_edges(&self, mesh: &Mesh, evidence: &Path, folder: &Path) -> Result<()> {
        let flags = ["--evidence".to_owned(), evidence.display().to_string()];
        let dashboard = Dashboard::start(mesh, &flags, &folder.join("log")).await?;
        let path = format!(
            "/debug/view/edges?namespace={}&workload={SHOPPER}",
            pods::NAMESPACE
        );
        let reply = client::post(dashboard.address, "localhost", &path, String::new()).await?;
        ensure!(reply.status == 200, "the view of edges: {reply:?}");

        let found: Value = serde_json::from_str(&reply.body)?;
        let rows = found["rows"].as_array().context("rows")?;
        let from = workload(SHOPPER);
        let used = rows.iter().filter(|row| {
            let requests = row["requests"].as_u64();
            row["from"] == from && row["class"] == "used" && requests.is_some_and(|sum| sum > 0)
        });
        let used: BTreeSet<&str> = used.filter_map(|row| row["to"].as_str()).collect();
        let called: BTreeSet<&str> = self.called.iter().map(String::as_str).collect();
        ensure!(
            used == called,
            "the edges of the shopper are used: {}",
            found["rows"]
        );
        Ok(())
    }
}

/// From the counters of real agents to evidence, and from this to the differences from what is in
/// force and to the edges of the page.
pub(crate) async fn what_pods_have_counted_is_evidence(mesh: &Mesh) -> Result<()> {
    let hosts = Hosts::of_running(mesh)?;
    let found = hosts.suggestions(mesh).await;
    hosts.check_counts(mesh, &found).await?;
    Hosts::check_silent(&found)?;

    let folder = tempfile::tempdir()?;
    let former = folder.path().join("evidence.json");
    std::fs::write(&former, found.to_string())?;
    Hosts::check_differences(mesh, &former)?;
    hosts.check_edges(mesh, &former, folder.path()).await
}
