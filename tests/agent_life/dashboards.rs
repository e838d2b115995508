//! Istio's dashboards of the mesh, its services and workloads: every panel has data from the pods
//! of a client and a server, whose sidecars are stock Envoys.
//!
//! `$service`, `$client` and so on are a dashboard's variables: `$service` and `$bytes` are the
//! called service by HTTP and by TCP, `$client` and `$server` the workloads, `$namespace` their
//! namespace.

use anyhow::{Result, ensure};

use crate::panels::{Panel, Query, Scrape};

/// A query that groups by labels.
const fn by(selector: &'static str, by: &'static [&'static str]) -> Query {
    Query { selector, by }
}

const fn panel(title: &'static str, queries: &'static [Query]) -> Panel {
    Panel { title, queries }
}

const WORKLOAD: &[&str] = &["destination_workload", "destination_workload_namespace"];
const WITH_SERVICE: &[&str] = &[
    "destination_workload",
    "destination_workload_namespace",
    "destination_service",
];
const BUCKETS: &[&str] = &[
    "le",
    "destination_workload",
    "destination_workload_namespace",
];
const SOURCE: &[&str] = &["source_workload", "source_workload_namespace"];
const SOURCE_CODE: &[&str] = &[
    "source_workload",
    "source_workload_namespace",
    "response_code",
];
const SOURCE_BUCKETS: &[&str] = &["source_workload", "source_workload_namespace", "le"];
const WORKLOAD_CODE: &[&str] = &[
    "destination_workload",
    "destination_workload_namespace",
    "response_code",
];

/// Istio Mesh Dashboard, and the panels of Istio Performance Dashboard with metrics of the mesh.
const MESH: [Panel; 9] = [
    panel(
        "Traffic Volume",
        &[by(
            "istio_requests_total{reporter=~\"source|waypoint\"}",
            &[],
        )],
    ),
    panel(
        "Success Rate",
        &[by(
            "istio_requests_total{reporter=~\"source|waypoint\",response_code!~\"5..\"}",
            &[],
        )],
    ),
    panel(
        "4xxs",
        &[by(
            "istio_requests_total{reporter=~\"source|waypoint\",response_code=~\"4..\"}",
            &[],
        )],
    ),
    panel(
        "5xxs",
        &[by(
            "istio_requests_total{reporter=~\"source|waypoint\",response_code=~\"5..\"}",
            &[],
        )],
    ),
    panel(
        "HTTP/gRPC Workloads",
        &[
            by(
                "istio_requests_total{reporter=~\"source|waypoint\"}",
                WITH_SERVICE,
            ),
            by(
                "istio_request_duration_milliseconds_bucket{reporter=~\"source|waypoint\"}",
                BUCKETS,
            ),
            by(
                "istio_requests_total{reporter=~\"source|waypoint\",response_code!~\"5..\"}",
                WORKLOAD,
            ),
        ],
    ),
    panel(
        "TCP Workloads",
        &[
            by(
                "istio_tcp_received_bytes_total{reporter=~\"source|waypoint\"}",
                WITH_SERVICE,
            ),
            by(
                "istio_tcp_sent_bytes_total{reporter=~\"source|waypoint\"}",
                WITH_SERVICE,
            ),
        ],
    ),
    panel(
        "Istio Component Versions",
        &[by(
            "istio_build{component=\"proxy\"}",
            &["component", "tag"],
        )],
    ),
    panel(
        "Performance: vCPU / 1k rps",
        &[by(
            "istio_requests_total{source_workload=\"$client\",reporter=\"source\"}",
            &[],
        )],
    ),
    panel(
        "Performance: Bytes transferred / sec",
        &[
            by(
                "istio_response_bytes_sum{source_workload=\"$client\",reporter=\"source\"}",
                &[],
            ),
            by(
                "istio_response_bytes_sum{source_workload_namespace!=\"istio-system\",reporter=\"source\"}",
                &[],
            ),
            by(
                "istio_request_bytes_sum{source_workload_namespace!=\"istio-system\",reporter=\"source\"}",
                &[],
            ),
        ],
    ),
];

/// Istio Service Dashboard, the queries of its variables first.
const SERVICE: [Panel; 20] = [
    panel(
        "service",
        &[
            by("istio_requests_total", &["destination_service"]),
            by("istio_tcp_sent_bytes_total", &["destination_service"]),
        ],
    ),
    panel(
        "srccluster",
        &[by(
            "istio_requests_total{reporter=~\"source|destination\",destination_service=\"$service\"}",
            &["source_cluster"],
        )],
    ),
    panel(
        "srcwl",
        &[by(
            "istio_requests_total{reporter=~\"source|destination\",destination_service=\"$service\",source_workload_namespace=~\"$namespace\"}",
            SOURCE,
        )],
    ),
    panel(
        "dstcluster",
        &[by(
            "istio_requests_total{reporter=\"destination\",destination_service=\"$service\"}",
            &["destination_cluster"],
        )],
    ),
    panel(
        "dstwl",
        &[by(
            "istio_requests_total{reporter=\"destination\",destination_service=\"$service\",destination_workload_namespace=~\"$namespace\"}",
            WORKLOAD,
        )],
    ),
    panel(
        "Client Request Volume",
        &[by(
            "istio_requests_total{reporter=~\"source|destination\",destination_service=\"$service\"}",
            &[],
        )],
    ),
    panel(
        "Client Success Rate",
        &[by(
            "istio_requests_total{reporter=~\"source|destination\",destination_service=\"$service\",response_code!~\"5.*\"}",
            &[],
        )],
    ),
    panel(
        "Client Request Duration",
        &[by(
            "istio_request_duration_milliseconds_bucket{reporter=~\"source|destination\",destination_service=\"$service\"}",
            &["le"],
        )],
    ),
    panel(
        "TCP Received Bytes",
        &[by(
            "istio_tcp_received_bytes_total{reporter=~\"source|destination\",destination_service=\"$bytes\"}",
            &[],
        )],
    ),
    panel(
        "Server Request Volume, Success Rate",
        &[by(
            "istio_requests_total{reporter=\"destination\",destination_service=\"$service\",response_code!~\"5.*\"}",
            &[],
        )],
    ),
    panel(
        "Server Request Duration",
        &[by(
            "istio_request_duration_milliseconds_bucket{reporter=\"destination\",destination_service=\"$service\"}",
            &["le"],
        )],
    ),
    panel(
        "TCP Sent Bytes",
        &[by(
            "istio_tcp_sent_bytes_total{reporter=~\"source|destination\",destination_service=\"$bytes\"}",
            &[],
        )],
    ),
    panel(
        "Incoming Requests, Success Rate By Source",
        &[
            by(
                "istio_requests_total{connection_security_policy=\"mutual_tls\",destination_service=\"$service\",reporter=~\"source|destination\",source_workload=~\"$client\",source_workload_namespace=~\"$namespace\"}",
                SOURCE_CODE,
            ),
            by(
                "istio_requests_total{connection_security_policy!=\"mutual_tls\",destination_service=\"$service\",reporter=~\"source|destination\",source_workload=~\"$client\",source_workload_namespace=~\"$namespace\"}",
                SOURCE_CODE,
            ),
        ],
    ),
    panel(
        "Incoming Request Duration By Source",
        &[
            by(
                "istio_request_duration_milliseconds_bucket{connection_security_policy=\"mutual_tls\",destination_service=\"$service\",source_workload=~\"$client\"}",
                SOURCE_BUCKETS,
            ),
            by(
                "istio_request_duration_milliseconds_bucket{connection_security_policy!=\"mutual_tls\",destination_service=\"$service\",source_workload=~\"$client\"}",
                SOURCE_BUCKETS,
            ),
        ],
    ),
    panel(
        "Incoming Request Size, Response Size By Source",
        &[
            by(
                "istio_request_bytes_bucket{connection_security_policy=\"mutual_tls\",destination_service=\"$service\",source_workload=~\"$client\"}",
                SOURCE_BUCKETS,
            ),
            by(
                "istio_response_bytes_bucket{connection_security_policy!=\"mutual_tls\",destination_service=\"$service\",source_workload=~\"$client\"}",
                SOURCE_BUCKETS,
            ),
        ],
    ),
    panel(
        "Bytes From and To Incoming TCP Connection, By Source",
        &[
            by(
                "istio_tcp_received_bytes_total{reporter=~\"source|destination\",connection_security_policy!=\"mutual_tls\",destination_service=\"$bytes\",source_workload=~\"$client\"}",
                SOURCE,
            ),
            by(
                "istio_tcp_sent_bytes_total{reporter=~\"source|destination\",connection_security_policy!=\"mutual_tls\",destination_service=\"$bytes\",source_workload=~\"$client\"}",
                SOURCE,
            ),
        ],
    ),
    panel(
        "Incoming Requests, Success Rate By Destination Workload",
        &[by(
            "istio_requests_total{connection_security_policy=\"mutual_tls\",destination_service=\"$service\",reporter=\"destination\",destination_workload=~\"$server\",destination_workload_namespace=~\"$namespace\"}",
            WORKLOAD_CODE,
        )],
    ),
    panel(
        "Incoming Request Duration By Service Workload",
        &[by(
            "istio_request_duration_milliseconds_bucket{reporter=\"destination\",connection_security_policy=\"mutual_tls\",destination_service=\"$service\",destination_workload=~\"$server\"}",
            BUCKETS,
        )],
    ),
    panel(
        "Incoming Request Size, Response Size By Service Workload",
        &[
            by(
                "istio_request_bytes_bucket{reporter=\"destination\",connection_security_policy=\"mutual_tls\",destination_service=\"$service\",destination_workload=~\"$server\"}",
                BUCKETS,
            ),
            by(
                "istio_response_bytes_bucket{reporter=\"destination\",connection_security_policy=\"mutual_tls\",destination_service=\"$service\",destination_workload=~\"$server\"}",
                BUCKETS,
            ),
        ],
    ),
    panel(
        "Bytes From and To Incoming TCP Connection, By Workload",
        &[
            by(
                "istio_tcp_received_bytes_total{reporter=\"destination\",connection_security_policy=\"mutual_tls\",destination_service=\"$bytes\",destination_workload=~\"$server\"}",
                WORKLOAD,
            ),
            by(
                "istio_tcp_sent_bytes_total{reporter=\"destination\",connection_security_policy=\"mutual_tls\",destination_service=\"$bytes\",destination_workload=~\"$server\"}",
                WORKLOAD,
            ),
        ],
    ),
];

/// Istio Workload Dashboard, the queries of its variables first. The workload is the server for
/// inbound requests, the client for outbound ones.
const WORKLOADS: [Panel; 13] = [
    panel(
        "namespace",
        &[by(
            "istio_requests_total",
            &["destination_workload_namespace"],
        )],
    ),
    panel(
        "workload",
        &[
            by(
                "istio_requests_total{destination_workload_namespace=~\"$namespace\"}",
                WORKLOAD,
            ),
            by(
                "istio_requests_total{source_workload_namespace=~\"$namespace\"}",
                SOURCE,
            ),
        ],
    ),
    panel(
        "dstsvc",
        &[by(
            "istio_requests_total{reporter=\"source\",source_workload=~\"$client\",source_workload_namespace=~\"$namespace\"}",
            &["destination_service"],
        )],
    ),
    panel(
        "Incoming Request Volume, Success Rate",
        &[by(
            "istio_requests_total{reporter=~\"source|destination\",destination_workload_namespace=~\"$namespace\",destination_workload=~\"$server\",response_code!~\"5.*\"}",
            &[],
        )],
    ),
    panel(
        "Request Duration",
        &[by(
            "istio_request_duration_milliseconds_bucket{reporter=~\"source|destination\",destination_workload=~\"$server\",destination_workload_namespace=~\"$namespace\"}",
            &["le"],
        )],
    ),
    panel(
        "TCP Server Traffic",
        &[
            by(
                "istio_tcp_sent_bytes_total{reporter=~\"source|destination\",destination_workload_namespace=~\"$namespace\",destination_workload=~\"$server\"}",
                &[],
            ),
            by(
                "istio_tcp_received_bytes_total{reporter=~\"source|destination\",destination_workload_namespace=~\"$namespace\",destination_workload=~\"$server\"}",
                &[],
            ),
        ],
    ),
    panel(
        "TCP Client Traffic",
        &[
            by(
                "istio_tcp_sent_bytes_total{reporter=~\"source|destination\",source_workload_namespace=~\"$namespace\",source_workload=~\"$client\"}",
                &[],
            ),
            by(
                "istio_tcp_received_bytes_total{reporter=~\"source|destination\",source_workload_namespace=~\"$namespace\",source_workload=~\"$client\"}",
                &[],
            ),
        ],
    ),
    panel(
        "Incoming Requests By Source And Response Code",
        &[by(
            "istio_requests_total{connection_security_policy=\"mutual_tls\",destination_workload_namespace=~\"$namespace\",destination_workload=~\"$server\",reporter=~\"source|destination\",source_workload=~\"$client\"}",
            SOURCE_CODE,
        )],
    ),
    panel(
        "Incoming Request Duration, Sizes By Source",
        &[
            by(
                "istio_request_duration_milliseconds_bucket{connection_security_policy=\"mutual_tls\",destination_workload=~\"$server\",source_workload=~\"$client\"}",
                SOURCE_BUCKETS,
            ),
            by(
                "istio_request_bytes_bucket{connection_security_policy=\"mutual_tls\",destination_workload=~\"$server\",source_workload=~\"$client\"}",
                SOURCE_BUCKETS,
            ),
            by(
                "istio_response_bytes_bucket{connection_security_policy=\"mutual_tls\",destination_workload=~\"$server\",source_workload=~\"$client\"}",
                SOURCE_BUCKETS,
            ),
        ],
    ),
    panel(
        "Bytes From and To Incoming TCP Connection",
        &[
            by(
                "istio_tcp_received_bytes_total{reporter=~\"source|destination\",connection_security_policy=\"mutual_tls\",destination_workload=~\"$server\",source_workload=~\".*\"}",
                SOURCE,
            ),
            by(
                "istio_tcp_sent_bytes_total{reporter=~\"source|destination\",connection_security_policy=\"mutual_tls\",destination_workload=~\"$server\",source_workload=~\".*\"}",
                SOURCE,
            ),
        ],
    ),
    panel(
        "Outgoing Requests By Destination And Response Code",
        &[by(
            "istio_requests_total{destination_principal=~\"spiffe.*\",source_workload_namespace=~\"$namespace\",source_workload=~\"$client\",reporter=\"source\",destination_service=~\"$service\"}",
            &["destination_service", "response_code"],
        )],
    ),
    panel(
        "Outgoing Success Rate, Duration, Sizes By Destination",
        &[
            by(
                "istio_requests_total{reporter=\"source\",connection_security_policy!=\"mutual_tls\",source_workload=~\"$client\",destination_service=~\"$service\"}",
                &["destination_service"],
            ),
            by(
                "istio_request_duration_milliseconds_bucket{reporter=\"source\",connection_security_policy!=\"mutual_tls\",source_workload=~\"$client\",destination_service=~\"$service\"}",
                &["destination_service", "le"],
            ),
            by(
                "istio_request_bytes_bucket{reporter=\"source\",connection_security_policy!=\"mutual_tls\",source_workload=~\"$client\",destination_service=~\"$service\"}",
                &["destination_service", "le"],
            ),
            by(
                "istio_response_bytes_bucket{reporter=\"source\",connection_security_policy!=\"mutual_tls\",source_workload=~\"$client\",destination_service=~\"$service\"}",
                &["destination_service", "le"],
            ),
        ],
    ),
    panel(
        "Bytes On Outgoing TCP Connection",
        &[
            by(
                "istio_tcp_received_bytes_total{connection_security_policy!=\"mutual_tls\",reporter=\"source\",source_workload=~\"$client\",destination_service=~\"$bytes\"}",
                &["destination_service"],
            ),
            by(
                "istio_tcp_sent_bytes_total{connection_security_policy!=\"mutual_tls\",reporter=\"source\",source_workload=~\"$client\",destination_service=~\"$bytes\"}",
                &["destination_service"],
            ),
        ],
    ),
];

/// Every panel has data in the metrics of the client's and the server's pod.
pub(crate) fn have_data(pages: [&str; 2]) -> Result<()> {
    let variables = [
        ("service", "web.shop.svc.cluster.local"),
        ("bytes", "bytes.example"),
        ("client", "client-v1"),
        ("server", "web-v1"),
        ("namespace", "shop"),
    ];
    let mut scrape = Scrape::default();
    for page in pages {
        scrape = scrape.with(page)?;
    }
    let panels = MESH.iter().chain(&SERVICE).chain(&WORKLOADS);
    let empty = scrape.empty_queries(panels, &variables)?;
    ensure!(empty.is_empty(), "queries without data: {empty:?}");
    Ok(())
}
