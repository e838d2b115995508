//! Clients that acknowledge nothing, in order to hold the staged rollouts of others.

use serde_json::json;

use super::*;

/// How long a mute client waits before it answers.
const NEVER: Duration = Duration::from_secs(3600);

/// The subsets of the reviews, whose change is rolled out in one stage without a pause.
fn staged(mark: &str) -> String {
    in_stages(mark, "100%")
}

/// The subsets of the reviews, whose change is rolled out in these stages without a pause.
fn in_stages(mark: &str, stages: &str) -> String {
    let name = "kind: DestinationRule\nmetadata: {name: reviews, namespace: bookshop";
    let annotations =
        format!("annotations: {{navarch.io/rollout: '{stages}', navarch.io/rollout-pause: 0s}}");
    subsets(mark).replace(&format!("{name}}}"), &format!("{name}, {annotations}}}"))
}

async fn page(path: &str) -> Result<String> {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, plane::MONITORING.port()));
    Ok(others::page(Ipv4Addr::LOCALHOST, local, path, &[]).await?.1)
}

/// The only rollout; `None` if there is none.
async fn rollout() -> Result<Option<Value>> {
    let rollouts: Value = serde_json::from_str(&page("/debug/rollout").await?)?;
    Ok(rollouts["rollouts"].get(0).cloned())
}

/// Waits until the control plane lists a client.
async fn is_connected(plane: &Plane, client: &Client<'_>) {
    until_some("the mute client is connected", async || {
        match page("/debug/syncz").await {
            Ok(page) if page.contains(client.pod) => Ok(()),
            listed => Err((listed.ok(), Verbatim(plane.navarch.output()))),
        }
    })
    .await;
}

#[test]
fn mute_clients_do_not_hold_rollouts_of_others_for_long() -> Result<()> {
    network::run(
        "quarantine::rollouts::mute_clients_do_not_hold_rollouts_of_others_for_long",
        attacks,
    )
}

async fn attacks() -> Result<()> {
    let plane = Plane::start().await?;
    let write = |name: &str, text: &str| std::fs::write(plane.mesh().join(name), text);
    let honest = [("web-0", 0), ("web-1", 1)].map(|(pod, number)| Client {
        pod,
        at: network::client(1, number),
        ..Client::default()
    });
    let evil = Client {
        namespace: "evil",
        pod: "evil-0",
        account: "evil",
        at: network::client(3, 0),
        delay: NEVER,
        ..Client::default()
    };
    let pods: String = honest.iter().chain([&evil]).map(Client::pod).collect();
    write("pods.yaml", &pods)?;
    write("reviews.yaml", &subsets("v2"))?;

    let mut proxies = Vec::new();
    for client in &honest {
        proxies.push(client.connect(&plane).await?);
    }
    let all_have = |part: &str| proxies.iter().all(|proxy| proxy.has(part));
    until("the honest proxies have their configuration", async || {
        all_have("|v2|")
    })
    .await;

    // It claims to be a proxy of the object's namespace.
    let stranger = Client {
        pod: "mute-0",
        is_proved: false,
        at: network::client(4, 0),
        delay: NEVER,
        ..Client::default()
    };
    let _stranger = stranger.connect(&plane).await?;
    is_connected(&plane, &stranger).await;

    write("reviews.yaml", &staged("v3"))?;
    until_some("the change is complete", async || {
        let output = plane.navarch.output();
        if all_have("|v3|") && output.contains("rollout: complete") {
            Ok(())
        } else {
            Err((rollout().await.ok(), Verbatim(output)))
        }
    })
    .await;

    // With an identity of another namespace it is waited for, for a limited time.
    let _evil = evil.connect(&plane).await?;
    is_connected(&plane, &evil).await;
    write("reviews.yaml", &staged("v4"))?;
    let held = until_some("the stage waits for it", async || {
        let rollout = rollout().await.ok().flatten().unwrap_or_default();
        let reason = rollout["reason"].as_str().unwrap_or_default();
        if reason.contains("waits for 1 proxy outside its namespace") {
            Ok(rollout)
        } else {
            Err((rollout, Verbatim(plane.navarch.output())))
        }
    })
    .await;
    ensure!(
        held["pendingProxies"] == json!(["evil-0.evil"])
            && held["withoutIdentity"] == 1
            && held["leftBehind"] == 0,
        "{held}"
    );
    ensure!(
        held["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("at most ")),
        "{held}"
    );
    ensure!(all_have("|v4|"), "honest proxies have the change");

    ensure!(plane.navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}

#[test]
fn a_rollout_of_another_namespace_hides_no_rejection() -> Result<()> {
    network::run(
        "quarantine::rollouts::a_rollout_of_another_namespace_hides_no_rejection",
        hiding,
    )
}

/// A service that all proxies see, with a change of its subsets that rests at its first stage.
fn resting(mark: &str) -> String {
    let staged = "kind: DestinationRule\nmetadata: {name: reviews, namespace: evil, \
                  annotations: {navarch.io/rollout: '99.99%,100%', navarch.io/rollout-pause: 24h}}";
    subsets(mark)
        .replace("bookshop", "evil")
        .replace("reviews.example", "evil.example")
        .replace(
            "kind: DestinationRule\nmetadata: {name: reviews, namespace: evil}",
            staged,
        )
}

async fn hiding() -> Result<()> {
    let plane = Plane::start().await?;
    let write = |name: &str, text: &str| std::fs::write(plane.mesh().join(name), text);
    let honest = [("web-0", 0), ("web-1", 1)].map(|(pod, number)| Client {
        pod,
        at: network::client(1, number),
        rejects: Some("|broken|"),
        is_patient: true,
        ..Client::default()
    });
    let pods: String = honest.iter().map(Client::pod).collect();
    write("pods.yaml", &pods)?;
    write("reviews.yaml", &subsets("v2"))?;
    write("evil.yaml", &resting("v2"))?;

    let mut proxies = Vec::new();
    for client in &honest {
        proxies.push(client.connect(&plane).await?);
    }
    let all_have = |part: &str| proxies.iter().all(|proxy| proxy.has(part));
    until("they have their configuration", async || {
        all_have("|v2|reviews.example")
    })
    .await;

    write("evil.yaml", &resting("v3"))?;
    until("they are in the stage of another namespace", async || {
        all_have("|v3|evil.example")
    })
    .await;

    write("reviews.yaml", &subsets("broken"))?;
    until_some("their own rule is quarantined", async || {
        let all = quarantined().await.unwrap_or_default();
        if all
            .iter()
            .any(|one| one["object"] == "DestinationRule bookshop/reviews")
        {
            Ok(())
        } else {
            Err((all.len(), Verbatim(plane.navarch.output())))
        }
    })
    .await;
    ensure!(
        rollout()
            .await?
            .is_some_and(|rollout| rollout["stage"] == 1),
        "the rollout goes on"
    );
    ensure!(plane.navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}

#[test]
fn clients_without_identity_take_no_place_in_a_stage_and_one_foreigner_does_not_stop_it()
-> Result<()> {
    network::run(
        "quarantine::rollouts::clients_without_identity_take_no_place_in_a_stage_and_one_foreigner_does_not_stop_it",
        stages,
    )
}

async fn stages() -> Result<()> {
    let plane = Plane::start().await?;
    let write = |name: &str, text: &str| std::fs::write(plane.mesh().join(name), text);
    let honest = [("web-0", 0), ("web-1", 1)].map(|(pod, number)| Client {
        pod,
        at: network::client(1, number),
        ..Client::default()
    });
    let evil = Client {
        namespace: "evil",
        pod: "evil-0",
        account: "evil",
        at: network::client(3, 0),
        rejects: Some("|v3|"),
        is_patient: true,
        ..Client::default()
    };
    // A pod of the object's namespace.
    let own = Client {
        pod: "x5",
        account: "x5",
        at: network::client(5, 5),
        ..Client::default()
    };
    let pods = honest.iter().chain([&evil, &own]);
    let pods: String = pods.map(Client::pod).collect();
    write("pods.yaml", &pods)?;
    write("reviews.yaml", &subsets("v2"))?;

    let mut proxies = Vec::new();
    for client in honest.iter().chain([&evil]) {
        proxies.push(client.connect(&plane).await?);
    }
    // They claim to be further proxies of the same workload.
    for number in 0..30 {
        let pod = format!("mute-{number}");
        let stranger = Client {
            pod: &pod,
            is_proved: false,
            at: network::client(4, number),
            ..Client::default()
        };
        proxies.push(stranger.connect(&plane).await?);
    }

    // With its identity, it names pods that do not exist.
    for number in 0..30 {
        let pod = format!("zz-{number}");
        let stream = Client { pod: &pod, ..own };
        proxies.push(stream.connect(&plane).await?);
    }

    until("all have their configuration", async || {
        proxies.iter().all(|proxy| proxy.has("|v2|"))
    })
    .await;

    write("reviews.yaml", &in_stages("v3", "1%,100%"))?;
    let held = until_some("the first stage waits for the foreigner", async || {
        let rollout = rollout().await.ok().flatten().unwrap_or_default();
        let reason = rollout["reason"].as_str().unwrap_or_default();
        if reason.contains("this alone does not stop it") {
            Ok(rollout)
        } else {
            Err((rollout, Verbatim(plane.navarch.output())))
        }
    })
    .await;
    ensure!(held["stage"] == 1, "{held}");
    until("an honest proxy is in the first stage", async || {
        proxies.iter().take(2).any(|proxy| proxy.has("|v3|"))
    })
    .await;

    ensure!(plane.navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}

#[test]
fn a_foreign_identity_does_not_end_the_waiting_for_clients_without_one() -> Result<()> {
    network::run(
        "quarantine::rollouts::a_foreign_identity_does_not_end_the_waiting_for_clients_without_one",
        first_identity,
    )
}

async fn first_identity() -> Result<()> {
    let plane = Plane::start().await?;
    let write = |name: &str, text: &str| std::fs::write(plane.mesh().join(name), text);
    let evil = Client {
        namespace: "evil",
        pod: "evil-0",
        account: "evil",
        at: network::client(3, 0),
        ..Client::default()
    };
    write("pods.yaml", &evil.pod())?;
    write("reviews.yaml", &subsets("v2"))?;

    // A mesh without authentication, whose proxies reject the change.
    let mut proxies = Vec::new();
    for number in 0..2 {
        let plain = Client {
            is_proved: false,
            at: network::client(4, number),
            rejects: Some("|v3|"),
            is_patient: true,
            ..Client::default()
        };
        proxies.push(plain.connect(&plane).await?);
    }
    until("all have their configuration", async || {
        proxies.iter().all(|proxy| proxy.has("|v2|"))
    })
    .await;

    write("reviews.yaml", &staged("v3"))?;
    let waits = async |what: &str, wanted: &str| {
        until_some(what, async || {
            let rollout = rollout().await.ok().flatten().unwrap_or_default();
            let reason = rollout["reason"].as_str().unwrap_or_default();
            if reason.contains(wanted) {
                Ok(())
            } else {
                Err((rollout, Verbatim(plane.navarch.output())))
            }
        })
        .await;
    };
    waits("the stage waits for its proxies", "continue with navarch").await;

    let _evil = evil.connect(&plane).await?;
    waits("it still waits for them, for a time", "it goes on in").await;
    ensure!(
        !plane.navarch.output().contains("rollout: complete"),
        "{}",
        plane.navarch.output()
    );

    ensure!(plane.navarch.stop().await?, "navarch exits on SIGTERM");
    Ok(())
}
