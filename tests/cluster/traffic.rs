//! Requests through the mesh: routes, faults, policies, encryption.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::Ipv4Addr;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use navarch_testkit::bookshop::{self, pods};
use navarch_testkit::mesh::Mesh;
use navarch_testkit::sniffer::Seen;
use navarch_testkit::wait::{until_some, wanted};
use navarch_testkit::{client, wait};
use serde_json::{Value, json};

use crate::program;

/// Sent in requests; must never be visible on the wire.
const SECRET: &str = "the-word-that-nobody-may-read";

/// Splits the gateway's traffic: this percentage goes to the new reviews.
pub(crate) fn split(mesh: &Mesh, new: u32) -> Result<()> {
    let mut routes = mesh
        .node
        .get(pods::NAMESPACE, &["virtualservice", "storefront"])?;
    let weights = &mut routes["spec"]["http"][0]["route"];
    (weights[0]["weight"], weights[1]["weight"]) = (json!(100 - new), json!(new));
    let patch = json!({"spec": routes["spec"]}).to_string();
    let arguments = [
        "--namespace",
        pods::NAMESPACE,
        "patch",
        "virtualservice",
        "storefront",
        "--type=merge",
        "--patch",
        &patch,
    ];
    mesh.node.kubectl(&arguments).map(drop)
}

/// Waits until all requests at the gateway reach this version of the reviews.
pub(crate) async fn all_see(mesh: &Mesh, version: &str) -> Result<()> {
    let gateway = mesh.service(pods::GATEWAY, pods::GATEWAY, 80)?;
    let expected = format!("reviews {version}");
    wait::until(&format!("all readers see {expected}"), || async {
        let answers = bookshop::ask(gateway, pods::HOST, "/reviews", 20).await;
        answers.is_ok_and(|answers| answers.get(&expected) == Some(&20))
    })
    .await;
    Ok(())
}

/// Hosts, paths and weights of the gateway's VirtualService, and an edit of the weights.
pub(crate) async fn the_shop_is_reached_through_the_gateway(mesh: &Mesh) -> Result<()> {
    let gateway = mesh.service(pods::GATEWAY, pods::GATEWAY, 80)?;
    let reviews = bookshop::ask(gateway, pods::HOST, "/reviews", 200).await?;
    let old = reviews.get("reviews v1").copied();
    let new = reviews.get("reviews v2").copied();
    ensure!(
        old.unwrap_or(0) + new.unwrap_or(0) == 200,
        "all requests succeed: {reviews:?}"
    );

    // The expected number is 20; fewer than 3 or more than 44 occur once in a hundred thousand
    // runs.
    ensure!(
        (3..=44).contains(&new.unwrap_or(0)),
        "about one of ten requests reaches the new reviews: {reviews:?}"
    );
    let others = [("/catalog/1", "catalog"), ("/", "storefront")];

    for (path, expected) in others {
        let answers = bookshop::ask(gateway, pods::HOST, path, 10).await?;
        ensure!(answers.get(expected) == Some(&10), "{path}: {answers:?}");
    }

    let reply = client::get(gateway, pods::HOST, "/catalog/1", &[]).await?;
    let seen = reply
        .headers
        .get("x-seen-client")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned();

    let by = "By=spiffe://cluster.local/ns/bookshop/sa/catalog";
    let from = format!("URI=spiffe://cluster.local/ns/{0}/sa/{0}", pods::GATEWAY);
    ensure!(
        seen.contains(by) && seen.contains(&from),
        "both ends have their identities: {seen}"
    );
    let stranger = client::get(gateway, "other.example.com", "/", &[]).await?;
    ensure!(
        stranger.status == 404,
        "an unknown host: {}",
        stranger.status
    );

    split(mesh, 100)?;
    all_see(mesh, "v2").await?;
    split(mesh, 10)
}

/// The results of requests from a pod, including failures.
fn ask_from(
    mesh: &Mesh,
    namespace: &str,
    deployment: &str,
    count: usize,
    target: &str,
) -> Result<Value> {
    let deployment = format!("deployment/{deployment}");
    let count = count.to_string();
    let place = [
        "--namespace",
        namespace,
        "exec",
        &deployment,
        "--container=app",
        "--",
    ];
    let command = ["/usr/local/bin/workload", "try", &count, target];
    Ok(serde_json::from_str(
        &mesh.node.kubectl(&[&place[..], &command].concat())?,
    )?)
}

/// Waits until some requests from a pod all have the wanted results.
async fn until_answered(
    mesh: &Mesh,
    from: (&str, &str),
    target: &str,
    are_wanted: impl Fn(&Value) -> bool,
) {
    until_some(
        &format!("{target} answers {} as wanted", from.1),
        async || {
            let tally =
                ask_from(mesh, from.0, from.1, 5, target).map_err(|error| format!("{error:#}"))?;
            wanted(tally, &are_wanted).map_err(|tally| tally.to_string())
        },
    )
    .await;
}

/// Whether every request failed with a text in its error.
fn all_failed(tally: &Value, text: &str) -> bool {
    let failures = tally["failures"].as_array();
    tally["failed"] == tally["asked"]
        && failures.is_some_and(|all| {
            all.iter()
                .all(|one| one.as_str().is_some_and(|one| one.contains(text)))
        })
}

/// A fault in the client's sidecar, and a policy by identity in the server's.
pub(crate) async fn a_fault_and_a_policy_are_obeyed(mesh: &Mesh) -> Result<()> {
    let reader = (pods::NAMESPACE, "storefront-v1");
    let target = "catalog:9080/catalog/";
    mesh.apply(&[json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": "catalog", "namespace": pods::NAMESPACE},
        "spec": {"hosts": ["catalog"], "http": [{
            "fault": {"abort": {"httpStatus": 418, "percentage": {"value": 100}}},
            "route": [{"destination": {"host": "catalog"}}],
        }]},
    })])?;

    until_answered(mesh, reader, target, |tally| all_failed(tally, "418")).await;
    let namespace = ["--namespace", pods::NAMESPACE];
    mesh.node
        .kubectl(&[&namespace[..], &["delete", "virtualservice", "catalog"]].concat())?;
    until_answered(mesh, reader, target, |tally| tally["failed"] == 0).await;

    let gateway = mesh.service(pods::GATEWAY, pods::GATEWAY, 80)?;
    let denied = format!("cluster.local/ns/{0}/sa/{0}", pods::GATEWAY);
    // A path that no other client requests: connections stay on the listener with the policy until
    // Envoy has drained it, which is later than the first requests that are let in again.
    let path = "/catalog/1";
    mesh.apply(&[json!({
        "apiVersion": "security.istio.io/v1",
        "kind": "AuthorizationPolicy",
        "metadata": {"name": "catalog", "namespace": pods::NAMESPACE},
        "spec": {
            "selector": {"matchLabels": {"app": "catalog"}},
            "action": "DENY",
            "rules": [{
                "from": [{"source": {"principals": [denied]}}],
                // The gateway rewrites the prefix of the path.
                "to": [{"operation": {"paths": ["*/1"]}}],
            }],
        },
    })])?;

    let all = |expected: &'static str| async move {
        let answers = bookshop::ask(gateway, pods::HOST, path, 10).await;
        answers.is_ok_and(|answers| answers.get(expected) == Some(&10))
    };
    wait::until("the gateway is denied the catalog", || all("403 Forbidden")).await;
    let others = ask_from(mesh, reader.0, reader.1, 10, target)?;
    ensure!(
        others["failed"] == 0,
        "other clients are not denied: {others}"
    );
    mesh.node.kubectl(
        &[
            &namespace[..],
            &["delete", "authorizationpolicy", "catalog"],
        ]
        .concat(),
    )?;

    wait::until("the gateway is let in again", || all("catalog")).await;
    Ok(())
}

/// The address of the only pod that matches a selector.
fn pod_of(mesh: &Mesh, namespace: &str, selector: &str) -> Result<Ipv4Addr> {
    let list = mesh
        .node
        .get(namespace, &["pods", "--selector", selector])?;
    let ip = list["items"][0]["status"]["podIP"]
        .as_str()
        .with_context(|| format!("{selector} has no address"))?;
    Ok(ip.parse()?)
}

/// Captures the traffic between two pods during an action.
fn seen_between(
    mesh: &Mesh,
    one: Ipv4Addr,
    other: Ipv4Addr,
    work: impl Fn() -> Result<()>,
) -> Result<Seen> {
    let mut command = mesh.node.in_network(&program("workload"))?;
    command.args(["sniff", &one.to_string(), &other.to_string(), SECRET]);
    let mut sniffer = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = BufReader::new(sniffer.stdout.take().context("it prints")?);
    output.read_line(&mut String::new())?;
    let done = work();
    drop(sniffer.stdin.take());
    let mut printed = String::new();
    output.read_to_string(&mut printed)?;
    sniffer.wait()?;
    done?;
    serde_json::from_str(&printed).with_context(|| format!("sniff printed {printed:?}"))
}

/// Traffic between sidecars is encrypted; a client without a sidecar uses plain text until STRICT
/// rejects it.
pub(crate) async fn pods_communicate_encrypted(mesh: &Mesh) -> Result<()> {
    let storefront = pod_of(mesh, pods::NAMESPACE, "app=storefront")?;
    let target = format!("storefront.{}:9080/storefront/{SECRET}", pods::NAMESPACE);
    let inside = (
        pods::NAMESPACE,
        "reviews-v2",
        pod_of(mesh, pods::NAMESPACE, "app=reviews,version=v2")?,
    );

    let outside = (
        pods::OUTSIDE,
        "bank-v1",
        pod_of(mesh, pods::OUTSIDE, "app=bank")?,
    );

    let watch = |(namespace, deployment, ip): (&str, &str, Ipv4Addr)| {
        seen_between(mesh, ip, storefront, || {
            let tally = ask_from(mesh, namespace, deployment, 10, &target)?;
            ensure!(tally["failed"] == 0, "{deployment}: {tally}");
            Ok(())
        })
    };

    let seen = watch(inside)?;
    ensure!(
        seen.frames > 0 && seen.clear == 0,
        "between sidecars: {seen:?}"
    );

    // A check of the method: plain text is recognized as such.
    let seen = watch(outside)?;
    ensure!(seen.clear > 0, "from a client without a sidecar: {seen:?}");
    mesh.apply(&[json!({
        "apiVersion": "security.istio.io/v1",
        "kind": "PeerAuthentication",
        "metadata": {"name": "default", "namespace": pods::NAMESPACE},
        "spec": {"mtls": {"mode": "STRICT"}},
    })])?;

    let reset = |tally: &Value| tally["failed"] == tally["asked"];
    until_answered(mesh, (outside.0, outside.1), &target, reset).await;
    let seen = watch(inside)?;
    ensure!(
        seen.frames > 0 && seen.clear == 0,
        "between sidecars under STRICT: {seen:?}"
    );
    let gateway = mesh.service(pods::GATEWAY, pods::GATEWAY, 80)?;
    let answers = bookshop::ask(gateway, pods::HOST, "/", 10).await?;

    ensure!(
        answers.get("storefront") == Some(&10),
        "the gateway under STRICT: {answers:?}"
    );

    Ok(())
}
