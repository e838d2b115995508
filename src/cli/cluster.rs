//! The control planes of a kubeconfig's cluster: their pods, and requests to them through the API
//! server's port-forward.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use futures_util::FutureExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use navarch_agent::local_http::{LocalRequest, LocalResponse};
use navarch_api::revision::REVISION_LABEL;
use navarch_kubernetes::InWords;

use super::debug_api::Among;
use super::kubeconfig::{ClusterClient, IstioNamespaceFlag, KubeconfigFlags};

/// The selector of control planes, which istioctl uses, too.
const APP_SELECTOR: &str = "app=istiod";
/// The name of the monitoring port in the charts' pods.
const PORT_NAME: &str = "http-monitoring";
/// The monitoring port of pods without a named one.
const DEFAULT_PORT: u16 = 15014;
/// Timeout of listing the pods.
const LIST_TIMEOUT: Duration = Duration::from_secs(15);

/// Which cluster, and which of its control planes.
#[derive(Args, Clone, Debug)]
pub(super) struct ClusterFlags {
    #[command(flatten)]
    kubeconfig: KubeconfigFlags,
    #[command(flatten)]
    namespace: IstioNamespaceFlag,
    /// Revision of the control planes (label istio.io/rev); all if unset
    #[arg(long, global = true, value_name = "NAME")]
    revision: Option<String>,
}

/// The control planes of a cluster.
#[derive(Clone)]
pub(super) struct Cluster {
    pods: Api<Pod>,
    namespace: String,
    selector: String,
    /// The description of the cluster in messages.
    name: String,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("name", &self.name)
            .field("selector", &self.selector)
            .finish_non_exhaustive()
    }
}

/// A port of a pod, which requests reach through the API server.
#[derive(Clone)]
pub(super) struct ForwardedPod {
    pub(super) pods: Api<Pod>,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) port: u16,
}

/// One control plane.
#[derive(Clone)]
pub(super) struct ReadyPod {
    pub(super) pod: ForwardedPod,
    /// The label `istio.io/rev`.
    pub(super) revision: Option<String>,
}

impl fmt::Display for ForwardedPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.name, self.namespace)
    }
}

impl fmt::Display for ReadyPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.pod, f)
    }
}

impl fmt::Debug for ReadyPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl ClusterFlags {
    /// The selected cluster, or that of the environment; `None` without a kubeconfig.
    ///
    /// # Errors
    /// If a kubeconfig is invalid.
    pub(super) async fn open(&self) -> anyhow::Result<Option<Cluster>> {
        let Some(opened) = self.client().await? else {
            return Ok(None);
        };

        let selector = self.selector();
        let pods = Api::namespaced(opened.client, &self.namespace.istio_namespace);

        Ok(Some(Cluster {
            pods,
            namespace: self.namespace.istio_namespace.clone(),
            selector,
            name: opened.name,
        }))
    }

    /// A client for the selected cluster, or that of the environment; `None` without a kubeconfig.
    ///
    /// # Errors
    /// If a kubeconfig is invalid.
    pub(super) async fn client(&self) -> anyhow::Result<Option<ClusterClient>> {
        let advice = "name a kubeconfig by --kubeconfig, or a control plane by --address";
        self.kubeconfig
            .optional(self.revision.is_some(), advice)
            .await
    }

    /// The namespace of the control planes.
    pub(super) fn istio_namespace(&self) -> &str {
        &self.namespace.istio_namespace
    }

    /// The revision of the control planes; `None` if all are selected.
    pub(super) fn revision(&self) -> Option<&str> {
        self.revision.as_deref()
    }

    /// The labels of the pods of the selected control planes.
    pub(super) fn selector(&self) -> String {
        match &self.revision {
            Some(revision) => format!("{APP_SELECTOR},{REVISION_LABEL}={revision}"),
            None => APP_SELECTOR.to_owned(),
        }
    }
}

impl Cluster {
    /// The control planes that are ready, by name.
    ///
    /// # Errors
    /// If the request to the API server fails, or there are none.
    pub(super) async fn ready(&self) -> anyhow::Result<Vec<ReadyPod>> {
        self.pods(Among::Ready).await
    }

    /// The control planes that are ready, or that are running, by name.
    ///
    /// # Errors
    /// If the request to the API server fails, or there are none.
    pub(super) async fn pods(&self, among: Among) -> anyhow::Result<Vec<ReadyPod>> {
        let Self {
            pods,
            namespace,
            selector,
            name,
        } = self;

        let parameters = ListParams::default().labels(selector);
        let listed = tokio::time::timeout(LIST_TIMEOUT, pods.list(&parameters)).await;
        let listed = listed.with_context(|| {
            format!("{name} did not respond within {LIST_TIMEOUT:?}: see `kubectl get pods`")
        })?;
        let listed = listed.map_err(|error| {
            if matches!(error, kube::Error::Api(_)) {
                return anyhow::anyhow!(
                    "{name}: {}. Request the verb list for pods in {namespace}, or set --address",
                    InWords(&error)
                );
            }
            let error = anyhow::Error::from(error);
            let next = format!("Try `kubectl get pods -n {namespace}`, or set --address");
            anyhow::anyhow!("{name} does not respond: {error:#}. {next}")
        })?;

        let is_wanted = |pod: &&Pod| match among {
            Among::Ready => is_ready(pod),
            Among::Running => runs(pod),
        };
        let mut ready: Vec<_> = listed
            .iter()
            .filter(is_wanted)
            .map(|pod| self.pod(pod))
            .collect();
        ready.sort_unstable_by(|one, other| one.pod.name.cmp(&other.pod.name));

        if !ready.is_empty() {
            return Ok(ready);
        }

        let others: Vec<_> = listed.iter().map(kube::ResourceExt::name_any).collect();
        match others.as_slice() {
            [] => bail!(
                "{name}: namespace {namespace} has no pod with the labels {selector}: find control planes with \
                 `kubectl get pods -A -l {APP_SELECTOR}`, and set --istioNamespace and --revision"
            ),
            some => bail!(
                "{name}: no control plane in {namespace} is ready ({}): see `kubectl describe pods -n {namespace} -l {selector}`",
                some.join(", ")
            ),
        }
    }

    /// A pod as the target of requests.
    fn pod(&self, pod: &Pod) -> ReadyPod {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
        let named = ports.find(|port| port.name.as_deref() == Some(PORT_NAME));
        let port = named
            .and_then(|port| u16::try_from(port.container_port).ok())
            .unwrap_or(DEFAULT_PORT);
        ReadyPod {
            pod: ForwardedPod {
                pods: self.pods.clone(),
                namespace: self.namespace.clone(),
                name: pod.name_any(),
                port,
            },
            revision: pod.labels().get(REVISION_LABEL).cloned(),
        }
    }
}

/// Whether a pod is running, ready and not terminating.
fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    is_ready && pod.metadata.deletion_timestamp.is_none()
}

/// Whether a pod is running and not terminating, ready or not.
fn runs(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
}

impl ForwardedPod {
    /// Each request has its own connection through the API server, and arrives on loopback.
    ///
    /// # Errors
    /// If there is no complete response within the request's timeout.
    pub(super) async fn send(&self, question: LocalRequest) -> anyhow::Result<LocalResponse> {
        let timeout = question.timeout;
        let answer = tokio::time::timeout(timeout, self.forwarded(question)).await;
        let port = self.port;
        answer
            .with_context(|| format!("{self} did not respond on port {port} within {timeout:?}"))?
    }

    /// Sends a request without a timeout for the port-forward.
    async fn forwarded(&self, question: LocalRequest) -> anyhow::Result<LocalResponse> {
        let mut forward = self
            .pods
            .portforward(&self.name, &[self.port])
            .await
            .map_err(|error| self.forward_error(&error))?;
        let lost = || format!("failed to forward port {} of {self}", self.port);
        let mut error = forward.take_error(self.port).with_context(lost)?.boxed();
        let stream = forward.take_stream(self.port).with_context(lost)?;

        // In the pod it arrives on loopback, and this host name marks it as local.
        let answer = LocalRequest {
            host: "localhost".to_owned(),
            port: self.port,
            ..question
        }
        .send_over(stream)
        .await;

        let reason = (&mut error).now_or_never().flatten();
        forward.abort();
        answer
            .map_err(anyhow::Error::from)
            .with_context(|| match reason {
                Some(reason) => format!(
                    "{self} does not respond on port {}: {}",
                    self.port,
                    reason.trim()
                ),
                None => format!("{self} does not respond on port {}", self.port),
            })
    }

    /// The error of a failed port-forward.
    fn forward_error(&self, error: &kube::Error) -> anyhow::Error {
        let Self {
            namespace, name, ..
        } = self;
        let code = if let kube::Error::Api(status) = error {
            status.code
        } else {
            0
        };

        let reason = InWords(error);

        match code {
            401 | 403 => anyhow::anyhow!(
                "{self}: {reason}. Request the verbs get and create for pods/portforward in {namespace}, \
                 or set --address and --token-file"
            ),
            404 => anyhow::anyhow!(
                "{self} no longer exists: try again (`kubectl get pods -n {namespace}`)"
            ),
            _ => anyhow::anyhow!(
                "{self} cannot be reached through the API server: {reason}. Try `kubectl port-forward -n {namespace} {name} {}`",
                self.port
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_ready_and_not_terminating_pods_are_queried() {
        let pod = |ready: &str, ends: Option<&str>| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "istiod-1", "deletionTimestamp": ends},
                "status": {"conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": ready}]},
            }))
            .unwrap()
        };

        assert!(is_ready(&pod("True", None)) && !is_ready(&pod("False", None)));
        assert!(
            !is_ready(&pod("True", Some("2026-01-01T00:00:00Z"))) && !is_ready(&Pod::default())
        );
        let mut starting = pod("False", None);
        assert!(!runs(&starting), "it may have no process yet");
        starting.status.as_mut().unwrap().phase = Some("Running".to_owned());
        assert!(
            runs(&starting) && !is_ready(&starting),
            "a doctor is wanted where it does not get ready"
        );
    }
}
