//! A10: the agent's status port (15020), which every pod can reach, while others keep it busy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, timeout, timeout_at};

use crate::attack::Attack;
use crate::network::{self, SERVER, client};
use crate::others::page;
use crate::pod::Pod;
use crate::report::rejected;
use crate::series::Series;
use crate::server::Server;

/// How long a kubelet waits for a probe by default.
const PROBE: Duration = Duration::from_secs(1);
/// How long each attack lasts.
const DURING: Duration = Duration::from_secs(6);

#[test]
fn kubelet_and_loopback_reach_the_agent_while_others_hold_its_port() -> Result<()> {
    network::run(
        "agent::kubelet_and_loopback_reach_the_agent_while_others_hold_its_port",
        probes,
    )
}

/// What an attacker does with a connection.
#[derive(Clone, Copy)]
enum AttackKind {
    /// Nothing at all.
    Silent,
    /// Asks for a large page, and does not read it.
    Slow,
}

async fn probes() -> Result<()> {
    let server = Server::start().await?;
    let mut pod = Pod::start(&server, &[])?;
    pod.wait_ready().await?;
    let port = SocketAddr::from((SERVER, pod.status));

    for (name, habit) in [("silent", AttackKind::Silent), ("slow", AttackKind::Slow)] {
        let (_, metrics) = page(client(6, 1), port, "/stats/prometheus", &[]).await?;
        let before = rejected(&metrics, "status")?;
        let series = [Arc::new(Series::default()), Arc::new(Series::default())];
        let mut kubelet = JoinSet::new();

        // The kubelet from its node, the application from its pod.
        for (from, series) in [client(5, 1), [127, 0, 0, 1].into()]
            .into_iter()
            .zip(series.clone())
        {
            kubelet.spawn(async move {
                let mut ticks = interval(Duration::from_millis(100));
                for path in ["/healthz/ready", "/healthz/ready", "/stats/prometheus"]
                    .iter()
                    .cycle()
                {
                    ticks.tick().await;
                    let question = series.ask();
                    let answer = timeout(PROBE, page(from, port, path, &[])).await;
                    question.end(match answer {
                        Ok(Ok((200, _))) => Ok(()),
                        Ok(Ok((status, body))) => Err(anyhow::anyhow!("{path}: {status} {body}")),
                        Ok(Err(error)) => Err(error),
                        Err(_) => Err(anyhow::anyhow!("{path}: no answer in {PROBE:?}")),
                    });
                }
            });
        }

        let from = Instant::now();
        Attack::start(move || hold(port, habit, DURING))
            .end()
            .await?;
        let to = Instant::now();

        for (who, series) in ["kubelet", "loopback"].iter().zip(&series) {
            ensure!(
                series.settled(to, to + PROBE * 10).await,
                "{name}: {who} has no answer"
            );
            let met = series.between(from, to);
            println!(
                "A10, {name}: {who}: p99 of {} is {:?}, {} failed",
                met.count,
                met.p99,
                met.failed.len()
            );

            ensure!(
                met.count > 20 && met.failed.is_empty(),
                "{name}: {who}: {met:?}"
            );
        }

        drop(kubelet);
        let (_, metrics) = page(client(6, 1), port, "/stats/prometheus", &[]).await?;
        ensure!(
            rejected(&metrics, "status")? > before,
            "{name}: nobody is counted as turned away"
        );
    }

    Ok(())
}

/// 200 connections from one address, opened again when they are closed.
async fn hold(to: SocketAddr, habit: AttackKind, time: Duration) -> Result<String> {
    let end = Instant::now() + time;
    let mut attackers = JoinSet::new();
    for _ in 0..200 {
        attackers.spawn(timeout_at(end, async move {
            loop {
                drop(connection(to, habit).await);
                sleep(Duration::from_millis(300)).await;
            }
        }));
    }
    attackers.join_all().await;
    Ok(String::new())
}

/// One connection, until the agent ends it.
async fn connection(to: SocketAddr, habit: AttackKind) -> Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    socket.bind(SocketAddr::from((client(66, 9), 0)))?;
    let mut stream = socket.connect(to).await?;
    if let AttackKind::Slow = habit {
        let request = "GET /stats/prometheus HTTP/1.1\r\nhost: a\r\n\r\n".repeat(20);
        stream.write_all(request.as_bytes()).await?;
        loop {
            // A byte now and then, so that it looks alive.
            sleep(Duration::from_millis(500)).await;
            if stream.read(&mut [0]).await? == 0 {
                return Ok(());
            }
        }
    }
    stream.read_to_end(&mut Vec::new()).await?;
    Ok(())
}
