//! The metrics of workloads in a Prometheus server, over a time before now.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures_util::{StreamExt as _, stream};
use navarch_base::printable::escape;
use navarch_net::destination::AddressPolicy;
use navarch_scope::WorkloadName;
use navarch_scope::exposition::Series;
use navarch_scope::reading::{CONNECTIONS, Claim, REQUESTS, Reader, Reading};
use navarch_source::{FetchError, Fetcher};
use serde_json::Value;

use super::super::output::report;
use super::super::progress::Progress;
use super::sources::{Gathered, IsHost, now};

/// The name of the reading in evidence.
const INSTANCE: &str = "prometheus";
/// Timeout of a query.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of workloads that are queried at a time.
const MAX_CONCURRENT_QUERIES: usize = 4;
/// The labels of each result, apart from those of the workload itself.
const OF_SOURCE: &str = "reporter, source_workload, source_workload_namespace, \
                         destination_service, destination_service_name, response_code, \
                         response_flags";
const OF_DESTINATION: &str = "reporter, destination_workload, destination_workload_namespace, \
                              source_principal, response_code, response_flags";

/// Which of the series of a workload a query is about.
#[derive(Clone, Copy, Debug)]
struct Side {
    /// The value of `reporter`, and how the labels of the workload begin.
    reporter: &'static str,
    labels: &'static str,
}

const SIDES: [Side; 2] = [
    Side {
        reporter: "source",
        labels: OF_SOURCE,
    },
    Side {
        reporter: "destination",
        labels: OF_DESTINATION,
    },
];

/// Reads the metrics of workloads. A query that fails is reported.
pub(super) async fn read(
    address: &str,
    since: Duration,
    names: &[WorkloadName],
    is_host: IsHost<'_>,
    gathered: &mut Gathered,
) {
    let progress = Progress::begin("querying Prometheus");
    // The operator names the address, so loopback is allowed.
    let fetcher = Fetcher::new(AddressPolicy {
        allow_loopback: true,
        ..AddressPolicy::default()
    });
    let address = address.trim_end_matches('/');
    let all = names.iter().map(|name| {
        let fetcher = &fetcher;
        async move { (name, series(fetcher, address, since, name).await) }
    });

    let mut all = stream::iter(all).buffer_unordered(MAX_CONCURRENT_QUERIES);
    while let Some((name, found)) = all.next().await {
        progress.set_text(format!("read {name} from Prometheus"));
        match found {
            Ok(found) => gathered
                .evidence
                .add(&reading(name, &found, since, is_host)),
            Err(error) => {
                let reason = format!("{error:#}");
                let reason = escape(&reason);
                report(&format!("Warning: Prometheus, {name}: {reason}"));
            }
        }
    }
}

/// The reading of a workload's series.
fn reading(name: &WorkloadName, found: &[Series], since: Duration, is_host: IsHost<'_>) -> Reading {
    let read = now();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let reading = Reading {
        since: Some(read.before(seconds)),
        is_window: true,
        ..Reading::new(INSTANCE, read)
    };
    let mut reader = Reader::new(reading, Claim::OwnWorkload(name), is_host);
    found.iter().for_each(|series| reader.take(series));
    reader.finish()
}

/// All series of a workload.
async fn series(
    fetcher: &Fetcher,
    address: &str,
    since: Duration,
    name: &WorkloadName,
) -> anyhow::Result<Vec<Series>> {
    let mut found = Vec::new();
    for side in SIDES {
        for metric in [REQUESTS, CONNECTIONS] {
            let query = query(metric, side, since, name);
            let url = format!("{address}/api/v1/query?query={}", encoded(&query));
            let text = fetcher.document(&url, TIMEOUT).await.map_err(shown)?;
            found.extend(vector(&text, metric)?);
        }
    }
    Ok(found)
}

/// The error of a request without the address, which may contain a password.
fn shown(error: FetchError) -> anyhow::Error {
    if matches!(error, FetchError::Address(_)) {
        return anyhow::anyhow!("--prometheus is not an HTTP or HTTPS URL");
    }
    error.into()
}

/// The query for what a workload's proxies have counted. `increase` does not count what a series
/// begins with, so that of series that begin within the time the value itself counts.
fn query(metric: &str, side: Side, since: Duration, name: &WorkloadName) -> String {
    let Side { reporter, labels } = side;
    let seconds = since.as_secs().max(1);
    let WorkloadName { namespace, name } = name;
    let series = format!(
        "{metric}{{reporter=\"{reporter}\",{reporter}_workload={},{reporter}_workload_namespace={}}}",
        Value::from(name.as_str()),
        Value::from(namespace.as_str())
    );
    format!(
        "sum by ({labels}) ((increase({series}[{seconds}s]) and {series} offset {seconds}s) \
         or max_over_time({series}[{seconds}s]))"
    )
}

/// A text in the query of a URL.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// The series of a response.
fn vector(text: &str, metric: &str) -> anyhow::Result<Vec<Series>> {
    let answer: Value = serde_json::from_str(text).context("its response is not JSON")?;
    let kind = answer.pointer("/data/resultType").and_then(Value::as_str);
    let result = answer.pointer("/data/result").and_then(Value::as_array);
    let (Some("vector"), Some(result)) = (kind, result) else {
        bail!("its response is not a vector");
    };

    let series = |sample: &Value| {
        let value = sample.pointer("/value/1")?.as_str()?.parse::<f64>().ok()?;
        let labels = sample.get("metric")?.as_object()?.iter();
        let labels: BTreeMap<String, String> = labels
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect();
        let is_count = value.is_finite() && value >= 0.0;
        is_count.then(|| Series {
            metric: metric.to_owned(),
            labels,
            // `increase` extrapolates: a single request may be a part of one.
            value: value.ceil(),
        })
    };
    Ok(result.iter().filter_map(series).collect())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_query_is_about_one_workload() {
        let name = WorkloadName::new("shop", "web");
        let text = query(REQUESTS, SIDES[0], Duration::from_hours(1), &name);
        let series = "istio_requests_total{reporter=\"source\",source_workload=\"web\",\
                      source_workload_namespace=\"shop\"}";
        assert!(text.contains(&format!(
            "increase({series}[3600s]) and {series} offset 3600s"
        )));
        assert!(text.contains(&format!("or max_over_time({series}[3600s])")));
        assert_eq!(encoded("a b{\"}"), "a%20b%7B%22%7D");
    }

    /// A server that answers every query with one series.
    #[expect(clippy::disallowed_methods, reason = "the server ends with the test")]
    async fn server(result: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 4096];
                let read = stream.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..read]).into_owned();
                assert!(
                    request.starts_with("GET /api/v1/query?query=sum%20by"),
                    "{request}"
                );
                let body = format!(
                    "{{\"status\":\"success\",\"data\":{{\"resultType\":\"vector\",\"result\":[{result}]}}}}"
                );
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                stream
                    .write_all(format!("{head}{body}").as_bytes())
                    .await
                    .unwrap();
            }
        });
        format!("http://{address}/")
    }

    #[tokio::test]
    async fn evidence_is_what_prometheus_has_of_a_workload() {
        let address = server(
            r#"{"metric":{"reporter":"source","source_workload":"web","source_workload_namespace":"shop",
                "destination_service":"a.local","response_code":"200"},"value":[1,"2.5"]}"#,
        )
        .await;
        let names = [
            WorkloadName::new("shop", "web"),
            WorkloadName::new("shop", "db"),
        ];
        let is_host = |host: &str| host == "a.local";
        let mut gathered = Gathered::default();
        read(
            &address,
            Duration::from_hours(1),
            &names,
            &is_host,
            &mut gathered,
        )
        .await;

        let workloads = &gathered.evidence.workloads;
        let counts = workloads[&names[0]].calls["a.local"].counts;
        assert_eq!(
            (counts.requests, counts.connections),
            (6, 6),
            "two queries of each"
        );
        assert!(
            workloads[&names[1]].calls.is_empty(),
            "it is about another workload"
        );
    }

    #[tokio::test]
    async fn a_server_that_fails_leaves_evidence_as_it_is() {
        let names = [WorkloadName::new("shop", "web")];
        let is_host = |_: &str| true;
        let mut gathered = Gathered::default();
        for address in ["http://127.0.0.1:1", "ftp://user:secret@x", "x"] {
            read(
                address,
                Duration::from_hours(1),
                &names,
                &is_host,
                &mut gathered,
            )
            .await;
        }
        assert!(gathered.evidence.workloads.is_empty());
    }

    #[test]
    fn results_are_series() {
        let text = r#"{"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"reporter":"source","destination_service":"a"},"value":[1,"0.9"]},
            {"metric":{"reporter":"source"},"value":[1,"NaN"]}
        ]}}"#;
        let found = vector(text, REQUESTS).unwrap();
        assert_eq!(found.len(), 1);
        assert!((found[0].value - 1.0).abs() < f64::EPSILON);
        assert_eq!(found[0].labels["destination_service"], "a");
        for wrong in ["", "{}", r#"{"data":{"resultType":"matrix","result":[]}}"#] {
            assert!(vector(wrong, REQUESTS).is_err(), "{wrong}");
        }
    }
}
