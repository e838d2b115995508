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
        Registration::new(client, config, Arc::new(Vec::new)).roots_in_file()
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
