//! istioctl with Navarch in istiod's place: the commands that users run to inspect their mesh.

mod analysis;
mod controlz;
mod report;
pub(crate) mod tags;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use navarch_testkit::bookshop::pods;
use navarch_testkit::istio::{self, Istioctl, NO_ISTIOCTL, istioctl, rows};
use navarch_testkit::mesh::{self, Mesh};
use navarch_testkit::skip::skip_test;
use navarch_testkit::wait::until;
use serde_json::{Value, json};

use crate::asked::{pod_of, storefront};

/// The proxies of the bookshop, with its gateway.
const PROXIES: usize = 6;
/// The subscriptions of an Envoy and its agent.
const TYPES: [&str; 2] = ["5", "(CDS,LDS,EDS,RDS,PCDS)"];

/// istioctl with a mesh.
struct Tool<'a> {
    program: Istioctl,
    mesh: &'a Mesh,
    kubeconfig: PathBuf,
    /// The control plane's pod.
    istiod: String,
    /// Version and commit of the control plane's program.
    version: String,
    /// A pod of the mesh in istioctl's form.
    pod: String,
}

/// All commands that query a control plane, its proxies or the cluster work as with istiod.
pub(crate) async fn istioctl_sees_an_istiod(mesh: &Mesh) -> Result<()> {
    let Some(program) = istioctl() else {
        skip_test(NO_ISTIOCTL);
        return Ok(());
    };

    let istiod = pod_of(mesh, mesh::NAMESPACE, "app=istiod")?;
    let pod = storefront(mesh)?;
    let version = istio::printed(
        &Command::new(crate::program("navarch"))
            .arg("version")
            .output()?,
    )?
    .trim()
    .to_owned();
    let tool = Tool {
        program,
        mesh,
        kubeconfig: mesh.node.kubeconfig(),
        istiod,
        version,
        pod,
    };

    // A proxy or tool that has just disconnected may still be counted.
    until("all proxies and no others are connected", || async {
        let version = tool
            .program
            .json(&tool.kubeconfig, &["version"])
            .unwrap_or_default();
        version["dataPlaneVersion"]
            .as_array()
            .is_some_and(|all| all.len() == PROXIES)
    })
    .await;
    tool.the_control_plane_and_its_proxies()?;
    tool.the_configuration_of_a_proxy()?;
    tool.a_pod_and_its_services()?;
    tool.the_policies_of_a_pod().await?;
    tool.injection_commands()?;
    tags::a_tag_is_set_and_removed(&tool).await?;
    tool.the_levels_of_the_log()?;

    controlz::its_pages_are_forwarded(&tool).await?;
    tool.all_the_configuration_of_a_proxy()?;
    analysis::both_find_the_same(&tool)?;
    report::all_pages_are_collected(&tool)
}

/// `x internal-debug --all` lists the responses of two replicas separately.
pub(crate) fn every_replica_answers(mesh: &Mesh) -> Result<()> {
    let Some(program) = istioctl() else {
        return Ok(());
    };
    let shown = program.run(
        &mesh.node.kubeconfig(),
        &["experimental", "internal-debug", "--all", "configz"],
    )?;
    let replicas: Value = serde_json::from_str(&shown).with_context(|| shown.clone())?;
    ensure!(
        replicas
            .as_object()
            .is_some_and(|replicas| replicas.len() == 2),
        "both respond: {shown}"
    );
    Ok(())
}

impl Tool<'_> {
    /// Runs a command and returns its output.
    fn run(&self, words: &[&str]) -> Result<String> {
        self.program.run(&self.kubeconfig, words)
    }

    /// Fails unless the output of a command has all of these lines, ignoring spaces.
    fn shows(&self, words: &[&str], wanted: &[&str]) -> Result<String> {
        let shown = self.run(words)?;
        let lines: Vec<String> = shown
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for line in wanted {
            ensure!(
                lines.iter().any(|shown| shown == line),
                "istioctl {words:?} has no line {line:?}:\n{shown}"
            );
        }
        Ok(shown)
    }

    /// `version`, `proxy-status`, `x internal-debug`, `remote-clusters`.
    fn the_control_plane_and_its_proxies(&self) -> Result<()> {
        let version = self.program.json(&self.kubeconfig, &["version"])?;
        let control_planes = version["meshVersion"]
            .as_array()
            .context("control planes")?;
        let proxies = version["dataPlaneVersion"].as_array().context("proxies")?;
        ensure!(
            control_planes.len() == 1 && control_planes[0]["Component"] == "pilot",
            "{version}"
        );

        let info = &control_planes[0]["Info"];
        let reported = [&info["version"], &info["revision"]]
            .map(|word| word.as_str().unwrap_or_default())
            .join("-");
        ensure!(reported == self.version, "{version}");
        ensure!(proxies.len() == PROXIES, "{version}");

        let status = self.run(&["proxy-status"])?;
        let all = rows(&status);
        let is_synced =
            |row: &Vec<&str>| row[1] == "Kubernetes" && row[2] == self.istiod && row[4..] == TYPES;
        ensure!(
            all.len() == PROXIES && all.iter().all(is_synced),
            "{status}"
        );

        let of_one = self.run(&["proxy-status", "--namespace", pods::NAMESPACE])?;
        ensure!(rows(&of_one).len() == PROXIES - 1, "{of_one}");
        let difference = self.run(&["proxy-status", &self.pod])?;
        let parts = ["Clusters Match", "Listeners Match", "Routes Match"];
        ensure!(
            parts.iter().all(|words| difference.contains(words)),
            "{difference}"
        );

        let debug = self.run(&["experimental", "internal-debug", "syncz"])?;
        let proxies: Value = serde_json::from_str(&debug).with_context(|| debug.clone())?;
        ensure!(count_proxies(&proxies) == PROXIES, "{debug}");
        let debug = self.run(&["experimental", "internal-debug", "--all", "configz"])?;
        let replicas: Value = serde_json::from_str(&debug).with_context(|| debug.clone())?;
        ensure!(
            replicas[&self.istiod].is_array(),
            "each replica responds: {debug}"
        );

        let clusters = self.run(&["remote-clusters"])?;
        ensure!(
            rows(&clusters) == [["Kubernetes", "synced", &self.istiod, "default"]],
            "{clusters}"
        );
        let secret = self.run(&[
            "create-remote-secret",
            "--name",
            "here",
            "--server",
            "https://10.0.0.1",
        ])?;

        ensure!(
            secret.contains("istio/multiCluster") && secret.contains("istio-remote-secret-here"),
            "{secret}"
        );

        Ok(())
    }

    /// `proxy-config`: clusters, listeners, routes, endpoints, certificates, the bootstrap, the
    /// log; `x envoy-stats`.
    fn the_configuration_of_a_proxy(&self) -> Result<()> {
        let pod = self.pod.as_str();
        let reviews = format!("reviews.{}.svc.cluster.local", pods::NAMESPACE);
        let cluster = format!("{reviews} 9080 v1 outbound EDS reviews.{}", pods::NAMESPACE);
        self.shows(&["proxy-config", "cluster", pod], &[&cluster])?;
        let listeners = self.run(&["proxy-config", "listener", pod])?;
        ensure!(
            listeners.contains("15006") && listeners.contains("Route: 9080"),
            "{listeners}"
        );

        let routes = self.run(&["proxy-config", "route", pod, "--name", "9080"])?;
        let is_of_reviews = |line: &str| {
            line.starts_with("9080") && line.contains("reviews") && has_virtual_service(line)
        };
        ensure!(routes.lines().any(is_of_reviews), "{routes}");
        let cluster = format!("outbound|9080|v1|{reviews}");
        let endpoints = self.run(&["proxy-config", "endpoint", pod, "--cluster", &cluster])?;
        let all = rows(&endpoints);

        ensure!(
            all.len() == 1 && all[0][1..] == ["HEALTHY", "OK", &cluster],
            "{endpoints}"
        );
        let secrets = self.run(&["proxy-config", "secret", pod])?;

        for (name, kind) in [("default", "Cert Chain"), ("ROOTCA", "CA")] {
            let is_valid = |line: &str| {
                line.starts_with(name) && line.contains(kind) && line.contains("ACTIVE")
            };
            ensure!(
                secrets
                    .lines()
                    .any(|line| is_valid(line) && line.contains("true")),
                "{secrets}"
            );
        }

        let bootstrap = self.run(&["proxy-config", "bootstrap", pod])?;
        let bootstrap: Value =
            serde_json::from_str(&bootstrap).with_context(|| bootstrap.clone())?;
        let node = bootstrap["bootstrap"]["node"]["id"]
            .as_str()
            .unwrap_or_default();
        ensure!(
            node.starts_with("sidecar~") && node.contains(&format!("~{pod}~")),
            "{bootstrap}"
        );

        let stats = [
            "experimental",
            "envoy-stats",
            pod,
            "--output",
            "prom-merged",
        ];

        ensure!(
            self.run(&stats)?
                .contains("envoy_cluster_manager_cds_update_success"),
            "{}",
            self.run(&stats)?
        );

        let log =
            |arguments: &[&str]| self.run(&[&["proxy-config", "log", pod], arguments].concat());
        ensure!(log(&[])?.contains("active loggers"), "{}", log(&[])?);
        let debug = log(&["--level", "http:debug"])?;
        ensure!(debug.contains("http: debug"), "{debug}");

        // The initial level is in the values of the injector.
        let reset = log(&["--reset"])?;
        ensure!(reset.contains("http: warning"), "{reset}");
        Ok(())
    }

    /// `proxy-config all`, whose rows begin with the resource type, and `proxy-config ecds`.
    fn all_the_configuration_of_a_proxy(&self) -> Result<()> {
        let all = self.run(&["proxy-config", "all", &self.pod])?;
        let names: Vec<&str> = all
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        let reviews = format!("reviews.{}.svc.cluster.local", pods::NAMESPACE);

        for name in [
            &format!("cluster/outbound|9080|v1|{reviews}"),
            "route/9080",
            "secret/default",
            "secret/ROOTCA",
        ] {
            ensure!(names.contains(&name), "no {name}: {all}");
        }

        for kind in ["listener/", "endpoint/"] {
            ensure!(
                names.iter().any(|name| name.starts_with(kind)),
                "no {kind}: {all}"
            );
        }

        // Envoy has this section only after it has received an extension.
        let shown = self
            .program
            .on(&self.kubeconfig, &["proxy-config", "ecds", &self.pod])?
            .output()?;
        let is_empty = String::from_utf8_lossy(&shown.stderr).contains("EcdsConfigDump");
        ensure!(
            is_empty || String::from_utf8_lossy(&shown.stdout).starts_with("ECDS NAME"),
            "{shown:?}"
        );

        Ok(())
    }

    /// `x describe` for a pod and for a Service.
    fn a_pod_and_its_services(&self) -> Result<()> {
        let namespace = ["--namespace", pods::NAMESPACE];
        let reviews = pod_of(self.mesh, pods::NAMESPACE, "app=reviews,version=v1")?;
        let of_both = [
            "DestinationRule: reviews for \"reviews\"",
            "VirtualService: reviews",
            "Port: http 9080/HTTP targets pod port 8081",
        ];
        let describe = ["experimental", "describe", "pod", &reviews];
        let shown = self.shows(&[&describe[..], &namespace].concat(), &of_both)?;

        for words in [
            format!("Pod: {reviews}"),
            "Matching subsets: v1".to_owned(),
            "mTLS mode: PERMISSIVE".to_owned(),
        ] {
            ensure!(shown.contains(&words), "no {words:?}: {shown}");
        }

        let describe = ["experimental", "describe", "service", "reviews"];
        self.shows(&[&describe[..], &namespace].concat(), &of_both[..1])
            .map(drop)
    }

    /// `x authz check`.
    async fn the_policies_of_a_pod(&self) -> Result<()> {
        self.mesh.apply(&[json!({
            "apiVersion": "security.istio.io/v1",
            "kind": "AuthorizationPolicy",
            "metadata": {"name": "closed", "namespace": pods::NAMESPACE},
            "spec": {
                "selector": {"matchLabels": {"app": "storefront"}},
                "action": "DENY",
                "rules": [{"from": [{"source": {"namespaces": ["nowhere"]}}]}],
            },
        })])?;

        until("the policy is shown", || async {
            let shown = self.run(&["experimental", "authz", "check", &self.pod]);
            shown.is_ok_and(|shown| {
                rows(&shown)
                    .iter()
                    .any(|row| row[..] == ["DENY", "closed.bookshop", "1"])
            })
        })
        .await;
        self.mesh
            .node
            .kubectl(&[
                "--namespace",
                pods::NAMESPACE,
                "delete",
                "authorizationpolicy",
                "closed",
            ])
            .map(drop)
    }

    /// `x injector list`, `x check-inject`, `tag list`, `kube-inject`.
    fn injection_commands(&self) -> Result<()> {
        let hook = "bookshop istio-sidecar-injector default localhost/navarch-proxy:test";
        let listed = self.shows(&["experimental", "injector", "list"], &[hook])?;
        ensure!(
            rows(&listed).contains(&vec![pods::NAMESPACE, "default", "default:", "5"]),
            "{listed}"
        );
        let checked = self.run(&["experimental", "check-inject", &self.pod])?;
        ensure!(
            checked.contains("istio-sidecar-injector") && checked.contains('✔'),
            "{checked}"
        );

        let tags = self.run(&["tag", "list"])?;
        ensure!(tags.contains("default"), "{tags}");
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("deployment.yaml");
        let container = json!({"name": "app", "image": pods::IMAGE});
        let template =
            json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container]}});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": pods::NAMESPACE},
            "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template},
        });
        std::fs::write(&file, deployment.to_string())?;

        let injected = self.run(&["kube-inject", "--filename", &file.display().to_string()])?;
        ensure!(
            injected.contains("name: istio-proxy") && injected.contains("navarch-proxy:test"),
            "{injected}"
        );

        Ok(())
    }

    /// `admin log`, through ControlZ.
    fn the_levels_of_the_log(&self) -> Result<()> {
        let log = |arguments: &[&str]| self.run(&[&["admin", "log"], arguments].concat());
        let level = |scope: &str| -> Result<String> {
            let all = self.program.json(&self.kubeconfig, &["admin", "log"])?;
            let one = all
                .as_array()
                .and_then(|all| all.iter().find(|one| one["scope_name"] == scope));
            Ok(one
                .and_then(|one| one["log_level"].as_str())
                .with_context(|| format!("no {scope} in {all}"))?
                .to_owned())
        };

        ensure!(log(&[])?.starts_with("ACTIVE SCOPE"), "{}", log(&[])?);

        for _ in 0..2 {
            log(&[
                "--level",
                "ads:debug,ca:error",
                "--stack-trace-level",
                "ads:debug",
            ])?;

            ensure!(
                (level("ads")?.as_str(), level("ca")?.as_str()) == ("debug", "error"),
                "{}",
                log(&[])?
            );
            log(&["--reset"])?;
            ensure!(
                (level("ads")?.as_str(), level("default")?.as_str()) == ("info", "info"),
                "{}",
                log(&[])?
            );
        }

        let unknown = self
            .program
            .on(
                &self.kubeconfig,
                &["admin", "log", "--level", "nobody:debug"],
            )?
            .output()?;

        ensure!(
            !unknown.status.success(),
            "the scope does not exist: {unknown:?}"
        );

        Ok(())
    }
}

/// The number of proxies on a page of proxy states. Tools that are connected have no clusters, and
/// are not counted.
fn count_proxies(page: &Value) -> usize {
    page.as_array()
        .into_iter()
        .flatten()
        .filter(|one| one["cluster_acked"].is_string())
        .count()
}

/// Whether a route names the VirtualService of the reviews.
fn has_virtual_service(line: &str) -> bool {
    line.trim_end()
        .ends_with(&format!("reviews.{}", pods::NAMESPACE))
}
