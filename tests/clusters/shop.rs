//! A service with a pod in each cluster, and a client in each that sends requests continuously.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use navarch_testkit::bookshop::pods;
use navarch_testkit::watched::Watched;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::pair::{Pair, Side};

pub(crate) const NAMESPACE: &str = "shop";
const SERVICE: &str = "reviews";
/// Requests per second of each client.
const RATE: u32 = 20;
/// How long a change may take to affect clients.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long clients keep counting after a change.
const AFTER: Duration = Duration::from_secs(1);

/// The clients.
pub(crate) struct Shop(Watched);

impl Shop {
    /// Creates service and clients, and waits until requests succeed.
    pub(crate) async fn open(pair: &Pair) -> Result<Self> {
        pair.in_both(|side| {
            let labels = json!({"istio-injection": "enabled"});
            let metadata = json!({"name": NAMESPACE, "labels": labels});
            side.mesh
                .apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})])?;
            side.mesh
                .apply(&pods::with_response(NAMESPACE, SERVICE, side.name))?;
            side.mesh.rolled_out(NAMESPACE)?;
            side.mesh.client(
                NAMESPACE,
                "shopper",
                RATE,
                &[format!("{SERVICE}:9080/{SERVICE}/")],
            )
        })?;

        let mut watched = Watched::default();

        for side in pair.sides() {
            let counts = side.mesh.address(NAMESPACE, "shopper", pods::COUNTS_PORT)?;
            watched.watch(side.name, counts).await?;
        }

        let mut shop = Self(watched);
        shop.count("before anything changes").await?;
        Ok(shop)
    }

    /// Notes the requests that failed since the last call.
    pub(crate) async fn count(&mut self, what: &str) -> Result<()> {
        self.0.count_lost(what, AFTER).await.map(drop)
    }

    /// Waits until the client of each side gets responses from exactly these pods; failures
    /// meanwhile count.
    pub(crate) async fn answered(
        &mut self,
        what: &str,
        wanted: [(&Side, &[&Side]); 2],
    ) -> Result<()> {
        let end = Instant::now() + TIMEOUT;

        loop {
            let counts = self.0.count_lost(what, AFTER).await?;
            let mut not_yet = None;

            for (client, by) in wanted {
                let answered_by: BTreeSet<&str> = counts[client.name]
                    .answered
                    .keys()
                    .filter_map(|who| who.split(": ").nth(1))
                    .collect();
                if answered_by != by.iter().map(|side| side.name).collect() {
                    not_yet = Some(format!(
                        "{what}: the client of {} is answered by {answered_by:?}",
                        client.name
                    ));
                }
            }

            let Some(why) = not_yet else { return Ok(()) };
            ensure!(Instant::now() < end, "{why}");
        }
    }

    /// With locality load balancing, clients prefer endpoints of their own region.
    pub(crate) async fn stay_local(&mut self, pair: &Pair) -> Result<()> {
        let outliers =
            json!({"consecutive5xxErrors": 3, "interval": "1s", "baseEjectionTime": "3s"});
        pair.in_both(|side| {
            side.mesh.apply(&[json!({
                "apiVersion": "networking.istio.io/v1",
                "kind": "DestinationRule",
                "metadata": {"name": SERVICE, "namespace": NAMESPACE},
                "spec": {"host": SERVICE, "trafficPolicy": {"outlierDetection": outliers}},
            })])
        })?;
        self.all_local(pair, "the own region first").await
    }

    /// Waits until each client gets all responses from its own cluster.
    pub(crate) async fn all_local(&mut self, pair: &Pair, what: &str) -> Result<()> {
        self.answered(
            what,
            [(&pair.west, &[&pair.west]), (&pair.east, &[&pair.east])],
        )
        .await
    }

    /// The pods of one side are deleted: the other side responds. They return: they respond again.
    pub(crate) async fn fails_over(&mut self, pair: &Pair, from: &Side, to: &Side) -> Result<()> {
        from.scale(NAMESPACE, "reviews-v1", 0)?;
        self.answered(
            &format!("no pods in {}", from.name),
            [(from, &[to]), (to, &[to])],
        )
        .await?;
        from.scale(NAMESPACE, "reviews-v1", 1)?;
        self.all_local(pair, &format!("pods in {} again", from.name))
            .await
    }

    /// Fails if any request failed.
    pub(crate) fn verdict(&self) -> Result<()> {
        self.0.verdict()
    }
}

/// The results of requests from the client of a side to a target.
pub(crate) fn ask(side: &Side, count: usize, target: &str) -> Result<Value> {
    let place = [
        "exec",
        "shopper",
        "--container=app",
        "--",
        "/usr/local/bin/workload",
        "try",
        &count.to_string(),
        target,
    ];
    let output = side.kubectl(NAMESPACE, &place)?;
    serde_json::from_str(&output).with_context(|| format!("try printed {output:?}"))
}
