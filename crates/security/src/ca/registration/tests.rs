//! Approvals with an API server to which others write at the same time.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::held_server::HeldServer;
use super::objects::random_name;
use super::*;

/// Requests as method and path.
type Calls = Arc<Mutex<Vec<String>>>;

/// An API server with prepared responses.
#[derive(Clone, Default)]
struct Server {
    answers: Arc<Mutex<VecDeque<(u16, Value)>>>,
    calls: Calls,
}

impl tower_service::Service<Request<Body>> for Server {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let path = request.uri().path().rsplit('/').take(2).collect::<Vec<_>>();
        let path = path.into_iter().rev().collect::<Vec<_>>().join("/");
        self.calls
            .lock()
            .push(format!("{} {path}", request.method()));
        let (code, body) = self.answers.lock().pop_front().expect("an answer");
        let response = Response::builder()
            .status(code)
            .body(Full::from(body.to_string()));
        ready(Ok(response.expect("a response")))
    }
}

/// A CertificateSigningRequest with a resource version.
fn request(version: &str) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "csr-workload-1", "resourceVersion": version},
        "spec": {"request": "", "signerName": "a/b"},
    })
}

fn status(code: u16, reason: &str) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": reason, "code": code}),
    )
}

/// Approves a request with these responses. Returns the outcome and the calls.
async fn approve(answers: Vec<(u16, Value)>) -> (Result<(), RegistrationError>, Vec<String>) {
    let server = Server::default();
    *server.answers.lock() = answers.into();
    let registration = Registration::new(
        kube::Client::new(server.clone(), "default"),
        RegistrationConfig::default(),
        Arc::new(Vec::new),
        8,
    );
    let made = serde_json::from_value(request("1")).expect("a request");
    let outcome = registration.approve(made, "spiffe://a").await;
    let calls = server.calls.lock().clone();
    (outcome, calls)
}

#[tokio::test]
async fn a_request_that_has_changed_is_approved_as_it_is_now() {
    let (outcome, calls) = approve(vec![
        status(409, "Conflict"),
        (200, request("2")),
        (200, request("3")),
    ])
    .await;

    assert!(outcome.is_ok(), "{outcome:?}");
    assert_eq!(
        calls,
        [
            "PUT csr-workload-1/approval",
            "GET certificatesigningrequests/csr-workload-1",
            "PUT csr-workload-1/approval",
        ]
    );
}

#[tokio::test]
async fn an_approval_that_is_not_allowed_is_not_tried_again() {
    let (outcome, calls) = approve(vec![status(403, "Forbidden")]).await;
    assert!(matches!(outcome, Err(RegistrationError::Kubernetes(_))));
    assert_eq!(calls.len(), 1);
}

#[tokio::test]
async fn an_unreadable_file_of_roots_is_not_taken_for_a_missing_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let roots_in = |name: &str| {
        let config = RegistrationConfig {
            roots: Some(folder.path().join(name)),
            ..RegistrationConfig::default()
        };
        let client = kube::Client::new(Server::default(), "default");
        Registration::new(client, config, Arc::new(Vec::new), 8).roots_in_file()
    };
    std::fs::write(folder.path().join("roots"), "ROOTS").expect("written");
    std::fs::write(folder.path().join("binary"), b"\xff").expect("written");

    assert_eq!(
        roots_in("roots").expect("readable"),
        Some("ROOTS".to_owned())
    );
    assert_eq!(roots_in("none").expect("missing"), None);
    let result = roots_in("binary");
    assert!(
        matches!(result, Err(RegistrationError::Roots { .. })),
        "{result:?}"
    );
}

/// Asks a signer, and gives up once the API server has been called `count` times by `method`.
async fn give_up(server: &HeldServer, registration: &Registration, method: &str, count: usize) {
    let put = registration.put("", &[], "a/b", MIN_LIFETIME, "spiffe://a", None);
    tokio::select! {
        outcome = put => panic!("{outcome:?}"),
        () = server.until_called(method, count) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_deleted_whenever_the_caller_gives_up() {
    let server = HeldServer::new();
    let client = kube::Client::new(server.clone(), "default");
    let mesh: MeshRoots = Arc::new(Vec::new);
    let registration = Registration::new(client, RegistrationConfig::default(), mesh, 8);

    // While it is created.
    give_up(&server, &registration, "POST", 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.called("DELETE"), [""; 0]);
    server.creations.add_permits(1);
    server.until_called("DELETE", 1).await;
    assert_eq!(server.called("DELETE"), [server.name()]);
    assert!(server.name().starts_with(PREFIX));

    // While it is signed; the first deletions fail, and one is not answered.
    server.creations.add_permits(1);
    server.deletions.lock().extend([500, 0, 429]);
    let polls = server.called("GET").len() + 2;
    give_up(&server, &registration, "GET", polls).await;
    server.until_called("DELETE", 5).await;
    assert_eq!(server.called("DELETE")[1..], vec![server.name(); 4]);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(server.called("DELETE").len(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_creation_is_followed_by_deletions() {
    let server = HeldServer::new();
    let client = kube::Client::new(server.clone(), "default");
    let mesh: MeshRoots = Arc::new(Vec::new);
    let registration = Registration::new(client, RegistrationConfig::default(), mesh, 8);

    // It appears after the first deletion.
    server.deletions.lock().extend([404, 404, 200]);
    let outcome = registration.put("", &[], "a/b", MIN_LIFETIME, "spiffe://a", None);
    let outcome = outcome.await;

    assert!(
        matches!(outcome, Err(RegistrationError::Unanswered)),
        "{outcome:?}"
    );
    server.until_called("DELETE", 3).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(server.called("DELETE").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_held_until_the_work_is_done() {
    let client = kube::Client::new(HeldServer::new(), "default");
    let api: Api<CertificateSigningRequest> = Api::all(client);
    let objects = Objects::new(api, 1);
    let (done, is_done) = oneshot::channel::<()>();

    let permit = objects.permit(None).await.expect("a permit");
    objects.complete(permit, async {
        let _ = is_done.await;
    });
    let early = timeout(Duration::from_secs(60), objects.permit(None)).await;
    assert!(early.is_err(), "{early:?}");

    drop(done);
    let late = timeout(Duration::from_secs(60), objects.permit(None)).await;
    assert!(matches!(late, Ok(Ok(_))), "{late:?}");
}

#[test]
fn names_are_random() {
    let name = random_name(PREFIX).expect("randomness");
    assert_eq!(name.len(), PREFIX.len() + 32);
    assert_ne!(Some(&name), random_name(PREFIX).as_ref());
    assert!(navarch_kubernetes::object_name(&name).is_ok());
}

#[test]
fn a_failure_of_the_signer_is_no_denial() {
    let of = |kind: &str| {
        refusal(vec![CertificateSigningRequestCondition {
            type_: kind.to_owned(),
            message: Some("why".to_owned()),
            ..CertificateSigningRequestCondition::default()
        }])
        .map(SignerError::from)
    };

    assert!(matches!(of("Failed"), Some(SignerError::Failed(why)) if why == "why"));
    assert!(matches!(of("Denied"), Some(SignerError::Denied(why)) if why == "why"));
    assert!(of(APPROVED).is_none());
}

#[test]
fn conditions_of_others_stay() {
    let mut before = request("1");
    before["status"] = json!({"conditions": [{"type": "Noted", "status": "True"}]});
    let before = serde_json::from_value(before).expect("a request");

    let approved = with_approval(before, "csr-workload-1", "spiffe://a");
    let again = with_approval(approved, "csr-workload-1", "spiffe://a");

    let conditions = again.status.and_then(|status| status.conditions);
    let types: Vec<_> = conditions
        .into_iter()
        .flatten()
        .map(|condition| condition.type_)
        .collect();
    assert_eq!(types, ["Noted", APPROVED]);
}

#[test]
fn the_clusters_roots_verify_its_own_signers_only() {
    let roots = |roots: Option<&str>, signer_domain: &str| {
        let config = RegistrationConfig {
            signer_domain: signer_domain.to_owned(),
            roots: roots.map(PathBuf::from),
            ..RegistrationConfig::default()
        };
        config.with_roots_file().roots
    };

    assert_eq!(roots(None, ""), Some(PathBuf::from(CLUSTER_ROOTS)));
    assert_eq!(roots(None, "signers.example"), None);
    assert_eq!(
        roots(Some("/roots.pem"), ""),
        Some(PathBuf::from("/roots.pem"))
    );
}
