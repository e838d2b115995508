//! The agent's status port (15020), which every pod can reach, while attackers hold connections to
//! it.

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

/// A kubelet's default timeout of probes.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
const ATTACK_DURATION: Duration = Duration::from_secs(6);

#[test]
fn kubelet_and_loopback_reach_the_agent_while_others_hold_its_port() -> Result<()> {
    network::run(
        "agent::kubelet_and_loopback_reach_the_agent_while_others_hold_its_port",
        probes,
    )
}

/// The behaviour of an attacker's connection.
#[derive(Clone, Copy)]
enum AttackKind {
    /// It sends nothing.
    Silent,
    /// It requests large pages and does not read them.
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

        // The kubelet connects from its node, the application from its own pod.
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
                    let answer = timeout(PROBE_TIMEOUT, page(from, port, path, &[])).await;
                    question.end(match answer {
                        Ok(Ok((200, _))) => Ok(()),
                        Ok(Ok((status, body))) => Err(anyhow::anyhow!("{path}: {status} {body}")),
                        Ok(Err(error)) => Err(error),
                        Err(_) => Err(anyhow::anyhow!("{path}: no response in {PROBE_TIMEOUT:?}")),
                    });
                }
            });
        }

        let from = Instant::now();
        Attack::start(move || hold(port, habit, ATTACK_DURATION))
            .end()
            .await?;
        let to = Instant::now();

        for (who, series) in ["kubelet", "loopback"].iter().zip(&series) {
            ensure!(
                series.settled(to, to + PROBE_TIMEOUT * 10).await,
                "{name}: {who} gets no response"
            );
            let met = series.between(from, to);
            println!(
                "agent, {name}: {who}: p99 of {} is {:?}, {} failed",
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
            "{name}: the metrics count no rejected connection"
        );
    }

    Ok(())
}

/// Opens 200 connections from one address, and reopens those that the agent closes.
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

/// One connection, until the agent closes it.
async fn connection(to: SocketAddr, habit: AttackKind) -> Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    socket.bind(SocketAddr::from((client(66, 9), 0)))?;
    let mut stream = socket.connect(to).await?;
    if let AttackKind::Slow = habit {
        let request = "GET /stats/prometheus HTTP/1.1\r\nhost: a\r\n\r\n".repeat(20);
        stream.write_all(request.as_bytes()).await?;
        loop {
            // Read a byte now and then, so that the connection is not idle.
            sleep(Duration::from_millis(500)).await;
            if stream.read(&mut [0]).await? == 0 {
                return Ok(());
            }
        }
    }
    stream.read_to_end(&mut Vec::new()).await?;
    Ok(())
}
