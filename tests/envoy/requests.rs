//! Requests of many kinds through a sidecar and a gateway; each rule has its effect.

mod client;
mod upstream;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use navarch_testkit::client::{Reply, get, send};
use navarch_testkit::envoy::{AdsProtocol, Envoy, EnvoyConfig};
use navarch_testkit::navarch::Navarch;
use navarch_testkit::wait::{until_some, wanted};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::upstream::Upstream;
use super::ONE_AT_A_TIME;

/// The destination of most rules.
const WEB: &str = "web.shop.svc.cluster.local";

/// The listeners of one of the two proxies.
struct ProxyPorts {
    name: &'static str,
    http: SocketAddr,
    rpc: SocketAddr,
    tls: SocketAddr,
    tcp: SocketAddr,
}

fn doors() -> [ProxyPorts; 2] {
    let at = |address: &str| address.parse().unwrap();
    let own = "127.0.0.1";
    [
        ProxyPorts {
            name: "sidecar",
            http: at(&format!("{own}:9080")),
            rpc: at(&format!("{own}:9081")),
            tls: at(&format!("{own}:18443")),
            tcp: at(&format!("{own}:15432")),
        },
        ProxyPorts {
            name: "gateway",
            http: at(&format!("{own}:18080")),
            rpc: at(&format!("{own}:18080")),
            tls: at(&format!("{own}:18444")),
            tcp: at(&format!("{own}:18445")),
        },
    ]
}

/// An Envoy of the mesh.
async fn envoy(kind: &str, pod: &str, ip: &str, metadata: Value, xds: SocketAddr) -> Result<Envoy> {
    let config = EnvoyConfig {
        kind: kind.to_owned(),
        pod: pod.to_owned(),
        namespace: "shop".to_owned(),
        ip: ip.to_owned(),
        metadata,
        xds,
        protocol: AdsProtocol::Delta,
        sds: None,
        token: None,
    };
    let mut envoy = Envoy::start(&config).await?;
    envoy.wait_ready().await?;
    Ok(envoy)
}

/// Repeats a request until the response is as wanted.
async fn until(
    address: SocketAddr,
    host: &str,
    path: &str,
    is_wanted: impl Fn(&Reply) -> bool,
) -> Reply {
    let what = format!("the answer of {host}{path} is as wanted");
    let reply = until_some(&what, async || {
        let reply = get(address, host, path, &[]).await;
        wanted(reply, |reply| reply.as_ref().is_ok_and(&is_wanted))
    });
    reply.await.expect("the wanted response exists")
}

/// A header of a response.
fn header<'a>(reply: &'a Reply, name: &str) -> &'a str {
    reply
        .headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

/// How often each upstream responds.
async fn spread(
    door: &ProxyPorts,
    host: &str,
    path: &str,
    headers: &[(&str, &str)],
    n: usize,
) -> Result<BTreeMap<String, usize>> {
    let mut answers = BTreeMap::new();
    for _ in 0..n {
        *answers
            .entry(get(door.http, host, path, headers).await?.body)
            .or_default() += 1;
    }
    Ok(answers)
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_follow_their_rules_at_sidecar_and_gateway() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir()?;
    std::fs::copy(
        root.join("tests/envoy/requests/mesh.yaml"),
        folder.path().join("mesh.yaml"),
    )?;
    let flags = [format!(
        "--mesh-config={}",
        root.join("deploy/samples/mesh.yaml").display()
    )];

    let navarch = Navarch::start(
        Path::new(env!("CARGO_BIN_EXE_navarch")),
        folder.path(),
        &flags,
    )
    .await?;
    let _one = Upstream::http("one", "127.0.10.51:8081").await?;
    let _two = Upstream::http("two", "127.0.10.52:8081").await?;

    let shadow = Upstream::http("shadow", "127.0.10.53:8081").await?;
    let near = Upstream::http("near", "127.0.10.54:8081").await?;
    let _far = Upstream::http("far", "127.0.10.55:8081").await?;
    let _db = Upstream::bytes("db", "127.0.10.56:8082").await?;
    let _replica = Upstream::bytes("replica", "127.0.10.57:8082").await?;
    let _ext = Upstream::http("ext", "127.0.0.1:18091").await?;
    let client = json!({"LABELS": {"app": "client"}, "INTERCEPTION_MODE": "NONE"});
    let sidecar = envoy("sidecar", "client-1", "127.0.20.2", client, navarch.xds).await?;

    let edge = json!({"LABELS": {"istio": "edge"}});
    let gateway = envoy("router", "edge-1", "127.0.20.1", edge, navarch.xds).await?;

    for door in doors() {
        let all = async {
            until(door.http, WEB, "/", |reply| reply.body == "one").await;
            choices(&door).await.context("choices")?;
            troubles(&door, &shadow).await.context("troubles")?;
            changes(&door).await.context("changes")?;
            connections(&door).await.context("connections")
        };
        all.await.with_context(|| format!("at the {}", door.name))?;
    }

    failover(&doors()[0], near).await?;

    for envoy in [&sidecar, &gateway] {
        let rejected = envoy.stats().await?.rejected();
        ensure!(
            rejected == 0,
            "{rejected} updates were rejected:\n{}",
            envoy.output()
        );
    }

    Ok(())
}

/// Split, header match, consistent hash, egress by name.
async fn choices(door: &ProxyPorts) -> Result<()> {
    let split = spread(door, WEB, "/split", &[], 120).await?;
    let two = split.get("two").copied().unwrap_or_default();
    ensure!((10..60).contains(&two), "75/25: {split:?}");
    let marked = until(door.http, WEB, "/split", |reply| reply.body == "two").await;
    ensure!(
        header(&marked, "x-share") == "small",
        "the header of one share: {marked:?}"
    );

    let jason = spread(door, WEB, "/", &[("x-end-user", "jason")], 5).await?;
    ensure!(jason.get("two") == Some(&5), "by header: {jason:?}");
    let jane = spread(door, WEB, "/", &[("x-end-user", "jane")], 5).await?;
    ensure!(
        jane.get("one") == Some(&5),
        "by header that does not match: {jane:?}"
    );
    let mut chosen = BTreeMap::new();

    for user in 0..20 {
        let user = format!("user-{user}");
        let answers = spread(
            door,
            "hashed.shop.svc.cluster.local",
            "/",
            &[("x-user", &user)],
            4,
        )
        .await?;
        ensure!(
            answers.len() == 1,
            "{user} always goes to the same: {answers:?}"
        );
        *chosen
            .entry(answers.into_keys().next().unwrap_or_default())
            .or_insert(0) += 1;
    }

    ensure!(chosen.len() == 2, "users spread over both: {chosen:?}");
    until(door.http, "api.ext.test", "/", |reply| reply.body == "ext").await;
    Ok(())
}

/// Faults, retries, timeouts, mirrors.
async fn troubles(door: &ProxyPorts, shadow: &Upstream) -> Result<()> {
    let aborted = get(door.http, WEB, "/abort", &[]).await?;
    ensure!(aborted.status == 418, "{aborted:?}");
    let start = Instant::now();
    ensure!(
        get(door.http, WEB, "/delay", &[]).await?.status == 200,
        "the request is delayed and succeeds"
    );
    ensure!(
        start.elapsed() >= Duration::from_millis(290),
        "delayed: {:?}",
        start.elapsed()
    );

    for _ in 0..4 {
        let flaky = get(door.http, WEB, "/flaky", &[]).await?;
        ensure!(flaky.status == 200, "the request is retried: {flaky:?}");
    }

    let slow = get(door.http, WEB, "/slow", &[]).await?;
    ensure!(slow.status == 504, "timed out: {slow:?}");
    let before = shadow.served();
    ensure!(
        get(door.http, WEB, "/mirror", &[]).await?.body == "one",
        "the response is not the mirror's"
    );
    let end = Instant::now() + Duration::from_secs(5);

    while shadow.served() == before {
        ensure!(Instant::now() < end, "no request is mirrored");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    Ok(())
}

/// Redirects, rewrites, CORS, direct responses.
async fn changes(door: &ProxyPorts) -> Result<()> {
    let moved = get(door.http, WEB, "/old/page", &[]).await?;
    ensure!(
        moved.status == 308 && header(&moved, "location") == "http://elsewhere.test/new",
        "{moved:?}"
    );
    let inner = get(door.http, WEB, "/shop/page", &[("x-secret", "s")]).await?;
    ensure!(
        header(&inner, "x-seen-path") == "/inner/page",
        "rewritten: {inner:?}"
    );

    ensure!(
        header(&inner, "x-seen-host") == "inner.test",
        "another host: {inner:?}"
    );
    ensure!(
        header(&inner, "x-seen-added") == "yes" && header(&inner, "x-seen-secret").is_empty(),
        "{inner:?}"
    );

    let turned = get(door.http, WEB, "/regex/a/b/c", &[]).await?;
    ensure!(
        header(&turned, "x-seen-path") == "/b/c/a",
        "by expression: {turned:?}"
    );
    let asks = [
        ("origin", "https://shop.test"),
        ("access-control-request-method", "PUT"),
    ];
    let preflight = send("OPTIONS", door.http, WEB, "/cors", &asks).await?;
    let allowed = header(&preflight, "access-control-allow-origin") == "https://shop.test"
        && header(&preflight, "access-control-allow-methods") == "GET,PUT"
        && header(&preflight, "access-control-max-age") == "3600";
    ensure!(preflight.status == 200 && allowed, "{preflight:?}");

    let other = get(door.http, WEB, "/cors", &[("origin", "https://other.test")]).await?;
    ensure!(
        header(&other, "access-control-allow-origin").is_empty(),
        "{other:?}"
    );
    let direct = get(door.http, WEB, "/direct", &[]).await?;
    ensure!(
        direct.status == 203 && direct.body == "said directly",
        "{direct:?}"
    );

    Ok(())
}

/// WebSocket, gRPC, TCP, TLS by server name.
async fn connections(door: &ProxyPorts) -> Result<()> {
    client::web_socket(door.http, WEB)
        .await
        .context("WebSocket")?;
    client::grpc(door.rpc, "rpc.shop.svc.cluster.local:9081")
        .await
        .context("gRPC")?;
    let (tcp, a) = if door.name == "sidecar" {
        ("replica", "replica")
    } else {
        ("db", "db")
    };

    client::first_words(door.tcp, &[], tcp)
        .await
        .context("TCP")?;
    client::first_words(door.tls, &client::hello("a.tls.test")?, a)
        .await
        .context("TLS to a")?;

    client::first_words(door.tls, &client::hello("b.tls.test")?, "replica")
        .await
        .context("TLS to b")
}

/// All requests go to the client's own region while it has endpoints; afterwards to the other one.
async fn failover(door: &ProxyPorts, near: Upstream) -> Result<()> {
    const NEAR: &str = "near.shop.svc.cluster.local";
    let answers = spread(door, NEAR, "/", &[], 20).await?;
    ensure!(
        answers.get("near") == Some(&20),
        "all responses come from the own region: {answers:?}"
    );
    drop(near);
    until(door.http, NEAR, "/", |reply| reply.body == "far").await;
    let answers = spread(door, NEAR, "/", &[], 20).await?;
    ensure!(
        answers.get("far") == Some(&20),
        "all responses come from the other region: {answers:?}"
    );
    Ok(())
}
