//! Services with a pod in each zone, and clients that send requests continuously.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use navarch_testkit::bookshop::pods;
use navarch_testkit::mesh::Mesh;
use navarch_testkit::watched::Watched;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::zones::{FAR, FIRST, NEAR};

pub(crate) const NAMESPACE: &str = "shop";
/// A service whose clients prefer their own zone, and repeat attempts without an answer.
pub(crate) const LOCAL: &str = "local";
/// Like [`LOCAL`], without a preference.
pub(crate) const SPREAD: &str = "spread";
/// A service without rules.
pub(crate) const PLAIN: &str = "plain";
/// A client on the first node.
pub(crate) const SHOPPER: &str = "shopper";
/// A client on the node [`FAR`].
pub(crate) const VISITOR: &str = "visitor";
/// A client on the first node, whose requests to [`PLAIN`] may fail when a node is lost.
const CARELESS: &str = "careless";
/// Requests per second of each client to each service.
const RATE: u32 = 20;
/// How long a change may take to affect clients.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How long clients keep counting after a change.
pub(crate) const AFTER: Duration = Duration::from_secs(1);
/// Longer than the timeout of clients' requests: REQUEST_TIMEOUT of testkit's program `workload`.
pub(crate) const GIVEN_UP: Duration = Duration::from_secs(11);

/// Clients that send requests all the time, and count the lost ones.
pub(crate) struct Shop {
    watched: Watched,
    /// The counts of the client that may lose requests.
    pub(crate) careless: SocketAddr,
}

/// The Deployment, Service and account of a service with a pod on the node of a zone; its response
/// has both names.
pub(crate) fn in_zone(namespace: &str, service: &str, zone: &str) -> Vec<Value> {
    let mut objects = pods::with_response(namespace, service, &format!("{service} {zone}"));
    for object in &mut objects {
        if object["kind"] != "Deployment" {
            continue;
        }
        object["metadata"]["name"] = json!(format!("{service}-{zone}"));
        let spec = &mut object["spec"];
        spec["selector"]["matchLabels"]["version"] = json!(zone);
        spec["template"]["metadata"]["labels"]["version"] = json!(zone);
        spec["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": zone});
    }
    objects
}

/// A namespace with a label.
pub(crate) fn namespace(name: &str, label: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {label: value}},
    })
}

/// Starts a client on a node, and returns the address of its counts.
pub(crate) fn client(
    mesh: &Mesh,
    namespace: &str,
    name: &str,
    node: &str,
    services: &[&str],
) -> Result<SocketAddr> {
    let targets: Vec<String> = services
        .iter()
        .map(|service| format!("{service}:9080/{service}/"))
        .collect();
    let mut pod = pods::client(namespace, name, RATE, &targets);
    pod["spec"]["nodeName"] = json!(node);
    mesh.apply(&[pod])?;
    mesh.ready(namespace, name)?;
    mesh.address(namespace, name, pods::COUNTS_PORT)
}

/// An object of Istio's networking API in the shop.
fn networking(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    })
}

/// Attempts without an answer are repeated at another endpoint, and their endpoint gets no more
/// requests. Requests that wait for a lost node fail otherwise: no packet tells that it is gone.
fn rules(service: &str, prefer_own_zone: bool) -> [Value; 2] {
    let outliers = json!({
        "consecutive5xxErrors": 1,
        "consecutiveGatewayErrors": 1,
        "interval": "1s",
        "baseEjectionTime": "60s",
        "maxEjectionPercent": 100,
    });
    let destination = json!({
        "host": service,
        "trafficPolicy": {
            "connectionPool": {"tcp": {"connectTimeout": "1s"}},
            "outlierDetection": outliers,
            "loadBalancer": {"localityLbSetting": {"enabled": prefer_own_zone}},
        },
    });

    let retries = json!({
        "attempts": 3,
        // Longer than a busy machine stands still: an endpoint that is taken for lost is not used
        // for a minute.
        "perTryTimeout": "2s",
        "retryOn": "gateway-error,connect-failure,refused-stream,reset",
    });
    let route = json!([{"destination": {"host": service}}]);
    let routes = json!({"hosts": [service], "http": [{"route": route, "retries": retries}]});
    [
        networking("DestinationRule", service, &destination),
        networking("VirtualService", service, &routes),
    ]
}

/// Routes requests for [`PLAIN`] to [`LOCAL`].
pub(crate) fn redirected() -> Value {
    let route = json!([{"destination": {"host": LOCAL}}]);
    let routes = json!({"hosts": [PLAIN], "http": [{"route": route}]});
    networking("VirtualService", PLAIN, &routes)
}

/// The zones from which a client is answered by a service, waited for.
pub(crate) struct Expected<'a> {
    pub(crate) client: &'a str,
    pub(crate) service: &'a str,
    pub(crate) zones: &'a [&'a str],
}

/// Waits until a service answers a client from exactly these zones; failures meanwhile count.
pub(crate) async fn answered(
    watched: &mut Watched,
    what: &str,
    expected: &Expected<'_>,
) -> Result<()> {
    let Expected {
        client,
        service,
        zones,
    } = expected;
    let wanted: BTreeSet<&str> = zones.iter().copied().collect();
    let end = Instant::now() + TIMEOUT;

    loop {
        let counts = watched.count_lost(what, AFTER).await?;
        let from: BTreeSet<&str> = counts[*client]
            .answered
            .keys()
            .filter(|who| who.starts_with(&format!("{service}: ")))
            .filter_map(|who| who.rsplit(' ').next())
            .collect();

        if from == wanted {
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "{what}: {service} answers {client} from {from:?} instead of {wanted:?}"
        );
    }
}

impl Shop {
    /// Creates services and clients, and waits until requests succeed as the rules want.
    pub(crate) async fn open(mesh: &Mesh) -> Result<Self> {
        let mut objects = vec![namespace(NAMESPACE, "istio-injection", "enabled")];
        for service in [LOCAL, SPREAD, PLAIN] {
            for zone in [NEAR, FAR] {
                objects.extend(in_zone(NAMESPACE, service, zone));
            }
        }
        objects.extend(rules(LOCAL, true));
        objects.extend(rules(SPREAD, false));
        mesh.apply(&objects)?;
        mesh.rolled_out(NAMESPACE)?;

        let mut watched = Watched::default();
        let shopper = client(mesh, NAMESPACE, SHOPPER, FIRST, &[LOCAL, SPREAD])?;
        watched.watch(SHOPPER, shopper).await?;
        let visitor = client(mesh, NAMESPACE, VISITOR, FAR, &[LOCAL])?;
        watched.watch(VISITOR, visitor).await?;
        let careless = client(mesh, NAMESPACE, CARELESS, FIRST, &[PLAIN])?;

        let mut shop = Self { watched, careless };
        for (client, service, zones) in [
            (SHOPPER, LOCAL, &[NEAR][..]),
            (SHOPPER, SPREAD, &[NEAR, FAR][..]),
            (VISITOR, LOCAL, &[FAR][..]),
        ] {
            shop.answered("before anything changes", client, service, zones)
                .await?;
        }
        Ok(shop)
    }

    /// Waits until a service answers a client from exactly these zones; failures meanwhile count.
    pub(crate) async fn answered(
        &mut self,
        what: &str,
        client: &str,
        service: &str,
        zones: &[&str],
    ) -> Result<()> {
        let expected = Expected {
            client,
            service,
            zones,
        };
        answered(&mut self.watched, what, &expected).await
    }

    /// Waits for a while, and notes the requests that failed since the last call.
    pub(crate) async fn count_lost(&mut self, what: &str, during: Duration) -> Result<()> {
        self.watched.count_lost(what, during).await.map(drop)
    }

    /// Fails if any request failed.
    pub(crate) fn verdict(&self) -> Result<()> {
        self.watched.verdict()
    }
}
