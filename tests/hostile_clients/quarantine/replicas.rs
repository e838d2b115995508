//! Three replicas of the control plane that share the answers of their clients and the judgement, over
//! a real API server.

use std::path::Path;

use anyhow::Context as _;
use navarch_testkit::client;
use navarch_testkit::cluster::{Cluster, Writer};
use navarch_testkit::navarch::{Addresses, Navarch};
use navarch_testkit::wait::until_some_within;
use serde_json::json;

use super::*;
use crate::issuer::Issuer;

/// The names of the replicas' pods, and their namespace.
const REPLICAS: [&str; 3] = ["istiod-1", "istiod-2", "istiod-3"];
const NAMESPACE: &str = "istio-system";
/// Timeout of what replicas learn from each other: a decider is gone after 30 s, reports are up to
/// 15 s late, and a replica ends no quarantine in its first minute.
const TIMEOUT: Duration = Duration::from_secs(150);

/// Three pods of a namespace with a service of its own, whose rule is edited.
struct Team {
    namespace: &'static str,
    /// The group of their addresses.
    group: u8,
    pods: [String; 3],
}

impl Team {
    fn new(namespace: &'static str, group: u8) -> Self {
        Self {
            namespace,
            group,
            pods: [1, 2, 3].map(|number| format!("{namespace}-{number}")),
        }
    }

    /// One that accepts everything.
    fn honest(&self, member: usize) -> Client<'_> {
        Client {
            namespace: self.namespace,
            pod: &self.pods[member],
            at: network::client(self.group, member),
            ..Client::default()
        }
    }

    /// One that rejects the edit.
    fn rejecting(&self, member: usize) -> Client<'_> {
        Client {
            rejects: Some("|82|edit|"),
            is_patient: true,
            ..self.honest(member)
        }
    }

    /// The service and the rule.
    fn rule(&self, subset: &str) -> String {
        service_with_subset(self.namespace, "'.'", subset)
    }

    /// The rule's name on pages.
    fn object(&self) -> String {
        format!("DestinationRule {}/few", self.namespace)
    }
}

/// A cluster with all replicas.
struct Replicas {
    cluster: Cluster,
    writer: Writer,
    issuer: Issuer,
    running: [Navarch; REPLICAS.len()],
}

/// A running pod.
fn pod(namespace: &str, name: &str, app: &str, at: Ipv4Addr) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace, "labels": { "app": app } },
        "spec": {
            "serviceAccountName": "web", "containers": [{ "name": "app", "image": "app" }],
        },
        "status": {
            "phase": "Running", "podIP": at.to_string(), "podIPs": [{ "ip": at.to_string() }],
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    })
}

impl Replicas {
    /// Starts all, with the pods of some namespaces.
    async fn start(teams: &[&Team]) -> Result<Self> {
        let cluster = Cluster::start().await?;
        cluster.apply_crds(Path::new(env!("CARGO_MANIFEST_DIR")))?;
        let writer = cluster.writer().await?;
        for (number, name) in REPLICAS.into_iter().enumerate() {
            let at = network::client(9, number);
            writer.put(&pod(NAMESPACE, name, "istiod", at)).await?;
        }
        for team in teams {
            for member in 0..team.pods.len() {
                let Client {
                    namespace,
                    pod: name,
                    at,
                    ..
                } = team.honest(member);
                writer.put(&pod(namespace, name, "web", at)).await?;
            }
        }

        let issuer = Issuer::with_new_key();
        let [one, other, third] = REPLICAS.map(|name| replica(&cluster, &issuer, name));
        let running = [one.await?, other.await?, third.await?];
        Ok(Self {
            cluster,
            writer,
            issuer,
            running,
        })
    }

    /// Connects a proxy to a replica.
    async fn connect(&self, client: Client<'_>, replica: usize) -> Result<Connected> {
        let secure = self.running[replica].secure();
        client.connect_to(secure, &self.issuer).await
    }

    /// Whether a replica lists the rule of a team as quarantined.
    async fn lists(&self, replica: usize, team: &Team) -> Result<bool> {
        let page = self.running[replica].page("/debug/quarantine").await?;
        let page: Value = serde_json::from_str(&page)?;
        let all = page["quarantined"].as_array().context("a list")?;
        Ok(all
            .iter()
            .any(|one| one["object"] == team.object().as_str()))
    }

    /// Which replicas list the rule of a team as quarantined.
    async fn listing(&self, team: &Team) -> Result<Vec<bool>> {
        let mut listing = Vec::new();
        for replica in 0..REPLICAS.len() {
            listing.push(self.lists(replica, team).await?);
        }
        Ok(listing)
    }

    /// Waits until all replicas list the rule of a team as quarantined, or none does.
    async fn until_all(&self, what: &str, team: &Team, are_listing: bool) {
        until_some_within(TIMEOUT, what, async || match self.listing(team).await {
            Ok(seen) if seen == [are_listing; REPLICAS.len()] => Ok(()),
            seen => Err((seen.ok(), self.logs())),
        })
        .await;
    }

    /// The logs of all.
    fn logs(&self) -> [Verbatim; REPLICAS.len()] {
        [0, 1, 2].map(|replica| Verbatim(self.running[replica].output()))
    }

    /// What is stored about the rule of a team: the data of its ConfigMap.
    async fn stored(&self, team: &Team) -> Result<Value> {
        let maps = format!(
            "/api/v1/namespaces/{NAMESPACE}/configmaps?labelSelector=navarch.io%2Fquarantine"
        );
        let maps = self.writer.get(&maps).await?;
        let mut data = maps["items"].as_array().context("a list")?.iter();
        let namespace = format!("\"namespace\":\"{}\"", team.namespace);
        let found = data.find(|map| {
            let rejected = map["data"]["rejected.json"].as_str();
            rejected.is_some_and(|rejected| rejected.contains(&namespace))
        });
        Ok(found.context("a ConfigMap")?["data"].clone())
    }

    /// Waits until a replica has stored that a member of a team is connected to it, or is not.
    async fn until_reported(&self, replica: usize, team: &Team, member: usize, is_there: bool) {
        let name = format!("{}/{}@", team.namespace, team.pods[member]);
        let key = format!("votes.{}", REPLICAS[replica]);
        let what = "it is reported who is connected";
        until_some_within(TIMEOUT, what, async || {
            let stored = self.stored(team).await.unwrap_or_default();
            let report = stored[&key].as_str().unwrap_or_default();
            let report: Value = serde_json::from_str(report).unwrap_or_default();
            let listed = report["turnout"]["workloads"].as_object();
            let is_listed = listed.map(|all| all.keys().any(|one| one.starts_with(&name)));
            if is_listed == Some(is_there) {
                Ok(())
            } else {
                Err((stored, self.logs()))
            }
        })
        .await;
    }

    /// Has the edit of a team's rule quarantined, by two members at different replicas.
    async fn quarantine(&self, team: &Team) -> Result<[Connected; 2]> {
        self.cluster.apply(&team.rule("first"))?;
        let here = self.connect(team.rejecting(0), 0).await?;
        let there = self.connect(team.rejecting(1), 1).await?;
        until("both have the rule", async || {
            here.has("|82|first|") && there.has("|82|first|")
        })
        .await;

        self.cluster.apply(&team.rule("edit"))?;
        self.until_all("both workloads decide", team, true).await;
        Ok([here, there])
    }
}

/// Starts a replica.
async fn replica(cluster: &Cluster, issuer: &Issuer, name: &str) -> Result<Navarch> {
    let args = [
        format!("--kubeconfig={}", cluster.admin_kubeconfig().display()),
        format!("--secure-grpc-addr={}:0", network::SERVER),
    ];
    let rule = issuer.rule();
    let environment = [
        ("POD_NAME", name),
        ("POD_NAMESPACE", NAMESPACE),
        ("JWT_RULE", rule.as_str()),
    ];
    Navarch::start_with_args_at(&plane::program(), &args, &environment, Addresses::ANY).await
}

#[test]
fn replicas_count_a_pod_once_keep_what_one_decided_that_moves_and_obey_a_release() -> Result<()> {
    network::run(
        "quarantine::replicas::replicas_count_a_pod_once_keep_what_one_decided_that_moves_and_obey_a_release",
        together,
    )
}

async fn together() -> Result<()> {
    let once = Team::new("once", 11);
    let orders = Team::new("orders", 12);
    let moves = Team::new("moves", 13);
    let leaves = Team::new("leaves", 14);
    let replicas = Replicas::start(&[&once, &orders, &moves, &leaves]).await?;

    a_pod_at_two_replicas_counts_once(&replicas, &once).await?;
    let connected = a_release_is_obeyed_by_all(&replicas, &orders).await?;
    a_decider_may_move_to_another_replica(&replicas, &moves, &leaves).await?;

    // Meanwhile, both that rejected the released object have done so again.
    ensure!(
        replicas.listing(&orders).await? == [false; REPLICAS.len()],
        "{:?}",
        replicas.logs()
    );
    let stored = replicas.stored(&orders).await?;
    let outcome = stored["outcome.json"].as_str().context("an outcome")?;
    ensure!(outcome.contains("released by an operator"), "{outcome}");
    drop(connected);

    let Replicas { running, .. } = replicas;
    for replica in running {
        ensure!(replica.stop().await?, "navarch exits on SIGTERM");
    }
    Ok(())
}

/// Two streams of one pod are no majority beside another pod.
async fn a_pod_at_two_replicas_counts_once(replicas: &Replicas, team: &Team) -> Result<()> {
    replicas.cluster.apply(&team.rule("first"))?;
    let traitor = [
        replicas.connect(team.rejecting(0), 0).await?,
        replicas.connect(team.rejecting(0), 1).await?,
    ];
    let honest = replicas.connect(team.honest(1), 0).await?;
    until("all have the rule", async || {
        honest.has("|82|first|") && traitor.iter().all(|stream| stream.has("|82|first|"))
    })
    .await;

    replicas.cluster.apply(&team.rule("edit"))?;
    until_some("the replicas that were told have judged it", async || {
        let is_kept = |log: &Verbatim| log.0.contains("too few for a quarantine");
        let logs = replicas.logs();
        if logs.iter().take(traitor.len()).all(is_kept) {
            Ok(())
        } else {
            Err(logs)
        }
    })
    .await;
    ensure!(
        replicas.listing(team).await? == [false; REPLICAS.len()],
        "{:?}",
        replicas.logs()
    );
    until("the honest pod has the edit", async || {
        honest.has("|82|edit|")
    })
    .await;
    Ok(())
}

/// An operator releases an object at one replica. Returns the proxies that reject it.
async fn a_release_is_obeyed_by_all(replicas: &Replicas, team: &Team) -> Result<[Connected; 2]> {
    let connected = replicas.quarantine(team).await?;
    let before = connected.each_ref().map(Connected::rejected);

    let at = replicas.running[1].monitoring;
    let release = format!("DestinationRule/{}/few", team.namespace);
    let release = json!({ "release": release }).to_string();
    let reply = client::post(at, &at.to_string(), "/debug/quarantine", release).await?;
    ensure!(reply.status == 200, "{reply:?}");

    replicas.until_all("all obey", team, false).await;
    until("both proxies reject it again", async || {
        let now = connected.each_ref().map(Connected::rejected);
        now[0] > before[0] && now[1] > before[1]
    })
    .await;
    Ok(connected)
}

/// Of two that decided, one moves to the other replica, beside an honest pod: the decision stays.
/// In another namespace, one leaves after that and stays away: the decision ends.
async fn a_decider_may_move_to_another_replica(
    replicas: &Replicas,
    moves: &Team,
    leaves: &Team,
) -> Result<()> {
    let mut honest = Vec::new();
    let mut stay = Vec::new();
    let mut go = Vec::new();
    for team in [moves, leaves] {
        let [here, there] = replicas.quarantine(team).await?;
        stay.push(here);
        go.push(there);
        honest.push(replicas.connect(team.honest(2), 0).await?);
        replicas.until_reported(0, team, 2, true).await;
        replicas.until_reported(1, team, 1, true).await;
    }

    // That the first one has gone is stored before it comes back.
    let leaving = go.pop();
    drop(go);
    replicas.until_reported(1, moves, 1, false).await;
    stay.push(replicas.connect(moves.rejecting(1), 0).await?);
    drop(leaving);
    replicas.until_reported(0, moves, 1, true).await;

    let what = "the decision ends once one of those who made it has gone";
    replicas.until_all(what, leaves, false).await;
    let listing = replicas.listing(moves).await?;
    ensure!(
        listing == [true; REPLICAS.len()],
        "{listing:?} {:?}",
        replicas.logs()
    );
    until(
        "the honest pod of the other namespace has the edit",
        async || honest[1].has("|82|edit|"),
    )
    .await;
    ensure!(!honest[0].has("|82|edit|"), "it is still quarantined");
    Ok(())
}
