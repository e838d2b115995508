//! The metrics of workloads in a Prometheus server, over a time before now.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures_util::{StreamExt as _, stream};
use http::Uri;
use jiff::Timestamp;
use navarch_base::printable::escape;
use navarch_net::destination::AddressPolicy;
use navarch_scope::exposition::Series;
use navarch_scope::reading::{CONNECTIONS, Claim, REQUESTS, Reader, Reading};
use navarch_scope::{Moment, WorkloadName};
use navarch_source::Fetcher;
use serde_json::Value;

use super::super::output::report;
use super::super::progress::Progress;
use super::sources::{Gathered, IsHost, now};

/// The name of the reading in evidence.
const INSTANCE: &str = "prometheus";
/// Timeout of a query.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of workloads that are queried at a time.
const MAX_CONCURRENT_WORKLOADS: usize = 4;
/// The labels by which requests that a workload has sent are summed.
const OF_SOURCE: &str = "namespace, reporter, source_workload, source_workload_namespace, \
                         destination_service, destination_service_name, response_code, \
                         response_flags";
/// The labels by which requests that a workload has received are summed.
const OF_DESTINATION: &str = "namespace, reporter, destination_workload, \
                              destination_workload_namespace, source_principal, response_code, \
                              response_flags";
/// The label that Prometheus itself sets to the namespace of the pod that it has read.
const SCRAPED_NAMESPACE: &str = "namespace";

/// The series of a workload that a query is about: those of its own requests, or of its clients'.
#[derive(Clone, Copy, Debug)]
struct Side {
    /// The value of `reporter`, and how the labels of the workload begin.
    reporter: &'static str,
    labels: &'static str,
}

/// What Prometheus has of a workload.
#[derive(Debug, Default)]
struct Found {
    series: Vec<Series>,
    /// When the first of its calls was counted, within the time that is read; `None` without calls.
    first: Option<Moment>,
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

/// The address of a server.
///
/// # Errors
/// If it is no HTTP or HTTPS URL, or has parts that requests do not have. It is not named: it may
/// contain a password.
pub(super) fn checked(address: &str) -> anyhow::Result<&str> {
    let uri: Uri = address
        .parse()
        .map_err(|_| anyhow::anyhow!("--prometheus is not a URL"))?;
    let authority = uri.authority().context("--prometheus has no host")?;
    ensure!(
        matches!(uri.scheme_str(), Some("http" | "https")),
        "--prometheus is not an HTTP or HTTPS URL"
    );
    ensure!(
        !authority.as_str().contains('@'),
        "--prometheus has credentials, which are not sent: forward a port to the server, or use a \
         proxy that adds them"
    );
    ensure!(
        uri.query().is_none(),
        "--prometheus has a query: name the address before /api/v1"
    );
    Ok(address)
}

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
        async move { (name, found(fetcher, address, since, name).await) }
    });

    let mut all = stream::iter(all).buffer_unordered(MAX_CONCURRENT_WORKLOADS);
    while let Some((name, found)) = all.next().await {
        progress.set_text(format!("read {name} from Prometheus"));
        match found {
            Ok(found) => {
                let reading = reading(name, &found, since, is_host);
                if reading.foreign > 0 {
                    report(&format!(
                        "Warning: Prometheus, {name}: {} series are of pods in other namespaces \
                         (label namespace), and are not believed",
                        reading.foreign
                    ));
                }
                gathered.evidence.add(&reading);
                gathered.read += 1;
            }
            Err(error) => {
                let reason = format!("{error:#}");
                let reason = escape(&reason);
                report(&format!("Warning: Prometheus, {name}: {reason}"));
            }
        }
    }
}

/// The reading of a workload's series.
fn reading(name: &WorkloadName, found: &Found, since: Duration, is_host: IsHost<'_>) -> Reading {
    let read = now();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let start = read.before(seconds);
    let reading = Reading {
        // Prometheus, or the workload, may be younger than the time that is read.
        since: found.first.map(|first| first.clamp(start, read)),
        is_window: true,
        ..Reading::new(INSTANCE, read)
    };
    let mut reader = Reader::new(reading, Claim::OwnWorkload(name), is_host);
    let mut foreign = 0;
    for series in &found.series {
        // Applications may write series about any workload on their pages.
        let scraped = series.labels.get(SCRAPED_NAMESPACE);
        if scraped.is_none_or(|namespace| *namespace == name.namespace) {
            reader.take(series);
        } else {
            foreign += 1;
        }
    }

    let mut reading = reader.finish();
    reading.foreign += foreign;
    reading
}

/// All series of a workload, and when the first of its calls was counted.
async fn found(
    fetcher: &Fetcher,
    address: &str,
    since: Duration,
    name: &WorkloadName,
) -> anyhow::Result<Found> {
    let ask = async |query: String, metric: &str| -> anyhow::Result<Vec<Series>> {
        let url = format!("{address}/api/v1/query?query={}", encoded(&query));
        let text = fetcher.document(&url, TIMEOUT).await?;
        vector(&text, metric)
    };

    let mut found = Found::default();
    for metric in [REQUESTS, CONNECTIONS] {
        for side in SIDES {
            let series = ask(query(metric, side, since, name), metric).await?;
            found.series.extend(series);
        }
        let first = ask(first_query(metric, since, name), metric).await?;
        let first = first.iter().filter_map(|series| moment(series.value));
        found.first = found.first.into_iter().chain(first).min();
    }
    Ok(found)
}

/// The time of a number of seconds since 1970; `None` if it has no text.
fn moment(seconds: f64) -> Option<Moment> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "`as` saturates, and what is out of range is no time"
    )]
    let time = Timestamp::from_second(seconds as i64);
    time.ok().map(Moment::of)
}

/// The query for what a workload's proxies have counted. `increase` does not count what a series
/// begins with, so that of series that begin within the time the value itself counts.
fn query(metric: &str, side: Side, since: Duration, name: &WorkloadName) -> String {
    let Side { reporter, labels } = side;
    let seconds = since.as_secs().max(1);
    let series = selector(metric, reporter, name);
    format!(
        "sum by ({labels}) ((increase({series}[{seconds}s]) and {series} offset {seconds}s) \
         or max_over_time({series}[{seconds}s]))"
    )
}

/// The query for the time of a workload's first call, to a hundredth of the time that is read.
fn first_query(metric: &str, since: Duration, name: &WorkloadName) -> String {
    let seconds = since.as_secs().max(1);
    let step = (seconds / 100).max(1);
    let series = selector(metric, "source", name);
    format!("min(min_over_time(timestamp({series})[{seconds}s:{step}s]))")
}

/// Selects the series of a workload.
fn selector(metric: &str, reporter: &str, name: &WorkloadName) -> String {
    let WorkloadName { namespace, name } = name;
    format!(
        "{metric}{{reporter=\"{reporter}\",{reporter}_workload={},{reporter}_workload_namespace={}}}",
        Value::from(name.as_str()),
        Value::from(namespace.as_str())
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
        let first = first_query(REQUESTS, Duration::from_hours(1), &name);
        let expected = format!("min(min_over_time(timestamp({series})[3600s:36s]))");
        assert_eq!(first, expected);
    }

    /// A server that answers every query with one series, and with the first call 60 seconds ago.
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
                assert!(request.starts_with("GET /api/v1/query?query="), "{request}");
                let first = Timestamp::now().as_second() - 60;
                let first = format!(r#"{{"metric":{{}},"value":[1,"{first}"]}}"#);
                let is_about_time = request.contains("?query=min");
                let result = if is_about_time { &first } else { result };
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
        let observed = &workloads[&names[0]];
        let age = observed.read.seconds_since(observed.since.unwrap());
        assert!((60..600).contains(&age), "{age}");
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
        read(
            "http://127.0.0.1:1",
            Duration::from_hours(1),
            &names,
            &is_host,
            &mut gathered,
        )
        .await;
        assert!(gathered.evidence.workloads.is_empty());
        assert_eq!(gathered.read, 0);
    }

    #[test]
    fn an_address_has_no_parts_that_are_not_used() {
        for right in [
            "http://localhost:9090/",
            "https://metrics.example/prometheus",
        ] {
            assert_eq!(checked(right).unwrap(), right);
        }
        for (wrong, reason) in [
            ("ftp://x", "not an HTTP"),
            ("x", "HTTP"),
            ("/metrics", "no host"),
            ("http://user:secret@x", "has credentials"),
            ("http://x/?a=b", "has a query"),
            ("", "not a URL"),
        ] {
            let error = checked(wrong).unwrap_err().to_string();
            assert!(error.contains(reason), "{wrong}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_pod_of_another_namespace_is_not_believed() {
        let series = |namespace: &str| {
            format!(
                r#"{{"metric":{{"namespace":"{namespace}","reporter":"destination","destination_workload":"web",
                "destination_workload_namespace":"shop","source_principal":"spiffe://d/ns/{namespace}/sa/a"}},
                "value":[1,"1"]}}"#
            )
        };
        let result = format!("{},{}", series("shop"), series("evil"));
        let text = format!(r#"{{"data":{{"resultType":"vector","result":[{result}]}}}}"#);
        let found = Found {
            series: vector(&text, REQUESTS).unwrap(),
            first: None,
        };
        let name = WorkloadName::new("shop", "web");
        let reading = reading(&name, &found, Duration::from_hours(1), &|_| true);
        assert_eq!(reading.foreign, 1);
        let clients: Vec<&String> = reading.workloads[&name].clients.keys().collect();
        assert_eq!(clients, ["spiffe://d/ns/shop/sa/a"]);
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
