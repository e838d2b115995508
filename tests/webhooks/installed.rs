//! A cluster with all of deploy/, whose webhook configurations point to a port of this machine.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use navarch_testkit::cluster::{Cluster, ClusterConfig};
use navarch_testkit::navarch::Navarch;
use navarch_testkit::ports;
use regex::Regex;
use serde_json::Value;

use crate::authority::Authority;

/// The namespace of Navarch.
pub(crate) const NAMESPACE: &str = "istio-system";

/// The result of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) succeeded: bool,
    /// stdout and stderr.
    pub(crate) text: String,
}

/// A cluster, and the address of Navarch's webhooks.
pub(crate) struct Installed {
    pub(crate) cluster: Cluster,
    /// The port of the webhooks.
    pub(crate) port: u16,
    /// The CA with which Navarch signs.
    pub(crate) authority: Authority,
}

impl Installed {
    /// Starts a cluster with these controllers and applies all of deploy/. The cluster has no
    /// network for Services, so the webhook configurations use a port of this machine.
    pub(crate) async fn start(controllers: &[&str]) -> Self {
        let controllers = controllers.iter().map(ToString::to_string).collect();
        let cluster = Cluster::start_with(ClusterConfig {
            controllers,
            ..ClusterConfig::default()
        })
        .await
        .unwrap();
        let installed = Self {
            cluster,
            port: ports::free().unwrap(),
            authority: Authority::new(),
        };

        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
        let crds = deploy.join("charts/navarch/crds/istio.yaml");
        installed
            .cluster
            .kubectl(
                &["apply", "--validate=strict", "-f", crds.to_str().unwrap()],
                "",
            )
            .unwrap();

        installed.cluster.wait_for_crds().unwrap();
        let manifest = std::fs::read_to_string(deploy.join("navarch.yaml")).unwrap();
        let service = Regex::new(
            r"service:\n +name: istiod\n +namespace: istio-system\n +path: (/\w+)\n +port: 443",
        )
        .unwrap();
        let here = format!("url: https://localhost:{}$1", installed.port);
        let manifest = service.replace_all(&manifest, here);

        assert_eq!(
            manifest.matches("url: https://localhost").count(),
            6,
            "webhooks of the manifest"
        );
        installed
            .cluster
            .kubectl(&["apply", "--validate=strict", "-f", "-"], &manifest)
            .unwrap();

        installed
    }

    /// Starts a replica on the webhook port, and waits until it is ready.
    pub(crate) async fn navarch(&self, name: &str) -> Navarch {
        self.navarch_at(name, self.port).await
    }

    /// Starts a replica on a port, and waits until it is ready.
    pub(crate) async fn navarch_at(&self, name: &str, port: u16) -> Navarch {
        let mut navarch = self.launch_at(name, port).await;
        navarch.wait_ready().await.unwrap();
        navarch
    }

    /// Starts a replica on a port without waiting until it is ready.
    pub(crate) async fn launch_at(&self, name: &str, port: u16) -> Navarch {
        self.launch_with(name, port, &[]).await
    }

    /// Like [`Self::launch_at`], with more environment variables.
    pub(crate) async fn launch_with(
        &self,
        name: &str,
        port: u16,
        more: &[(&str, &str)],
    ) -> Navarch {
        let kubeconfig = self
            .cluster
            .kubeconfig_of(NAMESPACE, "istiod")
            .await
            .unwrap();
        let folder = self.authority.folder();
        let environment = [
            ("POD_NAME", name),
            ("POD_NAMESPACE", NAMESPACE),
            ("REVISION", "default"),
            ("ISTIOD_CUSTOM_HOST", "localhost"),
            ("ROOT_CA_DIR", folder.to_str().unwrap()),
            ("NAVARCH_WEBHOOK_ROOT_GRACE", "8s"),
            ("NAVARCH_ROOT_OVERLAP", "1s"),
        ];

        let environment = [&environment[..], more].concat();
        let arguments = [
            format!("--https-addr=127.0.0.1:{port}"),
            "--secure-grpc-addr=127.0.0.1:0".to_owned(),
        ];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let program = Path::new(env!("CARGO_BIN_EXE_navarch"));

        Navarch::launch_on_kubernetes(program, &kubeconfig, &arguments, &environment)
            .await
            .unwrap()
    }

    /// An object; null if it does not exist.
    pub(crate) async fn get(&self, path: &str) -> Value {
        self.cluster
            .call("GET", path, "application/json", &Value::Null)
            .await
            .unwrap_or_default()
    }

    /// Runs kubectl with a text as standard input.
    pub(crate) fn kubectl(&self, args: &[&str], input: &str) -> CommandOutput {
        let mut command = Command::new(self.cluster.program("kubectl"));
        command
            .arg("--kubeconfig")
            .arg(self.cluster.admin_kubeconfig())
            .args(args);
        command
            .env("HOME", self.cluster.folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());

        let mut child = command.spawn().unwrap();
        drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
        let output = child.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr]
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .concat();
        CommandOutput {
            succeeded: output.status.success(),
            text,
        }
    }

    /// `kubectl apply` of an object.
    pub(crate) fn apply(&self, object: &Value) -> CommandOutput {
        self.kubectl(&["apply", "-f", "-"], &object.to_string())
    }

    /// `kubectl create` of an object with a server-side dry run.
    pub(crate) fn try_out(&self, object: &Value) -> CommandOutput {
        self.kubectl(
            &["create", "--dry-run=server", "-o", "json", "-f", "-"],
            &object.to_string(),
        )
    }

    /// The webhooks of a configuration.
    pub(crate) async fn webhooks(&self, kind: &str, name: &str) -> Vec<Value> {
        let path =
            format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/{name}");
        self.get(&path).await["webhooks"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    }

    /// Whether all configurations have exactly this CA bundle, and validation fails closed.
    pub(crate) async fn is_registered(&self, bundle: &str) -> bool {
        self.are_registered(|found| found == bundle).await
    }

    /// Whether all configurations have both of these roots, and validation fails closed.
    pub(crate) async fn trusts_both(&self, one: &str, other: &str) -> bool {
        self.are_registered(|found| found.contains(one.trim()) && found.contains(other.trim()))
            .await
    }

    /// Whether the CA bundles of all configurations meet a condition, and validation fails closed.
    async fn are_registered(&self, is_good: impl Fn(&str) -> bool) -> bool {
        for (kind, name) in [
            ("mutating", "istio-sidecar-injector"),
            ("validating", "istio-validator-istio-system"),
            ("validating", "istiod-default-validator"),
        ] {
            let hooks = self.webhooks(kind, name).await;
            let is_closed = |hook: &Value| {
                let bundle = crate::authority::text(
                    hook["clientConfig"]["caBundle"]
                        .as_str()
                        .unwrap_or_default(),
                );
                is_good(&bundle) && hook["failurePolicy"] == "Fail"
            };
            if hooks.is_empty() || !hooks.iter().all(is_closed) {
                return false;
            }
        }

        true
    }
}
