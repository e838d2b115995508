//! The conditions in objects' statuses about the proxies that have acknowledged them.

use anyhow::{Context, Result, ensure};
use navarch_testkit::navarch::Navarch;
use serde_json::{Value, json};

use super::edge::{self, Edge};
use super::{cluster, program};

#[tokio::test(flavor = "multi_thread")]
#[expect(
    clippy::too_many_lines,
    reason = "one sequence of steps in their order"
)]
async fn status_has_the_number_of_proxies_that_acknowledged_an_object() -> Result<()> {
    let guard = cluster().await?;
    let cluster = guard.as_ref().context("a cluster")?;
    let edge = Edge::open(cluster.writer().await?).await?;
    edge.answer("a", 201).await?;
    let environment = [("PILOT_ENABLE_STATUS", "true"), ("POD_NAME", "leader")];
    let navarch =
        Navarch::start_on_kubernetes(program(), &cluster.admin_kubeconfig(), &[], &environment)
            .await?;
    let gateway = edge::start_gateway(navarch.xds).await?;

    edge::expect("a", 201).await;
    let path = "/apis/networking.istio.io/v1/namespaces/edge/virtualservices/a";
    let is_reported = async |name: &str, share: &str| {
        let path = format!("/apis/networking.istio.io/v1/namespaces/edge/virtualservices/{name}");
        let object = edge.writer.get(&path).await.unwrap_or_default();
        let generation = &object["metadata"]["generation"];
        let conditions = object["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let found = conditions
            .iter()
            .find(|condition| condition["type"] == "Reconciled")
            .cloned();

        found.is_some_and(|found| {
            found["message"] == format!("{share} proxies up to date.")
                && found["observedGeneration"] == *generation
        })
    };

    let says = async |share: &str| is_reported("a", share).await;
    let took = edge::eventually("the gateway has acknowledged it", async || {
        says("1/1").await
    })
    .await;
    println!("status: written {took:?} after the gateway had it");

    // The proxies of all replicas count; those of a stopped replica do not.
    let environment = [("PILOT_ENABLE_STATUS", "true"), ("POD_NAME", "other")];
    let other =
        Navarch::start_on_kubernetes(program(), &cluster.admin_kubeconfig(), &[], &environment)
            .await?;
    let mut stream = super::replicas::Stream::open(other.xds).await?;
    stream
        .route(&format!(
            "http.{}",
            navarch_testkit::bookshop::GATEWAY.port()
        ))
        .await?;

    edge::eventually("both proxies count", async || says("2/2").await).await;
    let report = "/api/v1/namespaces/istio-system/configmaps/other-distribution";
    ensure!(
        edge.writer.get(report).await?["data"]["distribution-report"].is_string(),
        "the number comes from the other replica's report"
    );
    drop(stream);
    edge::eventually("one proxy has disconnected", async || says("1/1").await).await;

    ensure!(other.stop().await?, "navarch exits on SIGTERM");
    ensure!(
        edge.writer.get(report).await.is_err(),
        "its report is deleted"
    );

    // Conditions of other controllers are kept.
    let theirs = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "a", "namespace": "edge"},
        "status": {"conditions": [{"type": "Theirs", "status": "True"}]},
    });
    let mut object = edge.writer.get(path).await?;
    let conditions = object["status"]["conditions"]
        .as_array_mut()
        .context("conditions")?;
    conditions.push(theirs["status"]["conditions"][0].clone());

    let patch = json!({"status": {"conditions": conditions}});
    cluster
        .call(
            "PATCH",
            &format!("{path}/status"),
            "application/merge-patch+json",
            &patch,
        )
        .await?;

    gateway.freeze(true)?;
    edge.answer("a", 202).await?;
    edge::eventually("a proxy that does not respond counts", async || {
        says("0/1").await
    })
    .await;
    let page: Value = serde_json::from_str(
        &navarch
            .page("/debug/config_distribution?kind=VirtualService&name=a")
            .await?,
    )?;

    ensure!(
        page[0]["proxies"] == 1 && page[0]["upToDate"] == 0,
        "the debug page has the same numbers: {page}"
    );
    gateway.freeze(false)?;
    edge::eventually("it has acknowledged the edit", async || says("1/1").await).await;
    edge::expect("a", 202).await;
    let object = edge.writer.get(path).await?;

    ensure!(
        object["status"]["conditions"][1]["type"] == "Theirs",
        "{object}"
    );

    // Once the condition is correct it is not written again, nor by later changes of other objects.
    edge.answer("b", 203).await?;
    edge::eventually("the gateway has acknowledged another", async || {
        is_reported("b", "1/1").await
    })
    .await;
    let later = edge.writer.get(path).await?;

    ensure!(
        later["metadata"]["resourceVersion"] == object["metadata"]["resourceVersion"],
        "{later}"
    );
    gateway.ensure_no_update_rejected().await?;
    ensure!(navarch.stop().await?, "navarch exits on SIGTERM");

    Ok(())
}
