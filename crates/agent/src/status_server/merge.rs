//! The metrics of agent, Envoy and application as one streamed response.
//!
//! The application's come last: in OpenMetrics they end with `# EOF`, which ends the whole
//! response.

use std::collections::VecDeque;
use std::error::Error;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::{Instant, timeout, timeout_at};

use super::exposition::{self, whole_lines};
use super::scrape::ScrapeTarget;
use super::{StatusConfig, probing};
use crate::mesh_metrics::{Cursor, MeshMetrics};
use crate::metrics::{AgentMetrics, ScrapeTarget as Failed};
use navarch_net::budget::{Charge, Full};

/// Maximum size of one target's metrics.
const MAX_TARGET: usize = 10 << 20;
/// Default scrape timeout: Prometheus' own default.
const DEFAULT_SCRAPE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum scrape timeout that Prometheus may request.
const MAX_SCRAPE_TIMEOUT: Duration = Duration::from_secs(120);
const TIMEOUT_HEADER: HeaderName = HeaderName::from_static("x-prometheus-scrape-timeout-seconds");

/// Why metrics could not be scraped.
#[derive(Debug, thiserror::Error)]
enum ScrapeError {
    /// The path or a header is invalid.
    #[error(transparent)]
    Request(#[from] http::Error),
    /// The exchange failed.
    #[error(transparent)]
    Http(#[from] hyper_util::client::legacy::Error),
    /// The server's response holds no metrics.
    #[error("status {0}")]
    Status(http::StatusCode),
    /// The metrics are too large, or their transfer failed.
    #[error(transparent)]
    Body(Box<dyn Error + Send + Sync>),
    /// Responses hold too much memory.
    #[error(transparent)]
    Full(#[from] Full),
    /// The server takes too long.
    #[error("timed out")]
    TimedOut,
}

/// A part of the response.
enum BodyPart {
    There(Bytes),
    /// The mesh's metrics, rendered page by page, and the position.
    Mesh(MeshMetrics, Cursor),
    /// A body that is being received, and the bytes that are left of its limit.
    Coming(Incoming, usize),
}

/// The remaining parts of a response.
struct RemainingBody {
    parts: VecDeque<BodyPart>,
    deadline: Instant,
    /// The memory charge, held until everything is sent.
    _charge: Charge,
}

/// Merges the metrics: returns the content type and the body. `charge` grows with the buffered
/// bytes.
pub(super) async fn merge(
    config: &StatusConfig,
    headers: &HeaderMap,
    query: Option<&str>,
    mut charge: Charge,
) -> (&'static str, Body) {
    let deadline = Instant::now() + scrape_timeout(headers);
    let taken = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    let mut parts = VecDeque::from([BodyPart::There((config.metrics)().into())]);
    parts.extend(
        config
            .mesh_metrics
            .clone()
            .map(|metrics| BodyPart::Mesh(metrics, Cursor::default())),
    );

    if let Some(port) = config.envoy_metrics {
        let path = query.map_or_else(
            || "/stats/prometheus".to_owned(),
            |query| format!("/stats/prometheus?{query}"),
        );
        let accepted = exposition::accepted(&taken, exposition::OF_ENVOY);
        match scrape(port, &path, headers, &accepted, deadline).await {
            // Envoy is trusted, and its metrics may be many.
            Ok((_, body)) => parts.push_back(BodyPart::Coming(body, usize::MAX)),
            Err(error) => {
                config.work.scrape_failed(Failed::Envoy);
                tracing::error!(reason = %error, "failed to scrape Envoy's metrics");
            }
        }
    }

    let accepted = exposition::accepted(&taken, exposition::OF_APPLICATIONS);
    let content_type = match config
        .scrape
        .as_ref()
        .map(|scrape| scrape.targets.as_slice())
    {
        None | Some([]) => exposition::PLAIN,
        Some([target]) => {
            match scrape(target.port, &target.path, headers, &accepted, deadline).await {
                Ok((content_type, body)) => {
                    parts.push_back(BodyPart::Coming(body, MAX_TARGET));
                    exposition::announced(&content_type)
                }
                Err(error) => {
                    config.work.scrape_failed(Failed::Application);
                    tracing::error!(
                        reason = %error,
                        port = target.port,
                        "failed to scrape application metrics"
                    );
                    exposition::PLAIN
                }
            }
        }
        Some(targets) => {
            several(
                targets,
                &config.work,
                headers,
                &accepted,
                deadline,
                &mut parts,
                &mut charge,
            )
            .await
        }
    };

    (
        content_type,
        Body::from_stream(stream::unfold(
            RemainingBody {
                parts,
                deadline,
                _charge: charge,
            },
            next,
        )),
    )
}

fn scrape_timeout(headers: &HeaderMap) -> Duration {
    let seconds = headers
        .get(TIMEOUT_HEADER)
        .and_then(|value| value.to_str().ok()?.parse::<f64>().ok());
    let given = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    given.map_or(DEFAULT_SCRAPE_TIMEOUT, |given| {
        given.min(MAX_SCRAPE_TIMEOUT)
    })
}

/// Returns the next bytes. A part that fails, times out or exceeds its limit ends there; the others
/// continue.
async fn next(mut rest: RemainingBody) -> Option<(Result<Bytes, std::io::Error>, RemainingBody)> {
    loop {
        let (body, left) = match rest.parts.pop_front()? {
            BodyPart::There(bytes) => return Some((Ok(bytes), rest)),
            BodyPart::Mesh(metrics, mut cursor) => {
                let Some(page) = metrics.page(&mut cursor) else {
                    continue;
                };
                rest.parts.push_front(BodyPart::Mesh(metrics, cursor));
                return Some((Ok(page.into()), rest));
            }
            BodyPart::Coming(body, left) => (body, left),
        };

        let mut body = body;
        let frame = timeout(probing::STEP, timeout_at(rest.deadline, body.frame())).await;
        let data = match frame {
            Ok(Ok(Some(Ok(frame)))) => frame.into_data().unwrap_or_default(),
            Ok(Ok(None)) => continue,
            _ => {
                tracing::warn!("scrape ended early");
                continue;
            }
        };

        let Some(left) = left.checked_sub(data.len()) else {
            tracing::warn!(
                limit = MAX_TARGET,
                "scraped metrics exceed the size limit and are cut off"
            );
            continue;
        };

        rest.parts.push_front(BodyPart::Coming(body, left));
        return Some((Ok(data), rest));
    }
}

/// Several targets: all are read to their ends, so that there is one `# EOF` for all.
async fn several(
    targets: &[ScrapeTarget],
    work: &AgentMetrics,
    headers: &HeaderMap,
    accepted: &str,
    deadline: Instant,
    parts: &mut VecDeque<BodyPart>,
    charge: &mut Charge,
) -> &'static str {
    let read = async |target: &ScrapeTarget| {
        let (content_type, body) =
            scrape(target.port, &target.path, headers, accepted, deadline).await?;
        let whole = http_body_util::Limited::new(body, MAX_TARGET).collect();
        let whole = timeout_at(deadline, whole)
            .await
            .map_err(|_| ScrapeError::TimedOut)?
            .map_err(ScrapeError::Body)?;
        Ok::<_, ScrapeError>((exposition::announced(&content_type), whole.to_bytes()))
    };

    let mut formats = Vec::new();

    for (target, answer) in targets.iter().zip(join_all(targets.iter().map(read)).await) {
        let charged = answer.and_then(|(format, body)| {
            charge.grow(body.len())?;
            Ok((format, body))
        });
        match charged {
            Ok((format, body)) => {
                formats.push(format);
                parts.push_back(BodyPart::There(whole_lines(&body)));
            }
            Err(error) => {
                work.scrape_failed(Failed::Application);
                tracing::error!(
                    reason = %error,
                    port = target.port,
                    "failed to scrape application metrics"
                );
            }
        }
    }

    // Plain text and OpenMetrics cannot be mixed: with both, everything is served as plain text.
    let format = match formats.first() {
        Some(first) if formats.iter().all(|format| format == first) => first,
        Some(_) | None => exposition::PLAIN,
    };
    if format != exposition::PLAIN {
        parts.push_back(BodyPart::There(Bytes::from_static(b"# EOF\n")));
    }

    format
}

/// Requests metrics on localhost: returns content type and body.
async fn scrape(
    port: u16,
    path: &str,
    headers: &HeaderMap,
    accepted: &str,
    deadline: Instant,
) -> Result<(String, Incoming), ScrapeError> {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(DEFAULT_SCRAPE_TIMEOUT));
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(0)
        .build(connector);
    let mut request = http::Request::get(format!("http://localhost:{port}{path}"));

    for name in [header::USER_AGENT, TIMEOUT_HEADER] {
        if let Some(value) = headers.get(&name) {
            request = request.header(name, value);
        }
    }

    let accepted = HeaderValue::from_str(accepted).map_err(http::Error::from)?;
    let request = request
        .header(header::ACCEPT, accepted)
        .body(Empty::new())?;
    let answer = timeout_at(deadline, client.request(request))
        .await
        .map_err(|_| ScrapeError::TimedOut)??;
    if answer.status() != http::StatusCode::OK {
        return Err(ScrapeError::Status(answer.status()));
    }

    let content_type = answer
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();

    Ok((content_type.to_owned(), answer.into_body()))
}
