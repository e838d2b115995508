//! A start while the API server fails.

use super::*;

/// An API server that fails some requests, and then has no Secret, and creates each.
#[derive(Clone)]
struct FailingServer(Arc<Mutex<usize>>);

impl tower_service::Service<http::Request<kube::client::Body>> for FailingServer {
    type Response = http::Response<http_body_util::Full<bytes::Bytes>>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<kube::client::Body>) -> Self::Future {
        let mut failures = self.0.lock();
        let (code, body) = if *failures > 0 {
            *failures -= 1;
            (503, failure(503, "ServiceUnavailable"))
        } else if request.method() == http::Method::GET {
            (404, failure(404, "NotFound"))
        } else {
            let secret = serde_json::json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": { "name": "istio-ca-secret", "resourceVersion": "1" },
            });
            (201, secret)
        };
        let response = http::Response::builder()
            .status(code)
            .body(http_body_util::Full::from(body.to_string()));
        std::future::ready(Ok(response.expect("a response")))
    }
}

fn failure(code: u16, reason: &str) -> serde_json::Value {
    serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
        "message": reason, "code": code,
    })
}

/// The roots are in the Secret of an API server that fails this number of requests.
fn config_of_failing(folder: &Path, failures: usize) -> KeeperConfig {
    let server = FailingServer(Arc::new(Mutex::new(failures)));
    let client = kube::Client::new(server, "istio-system");
    let secrets = kube::Api::namespaced(client, "istio-system");
    KeeperConfig {
        self_signed: RootStore::Secret(Box::new(secrets), "istio-ca-secret"),
        ..config(folder)
    }
}

#[tokio::test(start_paused = true)]
async fn the_start_outlasts_failures_of_the_api_server() {
    let folder = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let started = start(config_of_failing(folder.path(), 3)).await;
    assert!(started.is_ok(), "{:?}", started.err());
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_for_long_is_given_up_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let error = start(config_of_failing(folder.path(), usize::MAX)).await;
    let error = chain(&error.unwrap_err());
    assert!(error.contains("ServiceUnavailable"), "{error}");
    let lasted = begun.elapsed();
    assert!(lasted >= MAX_START_TIME, "{lasted:?}");
    assert!(lasted < MAX_START_TIME * 2, "{lasted:?}");
}
