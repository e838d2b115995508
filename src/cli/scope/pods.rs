//! The metrics of pods, through the API server's port-forward: the page of the agent, which has
//! those of Envoy.

use std::time::Duration;

use anyhow::bail;
use futures_util::{StreamExt as _, stream};
use kube::{Api, Client};
use navarch_agent::local_http::LocalRequest;
use navarch_base::printable::escape;
use navarch_migration::SidecarPod;
use navarch_scope::Moment;
use navarch_scope::reading::{CONNECTIONS, Claim, REQUESTS, Reader, Reading, UPTIME};

use super::super::cluster::ForwardedPod;
use super::super::output::report;
use super::super::progress::Progress;
use super::name_of;
use super::sources::{Gathered, IsHost, now, report_foreign, report_malformed};

/// The page with all metrics. Envoy leaves out those that the filter does not match.
const PAGE: &str = "/stats/prometheus?usedonly&filter=istio_requests_total%7C\
                    istio_tcp_connections_opened_total%7Cserver.uptime";
/// Timeout of each pod.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The maximum size of a page: the metrics of an application are part of it.
const MAX_PAGE: usize = 32 << 20;
/// The maximum number of pods that are read at a time. Each is a connection of the API server.
const MAX_CONCURRENT_PODS: usize = 8;

/// Reads the pods. Those that cannot be read are reported and counted.
pub(super) async fn read(
    client: &Client,
    pods: &[&SidecarPod],
    is_host: IsHost<'_>,
    gathered: &mut Gathered,
) {
    let progress = Progress::begin("reading the metrics of pods");
    let pages = pods
        .iter()
        .map(|pod| async move { (pod, page(client, pod).await) });
    let mut pages = stream::iter(pages).buffer_unordered(MAX_CONCURRENT_PODS);
    let mut done = 0_usize;

    while let Some((pod, page)) = pages.next().await {
        done += 1;
        progress.set_text(format!("read the metrics of {done} of {} pods", pods.len()));
        match page {
            Ok(text) => {
                gathered.evidence.add(&reading(pod, &text, is_host));
                gathered.read += 1;
            }
            Err(error) => {
                // The response of the pod may be part of it.
                let reason = format!("{error:#}");
                report(&format!("Warning: {}: {}", place(pod), escape(&reason)));
                *gathered.unread.entry(name_of(pod)).or_default() += 1;
            }
        }
    }
}

/// The name of a pod in messages: that of a file with its page.
fn place(pod: &SidecarPod) -> String {
    format!("{}.{}", pod.name, pod.namespace)
}

/// The page of a pod.
async fn page(client: &Client, pod: &SidecarPod) -> anyhow::Result<String> {
    if !pod.is_running {
        bail!("it is not running");
    }
    if pod.status_port == 0 {
        bail!("its agent has no status port: see status.sidecar.istio.io/port and statusPort");
    }

    let forwarded = ForwardedPod {
        pods: Api::namespaced(client.clone(), &pod.namespace),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        port: pod.status_port,
    };
    let request = LocalRequest {
        limit: MAX_PAGE,
        ..LocalRequest::get("localhost", pod.status_port, PAGE, TIMEOUT)
    };
    let response = forwarded.send(request).await?;
    if !response.status.is_success() {
        bail!("its agent has no metrics (HTTP {})", response.status);
    }

    let text = response.text().into_owned();
    if !has_proxy_metrics(&text) {
        bail!(
            "its agent has no metrics of Envoy: it could not read them, has no Envoy, or \
             PILOT_AGENT_MERGE_ENVOY_STATS=false is set"
        );
    }
    Ok(text)
}

/// Whether a page has what a proxy counts, or at least for how long it has counted. The agent
/// responds also without: that the pod has called nothing would be no evidence.
fn has_proxy_metrics(text: &str) -> bool {
    let is_wanted = |line: &str| {
        let end = line.find(|sign: char| sign == '{' || sign.is_whitespace());
        end.and_then(|end| line.get(..end))
            .is_some_and(|metric| [REQUESTS, CONNECTIONS, UPTIME].contains(&metric))
    };
    text.lines().any(is_wanted)
}

/// The reading of a pod's page.
fn reading(pod: &SidecarPod, text: &str, is_host: IsHost<'_>) -> Reading {
    let started = pod.started.parse().ok().map(Moment::of);
    let reading = Reading {
        since: started,
        ..Reading::new(&pod.name, now())
    };

    let own = name_of(pod);
    let mut reader = Reader::new(reading, Claim::OwnWorkload(&own), is_host);
    reader.read(text);
    let reading = reader.finish();
    let place = place(pod);
    report_malformed(&place, &reading.malformed);
    report_foreign(&place, reading.foreign);
    reading
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use navarch_answers::node_message::NodeMessage;
    use navarch_api::settings::Settings;
    use serde_json::Map;

    use super::*;

    #[test]
    fn a_page_counts_for_the_workload_of_its_pod_alone() {
        let message = NodeMessage {
            kind: "sidecar",
            namespace: "shop",
            name: "web-1",
            ips: &[IpAddr::from([10, 0, 0, 1])],
            labels: Map::new(),
            node: "n1",
            service_account: "web",
            locality: "",
            further: Map::new(),
        };
        let pod = SidecarPod {
            namespace: "shop".to_owned(),
            workload: "web".to_owned(),
            name: "web-1".to_owned(),
            started: "2026-01-01T00:00:00Z".to_owned(),
            is_running: true,
            status_port: 15020,
            proxy: message.proxy(&Settings::default()).unwrap(),
        };
        let page = r#"
istio_requests_total{reporter="source",source_workload="web",source_workload_namespace="shop",destination_service="a.local"} 7
istio_requests_total{reporter="source",source_workload="other",source_workload_namespace="shop",destination_service="b.local"} 7
envoy_server_uptime{} 60
"#;

        let found = reading(&pod, page, &|_| true);
        assert_eq!(found.instance, "web-1");
        assert_eq!(found.foreign, 1);
        let seen = &found.workloads[&name_of(&pod)];
        assert_eq!(seen.calls["a.local"].requests, 7);
        assert!(!seen.calls.contains_key("b.local"));
        // Envoy has counted since it has started, which is later than the container has.
        assert_eq!(found.read.seconds_since(found.since.unwrap()), 60);
    }

    #[test]
    fn a_page_without_metrics_of_a_proxy_is_no_evidence() {
        let of_agent = "# TYPE istio_requests_total counter\nistio_agent_startup_failures 0\n";
        assert!(!has_proxy_metrics(of_agent));
        for line in [
            "envoy_server_uptime{} 60",
            "envoy_server_uptime 60",
            "istio_requests_total{reporter=\"source\"} 1",
            "istio_tcp_connections_opened_total{reporter=\"source\"} 1",
        ] {
            assert!(has_proxy_metrics(&format!("{of_agent}{line}\n")), "{line}");
        }
    }
}
