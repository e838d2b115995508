//! The names of metrics, on which dashboards and alerts depend.

use anyhow::{Result, ensure};

use crate::server::Server;
use crate::tools::{Connected, MESH, token};

/// istiod's metrics that one proxy and one certificate are enough to produce.
const METRICS: [&str; 52] = [
    "citadel_server_cert_chain_expiry_seconds",
    "citadel_server_cert_chain_expiry_timestamp",
    "citadel_server_csr_count",
    "citadel_server_root_cert_expiry_seconds",
    "citadel_server_root_cert_expiry_timestamp",
    "citadel_server_success_cert_issuance_count",
    "endpoint_no_pod",
    "grpc_server_handled_total",
    "grpc_server_handling_seconds_count",
    "grpc_server_msg_received_total",
    "grpc_server_msg_sent_total",
    "grpc_server_started_total",
    "istio_build",
    "istiod_uptime_seconds",
    "pilot_conflict_inbound_listener",
    "pilot_conflict_outbound_listener_tcp_over_current_tcp",
    "pilot_debounce_time_count",
    "pilot_destrule_subsets",
    "pilot_dns_cluster_without_endpoints",
    "pilot_eds_no_instances",
    "pilot_endpoint_not_ready",
    "pilot_inbound_updates",
    "pilot_info",
    "pilot_k8s_cfg_events",
    "pilot_k8s_endpoints_pending_pod",
    "pilot_k8s_endpoints_with_no_pods",
    "pilot_k8s_proxies_with_no_service_targets",
    "pilot_k8s_reg_events",
    "pilot_proxy_convergence_time_count",
    "pilot_proxy_queue_time_count",
    "pilot_pushcontext_init_seconds_count",
    "pilot_sds_certificate_errors_total",
    "pilot_services",
    "pilot_total_xds_internal_errors",
    "pilot_virt_services",
    "pilot_vservice_dup_domain",
    "pilot_xds",
    "pilot_xds_config_size_bytes_count",
    "pilot_xds_push_time_count",
    "pilot_xds_pushes",
    "pilot_xds_recv_max",
    "pilot_xds_send_time_count",
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
    "sidecar_injection_requests_total",
    "xds_cache_dependent_config_size",
    "xds_cache_reads",
    "xds_cache_size",
];

/// An endpoint whose pod does not exist.
const LACKING: &str = "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
    metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}\naddressType: IPv4\n\
    endpoints: [{addresses: [10.0.0.9], targetRef: {kind: Pod, name: gone, namespace: shop}}]\nports: [{name: http, port: 80}]\n";

#[tokio::test]
async fn metrics_have_the_names_of_istiod() -> Result<()> {
    let server = Server::with_mesh(&format!("{MESH}{LACKING}")).await?;
    let _proxy = Connected::new(&server, "web-1").await?;
    server
        .prove_by_certificate(&token(&server, "shop:web"))
        .await?;
    let text = server.metrics().await?;
    let has = |name: &str| {
        text.lines().any(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
        })
    };

    let missing: Vec<&str> = METRICS.into_iter().filter(|name| !has(name)).collect();
    ensure!(missing.is_empty(), "{missing:?} of {text}");
    ensure!(
        text.contains("pilot_k8s_reg_events{type=\"Services\",event=\"add\"} 1"),
        "{text}"
    );

    for line in [
        "pilot_k8s_endpoints_pending_pod 1",
        "pilot_k8s_endpoints_with_no_pods 1",
        "endpoint_no_pod 1",
    ] {
        ensure!(text.lines().any(|found| found == line), "{line} in {text}");
    }

    ensure!(
        text.contains("grpc_code=\"OK\"") && text.contains("grpc_method=\"CreateCertificate\""),
        "{text}"
    );

    Ok(())
}
