//! A real ztunnel with Navarch: it has the workloads of the mesh and the certificates of its pods,
//! forwards their traffic by HBONE with mutual TLS, and enforces policies, while pods, policies,
//! waypoints and the control plane change.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use navarch_testkit::istio;
use navarch_testkit::sniffer::Sniffer;
use navarch_testkit::wait::until;
use serde_json::{Value, json};

use crate::node::{Node, service, waypoint};
use crate::pod::PodKind;
use crate::world::{SERVICE, object};
use crate::ztunnel::Asks;
use crate::{REQUEST_MARKER, missing};

/// How long the client sends requests during a change.
const LOAD: Duration = Duration::from_secs(6);
/// The duration of the control plane's outage.
const AWAY: Duration = Duration::from_secs(8);

/// A security policy.
fn policy(kind: &str, name: &str, spec: Value) -> Value {
    object("security.istio.io/v1", kind, "shop", name, "spec", spec)
}

/// An AuthorizationPolicy for the pods of the service with these accounts as source.
fn authorization(name: &str, action: &str, accounts: &[&str]) -> Value {
    let principals: Vec<String> = accounts
        .iter()
        .map(|name| format!("cluster.local/ns/shop/sa/{name}"))
        .collect();
    let rules = json!([{"from": [{"source": {"principals": principals}}]}]);
    let spec =
        json!({"selector": {"matchLabels": {"app": "web"}}, "action": action, "rules": rules});
    policy("AuthorizationPolicy", name, spec)
}

pub(crate) fn identity(account: &str) -> String {
    format!("spiffe://cluster.local/ns/shop/sa/{account}")
}

/// The members of a list or map in ztunnel's configuration.
pub(crate) fn members(found: &Value) -> Vec<&Value> {
    found
        .as_array()
        .map(|all| all.iter().collect())
        .or_else(|| Some(found.as_object()?.values().collect()))
        .unwrap_or_default()
}

/// The names of the workloads in ztunnel's configuration.
pub(crate) fn workloads(config: &Value) -> BTreeSet<&str> {
    members(&config["workloads"])
        .into_iter()
        .filter_map(|workload| workload["name"].as_str())
        .collect()
}

/// The number of the service's endpoints in ztunnel's configuration.
fn endpoints(config: &Value) -> usize {
    let services = members(&config["services"]).into_iter();
    let web = services.filter(|service| service["hostname"] == "web.shop.svc.cluster.local");
    web.map(|service| members(&service["endpoints"]).len())
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_ztunnel_forwards_only_allowed_connections() -> Result<()> {
    if let Some(why) = missing() {
        navarch_testkit::skip::skip(&why);
        return Ok(());
    }
    let Some(program) = istio::ztunnel() else {
        navarch_testkit::skip::skip_test("NAVARCH_ZTUNNEL is not set to a built ztunnel");
        return Ok(());
    };
    let mut node = Node::start(program).await?;
    has_the_whole_mesh(&node).await?;
    tunnels_with_mutual_tls(&node).await?;
    enforces_policies(&node).await?;
    loses_no_requests_while_a_policy_is_edited(&node).await?;
    loses_no_requests_while_a_pod_is_deleted(&mut node).await?;
    loses_no_requests_while_the_control_plane_is_down(&mut node).await?;
    uses_a_waypoint(&mut node).await?;
    subscribes_on_demand(node).await
}

/// ztunnel has all workloads, the service, and the certificates of its own node.
async fn has_the_whole_mesh(node: &Node) -> Result<()> {
    until("ztunnel has both endpoints", async || {
        node.ztunnel
            .config()
            .await
            .is_ok_and(|config| endpoints(&config) == 2)
    })
    .await;
    let config = node.ztunnel.config().await?;
    let expected = [
        "client-1",
        "stranger-1",
        "web-one-1",
        "web-two-1",
        "ztunnel-1",
    ];

    ensure!(workloads(&config) == BTreeSet::from(expected), "{config:#}");
    let has_certificate = |config: &Value, account: &str| {
        let mut all = members(&config["certificates"]).into_iter();
        all.any(|one| one["identity"] == identity(account) && one["state"] == "Available")
    };
    until("ztunnel has the certificates of its pods", async || {
        let config = node.ztunnel.config().await.unwrap_or_default();
        ["client", "stranger", "web"]
            .iter()
            .all(|account| has_certificate(&config, account))
    })
    .await;
    Ok(())
}

/// By address and by name, to both endpoints, and never in plain text.
async fn tunnels_with_mutual_tls(node: &Node) -> Result<()> {
    node.wait_served("client", true, "at first").await;
    let mut answered = BTreeSet::new();
    for _ in 0..100 {
        answered.insert(node.ask("client", SERVICE, "/").await?);
    }

    ensure!(
        answered == BTreeSet::from(["web-one", "web-two"].map(str::to_owned)),
        "{answered:?}"
    );
    for name in ["web.shop", "web"] {
        node.ask("client", name, "/").await?;
    }

    let web = node.address("web-one")?;
    let sniffer = Sniffer::start()?;
    let by = node
        .ask("client", &web.to_string(), &format!("/?{REQUEST_MARKER}"))
        .await?;
    ensure!(by == "web-one", "{by}");
    let seen = sniffer.stop(node.address("client")?, web, REQUEST_MARKER);
    ensure!(
        seen.frames > 0 && seen.clear == 0,
        "no plain text between the pods: {seen:?}"
    );

    let between = |line: &Value, direction: &str| {
        line["direction"] == direction
            && line["src.identity"] == identity("client")
            && line["dst.identity"] == identity("web")
            && line["error"].is_null()
    };

    until("either end has logged who spoke with whom", async || {
        let lines = node.ztunnel.connections();
        ["outbound", "inbound"]
            .iter()
            .all(|direction| lines.iter().any(|line| between(line, direction)))
    })
    .await;
    Ok(())
}

/// STRICT, DENY and ALLOW.
async fn enforces_policies(node: &Node) -> Result<()> {
    let web = node.address("web-one")?;
    let plain = async || {
        node.world
            .plain(web, 8080, "/")
            .await
            .is_ok_and(|reply| reply.status == 200)
    };

    ensure!(
        plain().await,
        "plain text is accepted without a policy: {}",
        node.output()
    );

    let strict = policy(
        "PeerAuthentication",
        "default",
        json!({"mtls": {"mode": "STRICT"}}),
    );
    node.put(&strict).await?;
    until("plain text is rejected", async || !plain().await).await;
    ensure!(
        node.is_served("client").await && node.is_served("stranger").await,
        "mutual TLS is accepted as before"
    );

    let deny = authorization("deny", "DENY", &["stranger"]);
    let allow = authorization("allow", "ALLOW", &["client"]);
    node.put(&deny).await?;
    node.wait_served("stranger", false, "DENY").await;
    ensure!(
        node.is_served("client").await,
        "the DENY policy matches the stranger only: {}",
        node.output()
    );

    node.put(&allow).await?;
    until("ztunnel has the other policy, too", async || {
        policies(node).await.contains("allow")
    })
    .await;
    node.world.writer().delete(&deny).await?;
    until("and no longer the first one", async || {
        !policies(node).await.contains("deny")
    })
    .await;
    ensure!(
        !node.is_served("stranger").await,
        "the ALLOW policy matches the client only: {}",
        node.output()
    );
    ensure!(node.is_served("client").await, "ALLOW: {}", node.output());
    node.world.writer().delete(&allow).await?;

    node.wait_served("stranger", true, "no policy").await;
    Ok(())
}

/// The names of the policies in ztunnel's configuration.
async fn policies(node: &Node) -> BTreeSet<String> {
    let config = node.ztunnel.config().await.unwrap_or_default();
    let names = members(&config["policies"])
        .into_iter()
        .filter_map(|policy| policy["name"].as_str());
    names.map(str::to_owned).collect()
}

/// Sends the client's requests during an action; none may fail.
pub(crate) async fn without_lost_requests<T>(
    node: &Node,
    load: Duration,
    done: impl Future<Output = Result<T>>,
) -> Result<T> {
    let order = json!({"op": "load", "host": SERVICE, "path": "/", "millis": load.as_millis()});
    let (outcome, done) = tokio::join!(node.app("client", &order), done);
    check_no_request_lost(node, &outcome?)?;
    done
}

/// Fails unless there were requests and all succeeded.
fn check_no_request_lost(node: &Node, outcome: &Value) -> Result<()> {
    let is_whole = outcome["ok"].as_u64() > Some(100) && outcome["failed"] == 0;
    ensure!(is_whole, "requests were lost: {outcome}\n{}", node.output());
    println!("requests: {outcome}");
    Ok(())
}

/// A policy alternately allows and denies the stranger; the client's requests must not be affected.
async fn loses_no_requests_while_a_policy_is_edited(node: &Node) -> Result<()> {
    without_lost_requests(node, LOAD, async {
        for _ in 0..3 {
            node.put(&authorization("edited", "ALLOW", &["client"]))
                .await?;
            node.wait_served("stranger", false, "edited").await;
            node.put(&authorization("edited", "ALLOW", &["client", "stranger"]))
                .await?;
            node.wait_served("stranger", true, "edited").await;
        }
        node.world
            .writer()
            .delete(&authorization("edited", "ALLOW", &[]))
            .await
    })
    .await
}

/// One of the two pods of the service is deleted.
async fn loses_no_requests_while_a_pod_is_deleted(node: &mut Node) -> Result<()> {
    let going = async {
        node.put(&node.without_web_two()?).await?;
        node.delete_web_two().await?;
        until("ztunnel has removed it", async || {
            let config = node.ztunnel.config().await.unwrap_or_default();
            !workloads(&config).contains("web-two-1") && endpoints(&config) == 1
        })
        .await;
        Ok(())
    };
    without_lost_requests(node, LOAD, going).await?;
    node.remove_web_two()?;
    for _ in 0..20 {
        let by = node.ask("client", SERVICE, "/").await?;
        ensure!(by == "web-one", "{by}");
    }
    Ok(())
}

/// The control plane is stopped and restarted; changes after that must take effect.
async fn loses_no_requests_while_the_control_plane_is_down(node: &mut Node) -> Result<()> {
    let order =
        json!({"op": "load", "host": SERVICE, "path": "/", "millis": (AWAY + LOAD).as_millis()});
    let client = node.socket("client")?;
    let (outcome, away) = tokio::join!(
        crate::pod::send_command(&client, &order),
        node.world.restart_control_plane(AWAY)
    );
    away?;
    check_no_request_lost(node, &outcome?)?;
    let deny = authorization("after", "DENY", &["client"]);
    node.put(&deny).await?;
    node.wait_served("client", false, "after its return").await;
    node.world.writer().delete(&deny).await?;
    node.wait_served("client", true, "after its return").await;
    Ok(())
}

/// The service gets a waypoint, a stock Envoy, which denies one path.
async fn uses_a_waypoint(node: &mut Node) -> Result<()> {
    for object in waypoint(&node.world, "way")? {
        node.put(&object).await?;
    }

    let way = node.world.pod("way", PodKind::Waypoint).await?;
    way.wait_ready().await?;
    let rules = json!([{"to": [{"operation": {"paths": ["/closed"]}}]}]);
    let spec = json!({"targetRefs": [{"kind": "Service", "group": "", "name": "web"}], "action": "DENY", "rules": rules});
    node.put(&policy("AuthorizationPolicy", "closed", spec))
        .await?;
    node.put(&service(true)).await?;
    let order = json!({"op": "get", "host": SERVICE, "path": "/closed"});

    until("the waypoint denies the path", async || {
        node.app("client", &order)
            .await
            .is_ok_and(|answer| answer["status"] == 403)
    })
    .await;
    let by = node.ask("client", SERVICE, "/open").await?;
    ensure!(by == "web-one", "{by}");

    until("the client has spoken with the waypoint", async || {
        let lines = node.ztunnel.connections();
        lines.iter().any(|line| {
            line["src.identity"] == identity("client") && line["dst.identity"] == identity("way")
        })
    })
    .await;

    // The pod sees the waypoint's identity: its policy allows only that, so that clients cannot
    // bypass the waypoint.
    let only = authorization("only", "ALLOW", &["way"]);
    node.put(&only).await?;
    let web = node.address("web-one")?.to_string();
    until("no client bypasses the waypoint", async || {
        node.ask("client", &web, "/open").await.is_err()
    })
    .await;

    ensure!(
        node.is_served("client").await,
        "through the waypoint: {}",
        node.output()
    );
    node.world.writer().delete(&only).await?;
    until("no policy of the pod is left", async || {
        node.ask("client", &web, "/open").await.is_ok()
    })
    .await;
    without_lost_requests(node, LOAD, async {
        let answered = async || {
            let counts = node
                .app("web-one", &json!({"op": "counts"}))
                .await
                .unwrap_or_default();
            counts["answered"].as_u64().unwrap_or_default()
        };

        let before = answered().await;
        until("requests go through the waypoint", async || {
            answered().await > before + 20
        })
        .await;
        node.put(&service(false)).await?;
        until("the service is without a waypoint", async || {
            node.app("client", &order)
                .await
                .is_ok_and(|answer| answer["status"] == 200)
        })
        .await;
        Ok(())
    })
    .await
}

/// An on-demand ztunnel gets the resources to which it subscribes, and all policies.
async fn subscribes_on_demand(node: Node) -> Result<()> {
    let node = node.replace_ztunnel(Asks::OnDemand).await?;
    node.wait_served("client", true, "on demand").await;
    node.put(&authorization("deny", "DENY", &["stranger"]))
        .await?;
    node.wait_served("stranger", false, "on demand").await;
    ensure!(node.is_served("client").await, "{}", node.output());
    Ok(())
}
