//! Clients that have an object quarantined and leave, are replaced, or decide for others: the
//! quarantine must not outlive them.

use std::time::Instant;

use super::*;

/// A proxy of the bookshop, which rejects responses with this text.
fn bad<'a>(pod: &'a str, number: usize, rejects: &'a str) -> Client<'a> {
    Client {
        pod,
        at: network::client(1, number),
        rejects: Some(rejects),
        is_patient: true,
        ..Client::default()
    }
}

/// An honest proxy of the bookshop.
fn good(pod: &str, number: usize) -> Client<'_> {
    Client {
        pod,
        at: network::client(1, number),
        ..Client::default()
    }
}

/// Writes a file of the configuration.
fn write(plane: &Plane, name: &str, text: &str) -> Result<()> {
    Ok(std::fs::write(plane.mesh().join(name), text)?)
}

/// Connects proxies, which accept what there is: also this.
async fn connect(plane: &Plane, clients: &[Client<'_>], part: &str) -> Result<Vec<Connected>> {
    let mut connected = Vec::new();
    for client in clients {
        connected.push(client.connect(plane).await?);
    }
    until("they have accepted what there is", async || {
        connected.iter().all(|proxy| proxy.has(part))
    })
    .await;
    Ok(connected)
}

/// Waits until an object is quarantined.
async fn is_quarantined(plane: &Plane, what: &str) {
    until_some(what, async || match quarantined().await {
        Ok(all) if !all.is_empty() => Ok(()),
        seen => Err((seen.ok(), Verbatim(plane.navarch.output()))),
    })
    .await;
}

/// Disconnects proxies, and waits until the control plane lists none.
async fn leave(plane: &Plane, proxies: Vec<Connected>) {
    drop(proxies);
    is_unlisted(plane, "\"proxy\"").await;
}

/// Waits until the list of the control plane's proxies does not contain a text.
async fn is_unlisted(plane: &Plane, text: &str) {
    until_some("they have left", async || {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, plane::MONITORING.port()));
        match others::page(Ipv4Addr::LOCALHOST, local, "/debug/syncz", &[]).await {
            Ok((_, page)) if !page.contains(text) => Ok(()),
            listed => Err((listed.ok(), Verbatim(plane.navarch.output()))),
        }
    })
    .await;
}

/// Waits until proxies have a resource, and nothing is quarantined any more.
async fn all_get(plane: &Plane, proxies: &[Connected], part: &str) {
    until_some("all honest proxies have the edit", async || {
        let all = quarantined().await.ok();
        let has_ended = all.as_ref().is_some_and(Vec::is_empty);
        if has_ended && proxies.iter().all(|proxy| proxy.has(part)) {
            Ok(())
        } else {
            Err((all, Verbatim(plane.navarch.output())))
        }
    })
    .await;
}

#[test]
fn a_quarantine_does_not_outlive_the_workloads_that_decided() -> Result<()> {
    network::run(
        "quarantine::deciders::a_quarantine_does_not_outlive_the_workloads_that_decided",
        own_namespace,
    )
}

async fn own_namespace() -> Result<()> {
    let plane = Plane::start().await?;
    let pods = [good("web-1", 1), good("web-2", 2), good("web-3", 3)];
    let pods: String = pods.iter().map(Client::pod).collect();
    write(&plane, "pods.yaml", &pods)?;
    write(&plane, "reviews.yaml", &subsets("v2"))?;

    // Both that decided leave, and one comes.
    let both = [bad("web-1", 1, "|v3|"), bad("web-2", 2, "|v3|")];
    let both = connect(&plane, &both, "|v1|").await?;
    write(&plane, "reviews.yaml", &subsets("v3"))?;
    is_quarantined(&plane, "two workloads decide").await;
    leave(&plane, both).await;
    let other = connect(&plane, &[good("web-3", 3)], "|v1|").await?;
    all_get(&plane, &other, "|v3|").await;
    leave(&plane, other).await;

    // The only one that decided is replaced under its own name.
    let alone = connect(&plane, &[bad("web-1", 1, "|v4|")], "|v1|").await?;
    write(&plane, "reviews.yaml", &subsets("v4"))?;
    is_quarantined(&plane, "the only workload decides").await;
    leave(&plane, alone).await;
    let mended = connect(&plane, &[good("web-1", 1)], "|v1|").await?;
    all_get(&plane, &mended, "|v4|").await;
    leave(&plane, mended).await;

    // Beside the only one that decided, clients come that have no voice: two in plain text, and two
    // with an identity of the namespace from addresses of no pod.
    let alone = connect(&plane, &[bad("web-1", 1, "|v5|")], "|v1|").await?;
    write(&plane, "reviews.yaml", &subsets("v5"))?;
    is_quarantined(&plane, "the only workload decides").await;
    let voiceless = [2, 3, 4, 5].map(|number| Client {
        at: network::client(7, number),
        is_proved: number > 3,
        ..good("web-9", number)
    });
    let voiceless = connect(&plane, &voiceless, "|v1|").await?;
    all_get(&plane, &voiceless, "|v5|").await;

    until("it was asked again", async || alone[0].rejected() > 1).await;
    ensure!(plane.navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}

#[test]
fn streams_without_identity_that_leave_do_not_hide_those_that_come() -> Result<()> {
    network::run(
        "quarantine::deciders::streams_without_identity_that_leave_do_not_hide_those_that_come",
        decoys,
    )
}

async fn decoys() -> Result<()> {
    let plane = Plane::start().await?;
    let plain = |pod, number, is_decoy| Client {
        pod,
        at: network::client(7, number),
        is_proved: false,
        is_decoy,
        ..Client::default()
    };
    let reviews = subsets("v2");
    let (service, rule) = reviews.split_once("---\n").context("two objects")?;
    write(&plane, "pods.yaml", &good("web-1", 1).pod())?;
    write(&plane, "service.yaml", service)?;

    // The only workload rejects a new rule, beside streams that no object reaches.
    let alone = bad("web-1", 1, "|v2|");
    let _alone = connect(&plane, &[alone], "reviews.example").await?;
    let mut decoys = Vec::new();
    for number in 0..10 {
        decoys.push(plain("decoy", number, true).connect(&plane).await?);
    }
    until("all decoys have answered", async || {
        decoys.iter().all(|decoy| decoy.answered() > 0)
    })
    .await;
    write(&plane, "rule.yaml", rule)?;
    is_quarantined(&plane, "the only workload decides").await;
    drop(decoys);
    is_unlisted(&plane, "decoy").await;

    let honest = [plain("web-8", 8, false), plain("web-9", 9, false)];
    let honest = connect(&plane, &honest, "reviews.example").await?;
    all_get(&plane, &honest, "|v2|").await;
    ensure!(plane.navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}

#[test]
fn a_workload_that_the_object_reaches_later_is_asked() -> Result<()> {
    network::run(
        "quarantine::deciders::a_workload_that_the_object_reaches_later_is_asked",
        hidden,
    )
}

async fn hidden() -> Result<()> {
    let plane = Plane::start().await?;
    let sidecar = |hosts: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: s, namespace: bookshop}}\n\
             spec: {{workloadSelector: {{labels: {{app: web}}}}, egress: [{{hosts: [\"{hosts}\"]}}]}}\n"
        )
    };
    let honest = ["web-2", "web-3", "web-4"].map(|pod| Client {
        labels: &[("app", "web")],
        ..good(pod, usize::from(pod.as_bytes()[4] - b'0'))
    });
    let traitor = Client {
        account: "other",
        labels: &[("app", "other")],
        ..bad("other-1", 9, "|v3|")
    };
    let pods: String = honest.iter().chain([&traitor]).map(Client::pod).collect();
    write(&plane, "pods.yaml", &pods)?;
    write(&plane, "sidecar.yaml", &sidecar("./none.example"))?;
    write(&plane, "reviews.yaml", &subsets("v2"))?;

    let proxies = connect(&plane, &honest, "PassthroughCluster").await?;
    let _rejecting = connect(&plane, &[traitor], "|v2|").await?;
    ensure!(
        proxies.iter().all(|proxy| !proxy.has("|v2|")),
        "the Sidecar hides the service from the honest proxies"
    );
    write(&plane, "reviews.yaml", &subsets("v3"))?;
    is_quarantined(&plane, "the only workload that it reaches decides").await;

    write(&plane, "sidecar.yaml", &sidecar("./*"))?;
    all_get(&plane, &proxies, "|v3|").await;
    ensure!(plane.navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}

#[test]
fn one_workload_of_an_account_does_not_decide_for_its_fellows_of_another_namespace() -> Result<()> {
    network::run(
        "quarantine::deciders::one_workload_of_an_account_does_not_decide_for_its_fellows_of_another_namespace",
        fellows,
    )
}

async fn fellows() -> Result<()> {
    let plane = Plane::start().await?;
    let gateway = |pod, number| Client {
        namespace: "edge",
        account: "gateway",
        ..good(pod, number)
    };
    let traitor = Client {
        rejects: Some("|82|edit|"),
        is_patient: true,
        ..gateway("gateway-1", 1)
    };
    let honest = [gateway("gateway-2", 2), gateway("gateway-3", 3)];
    let pods: String = honest.iter().chain([&traitor]).map(Client::pod).collect();
    let rule = |subset: &str| service_with_subset("owner", "edge", subset);
    write(&plane, "pods.yaml", &pods)?;
    write(&plane, "rule.yaml", &rule("first"))?;

    let _alone = connect(&plane, &[traitor], "|82|first|").await?;
    write(&plane, "rule.yaml", &rule("edit"))?;
    is_quarantined(&plane, "the only workload that it reaches decides").await;

    let proxies = connect(&plane, &honest, "|82|first|").await?;
    all_get(&plane, &proxies, "|82|edit|").await;
    ensure!(plane.navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}

/// Number of namespaces that use up their places, and of the places of each.
const EVIL: usize = 16;
const PLACES: usize = 64;

#[test]
fn namespaces_that_use_up_their_places_leave_the_first_ones_of_others() -> Result<()> {
    network::run(
        "quarantine::deciders::namespaces_that_use_up_their_places_leave_the_first_ones_of_others",
        places,
    )
}

async fn places() -> Result<()> {
    let plane = Plane::start().await?;
    let names: Vec<String> = (0..EVIL).map(|number| format!("evil{number}")).collect();
    let evil: Vec<Client<'_>> = names
        .iter()
        .enumerate()
        .map(|(number, namespace)| Client {
            namespace,
            at: network::client(3, number),
            rejects: Some("|82|bad"),
            is_patient: true,
            ..Client::default()
        })
        .collect();
    let honest = [bad("web-1", 1, "|v3|"), bad("web-2", 2, "|v3|")];
    let pods: String = evil.iter().chain(&honest).map(Client::pod).collect();
    let services: String = names.iter().map(|name| service_in(name)).collect();
    let reviews = |mark: &str| subsets(mark).replace("spec: {host", "spec: {exportTo: ['.'], host");
    write(&plane, "pods.yaml", &pods)?;
    write(&plane, "services.yaml", &services)?;
    write(&plane, "reviews.yaml", &reviews("v2"))?;

    let _evil = connect(&plane, &evil, "|82||").await?;
    let _honest = connect(&plane, &honest, "|v2|").await?;

    // Each namespace rejects one new rule of its own after another.
    for place in 0..PLACES {
        let rules: String = names.iter().map(|name| rule_in(name, place)).collect();
        write(&plane, &format!("rules{place}.yaml"), &rules)?;
        let expected = EVIL * (place + 1);
        until_some("one more of each is quarantined", async || {
            let found = quarantined().await.unwrap_or_default().len();
            if found == expected {
                Ok(())
            } else {
                Err((found, expected))
            }
        })
        .await;
    }

    write(&plane, "reviews.yaml", &reviews("v3"))?;
    until_some("the rejection of others is judged", async || {
        let all = quarantined().await.unwrap_or_default();
        let is_there = |one: &Value| one["object"] == "DestinationRule bookshop/reviews";
        if all.iter().any(is_there) {
            Ok(())
        } else {
            Err((all.len(), Verbatim(plane.navarch.output())))
        }
    })
    .await;
    ensure!(plane.navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}

#[test]
fn slow_rejections_of_other_namespaces_do_not_delay_a_quarantine() -> Result<()> {
    network::run(
        "quarantine::deciders::slow_rejections_of_other_namespaces_do_not_delay_a_quarantine",
        slow,
    )
}

/// Less than the first trials of the slow namespaces last, one after the other.
const PROMPT: Duration = Duration::from_secs(12);

/// Waits until a rule of the bookshop is quarantined.
async fn is_quarantined_promptly(plane: &Plane, object: &str) -> Result<()> {
    let begun = Instant::now();
    until_some("the rejection of the bookshop is judged", async || {
        let all = quarantined().await.unwrap_or_default();
        if all.iter().any(|one| one["object"] == object) {
            Ok(())
        } else {
            Err((all.len(), Verbatim(plane.navarch.output())))
        }
    })
    .await;
    let took = begun.elapsed();
    ensure!(took < PROMPT, "{took:?} {}", plane.navarch.output());
    Ok(())
}

async fn slow() -> Result<()> {
    let plane = Plane::start().await?;
    let names: Vec<String> = (0..EVIL).map(|number| format!("evil{number}")).collect();
    let evil: Vec<Client<'_>> = names
        .iter()
        .enumerate()
        .map(|(number, namespace)| Client {
            namespace,
            at: network::client(3, number),
            rejects: Some("|82|bad"),
            is_patient: true,
            delay: Duration::from_secs(4),
            ..Client::default()
        })
        .collect();
    let honest = [bad("web-1", 1, "|80|broken"), bad("web-2", 2, "|80|broken")];
    let pods: String = evil.iter().chain(&honest).map(Client::pod).collect();
    let services: String = names.iter().map(|name| service_in(name)).collect();
    let bookshop = |mark: &str, other: &str| {
        let reviews = subsets(mark).replace("spec: {host", "spec: {exportTo: ['.'], host");
        format!(
            "{reviews}---\n{}",
            service_with_subset("bookshop", "'.'", other)
        )
    };
    write(&plane, "pods.yaml", &pods)?;
    write(&plane, "services.yaml", &services)?;
    write(&plane, "bookshop.yaml", &bookshop("v2", "first"))?;

    let evil = connect(&plane, &evil, "|82||").await?;
    let honest = connect(&plane, &honest, "|v2|").await?;

    // Each namespace rejects two new rules of its own, so that only trials tell which one.
    let rules = |place| names.iter().map(move |name| rule_in(name, place));
    let both: String = rules(0).chain(rules(1)).collect();
    write(&plane, "rules.yaml", &both)?;
    until("most have rejected them", async || {
        let rejecting = evil.iter().filter(|proxy| proxy.rejected() > 0);
        2 * rejecting.count() > EVIL
    })
    .await;

    // The only change that the honest proxies see.
    write(&plane, "bookshop.yaml", &bookshop("broken1", "first"))?;
    is_quarantined_promptly(&plane, "DestinationRule bookshop/reviews").await?;

    // Of two that they see, a trial tells which one, while those of the others still wait.
    write(&plane, "bookshop.yaml", &bookshop("v3", "first"))?;
    until("the honest proxies have the mended rule", async || {
        honest.iter().all(|proxy| proxy.has("|v3|"))
    })
    .await;
    write(&plane, "bookshop.yaml", &bookshop("broken2", "second"))?;
    is_quarantined_promptly(&plane, "DestinationRule bookshop/reviews").await?;
    ensure!(plane.navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}

/// A service that only its own namespace sees.
fn service_in(namespace: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: few, namespace: {namespace}}}\n\
         spec: {{hosts: [{namespace}.example], exportTo: ['.'], ports: [{{number: 82, name: http, protocol: HTTP}}], resolution: STATIC, endpoints: [{{address: 10.9.0.3, labels: {{a: b}}}}]}}\n---\n"
    )
}

/// A rule for it.
fn rule_in(namespace: &str, number: usize) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: rule{number}, namespace: {namespace}}}\n\
         spec: {{host: {namespace}.example, exportTo: ['.'], subsets: [{{name: bad{number}, labels: {{a: b}}}}]}}\n---\n"
    )
}

#[test]
fn rejections_without_end_do_not_drop_those_of_others() -> Result<()> {
    network::run(
        "quarantine::deciders::rejections_without_end_do_not_drop_those_of_others",
        flood,
    )
}

async fn flood() -> Result<()> {
    let plane = Plane::start().await?;
    let flooding = |number: usize, is_proved: bool| Client {
        namespace: "evil0",
        at: network::client(3, number),
        rejects: Some("|82|bad"),
        is_patient: true,
        rejections: Repetition::WithoutEnd,
        is_proved,
        ..Client::default()
    };
    let evil = [flooding(0, true), flooding(1, false)];
    let honest = [bad("web-1", 1, "|80|broken"), bad("web-2", 2, "|80|broken")];
    let pods: String = evil.iter().chain(&honest).map(Client::pod).collect();
    write(&plane, "pods.yaml", &pods)?;
    write(&plane, "services.yaml", &service_in("evil0"))?;
    write(&plane, "bookshop.yaml", &subsets("v2"))?;

    let evil = connect(&plane, &evil, "|82||").await?;
    let honest = connect(&plane, &honest, "|v2|").await?;
    write(&plane, "rules.yaml", &rule_in("evil0", 0))?;
    until("they have rejected their rule", async || {
        evil.iter().all(|proxy| proxy.rejected() > 0)
    })
    .await;

    for number in 1..4 {
        write(
            &plane,
            "bookshop.yaml",
            &subsets(&format!("broken{number}")),
        )?;
        is_quarantined_promptly(&plane, "DestinationRule bookshop/reviews").await?;
        let mended = format!("mended{number}");
        write(&plane, "bookshop.yaml", &subsets(&mended))?;
        all_get(&plane, &honest, &mended).await;
    }
    ensure!(plane.navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}
