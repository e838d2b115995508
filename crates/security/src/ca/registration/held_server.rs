//! An API server in the same process, which creates objects when a test lets it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// Shared by its clones.
#[derive(Clone)]
pub(in super::super) struct HeldServer {
    /// Requests that have arrived, as method and last part of the path.
    calls: Arc<Mutex<Vec<String>>>,
    /// How many objects may be created.
    pub(in super::super) creations: Arc<Semaphore>,
    /// The codes of the next deletions; 0 for none at all. Afterwards all succeed.
    pub(in super::super) deletions: Arc<Mutex<VecDeque<u16>>>,
    /// What was written last.
    written: Arc<Mutex<Value>>,
}

impl HeldServer {
    pub(in super::super) fn new() -> Self {
        Self {
            calls: Arc::default(),
            creations: Arc::new(Semaphore::new(0)),
            deletions: Arc::default(),
            written: Arc::default(),
        }
    }

    /// The last parts of the paths of requests with this method.
    pub(in super::super) fn called(&self, method: &str) -> Vec<String> {
        let calls = self.calls.lock();
        let of = |call: &String| Some(call.strip_prefix(method)?.trim().to_owned());
        calls.iter().filter_map(of).collect()
    }

    /// Waits for this number of requests with this method.
    pub(in super::super) async fn until_called(&self, method: &str, count: usize) {
        let called = async {
            while self.called(method).len() < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let limit = Duration::from_secs(600);
        let result = tokio::time::timeout(limit, called).await;
        assert!(result.is_ok(), "{method}: {:?}", self.calls.lock());
    }

    /// The name of the object that was written last.
    pub(in super::super) fn name(&self) -> String {
        let name = self.written.lock()["metadata"]["name"].clone();
        name.as_str().expect("a name").to_owned()
    }

    async fn answer(self, request: Request<Body>) -> (u16, Value) {
        let (head, body) = request.into_parts();
        if head.method == Method::GET {
            return (200, self.written.lock().clone());
        }

        let bytes = body.collect().await.expect("a body").to_bytes();
        let object: Value = serde_json::from_slice(&bytes).expect("an object");
        *self.written.lock() = object.clone();
        if head.method == Method::POST {
            let permit = self.creations.acquire().await;
            permit.expect("never closed").forget();
        }
        (200, object)
    }
}

impl tower_service::Service<Request<Body>> for HeldServer {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let last = request.uri().path().rsplit('/').next().unwrap_or_default();
        let call = format!("{} {last}", request.method());
        self.calls.lock().push(call);

        let server = self.clone();
        let is_deletion = request.method() == Method::DELETE;
        let deletion = is_deletion.then(|| self.deletions.lock().pop_front().unwrap_or(200));
        Box::pin(async move {
            let (code, answer) = match deletion {
                Some(code) => deleted(code).await,
                None => server.answer(request).await,
            };
            let body = Full::from(answer.to_string());
            let response = Response::builder().status(code).body(body);
            Ok(response.expect("a response"))
        })
    }
}

/// The answer to a deletion; none if the code is 0.
async fn deleted(code: u16) -> (u16, Value) {
    if code == 0 {
        std::future::pending::<()>().await;
    }
    let status = match code {
        200 => "Success",
        _ => "Failure",
    };
    let answer = json!({"kind": "Status", "apiVersion": "v1", "status": status, "code": code});
    (code, answer)
}
