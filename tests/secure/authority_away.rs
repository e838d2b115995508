//! The authority is away while certificates live short: first the one behind a plugin, which answers
//! `UNAVAILABLE`, then the plugin itself. Seconds stand for an hour. The figures are printed with
//! `-- --nocapture`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use futures_util::{Stream, StreamExt as _, stream};
use navarch::api::identity::Identity;
use navarch::pki::{KeyType, SigningRequest, pem};
use navarch::security::ca::{Authority, Bundle, Subject};
use navarch_proto::navarch::signer::v1::signer_server::{Signer, SignerServer};
use navarch_proto::navarch::signer::v1::{Roots, SignRequest, SignResponse, WatchRootsRequest};
use navarch_testkit::wait::{until_some, wanted};
use navarch_tests::chain::check_chain;
use parking_lot::Mutex;
use rcgen::{CertificateParams, DistinguishedName, KeyPair, SanType};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Code, Request, Response, Status};

use crate::client::Proof;
use crate::own_authority::{WEB, csr, signers};
use crate::server::{MESH, Server};

/// The other namespace's workload.
const BANK: &str = "spiffe://cluster.local/ns/bank/sa/web";
/// How long each of both is away.
const AWAY: Duration = Duration::from_secs(10);
/// The pause between two requests of one namespace.
const PAUSE: Duration = Duration::from_millis(100);
/// A certificate that outlives the absence, and one that does not.
const LONG: i64 = 600;
const SHORT: i64 = 8;
/// Calls before a circuit opens.
const BEFORE_OPEN: usize = 3;
/// Probes of an open circuit while it is away: after 0.5 s at the earliest, then twice as long each.
const PROBES: usize = 5;
/// How long a rejected request may take on a busy machine: it waits for nothing.
const AT_ONCE: Duration = Duration::from_secs(2);
/// The longest pause between two probes, with its jitter.
const MAX_PAUSE: Duration = Duration::from_secs(90);

/// A plugin that signs, unless its authority is away.
#[derive(Clone)]
struct Plugin {
    authority: Arc<Authority>,
    is_away: Arc<Mutex<bool>>,
    /// The calls by namespace.
    calls: Arc<Mutex<BTreeMap<String, usize>>>,
}

#[tonic::async_trait]
impl Signer for Plugin {
    async fn sign(&self, request: Request<SignRequest>) -> Result<Response<SignResponse>, Status> {
        let request = request.into_inner();
        *self.calls.lock().entry(request.namespace).or_default() += 1;
        if *self.is_away.lock() {
            return Err(Status::unavailable("the authority is away"));
        }

        let csr = pem::encode_block("CERTIFICATE REQUEST", &request.csr_der);
        let csr = SigningRequest::parse(&csr).unwrap();
        let subject = Subject::Workload(Identity::parse(&request.spiffe_id).unwrap());
        let lifetime = Duration::from_secs(request.seconds.into());
        let chain = self
            .authority
            .sign(&csr, &subject, lifetime, SystemTime::now())
            .unwrap();
        Ok(Response::new(SignResponse {
            chain_pem: pem::encode(&chain[0]),
        }))
    }

    type WatchRootsStream = Pin<Box<dyn Stream<Item = Result<Roots, Status>> + Send>>;

    async fn watch_roots(
        &self,
        _: Request<WatchRootsRequest>,
    ) -> Result<Response<Self::WatchRootsStream>, Status> {
        let pem = self.authority.roots().pem().to_owned();
        let once = stream::once(async move { Ok(Roots { pem }) });
        Ok(Response::new(Box::pin(once.chain(stream::pending()))))
    }
}

/// The plugin and its socket.
struct Served {
    plugin: Plugin,
    socket: PathBuf,
    /// Of the plugin alone: its connections end with it. `None` while it is away.
    runtime: Option<Runtime>,
}

impl Served {
    fn new(socket: PathBuf) -> Result<Self> {
        let now = SystemTime::now();
        let life = Duration::from_secs(36_000);
        let bundle = Bundle::self_signed("company", KeyType::P256, life, now)?;
        let plugin = Plugin {
            authority: Arc::new(Authority::new(&bundle, now)?),
            is_away: Arc::default(),
            calls: Arc::default(),
        };
        let mut served = Self {
            plugin,
            socket,
            runtime: None,
        };
        served.start()?;
        Ok(served)
    }

    fn start(&mut self) -> Result<()> {
        let listener = UnixListener::bind(&self.socket)?;
        listener.set_nonblocking(true)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;

        let service = SignerServer::new(self.plugin.clone());
        runtime.spawn(async move {
            let listener = tokio::net::UnixListener::from_std(listener).unwrap();
            let server = tonic::transport::Server::builder().add_service(service);
            drop(
                server
                    .serve_with_incoming(UnixListenerStream::new(listener))
                    .await,
            );
        });
        self.runtime = Some(runtime);
        Ok(())
    }

    /// Ends the plugin, with its connections.
    fn stop(&mut self) -> Result<()> {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        Ok(fs::remove_file(&self.socket)?)
    }

    fn take_calls(&self) -> BTreeMap<String, usize> {
        std::mem::take(&mut self.plugin.calls.lock())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What became of requests while the authority was away.
#[derive(Debug, Default)]
struct Rejections {
    sent: usize,
    /// The longest time until an answer.
    longest: Duration,
}

/// Requests certificates for two namespaces while the authority is away. Each request must fail
/// with this text.
async fn request_while_away(
    server: &Server,
    proofs: &[Proof; 2],
    text: &str,
) -> Result<Rejections> {
    let requests = [csr(WEB)?, csr(BANK)?];
    let mut rejections = Rejections::default();
    let end = Instant::now() + AWAY;
    while Instant::now() < end {
        for (proof, request) in proofs.iter().zip(&requests) {
            let begun = Instant::now();
            let answer = server.certificate(proof, request, LONG).await;
            let status = answer.err().context("a certificate was issued")?;
            ensure!(
                status.code() == Code::Unavailable && status.message().contains(text),
                "{status}"
            );
            rejections.sent += 1;
            rejections.longest = rejections.longest.max(begun.elapsed());
        }
        sleep(PAUSE).await;
    }
    ensure!(rejections.longest < AT_ONCE, "{rejections:?}");
    Ok(rejections)
}

/// A certificate for the workload of the shop, as a proof.
async fn certificate(server: &Server, token: &Proof, seconds: i64) -> Result<Proof> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names = vec![SanType::URI(WEB.try_into()?)];
    let request = params.serialize_request(&key)?.pem()?;
    let mut chain = server
        .certificate(token, &request, seconds)
        .await?
        .cert_chain;
    // The roots.
    chain.pop();
    Ok(Proof::Certificate(chain.concat(), key.serialize_pem()))
}

/// Whether a certificate gets the secrets of its namespace.
async fn serves(server: &Server, proof: &Proof) -> bool {
    let secrets = server.secrets(proof, "shop", "web", &["kubernetes://tls"]);
    secrets.await.is_ok_and(|secrets| secrets.len() == 1)
}

/// How long after its return the authority signs for a namespace again.
async fn signs_again(
    server: &Server,
    proof: &Proof,
    identity: &str,
    root: &str,
) -> Result<Duration> {
    let begun = Instant::now();
    let request = csr(identity)?;
    let answer = loop {
        match server.certificate(proof, &request, LONG).await {
            Ok(answer) => break answer,
            Err(status) => ensure!(begun.elapsed() < MAX_PAUSE, "{status}"),
        }
        sleep(PAUSE).await;
    };
    check_chain(&answer.cert_chain, identity, root)?;
    Ok(begun.elapsed())
}

#[tokio::test]
async fn certificates_serve_while_the_authority_is_away_and_it_is_left_alone() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut served = Served::new(folder.path().join("signer.sock"))?;
    let root = served.plugin.authority.roots().pem().to_owned();
    let variables = format!(
        "EXTERNAL_CA=NAVARCH_RA_SOCKET NAVARCH_SIGNER_SOCKET={}",
        served.socket.display()
    );
    let server = Server::with_variables(MESH, &variables).await?;
    let token = |account: &str| {
        let sub = format!("system:serviceaccount:{account}");
        Proof::Token(server.issuer.token(json!({"sub": sub})))
    };
    let proofs = [token("shop:web"), token("bank:web")];
    let long = certificate(&server, &proofs[0], LONG).await?;
    let short = certificate(&server, &proofs[0], SHORT).await?;
    ensure!(serves(&server, &long).await && serves(&server, &short).await);
    served.take_calls();

    // The authority behind the plugin.
    *served.plugin.is_away.lock() = true;
    let text = "the signer is unavailable for this namespace";
    let rejections = request_while_away(&server, &proofs, text).await?;
    let calls = served.take_calls();
    println!("the authority away for {AWAY:?}: {rejections:?}, it was asked {calls:?}");
    ensure!(calls.len() == 2, "{calls:?}");
    let is_allowed = |count: &usize| (BEFORE_OPEN..=BEFORE_OPEN + PROBES).contains(count);
    ensure!(calls.values().all(is_allowed), "{calls:?}");
    let shown = signers(&server).await?;
    ensure!(
        shown[0]["unavailable"]
            .as_array()
            .is_some_and(|all| all.len() == 2),
        "{shown}"
    );
    ensure!(
        serves(&server, &long).await,
        "an existing certificate serves"
    );
    ensure!(!serves(&server, &short).await, "and another one has ended");

    *served.plugin.is_away.lock() = false;
    let mut again = Vec::new();
    for (proof, identity) in proofs.iter().zip([WEB, BANK]) {
        again.push(signs_again(&server, proof, identity, &root).await?);
    }
    let calls = served.take_calls();
    println!("the authority is back: signed after {again:?} with calls {calls:?}");
    ensure!(
        calls.values().all(|count| *count == 1),
        "the next call is signed: {calls:?}"
    );

    // The plugin itself.
    served.stop()?;
    let rejections = request_without_plugin(&server, &proofs).await?;
    println!("the plugin away for {AWAY:?}: {rejections:?}");
    until_some("the doctor finds it", async || {
        let found = server.page("doctor").await;
        let found = found.map_err(|error| error.to_string())?;
        wanted(found, |found| {
            found.contains("the signer socket is unreachable")
        })
    })
    .await;
    ensure!(
        serves(&server, &long).await,
        "an existing certificate serves"
    );
    let ready = navarch_testkit::client::get(server.http(), "navarch", "/ready", &[]).await?;
    ensure!(ready.status == 200, "it stays ready");

    served.start()?;
    let again = signs_again(&server, &proofs[0], WEB, &root).await?;
    let bank = signs_again(&server, &proofs[1], BANK, &root).await?;
    println!(
        "the plugin is back: signed after {again:?}, and for the other namespace {bank:?} later"
    );
    ensure!(bank < AT_ONCE, "one success is enough for all namespaces");
    print_results(&server).await
}

/// Requests certificates once connections fail, while the plugin is away.
async fn request_without_plugin(server: &Server, proofs: &[Proof; 2]) -> Result<Rejections> {
    let text = "the signer is unreachable";
    let request = csr(WEB)?;
    until_some("connections fail", async || {
        let answer = server.certificate(&proofs[0], &request, LONG).await;
        let status = answer
            .err()
            .ok_or_else(|| "a certificate was issued".to_owned())?;
        wanted(status.to_string(), |status| status.contains(text))
    })
    .await;
    request_while_away(server, proofs, text).await
}

/// Prints the requests by their results.
async fn print_results(server: &Server) -> Result<()> {
    let metrics = server.metrics().await?;
    let results: Vec<_> = metrics
        .lines()
        .filter(|line| line.starts_with("navarch_signer_requests_total"))
        .collect();
    println!("{}", results.join("\n"));
    for result in ["issued", "unavailable", "unreachable"] {
        let label = format!("result=\"{result}\"");
        ensure!(
            results.iter().any(|line| line.contains(&label)),
            "{results:?}"
        );
    }
    Ok(())
}
