//! `navarch scope` reads the metrics of real pods: what a client calls is counted and nothing else,
//! the suggested Sidecar is valid, and it cuts no call while it is in force.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use navarch_testkit::bookshop::pods;
use navarch_testkit::client;
use navarch_testkit::mesh::{Mesh, counted};
use navarch_testkit::wait::{until_some_within, wanted};
use serde_json::{Value, json};

use crate::asked::{Dashboard, run_navarch, text_of};
use crate::changes::AFTER;
use crate::watched::{SHOPPER, Watched};

/// Timeout until agents have counted calls: Envoy logs them within seconds.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The Sidecar that is suggested for the shopper.
const SUGGESTED: &str = "scope-shopper";
/// A workload that calls nothing.
const SILENT: &str = "reviews-v1";

/// What the shopper calls, and what else the bookshop has.
struct Hosts {
    called: BTreeSet<String>,
    uncalled: BTreeSet<String>,
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

        let kinds = "services,serviceentries.networking.istio.io";
        let list = mesh.node.get(pods::NAMESPACE, &[kinds])?;
        let mut uncalled = BTreeSet::new();
        for object in list["items"].as_array().context("a list")? {
            let hosts = object["spec"]["hosts"].as_array().into_iter().flatten();
            uncalled.extend(hosts.filter_map(Value::as_str).map(str::to_owned));
            if object["kind"] == "Service" {
                let name = object["metadata"]["name"].as_str().context("a name")?;
                uncalled.insert(host(name));
            }
        }
        uncalled.retain(|host| !called.contains(host));
        ensure!(
            !uncalled.is_empty(),
            "the bookshop has a service that the shopper does not call"
        );
        Ok(Self { called, uncalled })
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

    /// Checks that the shopper's Sidecar has what it calls alone, and that a workload without calls
    /// gets none.
    fn check_suggestions(&self, found: &Value) -> Result<()> {
        let shopper = part_of(found, SHOPPER)?;
        let hosts = &shopper["sidecar"]["spec"]["egress"][0]["hosts"];
        let expected: Vec<String> = self.called.iter().map(|host| format!("./{host}")).collect();
        ensure!(
            shopper["sidecar"]["metadata"]["name"] == SUGGESTED && *hosts == json!(expected),
            "the Sidecar has the hosts {expected:?}: {shopper}"
        );
        let mut uncalled = self.uncalled.iter();
        ensure!(
            !uncalled.any(|host| hosts.to_string().contains(host.as_str())),
            "{:?} were not called: {hosts}",
            self.uncalled
        );
        let clusters = |size: &Value| size["clusters"].as_u64().context("a size");
        ensure!(
            clusters(&shopper["after"])? < clusters(&shopper["before"])?,
            "a proxy has fewer clusters with it: {shopper}"
        );

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
    fn diff(&self, mesh: &Mesh, former: &Path) -> Result<Value> {
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
        Ok(found)
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

    /// Checks that no request is lost with the suggested Sidecar. A call that it cuts could still
    /// succeed, as one to an address outside of the registry, and is counted as such.
    async fn check_in_force(
        &self,
        mesh: &Mesh,
        found: &Value,
        former: &Path,
        watched: &mut Watched,
    ) -> Result<()> {
        mesh.apply(&[part_of(found, SHOPPER)?["sidecar"].clone()])?;
        let object = ["applied", "sidecar", SUGGESTED, "-n", pods::NAMESPACE];
        let (applied, code) =
            run_navarch(mesh, &[&object[..], &["--wait", "--timeout=60s"]].concat())?;
        ensure!(code == 0, "the proxy has the Sidecar: {applied}");
        watched.count_lost("a suggested Sidecar", AFTER).await?;

        let with = self.diff(mesh, former)?;
        let shopper = part_of(&with, SHOPPER)?;
        let name = format!("Sidecar {}", workload(SUGGESTED));
        ensure!(
            shopper["sidecar"] == name && shopper["visible"] == self.called.len(),
            "the Sidecar is in force: {shopper}"
        );
        ensure!(
            evidence(&with)["outside"] == evidence(found)["outside"],
            "calls pass by the registry: {}",
            evidence(&with)["outside"]
        );

        let delete = [
            "--namespace",
            pods::NAMESPACE,
            "delete",
            "sidecar",
            SUGGESTED,
        ];
        mesh.node.kubectl(&delete)?;
        watched.count_lost("without it again", AFTER).await
    }
}

/// From the counters of real agents to a Sidecar in force and back.
pub(crate) async fn a_sidecar_is_suggested_from_what_pods_have_counted(
    mesh: &Mesh,
    watched: &mut Watched,
) -> Result<()> {
    let hosts = Hosts::of_running(mesh)?;
    let found = hosts.suggestions(mesh).await;
    hosts.check_counts(mesh, &found).await?;
    hosts.check_suggestions(&found)?;

    let printed = text_of(mesh, &["scope", "suggest", "-n", pods::NAMESPACE])?;
    let accepted = mesh.node.apply_dry(&printed)?;
    ensure!(
        accepted.contains(&format!("{SUGGESTED} created (server dry run)")),
        "the API server accepts what is printed: {accepted}"
    );

    let folder = tempfile::tempdir()?;
    let former = folder.path().join("evidence.json");
    std::fs::write(&former, found.to_string())?;
    hosts.diff(mesh, &former)?;
    hosts.check_edges(mesh, &former, folder.path()).await?;
    hosts.check_in_force(mesh, &found, &former, watched).await
}
