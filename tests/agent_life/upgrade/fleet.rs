//! `navarch proxy upgrade|downgrade|status` with a real API server and 50 pods: two of them have
//! real agents with real Envoys, the first one under traffic; the agents of the others are simulated.
//!
//! Needs the programs of `scripts/kube`, and both Envoys.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use navarch_agent::upgrade::status::{ProxyStatus, SharedStatus};
use navarch_testkit::cluster::Cluster;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::task::JoinSet;

use super::kubelet::{Kubelet, PodAgent, Sight, SimulatedAgent};
use super::traffic::Traffic;
use super::versions::{TwoVersions, hot_restart_version};
use super::{ANNOTATIONS, World};

const PODS: usize = 50;
const STAGES: &str = "5%,25%,100%";
/// The pods of these stages, with those of the stages before.
const STAGE_SIZES: [usize; 3] = [3, 13, 50];
/// The pods with real agents: in the first stage, and in the second one.
const FIRST: usize = 0;
const SECOND: usize = 5;
/// By this file in an agent's folder the version does not become ready.
const BROKEN: &str = "broken";
/// How long it may take until it is ready.
const START_TIMEOUT: &str = "15s";
/// The exit code of a change that was stopped.
const STOPPED: i32 = 4;

/// 50 pods in an API server, with their agents.
struct Fleet {
    cluster: Cluster,
    kubelet: Kubelet,
    /// Those in the first and in the second stage.
    worlds: [World; 2],
    /// The folder with the version that is asked for.
    programs: TempDir,
    _agents: JoinSet<()>,
}

/// What a command has printed, and its exit code.
#[derive(Debug)]
struct Printed {
    text: String,
    /// On standard error.
    errors: String,
    code: i32,
}

fn name(index: usize) -> String {
    format!("web-{index:02}")
}

fn names(indices: std::ops::Range<usize>) -> BTreeSet<String> {
    indices.map(name).collect()
}

/// The former Envoy under another path, which in a broken pod starts and does not become ready.
fn add_version(folder: &Path, former: &str) -> Result<PathBuf> {
    let hot_restart = hot_restart_version()?;
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in\n--hot-restart-version) echo {hot_restart};;\n\
         *) if [ -e {BROKEN} ] && [ \"$1\" != --version ]; then\n\
         case \"$*\" in *validate*) exit 0;; esac; exec sleep 600; fi; exec {former} \"$@\";;\nesac\n"
    );
    let path = folder.join("envoy-next");
    fs::write(&path, text)?;
    fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    Ok(fs::canonicalize(path)?)
}

fn node(port: u16) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "one"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        },
    })
}

/// A pod of the Deployment `web`.
fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "labels": {"app": "web", "pod-template-hash": "5d6"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d6", "uid": "5d6", "controller": true,
            }],
        },
        "spec": {
            "nodeName": "one",
            "containers": [{"name": "app", "image": "app"}, {"name": "istio-proxy", "image": "proxy"}],
        },
        "status": {"phase": "Running"},
    })
}

impl Fleet {
    async fn start(versions: &TwoVersions) -> Result<Self> {
        let programs = tempfile::tempdir()?;
        let folder = programs.path().display().to_string();
        let variables = [
            ("NAVARCH_PROXY_UPGRADE_PATHS", folder.as_str()),
            ("NAVARCH_PROXY_UPGRADE_START_TIMEOUT", START_TIMEOUT),
        ];
        let worlds = [
            World::start(&variables).await?,
            World::start(&variables).await?,
        ];

        let mut tasks = JoinSet::new();
        let mut agents = BTreeMap::new();
        for index in 0..PODS {
            let real = match index {
                FIRST => Some(&worlds[0]),
                SECOND => Some(&worlds[1]),
                _ => None,
            };
            let agent = match real {
                Some(world) => PodAgent {
                    status_port: world.pod.status,
                    sight: Sight::File(world.pod.path(ANNOTATIONS)),
                },
                None => simulated(versions, &mut tasks).await?,
            };
            agents.insert(name(index), agent);
        }

        let cluster = Cluster::start().await?;
        let mut kubelet = Kubelet::start(&agents).await?;
        let writer = cluster.writer().await?;
        writer.put(&node(kubelet.port)).await?;
        for index in 0..PODS {
            writer.put(&pod(&name(index))).await?;
        }
        kubelet.show_annotations(cluster.client().await?, "shop", agents);

        Ok(Self {
            cluster,
            kubelet,
            worlds,
            programs,
            _agents: tasks,
        })
    }

    /// Runs `navarch proxy` as the administrator of the cluster.
    async fn run(&self, arguments: &[&str]) -> Result<Printed> {
        let output = Command::new(navarch_tests::program())
            .arg("proxy")
            .args(arguments)
            .args(["--timeout", "90s", "--kubeconfig"])
            .arg(self.cluster.admin_kubeconfig())
            .output()
            .await?;
        Ok(Printed {
            text: String::from_utf8(output.stdout)?,
            errors: String::from_utf8(output.stderr)?,
            code: output.status.code().context("it was killed")?,
        })
    }

    /// The pods that have the annotation.
    async fn annotated(&self) -> Result<BTreeSet<String>> {
        let path = "/api/v1/namespaces/shop/pods";
        let list = self
            .cluster
            .call("GET", path, "application/json", &Value::Null)
            .await?;
        let pods = list["items"].as_array().context("a list")?;
        let annotated = pods.iter().filter(|pod| {
            let annotation = &pod["metadata"]["annotations"]["navarch.io/proxy-binary"];
            !annotation.is_null()
        });
        Ok(annotated
            .filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned))
            .collect())
    }

    /// Checks that pods were patched stage by stage.
    fn check_order(&self, stages: &[usize]) -> Result<()> {
        let patched = self.kubelet.take_patched();
        let mut begun = 0;
        for size in stages {
            let stage: BTreeSet<_> = patched
                .iter()
                .skip(begun)
                .take(size - begun)
                .cloned()
                .collect();
            ensure!(stage == names(begun..*size), "to {size}: {patched:?}");
            begun = *size;
        }
        ensure!(patched.len() == begun, "no further pod: {patched:?}");
        Ok(())
    }

    /// Checks the Envoys of the real agents.
    async fn check_versions(&self, versions: [&str; 2]) -> Result<()> {
        for (world, version) in self.worlds.iter().zip(versions) {
            let status = world.status().await?;
            ensure!(status["version"] == *version, "not {version}: {status}");
        }
        Ok(())
    }
}

/// A simulated agent with the Envoy of the image.
async fn simulated(versions: &TwoVersions, tasks: &mut JoinSet<()>) -> Result<PodAgent> {
    let status = SharedStatus::default();
    status.update(|status| {
        *status = ProxyStatus {
            enabled: true,
            version: versions.current.clone(),
            ..ProxyStatus::default()
        };
    });
    let agent = SimulatedAgent {
        status,
        original: versions.current.clone(),
        other: versions.former.clone(),
    };
    Ok(PodAgent {
        status_port: agent.serve(tasks).await?,
        sight: Sight::Simulated(agent),
    })
}

/// Checks that a command has printed all of these, and its exit code.
fn check(printed: &Printed, code: i32, parts: &[&str]) -> Result<()> {
    let Printed {
        text,
        errors,
        code: found,
    } = printed;
    ensure!(*found == code, "{found} in place of {code}: {text}{errors}");
    for part in parts {
        ensure!(
            printed.text.contains(part),
            "{part:?} is missing: {printed:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_fleet_is_upgraded_in_stages_stopped_by_a_version_that_is_not_ready_and_taken_back()
-> Result<()> {
    let Some(versions) = TwoVersions::find()? else {
        return Ok(());
    };
    let TwoVersions {
        current, former, ..
    } = &versions;
    let fleet = Fleet::start(&versions).await?;
    let program = add_version(fleet.programs.path(), &versions.former_program)?;
    let program = program.display().to_string();
    let traffic = Traffic::start(fleet.worlds[0].http);

    // The version does not become ready in a pod of the second stage.
    fs::write(fleet.worlds[1].pod.path(BROKEN), "")?;
    let upgrade = [
        "upgrade", "shop/web", "--path", &program, "--stages", STAGES,
    ];
    let printed = fleet.run(&upgrade).await?;
    let [first, second, _] = STAGE_SIZES;
    let expected = [
        &format!("{} of {PODS} pods run {program}\n", second - 1),
        &format!(
            "{} went back to its former Envoy: the new Envoy was not LIVE within {START_TIMEOUT}",
            name(SECOND)
        ),
        &format!(
            "Stopped in the stage 25%; {} pods were not asked.\n",
            PODS - second
        ),
        "navarch proxy status shop/web\n",
        "navarch proxy downgrade shop/web\n",
    ];
    check(&printed, STOPPED, &expected)?;
    fleet.check_order(&[first, second])?;
    ensure!(fleet.annotated().await? == names(0..second), "{printed:?}");
    fleet.check_versions([former, current]).await?;

    let printed = fleet.run(&["status", "shop"]).await?;
    let expected = [
        &format!(
            "{}: Envoy {former}, epoch 1, done, asked for {program}, errors ",
            name(FIRST)
        ),
        &format!(
            "{}: Envoy {current}, epoch 0, failed, asked for {program}: the new Envoy was not LIVE",
            name(SECOND)
        ),
        &format!("{}: Envoy {current}, epoch 0, idle\n", name(PODS - 1)),
    ];
    check(&printed, 0, &expected.map(String::as_str))?;

    // All that were touched are taken back.
    let printed = fleet.run(&["downgrade", "shop/web"]).await?;
    let expected = format!("{PODS} of {PODS} pods run the Envoy of the image\n");
    check(&printed, 0, &[&expected])?;
    fleet.check_order(&[second])?;
    ensure!(fleet.annotated().await?.is_empty(), "{printed:?}");
    fleet.check_versions([current, current]).await?;

    // The same version, mended.
    fs::remove_file(fleet.worlds[1].pod.path(BROKEN))?;
    let printed = fleet.run(&[&upgrade[..], &["-o", "json"]].concat()).await?;
    check(&printed, 0, &[])?;
    let report: Value = serde_json::from_str(&printed.text)?;
    let shares = STAGES.split(',').zip(STAGE_SIZES);
    let stages: Vec<_> = shares
        .map(|(share, pods)| json!({"share": share, "pods": pods}))
        .collect();
    ensure!(report["stages"] == json!(stages), "{report}");
    ensure!(
        report["notAsked"] == 0 && report["isStopped"] == false,
        "{report}"
    );
    fleet.check_order(&STAGE_SIZES)?;
    fleet.check_versions([former, former]).await?;

    traffic.stop_without_loss(&fleet.worlds[0].pod).await
}

#[tokio::test]
async fn a_target_without_pods_has_an_exit_code_of_its_own() -> Result<()> {
    let cluster = Cluster::start().await?;
    let output = Command::new(navarch_tests::program())
        .args(["proxy", "status", "nowhere/web", "--kubeconfig"])
        .arg(cluster.admin_kubeconfig())
        .output()
        .await?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(output.status.code() == Some(5), "{text}");
    let expected = "no running pod of nowhere/web has a proxy";
    ensure!(text.trim() == expected, "{text}");
    Ok(())
}
