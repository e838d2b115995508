//! Bodies of admission reviews, cut at any place: a body in pieces gets the same response as the
//! whole body, and a truncated body is never admitted.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use navarch::api::mesh::MeshConfig;
use navarch::webhook::inject::{Injector, InjectorInputs};
use navarch::webhook::{CurrentInjector, InjectorState, Limits, Metrics, Webhooks, routes};
use serde_json::Value;
use tower_service::Service as _;

/// The number of places at which one body is cut.
const CUTS: usize = 12;

/// Posts one body in pieces, and truncated.
///
/// # Panics
/// If the pieces change the response, or a truncated review is admitted.
pub fn run(data: &[u8]) {
    let inputs = InjectorInputs::new(Arc::new(MeshConfig::istio_defaults()));
    let injector = Arc::new(Injector::new(&inputs).expect("the default configuration is valid"));
    let current = CurrentInjector::new(InjectorState::Ready {
        injector,
        rejected: None,
    });
    let webhooks = Webhooks::new(
        Arc::new(|| true),
        Arc::new(|| None),
        current,
        Limits::default(),
        Metrics::default(),
    );

    let webhooks = Arc::new(webhooks);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let ask = |path: &str, pieces: &[&[u8]]| {
        let pieces: Vec<_> = pieces
            .iter()
            .map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::copy_from_slice(piece))))
            .collect();
        let body = axum::body::Body::new(StreamBody::new(futures_util::stream::iter(pieces)));
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header("content-type", "application/json");
        let request = request.body(body).expect("the request is valid");

        runtime.block_on(async {
            let answer = routes(webhooks.clone())
                .call(request)
                .await
                .expect("the webhook responds");
            let status = answer.status();

            (
                status,
                answer
                    .into_body()
                    .collect()
                    .await
                    .expect("the response body ends")
                    .to_bytes(),
            )
        })
    };

    for path in ["/validate", "/inject"] {
        let whole = ask(path, &[data]);

        for cut in 1..=CUTS {
            let at = data.len() * cut / (CUTS + 1);
            let (begin, end) = data.split_at(at);
            assert_eq!(ask(path, &[begin, end]), whole, "{path}, cut at {at}");
            assert_eq!(
                ask(path, &[begin, b"", end]),
                whole,
                "{path}, cut at {at} with an empty frame between"
            );

            // A truncated body can still be whole JSON: whitespace may follow a review's last
            // brace.
            if serde_json::from_slice::<Value>(begin).is_err() {
                let (_, answer) = ask(path, &[begin]);
                let answer = serde_json::from_slice(&answer).unwrap_or(Value::Null);
                assert_ne!(
                    answer.pointer("/response/allowed"),
                    Some(&Value::Bool(true)),
                    "{path}, ended at {at}"
                );
            }
        }
    }
}
