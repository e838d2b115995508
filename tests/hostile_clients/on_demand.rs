//! A workload with a learned scope whose client requests much by name, acknowledges nothing, and
//! takes back what it has requested.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use navarch_proto::envoy::config::core::v3::node::UserAgentVersionType;
use navarch_proto::envoy::config::core::v3::{BuildVersion, Extension, Node};
use navarch_proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::r#type::v3::SemanticVersion;
use navarch_testkit::wait::until_within;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_stream::wrappers::ReceiverStream;

use crate::grpc::{CLUSTERS, Connection, DELTA, framed, node};
use crate::network::{channel, client};
use crate::plane;

/// Services that the attacker may request.
const SERVICES: usize = 300;
/// Names in one of its requests.
const NAMES: usize = 10_000;
/// The streams that the attacker has at the same time.
const STREAMS: usize = 30;
/// How long objects take to be read, and a workload to learn.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The tokens of two workloads with learned scopes in one namespace.
pub(crate) struct Tokens {
    pub(crate) evil: String,
    pub(crate) victim: String,
}

/// A sidecar of an Envoy that has learned scopes.
struct Sidecar<'a> {
    from: Ipv4Addr,
    pod: &'a str,
    account: &'a str,
    token: &'a str,
}

/// The node of an Envoy that requests clusters on demand.
fn learner(pod: &str, account: &str) -> Node {
    let build = BuildVersion {
        version: Some(SemanticVersion {
            major_number: 1,
            minor_number: 40,
            ..SemanticVersion::default()
        }),
        ..BuildVersion::default()
    };
    let filter = Extension {
        name: "envoy.filters.http.on_demand".to_owned(),
        ..Extension::default()
    };
    Node {
        user_agent_name: "envoy".to_owned(),
        user_agent_version_type: Some(UserAgentVersionType::UserAgentBuildVersion(build)),
        extensions: vec![filter],
        ..node(pod, account, &[])
    }
}

impl Sidecar<'_> {
    /// A subscription to clusters: all that it gets without a request, and names.
    fn request(&self, names: Vec<String>, without: Vec<String>) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            node: Some(learner(self.pod, self.account)),
            type_url: CLUSTERS.to_owned(),
            resource_names_subscribe: names,
            resource_names_unsubscribe: without,
            ..DeltaDiscoveryRequest::default()
        }
    }

    /// The clusters of services with which it starts.
    async fn clusters(&self) -> Result<BTreeSet<String>> {
        let (requests, outgoing) = mpsc::channel(1);
        requests.send(self.request(Vec::new(), Vec::new())).await?;
        let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
        let token = format!("Bearer {}", self.token).parse()?;
        request.metadata_mut().insert("authorization", token);

        let channel = channel(self.from, plane::SECURE, true).await?;
        let mut client =
            AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(256 << 20);
        let responses = client.delta_aggregated_resources(request).await?;
        let response = timeout(TIMEOUT, responses.into_inner().message()).await??;
        let response = response.context("the stream ended")?;
        let names = response.resources.into_iter().map(|one| one.name);
        Ok(names.filter(|name| name.starts_with("outbound|")).collect())
    }

    /// Requests two sets of names in turn, on a stream that acknowledges nothing.
    async fn alternate(&self, turns: &[Bytes]) -> Result<()> {
        let mut connection = Connection::to_xds(self.from, true).await?;
        let mut call = connection.call(DELTA, Some(self.token)).await?;
        for turn in turns.iter().cycle() {
            call.send(turn.clone()).await?;
            call.message().await?;
        }
        Ok(())
    }
}

/// The cluster of a service of the attack.
fn cluster(number: usize) -> String {
    format!("outbound|80||h{number}.learn.example")
}

/// Names that exist, that are another namespace's, that are odd, and many that do not exist.
fn names(prefix: &str) -> Vec<String> {
    // The longest one that a client may request has 4,096 bytes.
    let long = "x".repeat(4_000);
    let odd = [
        "outbound|80||hidden.learn.example".to_owned(),
        "outbound|80||h1.learn.example\nh2.learn.example".to_owned(),
        "outbound|80|v1|h1.learn.example".to_owned(),
        "outbound|080||h1.learn.example".to_owned(),
        "outbound|80||H1.LEARN.EXAMPLE".to_owned(),
        format!("outbound|80||{long}"),
        "outbound|99999999||h1.learn.example".to_owned(),
        "outbound|".to_owned(),
        "outbound||||||".to_owned(),
        "inbound|80||".to_owned(),
        "*".to_owned(),
        "*\u{202e}\u{0}".to_owned(),
        String::new(),
    ];
    let exist = (0..SERVICES).map(cluster);
    let many = (0..NAMES).map(|number| format!("outbound|80||{prefix}{number}.none.example"));
    exist.chain(odd).chain(many).collect()
}

/// The pods of two workloads with learned scopes, and of one without; and services.
fn objects() -> Result<String> {
    let mut text = String::new();
    for (workload, account, scope) in [
        ("evil", "evil", "learned"),
        ("victim", "web", "learned"),
        ("plain", "web", "whole"),
    ] {
        write!(
            text,
            "apiVersion: v1\nkind: Pod\n\
             metadata: {{name: {workload}-1, namespace: shop, labels: {{service.istio.io/workload-name: {workload}, \
             navarch.io/scope: {scope}}}}}\n\
             spec: {{serviceAccountName: {account}}}\nstatus: {{phase: Running, podIP: 10.0.0.9}}\n---\n"
        )?;
    }

    let visible: Vec<String> = (0..SERVICES)
        .map(|number| format!("h{number}.learn.example"))
        .collect();
    let hidden = "hidden.learn.example".to_owned();

    for (name, hosts, namespace) in [
        ("visible", visible.join(", "), "*"),
        ("hidden", hidden, "bank"),
    ] {
        write!(
            text,
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: bank}}\n\
             spec: {{hosts: [{hosts}], exportTo: ['{namespace}'], resolution: STATIC, \
             ports: [{{number: 80, name: http, protocol: HTTP}}], endpoints: [{{address: 10.1.1.2}}]}}\n---\n"
        )?;
    }
    Ok(text)
}

/// A client that requests 10,000 names on each of 30 streams. Its workload learns those that exist and
/// that it may see; another workload of the namespace learns nothing.
pub(crate) async fn many_names(folder: PathBuf, tokens: Tokens, time: Duration) -> Result<String> {
    let evil = Sidecar {
        from: client(66, 5),
        pod: "evil-1",
        account: "evil",
        token: &tokens.evil,
    };
    let victim = Sidecar {
        from: client(66, 6),
        pod: "victim-1",
        account: "web",
        token: &tokens.victim,
    };
    let plain = Sidecar {
        pod: "plain-1",
        ..victim
    };
    let exist: BTreeSet<String> = (0..SERVICES).map(cluster).collect();
    let file = folder.join("learn.yaml");
    let draft = folder.with_extension("learn");
    std::fs::write(&draft, objects()?)?;
    std::fs::rename(&draft, &file)?;

    let has_all = async || {
        plain
            .clusters()
            .await
            .is_ok_and(|all| all.is_superset(&exist))
    };
    until_within(TIMEOUT, "the objects are read", has_all).await;
    for sidecar in [&evil, &victim] {
        let found = sidecar.clusters().await?;
        ensure!(found.is_empty(), "{} starts with {found:?}", sidecar.pod);
    }

    // This stream stays until the workload has learned. Names that do not exist follow those that do:
    // of one request only the first 2,048 are looked at.
    let mut connection = Connection::to_xds(evil.from, true).await?;
    let mut patient = connection.call(DELTA, Some(evil.token)).await?;
    patient
        .send(framed(&evil.request(names("z"), Vec::new())))
        .await?;
    let knows_all = async || evil.clusters().await.is_ok_and(|found| found == exist);
    until_within(TIMEOUT, "exactly what exists is learned", knows_all).await;

    let rejected = alternate(&tokens.evil, time).await;
    let learned = evil.clusters().await?;
    ensure!(learned == exist, "it has learned {learned:?}");
    let found = victim.clusters().await?;
    ensure!(found.is_empty(), "the other workload has learned {found:?}");
    std::fs::remove_file(file)?;
    Ok(format!(
        "{} learned, {rejected} streams rejected",
        learned.len()
    ))
}

/// Streams that subscribe to names and take them back, for some time; returns how many were rejected.
async fn alternate(token: &str, time: Duration) -> usize {
    let end = Instant::now() + time;

    let mut attackers = JoinSet::new();
    for number in 0..STREAMS {
        let token = token.to_owned();
        attackers.spawn(async move {
            let evil = Sidecar {
                from: client(66, 5),
                pod: "evil-1",
                account: "evil",
                token: &token,
            };

            let first = names(&format!("b{number}-"));
            let second = names(&format!("c{number}-"));
            let turns = [
                framed(&evil.request(first.clone(), second.clone())),
                framed(&evil.request(second, first)),
            ];

            let mut rejected = 0;
            while let Ok(outcome) = timeout_at(end, evil.alternate(&turns)).await {
                rejected += usize::from(outcome.is_err());
                sleep(Duration::from_millis(100)).await;
            }
            rejected
        });
    }

    attackers.join_all().await.into_iter().sum()
}
