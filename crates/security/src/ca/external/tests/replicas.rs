//! Replicas with proxies of their own, which share the ConfigMap of one API server.

use std::convert::Infallible;
use std::pin::Pin;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use kube::Api;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::*;

thread_local! {
    /// When the test began: each has a thread and a clock of tokio of its own.
    static BEGUN: (Instant, SystemTime) = (Instant::now(), clock());
}

/// The wall clock, which advances as the paused clock of tokio does.
fn paused_clock() -> SystemTime {
    BEGUN.with(|(begun, wall)| *wall + begun.elapsed())
}

/// An API server with one ConfigMap.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Stored>>);

#[derive(Default)]
struct Stored {
    map: Option<Value>,
    version: u64,
    is_away: bool,
}

impl Server {
    async fn answer(self, request: Request<Body>) -> Response<Full<Bytes>> {
        let method = request.method().clone();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let failure = |code: u16, reason: &str| {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure",
                "reason": reason, "message": reason, "code": code,
            });
            (code, status)
        };

        let mut stored = self.0.lock();
        let version = stored.version.to_string();
        let (code, answer) = match (stored.is_away, method, stored.map.clone()) {
            (true, ..) => failure(503, "ServiceUnavailable"),
            (false, Method::GET, None) => failure(404, "NotFound"),
            (false, Method::GET, Some(map)) => (200, map),
            (false, Method::POST, Some(_)) => failure(409, "AlreadyExists"),
            (false, _, before) => {
                let mut map: Value = serde_json::from_slice(&body).unwrap();
                let named = &map["metadata"]["resourceVersion"];
                if before.is_some() && *named != version {
                    failure(409, "Conflict")
                } else {
                    stored.version += 1;
                    map["metadata"]["resourceVersion"] = json!(stored.version.to_string());
                    stored.map = Some(map.clone());
                    (200, map)
                }
            }
        };
        let response = Response::builder().status(code);
        response.body(Full::from(answer.to_string())).unwrap()
    }

    /// How often it was written to.
    fn writes(&self) -> u64 {
        self.0.lock().version
    }
}

impl tower_service::Service<Request<Body>> for Server {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(server.answer(request).await) })
    }
}

/// A replica with its connection to the signer. Dropping it stops it.
struct Replica {
    signer: Arc<FakeSigner>,
    external: Arc<ExternalAuthority>,
    /// Whether a proxy of its own lacks new roots.
    lacks: Arc<Mutex<bool>>,
    _following: JoinSet<()>,
}

impl Replica {
    fn start(name: &str, server: &Server, ca: &Bundle) -> Self {
        let signer = FakeSigner::of(ca.clone());
        let client = kube::Client::new(server.clone(), "istio-system");
        let replicas = Replicas::new(Api::default_namespaced(client), name, paused_clock);
        let external = ExternalAuthority::new(
            signer.clone(),
            ExternalLimits::default(),
            RULES,
            &Arc::default(),
            Metrics::register(&mut Registry::default(), paused_clock),
            paused_clock,
        );
        let external = Arc::new(external.among(Some(replicas)));

        let lacks = Arc::new(Mutex::new(false));
        let find_missing: FindMissing = {
            let lacks = lacks.clone();
            let who = format!("a proxy of {name}");
            Arc::new(move |_| {
                let missing = Missing {
                    who: who.clone(),
                    why: "late".to_owned(),
                };
                lacks.lock().then_some(missing).into_iter().collect()
            })
        };
        let mut following = JoinSet::new();
        let followed = external.clone();
        following.spawn(async move { followed.follow(find_missing, || {}).await });
        Self {
            signer,
            external,
            lacks,
            _following: following,
        }
    }

    /// The signer names a further root, and signs with it.
    fn learns(&self, next: &Bundle) {
        let before = self.signer.roots.borrow().clone();
        let both = format!("{before}{}", next.roots);
        self.signer.roots.send_replace(both.into());
        *self.signer.ca.lock() = next.clone();
    }

    /// Whether a certificate that ends in the newest root is handed out.
    async fn signs(&self) -> bool {
        match self.external.sign(&request(WEB)).await {
            Ok(_) => true,
            Err(SignerError::Undistributed(_)) => false,
            Err(other) => panic!("{other}"),
        }
    }

    /// Who lacks a root, as far as it knows.
    fn missing(&self) -> Vec<String> {
        let missing = self.external.report().missing;
        missing.into_iter().map(|one| one.who).collect()
    }
}

/// More than a root is distributed at least.
const OVERLAP: Duration = RULES.overlap.saturating_add(Duration::from_secs(10));

#[tokio::test(start_paused = true)]
async fn a_new_root_waits_for_the_proxies_of_all_replicas() {
    let server = Server::default();
    let ca = new_ca();
    let one = Replica::start("istiod-1", &server, &ca);
    let two = Replica::start("istiod-2", &server, &ca);
    sleep(Duration::from_secs(60)).await;

    // The other one does not know the root yet, for longer than it is waited for in silence.
    let next = new_ca();
    one.learns(&next);
    sleep(OVERLAP).await;
    assert!(!one.signs().await);
    assert_eq!(one.missing(), ["replica istiod-2"]);

    *two.lacks.lock() = true;
    two.learns(&next);
    sleep(OVERLAP).await;
    assert!(!one.signs().await && !two.signs().await);
    assert_eq!(one.missing(), ["a proxy of istiod-2"]);

    *two.lacks.lock() = false;
    sleep(Duration::from_secs(30)).await;
    assert!(one.signs().await && two.signs().await);
    assert!(one.missing().is_empty());

    // At rest there is next to nothing to write.
    sleep(Duration::from_secs(120)).await;
    let before = server.writes();
    sleep(Duration::from_secs(3600)).await;
    let written = server.writes() - before;
    assert!(written <= 4, "{written} writes in an hour");
}

#[tokio::test(start_paused = true)]
async fn a_removed_report_is_written_again() {
    let server = Server::default();
    let ca = new_ca();
    let one = Replica::start("istiod-1", &server, &ca);
    let two = Replica::start("istiod-2", &server, &ca);
    sleep(Duration::from_secs(60)).await;
    server.0.lock().map = None;
    sleep(Duration::from_secs(50)).await;

    let next = new_ca();
    one.learns(&next);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(one.missing(), ["replica istiod-2"]);

    *two.lacks.lock() = true;
    two.learns(&next);
    sleep(OVERLAP).await;
    assert!(!one.signs().await);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_gone_delays_a_root_for_a_minute_at_most() {
    let server = Server::default();
    let ca = new_ca();
    let one = Replica::start("istiod-1", &server, &ca);
    let two = Replica::start("istiod-2", &server, &ca);
    *two.lacks.lock() = true;
    let next = new_ca();
    for replica in [&one, &two] {
        replica.learns(&next);
    }
    sleep(OVERLAP).await;
    assert!(!one.signs().await);

    drop(two);
    sleep(Duration::from_secs(80)).await;
    assert!(one.signs().await);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_known_of_other_replicas_delays_a_root_for_a_limited_time() {
    let server = Server::default();
    let ca = new_ca();
    let one = Replica::start("istiod-1", &server, &ca);
    sleep(Duration::from_secs(60)).await;
    server.0.lock().is_away = true;
    one.learns(&new_ca());
    sleep(OVERLAP).await;
    assert!(!one.signs().await);
    assert_eq!(one.missing(), ["other replicas"]);

    server.0.lock().is_away = false;
    sleep(Duration::from_secs(30)).await;
    assert!(one.signs().await, "there are none");

    server.0.lock().is_away = true;
    one.learns(&new_ca());
    sleep(RULES.wait + Duration::from_secs(30)).await;
    assert!(one.signs().await);
}
