//! Clients that acknowledge nothing, in order to hold the staged rollouts of others.

use super::*;

/// How long a mute client waits before it answers.
const NEVER: Duration = Duration::from_secs(3600);

/// The subsets of the reviews, whose change is rolled out in one stage without a pause.
fn staged(mark: &str) -> String {
    subsets(mark).replace(
        "kind: DestinationRule\nmetadata: {name: reviews, namespace: bookshop}",
        "kind: DestinationRule\nmetadata: {name: reviews, namespace: bookshop, annotations: \
         {navarch.io/rollout: '100%', navarch.io/rollout-pause: 0s}}",
    )
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
