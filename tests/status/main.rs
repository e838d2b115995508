//! Objects and statuses that Navarch writes to a real Kubernetes API server, with only the rights
//! of deploy/.
//!
//! Needs the programs of `make tools`. The tests share one cluster, and no two write to the same
//! namespace.

#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test may fail loudly, spawn and print"
)]

mod addresses;
mod ambient;
mod analysis;
mod deploy;
mod doctor;
mod exports;
mod gateway_api;
mod gateways;
mod helm;
mod inference_pools;
mod leaders;
mod learned_scopes;
mod machines;
mod quarantine;
mod registration;
mod rollouts;
mod roots;
mod routes;
mod unready;
mod untaint;
mod whole;

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};
use navarch::status;
use navarch_testkit::cluster::{Cluster, ClusterConfig};
use navarch_testkit::wait::until;
use serde_json::{Value, json};

/// The namespace of Navarch.
const NAMESPACE: &str = "istio-system";

/// A cluster with Navarch's manifests and an audit log.
struct Deployed {
    cluster: Cluster,
    /// The API server's audit log.
    audit: PathBuf,
    /// The directory of the log.
    _folder: tempfile::TempDir,
}

impl Deployed {
    /// Starts a cluster and applies all of deploy/.
    async fn start() -> Self {
        let deployed = Self::empty().await;
        deployed.apply();
        deployed
    }

    /// Starts a cluster without Navarch's manifests.
    async fn empty() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let policy = folder.path().join("policy.yaml");
        let audit = folder.path().join("audit.log");
        let rules = json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{ "level": "Metadata", "userGroups": ["system:serviceaccounts"] }, { "level": "None" }],
        });

        std::fs::write(&policy, rules.to_string()).unwrap();
        let flags = vec![
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", audit.display()),
        ];
        let config = ClusterConfig {
            api_server_flags: flags,
            ..ClusterConfig::default()
        };

        Self {
            cluster: Cluster::start_with(config).await.unwrap(),
            audit,
            _folder: folder,
        }
    }

    /// Applies CRDs and manifests with kubectl, validated by the server.
    fn apply(&self) {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
        let apply = |file: &str| {
            let path = deploy.join(file);
            self.cluster
                .kubectl(
                    &["apply", "--validate=strict", "-f", path.to_str().unwrap()],
                    "",
                )
                .unwrap()
        };

        apply("charts/navarch/crds/istio.yaml");
        self.cluster.wait_for_crds().unwrap();
        let applied = apply("navarch.yaml");

        for what in [
            "deployment.apps/istiod",
            "service/istiod",
            "poddisruptionbudget.policy/istiod",
        ] {
            assert!(applied.contains(what), "{applied}");
        }

        self.forget_webhooks();
    }

    /// Deletes the webhook configurations. The cluster has no network for Services, so every call
    /// of a webhook would time out. tests/webhooks/main.rs tests webhooks.
    fn forget_webhooks(&self) {
        for kind in [
            "mutatingwebhookconfigurations",
            "validatingwebhookconfigurations",
        ] {
            self.cluster
                .kubectl(&["delete", kind, "--all"], "")
                .unwrap();
        }
    }

    /// A client with the rights of Navarch's service account.
    async fn as_navarch(&self) -> status::Cluster {
        let kubeconfig = self
            .cluster
            .kubeconfig_of(NAMESPACE, "istiod")
            .await
            .unwrap();
        let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
        let config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .unwrap();
        status::Cluster(kube::Client::try_from(config).unwrap())
    }

    /// An object; null if it does not exist.
    async fn get(&self, path: &str) -> Value {
        self.cluster
            .call("GET", path, "application/json", &Value::Null)
            .await
            .unwrap_or_default()
    }

    /// The requests of service accounts whose path contains this.
    fn requests(&self, part: &str) -> Vec<String> {
        let log = std::fs::read_to_string(&self.audit).unwrap_or_default();
        let events = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let uris = events.filter_map(|event| {
            Some(format!(
                "{} {}",
                event["verb"],
                event["requestURI"].as_str()?
            ))
        });
        uris.filter(|call| call.contains(part)).collect()
    }

    /// The requests of service accounts that were denied.
    fn denied(&self) -> Vec<String> {
        let log = std::fs::read_to_string(&self.audit).unwrap_or_default();
        assert!(
            log.contains("serviceaccount:istio-system:istiod"),
            "the audit log is empty"
        );
        let events = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let denied = events.filter(|event| event["responseStatus"]["code"] == 403);
        denied
            .map(|event| format!("{} {}", event["verb"], event["requestURI"]))
            .collect()
    }
}
