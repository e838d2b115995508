//! Each of many requests is counted exactly once. Also prints the cost of the metrics for the
//! agents and Envoys of both sides.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::metrics::{Fixture, Mesh, until, value};

/// Number of the client's connections, and requests per second of each: 1,000 per second in total.
const CONNECTIONS: usize = 8;
const PERIOD: Duration = Duration::from_millis(8);
/// Default of `NAVARCH_REQUESTS`.
const REQUESTS: usize = 1_000;

/// Sends this number of requests through the client's sidecar.
async fn ask(front: SocketAddr, requests: usize) -> Result<()> {
    let mut connections = JoinSet::new();

    for _ in 0..CONNECTIONS {
        connections.spawn(async move {
            let (mut sender, connection) =
                handshake(TokioIo::new(TcpStream::connect(front).await?)).await?;
            let mut driver = JoinSet::new();
            driver.spawn(connection);
            let mut period = interval(PERIOD);
            period.set_missed_tick_behavior(MissedTickBehavior::Delay);

            for _ in 0..requests / CONNECTIONS {
                period.tick().await;
                let host = format!("web.shop.svc.cluster.local:{}", front.port());
                let request = Request::get("/")
                    .header("host", host)
                    .body(Empty::<Bytes>::new())?;
                let reply = sender.send_request(request).await?;
                ensure!(reply.status() == 200, "{reply:?}");
                reply.into_body().collect().await?;
            }

            Ok(())
        });
    }

    while let Some(ended) = connections.join_next().await {
        ended??;
    }

    Ok(())
}

/// Microseconds of CPU per request of the agent and of Envoy, in both pods.
async fn cost(mesh: &Mesh, requests: usize) -> Result<[[f64; 2]; 2]> {
    let [caller, web] = [&mesh.caller, &mesh.web].map(|pod| (pod, pod.cpu_seconds()));
    ask(mesh.front, requests).await?;
    // Envoy streams the last access log entries, and the agent counts them.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let each = |(pod, before): (&crate::pod::Pod, Result<[f64; 2]>)| {
        let before = before?;
        let after = pod.cpu_seconds()?;
        let spent = |which: usize| (after[which] - before[which]) * 1e6 / requests as f64;
        anyhow::Ok([spent(0), spent(1)])
    };
    Ok([each(caller)?, each(web)?])
}

#[tokio::test]
async fn each_of_many_requests_is_counted_once() -> Result<()> {
    let wanted = std::env::var("NAVARCH_REQUESTS")
        .ok()
        .map(|text| text.parse::<usize>())
        .transpose()?;
    let requests = wanted.unwrap_or(REQUESTS).next_multiple_of(CONNECTIONS);
    let world = Fixture::new().await?;
    let (server, mesh) = world.start("").await?;
    let sides = [
        (&mesh.caller, "reporter=\"source\""),
        (&mesh.web, "reporter=\"destination\""),
    ];

    let labels = |side| {
        [
            side,
            "response_code=\"200\"",
            "destination_service=\"web.shop.svc.cluster.local\"",
        ]
    };

    let count = |metrics: &str, side| value(metrics, "istio_requests_total", &labels(side));

    for (pod, side) in sides {
        until(pod, "the first request", |metrics| {
            count(metrics, side) == Some(1)
        })
        .await;
    }

    let counted = cost(&mesh, requests).await?;

    for (pod, side) in sides {
        let metrics = until(pod, "all requests", |metrics| {
            count(metrics, side) > Some(requests as u64)
        })
        .await;
        ensure!(
            count(&metrics, side) == Some(requests as u64 + 1),
            "{:?} of {requests}",
            count(&metrics, side)
        );
    }

    server.write_mesh(&world.mesh("{disabled: true}"))?;
    mesh.is_switched_off().await?;
    let without = cost(&mesh, requests).await?;
    for (side, counted, without) in [
        ("client", counted[0], without[0]),
        ("server", counted[1], without[1]),
    ] {
        println!(
            "{side}: CPU of a request: agent {:.1} µs (not counted {:.1}), Envoy {:.1} µs (not counted {:.1})",
            counted[0], without[0], counted[1], without[1]
        );
    }

    Ok(())
}
