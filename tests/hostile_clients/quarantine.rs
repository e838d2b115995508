//! Clients that reject the configuration of others, in order to have it quarantined for honest
//! proxies.

mod deciders;
mod newcomers;
mod rejecting_client;
mod replicas;
mod rollouts;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use navarch_testkit::wait::{Verbatim, until, until_some};
use serde_json::Value;

use crate::network;
use crate::others;
use crate::plane::{self, Plane};
use rejecting_client::{Client, Connected, Repetition};

/// The subsets of the reviews, the last one named by `mark`.
fn subsets(mark: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: reviews, namespace: bookshop}}\n\
         spec: {{hosts: [reviews.example], ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: STATIC, \
         endpoints: [{{address: 10.9.0.1, labels: {{version: v1}}}}]}}\n---\n\
         apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: reviews, namespace: bookshop}}\n\
         spec: {{host: reviews.example, subsets: [{{name: v1, labels: {{version: v1}}}}, {{name: {mark}, labels: {{version: v1}}}}]}}\n"
    )
}

/// A web application firewall at the ingress gateway.
const WAF: &str = r#"apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: istio-system}
spec: {selector: {istio: ingressgateway}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: waf, namespace: istio-system}
spec:
  workloadSelector: {labels: {istio: ingressgateway}}
  configPatches:
  - applyTo: HTTP_FILTER
    match: {context: GATEWAY, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}
    patch:
      operation: INSERT_BEFORE
      value: {name: waf, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, inline_code: "function envoy_on_request(h) h:respond({[':status'] = '403'}, '') end"}}
"#;

async fn quarantined() -> Result<Vec<Value>> {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, plane::MONITORING.port()));
    let (_, page) = others::page(Ipv4Addr::LOCALHOST, local, "/debug/quarantine", &[]).await?;
    let page: Value = serde_json::from_str(&page)?;
    Ok(page["quarantined"].as_array().context("a list")?.clone())
}

#[test]
fn attackers_cannot_quarantine_the_configuration_of_honest_proxies() -> Result<()> {
    network::run(
        "quarantine::attackers_cannot_quarantine_the_configuration_of_honest_proxies",
        attacks,
    )
}

/// The number of logged rejections that did not lead to a quarantine.
fn kept(plane: &Plane) -> usize {
    plane
        .navarch
        .output()
        .matches("too few for a quarantine")
        .count()
}

#[expect(
    clippy::too_many_lines,
    reason = "one sequence of steps in their order"
)]
async fn attacks() -> Result<()> {
    let plane = Plane::start().await?;
    let write = |name: &str, text: &str| std::fs::write(plane.mesh().join(name), text);
    let honest: Vec<String> = (0..10).map(|number| format!("web-{number}")).collect();
    let honest: Vec<Client<'_>> = honest
        .iter()
        .enumerate()
        .map(|(number, pod)| Client {
            pod,
            at: network::client(1, number),
            delay: Duration::from_millis(300),
            ..Client::default()
        })
        .collect();
    let gateway = Client {
        kind: "router",
        namespace: "istio-system",
        pod: "ingress-0",
        account: "ingress",
        at: network::client(2, 0),
        labels: &[("istio", "ingressgateway")],
        ..Client::default()
    };
    // Three namespaces are a majority of those that the rule reaches.
    let evil = |namespace, pod, number| Client {
        namespace,
        pod,
        account: pod,
        at: network::client(3, number),
        rejects: Some("|v1|"),
        ..Client::default()
    };
    let of_evil = [
        evil("evil", "x", 0),
        evil("evil2", "y", 1),
        evil("evil3", "z", 2),
    ];

    let pods: String = honest
        .iter()
        .chain([&gateway])
        .chain(&of_evil)
        .map(Client::pod)
        .collect();
    write("pods.yaml", &pods)?;
    write("reviews.yaml", &subsets("v2"))?;
    write("waf.yaml", WAF)?;

    let mut proxies = Vec::new();
    for client in &honest {
        proxies.push(client.connect(&plane).await?);
    }
    let edge = gateway.connect(&plane).await?;
    let all_have = |part: &str| proxies.iter().all(|proxy| proxy.has(part));
    until_some("the honest proxies have their configuration", async || {
        if all_have("|v1|") && all_have("|v2|") && edge.has("with the filter") {
            return Ok(());
        }
        let seen = [&proxies[0], &edge].map(|proxy| proxy.has.lock().clone());
        Err((seen, Verbatim(plane.navarch.output())))
    })
    .await;

    // The attackers: a gateway without authentication; a gateway with the identity of another
    // namespace that has accepted no response; and several unauthenticated proxies that claim to be
    // the ingress gateway.
    let claimed = Client {
        namespace: "istio-system",
        pod: "ingress-9",
        is_proved: false,
        rejects: Some("filters.http.lua"),
        ..gateway
    };
    let attackers = [
        Client {
            kind: "router",
            is_proved: false,
            ..of_evil[0]
        },
        Client {
            kind: "router",
            ..of_evil[0]
        },
        Client {
            at: network::client(4, 0),
            ..claimed
        },
        Client {
            at: network::client(4, 1),
            ..claimed
        },
        Client {
            at: network::client(4, 2),
            ..claimed
        },
    ];
    let mut connected = Vec::new();
    for attacker in &attackers {
        connected.push(attacker.connect(&plane).await?);
    }
    until("all attackers reject", async || {
        connected.iter().all(|one| one.rejected() > 0)
    })
    .await;

    // Patient attackers accept the first responses, and reject the next edit of the owner at once:
    // some authenticate, one does not.
    let patient: Vec<Client<'_>> = of_evil
        .iter()
        .map(|one| Client {
            rejects: Some("|v3|"),
            is_patient: true,
            ..*one
        })
        .chain([Client {
            rejects: Some("|v3|"),
            is_patient: true,
            is_proved: false,
            at: network::client(4, 3),
            ..of_evil[0]
        }])
        .collect();
    let mut waiting = Vec::new();
    for client in &patient {
        waiting.push(client.connect(&plane).await?);
    }
    until("they have accepted everything", async || {
        waiting.iter().all(|one| one.has("|v1|"))
    })
    .await;
    let before = kept(&plane);
    write("reviews.yaml", &subsets("v3"))?;
    until("all honest proxies have the edit", async || {
        all_have("|v3|")
    })
    .await;
    until("the rejections are logged", async || kept(&plane) > before).await;
    ensure!(
        quarantined().await?.is_empty() && all_have("|v3|"),
        "{}",
        plane.navarch.output()
    );
    ensure!(
        edge.has("with the filter"),
        "the firewall is still in force"
    );

    honest_rejections_count(&plane, &proxies).await?;
    ensure!(
        edge.has("with the filter"),
        "the firewall is still in force"
    );

    drop(waiting);
    drop(connected);
    a_decision_of_others_ends_when_a_client_without_identity_comes(&plane).await?;
    one_identity_does_not_decide_beside_clients_without_identity(&plane).await?;
    ensure!(plane.navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}

/// The only proxy of a namespace rejects an object of its own namespace: the object is quarantined
/// at once. An operator can release it.
async fn honest_rejections_count(plane: &Plane, others: &[Connected]) -> Result<()> {
    let toys = Client {
        namespace: "toys",
        pod: "toys-0",
        account: "toys",
        at: network::client(5, 0),
        rejects: Some("outbound|81|bad|"),
        is_patient: true,
        ..Client::default()
    };
    let rule = |subset: &str| {
        format!(
            "{}apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: toys, namespace: toys}}\n\
             spec: {{hosts: [toys.example], exportTo: ['.'], ports: [{{number: 81, name: http, protocol: HTTP}}], resolution: STATIC, endpoints: [{{address: 10.9.0.2, labels: {{a: b}}}}]}}\n---\n\
             apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: toys, namespace: toys}}\n\
             spec: {{host: toys.example, exportTo: ['.'], subsets: [{{name: {subset}, labels: {{a: b}}}}]}}\n",
            toys.pod()
        )
    };
    let file = plane.mesh().join("toys.yaml");
    std::fs::write(&file, rule("good"))?;
    let proxy = toys.connect(plane).await?;
    until_some("it has its rule", async || {
        if proxy.has("|good|") {
            Ok(())
        } else {
            Err((proxy.has.lock().clone(), Verbatim(plane.navarch.output())))
        }
    })
    .await;

    std::fs::write(&file, rule("bad"))?;
    until("it rejects the edit", async || proxy.rejected() > 0).await;
    let rejected_at = tokio::time::Instant::now();
    until("its rule is quarantined", async || {
        quarantined().await.is_ok_and(|all| !all.is_empty())
    })
    .await;
    ensure!(
        rejected_at.elapsed() < Duration::from_secs(2),
        "quarantined after {:?}",
        rejected_at.elapsed()
    );

    let all = quarantined().await?;
    let message = all[0]["message"].as_str().context("a message")?;
    ensure!(
        all.len() == 1 && all[0]["object"] == "DestinationRule toys/toys",
        "{all:?}"
    );
    ensure!(
        message.starts_with("rejected by 1 of 1 workloads of its namespace")
            && message.contains("no\\n2026")
            && !message.chars().any(char::is_control),
        "{message:?}"
    );
    let output = plane.navarch.output();
    ensure!(
        !output
            .lines()
            .any(|line| line.starts_with("2026-01-01T00:00:00Z ERROR forged")),
        "the log has no forged line: {output}"
    );
    ensure!(
        others.iter().all(|proxy| proxy.has("|v3|")),
        "other proxies keep their configuration"
    );

    let before = proxy.rejected();
    let release = std::process::Command::new(plane::program())
        .args(["quarantine", "release", "dr", "toys", "-n", "toys"])
        .args([
            "--address",
            &format!("127.0.0.1:{}", plane::MONITORING.port()),
        ])
        .output()?;
    ensure!(release.status.success(), "{release:?}");
    ensure!(quarantined().await?.is_empty(), "it is released");
    until("it is rejected again", async || proxy.rejected() > before).await;
    std::fs::write(&file, rule("mended"))?;
    until("it is edited", async || proxy.has("|mended|")).await;
    ensure!(
        quarantined().await?.is_empty(),
        "the edited object is not quarantined"
    );
    Ok(())
}

/// A service of a namespace with a rule whose subset is named `subset`, for some namespaces.
fn service_with_subset(namespace: &str, export_to: &str, subset: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: few, namespace: {namespace}}}\n\
         spec: {{hosts: [{namespace}.example], exportTo: [{export_to}], ports: [{{number: 82, name: http, protocol: HTTP}}], resolution: STATIC, endpoints: [{{address: 10.9.0.3, labels: {{a: b}}}}]}}\n---\n\
         apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: few, namespace: {namespace}}}\n\
         spec: {{host: {namespace}.example, exportTo: [{export_to}], subsets: [{{name: {subset}, labels: {{a: b}}}}]}}\n"
    )
}

/// While an object reaches one identity of another namespace alone, that identity decides; a client
/// without identity that comes later gets the object nevertheless.
async fn a_decision_of_others_ends_when_a_client_without_identity_comes(
    plane: &Plane,
) -> Result<()> {
    let alone = Client {
        namespace: "alone",
        pod: "alone-0",
        account: "alone",
        at: network::client(5, 1),
        rejects: Some("outbound|82|edit|"),
        is_patient: true,
        ..Client::default()
    };
    let late = Client {
        namespace: "late",
        pod: "late-0",
        at: network::client(5, 2),
        is_proved: false,
        ..Client::default()
    };
    let file = plane.mesh().join("owner.yaml");
    let rule = |subset: &str| service_with_subset("owner", "alone, late", subset);

    std::fs::write(plane.mesh().join("alone.yaml"), alone.pod())?;
    std::fs::write(&file, rule("first"))?;
    let rejecting = alone.connect(plane).await?;
    until("it has the rule", async || rejecting.has("|82|first|")).await;

    std::fs::write(&file, rule("edit"))?;
    until("the only proxy decides", async || {
        quarantined().await.is_ok_and(|all| !all.is_empty())
    })
    .await;

    let honest = late.connect(plane).await?;
    until("the honest client has the edit", async || {
        honest.has("|82|edit|")
    })
    .await;
    ensure!(quarantined().await?.is_empty(), "the quarantine has ended");
    Ok(())
}

/// Where proxies of a namespace have no identity, one workload with an identity does not take their
/// configuration.
async fn one_identity_does_not_decide_beside_clients_without_identity(plane: &Plane) -> Result<()> {
    let traitor = Client {
        namespace: "mixed",
        pod: "mixed-0",
        account: "mixed",
        at: network::client(5, 3),
        rejects: Some("outbound|82|edit|"),
        is_patient: true,
        ..Client::default()
    };
    let plain = |number| Client {
        namespace: "mixed",
        pod: "plain-0",
        at: network::client(6, number),
        is_proved: false,
        ..Client::default()
    };
    let file = plane.mesh().join("mixed.yaml");
    let rule = |subset: &str| traitor.pod() + &service_with_subset("mixed", "'.'", subset);

    std::fs::write(&file, rule("first"))?;
    let mut honest = Vec::new();
    for number in 0..4 {
        honest.push(plain(number).connect(plane).await?);
    }
    let rejecting = traitor.connect(plane).await?;
    until("all have the rule", async || {
        rejecting.has("|82|first|") && honest.iter().all(|one| one.has("|82|first|"))
    })
    .await;

    let before = kept(plane);
    std::fs::write(&file, rule("edit"))?;
    until("the rejection is judged", async || kept(plane) > before).await;
    until("the honest clients have the edit", async || {
        honest.iter().all(|one| one.has("|82|edit|"))
    })
    .await;
    ensure!(quarantined().await?.is_empty(), "nothing is quarantined");
    Ok(())
}
