//! The trace of a change as an OpenTelemetry collector receives it. The collector decodes the
//! published messages of `opentelemetry-proto`, not those of Navarch's encoder.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::HeaderMap;
use navarch_testkit::navarch::{Addresses, Navarch};
use navarch_testkit::wait::until;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use crate::live::{edit, sidecars};
use crate::proxy::Reaction;
use crate::{bookshop, edited};

/// The requests that a collector received, with the header `x-key`.
#[derive(Clone, Default)]
struct ReceivedTraces(Arc<Mutex<Vec<(String, ExportTraceServiceRequest)>>>);

/// A collector. It stops when dropped.
struct Collector {
    got: ReceivedTraces,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tonic::async_trait]
impl TraceService for ReceivedTraces {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let key = request
            .metadata()
            .get("x-key")
            .map(|key| key.to_str().unwrap().to_owned());
        self.0
            .lock()
            .push((key.unwrap_or_default(), request.into_inner()));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// A collector with gRPC.
    async fn grpc() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let got = ReceivedTraces::default();
        let address = listener.local_addr().unwrap();
        let service = TraceServiceServer::new(got.clone());
        let task = tokio::spawn(async move {
            let server = tonic::transport::Server::builder().add_service(service);
            server
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
                .unwrap();
        });
        Self { got, address, task }
    }

    async fn http() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let got = ReceivedTraces::default();
        let address = listener.local_addr().unwrap();
        let taken = got.clone();
        let export = move |headers: HeaderMap, body: Bytes| async move {
            assert_eq!(headers["content-type"], "application/x-protobuf");
            let mut plain = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*body), &mut plain)
                .unwrap();
            let request = ExportTraceServiceRequest::decode(&*plain).unwrap();
            taken
                .0
                .lock()
                .push((headers["x-key"].to_str().unwrap().to_owned(), request));
            ExportTraceServiceResponse::default().encode_to_vec()
        };

        let routes = axum::Router::new().route("/v1/traces", axum::routing::post(export));
        let task = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { got, address, task }
    }

    /// The spans of the trace about an object that meets a condition, once it has arrived.
    async fn trace_of(&self, name: &str, is_it: impl Fn(&Span) -> bool) -> Vec<Span> {
        let root = || {
            self.spans()
                .into_iter()
                .find(|span| text(span, "navarch.object.name") == name && is_it(span))
        };
        until("the collector has the trace", async || root().is_some()).await;
        let id = root().unwrap().trace_id;
        self.spans()
            .into_iter()
            .filter(|span| span.trace_id == id)
            .collect()
    }

    fn spans(&self) -> Vec<Span> {
        let got = self.got.0.lock();
        let scopes = got
            .iter()
            .flat_map(|(_, request)| &request.resource_spans)
            .flat_map(|all| &all.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }

    /// The resource attributes in the first request, and its key.
    fn process(&self) -> (String, BTreeMap<String, String>) {
        let got = self.got.0.lock();
        let (key, request) = got.first().unwrap();
        let resource = request.resource_spans[0].resource.as_ref().unwrap();
        let attributes = resource
            .attributes
            .iter()
            .map(|one| (one.key.clone(), value(one)));
        (key.clone(), attributes.collect())
    }
}

/// The value of an attribute as text.
fn value(attribute: &KeyValue) -> String {
    match attribute
        .value
        .as_ref()
        .and_then(|value| value.value.clone())
    {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

/// An attribute of a span as text; empty without it.
fn text(span: &Span, key: &str) -> String {
    span.attributes
        .iter()
        .find(|one| one.key == key)
        .map(value)
        .unwrap_or_default()
}

/// A control plane with a copy of the sample mesh and these environment variables.
async fn start(variables: &[(&str, &str)]) -> (TempDir, Navarch) {
    let folder = bookshop();
    let program = Path::new(env!("CARGO_BIN_EXE_navarch"));
    let flags = ["--registries=".to_owned()];
    let started =
        Navarch::start_at(program, folder.path(), &flags, variables, Addresses::ANY).await;
    (folder, started.unwrap())
}

/// Edits the mesh once two proxies have their routes, and returns the trace of the edit.
async fn trace_of_an_edit(
    collector: &Collector,
    variables: &[(&str, &str)],
) -> (Vec<Span>, Navarch) {
    let (folder, navarch) = start(variables).await;
    let proxies = sidecars(&navarch, &[Reaction::Accept; 2]).await;
    until("each has its routes", async || {
        proxies.iter().all(|sidecar| sidecar.routes_by("|v2|"))
    })
    .await;
    edit(&folder, 70);
    let spans = collector
        .trace_of("reviews", |span| text(span, "navarch.proxies.sent") == "2")
        .await;
    (spans, navarch)
}

/// A trace covers the whole path of one edit, to both proxies.
fn check(spans: &[Span]) {
    let named = |name: &str| {
        spans
            .iter()
            .filter(|span| span.name == name)
            .collect::<Vec<_>>()
    };

    let [root] = named("change").try_into().unwrap();
    assert!(root.parent_span_id.is_empty());
    let about =
        ["kind", "namespace", "name"].map(|key| text(root, &format!("navarch.object.{key}")));
    assert_eq!(about, ["VirtualService", "bookshop", "reviews"]);
    let ids: std::collections::BTreeSet<_> =
        spans.iter().map(|span| span.span_id.clone()).collect();
    assert!(
        ids.len() == spans.len() && ids.iter().all(|id| id.len() == 8) && root.trace_id.len() == 16
    );

    let one = |name: &str| {
        let [span] = named(name)
            .try_into()
            .unwrap_or_else(|all| panic!("{name}: {all:?}"));
        assert_eq!(span.parent_span_id, root.span_id, "{name}");
        [span.start_time_unix_nano, span.end_time_unix_nano]
    };

    let event = one("watch event");
    let snapshot = one("snapshot");
    let translation = one("translation");
    assert_eq!(event[0], root.start_time_unix_nano);
    assert!(
        event[0] <= event[1] && event[1] == snapshot[0],
        "{event:?} {snapshot:?}"
    );

    assert!(
        snapshot[0] <= snapshot[1]
            && snapshot[1] == translation[0]
            && translation[0] < translation[1]
    );
    let sends = named("send");
    let mut proxies: Vec<_> = sends
        .iter()
        .map(|span| (text(span, "navarch.proxy"), text(span, "navarch.type")))
        .collect();
    proxies.sort();

    let of = |proxy: &str| (proxy.to_owned(), "rds".to_owned());
    assert_eq!(proxies, [of("web-0.bookshop"), of("web-1.bookshop")]);

    for send in sends {
        assert_eq!(send.parent_span_id, root.span_id);
        assert!(
            send.start_time_unix_nano >= translation[0]
                && send.end_time_unix_nano >= send.start_time_unix_nano
        );
        assert!(text(send, "navarch.bytes").parse::<u64>().unwrap() > 100);
        let answers = spans
            .iter()
            .filter(|span| span.parent_span_id == send.span_id)
            .collect::<Vec<_>>();
        let [answer] = answers.try_into().unwrap();

        assert_eq!(
            (answer.name.as_str(), answer.start_time_unix_nano),
            ("ACK", send.end_time_unix_nano)
        );
        assert!(answer.end_time_unix_nano > answer.start_time_unix_nano);
        assert!(answer.end_time_unix_nano <= root.end_time_unix_nano);
        assert_eq!(text(answer, "navarch.proxy"), text(send, "navarch.proxy"));
    }

    assert_eq!(
        (
            text(root, "navarch.proxies.left_out"),
            text(root, "navarch.proxies.rejected")
        ),
        ("0".to_owned(), "0".to_owned())
    );
}

/// The lines of the metrics with this prefix.
async fn metric(navarch: &Navarch, name: &str) -> Vec<String> {
    let metrics = navarch_testkit::client::get(navarch.monitoring, "navarch", "/metrics", &[])
        .await
        .unwrap()
        .body;
    metrics
        .lines()
        .filter(|line| line.starts_with(name))
        .map(str::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_is_traced_from_event_to_ack_over_grpc() {
    let collector = Collector::grpc().await;
    let endpoint = format!("http://{}", collector.address);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b"),
        ("OTEL_BSP_SCHEDULE_DELAY", "50"),
        (
            "OTEL_RESOURCE_ATTRIBUTES",
            "deployment.environment.name=test",
        ),
        ("OTEL_METRICS_EXPORTER", "prometheus"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("POD_NAME", "navarch-1"),
    ];

    let (spans, navarch) = trace_of_an_edit(&collector, &variables).await;
    check(&spans);
    let (key, attributes) = collector.process();
    let attributes = [
        "service.name",
        "service.instance.id",
        "deployment.environment.name",
    ]
    .map(|name| attributes[name].clone());

    assert_eq!(
        (key.as_str(), attributes),
        ("a b", ["navarch", "navarch-1", "test"].map(str::to_owned))
    );
    let sent = metric(&navarch, "navarch_otlp_spans_total").await;
    assert!(
        sent.len() == 1 && sent[0].contains("outcome=\"sent\""),
        "{sent:?}"
    );

    assert_eq!(
        metric(&navarch, "navarch_otlp_changes_missed_total").await,
        ["navarch_otlp_changes_missed_total 0"]
    );
    let log = navarch.output();
    assert!(
        log.contains("OTEL_METRICS_EXPORTER")
            && log.contains("OTEL_EXPORTER_OTLP_COMPRESSION=\"gzip\""),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_is_traced_from_event_to_ack_over_http() {
    let collector = Collector::http().await;
    let endpoint = format!("http://{}", collector.address);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret"),
        ("OTEL_SERVICE_NAME", "istiod"),
        ("OTEL_BSP_SCHEDULE_DELAY", "50"),
    ];

    let (spans, navarch) = trace_of_an_edit(&collector, &variables).await;
    check(&spans);
    let (key, attributes) = collector.process();
    assert_eq!(
        (key.as_str(), attributes["service.name"].as_str()),
        ("secret", "istiod")
    );
    assert!(!navarch.output().contains("secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_has_the_proxys_rejection_message() {
    let collector = Collector::grpc().await;
    let endpoint = format!("http://{}", collector.address);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_BSP_SCHEDULE_DELAY", "50"),
        ("NAVARCH_QUARANTINE", "false"),
    ];
    let (folder, navarch) = start(&variables).await;

    let proxies = sidecars(
        &navarch,
        &[
            Reaction::Accept,
            Reaction::Reject("rejected-header", "no such header"),
        ],
    )
    .await;
    until("each has its routes", async || {
        proxies.iter().all(|sidecar| sidecar.routes_by("|v2|"))
    })
    .await;
    let route = "    - match: [{headers: {rejected-header: {exact: a}}}]\n      route: [{destination: {host: reviews}}]\n";
    let text_of_edit = edited(
        "reviews-routing.yaml",
        &[(
            "  http:\n    - name",
            &format!("  http:\n{route}    - name"),
        )],
    );

    std::fs::write(folder.path().join("reviews-routing.yaml"), text_of_edit).unwrap();
    let is_rejected = |span: &Span| text(span, "navarch.proxies.rejected") == "1";
    let spans = collector.trace_of("reviews", is_rejected).await;
    let answers: BTreeMap<_, _> = spans
        .iter()
        .filter(|span| matches!(span.name.as_str(), "ACK" | "NACK"))
        .map(|span| {
            (
                text(span, "navarch.proxy"),
                (
                    span.name.clone(),
                    span.status.clone().unwrap_or_default().message,
                ),
            )
        })
        .collect();

    assert_eq!(answers["web-0.bookshop"], ("ACK".to_owned(), String::new()));
    assert_eq!(
        answers["web-1.bookshop"],
        ("NACK".to_owned(), "no such header".to_owned())
    );
    let root = spans.iter().find(|span| span.name == "change").unwrap();
    assert_eq!(root.status.as_ref().unwrap().code, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unavailable_trace_collector_loses_only_spans() {
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
        ("OTEL_BSP_SCHEDULE_DELAY", "1"),
        ("OTEL_BSP_EXPORT_TIMEOUT", "1000"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "12"),
    ];

    let (folder, navarch) = start(&variables).await;
    let proxies = sidecars(&navarch, &[Reaction::Accept; 2]).await;
    until("each has its routes", async || {
        proxies.iter().all(|sidecar| sidecar.routes_by("|v2|"))
    })
    .await;

    for weight in 60..64 {
        edit(&folder, weight);
        let is_pushed = async || {
            let (applied, _) =
                crate::live::run_command(&navarch, &["applied", "vs", "reviews", "-n", "bookshop"])
                    .await;
            applied["replicas"][0]["applied"]["taken"] == 2
        };
        until("both have the edit", is_pushed).await;
    }

    let is_counted = async || {
        let counted = metric(&navarch, "navarch_otlp_spans_total").await;
        let has = |outcome: &str| counted.iter().any(|line| line.contains(outcome));
        has("failed") && has("queue_full") && !has("sent")
    };
    until("dropped spans are counted", is_counted).await;
    let lines = navarch.output();
    assert_eq!(lines.matches("failed to send traces").count(), 1, "{lines}");

    navarch.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_collector_no_traces_are_created() {
    let (_folder, navarch) = start(&[
        ("OTEL_SERVICE_NAME", "a"),
        ("OTEL_METRICS_EXPORTER", "none"),
    ])
    .await;
    assert_eq!(metric(&navarch, "navarch_otlp").await, Vec::<String>::new());
    assert!(!navarch.output().contains("OTEL_"), "{}", navarch.output());
}
