//! Clients that reject an object while they are alone with it, in order to keep it from proxies
//! that connect later; and one that has another object blamed than its fellows reject.

use super::*;

/// A service of the bookshop.
const SERVICE: &str = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: reviews, namespace: bookshop}\n\
    spec: {hosts: [reviews.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, \
    endpoints: [{address: 10.9.0.1, labels: {version: v1}}]}\n";

/// A rule for the service, seen by some namespaces, with one subset.
fn rule(export_to: &str, subset: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: reviews, namespace: bookshop}}\n\
         spec: {{host: reviews.example, exportTo: [{export_to}], subsets: [{{name: {subset}, labels: {{version: v1}}}}]}}\n"
    )
}

/// The only proxy of another namespace, which rejects responses with this text.
fn evil(rejects: &str) -> Client<'_> {
    Client {
        namespace: "evil",
        pod: "x",
        account: "x",
        at: network::client(3, 0),
        rejects: Some(rejects),
        is_patient: true,
        ..Client::default()
    }
}

#[test]
fn what_an_identity_rejects_alone_reaches_those_that_connect_later() -> Result<()> {
    network::run(
        "quarantine::newcomers::what_an_identity_rejects_alone_reaches_those_that_connect_later",
        foreign_identities,
    )
}

async fn foreign_identities() -> Result<()> {
    let plane = Plane::start().await?;
    let write = |name: &str, text: &str| std::fs::write(plane.mesh().join(name), text);
    let honest = Client::default();
    write("pods.yaml", &(honest.pod() + &evil("").pod()))?;
    write("service.yaml", SERVICE)?;

    // Its previous version: none, and one that reaches the attacker only.
    for (previous, marker) in [(None, "fresh"), (Some(rule("evil", "first")), "wide")] {
        std::fs::remove_file(plane.mesh().join("rule.yaml")).ok();
        if let Some(previous) = &previous {
            write("rule.yaml", previous)?;
        }

        let text = format!("|80|{marker}|");
        let attacker = evil(&text).connect(&plane).await?;
        until("the attacker has accepted what there is", async || {
            attacker.has("reviews.example") && (previous.is_none() || attacker.has("|80|first|"))
        })
        .await;

        let before = kept(&plane);
        write("rule.yaml", &rule("'*'", marker))?;
        until("the attacker rejects it", async || attacker.rejected() > 0).await;
        until("the rejection is judged", async || kept(&plane) > before).await;
        ensure!(
            quarantined().await?.is_empty(),
            "{marker}: {}",
            plane.navarch.output()
        );

        let proxy = honest.connect(&plane).await?;
        until_some("a proxy that comes later has it", async || {
            if proxy.has(&text) {
                Ok(())
            } else {
                Err((proxy.has.lock().clone(), Verbatim(plane.navarch.output())))
            }
        })
        .await;
    }

    ensure!(plane.navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}

#[test]
fn the_only_workload_of_a_namespace_does_not_decide_for_those_that_connect_later() -> Result<()> {
    network::run(
        "quarantine::newcomers::the_only_workload_of_a_namespace_does_not_decide_for_those_that_connect_later",
        own_namespace,
    )
}

async fn own_namespace() -> Result<()> {
    let plane = Plane::start().await?;
    let write = |name: &str, text: &str| std::fs::write(plane.mesh().join(name), text);
    let names: Vec<String> = (0..4).map(|number| format!("web-{number}")).collect();
    let honest: Vec<Client<'_>> = names
        .iter()
        .enumerate()
        .map(|(number, pod)| Client {
            pod,
            at: network::client(1, number),
            ..Client::default()
        })
        .collect();
    let traitor = Client {
        pod: "web-9",
        at: network::client(1, 9),
        rejects: Some("|80|edit|"),
        is_patient: true,
        ..Client::default()
    };
    let pods: String = honest.iter().chain([&traitor]).map(Client::pod).collect();
    write("pods.yaml", &pods)?;
    write("service.yaml", SERVICE)?;
    write("rule.yaml", &rule("'*'", "first"))?;

    let alone = traitor.connect(&plane).await?;
    until("it has the rule", async || alone.has("|80|first|")).await;
    write("rule.yaml", &rule("'*'", "edit"))?;
    until("it decides while it is alone", async || {
        quarantined().await.is_ok_and(|all| !all.is_empty())
    })
    .await;

    let before = kept(&plane);
    let mut proxies = Vec::new();
    for client in &honest {
        proxies.push(client.connect(&plane).await?);
    }
    until_some("those that come later have the edit", async || {
        if proxies.iter().all(|proxy| proxy.has("|80|edit|")) {
            Ok(())
        } else {
            Err((quarantined().await.ok(), Verbatim(plane.navarch.output())))
        }
    })
    .await;

    until_some("its rejection is judged again", async || {
        if kept(&plane) > before {
            Ok(())
        } else {
            Err(Verbatim(plane.navarch.output()))
        }
    })
    .await;
    ensure!(
        quarantined().await?.is_empty() && proxies.iter().all(|proxy| proxy.has("|80|edit|")),
        "{}",
        plane.navarch.output()
    );
    ensure!(plane.navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}

#[test]
fn one_workload_does_not_have_another_object_blamed_than_its_fellows_reject() -> Result<()> {
    network::run(
        "quarantine::newcomers::one_workload_does_not_have_another_object_blamed_than_its_fellows_reject",
        fellows,
    )
}

/// A service with a rule, whose subset is named `subset`.
fn service_of(name: &str, subset: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: {name}, namespace: bookshop}}\n\
         spec: {{host: {name}.example, subsets: [{{name: {subset}, labels: {{version: v1}}}}]}}\n---\n{}---\n",
        SERVICE
            .replace("name: reviews", &format!("name: {name}"))
            .replace("reviews.example", &format!("{name}.example"))
    )
}

async fn fellows() -> Result<()> {
    let plane = Plane::start().await?;
    let write = |name: &str, text: &str| std::fs::write(plane.mesh().join(name), text);
    let client = |pod, number, rejects| Client {
        pod,
        at: network::client(1, number),
        rejects: Some(rejects),
        is_patient: true,
        ..Client::default()
    };
    let clients = [
        client("web-0", 0, "|80|broken|"),
        client("web-1", 1, "|80|broken|"),
        client("web-9", 9, "|80|good|"),
    ];
    write(
        "pods.yaml",
        &clients.iter().map(Client::pod).collect::<String>(),
    )?;
    let both = |one: &str, other: &str| service_of("aaa", one) + &service_of("bbb", other);
    write("rules.yaml", &both("first", "first"))?;

    let mut proxies = Vec::new();
    for client in &clients {
        proxies.push(client.connect(&plane).await?);
    }
    until("all have both rules", async || {
        proxies
            .iter()
            .all(|proxy| proxy.has("|80|first|aaa") && proxy.has("|80|first|bbb"))
    })
    .await;

    // Both change at once, so that only trials can tell which one is rejected.
    write("rules.yaml", &both("broken", "good"))?;
    let blamed = until_some("an object is quarantined", async || {
        match quarantined().await {
            Ok(all) if !all.is_empty() => Ok(all),
            seen => Err((seen.ok(), Verbatim(plane.navarch.output()))),
        }
    })
    .await;
    ensure!(
        blamed.len() == 1 && blamed[0]["object"] == "DestinationRule bookshop/aaa",
        "{blamed:?}"
    );
    until("the others have the good rule", async || {
        proxies.iter().take(2).all(|proxy| proxy.has("|80|good|"))
    })
    .await;

    ensure!(plane.navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}
