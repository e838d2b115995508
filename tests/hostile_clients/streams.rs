//! Attacks by messages on xDS streams.

use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::{BufMut as _, Bytes, BytesMut};
use navarch_proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::collisions;
use crate::grpc::{CLUSTERS, Call, Connection, DELTA, ENDPOINTS, framed, node};
use crate::network::client;

/// A subscription to endpoints.
fn subscription(names: Vec<String>, without: Vec<String>) -> Bytes {
    framed(&DeltaDiscoveryRequest {
        node: Some(node("evil-1", "evil", &[])),
        type_url: ENDPOINTS.to_owned(),
        resource_names_subscribe: names,
        resource_names_unsubscribe: without,
        ..DeltaDiscoveryRequest::default()
    })
}

/// Subscriptions to names with equal hashes: 50,000 names in one message in plain text, and 20,000
/// from a workload with a token.
pub(crate) async fn one_hash(token: String, time: Duration) -> Result<String> {
    let end = Instant::now() + time;
    let mut outcomes = Vec::new();
    let mut open = Vec::new();

    for (count, token) in [(50_000, None), (20_000, Some(token.as_str()))] {
        let mut connection = Connection::to_xds(client(66, 1), token.is_some()).await?;
        let mut call = connection.call(DELTA, token).await?;
        let sent = call
            .send(subscription(collisions::names(count), Vec::new()))
            .await;
        let answer = async { sent.and(call.message().await) };
        outcomes.push(match timeout(Duration::from_secs(1), answer).await {
            Err(_) => "no answer for a second".to_owned(),
            Ok(Ok(())) => "answered".to_owned(),
            Ok(Err(error)) => format!("rejected: {error:#}"),
        });
        open.push((connection, call));
    }

    sleep_until(end).await;
    Ok(format!("plain: {}; token: {}", outcomes[0], outcomes[1]))
}

/// Switches between two sets of names as soon as the server responds, and counts the rounds.
async fn alternate(token: Option<&str>, rounds: &mut usize) -> Result<()> {
    let set = |from: usize| {
        (from..from + 40_000)
            .map(|n| format!("outbound|80||{n:08}.svc"))
            .collect::<Vec<_>>()
    };
    let turns = [
        subscription(set(0), set(40_000)),
        subscription(set(40_000), set(0)),
    ];
    let mut connection = Connection::to_xds(client(66, 2), token.is_some()).await?;
    let mut call = connection.call(DELTA, token).await?;
    for turn in turns.iter().cycle() {
        call.send(turn.clone()).await?;
        call.message().await?;
        *rounds += 1;
    }
    Ok(())
}

/// Two streams with alternating subscriptions, one of them with a token; closed streams are
/// reopened.
pub(crate) async fn alternating(token: String, time: Duration) -> Result<String> {
    let end = Instant::now() + time;
    let mut attackers = JoinSet::new();
    for token in [None, Some(token)] {
        attackers.spawn(async move {
            let mut rounds = 0;
            let mut rejected = 0;
            while let Ok(outcome) = timeout_at(end, alternate(token.as_deref(), &mut rounds)).await
            {
                rejected += usize::from(outcome.is_err());
                sleep(Duration::from_millis(100)).await;
            }
            format!("{rounds} rounds, {rejected} rejected")
        });
    }
    Ok(attackers.join_all().await.join("; "))
}

/// 200 streams that end at once, each with its own Istio version of 100 KiB.
pub(crate) async fn long_versions(time: Duration) -> Result<String> {
    let end = Instant::now() + time;
    let mut answered = 0;
    let mut rejected = 0;

    for number in 0..200 {
        let version = format!("1.{number}{}", "a".repeat(100 << 10));
        let hello = framed(&DeltaDiscoveryRequest {
            node: Some(node(
                &format!("evil-{number}"),
                "evil",
                &[("ISTIO_VERSION", &version)],
            )),
            type_url: CLUSTERS.to_owned(),
            ..DeltaDiscoveryRequest::default()
        });

        let mut connection = Connection::to_xds(client(66, 3), false).await?;
        let mut call = connection.call(DELTA, None).await?;
        let exchange = async {
            call.send(hello).await?;
            call.message().await
        };
        *if exchange.await.is_ok() {
            &mut answered
        } else {
            &mut rejected
        } += 1;
    }

    sleep_until(end).await;
    ensure!(answered + rejected == 200, "not all streams were opened");
    Ok(format!("{answered} answered, {rejected} rejected"))
}

/// The beginning of a message of `announced` bytes.
fn half_message(announced: u32, sent: usize) -> Bytes {
    let mut bytes = BytesMut::with_capacity(sent + 5);
    bytes.put_u8(0);
    bytes.put_u32(announced);
    // An unknown length-delimited field that fills the rest of the message.
    bytes.put_bytes(0x7a, sent);
    bytes.freeze()
}

/// 120 messages of almost 4 MiB from one client that are never finished.
pub(crate) async fn half_messages(time: Duration) -> Result<String> {
    let end = Instant::now() + time;
    let half = half_message(4_000_000, 3_900_000);
    let mut attackers = JoinSet::new();

    for _ in 0..120 {
        let half = half.clone();
        attackers.spawn(timeout_at(end, async move {
            let mut connection = Connection::to_xds(client(66, 4), false).await?;
            let mut call = connection.call(DELTA, None).await?;
            call.send(half).await?;
            anyhow::Ok((connection, call))
        }));
    }

    let mut held = Vec::new();
    let mut rejected = 0;

    for outcome in attackers.join_all().await {
        match outcome {
            Ok(Ok(call)) => held.push(call),
            Ok(Err(_)) | Err(_) => rejected += 1,
        }
    }

    sleep_until(end).await;
    Ok(format!(
        "{} sent, {rejected} rejected or not read in time",
        held.len()
    ))
}

/// Silent streams, and streams with an unfinished message: the server must end each within `most`.
pub(crate) async fn never_finished(most: Duration) -> Result<String> {
    let mut open = JoinSet::new();

    for number in 0..60 {
        let begun = number % 2 == 0;
        open.spawn(async move {
            let start = Instant::now();
            let mut connection = Connection::to_xds(client(67, number), false).await?;
            let mut call = connection.call(DELTA, None).await?;
            if begun {
                call.send(half_message(4_000_000, 64 << 10)).await?;
            }

            let why = ended(&mut call, most).await;
            ensure!(
                why.is_some(),
                "a stream with {} is still open after {most:?}",
                if begun {
                    "an unfinished message"
                } else {
                    "no message"
                }
            );

            Ok((begun, start.elapsed()))
        });
    }

    let mut longest = [Duration::ZERO; 2];

    while let Some(outcome) = open.join_next().await {
        let (begun, time) = outcome??;
        let longest = &mut longest[usize::from(begun)];
        *longest = time.max(*longest);
    }

    let [silent, begun] = longest;
    Ok(format!(
        "streams without a message ended after {silent:?}, with an unfinished message after {begun:?}"
    ))
}

/// The status with which the server ends a call within some time.
async fn ended(call: &mut Call, most: Duration) -> Option<String> {
    timeout(most, call.ended()).await.ok()
}
