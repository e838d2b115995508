//! Requests to the API server that attackers could cause: tokens and names of workloads are
//! validated first, and unauthenticated clients cannot find out which workloads exist.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use navarch_proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use navarch_proto::istio::v1::auth::IstioCertificateRequest;
use navarch_testkit::cluster::{Cluster, ClusterConfig};
use navarch_testkit::navarch::{Addresses, Navarch};
use navarch_testkit::usage::usage;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, timeout, timeout_at};

use crate::attack::Attack;
use crate::grpc::{CLUSTERS, Connection, DELTA, framed, node};
use crate::network::{self, client};
use crate::others::{certificate, page};
use crate::plane::{HTTP, HTTPS, MONITORING, SECURE, XDS, program};
use crate::series::Series;

const ATTACK_DURATION: Duration = Duration::from_secs(5);
/// Maximum number of TokenReviews in that time for random tokens that look valid.
const MAX_REVIEWS: usize = 2_000;

/// A cluster with an audit log of requests about tokens and workloads, and a control plane.
struct AuditedCluster {
    cluster: Cluster,
    navarch: Navarch,
    /// The API server's audit log.
    audit: PathBuf,
    _folder: TempDir,
}

impl AuditedCluster {
    async fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let policy = folder.path().join("policy.yaml");
        let audit = folder.path().join("audit.log");
        let noted = json!([
            {"group": "authentication.k8s.io", "resources": ["tokenreviews"]},
            {"group": "networking.istio.io", "resources": ["workloadentries", "workloadgroups"]},
        ]);
        let rules = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata", "resources": noted}, {"level": "None"}],
        });
        std::fs::write(&policy, rules.to_string())?;

        let api_server_flags = vec![
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", audit.display()),
        ];
        let cluster = Cluster::start_with(ClusterConfig {
            api_server_flags,
            ..ClusterConfig::default()
        })
        .await?;
        cluster.apply_crds(Path::new(env!("CARGO_MANIFEST_DIR")))?;

        for name in ["shop", "istio-system"] {
            cluster.apply(
                &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
                    .to_string(),
            )?;
        }

        for name in ["web", "evil"] {
            let metadata = json!({"name": name, "namespace": "shop"});
            cluster.apply(
                &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
                    .to_string(),
            )?;
        }

        let args = [
            format!("--kubeconfig={}", cluster.admin_kubeconfig().display()),
            format!("--secure-grpc-addr={SECURE}"),
            format!("--https-addr={HTTPS}"),
        ];

        let at = Addresses {
            xds: XDS,
            http: HTTP,
            monitoring: MONITORING,
        };
        let navarch = Navarch::start_with_args_at(&program(), &args, &[], at).await?;

        Ok(Self {
            cluster,
            navarch,
            audit,
            _folder: folder,
        })
    }

    /// A token of a service account of `shop`.
    async fn token(&self, account: &str) -> Result<String> {
        let path = format!("/api/v1/namespaces/shop/serviceaccounts/{account}/token");
        let ask = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": ["istio-ca"], "expirationSeconds": 3600},
        });
        let answer = self
            .cluster
            .call("POST", &path, "application/json", &ask)
            .await?;
        Ok(answer["status"]["token"]
            .as_str()
            .context("a token")?
            .to_owned())
    }

    /// The requests about a resource, as verb and URI, without the watches opened at the start.
    fn requests(&self, resource: &str) -> Vec<String> {
        let log = std::fs::read_to_string(&self.audit).unwrap_or_default();
        let events = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let about = events.filter(|event| event["objectRef"]["resource"] == resource);
        about
            .map(|event| format!("{} {}", event["verb"], event["requestURI"]))
            .collect()
    }
}

#[test]
fn unauthenticated_input_does_not_reach_the_api_server() -> Result<()> {
    network::run(
        "api_server::unauthenticated_input_does_not_reach_the_api_server",
        strangers,
    )
}

async fn strangers() -> Result<()> {
    let world = AuditedCluster::start().await?;
    let csr = CertificateParams::default()
        .serialize_request(&KeyPair::generate()?)?
        .pem()?;
    let good = world.token("web").await?;
    certificate(client(4, 1), &good, csr.clone()).await?;
    workload_names_are_validated_first(&world).await?;
    tokens_are_validated_first(&world, &good, csr).await
}

/// A token with the form of this cluster's tokens and these claims, but an invalid signature.
fn forged(real: &str, over: &Value) -> String {
    let mut parts = real.split('.');
    let header = parts.next().unwrap();
    let payload = parts.next().unwrap();
    let mut claims: Value =
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap();
    claims
        .as_object_mut()
        .unwrap()
        .extend(over.as_object().unwrap().clone());
    let payload = BASE64_URL_SAFE_NO_PAD.encode(claims.to_string());
    format!(
        "{header}.{payload}.{}",
        BASE64_URL_SAFE_NO_PAD.encode([7; 256])
    )
}

/// Tokens that are recognizably invalid cause no TokenReview, others only a limited number.
async fn tokens_are_validated_first(world: &AuditedCluster, good: &str, csr: String) -> Result<()> {
    let files = usage(world.navarch.pid())?.files;
    let real = good.to_owned();
    let kinds: [(&str, usize, Box<dyn Fn(usize) -> String + Send + Sync>); 4] = [
        (
            "random letters",
            0,
            Box::new(|number| format!("{number:x}").repeat(2_000)),
        ),
        (
            "expired",
            0,
            Box::new({
                let real = real.clone();
                move |number| {
                    forged(
                        &real,
                        &json!({"jti": number.to_string(), "exp": 1_600_000_000}),
                    )
                }
            }),
        ),
        (
            "of another audience",
            0,
            Box::new({
                let real = real.clone();
                move |number| {
                    forged(
                        &real,
                        &json!({"jti": number.to_string(), "aud": ["somebody-else"]}),
                    )
                }
            }),
        ),
        (
            "forged",
            MAX_REVIEWS,
            Box::new(move |number| forged(&real, &json!({"jti": number.to_string()}))),
        ),
    ];

    for (kind, most, make) in kinds {
        let before = world.requests("tokenreviews").len();
        let series = Arc::new(Series::default());
        let mut workloads = JoinSet::new();
        workloads.spawn(ask_for_certificates(
            series.clone(),
            good.to_owned(),
            csr.clone(),
        ));

        let from = Instant::now();
        let mut attack =
            Box::pin(Attack::start(move || ask_with_tokens(make, ATTACK_DURATION)).end());
        let mut most_files = files;
        let outcome = loop {
            tokio::select! {
                outcome = &mut attack => break outcome?,
                () = sleep(Duration::from_millis(50)) => {
                    most_files = most_files.max(usage(world.navarch.pid())?.files);
                }
            }
        };

        let to = Instant::now();
        ensure!(
            series.settled(to, to + Duration::from_secs(20)).await,
            "{kind}: workloads get no response"
        );
        let met = series.between(from, to);
        let reviews = world.requests("tokenreviews").len() - before;
        println!(
            "tokens, {kind}: {outcome}; {reviews} token reviews; {files} files before, at most {most_files}; a certificate: p99 of {} is {:?}, {} failed",
            met.count,
            met.p99,
            met.failed.len()
        );

        ensure!(met.count > 3 && met.failed.is_empty(), "{kind}: {met:?}");

        // The token of the well-behaved workloads may be reviewed again.
        ensure!(reviews <= most + 5, "{kind}: {reviews} token reviews");
        ensure!(
            most_files < files + 1_000,
            "{kind}: {most_files} open files, {files} before"
        );
    }

    Ok(())
}

/// Requests a certificate four times per second, each time as another workload.
async fn ask_for_certificates(series: Arc<Series>, token: String, csr: String) {
    let mut ticks = interval(Duration::from_millis(250));
    for number in 0_usize.. {
        ticks.tick().await;
        let question = series.ask();
        let answer = timeout(
            Duration::from_secs(10),
            certificate(client(4, number), &token, csr.clone()),
        )
        .await;
        question.end(answer.unwrap_or_else(|_| Err(anyhow::anyhow!("no certificate in 10 s"))));
    }
}

/// Requests certificates and debug pages with ever new tokens, with many calls over few
/// connections.
async fn ask_with_tokens(
    make: Box<dyn Fn(usize) -> String + Send + Sync>,
    time: Duration,
) -> Result<String> {
    let end = Instant::now() + time;
    let make = Arc::new(make);
    let mut attackers = JoinSet::new();

    for attacker in 0..40 {
        let make = make.clone();
        attackers.spawn(async move {
            let mut sent = 0_usize;
            let attack = async {
                loop {
                    let number = attacker * 1_000_000 + sent;
                    sent += 5;
                    drop(ask_once(&**make, number).await);
                }
            };
            let ended: Result<(), _> = timeout_at(end, attack).await;
            ended.unwrap_err();
            sent
        });
    }

    let sent: usize = attackers.join_all().await.into_iter().sum();
    ensure!(sent > 200, "only {sent} requests were sent");
    Ok(format!("{sent} tokens"))
}

/// Four concurrent calls of the CA on one connection, and one of a debug page.
async fn ask_once(make: &(dyn Fn(usize) -> String + Send + Sync), number: usize) -> Result<()> {
    let mut connection = Connection::to_xds(client(66, 10), true).await?;
    let request = framed(&IstioCertificateRequest {
        csr: "none".to_owned(),
        ..Default::default()
    });
    let mut calls = Vec::new();

    for at in 0..4 {
        let token = make(number + at);
        let mut call = connection
            .call(
                "/istio.v1.auth.IstioCertificateService/CreateCertificate",
                Some(&token),
            )
            .await?;
        call.send(request.clone()).await?;
        calls.push(call);
    }

    let bearer = format!("Bearer {}", make(number + 4));
    drop(
        timeout(
            Duration::from_secs(1),
            page(
                client(66, 10),
                HTTP,
                "/debug/syncz",
                &[("authorization", &bearer)],
            ),
        )
        .await,
    );

    for mut call in calls {
        drop(timeout(Duration::from_millis(200), call.ended()).await);
    }

    Ok(())
}

/// The error for a proxy whose metadata names a WorkloadEntry.
async fn answer(tls: bool, token: Option<&str>, metadata: &[(&str, &str)]) -> Result<String> {
    let mut connection = Connection::to_xds(client(66, 11), tls).await?;
    let mut call = connection.call(DELTA, token).await?;
    let hello = DeltaDiscoveryRequest {
        node: Some(node("evil-1", "evil", metadata)),
        type_url: CLUSTERS.to_owned(),
        ..DeltaDiscoveryRequest::default()
    };
    call.send(framed(&hello)).await?;
    timeout(Duration::from_secs(10), call.ended())
        .await
        .context("the stream stays open")
}

/// Names of workloads are validated before the API server is queried, and unauthenticated clients
/// get the same error for existing and unknown workloads.
async fn workload_names_are_validated_first(world: &AuditedCluster) -> Result<()> {
    let entry = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry", "metadata": {"name": "there", "namespace": "shop"},
        "spec": {"address": "10.9.0.7", "serviceAccount": "web"},
    });
    world.cluster.apply(&entry.to_string())?;
    let token = world.token("evil").await?;
    let requests = || {
        [
            world.requests("workloadentries"),
            world.requests("workloadgroups"),
        ]
        .concat()
    };

    let before = requests();
    let paths = [
        "?limit=0",
        "?watch=true",
        "../../bank/workloadentries/x",
        "a/b",
        "a%2fb",
        "..",
        "A",
        "x?y",
        "there#",
    ];

    for (tls, token) in [(false, None), (true, Some(token.as_str()))] {
        for path in paths {
            for metadata in [[("WORKLOAD_ENTRY", path)], [("AUTO_REGISTER_GROUP", path)]] {
                answer(tls, token, &metadata)
                    .await
                    .with_context(|| format!("{metadata:?}"))?;
            }
        }
    }

    let after = requests();
    ensure!(
        after == before,
        "the API server got requests: {:?}",
        &after[before.len()..]
    );

    // Plain-text clients have no identity: the error must not depend on whether the workload
    // exists, and must cause no request to the API server.
    let there = answer(false, None, &[("WORKLOAD_ENTRY", "there")]).await?;
    let absent = answer(false, None, &[("WORKLOAD_ENTRY", "absent")]).await?;
    ensure!(
        there.replace("there", "absent") == absent,
        "{there} is not {absent}"
    );

    let after = requests();
    ensure!(
        after == before,
        "the API server got requests: {:?}",
        &after[before.len()..]
    );

    Ok(())
}
