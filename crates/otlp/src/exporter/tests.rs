//! Batches and the limit of the queue, with unavailable, slow and working collectors.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::variables::read;

/// A configuration from environment variables.
fn config(set: &[(&str, &str)]) -> Config {
    let read = read(|name| {
        set.iter()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| (*value).to_owned())
    });
    assert_eq!(read.warnings, Vec::<String>::new());
    read.config.unwrap()
}

fn spans(count: usize) -> Vec<Span> {
    vec![Span::internal("span", [1, 2]); count]
}

/// An HTTP server that answers each request with the next of `answers`, and sends the head of each
/// request to the receiver.
async fn server(answers: Vec<String>) -> (String, mpsc::UnboundedReceiver<String>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, heads) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                let mut part = [0; 4096];
                let read = stream.read(&mut part).await.unwrap();
                head.extend_from_slice(&part[..read]);
            }
            _ = sender.send(String::from_utf8_lossy(&head).into_owned());
            stream.write_all(answer.as_bytes()).await.unwrap();
            _ = stream.shutdown().await;
        }
    });

    (address, heads, tasks)
}

fn answer(status: &str, more: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n{more}\r\n")
}

#[tokio::test]
async fn the_queue_is_bounded_by_spans_and_traces_are_whole() {
    let metrics = Metrics::default();
    let set = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "10"),
    ];
    let (queue, exporter) = start(config(&set), Vec::new(), "1", metrics.clone());
    for count in [6, 5, 4, 1] {
        queue.offer(spans(count));
    }
    assert_eq!(metrics.counted(SpanOutcome::QueueFull), 5 + 1);
    drop(queue);
    let mut exporter = exporter;
    let kept: Vec<usize> = std::iter::from_fn(|| exporter.traces.try_recv().ok())
        .map(|one| one.spans.len())
        .collect();
    assert_eq!(kept, [6, 4]);
}

#[tokio::test]
async fn an_unavailable_collector_loses_only_spans() {
    let metrics = Metrics::default();

    for protocol in ["grpc", "http/protobuf"] {
        let set = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_BSP_EXPORT_TIMEOUT", "1"),
            ("OTEL_BSP_SCHEDULE_DELAY", "1"),
        ];

        let (queue, exporter) = start(config(&set), Vec::new(), "1", metrics.clone());
        let room = queue.room.clone();
        queue.offer(spans(7));
        drop(queue);
        exporter.run(CancellationToken::new()).await;
        assert_eq!(
            room.available_permits(),
            Batching::default().queue,
            "{protocol}"
        );
    }

    assert_eq!(metrics.counted(SpanOutcome::Failed), 14);
}

#[tokio::test]
async fn retryable_spans_are_resent_and_rejected_ones_dropped() {
    let metrics = Metrics::default();
    let answers = vec![
        answer("503 Service Unavailable", "retry-after: 0\r\n"),
        answer("200 OK", ""),
        answer("400 Bad Request", ""),
        answer("200 OK", ""),
    ];

    let (address, mut heads, _server) = server(answers).await;
    let set = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", address.as_str()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_BSP_SCHEDULE_DELAY", "1"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2"),
    ];

    let (queue, exporter) = start(config(&set), Vec::new(), "1", metrics.clone());
    queue.offer(spans(5));
    drop(queue);
    exporter.run(CancellationToken::new()).await;
    assert_eq!(
        (
            metrics.counted(SpanOutcome::Sent),
            metrics.counted(SpanOutcome::Failed)
        ),
        (3, 2)
    );

    let first = heads.recv().await.unwrap();

    for line in [
        "POST /v1/traces HTTP/1.1\r\n",
        "x-key: a b\r\n",
        "content-encoding: gzip\r\n",
        "content-type: application/x-protobuf\r\n",
    ] {
        assert!(first.contains(line), "{line} in {first}");
    }
}

#[tokio::test]
async fn an_unresponsive_collector_does_not_delay_shutdown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let metrics = Metrics::default();
    let set = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", address.as_str()),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "600000"),
    ];
    let (queue, exporter) = start(config(&set), Vec::new(), "1", metrics);
    let stop = CancellationToken::new();
    queue.offer(spans(1));
    stop.cancel();
    drop(queue);
    // A tenth of a request's timeout.
    tokio::time::timeout(std::time::Duration::from_secs(60), exporter.run(stop))
        .await
        .unwrap();
}
